"""`hubbub.secure_sum` is exact or refuses; `hubbub.private_sum` adds the noise that it claims.

Sums run through the whole protocol, with the operating system's randomness: the statistical tests
have a false-alarm rate of 1e-9 per comparison, and reject scales of 2/3 and 3/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

import hubbub
from hubbub.core.errors import HubbubError, StudyError
from hubbub.core.planning.query import GivenSum
from hubbub.core.protocol.agreement import masks as mask_graph
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Frame
from hubbub.core.protocol.round.masking import Attempt
from hubbub.core.protocol.round.noise_share import noise_share_of
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Silo
from hubbub.core.session import in_process, secure_sums
from hubbub.core.session.in_process import federate
from hubbub.core.session.offer import Layout, round_parameters_of
from hubbub.core.session.party import SiloParty
from protocol.parties import world

FALSE_ALARM = 1e-9
DEVIATIONS = float(norm.isf(FALSE_ALARM / 2))
WRONG_SCALES = [2 / 3, 3 / 2]
WORDS = pytest.mark.parametrize("word_bits", ring.WORD_BITS)
# A hundred silos with pairwise masks take a second, so they are summed apart.
PARTIES = [(n, m) for n in (2, 3, 4, 10, 100) for m in (0, 1, 3) if (n, m) != (100, 0)]


def integers(silos: int, word_bits: int, length: int = 7) -> list[NDArray[np.int64]]:
    """Vectors over the whole range that still fits as a sum."""
    reach = ring.largest_integer(word_bits) // silos
    draw = np.random.default_rng(silos * word_bits)
    return [draw.integers(-reach, reach, length, endpoint=True) for _ in range(silos)]


def plain_sum(vectors: list[NDArray[np.int64]]) -> list[int]:
    """The sum in Python's integers, which cannot wrap."""
    return [sum(int(value) for value in column) for column in zip(*vectors, strict=True)]


# Exact -------------------------------------------------------------------------------------------


@pytest.mark.quick_cases("2-0-32", "2-0-64", "2-1-16", "2-1-32")
@pytest.mark.slow_cases(
    "2-0-16",
    "2-1-64",
    "2-3-64",
    "3-0-64",
    "3-1-16",
    "3-3-16",
    "10-0-16",
    "10-1-64",
    "10-3-64",
    "100-1-16",
    "100-1-64",
    "100-3-16",
    "100-3-32",
)
@WORDS
@pytest.mark.parametrize(("silos", "nodes"), PARTIES)
def test_the_secure_sum_is_the_plain_sum(silos, nodes, word_bits):
    vectors = integers(silos, word_bits)
    total = hubbub.secure_sum(vectors, compute_nodes=nodes, word_bits=word_bits)
    assert total.dtype == np.int64
    assert total.tolist() == plain_sum(vectors)


@pytest.mark.parametrize("silos", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_the_secure_sum_of_many_silos_with_pairwise_masks_is_the_plain_sum(silos):
    vectors = integers(silos, 16, length=2)
    assert hubbub.secure_sum(vectors, word_bits=16).tolist() == plain_sum(vectors)


@pytest.mark.parametrize(
    ("silos", "options", "degree"),
    [
        (16, {}, 15),  # everybody with everybody
        (40, {}, 18),  # 16 colluders and the one that looks on
        (40, {"colluders": 1}, 4),
        (40, {"colluders": 38}, 39),
        (300, {}, 18),  # a tenth
    ],
)
def test_the_masks_of_a_secure_sum_keep_p4s_promise_against_its_colluders(
    monkeypatch, silos, options, degree
):
    layouts = []
    monkeypatch.setattr(
        in_process, "federate", lambda layout, *_given, **_more: layouts.append(layout)
    )
    with pytest.raises(AttributeError):  # nothing was set up
        hubbub.secure_sum([[1]] * silos, **options)
    assert layouts[0].degree == degree
    colluders = options.get("colluders", max(16, silos // 10))
    if degree < silos - 1:
        assert mask_graph.failure_bits(silos, colluders + 1, 0, degree) >= 50
        assert mask_graph.failure_bits(silos, colluders + 1, 0, degree - 2) < 50


@given(
    st.lists(st.lists(st.integers(-(2**61), 2**61), min_size=3, max_size=3), min_size=2, max_size=4)
)
@settings(max_examples=15, deadline=None)
def test_any_integers_that_fit_are_summed_exactly(vectors):
    total = hubbub.secure_sum(vectors, compute_nodes=1)
    assert total.tolist() == [sum(column) for column in zip(*vectors, strict=True)]


@WORDS
def test_only_the_sum_has_to_fit_the_word_not_the_vectors(word_bits):
    far = min(3 * ring.largest_integer(word_bits), 2**63 - 1)
    assert hubbub.secure_sum([[far], [-far], [7]], word_bits=word_bits).tolist() == [7]


@WORDS
@pytest.mark.parametrize("nodes", [0, 3])
def test_the_largest_and_least_sums_fit_and_one_more_is_refused(word_bits, nodes):
    most = ring.largest_integer(word_bits)
    options = {"compute_nodes": nodes, "word_bits": word_bits}
    assert hubbub.secure_sum([[most - 1], [1]], **options).tolist() == [most]
    assert hubbub.secure_sum([[-most], [-1]], **options).tolist() == [-most - 1]
    for wrapped in ([[most], [1]], [[-most], [-2]], [[0, most], [0, most]], [[-most], [-most]]):
        with pytest.raises(StudyError, match=f"{word_bits}-bit words.*more word_bits"):
            hubbub.secure_sum(wrapped, **options)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u4", "i8", "u8"])
def test_every_integer_type_is_summed_without_wrapping_in_its_own(kind):
    vectors = [np.array([100, 127], dtype=kind)] * 3
    assert hubbub.secure_sum(vectors, compute_nodes=1).tolist() == [300, 381]


def test_the_vectors_are_left_as_they_were():
    vectors = integers(3, 64)
    before = [vector.copy() for vector in vectors]
    hubbub.secure_sum(vectors)
    assert all((now == then).all() for now, then in zip(vectors, before, strict=True))


@pytest.mark.quick_cases("0-16", "0-32", "0-64", "1-32")
@WORDS
@pytest.mark.parametrize("masks", [0, 1, 2, 70])
def test_threads_add_the_same_masks_at_every_length_about_where_they_begin(word_bits, masks):
    keys = [(bytes([number]) * 16, bool(number % 3)) for number in range(masks)]
    begins = (1 << 19) // (word_bits // 8)
    for length in (0, 1, begins - 1, begins, begins + 1, begins + 4099):
        expected = ring.zeros(length, word_bits)
        MaskStream(1).add_all(expected, keys)
        for threads in (2, 3, 7):
            vector = ring.zeros(length, word_bits)
            MaskStream(threads).add_all(vector, keys)
            assert (vector == expected).all()
        assert bool(expected.any()) == (masks > 0 and length > 0)


@pytest.mark.quick_cases("0-1-64", "0-2-64", "0-1-16", "0-1-32")
@WORDS
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("nodes", [0, 2])
def test_threads_change_no_bit_of_a_round(word_bits, threads, nodes):
    # Long enough for threads to be used, and no multiple of anything.
    length = (1 << 19) // (word_bits // 8) + 4099
    vectors = integers(3, word_bits, length)
    layout = Layout(names=("a", "b", "c"), nodes=nodes, degree=2)
    round_parameters = RoundParameters(
        dimension=length,
        parameters=0,
        silos=3,
        quorum=3,
        steps=1,
        word_bits=word_bits,
        grid_step=1.0,
        sigma_grid=0.0,
        sample_rate=1.0,
        nodes=nodes,
    )

    tasks = [GivenSum(vector) for vector in vectors]
    parties = federate(layout, round_parameters, tasks, study=bytes(32))
    for one in parties.peers.parties.values():
        if isinstance(one, SiloParty):  # nodes stay on one thread: the streams must agree
            one.silo._masking._mask_stream = MaskStream(threads)
    model, seen = np.zeros(0, dtype=np.float32), []
    receive = parties.rounds.aggregator.receive

    def received(message: bytes, shares: Sequence[Frame] = ()) -> bytes:
        short = receive(message, shares)
        seen.append(ring.to_integers(parties.rounds.aggregator.attempt.total.copy()))
        return short

    parties.rounds.aggregator.receive = received
    assert np.array_equal(parties.sum(1, model), np.sum(vectors, axis=0))
    for index in (1, 2):
        assert not np.array_equal(seen[index - 1], sum(vectors[:index]))


# Refusals ----------------------------------------------------------------------------------------


def refused_in_one_sentence(function, *arguments, **options) -> str:
    """The message of the refusal, which must say what to do and show no traceback of others."""
    with pytest.raises(HubbubError) as refusal:
        function(*arguments, **options)
    message = str(refusal.value)
    assert message.startswith("expected ")
    assert "\n" not in message
    assert ". " not in message
    assert ";" in message  # what to do
    return message


NOT_INTEGERS = [
    [[1.5], [2]],
    [[1.0], [2.0]],
    [[np.nan], [1.0]],
    [["a"], ["b"]],
    [[True], [False]],
    [[1j], [2]],
    [[2**63], [1]],
    [[2**64], [1]],
    [[None], [None]],
]
NOT_VECTORS = [[], [[1]], [1, 2], [[1], [2, 3]], [[[1, 2]], [[1, 2]]], [[], []], "ab", {}]
NOT_ARRAYS = [None, 5, [[[1], [2, 3]], [1]], [torch.ones(2, requires_grad=True)] * 3]


@pytest.mark.parametrize("vectors", [*NOT_INTEGERS, *NOT_VECTORS, *NOT_ARRAYS], ids=repr)
def test_what_is_no_vector_of_integers_is_refused(vectors):
    refused_in_one_sentence(hubbub.secure_sum, vectors)


@pytest.mark.parametrize(
    "options",
    [
        {"word_bits": 8},
        {"word_bits": "32"},
        {"word_bits": None},
        {"word_bits": 32.0},
        {"word_bits": [32]},
        {"compute_nodes": -1},
        {"compute_nodes": 1.5},
        {"compute_nodes": True},
        {"compute_nodes": "3"},
        {"compute_nodes": 10**6},
        {"colluders": 2},
        {"colluders": -1},
        {"colluders": 1.0},
    ],
    ids=repr,
)
def test_options_out_of_range_are_refused_by_name(options):
    message = refused_in_one_sentence(hubbub.secure_sum, [[1], [2], [3]], **options)
    assert next(iter(options)) in message


FOUR = [[1.0, 2.0]] * 4
ASKED = {"sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize(
    "vectors",
    [
        [],
        [[1.0]],
        [1.0, 2.0],
        [[1.0], [2.0, 3.0]],
        [[], []],
        [[np.nan], [1.0]],
        [[np.inf], [1.0]],
        [[1.0], [-np.inf]],
        [[1e300], [1.0], [1.0]],
        [[1e9], [1.0], [1.0]],
        [[np.longdouble("1e400")], [1.0]],
        *NOT_ARRAYS,
        [["a"], ["b"]],
        [[1j], [2.0]],
        [np.array([1j]), np.array([2.0])],
        [["1"], ["2"]],
    ],
    ids=repr,
)
def test_what_is_no_vector_of_real_numbers_is_refused_before_any_noise(vectors):
    message = refused_in_one_sentence(hubbub.private_sum, vectors, **ASKED)
    assert "nan" not in message
    assert "1e+300" not in message


@pytest.mark.parametrize(
    "options",
    [
        # Lengths past these over- or underflow, which once let vectors of any length through.
        *({"sensitivity": bad} for bad in (0, -1.0, np.nan, np.inf, "1", True, 9e-31, 2e30)),
        *({"epsilon": bad} for bad in (0, -1.0, 51, np.nan, np.inf, "1")),
        *({"delta": bad} for bad in (0, 1, 0.5, np.nan, -1e-5)),
        *({"colluders": bad} for bad in (3, 4, -1, 1.5, "1")),
        *({"compute_nodes": bad} for bad in (-1, 1.5, "1")),
        *({"relation": bad} for bad in ("", "replace", None)),
    ],
    ids=repr,
)
def test_settings_without_a_guarantee_are_refused_by_name(options):
    message = refused_in_one_sentence(hubbub.private_sum, FOUR, **(ASKED | options))
    assert next(iter(options)) in message


@pytest.mark.parametrize(
    "options",
    [
        *({"sensitivity": one} for one in (np.float32(1), 1e30)),
        {"epsilon": np.float64(1)},
        {"epsilon": np.float32(1), "delta": np.float32(1e-5)},
        {"epsilon": Fraction(1)},
        {"colluders": np.int64(1), "compute_nodes": np.int64(2)},
    ],
    ids=repr,
)
def test_numpys_own_numbers_are_numbers(options):
    hubbub.private_sum(FOUR, **(ASKED | options))


def test_p6_a_private_sum_pays_for_the_rounding_of_the_vectors_and_takes_no_longer_ones(
    monkeypatch,
):
    planned = []

    def seen(query):
        planned.append(query)
        return round_parameters_of(query)

    monkeypatch.setattr(secure_sums, "round_parameters_of", seen)
    # So little noise that a word of 32 bits is taken, whose sums may be long.
    little, long = ASKED | {"epsilon": 30.0}, np.full(5000, 2.0**24)
    made = hubbub.private_sum([0.5 * long, 0 * long, 0 * long], **little)
    assert made.epsilon <= 30
    # Two neighbours' vectors, each rounded as a float64 and in steps of the grid.
    error = 4 * 2.0**-53 * (2.0**30 + 1)
    assert planned[0].mechanism.clip >= little["sensitivity"] * (1 + error)
    for unit in (1.0, 1e-30, 1e30):
        with pytest.raises(StudyError, match="vectors no longer than"):
            hubbub.private_sum([unit * long, 0 * long, 0 * long], **little | {"sensitivity": unit})


def test_numpys_own_number_of_nodes_gives_the_same_sum():
    assert hubbub.secure_sum([[1], [2], [3]], compute_nodes=np.int64(2)).tolist() == [6]


@pytest.mark.parametrize("summed", [hubbub.secure_sum, partial(hubbub.private_sum, **ASKED)])
def test_numbers_that_a_mask_hides_are_not_summed_all_the_same(summed):
    hidden = np.ma.masked_array([1, 99], mask=[False, True])
    assert "masked array" in refused_in_one_sentence(summed, [hidden, hidden, [1, 1]])


# Noise and its guarantee -------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize(("silos", "colluders", "nodes"), [(2, 0, 0), (4, 1, 0), (5, 3, 2)])
@pytest.mark.parametrize("sensitivity", [1.0, 250.0])
def test_p3_the_noise_is_that_of_all_silos_and_centred_on_the_sum(
    silos, colluders, nodes, sensitivity, relation
):
    vectors = [sensitivity * np.sin(np.arange(20_000.0) + silo) for silo in range(silos)]
    made = hubbub.private_sum(
        vectors,
        sensitivity=sensitivity,
        epsilon=2.0,
        delta=1e-6,
        colluders=colluders,
        compute_nodes=nodes,
        relation=relation,
    )
    # What the stated adversary faces, and the shares of those that it knows.
    known = colluders + 1
    sigma = made.noise_multiplier * sensitivity * sqrt(silos / (silos - known))
    noise = made.value - np.sum(vectors, axis=0)
    assert abs(noise.mean()) <= DEVIATIONS * sigma / sqrt(noise.size)
    assert fits_sigma(noise, sigma)
    for scale in WRONG_SCALES:
        assert not fits_sigma(noise, scale * sigma)


def fits_sigma(noise: NDArray[np.float64], sigma: float) -> bool:
    """Whether the variance is sigma^2, give or take the rounding's share of at most 1 in 190."""
    off = float(np.square(noise).mean()) / sigma**2 - 1
    allowed = DEVIATIONS * sqrt(2 / noise.size)
    return bool(-allowed <= off <= allowed + 1 / (12 * 4**2))


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-9)])
def test_the_guarantee_is_that_of_the_accountant_and_at_most_what_was_asked(
    epsilon, delta, relation
):
    made = hubbub.private_sum(
        FOUR, sensitivity=2.0, epsilon=epsilon, delta=delta, colluders=1, relation=relation
    )
    bound = hubbub.epsilon(
        noise_multiplier=made.noise_multiplier,
        sample_rate=1.0,
        steps=1,
        delta=delta,
        relation=relation,
        sampling="full-batch",
    )
    assert made.delta == delta
    assert made.epsilon <= epsilon
    assert made.epsilon >= bound.lower  # never less than the mechanism itself
    assert made.epsilon == pytest.approx(bound.upper, rel=2e-3)
    assert made.epsilon == pytest.approx(epsilon, rel=5e-3)  # and no noise is wasted


def test_every_adversary_is_listed_and_those_who_know_less_learn_less():
    made = hubbub.private_sum([[1.0]] * 6, **ASKED, colluders=2)
    stated = next(one for one in made.exposures if one.adversary == "aggregator + 2 silos")
    assert (stated.epsilon, stated.noise_multiplier) == (made.epsilon, made.noise_multiplier)
    by_knowledge = sorted(made.exposures, key=lambda one: one.known_shares)
    epsilons = [one.epsilon for one in by_knowledge]
    assert epsilons == sorted(epsilons)
    assert epsilons[0] < made.epsilon < epsilons[-1]


def test_two_private_sums_of_the_same_vectors_do_not_share_noise():
    first, second = (hubbub.private_sum([[0.0] * 4000] * 3, **ASKED).value for _ in range(2))
    assert abs(np.corrcoef(first, second)[0, 1]) <= DEVIATIONS / sqrt(first.size)


def test_one_masked_vector_lies_at_the_aggregator_while_the_next_is_made(monkeypatch):
    held: list[list[bytes]] = []
    most: list[int] = []
    contribute = Silo.contribute

    def watched(self):
        most.append(sum(len(one) for answer in held for one in answer))
        return contribute(self)

    answer = SiloParty._answer

    def kept(self):
        made = answer(self)
        held.append(made)
        return made

    monkeypatch.setattr(Silo, "contribute", watched)
    monkeypatch.setattr(SiloParty, "_answer", kept)
    hubbub.secure_sum(integers(6, 32))
    assert most == [0] * 6


def test_whole_numbers_of_64_bits_become_residues_where_they_lie() -> None:
    """A copy of them would lie beside each frame of a silo."""
    numbers = replace(world(2, 0).round_parameters, word_bits=64, sigma_grid=0.0)
    attempt = Attempt(round=1, attempt=0, model=bytes(32), active=frozenset({1, 2}), parameters=[])
    total = np.array([5, -1, 0])
    residues = noise_share_of(numbers).added(total, attempt, SecureSource())
    assert np.shares_memory(residues, total)
    assert residues.tolist() == [5, 2**64 - 1, 0]


def test_p3_whole_numbers_get_their_silos_noise_where_the_plan_asks_for_some() -> None:
    numbers = replace(world(2, 0).round_parameters, word_bits=64, sigma_grid=1000.0)
    attempt = Attempt(round=1, attempt=0, model=bytes(32), active=frozenset({1, 2}), parameters=[])
    share = noise_share_of(numbers).added(np.zeros(99, np.int64), attempt, SecureSource())
    assert np.abs(ring.to_integers(share)).min() < 1000 < np.abs(ring.to_integers(share)).max()


def test_p23_half_of_a_diameter_is_what_a_record_may_be_long() -> None:
    assert secure_sums._half(1.0, 2.0, "substitute") == 0.5
