"""No record is longer than its block's sensitivity, and no two are further apart than its diameter.

P23: over all combinations of the cells where bounds are reached. Records at random, and cells that
nobody should send, are tried by `check_statistic` (test_contracts.py).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation import cox as cox_newton
from hubbub.estimation import kinds
from hubbub.estimation.baseline_table import Table
from hubbub.estimation.centres import Centres
from hubbub.estimation.cox import Cox, cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.linear import Linear
from hubbub.estimation.logistic_regression import Logistic, logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.rates import EventRates
from hubbub.estimation.risk_sets import PrefixCode, RiskSets, rising
from hubbub.estimation.stacking import stack
from hubbub.estimation.statistic import Iterated
from hubbub.estimation.survival import Survival

AGE = Column(name="age", low=20, high=90)
TIME = Column(name="time", low=0, high=10)
SEX = Column(name="sex", categories=("f", "m"))
BLOOD = Column(name="blood", categories=("0", "A", "B", "AB"))
DIED = Column(name="died", categories=("no", "yes"))
SINCE = Column(name="since", low=0, high=9)
COLUMNS = (AGE, TIME, SEX, BLOOD, DIED, SINCE)
BY_SEX, BY_BLOOD, BY_AGE = (
    Levels(column=SEX),
    Levels(column=BLOOD),
    Levels(column=AGE, cuts=(40, 60)),
)
GRID = tuple(map(float, range(9)))
KINDS = {
    "table": Table(columns=(AGE, TIME, SEX, BLOOD)),
    "table of complete columns": Table(
        columns=tuple(replace(one, complete=True) for one in (AGE, TIME, SEX, BLOOD))
    ),
    "table of numbers": Table(columns=(AGE, TIME)),
    "table by group": Table(columns=(AGE, BLOOD), by=BY_SEX),
    "histogram": Histogram(column=AGE, edges=(20, 40, 60, 90)),
    "quantiles by group": Quantiles(column=AGE, edges=(20, 40, 50, 60, 90), by=BY_SEX),
    "incidence": Incidence(time=TIME, event=BLOOD, edges=GRID, by=BY_SEX),
    "rates": EventRates(time=TIME, event=DIED, horizon=8.0),
    "rates by group": EventRates(time=TIME, event=DIED, horizon=8.0, by=BY_AGE),
    "rates of numbers": EventRates(time=SINCE, event=TIME, horizon=8.0),
    "centres": Centres(by=BY_BLOOD, outcome=DIED),
    "survival in strata": Survival(time=TIME, event=DIED, edges=GRID, by=BY_SEX, strata=BY_BLOOD),
    "cox in strata": Cox(time=TIME, event=DIED, edges=GRID, on=(BY_SEX,), strata=BY_AGE),
    "table of classes": Table(columns=(BY_AGE, TIME), by=BY_SEX),
    "quantiles": Quantiles(column=AGE, edges=tuple(map(float, range(20, 91, 5)))),
    "crosstab": Crosstab(rows=BY_SEX, across=BY_BLOOD),
    "survival": Survival(time=TIME, event=DIED, edges=GRID),
    "survival by group": Survival(time=TIME, event=DIED, edges=GRID, by=BY_BLOOD),
    "cox": Cox(time=TIME, event=DIED, edges=GRID, on=(BY_AGE, BY_SEX)),
    "survival, late": Survival(time=TIME, event=DIED, edges=GRID, by=BY_SEX, entry=SINCE),
    "incidence, late": Incidence(time=TIME, event=BLOOD, edges=GRID, entry=SINCE),
    "cox, late": Cox(time=TIME, event=DIED, edges=GRID, on=(BY_AGE, BY_SEX), entry=SINCE),
    "logistic": Logistic(outcome=DIED, on=(BY_AGE, BY_SEX)),
    "linear": Linear(outcome=TIME, on=(AGE, BY_BLOOD, BY_SEX)),
    "linear on numbers": Linear(outcome=TIME, on=(AGE,)),
    "logistic on numbers": logistic(DIED, (AGE, TIME, BY_BLOOD)),
    "cox on numbers": cox(TIME, DIED, GRID, (AGE, BY_BLOOD)),
}
assert {one.kind for one in KINDS.values()} == kinds.KINDS.keys()  # none is left untried
ON_NUMBERS = {"logistic on numbers", "cox on numbers"}
# Cells at which bounds are reached, and what nobody should send.
WORST = {
    "age": [20.0, 55.0, 90.0, math.nan, math.inf, -1e308],
    "time": [0.0, 0.5, 3.75, 5.0, 7.5, 8.0, 10.0, math.nan, -math.inf, 5e-324],
    "sex": [0.0, 1.0, math.nan, 2.0, -0.5],
    "blood": [0.0, 3.0, math.nan, 1e300],
    "died": [0.0, 1.0, math.nan],
    "since": [0.0, 3.3, 8.5, math.nan],
}
ROUNDING = 1 + 1e-12  # of float64; stacking leaves room for much more


def blocks(kind: str, cells: dict[str, np.ndarray], more: float = 0.7) -> np.ndarray:
    asked = KINDS[kind]
    if isinstance(asked, Iterated):
        return asked.encode_at(cells, asked.start + np.float32(more))
    return asked.encode(cells)


def worst_records() -> dict[str, np.ndarray]:
    rows = np.array(list(itertools.product(*WORST.values())))
    return dict(zip(WORST, rows.T, strict=True))


def largest_distance(vectors: np.ndarray) -> float:
    different = np.unique(vectors, axis=0)
    squares = np.sum(different**2, axis=1)
    between = squares[:, None] + squares - 2 * different @ different.T
    return math.sqrt(max(float(between.max()), 0.0))


# Few of them, by which each kind's length and distance are seen to be no smaller.
CORNERS = {
    "age": [20.0, 90.0],
    "time": [0.0, 5.0, 10.0],
    "sex": [0.0, 1.0],
    "blood": [0.0, 3.0],
    "died": [0.0, 1.0, math.nan],
    "since": [0.0, 4.5],
}


@pytest.mark.parametrize("kind", KINDS)
def test_p23_no_corner_of_any_kind_exceeds_sensitivity_or_diameter(kind: str) -> None:
    rows = np.array(list(itertools.product(*CORNERS.values())))
    found = blocks(kind, dict(zip(CORNERS, rows.T, strict=True)))
    assert np.linalg.norm(found, axis=1).max() <= KINDS[kind].sensitivity * ROUNDING
    assert largest_distance(found) <= KINDS[kind].diameter * (1 + 1e-7)


@pytest.mark.quick_cases("table of numbers", "histogram", "rates", "quantiles by group")
@pytest.mark.parametrize("kind", KINDS)
def test_p23_no_worst_case_record_exceeds_sensitivity_or_diameter(kind: str) -> None:
    found = blocks(kind, worst_records())
    assert found.shape == (len(worst_records()["age"]), KINDS[kind].size)
    assert np.linalg.norm(found, axis=1).max() <= KINDS[kind].sensitivity * ROUNDING
    assert largest_distance(found) <= KINDS[kind].diameter * (1 + 1e-7)  # a difference of squares


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ON_NUMBERS))
def test_p23_sensitivities_are_reached(kind: str) -> None:
    """A bound that is too large would waste budget."""
    found = np.linalg.norm(blocks(kind, worst_records()), axis=1).max()
    assert found >= KINDS[kind].sensitivity * (1 - 1e-9)


@pytest.mark.quick_cases("rates", "linear on numbers", "histogram", "rates by group")
@pytest.mark.parametrize("kind", sorted(set(KINDS) - ON_NUMBERS))
def test_p23_diameters_are_reached_within_a_sixth(kind: str) -> None:
    assert largest_distance(blocks(kind, worst_records())) >= KINDS[kind].diameter * 5 / 6


def linear_on(numbers: int, classes: int, pairs: int) -> tuple[Linear, dict[str, list[float]]]:
    """A regression with so many columns of each kind, and the cells where bounds are reached."""
    of_three = [Column(name=f"of three {k}", categories=("a", "b", "c")) for k in range(classes)]
    of_two = [Column(name=f"of two {k}", categories=("a", "b")) for k in range(pairs)]
    outcome, *others = (Column(name=f"number {k}", low=-1, high=1) for k in range(numbers))
    levels = [Levels(column=one) for one in (*of_three, *of_two)]
    between = [-1.0, -0.5, 0.0, 1.0] if numbers < 3 else [-1.0, 1.0]
    cells = {column.name: between for column in (outcome, *others)}
    cells |= {one.column.name: [float(place) for place in range(len(one))] for one in levels}
    return Linear(outcome=outcome, on=(*others, *levels)), cells


@pytest.mark.parametrize(
    "columns",
    [(2, 0, 0), (3, 0, 0), (6, 0, 0), (1, 1, 0), (1, 0, 1), (1, 0, 4), (1, 3, 0), (2, 1, 2)],
)
def test_p23_the_diameter_of_a_linear_regression_is_the_largest_distance_found(
    columns: tuple[int, int, int],
) -> None:
    """Of all pairs of extreme records, one that lacks a cell among them: no less and no more."""
    asked, cells = linear_on(*columns)
    rows = np.array([*itertools.product(*cells.values()), [math.nan] * len(cells)])
    found = largest_distance(asked.encode(dict(zip(cells, rows.T, strict=True))))
    assert found == pytest.approx(asked.diameter, rel=1e-9)


@given(rows=st.lists(st.tuples(*[st.floats(-1, 1)] * 4), min_size=2, max_size=2))
def test_p23_no_inner_numbers_of_a_linear_regression_are_further_apart(
    rows: list[tuple[float, ...]],
) -> None:
    asked, cells = linear_on(4, 0, 0)
    found = asked.encode(dict(zip(cells, np.array(rows).T, strict=True)))
    assert np.linalg.norm(found[0] - found[1]) <= asked.diameter * ROUNDING


@given(
    error=st.floats(0, 1),
    others=st.integers(1, 30),
    share=st.floats(0, 1),
)
def test_p23_information_costs_nothing_beside_the_score(
    error: float, others: int, share: float
) -> None:
    squared_length = share * (1 + others)  # of w, at most W
    square = error**2 * squared_length
    square += 11 / (1 + others) * (error * (1 - error) * squared_length) ** 2
    assert square <= (1 + others) * ROUNDING


COX = KINDS["cox on numbers"]


def cox_at(rng: np.random.Generator, stop: float) -> np.ndarray:
    """Public parameters of any kind: hazards that reach the stop soon, late or never."""
    return np.concatenate(
        [
            rng.normal(0, 1, COX.width),
            rng.normal(rng.uniform(-6, 1), rng.choice([0, 1.0]), len(GRID) - 1),
            rng.uniform(-2, 2, COX.width),
            [stop],
        ]
    ).astype(np.float32)


@pytest.mark.quick_cases("0.1", "-1.0", "0.2", "0.75")
@pytest.mark.parametrize("stop", [-1.0, 0.1, 0.2, 0.35, 0.58, 0.75, 0.9, 1.2, 2.0, 4.0, 9.0])
def test_p23_no_record_of_a_cox_regression_exceeds_them_at_any_parameters(stop: float) -> None:
    rng, records, longest = np.random.default_rng(1), worst_records(), 0.0
    for _ in range(20):
        found = COX.encode_at(records, cox_at(rng, stop))
        longest = max(longest, float(np.linalg.norm(found, axis=1).max()))
    assert 0.6 < longest <= COX.sensitivity * ROUNDING
    assert 2 * COX.sensitivity <= COX.diameter


@given(stop=st.floats(0.1, 8), part=st.floats(0, 1), own=st.floats(0, 1))
def test_p23_no_gathered_hazard_makes_a_record_longer(stop: float, part: float, own: float) -> None:
    """An event with `own` of what it gathered in its bin, and none, all parts as long as can be."""
    gathered, base = part * stop, cox_newton._BASE**2
    information = cox_newton._share(stop) ** 2 * gathered**2
    other = (1 - own) * gathered
    event = base * ((1 - own * gathered) ** 2 + other**2) + (1 - gathered) ** 2 + information
    none = gathered**2 * (1 + base) + information
    assert max(event, none) <= cox_newton._length(stop) ** 2 * ROUNDING
    assert cox_newton._GATHERED**2 + cox_newton._CROSS**2 + cox_newton._SQUARES**2 <= 1


@given(bins=st.integers(2, 60), power=st.floats(0, 1))
def test_p23_no_column_of_a_code_is_longer_than_the_first(bins: int, power: float) -> None:
    code = PrefixCode(bins=bins, power=power)
    assert np.linalg.norm(code.matrix, axis=0).max() <= code.sensitivity * ROUNDING
    assert (code.matrix >= 0).all()
    assert code.diameter <= math.sqrt(2) * code.sensitivity * ROUNDING
    np.testing.assert_allclose(code.counts @ code.matrix, np.eye(bins), atol=1e-9)
    np.testing.assert_allclose(code.totals @ code.matrix, np.tril(np.ones((bins, bins))), atol=1e-9)


@pytest.mark.parametrize("bins", [1, 2, 5, 64])
def test_p23_a_record_may_be_further_from_none_than_from_every_other(bins: int) -> None:
    """At power 1 columns are ones from their bin on: two differ in one place fewer than all."""
    assert PrefixCode(bins=bins, power=1.0).diameter == pytest.approx(math.sqrt(bins), rel=1e-12)


@given(
    bins=st.integers(2, 40),
    power=st.floats(0, 1),
    place=st.integers(0, 39),
    part=st.floats(0, 1, exclude_min=True),
)
def test_p23_who_leaves_within_a_bin_is_no_longer_than_the_mean_of_two_columns(
    bins: int, power: float, place: int, part: float
) -> None:
    """What is told of the part costs nothing: at power 1 and half of a bin there is no room."""
    bin_ = min(place, bins - 1)
    edges = tuple(10.0 * k / bins for k in range(bins + 1))
    sets = RiskSets(time=TIME, event=DIED, edges=edges, power=power, counted=True)
    cells = {"time": np.array([edges[bin_] + part * 10 / bins]), "died": np.zeros(1)}
    (found,) = sets.encode(cells, np.zeros(1, np.int64))
    lengths = np.sum(sets._leaving.matrix**2, axis=0)[::-1]  # of the column of each bin
    seen = sets._seen(cells)  # where rounding has put the time
    place, part = int(seen.place[0]), float(seen.part[0])
    before = lengths[place - 1] if place else 1.0
    assert found @ found <= (part * lengths[place] + (1 - part) * before) * ROUNDING
    assert (found >= 0).all()
    assert max(lengths) <= sets.sensitivity**2 * ROUNDING


def test_p23_sensitivity_of_times_is_that_of_their_code_alone() -> None:
    """Parts of bins are told beside the columns and make no record longer."""
    for counted in (False, True):
        sets = RiskSets(time=TIME, event=DIED, edges=GRID, counted=counted)
        assert sets.sensitivity == PrefixCode(bins=len(GRID), power=sets.power).sensitivity
        assert sets.diameter == pytest.approx(math.sqrt(2) * sets.sensitivity)
    months = tuple(map(float, range(0, 39, 3)))
    year = Column(name="time", low=0, high=36)
    asked = Survival(time=year, event=DIED, edges=months)
    assert asked.sensitivity == pytest.approx(1.1024, abs=1e-4)


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1e-3, 1e3)])
def test_p23_no_stacked_record_moves_the_sum_by_more_than_one(
    relation: str, weights: tuple[float, float]
) -> None:
    asked = {
        "one": Table(columns=(AGE, BLOOD), weight=weights[0]),
        "two": Survival(time=TIME, event=DIED, edges=GRID, weight=weights[1]),
        "three": logistic(DIED, (AGE, BY_SEX)),
    }
    found = stack(asked, relation)
    vectors = found.encode(worst_records())
    reached = (
        np.linalg.norm(vectors, axis=1).max()
        if relation == "add-remove"
        else largest_distance(vectors)
    )
    assert 0.7 < reached < 1


def test_p23_a_record_as_long_as_can_be_leaves_room_for_rounding() -> None:
    found = stack({"one": KINDS["histogram"]})
    longest = np.linalg.norm(found.encode(worst_records()), axis=1).max()
    assert 1 - 2.0**-19 < longest <= 1 - 2.0**-21


@pytest.mark.slow
def test_p23_the_sum_is_exact_in_any_order_and_any_pieces() -> None:
    """A neighbour changes the sum by its own vector, and by no rounding of the others'."""
    cells = worst_records()
    found = stack({"one": KINDS["table"], "two": KINDS["survival by group"]})
    records = len(cells["age"])
    order = np.random.default_rng(1).permutation(records)
    whole = found.sum({name: np.tile(values, 40) for name, values in cells.items()})
    again = found.sum({name: np.tile(values[order], 40) for name, values in cells.items()})
    assert (whole == again).all()
    without = found.sum({name: values[1:] for name, values in cells.items()})
    alone = found.sum({name: values[:1] for name, values in cells.items()})
    assert (without + alone == found.sum(cells)).all()
    assert np.linalg.norm(alone) <= 1


def test_p23_missing_cells_are_left_out_whatever_else_stands_in_the_record() -> None:
    for kind in ("cox", "logistic", "linear", "crosstab", "survival", *ON_NUMBERS):
        cells = {name: np.array([1.0, 1.0]) for name in WORST} | {
            name: np.array([math.nan, 1.0]) for name in ("sex", "time", "age", "blood", "died")
        }
        found = blocks(kind, cells, 0.0)
        assert not found[0].any()
        assert found[1].any()


@pytest.mark.slow
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_pooled_values_are_those_of_the_isotonic_regression(values: list[float]) -> None:
    from scipy.optimize import isotonic_regression

    found = rising(np.array(values))
    np.testing.assert_allclose(found, isotonic_regression(values).x, atol=1e-6)
