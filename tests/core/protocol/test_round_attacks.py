"""The round: whatever anybody does against its rules is refused, and the sum is as before."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hubbub.core.errors import BudgetError, HubbubError, ProtocolError, StudyError
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import EVERYBODY, HEADER_BYTES, SIGNATURE_BYTES, Tag
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.session.in_process import federate
from protocol.parties import DIMENSION, STUDY, World, flipped, refused, sessions_of, set_up, world

PAIRWISE = world()
NODES = world(nodes=2)
ALL = (1, 2, 3, 4)
NO_MODEL = np.zeros(2, dtype=np.float32)
BOTH = pytest.mark.parametrize("w", [PAIRWISE, NODES], ids=["pairwise", "nodes"])


def silo(w: World, index: int) -> Masking:
    return w.masking(sessions_of(w)[index])


def node(index: int = 5) -> ComputeNode:
    return NODES.node(sessions_of(NODES)[index])


def answer(one: Masking, model: bytes, value: int = 1) -> bytes:
    return one.masked(one.accept(model), np.full(DIMENSION, value, dtype=np.uint32))


def opened(w: World) -> tuple[Aggregator, bytes]:
    aggregator = w.aggregator()
    return aggregator, aggregator.begin(1, 0, ALL, NO_MODEL)


@BOTH
def test_the_sum_of_an_honest_round_is_exact(w: World) -> None:
    aggregator, model = opened(w)
    for index in ALL:
        aggregator.receive(answer(silo(w, index), model, 10**index))
    if w.roster.nodes:
        w.totals(aggregator, {index: node(index) for index in w.roster.nodes})
    assert aggregator.attempt.integers().tolist() == [11110] * DIMENSION


def test_a_silo_that_drops_out_costs_nothing_with_nodes() -> None:
    aggregator, model = opened(NODES)
    for index in (1, 2, 4):
        aggregator.receive(answer(silo(NODES, index), model, 10**index))
    NODES.totals(aggregator, {index: node(index) for index in NODES.roster.nodes})
    assert aggregator.attempt.integers().tolist() == [10110] * DIMENSION


# A silo and a malicious aggregator ----------------------------------------------------------


@BOTH
@pytest.mark.parametrize("sender", [1, 2, 4])
def test_only_the_aggregator_opens_a_round(w: World, sender: int) -> None:
    payload = b"".join(w.round_parameters.model_parts(ALL, NO_MODEL))
    with refused(w.roster.name(sender), "expected a MODEL from the aggregator"):
        silo(w, 1).accept(w.forge(sender, Tag.MODEL, payload, round=1))


@pytest.mark.parametrize("tag", [tag for tag in Tag if tag is not Tag.MODEL])
def test_only_a_model_opens_a_round(tag: Tag) -> None:
    payload = b"".join(PAIRWISE.round_parameters.model_parts(ALL, NO_MODEL))
    with refused("relay", f"expected a MODEL from the aggregator to everybody, got a {tag.name}"):
        silo(PAIRWISE, 1).accept(PAIRWISE.forge(0, tag, payload, round=1))


def test_a_model_for_one_silo_only_is_refused() -> None:
    payload = b"".join(PAIRWISE.round_parameters.model_parts(ALL, NO_MODEL))
    with refused("aggregator", "expected a MODEL from the aggregator to everybody"):
        silo(PAIRWISE, 1).accept(PAIRWISE.forge(0, Tag.MODEL, payload, round=1, receiver=1))


@BOTH
@pytest.mark.parametrize("turn", [(1, 0), (1, 7), (2, 0)])
def test_a_model_of_an_earlier_attempt_is_refused_and_may_be_late(
    w: World, turn: tuple[int, int]
) -> None:
    one = silo(w, 1)
    one.accept(w.model(ALL, 2, 1))
    with refused("relay", "a mask is never used twice"):
        one.accept(w.model((1, 2, 3), *turn))


@BOTH
def test_a_model_a_second_time_is_refused_and_names_the_relay(w: World) -> None:
    one = silo(w, 1)
    one.accept(w.model(ALL, 2, 0))
    with refused("relay", "a mask is never used twice"):
        one.accept(w.model(ALL, 2, 0))


@BOTH
def test_two_models_for_one_attempt_name_the_aggregator_that_signed_both(w: World) -> None:
    one = silo(w, 1)
    one.accept(w.model(ALL, 2, 0))
    with refused("aggregator", "a mask is never used twice"):
        one.accept(w.model((1, 2, 3), 2, 0))


@BOTH
def test_a_refused_second_model_does_not_take_the_place_of_the_first(w: World) -> None:
    one = silo(w, 1)
    one.accept(w.model(ALL))
    for silos, culprit in (((1, 2, 3), "aggregator"), (ALL, "relay"), ((1, 2, 3), "aggregator")):
        with refused(culprit, "a mask is never used twice"):
            one.accept(w.model(silos))


@BOTH
def test_a_model_of_round_0_is_no_late_one_and_names_the_aggregator(w: World) -> None:
    one = silo(w, 1)
    one.accept(w.model(ALL, 2, 0))
    with refused("aggregator", "expected a round from 1 to 9, got 0"):
        one.accept(w.model(ALL, 0, 3))


@pytest.mark.parametrize("round", [0, 10, 2**32 - 1])
def test_a_round_that_the_study_does_not_have_is_refused(round: int) -> None:
    with refused("aggregator", f"expected a round from 1 to 9, got {round}"):
        silo(PAIRWISE, 1).accept(PAIRWISE.model(ALL, round))
    with refused("aggregator", f"expected a round from 1 to 9, got {round}"):
        node().promise(NODES.request(5, ALL, round))


@BOTH
def test_an_active_set_without_me_is_refused_as_meant_for_others(w: World) -> None:
    with refused("relay", "expected to be among the active silos"):
        silo(w, 1).accept(w.model((2, 3, 4)))


@BOTH
@pytest.mark.parametrize("active", [(), (1,), (1, 2)])
def test_an_active_set_below_the_quorum_is_refused(w: World, active: tuple[int, ...]) -> None:
    with refused("aggregator", f"expected at least 3 active silos, got {len(active)}"):
        silo(w, 1).accept(w.model(active))


def test_a_refused_active_set_does_not_use_the_attempt_up() -> None:
    one = silo(PAIRWISE, 1)
    with pytest.raises(ProtocolError):
        one.accept(PAIRWISE.model((1, 2)))
    assert one.accept(PAIRWISE.model(ALL)).active == frozenset(ALL)


@pytest.mark.parametrize("bits", [0b00001111, 0b11111000, 0b11110001])
def test_an_active_set_with_unknown_silos_is_refused(bits: int) -> None:
    payload = bytes([bits]) + bytes(8)
    with refused("aggregator", "expected a set of at most 4 silos"):
        silo(PAIRWISE, 1).accept(PAIRWISE.forge(0, Tag.MODEL, payload, round=1))


@pytest.mark.parametrize("size", [0, 1, 8, 10])
def test_a_model_of_the_wrong_length_is_refused(size: int) -> None:
    with refused("aggregator", f"expected a MODEL of 9 bytes, got {size}"):
        silo(PAIRWISE, 1).accept(PAIRWISE.forge(0, Tag.MODEL, bytes(size), round=1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_of_numbers_that_are_none_is_refused(value: float) -> None:
    with refused("aggregator", "expected a model of finite numbers"):
        silo(PAIRWISE, 1).accept(PAIRWISE.model(ALL, value=value))


def test_a_model_of_an_earlier_session_is_refused() -> None:
    payload = b"".join(PAIRWISE.round_parameters.model_parts(ALL, NO_MODEL))
    old = PAIRWISE.forge(0, Tag.MODEL, payload, round=1, session=bytes(16))
    with refused("relay", "a replay"):
        silo(PAIRWISE, 1).accept(old)


def test_a_model_that_the_relay_altered_is_refused() -> None:
    with refused("relay", "false signature"):
        silo(PAIRWISE, 1).accept(flipped(PAIRWISE.model(ALL), 80))


@BOTH
def test_a_silo_answers_an_accepted_model_once(w: World) -> None:
    one = silo(w, 1)
    attempt = one.accept(w.model(ALL))
    one.masked(attempt, ring.zeros(DIMENSION, 32))
    with refused("", "expected a new attempt to answer"):
        one.masked(attempt, ring.zeros(DIMENSION, 32))


def test_an_accepted_model_that_was_overtaken_is_not_answered() -> None:
    one = silo(PAIRWISE, 1)
    old = one.accept(PAIRWISE.model(ALL))
    one.accept(PAIRWISE.model(ALL, 1, 1))
    with refused("", "expected a new attempt to answer"):
        one.masked(old, ring.zeros(DIMENSION, 32))


class Unit:
    """Records whose sum is 1 everywhere."""

    count = capacity = 1

    def clipped_sum(self, parameters: object, chosen: object) -> np.ndarray:
        return np.ones(DIMENSION)


def test_a_silo_contributes_once_per_accepted_model() -> None:
    one = Silo(
        round_parameters=PAIRWISE.round_parameters,
        task=Unit(),
        masking=silo(PAIRWISE, 1),
        source=SecureSource(),
    )
    with refused("", "expected an accepted model before contributing, got none"):
        one.contribute()
    one.accept(PAIRWISE.model(ALL))
    one.contribute()
    with refused("", "expected an accepted model before contributing, got none"):
        one.contribute()


def test_a_model_that_comes_twice_leaves_what_was_accepted() -> None:
    one = Silo(
        round_parameters=PAIRWISE.round_parameters,
        task=Unit(),
        masking=silo(PAIRWISE, 1),
        source=SecureSource(),
    )
    one.accept(PAIRWISE.model(ALL))
    with refused("relay", "never used twice"):
        one.accept(PAIRWISE.model(ALL))
    one.contribute()


def test_after_two_models_for_one_time_a_silo_answers_neither() -> None:
    one = Silo(
        round_parameters=PAIRWISE.round_parameters,
        task=Unit(),
        masking=silo(PAIRWISE, 1),
        source=SecureSource(),
    )
    one.accept(PAIRWISE.model(ALL))
    with refused("aggregator", "never used twice"):
        one.accept(PAIRWISE.model((1, 2, 3)))
    with refused("", "expected an accepted model"):
        one.contribute()


@BOTH
def test_a_silo_whose_ledger_refuses_sends_nothing(w: World) -> None:
    def refuse(index: int, *_: object) -> None:
        if index == 2:
            raise BudgetError("no more")

    tasks = [Unit() for _ in w.roster.silos]
    everybody = federate(
        w.layout, w.round_parameters, tasks, study=STUDY, keys=w.keys, record=refuse
    )
    with suppress(HubbubError):  # with nodes, the others may finish without it
        everybody.sum(1, NO_MODEL)
    arrived = everybody.rounds.aggregator.attempt.arrived
    assert 2 not in arrived
    assert (1 in arrived) == bool(w.layout.nodes)  # where all are needed, none has answered


# A compute node and a malicious aggregator --------------------------------------------------


@pytest.mark.parametrize("turn", [(2, 1), (2, 0), (1, 7), (1, 0)])
def test_a_node_is_asked_once_and_only_forward(turn: tuple[int, int]) -> None:
    """The same again, or an earlier one: whoever carried it."""
    one = node()
    one.promise(NODES.request(5, ALL, 2, 1))
    with refused("relay", "a mask is never used twice"):
        one.promise(NODES.request(5, ALL, *turn))


def test_a_node_asked_for_two_sets_in_one_attempt_names_the_aggregator_that_signed_both() -> None:
    one = node()
    one.promise(NODES.request(5, ALL))
    with refused("aggregator", "a mask is never used twice"):
        one.promise(NODES.request(5, (1, 2, 3)))


@pytest.mark.parametrize("silos", [(), (1,), (3, 4)])
def test_a_node_asked_below_the_quorum_refuses(silos: tuple[int, ...]) -> None:
    with refused("aggregator", f"expected at least 3 active silos, got {len(silos)}"):
        node().promise(NODES.request(5, silos))


@pytest.mark.parametrize("bits", [b"\xff", b"\xf8"])
def test_a_node_asked_for_unknown_silos_refuses(bits: bytes) -> None:
    with refused("aggregator", "expected a set of at most 4 silos"):
        node().promise(NODES.forge(0, Tag.REQUEST, bits + bytes(32), round=1, receiver=5))


@pytest.mark.parametrize("size", [0, 1, 32, 34, 4096])
def test_a_node_asked_at_another_length_refuses(size: int) -> None:
    with refused("aggregator", f"expected a REQUEST of 33 bytes, got {size}"):
        node().promise(NODES.forge(0, Tag.REQUEST, bytes(size), round=1, receiver=5))


@pytest.mark.parametrize("receiver", [6, 1, EVERYBODY])
def test_a_node_refuses_another_nodes_request(receiver: int) -> None:
    request = NODES.request(receiver, ALL)
    with refused("relay", "expected a REQUEST for me"):
        node().promise(request)


@pytest.mark.parametrize("sender", [1, 6])
def test_a_node_answers_nobody_but_the_aggregator(sender: int) -> None:
    request = NODES.forge(
        sender,
        Tag.REQUEST,
        NODES.round_parameters.named_payload(ALL, bytes(32)),
        round=1,
        receiver=5,
    )
    with refused(NODES.roster.name(sender), "expected a REQUEST from the aggregator"):
        node().promise(request)


@pytest.mark.parametrize("tag", [tag for tag in Tag if tag is not Tag.REQUEST])
def test_a_node_answers_nothing_but_a_request(tag: Tag) -> None:
    frame = NODES.forge(
        0, tag, NODES.round_parameters.named_payload(ALL, bytes(32)), round=1, receiver=5
    )
    with refused("relay", f"expected a REQUEST from the aggregator, got a {tag.name}"):
        node().promise(frame)


def test_a_node_refuses_a_request_of_an_earlier_session() -> None:
    payload = NODES.round_parameters.named_payload(ALL, bytes(32))
    old = NODES.forge(0, Tag.REQUEST, payload, round=1, receiver=5, session=bytes(16))
    with refused("relay", "a replay"):
        node().promise(old)


def test_a_node_gives_no_mask_for_a_silo_that_does_not_use_it() -> None:
    """Silo 1 uses nodes 1 and 2 of three; node 3, asked for all, leaves it out."""
    w = world(6, nodes=3, quorum=5, each=2)
    sessions = sessions_of(w)
    used = {silo for silo in w.roster.silos if 9 in sessions[silo].secrets}
    assert 1 not in used
    totals = [
        w.total(w.node(sessions[9]), w.request(9, asked))[HEADER_BYTES:-SIGNATURE_BYTES]
        for asked in ((1, 2, 3, 4, 5, 6), (2, 3, 4, 5, 6))
    ]
    assert totals[0] == totals[1]
    assert any(totals[0])


def test_a_node_asked_in_a_later_attempt_gives_other_masks() -> None:
    one = node()
    totals = [NODES.total(one, NODES.request(5, ALL, *turn)) for turn in ((1, 0), (1, 1), (2, 0))]
    assert len({total[HEADER_BYTES:-SIGNATURE_BYTES] for total in totals}) == 3


def test_nodes_of_two_sessions_share_no_mask() -> None:
    payloads = []
    for sessions in (sessions_of(NODES), set_up(NODES)):
        total = NODES.total(NODES.node(sessions[5]), NODES.request(5, ALL))
        payloads.append(total[HEADER_BYTES:-SIGNATURE_BYTES])
    assert payloads[0] != payloads[1]


def test_a_request_that_the_relay_altered_is_refused() -> None:
    with refused("relay", "false signature"):
        node().promise(flipped(NODES.request(5, (1, 2, 3)), HEADER_BYTES))


def test_a_refused_request_does_not_use_the_attempt_up() -> None:
    one = node()
    with pytest.raises(ProtocolError):
        one.promise(NODES.request(5, (1,)))
    one.promise(NODES.request(5, ALL))


# An aggregator and bad answers --------------------------------------------------------------


ANSWER = 4 * DIMENSION + 32  # bytes of residues, and of the digest of the MODEL


def masked(w: World, index: int, size: int = ANSWER, **changes: int) -> bytes:
    """A MASKED as a malicious silo may sign it."""
    where = {"round": 1, "receiver": 0} | changes
    return w.forge(index, Tag.MASKED, bytes(size), **where)


@BOTH
@pytest.mark.parametrize("size", [0, 4 * DIMENSION, ANSWER - 1, ANSWER + 4])
def test_a_masked_vector_of_the_wrong_length_names_the_silo(w: World, size: int) -> None:
    aggregator, _ = opened(w)
    with refused("silo-2", f"expected a MASKED of {ANSWER} bytes, got {size}"):
        aggregator.receive(masked(w, 2, size))
    assert 2 not in aggregator.attempt.arrived


@BOTH
@pytest.mark.parametrize(
    "other", [((1, 2, 3), NO_MODEL), (ALL, NO_MODEL + 1)], ids=["silos", "numbers"]
)
def test_an_answer_to_another_model_of_the_same_attempt_is_refused_and_not_added(
    w: World, other: tuple[tuple[int, ...], NDArray[np.float32]]
) -> None:
    """Whoever has the aggregator's key can sign two; their answers do not make one sum."""
    aggregator, _ = opened(w)
    second = w.aggregator().begin(1, 0, *other)
    before = aggregator.attempt.total.copy()
    with refused("silo-2", "expected an answer to this MODEL, got one to another"):
        aggregator.receive(answer(silo(w, 2), second))
    assert np.array_equal(before, aggregator.attempt.total)
    assert 2 not in aggregator.attempt.arrived


@BOTH
@pytest.mark.parametrize("turn", [(1, 1), (2, 0), (0, 0)])
def test_an_answer_to_another_attempt_is_refused(w: World, turn: tuple[int, int]) -> None:
    aggregator, _ = opened(w)
    with refused("relay", "expected an answer to attempt 1.0"):
        aggregator.receive(masked(w, 2, round=turn[0], attempt=turn[1]))


@pytest.mark.parametrize("receiver", [1, 3, EVERYBODY])
def test_an_answer_to_another_party_is_refused(receiver: int) -> None:
    aggregator, _ = opened(PAIRWISE)
    with refused("relay", "expected an answer to attempt 1.0"):
        aggregator.receive(masked(PAIRWISE, 2, receiver=receiver))


@BOTH
def test_a_second_answer_is_refused_and_not_added(w: World) -> None:
    aggregator, model = opened(w)
    first = answer(silo(w, 1), model)
    aggregator.receive(first)
    before = aggregator.attempt.total.copy()
    for again, culprit in ((first, "relay"), (masked(w, 1), "silo-1"), (first, "relay")):
        with refused(culprit, "expected one MASKED of silo-1, got a second"):
            aggregator.receive(again)
    assert np.array_equal(before, aggregator.attempt.total)


@pytest.mark.parametrize("outsider", [0, 4, 5])
def test_an_answer_from_somebody_who_was_not_asked_is_refused(outsider: int) -> None:
    aggregator = NODES.aggregator()
    aggregator.begin(1, 0, (1, 2, 3), NO_MODEL)
    with refused(NODES.roster.name(outsider), "expected no MASKED of a party that was not asked"):
        aggregator.receive(masked(NODES, outsider))


@pytest.mark.parametrize("tag", [tag for tag in Tag if tag is not Tag.MASKED])
def test_nothing_but_a_masked_vector_is_taken_before_the_request(tag: Tag) -> None:
    aggregator, _ = opened(NODES)
    with refused("node-1", f"expected no {tag.name} now"):
        aggregator.receive(NODES.forge(5, tag, bytes(20), round=1, receiver=0))


def asked(*, promised: bool = True) -> Aggregator:
    aggregator, model = opened(NODES)
    for index in (1, 2, 3):
        aggregator.receive(answer(silo(NODES, index), model))
    for index, request in aggregator.ask_nodes(Tag.REQUEST).items():
        promise = node(index).promise(request)
        if promised:
            aggregator.receive(promise)
    return aggregator


def test_no_total_is_taken_before_all_nodes_have_promised_theirs() -> None:
    with refused("node-1", "expected no TOTAL now"):
        asked(promised=False).receive(NODES.forge(5, Tag.TOTAL, bytes(20), round=1, receiver=0))


@pytest.mark.parametrize(
    ("sender", "silos", "culprit", "says"),
    [
        (5, (1, 2, 3), "relay", "expected one PROMISE of node-1, got a second"),
        (5, ALL, "node-1", "expected one PROMISE of node-1, got a second"),
        (3, (1, 2, 3), "silo-3", "a party that was not asked"),
    ],
)
def test_a_promise_is_taken_once_and_of_a_node(
    sender: int, silos: tuple[int, ...], culprit: str, says: str
) -> None:
    aggregator = asked()
    promise = NODES.round_parameters.named_payload(silos, aggregator.attempt.model)
    with refused(culprit, says):
        aggregator.receive(NODES.forge(sender, Tag.PROMISE, promise, round=1))


@pytest.mark.parametrize(("silos", "same"), [(ALL, True), ((1, 2), True), ((1, 2, 3), False)])
def test_a_promise_of_other_silos_or_another_model_names_its_node(
    silos: tuple[int, ...], same: bool
) -> None:
    aggregator = asked(promised=False)
    promise = NODES.round_parameters.named_payload(
        silos, aggregator.attempt.model if same else bytes(32)
    )
    with refused("node-1", "got other silos or another MODEL"):
        aggregator.receive(NODES.forge(5, Tag.PROMISE, promise, round=1))


def test_a_late_masked_vector_is_not_added_to_a_sum_whose_masks_were_asked_for() -> None:
    """It may have been signed in time, and carried slowly."""
    with refused("relay", "expected no MASKED after the requests, got one of silo-4"):
        asked().receive(masked(NODES, 4))


def test_a_second_masked_vector_after_the_requests_still_names_who_signed_two() -> None:
    with refused("silo-3", "expected one MASKED of silo-3, got a second"):
        asked().receive(masked(NODES, 3))


def test_a_silo_cannot_answer_as_a_node() -> None:
    with refused("silo-4", "expected no TOTAL of a party that was not asked"):
        asked().receive(NODES.forge(4, Tag.TOTAL, bytes(20), round=1, receiver=0))


def test_a_total_of_the_wrong_length_names_the_node() -> None:
    with refused("node-1", "expected a TOTAL of 20 bytes, got 21"):
        asked().receive(NODES.forge(5, Tag.TOTAL, bytes(21), round=1, receiver=0))


def test_a_node_answers_once() -> None:
    aggregator = asked()
    total, other = (
        NODES.forge(5, Tag.TOTAL, bytes([first]) + bytes(19), round=1, receiver=0)
        for first in (0, 1)
    )
    aggregator.receive(total)
    before = aggregator.attempt.total.copy()
    for again, culprit in ((total, "relay"), (other, "node-1")):
        with refused(culprit, "expected one TOTAL of node-1, got a second"):
            aggregator.receive(again)
    assert np.array_equal(before, aggregator.attempt.total)


def test_no_sum_while_a_silo_is_missing() -> None:
    aggregator, model = opened(PAIRWISE)
    for index in (1, 2, 4):
        aggregator.receive(answer(silo(PAIRWISE, index), model))
    with refused("silo-3", "expected its masked vector, got none"):
        aggregator.attempt.integers()


def test_no_sum_while_a_node_is_missing() -> None:
    aggregator = asked()
    aggregator.receive(NODES.forge(5, Tag.TOTAL, bytes(20), round=1, receiver=0))
    with refused("node-2", "expected its total, got none"):
        aggregator.attempt.integers()


def test_no_sum_before_the_nodes_were_asked() -> None:
    aggregator, model = opened(NODES)
    for index in ALL:
        aggregator.receive(answer(silo(NODES, index), model))
    with refused("node-1", "expected its total, got none"):
        aggregator.attempt.integers()


def test_below_the_quorum_nobody_is_asked() -> None:
    aggregator, model = opened(NODES)
    for index in (1, 2):
        aggregator.receive(answer(silo(NODES, index), model))
    with refused("", "expected at least 3 silos to answer, got 2"):
        aggregator.ask_nodes(Tag.REQUEST)


@pytest.mark.parametrize("turn", [(1, 0), (1, 2), (0, 0), (10, 0)])
def test_the_aggregator_itself_goes_only_forward(turn: tuple[int, int]) -> None:
    aggregator = PAIRWISE.aggregator()
    aggregator.begin(1, 2, ALL, NO_MODEL)
    with refused("", "expected a round"):
        aggregator.begin(*turn, ALL, NO_MODEL)


@pytest.mark.parametrize("silos", [(0,), (-1, 2), (1, 5), (0, 1, 2)])
def test_a_set_with_a_silo_that_does_not_exist_has_no_bitmap(silos: tuple[int, ...]) -> None:
    with pytest.raises(StudyError, match="expected silos from 1 to 4, got"):
        PAIRWISE.round_parameters.bitmap(silos)


def test_an_impossible_set_does_not_use_the_attempt_up() -> None:
    aggregator = PAIRWISE.aggregator()
    with pytest.raises(StudyError):
        aggregator.begin(1, 0, (0, 1, 2), NO_MODEL)
    aggregator.begin(1, 0, ALL, NO_MODEL)


def test_an_abandoned_attempt_leaves_nothing_in_the_next_sum() -> None:
    aggregator, model = opened(PAIRWISE)
    silos = {index: silo(PAIRWISE, index) for index in ALL}
    for index in (1, 2):
        aggregator.receive(answer(silos[index], model, 1000))
    again = aggregator.begin(1, 1, (1, 2, 3), NO_MODEL)
    for index in (1, 2, 3):
        aggregator.receive(answer(silos[index], again, 10**index))
    assert aggregator.attempt.integers().tolist() == [1110] * DIMENSION


def test_a_masked_vector_looks_like_noise_to_who_lacks_the_keys() -> None:
    """2000 equal words under masks: bytes uniform by chi-square, false alarm 1e-9."""
    round_parameters = replace(PAIRWISE.round_parameters, dimension=2000)
    one = Masking(
        keys=PAIRWISE.keys[1],
        roster=PAIRWISE.roster,
        round_parameters=round_parameters,
        session=sessions_of(PAIRWISE)[1],
        mask_stream=PAIRWISE.masking(sessions_of(PAIRWISE)[1])._mask_stream,
    )
    sent = one.masked(one.accept(PAIRWISE.model(ALL)), ring.zeros(2000, 32))
    counts = np.bincount(np.frombuffer(sent[74:-64], np.uint8), minlength=256)
    assert ((counts - 31.25) ** 2 / 31.25).sum() < 420


# The budget of attempts ---------------------------------------------------------------------


@BOTH
def test_a_session_has_no_more_attempts_than_the_study_has_steps(w: World) -> None:
    """A malicious aggregator repeats round 1 and collects one noisy sum after another."""
    one = silo(w, 1)
    for attempt in range(w.round_parameters.steps):
        answer(one, w.model(ALL, attempt=attempt))
    with refused("aggregator", "at most 9 attempts"):
        one.accept(w.model(ALL, attempt=w.round_parameters.steps))
    with refused("aggregator", "at most 9 attempts"):
        one.accept(w.model(ALL, round=2))


def test_a_node_answers_no_more_attempts_than_the_study_has_steps() -> None:
    one = node(5)
    for attempt in range(NODES.round_parameters.steps):
        one.promise(NODES.request(5, ALL, attempt=attempt))
    with refused("aggregator", "at most 9 attempts"):
        one.promise(NODES.request(5, ALL, round=2))


def test_what_was_verified_cannot_be_changed_afterwards() -> None:
    model = bytearray(PAIRWISE.model(ALL))
    attempt = silo(PAIRWISE, 1).accept(model)  # type: ignore[arg-type]
    before = attempt.parameters.copy()
    model[HEADER_BYTES + 1 : HEADER_BYTES + 9] = bytes(8 * [255])
    assert np.array_equal(attempt.parameters, before)


def test_a_silo_whose_charge_was_refused_cannot_be_made_to_answer() -> None:
    one = Silo(
        round_parameters=PAIRWISE.round_parameters,
        task=_NoTask(),
        masking=silo(PAIRWISE, 1),
        source=SecureSource(),
    )
    one.accept(PAIRWISE.model(ALL))
    one.decline()
    with pytest.raises(ProtocolError, match="accepted model"):
        one.contribute()


class _NoTask:
    """A silo without records."""

    count = capacity = 0

    def clipped_sum(self, parameters: object, chosen: object) -> np.ndarray:
        return np.zeros(DIMENSION)


def test_nothing_is_sent_without_a_mask() -> None:
    """Only itself among the active: whoever asks would get the bare vector."""
    alone = replace(PAIRWISE.round_parameters, quorum=1)
    one = Masking(
        keys=PAIRWISE.keys[1],
        roster=PAIRWISE.roster,
        round_parameters=alone,
        session=sessions_of(PAIRWISE)[1],
        mask_stream=MaskStream(),
    )
    with pytest.raises(ProtocolError, match="share a mask with"):
        answer(one, PAIRWISE.model([1]))
