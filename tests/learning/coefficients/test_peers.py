"""Without noise, counts, several classes and logarithms have the effects that statsmodels finds."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.learning.coefficients.peers import HIGH, HIGHEST, LOWEST, PATH, patients

from hubbub.core.tabular.column import Column, column_features
from hubbub.estimation.linear import log_linear
from hubbub.estimation.model_regressions import NewtonMultinomial, NewtonPoisson
from hubbub.estimation.statistic import Answer
from hubbub.learning.queries.coefficients.coefficients_query import (
    NewtonSteps,
    OwnSums,
    covariates_of,
    effects_of,
)

PEERS = json.loads(PATH.read_text(encoding="utf-8"))
ON = (
    Column(name="age", low=20, high=90),
    Column(name="sex", categories=("F", "M")),
    Column(name="ward", categories=("a", "b", "c")),
)
UNIT = np.array([35.0, 1.0, 1.0, 1.0])  # a peer's age is in halves of its range
ASKED = {
    "counts": NewtonPoisson(outcome=Column(name="visits", low=0, high=HIGH), on=covariates_of(ON)),
    "classes": NewtonMultinomial(
        outcome=Column(name="stage", categories=("I", "II", "III")), on=covariates_of(ON)
    ),
}
Asked = NewtonPoisson | NewtonMultinomial
STEPS = {kind: NewtonSteps(asked=asked, relation="add-remove") for kind, asked in ASKED.items()}


def answer_from(
    kind: str, start: np.ndarray, sums: int, sigma: float = 1e-9, asked: Asked | None = None
) -> Answer:
    """Of all patients, from a model with these effects."""
    steps = NewtonSteps(asked=asked, relation="add-remove") if asked else STEPS[kind]
    noisy, rng = [], np.random.default_rng(1)
    parameters = steps.begun_at(start.astype(np.float32))
    for _ in range(sums):
        total = steps.sum(patients(), parameters, np.ones((900, 1)))
        noisy.append(total + sigma * rng.standard_normal(len(total)))
        parameters = steps.update(noisy, sigma, parameters)
    return steps.answer(noisy, sigma, parameters)


def logarithms(answer: Answer) -> tuple[np.ndarray, np.ndarray]:
    """Effects, class by class, and their standard errors, per half a range of age."""
    unit = np.tile(UNIT, len(answer.rows) // 4)
    values = np.log([row.value for row in answer.rows]) * unit
    return values, np.array([row.standard_error for row in answer.rows]) * unit


def root_of(kind: str) -> np.ndarray:
    """A peer's effects as they go down: of several classes side by side."""
    return np.array(PEERS[kind]).T.ravel()


@pytest.mark.parametrize("kind", ["counts", "classes"])
def test_from_the_root_one_step_is_what_statsmodels_finds_to_a_millionth(kind: str) -> None:
    values, errors = logarithms(answer_from(kind, root_of(kind), 1))
    effects, theirs = (np.atleast_2d(PEERS[f"{kind}{end}"])[:, 1:] for end in ("", " errors"))
    np.testing.assert_allclose(values, effects.ravel(), atol=1e-6)
    np.testing.assert_allclose(errors, theirs.ravel(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["counts", "classes"])
def test_from_a_model_that_is_near_a_few_sums_lead_to_the_same(kind: str) -> None:
    root = root_of(kind)
    apart = 0.1 * np.random.default_rng(2).choice([-1, 1], len(root))
    gaps = [
        np.abs(logarithms(answer_from(kind, root + apart, sums))[0] - root_values(kind)).max()
        for sums in (1, 8)
    ]
    assert gaps[1] < 0.3 * gaps[0]
    assert gaps[1] < 0.2 * min(map(min, np.atleast_2d(PEERS[f"{kind} errors"])[:, 1:].tolist()))


def root_values(kind: str) -> np.ndarray:
    return np.atleast_2d(PEERS[kind])[:, 1:].ravel()


def test_an_intercept_that_is_off_changes_no_rate_ratio() -> None:
    """A model whose rates are all twice too high or too low, after a single sum."""
    for off in (-0.7, 0.7):
        moved = root_of("counts") + off * np.eye(5)[0]
        values, errors = logarithms(answer_from("counts", moved, 1))
        np.testing.assert_allclose(values, PEERS["counts"][1:], atol=1e-5)
        # Intervals take what the intercept is off for spread, too.
        wider = errors / PEERS["counts errors"][1:]
        assert 0.9 < wider.min() <= wider.max() < 1.6


def test_an_intercept_that_is_far_off_makes_a_model_of_classes_too_far() -> None:
    """As if an outcome were ten times as rare as it is; two sums lead on from there."""
    moved = root_of("classes") - 2.5 * (np.arange(10) < 2)
    assert "too far" in answer_from("classes", moved, 1).refusal
    values, _ = logarithms(answer_from("classes", moved, 3))
    errors = np.array(PEERS["classes errors"])[:, 1:].ravel()
    assert (np.abs(values - root_values("classes")) < errors / 2).all()


def test_a_count_says_how_far_it_spreads_and_who_is_beyond_the_bound() -> None:
    notes = " ".join(answer_from("counts", root_of("counts"), 2).notes)
    assert "counts spread 2" in notes
    beyond = int((patients()["visits"] > HIGH).sum())
    assert f"count as 12: {beyond} (noise of up to 0 either way)" in notes


def test_rows_of_several_classes_say_over_which_one_they_are() -> None:
    answer = answer_from("classes", root_of("classes"), 1)
    assert [row.group for row in answer.rows] == ["II against I"] * 4 + ["III against I"] * 4
    assert {row.quantity for row in answer.rows} == {"odds ratio"}
    assert answer_from("classes", root_of("classes"), 1, sigma=1e3).refusal


@pytest.mark.parametrize("kind", ["counts", "classes"])
def test_a_class_that_nobody_is_in_takes_no_other_effect_with_it(kind: str) -> None:
    """A ward that has closed: a model of several classes was refused as a whole for it."""
    ward = Column(name="ward", categories=("a", "b", "c", "closed"))
    asked = replace(ASKED[kind], on=covariates_of((*ON[:2], ward)))
    root = root_of(kind)
    start = np.append(root, np.zeros(len(root) // 5))
    answer = answer_from(kind, start, 1, sigma=1e-6, asked=asked)
    values, _ = logarithms(answer)
    np.testing.assert_allclose(values, root_values(kind), atol=1e-3)
    hidden = [note for note in answer.notes if "closed against a" in note]
    assert len(hidden) == len(root) // 5
    assert all(note.endswith("below the noise") for note in hidden)


def test_logarithms_of_amounts_have_ratios_of_geometric_means() -> None:
    stay = Column(name="stay", low=LOWEST, high=HIGHEST)
    sums = OwnSums(asked=log_linear(stay, covariates_of(ON)), relation="add-remove")
    total = sums.sum(patients(), sums.start, np.ones((900, 1)))
    answer = sums.answer([total], 1e-9, sums.start)
    values, errors = logarithms(answer)
    np.testing.assert_allclose(values, PEERS["logarithms"][1:], atol=1e-6)
    np.testing.assert_allclose(errors, PEERS["logarithms errors"][1:], rtol=1e-6)
    assert {row.quantity for row in answer.rows} == {"ratio of geometric means"}


def test_effects_of_several_classes_say_the_same_as_the_model_over_the_first_one() -> None:
    cells, rng = {name: one[:50] for name, one in patients().items()}, np.random.default_rng(1)
    texts = {
        "age": [f"{x}" for x in cells["age"]],
        "sex": ["FM"[int(x)] for x in cells["sex"]],
        "ward": ["abc"[int(x)] for x in cells["ward"]],
    }
    features = np.hstack([column_features(one, texts[one.name], one.name) for one in ON])
    weights, biases = rng.normal(size=(3, features.shape[1])), rng.normal(size=3)
    model = np.concatenate([weights.ravel(), biases]).astype(np.float32)
    told = effects_of(ON, model).reshape(-1, 2)
    outputs = features @ weights.T + biases
    own = ASKED["classes"].covariates.design(cells) @ told
    np.testing.assert_allclose(own, outputs[:, 1:] - outputs[:, :1], atol=1e-4)
