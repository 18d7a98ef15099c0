"""P11 to P13: laws on a grid hold the exact ones between them, however badly it is chosen.

And P1, that the law of batches without replacement is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, sqrt

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.composition import compose
from hubbub.core.privacy.discretise import GridLaw, _doubt, _on_cuts, bracket
from hubbub.core.privacy.dominating_pairs import Step, release
from hubbub.core.privacy.laws import (
    NARROW,
    ExchangedRecord,
    Law,
    Mixture,
    Removal,
    ReplacedInBatch,
    Reversed,
    gauss,
    interval_mass,
)
from hubbub.core.privacy.projected_step import WIDER, ProjectedRemoval
from hubbub.core.privacy.transform import (
    Grid,
    TiltedGrid,
    _cells,
    coarse_law_of,
    frame_for_epsilon,
    grid,
    step_for_gap,
    step_within,
)
from privacy.hockey_sticks import HockeyStick, exchange, mixed, removal, replaced, swapped

Point = tuple[float, float]


LAWS: dict[str, tuple[Law, HockeyStick]] = {
    "gaussian": (Removal(rate=1.0, shift=1.0), removal(1.0, 1.0)),
    "removal": (Removal(rate=0.05, shift=1.0), removal(0.05, 1.0)),
    "addition": (Reversed(law=Removal(rate=0.05, shift=1.0)), swapped(removal(0.05, 1.0))),
    "often": (Removal(rate=0.7, shift=2.5), removal(0.7, 2.5)),
    "exchange": (ExchangedRecord(rate=0.1, shift=0.7), exchange(0.1, 0.7)),
    "batches": (ReplacedInBatch(rate=0.1, shift=1.3), replaced(0.1, 1.3)),
    "mixture": (
        Mixture(
            weights=(0.3, 0.7), laws=(Removal(rate=0.1, shift=0.5), Removal(rate=0.1, shift=1.5))
        ),
        mixed([0.3, 0.7], [removal(0.1, 0.5), removal(0.1, 1.5)]),
    ),
    "projected": (
        ProjectedRemoval(rate=0.1, shifts=(0.5, 1.5), weights=(0.3, 0.7)),
        mixed([0.3, 0.7], [removal(0.1, 0.5), removal(0.1, 1.5)]),
    ),
}
OVER = pytest.mark.parametrize("name", LAWS)
RATIOS = np.exp(np.concatenate([np.linspace(-4, 6, 61), [0.0, 1e-6, -1e-6]]))
ROUNDING = 1e-13


@pytest.mark.parametrize(("nodes", "most"), [*NARROW, WIDER])
def test_gauss_sums_over_a_cell_are_exact_wherever_it_lies(nodes: int, most: float) -> None:
    """As wide as is allowed, against differences of tails in 80 digits."""
    with mp.workdps(80):
        for centre in (0.0, 0.05, 0.3, 1.0, 2.0, 5.0, 12.0, 38.0):
            radius = most / (centre + 2)
            root = mp.sqrt(2)
            ends = [mp.erfc((mp.mpf(centre) + sign * mp.mpf(radius)) / root) for sign in (-1, 1)]
            truth = (ends[0] - ends[1]) * mp.sqrt(mp.pi / 2)
            rule = [(mp.mpf(node), mp.mpf(weight)) for node, weight in gauss(nodes)]
            found = sum(w * mp.exp(-((centre + radius * t) ** 2) / 2) for t, w in rule) * radius
            # The nodes and weights are floats: a few roundings of them, and of what they shift.
            assert abs(found / truth - 1) < 1e-16 * (8 + most * 4)


@pytest.mark.parametrize("ends", [[], [3], [5, 20], [10, 37, 100], [1, 1, 1]])
def test_cells_leave_no_gap_and_reach_past_the_last_loss(ends: list[int]) -> None:
    """A wide cell at the end had its centre before it: what lay between cost delta 1e-11."""
    for last in range(200):
        centres, widths = _cells(ends, last)
        edges = centres - widths / 2
        assert np.array_equal(edges + widths, np.append(edges[1:], (centres + widths / 2)[-1:]))
        assert not last or (edges[0] == 0.5 and centres[-1] >= last)


def on_a_grid(law: Law, step: float, order: float = 3.0) -> tuple[GridLaw, GridLaw]:
    """From below and from above."""
    return bracket(law, grid(coarse_law_of(law, 1), order, step, order), order)


def value_of(law: GridLaw, a: float) -> float:
    """H_a of a law on a grid."""
    return float(law.mass @ np.maximum(1 - a * np.exp(-law.losses), 0.0)) + law.infinite


@OVER
@pytest.mark.parametrize("step", [0.2, 0.03, 0.004])
def test_p11_p12_the_grid_laws_hold_the_exact_one_at_every_ratio(name: str, step: float) -> None:
    law, exact = LAWS[name]
    below, above = on_a_grid(law, step)
    for a in RATIOS:
        truth = exact(float(a))
        assert value_of(below, a) <= truth + ROUNDING, f"the lower law at {a:g}"
        assert value_of(above, a) >= truth - ROUNDING, f"the upper law at {a:g}"


@OVER
def test_p11_p12_a_law_that_is_moved_by_a_quarter_of_a_cell_would_be_noticed(name: str) -> None:
    law, exact = LAWS[name]
    below, above = on_a_grid(law, 0.03)
    moved = 0.03 / 4
    higher = replace(below, offset=below.offset + moved)
    lower = replace(above, offset=above.offset - moved)
    truths = [exact(float(a)) for a in RATIOS]
    assert any(
        value_of(higher, a) > truth + ROUNDING for a, truth in zip(RATIOS, truths, strict=True)
    )
    assert any(
        value_of(lower, a) < truth - ROUNDING for a, truth in zip(RATIOS, truths, strict=True)
    )


@OVER
def test_p11_p12_both_errors_are_of_second_order_in_the_step(name: str) -> None:
    """That from above falls fourfold when the step halves; that from below hops, and falls too."""
    law, exact = LAWS[name]

    def errors(step: float) -> tuple[float, float]:
        cuts = np.arange(round(-15 / step), round(30 / step) + 1)  # nothing is left at the ends
        even = Grid(step=step, offset=0.0, cuts=cuts, widths=np.ones_like(cuts))
        below, above = bracket(law, even, 1.0)
        truth = sum(exact(float(a)) for a in RATIOS)
        return truth - sum(value_of(below, a) for a in RATIOS), (
            sum(value_of(above, a) for a in RATIOS) - truth
        )

    coarse, fine, finest = (errors(step) for step in (0.08, 0.02, 0.01))
    assert 3.5 < fine[1] / finest[1] < 4.5
    assert coarse[0] / finest[0] > 30  # 64 if it were smooth, 8 if it were of first order


@OVER
@pytest.mark.parametrize("cuts", [(-1, 0, 2, 9), (-40, -3, 0, 1), (0, 1), (-200, 0, 300)])
def test_p11_p12_any_cuts_will_do(name: str, cuts: tuple[int, ...]) -> None:
    """Cells of any width, and far too few of them."""
    law, exact = LAWS[name]
    places = np.array(cuts)
    widths = np.diff(places, append=places[-1] + 1)
    coarse = Grid(step=0.1, offset=0.0, cuts=places, widths=widths)
    below, above = bracket(law, coarse, 1.0)
    for a in RATIOS:
        truth = exact(float(a))
        assert value_of(below, a) - ROUNDING <= truth <= value_of(above, a) + ROUNDING


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_p12_no_outcome_gives_more_than_it_has(data: st.DataObject) -> None:
    """What is merged onto cuts, and what is left over, is no more than there was of P and of Q."""
    masses = st.floats(1e-12, 1.0)
    pairs = data.draw(st.lists(st.tuples(masses, masses), min_size=1, max_size=30))
    pairs.sort(key=lambda pair: pair[0] / pair[1])
    logs = data.draw(st.lists(st.floats(-8, 8), min_size=1, max_size=12, unique=True))
    targets = np.exp(np.sort(logs))
    p, q = (np.array(side) for side in zip(*pairs, strict=True))
    mass, rest = _on_cuts(p, q, targets)
    assert (mass >= 0).all()
    assert rest.p >= 0
    assert mass.sum() + rest.p <= p.sum() * (1 + 1e-12)
    rounding = 1e-14 * p.sum() / targets.min()
    assert (mass / targets).sum() + (rest.q if rest.p else 0.0) <= q.sum() + rounding


def test_p2_addition_is_a_direction_of_its_own() -> None:
    """Of one step it is the dearer one at every threshold below 1."""
    step = release(Step(noise_multiplier=1.0, sample_rate=0.1), "add-remove")
    epsilons = np.array([-0.08, -0.05, -0.02])
    counted = Composition([step]).profile(epsilons, near=0.05)
    for epsilon, delta in zip(epsilons, counted, strict=True):
        added, removed = swapped(removal(0.1, 1.0))(exp(epsilon)), removal(0.1, 1.0)(exp(epsilon))
        assert removed * 1.01 < added <= delta < added * 1.01


# Compositions in bad frames ---------------------------------------------------------------------


@dataclass(frozen=True)
class Composed:
    """Steps without sampling, whose composition has a closed form."""

    shift: float
    count: int

    def delta(self, epsilon: float) -> float:
        whole = self.shift * sqrt(self.count)
        first = norm.sf(epsilon / whole - whole / 2)
        return float(first - exp(epsilon + norm.logsf(epsilon / whole + whole / 2)))

    def bounds(
        self, epsilon: float, bad: Callable[[TiltedGrid], TiltedGrid]
    ) -> tuple[float, float]:
        """Of delta, from below and from above, by a frame that was changed."""
        law = Removal(rate=1.0, shift=self.shift)
        drawn = coarse_law_of(law, self.count)
        frame = bad(frame_for_epsilon([drawn], epsilon))
        step = step_within(frame, [drawn], step_for_gap(1e-3, frame.order, self.count))
        sides = bracket(law, grid(drawn, frame.order, step, frame.order), frame.order)
        below, above = (
            compose([(one, self.count)], frame, sign).delta(epsilon)
            for one, sign in zip(sides, (-1, 1), strict=True)
        )
        return below, above


def width_of(frame: TiltedGrid) -> float:
    return frame.high - frame.low


GOOD: Callable[[TiltedGrid], TiltedGrid] = lambda frame: frame  # noqa: E731
BAD: dict[str, Callable[[TiltedGrid], TiltedGrid]] = {
    "no tilt": lambda one: replace(one, order=0.0),
    "a tenth of the tilt": lambda one: replace(one, order=one.order / 10),
    "three times the tilt": lambda one: replace(one, order=one.order * 3),
    "half a window, the upper": lambda one: replace(one, low=one.centre),
    "half a window, the lower": lambda one: replace(one, high=one.centre),
    "a tenth of a window": lambda one: replace(
        one, low=one.centre - width_of(one) / 20, high=one.centre + width_of(one) / 20
    ),
    "a window beside it": lambda one: replace(
        one, low=one.low + width_of(one), high=one.high + width_of(one)
    ),
    "a window below it": lambda one: replace(
        one, low=one.low - width_of(one), high=one.high - width_of(one)
    ),
    "steep orders": lambda one: replace(
        one, order_above=one.order_above * 100, order_below=one.order_below * 100
    ),
    "flat orders": lambda one: replace(
        one, order_above=one.order_above / 100, order_below=one.order_below / 100
    ),
}
STEPS = [Composed(0.02, 1000), Composed(0.5, 4), Composed(0.001, 10**6)]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("steps", STEPS, ids=repr)
def test_p13_brackets_hold_whatever_the_frame(steps: Composed, epsilon: float, bad: str) -> None:
    truth = steps.delta(epsilon)
    below, above = steps.bounds(epsilon, BAD[bad])
    assert 0 <= below <= truth * (1 + 1e-9) + 1e-300
    assert truth * (1 - 1e-9) <= above <= 1


@pytest.mark.slow_cases("Composed(shift=0.001, count=1000000)")
@pytest.mark.parametrize("steps", STEPS, ids=repr)
def test_p13_a_good_frame_is_sharp_and_a_bad_one_is_not(steps: Composed) -> None:
    """So that the test above looks at frames that matter."""
    truth = steps.delta(4.0)
    below, above = steps.bounds(4.0, GOOD)
    assert above - below < 0.05 * truth
    widths = [above - below for below, above in (steps.bounds(4.0, bad) for bad in BAD.values())]
    assert sum(width > 10 * truth for width in widths) >= 3
    assert max(widths) < inf


# Sampling without replacement in two dimensions (P1) ---------------------------------------------

AXIS = np.linspace(-8.0, 8.0, 401)
PLANE = np.stack(np.meshgrid(AXIS, AXIS), axis=-1)
CELL = float(AXIS[1] - AXIS[0]) ** 2


def of_batches(rate: float, mine: Point, other: Point, last: Point, a: float) -> float:
    """H_a of the sums: the record is in the batch, or the last of the others is in its place."""

    def density(centre: Point) -> NDArray[np.float64]:
        away = np.square(PLANE - np.array(centre)).sum(axis=-1)
        return np.exp(-away / 2) / (2 * np.pi)

    p = (1 - rate) * density(last) + rate * density(mine)
    q = (1 - rate) * density(last) + rate * density(other)
    return float(np.maximum(p - a * q, 0.0).sum() * CELL)


@pytest.mark.quick_cases("0.5-4.0")
@pytest.mark.parametrize("a", [0.7, 1.05, 1.5, 4.0])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_p1_no_batch_in_the_plane_exceeds_the_fifth_row(rate: float, a: float) -> None:
    random = np.random.default_rng(5)
    most = replaced(rate, 2.0)(a)
    for _ in range(15):
        turns, lengths = random.uniform(0, 2 * np.pi, 3), random.choice([1.0, 0.6], 3)
        points = [(r * np.cos(t), r * np.sin(t)) for t, r in zip(turns, lengths, strict=True)]
        assert of_batches(rate, *points, a) <= most + 1e-4


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_p1_all_others_at_the_new_record_exceed_the_sixth_row(rate: float) -> None:
    """The pair of Poisson sampling, which is no bound here."""
    found = of_batches(rate, (1.0, 0.0), (-1.0, 0.0), (-1.0, 0.0), 1.5)
    assert found > exchange(rate, 1.0)(1.5) + 1e-3
    nothing_else = of_batches(rate, (1.0, 0.0), (-1.0, 0.0), (0.0, 0.0), 1.5)
    assert nothing_else == pytest.approx(exchange(rate, 1.0)(1.5), abs=1e-4)


def test_p13_the_doubt_of_masses_covers_what_is_lost_far_out() -> None:
    """exp(-x x / 2) loses x x / 2 roundings, which no constant number of them would cover."""
    edges = np.linspace(30.0, 37.0, 701)
    found = interval_mass(edges, 0.0)
    with mp.workdps(60):
        above = [mp.erfc(mp.mpf(float(edge)) / mp.sqrt(2)) / 2 for edge in edges]
        exact = [one - other for one, other in pairwise(above)]
        worst = max(abs(float(mass / true - 1)) for mass, true in zip(found, exact, strict=True))
    assert 16 * 2.0**-53 < worst < _doubt(found, np.zeros(0))
