"""Tiny sample rates: a few rare large losses decide, and no exponential tilt finds them alone.

The truth is a Laplace inversion that leaves out losses of negligible probability, so that a contour
far to the right exists. It shares no grid, no FFT and no rounding with the accountant.
"""

from __future__ import annotations

from math import log, sqrt

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.privacy import discretise, transform
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.dominating_pairs import Step, release
from hubbub.core.privacy.remaining_budget import StudyLaw, least_epsilon

Array = NDArray[np.float64]
Real = np.longdouble  # the sum cancels down to a hundred-millionth of its terms


def sixteen() -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre, with all digits of `Real`."""
    nodes = np.polynomial.legendre.leggauss(16)[0].astype(Real)
    for _ in range(3):
        before, here = np.ones_like(nodes), nodes
        for k in range(2, 17):
            before, here = here, ((2 * k - 1) * nodes * here - (k - 1) * before) / k
        slope = 16 * (nodes * here - before) / (nodes**2 - 1)
        nodes = nodes - here / slope
    return nodes, 2 / ((1 - nodes**2) * slope**2)


def less_one(power: NDArray[np.clongdouble]) -> NDArray[np.clongdouble]:
    """e^z - 1 with all digits."""
    half = np.sin(power.imag / 2)
    real = np.expm1(power.real) * np.cos(power.imag) - 2 * half**2
    return real + 1j * np.exp(power.real) * np.sin(power.imag)


def inverted(noise: float, rate: float, steps: int, goal: float, near: float) -> float:
    """Epsilon of removals at delta `goal`, to about 1e-6; `near` is a guess."""
    shift, q = 1 / Real(noise), Real(str(rate))

    def beyond(x: float) -> float:
        return steps * float((1 - rate) * ndtr(-x) + rate * ndtr(1 / noise - x))

    cut = brentq(lambda x: log(beyond(x)) - log(1e-7 * goal), 0.0, 20.0)
    edges = np.concatenate([np.linspace(Real(-14), 3, 100), np.linspace(Real(3), cut, 800)[1:]])
    half, (nodes, weights) = np.diff(edges)[:, None] / 2, sixteen()
    x = (edges[:-1, None] + half * (1 + nodes)).ravel()
    q_mass = (half * weights).ravel() * np.exp(-x * x / 2) / np.sqrt(8 * np.arctan(Real(1)))
    excess = q * np.expm1(shift * x - shift**2 / 2)
    loss = np.log1p(excess)

    def moment(s: np.clongdouble) -> np.clongdouble:
        """steps * log E e^(sL), exactly as small as it is."""
        found = (q_mass * (less_one((s + 1) * loss) - (s + 1) * excess)).sum()
        size = 2 * found.real + found.real**2 + found.imag**2
        return steps * (np.log1p(size) / 2 + 1j * np.arctan2(found.imag, 1 + found.real))

    def height(c: float, epsilon: float) -> float:
        return float(moment(np.clongdouble(c)).real) - c * epsilon

    grid = np.geomspace(1.0, 300 / float(loss[-1]), 120)
    c = float(grid[int(np.argmin([height(one, near) for one in grid]))]) * 0.9
    reach = float(loss[-1]) + near + (40 + max(0.0, height(c, near))) / c
    spacing = Real(np.pi / reach)
    spread = sqrt(steps * float(q_mass @ np.minimum(np.abs(excess), 1e-2) ** 2))
    s = c + 1j * spacing * np.arange(int(9 / spread / float(spacing)) + 1)
    values = np.exp(np.array([moment(one) for one in s])) / (s * (s + 1))

    def delta(epsilon: float) -> float:
        terms = (values * np.exp(-s * epsilon)).real
        return float(spacing / np.pi * (terms.sum() - terms[0] / 2))

    return float(brentq(lambda e: log(max(delta(e), 1e-300) / goal), near / 2, near * 2, xtol=1e-9))


# What `inverted` gives; half a minute each.
VALUES = [
    (0.7, 1e-5, 10**6, 1e-12, 0.539682),
    (0.7, 1e-6, 10**6, 1e-12, 0.044242),
]


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "rate", "steps", "goal", "truth"), VALUES)
def test_p13_rare_losses_leave_a_narrow_bracket_around_the_truth(
    noise: float, rate: float, steps: int, goal: float, truth: float
) -> None:
    found = hubbub.epsilon(noise_multiplier=noise, sample_rate=rate, steps=steps, delta=goal)
    assert found.lower - 1e-6 <= truth <= found.upper + 1e-6
    assert found.upper - found.lower <= 1e-3 * max(1.0, truth)


@pytest.mark.slow
@pytest.mark.skipif(np.finfo(Real).eps > 1e-18, reason="this machine has no longer floats")
@pytest.mark.parametrize(("noise", "rate", "steps", "goal", "truth"), VALUES)
def test_the_committed_value_is_the_inversions(
    noise: float, rate: float, steps: int, goal: float, truth: float
) -> None:
    assert inverted(noise, rate, steps, goal, truth) == pytest.approx(truth, abs=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "rate", "steps", "goal"),
    [(0.5, 1e-6, 10**5, 1e-5), (0.5, 1e-6, 10**6, 1e-9), (0.45, 1e-7, 10**6, 1e-9)],
)
def test_other_rare_losses_leave_a_narrow_bracket(
    noise: float, rate: float, steps: int, goal: float
) -> None:
    found = hubbub.epsilon(noise_multiplier=noise, sample_rate=rate, steps=steps, delta=goal)
    assert found.upper - found.lower <= 1e-3


@pytest.mark.slow
def test_two_hundred_kinds_of_steps_have_a_narrow_bracket() -> None:
    kinds = [
        hubbub.Step(noise_multiplier=1 + i / 100, sample_rate=0.01, count=10) for i in range(200)
    ]
    found = hubbub.composed_epsilon(kinds, delta=1e-5)
    assert 1.197 < found.lower <= found.upper < 1.1981
    assert found.upper - found.lower <= 1e-3


def test_a_power_of_a_transform_keeps_its_digits() -> None:
    """P13 (3): the ten-millionth power, of which an FFT would leave few digits."""
    import mpmath as mp

    from hubbub.core.privacy.transform import PowerProduct

    size, count = 4096, 10**7
    cuts = np.array([-3, -1, 0, 1, 2, 900])
    mass = np.array([1e-8, 2e-7, 0.0, 1e-7, 3e-8, 1e-9])
    mass[2] = 1 - mass.sum()
    whole = PowerProduct(size)
    whole.multiply(cuts, mass, count)
    value, error = whole.result()
    assert whole.shift == 0
    with mp.workdps(40):
        for k in (0, 1, 7, 300, 2048):
            turn = -2j * mp.pi * k / size
            less = sum(
                mp.mpf(m) * (mp.e ** (turn * int(c)) - 1) for c, m in zip(cuts, mass, strict=True)
            )
            away = float(abs((1 + less) ** count - mp.mpc(complex(value[k]))))
            assert away <= error[k] < 1e-12


# Beside others ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "truth"),
    [
        (hubbub.Step(noise_multiplier=1.0, sample_rate=0.01, count=1000), 5.41147),
        (hubbub.Step(noise_multiplier=2.0, sample_rate=0.05, count=300), None),
        (hubbub.Step(noise_multiplier=0.8, sample_rate=0.001, count=5000), None),
        (hubbub.Step(noise_multiplier=5.0, sampling="full-batch", count=50), None),
    ],
)
def test_p13_a_bulk_within_one_cell_costs_the_lower_side_nothing(other, truth) -> None:
    """Rounded down 10,000 times it was .0055 below: such pairs were refused, or nearly so."""
    rare = hubbub.Step(noise_multiplier=0.4, sample_rate=1e-5, count=10_000)
    found = hubbub.composed_epsilon([rare, other], delta=1e-9)
    assert found.upper - found.lower < 3e-4 * found.upper
    if truth:
        assert found.lower < truth < found.upper


def test_p12_cuts_that_are_moved_are_still_dominated() -> None:
    """At every threshold: less than the truth, and by next to nothing."""
    law = release(hubbub.Step(noise_multiplier=0.4, sample_rate=1e-5), "add-remove").laws[0]
    made = transform.coarse_law_of(law, 10_000, 1e-26)
    cells = transform.grid(made, 3.0, 5e-4, 0.3)
    below, above = discretise.bracket(law, cells, 3.0)
    assert below.offset != cells.offset  # or nothing is tried here
    for epsilon in (-1e-5, 0.0, 1e-5, 1e-3, 0.1, 1.0, 5.0):
        exact = single(0.4, 1e-5, epsilon)
        low, high = (curve(one, epsilon) for one in (below, above))
        assert low <= exact * (1 + 1e-11) + 1e-18
        assert exact * (1 - 1e-11) - 1e-18 <= high
    lost = law_mean(above) - law_mean(below)
    assert 0 < 10_000 * lost < 1e-3


def curve(law: discretise.GridLaw, epsilon: float) -> float:
    return float(law.infinite + law.mass @ np.maximum(0.0, -np.expm1(epsilon - law.losses)))


def law_mean(law: discretise.GridLaw) -> float:
    return float(law.mass @ law.losses)


def single(noise: float, rate: float, epsilon: float) -> float:
    """Delta of one step, in closed form with 50 digits."""
    with mpmath.workdps(50):
        q, shift, a = mpmath.mpf(rate), 1 / mpmath.mpf(noise), mpmath.e ** mpmath.mpf(epsilon)
        if a <= 1 - q:
            return float(1 - a)
        x = mpmath.log((a - 1 + q) / q) / shift + shift / 2
        return float(q * mpmath.ncdf(shift - x) + (1 - q - a) * mpmath.ncdf(-x))


def test_losses_beyond_floats_are_refused_at_once_by_what_they_are() -> None:
    """Five records of a patient at .1: it was "bounds of 1548 and inf", after seconds."""
    with pytest.raises(StudyError, match="got larger ones with more than delta; add noise"):
        hubbub.epsilon(
            noise_multiplier=0.1, sample_rate=0.2, steps=3, delta=1e-5, records_per_unit=5
        )


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "noise", "steps"), [(1e-6, 20.0, 10**6), (1e-4, 10.0, 10**4)])
def test_a_profile_is_sharp_where_the_whole_loss_is_tiny(
    rate: float, noise: float, steps: int
) -> None:
    """Of so many steps the loss is normal: its delta at 0 is that of one Gaussian step."""
    shift = rate * sqrt(steps * np.expm1(noise**-2))
    limit = 2 * ndtr(shift / 2) - 1
    step = Step(noise_multiplier=noise, sample_rate=rate, count=steps)
    whole = Composition([release(step, "add-remove")])
    levels = np.array([0.0, shift])
    upper, lower = whole.profile(levels, near=1e-10), whole.lower_profile(levels, near=1e-10)
    assert (lower <= upper).all()
    assert lower[0] <= 1.001 * limit
    assert 0.999 * limit <= upper[0] <= 1.02 * limit
    alone = whole.delta(0.0)
    assert alone.lower <= upper[0]
    assert lower[0] <= alone.upper


def test_one_nearly_free_step_has_the_delta_of_its_closed_form() -> None:
    exact = 1e-6 * (2 * ndtr(1 / 40) - 1)
    step = Step(noise_multiplier=20.0, sample_rate=1e-6, count=1)
    upper = Composition([release(step, "add-remove")]).profile(np.zeros(1), near=1e-10)[0]
    assert exact <= upper <= 1.02 * exact


@pytest.mark.slow
def test_a_nearly_free_study_is_let_in_nearly_for_nothing() -> None:
    """(P24) Five thousandths of an epsilon, and not twice of it."""

    def law(noise: float, rate: float, count: int) -> StudyLaw:
        step = Step(noise_multiplier=noise, sample_rate=rate, count=count)
        return StudyLaw.of([release(step, "add-remove")], 1e-5)

    first, tiny = law(1.0, 0.008, 1250), law(20.0, 1e-6, 10**6)
    alone, both = (least_epsilon(one, 1e-5, least=1.0) for one in ((first,), (first, tiny)))
    assert both <= 1.1 * alone
