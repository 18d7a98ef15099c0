"""Linear regression of an amount's logarithm: by how many times an effect makes it larger.

It is least squares (`linear`) on another scale: an amount is clipped to its public bounds, both
above 0, and their logarithms are the bounds of what is summed, so that a record's block is as long
as any other's (docs/privacy.md P36).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.estimation.linear import Linear
from hubbub.estimation.statistic import Array, Cells, Levels


def log_linear(outcome: Column, on: tuple[Levels | Column, ...]) -> LogLinear:
    """The regression of an amount's logarithm.

    Args:
        outcome: its column, with bounds above 0 in its own unit.
        on: the covariates, see `Regression`.

    Raises:
        StudyError: an outcome or covariates that are none.
    """
    low, high = outcome.bounds
    if low <= 0:
        raise StudyError(
            f"expected bounds above 0 of {outcome.name}, whose logarithm is asked of, found "
            f"{low:g}; name the least amount that matters"
        )
    return LogLinear(outcome=replace(outcome, low=math.log(low), high=math.log(high)), on=on)


@dataclass(frozen=True, kw_only=True)
class LogLinear(Linear):
    """Ratios of geometric means per unit and between classes.

    Args:
        outcome: the amount's column, with the logarithms of its bounds.
        on, weight, confidence: see `Regression`.
    """

    ratio = "ratio of geometric means"

    @property
    def explained(self) -> str:
        """The outcome's name."""
        return f"log {self.outcome.name}"

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        amount = cells[self.outcome.name]
        low, high = np.exp(self.outcome.bounds)
        return Linear.encode(self, {**cells, self.outcome.name: np.log(np.clip(amount, low, high))})
