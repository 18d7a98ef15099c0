"""A collection played again: one sum of deposits that came over weeks (docs/privacy.md P30).

Theory of operation. The frames stand in the order in which each follows from those before it:
COLLECT, which says what the transcript is of; the nodes' keys; a deposit and its vector of each
silo in the set; the SET; the promises of all nodes; their totals. Every signature is verified, each
deposit is for this opening and in the SET by its digest, every promise and total is about that SET.
Where vectors were kept the sum is made again. The keys in a transcript's header are believed here,
and no other file is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import IntegrityError, ProtocolError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import VERSION, Tag
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded
from hubbub.core.session.session_offer import SessionOffer
from hubbub.core.verification.replay.course import Course
from hubbub.core.verification.replay.replayed_offer import offer_in
from hubbub.core.verification.replay.replayed_session import ReplayedSession
from hubbub.core.verification.transcript.frame_records import Kept, read
from hubbub.core.verification.transcript.transcript_header import Header
from hubbub.site.collected.collection_opening import CollectionPlace, Opening
from hubbub.site.collected.deposit import read_deposit
from hubbub.site.collected.fixed_set import FixedSet

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
    """One collection while it is played; its sum is one step along the course.

    Args:
        header: of the transcript.
        round_parameters: the numbers of the sum, which are the plan's.
        course: where the sum leads.
    """

    def __init__(
        self, header: Header, round_parameters: RoundParameters, course: Course | None
    ) -> None:
        self._header, self._numbers, self._course = header, round_parameters, course
        self._place = CollectionPlace(roster=header.roster, study=header.study, id=header.session)
        self._offer: SessionOffer | None = None
        self._frames: dict[Tag, list[Kept]] = {tag: [] for tag in (*_ORDER, Tag.VECTOR)}

    def play(self, path: Path, look: Callable[[], None] = lambda: None) -> ReplayedSession:
        """All frames of the transcript.

        Raises:
            IntegrityError: the collection does not follow from them; it says what does not.
        """
        try:
            self._read(path)
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

    def _read(self, path: Path) -> None:
        """Take the frames in, each signed by its sender and not before what it rests on."""
        at = 0
        for kept in read(path):
            self._check_signed(kept)
            tag = Tag.DEPOSIT if kept.tag is Tag.VECTOR else kept.tag
            if tag not in _ORDER or _ORDER.index(tag) < at or kept.version != VERSION:
                raise ProtocolError(f"expected no {kept.tag.name} there, found one")
            at = _ORDER.index(tag)
            self._frames[kept.tag].append(kept)

    def _check_signed(self, kept: Kept) -> None:
        """It is of this collection, and signed, also where its payload is not here."""
        roster = self._place.roster
        if (kept.study, kept.session) != (self._place.study, self._place.id):
            raise ProtocolError(f"expected a {kept.tag.name} of this collection, found another's")
        if kept.sender >= len(roster.parties) or not roster.parties[kept.sender].verifies(
            kept.signature, kept.signed
        ):
            raise ProtocolError(
                f"expected a {kept.tag.name} signed by {roster.name(kept.sender)}, found a false "
                "signature"
            )

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
        promises = place.expected(Tag.SET_PROMISE, place.roster.nodes)
        for kept in frames[Tag.SET_PROMISE]:
            if bytes(promises.take(kept.frame).payload) != named.digest:
                raise ProtocolError("expected every node to promise this SET, found another")
        promises.check_whole(why="it has not promised the set")
        self._check_totals()
        whole = [*vectors.values(), *frames[Tag.SET_TOTAL]]
        if any(one.payload is None for one in whole):
            return None
        return self._added(vectors, named.digest)

    def _added(self, vectors: dict[int, Kept], digest: bytes) -> ring.Residues:
        numbers = self._numbers
        total = ring.zeros(numbers.dimension, numbers.word_bits)
        for one in vectors.values():
            total += self._residues(one, b"")
        for one in self._frames[Tag.SET_TOTAL]:
            total -= self._residues(one, digest)
        return total

    def _residues(self, kept: Kept, after: bytes) -> ring.Residues:
        """The vector in a frame that was kept, which nothing but `after` follows."""
        payload, size = kept.payload or b"", self._numbers.masked_bytes
        if len(payload) != size + len(after) or payload[size:] != after:
            raise ProtocolError(f"expected a {kept.tag.name} of this sum, found another")
        return ring.from_bytes(payload, self._numbers.dimension, self._numbers.word_bits)

    def _check_totals(self) -> None:
        """One total of every node."""
        senders = Counter(frame.sender for frame in self._frames[Tag.SET_TOTAL])
        if senders != Counter(self._place.roster.nodes):
            raise ProtocolError("expected one SET_TOTAL of every node, found others")

    def _one(self, tag: Tag) -> bytes:
        """The only frame of a kind."""
        if len(self._frames[tag]) != 1:
            raise ProtocolError(f"expected one {tag.name}, found {len(self._frames[tag])}")
        return self._frames[tag][0].frame

    def _played(self, total: ring.Residues | None) -> ReplayedSession:
        """What it came to, and the step that follows."""
        silos = Counter(
            {read_deposit(self._place, deposit.frame).silo: 1 for deposit in self._deposits}
        )
        played = ReplayedSession(
            frames=sum(map(len, self._frames.values())),
            offer=self._offer,
            is_collection=True,
            begun=1,
            attempts=1,
            answers=silos,
            unseen=int(total is None),
            withheld=int(total is None),
        )
        total_played: NDArray[np.float64] | None = None
        if total is not None:
            total_played = decoded(self._numbers, ring.to_integers(total))
        if self._course is not None:
            self._course.step(1, total_played)
        return played

    @property
    def _deposits(self) -> list[Kept]:
        return self._frames[Tag.DEPOSIT]
