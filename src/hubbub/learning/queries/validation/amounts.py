"""Amounts and counts: c-index, R squared, errors and calibration, of binned numbers.

The c-index comes first: noise hides an R squared of a few thousand records, and not which of two
records is higher.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.learning.queries.validation.bins import Array, Bins
from hubbub.learning.queries.validation.noisy_table import UNKNOWN, NoisyTable, ScoreInterval
from hubbub.learning.queries.validation.validation_scores import (
    ScoreCurve,
    ValidationScore,
    ValidationScores,
    curve,
    fifths,
    known,
    score,
)


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """A predicted number, in bins, by the bin of the number that came.

    Args:
        bins: of predictions.
        seen: of what came.
        counts: whether these are counts, whose deviance is told.
    """

    bins: Bins
    seen: Bins
    counts: bool = False

    @property
    def code(self) -> None:
        """Its cells are few, and are sent as they are."""

    @property
    def outcomes(self) -> int:
        """Bins of what came."""
        return len(self.seen)

    @property
    def predictions(self) -> int:
        """Bins of predictions."""
        return len(self.bins)

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the bins of each record."""
        return self.bins.places(predicted), self.seen.places(targets)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """All that there is to say."""
        first = (self._deviance(table),) if self.counts else ()
        return ValidationScores(
            scores=known(
                self._c_index(table),
                *first,
                self._r_squared(table),
                self._rmse(table),
                self._mean_error(table),
                self._gap(table),
                self._slope(table),
            ),
            calibration=self._calibration(table),
        )

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: R squared .3, a spread of .2 of the range.

        Counts are taken to have means of a quarter of what is seen at most.
        """
        low, high = self.seen.values[0], self.seen.values[-1]
        middle, spread = low + (0.25 if self.counts else 0.5) * (high - low), 0.2 * (high - low)
        x, y = np.array(self.bins.values)[:, None], np.array(self.seen.values)
        wide = np.gradient(np.array(self.bins.values))[:, None] * np.gradient(y)
        cells = wide * np.exp(
            -0.5
            * (((x - middle) / (sqrt(0.3) * spread)) ** 2 + ((y - x) / (sqrt(0.7) * spread)) ** 2)
        )
        return np.asarray(records * cells / cells.sum())

    def _c_index(self, table: NoisyTable) -> ValidationScore | None:
        """How often the model puts that of two records higher which is (Harrell et al. 1982)."""
        found = table.ratio(_ordered_alike, _apart)
        return score("c_index", found.within(0.0, 1.0), null=0.5, gain=found.less(0.5))

    def _r_squared(self, table: NoisyTable) -> ValidationScore | None:
        interval = table.ratio(lambda n: self._spread(n) - _all(n) * self._squares(n), self._spread)
        return score("r_squared", interval.within(-np.inf, 1.0, wide=1.0), null=0.0, gain=interval)

    def _rmse(self, table: NoisyTable) -> ValidationScore | None:
        interval = table.ratio(self._squares, _all)
        null = table.ratio(self._spread, lambda n: _all(n) ** 2).value
        gain = table.ratio(lambda n: self._spread(n) - _all(n) * self._squares(n), self._spread)
        told = _root(interval).within(0.0, self._range)
        return score("rmse", told, null=sqrt(max(null, 0.0)), gain=gain)

    def _mean_error(self, table: NoisyTable) -> ValidationScore | None:
        apart = np.abs(np.array(self.bins.values)[:, None] - np.array(self.seen.values))
        interval = table.ratio(lambda n: np.asarray((n * apart).sum((-1, -2))), _all)
        told = interval if interval.value > 0 else UNKNOWN  # else noise has left nothing of it
        return score("mae", told.within(0.0, self._range))

    def _gap(self, table: NoisyTable) -> ValidationScore | None:
        """Mean prediction less the mean of what came."""
        apart = np.array(self.bins.values)[:, None] - np.array(self.seen.values)
        found = table.ratio(lambda n: np.asarray((n * apart).sum((-1, -2))), _all)
        return score("calibration_gap", found.within(-self._range, self._range))

    def _slope(self, table: NoisyTable) -> ValidationScore | None:
        """Of a line through what came over what was foretold, by least squares."""
        x, y = np.array(self.bins.values), np.array(self.seen.values)

        def joint(n: Array) -> Array:
            both = (n * x[:, None] * y).sum((-1, -2))
            return np.asarray(_all(n) * both - (n.sum(-1) * x).sum(-1) * (n.sum(-2) * y).sum(-1))

        def alone(n: Array) -> Array:
            rows = n.sum(-1)
            return np.asarray(_all(n) * (rows * x**2).sum(-1) - (rows * x).sum(-1) ** 2)

        return score("calibration_slope", table.ratio(joint, alone))

    def _deviance(self, table: NoisyTable) -> ValidationScore | None:
        """How much of the null model's Poisson deviance the model explains."""
        from scipy.special import xlogy  # which takes long to import

        rates, seen = np.array(self.bins.values)[:, None], np.array(self.seen.values)
        own = 2.0 * (xlogy(seen, seen / rates) - seen + rates)
        alone = xlogy(seen, np.where(seen > 0, seen, 1.0))

        def explained(n: Array) -> Array:
            records, total = _all(n), (n.sum(-2) * seen).sum(-1)
            null = 2.0 * ((n.sum(-2) * alone).sum(-1) - total * np.log(total / records))
            return np.asarray(1.0 - (n * own).sum((-1, -2)) / null)

        interval = table.smooth(explained)
        told = interval.within(-np.inf, 1.0, wide=1.0)
        return score("deviance_explained", told, null=0.0, gain=interval)

    @property
    def _range(self) -> float:
        """The most that a prediction can be off, as both are rounded."""
        ends = (*self.bins.values, *self.seen.values)
        return max(ends) - min(ends)

    def _squares(self, n: Array) -> Array:
        apart = np.array(self.bins.values)[:, None] - np.array(self.seen.values)
        return np.asarray((n * apart**2).sum((-1, -2)))

    def _spread(self, n: Array) -> Array:
        """Records times the sum of squares about the mean of what came."""
        y, columns = np.array(self.seen.values), n.sum(-2)
        return np.asarray(_all(n) * (columns * y**2).sum(-1) - (columns * y).sum(-1) ** 2)

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        y, points = np.array(self.seen.values), []
        for at, group in fifths(table, np.array(self.bins.values)):
            found = table.part(group).ratio(lambda n: np.asarray((n * y).sum((-1, -2))), _all)
            points.append((at, found.within(float(y[0]), float(y[-1]), wide=np.inf)))
        return curve("observed", points)


def _all(n: Array) -> Array:
    return np.asarray(n.sum((-1, -2)))


def _ordered_alike(n: Array) -> Array:
    """Pairs in other bins of outcomes that are ordered alike, and half of those foretold alike."""
    below = np.cumsum(n, axis=-1) - n  # of each prediction, with a lower outcome
    lower = np.cumsum(below, axis=-2) - below / 2
    return np.asarray((n * lower).sum((-1, -2)))


def _apart(n: Array) -> Array:
    """Pairs in other bins of outcomes."""
    columns = n.sum(-2)
    return np.asarray((columns * (np.cumsum(columns, axis=-1) - columns)).sum(-1))


def _root(found: ScoreInterval) -> ScoreInterval:
    """The root of a mean of squares; unknown where noise has left nothing of it."""
    if not found.is_known or found.value <= 0:
        return UNKNOWN
    value, low, high = (sqrt(max(x, 0.0)) for x in (found.value, found.low, found.high))
    return ScoreInterval(value=value, low=low, high=high)
