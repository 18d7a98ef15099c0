"""Corners at which a bound was once wrong, a call crashed, or a true answer was refused."""

from __future__ import annotations

import gc
from dataclasses import replace
from math import exp, isfinite

import numpy as np
import pytest
from scipy.integrate import quad

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.composition import ComposedLaw
from hubbub.core.privacy.discretise import Rest, _moved
from hubbub.core.privacy.dominating_pairs import (
    Release,
    Step,
    _at_means,
    _honest_members,
    _on_ends,
    release,
)
from hubbub.core.privacy.laws import Removal, Reversed
from hubbub.core.privacy.transform import coarse_law_of, frame_for_delta, grid
from privacy.hockey_sticks import removal


@pytest.mark.parametrize(
    ("arguments", "truth"),  # the exact mixture over the hypergeometric number, at 40 digits
    [
        ((1098567370515, 176621698517, 1098567370513, 0.5, 0.15), 0.51721),
        ((1099321284787, 126612134544, 1099321284782, 1.0, 0.05), 0.602830),
        ((2**40, 2**39, 2**40 - 2, 2.0, 0.1), 0.497006),
    ],
)
def test_p10_weights_of_huge_numbers_keep_their_digits(
    arguments: tuple[int, int, int, float, float], truth: float
) -> None:
    n, batch, malicious, noise, delta = arguments
    bound = hubbub.malicious_epsilon(
        records=n, batch=batch, malicious=malicious, noise_multiplier=noise, steps=1, delta=delta
    )
    assert bound.lower <= truth + 1e-6
    assert bound.upper >= truth - 5e-6


def test_p10_weights_on_the_ends_and_at_the_means_of_cells_keep_the_mean() -> None:
    """Above and below by convexity alone, so each has the very mean of the members."""
    counted, weights = _honest_members(400, 100, 100)
    members = counted.astype(np.float64)
    for gathered in (_on_ends, _at_means):
        places, whole = gathered(members, weights, 9)
        assert whole.sum() == pytest.approx(1.0)
        assert places @ whole == pytest.approx(members @ weights)
    square = (members**2) @ weights
    (outer, more), (inner, fewer) = (f(members, weights, 9) for f in (_on_ends, _at_means))
    assert inner**2 @ fewer < square < outer**2 @ more


def test_p10_weights_agree_with_whole_numbers() -> None:
    from fractions import Fraction
    from math import comb

    members, weights = _honest_members(60, 25, 20)
    for member, weight in zip(members.tolist(), weights.tolist(), strict=True):
        exact = Fraction(comb(40, member) * comb(20, 25 - member), comb(60, 25))
        assert weight == pytest.approx(float(exact), rel=1e-12, abs=0)


def test_p12_a_loss_past_all_floats_moves_no_cuts() -> None:
    """Q has nothing left of it, so how far it is above its cut cannot be said."""
    one = np.ones(1)
    assert list(_moved(700 * one, one, 0 * one, Rest(cut=0, p=0.5, q=0.0))) == []


def composed(sign: int) -> ComposedLaw:
    """Three losses, 0, 1 and 2, of which nothing is in doubt."""
    return ComposedLaw(
        sign=sign,
        order=0.0,
        centre=0.0,
        first=0.0,
        step=1.0,
        tail=np.array([1.0, 0.6, 0.2]),
        tail_discounted=np.array([0.6, 0.3, 0.1]),
        log_scale=0.0,
        allowance=0.0,
        infinite=0.0,
        doubt=0.0,
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_p13_what_masses_may_be_wrong_by_is_on_the_safe_side_of_both_ends(sign: int) -> None:
    """An upper law is read at less epsilon, and says more; a lower one the other way round."""
    sure = composed(sign)
    found = replace(sure, doubt=0.1).delta(0.5)
    assert found == pytest.approx(sure.delta(0.5 - sign * 0.1) * exp(sign * 0.1), rel=1e-12)
    assert (found > sure.delta(0.5)) == (sign > 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_p13_delta_holds_at_the_very_epsilon_that_is_told(sign: int) -> None:
    """Halving ends between two floats, of which the one on the safe side is told."""
    law = composed(sign)
    for delta in np.linspace(0.02, 0.29, 90).tolist():
        told = law.epsilon(delta)
        assert (law.delta(told) > delta) == (sign < 0), delta


@pytest.mark.parametrize(("sign", "nothing"), [(1, 1.0), (-1, 0.0)])
def test_p13_nothing_is_claimed_of_what_no_float_holds(sign: int, nothing: float) -> None:
    """Neither 701 above the middle of the window, nor of a law whose sums are no numbers."""
    law = composed(sign)
    assert law.delta(701.0) == nothing
    assert 0.0 <= law.delta(3.0) < 1e-9  # past its last loss it is known
    assert replace(law, tail=np.full(3, np.nan)).delta(0.5) == nothing


@pytest.mark.parametrize(
    ("noise", "epsilon", "truth"),  # the closed form at 50 digits
    [(1e6, 1e-6, None), (7e5, 1e-7, None)],
)
def test_closed_form_at_tiny_shifts(noise: float, epsilon: float, truth: None) -> None:
    import mpmath as mp

    with mp.workdps(50):
        shift = 1 / mp.mpf(noise)
        near, far = epsilon / shift - shift / 2, epsilon / shift + shift / 2
        exact = mp.ncdf(-near) - mp.e**epsilon * mp.ncdf(-far)
        bound = hubbub.delta(
            noise_multiplier=noise, steps=1, epsilon=epsilon, sampling="full-batch"
        )
        assert bound.lower <= exact <= bound.upper


def test_p1_without_replacement_is_continuous_at_full_batches() -> None:
    asked = {"noise_multiplier": 1.0, "steps": 1, "delta": 1e-5, "sampling": "without-replacement"}
    whole = hubbub.epsilon(sample_rate=1.0, **asked)
    nearly = hubbub.epsilon(sample_rate=0.999999, **asked)
    assert whole.upper == pytest.approx(nearly.upper, rel=1e-3)


@pytest.mark.slow_cases("0.3-0.9-1000000-0.0")
@pytest.mark.parametrize(
    ("noise", "rate", "steps", "epsilon"), [(0.3, 0.9, 10**6, 0.0), (0.1, 0.01, 10**3, 50.0)]
)
def test_delta_near_one_is_a_number(noise: float, rate: float, steps: int, epsilon: float) -> None:
    bound = hubbub.delta(noise_multiplier=noise, sample_rate=rate, steps=steps, epsilon=epsilon)
    assert 0 <= bound.lower <= bound.upper <= 1


def test_no_corner_ends_in_anything_but_a_bound_or_a_study_error() -> None:
    gaussian = hubbub.Step(noise_multiplier=0.01, sampling="full-batch")
    sampled = hubbub.Step(noise_multiplier=1.0, sample_rate=0.01)
    for call in (
        lambda: hubbub.epsilon(
            noise_multiplier=0.272,
            sample_rate=1e-9,
            steps=4910,
            delta=0.999,
            relation="substitute",
            sampling="without-replacement",
        ),
        lambda: hubbub.malicious_epsilon(
            records=10**6, batch=1, malicious=0, noise_multiplier=0.08, steps=66, delta=0.3
        ),
        lambda: hubbub.composed_epsilon([gaussian, sampled], delta=1e-5),
    ):
        try:
            bound = call()
        except StudyError:
            continue
        assert isfinite(bound.lower)
        assert bound.lower <= bound.upper


@pytest.mark.slow
def test_round_off_of_a_mixtures_weights_is_no_lost_mass() -> None:
    bound = hubbub.malicious_epsilon(
        records=50_000, batch=500, malicious=25_000, noise_multiplier=1000, steps=10**6, delta=1e-12
    )
    assert 0.1 < bound.lower <= bound.upper < 0.2


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64])
def test_numbers_of_numpy_count_as_pythons_do(kind: type) -> None:
    def composed(steps: int | np.integer) -> float:
        one = hubbub.Step(noise_multiplier=200.0, sample_rate=0.5, count=steps)
        return hubbub.composed_epsilon([one] * 3, delta=1e-5, relation="substitute").upper

    assert composed(kind(22_000)) == composed(22_000)  # 66,000 in all, past 16 bits
    narrow = np.float16(1.1), np.float16(2**-7)
    bounds = [
        hubbub.epsilon(noise_multiplier=noise, sample_rate=rate, steps=1250, delta=1e-5)
        for noise, rate in (narrow, tuple(map(float, narrow)))
    ]
    assert bounds[0] == bounds[1]


def test_what_a_guess_alone_calls_too_large_is_not_refused() -> None:
    rare = Composition([release(Step(noise_multiplier=0.07, sample_rate=1e-6), "add-remove")])
    assert rare.estimate(1e-4) > 60
    assert rare.epsilon(1e-4, most=50.0).upper == 0


def test_p2_releases_that_differ_in_one_direction_alone_are_composed_apart() -> None:
    near, far = Removal(rate=0.5, shift=0.5), Removal(rate=0.5, shift=1.0)
    alike, other = (Release(laws=(near, law), count=1) for law in (near, far))
    whole, twice = (Composition(ones).epsilon(1e-3) for ones in ([other, alike], [alike, alike]))
    assert whole.lower > 1.2 * twice.upper


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "least", "most"), [(0.5, 0.0067, 0.0073), (0.8, 0.00044, 0.00046)], ids=["0.5", "0.8"]
)
def test_rare_large_losses_leave_a_narrow_bracket(noise: float, least: float, most: float) -> None:
    """At tiny rates a law is far wider than its deviation, and so was the window."""
    setting = {"sample_rate": 1e-6, "steps": 10_000, "delta": 1e-6}
    found = hubbub.epsilon(noise_multiplier=noise, **setting)
    assert least < found.lower <= found.upper < most


@pytest.mark.slow
def test_calibration_where_some_noise_has_no_certified_epsilon_gives_a_number() -> None:
    noise = hubbub.noise_multiplier(epsilon=0.1, sample_rate=1e-6, steps=10_000, delta=1e-6)
    assert 0.40 < noise < 0.42


@pytest.mark.slow
def test_a_heavy_tail_of_shifts_is_bracketed_where_guesses_are_five_times_too_large() -> None:
    """One step, projected to two numbers: the square of the length is exponential."""
    noise, rate, goal = 0.2, 0.001, 1e-4

    def exact(epsilon: float) -> float:
        def part(length: float) -> float:
            return 2 * length * exp(-(length**2)) * removal(rate, length / noise)(exp(epsilon))

        return float(quad(part, 0, 8, limit=400)[0])

    found = hubbub.projected_epsilon(
        dimension=2, noise_multiplier=noise, sample_rate=rate, steps=1, delta=goal
    )
    assert found.upper - found.lower < 0.01
    assert exact(found.upper) <= goal <= exact(found.lower)


@pytest.mark.slow
def test_far_negative_losses_take_no_cells() -> None:
    """A million of them were made where the record is added, whose losses reach to -600."""
    law = Reversed(law=Removal(rate=1e-3, shift=30.0))
    drawn = coarse_law_of(law, 10)
    frame = frame_for_delta([drawn], 1e-5, 1e-4)
    assert frame.order > 10
    assert grid(drawn, frame.saddle, 1e-4, 0.0).cuts.size > 100_000
    assert grid(drawn, frame.saddle, 1e-4, frame.order).cuts.size < 50_000


def test_what_was_composed_is_let_go_without_the_collector() -> None:
    """Arrays of megabytes hung in a cycle of references: memory grew from call to call."""
    gc.disable()
    try:
        before = [one for one in gc.get_objects() if type(one) is ComposedLaw]
        hubbub.epsilon(noise_multiplier=1.0, sample_rate=0.0123, steps=100, delta=1e-6)
        now = [one for one in gc.get_objects() if type(one) is ComposedLaw]
        left = [one for one in now if not any(one is other for other in before)]
    finally:
        gc.enable()
    assert not left


@pytest.mark.parametrize(("noise", "rate"), [(0.03, 1e-3), (0.05, 0.2), (0.1, 0.5)])
def test_large_epsilons_of_one_sampled_step_are_told(noise: float, rate: float) -> None:
    """Epsilons of hundreds: delta(e) = q H_b, q b = e^e - 1 + q, in closed form at 60 digits."""
    import mpmath as mp

    goal = 1e-5
    found = hubbub.epsilon(noise_multiplier=noise, sample_rate=rate, steps=1, delta=goal)

    def exact(epsilon: float) -> float:
        with mp.workdps(60):
            m, q = 1 / mp.mpf(noise), mp.mpf(rate)
            b = (mp.expm1(epsilon) + q) / q
            near, far = mp.log(b) / m - m / 2, mp.log(b) / m + m / 2
            return float(q * (mp.ncdf(-near) - b * mp.ncdf(-far)))

    assert found.lower > 50
    assert exact(found.upper) <= goal <= exact(found.lower)
