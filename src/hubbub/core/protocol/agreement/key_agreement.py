"""Setting up a session: joint randomness, pair secrets, and proof that all saw the same.

Theory of operation. Which silos take part is known (`roll_call.py`). With pairwise masks they first
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
import hmac
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from cryptography.exceptions import InvalidTag

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.agreement import one_each, transcript
from hubbub.core.protocol.agreement.digest_list import check_digests, sent_digest
from hubbub.core.protocol.agreement.pair_secrets import CONTRIBUTION_BYTES, PairSecret
from hubbub.core.protocol.agreement.roll_call import Roll
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, sender_of

SESSION_BYTES = 16
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


class Agreement:
    """One party's side of the set-up.

    Args:
        keys: the party's own.
        roster: everybody.
        index: the party's place in the roster.
        study: the study id.
        session: 16 bytes chosen for this session.
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
        roster: Roster,
        index: int,
        study: bytes,
        session: bytes,
        roll: Roll,
        neighbours_of: Callable[[bytes], Sequence[int]],
        extra_confirmers: Collection[int],
        source: SecureSource,
        context: bytes = b"",
    ) -> None:
        if len(study) != 32 or len(session) != SESSION_BYTES:
            raise StudyError(
                f"expected a study id of 32 bytes and a session of {SESSION_BYTES}, "
                f"got {len(study)} and {len(session)}; draw the session anew"
            )
        self._keys, self._roster, self._index = keys, roster, index
        self._study, self._session, self._roll = study, session, roll
        self._neighbours_of, self._extra_confirmers = neighbours_of, extra_confirmers
        self._source = source
        self._own_seed = source.bytes(SEED_BYTES)
        self._shown = [transcript.start_of(study, session, roster, context)]
        self._commits: Mapping[int, bytes] = {}
        self._seed = b""
        self._neighbours: tuple[int, ...] = ()
        self._sent: dict[int, bytes] = {}
        self._own_digest = self._own_confirm = b""
        self._secrets: dict[int, PairSecret] = {}
        self._transcript = b""
        # Without compute nodes the graph is drawn from its seed, never from an empty one.
        self._phases: tuple[str, ...] = (
            _SECRET_PHASES if roster.nodes else _SEED_PHASES + _SECRET_PHASES
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
        own = transcript.commitment(self._session, self._index, self._own_seed)
        return self._frame(Tag.COMMIT, EVERYBODY, own)

    @_in_turn
    def reveal(self, commits: Sequence[bytes]) -> bytes:
        """Phase 2, after all silos of the ROLL committed: the share of the seed itself."""
        self._commits = self._one_each(commits, Tag.COMMIT, self._roll.silos, 32)
        own = transcript.commitment(self._session, self._index, self._own_seed)
        if self._commits[self._index] != own:
            raise ProtocolError("expected my own commitment back, got another", culprit="relay")
        return self._frame(Tag.REVEAL, EVERYBODY, self._own_seed)

    @_in_turn
    def learn_seed(self, reveals: Sequence[bytes]) -> None:
        """After all silos revealed: check the commitments and fix the graph seed."""
        shares = self._one_each(reveals, Tag.REVEAL, self._roll.silos, SEED_BYTES)
        told = transcript.joined(self._session, (*self._commits.items(),), (*shares.items(),))
        if isinstance(told, int):
            raise ProtocolError(
                "expected the seed share that was committed to, got another",
                culprit=self._roster.name(told),
            )
        self._shown.append(told)
        self._seed = transcript.joint_seed(self._session, self._roll.digest, told)

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
            mine, theirs = self._sent[other], received[other]
            self._secrets[other] = PairSecret.agree(
                low=low,
                high=high,
                from_low=mine if low == self._index else theirs,
                from_high=theirs if low == self._index else mine,
                study=self._study,
                session=self._session,
            )
        check_digests(digests, self._index, self._own_digest, self._roster, self._roll.silos)
        self._transcript = transcript.hash_of(*self._shown, digests)
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
            if not hmac.compare_digest(check, wanted):
                raise ProtocolError(
                    "expected proof of our common secret, got a wrong one",
                    culprit=self._roster.name(index),
                )
        return Session(
            study=self._study,
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
            raise ProtocolError(
                f"expected {CONTRIBUTION_BYTES} bytes, got {len(secret)}", culprit=sender
            )
        return secret

    def _one_each(
        self, frames: Sequence[bytes], tag: Tag, senders: Iterable[int], size: int
    ) -> Mapping[int, bytes]:
        """Payloads of a known size, exactly one from every expected sender."""
        place = (tag, frozenset(senders), self._roster, self._study, self._session)
        try:
            return one_each.payloads(tuple(frames), size, EVERYBODY, *place)
        except ProtocolError:  # it may be one for this party alone
            return one_each.payloads(tuple(frames), size, self._index, *place)

    def _contributions(self, frames: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """The contributions of all neighbours to this party, each opened."""
        place = (self._roster, self._study, self._session)
        awaited = one_each.expected(Tag.CONTRIBUTION, self._index, self._neighbours, *place)
        for frame in map(awaited.take, frames):
            yield frame.sender, self._open(frame)
        awaited.check_whole()

    def _frame(self, tag: Tag, receiver: int, payload: bytes) -> bytes:
        return Frame(
            tag=tag,
            study=self._study,
            session=self._session,
            sender=self._index,
            receiver=receiver,
            payload=payload,
        ).sealed(self._keys)

    def _seal_info(self, sender: int, receiver: int) -> bytes:
        place = sender.to_bytes(4, "little") + receiver.to_bytes(4, "little")
        return b"hubbub contribution v1" + self._study + self._session + place
