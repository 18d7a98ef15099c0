"""What travels between two ends: pieces of a message, and a few words about them.

    packet    "hubp", 1, kind, again (0 or 1), 0, number (8 bytes), SHA-256 of the whole message,
              its bytes (8), place (4), then the bytes of a piece; little-endian

A message is cut into pieces of half a megabyte, each with the message's number and hash. Nothing of
it is signed: who joins a message checks the hash against mishaps, and the frames in it against
everything else. A word that is of no message has, in the place of the hash, what its process was
called at its start: whoever hears two such names in turn knows that there are two. This file knows
no line and no clock.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import struct
from collections import deque
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from hubbub.core.errors import ProtocolError
from hubbub.site.network.envelope import MOST_BYTES

PIECE_BYTES = 1 << 19
WINDOW = 4  # pieces on their way at a time: a line of 1 Mbit/s empties them in 17 s
_HEADER = struct.Struct("<4sBBBxQ32sQI")
_MAGIC, _VERSION = b"hubp", 1
LARGEST_PACKET = _HEADER.size + PIECE_BYTES
DIGEST_BYTES = 32  # of SHA-256
_NOTHING = bytes(DIGEST_BYTES)


class PacketKind(IntEnum):
    """What a packet is."""

    PIECE = 1  # a piece of a message
    HAVE = 2  # so many pieces have come, without a gap; `again`: send on from there
    ASK = 3  # how many pieces have come?
    HELLO = 4  # newly connected: what was on its way may be lost
    BEAT = 5  # still there
    BYE = 6  # leaves
    TWICE = 7  # two processes take part as whoever hears this


@dataclass(frozen=True, kw_only=True)
class Packet:
    """One message of the engine."""

    kind: PacketKind
    number: int = 0
    digest: bytes = field(default=_NOTHING, repr=False)
    size: int = 0
    place: int = 0
    again: bool = False
    data: bytes | memoryview = field(default=b"", repr=False)

    def encoded(self) -> bytes:
        """As bytes."""
        of = (self.number, self.digest, self.size, self.place)
        return b"".join((_HEADER.pack(_MAGIC, _VERSION, self.kind, self.again, *of), self.data))

    @classmethod
    def read(cls, data: bytes) -> Packet:
        """The packet in these bytes; ProtocolError if it is none, or larger than anybody sends."""
        try:
            magic, version, kind, again, number, digest, size, place = _HEADER.unpack_from(data)
            packet = cls(
                kind=PacketKind(kind),
                number=number,
                digest=digest,
                size=size,
                place=place,
                again=bool(again),
                data=memoryview(data)[_HEADER.size :],
            )
        except (struct.error, ValueError):
            raise ProtocolError(
                "expected a packet of hubbub, got other bytes", culprit="relay"
            ) from None
        length = piece_bytes(size, place) if packet.kind is PacketKind.PIECE else 0
        known = (magic, version) == (_MAGIC, _VERSION)
        if not known or not 0 <= size <= MOST_BYTES or place > pieces_of(size):
            raise ProtocolError("expected a packet of hubbub, got another", culprit="relay")
        if len(packet.data) != length:
            raise ProtocolError(
                f"expected a piece of {length} bytes, got {len(packet.data)}", culprit="relay"
            )
        return packet


def pieces_of(size: int) -> int:
    """How many pieces a message of so many bytes has."""
    return max(1, -(-size // PIECE_BYTES))


def piece_bytes(size: int, place: int) -> int:
    """How long the piece at a place is."""
    return max(0, min(PIECE_BYTES, size - place * PIECE_BYTES))


@dataclass(kw_only=True)
class Outgoing:
    """A message on its way."""

    number: int
    digest: bytes = field(repr=False)
    message: bytes = field(repr=False)
    had: int = 0  # pieces that the other end has, without a gap
    sent: int = 0  # pieces, since it last said so

    @property
    def count(self) -> int:
        """Pieces in all."""
        return pieces_of(len(self.message))

    @property
    def there(self) -> bool:
        """Whether all of it has come."""
        return self.had >= self.count

    def word(self, kind: PacketKind) -> Packet:
        """A packet about this message."""
        return Packet(kind=kind, number=self.number, digest=self.digest, size=len(self.message))

    def next(self) -> Packet | None:
        """The piece to send now; None while enough are on their way."""
        place = self.sent
        if place >= min(self.count, self.had + WINDOW):
            return None
        self.sent += 1
        start = place * PIECE_BYTES
        data = memoryview(self.message)[start : start + PIECE_BYTES]
        return replace(self.word(PacketKind.PIECE), place=place, data=data)

    def told(self, had: int, *, again: bool) -> bool:
        """Hear how many pieces have come; whether that is news."""
        if had > self.count:
            return False
        news = had > self.had
        if again:
            self.had = self.sent = had
        elif news:
            self.had, self.sent = had, max(had, self.sent)
        return news


@dataclass(kw_only=True)
class Incoming:
    """A message that is being joined."""

    number: int
    digest: bytes = field(repr=False)
    size: int
    had: int = 0
    _joined: io.BytesIO = field(default_factory=io.BytesIO, repr=False)
    _ahead: dict[int, bytes | memoryview] = field(default_factory=dict, repr=False)
    _hash: Any = field(default_factory=hashlib.sha256, repr=False)  # of what is joined
    _asked: int = -1

    @classmethod
    def of(cls, packet: Packet) -> Incoming:
        """The message that a packet speaks of."""
        return cls(number=packet.number, digest=packet.digest, size=packet.size)

    def is_of(self, packet: Packet) -> bool:
        """Whether a packet speaks of this message."""
        return (self.number, self.digest, self.size) == (packet.number, packet.digest, packet.size)

    @property
    def count(self) -> int:
        """Pieces in all."""
        return pieces_of(self.size)

    @property
    def waiting(self) -> int:
        """Pieces that have come past a gap."""
        return len(self._ahead)

    def take(self, packet: Packet) -> bytes | None:
        """Take a piece in, in whatever order they come; the message, once it is whole."""
        if self.had <= packet.place < min(self.count, self.had + WINDOW):
            self._ahead[packet.place] = packet.data
        before = self.had
        while (piece := self._ahead.pop(self.had, None)) is not None:
            if not self.had:  # in the memory of the message, which costs nothing until it comes
                self._joined = io.BytesIO(bytes(self.size))
            self._joined.write(piece)
            self._hash.update(piece)  # while the next one is on its way
            self.had += 1
        if self.had < self.count or before == self.count:
            return None
        whole, right = self._joined.getvalue(), self._hash.digest() == self.digest
        self._joined, self._hash = io.BytesIO(), hashlib.sha256()
        if right:
            return whole
        self.had, self._asked = 0, -1
        return None

    def answer(self, *, again: bool = False) -> Packet:
        """How many pieces have come; the first packet after a gap asks for what is missing."""
        if self._ahead and self._asked != self.had:
            self._asked, again = self.had, True
        return Packet(
            kind=PacketKind.HAVE,
            number=self.number,
            digest=self.digest,
            size=self.size,
            place=self.had,
            again=again,
        )


# What one end knows of the other: a message on its way in each direction, and signs of life.
#
# Theory of operation. A server hands messages on in order while both ends are connected, and
# forgets them when one is not. So pieces are lost in runs, at a connection's end. Who is newly
# connected says HELLO; then either end asks how much of its message has come, and sends nothing
# more of it before the other has said from where to go on. Who waits for long without news asks as
# well. No end sends more than a few pieces ahead of what it knows to have come, so that no queue
# grows on a slow line. A newer message takes the place of an older one: the aggregator waits for
# one answer of a party.
#
# Whoever is at the other end may send what it likes. So of each word the newest alone waits to be
# sent; a message is taken in up to a size that its receiver states beforehand, and a reply once;
# and what came to nothing is counted as `waste`, by which the line stops hearing those who flood
# it.
#
# Time comes in as an argument; what is to be sent is asked for with `due`.

BEAT_SECONDS = 5.0
_TWICE_SECONDS = 60.0  # without a sign of two processes, until they are news again
_PATIENCE, _MOST_PATIENCE = 10.0, 30.0  # seconds without news until the other end is asked


@dataclass(frozen=True, kw_only=True)
class Message:
    """A whole message that has come, and its SHA-256."""

    number: int
    data: bytes = field(repr=False)
    digest: bytes = field(default=b"", repr=False, compare=False)


@dataclass(kw_only=True)
class MessageDelivery:
    """One end's view of the other."""

    replies: bool  # only the answer to what was sent last is taken in
    present: bool | None = None  # whether the other is there; None if it was never heard of
    heard: float = 0.0  # last, in seconds
    most: int = MOST_BYTES  # bytes of a message that is taken in; of a reply, as `send` says
    waste: int = 0  # packets that came and brought nothing
    too_large: int = 0  # bytes of what was refused last for its size
    twice: int = 0  # how often it was news that two processes take part as one
    _me: bytes = field(default_factory=lambda: os.urandom(DIGEST_BYTES), repr=False)
    _other: bytes = field(default=b"", repr=False)
    _others: deque[bytes] = field(default_factory=lambda: deque(maxlen=8), repr=False)
    _words: dict[PacketKind, Packet] = field(default_factory=dict, repr=False)
    _going: Outgoing | None = field(default=None, repr=False)
    _coming: Incoming | None = field(default=None, repr=False)
    _twice_at: float = -math.inf
    _newest: int = -1
    _replied: bool = False
    _asking: bool = False
    _since: float = 0.0
    _patience: float = _PATIENCE
    _beat: float = 0.0

    def send(
        self, number: int, message: bytes, digest: bytes, now: float, most: int = MOST_BYTES
    ) -> None:
        """Have a message sent, with its SHA-256, in the place of the one before.

        Args:
            now: in seconds.
            most: bytes that a reply to it may have.
        """
        self._going = Outgoing(number=number, digest=digest, message=message)
        if self.replies:
            self.most, self.too_large, self._replied = most, 0, False
        self._patience, self._since, self._asking = _PATIENCE, now, False

    def settle(self) -> None:
        """Nothing more is wanted of what was sent."""
        self._going = None

    def say(self, kind: PacketKind) -> None:
        """Have a word sent that is of no message."""
        self._words[kind] = Packet(kind=kind, digest=self._me)

    def connected(self) -> None:
        """Hear that this end is newly connected."""
        self._words.clear()
        self.say(PacketKind.HELLO)
        self._ask()

    def due(self) -> Packet | None:
        """The next packet to send, if there is one."""
        if self._words:
            return self._words.pop(next(iter(self._words)))
        return self._going.next() if self._going and not self._asking else None

    def pass_time(self, now: float) -> None:
        """See what is due by itself: a sign of life, a question."""
        if now - self._beat >= BEAT_SECONDS:
            self._beat = now
            self.say(PacketKind.BEAT)
        waits = self._going is not None and (self.replies or not self._going.there)
        if waits and now - self._since >= self._patience:
            self._since, self._patience = now, min(_MOST_PATIENCE, 2 * self._patience)
            self._ask()

    def hear(self, packet: Packet, now: float) -> Message | None:
        """Take a packet in; a message, if it is whole now."""
        self.heard, self.present = now, packet.kind is not PacketKind.BYE
        if packet.kind is PacketKind.HAVE:
            self._told(packet, now)
            return None
        if packet.kind is PacketKind.PIECE:
            return self._joined(packet, now)
        self.waste += 1
        if packet.kind in (PacketKind.HELLO, PacketKind.BEAT):
            self._met(packet.digest, now)
        if packet.kind is PacketKind.HELLO:
            self._newest = -1
            self.say(PacketKind.BEAT)
            self._ask()
        elif packet.kind is PacketKind.TWICE and not self.replies:
            self._see_twice(now)
        elif packet.kind is PacketKind.ASK and self._begun(packet):
            self._since = now
            self._answer(again=True)
        return None

    def _met(self, name: bytes, now: float) -> None:
        """Hear which process the other end is; one that was started again does not come back.

        Both are told as often as they take turns: a word may be lost like all others.
        """
        if name == self._other:
            return
        if name in self._others:
            self._see_twice(now)
            self.say(PacketKind.TWICE)
        self._others.append(self._other)
        self._other = name

    def _see_twice(self, now: float) -> None:
        """See a sign of two processes."""
        self.twice += now - self._twice_at > _TWICE_SECONDS
        self._twice_at = now

    def _ask(self) -> None:
        """Ask how much has come of what is on its way."""
        if self._going is not None:
            self._asking = True
            self._words[PacketKind.ASK] = self._going.word(PacketKind.ASK)

    def _told(self, packet: Packet, now: float) -> None:
        """Hear how much of a message has come."""
        going = self._going
        if going is None or (going.number, going.digest) != (packet.number, packet.digest):
            self.waste += 1
            return
        self._asking = self._asking and not packet.again
        if going.told(packet.place, again=packet.again):
            self._since, self._patience = now, _PATIENCE
        else:
            self.waste += WINDOW if packet.again else 1  # all of which is sent once more

    def _joined(self, packet: Packet, now: float) -> Message | None:
        """A piece of a message that comes here."""
        if not self._begun(packet) or self._coming is None:
            self.waste += 1
            return None
        self._since, coming = now, self._coming
        before, waiting = coming.had, coming.waiting
        whole = coming.take(packet)
        if (coming.had, coming.waiting) == (before, waiting):
            self.waste += 1
        elif coming.had < before:  # another hash: all of it comes anew
            self.waste += coming.count
        self._answer()
        if whole is None:
            return None
        self._replied = self.replies
        return Message(number=packet.number, digest=packet.digest, data=whole)

    def _begun(self, packet: Packet) -> bool:
        """Whether a packet is of the message that comes here, or of a new one that may come."""
        if self.replies and (self._going is None or packet.number != self._going.number):
            return False
        if packet.size > self.most:  # before anything of it is kept
            self.too_large = packet.size
            return False
        if self._coming is not None and self._coming.is_of(packet):
            return True
        if packet.number < self._newest and packet.kind is PacketKind.PIECE:
            return False  # it comes late, and nobody waits for it
        if self._coming is not None and self._coming.number == packet.number:
            if self._replied:
                return False
            self.waste += self._coming.had + 1  # two messages as one: pieces are thrown away
        self._coming, self._newest = Incoming.of(packet), packet.number
        return True

    def _answer(self, *, again: bool = False) -> None:
        """Say how much has come; who was asked to send on is not told less by a later word."""
        assert self._coming is not None  # noqa: S101 (of which a packet came)
        packet, before = self._coming.answer(again=again), self._words.get(PacketKind.HAVE)
        if before and (before.number, before.digest) == (packet.number, packet.digest):
            packet = replace(packet, again=packet.again or before.again)
        self._words[PacketKind.HAVE] = packet
