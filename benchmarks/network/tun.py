"""Slow and lossy lines between network namespaces of our own: packets go through this process.

Each member of a consortium lives in a namespace of its own, joined to the hub's by a line: two TUN
devices whose packets wait here, are lost at random, or fall out of a queue that is full. So TCP is
the system's own, with real losses. It needs Linux, root, `ip` and /dev/net/tun; nothing outside
these namespaces is reached or changed.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TUNSETIFF, _IFF_TUN_NO_PI = 0x400454CA, 0x0001 | 0x1000
_CLONE_NEWNET = 0x40000000
_LARGEST = 65536
HUB = "hub"


@dataclass(frozen=True, kw_only=True)
class Quality:
    """What a line does to a packet, in each direction.

    Args:
        delay: seconds, half a round trip.
        loss: share of packets.
        rate: bits in a second.
        queue: bytes that wait; what comes then is dropped.
    """

    delay: float = 0.1
    loss: float = 0.01
    rate: float = 10e6
    queue: int = 250_000


@dataclass(kw_only=True)
class Line:
    """A line to the hub.

    Args:
        number: its place in 10.77.0.0/16.
        ends: its devices: the hub's and the member's.
        dark: nothing passes.
        back: when the line first carried data both ways since it was lit again.
    """

    number: int
    ends: tuple[int, int]
    dark: bool = False
    passed: list[int] = field(default_factory=lambda: [0, 0])
    lost: int = 0
    back: float | None = None
    _free: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _seen: dict[tuple[bytes, int], int] = field(default_factory=dict)
    _carried: set[int] = field(default_factory=set)

    @property
    def hub(self) -> str:
        """The hub's address on it."""
        return f"10.77.{self.number}.1"

    def due(self, size: int, to: int, now: float, quality: Quality) -> float | None:
        """When a packet that comes now has left; None if it is dropped for want of room."""
        begins = max(now, self._free[to])
        if (begins - now) * quality.rate / 8 > quality.queue:
            return None
        self._free[to] = begins + 8 * size / quality.rate
        return self._free[to] + quality.delay

    def light(self) -> None:
        """Let packets pass again, and look for data both ways."""
        self._seen.clear()
        self._carried.clear()
        self.back, self.dark = None, False

    def look(self, packet: bytes, to: int) -> None:
        """Whether data that passed since was acknowledged, in both directions."""
        if self.back is not None or packet[9] != 6:
            return
        start = 4 * (packet[0] & 15)
        ports, (sequence, acknowledged) = packet[start : start + 4], _numbers(packet, start)
        data = int.from_bytes(packet[2:4]) - start - 4 * (packet[start + 12] >> 4)
        if data > 0:
            self._seen.setdefault((ports, to), sequence + data)
        sent = self._seen.get((ports[2:] + ports[:2], 1 - to))
        if sent is not None and (acknowledged - sent) % 2**32 < 2**31:
            self._carried.add(to)
        if len(self._carried) == 2:
            self.back = time.monotonic()


def _numbers(packet: bytes, start: int) -> tuple[int, int]:
    """The sequence number, and what is acknowledged."""
    first, second = struct.unpack_from(">II", packet, start + 4)
    return int(first), int(second)


class Lines:
    """Lines from a hub to members, on a thread of their own.

    Args:
        members: their names.
        quality: of each line.
        seed: of the losses.
    """

    def __init__(self, members: Sequence[str], quality: Quality, seed: int) -> None:
        self.quality, self._chance = quality, random.Random(seed)
        self.prefix = f"hubbub{os.getpid()}"
        self.lines: dict[str, Line] = {}
        self._members = members
        self._waiting: list[tuple[float, int, Line, int, bytes]] = []
        self._ended, self._count = threading.Event(), 0

    @contextmanager
    def laid(self) -> Iterator[Lines]:
        """Make the namespaces and the lines; they are gone at the end."""
        with ExitStack() as stack:
            self._space(HUB, stack)
            for number, name in enumerate(self._members, 1):
                self._space(name, stack)
                self.lines[name] = self._line(number, name, stack)
            thread = threading.Thread(target=self._carry, daemon=True, name="lines")
            stack.callback(thread.join)
            stack.callback(self._ended.set)
            thread.start()
            yield self

    def space(self, name: str) -> str:
        """How a member's namespace is called."""
        return f"{self.prefix}-{name}"

    def _space(self, name: str, stack: ExitStack) -> None:
        _ip("netns", "add", self.space(name))
        stack.callback(_ip, "netns", "del", self.space(name))
        _ip("-n", self.space(name), "link", "set", "lo", "up")

    def _line(self, number: int, name: str, stack: ExitStack) -> Line:
        ends = []
        for place, (whose, host, other) in enumerate(((HUB, 1, 2), (name, 2, 1))):
            device = f"hb{os.getpid() % 10**6}x{number}{'ab'[place]}"
            ends.append(_tun(device))
            stack.callback(os.close, ends[-1])
            space = self.space(whose)
            _ip("link", "set", device, "netns", space)
            here, there = f"10.77.{number}.{host}", f"10.77.{number}.{other}"
            _ip("-n", space, "addr", "add", here, "peer", there, "dev", device)
            _ip("-n", space, "link", "set", device, "up")
        return Line(number=number, ends=(ends[0], ends[1]))

    def _carry(self) -> None:
        """Take packets from one end and write them to the other, when they are due."""
        with selectors.DefaultSelector() as selector:
            for line in self.lines.values():
                for place, end in enumerate(line.ends):
                    selector.register(end, selectors.EVENT_READ, data=(line, 1 - place))
            while not self._ended.is_set():
                self._carry_on(selector)

    def _carry_on(self, selector: selectors.BaseSelector) -> None:
        left = self._waiting[0][0] - time.monotonic() if self._waiting else 0.1
        for key, _ in selector.select(min(0.1, max(0.0, left))):
            self._take(os.read(key.fd, _LARGEST), *key.data)
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            _, _, line, to, packet = heapq.heappop(self._waiting)
            self._give(packet, line, to)

    def _take(self, packet: bytes, line: Line, to: int) -> None:
        if packet[0] >> 4 != 4:  # what IPv6 says by itself
            return
        due = line.due(len(packet), to, time.monotonic(), self.quality)
        if due is None or line.dark or self._chance.random() < self.quality.loss:
            line.lost += 1
            return
        self._count += 1
        heapq.heappush(self._waiting, (due, self._count, line, to, packet))

    def _give(self, packet: bytes, line: Line, to: int) -> None:
        if line.dark:
            line.lost += 1
            return
        line.passed[to] += len(packet)
        os.write(line.ends[to], packet)
        line.look(packet, to)


def enter(space: str) -> None:
    """Have this process live in a namespace; what it starts does so too."""
    handle = os.open(f"/run/netns/{space}", os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"expected to enter {space}")
    finally:
        os.close(handle)


def retransmitted(pid: int) -> tuple[int, int]:
    """TCP segments that were sent in a process's namespace, and those that were sent again."""
    said = Path(f"/proc/{pid}/net/snmp").read_text(encoding="ascii").splitlines()
    names, values = (line.split() for line in said if line.startswith("Tcp:"))
    found = dict(zip(names, values, strict=True))
    return int(found["OutSegs"]), int(found["RetransSegs"])


def _tun(device: str) -> int:
    """The handle of a new device."""
    handle = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH", device.encode(), _IFF_TUN_NO_PI))
    return handle


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
