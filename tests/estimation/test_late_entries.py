"""Records that come under observation late (P34), and Gray's test of competing events (P35)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimation.made_up import DIED, SEX, STAGE, TIME, entries, patients
from estimation.often import hold_as_often
from estimation.test_answers import MONTHS, PEERS
from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.cox import Cox
from hubbub.estimation.incidence import GroupIncidence, Incidence, compared_incidence
from hubbub.estimation.kinds import statistic_from
from hubbub.estimation.risk_sets import RiskSets
from hubbub.estimation.statistic import Answer, OneSum
from hubbub.estimation.survival import Survival
from hubbub.testing.laws import too_often

ENTRY = Column(name="entry", low=0, high=24)
CAUSE = Column(name="cause", categories=("none", "relapse", "death"))
BY_SEX, BY_STAGE = Levels(column=SEX), Levels(column=STAGE)
CELLS = patients() | {
    "entry": entries(),
    "cause": np.where(patients()["died"] == 1, 1.0 + (np.arange(1500) % 3 == 0), 0.0),
}
COLUMNS = {one.name: one for one in (TIME, SEX, STAGE, DIED, CAUSE, ENTRY)}
LATE = Survival(time=TIME, event=DIED, edges=MONTHS, entry=ENTRY)
GRAY = Incidence(time=TIME, event=CAUSE, edges=MONTHS, by=BY_SEX, test=True)
QUIET = 1e-9


def plain(asked: OneSum, sigma: float = QUIET, seed: int = 1, cells: Any = None) -> Answer:
    """The answer of one release at this noise in the block's own unit."""
    sums = asked.encode(CELLS if cells is None else cells).sum(axis=0)
    return asked.answer(
        sums + sigma * np.random.default_rng(seed).standard_normal(asked.size), sigma
    )


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "survival", "time": "time", "event": "died", "entry": "entry", "bins": 6},
        {"kind": "incidence", "time": "time", "event": "cause", "entry": "entry", "bins": 6},
        {
            "kind": "incidence",
            "time": "time",
            "event": "cause",
            "bins": 6,
            "by": "sex",
            "test": "gray",
        },
        {
            "kind": "cox",
            "time": "time",
            "event": "died",
            "entry": "entry",
            "bins": 6,
            "covariates": {"sex": "categories"},
        },
    ],
)
def test_what_is_asked_is_read_back(table: dict[str, Any]) -> None:
    asked = statistic_from("q", table, COLUMNS)
    assert statistic_from("q", asked.to_table(), COLUMNS) == asked
    assert {**asked.to_table(), "bins": 6} | table == {**asked.to_table(), "bins": 6}
    assert isinstance(asked, OneSum)
    assert asked.expected(6000, 0.5).answered
    assert not asked.expected(30, 50.0).possible
    assert not plain(asked, 0.1).refusal
    assert plain(asked, 5000.0).refusal


def test_curves_of_late_entries_are_those_of_lifelines_without_noise() -> None:
    found = plain(LATE)
    (curve,) = found.curves
    told = [curve.y[month] for month in (6, 12, 24)]
    assert told == pytest.approx(PEERS["late survival"], abs=1e-6)
    for month, ends in zip((6, 12, 24), PEERS["late survival ends"], strict=True):
        assert (curve.low[month], curve.high[month]) == pytest.approx(ends, abs=0.004)
    inside = CELLS["entry"] < CELLS["time"]
    entry, time = CELLS["entry"][inside], CELLS["time"][inside]
    at_risk = [((entry <= month) & (time > month)).sum() for month in MONTHS]
    assert curve.at_risk == pytest.approx(at_risk, abs=1e-5)
    assert found.rows[0].value == pytest.approx(inside.sum(), abs=1e-5)


def test_the_log_rank_test_of_late_entries_is_that_of_statsmodels_without_noise() -> None:
    asked = Survival(time=TIME, event=DIED, edges=MONTHS, entry=ENTRY, by=BY_SEX)
    (test,) = plain(asked).tests
    assert test.statistic == pytest.approx(PEERS["late log-rank"], abs=1e-6)


def test_hazard_ratios_of_late_entries_are_those_of_lifelines_without_noise() -> None:
    """Ties after Efron are exact up to second order, as without late entries."""
    rows = plain(Cox(time=TIME, event=DIED, edges=MONTHS, on=(BY_SEX, BY_STAGE), entry=ENTRY)).rows
    told, errors = ([math.log(row.value) for row in rows], [row.standard_error for row in rows])
    assert told == pytest.approx(PEERS["late cox"], abs=0.002)
    assert errors == pytest.approx(PEERS["late cox errors"], rel=0.01)


def test_who_was_observed_from_the_start_tells_what_is_told_without_entries() -> None:
    cells = CELLS | {"entry": np.full(1500, -3.0)}
    kept = CELLS["time"] > 0
    others = {name: values[kept] for name, values in CELLS.items()}
    exact, found = (
        plain(Survival(time=TIME, event=DIED, edges=MONTHS), cells=others),
        plain(LATE, cells=cells),
    )
    assert found.curves[0].y == pytest.approx(exact.curves[0].y, abs=1e-8)
    assert found.curves[0].at_risk == pytest.approx(exact.curves[0].at_risk, abs=1e-5)
    assert found.rows[0].value == pytest.approx(exact.rows[0].value, abs=1e-5)


def cohort(
    rng: np.random.Generator, records: int, shape: float = 1.0, twice: bool = False
) -> dict[str, np.ndarray]:
    """Weibull times of scale 20; who enters late is there only if the event has not come before."""
    many = 4 * records
    sex = rng.integers(0, 2, many) * 1.0
    end = 20 * rng.weibull(shape, many) / (1.0 + sex * twice) ** (1.0 / shape)
    entry = np.where(rng.random(many) < 0.3, 0.0, rng.uniform(0, 12, many))
    left = entry + rng.uniform(0, 24, many)
    time = np.minimum(end, left)
    there = np.flatnonzero(entry < time)[:records]
    cells = {"time": time, "entry": entry, "died": (end <= left) * 1.0, "sex": sex}
    return {name: values[there] for name, values in cells.items()}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.7, 1.0, 1.7])
def test_entries_off_the_grid_bias_neither_curves_nor_numbers_at_risk(shape: float) -> None:
    cells = cohort(np.random.default_rng(1), 200_000, shape)
    found = plain(Survival(time=TIME, event=DIED, edges=MONTHS[::2], entry=ENTRY), 1e-6, 1, cells)
    (curve,) = found.curves
    x = np.array(curve.x)
    assert curve.y == pytest.approx(np.exp(-((x / 20) ** shape)), abs=0.008)
    at_risk = ((cells["entry"] <= x[:, None]) & (cells["time"] > x[:, None])).sum(axis=1)
    assert np.abs(curve.at_risk - at_risk).max() < 900  # where entries end at once: 1 %


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1.0, 5.0])
def test_intervals_of_late_entries_hold_as_often_as_they_say(sigma: float) -> None:
    """200 cohorts, three times in each."""
    asked = Survival(time=TIME, event=DIED, edges=MONTHS[::2], at=(6.0, 12.0, 20.0), entry=ENTRY)
    rng, held = np.random.default_rng(5), list[tuple[float, float, float]]()
    for seed in range(200):
        for row in plain(asked, sigma, seed, cohort(rng, 1500)).rows:
            if row.quantity == "survival":
                held.append((row.low, math.exp(-float(row.level) / 20), row.high))
    assert len(held) >= 500
    hold_as_often(held, 200)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1.0, 5.0])
def test_tests_of_late_entries_know_the_noise(sigma: float) -> None:
    """Of 200 tests of what does not differ 10 are below .05; false alarms: at most 1e-6."""
    asked = Survival(time=TIME, event=DIED, edges=MONTHS[::2], by=BY_SEX, entry=ENTRY)
    rng = np.random.default_rng(6)
    below = sum(
        plain(asked, sigma, seed, cohort(rng, 1500)).tests[0].p_value < 0.05 for seed in range(200)
    )
    assert not too_often(below, 200, 0.05)
    assert plain(asked, sigma, 1, cohort(rng, 1500, twice=True)).tests[0].p_value < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_hazard_ratios_of_late_entries_hold_as_often_as_they_say(sigma: float) -> None:
    asked = Cox(time=TIME, event=DIED, edges=MONTHS[::2], on=(BY_SEX,), entry=ENTRY)
    rng, held = np.random.default_rng(7), list[tuple[float, float, float]]()
    for seed in range(200):
        for row in plain(asked, sigma, seed, cohort(rng, 1500, twice=True)).rows:
            held.append((row.low, 2.0, row.high))
    assert len(held) >= 190
    hold_as_often(held, len(held))


@given(
    bins=st.integers(2, 40),
    power=st.floats(0, 1),
    counted=st.booleans(),
    entry=st.floats(0, 12),
    time=st.floats(0, 12),
    died=st.booleans(),
)
def test_p34_an_entry_adds_half_of_a_column_at_most(
    bins: int, power: float, counted: bool, entry: float, time: float, died: bool
) -> None:
    edges = tuple(10.0 * k / bins for k in range(bins + 1))
    sets, plain_sets = (
        RiskSets(time=TIME, event=DIED, edges=edges, power=power, counted=counted, entry=column)
        for column in (ENTRY, None)
    )
    cells = {"time": np.array([time]), "died": np.array([died * 1.0]), "entry": np.array([entry])}
    (found,), (exit_alone,) = (
        one.encode(cells, np.zeros(1, np.int64)) for one in (sets, plain_sets)
    )
    assert (found >= 0).all()
    assert np.linalg.norm(found) <= sets.sensitivity * (1 + 1e-12)
    if entry >= time:
        assert not found.any()
    else:
        assert found[: len(exit_alone)] == pytest.approx(exit_alone, rel=1e-6, abs=0)
        assert np.linalg.norm(found[len(exit_alone) :]) <= plain_sets.sensitivity / 2 * (1 + 1e-12)
    assert sets.sensitivity == pytest.approx(math.sqrt(1.25) * plain_sets.sensitivity)
    assert sets.diameter == pytest.approx(math.sqrt(2) * sets.sensitivity)


def raw_gray(time: np.ndarray, cause: np.ndarray, group: np.ndarray) -> np.ndarray:
    """U of each group but the last, by going through the months: an independent computation."""
    names = np.unique(group)
    survived, share = dict.fromkeys(names, 1.0), dict.fromkeys(names, 0.0)
    excess = np.zeros(len(names))
    for month in np.arange(1, 25):
        stands, events = [], []
        for name in names:
            risk = float(((group == name) & (time >= month)).sum())
            stands.append(risk * (1 - share[name]) / survived[name])
            now = (group == name) & (time == month)
            events.append(float((now & (cause == 1)).sum()))
            lost = float((now & (cause > 0)).sum())
            share[name] += survived[name] * events[-1] / risk
            survived[name] *= 1 - lost / risk
        excess += np.array(events) - np.array(stands) * sum(events) / sum(stands)
    return excess[:-1]


def test_grays_score_is_that_of_records_gone_through_one_by_one() -> None:
    parts = incidences()
    time, cause = np.maximum(CELLS["time"], 1), CELLS["cause"]
    exact = raw_gray(time, cause, CELLS["stage"])
    assert compared_incidence(parts)[0][:-1] == pytest.approx(exact, abs=1e-6)


def incidences() -> list[GroupIncidence]:
    """Of the three stages, from records as they are."""
    time, cause, months = np.maximum(CELLS["time"], 1), CELLS["cause"], np.arange(1, 25)[:, None]
    return [
        GroupIncidence(
            events=np.array(
                [((time == months) & own & (cause == kind)).sum(axis=1) * 1.0 for kind in (1, 2)]
            ),
            at_risk=((time >= months) & own).sum(axis=1) * 1.0,
        )
        for own in (CELLS["stage"] == place for place in range(3))
    ]


@pytest.mark.slow
def test_the_derivatives_of_grays_score_are_those_of_small_steps() -> None:
    parts = incidences()
    _, gradients = compared_incidence(parts)
    for place, (by_events, by_risk) in enumerate(gradients):
        for what, said in (("events", by_events), ("at_risk", by_risk)):
            plain_numbers = getattr(parts[place], what)
            for index in np.ndindex(plain_numbers.shape):
                ends = []
                for step in (1e-3, -1e-3):
                    moved = plain_numbers.copy()
                    moved[index] += step
                    other = {"events": parts[place].events, "at_risk": parts[place].at_risk}
                    changed = GroupIncidence(**(other | {what: moved}))
                    ends.append(
                        compared_incidence([*parts[:place], changed, *parts[place + 1 :]])[0]
                    )
                slope = (ends[0] - ends[1]) / 2e-3
                np.testing.assert_allclose(said[(slice(None), *index)], slope, atol=1e-5)


def test_without_other_events_grays_test_is_nearly_log_rank() -> None:
    """The same score, and a variance that differs by what groups' own hazards do."""
    cells = CELLS | {"cause": CELLS["died"]}
    gray = plain(GRAY, cells=cells).tests[0]
    exact = plain(Survival(time=TIME, event=DIED, edges=MONTHS, by=BY_SEX)).tests[0]
    assert gray.name == "Gray's"
    assert gray.column == "relapse"
    assert gray.statistic == pytest.approx(exact.statistic, rel=0.05)
    assert math.copysign(1, gray.z or 0) == math.copysign(1, exact.z or 0)


def of_causes(
    rng: np.random.Generator, records: int, *, death: float = 1.0, relapse: float = 1.0
) -> dict[str, np.ndarray]:
    """Of whom .4 would relapse and others die, at means of 12 and 20; in men so much sooner."""
    men = rng.random(records) < 0.4
    kind = np.where(rng.random(records) < 0.4, 1.0, 2.0)
    first = np.where(
        kind == 1,
        rng.exponential(12 / np.where(men, relapse, 1.0), records),
        rng.exponential(20 / np.where(men, death, 1.0), records),
    )
    left = rng.uniform(2, 40, records)
    return {
        "time": np.minimum(first, left),
        "cause": np.where(first <= left, kind, 0.0),
        "sex": men * 1.0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1.0, 4.0])
@pytest.mark.parametrize("death", [1.0, 3.0])
def test_grays_test_asks_for_incidence_and_knows_the_noise(death: float, sigma: float) -> None:
    """Shares and times of relapse are alike, deaths are not: 10 of 200 are below .05.

    The log-rank test of relapse would differ, as who dies sooner is no longer at risk. Seeds are
    fixed.
    """
    asked = Incidence(time=TIME, event=CAUSE, edges=MONTHS[::2], by=BY_SEX, test=True)
    rng, below = np.random.default_rng(9), np.zeros(2)
    for seed in range(200):
        tests = plain(asked, sigma, seed, of_causes(rng, 1500, death=death)).tests
        below += [test.p_value < 0.05 for test in tests]
    assert 1 <= below[0] <= 21
    assert below[1] >= 190 if death > 1 else 1 <= below[1] <= 21


def test_what_cannot_be_asked_is_refused() -> None:
    late = {"kind": "survival", "time": "time", "event": "died"}
    for table, said in (
        ({**late, "entry": "sex"}, "a numeric column"),
        ({**late, "entry": "time"}, "another column than time"),
        ({"kind": "incidence", "time": "time", "event": "cause", "test": "gray"}, "without by"),
        (
            {
                "kind": "cox",
                "time": "time",
                "event": "died",
                "entry": "entry",
                "covariates": {"age": "number"},
            },
            "absent beside covariates that are numbers",
        ),
    ):
        age = {"age": Column(name="age", low=20, high=90)}
        with pytest.raises(StudyError, match=said):
            statistic_from("q", table, COLUMNS | age)


def test_a_grid_of_late_entries_begins_at_their_lower_bound() -> None:
    columns = COLUMNS | {
        "entry": Column(name="entry", low=50, high=90),
        "time": Column(name="time", low=50, high=100),
    }
    table = {"kind": "survival", "time": "time", "event": "died", "entry": "entry", "bins": 5}
    asked = statistic_from("q", table, columns)
    assert isinstance(asked, Survival)
    assert asked.edges == (50.0, 60.0, 70.0, 80.0, 90.0, 100.0)
