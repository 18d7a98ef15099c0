"""Lines over a real relay: who may do what, what is refused, and what survives its faults."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from hubbub.core.errors import StudyError, UserError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.session.ask import Call
from hubbub.desk.cli.main import main
from hubbub.site.network import envelope
from hubbub.site.network.folder_files import write_roster
from hubbub.site.network.nats import relay, server
from hubbub.site.network.nats.carrier import Answering, Carrier, KeptAnswers
from hubbub.site.network.nats.message_delivery import Message
from hubbub.site.network.nats.relay import (
    Relay,
    RelayCertificate,
    answers_of,
    asked_of,
    client_context,
    nkey_of,
    seed_of,
)
from hubbub.site.network.nats.server import (
    CONFIGURATION,
    LOG,
    Server,
    binary,
    configuration,
    write_server,
)
from hubbub.site.network.nats.transports import let_go
from hubbub.site.network.waiting import Clock
from network.lines import (
    NAMES,
    Party,
    Proxy,
    Relayed,
    asked,
    come,
    free_port,
    missing,
    relayed,
    wait,
)

pytest.importorskip("nats", reason="needs the extra net")
MEMBERS = [name for name in NAMES if name != "aggregator"]
BIG = random.Random(1).randbytes(3_000_000)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relayed]:
    with relayed(tmp_path_factory.mktemp("relay")) as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Relayed]:
    """A relay that a test may end or change."""
    with relayed(tmp_path) as found:
        yield found


# Rights ----------------------------------------------------------------------------------------


def probe(here: Relayed, keys: Keys, act: Any) -> list[str]:
    """Log in with a key and do something; what the server says against it."""

    async def probed() -> list[str]:
        from nats.aio.client import Client

        errors: list[str] = []

        async def failed(error: Exception) -> None:
            errors.append(str(error))
            if not client.is_connected:
                raise error

        client = Client()
        try:
            await client.connect(
                here.relay.urls[0],
                error_cb=failed,
                allow_reconnect=False,
                connect_timeout=300,
                tls=client_context(here.relay.pin),
                tls_handshake_first=True,
                nkeys_seed_str=seed_of(keys),
            )
            await act(client)
            await client.flush(300)
            await asyncio.sleep(0.02)
        finally:
            await client.close()
            client._transport._bare_io_writer.transport.abort()
            await asyncio.sleep(0.01)
        return errors

    return asyncio.run(probed())


async def nothing(_message: Any) -> None:
    """A subscriber who does not care."""


def others_subjects(here: Relayed, name: str) -> list[str]:
    """Everything that is not a party's own."""
    whose = [here.keys[one].identity for one in MEMBERS if one != name]
    made = [subject(one) for one in whose for subject in (asked_of, answers_of)]
    return [*made, ">", "hubbub.>", "*.*.*", "$SYS.>", "$JS.>", "_INBOX.>", "_INBOX.x", "else"]


@pytest.mark.slow_cases("aggregator")
@pytest.mark.parametrize("name", NAMES)
def test_a_key_may_subscribe_to_what_is_its_own_and_nothing_else(here: Relayed, name: str) -> None:
    keys = here.keys[name]
    members = [here.keys[one].identity for one in MEMBERS]
    if name == "aggregator":
        allowed = [answers_of(one) for one in members]
        refused = [*(asked_of(one) for one in members), ">", "hubbub.>", "$SYS.>", "_INBOX.x"]
    else:
        allowed, me = [asked_of(keys.identity)], keys.identity
        refused = [answers_of(me), *others_subjects(here, name)]
    for subject, good in [*((one, True) for one in allowed), *((one, False) for one in refused)]:
        said = probe(here, keys, lambda client, s=subject: client.subscribe(s, cb=nothing))
        assert bool(said) is not good, (subject, said)
        assert good or "ermissions violation" in said[0].lower()


@pytest.mark.parametrize("name", NAMES)
def test_a_key_may_publish_to_what_is_its_own_and_nowhere_else(here: Relayed, name: str) -> None:
    keys = here.keys[name]
    members = [here.keys[one].identity for one in MEMBERS]
    if name == "aggregator":
        allowed = [asked_of(one) for one in members]
        refused = [*(answers_of(one) for one in members), "$SYS.REQ.SERVER.PING", "_INBOX.x"]
    else:
        allowed, me = [answers_of(keys.identity)], keys.identity
        others = [one for one in others_subjects(here, name) if "*" not in one and ">" not in one]
        refused = [asked_of(me), *others, "$SYS.REQ.SERVER.PING", "$JS.API.INFO"]
    for subject, good in [*((one, True) for one in allowed), *((one, False) for one in refused)]:
        said = probe(here, keys, lambda client, s=subject: client.publish(s, b"x"))
        assert bool(said) is not good, (subject, said)


def test_an_unknown_key_is_refused(here: Relayed) -> None:
    stranger = Keys.generate("ann", "silo").networked()
    with pytest.raises(Exception, match=r"uthorization|Broken pipe|reset"):
        probe(here, stranger, lambda client: client.publish("x", b""))
    other = replace(here, keys={**here.keys, "ann": stranger})
    party = other.party("ann")
    wait(lambda: party.said)
    party.stop()
    assert "does not know" in party.said[0]


def test_nobody_comes_in_without_tls_1_3(here: Relayed) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    where = ("127.0.0.1", here.relay.port)
    with socket.create_connection(where, 300) as bare, pytest.raises(ssl.SSLError):
        old.wrap_socket(bare)
    with socket.create_connection(where, 300) as bare, suppress(TimeoutError):
        bare.settimeout(0.3)
        assert bare.recv(1) == b""  # not a word before the handshake


def test_the_servers_own_check_accepts_the_configuration(here: Relayed) -> None:
    command = [binary(), "-t", "-c", str(here.folder / "nats.conf")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_configuration_holds_public_keys_alone(here: Relayed) -> None:
    text = configuration(here.folder, here.roster, here.relay, here.certificate)
    assert all(nkey_of(keys.identity) in text for keys in here.keys.values())
    assert not any(seed_of(keys) in text for keys in here.keys.values())
    assert "jetstream" not in text


def test_keys_are_written_as_nats_writes_them() -> None:
    nkeys = pytest.importorskip("nkeys")
    keys = Keys.generate("ann", "silo").networked()
    pair = nkeys.from_seed(seed_of(keys).encode())
    assert pair.public_key.decode() == nkey_of(keys.identity)


def test_a_party_without_a_transport_key_has_no_place_at_a_relay(here: Relayed) -> None:
    bare = Keys.generate("bob", "silo")
    roster = Roster.of([here.keys["aggregator"], bare])
    with pytest.raises(StudyError, match="expected a transport key of bob"):
        configuration(here.folder, roster, here.relay, here.certificate)


# Phases ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_requests_and_answers_of_any_size(here: Relayed) -> None:
    parties = [here.party(name) for name in MEMBERS]
    carrier, _ = here.carrier()
    with carrier:
        for content in (b"", b"x", BIG):
            found = asked(carrier, dict.fromkeys(MEMBERS, content))
            assert found == dict.fromkeys(MEMBERS, content[::-1])
    for party in parties:
        party.stop()


def test_who_does_not_answer_is_missing_at_the_deadline_and_why(here: Relayed) -> None:
    hold = threading.Event()
    party = here.party("ann", lambda _: b"late" if hold.wait(600) else b"")
    carrier, _ = here.carrier()
    with carrier:
        come(carrier, "ann")
        found = asked(carrier, dict.fromkeys(["ann", "bob"], b"x"), 0.3)
        assert missing(found["ann"]).startswith("no answer in time")
        assert missing(found["bob"]) == "not connected yet"
        hold.set()
        assert asked(carrier, {"ann": b"y"}) == {"ann": b"late"}
    party.stop()


def test_a_goodbye_is_told_at_once_and_taken_back(here: Relayed) -> None:
    """Of somebody who is still at work, long before anybody's time is up."""
    hold = threading.Event()
    party = here.party("ann", lambda _: b"late" if hold.wait(600) else b"")
    carrier, _ = here.carrier()
    with carrier:
        come(carrier, "ann")
        threading.Timer(0.2, party.answering._line.stop).start()
        assert missing(asked(carrier, {"ann": b"x"}, 600.0)["ann"]) == "it has left"
        assert missing(asked(carrier, {"ann": b"x"}, 600.0)["ann"]) == "it has left"
        hold.set()
        party.stop()
        again = here.party("ann")
        come(carrier, "ann")
        assert asked(carrier, {"ann": b"abc"}) == {"ann": b"cba"}
        again.stop()


def test_parties_hear_the_aggregators_goodbye(here: Relayed) -> None:
    party = here.party("ann")
    carrier, _ = here.carrier()
    with carrier:
        come(carrier, "ann")
    wait(lambda: "left" in party.said)
    party.stop()


def test_what_ended_a_server_is_no_line_that_it_wrote_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LOG).write_text("[1] 2026/11/27 [INF] Server is ready\n")
    told: list[str] = []

    def tell(said: str) -> None:
        told.append(said)
        kept._ended.set()

    process: Any = SimpleNamespace(wait=lambda: -9)
    kept = Server(tmp_path, 4222, tell)
    kept._process = process
    monkeypatch.setattr(server, "_AGAIN_SECONDS", 0.0)
    kept._keep()
    assert told == ["the relay ended (signal 9) and is started again"]


@pytest.mark.slow
def test_a_server_that_is_killed_in_the_middle_loses_nothing(own: Relayed) -> None:
    """It is started again by itself, everybody comes back, and what was on its way is sent on."""
    slow = threading.Event()
    parties = [own.party(name, lambda r: (slow.wait(0.05), r[::-1])[1]) for name in MEMBERS]
    carrier, said = own.carrier()
    with carrier:
        come(carrier, *MEMBERS)
        for turn in range(3):
            threading.Timer(0.02 * turn, own.kill).start()
            found = asked(carrier, dict.fromkeys(MEMBERS, BIG))
            assert found == dict.fromkeys(MEMBERS, BIG[::-1])
            wait(lambda turn=turn: said.count("up") == turn + 2)
    assert any("started again" in one for one in own.told)
    for party in parties:
        party.stop()


@pytest.mark.slow
def test_lines_that_are_cut_lose_nothing_and_ask_nothing_twice(here: Relayed) -> None:
    proxy = Proxy(here.relay.port)
    through = replace(here.relay, urls=(f"tls://127.0.0.1:{proxy.port}",))
    party = here.party("ann", relay=through)
    carrier, _ = here.carrier()
    rng = random.Random(3)
    with carrier:
        come(carrier, "ann")
        for number in range(6):
            content = number.to_bytes(1, "big") + BIG
            for _ in range(2):
                threading.Timer(rng.uniform(0.0, 0.1), proxy.cut).start()
            assert asked(carrier, {"ann": content}) == {"ann": content[::-1]}
    party.stop()
    proxy.close()
    assert len(party.seen) == len(set(party.seen)) == 6


def test_a_line_that_is_held_up_goes_on(here: Relayed) -> None:
    proxy = Proxy(here.relay.port)
    through = replace(here.relay, urls=(f"tls://127.0.0.1:{proxy.port}",))
    party = here.party("ann", relay=through)
    carrier, _ = here.carrier()
    with carrier:
        come(carrier, "ann")
        proxy.held = True
        threading.Timer(0.5, lambda: setattr(proxy, "held", False)).start()
        assert asked(carrier, {"ann": BIG}) == {"ann": BIG[::-1]}
    party.stop()
    proxy.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such thing")
@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_the_system_ends_a_connection_whose_other_end_is_gone(tmp_path: Path, scheme: str) -> None:
    """Sooner than pings would find out; `benchmarks.network slow` has lines that go dark."""
    with relayed(tmp_path, scheme) as own:
        party = own.party("ann")
        wait(lambda: party.said == ["up"])
        transport = party.answering._line._client._transport
        bare = getattr(transport, "_ws", None) or transport._bare_io_writer
        ours = bare.get_extra_info("socket")
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 9000
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        party.stop()


@pytest.mark.slow
def test_strangers_who_say_nothing_disturb_nobody(own: Relayed) -> None:
    idle = [socket.create_connection(("127.0.0.1", own.relay.port), 5) for _ in range(300)]
    party = own.party("ann")
    carrier, _ = own.carrier()
    with carrier:
        come(carrier, "ann")
        assert asked(carrier, {"ann": b"abc"}) == {"ann": b"cba"}
    party.stop()
    for one in idle:
        one.close()


def test_why_there_is_no_line_is_told_once_for_each_reason_until_there_is_one(
    own: Relayed,
) -> None:
    """Two servers that fail for reasons of their own fill no log."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        urls = (f"tls://127.0.0.1:{free_port()}", f"tls://127.0.0.1:{other.getsockname()[1]}")

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    other.accept()[0].close()
                    tries.append(1)

        tries: list[int] = []
        threading.Thread(target=hang_up, daemon=True).start()
        party = own.party("ann", relay=replace(own.relay, urls=urls))
        wait(lambda: len(tries) > 5)
        party.stop()
        other.shutdown(socket.SHUT_RDWR)
    assert len(party.said) == len(set(party.said)) <= 4
    assert any(one.startswith("nobody listens") for one in party.said)


@pytest.mark.slow
def test_a_party_that_takes_part_twice_is_told_and_so_is_the_aggregator(own: Relayed) -> None:
    """As from a copied folder, on another machine, where no lock is in the way."""
    told: list[str] = []

    def joined(name: str, place: str) -> Party:
        answering = Answering(
            own.relay,
            own.keys[name],
            lambda request: request[::-1],
            lambda up, _: said.append(up),
            lambda: None,
            twice=lambda: told.append(place),
        )
        return Party(answering, [], []).start()

    said: list[bool] = []
    parties = [joined("ann", "here"), joined("ann", "there"), joined("bob", "elsewhere")]
    keys = own.keys["aggregator"]
    carrier = Carrier(own.relay, keys, own.roster, lambda *_: None)
    with carrier, carrier.hearing_twice(told.append):
        come(carrier, "ann", "bob")
        wait(lambda: len(said) == 3)

        def hello() -> int:
            """All say who they are, as they do every five seconds."""
            for end in carrier._line._ends.values():
                carrier._line._call(end.link.connected)
                carrier._line._call(end.wake.set)
            time.sleep(0.05)
            return len(told)

        wait(lambda: hello() == 3)
        for _ in range(20):
            hello()
        assert asked(carrier, {"bob": b"abc"}) == {"bob": b"cba"}
    assert sorted(told) == ["ann", "here", "there"]
    for party in parties:
        party.stop()


def test_a_process_that_stood_still_gives_others_the_time_that_they_had(
    own: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen past a deadline, it would blame all others, and lose an attempt."""

    class Frozen(Clock):
        at = 0.0

        def now(self) -> float:
            return self.at

        def take(self, items: Any, seconds: float) -> Any:
            if not self.at:
                self.at = 100.0
                raise queue.Empty
            carrier._take("ann", Message(number=carrier._number, data=b"there"))
            return items.get_nowait()

    carrier = Carrier(own.relay, own.keys["aggregator"], own.roster, lambda *_: None, Frozen())
    monkeypatch.setattr(carrier._line, "send", lambda *_: None)
    monkeypatch.setattr(carrier._line, "settle", lambda *_: None)
    assert list(carrier.phase("model", {"ann": b"a"}, 60.0)) == [("ann", b"there")]
    carrier._line.stop()


def test_a_process_that_stood_still_blames_nobody_where_one_answer_was_there(
    own: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob's comes a second after it goes on and takes that of Ann."""

    class Frozen(Clock):
        at = 0.0

        def now(self) -> float:
            return self.at

        def take(self, items: Any, seconds: float) -> Any:
            self.at += max(seconds, 0.0) if self.at else 100.0
            if self.at > 100.5:
                return "bob", b"there"
            if waiting:
                return waiting.pop(), b"there"
            raise queue.Empty

    waiting = ["ann"]
    carrier = Carrier(own.relay, own.keys["aggregator"], own.roster, lambda *_: None, Frozen())
    monkeypatch.setattr(carrier._line, "send", lambda *_: None)
    monkeypatch.setattr(carrier._line, "settle", lambda *_: None)
    heard = list(carrier.phase("model", {"ann": b"a", "bob": b"b"}, 60.0))
    assert heard == [("ann", b"there"), ("bob", b"there")]
    carrier._line.stop()


# A request that was answered -------------------------------------------------------------------


def answering(here: Relayed, answered: list[bytes]) -> Answering:
    """A party whose line never begins."""

    def answer(request: bytes) -> bytes:
        answered.append(request)
        return len(answered).to_bytes(4, "big")

    return Answering(here.relay, here.keys["ann"], answer, lambda *_: None, lambda: None)


def sent(party: Answering, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes]]:
    """What it says from now on."""
    party._line.stop()
    found: list[tuple[int, bytes]] = []
    monkeypatch.setattr(
        party._line, "send", lambda _n, number, data, _d: found.append((number, data))
    )
    return found


def test_a_replayed_request_is_answered_with_the_same_bytes(
    here: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number it has now: it is not answered anew, and nothing is charged again."""
    answered: list[bytes] = []
    party = answering(here, answered)
    said = sent(party, monkeypatch)
    request = envelope.request(Call.MODEL, bytes(16), [b"a model"])
    for number in (1, 1, 2, 99):
        party._take("aggregator", Message(number=number, data=request))
        assert party.step(0.0)
    assert len(answered) == 1
    assert said == [(number, said[0][1]) for number in (1, 1, 2, 99)]


@pytest.mark.parametrize("call", [Call.PING, Call.LIST])
def test_requests_that_look_alike_are_told_apart_by_their_numbers(
    here: Relayed, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """A sign of life now and later, one list and the next."""
    answered: list[bytes] = []
    party = answering(here, answered)
    said = sent(party, monkeypatch)
    bare = envelope.request(call, bytes(16))
    for number in (1, 1, 2):
        party._take("aggregator", Message(number=number, data=bare))
        party.step(0.0)
    assert len(answered) == 2
    assert said[0][1] == said[1][1] != said[2][1]


def test_of_requests_that_pile_up_the_newest_is_answered(
    here: Relayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[bytes] = []
    party = answering(here, answered)
    sent(party, monkeypatch)
    for number in range(5):
        party._take("aggregator", Message(number=number, data=bytes([number])))
    assert party.step(0.0)
    assert not party.step(0.0)
    assert answered == [b"\x04"]


def test_answers_are_kept_up_to_a_size_and_the_last_whatever_its_size() -> None:
    kept = KeptAnswers()
    names = [hashlib.sha256(bytes([one])).digest() for one in range(5)]
    for name in names[:4]:
        kept.keep(name, bytes(40), most=100)
    assert [kept.get(name) is not None for name in names[:4]] == [False, False, True, True]
    kept.keep(names[4], bytes(1000), most=100)
    assert kept.get(names[4]) == bytes(1000)
    assert kept.get(names[3]) is None


# Certificates ----------------------------------------------------------------------------------


def test_another_servers_certificate_is_refused_and_told(here: Relayed) -> None:
    party = here.party("ann", relay=replace(here.relay, pin=bytes(32)))
    wait(lambda: party.said)
    party.stop()
    assert party.said[0].startswith("expected the relay's key 0000000000000000 of the roster, got")


def test_a_self_signed_certificate_that_nobody_pinned_is_refused(here: Relayed) -> None:
    party = here.party("ann", relay=replace(here.relay, pin=b""))
    wait(lambda: party.said)
    party.stop()
    assert "self-signed" in party.said[0] or "self signed" in party.said[0]


def test_an_expired_certificate_is_refused_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Past(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - timedelta(days=400)

    monkeypatch.setattr(relay, "datetime", Past)
    made = Relayed.made(tmp_path)
    monkeypatch.undo()
    try:
        party = made.party("ann")
        wait(lambda: party.said)
        party.stop()
        assert "expected the relay's certificate to be valid today" in party.said[0]
        assert "expired on" in made.certificate.notice
    finally:
        made.server.stop()


def test_a_certificate_is_renewed_with_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RelayCertificate.made(tmp_path, "hub.example.org")
    first, key = made.path.read_bytes(), made.pin
    assert RelayCertificate.made(tmp_path, "hub.example.org").path.read_bytes() == first
    assert made.notice == ""
    assert (made.key.stat().st_mode & 0o777, made.path.stat().st_mode & 0o777) == (0o600, 0o644)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(days=350)

    monkeypatch.setattr(relay, "datetime", Later)
    assert "expires in 15 days" in made.notice
    renewed = RelayCertificate.made(tmp_path, "hub.example.org")
    assert renewed.path.read_bytes() != first
    assert renewed.pin == key
    assert renewed.notice == ""


# The server's process --------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told_in_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"expected port {port} to be free .*in use"):
            Server(tmp_path, port, lambda _: None).start()


def test_a_servers_log_goes_on_where_it_is_started_again(own: Relayed) -> None:
    """What led to its end is what somebody looks for."""
    log = own.folder / LOG
    wait(lambda: "Server is ready" in log.read_text())
    own.kill()
    wait(lambda: own.told)
    wait(lambda: log.read_text().count("Server is ready") == 2)
    assert "the relay ended (" in own.told[0]


def test_a_server_that_cannot_start_says_why_in_its_log(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "nats.conf").write_text("nonsense {")
    server = Server(tmp_path, free_port(), said.append)
    server.start()
    wait(lambda: said)
    server.stop()
    assert "Parse error on line 1" in said[0]


def test_a_server_told_to_end_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "nats.conf").write_text("nonsense {")
    server = Server(tmp_path, free_port(), lambda _: server.stop())
    before = set(threading.enumerate())
    with patch.object(server, "_started", wraps=server._started) as started:
        server.start()
        wait(lambda: set(threading.enumerate()) <= before)
    assert started.call_count == 1


def test_a_servers_log_names_parties(own: Relayed) -> None:
    probe(own, own.keys["ann"], lambda client: client.publish("else", b"x"))
    wait(lambda: "Publish Violation" in (own.folder / LOG).read_text())
    assert '"ann/nkey:' in (own.folder / LOG).read_text()


@pytest.mark.slow
def test_a_replaced_party_is_locked_out_by_a_reload_and_others_stay(own: Relayed) -> None:
    lost, other = own.party("ann"), own.party("bob")
    carrier, _ = own.carrier()
    with carrier:
        come(carrier, "ann", "bob")
        old = own.keys["ann"]
        own.keys["ann"] = Keys.generate("ann", "silo").networked()
        _, not_taken = write_server(own.folder, own.roster, own.relay, own.certificate)
        assert not_taken == ""
        wait(lambda: any("does not know" in one for one in lost.said))
        assert asked(carrier, {"bob": b"abc"}) == {"bob": b"cba"}
        assert other.said == ["up"]
    assert old != own.keys["ann"]
    carrier, _ = own.carrier()
    new = own.party("ann")
    with carrier:
        come(carrier, "ann")
        assert asked(carrier, {"ann": b"abc"}) == {"ann": b"cba"}
    for party in (lost, other, new):
        party.stop()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_a_relay_that_runs_takes_in_who_is_added_and_cuts_off_who_is_removed(
    tmp_path: Path, scheme: str
) -> None:
    with relayed(tmp_path, scheme) as own:
        known = dict(own.keys)
        for number in range(3):
            own.keys[f"new-{number}"] = Keys.generate(f"new-{number}", "node").networked()
        told: list[str] = []
        keys, roster = own.keys["aggregator"], own.roster
        carrier = Carrier(own.relay, keys, roster, lambda up, why: told.append(why))
        bob, added = own.party("bob"), own.party("new-0")
        with carrier:
            wait(lambda: any("does not know this party's key" in one for one in added.said))
            come(carrier, "bob")
            why = missing(asked(carrier, {"new-0": b"x"}, 0.2)["new-0"])
            assert "relay does not know its key, so it has another roster" in why
            assert write_server(own.folder, roster, own.relay, own.certificate)[1] == ""
            come(carrier, "bob", "new-0")
            assert asked(carrier, {"new-0": b"abc", "bob": b"x"}) == {"new-0": b"cba", "bob": b"x"}
            assert bob.said == ["up"]
            own.keys.clear()
            own.keys.update({name: known[name] for name in known if name != "bob"})
            assert write_server(own.folder, own.roster, own.relay, own.certificate)[1] == ""
            wait(lambda: any("does not know this party's key" in one for one in bob.said))
        for party in (bob, added):
            party.stop()


@pytest.mark.slow
def test_a_configuration_that_the_server_refuses_is_told_as_such(own: Relayed) -> None:
    given = (own.folder, own.roster, own.relay, own.certificate)
    assert write_server(*given)[1] == ""
    assert write_server(*given)[1] == ""  # it has it already
    path, why = write_server(*given, free_port())
    assert "config reload not supported for LeafNode" in (why or "")
    with pytest.MonkeyPatch.context() as patch:  # the log is where its unit keeps it
        patch.setattr(server, "LOG", "none")
        patch.setattr(server, "_TAKEN_SECONDS", 0.1)
        assert "does not know this party's key" in (write_server(*given, free_port())[1] or "")
        patch.setattr(server.os, "kill", lambda *_: (_ for _ in ()).throw(PermissionError()))
        own.keys["new"] = Keys.generate("new", "node").networked()
        given = (own.folder, own.roster, own.relay, own.certificate)
        assert "does not know this party's key" in (write_server(*given)[1] or "")
        patch.undo()
        os.kill(int((own.folder / server.PROCESS_ID).read_text()), signal.SIGHUP)  # as its unit
        assert write_server(*given)[1] == ""
    del own.keys["new"]
    (own.folder / server.PROCESS_ID).rename(own.folder / "aside")
    assert write_server(own.folder, own.roster, own.relay, own.certificate)[1] is None
    (own.folder / "aside").rename(own.folder / server.PROCESS_ID)
    assert write_server(own.folder, own.roster, own.relay, own.certificate)[1] == ""
    assert path.is_file()


def test_the_command_ends_with_1_where_the_relay_has_not_taken_it(
    own: Relayed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, roster = own.relay.urls[0], tmp_path / "roster.toml"
    own.keys["new"] = Keys.generate("new", "node").networked()
    write_roster(roster, own.roster)
    asked = ["relay", str(roster), "--relay", url, "--out", str(own.folder)]
    assert main(asked) == 0
    assert "the running relay has loaded it" in " ".join(capsys.readouterr().out.split())
    assert main([*asked, "--leaf-port", str(free_port())]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "has NOT loaded it" in said
    assert "restart it" in said
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reloaded"] is True
    del own.keys["new"]


def test_the_key_by_which_it_is_seen_what_a_server_has_may_do_nothing(own: Relayed) -> None:
    text = (own.folder / CONFIGURATION).read_text()
    (key,) = re.findall(r'"hubbub relay": \{ users: \[\{ nkey: (\w+)', text)
    assert key not in {nkey_of(party) for party in own.roster.parties}
    plain = text.replace(next(one for one in text.splitlines(True) if key in one), "")
    seed = server._trial_seed(own.certificate, plain)

    class Trial:
        def secret_parts(self) -> dict[str, bytes]:
            return {"transport": seed}

    for subject in (asked_of(own.roster.parties[1]), "hubbub.>", "_INBOX.x", ">"):
        for act in (
            lambda client, to=subject: client.publish(to, b"x"),
            lambda client, to=subject: client.subscribe(to),
        ):
            assert "Violation" in "".join(map(str.title, probe(own, Trial(), act)))  # type: ignore[arg-type]


# WebSocket -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_websocket_through_a_proxy_carries_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relayed(tmp_path, "wss") as web:
        proxy = Proxy(web.relay.port, connect=True)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        party = web.party("ann")
        wait(lambda: party.said)
        assert party.said == ["up"]
        carrier, _ = web.carrier()
        with carrier:
            come(carrier, "ann")
            assert asked(carrier, {"ann": BIG}) == {"ann": BIG[::-1]}
            proxy.cut()
            assert asked(carrier, {"ann": BIG[1:]}) == {"ann": BIG[1:][::-1]}
        party.stop()
        proxy.close()
        assert set(proxy.asked) == {f"CONNECT 127.0.0.1:{web.relay.port} HTTP/1.1"}


@pytest.mark.skipif(shutil.which("tinyproxy") is None, reason="needs the program tinyproxy")
def test_a_websocket_goes_through_a_real_proxy_that_permits_its_port_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with relayed(tmp_path, "wss") as web:
        port, written = free_port(), tmp_path / "tinyproxy.conf"
        said = tmp_path / "tinyproxy.log"
        written.write_text(
            f'Listen 127.0.0.1\nPort {port}\nAllow 127.0.0.1\nLogFile "{said}"\n'
            f"LogLevel Connect\nConnectPort {web.relay.port}\n"
        )
        proxy = subprocess.Popen(["tinyproxy", "-d", "-c", str(written)])
        try:
            for name in ("NO_PROXY", "no_proxy", "https_proxy"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
            party = web.party("ann")
            wait(lambda: "up" in party.said)
            carrier, _ = web.carrier()
            with carrier:
                come(carrier, "ann")
                assert asked(carrier, {"ann": BIG}) == {"ann": BIG[::-1]}
            party.stop()
        finally:
            proxy.terminate()
            proxy.wait(300)
        assert f"CONNECT 127.0.0.1:{web.relay.port} HTTP/1.1" in said.read_text()


def test_a_websockets_certificate_is_looked_at_too(tmp_path: Path) -> None:
    with relayed(tmp_path, "wss") as web:
        party = web.party("ann", relay=replace(web.relay, pin=bytes(32)))
        wait(lambda: party.said)
        party.stop()
        assert "expected the relay's key" in party.said[0]


def test_a_transport_is_closed_also_where_the_thread_ends_before_its_client() -> None:
    closed = []

    class Client:
        _transport = SimpleNamespace(close=lambda: closed.append(True))

        async def close(self) -> None:
            await asyncio.sleep(3600)

    async def live() -> None:
        task = asyncio.create_task(let_go(Client(), 60.0))
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(live())
    assert closed == [True]


def test_a_transport_is_closed_also_where_tls_begins_over_a_lost_connection() -> None:
    from nats.aio.transport import TcpTransport

    async def live() -> Any:
        listener = socket.create_server(("127.0.0.1", 0))
        transport = TcpTransport()
        host, port = listener.getsockname()
        await transport.connect(SimpleNamespace(hostname=host, port=port), 1024, 10)
        theirs = listener.accept()[0]
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        listener.close()
        bare = transport._bare_io_writer.transport
        while bare.get_protocol() is not None:  # until the loop knows of the reset
            await asyncio.sleep(0.01)
        with suppress(TimeoutError):
            await transport.connect_tls("relay", ssl.create_default_context(), 1024, 0.05)
        over_tls = bare.get_protocol()._get_app_transport()

        class Client:
            _transport = transport

            async def close(self) -> None:
                transport.close()

        await let_go(Client(), 60.0)
        return over_tls

    assert asyncio.run(live()).is_closing()


def test_a_websocket_is_closed_also_where_the_other_end_does_not_say_goodbye(
    tmp_path: Path,
) -> None:
    """The library waits ten seconds for it, and is not given them."""
    with relayed(tmp_path, "wss") as web:
        proxy = Proxy(web.relay.port)
        through = replace(web.relay, urls=(f"wss://127.0.0.1:{proxy.port}",))
        party = web.party("ann", relay=through)
        wait(lambda: party.said == ["up"])
        transport = party.answering._line._client._transport
        session, connection = transport._client, transport._ws.get_extra_info("socket")
        proxy.held = True
        party.stop()
        proxy.close()
        wait(lambda: session.closed and connection.fileno() == -1)


# URLs ------------------------------------------------------------------------------------------


def test_relays_are_named_by_urls_that_all_mean_tls() -> None:
    assert Relay.of("hub.example.org").urls == ("tls://hub.example.org:4222",)
    assert Relay.of("nats://hub:4333").urls == ("tls://hub:4333",)
    assert Relay.of("wss://hub").urls == ("wss://hub:443",)
    assert Relay.of("tls://a:1, tls://b:2").urls == ("tls://a:1", "tls://b:2")
    assert Relay.of("tls://[::1]:4222").urls == ("tls://[::1]:4222",)


@pytest.mark.parametrize(
    "text", ["", "ws://hub", "http://hub", "tls://", "tls://u:p@hub", "tls://hub:x", "tls://h/p?q"]
)
def test_other_urls_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected the relay as tls://HOST:PORT"):
        Relay.of(text)


@pytest.mark.slow
def test_nobody_at_the_relays_port_is_told(here: Relayed) -> None:
    nowhere = replace(here.relay, urls=(f"tls://127.0.0.1:{free_port()}",))
    party = here.party("ann", relay=nowhere)
    wait(lambda: party.said)
    party.stop()
    assert party.said[0].startswith("nobody listens at tls://127.0.0.1:")
    assert not any((here.folder / LOG).read_text().count(word) for word in ("panic", "[FTL]"))
