"""The golden vectors of a collection: what is derived, opened and summed, to the last bit (P30)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hubbub.core.protocol.primitives.identity import Keys
from hubbub.site.collected.collection_frames import (
    Deposited,
    FixedSet,
    Opening,
    mask_key,
    opened_seed,
    read_deposit,
)
from hubbub.site.collected.node import NodeState
from protocol.collection_world import Collection, collection
from protocol.parties import refused
from protocol.vectors.collection import FILE

KNOWN: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def told(name: str) -> list[bytes]:
    found = KNOWN[name]
    return [bytes.fromhex(one) for one in (found.values() if isinstance(found, dict) else found)]


@pytest.fixture
def c() -> Collection:
    """The world of the vectors, its nodes with the keys in the file."""
    made = collection(3, 2, quorum=2)
    made.__dict__["node_keys"] = told("node_keys")
    for node, text, key in zip(
        made.nodes, KNOWN["node_secrets"].values(), told("node_keys"), strict=True
    ):
        whole = bytes.fromhex(text)
        secret = Keys.restored(
            f"node-{node - 3}", "node", signing=whole[:32], lattice=whole[32:96], curve=whole[96:]
        )
        made.states[node] = NodeState(collect=made.collect, node_key=key, secret=secret)
    return made


def test_q_seeds_and_mask_keys_follow(c: Collection) -> None:
    assert c.collect.hex() == KNOWN["collect"]
    assert c.opening.q.hex() == KNOWN["q"]
    for place in KNOWN["seeds"]:
        silo, node = map(int, place.split("-"))
        deposit = read_deposit(c.place, bytes.fromhex(KNOWN["deposits"][str(silo)]))
        secret = c.states[node].secret
        assert secret is not None
        seed = opened_seed(c.opening, silo, node, deposit.sealed[node], secret)
        assert seed is not None
        assert seed.hex() == KNOWN["seeds"][place]
        assert mask_key(c.opening, silo, node, seed).hex() == KNOWN["mask_keys"][place]


def test_nodes_and_aggregator_make_the_same_frames_and_the_sum(c: Collection) -> None:
    heads, (fixed,) = told("deposits"), [bytes.fromhex(KNOWN["set"])]
    assert c.node(4).look(c.states[4], c.node_keys, heads).hex() == KNOWN["looked"]
    promises = [c.promise(node, fixed, heads) for node in c.nodes]
    assert promises == told("promises")
    assert [c.total(node, heads, promises) for node in c.nodes] == told("totals")
    collector = c.collector_with_keys()
    for head, vector in zip(heads, told("vectors"), strict=True):
        collector.take_deposit(Deposited(deposit=head, vector=vector))
    assert c.set_of({1: collector.deposits[1], 3: collector.deposits[3]}) == fixed
    collector.take_set(fixed)
    for one in promises:
        collector.take_promise(one)
    for one in told("totals"):
        collector.take_total(one)
    assert collector.integers().tolist() == KNOWN["sum"]


@pytest.mark.parametrize("bad", KNOWN["bad"], ids=lambda one: one["name"])
def test_a_bad_frame_is_refused_by_its_step(c: Collection, bad: dict[str, str]) -> None:
    frame = bytes.fromhex(bad["frame"])
    opening = Opening.read(c.place, c.collect, c.node_keys)
    collector = replace(c.collector_with_keys())
    collector.take_deposit(Deposited(deposit=told("deposits")[0], vector=told("vectors")[0]))
    collector.take_set(bytes.fromhex(KNOWN["set"]))
    steps = {
        "set": lambda: FixedSet.read(opening, frame, c.numbers),
        "deposit": lambda: read_deposit(c.place, frame),
        "promise": lambda: collector.take_promise(frame),
    }
    with refused(bad["culprit"], bad["says"]):
        steps[bad["step"]]()
