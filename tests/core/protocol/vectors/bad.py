"""Frames that must be refused, with the step that must refuse each and whom it must blame."""

from __future__ import annotations

import struct
from typing import Any

from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, VERSION, Tag
from protocol.parties import World

JSON = dict[str, Any]
Bad = tuple[str, str, str, str, bytes]  # name, step, culprit, what the refusal says, frame


def bad(w: World, pairwise: JSON, nodes: World, with_nodes: JSON) -> list[JSON]:
    """All of them, made from good ones of the vectors."""
    cases = [
        *misshapen(w, bytes.fromhex(pairwise["round"]["model"])),
        *for_a_roll_call(w),
        *in_set_up(w, bytes.fromhex(pairwise["contributions"]["2"]["3"])),
        *for_a_silo(w, bytes.fromhex(pairwise["round"]["model"])),
        *for_a_node(nodes, bytes.fromhex(with_nodes["round"]["requests"][0])),
        *for_the_total(nodes, bytes.fromhex(with_nodes["round"]["promises"][0])),
        *for_the_aggregator(w, bytes.fromhex(pairwise["round"]["masked"][1])),
    ]
    return [
        {"name": name, "step": step, "culprit": culprit, "says": says, "frame": frame.hex()}
        for name, step, culprit, says, frame in cases
    ]


def payload(frame: bytes) -> bytes:
    return frame[HEADER_BYTES:-SIGNATURE_BYTES]


def turn(frame: bytes) -> dict[str, int]:
    """The round and attempt of a frame, to forge another beside it."""
    return {"round": frame[50], "attempt": frame[54]}


def misshapen(w: World, good: bytes) -> list[Bad]:
    """What is no frame of any party, of this study, in this session."""
    old = w.forge(0, Tag.MODEL, payload(good), session=bytes(16), **turn(good))
    other = w.forge(0, Tag.MODEL, payload(good), study=bytes(32), **turn(good))
    nine = good[:58] + struct.pack("<I", 9) + good[62:]
    another = bytes([good[-1] ^ 1])
    return [
        ("empty", "parse", "relay", "expected at least 138 bytes", b""),
        ("one byte short", "parse", "relay", "expected a payload of", good[:-1]),
        ("one byte long", "parse", "relay", "expected a payload of", good + b"\0"),
        ("version 1", "parse", "relay", f"expected wire version {VERSION}", b"\x01" + good[1:]),
        ("tag 99", "parse", "relay", "expected a known tag", b"\x04\x63" + good[2:]),
        ("last byte", "parse", "relay", "false signature", good[:-1] + another),
        ("another study", "parse", "relay", "expected study", other),
        ("old session", "parse", "relay", "a replay", old),
        ("sender 9", "parse", "relay", "a sender of the roster", nine),
    ]


def for_a_roll_call(w: World) -> list[Bad]:
    """A ROLL that silo 1 must not take, in a study of three silos of which one may be missing."""

    def roll(silos: bytes, sender: int = 0, **where: Any) -> bytes:
        return w.forge(sender, Tag.ROLL, silos, **where)

    return [
        ("roll of a silo", "roll", "silo-2", "a ROLL of the aggregator", roll(b"\xe0", 2)),
        ("roll for me alone", "roll", "aggregator", "to everybody", roll(b"\xe0", receiver=1)),
        ("roll of round 1", "roll", "aggregator", "to everybody", roll(b"\xe0", round=1)),
        ("roll of one", "roll", "aggregator", "at least 2 silos in a session", roll(b"\x80")),
        ("roll of a fourth", "roll", "aggregator", "at most 3 silos", roll(b"\xf0")),
        ("roll of two bytes", "roll", "aggregator", "at most 3 silos", roll(b"\xe0\0")),
        ("roll without me", "roll", "relay", "that I am in", roll(b"\x60")),
        ("old roll", "roll", "relay", "a replay", roll(b"\xe0", session=bytes(16))),
        ("an offer", "roll", "relay", "got a OPEN", w.forge(0, Tag.OPEN, b"\xe0")),
        ("the same roll", "roll_again", "relay", "got a second", roll(b"\xe0")),
        ("another roll", "roll_again", "aggregator", "got a second", roll(b"\xc0")),
    ]


def in_set_up(w: World, contribution: bytes) -> list[Bad]:
    """What silo 1 must not take from silo 2."""
    reveal, short = (w.forge(2, Tag.REVEAL, bytes(size)) for size in (32, 31))
    redirected = w.forge(2, Tag.CONTRIBUTION, payload(contribution), receiver=1)
    confirm = w.forge(2, Tag.CONFIRM, bytes(32))
    check = w.forge(2, Tag.KEY_CHECK, bytes(32), receiver=1)
    return [
        ("not committed", "learn_seed", "silo-2", "share that was committed to", reveal),
        ("short reveal", "learn_seed", "silo-2", "of 32 bytes, got 31", short),
        ("sealed to silo 3", "confirm", "silo-2", "does not open", redirected),
        ("for silo 3", "confirm", "relay", "one for another party", contribution),
        ("another transcript", "finish", "relay", "shown different things", confirm),
        ("wrong key check", "finish", "silo-2", "proof of our common secret", check),
    ]


def for_a_silo(w: World, good: bytes) -> list[Bad]:
    """A MODEL that silo 1 must not answer."""
    now, rest = turn(good), payload(good)[1:]

    def model(silos: int, end: bytes = b"", **where: int) -> bytes:
        return w.forge(0, Tag.MODEL, bytes([silos]) + rest + end, **where)

    own = w.forge(2, Tag.MODEL, payload(good), **now)
    query = w.forge(0, Tag.MODEL, payload(good), receiver=1, **now)
    answer = w.forge(2, Tag.MASKED, bytes(20), receiver=0, **now)
    return [
        ("from a silo", "accept", "silo-2", "a MODEL from the aggregator", own),
        ("for me alone", "accept", "aggregator", "from the aggregator to everybody", query),
        ("an answer", "accept", "relay", "got a MASKED of silo-2", answer),
        ("round 10 of 9", "accept", "aggregator", "a round from 1 to 9", model(0xE0, round=10)),
        ("one silo", "accept", "aggregator", "at least 2 active silos", model(0x80, **now)),
        ("without me", "accept", "relay", "among the active silos", model(0x60, **now)),
        ("a fourth silo", "accept", "aggregator", "at most 3 silos", model(0xF0, **now)),
        ("long model", "accept", "aggregator", "9 bytes, got 10", model(0xE0, b"\0", **now)),
        ("the same again", "accept_again", "relay", "never used twice", good),
        ("fewer now", "accept_again", "aggregator", "never used twice", model(0xC0, **now)),
        ("earlier", "accept_again", "relay", "a round after 7.1", model(0xE0, round=7)),
    ]


def for_a_node(w: World, good: bytes) -> list[Bad]:
    """A REQUEST that node 1 must not answer."""
    now = turn(good)

    def request(silos: bytes, receiver: int = 4, **where: Any) -> bytes:
        named = silos + payload(good)[1:]
        return w.forge(0, Tag.REQUEST, named, receiver=receiver, **(now | where))

    own = w.forge(2, Tag.REQUEST, b"\xe0", receiver=4, **now)
    old = request(b"\xe0", session=bytes(16))
    model = w.forge(0, Tag.MODEL, bytes(9), **now)
    other = w.forge(0, Tag.REQUEST, b"\xe0" + bytes(32), receiver=4, **now)
    return [
        ("request of a silo", "promise", "silo-2", "a REQUEST from the aggregator", own),
        ("a model", "promise", "relay", "got a MODEL of aggregator", model),
        ("for somebody else", "promise", "relay", "a REQUEST for me", request(b"\xe0", receiver=3)),
        ("masks of one silo", "promise", "aggregator", "at least 2 active", request(b"\x20")),
        ("masks of a fourth", "promise", "aggregator", "at most 3 silos", request(b"\xf0")),
        ("two bytes", "promise", "aggregator", "33 bytes, got 34", request(b"\xe0\0")),
        ("round 0", "promise", "aggregator", "a round from 1 to 9", request(b"\xe0", round=0)),
        ("old request", "promise", "relay", "a replay", old),
        ("asked again", "promise_again", "relay", "never used twice", good),
        ("asked for fewer", "promise_again", "aggregator", "never used twice", request(b"\xc0")),
        ("of another model", "promise_again", "aggregator", "never used twice", other),
        ("asked back", "promise_again", "relay", "a round after", request(b"\xe0", attempt=0)),
    ]


def for_the_total(w: World, good: bytes) -> list[Bad]:
    """A PROMISE for which node 1 must not tell its total, though it has promised one."""
    now = turn(good)

    def promise(silos: bytes, sender: int = 4, **where: Any) -> bytes:
        return w.forge(sender, Tag.PROMISE, silos + payload(good)[1:], **(now | where))

    model = w.forge(4, Tag.PROMISE, b"\xe0" + bytes(32), **now)
    request = w.forge(0, Tag.REQUEST, payload(good), **now)
    return [
        ("promise of fewer", "total", "relay", "a promise of others", promise(b"\xc0")),
        ("promise of another model", "total", "relay", "a promise of others", model),
        ("long promise", "total", "relay", "a promise of others", promise(b"\xe0\0")),
        ("promise of a silo", "total", "relay", "a PROMISE of a node", promise(b"\xe0", 2)),
        ("promise of before", "total", "relay", "attempt 7.1", promise(b"\xe0", attempt=0)),
        ("promise for one", "total", "relay", "a PROMISE of a node", promise(b"\xe0", receiver=4)),
        ("no promise", "total", "relay", "a PROMISE of a node", request),
        ("old promise", "total", "relay", "a replay", promise(b"\xe0", session=bytes(16))),
    ]


def for_the_aggregator(w: World, good: bytes) -> list[Bad]:
    """An answer that must not be added."""
    now = turn(good)

    def signed(sender: int, tag: Tag, size: int, **where: int) -> bytes:
        return w.forge(sender, tag, bytes(size), receiver=0, **where)

    masked, share = signed(0, Tag.MASKED, 20, **now), signed(2, Tag.SHARE, 20, **now)
    other = signed(2, Tag.MASKED, 52, **now)
    return [
        ("short vector", "receive", "silo-2", "52 bytes, got 48", signed(2, Tag.MASKED, 48, **now)),
        ("another model", "receive", "silo-2", "this MODEL, got one to another", other),
        ("last attempt", "receive", "relay", "attempt 7.1", signed(2, Tag.MASKED, 20, round=7)),
        ("not asked", "receive", "aggregator", "a party that was not asked", masked),
        ("a share", "receive", "silo-2", "expected no SHARE now", share),
        ("answered again", "receive_again", "relay", "got a second", good),
        ("answered otherwise", "receive_again", "silo-2", "got a second", other),
    ]
