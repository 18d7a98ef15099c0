"""Texts of cells that databases give: each from its own value, whatever others hold."""

from __future__ import annotations

from decimal import Decimal

import pytest

from hubbub.core.study.cell_stream import texts_of

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
