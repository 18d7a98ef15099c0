"""Whoever holds a key may send what it likes: others are served, memory stands still, it recovers.

What one end makes of a flood is tried without a line; then a real relay carries one.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.protocol.primitives.identity import Keys
from hubbub.site.network.join import relay_of
from hubbub.site.network.nats.carrier import Answering
from hubbub.site.network.nats.message_delivery import (
    PIECE_BYTES,
    Message,
    MessageDelivery,
    Outgoing,
    Packet,
    PacketKind,
)
from hubbub.site.network.nats.relay import answers_of, asked_of, client_context, seed_of
from hubbub.site.network.nats.relay_connection import UNHEARD_SECONDS, OtherEnd
from hubbub.site.network.nats.server import RelayFiles, Server
from hubbub.site.network.party_folder import RELAY
from network.lines import Relayed, asked, come, relayed, wait
from network.test_over_nats import Everybody

pytest.importorskip("nats", reason="needs the extra net")
HELLO = Packet(kind=PacketKind.HELLO).encoded()
MANY = 5_000
Flood = Callable[[int], Packet]


# One end, without a line -----------------------------------------------------------------------


def asking(size: int = 3 * PIECE_BYTES) -> tuple[MessageDelivery, Packet]:
    """The aggregator's end with a question on its way, and what a piece of an answer looks like."""
    link, content = MessageDelivery(replies=True), bytes(size)
    digest = hashlib.sha256(content).digest()
    link.send(1, content, digest, 0.0)
    piece = Outgoing(number=1, digest=digest, message=content).next()
    assert piece is not None
    return link, piece


def random_digest(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(4, "big")).digest()


def floods() -> dict[str, Flood]:
    link, piece = asking()
    going = link._going
    assert going is not None
    have = going.word(PacketKind.HAVE)
    return {
        "hellos": lambda _: Packet(kind=PacketKind.HELLO),
        "signs of life": lambda _: Packet(kind=PacketKind.BEAT),
        "goodbyes": lambda _: Packet(kind=PacketKind.BYE),
        "goodbyes and hellos": lambda i: Packet(kind=(PacketKind.BYE, PacketKind.HELLO)[i % 2]),
        "questions": lambda i: replace(piece, kind=PacketKind.ASK, place=0, data=b""),
        "questions of other messages": lambda i: Packet(
            kind=PacketKind.ASK, number=1, digest=random_digest(i), size=5
        ),
        "demands to send again": lambda _: replace(have, again=True),
        "news that are none": lambda _: have,
        "news of another message": lambda i: replace(have, number=i),
        "one piece again and again": lambda _: piece,
        "pieces of other messages": lambda i: replace(piece, digest=random_digest(i)),
        "pieces that nobody asked for": lambda i: replace(piece, number=2 + i),
        "two messages as one": lambda i: replace(piece, digest=random_digest(i % 2)),
    }


KINDS = floods()


@pytest.mark.quick_cases(
    "news that are none", "signs of life", "one piece again and again", "goodbyes"
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_is_seen_and_what_it_costs_is_bounded(kind: str) -> None:
    """However much comes in: a few words wait, little is sent back, and the line hears of it."""
    link, _ = asking()
    end, seen, sent = OtherEnd(hears="", says="", link=link), MANY, 0
    for number in range(MANY):
        link.hear(KINDS[kind](number), 0.001 * number)
        while (packet := link.due()) is not None:
            sent += len(packet.encoded())
        if end.is_flooding(0.0):
            seen = number
            break
    assert seen <= 600
    assert sent <= 600 * PIECE_BYTES  # a demand has a window sent, and counts as such
    for number in range(MANY):  # nobody sends what waits
        link.hear(KINDS[kind](number), 0.0)
    assert len(link._words) <= len(PacketKind)


def test_a_message_with_a_false_hash_is_paid_for_with_all_its_pieces() -> None:
    link, piece = asking()
    for place in range(3):
        link.hear(replace(piece, place=place, digest=random_digest(1)), 0.0)
    assert link.waste >= 3


@pytest.mark.slow
def test_what_means_well_is_no_flood() -> None:
    """A large message over a line that loses much: hardly anything counts."""
    rng, content = random.Random(1), bytes(500 * PIECE_BYTES)
    sender, receiver = MessageDelivery(replies=True), MessageDelivery(replies=False)
    ends = [OtherEnd(hears="", says="", link=one) for one in (sender, receiver)]
    sender.send(1, content, hashlib.sha256(content).digest(), 0.0)
    now, whole = 0.0, None
    while whole is None:
        now += 0.001
        for one, other in ((sender, receiver), (receiver, sender)):
            one.pass_time(now)
            while (packet := one.due()) is not None:
                if rng.random() > 0.02:
                    whole = other.hear(packet, now) or whole
        if rng.random() < 0.01:
            sender.connected()
        assert not any(end.is_flooding(now) for end in ends)
        now += 0.0 if sender._words or receiver._words else 10.0
    assert len(whole.data) == len(content)


def test_after_a_flood_a_little_is_allowed_again() -> None:
    end = OtherEnd(hears="", says="", link=MessageDelivery(replies=True))
    end.link.waste = 10**9
    assert end.is_flooding(0.0)
    assert not end.is_flooding(UNHEARD_SECONDS)


def test_one_reply_is_taken_of_a_party_whatever_it_sends() -> None:
    """Else answers pile up that the aggregator has not come to read."""
    link, taken = MessageDelivery(replies=True), 0
    link.send(1, b"?", hashlib.sha256(b"?").digest(), 0.0)
    for number in range(20):
        content = bytes([number])
        digest = hashlib.sha256(content).digest()
        piece = Outgoing(number=1, digest=digest, message=content).next()
        assert piece is not None
        taken += link.hear(piece, 0.0) is not None
    assert taken == 1


def test_of_requests_that_nobody_has_read_one_is_kept(tmp_path: Path) -> None:
    from hubbub.site.network.nats.relay import Relay

    keys = Keys.generate("ann", "silo").networked()
    nobody = Relay.of("tls://127.0.0.1:1")
    party = Answering(nobody, keys, lambda one: one, lambda *_: None, lambda: None)
    for number in range(MANY):
        party._take("aggregator", Message(number=number, data=b""))
    assert party._requests.qsize() == 1
    assert party._requests.get().number == MANY - 1
    party._line.stop()


# Over a real relay -----------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Relayed]:
    with relayed(tmp_path) as found:
        yield found


def flood(
    url: str,
    pin: bytes,
    seed: str,
    subject: str,
    packet: bytes,
    most: int,
    seconds: float,
    begun: Any,
) -> None:
    """Publish the same again and again, as fast as the relay takes it."""

    async def flooded() -> None:
        from nats.aio.client import Client

        client = Client()
        await client.connect(
            url,
            allow_reconnect=False,
            tls=client_context(pin),
            tls_handshake_first=True,
            nkeys_seed_str=seed,
        )
        one = b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(packet), packet)
        begun.set()
        writer, left, end = client._transport._io_writer, most, time.monotonic() + seconds
        while left > 0 and time.monotonic() < end:
            writer.write(one * 100)
            await writer.drain()
            left -= 100
        await client.flush()
        await client.close()

    asyncio.run(flooded())


@contextmanager
def flooding(
    here: Any, whose: str, subject: str, packet: bytes, most: int, seconds: float = 60.0
) -> Iterator[Any]:
    """Meanwhile somebody floods, with a key that was stolen, from a process of its own."""
    given = (here.relay.urls[0], here.relay.pin, seed_of(here.keys[whose]))
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    process = context.Process(
        target=flood, args=(*given, subject, packet, most, seconds, begun), daemon=True
    )
    process.start()
    try:
        assert begun.wait(60)
        yield process
    finally:
        process.kill()
        process.join()


PACKETS = {
    "hellos": HELLO,
    "garbage": b"x" * 48,
    "goodbyes": Packet(kind=PacketKind.BYE).encoded(),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PACKETS)
def test_a_flood_at_ones_own_subject_disturbs_nobody_else_and_ends(own: Relayed, what: str) -> None:
    parties = [own.party(name) for name in ("ann", "bob")]
    carrier, said = own.carrier()
    with carrier:
        come(carrier, "ann", "bob")
        subject, link = answers_of(own.keys["ann"].identity), carrier._line._ends["ann"]
        with flooding(own, "ann", subject, PACKETS[what], 100_000) as process:
            wait(lambda: link.unheard)
            why = carrier._line.missing("ann")
            assert asked(carrier, {"bob": b"abc"}, 60.0) == {"bob": b"cba"}
            assert why.startswith("it sends so many") or what == "goodbyes"
            process.join()
            assert process.exitcode == 0
        wait(lambda: not link.unheard)
        assert len(link.link._words) <= len(PacketKind)
        come(carrier, "ann")
        assert asked(carrier, {"ann": b"def"}, 60.0) == {"ann": b"fed"}
        assert said == ["up"]
    for party in parties:
        party.stop()


@pytest.mark.slow
def test_a_flood_in_the_aggregators_name_ends_too(own: Relayed) -> None:
    party = own.party("ann")
    carrier, _ = own.carrier()
    with carrier:
        come(carrier, "ann")
        subject = asked_of(own.keys["ann"].identity)
        end = party.answering._line._ends["aggregator"]
        with flooding(own, "aggregator", subject, HELLO, 100_000) as process:
            wait(lambda: end.unheard)
            process.join()
        wait(lambda: not end.unheard)
        assert asked(carrier, {"ann": b"def"}, 60.0) == {"ann": b"fed"}
    party.stop()
    assert party.said[0] == "up"


@pytest.mark.slow
def test_one_key_is_logged_in_a_few_times_at_most(own: Relayed) -> None:
    """300 connections with one key: others are served, and the key's own party too."""
    parties = [own.party(name) for name in ("ann", "bob")]
    carrier, _ = own.carrier()

    async def login(kept: list[Any]) -> bool:
        from nats.aio.client import Client

        async def failed(error: Exception) -> None:
            if client.is_connecting:
                raise error

        client = Client()
        kept.append(client)
        try:
            await client.connect(
                own.relay.urls[0],
                error_cb=failed,
                allow_reconnect=False,
                tls=client_context(own.relay.pin),
                tls_handshake_first=True,
                nkeys_seed_str=seed_of(own.keys["ann"]),
            )
            await client.flush()
        except Exception:  # noqa: BLE001 (the library has several for it)
            return False
        return True

    async def logins() -> int:
        kept: list[Any] = []
        count = sum([await login(kept) for _ in range(60)])
        assert asked(carrier, dict.fromkeys(["ann", "bob"], b"abc")) == dict.fromkeys(
            ["ann", "bob"], b"cba"
        )
        for one in kept:
            with suppress(Exception):  # those that were refused
                await one.close()
            one._transport._bare_io_writer.transport.abort()
        await asyncio.sleep(0.05)
        return count

    with carrier:
        come(carrier, "ann", "bob")
        assert asyncio.run(logins()) == 5  # and its own
    for party in parties:
        party.stop()


@pytest.mark.slow
def test_a_quarter_of_a_minute_of_hellos_takes_no_memory_and_ends(
    own: Relayed,
) -> None:
    def mebibytes() -> int:
        return (
            int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
        )

    parties = [own.party(name) for name in ("ann", "bob")]
    carrier, _ = own.carrier()
    with carrier:
        come(carrier, "ann", "bob")
        before, subject = mebibytes(), answers_of(own.keys["ann"].identity)
        with flooding(own, "ann", subject, HELLO, 10**9, 15.0) as process:
            while process.is_alive():
                assert asked(carrier, {"bob": b"abc"}, 60.0) == {"bob": b"cba"}
                time.sleep(0.1)
        assert asked(carrier, {"ann": b"abc"}, 60.0) == {"ann": b"cba"}
        assert mebibytes() - before < 40
    for party in parties:
        party.stop()


@pytest.mark.slow
def test_a_study_is_served_to_its_end_though_a_silos_key_floods_the_relay(tmp_path: Path) -> None:
    """Who floods is missing meanwhile; then a session takes it in, and the run goes on."""
    everybody = Everybody(tmp_path)
    everybody.approve()
    home, keys = everybody.home / "aggregator", everybody.sites["ann"].keys
    relay = relay_of(everybody.sites["ann"], None, everybody.roster)
    RelayFiles.written(home / RELAY, everybody.roster, None)
    server = Server(home / RELAY, relay.port, lambda _: None)
    server.start()
    for name in list(everybody.sites)[1:]:
        everybody.join(name)
    wait(lambda: everybody.status("ann").get("connected"))
    here = SimpleNamespace(relay=relay, keys={"ann": keys})
    served: list[Path] = []
    serving = threading.Thread(target=lambda: served.append(everybody.serve(relay.urls[0])))
    with flooding(here, "ann", answers_of(keys.identity), HELLO, 10**9):
        serving.start()
        wait(lambda: any("waiting for ann (it sends so many" in one for one in everybody.said))
    serving.join(400)
    everybody.end()
    server.stop()
    assert [one.name for one in served[0].glob("evidence.json")] == ["evidence.json"]
    assert everybody.status("aggregator")["state"] == "done"
