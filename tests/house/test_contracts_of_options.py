"""`hubbub.testing.check_option`: ways to correlate noise keep it, and broken ones are told."""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom
from typing import Any

import numpy as np
import pytest
from tests.house.outside.square_root import column, too_long

from hubbub.core.planning.noise_correlation import UNIT, best_column, whole_units
from hubbub.testing import check_option

Choose = Callable[..., tuple[int, ...]]


@pytest.mark.parametrize("choose", [best_column, column], ids=["own", "outside"])
def test_an_option_keeps_its_contract(choose: Choose) -> None:
    check_option(choose)


def too_short(*asked: object) -> tuple[int, ...]:
    return column(*asked)[:-1]


def fractions(*asked: object) -> tuple[float, ...]:
    return tuple(unit / 2 for unit in column(*asked))


def drawn(bands: int, *_: object) -> tuple[int, ...]:
    return whole_units(np.array([1.0, *(SystemRandom().random() / 9 for _ in range(bands - 1))]))


def growing(bands: int, *_: object) -> tuple[int, ...]:
    return whole_units(np.array([1.0, 2.0, *[0.0] * (bands - 2)]))


def negative(bands: int, *_: object) -> tuple[int, ...]:
    return (-UNIT, *[0] * (bands - 1))


def of_no_schedule(bands: int, momentum: float, schedule: str, steps: int) -> tuple[int, ...]:
    return {"constant": column(bands, momentum, schedule, steps)}[schedule]


def of_short_trainings(bands: int, momentum: float, schedule: str, steps: int) -> tuple[int, ...]:
    return {12: column(bands, momentum, schedule, steps)}[steps]


def nothing(*_: object) -> Any:
    return None


@pytest.mark.parametrize(
    ("choose", "told"),
    [
        (too_long, r"norm is UNIT at most.*P25.*1\.\d+ UNIT"),
        (too_short, "has 2 whole numbers"),
        (fractions, "has 2 whole numbers"),
        (negative, "first above 0"),
        (drawn, "the same whenever it is asked for"),
        (growing, "stays bounded.*no zero inside the unit circle"),
        (of_no_schedule, "linear rate.*KeyError"),
        (of_short_trainings, "1000 steps.*KeyError"),
        (nothing, "nothing of nothing raises while it is tried.*TypeError"),
    ],
)
def test_a_broken_option_is_told(choose: Choose, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_option(choose)
