"""Full random shares: exact, uniform, sealed, and refused wherever somebody cheats."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from hubbub.core.protocol.agreement.key_agreement import PairSecret, Place
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import HEADER_BYTES, SIGNATURE_BYTES, Tag, unverified
from hubbub.core.protocol.round.additive_shares import divided, sealed_shares
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.round_parameters import RoundParameters
from protocol.parties import DIMENSION, World, flipped, refused, sessions_of, world


class Sharing(World):
    @cached_property
    def round_parameters(self) -> RoundParameters:
        return replace(World.round_parameters.func(self), full_shares=True)


_BASE = world(nodes=2)
FULL = Sharing(layout=_BASE.layout, keys=_BASE.keys, quorum=3)
ALL = (1, 2, 3, 4)
NO_MODEL = np.zeros(2, dtype=np.float32)


def silo(index: int) -> Masking:
    return FULL.masking(sessions_of(FULL)[index])


def node(index: int = 5) -> ComputeNode:
    return FULL.node(sessions_of(FULL)[index])


def answered(
    aggregator: Aggregator,
    model: bytes,
    silos: tuple[int, ...] = ALL,
    spoilt: dict[int, bytes] | None = None,
) -> dict[int, dict[int, bytes]]:
    """Every silo answers with 10^index; by silo, its shares by node; silo 3 spoils some."""
    shares = {}
    for index in silos:
        one = silo(index)
        attempt = one.accept(model)
        answer = one.masked(attempt, np.full(DIMENSION, 10**index, dtype=np.uint32))
        shares[index] = one.shares()
        for node, sealed in (spoilt or {}).items() if index == 3 else ():
            shares[3][node] = FULL.forge(3, Tag.SHARE, sealed, round=1, receiver=node)
        aggregator.receive(answer, aggregator.checked_shares(index, list(shares[index].values())))
    return shares


def closed(
    aggregator: Aggregator, nodes: dict[int, ComputeNode], shares: dict[int, dict[int, bytes]]
) -> dict[int, frozenset[int]]:
    """What every node says of the shares that it is handed."""
    found = {}
    for index, arrived in aggregator.ask_nodes(Tag.ARRIVED).items():
        for each in shares.values():
            nodes[index].keep(each[index])
        aggregator.receive(nodes[index].held(arrived))
        found[index] = frozenset(s for s, n in aggregator.attempt.closed.items() if index in n)
    return found


def total(aggregator: Aggregator, nodes: dict[int, ComputeNode]) -> list[int]:
    """The sum that the nodes' totals make."""
    FULL.totals(aggregator, nodes)
    return aggregator.attempt.integers().tolist()


def digest(model: bytes) -> bytes:
    return unverified(model).digest


def opened(number: int = 1) -> tuple[Aggregator, bytes]:
    aggregator = FULL.aggregator()
    return aggregator, aggregator.begin(number, 0, ALL, NO_MODEL)


@pytest.mark.parametrize("silos", [ALL, (1, 3, 4)])
def test_the_sum_is_exact_with_and_without_a_silo(silos: tuple[int, ...]) -> None:
    aggregator, model = opened()
    nodes = {5: node(5), 6: node(6)}
    found = closed(aggregator, nodes, answered(aggregator, model, silos))
    assert found == {5: frozenset(), 6: frozenset()}
    assert total(aggregator, nodes) == [sum(10**k for k in silos)] * DIMENSION


def test_no_answer_counts_once_nodes_were_told_who_has_arrived() -> None:
    aggregator, model = opened()
    answered(aggregator, model, (1, 3, 4))
    aggregator.ask_nodes(Tag.ARRIVED)
    late = silo(2)
    answer = late.masked(late.accept(model), np.full(DIMENSION, 1, dtype=np.uint32))
    with refused("relay", "expected no MASKED after the requests"):
        aggregator.receive(answer)


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_shares_add_up_and_each_is_uniform(kind: type, parts: int) -> None:
    value = np.full(40_000, 7, dtype=kind)
    shares = divided(value, parts, SecureSource())
    assert np.array_equal(sum(shares, start=np.zeros_like(value)), value)
    for share in shares:
        counts = np.bincount(share.view(np.uint8), minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 255)


def test_an_answer_has_no_vector_and_its_shares_are_handed_out_once() -> None:
    aggregator, model = opened()
    one = silo(1)
    answer = one.masked(one.accept(model), np.full(DIMENSION, 3, dtype=np.uint32))
    aggregator.receive(answer)
    first = one.shares()
    assert set(first) == {5, 6}
    assert one.shares() == {}
    plain = np.full(DIMENSION, 3, dtype="<u4").tobytes()
    assert all(plain not in share for share in first.values())


def test_a_vector_where_the_digest_alone_belongs_is_refused() -> None:
    aggregator, _ = opened()
    vector = bytes(4 * DIMENSION + 32)
    with refused(FULL.roster.name(2), "expected a MASKED of 32 bytes"):
        aggregator.receive(FULL.forge(2, Tag.MASKED, vector, round=1, receiver=0))


def test_a_share_is_taken_once_from_its_silo_for_its_node() -> None:
    aggregator, model = opened()
    shares = answered(aggregator, model)
    one = node(5)
    one.keep(shares[1][5])
    with refused("relay", "a second"):
        one.keep(shares[1][5])
    with refused("relay", "a SHARE for me"):
        one.keep(shares[2][6])
    with refused("relay", "expected"):
        one.keep(flipped(shares[2][5], 100))


def test_a_share_of_another_length_names_its_silo() -> None:
    sealed = bytes(4 * DIMENSION + 15)
    with refused(FULL.roster.name(3), "bytes"):
        node(5).keep(FULL.forge(3, Tag.SHARE, sealed, round=1, receiver=5))


@pytest.mark.parametrize("sender", [0, 6])
def test_a_share_of_no_silo_is_refused(sender: int) -> None:
    sealed = bytes(4 * DIMENSION + 16)
    with refused(FULL.roster.name(sender), "from this party"):
        node(5).keep(FULL.forge(sender, Tag.SHARE, sealed, round=1, receiver=5))


def test_a_second_different_share_names_its_silo() -> None:
    aggregator, model = opened()
    shares = answered(aggregator, model)
    one = node(5)
    one.keep(shares[1][5])
    again = silo(1)
    again.masked(again.accept(model), np.full(DIMENSION, 9, dtype=np.uint32))
    with refused(FULL.roster.name(1), "a second"):
        one.keep(again.shares()[5])


# Shares that do not open ---------------------------------------------------------------------


def spoilt(shares: dict[int, dict[int, bytes]], node: int, sealed: bytes) -> None:
    """Silo 3 sends one node something else, signed for the open attempt."""
    shares[3][node] = FULL.forge(3, Tag.SHARE, sealed, round=1, receiver=node)


def test_a_silo_whose_share_does_not_open_is_left_out_by_all_nodes() -> None:
    aggregator, model = opened()
    nodes = {5: node(5), 6: node(6)}
    shares = answered(aggregator, model, spoilt={6: bytes(4 * DIMENSION + 16)})
    found = closed(aggregator, nodes, shares)
    assert found == {5: frozenset(), 6: frozenset({3})}
    assert total(aggregator, nodes) == [10110] * DIMENSION


@pytest.mark.parametrize(
    "other",
    [
        {"attempt": 1},
        {"model": bytes(32)},
        {"round": 2},
    ],
    ids=["attempt", "model", "round"],
)
def test_a_share_sealed_for_another_attempt_or_model_does_not_open(other: dict[str, Any]) -> None:
    aggregator, model = opened()
    one, shares = node(5), answered(aggregator, model)
    place = Place(**({"round": 1, "attempt": 0, "model": digest(model)} | other))
    spoilt(shares, 5, sealed_for(5, silo=3, place=place))
    for each in shares.values():
        one.keep(each[5])
    held = one.held(aggregator.ask_nodes(Tag.ARRIVED)[5])
    assert FULL.round_parameters.read_named(unverified(held), "")[0] == {3}


def test_what_a_node_says_is_about_the_very_shares() -> None:
    """A relay that exchanges a share on its way has nobody left out."""
    aggregator, model = opened()
    one, shares = node(5), answered(aggregator, model)
    spoilt(shares, 5, bytes(4 * DIMENSION + 16))
    for each in shares.values():
        one.keep(each[5])
    with refused("relay", "got other shares"):
        aggregator.receive(one.held(aggregator.ask_nodes(Tag.ARRIVED)[5]))
    assert not aggregator.attempt.closed


@pytest.mark.parametrize("named", [(), (1, 2)])
def test_a_node_is_believed_once_about_silos_that_have_sent_it_a_share(
    named: tuple[int, ...],
) -> None:
    aggregator, model = opened()
    one, shares = node(5), answered(aggregator, model, (1, 3, 4))
    for each in shares.values():
        one.keep(each[5])
    held = one.held(aggregator.ask_nodes(Tag.ARRIVED)[5])
    said = held[HEADER_BYTES + 1 : -SIGNATURE_BYTES]
    lie = FULL.round_parameters.bitmap(named) + said
    lied = FULL.forge(5, Tag.HELD, lie, round=1, receiver=0)
    if named:  # silo 2 has sent nothing
        with refused(FULL.roster.name(5), "silos that use the node"):
            aggregator.receive(lied)
    aggregator.receive(held)
    assert not aggregator.attempt.closed
    with refused("relay" if not named else FULL.roster.name(5), "a second"):
        aggregator.receive(lied)


@pytest.mark.parametrize("sender", [1, 3])
def test_nobody_but_a_node_says_what_opens(sender: int) -> None:
    aggregator, model = opened()
    answered(aggregator, model)
    aggregator.ask_nodes(Tag.ARRIVED)
    said = FULL.forge(
        sender, Tag.HELD, FULL.round_parameters.bitmap(()) + bytes(32), round=1, receiver=0
    )
    with refused(FULL.roster.name(sender), "a party that was not asked"):
        aggregator.receive(said)


def test_a_node_sums_only_what_it_has_opened_and_only_the_quorum() -> None:
    """What a lying aggregator, or a lying other node, gets of an honest one (P4)."""
    aggregator, model = opened()
    one, shares = node(5), answered(aggregator, model)
    spoilt(shares, 5, bytes(4 * DIMENSION + 16))
    for each in shares.values():
        one.keep(each[5])
    named = {"model": digest(model)}
    with refused("relay", "open shares of the 4 silos"):
        one.promise(FULL.request(5, ALL, **named))  # before it has looked
    one.held(FULL.request(5, ALL, tag=Tag.ARRIVED, **named))
    with refused("relay", "open shares of the 4 silos of the request, got 3"):
        one.promise(FULL.request(5, ALL, **named))
    with refused("aggregator", "at least 3 active silos, got 2"):
        one.promise(FULL.request(5, (1, 2), **named))
    with refused("relay", "open shares of the 3 silos of the request, got 0"):
        one.promise(FULL.request(5, (1, 2, 4)))  # of another MODEL
    one.promise(FULL.request(5, (1, 2, 4), **named))
    with refused("relay", "never used twice"):
        one.promise(FULL.request(5, (1, 2, 4), **named))


@pytest.mark.parametrize("first", [0, 1])
def test_shares_for_two_models_are_not_added(first: int) -> None:
    """Silos 1 and 2 were shown another MODEL than 3 and 4; no digest opens the shares of all."""
    w, models = FULL, [FULL.model(ALL, value=value) for value in (0.0, 1.0)]
    one = node(5)
    for index in ALL:
        masking = silo(index)
        attempt = masking.accept(models[index > 2])
        masking.masked(attempt, np.full(DIMENSION, 1, dtype=np.uint32))
        one.keep(masking.shares()[5])
    held = one.held(w.request(5, ALL, model=digest(models[first]), tag=Tag.ARRIVED))
    assert w.round_parameters.read_named(unverified(held), "")[0] == [{3, 4}, {1, 2}][first]
    for model in models:
        with refused("relay", "open shares of the 3 silos of the request, got [012]"):
            one.promise(w.request(5, (1, 2, 3), model=digest(model)))


@pytest.mark.parametrize(
    ("silos", "known"),
    [(ALL, False), ((1, 2, 3), True), ((1, 2, 4), False)],
    ids=["of a made-up MODEL", "of fewer silos", "of both"],
)
def test_a_node_says_once_of_an_attempt_what_opens(silos: tuple[int, ...], known: bool) -> None:
    """A second word, under a digest of the aggregator's making, would accuse honest silos."""
    aggregator, model = opened()
    one = node(5)
    for each in answered(aggregator, model).values():
        one.keep(each[5])
    arrived = aggregator.ask_nodes(Tag.ARRIVED)[5]
    assert FULL.round_parameters.read_named(unverified(one.held(arrived)), "")[0] == frozenset()
    made_up = digest(model) if known else bytes(32)
    with refused("aggregator", "never used twice"):
        one.held(FULL.request(5, silos, model=made_up, tag=Tag.ARRIVED))
    with refused("relay", "never used twice"):
        one.held(arrived)
    one.promise(FULL.request(5, ALL, model=digest(model)))  # what was refused has changed nothing
    with refused("relay", "not answered yet"):
        one.held(arrived)


def test_a_node_does_not_go_back_to_what_opened_in_an_earlier_attempt() -> None:
    aggregator, model = opened()
    one = node(5)
    for each in answered(aggregator, model).values():
        one.keep(each[5])
    early = aggregator.ask_nodes(Tag.ARRIVED)[5]
    later = aggregator.begin(1, 1, ALL, NO_MODEL)
    for each in answered(aggregator, later).values():
        one.keep(each[5])
    one.held(aggregator.ask_nodes(Tag.ARRIVED)[5])
    with refused("relay", "that arrived, got 0"):
        one.held(early)
    one.promise(FULL.request(5, ALL, attempt=1, model=digest(later)))


def test_a_node_says_nothing_of_shares_that_did_not_come() -> None:
    aggregator, model = opened()
    one, shares = node(5), answered(aggregator, model)
    for index in (1, 2, 3):
        one.keep(shares[index][5])
    with refused("relay", "shares of the 4 silos that arrived, got 3"):
        one.held(aggregator.ask_nodes(Tag.ARRIVED)[5])
    # Nothing was given away, so the right one is still answered.
    one.held(FULL.request(5, (1, 2, 3), model=digest(model), tag=Tag.ARRIVED))
    one.promise(FULL.request(5, (1, 2, 3), model=digest(model)))


@pytest.mark.parametrize("sender", [2, 6])
def test_a_node_is_told_who_arrived_by_the_aggregator_alone(sender: int) -> None:
    payload = FULL.round_parameters.named_payload(ALL, bytes(32))
    with refused(FULL.roster.name(sender), "ARRIVED from the aggregator"):
        node(5).held(FULL.forge(sender, Tag.ARRIVED, payload, round=1, receiver=5))


# Shares that the aggregator refuses ----------------------------------------------------------


@pytest.mark.parametrize(
    ("culprit", "says", "changes"),
    [
        (
            "silo-3",
            "for attempt 1.0, got one for 9.4, which is still to come",
            {"round": 9, "attempt": 4},
        ),
        ("silo-3", "a SHARE of 36 bytes, got 35", {"size": 35}),
        ("relay", "a SHARE of silo-3 for this attempt", {"sender": 2}),
        ("relay", "a SHARE of silo-3 for this attempt", {"receiver": 2}),
        ("relay", "a SHARE of silo-3 for this attempt", {"tag": Tag.MASKED}),
        ("relay", "a false signature", {"flip": True}),
    ],
    ids=["attempt", "length", "sender", "receiver", "tag", "signature"],
)
def test_a_bad_share_is_refused_before_its_silo_counts(
    culprit: str, says: str, changes: dict[str, Any]
) -> None:
    aggregator, _ = opened()
    size, flip = changes.pop("size", 36), changes.pop("flip", False)
    arguments = {"sender": 3, "tag": Tag.SHARE, "round": 1, "receiver": 5} | changes
    frame = FULL.forge(payload=bytes(size), **arguments)
    with refused(culprit, says):
        aggregator.checked_shares(3, [flipped(frame, HEADER_BYTES) if flip else frame])
    assert 3 not in aggregator.attempt.arrived


def test_a_share_of_an_earlier_attempt_names_the_relay() -> None:
    aggregator, model = opened()
    old = answered(aggregator, model)[3]
    aggregator.begin(1, 1, ALL, NO_MODEL)
    with refused("relay", "for this attempt"):
        aggregator.checked_shares(3, list(old.values()))


# Time -----------------------------------------------------------------------------------------


def test_a_silo_whose_answer_was_lost_stops_nobody() -> None:
    """Its shares arrived at the nodes, its MASKED did not: the others' sum is taken."""
    aggregator, model = opened()
    nodes, late = {5: node(5), 6: node(6)}, silo(2)
    late.masked(late.accept(model), np.full(DIMENSION, 7, dtype=np.uint32))
    for index, share in late.shares().items():
        nodes[index].keep(share)
    assert closed(aggregator, nodes, answered(aggregator, model, (1, 3, 4)))[5] == frozenset()
    assert total(aggregator, nodes) == [11010] * DIMENSION


def test_a_share_for_a_far_attempt_holds_nobody_up() -> None:
    aggregator, model = opened()
    one, shares = node(5), answered(aggregator, model, (1, 2, 3))
    place = Place(round=9, attempt=2**32 - 1, model=digest(model))
    sealed = sealed_for(5, silo=4, place=place)
    one.keep(FULL.forge(4, Tag.SHARE, sealed, round=9, attempt=2**32 - 1, receiver=5))
    for each in shares.values():
        one.keep(each[5])
    one.held(aggregator.ask_nodes(Tag.ARRIVED)[5])
    one.promise(FULL.request(5, (1, 2, 3), model=digest(model)))


def sealed_for(node: int, *, silo: int, place: Place) -> bytes:
    """A share that a silo truly sealed, for whatever attempt."""
    residues = np.zeros(DIMENSION, dtype=np.uint32)
    return sealed_shares(residues, sessions_of(FULL)[silo], place, SecureSource())[node]


def test_a_node_answers_an_attempt_once_and_never_for_few() -> None:
    aggregator, model = opened()
    nodes, shares = {5: node(5), 6: node(6)}, answered(aggregator, model)
    closed(aggregator, nodes, shares)
    one = nodes[5]
    with refused("aggregator", "at least 3"):
        one.promise(FULL.request(5, (1, 2), model=digest(model)))
    request = aggregator.ask_nodes(Tag.REQUEST)[5]
    one.promise(request)
    with refused("relay", "never used twice"):
        one.promise(request)
    with refused("relay", "not answered yet"):
        one.keep(shares[4][5])


def test_a_silos_late_share_is_put_aside_by_its_next() -> None:
    aggregator, model = opened()
    early = answered(aggregator, model)
    again = aggregator.begin(1, 1, ALL, NO_MODEL)
    later = answered(aggregator, again)
    one = node(5)
    one.keep(early[1][5])
    for shares in later.values():
        one.keep(shares[5])
    with refused("relay", "newest attempt"):
        one.keep(early[1][5])
    one.held(aggregator.ask_nodes(Tag.ARRIVED)[5])
    one.promise(FULL.request(5, ALL, attempt=1, model=digest(again)))


def test_compressed_rounds_take_no_shares() -> None:
    plain = world(nodes=2)
    sealed = bytes(4 * DIMENSION + 16)
    with refused(plain.roster.name(1), "from this party"):
        plain.node(sessions_of(plain)[5]).keep(
            plain.forge(1, Tag.SHARE, sealed, round=1, receiver=5)
        )


def test_p3_no_two_shares_travel_under_one_key() -> None:
    """A key is used once: another end of a pair, time, MODEL or set-up has another.

    Two shares under one key of AES-GCM would tell what the two differ in.
    """
    pair = PairSecret(low=1, high=5, _value=bytes(range(32)))
    place = Place(round=1, attempt=0, model=b"m" * 32)
    elsewhere = [
        replace(place, round=2),
        replace(place, attempt=1),
        replace(place, model=b"n" * 32),
    ]
    uses = [(b"t" * 32, place), (b"u" * 32, place), *((b"t" * 32, each) for each in elsewhere)]
    keys = {pair.share_key(*use, 1) for use in uses} | {pair.share_key(*uses[0], 5)}
    assert len(keys) == len(uses) + 1
    masks = {pair.mask_key(*use) for use in uses}
    assert len(masks) == len(uses)
    assert not keys & masks
