"""The boundary between the protocol and whatever carries it: one function, `Phase`.

A phase hands each named party one blob and gives back what each answers, as answers come, or
`Missing` at the deadline. It promises nothing else: what carries blobs may lose them, delay them,
or hand over others, and the parties notice. `network/nats` crosses machines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from hubbub.core.disk import why_of
from hubbub.core.errors import (
    BudgetError,
    HubbubError,
    IntegrityError,
    NoRoomError,
    ProtocolError,
    SpentError,
    loggable,
)
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import (
    DIGEST_BYTES,
    OVERHEAD,
    SESSION_BYTES,
    SHARE_SEAL_BYTES,
)
from hubbub.core.protocol.primitives.wire import VERSION, Frame, Tag
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.ask import Call
from hubbub.core.session.joint_batches import MAKING, JointBatches
from hubbub.core.session.offer import LARGEST_OFFER, RefusedError

MOST_BYTES = 1 << 30  # of what is handed over; see `SizeLimits` for each call
LARGEST_PROPOSAL = 1 << 18  # bytes of a study's text


@dataclass(frozen=True, kw_only=True)
class Missing:
    """No answer: none in time, or none that could be had."""

    why: str = "no answer in time"
    here: bool = False  # it was not asked: the line is down here, or this process ends


# From the phase's name, a blob for each party and seconds, to the parties' answers as they come.
Phase = Callable[[str, Mapping[str, bytes], float], Iterator[tuple[str, "bytes | Missing"]]]


# One blob of bytes for each party and phase: what is asked with which frames, and what came back.
#
# An envelope is not signed; the frames in it are, and each receiver checks them. Whoever carries
# envelopes can lose, keep or exchange them, and is noticed. A refusal is a signed frame too, of no
# study and no session; it holds the hash of the request that it refuses.
#
#     request   "hub?", wire version, call, session (16 bytes, zeros for none), then parts
#     answer    "hub!", wire version, then parts
#     part      length (8 bytes, little-endian), bytes

_ASKS, _ANSWERS = b"hub?", b"hub!"
_MOST_PARTS = 1 << 20
_LARGE = 1 << 20  # bytes of a part, a model say, that is not copied out of its envelope
NO_SESSION = bytes(SESSION_BYTES)


class VersionError(ProtocolError):
    """An envelope of another wire version: whoever sent it runs another hubbub."""


def request(call: Call, session: bytes, parts: Sequence[bytes] = ()) -> bytes:
    """A request of a session with these parts."""
    return b"".join((_ASKS, bytes((VERSION, call)), session, *_lengths(parts)))


def request_digest(request: bytes) -> str:
    """What a REFUSAL or a READY calls the request that it answers: nobody shows it for another."""
    return hashlib.sha256(request).hexdigest()


def answer(parts: Sequence[bytes] = ()) -> bytes:
    """An answer with these parts."""
    return b"".join((_ANSWERS, bytes((VERSION,)), *_lengths(parts)))


def read_request(data: bytes) -> tuple[Call, bytes, list[bytes]]:
    """What is asked, of which session, and the parts; ProtocolError if it is no such request."""
    rest = _opened(data, _ASKS)
    if len(rest) <= SESSION_BYTES or rest[0] not in Call.__members__.values():
        raise ProtocolError("expected a known call, got another", culprit="relay")
    session, parts = rest[1 : 1 + SESSION_BYTES], rest[1 + SESSION_BYTES :]
    return Call(rest[0]), bytes(session), _parts(parts)


def is_bare(data: bytes) -> bool:
    """Whether a request has no parts, so that two that ask for different things may look alike."""
    return len(data) <= len(_ASKS) + 2 + SESSION_BYTES


def read_answer(data: bytes) -> list[bytes]:
    """The parts of an answer; ProtocolError if it is none of this wire version."""
    return _parts(_opened(data, _ANSWERS))


def _lengths(parts: Sequence[bytes]) -> list[bytes]:
    return [piece for part in parts for piece in (len(part).to_bytes(8, "little"), part)]


def _opened(data: bytes, kind: bytes) -> memoryview:
    """What follows the version."""
    if data[: len(kind)] != kind or len(data) <= len(kind):
        raise ProtocolError("expected an envelope of hubbub, got other bytes", culprit="relay")
    if data[len(kind)] != VERSION:
        raise VersionError(
            f"expected wire version {VERSION}, got {data[len(kind)]}; all parties must run the "
            "same version of hubbub"
        )
    return memoryview(data)[len(kind) + 1 :]


def _parts(rest: memoryview) -> list[bytes]:
    """The parts, to the last byte; a large one stays where it is, and is read as bytes are."""
    parts: list[bytes] = []
    while len(rest):
        size = int.from_bytes(rest[:8], "little")
        if len(rest) < 8 + size or len(parts) == _MOST_PARTS:
            raise ProtocolError("expected an envelope of whole parts, got another", culprit="relay")
        part = rest[8 : 8 + size]
        parts.append(cast("bytes", part) if size >= _LARGE else bytes(part))
        rest = rest[8 + size :]
    return parts


# A refusal, made of an error: a few known words that leave a party, and a sentence that stays.
#
# What leaves is signed, and bound to the one request that is refused (docs/protocol.md, section 8).
# Nothing in it follows from a record; the sentence is for the party's own event log.

_WORDS: tuple[tuple[type[HubbubError], str], ...] = (
    (VersionError, "version"),
    (ProtocolError, "protocol"),
    (BudgetError, "budget"),
    (IntegrityError, "ledger"),
    (HubbubError, "failed"),
)


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a party says no."""

    why: str  # one of `offer.REASONS`
    said: str  # for its own people
    culprit: str = ""  # where the reason is "protocol"
    own: bool = True  # a reason of `offer.OWN`: not where it could, and must not

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """What an error means to others."""
        if isinstance(error, RefusedError):
            return cls(why=error.why, said=str(error), culprit=error.culprit)
        if isinstance(error, OSError):
            return cls(why="failed", said=f"expected to read and write, got: {why_of(error)}")
        if not isinstance(error, HubbubError):
            return cls(why="failed", said=type(error).__name__)
        why = next(word for kind, word in _WORDS if isinstance(error, kind))
        culprit = getattr(error, "culprit", "") if why == "protocol" else ""
        own = not isinstance(error, NoRoomError | SpentError)
        return cls(why=why, said=loggable(error), culprit=culprit, own=own)

    def sealed(self, request: bytes, keys: Keys, sender: int) -> bytes:
        """The frame that refuses a request."""
        told = {"why": self.why, "culprit": self.culprit, "to": request_digest(request)}
        payload = json.dumps(told).encode()
        return Frame(
            tag=Tag.REFUSAL,
            study=bytes(32),
            session=NO_SESSION,
            sender=sender,
            receiver=0,
            payload=payload,
        ).sealed(keys)


# How large a message may be that somebody else sends: by what it asks or answers, from the plan.
#
# A receiver knows this before the first piece comes, so that nobody has it keep more. The limits
# are above what is sent, never below: what the frames hold is checked where they are read. This
# file knows of each call which frames it has, and no content.

_HEAD = 64  # of an envelope and of a part in it, generously
_WORDS_BYTES = 1 << 12  # bytes of a READY, or of a refusal but for the names in it
_NAME = 70  # of somebody who is blamed
_SECRET = 1 << 11  # a secret, sealed for one party
_PROOF = 1 << 8  # what confirms a set-up
_EVIDENCE = 1 << 19  # of a machine, with its collateral
_COLLECT = LARGEST_OFFER >> 1  # so that some nine thousand deposits go beside it
_WITNESSED = 1 << 11  # a statement of a ledger, and its witness's signature
_SESSIONS = 1 << 20  # what is said of all sessions of a study, in hexadecimal


def _frames(count: int, payload: int) -> int:
    """Bytes of so many frames with payloads of so many bytes."""
    return count * (_HEAD + OVERHEAD + payload)


def _all(payloads: Sequence[int]) -> int:
    """Bytes of frames with these payloads."""
    return _frames(len(payloads), 0) + sum(payloads)


def word_limit(parties: int) -> int:
    """Bytes of any party's refusal or sign of life, of whatever plan."""
    return _HEAD + _frames(1, _WORDS_BYTES + _NAME * parties)


# Bytes of what may be asked of a party at which no session is open.
OFFER_LIMIT = _HEAD + _frames(1, LARGEST_OFFER)


@dataclass(frozen=True, kw_only=True)
class SizeLimits:
    """The limits of one session."""

    roster: Roster
    round_parameters: RoundParameters
    joint: JointBatches | None = None

    def answer(self, call: Call) -> int:
        """Bytes of an answer to a call, or of a refusal."""
        return word_limit(self._everybody) + self._answers.get(call, 0)

    def request(self, call: Call) -> int:
        """Bytes of a request with a call."""
        return _HEAD + self._requests.get(call, _frames(self._everybody, DIGEST_BYTES))

    @cached_property
    def largest_request(self) -> int:
        """Bytes of a request: what is asked shows when all of it has come."""
        return max(map(self.request, Call))

    @cached_property
    def _requests(self) -> Mapping[Call, int]:
        """What is asked, by call; calls that are not here have a digest of everybody at most."""
        everybody, numbers = self._everybody, self.round_parameters
        silos = numbers.silos
        shares = _frames(silos, numbers.masked_bytes + SHARE_SEAL_BYTES)
        named = _frames(1, silos + DIGEST_BYTES)
        deposits = _frames(silos, self._deposit)
        opened = _frames(1, _COLLECT) + _frames(numbers.nodes, _SECRET)
        nonce = _frames(1, DIGEST_BYTES)
        summed = opened + nonce + deposits + _frames(1 + numbers.nodes, 33 * silos + 64)
        return {
            **dict.fromkeys(MAKING, _all(self.joint.asked(self.roster)) if self.joint else 0),
            Call.PING: 0,
            Call.OPEN: _frames(1, LARGEST_OFFER),
            Call.EVIDENCE: _frames(everybody, _EVIDENCE),
            Call.CONFIRM: _frames(everybody, DIGEST_BYTES) + _frames(everybody, _SECRET),
            Call.FINISH: _frames(2 * everybody, _PROOF),
            Call.MODEL: _frames(1, silos + self._model),
            Call.SHARES: named + shares,
            Call.PROMISE: named,
            Call.TOTAL: _frames(numbers.nodes, silos + DIGEST_BYTES),
            Call.CLOSE: _frames(1, _SESSIONS + silos * _WITNESSED) + _frames(1, self._model),
            Call.RESULT: _frames(1, self._model),
            Call.PROPOSE: _frames(1, LARGEST_PROPOSAL),
            Call.COLLECT_KEY: _frames(1, _COLLECT) + nonce,
            Call.COLLECT_DEPOSIT: opened + nonce,
            Call.COLLECT_LOOK: summed,
            Call.COLLECT_PROMISE: summed,
            Call.COLLECT_TOTAL: summed,
            Call.COLLECT_REST: _WORDS_BYTES,
        }

    @property
    def _deposit(self) -> int:
        """Of a DEPOSIT: two digests, and a sealed seed for each node."""
        return 2 * DIGEST_BYTES + _SECRET * self.round_parameters.nodes

    @property
    def _everybody(self) -> int:
        return len(self.roster.parties)

    @property
    def _model(self) -> int:
        """Of a model in full, and the number of an attempt."""
        return 4 * max(self.round_parameters.parameters, self.round_parameters.dimension) + 4

    @cached_property
    def _answers(self) -> Mapping[Call, int]:
        """What an answer has that is no refusal, by call; calls that are not here have a word."""
        everybody, numbers = self._everybody, self.round_parameters
        masked = _frames(1, numbers.masked_bytes + DIGEST_BYTES)
        if numbers.full_shares:
            masked += _frames(numbers.nodes, numbers.masked_bytes + SHARE_SEAL_BYTES)
        named = _frames(1, numbers.silos + DIGEST_BYTES)
        made = self.joint.answered(self.roster) if self.joint else {}
        return {
            Call.OPEN: _frames(2, DIGEST_BYTES),
            Call.ATTEST: _frames(1, _EVIDENCE),
            Call.CONTRIBUTE: _frames(everybody, _SECRET),
            Call.CONFIRM: _frames(1 + everybody, _PROOF),
            Call.MODEL: masked,
            Call.SEED: masked,
            Call.PROMISE: named,
            Call.TOTAL: _frames(1, numbers.masked_bytes),
            Call.SHARES: named,
            Call.CLOSE: _frames(1, _SESSIONS) + _frames(1, _WORDS_BYTES),
            Call.RESULT: _frames(1, DIGEST_BYTES),
            Call.COLLECT_KEY: _frames(1, _WORDS_BYTES),
            Call.COLLECT_DEPOSIT: _frames(1, _WORDS_BYTES)
            + _frames(1, self._deposit)
            + _frames(1, numbers.masked_bytes)
            + _frames(1, _SESSIONS),
            Call.COLLECT_LOOK: named,
            Call.COLLECT_PROMISE: _frames(1, DIGEST_BYTES),
            Call.COLLECT_TOTAL: _frames(1, numbers.masked_bytes + DIGEST_BYTES),
            **{call: _all(sizes) for call, sizes in made.items()},
        }
