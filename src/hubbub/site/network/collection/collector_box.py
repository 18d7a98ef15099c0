"""The aggregator's frames of one collection on its disk: what it has taken, as it took it.

    collect         COLLECT
    key-NODE        NODE_KEY
    deposit-SILO    DEPOSIT, VECTOR and, where the study is over with it, the silo's last word
    looked-NODE-…   LOOKED, and the silos whose deposits the node was shown
    set             SET
    promise-NODE    SET_PROMISE
    total-NODE      SET_TOTAL

Each is on the disk before anything follows from it. An aggregator that is started again takes the
same frames again, and is where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.site.collected.collection_opening import CollectionPlace
from hubbub.site.collected.collector import Collector
from hubbub.site.collected.deposit import Deposited
from hubbub.site.network.collection.kept_frames import KeptFrames


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
