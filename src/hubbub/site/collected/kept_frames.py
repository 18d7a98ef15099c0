"""Frames on a party's disk, a file for each thing that was done; whole, synced, or not there.

    hubbub collection 1     the first bytes of a file
    u64 length, bytes       a part, and so on to the end

A folder belongs to one collection, or at the aggregator to one query of a study. Its owner alone
may read it. Of a frame this file knows the study that stands in its header, and no more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hubbub.core.disk import PRIVATE, read_bytes, sync_folder, why_of, write_all, write_bytes
from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.site.collected.collection_frames import CollectionPlace, Deposited
from hubbub.site.collected.collector import Collector

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
        """What files hold that are written one after the other; None where none was yet.

        Args:
            least: by the files' names, in their order, how many parts each has at the least.

        Raises:
            IntegrityError: one holds something else, or is missing before one that is there.
        """
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
        """What a file holds; None if there is none.

        Raises:
            IntegrityError: it holds something else; what was overwritten is no file that was never
                written.
        """
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


# The aggregator's frames of one collection on its disk: what it has taken, as it took it.
#
#     collect         COLLECT
#     key-NODE        NODE_KEY
#     deposit-SILO    DEPOSIT, VECTOR and, where the study is over with it, the silo's last word
#     looked-NODE-…   LOOKED, and the silos whose deposits the node was shown
#     set             SET
#     promise-NODE    SET_PROMISE
#     total-NODE      SET_TOTAL
#
# Each is on the disk before anything follows from it. An aggregator that is started again takes the
# same frames again, and is where it was.


@dataclass(kw_only=True)
class CollectorBox:
    """A collection and its files.

    Args:
        kept: the files.
        collector: made of them.
    """

    kept: KeptFrames
    collector: Collector

    @classmethod
    def found(
        cls, kept: KeptFrames, study: bytes, roster: Roster, numbers: RoundParameters
    ) -> CollectorBox | None:
        """The collection that was begun in a folder; None if none was.

        Raises:
            IntegrityError: its files are not as they were written, or of another study.
        """
        first = kept.parts("collect")
        if first is None and kept.names():  # what was opened there is not to be opened again
            raise IntegrityError(
                f"expected {kept.folder / 'collect'} beside what follows from it, it is gone; put "
                "it back where it was"
            )
        if first is None:
            return None
        try:
            place = CollectionPlace(roster=roster, study=study, id=unverified(first[0]).session)
            collector = Collector(place=place, round_parameters=numbers, collect=first[0])
            box = cls(kept=kept, collector=collector)
            box._take_again()
        except (ProtocolError, ValueError, IndexError) as error:
            raise IntegrityError(
                f"expected the frames in {kept.folder} to make a collection of this study, they "
                f"do not: {error}; restore the folder from a backup"
            ) from None
        return box

    @classmethod
    def begun(
        cls, kept: KeptFrames, place: CollectionPlace, numbers: RoundParameters, collect: bytes
    ) -> CollectorBox:
        """A new collection."""
        kept.keep("collect", collect)
        collector = Collector(place=place, round_parameters=numbers, collect=collect)
        return cls(kept=kept, collector=collector)

    def take_key(self, node: int, frame: bytes) -> None:
        """A node's key, which is refused or kept before it is shown to anybody."""
        self._check(node, frame)
        self.collector.take_key(frame)
        self.kept.keep(f"key-{node}", self.collector.node_keys[node])

    def take_deposit(self, silo: int, frames: Sequence[bytes]) -> None:
        """A silo's deposit, and its last word where there is one."""
        if len(frames) not in (2, 3):
            raise ProtocolError("expected DEPOSIT and VECTOR, got others", culprit="relay")
        for frame in frames:
            self._check(silo, frame)
        if self.collector.take_deposit(Deposited(deposit=frames[0], vector=frames[1])):
            self.kept.keep(f"deposit-{silo}", *frames)

    def take_look(self, node: int, shown: list[int], frame: bytes) -> frozenset[int]:
        """What a node says of the seeds that it was shown."""
        closed = self.collector.take_look(node, shown, frame)
        number = len(self.kept.names())
        self.kept.keep(f"looked-{node}-{number}", frame, json.dumps(shown).encode())
        return closed

    def fix(self, keys: Keys) -> None:
        """Fix the set; it is on the disk before any node sees it."""
        fixed = self.collector.fix(keys)
        self.kept.keep("set", fixed)
        self.collector.take_set(fixed)

    def take_promise(self, node: int, frame: bytes) -> None:
        """A node's promise."""
        self._check(node, frame)
        self.collector.take_promise(frame)
        self.kept.keep(f"promise-{node}", frame)

    def take_total(self, node: int, frame: bytes) -> None:
        """A node's total."""
        self._check(node, frame)
        self.collector.take_total(frame)
        self.kept.keep(f"total-{node}", frame)

    def last_word(self, silo: int) -> bytes | None:
        """The CLOSED that came with a silo's deposit."""
        frames = self.kept.parts(f"deposit-{silo}") or []
        return frames[2] if len(frames) > 2 else None

    def _check(self, index: int, frame: bytes) -> None:
        """A frame is of whom it was asked; everything else is found out where it is taken."""
        if unverified(frame).sender != index:
            raise ProtocolError("expected a frame of who was asked, got another's", culprit="relay")

    def _take_again(self) -> None:
        """All that is on the disk, in the order in which it follows."""
        take: dict[str, Callable[[int, list[bytes]], object]] = {
            "key": lambda _, parts: self.collector.take_key(parts[0]),
            "deposit": lambda _, parts: self.collector.take_deposit(
                Deposited(deposit=parts[0], vector=parts[1])
            ),
            "looked": lambda node, parts: self.collector.take_look(
                node, json.loads(parts[1]), parts[0]
            ),
            "set": lambda _, parts: self.collector.take_set(parts[0]),
            "promise": lambda _, parts: self.collector.take_promise(parts[0]),
            "total": lambda _, parts: self.collector.take_total(parts[0]),
        }
        names = self.kept.names()
        for kind, taken in take.items():
            for name in (one for one in names if one.split("-")[0] == kind):
                index = int(name.split("-")[1]) if "-" in name else 0
                taken(index, self.kept.parts(name) or [])
