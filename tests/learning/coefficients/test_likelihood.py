"""Without noise the effects are those of greatest likelihood, from wherever the model was."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import minimize

from hubbub.core.tabular.column import Column, column_features
from hubbub.estimation.logistic_regression import NewtonLogistic
from hubbub.learning.queries.coefficients.coefficients_query import (
    NAME,
    NewtonSteps,
    OwnSums,
    covariates_of,
    effects_of,
)

DIED = Column(name="died", categories=("no", "yes"))
ON = (
    Column(name="age", low=20, high=90),
    Column(name="sex", categories=("F", "M"), default="F", indicator=True),
    Column(name="ward", categories=("a", "b", "c")),
)
STEPS = NewtonSteps(asked=NewtonLogistic(outcome=DIED, on=covariates_of(ON)), relation="add-remove")


def cells() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    made = {
        "age": rng.uniform(20, 90, 900),
        "sex": rng.integers(0, 2, 900).astype(float),
        "ward": rng.integers(0, 3, 900).astype(float),
    }
    risks = 1 / (1 + np.exp(-(design(made) @ np.array([-0.5, 1.2, 0.7, -0.4, 0.6]))))
    return made | {"died": (rng.random(900) < risks).astype(float)}


def design(made: dict[str, np.ndarray]) -> np.ndarray:
    """Written out anew: 1, half a range of age, M, wards b and c."""
    age = (made["age"] - 55) / 35
    return np.column_stack(
        [np.ones(len(age)), age, made["sex"] == 1, made["ward"] == 1, made["ward"] == 2]
    ).astype(float)


def fitted(made: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Effects of greatest likelihood by another's optimizer, and their standard errors."""
    x, y = design(made), made["died"]

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        eta = x @ b
        return float((np.logaddexp(0, eta) - y * eta).sum()), x.T @ (1 / (1 + np.exp(-eta)) - y)

    found = minimize(loss, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-9})
    mean = 1 / (1 + np.exp(-x @ found.x))
    return found.x, np.sqrt(np.diag(np.linalg.inv((x.T * mean * (1 - mean)) @ x)))


def told(start: np.ndarray, sums: int) -> list[tuple[float, float]]:
    """The logarithm of each ratio, per half a range of age, and its standard error."""
    made, parameters, noisy = cells(), STEPS.begun_at(start.astype(np.float32)), []
    for _ in range(sums):
        noisy.append(STEPS.sum(made, parameters, np.ones((900, 1))))
        parameters = STEPS.update(noisy, 1e-9, parameters)
    rows = STEPS.answer(noisy, 1e-9, parameters).rows
    unit = [35.0, 1.0, 1.0, 1.0]
    pairs = [(np.log(row.value), row.standard_error) for row in rows]
    return [(value * u, error * u) for (value, error), u in zip(pairs, unit, strict=True)]


def test_from_the_root_itself_one_step_stays_there() -> None:
    wanted, errors = fitted(cells())
    found = told(wanted, 1)
    np.testing.assert_allclose([value for value, _ in found], wanted[1:], atol=2e-6)
    np.testing.assert_allclose([error for _, error in found], errors[1:], rtol=1e-4)


def test_the_noise_of_a_mean_of_sums_falls_with_the_root_of_their_number() -> None:
    one, four = (STEPS._mean([np.zeros(STEPS.size)] * many, 3.0)[1] for many in (1, 4))
    assert four == one / 2


def test_from_a_model_that_is_near_one_step_leads_there_to_second_order() -> None:
    wanted, errors = fitted(cells())
    apart = np.array([0.1, -0.2, 0.15, 0.1, -0.1])
    gaps = [
        np.abs(np.array([value for value, _ in told(wanted + part * apart, 1)]) - wanted[1:]).max()
        for part in (1.0, 0.5)
    ]
    assert gaps[0] < 0.2 * errors[1:].min()
    assert gaps[1] < 0.4 * gaps[0]  # a quarter, but for third order


def test_from_no_effects_at_all_later_sums_lead_there_and_the_first_is_left_out() -> None:
    wanted, _ = fitted(cells())
    found = told(np.zeros(5), 6)
    assert np.abs(np.array([value for value, _ in found]) - wanted[1:]).max() < 0.02


def test_from_a_model_that_is_far_one_sum_is_refused_in_words() -> None:
    made, parameters = cells(), STEPS.begun_at(np.array([0, -3, 0, 0, 0], np.float32))
    one = STEPS.sum(made, parameters, np.ones((900, 1)))
    answer = STEPS.answer([one], 1e-9, parameters)
    assert not answer.rows
    assert "too far" in answer.refusal
    assert "coefficients.sums" in answer.refusal


@pytest.mark.parametrize("sums", [1, 4])
def test_where_nobody_is_in_any_class_but_one_noise_is_named_and_no_distance(sums: int) -> None:
    steps = NewtonSteps(
        asked=NewtonLogistic(outcome=DIED, on=covariates_of(ON[1:2])), relation="add-remove"
    )
    made = cells() | {"sex": np.zeros(900)}
    rng, noisy, parameters = np.random.default_rng(1), [], steps.begun_at(np.zeros(2, np.float32))
    for _ in range(sums):
        total = steps.sum(made, parameters, np.ones((900, 1)))
        noisy.append(total + rng.standard_normal(len(total)))
        parameters = steps.update(noisy, 1.0, parameters)
    answer = steps.answer(noisy, 1.0, parameters)
    assert answer.refusal.startswith("the information in the records does not exceed the noise")


@pytest.mark.parametrize("reference", ["", "b"])
def test_effects_say_the_same_as_the_model_of_every_record_without_gaps(reference: str) -> None:
    age, sex, ward = ON
    on = (age, replace(sex, reference="M" if reference else ""), replace(ward, reference=reference))
    rng = np.random.default_rng(1)
    texts = {
        "age": [f"{x:.2f}" for x in rng.uniform(20, 90, 40)],
        "sex": rng.choice(["F", "M"], 40).tolist(),
        "ward": rng.choice(["a", "b", "c"], 40).tolist(),
    }
    features = np.hstack([column_features(one, texts[one.name], one.name) for one in on])
    model = rng.normal(size=features.shape[1] + 1).astype(np.float32)
    coded = {
        "age": np.array(texts["age"], float),
        "sex": np.array([["F", "M"].index(x) for x in texts["sex"]], float),
        "ward": np.array([["a", "b", "c"].index(x) for x in texts["ward"]], float),
    }
    own = design(coded) @ effects_of(on, model)
    np.testing.assert_allclose(own, features @ model[:-1] + model[-1], atol=1e-5)


@pytest.mark.parametrize("lost", [0, 1])
def test_sums_that_were_lost_are_said_to_be(lost: int) -> None:
    made, parameters = cells(), STEPS.begun_at(fitted(cells())[0].astype(np.float32))
    noisy = [STEPS.sum(made, parameters, np.ones((900, 1)))][lost:]
    answer = STEPS.answer(noisy, 1e-9, parameters)
    assert ("lost" in answer.refusal) == bool(lost)
    assert bool(answer.rows) != bool(lost)


def test_the_noise_of_a_mean_of_sums_is_less_by_the_root_of_how_many_there_are() -> None:
    told: list[tuple[list[list[float]], float]] = []

    def answers(sums: list[np.ndarray], sigma: float) -> dict[str, Any]:
        told.append(([one.tolist() for one in sums], sigma))
        return {NAME: SimpleNamespace(notes=())}

    own: Any = SimpleNamespace(
        stacked=SimpleNamespace(least_rounds=1, rounds=1, answers=answers),
        _titled=lambda answer, notes: answer,
    )
    noisy = [np.full(2, float(number)) for number in (1, 2, 3, 6)]
    OwnSums.answer(cast(OwnSums, own), noisy, 2.0, np.zeros(2, np.float32))
    assert told == [([[3.0, 3.0]], 1.0)]
