"""Frames of joint seeds that must be refused, with the step that must do it and whom it blames.

The frame takes the place of its sender's among the true ones, or comes beside them (`added`).
"""

from __future__ import annotations

from typing import Any

from hubbub.core.protocol.primitives.wire import Tag
from protocol.parties import World

JSON = dict[str, Any]
Bad = tuple[str, str, str, str, bytes]  # name, step, culprit, what the refusal says, frame
_TIME = {"round": 7, "attempt": 1}


def bad_joint(w: World, v: JSON) -> list[JSON]:
    """All of them, made from good ones of the vectors."""
    return [
        {"name": name, "step": step, "culprit": culprit, "says": says, "frame": frame.hex()}
        for name, step, culprit, says, frame in [*anchors(w, v), *links(w, v), *elsewhere(v)]
    ]


def anchors(w: World, v: JSON) -> list[Bad]:
    """What nobody must take for silo 2's anchor."""
    good = [bytes.fromhex(frame) for frame in v["anchors"]]
    rest = good[1][74:-64]

    def anchor(payload: bytes = rest, **where: Any) -> bytes:
        return w.forge(2, Tag.SEED_ANCHOR, payload, **where)

    flipped, commit = good[1][:-1] + bytes([good[1][-1] ^ 1]), w.forge(2, Tag.COMMIT, rest)
    mine = w.forge(1, Tag.SEED_ANCHOR, rest)
    other = anchor(bytes(32))
    return [
        ("short anchor", "anchors", "silo-2", "of 32 bytes, got 31", anchor(rest[:31])),
        ("empty anchor", "anchors", "silo-2", "of 32 bytes, got 0", anchor(b"")),
        ("anchor of round 1", "anchors", "relay", "expected a SEED_ANCHOR of", anchor(round=1)),
        ("anchor for silo 1", "anchors", "relay", "expected a SEED_ANCHOR of", anchor(receiver=1)),
        ("commitment", "anchors", "relay", "got a COMMIT of 0.0", commit),
        ("old anchor", "anchors", "relay", "a replay", anchor(session=bytes(16))),
        ("anchor of another study", "anchors", "relay", "expected study", anchor(study=bytes(32))),
        ("last byte of an anchor", "anchors", "relay", "false signature", flipped),
        ("not my anchor", "anchors", "relay", "my own anchor back", mine),
        ("anchor twice", "anchors_added", "relay", "got a second", good[1]),
        ("two anchors", "anchors_added", "silo-2", "got a second", other),
        ("aggregator's anchor", "anchors_added", "relay", "an active silo", _of_nobody(w, good[0])),
        ("another anchor", "confirm", "relay", "shown different things", other),
    ]


def _of_nobody(w: World, anchor: bytes) -> bytes:
    """An anchor of a party that draws nothing."""
    return w.forge(0, Tag.SEED_ANCHOR, anchor[74:-64])


def links(w: World, v: JSON) -> list[Bad]:
    """What nobody must take for silo 2's link of attempt 1 of round 7."""
    good = [bytes.fromhex(frame) for frame in v["round"]["links"]]
    rest, later = good[1][74:-64], bytes.fromhex(v["seeds"][3]["links"][1])
    earlier, anchor = (bytes.fromhex(v["seeds"][2]["links"][0]), bytes.fromhex(v["anchors"][1]))

    def link(payload: bytes = rest, **where: Any) -> bytes:
        return w.forge(2, Tag.SEED_LINK, payload, **(_TIME | where))

    says = "link number 14 that it has committed to"
    return [
        ("made-up link", "links", "silo-2", says, link(bytes(32))),
        ("later link", "links", "silo-2", says, link(later)),
        ("earlier link", "links", "silo-2", says, link(earlier)),
        ("its anchor", "links", "silo-2", says, link(anchor[74:-64])),
        ("silo 1's link", "links", "silo-2", says, link(good[0][74:-64])),
        ("short link", "links", "silo-2", "of 32 bytes, got 31", link(rest[:31])),
        ("long link", "links", "silo-2", "of 32 bytes, got 33", link(rest + b"\0")),
        ("link of attempt 0", "links", "relay", "expected a SEED_LINK of", link(attempt=0)),
        ("link of round 6", "links", "relay", "expected a SEED_LINK of", link(round=6)),
        ("link for silo 1", "links", "relay", "expected a SEED_LINK of", link(receiver=1)),
        ("old link", "links", "relay", "a replay", link(session=bytes(16))),
        ("anchor again", "links", "relay", "got a SEED_ANCHOR of 0.0", anchor),
        ("link twice", "links_added", "relay", "got a second", good[1]),
        ("two links", "links_added", "silo-2", "got a second", link(bytes(32))),
        ("who is not active", "links_among_two", "relay", "from an active silo", good[1]),
    ]


def elsewhere(v: JSON) -> list[Bad]:
    """A true link or anchor where another message is expected."""
    link, anchor = bytes.fromhex(v["round"]["links"][1]), bytes.fromhex(v["anchors"][1])
    return [
        ("link for a model", "accept", "relay", "got a SEED_LINK of silo-2", link),
        ("anchor for a model", "accept", "relay", "got a SEED_ANCHOR of silo-2", anchor),
        ("link for an answer", "receive", "relay", "expected an answer to attempt", link),
        ("anchor for an answer", "receive", "relay", "expected an answer to attempt", anchor),
        ("anchor for a commitment", "reveal", "relay", "got a SEED_ANCHOR of 0.0", anchor),
    ]
