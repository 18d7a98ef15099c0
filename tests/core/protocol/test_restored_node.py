"""A compute node whose machine was set back: its copies tell no two totals of one attempt (P3).

All that the adversary lacks is in the copies: it is the aggregator, and every other node but the
one that was not set back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.key_agreement import Place
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag
from hubbub.core.protocol.round.compute_node import ComputeNode
from protocol.parties import DIMENSION, World, refused, sessions_of, world
from protocol.test_full_shares import FULL, answered, digest, opened

ALL, FEWER = (1, 2, 3, 4), (1, 2, 3)
PLAIN = world(nodes=2)
SOME = world(6, nodes=3, quorum=4, each=2)  # silo 1 uses nodes 7 and 8 alone
RESTORED, AWAKE = 5, 6


def image_of(node: ComputeNode) -> ComputeNode:
    """A copy of a node as it is now, with the same keys: what an image of its machine holds."""
    kept = ("_keys", "_roster", "_session", "_round_parameters", "_mask_stream")
    memo: dict[int, Any] = {id(getattr(node, name)): getattr(node, name) for name in kept}
    return copy.deepcopy(node, memo)


def node(w: World, index: int) -> ComputeNode:
    return w.node(sessions_of(w)[index])


def vector(total: bytes) -> bytes:
    return total[HEADER_BYTES:-SIGNATURE_BYTES]


def test_p3_a_restored_node_promises_a_second_set_and_tells_no_second_total() -> None:
    """The difference of the two would be the mask of silo 4, alone."""
    one, other = node(PLAIN, RESTORED), node(PLAIN, AWAKE)
    image = image_of(one)
    promises = [each.promise(PLAIN.request(i, ALL)) for i, each in ((5, one), (6, other))]
    one.total(promises)
    second = image.promise(PLAIN.request(5, FEWER))  # it has forgotten the first
    with refused("aggregator", "never used twice"):
        other.promise(PLAIN.request(6, FEWER))
    for shown in ([second], [second, promises[1]], [*promises], [second, second]):
        with pytest.raises(ProtocolError):
            image.total(shown)


SHOWN: dict[str, Callable[[dict[str, bytes]], list[bytes]]] = {
    "none": lambda at: [],
    "its own": lambda at: [at["own"]],
    "its own twice": lambda at: [at["own"], at["own"]],
    "of another set": lambda at: [at["own"], at["larger"]],
    "of another model": lambda at: [at["own"], at["model"]],
    "of an earlier attempt": lambda at: [at["own"], at["earlier"]],
    "of a later attempt": lambda at: [at["own"], at["later"]],
    "of another session": lambda at: [at["own"], at["session"]],
    "of another study": lambda at: [at["own"], at["study"]],
    "of a silo": lambda at: [at["own"], at["silo"]],
    "to one party": lambda at: [at["own"], at["alone"]],
    "a request": lambda at: [at["own"], at["request"]],
    "one beside the true ones": lambda at: [at["own"], at["good"], at["larger"]],
    "altered": lambda at: [at["own"], at["good"][:80] + b"\1" + at["good"][81:]],
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_p3_nothing_stands_for_the_promise_of_every_node(shown: Any) -> None:
    one, w = node(PLAIN, RESTORED), PLAIN
    payload = w.round_parameters.named_payload(FEWER, bytes(32))
    now = {"round": 2, "attempt": 1}

    def promise(sender: int = AWAKE, said: bytes = payload, **where: Any) -> bytes:
        return w.forge(sender, Tag.PROMISE, said, **(now | where))

    at = {
        "own": one.promise(w.request(RESTORED, FEWER, 2, 1)),
        "good": promise(),
        "larger": promise(said=w.round_parameters.named_payload(ALL, bytes(32))),
        "model": promise(said=w.round_parameters.named_payload(FEWER, bytes([1]) * 32)),
        "earlier": promise(attempt=0),
        "later": promise(round=3),
        "session": promise(session=bytes(16)),
        "study": promise(study=bytes(32)),
        "silo": promise(1),
        "alone": promise(receiver=RESTORED),
        "request": w.request(AWAKE, FEWER, 2, 1),
    }
    with pytest.raises(ProtocolError):
        one.total(shown(at))
    assert one.total([at["good"], at["own"]])  # a refusal changes nothing
    with refused("relay", "once for a total"):
        one.total([at["good"], at["own"]])


def test_p3_copies_tell_the_same_total_to_the_same_promises() -> None:
    one, other = node(PLAIN, RESTORED), node(PLAIN, AWAKE)
    image, request = image_of(one), PLAIN.request(5, ALL)
    promises = [one.promise(request), other.promise(PLAIN.request(6, ALL))]
    assert image.promise(request) == promises[0]
    assert one.total(promises) == image.total(promises)


def test_p3_nor_does_a_node_that_was_set_back_between_promise_and_total() -> None:
    one, other = node(PLAIN, RESTORED), node(PLAIN, AWAKE)
    before = image_of(one)
    promises = [one.promise(PLAIN.request(5, ALL)), other.promise(PLAIN.request(6, ALL))]
    between = image_of(one)
    one.total(promises)
    with refused("aggregator", "never used twice"):
        between.promise(PLAIN.request(5, FEWER))
    assert between.total(promises)
    fewer = before.promise(PLAIN.request(5, FEWER))
    with refused("relay", "a promise of others"):
        before.total([fewer, promises[1]])


def test_p3_nor_in_an_attempt_that_the_others_have_left_behind() -> None:
    one, other = node(PLAIN, RESTORED), node(PLAIN, AWAKE)
    image = image_of(one)
    other.promise(PLAIN.request(6, ALL, 2))
    image.promise(PLAIN.request(5, FEWER))
    with refused("relay", "a round after 2.0"):
        other.promise(PLAIN.request(6, FEWER))


def test_p3_a_node_that_a_silo_does_not_use_promises_its_set_too() -> None:
    """Silo 1's only honest node is set back; node 9 shares no mask with silo 1, and refuses."""
    w, everybody = SOME, (1, 2, 3, 4, 5, 6)
    assert 1 not in sessions_of(w)[9].secrets
    one, awake = node(w, 7), node(w, 9)
    image = image_of(one)
    promises = [
        one.promise(w.request(7, everybody)),
        w.forge(8, Tag.PROMISE, w.round_parameters.named_payload(everybody, bytes(32)), round=1),
        awake.promise(w.request(9, everybody)),
    ]
    one.total(promises)
    fewer = w.round_parameters.named_payload(everybody[1:], bytes(32))
    mine = image.promise(w.request(7, everybody[1:]))
    with refused("aggregator", "never used twice"):
        awake.promise(w.request(9, everybody[1:]))
    for third in ([], [promises[2]]):
        with pytest.raises(ProtocolError):
            image.total([mine, w.forge(8, Tag.PROMISE, fewer, round=1), *third])


def test_p3_a_restored_node_gives_no_second_total_of_full_shares() -> None:
    aggregator, model = opened()
    shares = answered(aggregator, model)
    nodes = {index: node(FULL, index) for index in (5, 6)}
    for index, each in nodes.items():
        for one in shares.values():
            each.keep(one[index])
        each.held(FULL.request(index, ALL, tag=Tag.ARRIVED, model=digest(model)))
    image, named = image_of(nodes[5]), {"model": digest(model)}
    promises = [each.promise(FULL.request(i, ALL, **named)) for i, each in nodes.items()]
    nodes[5].total(promises)
    second = image.promise(FULL.request(5, FEWER, **named))
    with refused("aggregator", "never used twice"):
        nodes[6].promise(FULL.request(6, FEWER, **named))
    with refused("relay", "a promise of others"):
        image.total([second, promises[1]])


@pytest.mark.parametrize("w", [PLAIN, world(nodes=1)], ids=["two nodes", "one node"])
def test_p3_where_no_other_honest_node_remembers_a_copy_gives_one_silo_away(w: World) -> None:
    """The limit of P3, so that the attack is seen to be one: no other node is there, or honest."""
    one = node(w, RESTORED)
    image = image_of(one)
    everybody, fewer = (
        np.frombuffer(vector(w.total(each, w.request(RESTORED, silos))), "<u4")
        for each, silos in ((one, ALL), (image, FEWER))
    )
    mask = ring.zeros(DIMENSION, 32)
    session = sessions_of(w)[RESTORED]
    place = Place(round=1, attempt=0, model=bytes(32))
    MaskStream().add(mask, session.secrets[4].mask_key(session.transcript, place))
    assert np.array_equal(everybody - fewer, mask)
