"""Full random shares: exact, uniform, sealed, and refused wherever somebody cheats."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pytest
from scipy.stats import chi2

from hubbub.protocol.primitives.randomness import SecureSource
from hubbub.protocol.primitives.wire import Tag
from hubbub.protocol.round import Aggregator, ComputeNode, Masking, RoundParameters
from hubbub.protocol.round.additive_shares import divided, sealed_shares
from protocol.parties import DIMENSION, World, flipped, refused, sessions_of, world


class Sharing(World):
    @cached_property
    def terms(self) -> RoundParameters:
        return replace(World.terms.func(self), full_shares=True)


_BASE = world(nodes=2)
FULL = Sharing(layout=_BASE.layout, keys=_BASE.keys, quorum=3)
ALL = (1, 2, 3, 4)
NO_MODEL = np.zeros(2, dtype=np.float32)


def silo(index: int) -> Masking:
    return FULL.masking(sessions_of(FULL)[index])


def node(index: int = 5) -> ComputeNode:
    return FULL.node(sessions_of(FULL)[index])


def answered(
    aggregator: Aggregator, model: bytes, silos: tuple[int, ...] = ALL
) -> dict[int, dict[int, bytes]]:
    """Every silo answers with 10^index; by silo, its shares by node."""
    shares = {}
    for index in silos:
        one = silo(index)
        attempt = one.accept(model)
        aggregator.receive(one.masked(attempt, np.full(DIMENSION, 10**index, dtype=np.uint32)))
        shares[index] = one.shares()
    return shares


def opened(number: int = 1) -> tuple[Aggregator, bytes]:
    aggregator = FULL.aggregator()
    return aggregator, aggregator.begin(number, 0, ALL, NO_MODEL)


@pytest.mark.parametrize("silos", [ALL, (1, 3, 4)])
def test_the_sum_is_exact_with_and_without_a_silo(silos: tuple[int, ...]) -> None:
    aggregator, model = opened()
    nodes = {5: node(5), 6: node(6)}
    for shares in answered(aggregator, model, silos).values():
        for index, share in shares.items():
            nodes[index].keep(share)
    for index, request in aggregator.requests().items():
        aggregator.receive(nodes[index].total(request))
    assert aggregator.integers().tolist() == [sum(10**k for k in silos)] * DIMENSION


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


def test_a_share_that_was_not_sealed_for_the_node_names_its_silo() -> None:
    sealed = bytes(4 * DIMENSION + 16)
    with refused(FULL.roster.name(3), "sealed for me"):
        node(5).keep(FULL.forge(3, Tag.SHARE, sealed, round=1, receiver=5))
    with refused(FULL.roster.name(3), "bytes"):
        node(5).keep(FULL.forge(3, Tag.SHARE, sealed[:-1], round=1, receiver=5))


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


def test_a_node_adds_exactly_the_shares_that_the_request_names() -> None:
    aggregator, model = opened()
    shares = answered(aggregator, model)
    one = node(5)
    for index in (1, 2, 3):
        one.keep(shares[index][5])
    with refused("relay", "shares of the 4 silos"):
        one.total(FULL.request(5, ALL))
    # Nothing was given away, so the right request is still answered.
    one.total(FULL.request(5, (1, 2, 3)))


def test_a_silo_whose_answer_was_lost_stops_nobody() -> None:
    """Its shares arrived at the nodes, its MASKED did not: the others' sum is taken."""
    aggregator, model = opened()
    nodes = {5: node(5), 6: node(6)}
    late = silo(2)
    late.masked(late.accept(model), np.full(DIMENSION, 7, dtype=np.uint32))
    for shares in [late.shares(), *answered(aggregator, model, (1, 3, 4)).values()]:
        for index, share in shares.items():
            nodes[index].keep(share)
    for index, request in aggregator.requests().items():
        aggregator.receive(nodes[index].total(request))
    assert aggregator.integers().tolist() == [11010] * DIMENSION


def test_a_share_for_a_far_attempt_holds_nobody_up() -> None:
    aggregator, model = opened()
    shares = answered(aggregator, model)
    one = node(5)
    sealed = sealed_for(5, silo=4, round=9, attempt=2**32 - 1)
    one.keep(FULL.forge(4, Tag.SHARE, sealed, round=9, attempt=2**32 - 1, receiver=5))
    for index in (1, 2, 3):
        one.keep(shares[index][5])
    one.total(FULL.request(5, (1, 2, 3)))


def sealed_for(node: int, *, silo: int, round: int, attempt: int) -> bytes:
    """A share that a silo truly sealed, for whatever attempt."""
    residues = np.zeros(DIMENSION, dtype=np.uint32)
    session = sessions_of(FULL)[silo]
    return sealed_shares(residues, session, round, attempt, SecureSource())[node]


def test_a_node_answers_an_attempt_once_and_never_for_few() -> None:
    aggregator, model = opened()
    one = node(5)
    for shares in answered(aggregator, model).values():
        one.keep(shares[5])
    with refused("aggregator", "at least 3"):
        one.total(FULL.forge(0, Tag.REQUEST, FULL.terms.bitmap((1, 2)), round=1, receiver=5))
    request = aggregator.requests()[5]
    one.total(request)
    with refused("relay", "never used twice"):
        one.total(request)
    with refused("relay", "not answered yet"):
        one.keep(shares[5])


def test_a_silos_late_share_is_put_aside_by_its_next() -> None:
    aggregator, model = opened()
    early = answered(aggregator, model)
    later = answered(aggregator, aggregator.begin(1, 1, ALL, NO_MODEL))
    one = node(5)
    one.keep(early[1][5])
    for shares in later.values():
        one.keep(shares[5])
    with refused("relay", "newest attempt"):
        one.keep(early[1][5])
    one.total(aggregator.requests()[5])


def test_compressed_rounds_take_no_shares() -> None:
    plain = world(nodes=2)
    sealed = bytes(4 * DIMENSION + 16)
    with refused(plain.roster.name(1), "from this party"):
        plain.node(sessions_of(plain)[5]).keep(
            plain.forge(1, Tag.SHARE, sealed, round=1, receiver=5)
        )
