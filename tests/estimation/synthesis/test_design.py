"""What a record sends, against docs/privacy.md P26."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimation.synthesis.made_up import categorical, dependent, design_of, numeric

from hubbub.estimation.synthesis.design import (
    MOST_UNITS,
    ROW_STEP,
    SHARE_STEP,
    CodedColumn,
    Design,
    contrasts_of,
    matrix_of,
)
from hubbub.estimation.synthesis.entropy_model import _fitting, without_room

SIZES = st.tuples(st.sampled_from([numeric, categorical]), st.integers(2, 9), st.booleans())
FLOATS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True), st.integers(-2, 12).map(float), st.floats(0, 1)
)
RELATIONS = st.sampled_from(["add-remove", "substitute"])


@st.composite
def designs(draw: st.DrawFn) -> Design:
    """Any columns, with or without targets."""
    many = draw(st.lists(SIZES, min_size=2, max_size=5))
    columns = [make(f"c{k}", n, complete=whole) for k, (make, n, whole) in enumerate(many)]
    targets = tuple(range(draw(st.integers(0, 2))))
    return design_of(*columns, targets=targets, relation=draw(RELATIONS))


def sent(design: Design, rows: list[list[float]], numbers: np.ndarray) -> np.ndarray:
    """The sum of some records."""
    cells = {
        one.name: np.array([row[k] for row in rows], float) for k, one in enumerate(design.columns)
    }
    return design.sum(cells, numbers)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_vector_is_longer_than_one_nor_two_further_apart_than_the_diameter(
    data: st.DataObject,
) -> None:
    """P26 (a), (b): whatever cells hold, and whatever numbers came down."""
    design = data.draw(designs())
    width = len(design.columns)
    row = st.lists(FLOATS, min_size=width, max_size=width)
    down = st.lists(st.floats(width=32), min_size=len(design.pairs), max_size=len(design.pairs))
    numbers = np.array(data.draw(st.one_of(st.just(design.start.tolist()), down)), np.float32)
    one, other = (sent(design, [data.draw(row)], numbers) for _ in range(2))
    assert np.linalg.norm(one) <= 1
    assert np.linalg.norm(one - other) <= design.diameter
    assert np.isfinite(one).all()


@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize("chosen", [(), ((0, 1),), ((0, 1), (0, 2), (1, 2))])
def test_the_bounds_are_reached(relation: str, chosen: tuple[tuple[int, int], ...]) -> None:
    """So a smaller weight would be noticed, too, in either layout."""
    four = [numeric("a", 4), numeric("b", 4), categorical("c", 4)]
    design = design_of(*four, relation=relation)
    numbers = design.parameters_of(chosen)
    vectors = [
        sent(design, [[a / 4, b / 4, c]], numbers)
        for a in range(4)
        for b in range(4)
        for c in range(4)
    ]
    longest = max(np.linalg.norm(one) for one in vectors)
    apart = max(np.linalg.norm(one - other) for one in vectors for other in vectors)
    if relation == "add-remove":
        assert 1 - 1e-4 < longest <= 1  # rows are rounded to 2^-17
        assert 1.1 < apart <= design.diameter
    else:
        assert 0.85 < apart <= 1  # each block's largest distance, never all of them at once


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_sums_are_exact_in_any_order(seed: int, first: bool) -> None:
    """P26 (d): a neighbour changes its own part and nothing else, to the last bit of counts."""
    design, cells = dependent(300, seed=1)
    numbers = design.start if first else design.parameters_of(((0, 1), (0, 3)))
    order = np.random.default_rng(seed).permutation(300)
    shuffled = {name: one[order] for name, one in cells.items()}
    assert design.sum(cells, numbers).tobytes() == design.sum(shuffled, numbers).tobytes()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=6), RELATIONS)
def test_a_patient_is_no_longer_than_a_record(weights: list[float], relation: str) -> None:
    """P26 (c)."""
    columns: list[CodedColumn] = [numeric("a", 5), categorical("b", 3, complete=False)]
    design = design_of(*columns, relation=relation)
    share = np.array(weights) / max(sum(weights), 1e-9)
    rng = np.random.default_rng(len(weights))
    cells = {"a": rng.random(len(share)), "b": rng.integers(0, 3, len(share)).astype(float)}
    for numbers in (design.start, design.parameters_of(((0, 1),))):
        total = design.sum(cells, numbers, share[None, :].astype(np.float32))
        assert np.linalg.norm(total) <= 1


def test_p26_shares_of_a_patient_are_rounded_down_or_it_would_be_longer_than_a_record() -> None:
    design = design_of(numeric("a", 4), numeric("b", 4), relation="add-remove")
    cells, thirds = {"a": np.zeros(3), "b": np.zeros(3)}, np.full((1, 3), 1 / 3)
    one = design.sum({name: cell[:1] for name, cell in cells.items()}, design.start)
    together = design.sum(cells, design.start, thirds)
    assert np.linalg.norm(together) <= np.linalg.norm(one)
    assert together == pytest.approx((1 - 2.0**-14) * one)  # 3 * 5461 = 2^14 - 1
    nearer_above = np.array([[5461.6, 5461.6, 5460.8]]) / 2**14
    assert design.sum(cells, design.start, nearer_above) == pytest.approx((1 - 2.0**-13) * one)


@pytest.mark.parametrize("groups", [(2, 2, 2, 2), (3, 2, 3, 1), (1, 1), (1, 1, 1, 1), (5, 1)])
def test_contrasts_are_orthonormal_and_the_first_ones_know_groups_alone(
    groups: tuple[int, ...],
) -> None:
    made = contrasts_of(groups)
    assert np.allclose(made.T @ made, np.eye(sum(groups) - 1))
    assert np.allclose(made.sum(axis=0), 0)
    ends = np.cumsum((0, *groups))
    for a, b in pairwise(ends):
        assert np.ptp(made[a:b, : len(groups) - 1], axis=0).max() == 0


def test_as_many_units_as_are_taken_keep_sums_exact() -> None:
    """P26 (d): counts of cells times entries, in whole steps, are numbers that a float64 has."""
    assert MOST_UNITS / SHARE_STEP / ROW_STEP == 2**53


def test_rows_are_whole_numbers_of_their_step() -> None:
    """P26 (d) rests on it."""
    made = matrix_of(((3, 2, 3), (2, 2)), False)
    assert np.array_equal(made * 2**17, np.rint(made * 2**17))
    assert np.abs(made).max() <= 1


def test_numbers_from_an_aggregator_choose_no_more_than_there_is_room_for() -> None:
    design = design_of(*[numeric(f"c{k}", 9) for k in range(9)], targets=(0,))
    everything = np.full(len(design.pairs), 1e30, np.float32)
    assert len(design.chosen(everything)) == design.most_pairs < len(design.pairs)
    assert design.chosen(np.full(len(design.pairs), np.nan, np.float32)) == ()
    some = design_of(*[numeric(f"c{k}", 9 if k < 7 else 2) for k in range(9)], targets=(0,))
    largest = sorted(some.pairs, key=lambda pair: sum(k > 6 for k in pair))[: some.most_pairs]
    assert some.chosen(some.parameters_of([*largest, (7, 8)])) == tuple(sorted(largest))


def test_columns_that_have_no_room_beside_all_targets_are_named() -> None:
    """A column is drawn on tables of at most 2^14 cells."""
    large = [categorical(f"t{k}", 30) for k in range(3)]
    design = design_of(*large, numeric("a", 8), targets=(0, 1, 2))
    assert without_room(design) == ("t0", "t1", "t2", "a")
    assert without_room(design_of(*large, numeric("a", 8), targets=(0, 1))) == ("t2",)
    assert without_room(design_of(*large[:2], numeric("a", 8), targets=(0, 1))) == ()


def test_a_clique_has_room_for_few_of_many_parents_however_many_cells_all_have() -> None:
    many = design_of(*(numeric(f"t{k}", 16) for k in range(24)), targets=tuple(range(24)))
    assert many.columns[0].size == 16
    assert _fitting(many, 0, list(range(1, 24))) == (1, 2)  # 16**24 is past int64
