"""The aggregator's part in a collection: it takes what comes, in any order, and sums one set.

It holds nothing secret, and is trusted with nothing but to go on. What it takes is on its disk
(`CollectorBox`); the same frames, taken again, make the same collector. A frame that comes twice
changes nothing. Of a silo's two deposits the first counts: one whose machine was set back signs
another, and that is no lie (docs/privacy.md P30).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.wire import VERSION, ExpectedFrames, Frame, Tag, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded
from hubbub.core.session.offer import SessionOffer
from hubbub.core.verification.replay.course import Course
from hubbub.core.verification.replay.replayed_session import ReplayedSession, offer_in
from hubbub.core.verification.transcript.frame_records import Header, Kept, read
from hubbub.site.collected.collection_frames import (
    CollectionPlace,
    Deposited,
    FixedSet,
    Opening,
    check_opening,
    fixed_set,
    key_in,
    read_deposit,
    read_vector,
)
from hubbub.site.collected.node import digest_of_shown
from hubbub.site.network.kept_frames import KeptFrames


@dataclass(kw_only=True)
class Collector:
    """One collection at the aggregator."""

    place: CollectionPlace
    round_parameters: RoundParameters
    collect: bytes = field(repr=False)
    node_keys: dict[int, bytes] = field(default_factory=dict, repr=False)
    deposits: dict[int, Deposited] = field(default_factory=dict, repr=False)
    closed: dict[int, frozenset[int]] = field(default_factory=dict)  # by node, of what it has seen
    fixed: bytes = field(default=b"", repr=False)
    promises: dict[int, bytes] = field(default_factory=dict, repr=False)
    totals: dict[int, bytes] = field(default_factory=dict, repr=False)
    _digests: dict[int, bytes] = field(default_factory=dict, repr=False)  # of DEPOSITs, by silo
    _seen: dict[int, frozenset[int]] = field(default_factory=dict)  # by node, the silos it saw
    _opening: Opening | None = None
    _named: FixedSet | None = None

    @property
    def opening(self) -> Opening | None:
        """The opening, once all nodes have sent their keys."""
        if self._opening is None and len(self.node_keys) == len(self.place.roster.nodes):
            keys = [self.node_keys[node] for node in self.place.roster.nodes]
            self._opening = Opening.read(self.place, self.collect, keys)
        return self._opening

    def take_key(self, data: bytes) -> bool:
        """A node's NODE_KEY; whether it was the first of this node, which counts."""
        frame = self._from_node(data, Tag.NODE_KEY)
        key_in(self.place, frame, self.place.parsed(self.collect, Tag.COLLECT, 0).digest)
        return self.node_keys.setdefault(frame.sender, data) == data

    def take_deposit(self, deposited: Deposited) -> bool:
        """A silo's deposit; whether it was the first of this silo."""
        opening = self._opened()
        read = read_deposit(self.place, deposited.deposit)
        check_opening(opening, read)
        read_vector(self.place, deposited.vector, read, self.round_parameters)
        if read.silo in self.deposits:
            return False
        self.deposits[read.silo] = deposited
        self._digests[read.silo] = read.digest
        return True

    def to_look(self, node: int) -> list[int]:
        """Silos of whose deposits a node has not said yet whether its seed opens."""
        if self.fixed:
            return []
        return sorted(set(self.deposits) - self._seen.get(node, frozenset()))

    def take_look(self, node: int, shown: list[int], data: bytes) -> frozenset[int]:
        """What a node says of these deposits; the silos whose seeds do not open there."""
        frame = self._from_node(data, Tag.LOOKED)
        name = self.place.roster.name(node)
        closed, digest = self.round_parameters.read_named(frame, name)
        mine = digest_of_shown(self._opened(), {silo: self._digests[silo] for silo in shown})
        if frame.sender != node or digest != mine:
            raise ProtocolError(
                f"expected {name} to speak of the deposits that it was shown, got others",
                culprit="relay",
            )
        if not closed <= set(shown):
            raise ProtocolError("expected a LOOKED about what it was shown", culprit=name)
        self.closed[node] = self.closed.get(node, frozenset()) | closed
        self._seen[node] = self._seen.get(node, frozenset()) | set(shown)
        return closed

    @property
    def ready(self) -> list[int]:
        """Silos whose seeds all nodes have opened: who may be in the set."""
        nodes = self.place.roster.nodes
        return [
            silo
            for silo in sorted(self.deposits)
            if all(silo in self._seen.get(node, ()) for node in nodes)
            and not any(silo in self.closed.get(node, ()) for node in nodes)
        ]

    def fix(self, keys: Keys) -> bytes:
        """The SET of all that are ready; once, and it is to be kept before anybody sees it."""
        if self.fixed:
            return self.fixed
        ready, least = self.ready, self.round_parameters.quorum
        if len(ready) < least:
            raise ProtocolError(f"expected deposits of at least {least} silos, got {len(ready)}")
        digests = {silo: self._digests[silo] for silo in ready}
        return fixed_set(self._opened(), keys, digests, self.round_parameters)

    def take_set(self, data: bytes) -> None:
        """Its own SET, from now on."""
        self._named = FixedSet.read(self._opened(), data, self.round_parameters)
        self.fixed = data

    @property
    def named(self) -> list[int]:
        """The silos of the set; none before it is fixed."""
        return [] if self._named is None else sorted(self._named.deposits)

    def take_promise(self, data: bytes) -> None:
        """A node's SET_PROMISE."""
        frame = self._from_node(data, Tag.SET_PROMISE)
        self._check_named(frame, bytes(frame.payload))
        self.promises[frame.sender] = data

    def take_total(self, data: bytes) -> None:
        """A node's SET_TOTAL."""
        frame = self._from_node(data, Tag.SET_TOTAL)
        size = self.round_parameters.masked_bytes
        if len(frame.payload) != size + DIGEST_BYTES:
            raise ProtocolError(
                f"expected a SET_TOTAL of {size + DIGEST_BYTES} bytes, got {len(frame.payload)}",
                culprit=self.place.roster.name(frame.sender),
            )
        self._check_named(frame, bytes(frame.payload[size:]))
        self.totals[frame.sender] = data

    @property
    def all_promised(self) -> bool:
        """Whether totals may be asked for."""
        return bool(self.fixed) and len(self.promises) == len(self.place.roster.nodes)

    @property
    def is_complete(self) -> bool:
        """Whether the sum can be taken."""
        return self.all_promised and len(self.totals) == len(self.place.roster.nodes)

    def integers(self) -> ring.Integers:
        """The sum of the set, in grid steps."""
        if not self.is_complete:
            raise ProtocolError("expected the totals of all nodes, got fewer; nothing opens")
        numbers = self.round_parameters
        total = ring.zeros(numbers.dimension, numbers.word_bits)
        for silo in self.named:
            read = read_deposit(self.place, self.deposits[silo].deposit)
            total += read_vector(self.place, self.deposits[silo].vector, read, numbers)
        for data in self.totals.values():
            payload = self.place.parsed(data, Tag.SET_TOTAL).payload
            total -= ring.from_bytes(payload, numbers.dimension, numbers.word_bits)
        return ring.representatives(total)

    def frames(self) -> Iterator[bytes]:
        """All that a verifier needs, in the order in which it follows from what was before."""
        yield self.collect
        yield from _in_order(self.node_keys)
        for silo in self.named:
            yield from (self.deposits[silo].deposit, self.deposits[silo].vector)
        yield self.fixed
        yield from _in_order(self.promises)
        yield from _in_order(self.totals)

    def _opened(self) -> Opening:
        if self.opening is None:
            raise ProtocolError("expected the keys of all nodes first, got fewer")
        return self.opening

    def _from_node(self, data: bytes, tag: Tag) -> Frame:
        frame = self.place.parsed(data, tag)
        if frame.sender not in self.place.roster.nodes:
            raise ProtocolError(
                f"expected a {tag.name} of a node, got another's",
                culprit=self.place.roster.name(frame.sender),
            )
        return frame

    def _check_named(self, frame: Frame, digest: bytes) -> None:
        """What a node says is about the set."""
        if self._named is None or digest != self._named.digest:
            raise ProtocolError(
                f"expected a {frame.tag.name} about the SET, got one about another",
                culprit=self.place.roster.name(frame.sender),
            )


def _in_order(frames: Mapping[int, bytes]) -> Iterator[bytes]:
    return (frames[index] for index in sorted(frames))


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
    """A collection and its files."""

    kept: KeptFrames
    collector: Collector

    @classmethod
    def found(
        cls, kept: KeptFrames, study: bytes, roster: Roster, numbers: RoundParameters
    ) -> CollectorBox | None:
        """The collection that was begun in a folder; None if none was."""
        first = kept.parts("collect")
        if first is None and kept.names():  # what was opened there is not to be opened again
            raise IntegrityError(
                f"expected {kept.folder / 'collect'} beside what follows from it, it is gone; put "
                "it back where it was"
            )
        if first is None:
            return None
        try:
            place = CollectionPlace(
                roster=roster, study=study, session=unverified(first[0]).session
            )
            collector = Collector(place=place, round_parameters=numbers, collect=first[0])
            for kind, taken in _TAKEN.items():
                for name in (one for one in kept.names() if one.split("-")[0] == kind):
                    index = int(name.split("-")[1]) if "-" in name else 0
                    taken(collector, index, kept.parts(name) or [])
        except (ProtocolError, ValueError, LookupError) as error:
            raise IntegrityError(
                f"expected the frames in {kept.folder} to make a collection of this study, they "
                f"do not: {error}; restore the folder from a backup"
            ) from None
        return cls(kept=kept, collector=collector)

    @classmethod
    def begun(
        cls, kept: KeptFrames, place: CollectionPlace, numbers: RoundParameters, collect: bytes
    ) -> CollectorBox:
        """A new collection."""
        kept.keep("collect", collect)
        collector = Collector(place=place, round_parameters=numbers, collect=collect)
        return cls(kept=kept, collector=collector)

    def take(self, kind: str, index: int, frames: Sequence[bytes]) -> None:
        """What a party has sent of a kind: refused, or kept before anybody else sees it."""
        _check_count(kind, frames)
        if any(unverified(frame).sender != index for frame in frames):
            raise ProtocolError("expected a frame of who was asked, got another's", culprit="relay")
        if _TAKEN[kind](self.collector, index, frames) is not False:
            self.kept.keep(f"{kind}-{index}", *frames)

    def take_look(self, node: int, shown: list[int], frames: Sequence[bytes]) -> frozenset[int]:
        """What a node says of the seeds that it was shown."""
        _check_count("looked", frames)
        (frame,) = frames
        closed = self.collector.take_look(node, shown, frame)
        number = len(self.kept.names())
        self.kept.keep(f"looked-{node}-{number}", frame, json.dumps(shown).encode())
        return closed

    def fix(self, keys: Keys) -> None:
        """Fix the set; it is on the disk before any node sees it."""
        fixed = self.collector.fix(keys)
        self.kept.keep("set", fixed)
        self.collector.take_set(fixed)

    def last_word(self, silo: int) -> bytes | None:
        """The CLOSED that came with a silo's deposit."""
        frames = self.kept.parts(f"deposit-{silo}") or []
        return frames[2] if len(frames) > 2 else None


_PARTS = {"deposit": ((2, 3), "DEPOSIT and VECTOR")}  # frames of a kind; one of any other
# How each file is taken, in the order in which they follow: by its kind, of whom, and its parts.
_TAKEN: dict[str, Callable[[Collector, int, Sequence[bytes]], object]] = {
    "key": lambda collector, _, parts: collector.take_key(parts[0]),
    "deposit": lambda collector, _, parts: collector.take_deposit(
        Deposited(deposit=parts[0], vector=parts[1])
    ),
    "looked": lambda collector, node, parts: collector.take_look(
        node, json.loads(parts[1]), parts[0]
    ),
    "set": lambda collector, _, parts: collector.take_set(parts[0]),
    "promise": lambda collector, _, parts: collector.take_promise(parts[0]),
    "total": lambda collector, _, parts: collector.take_total(parts[0]),
}


def _check_count(kind: str, frames: Sequence[bytes]) -> None:
    """As many frames as an answer of a kind has."""
    counts, words = _PARTS.get(kind, ((1,), "one frame"))
    if len(frames) not in counts:
        raise ProtocolError(f"expected {words}, got others", culprit="relay")


# A collection played again: one sum of deposits that came over weeks (docs/privacy.md P30).
#
# Theory of operation. The frames stand in the order in which each follows from those before it:
# COLLECT, which says what the transcript is of; the nodes' keys; a deposit and its vector of each
# silo in the set; the SET; the promises of all nodes; their totals. Every signature is verified,
# each deposit is for this opening and in the SET by its digest, every promise and total is about
# that SET. Where vectors were kept the sum is made again. The keys in a transcript's header are
# believed here, and no other file is known.

_ORDER = (
    Tag.COLLECT,
    Tag.NODE_KEY,
    Tag.DEPOSIT,  # each with its VECTOR
    Tag.SET,
    Tag.SET_PROMISE,
    Tag.SET_TOTAL,
)


def player_of(
    path: Path, header: Header, round_parameters: RoundParameters, course: Course | None
) -> CollectionReplay | None:
    """What plays a transcript of a collection, which it is by its first frame."""
    is_one = next((kept.tag is Tag.COLLECT for kept in read(path)), False)
    return CollectionReplay(header, round_parameters, course) if is_one else None


class CollectionReplay:
    """One collection while it is played; its sum is one step along the course."""

    def __init__(
        self, header: Header, round_parameters: RoundParameters, course: Course | None
    ) -> None:
        self._header, self._numbers, self._course = header, round_parameters, course
        self._place = CollectionPlace(
            roster=header.roster, study=header.study, session=header.session
        )
        self._offer: SessionOffer | None = None
        self._frames: dict[Tag, list[Kept]] = {tag: [] for tag in (*_ORDER, Tag.VECTOR)}

    def play(self, path: Path, look: Callable[[], None] = lambda: None) -> ReplayedSession:
        """All frames of the transcript."""
        try:
            # Take the frames in, each signed by its sender and not before what it rests on.
            at = 0
            for kept in read(path):
                # It is of this collection, and signed, also where its payload is not here.
                roster = self._place.roster
                if (kept.study, kept.session) != (self._place.study, self._place.id):
                    raise ProtocolError(
                        f"expected a {kept.tag.name} of this collection, found another's"
                    )
                if kept.sender >= len(roster.parties) or not roster.parties[kept.sender].verifies(
                    kept.signature, kept.signed
                ):
                    raise ProtocolError(
                        f"expected a {kept.tag.name} signed by {roster.name(kept.sender)}, found a "
                        "false signature"
                    )
                tag = Tag.DEPOSIT if kept.tag is Tag.VECTOR else kept.tag
                if tag not in _ORDER or _ORDER.index(tag) < at or kept.version != VERSION:
                    raise ProtocolError(f"expected no {kept.tag.name} there, found one")
                at = _ORDER.index(tag)
                self._frames[kept.tag].append(kept)
            if self._course is not None:
                self._course.reach(1)
            total = self._summed()
        except ProtocolError as error:
            raise IntegrityError(
                f"expected {path} to hold a collection whose sum follows from its frames; {error}; "
                "ask the aggregator to account for it, and rely on no answer from it"
            ) from None
        look()
        return self._played(total)

    def _summed(self) -> ring.Residues | None:
        """The sum, if vectors were kept; everything about it is checked either way."""
        frames, place = self._frames, self._place
        collect, fixed = self._one(Tag.COLLECT), self._one(Tag.SET)
        self._offer = offer_in(frames[Tag.COLLECT][0], self._header, self._numbers)
        opening = Opening.read(place, collect, [one.frame for one in frames[Tag.NODE_KEY]])
        named = FixedSet.read(opening, fixed, self._numbers)
        deposits = [one.frame for one in frames[Tag.DEPOSIT]]
        hashes = {silo: one.vector for silo, one in named.of(opening, deposits).items()}
        vectors = {one.sender: one for one in frames[Tag.VECTOR]}
        if {i: one.digest for i, one in vectors.items()} != hashes or len(
            frames[Tag.VECTOR]
        ) != len(vectors):
            raise ProtocolError("expected the vector that each silo has signed with its deposit")
        promises = ExpectedFrames(place, Tag.SET_PROMISE, place.roster.nodes)
        for kept in frames[Tag.SET_PROMISE]:
            if bytes(promises.take(kept.frame).payload) != named.digest:
                raise ProtocolError("expected every node to promise this SET, found another")
        promises.check_whole(why="it has not promised the set")
        # One total of every node.
        if Counter(frame.sender for frame in frames[Tag.SET_TOTAL]) != Counter(place.roster.nodes):
            raise ProtocolError("expected one SET_TOTAL of every node, found others")
        totals = frames[Tag.SET_TOTAL]
        if any(one.payload is None for one in (*vectors.values(), *totals)):
            return None
        total = ring.zeros(self._numbers.dimension, self._numbers.word_bits)
        for one in vectors.values():
            total += self._residues(one, b"")
        for one in totals:
            total -= self._residues(one, named.digest)
        return total

    def _residues(self, kept: Kept, after: bytes) -> ring.Residues:
        """The vector in a frame that was kept, which nothing but `after` follows."""
        payload, size = kept.payload or b"", self._numbers.masked_bytes
        if len(payload) != size + len(after) or payload[size:] != after:
            raise ProtocolError(f"expected a {kept.tag.name} of this sum, found another")
        return ring.from_bytes(payload, self._numbers.dimension, self._numbers.word_bits)

    def _one(self, tag: Tag) -> bytes:
        """The only frame of a kind."""
        if len(self._frames[tag]) != 1:
            raise ProtocolError(f"expected one {tag.name}, found {len(self._frames[tag])}")
        return self._frames[tag][0].frame

    def _played(self, total: ring.Residues | None) -> ReplayedSession:
        """What it came to, and the step that follows."""
        played = ReplayedSession(
            frames=sum(map(len, self._frames.values())),
            offer=self._offer,
            is_collection=True,
            begun=1,
            attempts=1,
            answers=Counter(deposit.sender for deposit in self._frames[Tag.DEPOSIT]),
            unseen=int(total is None),
            withheld=int(total is None),
        )
        if self._course is not None:
            opened = None if total is None else decoded(self._numbers, ring.to_integers(total))
            self._course.step(1, opened)
        return played
