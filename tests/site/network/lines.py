"""Real relays for tests: a server on the loopback, parties, and a proxy that can fail."""

from __future__ import annotations

import base64
import contextlib
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.site.network.envelope import Missing
from hubbub.site.network.nats.carrier import Answering, Carrier
from hubbub.site.network.nats.relay import Relay, RelayCertificate
from hubbub.site.network.nats.server import PROCESS_ID, Server, write_server

NAMES = {"aggregator": "aggregator", "ann": "silo", "bob": "silo", "node-1": "node"}


_PORTS = iter(range(20_000 + os.getpid() * 40 % 10_000, 32_768))


def free_port() -> int:
    """A port that nobody listens at, nor any other process of tests until this one ends.

    It lies below those that a system gives to whoever names none.
    """
    for port in _PORTS:
        claim = socket.socket(type=socket.SOCK_DGRAM)
        with contextlib.suppress(OSError), socket.socket() as probe:
            claim.bind(("127.0.0.1", port))
            probe.bind(("127.0.0.1", port))
            claim.detach()  # datagrams of that port are this process's, which nobody sends
            return port
        claim.close()
    raise AssertionError("expected a free port below 32,768, found none")


def wait(condition: Callable[[], Any], seconds: float = 300.0) -> None:
    """Until something holds; a far limit ends what hangs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@dataclass
class Party:
    """A party that answers, on a thread of its own."""

    answering: Answering
    seen: list[bytes]
    said: list[str]
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with self.answering:
            while not self.ended.is_set():
                self.answering.step(0.05)

    def stop(self) -> None:
        """End it, and see that it has ended: who comes under its name is not taken to have left."""
        self.ended.set()
        self.thread.join(300)
        self.answering._line._thread.join(300)

    def start(self) -> Party:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self


@dataclass
class Relayed:
    """A relay, and everybody's keys."""

    folder: Path
    keys: dict[str, Keys]
    relay: Relay
    certificate: RelayCertificate
    server: Server
    told: list[str] = field(default_factory=list)

    @classmethod
    def made(cls, folder: Path, scheme: str = "tls") -> Relayed:
        keys = {name: Keys.generate(name, role).networked() for name, role in NAMES.items()}
        port = free_port()
        certificate = RelayCertificate.made(folder, "localhost")
        relay = Relay.of(f"{scheme}://127.0.0.1:{port}", certificate.pin)
        told: list[str] = []
        server = Server(folder, port, told.append)
        found = cls(folder, keys, relay, certificate, server, told)
        write_server(folder, found.roster, relay, certificate)
        server.start()
        wait(found.listens)
        return found

    def listens(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.relay.port), 5).close()
            return True
        return False

    @property
    def roster(self) -> Roster:
        return Roster.of(list(self.keys.values()))

    def kill(self) -> None:
        """End the server as a crash does; it is started again by itself."""
        os.kill(int((self.folder / PROCESS_ID).read_text()), signal.SIGKILL)

    def carrier(self, relay: Relay | None = None) -> tuple[Carrier, list[str]]:
        said: list[str] = []
        told = lambda up, why: said.append("up" if up else why)  # noqa: E731
        keys = self.keys["aggregator"]
        return Carrier(relay or self.relay, keys, self.roster, told), said

    def party(
        self,
        name: str,
        answer: Callable[[bytes], bytes] = lambda request: request[::-1],
        relay: Relay | None = None,
    ) -> Party:
        said: list[str] = []
        seen: list[bytes] = []

        def answered(request: bytes) -> bytes:
            seen.append(request)
            return answer(request)

        answering = Answering(
            relay or self.relay,
            self.keys[name],
            answered,
            lambda up, why: said.append("up" if up else why),
            lambda: said.append("left"),
        )
        return Party(answering, seen, said).start()


@contextlib.contextmanager
def over_nats(folder: Path, parties: Any) -> Iterator[tuple[Carrier, Server]]:
    """A consortium's endpoints over a real relay; the carrier has the phase."""
    roster, port = parties.aggregator.roster, free_port()
    certificate = RelayCertificate.made(folder, "localhost")
    relay = Relay.of(f"tls://127.0.0.1:{port}", certificate.pin)
    write_server(folder, roster, relay, certificate)
    server = Server(folder, port, lambda _: None)
    server.start()
    running = []
    for name in parties.seats:
        answers, keys = parties.answers(name), parties.sites[name].keys
        answering = Answering(relay, keys, answers, lambda *_: None, lambda: None)
        running.append(Party(answering, [], []).start())
    try:
        keys = parties.aggregator.keys
        with Carrier(relay, keys, roster, lambda *_: None) as carrier:
            come(carrier, *parties.seats)
            yield carrier, server
    finally:
        for party in running:
            party.stop()
        server.stop()


@contextlib.contextmanager
def relayed(folder: Path, scheme: str = "tls") -> Iterator[Relayed]:
    found = Relayed.made(folder, scheme)
    try:
        yield found
    finally:
        found.server.stop()


def asked(carrier: Carrier, requests: dict[str, bytes], deadline: float = 120.0) -> dict[str, Any]:
    return dict(carrier.phase("test", requests, deadline))


def come(carrier: Carrier, *names: str) -> None:
    """Wait until these are connected."""
    wait(lambda: all(carrier._line.present(name) for name in names))


def missing(found: Any) -> str:
    assert isinstance(found, Missing), found
    return found.why


class Proxy:
    """Hands bytes on to a port; can cut its connections, hold everything up, or speak CONNECT.

    Args:
        port: where to; of the loopback.
        connect: an HTTP proxy, which is told where to.
        wants: the header without which it answers 407, with all that it was told as the reason.
    """

    def __init__(self, port: int, *, connect: bool = False, wants: str = "") -> None:
        self._to, self._connect, self._wants = port, connect, wants
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.held = False
        self.asked: list[str] = []
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            if self._connect:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += near.recv(4096)
                self.asked.append(head.split(b"\r\n")[0].decode())
                if self._wants not in head.decode():
                    told = base64.b64decode(head.split(b"Basic ")[-1].split(b"\r\n")[0] + b"==")
                    near.sendall(b"HTTP/1.1 407 %s\r\nContent-Length: 0\r\n\r\n" % told)
                    return
                near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with socket.create_connection(("127.0.0.1", self._to)) as far:
                self._open += [near, far]
                self._hand_on(near, far)

    def _hand_on(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, data=far)
            selector.register(far, selectors.EVENT_READ, data=near)
            while True:
                ready = selector.select(0.05)
                if self.held:
                    time.sleep(0.05)
                    continue
                for key, _ in ready:
                    data = key.fileobj.recv(1 << 16)
                    if not data:
                        return
                    key.data.sendall(data)
