"""Units of several records (docs/privacy.md P20), against sums that share nothing with the code."""

from __future__ import annotations

from itertools import pairwise
from math import comb, exp, log, log1p, sqrt
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import logsumexp, ndtr
from scipy.stats import binom

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, dominating_pairs
from hubbub.core.privacy.laws import Removal, Reversed, UnitRemoval
from privacy import oracle

Array = NDArray[np.float64]


def weights(records: int, rate: float) -> list[float]:
    return [comb(records, j) * rate**j * (1 - rate) ** (records - j) for j in range(records + 1)]


def removal(rate: float, shift: float, records: int) -> oracle.Law:
    """The mixture over the number of records, for the Laplace inversion."""
    parts = list(enumerate(weights(records, rate)))

    def nodes(c: float, t: float) -> tuple[Array, Array]:
        x, logw = oracle._panels(-14.0, 14.0 + (1 + c) * records * shift, records * shift, t)
        terms = [w * np.expm1(j * shift * x - (j * shift) ** 2 / 2) for j, w in parts if j]
        loss = np.log1p(np.sum(terms, axis=0))
        return logw + oracle._log_normal(x) + loss, loss

    return oracle.Law(nodes)


# Ganesh 2024's removal direction at q = .008, 1250 steps, delta 1e-5. The values are the
# inversion's, `oracle.epsilon([(removal(0.008, 1 / noise, records), 1250)], 1e-5)`.
VALUES = [
    (1.0, 2, 3.471156),
    (1.0, 3, 5.519408),
    (1.0, 5, 10.080824),
    (2.0, 2, 1.174006),
    (2.0, 3, 1.840393),
    (2.0, 5, 3.272839),
]


@pytest.mark.parametrize(("noise", "records", "truth"), VALUES)
def test_p20_the_bracket_holds_the_inversions_value(
    noise: float, records: int, truth: float
) -> None:
    found = hubbub.epsilon(
        noise_multiplier=noise, sample_rate=0.008, steps=1250, delta=1e-5, records_per_unit=records
    )
    assert found.lower - 1e-6 <= truth <= found.upper + 1e-6
    assert found.upper - found.lower <= 1e-3 * max(1, truth)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "records", "truth"), VALUES)
def test_p20_the_committed_values_are_the_inversions(
    noise: float, records: int, truth: float
) -> None:
    found = oracle.epsilon([(removal(0.008, 1 / noise, records), 1250)], 1e-5)
    assert found.value == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(("rate", "records"), [(0.01, 2), (0.3, 4), (0.9, 3)])
def test_p20_one_step_both_ways_against_direct_integration(
    rate: float, records: int, epsilon: float
) -> None:
    shift, a = 0.8, exp(epsilon)

    def density(x: float, mean: float) -> float:
        return exp(-((x - mean) ** 2) / 2) / sqrt(2 * np.pi)

    def mixed(x: float) -> float:
        return sum(w * density(x, j * shift) for j, w in enumerate(weights(records, rate)))

    def stick(one: object, other: object) -> float:
        f = lambda x: max(one(x) - a * other(x), 0.0)  # type: ignore[operator] # noqa: E731
        return float(quad(f, -12, 16, limit=2000, epsabs=1e-13, points=[0.0, 1.0, 2.0, 4.0])[0])

    truth = max(stick(mixed, lambda x: density(x, 0)), stick(lambda x: density(x, 0), mixed))
    step = hubbub.Step(noise_multiplier=1 / shift, sample_rate=rate, records_per_unit=records)
    found = accountant.Composition([dominating_pairs.release(step, "add-remove")]).delta(epsilon)
    assert found.lower - 1e-11 <= truth <= found.upper + 1e-11


def test_p20_vectors_of_records_never_exceed_the_pair_of_equal_ones() -> None:
    """Two records that point anywhere in the plane; the bound is of them pointing one way."""
    rate, draw = 0.4, np.random.default_rng(3)
    axis = np.linspace(-8, 9, 341)
    x, y = np.meshgrid(axis, axis)
    cell = (axis[1] - axis[0]) ** 2

    def at(centre: Array) -> Array:
        away = (x - centre[0]) ** 2 + (y - centre[1]) ** 2
        return np.asarray(np.exp(-away / 2) / (2 * np.pi))

    def sticks(first: Array, second: Array, a: float) -> tuple[float, float]:
        centres = (np.zeros(2), first, second, first + second)
        chances = ((1 - rate) ** 2, rate * (1 - rate), rate * (1 - rate), rate**2)
        mixed = sum(w * at(c) for w, c in zip(chances, centres, strict=True))
        none = at(np.zeros(2))
        there = np.maximum(mixed - a * none, 0).sum() * cell
        return float(there), float(np.maximum(none - a * mixed, 0).sum() * cell)

    for a in (0.3, 0.8, 1.5, 3.0):
        most = sticks(np.array([1.0, 0]), np.array([1.0, 0]), a)
        for _ in range(5):
            angles, sizes = draw.uniform(0, 2 * np.pi, 2), draw.uniform(0, 1, 2)
            pair = [
                s * np.array([np.cos(t), np.sin(t)]) for s, t in zip(sizes, angles, strict=True)
            ]
            for one, bound in zip(sticks(*pair, a), most, strict=True):
                assert one <= bound + 1e-9


def test_p20_no_mass_is_left_out_that_a_float_holds() -> None:
    edges = Removal(rate=0.02, shift=1.3).loss(np.arange(0.0, 31.0))
    alone = UnitRemoval(rate=0.02, shift=1.3, records=1).masses(edges)
    for found, wanted in zip(alone, Removal(rate=0.02, shift=1.3).masses(edges), strict=True):
        assert found == pytest.approx(wanted, rel=1e-6, abs=0)


def test_p20_of_one_record_is_p1_and_losses_invert() -> None:
    law = UnitRemoval(rate=0.02, shift=1.3, records=6)
    outcomes = np.linspace(-9, 14, 200)
    losses = law.loss(outcomes)
    back = law._outcome(losses)
    assert np.abs(law.loss(back) - losses).max() < 1e-13
    assert losses.min() > 6 * log1p(-0.02)
    alone = UnitRemoval(rate=0.02, shift=1.3, records=1)
    p, q = alone.masses(np.array([-np.inf, 0.1, 2.0, np.inf]))
    edge = (log((exp(0.1) - 0.98) / 0.02) + 1.3**2 / 2) / 1.3
    assert q[0] == pytest.approx(ndtr(edge), rel=1e-12)
    assert p.sum() == pytest.approx(1)


@pytest.mark.parametrize("law", ["unit", "record"])
def test_losses_far_below_zero_invert_as_well(law: str) -> None:
    """A record that is nearly always there, or a unit of which some records are, is missed."""
    unit = UnitRemoval(rate=0.2, shift=0.1, records=1000)
    whole = unit if law == "unit" else Removal(rate=0.999, shift=1.0)
    outcomes = np.linspace(-9.0, -2.5, 30)
    losses = whole.loss(outcomes)
    assert losses[0] < (-100 if law == "unit" else -6)
    np.testing.assert_allclose(whole._outcome(losses), outcomes, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [40.0, 60.0, 75.0])
def test_p20_the_other_direction_of_many_records_against_direct_integration(epsilon: float) -> None:
    """Losses of which e^-loss is below what a float tells from nothing beside 1."""
    rate, shift, records = 0.2, 0.1, 1000
    means = shift * np.arange(records + 1)
    chances = binom.logpmf(np.arange(records + 1), records, rate)

    def stick(x: float) -> float:
        absent = -(x**2) / 2 - log(2 * np.pi) / 2
        present = logsumexp(chances - (x - means) ** 2 / 2) - log(2 * np.pi) / 2
        return max(exp(absent) - exp(epsilon + present), 0.0)

    truth = quad(stick, -12.0, 6.0, limit=2000, epsabs=1e-14, points=[-3.0, -1.0, 0.0, 1.0])[0]
    law = Reversed(law=UnitRemoval(rate=rate, shift=shift, records=records))
    release = dominating_pairs.Release(laws=(law,), count=1)
    bound = accountant.Composition([release]).delta(epsilon)
    assert bound.lower - 1e-11 <= truth <= bound.upper + 1e-11
    assert truth > 1e-6


@pytest.mark.parametrize("noise", [1.0, 5.0])
def test_epsilons_past_all_floats_are_refused_after_the_first_look(noise: float) -> None:
    asked = {"noise_multiplier": noise, "sample_rate": 0.2, "steps": 1000, "delta": 1e-5}
    calls = []
    masses = UnitRemoval.masses
    with (
        patch.object(UnitRemoval, "masses", lambda *one: calls.append(1) or masses(*one)),
        pytest.raises(StudyError, match="a float can hold"),
    ):
        hubbub.epsilon(**asked, records_per_unit=1000)
    assert len(calls) <= 3


def test_more_records_cost_more_and_a_unit_of_one_costs_what_a_record_does() -> None:
    asked = {"noise_multiplier": 1.5, "sample_rate": 0.02, "steps": 100, "delta": 1e-6}
    found = [hubbub.epsilon(**asked, records_per_unit=k) for k in (1, 2, 4, 8)]
    assert found[0] == hubbub.epsilon(**asked)
    assert all(a.upper < b.lower for a, b in pairwise(found))


def test_p20_a_unit_that_is_added_is_composed_beside_one_that_is_removed() -> None:
    step = dominating_pairs.Step(noise_multiplier=2.0, sample_rate=0.1, count=7, records_per_unit=3)
    law = UnitRemoval(rate=0.1, shift=0.5, records=3)
    made = dominating_pairs.Release(laws=(law, Reversed(law=law)), count=7)
    assert dominating_pairs.release(step, "add-remove") == made


def test_what_has_no_account_of_units_is_refused() -> None:
    asked = {"noise_multiplier": 1.5, "sample_rate": 0.02, "steps": 100, "delta": 1e-6}
    for more in ({"relation": "substitute"}, {"sampling": "without-replacement"}):
        with pytest.raises(StudyError, match="records_per_unit"):
            hubbub.epsilon(**asked, **more, records_per_unit=2)
    for wrong in (0, 1.5, True, 1001):
        with pytest.raises(StudyError, match="records_per_unit"):
            hubbub.epsilon(**asked, records_per_unit=wrong)


def test_unsampled_units_are_gaussian_steps_of_all_their_records() -> None:
    both = [
        hubbub.epsilon(noise_multiplier=noise, steps=9, delta=1e-6, sampling="full-batch", **more)
        for noise, more in ((6.0, {"records_per_unit": 3}), (2.0, {}))
    ]
    assert both[0].upper == pytest.approx(both[1].upper, rel=1e-9)
