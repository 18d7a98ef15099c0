"""A leaf relay: who may not leave a network is heard through it, with no more rights than ever."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import UserError
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.desk.cli.main import main
from hubbub.site.network.folder_files import write_roster
from hubbub.site.network.join import relay_of
from hubbub.site.network.nats.message_delivery import Packet, PacketKind
from hubbub.site.network.nats.relay import (
    Relay,
    RelayCertificate,
    answers_of,
    asked_of,
    nkey_of,
    seed_of,
)
from hubbub.site.network.nats.relay_connection import tried
from hubbub.site.network.nats.server import (
    CONFIGURATION,
    LOG,
    LeafFiles,
    Server,
    binary,
    write_server,
)
from network.lines import Relayed, asked, come, free_port, missing, relayed, wait
from network.test_over_nats import Everybody

pytest.importorskip("nats", reason="needs the extra net")
BEHIND = ("ann", "node-1")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Relayed, Relay]]:
    """A relay that lets leaves in, and where."""
    folder, port = tmp_path / "hub", free_port()
    folder.mkdir()
    with relayed(folder) as made:
        write_server(folder, made.roster, made.relay, made.certificate, port)
        made.kill()
        wait(lambda: "Listening for leafnode" in (folder / LOG).read_text())
        yield made, Relay.of(f"tls://localhost:{port}", made.relay.pin)


@contextmanager
def leaf(folder: Path, hub: Relayed, where: Relay, *keys: Keys) -> Iterator[Relay]:
    """A leaf relay of some keys."""
    here = Relay.of(f"tls://localhost:{free_port()}")
    made = LeafFiles.written(folder, keys, here, where, hub.certificate.path)
    server = Server(folder, here.port, lambda _: None)
    server.start()
    try:
        wait(lambda: "Server is ready" in (folder / LOG).read_text())
        yield replace(here, pin=made.certificate.pin)
    finally:
        server.stop()


@pytest.mark.slow
def test_parties_behind_a_leaf_take_part_and_come_back(
    hub: tuple[Relayed, Relay], tmp_path: Path
) -> None:
    own, where = hub
    with leaf(tmp_path / "leaf", own, where, *(own.keys[name] for name in BEHIND)) as here:
        parties = [own.party(name, relay=here) for name in BEHIND] + [own.party("bob")]
        everybody, big = (*BEHIND, "bob"), bytes(range(256)) * 8000
        carrier, _ = own.carrier()
        with carrier:
            come(carrier, *everybody)
            assert asked(carrier, dict.fromkeys(everybody, big)) == dict.fromkeys(
                everybody, big[::-1]
            )
            own.kill()
            wait(lambda: len(own.told) == 2)
            again = asked(carrier, dict.fromkeys(everybody, big[1:]), 60.0)
            assert again == dict.fromkeys(everybody, big[1:][::-1])
        for party in parties:
            party.stop()


class Meddler:
    """A leaf that keeps to nothing: it speaks the servers' own protocol with a party's key."""

    def __init__(self, port: int, keys: Keys) -> None:
        nkeys = pytest.importorskip("nkeys")
        bare = socket.create_connection(("127.0.0.1", port), 10)
        info = json.loads(bare.makefile("rb", 0).readline().removeprefix(b"INFO "))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._line = context.wrap_socket(bare)
        signed = nkeys.from_seed(seed_of(keys).encode()).sign(info["nonce"].encode())
        said = {
            "nkey": nkey_of(keys.identity),
            "sig": base64.urlsafe_b64encode(signed).rstrip(b"=").decode(),
            "tls_required": True,
            "name": "a leaf",
            "headers": True,
        }
        self.says(f"CONNECT {json.dumps(said)}\r\nPING\r\n".encode())

    def says(self, data: bytes) -> None:
        with suppress(OSError):  # the relay has hung up
            self._line.sendall(data)

    def publishes(self, subject: str, data: bytes) -> None:
        self.says(f"LMSG {subject} {len(data)}\r\n".encode() + data + b"\r\n")

    def hears(self, seconds: float) -> bytes:
        """All that comes, until it is hung up on or so many seconds have passed."""
        found, end = b"", time.monotonic() + seconds
        with suppress(OSError):
            while (left := end - time.monotonic()) > 0:
                self._line.settimeout(left)
                if not (data := self._line.recv(1 << 16)):
                    break
                found += data
        return found

    def close(self) -> None:
        self._line.close()


@pytest.mark.slow
def test_whoever_runs_a_leaf_may_at_the_relay_what_its_parties_may(
    hub: tuple[Relayed, Relay],
) -> None:
    own, where = hub
    ann, bob = own.keys["ann"], own.keys["bob"]
    hello = Packet(kind=PacketKind.HELLO, digest=bytes(range(32))).encoded()
    carrier, said = own.carrier()
    with carrier:
        wait(lambda: said == ["up"])
        meddler = Meddler(where.port, ann)

        def is_heard() -> bool:  # let in, as the party that it may speak for
            meddler.publishes(answers_of(ann.identity), hello)
            return carrier._line.present("ann") is not None

        wait(is_heard)
        meddler.says(f"LS+ {asked_of(ann.identity)}\r\n".encode())

        def is_told() -> bool:
            asked(carrier, {"ann": b"x", "bob": b"x"}, 0.3)
            return f"LMSG {asked_of(ann.identity)} ".encode() in meddler.hears(0.3)

        wait(is_told)
        meddler.publishes(answers_of(bob.identity), hello)
        wait(lambda: b"Violation" in meddler.hears(5.0))
        meddler.close()
        for subject in (asked_of(bob.identity), answers_of(bob.identity), ">", "hubbub.>"):
            meddler = Meddler(where.port, ann)
            meddler.says(f"LS+ {subject}\r\n".encode())
            soon = threading.Timer(0.1, asked, (carrier, {"bob": b"for bob"}, 0.3))
            soon.start()
            assert b"for bob" not in meddler.hears(0.5)
            soon.join()
            meddler.close()
        assert carrier._line.present("bob") is None


@pytest.mark.slow
def test_one_key_opens_two_leaves_and_hears_a_few_times_at_most(
    hub: tuple[Relayed, Relay],
) -> None:
    """For each the server keeps what its other end does not read; a thief may open no more."""
    own, where = hub
    ann, bob = own.keys["ann"], own.keys["bob"]
    log = own.folder / LOG
    asks = asked_of(ann.identity).encode()
    thieves = [Meddler(where.port, ann) for _ in range(12)]
    wait(lambda: log.read_text().count("maximum account active connections exceeded") >= 10)
    for thief in thieves:
        thief.says(b"".join(b"LS+ %s q%d 1\r\n" % (asks, number) for number in range(40)))
    wait(lambda: "maximum subscriptions exceeded" in log.read_text())
    other = Meddler(where.port, bob)  # whose key is another's
    hello = Packet(kind=PacketKind.HELLO, digest=bytes(range(32))).encoded()
    carrier, _ = own.carrier()
    with carrier:

        def is_heard() -> bool:
            other.publishes(answers_of(bob.identity), hello)
            return carrier._line.present("bob") is not None

        wait(is_heard)
    for one in (*thieves, other):
        one.close()


@pytest.mark.slow
def test_a_key_that_is_in_no_roster_opens_no_leaf(
    hub: tuple[Relayed, Relay], tmp_path: Path
) -> None:
    own, where = hub
    stranger = Keys.generate("ann", "silo").networked()
    with leaf(tmp_path / "leaf", own, where, stranger) as here:
        wait(lambda: "Authorization Violation" in (tmp_path / "leaf" / LOG).read_text())
        party = replace(own, keys={**own.keys, "ann": stranger}).party("ann", relay=here)
        wait(lambda: party.said == ["up"])  # at the leaf, which leads nowhere
        carrier, _ = own.carrier()
        with carrier:
            assert missing(asked(carrier, {"ann": b"x"}, 1.0)["ann"]) == "not connected yet"
        party.stop()


def test_a_relay_of_another_key_is_no_hub(hub: tuple[Relayed, Relay], tmp_path: Path) -> None:
    own, where = hub
    other = tmp_path / "other"
    other.mkdir()
    shown = RelayCertificate.made(other, "localhost")
    here = Relay.of("tls://localhost:1")
    with pytest.raises(UserError, match="of the key that the roster names, found another"):
        LeafFiles.written(tmp_path / "leaf", [own.keys["ann"]], here, where, shown.path)
    assert not (tmp_path / "leaf").exists()
    made = Relay.of("wss://localhost")
    with pytest.raises(UserError, match="expected tls:// for a leaf"):
        LeafFiles.written(tmp_path / "leaf", [own.keys["ann"]], made, where, own.certificate.path)


def test_without_a_port_for_them_no_leaf_is_let_in(tmp_path: Path) -> None:
    with relayed(tmp_path) as own:
        assert "leafnodes {" not in (tmp_path / CONFIGURATION).read_text()
        assert "Listening for leafnode" not in (own.folder / LOG).read_text()


def test_the_command_writes_a_leaf_for_parties_of_the_roster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everybody, out = Everybody(tmp_path), tmp_path / "leaf"
    roster, shown = tmp_path / "roster.toml", tmp_path / "aggregator" / "relay" / "relay.pem"
    write_roster(roster, everybody.roster)
    command = ["leaf", str(roster), "--relay", "tls://leaf.test", "--hub", "tls://localhost:7422"]
    command += ["--hub-certificate", str(shown), "--out", str(out)]
    homes = [word for name in BEHIND for word in ("--home", str(tmp_path / name))]
    assert main([*command, *homes]) == 0
    assert f"--relay-certificate {out}/relay.pem" in "".join(capsys.readouterr().out.split("\n"))
    text = (out / CONFIGURATION).read_text()
    assert stat.S_IMODE((out / CONFIGURATION).stat().st_mode) == 0o600
    for name in everybody.sites:
        assert (seed_of(everybody.sites[name].keys) in text) is (name in BEHIND)
    check = [binary(), "-t", "-c", str(out / CONFIGURATION)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    assert main([*command, "--home", str(tmp_path / "aggregator")]) == 2
    assert "expected silos or nodes" in capsys.readouterr().err


@pytest.mark.slow
def test_who_joins_by_a_leaf_names_its_certificate(
    hub: tuple[Relayed, Relay], tmp_path: Path
) -> None:
    own, where = hub
    with leaf(tmp_path / "leaf", own, where, own.keys["ann"]) as here:
        site: Any = SimpleNamespace(roster=own.roster)
        named = relay_of(site, here.urls[0], certificate=tmp_path / "leaf" / "relay.pem")
        [trial] = tried(named, own.keys["ann"])
        assert trial.why == ""
        [trial] = tried(relay_of(site, here.urls[0], own.roster), own.keys["ann"])
        assert trial.why != ""
    with pytest.raises(UserError, match="expected --relay with --relay-certificate"):
        relay_of(site, None, certificate=tmp_path / "leaf" / "relay.pem")
