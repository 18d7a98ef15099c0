"""Correlated noise from outside the tree: the first coefficients of (1 - x)^(1/2), inverted."""

from __future__ import annotations

import numpy as np

from hubbub.core.planning.noise_correlation import whole_units


def column(bands: int, momentum: float, schedule: str, steps: int) -> tuple[int, ...]:
    """(bands,): what would be best for prefix sums if there were no end to the steps."""
    return whole_units(np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, bands)])))


def too_long(bands: int, momentum: float, schedule: str, steps: int) -> tuple[int, ...]:
    """Of a norm above 1, under which a record would count for more than is charged."""
    first, *others = column(bands, momentum, schedule, steps)
    return (first + 1000, *others)
