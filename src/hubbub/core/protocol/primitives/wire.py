"""The frame of every message: what it is, who says it to whom, and the signature that binds it.

A frame is a header of fixed size, a payload, and an Ed25519 signature over both (over the SHA-256
of the payload, which may be megabytes). The header binds the message to a study, a session, a round
and an attempt, so that nothing can be replayed elsewhere. Bytes become a `Frame` here or a
`ProtocolError` that names the blamed party; what a payload means is the business of `round`. The
payload of a MASKED is hashed in two parts, the vector and then its hash with the digest of the
MODEL: so whoever keeps no vectors can still show which MODEL a silo has answered.

A signer is blamed only for what no honest party signs. A true frame in the wrong place, or there a
second time, is the relay's doing; two different frames for one place are their signer's. Receivers
therefore keep the digest of what they took wherever a second frame could come.

    offset  size  field
         0     1  version (4)
         1     1  tag
         2    32  study id
        34    16  session
        50     4  round, little-endian
        54     4  attempt
        58     4  sender: index in the roster
        62     4  receiver: index, or 0xffffffff for everybody
        66     8  payload length
        74     n  payload
      74+n    64  signature
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from threading import Lock

import numpy as np

from hubbub.core.errors import ProtocolError, StudyError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import (
    DIGEST_BYTES,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    SESSION_BYTES,
    SIGNATURE_BYTES,
)

VERSION = 4
EVERYBODY = 0xFFFFFFFF
SIGNED_FIRST = b"hubbub frame v1"
_RECEIVER = slice(62, 66)
_SENDER = slice(58, 62)
_LARGE = 1 << 16  # bytes of a frame whose hash takes longer than a look at the last ones
_REMEMBERED = 4
FrameBytes = bytes | memoryview  # of an envelope, say


class Tag(IntEnum):
    """Kinds of messages."""

    COMMIT = 1
    REVEAL = 2
    CONTRIBUTION = 3
    CONFIRM = 4
    KEY_CHECK = 5
    MODEL = 6
    MASKED = 7
    REQUEST = 8
    TOTAL = 9
    SHARE = 10
    SEED_ANCHOR = 11
    SEED_LINK = 12
    MIX_KEY = 13
    MIX_COMMIT = 14
    MIX_NAMES = 15
    MIX_FORMS = 16
    MIX_SEEN = 17
    MIX_COMPLAINT = 18
    MIX_OPENED = 19
    OPEN = 20
    READY = 21
    REFUSAL = 22
    RESULT = 23
    CLOSE = 24
    CLOSED = 25
    ARRIVED = 26
    HELD = 27
    NONCE = 28
    EVIDENCE = 29
    PROMISE = 30
    ROLL = 31
    RESULT_SIGNED = 32
    PROPOSAL = 33
    PROPOSED = 34
    # Of a collection (`hubbub.site.collected`), whose sum is open for weeks.
    COLLECT = 40
    NODE_KEY = 41
    DEPOSIT = 42
    VECTOR = 43
    LOOKED = 44
    SET = 45
    SET_PROMISE = 46
    SET_TOTAL = 47
    RECEIPT = 48


_TAGS = frozenset(Tag)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One message, parsed and, if it came from outside, verified.

    A payload that is about to be sealed may come in two parts, so that a vector of megabytes is
    copied once: `after` is what follows `payload`, and `payload` is that vector or comes before it.
    """

    tag: Tag
    study: bytes
    session: bytes
    round: int = 0
    attempt: int = 0
    sender: int
    receiver: int = EVERYBODY
    payload: bytes | memoryview
    after: bytes | memoryview = b""

    def sealed(self, keys: Keys) -> bytes:
        """The frame as signed bytes."""
        data = b"".join((self._header, self.payload, self.after, keys.sign(self.signed)))
        if memoryview(self.payload).readonly:  # else it may not be now what it was when hashed
            _SEALED.remember(data, self.short)
        return data

    @cached_property
    def signed(self) -> bytes:
        """What is signed: the context, the header, and the hash of the payload."""
        # The context first: nothing else that this key signs can be taken for a frame.
        return SIGNED_FIRST + self._header + self._hash

    @cached_property
    def short(self) -> bytes:
        """What stands for the payload where it is not kept."""
        return shortened(self.tag, self.payload, self.after)

    @cached_property
    def _hash(self) -> bytes:
        return hash_of(self.tag, self.short)

    @cached_property
    def digest(self) -> bytes:
        """What stands for a frame that was taken or is answered: SHA-256 of what is signed."""
        return hashlib.sha256(self.signed).digest()

    @cached_property
    def _header(self) -> bytes:
        return HEADER.pack(
            VERSION,
            self.tag,
            self.study,
            self.session,
            self.round,
            self.attempt,
            self.sender,
            self.receiver,
            len(self.payload) + len(self.after),
        )


def shortened(tag: int, payload: bytes | memoryview, after: bytes | memoryview = b"") -> bytes:
    """What stands for a payload where it is not kept: its hash; of a MASKED, also the MODEL's."""
    if tag == Tag.MASKED and not after:
        view = memoryview(payload)
        payload, after = view[:-DIGEST_BYTES], bytes(view[-DIGEST_BYTES:])
    hashed = hashlib.sha256(payload)
    if tag == Tag.MASKED:
        return hashed.digest() + bytes(after)
    hashed.update(after)
    return hashed.digest()


def hash_of(tag: int, short: bytes) -> bytes:
    """The hash of a payload that is signed, from what stands for it."""
    return hashlib.sha256(short).digest() if tag == Tag.MASKED else short


class Sealed:
    """The last large frames that this process has sealed and not parsed yet, and their hashes.

    Where all parties are in one process, a receiver is handed the very object that the sender has
    made. Bytes never change, so the hash of its payload is what the sender found, and the receiver
    need not spend the time again; whether the signature is true it finds out all the same. Only the
    object itself is recognised, which cannot be replaced while it is held here: an equal copy is
    hashed anew. Elsewhere nobody parses what it has sealed, so there is no room until somebody asks
    for it: models would be held for nothing.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: deque[tuple[bytes, bytes]] = deque(maxlen=0)

    def make_room(self, frames: int) -> None:
        """Keep so many at least: as many as are sealed before the first of them is parsed."""
        with self._lock:
            self._last = deque(self._last, maxlen=max(frames, self._last.maxlen or 0))

    def remember(self, data: bytes, short: bytes) -> None:
        """Keep a frame until it is parsed, or until some more have been sealed."""
        if len(data) >= _LARGE:
            with self._lock:
                self._last.append((data, short))

    def short_of(self, data: FrameBytes, *, forget: bool = True) -> bytes:
        """What stands for this very frame's payload, then forgotten; nothing if unknown."""
        if len(data) < _LARGE:
            return b""
        with self._lock:
            for place, (sealed, short) in enumerate(self._last):
                if sealed is data:
                    if forget:
                        del self._last[place]
                    return short
        return b""


_SEALED = Sealed()


def seal_ahead(frames: int) -> None:
    """Threads of this process may seal so many large frames before one of them is parsed in it."""
    _SEALED.make_room(frames + _REMEMBERED)


def parse(data: FrameBytes, roster: Roster, *, study: bytes, session: bytes) -> Frame:
    """A verified frame of this study and session.

    Raises:
        ProtocolError: naming the relay; the bytes are not what any party signed, or a party signed
            them for another study or session and somebody carried them here.
    """
    # Before anything is looked at: bytes that change once they were verified would be believed.
    data = _unchanging(data)
    # The same bytes come to everybody, as a model of megabytes does: they are taken apart once.
    is_broadcast = data[_RECEIVER] == EVERYBODY.to_bytes(4, "little")
    frame = _shared(data) if is_broadcast else _hashed(data)
    if not 0 <= frame.sender < len(roster.parties):
        raise ProtocolError(f"expected a sender of the roster, got {frame.sender}", culprit="relay")
    sender = roster.parties[frame.sender]
    if not sender.verifies(bytes(data[-SIGNATURE_BYTES:]), frame.signed):
        raise ProtocolError(
            f"expected a {frame.tag.name} signed by {sender.name}, got a false signature",
            culprit="relay",
        )
    if frame.study != study:
        raise ProtocolError(
            f"expected study {study.hex()[:16]}, got {frame.study.hex()[:16]}", culprit="relay"
        )
    if frame.session != session:
        raise ProtocolError(
            f"expected a {frame.tag.name} of this session, got one of another: a replay",
            culprit="relay",
        )
    return frame


def unverified(data: FrameBytes) -> Frame:
    """What a frame says of itself, of which nothing is to be believed yet.

    Raises:
        ProtocolError: it is no frame of this version.
    """
    return _split(_unchanging(data))


def _unchanging(data: FrameBytes) -> FrameBytes:
    """A frame that nobody can change once it is verified, as it is if it stands among bytes."""
    among_bytes = isinstance(data, memoryview) and type(data.obj) is bytes
    return data if among_bytes else bytes(data)


def short_of(data: bytes) -> bytes:
    """What stands for a frame's payload; found anew unless this very frame was just sealed."""
    known = _SEALED.short_of(data, forget=False)
    return known or shortened(data[1], memoryview(data)[HEADER_BYTES:-SIGNATURE_BYTES])


def tag_of(data: bytes) -> int:
    """The kind that a frame says it is, in its header; 0 if it has none."""
    return data[1] if len(data) >= OVERHEAD else 0


def sender_of(data: bytes) -> int:
    """Who a frame says has sent it, in its header; nobody if it has none."""
    return int.from_bytes(data[_SENDER], "little") if len(data) >= OVERHEAD else EVERYBODY


def receiver_of(data: bytes) -> int:
    """Whom a frame says it is for, in its header; everybody if it has none."""
    return int.from_bytes(data[_RECEIVER], "little") if len(data) >= OVERHEAD else EVERYBODY


def digest_by_party(start: bytes, parts: Mapping[int, bytes]) -> bytes:
    """SHA-256 over a beginning and what each party has said, by roster index in its order."""
    whole = hashlib.sha256(start)
    for index in sorted(parts):
        whole.update(index.to_bytes(4, "little") + parts[index])
    return whole.digest()


def doubled_by(frame: Frame, taken: bytes, sender: str) -> str:
    """Who is to blame for a second frame in the place of one that was taken, by its digest.

    The signature itself is not compared: a signer can make two for the same words, and they are no
    lie. Only the signer can have signed two different things.
    """
    return "relay" if frame.digest == taken else sender


def _split(data: FrameBytes) -> Frame:
    """Header fields and payload, lengths checked, nothing believed yet."""
    if len(data) < OVERHEAD:
        raise ProtocolError(f"expected at least {OVERHEAD} bytes, got {len(data)}", culprit="relay")
    fields = HEADER.unpack_from(data)
    version, tag, study, session, number, attempt, sender, receiver, size = fields
    if version != VERSION:
        raise ProtocolError(
            f"expected wire version {VERSION}, got {version}; all parties must run the same "
            "version of hubbub",
            culprit="relay",
        )
    if size != len(data) - OVERHEAD:
        raise ProtocolError(
            f"expected a payload of {len(data) - OVERHEAD} bytes, got the length {size}",
            culprit="relay",
        )
    if tag not in _TAGS:
        raise ProtocolError(f"expected a known tag, got {tag}", culprit="relay")
    payload = memoryview(data)[HEADER_BYTES : len(data) - SIGNATURE_BYTES]
    frame = Frame(
        tag=Tag(tag),
        study=study,
        session=session,
        round=number,
        attempt=attempt,
        sender=sender,
        receiver=receiver,
        payload=payload,
    )
    vars(frame)["_header"] = bytes(data[:HEADER_BYTES])  # where the property would keep it
    return frame


def _hashed(data: FrameBytes) -> Frame:
    """The frame, with the hash of its payload where its sender is in this process."""
    frame = _split(data)
    if short := _SEALED.short_of(data):
        vars(frame)["short"] = short
    return frame


# In one process a thousand silos are handed one model, or a thousand small frames each: what is in
# them is a property of the bytes and is found once. Nothing is believed for that.
_split_large = lru_cache(maxsize=1)(_hashed)
_split_small = lru_cache(maxsize=1 << 12)(_hashed)


def _shared(data: FrameBytes) -> Frame:
    """What is in a frame that comes to everybody."""
    if isinstance(data, memoryview):  # it came from another machine
        return _hashed(data)
    return _split_large(data) if len(data) >= _LARGE else _split_small(data)


# A set of silos as bits, silo 1 the highest bit of the first byte; how many there are is known.


def bits_of(silos: Iterable[int], count: int) -> bytes:
    """A set of roster indices, of so many silos, as bits."""
    chosen = sorted(silos)
    if chosen and not 1 <= chosen[0] <= chosen[-1] <= count:
        raise StudyError(
            f"expected silos from 1 to {count}, got {chosen[0]} to {chosen[-1]}; "
            "name silos by their index in the roster"
        )
    flags = np.zeros(count, dtype=bool)
    flags[[index - 1 for index in chosen]] = True
    return np.packbits(flags).tobytes()


def set_of(bits: bytes | memoryview, count: int, sender: str) -> frozenset[int]:
    """The set that bits stand for.

    Raises:
        ProtocolError: naming the sender; they are no set of so many silos.
    """
    fits = len(bits) == (count + 7) // 8
    chosen = _members(bytes(bits), count) if fits else None
    if chosen is None:
        raise ProtocolError(f"expected a set of at most {count} silos, got another", culprit=sender)
    return chosen


@lru_cache(maxsize=4)
def _members(bits: bytes, count: int) -> frozenset[int] | None:
    """The set, None if it is not one; all silos of one process are sent the same."""
    flags = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
    # A set has one spelling, so sets are equal where their bytes or digests are.
    if flags[count:].any():
        return None
    return frozenset((np.flatnonzero(flags) + 1).tolist())


@dataclass(frozen=True, kw_only=True)
class Channel:
    """What the frames of one session belong to: everything that passes there is bound to it.

    Args:
        session: 16 bytes chosen for this session.

    Raises:
        StudyError: an id of another length.
    """

    roster: Roster = field(repr=False)
    study: bytes
    session: bytes

    def __post_init__(self) -> None:
        """Refuses ids that no frame has room for."""
        if (len(self.study), len(self.session)) != (32, SESSION_BYTES):
            raise StudyError(
                f"expected a study id of 32 bytes and a session of {SESSION_BYTES}, got "
                f"{len(self.study)} and {len(self.session)}; draw the session anew"
            )

    def parse(self, data: FrameBytes) -> Frame:
        """A verified frame of this session; errors are those of `parse`."""
        return parse(data, self.roster, study=self.study, session=self.session)

    def frame(
        self,
        tag: Tag,
        sender: int,
        payload: bytes | memoryview,
        *,
        receiver: int = EVERYBODY,
        time: tuple[int, int] = (0, 0),
        after: bytes | memoryview = b"",
    ) -> Frame:
        """A frame of this session, of a round and an attempt; to everybody unless it is for one."""
        return Frame(
            tag=tag,
            study=self.study,
            session=self.session,
            round=time[0],
            attempt=time[1],
            sender=sender,
            receiver=receiver,
            payload=payload,
            after=after,
        )


class ExpectedFrames:
    """Frames of one kind, at most one from each expected sender.

    Args:
        time: the round and the attempt that they must be of.
        receiver: whom they may be for besides everybody.
        sizes: bytes of their payloads, by sender; who takes them checks them if None.
        what: of what they are, for people.
    """

    __slots__ = ("_channel", "_known", "_receiver", "_senders", "_sizes", "_tag", "_time", "_what")

    def __init__(
        self,
        channel: Channel,
        tag: Tag,
        senders: Collection[int],
        *,
        time: tuple[int, int] = (0, 0),
        receiver: int = EVERYBODY,
        sizes: Mapping[int, int] | None = None,
        what: str = "",
    ) -> None:
        self._channel, self._tag, self._senders = channel, tag, senders
        self._time, self._receiver, self._sizes = time, receiver, sizes
        self._what = f" of {what}" if what else ""
        self._known: dict[int, bytes] = {}  # the digests of those that were taken

    def take(self, data: bytes) -> Frame:
        """The frame, verified.

        Raises:
            ProtocolError: naming who sent a second one, or another length; or the relay.
        """
        frame = self._channel.parse(data)
        wanted, name = self._tag.name, self._channel.roster.name(frame.sender)
        if misplaced := self._misplaced(frame, name):  # a true frame that was carried here
            raise ProtocolError(
                f"expected a {wanted}{self._what}, got {misplaced}", culprit="relay"
            )
        if frame.sender in self._known:
            raise ProtocolError(
                f"expected one {wanted} of {name}, got a second",
                culprit=doubled_by(frame, self._known[frame.sender], name),
            )
        if self._sizes is not None and len(frame.payload) != self._sizes[frame.sender]:
            raise ProtocolError(
                f"expected a {wanted} of {self._sizes[frame.sender]} bytes, got "
                f"{len(frame.payload)}",
                culprit=name,
            )
        self._known[frame.sender] = frame.digest
        return frame

    def _misplaced(self, frame: Frame, sender: str) -> str:
        """What a frame is that does not belong here; empty if it does."""
        if frame.tag is not self._tag or (frame.round, frame.attempt) != self._time:
            return f"a {frame.tag.name} of {frame.round}.{frame.attempt} from {sender}"
        if frame.sender not in self._senders:
            return f"one from {sender}"
        return "" if frame.receiver in (self._receiver, EVERYBODY) else "one for another party"

    @property
    def missing(self) -> int | None:
        """The first sender whose frame is not there; None if all are."""
        return min(set(self._senders).difference(self._known), default=None)

    def check_whole(self, why: str = "it has not answered") -> None:
        """Name the first whose frame is not there."""
        if self.missing is not None:
            raise ProtocolError(
                f"expected a {self._tag.name}, got none; {why}",
                culprit=self._channel.roster.name(self.missing),
            )
