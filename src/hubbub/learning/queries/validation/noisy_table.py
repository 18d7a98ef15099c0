"""Scores of a table of noisy counts, each with an interval that knows sampling and noise.

A table has a row for each public bin of predictions and a column for each public outcome. A score
is a smooth function of its counts; where it is a ratio of two polynomials, its interval is
Fieller's: all values that the numerator less the value times the denominator does not contradict,
which holds where a plain standard error is no guide. Derivatives are exact (complex steps). Counts
are taken to vary as Poisson's, which is right for a function that does not change where all counts
are multiplied, and the noise has the same known standard deviation in each number that was sent:
a count itself, or one of a code's. This file knows neither models nor kinds of targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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


class _Noisy:
    """Numbers with noise of which scores are made."""

    @property
    def numbers(self) -> Array:
        """What a score is a function of."""
        raise NotImplementedError

    def covariance(self, a: Array, b: Array) -> float:
        """Of two sums of the numbers with these weights, by sampling and noise."""
        raise NotImplementedError

    def ratio(self, top: Function, bottom: Function) -> ScoreInterval:
        """A score that is `top` over `bottom`, which is positive of all numbers without noise."""
        values = float(top(self.numbers)), float(bottom(self.numbers))
        return self.quotient(values, [gradient(one, self.numbers) for one in (top, bottom)])

    def quotient(
        self, values: Sequence[float], slopes: Sequence[Array], more: float = 0.0
    ) -> ScoreInterval:
        """The same by two values and their derivatives.

        Args:
            values, slopes: of what is above, and of what is below.
            more: noise in what is above that its derivatives do not know.
        """
        a, b = slopes
        aa, bb = self.covariance(a, a) + more**2, self.covariance(b, b)
        most = sqrt(aa * bb)
        above, below = values
        return fieller(above, below, aa, min(max(self.covariance(a, b), -most), most), bb)

    def smooth(self, function: Function) -> ScoreInterval:
        """Any other score: its value and 1.96 standard errors on either side."""
        with np.errstate(all="ignore"):
            value = float(np.real(function(self.numbers)))
            slope = gradient(function, self.numbers)
        return self.linear(value, slope)

    def linear(self, value: float, slope: Array) -> ScoreInterval:
        """A value with these derivatives."""
        if not np.isfinite(value) or not np.isfinite(slope).all():
            return UNKNOWN
        width = _Z * sqrt(self.covariance(slope, slope))
        return ScoreInterval(value=value, low=value - width, high=value + width)


@dataclass(frozen=True, kw_only=True)
class NoisyTable(_Noisy):
    """Counts of predictions by outcomes.

    Args:
        counts: (bins, outcomes), with noise; some may be below 0.
        sigma: standard deviation of the noise in each number that was sent.
        decoded: (bins, numbers) how the counts of each outcome follow from the numbers that were
            sent of it; None: they were sent themselves.
    """

    counts: Array = field(repr=False)
    sigma: float
    decoded: Array | None = field(default=None, repr=False)

    @property
    def numbers(self) -> Array:
        """The counts."""
        return self.counts

    @property
    def records(self) -> float:
        """How many records there are, with noise."""
        return float(self.counts.sum())

    @property
    def records_error(self) -> float:
        """The noise in it."""
        return float(self.range_errors(np.array(0), np.array(len(self.counts))))

    def range_errors(self, begin: NDArray[np.intp], end: NDArray[np.intp]) -> Array:
        """The noise in the number of records of bins from one on and before another."""
        squares = np.asarray(end - begin, dtype=np.float64)
        if self.decoded is not None:
            totals = self._totals
            squares = totals[begin, begin] + totals[end, end] - 2 * totals[begin, end]
        return np.asarray(self.sigma * np.sqrt(self.counts.shape[1] * np.maximum(squares, 0.0)))

    @cached_property
    def _totals(self) -> Array:
        """(bins + 1, bins + 1) the covariance of running totals of one outcome, of noise of 1."""
        assert self.decoded is not None, "its counts are decoded"  # noqa: S101
        totals = np.vstack([np.zeros(self.decoded.shape[1]), self.decoded.cumsum(axis=0)])
        return np.asarray(totals @ totals.T)

    def covariance(self, a: Array, b: Array) -> float:
        """Of two weighted sums of counts, by sampling and noise.

        Counts that were sent themselves vary by what they are, never too little on average. Decoded
        ones have more noise than they count, whose sum cancels only where none is cut off at 0.
        """
        if self.decoded is None:
            return float(((np.maximum(self.counts, 0.0) + self.sigma**2) * a * b).sum())
        sampled = float((self.counts * a * b).sum())
        noise = self.sigma**2 * float(((a.T @ self.decoded) * (b.T @ self.decoded)).sum())
        return (max(sampled, 0.0) if a is b else sampled) + noise

    def noise(self, weights: Array) -> float:
        """The noise in a weighted sum of counts."""
        sent = weights if self.decoded is None else weights.T @ self.decoded
        return self.sigma * float(np.linalg.norm(sent))

    def part(self, bins: slice) -> NoisyTable:
        """The counts of some bins."""
        decoded = None if self.decoded is None else self.decoded[bins]
        return replace(self, counts=self.counts[bins], decoded=decoded)

    def together(self, number: int) -> NoisyTable:
        """With the counts of so many neighbouring bins added up each time."""
        starts = np.arange(0, len(self.counts), number)
        counts = np.add.reduceat(self.counts, starts, axis=0)
        decoded = None if self.decoded is None else np.add.reduceat(self.decoded, starts, axis=0)
        return replace(self, counts=counts, decoded=decoded)

    @property
    def pair_noise(self) -> float:
        """The noise in the pairs of two outcomes, of which one is foretold more, by noise alone.

        That is what is left where no record is, of second order beside what records make of it.
        """
        each = np.eye(len(self.counts)) if self.decoded is None else self.decoded
        below = each.cumsum(axis=0) - each / 2
        return self.sigma**2 * float(np.linalg.norm(each.T @ below))

    def sums(self, *weights: Array) -> NoisySums:
        """Sums of counts with the weights of one (bins, outcomes) each."""
        wide = np.array([np.broadcast_to(one, self.counts.shape).T for one in weights])
        sent = wide if self.decoded is None else wide.reshape(-1, wide.shape[-1]) @ self.decoded
        flat, noise = (one.reshape(len(wide), -1) for one in (wide, sent))
        return NoisySums(
            values=flat @ self.counts.T.ravel(),
            varies=(flat * self.counts.T.ravel()) @ flat.T + self.sigma**2 * noise @ noise.T,
        )


@dataclass(frozen=True, kw_only=True)
class NoisySums(_Noisy):
    """A few weighted sums of a table's counts.

    Args:
        values: of each.
        varies: their covariance.
    """

    values: Array
    varies: Array

    @property
    def numbers(self) -> Array:
        """The sums."""
        return self.values

    def covariance(self, a: Array, b: Array) -> float:
        """Of two weighted sums of them."""
        found = float(a @ self.varies @ b)
        return max(found, 0.0) if a is b else found


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
