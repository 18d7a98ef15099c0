"""How a held-back record is evaluated, as one short vector (docs/privacy.md P16).

This file knows two numbers from 0 to 1, how well a record is done and its loss, and no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class ScoreVector:
    """(w, a (score - 1/2), a (loss - 1/2)) with w^2 + a^2 / 2 = 1: its norm is at most 1.

    Scores about their middle are half as long, and change as much.

    Args:
        presence: w, by which a record says that it is there; above 0 and below 1.

    >>> vector = ScoreVector(presence=0.5)
    >>> vector.scores_of(np.array([1.0, 0.0, -0.5 * vector.scale]))  # of two records
    (0.5, 0.25)
    """

    presence: float

    @classmethod
    def of(cls, relation: str) -> ScoreVector:
        """The vector for neighbours of a relation.

        "add-remove": near the least error of scores from .5 to .95. "substitute": the longest w at
        which two records are no further apart than one is from none.
        """
        return cls(presence=sqrt(0.75 if relation == "substitute" else 0.3))

    @property
    def scale(self) -> float:
        """By which a score less 1/2 is multiplied: a."""
        return sqrt(2 * (1 - self.presence**2))

    @property
    def diameter(self) -> float:
        """How far apart two records' vectors can be, where one of them may be zero."""
        return max(self.scale * sqrt(2), 1.0)

    def sums_of(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """How many records there are, and the sums of their scores and losses: (3,), as noisy."""
        count = total[0] / self.presence
        return np.array([count, *(total[1:] / self.scale + count / 2)])

    def scores_of(self, total: NDArray[np.float64]) -> tuple[float, float]:
        """Mean score and mean loss, each from 0 to 1, from a noisy sum of vectors."""
        score, loss = np.clip(self.sums_of(total)[1:] / self.count_of(total), 0.0, 1.0)
        return float(score), float(loss)

    def count_of(self, total: NDArray[np.float64]) -> float:
        """How many records there are, at least one, from a noisy sum of vectors."""
        return max(float(total[0]) / self.presence, 1.0)

    def noise_at(self, mean: float) -> float:
        """What a noise of standard deviation 1 in each number is in the mean, times the count.

        The mean is 1/2 and a share of two noisy numbers, the count one of them (P16).
        """
        return sqrt(self.scale**-2 + (mean - 0.5) ** 2 / self.presence**2)
