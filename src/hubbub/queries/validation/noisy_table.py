"""Scores of a table of noisy counts, each with an interval that knows sampling and noise.

A table has a row for each public bin of predictions and a column for each public outcome. A score
is a smooth function of its counts; where it is a ratio of two polynomials, its interval is
Fieller's: all values that the numerator less the value times the denominator does not contradict,
which holds where a plain standard error is no guide. Derivatives are exact (complex steps). Counts
are taken to vary as Poisson's, which is right for a function that does not change where all counts
are multiplied, and the noise has the same known standard deviation in each. This file knows neither
models nor kinds of targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# From (..., bins, outcomes), real or complex, to (...).
Function = Callable[[NDArray[Any]], NDArray[Any]]
_STEP = 1e-100  # a complex step loses no digits
_Z = 1.959963984540054  # the normal law's quantile at .975
_CLEAR = 3.0  # standard deviations by which a denominator must stand above 0


@dataclass(frozen=True, kw_only=True)
class ScoreInterval:
    """A score with its 95 % interval.

    Args:
        value: of the table.
        low, high: ends of the interval; infinite where noise leaves everything possible.
    """

    value: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Whether the interval says anything."""
        return bool(np.isfinite([self.value, self.low, self.high]).all())

    def within(self, low: float, high: float, *, wide: float | None = None) -> ScoreInterval:
        """The part of it that is possible at all; unknown where it leaves much of that open.

        Args:
            low, high: between which the score is.
            wide: an interval as wide as that says nothing; None: half of what is possible.
        """
        if not self.is_known:
            return UNKNOWN
        value, *ends = (float(min(max(x, low), high)) for x in (self.value, self.low, self.high))
        most = (high - low) / 2 if wide is None else wide
        return (
            UNKNOWN
            if ends[1] - ends[0] >= most
            else ScoreInterval(value=value, low=ends[0], high=ends[1])
        )

    def less(self, null: float) -> ScoreInterval:
        """How far it is above another value."""
        return ScoreInterval(value=self.value - null, low=self.low - null, high=self.high - null)


UNKNOWN = ScoreInterval(value=float("nan"), low=float("-inf"), high=float("inf"))


@dataclass(frozen=True, kw_only=True)
class NoisyTable:
    """Counts of predictions by outcomes.

    Args:
        counts: (bins, outcomes), with noise; some may be below 0.
        sigma: standard deviation of the noise in each.
    """

    counts: Array = field(repr=False)
    sigma: float

    @property
    def records(self) -> float:
        """How many records there are, with noise."""
        return float(self.counts.sum())

    @property
    def records_error(self) -> float:
        """The noise in it."""
        return self.sigma * sqrt(self.counts.size)

    @property
    def variances(self) -> Array:
        """Of each count, by sampling and noise: never too small on average."""
        return np.asarray(np.maximum(self.counts, 0.0) + self.sigma**2)

    def ratio(self, top: Function, bottom: Function) -> ScoreInterval:
        """A score that is `top` over `bottom`, which is positive of every table without noise."""
        above, below = float(top(self.counts)), float(bottom(self.counts))
        a, b = gradient(top, self.counts), gradient(bottom, self.counts)
        return fieller(above, below, *self._moments(a, b))

    def smooth(self, function: Function) -> ScoreInterval:
        """Any other score: its value and 1.96 standard errors on either side."""
        with np.errstate(all="ignore"):
            value = float(np.real(function(self.counts)))
            slope = gradient(function, self.counts)
        return self.linear(value, slope)

    def linear(self, value: float, slope: Array) -> ScoreInterval:
        """A value with these derivatives."""
        width = _Z * float(np.sqrt((self.variances * slope**2).sum()))
        if not np.isfinite([value, width]).all():
            return UNKNOWN
        return ScoreInterval(value=value, low=value - width, high=value + width)

    def _moments(self, a: Array, b: Array) -> tuple[float, float, float]:
        weights = self.variances
        return tuple(float((weights * one).sum()) for one in (a * a, a * b, b * b))  # type: ignore[return-value]


class ExactTable(NoisyTable):
    """Counts of so many records that neither sampling nor noise moves a score."""

    def ratio(self, top: Function, bottom: Function) -> ScoreInterval:
        """The score alone, without derivatives."""
        return _exactly(float(top(self.counts)) / float(bottom(self.counts)))

    def smooth(self, function: Function) -> ScoreInterval:
        """The score alone, without derivatives."""
        return _exactly(float(function(self.counts)))


def _exactly(value: float) -> ScoreInterval:
    return ScoreInterval(value=value, low=value, high=value)


def gradient(function: Function, counts: Array) -> Array:
    """(bins, outcomes) the derivatives of a function of counts."""
    steps = np.eye(counts.size).reshape(-1, *counts.shape)
    with np.errstate(all="ignore"):
        return np.imag(function(counts + 1j * _STEP * steps)).reshape(counts.shape) / _STEP


def fieller(above: float, below: float, aa: float, ab: float, bb: float) -> ScoreInterval:
    """The interval of a ratio of two uncertain numbers with these variances and covariance.

    >>> found = fieller(10.0, 20.0, 1.0, 0.0, 0.0)
    >>> round(found.low, 3), found.value, round(found.high, 3)
    (0.402, 0.5, 0.598)
    """
    # (above - r below)^2 <= z^2 (aa - 2 r ab + r^2 bb)
    square = below**2 - _Z**2 * bb
    middle = above * below - _Z**2 * ab
    rest = above**2 - _Z**2 * aa
    root = middle**2 - square * rest
    clear = below > _CLEAR * sqrt(bb)  # one that only just stands out may do so by its noise
    if not np.isfinite(root) or not clear or root < 0:
        return UNKNOWN
    low, high = (middle - sqrt(root)) / square, (middle + sqrt(root)) / square
    return ScoreInterval(value=above / below, low=low, high=high)
