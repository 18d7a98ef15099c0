"""P24: what a budget leaves, against quadrature, and against the best adaptive analyst there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, log, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.dominating_pairs import Release, Step, release
from hubbub.core.privacy.remaining_budget import (
    RemainingBudget,
    StudyLaw,
    _Convex,
    first_remaining_budget,
    gaussian_deltas,
    kept_for_certificates,
    least_epsilon,
    remaining,
)

Array = NDArray[np.float64]
DELTA = 1e-5


def gaussian_delta(shift: float, epsilon: Array) -> Array:
    """Balle and Wang's formula, on its own."""
    first = norm.sf(epsilon / shift - shift / 2)
    return np.asarray(first - np.exp(epsilon) * norm.sf(epsilon / shift + shift / 2))


def test_p24_a_chord_above_the_tangents_between_two_thresholds_is_no_room():
    """Both curves are 1 at both thresholds; the larger bound may dip between them, to a half."""
    room = _Convex(np.ones(2), np.array([-1.0, 1.0]))
    assert not room.is_above(np.ones(2), np.ones(1))
    assert room.is_above(np.full(2, 0.49), np.ones(1))


@dataclass(frozen=True)
class Outcomes:
    """A pair of laws on finitely many outcomes: losses and P-masses, by quadrature."""

    losses: Array
    masses: Array

    def and_then(self, curve: Callable[[Array], Array], epsilon: Array) -> Array:
        """H at e^epsilon of this and of what has that curve, for every later threshold."""
        return np.asarray(curve(epsilon[:, None] - self.losses) @ self.masses)


def outcomes(rate: float, shift: float, *, added: bool = False) -> Outcomes:
    """One Poisson step, removal or addition, in 4001 outcomes; it knows no hubbub."""
    x = np.linspace(-10.0, 10.0 + shift, 4001)
    plain, moved = norm.pdf(x), norm.pdf(x - shift)
    mixed = (1 - rate) * plain + rate * moved
    p, q = (plain, mixed) if added else (mixed, plain)
    return Outcomes(losses=np.log(p / q), masses=p * (x[1] - x[0]))


def poisson(rate: float, shift: float, count: int = 1) -> Release:
    """So many steps."""
    return release(Step(noise_multiplier=1 / shift, sample_rate=rate, count=count), "add-remove")


def full(shift: float) -> Release:
    """A Gaussian step of this shift."""
    return release(Step(noise_multiplier=1 / shift, sampling="full-batch"), "add-remove")


def law(*releases: Release) -> StudyLaw:
    return StudyLaw.of(releases, DELTA)


CASES = [(0.05, 1.0, 1.5), (0.01, 2.0, 2.0), (0.5, 0.3, 0.5), (1e-3, 1.4, 1.0), (0.2, 0.7, 3.0)]


@pytest.mark.slow_cases("0.001-1.4-1.0", "0.01-2.0-2.0", "0.2-0.7-3.0")
@pytest.mark.parametrize(("rate", "shift", "budget"), CASES)
def test_p24_a_study_and_what_it_leaves_come_to_no_more_than_what_there_was(rate, shift, budget):
    """At every threshold, below 1 too, for removal and addition, by quadrature."""
    before = RemainingBudget(shift=budget, delta=1e-6)
    after = before.after(law(poisson(rate, shift)))
    assert after is not None
    levels = np.linspace(-6.0, 25.0, 200)
    allowed = before.delta - after.delta + gaussian_delta(budget, levels)
    tightest = 0.0
    for added in (False, True):
        one = outcomes(rate, shift, added=added)
        both = one.and_then(lambda e: gaussian_delta(after.shift, e), levels)
        assert np.all(both <= allowed + 1e-12)
        more = one.and_then(lambda e: gaussian_delta(1.02 * after.shift, e), levels)
        tightest = max(tightest, float(np.max(more / allowed)))
    assert tightest > 1  # nor is it far below: 2 % more would be too much somewhere


def test_p24_two_different_steps_of_a_study_by_quadrature():
    before = RemainingBudget(shift=1.5, delta=1e-6)
    after = before.after(law(poisson(0.05, 1.0), poisson(0.2, 0.4), full(0.5)))
    assert after is not None
    levels = np.linspace(-4.0, 20.0, 40)
    fine, shift = np.linspace(-30.0, 40.0, 3000), sqrt(after.shift**2 + 0.25)
    allowed = before.delta - after.delta + gaussian_delta(1.5, levels)
    for added in (False, True):
        one, two = outcomes(0.05, 1.0, added=added), thinned(outcomes(0.2, 0.4, added=added))
        last = two.and_then(lambda e: gaussian_delta(shift, e), fine)
        both = one.and_then(partial(np.interp, xp=fine, fp=last), levels)
        # Joining a convex curve's points by straight lines moves it up by less than 1e-4 of it.
        assert np.all(both <= (1 + 1e-4) * allowed)


def test_p24_the_law_of_a_study_has_both_directions():
    """Below threshold 1 addition is the dearer one."""
    levels = np.array([-0.04, -0.02])
    removed, added = (
        outcomes(0.05, 1.0, added=one).and_then(stopped, levels) for one in (False, True)
    )
    found = law(poisson(0.05, 1.0)).deltas(0.0, levels)
    assert np.all(1.01 * removed < added)
    assert np.all(added <= found + 1e-12)


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize(("noise", "rate", "count"), [(1.0, 0.008, 1250), (0.7, 0.001, 1000)])
def test_p24_the_law_of_a_whole_study_is_certified_and_close(noise, rate, count, relation):
    step = Step(noise_multiplier=noise, sample_rate=rate, count=count)
    whole = release(step, relation)
    study, later = StudyLaw.of([whole], DELTA), 0.6
    for epsilon in (0.1, 2.0):
        beside = release(Step(noise_multiplier=1 / later, sampling="full-batch"), "add-remove")
        exact = Composition([whole, beside]).delta(epsilon)
        if exact.upper > 1e-8:
            found = float(study.deltas(later, np.array([epsilon]))[0])
            assert exact.lower <= found <= 1.05 * exact.upper


def test_p24_gaussian_studies_cost_nothing_for_being_chosen_late():
    before = RemainingBudget(shift=1.3, delta=1e-7)
    after = before.after(law(full(1.2)))
    assert after is not None
    assert (after.shift, after.delta) == (pytest.approx(0.5), 1e-7)
    assert after.after(law(full(0.6))) is None
    assert after.after(law(full(1e-3), full(0.4999))) is not None


def test_p24_at_first_only_one_point_of_the_curve_has_to_be_kept():
    study = law(poisson(0.05, 0.5, 300))
    for epsilon in (2.8, 4.0, 8.0):
        left = first_remaining_budget(study, epsilon, DELTA)
        assert left is not None
        kept = kept_for_certificates(epsilon, DELTA)
        beside = [full(left.shift)] if left.shift > 0 else []
        spent = Composition([poisson(0.05, 0.5, 300), *beside]).delta(epsilon - kept.epsilon)
        whole = kept.delta_factor * (spent.upper + left.delta) + kept.failure
        assert 0.9 * DELTA <= whole <= DELTA
    assert first_remaining_budget(study, 0.5, DELTA) is None


@pytest.mark.slow_cases("4.0-0.2-60-1.03", "1.0-0.008-1250-1.045")
@pytest.mark.parametrize(
    ("noise", "rate", "count", "price"),
    [(1.0, 0.008, 1250, 1.045), (2.0, 0.008, 1250, 1.03), (4.0, 0.2, 60, 1.03)],
)
def test_p24_the_price_of_four_studies_chosen_one_after_the_other(noise, rate, count, price):
    """Beside the fixed composition of all four: a few parts in a hundred."""
    fixed = Composition([poisson(rate, 1 / noise, 4 * count)]).epsilon(DELTA).upper
    studies = [law(poisson(rate, 1 / noise, count))] * 4
    assert remaining(studies, price * fixed, DELTA) is not None
    assert remaining(studies, 1.005 * fixed, DELTA) is None


def test_p24_no_room_is_left_where_there_may_be_none_between_two_thresholds(monkeypatch):
    study, budget = law(poisson(0.01, 0.5)), RemainingBudget(shift=1.0, delta=1e-6)
    assert budget.after(study) is not None
    monkeypatch.setattr(_Convex, "is_above", lambda *_: False)
    assert budget.after(study) is None


def test_p24_no_cap_is_large_enough_for_a_study_past_all_of_them():
    assert least_epsilon((law(full(30.0)),), DELTA, least=40.0) == float("inf")


def test_p24_the_least_cap_is_found():
    studies = [law(poisson(0.2, 0.25, 60)), law(full(0.2))]
    needed = least_epsilon(tuple(studies), DELTA, least=1.0)
    assert remaining(studies, needed, DELTA) is not None
    assert remaining(studies, 0.995 * needed, DELTA) is None


# The best analyst -----------------------------------------------------------------------------

GRID = np.linspace(-40.0, 60.0, 20001)
SAMPLED = [(1e-5, 6.0), (1e-3, 3.0), (0.05, 1.0), (0.3, 0.4)]


def stopped(epsilon: Array) -> Array:
    """Delta of no study at all."""
    return np.asarray(-np.expm1(np.minimum(epsilon, 0.0)))


def joined(values: Array) -> Callable[[Array], Array]:
    """The curve through the grid; 0 is right of it, and 1 left."""
    return lambda e: np.interp(e, GRID, values, left=1.0, right=0.0)


def followed(first: Outcomes, then: Array) -> Array:
    """The curve of an outcome and whatever follows it, on the grid."""
    curve = joined(then)
    return sum(
        mass * curve(GRID - loss) for loss, mass in zip(first.losses, first.masses, strict=True)
    )


def thinned(one: Outcomes) -> Outcomes:
    """In 400 outcomes."""
    return Outcomes(losses=one.losses[::10], masses=10 * one.masses[::10])


def best(left: RemainingBudget, rounds: int, *, added: bool) -> Array:
    """The most that an analyst gets who picks what fits in view of all outputs, at each epsilon.

    After every output the best study is taken for the threshold that is left: no policy does
    better. On the menu are Gaussian studies of all or half of the budget, and sampled ones.
    """
    value = np.maximum(stopped(GRID), gaussian_delta_or_less(left.shift))
    if rounds == 1:
        for rate, shift in SAMPLED:
            if left.after(law(poisson(rate, shift))) is not None:
                one = thinned(outcomes(rate, shift, added=added))
                value = np.maximum(value, followed(one, stopped(GRID)))
        return value
    menu: list[tuple[Release, Outcomes]] = [
        (poisson(*one), thinned(outcomes(*one, added=added))) for one in SAMPLED
    ]
    if left.shift > 1e-3:
        half = left.shift / sqrt(2)
        menu.append((full(half), thinned(outcomes(1.0, half, added=added))))
    for study, seen in menu:
        rest = left.after(law(study))
        if rest is not None:
            value = np.maximum(value, followed(seen, best(rest, rounds - 1, added=added)))
    return value


def gaussian_delta_or_less(shift: float) -> Array:
    """The curve of all that is left, spent at once."""
    return gaussian_deltas(shift, GRID)


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("added", [False, True])
def test_p24_the_best_adaptive_analyst_stays_within_the_promise(added):
    """Three more studies, each chosen in view of all losses so far; the value of the game."""
    first, epsilon = (0.05, 1.0), 2.0
    left = first_remaining_budget(law(poisson(*first)), epsilon, DELTA)
    assert left is not None
    game = followed(thinned(outcomes(*first, added=added)), best(left, 2, added=added))
    realised = float(np.interp(epsilon, GRID, game))
    assert (0.3 if added else 0.5) * DELTA < realised <= DELTA


def break_even(first: float, epsilon: float, rate: float | None, shift: float = 6.0) -> float:
    """The Gaussian shift, or the rate, with which fixed composition just keeps (epsilon, DELTA)."""
    seen, at = outcomes(1.0, first), np.array([epsilon])

    def excess(size: float) -> float:
        curve = lambda e: gaussian_delta(size, e)  # noqa: E731
        if rate is None:
            curve = lambda e: sampled_curve(size, shift, e)  # noqa: E731
        return float(seen.and_then(curve, at)[0]) - DELTA

    return float(brentq(excess, 1e-7, 0.5, xtol=1e-14))


def sampled_curve(rate: float, shift: float, epsilon: Array) -> Array:
    """H of one Poisson removal in closed form (P1)."""
    level = np.exp(epsilon)
    inner = (level - 1 + rate) / rate
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = rate * gaussian_delta(shift, np.log(np.maximum(inner, 1e-300)))
    return np.asarray(np.where(inner <= 0, 1 - level, tail))


def test_p24_fixed_composition_is_broken_by_an_analyst_who_waits_for_the_first_result():
    """Two second studies, each fine if it was fixed; the choice between them costs 1.9 delta."""
    first, epsilon = 0.426, 2.0
    gaussian, rate = break_even(first, epsilon, 1.0), break_even(first, epsilon, None)
    seen, at = outcomes(1.0, first), np.array([epsilon])
    either = [
        lambda e: gaussian_delta(gaussian, e),
        lambda e: sampled_curve(rate, 6.0, e),
    ]
    for curve in either:
        assert float(seen.and_then(curve, at)[0]) == pytest.approx(DELTA)
    best_of = lambda e: np.maximum(either[0](e), either[1](e))  # noqa: E731
    assert float(seen.and_then(best_of, at)[0]) > 1.9 * DELTA
    # The filter has room for the one or for the other only with less of the first.
    left = first_remaining_budget(law(full(first)), epsilon, DELTA)
    assert left is not None
    assert left.after(law(poisson(rate, 6.0))) is None
    assert left.after(law(full(gaussian))) is None
    assert left.after(law(full(0.9 * gaussian))) is not None


def test_p24_simulated_analyst_realises_no_more_than_the_promise():
    """Four studies, by a rule that looks at the losses so far; 400 000 runs at a large delta."""
    epsilon, delta, runs = 1.0, 0.02, 400_000
    random = np.random.default_rng(24)
    losses, total = [np.zeros(runs)], 0.0
    start = first_remaining_budget(StudyLaw.of([full(0.2)], delta), epsilon, delta)
    assert start is not None
    groups = [(losses[0] + 0.2 * random.standard_normal(runs) + 0.02, start)]
    for _ in range(3):
        groups = [child for loss, left in groups for child in played(loss, left, random, delta)]
    for loss, _ in groups:
        total += float(np.maximum(0.0, -np.expm1(epsilon - loss)).sum())
    # The standard deviation of the mean is below sqrt(.02 / 400 000) = 2.3e-4.
    assert 0.1 * delta < total / runs < delta


def played(
    loss: Array, left: RemainingBudget, random: np.random.Generator, delta: float
) -> list[tuple[Array, RemainingBudget]]:
    """One more study: those who have seen much take a steady one, the others a rare large loss."""
    near = loss > 0.6
    rate, shift = 0.02, 2.0
    rest = left.after(StudyLaw.of([poisson(rate, shift)], delta))
    mean = left.shift / sqrt(3)
    steady = left.after(StudyLaw.of([full(mean)], delta)) if mean > 1e-3 else left
    assert steady is not None
    found = [(loss[near] + mean * random.standard_normal(near.sum()) + mean**2 / 2, steady)]
    if rest is None:
        return [*found, (loss[~near], left)]
    drawn = random.standard_normal((~near).sum()) + shift * (random.random((~near).sum()) < rate)
    added = np.logaddexp(log(1 - rate), log(rate) + shift * drawn - shift**2 / 2)
    return [*found, (loss[~near] + added, rest)]


def test_p24_there_is_no_room_past_all_bounds():
    assert RemainingBudget(shift=0.0, delta=1e-6).after(law(poisson(0.01, 1.0, 100))) is None
    assert RemainingBudget(shift=1.0, delta=0.0).after(law(poisson(0.01, 1.0))) is None
    assert first_remaining_budget(law(full(30.0)), 50.0, DELTA) is None
    assert exp(kept_for_certificates(2.0, DELTA).epsilon) < 1.01


@pytest.mark.slow_cases("0.03-0.5-1000")
@pytest.mark.parametrize(("noise", "rate", "count"), [(0.03, 0.5, 1000), (0.1, 0.5, 5000)])
def test_p24_a_sampled_study_past_all_losses_is_no_gaussian_of_no_shift(noise, rate, count):
    step = release(Step(noise_multiplier=noise, sample_rate=rate, count=count), "substitute")
    for beside in ((), (full(0.1),)):
        study = law(step, *beside)
        assert not study.is_gaussian
        assert study.deltas(0.0, np.array([400.0]))[0] > 0.99
        assert RemainingBudget(shift=1.0, delta=2e-6).after(study) is None
        assert first_remaining_budget(study, 50.0, DELTA) is None
