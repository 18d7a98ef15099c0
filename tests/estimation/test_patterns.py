"""What regressions on classes tell from the same cells, as other programs tell it of records."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from estimation.made_up import AGE, DIED, SEX, STAGE, TIME
from estimation.test_answers import MONTHS, PEERS, answer
from hubbub.core.errors import StudyError
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.cox import Cox
from hubbub.estimation.effects import NO_END, NOISE, Effects, omitted
from hubbub.estimation.kinds import statistic_from
from hubbub.estimation.logistic_regression import logistic
from hubbub.estimation.statistic import Answer
from hubbub.estimation.survival import Survival
from hubbub.testing.laws import too_often

COLUMNS = {one.name: one for one in (AGE, TIME, SEX, STAGE, DIED)}
BY_SEX, BY_STAGE = Levels(column=SEX), Levels(column=STAGE)
QUIET = 1e-9
LOGISTIC = {
    "kind": "logistic",
    "outcome": "died",
    "covariates": {"sex": "categories", "stage": "categories"},
}
COX = {**LOGISTIC, "kind": "cox", "time": "time", "event": "died", "bins": 24}
del COX["outcome"]


def told(asked: dict[str, Any], sigma: float = QUIET, **more: Any) -> Answer:
    return answer(statistic_from("q", {**asked, **more}, COLUMNS), sigma)


def logs(found: Answer) -> list[float]:
    return [math.log(row.value) for row in found.rows]


def test_interactions_are_those_of_statsmodels_without_noise() -> None:
    found = told(LOGISTIC, interactions=[["sex", "stage"]])
    assert logs(found) == pytest.approx(PEERS["interaction"], abs=1e-6)
    assert [row.standard_error for row in found.rows] == pytest.approx(
        PEERS["interaction errors"], abs=1e-6
    )
    assert [row.level for row in found.rows[3:]] == ["m and II", "m and III"]
    (test,) = found.tests
    assert (test.name, test.column, test.degrees) == ("interaction", "sex × stage", 2)
    assert test.statistic == pytest.approx(PEERS["interaction wald"], abs=1e-6)


def test_a_trend_over_classes_is_that_of_statsmodels_without_noise() -> None:
    *_, trend = told(LOGISTIC, trend=["stage"]).rows
    assert trend.level == "trend per class"
    assert (math.log(trend.value), trend.standard_error) == pytest.approx(PEERS["trend"], abs=1e-6)


def test_effects_in_subgroups_are_those_of_their_records_alone() -> None:
    found = told(LOGISTIC, subgroups="stage")
    men = [row for row in found.rows if row.group == "sex: m"]
    assert [math.log(row.value) for row in men] == pytest.approx(PEERS["men"], abs=1e-6)
    assert [row.standard_error for row in men] == pytest.approx(PEERS["men errors"], abs=1e-6)
    assert [one.column for one in found.tests] == ["stage × sex"]
    assert {row.group for row in found.rows} == {"", "sex: f", "sex: m"}


def test_an_effect_of_few_events_is_tested_by_its_score_and_not_by_what_noise_made_of_it() -> None:
    """8 events of 150 with noise of 4, where 2.3 are expected: z is 1.3, and 2.2 by Wald's test."""
    asked = logistic(DIED, (Levels(column=STAGE),))
    cells = np.array([[2960.0, 40], [740, 10], [142, 8]])
    found = asked.told_of(cells, 4.0).rows[-1]
    assert found.level == "III against I"
    wald = math.log(found.value) / found.standard_error
    excess, noise = 8 - 150 * 58 / 3900, math.sqrt(2.3 + 4.0**2)
    assert found.p_value == pytest.approx(2 * norm.sf(excess / noise), abs=0.02)
    assert 2 * norm.sf(wald) < 0.03 < 0.15 < found.p_value
    assert found.low < 0.1 < 1 < found.value < found.high < 13
    nobody = asked.told_of(np.array([[2960.0, 40], [740, 10], [148, 2]]), 4.0).rows[-1]
    assert (nobody.low, nobody.high) == (0, pytest.approx(7.1, abs=0.1))  # as far as 13 events


def test_an_effect_is_not_told_where_noise_leaves_it_without_an_upper_end() -> None:
    """Of whom others are compared with, 2 of 150 had the outcome, with noise of 4."""
    asked = logistic(DIED, (Levels(column=STAGE),))
    found = asked.told_of(np.array([[148.0, 2], [740, 10], [2960, 40]]), 4.0)
    assert found.refusal or "below the noise" in " ".join(found.notes)


def test_whether_an_effect_has_an_upper_end_is_a_matter_of_its_own_confidence() -> None:
    """Above 10 events of 300 with noise of 4, which are 2.5 deviations: none within 3.3."""
    cells = np.array([[290.0, 10], [2880, 120], [2880, 120]])
    usual = logistic(DIED, (Levels(column=STAGE),)).told_of(cells, 4.0).rows
    assert [row.low <= row.value <= row.high < 1e6 for row in usual] == [True, True]
    few = np.array([[295.0, 5], [2880, 120], [2880, 120]])  # 1.3 deviations, which noise makes
    for asked, confidence in ((cells, 0.999), (few, 0.95)):
        one = logistic(DIED, (Levels(column=STAGE),), confidence=confidence).told_of(asked, 4.0)
        assert one.refusal
        assert not one.rows


@pytest.mark.parametrize(
    ("value", "sampling", "why"), [(0.5, 0.1, NOISE), (-5.0, 4.0, NO_END), (-5.0, 0.01, NOISE)]
)
def test_noise_and_no_separation_is_named_where_an_effect_has_an_end_without_noise(
    value: float, sampling: float, why: str
) -> None:
    covariance, ones = np.diag([0.01, 144.0]), np.ones(2)
    found = Effects(
        values=np.array([0.0, value]),
        covariance=covariance,
        clear=ones,
        sampling=np.array([0.01, sampling]),
    )
    assert omitted((("sex", "M against F"), ("stage", "II against I")), found) == (
        f"stage, II against I: {why}",
    )


@pytest.mark.parametrize("asked", [LOGISTIC, COX])
def test_a_class_that_nobody_is_in_takes_no_trend_and_no_test_with_it(
    asked: dict[str, Any],
) -> None:
    """Both of a Cox regression were left out without a word."""
    sex = replace(SEX, categories=(*SEX.categories, "x"))
    more = {"trend": ["stage"], "subgroups": "stage"}
    empty = answer(statistic_from("q", {**asked, **more}, COLUMNS | {"sex": sex}), 1e-3)
    whole = told(asked, **more)
    assert "sex, x against f: below the noise" in empty.notes
    named = [(row.column, row.level, row.group) for row in whole.rows]
    assert [(row.column, row.level, row.group) for row in empty.rows] == named
    assert logs(empty) == pytest.approx(logs(whole), abs=1e-3)
    (test,), (usual,) = empty.tests, whole.tests
    assert (test.column, test.degrees) == (usual.column, usual.degrees)
    assert test.statistic == pytest.approx(usual.statistic, abs=1e-2)


@pytest.mark.parametrize("asked", [LOGISTIC, COX])
def test_another_reference_turns_the_ratio_round(asked: dict[str, Any]) -> None:
    usual, other = told(asked), told(asked, reference={"stage": "III"})
    assert [row.level for row in other.rows[1:]] == ["I against III", "II against III"]
    assert logs(other)[0] == pytest.approx(logs(usual)[0], abs=1e-6)
    assert logs(other)[1] == pytest.approx(-logs(usual)[2], abs=1e-6)
    numbers = told(
        {**asked, "covariates": {"age": "number", "sex": "categories"}}, reference={"sex": "m"}
    )
    assert numbers.rows[-1].level == "f against m"


def test_a_stratified_cox_regression_is_that_of_lifelines() -> None:
    """Up to the second order of ties, of which months have many."""
    (row,) = told({**COX, "covariates": {"sex": "categories"}}, strata="stage").rows
    effect, error = PEERS["stratified cox"]
    assert math.log(row.value) == pytest.approx(effect, abs=3e-3)
    assert row.standard_error == pytest.approx(error, rel=3e-3)


def test_the_stratified_log_rank_test_is_that_of_statsmodels_without_noise() -> None:
    """Who has the event at time 0 belongs to the first month here, and is told there so."""
    asked = Survival(time=TIME, event=DIED, edges=MONTHS, by=BY_SEX, strata=BY_STAGE)
    (test,) = answer(asked, QUIET).tests
    assert test.name == "stratified log-rank"
    assert test.statistic == pytest.approx(PEERS["stratified log-rank"], abs=1e-6)


def test_strata_add_their_noise_to_what_a_plan_expects_of_a_curve() -> None:
    plain = Survival(time=TIME, event=DIED, edges=MONTHS, by=BY_SEX)
    divided = Survival(time=TIME, event=DIED, edges=MONTHS, by=BY_SEX, strata=BY_STAGE)
    (_, noisier), *_ = divided.expected(3000, 2.0).errors
    (_, same), *_ = plain.expected(3000, 2.0 * math.sqrt(3)).errors
    assert noisier == pytest.approx(same)


def test_proportional_hazards_are_tested_like_lifelines_does() -> None:
    """Lifelines takes the variance of residuals as the same at all events: a tenth apart."""
    found = told({**COX, "covariates": {"sex": "categories"}}, test="proportional-hazards")
    (test,) = found.tests
    assert (test.name, test.degrees) == ("proportional hazards", 1)
    assert test.statistic == pytest.approx(PEERS["proportional"], rel=0.1, abs=0.05)


def release(rng: np.random.Generator, shape: float, sigma: float) -> float:
    """The p-value of the test where the second sex has a Weibull hazard of this shape."""
    n = 1500
    sex = rng.integers(0, 2, n) * 1.0
    event = np.where(sex == 1, 18 * rng.weibull(shape, n), 18 * rng.weibull(1.0, n))
    left = rng.uniform(0, 36, n)
    cells = {"time": np.minimum(event, left), "died": (event <= left) * 1.0, "sex": sex}
    asked = Cox(time=TIME, event=DIED, edges=MONTHS[::2], on=(BY_SEX,), test=True)
    sums = asked.encode(cells).sum(axis=0)
    (test,) = asked.answer(sums + sigma * rng.standard_normal(len(sums)), sigma).tests
    return test.p_value


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.1, 6.0])
def test_hazards_that_are_proportional_are_rejected_as_seldom_as_said(sigma: float) -> None:
    """Of 200 tests 10; 21 are three and a half deviations above."""
    rng = np.random.default_rng(11)
    assert not too_often(sum(release(rng, 1.0, sigma) < 0.05 for _ in range(200)), 200, 0.05)
    assert too_often(sum(release(rng, 1.8, sigma) < 0.05 for _ in range(20)), 20, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5, 6.0])
def test_intervals_of_subgroups_trends_and_strata_hold_as_often_as_they_say(sigma: float) -> None:
    """The made-up patients' own numbers, which noise alone moves: nearly always held."""
    for asked, more in (
        (LOGISTIC, {"trend": ["stage"], "subgroups": "sex", "interactions": [["sex", "stage"]]}),
        ({**COX, "covariates": {"sex": "categories"}}, {"strata": "stage"}),
    ):
        question = statistic_from("q", {**asked, **more}, COLUMNS)
        exact = {(r.column, r.level, r.group): r.value for r in answer(question, QUIET).rows}
        held = [
            row.low <= exact[row.column, row.level, row.group] <= row.high
            for seed in range(20)
            for row in answer(question, sigma, seed).rows
        ]
        assert len(held) >= 20
        assert np.mean(held) >= 0.95


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"interactions": [["sex", "age"]]}, "one of the covariates sex, stage"),
        ({"interactions": ["sex"]}, "pairs of covariates"),
        ({"interactions": [["sex", "sex"]]}, "pairs of different covariates"),
        ({"trend": ["age"]}, "one of the covariates"),
        ({"subgroups": "age"}, "one of the covariates"),
        ({"reference": {"stage": "IV"}}, 'one of "I", "II", "III"'),
        ({"covariates": ["age", "sex"]}, '{ age = "number", sex = "categories" }, where'),
        ({"covariates": {"age": "number"}, "trend": ["age"]}, "covariates that are numbers"),
    ],
)
def test_what_cannot_be_asked_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError, match=said) as refused:
        told(LOGISTIC, **more)
    assert ";" in str(refused.value)


def test_strata_that_are_covariates_are_refused() -> None:
    with pytest.raises(StudyError, match="not a covariate"):
        told(COX, strata="stage")


def test_what_is_asked_of_patterns_is_read_back() -> None:
    for asked, more in (
        (LOGISTIC, {"trend": ["stage"], "subgroups": "sex", "reference": {"sex": "m"}}),
        ({**COX, "covariates": {"sex": "categories"}}, {"strata": "stage"}),
        (COX, {"test": "proportional-hazards", "interactions": [["sex", "stage"]]}),
    ):
        question = statistic_from("q", {**asked, **more}, COLUMNS)
        assert statistic_from("q", question.to_table(), COLUMNS) == question
        assert {key: question.to_table()[key] for key in more} == more
    plain = logistic(DIED, (BY_SEX, BY_STAGE)).to_table()
    assert set(plain) == {"kind", "weight", "confidence", "outcome", "covariates"}
