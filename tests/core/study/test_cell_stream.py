"""Texts of cells that databases give: each from its own value, whatever others hold."""

from __future__ import annotations

from decimal import Decimal

import pytest

from hubbub.core.study.cell_stream import texts_of
from hubbub.core.study.extract import order_number

# Values that Python holds equal, so that a table by value would give one's text to all.
EQUAL = ([0.0, -0.0], [1, 1.0, True], [Decimal("1.50"), Decimal("1.5")], [Decimal(0), 0.0])


@pytest.mark.parametrize("values", EQUAL)
def test_p31_a_cells_text_follows_from_that_cell_alone(values: list[object]) -> None:
    for one in values:
        assert texts_of([*values, one])[-1] == texts_of([one])[0]
        assert texts_of([one, *values])[0] == texts_of([one, *values[::-1]])[0]


def test_p31_equal_numbers_have_one_text() -> None:
    assert texts_of([0.0, -0.0]) == ["0.0", "0.0"]
    assert texts_of([Decimal("1.50"), Decimal("1.5"), Decimal("-0.0")]) == ["1.5", "1.5", "0"]
    assert texts_of([None, float("nan"), True, " a "]) == ["", "", "1", "a"]


def test_a_patients_first_rows_are_told_by_the_time_of_day_too() -> None:
    """Two visits of a day once stood in the order of a hash of their contents."""
    times = ["2024-05-30", "2024-05-31", "2024-05-31 09:00", "2024-05-31T09:00:00.5", "2024-06-01"]
    numbers = [*map(order_number, times)]
    assert numbers == sorted(set(numbers))
    assert order_number("2024-05-31 11:00:00+02:00") == order_number("2024-05-31T09:00Z")
    assert order_number("2024-05-31, noon") == order_number("2024-05-31")
    assert order_number("31.05.2024") is None
    assert order_number("0001-01-01 00:00+23:59") is not None
