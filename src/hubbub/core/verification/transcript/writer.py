"""Writing the transcript of a session: every frame that the aggregator sent or used, in one file.

A file is made with its header, frames are appended, and `seal` puts all of it on disk, which the
training does before a step is made of them. What a record looks like, and reading it, is in
`frame_records.py`; what the frames add up to is the business of `verification`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

from hubbub.core.disk import fresh, sync_folder, why_of, write_all, write_bytes
from hubbub.core.errors import IntegrityError
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.verification.transcript.frame_records import (
    Header,
    end_of,
    files,
    first_head,
    path_of,
    record_of,
    start_of,
)


class Transcript:
    """The file of one session while it is written; nobody else writes to it.

    Guarantees:
        1. The operating system has a frame when `keep` returns, and the disk when `seal` does.
        2. Once a frame was refused, every later one is.

    Args:
        folder: the run's; the file is `transcript/<session>.frames` in it.
        study, session, roster, purpose: see `Header`.
        full: whether to keep masked vectors and totals, or their hashes.
        round_parameters: the numbers of the rounds, without which sums cannot be made again.

    Raises:
        IntegrityError: the session has a transcript already, or the disk does not take it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        study: bytes,
        session: bytes,
        roster: Roster,
        full: bool,
        purpose: str,
        round_parameters: RoundParameters | None = None,
    ) -> None:
        self._path, self._full = path_of(folder, session), full
        self._file: BinaryIO | None = None
        header = Header(
            study=study,
            session=session,
            purpose=purpose,
            number=len(files(folder)),
            roster=roster,
            round_parameters=round_parameters,
        )
        with self._reported():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                raise FileExistsError("there is a transcript of this session already")
            self._head = self._begin(start_of(header))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Append a frame; IntegrityError if the disk does not take it: nothing more is kept.

        `short` is what stands for its payload, from whoever has verified the frame.
        """
        pieces, head = record_of(frame, self._head, full=self._full, short=short)
        with self._reported(self.close):
            for piece in pieces:
                write_all(self._open, piece)
        self._head = head

    def seal(self) -> None:
        """Have everything so far on disk when this returns; IntegrityError as for `keep`."""
        with self._reported(self.close):
            os.fsync(self._open.fileno())

    def close(self) -> None:
        """Close the file; it is never opened for writing again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def head(self) -> bytes:
        """The digest that stands for all frames so far."""
        return self._head

    @property
    def _open(self) -> BinaryIO:
        if self._file is None:
            raise OSError("it was closed, or an earlier frame could not be written")
        return self._file

    def _begin(self, start: bytes) -> bytes:
        """Write the header and only then give the file its name; the first head."""
        part, head = self._path.with_name(self._path.name + ".part"), first_head(start)
        self._file = fresh(part)
        write_all(self._file, start + head)
        os.fsync(self._file.fileno())
        part.rename(self._path)
        sync_folder(self._path.parent)
        return head

    @contextmanager
    def _reported(self, then: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The disk's errors as ours."""
        try:
            yield
        except OSError as error:
            then()
            raise _not_taken(self._path, error) from None


def recover(path: Path) -> int:
    """Cut off a last record that a crash tore, and return how many bytes that were.

    They are put beside the file, as `<session>.torn`, so that nothing is lost. A file with which
    something else is wrong is left as it is; errors are those of `end_of`.
    """
    end = end_of(path)
    surplus = path.stat().st_size - end
    if surplus:
        try:
            with path.open("r+b") as file:
                file.seek(end)
                # Kept beside the file first, so that a crash here loses nothing either.
                write_bytes(path.with_suffix(".torn"), file.read())
                file.truncate(end)
                os.fsync(file.fileno())
        except OSError as error:
            raise _not_taken(path, error) from None
    return surplus


def _not_taken(path: Path, error: OSError) -> IntegrityError:
    return IntegrityError(
        f"expected {path} to take what was sent, got: {why_of(error)}; fix the disk, then resume "
        "the run"
    )
