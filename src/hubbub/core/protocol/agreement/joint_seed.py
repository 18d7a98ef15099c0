"""Joint randomness for every attempt of a session, one message per silo and attempt.

Theory of operation. At set-up each silo draws a secret x_L and hashes it L times, down to x_0, its
*anchor*, which it signs. The anchors are the commitments of the whole session: all silos compare
their digest before the first reveal. Every attempt has a number j that follows from its round and
attempt alone, so that nobody chooses it; for it each active silo reveals x_j, its *link*, once the
thing that the randomness must not be known to (the MODEL) is fixed. A receiver hashes a link down
to the last one that it verified: only the owner of the chain could have known it, and it could not
have been another. The seed is a hash of the links of exactly the active silos. It is uniform to
everybody else until the last honest silo reveals, so one honest silo suffices.

A link tells all links below it, which belong to times that are over, and none above. Whoever
reveals last can refuse when it dislikes the seed. It is named, and the next attempt has links of
its own; T silos that are left out one by one choose among T + 1 seeds, not more.

This file knows frames and hashes, and not what a seed is for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.message_sizes import LINK_BYTES
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel, ExpectedFrames, Tag, digest_by_party

MOST_LINKS = 1 << 24
# Every so many links one is kept: a chain of a million takes 31 kB, and a link a millisecond.
_STRIDE = 1024


def _below(place: bytes, number: int, link: bytes) -> bytes:
    """Link number - 1 of a chain, from link `number`."""
    step = number.to_bytes(4, "little")
    return hashlib.sha256(b"hubbub seed link v1" + place + step + link).digest()


def _lowered(place: bytes, number: int, link: bytes, to: int) -> bytes:
    """Link `to` of a chain, from a higher one."""
    for each in range(number, to, -1):
        link = _below(place, each, link)
    return link


class _Chain:
    """One silo's chain, of which every `_STRIDE`-th link is kept."""

    def __init__(self, place: bytes, length: int, top: bytes) -> None:
        self._place, self._kept = place, {length: top}
        high = length
        for number in [*range(length - length % _STRIDE, 0, -_STRIDE), 0]:
            if number < high:
                self._kept[number] = _lowered(place, high, self._kept[high], number)
                high = number

    def __repr__(self) -> str:
        return "_Chain(<secret>)"

    def link(self, number: int) -> bytes:
        """A link, hashed down from the next one above it that is kept."""
        above = -(-number // _STRIDE) * _STRIDE
        high = above if above in self._kept else max(self._kept)
        return _lowered(self._place, high, self._kept[high], number)


class SeedCheck:
    """What everybody can verify without a secret: the aggregator's side, and a part of each silo's.

    Args:
        channel: the session; the silos are those who draw.
        steps: the last round.
        attempts: the most attempts at one round; all must say the same.
    """

    def __init__(self, channel: Channel, *, steps: int, attempts: int = 1) -> None:
        if steps < 1 or attempts < 1 or steps * attempts > MOST_LINKS:
            raise StudyError(
                f"expected from 1 to {MOST_LINKS} attempts in a session, got {steps} rounds of "
                f"{attempts} attempts; divide the study into sessions"
            )
        self._channel, self._roster = channel, channel.roster
        self._steps, self._attempts = steps, attempts
        self._last: dict[int, tuple[int, bytes]] = {}

    def learn_anchors(self, frames: Sequence[bytes], silos: Collection[int] | None = None) -> bytes:
        """Take every silo's commitment to all its links; once per session.

        Args:
            frames: exactly one from each silo of the session.
            silos: these, by roster index; None for all that there are.

        Returns:
            A digest of 32 bytes, which all parties compare before anybody reveals.

        Raises:
            ProtocolError: an anchor is missing, doubled, forged or malformed.
        """
        # Anchors that could be exchanged after a reveal would commit to nothing.
        if self._last:
            raise ProtocolError("expected the anchors once, got them again; set up a new session")
        anchors = self._one_each(frames, Tag.SEED_ANCHOR, (0, 0), silos or self._roster.silos)
        self._last = {index: (0, anchor) for index, anchor in anchors.items()}
        # Both decide which attempts have links, and which: all must have meant the same.
        numbers = self._steps.to_bytes(4, "little") + self._attempts.to_bytes(4, "little")
        return digest_by_party(b"hubbub seed anchors v2" + self._ids + numbers, anchors)

    def seed(
        self, round: int, attempt: int, active: Iterable[int], frames: Sequence[bytes]
    ) -> bytes:
        """The joint seed of an attempt, 32 bytes.

        Guarantees:
            1. It depends on one link of each active silo, each fixed by its anchor.
            2. All who compute it from the same set of active silos get the same.

        Args:
            round, attempt: the time, which only goes forward.
            active: roster indices of exactly the silos that take part.
            frames: their SEED_LINK frames in any order.

        Raises:
            ProtocolError: naming who has not revealed, or revealed what it had not committed to.
        """
        number, silos = self.number(round, attempt), sorted(set(active))
        if not self._last:
            raise ProtocolError("expected the anchors first, got links; learn them at set-up")
        if not silos or not set(silos) <= self._last.keys():
            raise StudyError(
                "expected a set of silos of the session, got an empty or another one; name the "
                "active silos by their index"
            )
        # P8 (3): of exactly those whom the MODEL names, so that nobody chooses whose links count.
        links = self._one_each(frames, Tag.SEED_LINK, (round, attempt), silos)
        for index in silos:
            self._verify(index, number, links[index])
        time = round.to_bytes(4, "little") + attempt.to_bytes(4, "little")
        return digest_by_party(b"hubbub attempt seed v1" + self._ids + time, links)

    def number(self, round: int, attempt: int) -> int:
        """Which link an attempt has: it follows from the time alone, so nobody can choose."""
        if not 1 <= round <= self._steps or not 0 <= attempt < self._attempts:
            raise ProtocolError(
                f"expected rounds 1 to {self._steps} of {self._attempts} attempts, got "
                f"{round}.{attempt}; nobody has committed to a link for it"
            )
        # Attempts that are never made have their links, too.
        return (round - 1) * self._attempts + attempt + 1

    def place(self, index: int) -> bytes:
        """What binds a chain to its study, session and silo."""
        return self._ids + index.to_bytes(4, "little")

    @property
    def _ids(self) -> bytes:
        return self._channel.study + self._channel.session

    def _verify(self, index: int, number: int, link: bytes) -> None:
        """Hash a link down to the last one verified."""
        last, known = self._last[index]
        # Who has a later link knows this one, and so does everybody by now.
        if number < last:
            raise ProtocolError(
                f"expected a link from number {last} on, got number {number}: its time is over"
            )
        # Only the owner of the chain could have known it, and it could not have been another. All
        # links of a silo together cost no more hashes than its chain is long.
        if _lowered(self.place(index), number, link, last) != known:
            raise ProtocolError(
                f"expected the link number {number} that it has committed to, got another",
                culprit=self._roster.name(index),
            )
        self._last[index] = (number, link)

    def _one_each(
        self, frames: Sequence[bytes], tag: Tag, time: tuple[int, int], senders: Iterable[int]
    ) -> dict[int, bytes]:
        """Payloads of 32 bytes, exactly one from every expected silo."""
        sizes = dict.fromkeys(senders, LINK_BYTES)
        what = f"attempt {time[0]}.{time[1]} from an active silo"
        awaited = ExpectedFrames(self._channel, tag, sizes, time=time, sizes=sizes, what=what)
        payloads = {frame.sender: bytes(frame.payload) for frame in map(awaited.take, frames)}
        awaited.check_whole(why="it has not revealed")
        return payloads


class JointSeed:
    """One silo's side: it commits once and reveals one link per attempt.

    Args:
        index: the silo's place in the roster.
        steps: the last round.
        attempts: the most attempts at one round; all must say the same.
        source: where the chain's secret comes from.
    """

    def __init__(
        self,
        *,
        keys: Keys,
        channel: Channel,
        index: int,
        steps: int,
        attempts: int = 1,
        source: SecureSource | None = None,
    ) -> None:
        self._keys, self._channel, self._index = keys, channel, index
        self._check = SeedCheck(channel, steps=steps, attempts=attempts)
        top = (source or SecureSource()).bytes(LINK_BYTES)
        self._chain = _Chain(self._check.place(index), steps * attempts, top)
        self._revealed = 0
        self._ready = False

    def anchor(self) -> bytes:
        """The SEED_ANCHOR frame: this silo's commitment to all its links."""
        return self._frame(Tag.SEED_ANCHOR, (0, 0), self._chain.link(0))

    def learn_anchors(self, frames: Sequence[bytes], silos: Collection[int] | None = None) -> bytes:
        """As `SeedCheck.learn_anchors`; from then on this silo may reveal."""
        # Whoever carries it has dropped it; the check below would say that I did not commit.
        if self.anchor() not in frames:
            raise ProtocolError("expected my own anchor back, got none", culprit="relay")
        digest = self._check.learn_anchors(frames, silos)
        self._ready = True
        return digest

    def reveal(self, round: int, attempt: int) -> bytes:
        """The SEED_LINK frame of an attempt; call it once the MODEL of the attempt is accepted.

        Guarantees:
            1. There is one frame per attempt: asked again, it is the same.
            2. Time only goes forward.

        Raises:
            ProtocolError: the anchors are not known, or a later link is out.
        """
        number = self._check.number(round, attempt)
        if not self._ready:
            raise ProtocolError(
                "expected the anchors of all before a reveal, got none; learn them at set-up"
            )
        if number < self._revealed:
            raise ProtocolError(
                f"expected an attempt after the one that was last revealed, got {round}.{attempt}: "
                "its time is over"
            )
        self._revealed = number
        return self._frame(Tag.SEED_LINK, (round, attempt), self._chain.link(number))

    def seed(
        self, round: int, attempt: int, active: Iterable[int], frames: Sequence[bytes]
    ) -> bytes:
        """As `SeedCheck.seed`; this silo is one of the active, whose honesty it relies on."""
        silos = frozenset(active)
        # P8, P9: one honest link makes the seed uniform, and mine is the one that I know to be.
        if self._index not in silos or self._check.number(round, attempt) != self._revealed:
            raise ProtocolError(
                "expected a seed that my own link of this attempt is part of, got another; reveal "
                "first"
            )
        return self._check.seed(round, attempt, silos, frames)

    def _frame(self, tag: Tag, time: tuple[int, int], payload: bytes) -> bytes:
        return self._channel.frame(tag, self._index, payload, time=time).sealed(self._keys)
