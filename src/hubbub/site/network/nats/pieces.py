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
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from hubbub.core.errors import ProtocolError
from hubbub.site.network.engine import MOST_BYTES

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
        head = _HEADER.pack(
            _MAGIC,
            _VERSION,
            self.kind,
            self.again,
            self.number,
            self.digest,
            self.size,
            self.place,
        )
        return b"".join((head, self.data))

    @classmethod
    def read(cls, data: bytes) -> Packet:
        """The packet in these bytes.

        Raises:
            ProtocolError: it is none, or larger than anybody sends.
        """
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
    """A message on its way.

    Args:
        number, digest, message: of it.
        had: pieces that the other end has, without a gap.
        sent: pieces that were sent since it last said so.
    """

    number: int
    digest: bytes = field(repr=False)
    message: bytes = field(repr=False)
    had: int = 0
    sent: int = 0

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
        return Packet(
            kind=PacketKind.PIECE,
            number=self.number,
            digest=self.digest,
            size=len(self.message),
            place=place,
            data=memoryview(self.message)[start : start + PIECE_BYTES],
        )

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
    """A message that is being joined.

    Args:
        number, digest, size: of it.
        had: pieces that have come, without a gap.
    """

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
