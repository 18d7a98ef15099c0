"""What is read off sums that are there: classes of numbers, tests, effects, restricted means."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from estimation.made_up import AGE, DIED, MARKER, SEX, STAGE, TIME, patients
from estimation.often import hold_as_often
from estimation.test_answers import MONTHS, PEERS, answer
from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.baseline_table import GroupMean, Table, _means_apart
from hubbub.estimation.crosstab import Crosstab, _logarithm
from hubbub.estimation.intervals import adjusted, ratio_interval
from hubbub.estimation.kinds import statistic_from
from hubbub.estimation.statistic import Answer
from hubbub.estimation.survival import Survival

CELLS = patients()
COLUMNS = {one.name: one for one in (AGE, TIME, SEX, STAGE, DIED, MARKER)}
BY_SEX, BY_STAGE = Levels(column=SEX), Levels(column=STAGE)
BY_AGE = Levels(column=AGE, cuts=(40, 60))
QUIET = 1e-9


def rows(found: Answer, quantity: str) -> list[Any]:
    return [row for row in found.rows if row.quantity == quantity]


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "table", "columns": ["sex", {"age": [40, 60]}], "by": {"marker": [5]}},
        {"kind": "crosstab", "rows": {"age": [40, 60]}, "columns": "died"},
        {"kind": "crosstab", "rows": "sex", "columns": {"age": [60]}},
        {"kind": "survival", "time": "time", "event": "died", "by": {"age": [60]}, "at": [6, 12]},
    ],
)
def test_numbers_are_cut_into_classes_wherever_a_column_is_named(table: dict[str, Any]) -> None:
    asked = statistic_from("q", table, COLUMNS)
    again = statistic_from("q", asked.to_table(), COLUMNS)
    assert again == asked
    told = asked.to_table()
    assert all(told[key] == value for key, value in table.items())
    assert not answer(asked, 0.5).refusal


@pytest.mark.parametrize(
    "by", [{"age": [60, 40]}, {"age": [5]}, {"age": [40], "sex": [1]}, {"sex": [1]}, {"bmi": [1]}]
)
def test_classes_that_are_none_are_refused_in_one_sentence(by: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match=r"expected .*; "):
        statistic_from("q", {"kind": "table", "columns": ["stage"], "by": by}, COLUMNS)


def test_classes_of_a_number_are_counted_like_categories() -> None:
    found = answer(Table(columns=(BY_AGE, SEX), by=BY_STAGE), QUIET)
    counts, _ = np.histogram(CELLS["age"], [20, 40, 60, 91])
    whole = [row for row in found.rows if row.column == "age" and not row.group]
    assert [row.value for row in whole[:3]] == pytest.approx(list(counts / len(CELLS["age"])))
    assert [row.level for row in whole] == [*BY_AGE.names, "missing"]


def groups_of(column: str, by: str) -> list[np.ndarray]:
    return [CELLS[column][CELLS[by] == place] for place in np.unique(CELLS[by])]


def test_a_table_by_group_has_all_records_beside_the_groups() -> None:
    found = answer(Table(columns=(AGE,), by=BY_SEX), QUIET)
    assert [row.value for row in rows(found, "records")] == pytest.approx([1500, 750, 750])
    assert [row.value for row in rows(found, "mean")] == pytest.approx(
        [one.mean() for one in (CELLS["age"], *groups_of("age", "sex"))]
    )


def test_means_are_compared_as_scipy_does_without_noise() -> None:
    """Welch's t of two groups, and F of three; both take sums of all records as exact."""
    (of_two,) = answer(Table(columns=(MARKER,), by=BY_SEX), QUIET).tests
    exact = stats.ttest_ind(*groups_of("marker", "sex"), equal_var=False)
    assert (of_two.name, of_two.column) == ("Welch's t", "marker")
    assert of_two.statistic == pytest.approx(exact.statistic, abs=1e-6)
    assert of_two.degrees == pytest.approx(exact.df, rel=1e-6)
    assert of_two.p_value == pytest.approx(exact.pvalue, rel=1e-6, abs=0)
    (of_three,) = answer(Table(columns=(MARKER,), by=BY_STAGE), QUIET).tests
    several = stats.f_oneway(*groups_of("marker", "stage"), equal_var=False)
    assert of_three.statistic == pytest.approx(several.statistic, rel=1e-6)
    assert of_three.p_value == pytest.approx(several.pvalue, rel=1e-6, abs=0)
    assert of_three.degrees == 2


def test_intervals_of_means_are_those_of_scipy_without_noise() -> None:
    """Of Student's law: of a dozen records they are a tenth wider than a normal law's."""
    few = {name: values[:12] for name, values in patients().items()}
    table = Table(columns=(MARKER,))
    found = table.answer(table.encode(few).sum(axis=0), QUIET)
    (mean,) = (row for row in found.rows if row.quantity == "mean")
    exact = stats.ttest_1samp(few["marker"], 0).confidence_interval()
    assert (mean.low, mean.high) == pytest.approx(tuple(exact), abs=1e-6)
    assert mean.standard_error == pytest.approx(stats.sem(few["marker"]), abs=1e-6)


def test_a_mean_is_no_surer_where_noise_has_taken_its_records_spread() -> None:
    """Of a dozen records whose squares say 0, by noise of .3: .87 of 95 % intervals held."""
    table = Table(columns=(replace(MARKER, complete=True),))
    found = table.answer(np.array([12.0, 0.0, -6.0]), 0.3)
    (mean,) = rows(found, "mean")
    assert mean.value == 5
    spread = 0.3 / 12 * math.sqrt(1.25) * math.sqrt(2 / math.pi)  # of a normal law cut at 0
    assert mean.standard_error == pytest.approx(5 * math.sqrt(0.3**2 / 12**2 + spread / 11))


def test_standardised_differences_are_those_of_their_definition_without_noise() -> None:
    of_number, of_classes = answer(Table(columns=(MARKER, STAGE), by=BY_SEX), QUIET).tests
    one, other = groups_of("marker", "sex")
    unit = math.sqrt((one.var(ddof=1) + other.var(ddof=1)) / 2)
    assert of_number.smd == pytest.approx(abs(one.mean() - other.mean()) / unit, abs=1e-6)
    shares = [np.bincount(group.astype(int)) / len(group) for group in groups_of("stage", "sex")]
    apart = (shares[0] - shares[1])[1:]
    covariance = sum(np.diag(p) - np.outer(p, p) for p in shares)[1:, 1:] / 2
    distance = math.sqrt(apart @ np.linalg.solve(covariance, apart))
    assert of_classes.smd == pytest.approx(distance, abs=1e-6)
    exact = stats.chi2_contingency(stats.contingency.crosstab(CELLS["sex"], CELLS["stage"]).count)
    assert of_classes.statistic == pytest.approx(exact.statistic, abs=1e-6)
    assert of_classes.p_value == pytest.approx(exact.pvalue, rel=1e-6, abs=0)


def test_risks_are_compared_as_statsmodels_does_without_noise() -> None:
    asked = Crosstab(rows=BY_SEX, across=Levels(column=DIED))
    found = answer(asked, QUIET)
    for quantity in ("risk difference", "relative risk", "odds ratio"):
        (row,) = rows(found, quantity)
        assert (row.column, row.level) == ("sex", "m against f")
        assert (row.value, row.low, row.high) == pytest.approx(PEERS[quantity], abs=1e-6)


def test_a_row_below_the_noise_has_counts_and_neither_shares_nor_a_risk() -> None:
    """None has stage IV: a share of nobody is no number."""
    column = Column(name="stage", categories=("I", "II", "III", "IV"))
    found = answer(crossed(Levels(column=column)), 3.0)
    assert "too few records of IV for the noise" in found.notes
    assert len([row for row in found.rows if row.quantity == "records"]) == 8
    assert {row.group for row in rows(found, "share of row")} == {"I", "II", "III"}
    assert [row.level for row in rows(found, "risk difference")] == [
        "II against I",
        "III against I",
    ]
    first = crossed(BY_STAGE).answer(np.array([1.0, 2, 50, 50, 60, 40]), 3.0)
    assert {row.group for row in rows(first, "share of row")} == {"II", "III"}
    assert not rows(first, "risk difference")


def test_ratios_that_are_told_by_luck_hold_as_often_as_they_say() -> None:
    """6 events of 150 are told where noise of 2 and chance make 10: by noise alone .79 hold.

    Of 100 or more told 85 in 100 do, but for 1e-6 if 95 in 100 should.
    """
    rng, asked, held = np.random.default_rng(3), crossed(BY_SEX), []
    for _ in range(1500):
        events = rng.binomial([3000, 150], 0.04)
        counts = np.column_stack([[3000, 150] - events, events]) + 2.0 * rng.standard_normal((2, 2))
        if counts[1, 1] >= 10:
            (ratio,) = rows(asked.answer(counts.ravel(), 2.0), "relative risk")
            held.append(ratio.low <= 1 <= ratio.high)
            assert ratio.high < 1000
    assert len(held) > 100
    assert np.mean(held) > 0.85


def test_ratios_that_noise_hides_are_withheld_with_the_reason() -> None:
    """Of II one count is below the noise, of III both are clear of it."""
    found = crossed(BY_STAGE).answer(np.array([90.0, 60, 4, 80, 60, 40]), 3.0)
    assert [row.level for row in rows(found, "odds ratio")] == ["III against I"]
    assert len(rows(found, "relative risk")) == len(rows(found, "risk difference")) == 2
    assert found.notes[1:] == (
        "the odds ratio of II against I is withheld: by this noise it may be anything",
    )


@pytest.mark.slow
def test_survival_at_a_time_is_that_of_the_curve_and_means_that_of_lifelines() -> None:
    fine = tuple(np.arange(0, 24.01, 0.05))
    asked = Survival(time=TIME, event=DIED, edges=fine, by=BY_SEX, at=(6.0, 12.0))
    found = answer(asked, QUIET)
    at = [row.value for row in rows(found, "survival")]
    assert at[:2] == pytest.approx(PEERS["survival"][:2], abs=1e-6)
    means = [row for row in rows(found, "restricted mean") if row.group]
    # Events are at the ends of bins of .05, over which their hazard is spread here.
    assert [row.value for row in means] == pytest.approx(PEERS["restricted mean"], abs=0.03)
    assert [row.standard_error for row in means] == pytest.approx(
        [error_of_mean(sex) for sex in (0, 1)], rel=0.01
    )
    (apart,) = rows(found, "difference of restricted means")
    assert apart.value == pytest.approx(means[1].value - means[0].value)
    assert apart.p_value is not None


def error_of_mean(sex: int) -> float:
    """Of the area under a product limit to 24, after Greenwood."""
    inside = CELLS["sex"] == sex
    time, died = np.maximum(CELLS["time"][inside], 1), CELLS["died"][inside] == 1
    months = np.arange(1, 25)
    risk = (time >= months[:, None]).sum(axis=1)
    dead = ((time == months[:, None]) & died).sum(axis=1)
    survived = np.cumprod(1 - dead / risk)
    after = np.append(np.cumsum(survived[:-1][::-1])[::-1], 0)  # area from each month on
    return math.sqrt(float(np.sum(after**2 * dead / (risk * (risk - dead)))))


def test_times_beyond_the_horizon_are_not_told() -> None:
    with pytest.raises(StudyError, match="up to the horizon 24"):
        Survival(time=TIME, event=DIED, edges=MONTHS, at=(30.0,))


def releases(asked: Table | Crosstab, cells: dict[str, np.ndarray], sigma: float) -> Answer:
    rng = np.random.default_rng(int(cells["age"].sum() * 1000) % 2**32)
    sums = asked.encode(cells).sum(axis=0)
    return asked.answer(sums + sigma * rng.standard_normal(len(sums)), sigma)


def nothing_differs(rng: np.random.Generator, records: int) -> dict[str, np.ndarray]:
    return {
        "age": rng.gamma(4.0, 12.0, records),
        "sex": rng.integers(0, 2, records) * 1.0,
        "stage": rng.integers(0, 3, records) * 1.0,
        "died": (rng.random(records) < 0.3) * 1.0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [2.0, 20.0])
@pytest.mark.parametrize("by", [BY_SEX, BY_STAGE])
def test_tests_of_a_table_know_the_noise(by: Levels, sigma: float) -> None:
    """Of 400 tests where nothing differs 20 should reject; 36 is four deviations above."""
    rng, asked, below = np.random.default_rng(5), Table(columns=(AGE, DIED), by=by), 0
    for _ in range(200):
        tests = releases(asked, nothing_differs(rng, 1200), sigma).tests
        below += sum(one.p_value < 0.05 for one in tests)
    assert 6 <= below <= 36


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [2.0, 15.0])
def test_intervals_of_compared_risks_hold_as_often_as_they_say(sigma: float) -> None:
    """Of 300 releases at a true ratio, each number by itself."""
    rng, asked = np.random.default_rng(6), Crosstab(rows=BY_SEX, across=Levels(column=DIED))
    truth = {"risk difference": 0.15, "relative risk": 1.5, "odds ratio": (0.45 / 0.55) / (3 / 7)}
    held: dict[str, list[tuple[float, float, float]]] = {name: [] for name in truth}
    for _ in range(300):
        cells = nothing_differs(rng, 1000)
        cells["died"] = (rng.random(1000) < 0.3 + 0.15 * cells["sex"]) * 1.0
        for row in releases(asked, cells, sigma).rows:
            if row.quantity in truth:
                held[row.quantity].append((row.low, truth[row.quantity], row.high))
    for name, found in held.items():
        assert len(found) > 200, name
        hold_as_often(found, len(found))


def test_standardised_differences_are_not_made_of_noise() -> None:
    """Where nothing differs noise of 20 would tell .06 or more; sampling alone tells .04.

    False alarms: 2e-9, a chi-square of 60 above 150; the seed is fixed besides.
    """
    rng, asked, found = np.random.default_rng(7), Table(columns=(AGE,), by=BY_SEX), []
    for _ in range(60):
        (test,) = releases(asked, nothing_differs(rng, 2000), 20.0).tests
        assert test.smd is not None
        found.append(test.smd)
    assert np.mean(np.square(found)) < 0.05**2 * 2


def test_noise_in_either_mean_is_taken_off_a_standardised_difference() -> None:
    one, other = (GroupMean(mean, 4.0, 1e9, noise, 0.1) for mean, noise in ((3.0, 1.0), (6.0, 2.0)))
    assert _means_apart(one, other) == pytest.approx(math.sqrt((3.0**2 - 1.0 - 2.0) / 4.0))


@pytest.mark.parametrize("odds", [False, True])
def test_noise_widens_a_ratio_by_the_slope_of_its_logarithm(odds: bool) -> None:
    counts, little = np.array([60.0, 40.0]), 1e-4
    value, drawn = _logarithm(counts, 0.0, odds=odds)
    moved = [_logarithm(counts + one, 0.0, odds=odds)[0] for one in little * np.eye(2)]
    slopes = (np.array(moved) - value) / little
    found = _logarithm(counts, 5.0, odds=odds)[1] - drawn
    assert found == pytest.approx(5.0**2 * float(slopes @ slopes), rel=1e-3)


def test_a_group_below_the_noise_is_left_out_of_the_comparison() -> None:
    column = Column(name="stage", categories=("I", "II", "III", "IV"))
    found = answer(Table(columns=(AGE,), by=Levels(column=column)), 3.0)
    assert "too few records of IV for the noise" in found.notes
    assert found.tests[0].degrees == 2


def test_p_values_of_a_family_are_adjusted_after_holm() -> None:
    """By the rule: sorted, times how many are left, and never falling."""
    asked = {"baseline": Table(columns=(AGE, MARKER), by=BY_SEX), "sexes": crossed(BY_SEX)}
    answers = {name: answer(one, QUIET) for name, one in asked.items()}
    found = adjusted(answers, ("baseline", "sexes"))
    before = [one.p_value for name in asked for one in told_p_values(answers[name])]
    after = [one.p_adjusted for name in asked for one in told_p_values(found[name])]
    order, least = np.argsort(before), 0.0
    for number, place in enumerate(order):
        least = max(least, min(before[place] * (len(before) - number), 1.0))
        assert after[place] == pytest.approx(least, rel=1e-12)
    assert adjusted(answers, ()) == answers


def crossed(rows: Levels) -> Crosstab:
    return Crosstab(rows=rows, across=Levels(column=DIED))


def told_p_values(found: Answer) -> list[Any]:
    return [one for one in (*found.rows, *found.tests) if one.p_value is not None]


@pytest.mark.parametrize(("denominator", "told"), [(3.0, True), (1.9, False), (0.0, False)])
def test_a_ratio_whose_denominator_may_be_nothing_may_be_anything(
    denominator: float, told: bool
) -> None:
    """Fieller's interval has no ends where z standard errors of the denominator reach 0."""
    ends = ratio_interval(5.0, denominator, (1.0, 0.0, 1.0), 1.96, (-100.0, 100.0))
    assert (ends != (-100.0, 100.0)) is told
    assert ends[0] < ends[1]
