"""The head of a chain as it was noted last, in a small file beside it.

SQLite takes a log with a damaged end for one that ends earlier: after a crash a single flipped bit,
or a `-wal` file that was thrown away, would shorten the chain, and what is left is a chain. So the
number and the digest of the newest row are noted here, once they are on disk. The note itself is
not synced: it survives a killed process, costs nothing, and never says more than the chain holds.
It proves nothing against somebody who changes both files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hubbub.core.disk import PRIVATE, read_bytes, why_of
from hubbub.core.errors import IntegrityError
from hubbub.core.ledger.row import Head

_MOST_BYTES = 1024
_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{64})\n")


class NotedHead:
    """The note in one file, which is made when there is something to note."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def writer(self) -> Iterator[Callable[[Head], None]]:
        """What notes a head that is on disk, open before it is: else it may cost what none gets."""
        with ExitStack() as stack:

            def opened(flags: int) -> int:
                descriptor = os.open(self.path, flags, PRIVATE)
                stack.callback(os.close, descriptor)
                return descriptor

            before = opened(os.O_WRONLY) if self.path.exists() else None

            def write(head: Head) -> None:
                descriptor = opened(os.O_WRONLY | os.O_CREAT) if before is None else before
                line = f"{head.number:020d} {head.digest.hex()}\n".encode()
                os.pwrite(descriptor, line, 0)  # of one length always, so that nothing is cut off

            yield write

    def read(self) -> Head | None:
        """What was noted; None if nothing was, or a power cut took it."""
        stored = self._settled()
        if not stored:
            return None
        match = _LINE.fullmatch(stored)
        if match is None:
            raise IntegrityError(
                f"expected the number and the digest of a row in {self.path}, found something "
                "else; restore it from a backup, or remove it once the ledger beside it was "
                "verified against a head noted elsewhere"
            )
        return Head(int(match[1]), bytes.fromhex(match[2].decode()))

    def _settled(self) -> bytes:
        """The file's bytes, the same twice: another process may be writing them."""
        before = None
        while True:
            try:
                stored = read_bytes(self.path, most=_MOST_BYTES)
            except FileNotFoundError:
                return b""
            except OSError as error:
                raise IntegrityError(
                    f"expected to read {self.path}, got: {why_of(error)}; see to the disk and who "
                    "may read it, or restore it from a backup"
                ) from None
            if stored == before:
                return stored
            before = stored
