"""What is planned "yes" is answered, and an effect is told where its information is known."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from estimation.made_up import AGE, DIED, MARKER, SEX, STAGE, TIME, patients
from estimation.often import hold_as_often
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.baseline_table import Table
from hubbub.estimation.cox import Cox, Stratum, cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.effects import BARELY, Root, _reached, sandwich, too_noisy
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.linear import Linear
from hubbub.estimation.logistic_regression import Logistic, logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.regression import SKEWED
from hubbub.estimation.stacking import stack
from hubbub.estimation.statistic import Iterated, OneSum
from hubbub.estimation.survival import Survival
from hubbub.testing.laws import too_often

CELLS = patients()
BY_SEX, BY_STAGE = Levels(column=SEX), Levels(column=STAGE)
GRID = tuple(map(float, range(0, 25, 3)))
COX = Cox(time=TIME, event=DIED, edges=GRID, on=(BY_SEX, BY_STAGE))


def test_large_data_are_told_at_a_tiny_epsilon() -> None:
    """100,000 records at epsilon .01: noise is three times sampling, and known to be."""
    asked, sigma, number = Logistic(outcome=DIED, on=(BY_SEX, BY_STAGE)), 244.0, 100_000
    assert stack({"q": asked}).expected_of("q", number, sigma).answered
    counts = np.outer(np.full(6, number / 6), [0.7, 0.3]).ravel()
    rng = np.random.default_rng(1)
    found = asked.answer(counts + sigma * rng.standard_normal(12), sigma)
    assert len(found.rows) == 3
    for row in found.rows:
        assert row.standard_error > 3 * math.sqrt(4 / (number * 0.21))
        assert abs(math.log(row.value)) < 6 * row.standard_error < 0.6  # false alarms: 6e-9
        assert abs(math.log(row.value / 3.5)) > 6 * row.standard_error


def test_a_plan_says_of_how_frequent_outcomes_its_error_is() -> None:
    odds = Logistic(outcome=DIED, on=(BY_SEX,)).expected(2000, 1.0).sentence
    assert odds.endswith("(one standard error), if a quarter of the records have the outcome")
    hazards = cox(TIME, DIED, GRID, (AGE,)).expected(20_000, 1.0).sentence
    assert "(one standard error), if a third of the records have the event" in hazards


@pytest.mark.parametrize("effects", [(0.0, 0.0, 0.0), (0.4, -0.3, 0.8)])
def test_what_noise_does_to_a_hazards_information_is_its_derivative(
    effects: tuple[float, ...],
) -> None:
    """A step of some numbers of the sum; which part of ties is at risk is taken as it is."""
    blocks = COX.encode(CELLS).sum(axis=0).reshape(6, -1)

    def score(sums: np.ndarray) -> Stratum:
        events, risk = sums @ COX.sets.events.T, sums @ COX.sets.exposed[:-1].T
        return Stratum(
            sets=COX.sets,
            design=COX.design,
            events=events,
            at_risk=risk,
            sigma=1.0,
            mixed=np.eye(6),
        )

    at, vectors = np.array(effects), np.random.default_rng(1).standard_normal((len(effects), 5))
    said, plain = score(blocks).doubt(at, vectors), score(blocks).at(at)[1]
    for place in range(0, blocks.size, 7):
        moved = blocks.copy()
        moved.ravel()[place] += 1e-4
        slope = (score(moved).at(at)[1] - plain) / 1e-4
        along = np.einsum("in,ij,jn->n", vectors, slope, vectors)
        np.testing.assert_allclose(said[place], along, rtol=0.01, atol=2e-3)


def test_how_clear_an_effect_is_is_how_well_its_variance_is_known() -> None:
    """The deviation of 4000 variances, off by less than 7 % (six errors), and not by a third."""
    rng = np.random.default_rng(2)
    half = rng.standard_normal((3, 3))
    information = 50 * (half @ half.T + np.eye(3))
    doubt = rng.standard_normal((8, 3, 3))
    doubt = (doubt + doubt.transpose(0, 2, 1)) / 4

    def off(vectors: np.ndarray) -> np.ndarray:
        return np.linalg.norm(np.einsum("in,mij,jn->mn", vectors, doubt, vectors), axis=0)

    found = sandwich(Root(np.zeros(3), information), np.zeros((3, 3)), off)
    noisy = information + np.einsum("nm,mij->nij", rng.standard_normal((4000, 8)), doubt)
    variances = np.linalg.inv(noisy).diagonal(axis1=1, axis2=2)
    relative = variances.std(axis=0) / np.linalg.inv(information).diagonal()
    np.testing.assert_allclose(0.5 / found.clear, relative, rtol=0.07)  # it needs twice
    assert (np.abs(0.5 / found.clear / (relative * 4 / 3) - 1) > 0.07).all()


def test_a_class_in_which_nobody_has_the_outcome_does_not_hide_the_others() -> None:
    asked = Logistic(outcome=DIED, on=(BY_SEX, BY_STAGE))
    counts = np.array([[600, 200], [400, 100], [60, -3], [500, 260], [350, 170], [50, -2.0]])
    few = np.where(counts < 0, 2.0, counts)
    found, other = (asked.answer(one.ravel(), 3.0).rows for one in (counts, few))
    for row, same in zip(found[:2], other[:2], strict=True):
        apart = math.log(row.value / same.value)
        assert abs(apart) < 0.2 * same.standard_error  # as few more have the outcome
        assert row.standard_error == pytest.approx(same.standard_error, rel=0.02)
    for row in found[2:]:  # which may be told: few have the outcome, if any
        assert row.low < other[2].value < row.high


def told_of_rare_class(many: int) -> int:
    """In how many releases of 60 at epsilon 1 the ratio of one in twenty of 3,000 is told."""
    rng = np.random.default_rng(8)
    rare, sex = (rng.random(3000) < 0.05) * 1.0, rng.integers(0, 2, 3000) * 1.0
    end = rng.exponential(1 / (0.06 * np.exp(0.8 * rare + 0.3 * sex)))
    left = rng.uniform(0, 24, 3000)
    cells = {"time": np.minimum(end, left), "died": (end <= left) * 1.0, "sex": sex, "rare": rare}
    asked = Cox(time=TIME, event=DIED, edges=GRID, on=(RARE, BY_SEX))
    total, sigma = asked.encode(cells).sum(axis=0), 4.3 * asked.sensitivity
    assert asked.expected(3000, sigma).answered
    answers = [
        asked.answer(total + sigma * rng.standard_normal(asked.size), sigma) for _ in range(many)
    ]
    return sum(any(row.column == "rare" for row in answer.rows) for answer in answers)


@pytest.mark.slow
def test_late_bins_without_a_rare_class_do_not_hide_it() -> None:
    """False alarms: at most 1e-6, if one release in 30 does not tell it."""
    assert not too_often(60 - told_of_rare_class(60), 60, 1 / 30)
    with patch.object(Stratum, "clear", lambda stratum, *_, **__: stratum):
        assert too_often(60 - told_of_rare_class(60), 60, 1 / 30)


GRADE = Levels(column=Column(name="grade", categories=("low", "high", "never")))
ON_GRADE: dict[str, OneSum | Iterated] = {
    "logistic": Logistic(outcome=DIED, on=(GRADE, BY_SEX)),
    "logistic on numbers": logistic(DIED, (AGE, GRADE)),
    "linear": Linear(outcome=MARKER, on=(AGE, GRADE)),
    "cox": Cox(time=TIME, event=DIED, edges=GRID, on=(GRADE, BY_SEX)),
    "cox on numbers": cox(TIME, DIED, GRID, (AGE, GRADE)),
}


@pytest.mark.parametrize("kind", ON_GRADE)
def test_a_class_that_nobody_is_in_takes_no_other_effect_with_it(kind: str) -> None:
    """Of eight releases all are told; noise makes such a class one of 4 deviations in 1 of 1e4."""
    stacked = stack({"q": ON_GRADE[kind]})
    cells = CELLS | {"grade": np.arange(len(CELLS["sex"])) % 3 // 2 * 1.0}
    for seed in range(8):
        rng, sums, at = np.random.default_rng(seed), list[np.ndarray](), stacked.start
        while len(sums) < stacked.rounds:
            sums.append(stacked.sum(cells, at) + 0.5 * rng.standard_normal(stacked.size))
            if len(sums) < stacked.rounds:
                at = stacked.update(sums, 0.5, at)
        answer = stacked.answers(sums, 0.5)["q"]
        assert {row.level for row in answer.rows} >= {"high against low"}
        assert any("never against low: below the noise" in note for note in answer.notes)


@pytest.mark.parametrize("classes", [(1.0, 2.0), (1.0, 1.0)])
def test_a_slope_is_told_where_nobody_is_in_the_reference(classes: tuple[float, float]) -> None:
    """Seeds are fixed: told or refused, whichever sign noise gave to the number of nobody.

    The slope is .5, and -.5 without the classes that its records differ by.
    """
    cells = {"grade": np.repeat(classes, 1000), "age": np.linspace(40, 80, 2000)}
    shift = 20.0 * (cells["grade"] - 1) if classes[1] > 1 else 0.0
    marker = Column(name="marker", low=0, high=100)
    asked = Linear(outcome=marker, on=(AGE, GRADE))
    moments = asked.encode(cells | {"marker": 0.5 * cells["age"] - shift + 20}).sum(axis=0)
    for seed in range(20):
        noise = 0.5 * np.random.default_rng(seed).standard_normal(asked.size)
        answer = asked.answer(moments + noise, 0.5)
        (row,) = answer.rows
        assert abs(row.value - 0.5) < 6 * row.standard_error < 0.6
        assert sum("below the noise" in note for note in answer.notes) == 2


@pytest.mark.parametrize("kind", ["linear", "logistic", "cox"])
def test_a_plan_says_how_far_a_number_must_vary(kind: str) -> None:
    """Where it varies by as much, an answer is as clear as is promised."""
    age = Column(name="age", low=0, high=120)
    asked = {
        "linear": Linear(outcome=MARKER, on=(age,)),
        "logistic": logistic(DIED, (age,)),
        "cox": cox(TIME, DIED, GRID, (age,)),
    }[kind]
    said = asked.expected(20_000, 0.5)
    need = re.search(r"a standard deviation of ([\d.]+) % of their range", said.sentence)
    assert said.answered
    assert need
    for more in (0.95, 1.05):
        loose = replace(SKEWED, variance=(more * 2 * float(need[1]) / 100) ** 2)
        with patch.object(type(asked), "skewed", (loose,)):
            assert asked.expected(20_000, 0.5).answered == (more > 1)


LAB = Column(name="lab", low=0, high=500)
RARE = Levels(column=Column(name="rare", categories=("no", "yes")))
QUESTIONS: dict[str, OneSum | Iterated] = {
    "table": Table(columns=(AGE, LAB, STAGE), by=RARE),
    "quantiles": Quantiles(column=LAB, edges=tuple(np.linspace(0, 500, 33).tolist())),
    "crosstab": Crosstab(rows=BY_STAGE, across=RARE),
    "survival": Survival(time=TIME, event=DIED, edges=GRID, by=BY_SEX),
    "logistic": Logistic(outcome=DIED, on=(RARE, BY_STAGE)),
    "logistic on numbers": logistic(DIED, (LAB, BY_SEX)),
    "linear": Linear(outcome=LAB, on=(AGE, RARE)),
    "cox": Cox(time=TIME, event=DIED, edges=GRID, on=(RARE, BY_STAGE)),
    "cox on numbers": cox(TIME, DIED, GRID, (LAB, RARE)),
}


NARROW = Linear(outcome=Column(name="y", low=-30, high=30), on=(Column(name="x", low=-3, high=3),))


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [4.0, 0.05])
def test_a_linear_regression_is_answered_however_narrow_its_residuals_are(deviation: float) -> None:
    """Within bounds of 60; noise drowns the variance of residuals of .05, and not that of 4."""
    rng = np.random.default_rng(11)
    x = np.clip(rng.normal(0, 1, 2000), -3, 3)
    assert stack({"q": NARROW}).expected_of("q", 2000, 4.0).answered
    held = []
    for _ in range(400):
        y = 2 + 1.5 * x + rng.normal(0, deviation, 2000)
        sums = NARROW.encode({"x": x, "y": y}).sum(axis=0)
        (row,) = NARROW.answer(sums + 4.0 * rng.standard_normal(NARROW.size), 4.0).rows
        held.append((row.low, 1.5, row.high))
    hold_as_often(held, 400)


def skewed(number: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A laboratory value with a long tail, one in nine in a class, few events."""
    death, left = rng.exponential(120, number), rng.uniform(6, 60, number)
    return {
        "age": 20 + 70 * rng.beta(8, 4, number),
        "lab": np.minimum(rng.lognormal(math.log(80), 0.6, number), 500),
        "sex": (rng.random(number) < 0.4).astype(float),
        "stage": rng.choice(3, number, p=[0.6, 0.28, 0.12]).astype(float),
        "rare": (rng.random(number) < 0.15).astype(float),
        "time": np.minimum(np.minimum(death, left), 24.0),
        "died": (death <= np.minimum(left, 24.0)).astype(float),
    }


def largest_noise(asked: OneSum | Iterated, number: int) -> float:
    """With which a plan says yes, to a tenth."""
    sigma = 100.0
    while not stack({"q": asked}).expected_of("q", number, sigma).answered:
        sigma /= 1.1
    return sigma


def refused_of_sixty(asked: OneSum | Iterated, cells: dict[str, np.ndarray], sigma: float) -> int:
    stacked, rng, refused = stack({"q": asked}), np.random.default_rng(7), 0
    for _ in range(60):
        at, sums = stacked.start, []
        for _ in range(stacked.rounds):
            sums.append(stacked.sum(cells, at) + sigma * rng.standard_normal(stacked.size))
            at = stacked.update(sums, sigma, at)
        refused += bool(stacked.answers(sums, sigma)["q"].refusal)
    return refused


@pytest.mark.quick_cases("crosstab")
@pytest.mark.slow_cases("cox on numbers")
@pytest.mark.parametrize("kind", QUESTIONS)
def test_what_is_planned_is_answered_where_records_are_skewed(kind: str) -> None:
    """At the largest noise with which a plan says yes; 60 releases, of which one may be refused."""
    asked, number = QUESTIONS[kind], 1180
    sigma = largest_noise(asked, number)
    assert refused_of_sixty(asked, skewed(number, np.random.default_rng(7)), sigma) <= 1


@pytest.mark.slow
def test_a_cox_regression_is_answered_where_most_records_are_followed_out() -> None:
    """Two of three have the event, a class a quarter of an equal share; at most one is refused."""
    asked, number, rng = QUESTIONS["cox"], 1180, np.random.default_rng(8)
    rare, stage = rng.random(number) < 1 / 8, rng.choice(3, number, p=[1 / 12, 0.5, 5 / 12])
    death, left = rng.exponential(20, number), rng.uniform(12, 60, number)
    cells = skewed(number, rng) | {
        "rare": rare * 1.0,
        "stage": stage * 1.0,
        "time": np.minimum(np.minimum(death, left), 24.0),
        "died": (death <= np.minimum(left, 24.0)) * 1.0,
    }
    assert cells["died"].mean() > 0.65
    assert refused_of_sixty(asked, cells, largest_noise(asked, number)) <= 1
    with patch.object(Cox, "skewed", (SKEWED,)), patch.object(Cox, "promised", 1.0):
        sigma = largest_noise(asked, number)  # by few events alone, and with no margin
    assert refused_of_sixty(asked, cells, sigma) > 3


def test_strata_in_which_a_rare_class_is_lost_in_noise_leave_a_root() -> None:
    """Its numbers at risk fall below 0 in late bins; six of twenty releases were refused."""
    rng, number, sigma = np.random.default_rng(1), 2000, 1.5
    group, man = rng.choice(3, number, p=[0.6, 0.35, 0.05]), rng.random(number) < 0.3
    centre = rng.choice(4, number, p=[0.5, 0.3, 0.15, 0.05])
    risk = np.exp(0.5 * man + 0.4 * group) * np.array([1, 1.5, 2, 0.7])[centre]
    until = 15 * (rng.exponential(1, number) / risk) ** (1 / 1.3)
    lost = np.minimum(rng.exponential(30, number), rng.uniform(5, 40, number))
    cells = {"time": np.minimum(until, lost), "died": (until <= lost) * 1.0}
    cells |= {"sex": man * 1.0, "stage": group * 1.0, "centre": centre * 1.0}
    strata = Levels(column=Column(name="centre", categories=("n", "s", "e", "w")))
    grid = tuple(np.linspace(0, 24, 13).tolist())
    asked = Cox(time=TIME, event=DIED, edges=grid, on=(BY_SEX, BY_STAGE), strata=strata)
    assert asked.expected(number, sigma).answered
    exact = asked.encode(cells).sum(axis=0)
    for noise in sigma * rng.standard_normal((20, asked.size)):
        told = {row.level: row for row in asked.answer(exact + noise, sigma).rows}
        row = told["II against I"]
        assert abs(math.log(row.value) - 0.4) < 4 * row.standard_error


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_the_budget_makes_noise_the_same_part_of_every_questions_variance(relation: str) -> None:
    """Of the largest of each; a weight of two halves it."""
    asked = {
        "table": QUESTIONS["table"],
        "survival": QUESTIONS["survival"],
        "cox": QUESTIONS["cox"],
        "linear": Linear(outcome=MARKER, on=(AGE, BY_STAGE), weight=2.0),
        "numbers": QUESTIONS["logistic on numbers"],
    }
    found = stack(asked, relation)
    worst = {
        name: max(
            (one / other) ** 2 - 1
            for (what, one), (_, other) in zip(
                *(found.expected_of(name, 3e8, sigma).errors for sigma in (500.0, 1e-3)),
                strict=True,
            )
            if what != "at risk"  # which noise alone leaves uncertain
        )
        for name in asked
    }
    assert 2 * worst["linear"] == pytest.approx(worst["table"], rel=0.02)
    for name in ("survival", "cox", "numbers"):
        assert worst[name] == pytest.approx(worst["table"], rel=0.02)


EMPTY = Levels(column=Column(name="arm", categories=("a", "b", "nobody")))
CAUSE = Column(name="cause", categories=("none", "relapse", "death"))
IN_ARMS = CELLS | {
    "arm": np.arange(1500) % 2 * 1.0,
    "cause": CELLS["died"] * (1 + np.arange(1500) % 2),
}


def names_of_tests(asked: OneSum, cells: dict[str, np.ndarray]) -> list[str]:
    """Names of the tests that are told at little noise."""
    noise = 0.5 * np.random.default_rng(4).standard_normal(asked.size)
    return [test.name for test in asked.answer(asked.encode(cells).sum(axis=0) + noise, 0.5).tests]


def test_a_group_that_nobody_is_in_does_not_keep_others_from_being_compared() -> None:
    edges = tuple(np.linspace(20, 90, 15).tolist())
    ages = Quantiles(column=AGE, edges=edges, by=EMPTY, test=True)
    gray = Incidence(time=TIME, event=CAUSE, edges=GRID, by=EMPTY, test=True)
    assert names_of_tests(ages, IN_ARMS) == ["Wilcoxon"]
    assert names_of_tests(gray, IN_ARMS) == ["Gray's", "Gray's"]
    assert names_of_tests(ages, IN_ARMS | {"arm": np.zeros(1500)}) == []


def test_hazards_are_not_tested_where_an_effect_has_no_end() -> None:
    """In one sex nobody has the event: what is left of the other's says nothing of proportions."""
    asked = replace(COX, test=True)
    assert names_of_tests(asked, CELLS) == ["proportional hazards"]
    assert names_of_tests(asked, CELLS | {"died": CELLS["died"] * CELLS["sex"]}) == []


def test_columns_are_named_however_many_classes_carry_the_noise() -> None:
    """Nobody is in the class that 20 others are compared with."""
    names = tuple(("ward", f"w{k} against w0") for k in range(1, 21))
    found = too_noisy(names, 100 * (np.eye(20) - 1 / 20.5), 1.0)
    assert "in ward, w1 against w0; ward, w2 against w0" in found


def test_an_end_far_from_the_estimate_is_found_in_few_looks() -> None:
    """Where a cubic reaches 5; each look takes a whole score."""
    looks = []

    def outside(apart: float) -> float:
        looks.append(apart)
        return abs(apart) ** 3 + abs(apart) - 5.0

    assert abs(abs(_reached(outside, -9.0, -20.0)) - 1.5159802277) < 1e-9
    assert len(looks) < 20
    assert _reached(lambda one: -1.0 if one < 3 else 1.0, 9.0, 20.0) == pytest.approx(3.0)


def test_a_class_with_hardly_more_events_than_noise_makes_is_marked() -> None:
    """A ratio to it is told only where noise adds to its events, and then is too small."""
    asked = Logistic(outcome=DIED, on=(BY_SEX,))
    few, more = (
        asked.answer(np.array([1000.0 - events, events, 700.0, 300.0]), 3.0)
        for events in (9.0, 60.0)
    )
    assert [any(BARELY in note for note in one.notes) for one in (few, more)] == [True, False]
    assert few.rows


def test_few_events_are_marked_in_a_subgroup_too() -> None:
    """Of 1,000 women of the first stage 9 died; elsewhere many did."""
    asked = Logistic(outcome=DIED, on=(BY_SEX, BY_STAGE), subgroups="sex")
    records = np.full((*asked.covariates.shape, 2), [700.0, 300.0])
    records[0, 0] = [991.0, 9.0]
    cells = np.linalg.solve(asked.layout.counts, records.reshape(-1, 2))
    answer = asked.answer(cells.ravel(), 3.0)
    first = BY_STAGE.names[0]
    (note,) = [note for note in answer.notes if BARELY in note]
    assert note == f"sex, m against f (stage: {first}): {BARELY}"
    assert f"stage: {first}" in {row.group for row in answer.rows}
