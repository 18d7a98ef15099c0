"""Noise whose rows are correlated: a silo's share over the attempts of a session (P25).

Row t is w_t with (C w)_t = z_t, C banded and lower triangular with the first column c, z_t
independent: w_t = (z_t - c_1 w_{t-1} - ... - c_{b-1} w_{t-b+1}) / c_0. So b - 1 vectors are kept,
and nothing older. They are as secret as what they have hidden: they stay in memory, as the
session's keys do, and go with the session. This file does not know what the noise is added to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives import noise, randomness

UNIT = 1 << 16  # coefficients are whole numbers of 1 / UNIT, the same on every machine

_OVER = 1 << 62


class CorrelatedNoise:
    """The rows of one silo's noise in one session.

    Args:
        coefficients: the first column of C, in units of 1 / UNIT.
        sigma: standard deviation of the independent noise that the rows are made of, in grid steps.
    """

    def __init__(self, coefficients: Sequence[int], size: int, sigma: float) -> None:
        self._column, self._sigma = np.array(coefficients) / UNIT, sigma
        self._window = np.zeros((len(coefficients) - 1, size))
        self.last = 0

    def __repr__(self) -> str:
        return "CorrelatedNoise(<secret>)"

    @property
    def kept(self) -> int:
        """How many rows are kept."""
        return len(self._window)

    def row(self, number: int, source: randomness.SecureSource) -> NDArray[np.float64]:
        """A row that was not made yet, in grid steps; those that were left out are made on the way.

        Args:
            number: of the attempt in its session, from 1.

        Raises:
            ProtocolError: the row was made before; two sums with one row would bare a difference.
        """
        if number <= self.last:
            raise ProtocolError(f"expected a row of noise after {self.last}, got row {number}")
        # P25: later rows take these partly back, so they are drawn although nobody gets them.
        for _ in range(self.last + 1, number):
            self._next(source)
        return self._next(source)

    def erase(self) -> None:
        """Overwrite what is kept; no row follows."""
        self._window.fill(0)
        # No number is above this: no row is made of an empty window, as if it were the first.
        self.last = _OVER

    def _next(self, source: randomness.SecureSource) -> NDArray[np.float64]:
        """The next row; it takes the place of the oldest."""
        made = np.empty(self._window.shape[1])
        noise.standard_normal(source, made)
        made *= self._sigma
        # P25: w_t = (z_t - c_1 w_{t-1} - ...) / c_0; before the first rows there is less to take
        # back.
        for back in range(1, min(len(self._column), self.last + 1)):
            made -= self._column[back] * self._window[(self.last - back) % self.kept]
        made /= self._column[0]
        self._window[self.last % self.kept] = made
        self.last += 1
        return made
