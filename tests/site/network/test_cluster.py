"""A relay of several servers: one that is lost costs nothing, and strangers are no part of it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.site.network.nats.carrier import Carrier
from hubbub.site.network.nats.relay import Relay, RelayCertificate
from hubbub.site.network.nats.server import LOG, RelayFiles, Server
from hubbub.site.network.party_folder import RELAY
from network.lines import free_port, wait
from network.test_over_nats import Everybody

pytest.importorskip("nats", reason="needs the extra net")
SERVERS, STEPS = 3, 12


class Cluster:
    """Servers of one relay, each with a folder of its own, as `hubbub relay` writes them."""

    def __init__(self, everybody: Everybody) -> None:
        self.relay = Relay.of(everybody.roster.parties[0].relay)
        self.folders = [everybody.home / f"server-{number}" for number in range(SERVERS)]
        for folder, url in zip(self.folders, self.relay.urls, strict=True):
            folder.mkdir()
            for path in (everybody.home / "aggregator" / RELAY).iterdir():
                (folder / path.name).write_bytes(path.read_bytes())
            RelayFiles.written(folder, everybody.roster, url)
        self.servers = [self.started(number) for number in range(SERVERS)]

    def started(self, number: int) -> Server:
        server = Server(
            self.folders[number], Relay.of(self.relay.urls[number]).port, lambda _: None
        )
        server.start()
        return server

    def meets(self) -> bool:
        """Whether every server has a route to every other."""
        logs = [(folder / LOG).read_text(errors="replace") for folder in self.folders]
        return all(log.count("Route connection created") >= SERVERS - 1 for log in logs)

    def route(self, number: int) -> tuple[str, int]:
        host, _, port = self.relay.routes[number].rpartition(":")
        return host, int(port)


@pytest.fixture
def everybody(tmp_path: Path) -> Iterator[Everybody]:
    urls = ",".join(f"tls://127.0.0.1:{free_port()}" for _ in range(SERVERS))
    made = Everybody(tmp_path, url=urls, training={"steps": STEPS})
    made.approve()
    yield made
    made.end()


@pytest.fixture
def cluster(everybody: Everybody) -> Iterator[Cluster]:
    made = Cluster(everybody)
    wait(made.meets)
    yield made
    for server in made.servers:
        server.stop()


@pytest.mark.slow
def test_each_server_of_a_cluster_is_lost_in_turn_and_no_attempt_with_it(
    everybody: Everybody, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was connected to it is at another, with what was on its way."""
    real, begun = Carrier.phase, 0

    def phase(self: Carrier, name: str, *rest: Any) -> Any:
        nonlocal begun
        begun += name == "model"
        if name == "model" and begun % 3 == 0 and begun <= 3 * SERVERS:
            lost = begun // 3 - 1
            if lost:
                cluster.servers[lost - 1] = cluster.started(lost - 1)
            cluster.servers[lost].stop()
        return real(self, name, *rest)

    monkeypatch.setattr(Carrier, "phase", phase)
    for name in list(everybody.sites)[1:]:
        everybody.join(name)
    out = everybody.serve(url=",".join(cluster.relay.urls))
    assert (out / "evidence.json").is_file()
    assert begun == STEPS
    everybody.end()
    for name in ("ann", "bob", "cyn"):
        with Ledger(everybody.home / name / "ledger.sqlite") as ledger:
            assert ledger.spent_on(everybody.study.id) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("shows", ["nothing", "another key", "the relay's key"])
def test_a_stranger_is_no_server_of_the_cluster(
    everybody: Everybody, cluster: Cluster, tmp_path: Path, shows: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shows == "another key":
        folder = tmp_path / "stranger"
        folder.mkdir()
        other = RelayCertificate.made(folder, "127.0.0.1")
        context.load_cert_chain(other.path, other.key)
    if shows == "the relay's key":  # which this test would find out about if it let nobody in
        own = RelayCertificate.found(cluster.folders[0])
        context.load_cert_chain(own.path, own.key)
    let_in = heard(cluster.route(0), context) != b""
    assert let_in == (shows == "the relay's key")


def heard(where: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """What a server of a cluster says to whoever would be another."""
    with socket.create_connection(where, 5) as bare:
        try:
            with context.wrap_socket(bare) as stranger:
                stranger.sendall(b'CONNECT {"verbose":false,"cluster":"hubbub"}\r\nPING\r\n')
                return stranger.recv(4096)
        except OSError:  # it hung up, at whichever point
            return b""


def test_one_server_alone_has_no_routes(everybody: Everybody, tmp_path: Path) -> None:
    """And the servers of a cluster show one certificate, for all of their hosts."""
    assert Relay.of("tls://a:4222").routes == ()
    assert Relay.of("tls://a:4222,tls://[::1]:5222").routes == ("a:6222", "[::1]:7222")
    alone = Everybody(tmp_path / "alone")
    made = RelayFiles.written(alone.home / "aggregator" / RELAY, alone.roster, None)
    assert "cluster" not in made.configuration.read_text()
    made = RelayFiles.written(everybody.home / "aggregator" / RELAY, everybody.roster, None)
    text = made.configuration.read_text()
    assert made.certificate.pin.hex() in text
    assert "verify: true" in text
