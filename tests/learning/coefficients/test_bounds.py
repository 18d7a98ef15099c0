"""docs/privacy.md P32: no unit is longer than is charged, at whatever place a sum is taken."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.learning.coefficients.made_up import study_of, write_silos

import hubbub
from hubbub.core.ledger.tally import kind_of
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import UnitRows
from hubbub.core.tabular.table import CodedCells
from hubbub.estimation.logistic_regression import NewtonLogistic
from hubbub.estimation.model_regressions import ModelRegression, NewtonMultinomial, NewtonPoisson
from hubbub.estimation.queries.sum_layout import StatisticTask, SumLayout
from hubbub.learning.queries.coefficients.coefficients_query import NewtonSteps, covariates_of

DIED = Column(name="died", categories=("no", "yes"))
ON = (
    Column(name="age", low=20, high=90),
    Column(name="bmi", low=15, high=50),
    Column(name="ward", categories=("a", "b", "c")),
)
CELLS = {
    "age": [20.0, 90.0, 55.0, np.nan, 1e300, -np.inf],
    "bmi": [15.0, 50.0, 30.0, np.nan],
    "ward": [0.0, 1.0, 2.0, np.nan, 7.0],
    "died": [0.0, 1.0, np.nan, 5.0],
}
PLACES = [0.0, 0.3, -2.0, 40.0, -3e38, float("inf"), float("nan")]


def layout_of(relation: str) -> SumLayout:
    steps = NewtonSteps(asked=NewtonLogistic(outcome=DIED, on=covariates_of(ON)), relation=relation)
    return SumLayout(
        stacked=steps,
        unit=steps.stacked.sensitivity,
        diameter=steps.stacked.diameter / steps.stacked.sensitivity,
        rounds=2,
    )


def parts(relation: str, seed: int, places: int, at: list[float]) -> tuple[SumLayout, np.ndarray]:
    """What each of some units adds, and an empty row."""
    rng, layout = np.random.default_rng(seed), layout_of(relation)
    columns = {name: rng.choice(known, 12) for name, known in CELLS.items()}
    units = None
    if places:
        shares = rng.dirichlet(np.ones(places), 12 // places)
        rows = np.arange(12).reshape(-1, places)
        units = UnitRows(rows=rows, shares=shares.astype(np.float32))
    task = StatisticTask(layout, CodedCells(columns, units), 20)
    kept = layout.start
    kept[1:11] = np.tile(np.array(at, np.float32), 2)
    return layout, np.array(
        [task.clipped_sum(kept, np.array([row])) for row in (*range(task.count), -1)]
    )


@settings(max_examples=80, deadline=None)
@given(
    relation=st.sampled_from(["add-remove", "substitute"]),
    seed=st.integers(0, 10**6),
    places=st.sampled_from([0, 3]),
    at=st.lists(st.sampled_from(PLACES), min_size=5, max_size=5),
)
@example(relation="add-remove", seed=1, places=0, at=[0.0, 9.0, -9.0, 0.5, 1.0])
def test_p32_no_unit_is_longer_or_further_from_another_than_is_charged(
    relation: str, seed: int, places: int, at: list[float]
) -> None:
    layout, found = parts(relation, seed, places, at)
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-6
    assert apart.max() <= layout.diameter + 1e-6
    assert not found[-1].any()


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_p32_both_bounds_are_reached(relation: str) -> None:
    """A record at the ends of its columns that a steep model has wrong; its mirror."""
    layout = layout_of(relation)
    columns = {
        "age": np.array([90.0, 90.0]),
        "bmi": np.array([50.0, 50.0]),
        "ward": np.array([1.0, 1.0]),
        "died": np.array([1.0, 0.0]),
    }
    task, lengths, apart = StatisticTask(layout, CodedCells(columns), 5), [], []
    for sign in (-1.0, 1.0):
        kept = layout.start
        kept[1:11] = np.tile(np.array([sign * 30, 0, 0, 0, 0], np.float32), 2)
        pair = [task.clipped_sum(kept, np.array([row])) for row in (0, 1)]
        lengths += [np.linalg.norm(one) for one in pair]
        apart.append(pair)
    assert max(lengths) == pytest.approx(1.0, abs=1e-5)
    mirrored = np.linalg.norm(apart[0][0] - apart[1][1])
    assert layout.diameter == 2.0
    assert mirrored == pytest.approx(2.0, abs=1e-5)


OTHERS = {
    "counts": NewtonPoisson(
        outcome=Column(name="visits", low=0, high=12), on=covariates_of(ON), confidence=0.95
    ),
    "classes": NewtonMultinomial(
        outcome=Column(name="stage", categories=("I", "II", "III", "IV")), on=covariates_of(ON)
    ),
}
CELLS_OF_OTHERS = CELLS | {
    "visits": [0.0, 12.0, 3.0, 1e300, -5.0, float("inf"), np.nan],
    "stage": [0.0, 1.0, 2.0, 3.0, np.nan, 9.0],
}


def blocks(asked: ModelRegression, seed: int, at: list[float], records: int = 30) -> np.ndarray:
    """Of records with cells at random, and of one without any."""
    rng = np.random.default_rng(seed)
    columns = {
        name: rng.choice([*known, known[0]], records) for name, known in CELLS_OF_OTHERS.items()
    }
    for cells in columns.values():
        cells[-1] = np.nan
    return asked.encode_at(columns, np.resize(np.array(at, np.float32), len(asked.start)))


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(OTHERS)),
    seed=st.integers(0, 10**6),
    at=st.lists(st.sampled_from(PLACES) | st.floats(-9, 9), min_size=3, max_size=15),
)
@example(kind="counts", seed=0, at=[2.4, 0.0, 0.0, 0.0, 0.0])
@example(kind="counts", seed=0, at=[-2.0, 4.0, 0.5, 0.0, 1.0])
@example(kind="classes", seed=3, at=[0.0, 0.0, 40.0] * 5)
def test_p36_no_record_is_longer_or_further_from_another_than_is_charged(
    kind: str, seed: int, at: list[float]
) -> None:
    asked = OTHERS[kind]
    found = blocks(asked, seed, at)
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found, axis=1).max() <= asked.sensitivity * (1 + 1e-9)
    assert apart.max() <= asked.diameter * (1 + 1e-9)
    assert not found[-1].any()


@pytest.mark.parametrize("part", [1e-9, 0.2, 0.45, 0.5, 0.6, 0.8, 1.0])
def test_p36_a_count_is_as_long_as_is_charged_whatever_rates_may_be(part: float) -> None:
    """At the ends of all columns, for models whose largest rate is this part of the bound."""
    asked, high = OTHERS["counts"], 12.0
    ends = np.array([[a, b, w] for a in (20.0, 90.0) for b in (15.0, 50.0) for w in (0, 1, 2)] * 2)
    cells = dict(zip(("age", "bmi", "ward"), ends.T, strict=True))
    cells["visits"] = np.repeat([0.0, 1e9], len(ends) // 2)
    for steep in (0.0, 0.3, 2.0):
        at = np.array([np.log(part * high) - 2.5 * steep, steep, -steep, steep / 2, 0], np.float32)
        lengths = np.linalg.norm(asked.encode_at(cells, at), axis=1)
        assert lengths.max() <= 1 + 1e-9
        assert lengths.max() > 0.9  # and hardly any of it is left unused


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_p36_two_counts_are_nearly_as_far_from_each_other_as_is_charged(columns: int) -> None:
    """One of none at the largest rate, one beyond the bound whose rate a small step makes none."""
    asked = replace(OTHERS["counts"], on=OTHERS["counts"].on[:columns])
    cells = {
        "age": np.array([90.0, 87.0]),
        "bmi": np.array([50.0, 50.0]),
        "ward": np.array([1.0, 1.0]),
        "visits": np.array([0.0, 13.0]),
    }
    apart = []
    for part in np.linspace(0.3, 1.0, 29):
        at = np.zeros_like(asked.start)
        at[:2] = np.log(part * 12) - 49.9, 49.9
        one, other = asked.encode_at(cells, at)
        apart.append(np.linalg.norm(one - other))
    assert 0.96 * asked.diameter < max(apart) <= asked.diameter < 1.82


@pytest.mark.parametrize("columns", [6, 7, 8])
def test_p36_with_many_numbers_two_counts_of_opposite_ends_are_furthest(columns: int) -> None:
    """Both at the bound, one beyond it, whose rates are none."""
    numbers = tuple(Column(name=f"x{place}", low=0, high=1) for place in range(columns))
    asked = replace(OTHERS["counts"], on=covariates_of(numbers))
    cells = {one.name: np.array([0.0, 1.0]) for one in numbers}
    at = np.zeros_like(asked.start)
    at[0] = -60.0
    one, other = asked.encode_at(cells | {"visits": np.array([12.0, 13.0])}, at)
    assert 0.99 * asked.diameter < np.linalg.norm(one - other) <= asked.diameter * (1 + 1e-9)


@pytest.mark.parametrize(("others", "most"), [(2, 2.125), (3, 3.0), (4, 3.0)])
def test_p36_no_chances_of_classes_make_a_record_longer_than_is_charged(
    others: int, most: float
) -> None:
    """|e - m|^2 + 6 |diag m - m m'|^2 by the numbers, W times which is the squared length."""
    rng = np.random.default_rng(0)
    steep = [rng.dirichlet(np.full(others + 1, part), 40_000) for part in (0.1, 0.4, 1.0, 3.0)]
    edges = np.vstack([np.eye(others + 1), np.eye(others + 1)[:, ::-1], rng.permutation(steep[0])])
    pairs = (edges[:, None] + edges[None, : others + 1]).reshape(-1, others + 1) / 2
    chances = np.vstack([*steep, edges, pairs])[:, 1:]
    spread = chances[:, :, None] * (np.eye(others) - chances[:, None])
    squares = (spread**2).sum(axis=(1, 2))
    classes = np.vstack([np.zeros(others), np.eye(others)])
    lengths = [((one - chances) ** 2).sum(axis=1) + 6 * squares for one in classes]
    assert np.max(lengths) <= most + 1e-12
    assert np.max(lengths) > most - 0.03


def test_p36_a_record_reaches_what_is_charged_where_two_other_classes_have_a_half_each() -> None:
    asked = OTHERS["classes"]
    row = {"age": [90.0], "bmi": [50.0], "ward": [1.0], "stage": [3.0]}
    at = np.zeros(15, np.float32)
    at[:2] = 60.0
    block = asked.encode_at({k: np.array(v) for k, v in row.items()}, at)
    assert np.linalg.norm(block) == pytest.approx(asked.sensitivity)


def test_p36_of_three_classes_hardly_any_of_what_is_charged_is_left_unused() -> None:
    """The record of one class for which a model gives the others 0.6 and 0.4."""
    stage = Column(name="stage", categories=("I", "II", "III"))
    asked = NewtonMultinomial(outcome=stage, on=covariates_of(ON))
    row = {"age": [90.0], "bmi": [50.0], "ward": [1.0], "stage": [1.0]}
    at = np.zeros(10, np.float32)
    at[:2] = 30 + np.log([0.395, 0.605])
    block = asked.encode_at({k: np.array(v) for k, v in row.items()}, at)
    assert 0.99 * asked.sensitivity < np.linalg.norm(block) <= asked.sensitivity


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
def test_p32_what_is_charged_is_one_and_two(tmp_path: Path, relation: str) -> None:
    write_silos(tmp_path, 20)
    plan = hubbub.plan(study_of(tmp_path, privacy={"relation": relation}))
    planned = plan.planned("coefficients")
    assert planned is not None
    assert planned.mechanism.clip == 1.0
    assert planned.mechanism.diameter == 2.0
    assert planned.mechanism.sample_rate == 1
    assert planned.mechanism.steps == 8
    assert kind_of(planned).diameter == pytest.approx(2.0)
    alone = hubbub.epsilon(
        noise_multiplier=planned.noise_multiplier,
        sample_rate=1.0,
        steps=8,
        delta=1e-5,
        relation=relation,
    )
    assert 0.98 * 16.0 < alone.upper <= 16.0
    assert plan.epsilon() <= 24.0
    width = 1 + 1 + 1 + 2
    assert planned.query.numbers == width + width * (width + 1) // 2


def test_p32_the_information_weighs_as_the_proof_says() -> None:
    """sqrt(11 / W) times m (1 - m) w w', whose length is then sqrt(11 W) / 4 at m = 1/2."""
    steps = layout_of("add-remove").stacked
    row = {"age": [90.0], "bmi": [50.0], "ward": [1.0], "died": [1.0]}
    block = steps.asked.encode_at({k: np.array(v) for k, v in row.items()}, steps.asked.start)[0]
    assert np.linalg.norm(block[:5]) == pytest.approx(sqrt(4) / 2)
    assert np.linalg.norm(block[5:]) == pytest.approx(sqrt(11 * 4) / 4)
