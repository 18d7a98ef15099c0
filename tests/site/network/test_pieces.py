"""Messages in pieces between two ends: cut, lost, doubled, late, and in the end whole or nothing.

Nothing here has a socket or a clock: two links, and a line between them that does what it is told.
"""

from __future__ import annotations

import hashlib
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.site.network.nats import message_delivery
from hubbub.site.network.nats.message_delivery import (
    MOST_BYTES,
    WINDOW,
    Incoming,
    Message,
    MessageDelivery,
    Outgoing,
    Packet,
    PacketKind,
    piece_bytes,
    pieces_of,
)

SIZE = 64  # bytes of a piece, in these tests


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_delivery, "PIECE_BYTES", SIZE)


def message(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def outgoing(content: bytes, number: int = 7) -> Outgoing:
    return Outgoing(number=number, digest=hashlib.sha256(content).digest(), message=content)


def packets(content: bytes, number: int = 7) -> list[Packet]:
    """All pieces of a message, as the wire has them."""
    sending, found = outgoing(content, number), []
    while (packet := sending.next()) is not None:
        found.append(Packet.read(packet.encoded()))
        sending.told(len(found), again=False)
    return found


# Cutting and joining ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE, SIZE + 1, 5 * SIZE, 5 * SIZE + 3])
def test_what_is_cut_is_joined(size: int) -> None:
    content = message(size)
    cut = packets(content)
    assert len(cut) == pieces_of(size)
    assert all(len(one.data) == piece_bytes(size, one.place) <= SIZE for one in cut)
    coming = Incoming.of(cut[0])
    found = [coming.take(one) for one in cut]
    assert found[-1] == content
    assert found[:-1] == [None] * (len(cut) - 1)


def test_a_message_is_joined_where_it_stays() -> None:
    """What comes is a model: it is never there twice."""
    cut = packets(message(2000 * SIZE))
    tracemalloc.start()
    try:
        coming = Incoming.of(cut[0])
        whole = [one for one in map(coming.take, cut) if one is not None]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(whole[0]) <= peak < 1.2 * len(whole[0])


def test_pieces_in_any_order_and_twice_make_one_message() -> None:
    content = message(WINDOW * SIZE)
    cut = packets(content)
    for seed in range(20):
        order = [*cut, *cut]
        random.Random(seed).shuffle(order)
        coming = Incoming.of(cut[0])
        assert [one for one in map(coming.take, order) if one is not None] == [content]


def test_a_gap_is_asked_for_once() -> None:
    cut = packets(message(3 * SIZE))
    coming = Incoming.of(cut[0])
    coming.take(cut[1])
    first, second = coming.answer(), coming.answer()
    assert (first.place, first.again) == (0, True)
    assert (second.place, second.again) == (0, False)


def test_no_more_than_a_window_is_kept_ahead_of_a_gap() -> None:
    cut = packets(message(100 * SIZE))
    coming = Incoming.of(cut[0])
    for one in cut[1:]:
        coming.take(one)
    assert len(coming._ahead) == WINDOW - 1


def test_a_message_whose_hash_is_another_is_not_handed_on() -> None:
    cut = packets(message(2 * SIZE))
    wrong = replace(cut[1], data=bytes(SIZE))
    coming = Incoming.of(cut[0])
    assert coming.take(cut[0]) is None
    assert coming.take(wrong) is None
    assert coming.had == 0  # it is asked for anew
    assert [coming.take(one) for one in cut][-1] == message(2 * SIZE)


def test_no_more_is_on_its_way_than_a_window() -> None:
    sending = outgoing(message(100 * SIZE))
    sent = []
    while (packet := sending.next()) is not None:
        sent.append(packet.place)
    assert sent == list(range(WINDOW))
    sending.told(1, again=False)
    assert sending.next().place == WINDOW
    assert sending.next() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: b"huba" + data[4:],
        lambda data: data[:4] + b"\x02" + data[5:],
        lambda data: data[:5] + b"\x63" + data[6:],
        lambda data: data[:-1],
        lambda data: data + b"x",
    ],
    ids=["empty", "short", "magic", "version", "kind", "cut", "longer"],
)
def test_other_bytes_are_no_packet(change: Callable[[bytes], bytes]) -> None:
    whole = outgoing(message(10)).next().encoded()
    Packet.read(whole)
    with pytest.raises(ProtocolError, match="expected a p"):
        Packet.read(change(whole))


def test_a_message_larger_than_anybody_sends_is_not_taken_in() -> None:
    packet = Packet(kind=PacketKind.ASK, size=MOST_BYTES + 1)
    with pytest.raises(ProtocolError):
        Packet.read(packet.encoded())
    with pytest.raises(ProtocolError):
        Packet.read(Packet(kind=PacketKind.HAVE, size=SIZE, place=2).encoded())


# Two ends --------------------------------------------------------------------------------------


class Pair:
    """An aggregator's end, a party's end, and what is on its way between them."""

    def __init__(self) -> None:
        self.ends = {
            "asks": MessageDelivery(replies=True),
            "answers": MessageDelivery(replies=False),
        }
        self.ways: dict[str, list[bytes]] = {"asks": [], "answers": []}
        self.got: dict[str, list[Message]] = {"asks": [], "answers": []}
        self.now = 0.0
        for end in self.ends.values():
            end.connected()

    def other(self, name: str) -> str:
        return "answers" if name == "asks" else "asks"

    def send(self, name: str, number: int, content: bytes) -> None:
        self.ends[name].send(number, content, hashlib.sha256(content).digest(), self.now)

    def leave(self) -> None:
        """Everything that is due is on its way."""
        for name, end in self.ends.items():
            while (packet := end.due()) is not None:
                self.ways[name].append(packet.encoded())

    def arrive(self, spoil: Callable[[list[bytes]], list[bytes]] = lambda way: way) -> None:
        """What is on its way arrives."""
        for name, way in self.ways.items():
            carried, self.ways[name] = spoil(way), []
            for data in carried:
                to = self.other(name)
                found = self.ends[to].hear(Packet.read(data), self.now)
                if found is not None:
                    self.got[to].append(found)

    def settle(self, rounds: int = 400, step: float = 0.0) -> None:
        for _ in range(rounds):
            self.now += step
            for end in self.ends.values():
                end.pass_time(self.now)
            self.leave()
            self.arrive()

    def cut(self, name: str) -> None:
        """One end is cut off: what is on its way both ways is lost; then it is back."""
        self.leave()
        self.ways = {"asks": [], "answers": []}
        self.ends[name].connected()


def test_a_request_and_its_answer_come_whole() -> None:
    pair = Pair()
    asked, answer = message(10 * SIZE + 1, 1), message(7 * SIZE, 2)
    pair.send("asks", 1, asked)
    pair.settle(20)
    assert pair.got["answers"] == [Message(number=1, data=asked)]
    pair.send("answers", 1, answer)
    pair.settle(20)
    assert pair.got["asks"] == [Message(number=1, data=answer)]


@pytest.mark.parametrize("name", ["asks", "answers"])
@pytest.mark.parametrize("seed", range(10))
def test_cuts_in_the_middle_lose_nothing(name: str, seed: int) -> None:
    """Whoever is cut off, however often: no time has to pass before all is there."""
    rng, pair = random.Random(seed), Pair()
    asked, answer = message(9 * SIZE, 1), message(9 * SIZE, 2)
    pair.send("asks", 1, asked)
    for _ in range(30):
        pair.settle(rng.randrange(3))
        pair.cut(name)
    pair.settle(20)
    assert pair.got["answers"][0] == Message(number=1, data=asked)
    pair.send("answers", 1, answer)
    for _ in range(30):
        pair.settle(rng.randrange(3))
        pair.cut(name)
    pair.settle(20)
    assert pair.got["asks"][0] == Message(number=1, data=answer)


@pytest.mark.quick_cases("8", "9", "1", "7")
@pytest.mark.parametrize("seed", range(10))
def test_what_is_lost_doubled_and_late_comes_whole_after_a_while(seed: int) -> None:
    """A line that does not even tell that it loses: the ends ask each other now and then."""
    rng, pair = random.Random(seed), Pair()

    def spoil(way: list[bytes]) -> list[bytes]:
        found = [one for one in way if rng.random() > 0.3]
        found += [one for one in found if rng.random() < 0.3]
        rng.shuffle(found)
        return found

    contents = [message(5 * SIZE, number) for number in range(4)]
    for number, content in enumerate(contents, 1):
        pair.send("asks", number, content)
        for _ in range(200):
            pair.now += 5.0
            for end in pair.ends.values():
                end.pass_time(pair.now)
            pair.leave()
            pair.arrive(spoil)
        assert Message(number=number, data=content) in pair.got["answers"]
        pair.send("answers", number, content[::-1])
        for _ in range(200):
            pair.now += 5.0
            for end in pair.ends.values():
                end.pass_time(pair.now)
            pair.leave()
            pair.arrive(spoil)
        assert Message(number=number, data=content[::-1]) in pair.got["asks"]


def test_a_party_that_was_started_anew_is_asked_again() -> None:
    pair = Pair()
    asked = message(3 * SIZE)
    pair.send("asks", 1, asked)
    pair.settle(5)
    pair.ends["answers"] = MessageDelivery(replies=False)
    pair.ends["answers"].connected()
    pair.settle(5)
    assert pair.got["answers"] == [Message(number=1, data=asked)] * 2


def test_an_aggregator_that_was_started_anew_is_heard_whatever_its_clock_says() -> None:
    pair = Pair()
    pair.send("asks", 1000, message(SIZE))
    pair.settle(5)
    pair.ends["asks"] = MessageDelivery(replies=True)
    pair.ends["asks"].connected()
    pair.send("asks", 5, message(SIZE, 2))
    pair.settle(5)
    assert pair.got["answers"][-1] == Message(number=5, data=message(SIZE, 2))


def test_a_newer_request_takes_the_place_of_an_older_one() -> None:
    pair = Pair()
    pair.send("asks", 1, message(50 * SIZE, 1))
    pair.settle(2)
    pair.send("asks", 2, message(2 * SIZE, 2))
    pair.settle(10)
    assert [one.number for one in pair.got["answers"]] == [2]
    pair.send("answers", 1, b"to the old one")
    pair.settle(10)
    assert pair.got["asks"] == []


def test_a_replayed_packet_of_an_old_request_changes_nothing() -> None:
    pair = Pair()
    old = packets(message(SIZE, 1), number=1)
    pair.send("asks", 2, message(3 * SIZE, 2))
    pair.leave()
    pair.arrive(lambda way: [*way[:2], old[0].encoded(), *way[2:]])
    pair.settle(5)
    assert [one.number for one in pair.got["answers"]] == [2]


def test_a_goodbye_is_heard_and_a_hello_takes_it_back() -> None:
    pair = Pair()
    pair.settle(2)
    assert pair.ends["asks"].present is True
    pair.ends["answers"].say(PacketKind.BYE)
    pair.settle(1)
    assert pair.ends["asks"].present is False
    pair.ends["answers"].connected()
    pair.settle(1)
    assert pair.ends["asks"].present is True


def test_two_processes_with_the_same_keys_are_noticed_and_a_restart_is_not() -> None:
    aggregator = MessageDelivery(replies=True)
    first, second, third = (MessageDelivery(replies=False) for _ in range(3))

    def beat(party: MessageDelivery, now: float = 0.0) -> bool:
        """Whether the parties are told of it."""
        party.say(PacketKind.BEAT)
        aggregator.hear(Packet.read(party.due().encoded()), now)
        return PacketKind.TWICE in aggregator._words

    for party in (first, first, second, second, third):
        assert not beat(party)
        assert not aggregator.twice
    assert beat(second)
    assert aggregator.twice == 1
    second.hear(Packet(kind=PacketKind.TWICE), 0.0)
    second.hear(Packet(kind=PacketKind.TWICE), 50.0)
    assert second.twice == 1
    other = MessageDelivery(replies=True)
    other.hear(Packet(kind=PacketKind.TWICE), 0.0)
    assert not other.twice  # what a party says of the aggregator is not believed
    for _ in range(1000):
        beat(MessageDelivery(replies=False))
    assert len(aggregator._others) == 8


def test_two_processes_are_news_once_and_a_lost_word_of_it_is_said_again() -> None:
    aggregator = MessageDelivery(replies=True)
    first, second = (MessageDelivery(replies=False) for _ in range(2))

    def take_turns(*seconds: float) -> None:
        for now in seconds:
            for party in (first, second):
                party.say(PacketKind.BEAT)
                aggregator.hear(Packet.read(party.due().encoded()), now)

    take_turns(0.0, 5.0)
    assert PacketKind.TWICE in aggregator._words
    aggregator.connected()  # a new line, which forgets what was to be said
    assert PacketKind.TWICE not in aggregator._words
    take_turns(10.0)
    assert PacketKind.TWICE in aggregator._words
    take_turns(*(15.0 + 5.0 * beat for beat in range(100)))
    assert aggregator.twice == 1
    take_turns(600.0)
    assert aggregator.twice == 2


def test_signs_of_life_come_while_nothing_else_does() -> None:
    pair = Pair()
    pair.settle(30, step=1.0)
    assert all(pair.now - end.heard <= 5.0 for end in pair.ends.values())


def test_nothing_is_sent_twice_over_a_slow_line() -> None:
    """Questions that wait behind pieces in a queue do not make more of them."""
    pair = Pair()
    pair.settle(2)
    content = message(40 * SIZE)
    pair.send("asks", 1, content)
    queue: list[bytes] = []
    sent, busy = 0, 0
    for _ in range(1000):
        pair.now += 1.0
        for end in pair.ends.values():
            end.pass_time(pair.now)
        pair.leave()
        queue += pair.ways["asks"]
        pair.ways["asks"], busy = [], busy - 1
        while queue and busy <= 0:
            data = queue.pop(0)
            piece = Packet.read(data).kind is PacketKind.PIECE
            sent, busy = sent + piece, 12 if piece else busy  # seconds for a piece
            pair.ways["asks"].append(data)
        pair.arrive()
        if pair.got["answers"]:
            break
    assert pair.got["answers"] == [Message(number=1, data=content)]
    assert sent == pieces_of(len(content))
