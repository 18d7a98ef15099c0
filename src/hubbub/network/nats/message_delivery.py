"""What one end knows of the other: a message on its way in each direction, and signs of life.

Theory of operation. A server hands messages on in order while both ends are connected, and forgets
them when one is not. So pieces are lost in runs, at a connection's end. Who is newly connected says
HELLO; then either end asks how much of its message has come, and sends nothing more of it before
the other has said from where to go on. Who waits for long without news asks as well. No end sends
more than a few pieces ahead of what it knows to have come, so that no queue grows on a slow line. A
newer message takes the place of an older one: the aggregator waits for one answer of a party.

Time comes in as an argument; what is to be sent is asked for with `due`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hubbub.network.nats.pieces import Incoming, Outgoing, Packet, PacketKind

BEAT_SECONDS = 5.0
_PATIENCE, _MOST_PATIENCE = 10.0, 30.0  # seconds without news until the other end is asked


@dataclass(frozen=True, kw_only=True)
class Message:
    """A whole message that has come, and its SHA-256."""

    number: int
    data: bytes = field(repr=False)
    digest: bytes = field(default=b"", repr=False, compare=False)


@dataclass(kw_only=True)
class MessageDelivery:
    """One end's view of the other.

    Args:
        replies: only the answer to the message that was sent last is taken in.
        present: whether the other is there; None if it was never heard of.
        heard: when it was last heard of, in seconds.
    """

    replies: bool
    present: bool | None = None
    heard: float = 0.0
    _words: deque[Packet] = field(default_factory=deque, repr=False)
    _going: Outgoing | None = field(default=None, repr=False)
    _coming: Incoming | None = field(default=None, repr=False)
    _newest: int = -1
    _asking: bool = False
    _since: float = 0.0
    _patience: float = _PATIENCE
    _beat: float = 0.0

    def send(self, number: int, message: bytes, digest: bytes, now: float) -> None:
        """Have a message sent, with its SHA-256, in the place of the one before."""
        self._going = Outgoing(number=number, digest=digest, message=message)
        self._patience, self._since, self._asking = _PATIENCE, now, False

    def settle(self) -> None:
        """Nothing more is wanted of what was sent."""
        self._going = None

    def say(self, kind: PacketKind) -> None:
        """Have a word sent that is of no message."""
        self._words.append(Packet(kind=kind))

    def connected(self) -> None:
        """Hear that this end is newly connected."""
        self._words.clear()
        self.say(PacketKind.HELLO)
        self._ask()

    def due(self) -> Packet | None:
        """The next packet to send, if there is one."""
        if self._words:
            return self._words.popleft()
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
        if packet.kind is PacketKind.HELLO:
            self._newest = -1
            self.say(PacketKind.BEAT)
            self._ask()
        elif packet.kind is PacketKind.HAVE:
            self._told(packet, now)
        elif packet.kind in (PacketKind.PIECE, PacketKind.ASK):
            return self._joined(packet, now)
        return None

    def _ask(self) -> None:
        """Ask how much has come of what is on its way."""
        if self._going is not None:
            self._asking = True
            self._words.append(self._going.word(PacketKind.ASK))

    def _told(self, packet: Packet, now: float) -> None:
        """Hear how much of a message has come."""
        going = self._going
        if going is None or (going.number, going.digest) != (packet.number, packet.digest):
            return
        self._asking = self._asking and not packet.again
        if going.told(packet.place, again=packet.again):
            self._since, self._patience = now, _PATIENCE

    def _joined(self, packet: Packet, now: float) -> Message | None:
        """A piece, or a question, of a message that comes here."""
        if self.replies and (self._going is None or packet.number != self._going.number):
            return None
        if self._coming is None or not self._coming.is_of(packet):
            if packet.number < self._newest and packet.kind is PacketKind.PIECE:
                return None  # it comes late, and nobody waits for it
            self._coming, self._newest = Incoming.of(packet), packet.number
        self._since = now
        whole = self._coming.take(packet) if packet.kind is PacketKind.PIECE else None
        self._words.append(self._coming.answer(again=packet.kind is PacketKind.ASK))
        return (
            None
            if whole is None
            else Message(number=packet.number, digest=packet.digest, data=whole)
        )
