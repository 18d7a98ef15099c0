"""Counts in ordered bins, coded so that their running totals come out with little noise.

Theory of operation (after Henzinger, Upadhyay, Upadhyay 2023 and Fichtenberger et al. 2023). F is
the lower triangular Toeplitz matrix whose entries are the coefficients of (1 - x)^-a. Records are
summed as F counts, with independent noise; F^-1 has the coefficients of (1 - x)^a, and running
totals are L F^-1 of the coded sum, with those of (1 - x)^(a - 1). Plain counts are a = 0, plain
totals a = 1; between them both the length of a column of F, which is the sensitivity, and the noise
of a total grow like a logarithm only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.statistic import Array


@dataclass(frozen=True, kw_only=True)
class PrefixCode:
    """A code for counts in so many bins.

    Args:
        bins: how many.
        power: a, between 0 and 1.
    """

    bins: int
    power: float

    @cached_property
    def matrix(self) -> Array:
        """(bins, bins): F."""
        return _lower(self.power, self.bins)

    @cached_property
    def counts(self) -> Array:
        """(bins, bins): F^-1, from a coded sum to counts."""
        return _lower(-self.power, self.bins)

    @cached_property
    def totals(self) -> Array:
        """(bins, bins): L F^-1, from a coded sum to running totals."""
        return _lower(1.0 - self.power, self.bins)

    @property
    def sensitivity(self) -> float:
        """Length of the longest column of F, the first: no other has more entries."""
        return float(np.linalg.norm(self.matrix[:, 0]))

    @property
    def diameter(self) -> float:
        """The largest distance of two columns of F, or of one and nothing at all."""
        gram = self.matrix.T @ self.matrix
        lengths = np.diag(gram)
        widest = float(np.max(lengths[:, None] + lengths[None, :] - 2.0 * gram))
        return max(math.sqrt(max(widest, 0.0)), self.sensitivity)

    def encode(self, places: NDArray[np.int64]) -> Array:
        """(n, bins): each record's column of F; zeros for places below 0, looked up as the rest."""
        return np.asarray(self._columns[np.where(places < 0, self.bins, places)])

    @cached_property
    def _columns(self) -> Array:
        """(bins + 1, bins): each column of F, and zeros."""
        return np.vstack([self.matrix.T, np.zeros(self.bins)])


def _lower(power: float, size: int) -> Array:
    """The Toeplitz matrix of (1 - x)^-power."""
    steps = np.arange(1, size)
    column = np.concatenate([[1.0], np.cumprod((steps - 1.0 + power) / steps)])
    below = np.subtract.outer(np.arange(size), np.arange(size))
    return np.asarray(np.where(below >= 0, column[np.maximum(below, 0)], 0.0))


def rising(values: Array) -> Array:
    """The non-decreasing values that are nearest in squares: neighbours that fall are pooled."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while pools and pools[-1][0] > mean:
            before, length = pools.pop()
            mean, size = (mean * size + before * length) / (size + length), size + length
        pools.append((mean, size))
    return np.repeat([mean for mean, _ in pools], [size for _, size in pools])
