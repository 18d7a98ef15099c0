"""An attempt as a fold of frames: what a transcript may hold, and in which order (P3, P4)."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, unverified
from hubbub.core.protocol.round.attempt_sum import AttemptSum
from hubbub.core.protocol.round.round_parameters import digest_of_shares
from protocol.parties import World, refused, world
from protocol.test_full_shares import FULL

PAIRWISE, NODES = world(), world(nodes=2)
MODEL = bytes(range(32))
NOW = {"round": 1, "attempt": 0}


def attempt(w: World) -> AttemptSum:
    return AttemptSum(
        numbers=w.round_parameters,
        roster=w.roster,
        time=(1, 0),
        active=frozenset(w.roster.silos),
        model=MODEL,
    )


def frame(w: World, sender: int, tag: Tag, payload: bytes = b"", receiver: int = 0) -> Frame:
    return unverified(w.forge(sender, tag, payload, receiver=receiver, **NOW))


def masked(w: World, silo: int, value: int = 1) -> Frame:
    vector = np.full(w.round_parameters.dimension, value, dtype="<u4").tobytes()
    return frame(w, silo, Tag.MASKED, (b"" if w is FULL else vector) + MODEL)


def answered(w: World) -> AttemptSum:
    fold = attempt(w)
    for silo in w.roster.silos:
        fold.take(masked(w, silo))
    return fold


def named(w: World, tag: Tag, fold: AttemptSum) -> list[Frame]:
    return [frame(w, 0, tag, fold.payload(tag), node) for node in w.roster.nodes]


def test_answers_of_all_are_a_sum() -> None:
    assert answered(PAIRWISE).integers().tolist() == [4] * PAIRWISE.round_parameters.dimension


@pytest.mark.parametrize("tag", [Tag.ARRIVED, Tag.REQUEST])
def test_a_silo_that_signs_what_the_aggregator_says_is_named(tag: Tag) -> None:
    fold = answered(FULL)
    own = named(FULL, tag, fold)[0]
    with refused("silo-2", f"expected no {tag.name} now"):
        fold.take(frame(FULL, 2, tag, bytes(own.payload), own.receiver))
    with refused("silo-2", f"expected no {tag.name} now"):
        fold.take(frame(FULL, 2, tag, bytes(own.payload), 0))


@pytest.mark.parametrize("tag", [Tag.SHARE, Tag.ARRIVED, Tag.HELD])
def test_p4_without_full_shares_nobody_speaks_of_shares(tag: Tag) -> None:
    fold, receiver = answered(NODES), 5
    sender = {Tag.SHARE: 1, Tag.ARRIVED: 0, Tag.HELD: 5}[tag]
    with refused(NODES.roster.name(sender), f"expected no {tag.name} now"):
        fold.take(frame(NODES, sender, tag, b"", 0 if tag is Tag.HELD else receiver))


def test_p4_a_share_comes_once_after_its_silos_answer_and_before_nodes_are_told() -> None:
    fold = attempt(FULL)
    says = "expected one SHARE for a node, after its silo's MASKED and before ARRIVED"
    with refused("silo-1", says):
        fold.take(frame(FULL, 1, Tag.SHARE, bytes(8), 5))
    for silo in FULL.roster.silos:
        fold.take(masked(FULL, silo))
    fold.take(frame(FULL, 1, Tag.SHARE, bytes(8), 5))
    with refused("silo-1", says):
        fold.take(frame(FULL, 1, Tag.SHARE, bytes(9), 5))
    fold.take(named(FULL, Tag.ARRIVED, fold)[0])
    with refused("silo-2", says):
        fold.take(frame(FULL, 2, Tag.SHARE, bytes(8), 5))


def test_p4_no_total_is_asked_for_before_every_node_has_spoken_of_its_shares() -> None:
    fold = answered(FULL)
    asked, numbers = named(FULL, Tag.REQUEST, fold)[0], FULL.round_parameters
    for arrived in named(FULL, Tag.ARRIVED, fold):
        fold.take(arrived)
    held = numbers.named_payload(set(), digest_of_shares(MODEL, {}))
    for node in FULL.roster.nodes:
        with refused("aggregator", "expected no REQUEST now"):
            fold.take(asked)
        fold.take(frame(FULL, node, Tag.HELD, held))
    fold.take(asked)


@pytest.mark.parametrize("w", [NODES, FULL], ids=["masks", "shares"])
def test_p3_no_answer_counts_after_the_nodes_were_told_whose_to_sum(w: World) -> None:
    fold = attempt(w)
    for silo in (1, 2, 3):
        fold.take(masked(w, silo))
    fold.take(named(w, Tag.ARRIVED if w is FULL else Tag.REQUEST, fold)[0])
    with refused("relay", "expected no MASKED after the requests"):
        fold.take(masked(w, 4))
    assert fold.arrived == {1, 2, 3}


def test_p3_a_total_waits_for_the_promises_of_all_nodes() -> None:
    fold = answered(NODES)
    for request in named(NODES, Tag.REQUEST, fold):
        fold.take(request)
    said = fold.payload(Tag.PROMISE)
    fold.take(frame(NODES, 5, Tag.PROMISE, said, EVERYBODY))
    total = np.ones(NODES.round_parameters.dimension, dtype="<u4").tobytes()
    with refused("node-1", "expected no TOTAL now"):
        fold.take(frame(NODES, 5, Tag.TOTAL, total))
    with refused("node-2", "expected node-2 to name the silos that have answered"):
        fold.take(frame(NODES, 6, Tag.PROMISE, said[:-1] + b"\0", EVERYBODY))
    fold.take(frame(NODES, 6, Tag.PROMISE, said, EVERYBODY))
    fold.take(frame(NODES, 5, Tag.TOTAL, total))
    assert fold.waits_for == "node-2"
    with refused("node-1", "expected one TOTAL of node-1, got a second"):
        fold.take(frame(NODES, 5, Tag.TOTAL, total[:-4] + bytes(4)))
    fold.take(frame(NODES, 6, Tag.TOTAL, total))
    assert fold.integers().tolist() == [2] * NODES.round_parameters.dimension


def test_a_vector_that_was_not_kept_counts_as_an_answer_and_not_as_a_number() -> None:
    fold = attempt(PAIRWISE)
    for silo in (1, 2, 3):
        fold.take(masked(PAIRWISE, silo))
    assert fold.is_whole
    fold.take(frame(PAIRWISE, 4, Tag.MASKED), withheld=b"d" * 32)
    assert not fold.is_whole
    assert fold.waits_for == ""
    assert fold.integers().tolist() == [3] * PAIRWISE.round_parameters.dimension
    with refused("relay", "expected one MASKED of silo-4"):
        fold.take(frame(PAIRWISE, 4, Tag.MASKED), withheld=b"d" * 32)
    with refused("silo-4", "expected one MASKED of silo-4"):
        fold.take(frame(PAIRWISE, 4, Tag.MASKED), withheld=b"e" * 32)


def test_p3_fewer_than_the_quorum_are_named_to_no_node() -> None:
    fold = attempt(NODES)
    for silo in (1, 2):
        fold.take(masked(NODES, silo))
    with refused("", "expected at least 3 silos to answer, got 2"):
        fold.payload(Tag.REQUEST)


@pytest.mark.parametrize(
    ("sender", "changes"), [(1, {"round": 2}), (1, {"attempt": 1}), (1, {"receiver": 2})]
)
def test_a_frame_of_another_attempt_or_for_another_party_was_carried_here(sender, changes) -> None:
    vector = bytes(masked(PAIRWISE, 1).payload)
    where = {**NOW, "receiver": 0} | changes
    with refused("relay", "expected an answer to attempt 1.0"):
        attempt(PAIRWISE).take(unverified(PAIRWISE.forge(sender, Tag.MASKED, vector, **where)))


def test_who_was_not_asked_is_named() -> None:
    fold = AttemptSum(
        numbers=PAIRWISE.round_parameters,
        roster=PAIRWISE.roster,
        time=(1, 0),
        active=frozenset({1, 2, 3}),
        model=MODEL,
    )
    with refused("silo-4", "expected no MASKED of a party that was not asked"):
        fold.take(masked(PAIRWISE, 4))
