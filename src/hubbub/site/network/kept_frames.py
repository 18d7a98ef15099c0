"""Frames on a party's disk, a file for each thing that was done; whole, synced, or not there.

    hubbub collection 1     the first bytes of a file
    u64 length, bytes       a part, and so on to the end

A folder belongs to one collection, or at the aggregator to one query of a study. Its owner alone
may read it. Of a frame this file knows the study that stands in its header, and no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.disk import PRIVATE, read_bytes, sync_folder, why_of, write_all, write_bytes
from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.primitives.wire import unverified

FOLDER = "collections"  # in a party's home
KEY, OPENED = "key", "opened"  # of a node's folder
_MAGIC = b"hubbub collection 1"
_MOST_BYTES = 1 << 30
_LENGTH = 8


@dataclass(frozen=True)
class KeptFrames:
    """The files in one folder."""

    folder: Path

    def keep(self, name: str, *parts: bytes) -> None:
        """Write a file, once; it is on the disk when this returns.

        Raises:
            IntegrityError: the disk does not take it, or holds another already, as of a second
                process of this party; nothing that follows from it must be sent.
        """
        if self.parts(name) not in (None, [*parts]):
            raise IntegrityError(
                f"expected to write {self.folder / name} once, it holds something else: two "
                "processes work for this party; end one of them"
            )
        pieces = [
            piece for part in parts for piece in (len(part).to_bytes(_LENGTH, "little"), part)
        ]
        with self._reported(name):
            self._make_folder()
            write_bytes(self.folder / name, _MAGIC, *pieces, mode=PRIVATE)

    def in_order(self, least: Mapping[str, int]) -> list[list[bytes] | None]:
        """What files hold that are written one after the other; None where none was yet."""
        contents = [self.parts(name) for name in least]
        for name, content, after in zip(least, contents, [*contents[1:], None], strict=True):
            if after is not None and content is None:
                raise self._altered(name)
            if content is not None and len(content) < least[name]:
                raise self._altered(name)
        return contents

    def erasable(self, name: str) -> list[bytes] | None:
        """As `parts` of a file that is erased in the end; None too if a crash has come into it."""
        content = self._content(name)
        return self._parted(name, content) if content and any(content) else None

    def parts(self, name: str) -> list[bytes] | None:
        """What a file holds; None if there is none."""
        content = self._content(name)
        return None if content is None else self._parted(name, content)

    def _content(self, name: str) -> bytes | None:
        """What a file holds, read once; None if there is none."""
        with self._reported(name):
            try:
                return read_bytes(self.folder / name, most=_MOST_BYTES)
            except FileNotFoundError:
                return None

    def _parted(self, name: str, content: bytes) -> list[bytes]:
        """The parts of it; IntegrityError if it is something else."""
        found, rest = list[bytes](), memoryview(content)[len(_MAGIC) :]
        while len(rest):
            end = _LENGTH + int.from_bytes(rest[:_LENGTH], "little")
            if len(rest) < end:
                break
            found.append(bytes(rest[_LENGTH:end]))
            rest = rest[end:]
        if len(rest) or not found or content[: len(_MAGIC)] != _MAGIC:
            raise self._altered(name)
        return found

    def has(self, name: str) -> bool:
        """Whether there is such a file, whatever it holds."""
        return (self.folder / name).exists()

    def names(self) -> list[str]:
        """The files that are there."""
        if not self.folder.is_dir():
            return []
        return sorted(entry.name for entry in self.folder.iterdir() if entry.suffix != ".part")

    def erase(self, name: str) -> None:
        """Overwrite a file where it stands, if it is there, and remove it.

        A disk may keep what was overwritten, and a backup does (docs/privacy.md P30).

        Raises:
            IntegrityError: as for `keep`.
        """
        path = self.folder / name
        with self._reported(name):
            if not path.exists():
                return
            with path.open("r+b", buffering=0) as file:
                write_all(file, bytes(os.fstat(file.fileno()).st_size))
                os.fsync(file.fileno())
            path.unlink()
            sync_folder(self.folder)

    def _altered(self, name: str) -> IntegrityError:
        return IntegrityError(
            f"expected {self.folder / name} as it was written, it was altered or is gone; restore "
            "the whole folder as it was last, or have the others told that this party is lost to "
            "the sum"
        )

    def _make_folder(self) -> None:
        """The folder, which is on the disk before what is in it."""
        if self.folder.is_dir():
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for one in (self.folder.parent, self.folder.parent.parent):
            sync_folder(one)

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        """The disk's errors as ours."""
        try:
            yield
        except OSError as error:
            raise IntegrityError(
                f"expected to use {self.folder / name}, the disk says: {why_of(error)}; make "
                "room, or see who may write there"
            ) from None


def open_keys(home: Path) -> Iterator[tuple[KeptFrames, bytes | None]]:
    """The collections whose keys a node has, and their studies; None where that cannot be read.

    A key of which nothing else is there was shown to nobody.
    """
    folder = home / FOLDER
    for one in sorted(folder.iterdir()) if folder.exists() else ():
        kept = KeptFrames(one)
        try:
            if not kept.has(KEY):
                continue
            opened = kept.parts(OPENED)
            study = unverified(opened[0]).study if opened else b""
        except (IntegrityError, ProtocolError, OSError):
            study = None
        yield kept, study
