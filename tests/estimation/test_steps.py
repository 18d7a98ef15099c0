"""Columns whose values lie on a step: curves, tests and quantiles of visits, scores and counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.kinds import statistic_from
from hubbub.estimation.statistic import Answer, OneSum
from hubbub.estimation.survival import Survival, log_rank
from hubbub.estimation.survival_course import SurvivalCourse
from hubbub.testing.laws import too_often

WEEKS = 84 / 30.4375  # twelve of them, in months
MONTHS = Column(name="months", low=0, high=13 * WEEKS, step=WEEKS)
LONG = Column(name="months", low=0, high=60)
DIED = Column(name="died", categories=("no", "yes"))
CAUSE = Column(name="cause", categories=("none", "relapse", "death"))
ARM = Levels(column=Column(name="arm", categories=("usual", "new")))
EDGES = tuple(float(2 * k) for k in range(13))  # none of them on a visit
QUIET = 1e-9


def answer(
    asked: OneSum, cells: dict[str, np.ndarray], sigma: float = QUIET, seed: int = 1
) -> Answer:
    """Of one release at this noise in the block's own unit."""
    noise = sigma * np.random.default_rng(seed).standard_normal(asked.size)
    return asked.answer(asked.encode(cells).sum(axis=0) + noise, sigma)


def visits(records: int, seed: int, *, unequal: bool = True) -> dict[str, np.ndarray]:
    """Two arms of one hazard, of which one is lost sooner; both noticed at visits alone."""
    rng = np.random.default_rng(seed)
    arm, until = rng.integers(0, 2, records), rng.exponential(14, records)
    stop, more = rng.uniform(1, 30, records), rng.exponential(8, records) + 1
    stop = np.where((arm == 0) & unequal, np.minimum(stop, more), stop)
    event, last = np.ceil(until / WEEKS), np.floor(stop / WEEKS)
    died = event <= last
    number = np.minimum(np.where(died, event, last), 13).astype(int)
    return {
        "months": np.array([MONTHS.at_step(k) for k in range(14)])[number],
        "died": died.astype(float),
        "cause": np.where(died, 1.0 + rng.integers(0, 2, records), 0.0),
        "arm": arm.astype(float),
    }


def kaplan_meier(cells: dict[str, np.ndarray], at: float) -> float:
    """Of records whose ties are known, who left at a time being at risk for its events."""
    survived = 1.0
    for time in np.unique(cells["months"][cells["died"] == 1]):
        if 0 < time <= at:
            now = (cells["months"] == time) & (cells["died"] == 1)
            survived *= 1 - now.sum() / (cells["months"] >= time).sum()
    return survived


def area_error(cells: dict[str, np.ndarray], horizon: float) -> float:
    """Of the area under that curve: Greenwood's sum, of what lies after each time."""
    times = np.unique(cells["months"][cells["died"] == 1])
    times = times[(times > 0) & (times <= horizon)]
    survived = [kaplan_meier(cells, time) for time in times]
    after = np.cumsum((survived * np.diff([*times, horizon]))[::-1])[::-1]
    died = [((cells["months"] == time) & (cells["died"] == 1)).sum() for time in times]
    there = np.array([(cells["months"] >= time).sum() for time in times])
    return float(np.sqrt(np.sum(after**2 * died / (there * (there - died)))))


@pytest.mark.parametrize("edges", [EDGES, (0.0, 3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0, 24.0)])
def test_a_curve_over_visits_is_kaplan_and_meiers_without_noise(edges):
    cells = visits(3000, 1)
    asked = Survival(time=MONTHS, event=DIED, edges=edges, at=(10.0, 24.0))
    told = answer(asked, cells)
    (curve,) = told.curves
    assert curve.x == (0.0, *(MONTHS.at_step(k) for k in range(1, 9)))
    assert curve.y == pytest.approx([kaplan_meier(cells, x) for x in curve.x], abs=1e-6)
    values = {row.level: row.value for row in told.rows if row.quantity == "survival"}
    assert values == pytest.approx(
        {t: kaplan_meier(cells, float(t)) for t in ("10", "24")}, abs=1e-6
    )
    survived = [kaplan_meier(cells, k * WEEKS + 0.1) for k in range(9)]
    area = WEEKS * sum(survived[:8]) + (24 - 8 * WEEKS) * survived[8]
    (mean,) = (row for row in told.rows if row.quantity == "restricted mean")
    assert mean.value == pytest.approx(area, rel=1e-4)
    assert mean.standard_error == pytest.approx(area_error(cells, 24.0), rel=0.001)
    (median,) = (row for row in told.rows if row.quantity == "median")
    first = next(k for k in range(9) if survived[k] <= 0.5)
    assert median.value == MONTHS.at_step(first)
    assert {median.low, median.high} <= {MONTHS.at_step(k) for k in range(9)}


def test_a_step_that_is_not_declared_is_what_it_mends():
    """The same cells, taken as spread evenly over bins: off by more than .03."""
    cells = visits(3000, 1)
    plain = Column(name="months", low=0, high=13 * WEEKS)
    (curve,) = answer(Survival(time=plain, event=DIED, edges=EDGES), cells).curves
    assert abs(curve.y[-1] - kaplan_meier(cells, 24.0)) > 0.03


def test_several_visits_in_a_bin_count_for_the_part_that_they_are():
    """Weekly times in bins of six: the hazard is the same each week, so the curve is right."""
    weekly = Column(name="months", low=0, high=60, step=1)
    rng = np.random.default_rng(2)
    event, last = rng.geometric(0.03, 40_000), rng.integers(1, 60, 40_000)
    died = event <= last
    cells = {"months": np.where(died, event, last).astype(float), "died": died.astype(float)}
    asked = Survival(time=weekly, event=DIED, edges=tuple(6.0 * k for k in range(7)))
    (curve,) = answer(asked, cells).curves
    exact = [kaplan_meier(cells, x) for x in curve.x]
    assert curve.y == pytest.approx(exact, abs=0.0015)
    assert (
        np.abs(np.array(curve.at_risk) - [(cells["months"] > x).sum() for x in curve.x]).max() < 150
    )


@pytest.mark.slow
def test_losses_of_one_arm_alone_are_no_difference_of_hazards():
    """At a size of .05, 13 or more of 60 are rejected with a chance of 4e-6; without the step a
    hundred times as many are."""
    plain = Column(name="months", low=0, high=13 * WEEKS)
    rejected = dict.fromkeys((MONTHS, plain), 0)
    for time, many in ((MONTHS, 60), (plain, 15)):
        asked = Survival(time=time, event=DIED, edges=EDGES, by=ARM)
        for seed in range(many):
            noise = 3.0 * np.random.default_rng(seed).standard_normal(asked.size)
            sums = asked.encode(visits(3000, seed)).sum(axis=0) + noise
            arms = [SurvivalCourse(asked.sets, one, 3.0) for one in sums.reshape(2, -1)]
            rejected[time] += log_rank([arms]).p_value < 0.05
    assert not too_often(rejected[MONTHS], 60, 0.05)
    assert too_often(rejected[plain], 15, 0.05)


def test_bins_in_which_nobody_is_left_are_not_compared():
    """Shares of noise alone in them would hide a difference of 11 standard errors elsewhere."""
    asked = Survival(time=LONG, event=DIED, edges=tuple(map(float, range(0, 61, 5))), by=ARM)
    rng = np.random.default_rng(5)
    arm = rng.integers(0, 2, 3000)
    months = np.minimum(rng.exponential(np.where(arm == 0, 5, 11)), 20.0)
    cells = {"months": months, "died": (months < 20) * 1.0, "arm": arm.astype(float)}
    for _ in range(5):
        sums = asked.encode(cells).sum(axis=0) + 5.0 * rng.standard_normal(asked.size)
        arms = [SurvivalCourse(asked.sets, one, 5.0) for one in sums.reshape(2, -1)]
        assert log_rank([arms]).statistic > 50


def test_a_hazard_ratio_of_visits_is_one_where_only_losses_differ():
    """Of 60,000 records, at six standard errors; .87 without the step, which is refused here."""
    cells = visits(60_000, 9)
    ratios = {}
    for time in (MONTHS, Column(name="months", low=0, high=13 * WEEKS)):
        columns = {one.name: one for one in (time, DIED, ARM.column)}
        table = {"kind": "cox", "time": "months", "event": "died", "horizon": 24.0}
        asked = statistic_from("c", table | {"covariates": {"arm": "categories"}}, columns)
        assert isinstance(asked, OneSum)
        (row,) = answer(asked, cells).rows
        ratios[time] = row.value
    assert ratios[MONTHS] == pytest.approx(1.0, abs=0.067)
    assert min(ratios.values()) < 0.92


def test_grays_test_and_incidence_take_ties_as_they_are():
    cells = visits(3000, 4)
    asked = Incidence(time=MONTHS, event=CAUSE, edges=EDGES, by=ARM, test=True, at=(10.0,))
    told = answer(asked, cells)
    first = cells["arm"] == 0
    mine = {name: one[first] for name, one in cells.items()}
    share, survived = 0.0, 1.0
    for k in range(1, 9):
        at_risk = (mine["months"] >= MONTHS.at_step(k) - 1e-9).sum()
        now = mine["months"] == MONTHS.at_step(k)
        share += survived * (now & (mine["cause"] == 1)).sum() / at_risk
        survived *= 1 - (now & (mine["cause"] > 0)).sum() / at_risk
    (row,) = (r for r in told.rows if (r.group, r.level) == ("usual", "relapse by 24"))
    assert row.value == pytest.approx(share, abs=1e-6)
    assert min(test.p_value for test in told.tests) > 1e-3


@pytest.mark.parametrize(
    ("low", "high", "step", "more", "places"),
    [(0, 10, 1, {}, 11), (0, 10, 1, {"bins": 10}, 11), (80, 200, 2, {}, 61), (0, 1, 0.1, {}, 11)],
)
def test_a_quantile_is_one_of_the_values(low, high, step, more, places):
    column = Column(name="x", low=low, high=high, step=step, complete=True)
    asked = statistic_from("q", {"kind": "quantiles", "column": "x", **more}, {"x": column})
    assert isinstance(asked, OneSum)
    assert asked.size == places
    assert statistic_from("q", asked.to_table(), {"x": column}) == asked
    weights = np.random.default_rng(3).dirichlet(np.ones(places))
    steps = np.random.default_rng(4).choice(places, 4000, p=weights)
    cells = {"x": np.array([column.at_step(k) for k in range(places)])[steps]}
    exact = np.quantile(cells["x"], [0.25, 0.5, 0.75], method="inverted_cdf")
    for sigma, seed in ((QUIET, 1), (8.0, 2), (8.0, 3)):
        told = answer(asked, cells, sigma, seed)
        values = set(map(column.at_step, range(places)))
        for row, truth in zip(told.rows, exact, strict=True):
            assert {row.value, row.low, row.high} <= values
            assert row.low <= truth <= row.high
            assert sigma > 1 or row.value == truth
        assert told.curves[0].x[-1] == high


def test_quantiles_of_wide_bins_are_values_too():
    column = Column(name="x", low=0, high=200, step=1, complete=True)
    rng = np.random.default_rng(5)
    cells = {"x": np.where(rng.random(5000) < 0.6, 0, rng.geometric(0.1, 5000)).clip(0, 200) * 1.0}
    asked = statistic_from("q", {"kind": "quantiles", "column": "x", "bins": 20}, {"x": column})
    assert isinstance(asked, OneSum)
    for row, p in zip(answer(asked, cells).rows, (0.25, 0.5, 0.75), strict=True):
        assert row.value == int(row.value)
        assert row.low <= np.quantile(cells["x"], p) <= row.high


def test_classes_of_a_column_with_a_step_are_named_by_their_values():
    column = Column(name="pain", low=0, high=10, step=1)
    asked: Any = statistic_from(
        "h", {"kind": "histogram", "column": "pain", "bins": 4}, {"pain": column}
    )
    rows = answer(asked, {"pain": np.repeat(np.arange(11.0), 100)}).rows
    shares = {row.level: row.value for row in rows if row.quantity == "records"}
    assert shares == pytest.approx(
        {"0 to 2": 300, "3 to 5": 300, "6 to 8": 300, "9 to 10": 200, "missing": 0}, abs=1e-6
    )
    with pytest.raises(StudyError, match="whole steps"):
        Levels(column=column, cuts=(3.2, 3.7))


def test_a_grid_of_one_visit_is_refused():
    with pytest.raises(StudyError, match="two whole steps"):
        Survival(time=MONTHS, event=DIED, edges=(0.0, 1.0, 5.0))
