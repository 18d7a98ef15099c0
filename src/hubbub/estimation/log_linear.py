"""Linear regression of an amount's logarithm: by how many times an effect makes it larger.

It is least squares (`linear`) on another scale: an amount is clipped to its public bounds, both
above 0, and their logarithms are the bounds of what is summed, so that a record's block is as long
as any other's (docs/privacy.md P36).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.estimation.linear import Linear
from hubbub.estimation.statistic import Array, Cells


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
