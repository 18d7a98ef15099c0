"""Rows of units, and what features are standardised by: what no record decides (P16, P21)."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.core.tabular.records import Standardisation, standardisation_from, unit_rows


def test_p21_a_units_shares_are_of_the_rows_that_it_keeps() -> None:
    """And add up to one, however many it has beside them."""
    found = unit_rows(np.array([0, 1, 0, 2, 0, 2]), 2)
    assert found.rows.tolist() == [[0, 2], [1, 1], [3, 5]]
    assert found.shares.tolist() == [[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]
    assert found.means(np.arange(6.0)).tolist() == [1.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("shift", "scale", "within"),
    [
        (2.0, 2.0, True),
        (-2.0, 0.002, True),
        (2.001, 1.0, False),
        (0.0, 2.001, False),
        (0.0, 0.0019, False),
    ],
)
def test_p16_a_scale_is_neither_beyond_the_bound_nor_so_small_that_noise_alone_gives_it(
    shift: float, scale: float, *, within: bool
) -> None:
    shifts, scales = np.array([0.0, shift], np.float32), np.array([1.0, scale], np.float32)
    made = Standardisation(shift=shifts, scale=scales)
    assert made.is_within(2.0) is within


@pytest.mark.parametrize("sums", [[1.0, 9.0, 9.0], [1.0, -9.0, -9.0], [-5.0, 1.0, 0.0]])
def test_p16_what_noise_makes_of_a_mean_is_no_shift_beyond_the_bound(sums: list[float]) -> None:
    assert standardisation_from(np.array(sums), 2.0).is_within(2.0)
