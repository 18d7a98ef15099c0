"""The bytes on the loopback, as somebody sees them who owns the wire: TLS records and their sizes.

Only lengths are looked at, and of the packets to and from one port only. It needs root.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

_EVERYTHING, _OUTGOING = 3, 4
_ETHERNET = 14
_BUFFER = 1 << 26
_APPLICATION = 23  # TLS' content type of everything after the handshake

Flow = tuple[int, int]  # ports, from and to


@dataclass(frozen=True, kw_only=True)
class Record:
    """One TLS record with data.

    Args:
        time: when its last byte passed, as the clock says.
        down: whether the server sent it.
        site: the other end's port.
        size: bytes, as enciphered.
    """

    time: float
    down: bool
    site: int
    size: int


@dataclass(kw_only=True)
class Wire:
    """Listens from `with` to its end.

    Args:
        port: of the server.
        missed: bytes that passed unseen; where there are any, the records are not to be trusted.
    """

    port: int
    missed: int = 0
    records: list[Record] = field(default_factory=list)
    _streams: dict[Flow, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    _next: dict[Flow, int] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        kind = socket.htons(_EVERYTHING)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, kind)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.5)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                packet, address = self._socket.recvfrom(1 << 17)
            except TimeoutError:
                continue
            if address[2] == _OUTGOING:  # every packet passes here twice
                self._take(packet)

    def _take(self, packet: bytes) -> None:
        """TCP over IPv4 of our port."""
        if packet[12:14] != b"\x08\x00" or packet[_ETHERNET + 9] != socket.IPPROTO_TCP:
            return
        start = _ETHERNET + 4 * (packet[_ETHERNET] & 15)
        flow = struct.unpack_from("!HH", packet, start)
        if self.port not in flow:
            return
        (sequence,) = struct.unpack_from("!I", packet, start + 4)
        data = packet[start + 4 * (packet[start + 12] >> 4) :]
        if not data:
            return
        ahead = (sequence - self._next.setdefault(flow, sequence)) % 2**32
        if ahead >= 2**31:  # sent again
            return
        self.missed += ahead
        self._next[flow] = (sequence + len(data)) % 2**32
        self._cut(flow, data)

    def _cut(self, flow: Flow, data: bytes) -> None:
        """Into TLS records."""
        stream = self._streams[flow]
        stream += data
        while len(stream) >= 5:
            size = 5 + int.from_bytes(stream[3:5], "big")
            if len(stream) < size:
                return
            if stream[0] == _APPLICATION:
                down = flow[0] == self.port
                site = flow[1] if down else flow[0]
                self.records.append(Record(time=time.time(), down=down, site=site, size=size))
            del stream[:size]
