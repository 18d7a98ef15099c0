"""Rows of units, and what features are standardised by: what no record decides (P16, P21)."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub.core.tabular.records import (
    Records,
    Standardisation,
    first_rows,
    standardisation_from,
    unit_rows,
)


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


def test_p16_no_standardised_feature_is_too_large_to_be_a_number() -> None:
    huge = np.array([[3e38], [-3e38]], np.float32)
    made = Standardisation(shift=np.zeros(1, np.float32), scale=np.array([0.01], np.float32))
    found = made.of(Records(inputs=huge, targets=np.zeros(2, np.float32)))
    assert np.isfinite(found.inputs).all()


def test_p21_a_patient_of_two_silos_is_two_units() -> None:
    one, other = (
        Records(
            inputs=np.zeros((len(patients), 1), np.float32),
            targets=np.zeros(len(patients), np.float32),
            patients=np.array(patients),
        )
        for patients in ([0, 1, 0], [0, 0])
    )
    assert Records.together([one, other]).units == 3


def test_p21_no_row_beyond_the_most_is_kept() -> None:
    assert first_rows(np.array([0, 0, 1, 0]), 2).tolist() == [True, True, True, False]
