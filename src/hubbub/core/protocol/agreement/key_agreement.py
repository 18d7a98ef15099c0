"""Setting up a session: joint randomness, pair secrets, and proof that all saw the same.

Theory of operation. Which silos take part is known. With pairwise masks they first
draw a graph seed by commit and reveal; the mask graph follows from it, so no coalition that leaves
one honest silo out chooses who masks whom. Then every party seals a fresh contribution to each of
its neighbours (the silos of the graph, or silo and compute node) and signs it. Everybody is shown
the digest of what everybody sent, and all sign the hash of the whole, the transcript; a relay that
shows different parties different things is caught here, before the first round. Key checks prove
pair by pair that both ends derived the same secret.

One `Agreement` is one party's side, a pure state machine: frames in, frames out. Its phases are
called in the order in which they stand, each once; without compute nodes all of them, with compute
nodes from `contribute` on. A phase that refuses is the last, and the next try is a new session.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import DIGEST_BYTES
from hubbub.core.protocol.primitives.randomness import KEY_BYTES, SecureSource
from hubbub.core.protocol.primitives.wire import (
    EVERYBODY,
    Channel,
    ExpectedFrames,
    Frame,
    Tag,
    bits_of,
    digest_by_party,
    doubled_by,
    sender_of,
    set_of,
)

# ROLL: which silos a session has, said by the aggregator once, before anything depends on it.
#
# Theory of operation. A session needs not all silos: any N - D set it up, and who comes late is in
# the next one. The set is fixed before a silo commits to its share of the graph's seed, and never
# shrinks: were it to follow from who reveals, T silos that withhold their shares would choose among
# 2^T graphs. Its digest enters the seed and the transcript, so all who finish have the same; every
# later set of silos is a part of it (`round_parameters.py`). Compute nodes are in every session: to
# choose among them could be to leave the honest one out (docs/privacy.md P29).


@dataclass(frozen=True, kw_only=True)
class Roll:
    """The silos of a session, by roster index, and the digest of the frame that names them."""

    silos: frozenset[int]
    digest: bytes


def called(keys: Keys, channel: Channel, silos: frozenset[int]) -> tuple[bytes, Roll]:
    """The aggregator's ROLL, and what it says."""
    frame = channel.frame(Tag.ROLL, 0, bits_of(silos, len(channel.roster.silos)))
    return frame.sealed(keys), Roll(silos=silos, digest=frame.digest)


class RollCall:
    """Whoever is told a session's silos, once.

    Args:
        quorum: the least number of silos, N - D.
        index: the receiver's place in the roster; a silo must be named itself.
    """

    def __init__(self, channel: Channel, *, quorum: int, index: int = 0) -> None:
        self._channel, self._roster = channel, channel.roster
        self._quorum, self._index = quorum, index
        self._roll: Roll | None = None

    @property
    def roll(self) -> Roll:
        """Who takes part.

        Raises:
            ProtocolError: nobody has said so.
        """
        if self._roll is None:
            raise ProtocolError("expected a ROLL before this, got none", culprit="relay")
        return self._roll

    def take(self, data: bytes) -> Roll:
        """Take the ROLL.

        Raises:
            ProtocolError: it is not the aggregator's for this session, a second one, names fewer
                silos than the quorum, or not the silo that receives it.
        """
        frame = self._channel.parse(data)
        sender = self._roster.name(frame.sender)
        placed = not (frame.round or frame.attempt) and frame.receiver == EVERYBODY
        if frame.tag is not Tag.ROLL or frame.sender != 0 or not placed:
            raise ProtocolError(
                f"expected a ROLL of the aggregator to everybody, got a {frame.tag.name} of "
                f"{sender}",
                culprit=sender if frame.tag is Tag.ROLL else "relay",
            )
        # P29: commitments, graph and quorum are those of one set, which must not follow from what
        # was seen later.
        if self._roll is not None:
            raise ProtocolError(
                "expected one ROLL in a session, got a second",
                culprit=doubled_by(frame, self._roll.digest, sender),
            )
        silos = set_of(frame.payload, len(self._roster.silos), sender)
        if len(silos) < self._quorum:
            raise ProtocolError(
                f"expected at least {self._quorum} silos in a session, got {len(silos)}: the noise "
                "of fewer would not keep the study's epsilon",
                culprit=sender,
            )
        if self._index in self._roster.silos and self._index not in silos:
            raise ProtocolError("expected a session that I am in, got another", culprit="relay")
        self._roll = Roll(silos=silos, digest=frame.digest)
        return self._roll


# The digests of what parties have sent to each other in a set-up, as all are told them.
#
# Each party has 32 bytes in the order of the roster, zero where it sends no secret: the aggregator,
# and silos that the session does not have (docs/privacy.md P29).

_NOTHING = bytes(DIGEST_BYTES)


def sent_digest(frames: Mapping[int, bytes]) -> bytes:
    """SHA-256 over the hashes of a party's contributions, in the order of their receivers."""
    hashes = {receiver: hashlib.sha256(frame).digest() for receiver, frame in frames.items()}
    return digest_by_party(b"hubbub sent v1", hashes)


def sent_digests(sent: Mapping[int, Mapping[int, bytes]], parties: int) -> bytes:
    """All of them, from what each of so many parties has sent to whom."""
    return b"".join(sent_digest(sent[i]) if i in sent else _NOTHING for i in range(parties))


def check_digests(digests: bytes, index: int, own: bytes, roster: Roster, silos: Set[int]) -> None:
    """See that a party's own digest is listed, and none of who sends nothing.

    Raises:
        ProtocolError: naming the relay.
    """

    def listed(one: int) -> bytes:
        return digests[DIGEST_BYTES * one : DIGEST_BYTES * (one + 1)]

    # The list travels unsigned: everybody can vouch for its own line alone, and that all saw the
    # same lines the transcript shows.
    if len(digests) != DIGEST_BYTES * len(roster.parties) or listed(index) != own:
        raise ProtocolError(
            "expected the digest of what I sent in the list of all, got another", culprit="relay"
        )
    # What nobody has sent must not be a way to give parties different transcripts.
    for silo in {0, *roster.silos} - silos:
        if listed(silo) != _NOTHING:
            raise ProtocolError(
                f"expected no digest for {roster.name(silo)}, which sends no secret in this "
                "session, got one",
                culprit="relay",
            )


# All parties of a process are shown the same commitments and shares of the seed.
@lru_cache(maxsize=4)
def payloads(
    channel: Channel,
    tag: Tag,
    senders: frozenset[int],
    size: int,
    receiver: int,
    frames: tuple[bytes, ...],
) -> Mapping[int, bytes]:
    """Payloads of a known size for everybody or one receiver, one from every expected sender."""
    sizes = dict.fromkeys(senders, size)
    awaited = ExpectedFrames(channel, tag, senders, receiver=receiver, sizes=sizes)
    payloads = {frame.sender: bytes(frame.payload) for frame in map(awaited.take, frames)}
    awaited.check_whole()
    return MappingProxyType(payloads)


# What all who set a session up sign alike, from what they were shown: the transcript's parts.
#
# A party computes it in `key_agreement.py`, and whoever has passed everything on in
# `set_up_check.py`.

_Told = tuple[tuple[int, bytes], ...]


def start_of(channel: Channel, context: bytes) -> bytes:
    """What comes before commitments and digests."""
    place = channel.study + channel.session + channel.roster.digest
    return b"hubbub transcript v1" + place + context


def commitment(session: bytes, index: int, share: bytes) -> bytes:
    """What a party says of its share of the seed before it shows it."""
    # A commitment that was copied from another silo does not fit, when its share is copied later.
    place = session + index.to_bytes(4, "little")
    return hashlib.sha256(b"hubbub commit v1" + place + share).digest()


@functools.lru_cache(maxsize=2)
def joined(session: bytes, commits: _Told, shares: _Told) -> bytes | int:
    """All commitments with their shares; or the first silo that had committed to another."""
    committed = dict(commits)
    for index, share in sorted(shares):
        if commitment(session, index, share) != committed[index]:
            return index
    return told_of(committed, dict(shares))


def told_of(commits: Mapping[int, bytes], shares: Mapping[int, bytes]) -> bytes:
    """Commitments with their shares, in the order of the silos."""
    told = ((i.to_bytes(4, "little"), commits[i], shares[i]) for i in sorted(shares))
    return b"".join(b"".join(one) for one in told)


def joint_seed(session: bytes, roll: bytes, told: bytes) -> bytes:
    """The seed of the mask graph, from the digest of the ROLL and what `joined` gave."""
    # P29: with the ROLL in it no share draws a graph on another set.
    return hashlib.sha256(b"hubbub joint seed v2" + session + roll + told).digest()


@functools.lru_cache(maxsize=2)  # of a thousand parties in one process all see the same
def hash_of(*shown: bytes) -> bytes:
    """SHA-256 of these one after the other."""
    return hashlib.sha256(b"".join(shown)).digest()


# Secrets that two parties share, and the one-time mask keys that are derived from them.
#
# A pair's secret comes from a fresh contribution of each side (HKDF-SHA256 over both), bound to the
# study, the session and the pair. A key is derived from it for one round, one attempt and one
# MODEL, by its digest, which covers the set of active silos too, and used for one vector. Silos
# that were shown different MODELs derive different keys: their masks do not cancel, and what the
# adversary gets is uniform (docs/privacy.md P4).

CONTRIBUTION_BYTES = 32
SEALED_BYTES = 1088 + 32 + CONTRIBUTION_BYTES + 16  # as one travels (docs/protocol.md)
CHECK_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a key is for: an attempt at a round, and the digest of the MODEL shown there."""

    round: int
    attempt: int
    model: bytes


@dataclass(frozen=True, kw_only=True)
class PairSecret:
    """What two parties, low < high in the roster, share in one session."""

    low: int
    high: int
    _value: bytes = field(repr=False)

    @classmethod
    def agree(
        cls, *, low: int, high: int, from_low: bytes, from_high: bytes, study: bytes, session: bytes
    ) -> PairSecret:
        """The secret of both contributions; either being random makes it so."""
        place = _number(low) + _number(high)
        derive = HKDF(
            algorithm=SHA256(),
            length=32,
            salt=study + session,
            info=b"hubbub pair v1" + place,
        )
        return cls(low=low, high=high, _value=derive.derive(from_low + from_high))

    def mask_key(self, transcript: bytes, place: Place) -> bytes:
        """The AES-128 key of the pair's mask at a place, after the set-up of this transcript."""
        # P3, P4: no second attempt and no second MODEL meets this mask; who has seen another set-up
        # derives another.
        return self._expand(b"hubbub mask v2" + transcript + _told_place(place), KEY_BYTES)

    def share_key(self, transcript: bytes, place: Place, sender: int) -> bytes:
        """The AES-128-GCM key under which one full share travels, used once."""
        use = _told_place(place) + _number(sender)
        return self._expand(b"hubbub share v2" + transcript + use, KEY_BYTES)

    def check(self, *, transcript: bytes, sender: int) -> bytes:
        """Proof that the sender has this secret and saw this transcript; tells nothing else."""
        return self._expand(b"hubbub check v1" + transcript + _number(sender), CHECK_BYTES)

    def _expand(self, info: bytes, length: int) -> bytes:
        return HKDFExpand(algorithm=SHA256(), length=length, info=info).derive(self._value)


def _told_place(place: Place) -> bytes:
    return _number(place.round) + _number(place.attempt) + place.model


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")


SEED_BYTES = 32
_SEED_PHASES = ("commit", "reveal", "learn_seed")
_SECRET_PHASES = ("contribute", "confirm", "finish")
_P = ParamSpec("_P")
_Result = TypeVar("_Result")
_Phase = Callable[Concatenate["Agreement", _P], _Result]


def _in_turn(phase: _Phase[_P, _Result]) -> _Phase[_P, _Result]:
    """A phase of the set-up that refuses to be called early, twice, or after a refusal."""

    @functools.wraps(phase)
    def called(self: Agreement, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        if self._phases[:1] != (phase.__name__,):
            expected = self._phases[0] if self._phases else "no further phase"
            raise ProtocolError(
                f"expected {expected} next in this set-up, got {phase.__name__}; call every phase "
                "once and in order, or set up a new session"
            )
        # None while one is under way: a phase that raises has no successor, and is not called
        # again.
        rest, self._phases = self._phases[1:], ()
        result = phase(self, *args, **kwargs)
        self._phases = rest
        return result

    return called


@dataclass(frozen=True, kw_only=True)
class Session:
    """What a party keeps after set-up.

    `silos` are those that take part; `attested` the hashes of evidence that it was shown.
    """

    study: bytes
    id: bytes
    index: int
    silos: frozenset[int]
    transcript: bytes
    seed: bytes
    secrets: Mapping[int, PairSecret] = field(repr=False)
    attested: tuple[bytes, ...] = ()

    def channel(self, roster: Roster) -> Channel:
        """What its frames belong to."""
        return Channel(roster=roster, study=self.study, session=self.id)


class Agreement:
    """One party's side of the set-up.

    Args:
        index: the party's place in the roster.
        roll: which silos take part, this one among them.
        neighbours_of: from the graph's seed (empty without one) to the roster indices of the
            parties that this one shares secrets with.
        extra_confirmers: whose confirmation of the transcript is demanded besides the neighbours'.
        source: where the party's randomness comes from.
        context: what else all must have seen alike, such as the digest of the anchors.
    """

    def __init__(
        self,
        *,
        keys: Keys,
        channel: Channel,
        index: int,
        roll: Roll,
        neighbours_of: Callable[[bytes], Sequence[int]],
        extra_confirmers: Collection[int],
        source: SecureSource,
        context: bytes = b"",
    ) -> None:
        self._keys, self._channel, self._index = keys, channel, index
        self._roster, self._session, self._roll = channel.roster, channel.session, roll
        self._neighbours_of, self._extra_confirmers = neighbours_of, extra_confirmers
        self._source = source
        # P29: uniform given all that others do, so each graph that this share allows is uniform.
        self._own_seed = source.bytes(SEED_BYTES)
        self._shown = [start_of(channel, context)]
        self._commits: Mapping[int, bytes] = {}
        self._seed = b""
        self._neighbours: tuple[int, ...] = ()
        self._sent: dict[int, bytes] = {}
        self._own_digest = self._own_confirm = b""
        self._secrets: dict[int, PairSecret] = {}
        self._transcript = b""
        # Without compute nodes the graph is drawn from its seed, never from an empty one.
        self._phases: tuple[str, ...] = (
            _SECRET_PHASES if channel.roster.nodes else _SEED_PHASES + _SECRET_PHASES
        )

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Whom this party shares secrets with; known after `contribute`."""
        return self._neighbours

    @property
    def confirmers(self) -> list[int]:
        """Whose confirmations `finish` demands; known after `contribute`.

        The neighbours are among them: the proof of a common secret covers the transcript too, and
        one that fails is their lie only if they have seen what this party has.
        """
        return sorted({*self._neighbours, *self._extra_confirmers} - {self._index})

    @_in_turn
    def commit(self) -> bytes:
        """Phase 1: the hash of this party's share of the seed; it follows the ROLL (P29)."""
        own = commitment(self._session, self._index, self._own_seed)
        return self._frame(Tag.COMMIT, EVERYBODY, own)

    @_in_turn
    def reveal(self, commits: Sequence[bytes]) -> bytes:
        """Phase 2, after all silos of the ROLL committed: the share of the seed itself."""
        # P4: whoever could commit after it has seen a share would choose the graph.
        self._commits = self._one_each(commits, Tag.COMMIT, self._roll.silos, 32)
        own = commitment(self._session, self._index, self._own_seed)
        if self._commits[self._index] != own:
            raise ProtocolError("expected my own commitment back, got another", culprit="relay")
        return self._frame(Tag.REVEAL, EVERYBODY, self._own_seed)

    @_in_turn
    def learn_seed(self, reveals: Sequence[bytes]) -> None:
        """After all silos revealed: check the commitments and fix the graph seed."""
        shares = self._one_each(reveals, Tag.REVEAL, self._roll.silos, SEED_BYTES)
        told = joined(self._session, (*self._commits.items(),), (*shares.items(),))
        if isinstance(told, int):
            raise ProtocolError(
                "expected the seed share that was committed to, got another",
                culprit=self._roster.name(told),
            )
        # The transcript has the shares: who was shown others signs another one.
        self._shown.append(told)
        self._seed = joint_seed(self._session, self._roll.digest, told)

    @_in_turn
    def contribute(self) -> dict[int, bytes]:
        """Phase 3: a fresh secret for each neighbour, sealed and signed; by receiver."""
        self._neighbours = tuple(self._neighbours_of(self._seed))
        frames = {}
        for other in self._neighbours:
            secret = self._source.bytes(CONTRIBUTION_BYTES)
            self._sent[other] = secret
            sealed = self._roster.parties[other].seal(secret, self._seal_info(self._index, other))
            frames[other] = self._frame(Tag.CONTRIBUTION, other, sealed)
        self._own_digest = sent_digest(frames)
        return frames

    @_in_turn
    def confirm(
        self, contributions: Sequence[bytes], digests: bytes
    ) -> tuple[bytes, dict[int, bytes]]:
        """Phase 4: derive the secrets, sign the transcript, prove each secret to its other end.

        Args:
            contributions: the frames addressed to this party.
            digests: `sent_digest` of every party's contributions, 32 bytes each in the order of the
                roster, as the relay tells everybody.
        """
        received = dict(self._contributions(contributions))
        self._keys.put_away()
        for other in self._neighbours:
            low, high = min(self._index, other), max(self._index, other)
            # P4: of both ends' parts, so that neither chooses the masks; in the roster's order, so
            # that both find the same.
            mine, theirs = self._sent[other], received[other]
            self._secrets[other] = PairSecret.agree(
                low=low,
                high=high,
                from_low=mine if low == self._index else theirs,
                from_high=theirs if low == self._index else mine,
                study=self._channel.study,
                session=self._session,
            )
        check_digests(digests, self._index, self._own_digest, self._roster, self._roll.silos)
        # P29: with offer, ROLL and evidence in `context`, who was shown others derives other masks.
        self._transcript = hash_of(*self._shown, digests)
        checks = {
            other: self._frame(
                Tag.KEY_CHECK,
                other,
                secret.check(transcript=self._transcript, sender=self._index),
            )
            for other, secret in self._secrets.items()
        }
        self._own_confirm = self._frame(Tag.CONFIRM, EVERYBODY, self._transcript)
        return self._own_confirm, checks

    @_in_turn
    def finish(self, confirms: Sequence[bytes], checks: Sequence[bytes]) -> Session:
        """The session, once all confirmers saw the same and neighbours hold the same secrets."""
        senders = {*self._neighbours, *self._extra_confirmers}
        if self._index in senders:  # with mine they are the same for all, and verified once
            confirms = sorted([*confirms, self._own_confirm], key=sender_of)
        seen = self._one_each(confirms, Tag.CONFIRM, senders, 32)
        # Before the proofs: over another transcript an honest neighbour's proof would fail as a
        # lie.
        for index, signed in seen.items():
            if signed != self._transcript:
                raise ProtocolError(
                    f"expected {self._roster.name(index)} to have seen the transcript "
                    f"{self._transcript.hex()[:16]}, it saw {signed.hex()[:16]}; "
                    "the parties were shown different things",
                    culprit="relay",
                )
        for index, check in self._one_each(checks, Tag.KEY_CHECK, self._neighbours, 32).items():
            wanted = self._secrets[index].check(transcript=self._transcript, sender=index)
            # In constant time: how far a guess was right must not show.
            if not hmac.compare_digest(check, wanted):
                raise ProtocolError(
                    "expected proof of our common secret, got a wrong one",
                    culprit=self._roster.name(index),
                )
        return Session(
            study=self._channel.study,
            id=self._session,
            index=self._index,
            silos=self._roll.silos,
            transcript=self._transcript,
            seed=self._seed,
            secrets=dict(self._secrets),
        )

    def _open(self, frame: Frame) -> bytes:
        """The contribution in a frame addressed to this party."""
        sender = self._roster.name(frame.sender)
        try:
            secret = self._keys.open(
                bytes(frame.payload), self._seal_info(frame.sender, self._index)
            )
        except (InvalidTag, ValueError) as error:
            raise ProtocolError(
                f"expected a contribution sealed to me, got one that does not open "
                f"({type(error).__name__})",
                culprit=sender,
            ) from None
        if len(secret) != CONTRIBUTION_BYTES:
            # Its signature is true, so nobody on the way has changed it.
            raise ProtocolError(
                f"expected {CONTRIBUTION_BYTES} bytes, got {len(secret)}", culprit=sender
            )
        return secret

    def _one_each(
        self, frames: Sequence[bytes], tag: Tag, senders: Iterable[int], size: int
    ) -> Mapping[int, bytes]:
        """Payloads of a known size, exactly one from every expected sender."""
        wanted = partial(payloads, self._channel, tag, frozenset(senders), size)
        try:
            return wanted(EVERYBODY, tuple(frames))
        except ProtocolError:  # it may be one for this party alone
            return wanted(self._index, tuple(frames))

    def _contributions(self, frames: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """The contributions of all neighbours to this party, each opened."""
        awaited = ExpectedFrames(
            self._channel, Tag.CONTRIBUTION, self._neighbours, receiver=self._index
        )
        for frame in map(awaited.take, frames):
            yield frame.sender, self._open(frame)
        awaited.check_whole()

    def _frame(self, tag: Tag, receiver: int, payload: bytes) -> bytes:
        return self._channel.frame(tag, self._index, payload, receiver=receiver).sealed(self._keys)

    def _seal_info(self, sender: int, receiver: int) -> bytes:
        # HPKE's context: what was sealed by one party cannot be passed on as another's.
        place = sender.to_bytes(4, "little") + receiver.to_bytes(4, "little")
        return b"hubbub contribution v1" + self._channel.study + self._session + place
