"""A silo behind a network of its own: a namespace, a pair of virtual cards, and a rate on them.

The silo's processes run in the namespace. Their server is at localhost there too: a ferry, which
this file starts on both sides, carries what is sent to that port across the pair of cards and
nowhere else. It needs root and Linux's `ip` and `tc`; it touches nothing outside what it makes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_HERE, _THERE = "10.213.77.1", "10.213.77.2"


@dataclass(frozen=True, kw_only=True)
class Link:
    """A namespace and the card on our side of it."""

    name: str

    @property
    def card(self) -> str:
        """On our side."""
        return f"{self.name}-a"

    @property
    def other(self) -> str:
        """On the silo's side."""
        return f"{self.name}-b"

    def inside(self, *command: str) -> list[str]:
        """A command that runs in the namespace."""
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self.whole()
        for command in self._cards("add", "root", "blackhole"):
            subprocess.run(command, check=True)

    def slow(self, rate: str = "1mbit") -> None:
        """So much passes each way, and no more."""
        self._shaped(rate)

    def whole(self) -> None:
        """As fast as the machine is again."""
        for command in self._cards("del", "root"):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)

    def _shaped(self, rate: str) -> None:
        self.whole()
        burst = ("burst", "4kb", "latency", "400ms")
        for command in self._cards("add", "root", "tbf", "rate", rate, *burst):
            subprocess.run(command, check=True)

    def _cards(self, verb: str, *words: str) -> list[list[str]]:
        ours = ["tc", "qdisc", verb, "dev", self.card, *words]
        return [ours, self.inside("tc", "qdisc", verb, "dev", self.other, *words)]


def possible() -> bool:
    """Whether this machine lets us make namespaces."""
    if os.geteuid() != 0:
        return False
    try:
        tried = ["ip", "netns", "add", "hubbub-try"], ["ip", "netns", "del", "hubbub-try"]
        return all(subprocess.run(one, check=False).returncode == 0 for one in tried)
    except FileNotFoundError:
        return False


@contextmanager
def linked(port: int) -> Iterator[Link]:
    """A namespace in which localhost:port is our localhost:port."""
    link = Link(name=f"hub{port}")
    _do("ip", "netns", "add", link.name)
    ferries: list[subprocess.Popen[bytes]] = []
    try:
        _do(*f"ip link add {link.card} type veth peer name {link.other} netns {link.name}".split())
        _do("ip", "addr", "add", f"{_HERE}/30", "dev", link.card)
        _do("ip", "link", "set", link.card, "up")
        _do("ip", "-n", link.name, "addr", "add", f"{_THERE}/30", "dev", link.other)
        for card in ("lo", link.other):
            _do("ip", "-n", link.name, "link", "set", card, "up")
        ferry = [sys.executable, "-m", "benchmarks.network.link"]
        ferries.append(subprocess.Popen([*ferry, _HERE, "127.0.0.1", str(port)]))
        ferries.append(subprocess.Popen(link.inside(*ferry, "127.0.0.1", _HERE, str(port))))
        yield link
    finally:
        for one in ferries:
            one.kill()
            one.wait()
        subprocess.run(["ip", "link", "del", link.card], check=False)
        _do("ip", "netns", "del", link.name)


def _do(*command: str) -> None:
    subprocess.run(command, check=True)


async def _ferry(listen: str, onward: str, port: int) -> None:
    """Whoever connects here is connected there."""

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(onward, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, back), carry(there, writer))

    server = await asyncio.start_server(met, listen, port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_ferry(sys.argv[1], sys.argv[2], int(sys.argv[3])))
