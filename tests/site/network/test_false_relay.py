"""A relay with the right key that means harm: whatever it says, a party lives and tells little."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hubbub.core.protocol.primitives.identity import Keys
from hubbub.site.network.nats.carrier import Answering
from hubbub.site.network.nats.relay import Relay, RelayCertificate
from network.lines import wait

pytest.importorskip("nats", reason="needs the extra net")
INFO = {"server_id": "x", "version": "2.10.0", "max_payload": 1 << 20, "nonce": "abc", "proto": 1}
Says = Callable[[ssl.SSLSocket, int], None]


@contextmanager
def false_relay(folder: Path, says: Says) -> Iterator[Relay]:
    """A server that says something to its n-th visitor, once that has said who it is."""
    certificate = RelayCertificate.made(folder, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.path, certificate.key)
    listening = socket.create_server(("127.0.0.1", 0))

    def visited(visitor: socket.socket, number: int) -> None:
        with suppress(OSError), context.wrap_socket(visitor, server_side=True) as line:
            line.sendall(f"INFO {json.dumps(INFO)}\r\n".encode())
            line.recv(1 << 16)
            says(line, number)

    def serve() -> None:
        for number in itertools.count():
            try:
                visitor, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=visited, args=(visitor, number), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with listening:
        yield Relay.of(f"tls://127.0.0.1:{listening.getsockname()[1]}", certificate.pin)
        listening.shutdown(socket.SHUT_RDWR)


def told_by(relay: Relay, until: Callable[[list[str]], bool]) -> list[str]:
    """What a party's people are told of such a relay."""
    told: list[str] = []
    party = Answering(
        relay,
        Keys.generate("ann", "silo").networked(),
        answer=lambda request: request,
        told=lambda _, why: told.append(why),
        left=lambda: None,
    )
    with party:
        wait(lambda: until(told))
    return told


def refuses(line: ssl.SSLSocket, number: int) -> None:
    line.sendall(f"-ERR '\x1b[2J{number} {'x' * 50_000}'\r\n".encode())


def test_words_of_a_relay_are_told_short_and_printable(tmp_path: Path) -> None:
    with false_relay(tmp_path, refuses) as relay:
        told = told_by(relay, lambda told: len(told) >= 2)
    assert all(one.isprintable() and len(one) < 300 for one in told)


def test_a_relay_that_says_something_else_each_time_does_not_fill_the_log(tmp_path: Path) -> None:
    visits: list[int] = []

    def says(line: ssl.SSLSocket, number: int) -> None:
        visits.append(number)
        refuses(line, number)

    with false_relay(tmp_path, says) as relay, pytest.MonkeyPatch.context() as patch:
        patch.setattr("hubbub.site.network.nats.relay_connection._PAUSES", (0.001, 0.001))
        told = told_by(relay, lambda told: len(visits) > 40 and len(told) > 1)
    assert len(told) <= 8


def test_a_relay_that_hangs_up_at_once_is_not_called_again_and_again(tmp_path: Path) -> None:
    visits, up = list[int](), threading.Event()

    def says(line: ssl.SSLSocket, number: int) -> None:
        line.sendall(b"PONG\r\n")
        visits.append(number)
        up.wait(300)

    with false_relay(tmp_path, says) as relay, pytest.MonkeyPatch.context() as patch:
        patch.setattr("hubbub.site.network.nats.relay_connection._PAUSES", (600.0, 600.0))
        patch.setattr("hubbub.site.network.nats.relay_connection._STEADY_SECONDS", 600.0)
        told_by(relay, lambda told: _is_cut(told, up) and not threading.Event().wait(0.5))
    assert len(visits) == 1


def _is_cut(told: list[str], up: threading.Event) -> bool:
    """Whether the line was up, and is not any more; the relay hangs up once it was."""
    if "" in told:
        up.set()
    return len(told) > 1
