"""Times to an event: concordance, Brier score and calibration of the risk until a horizon.

An outcome is an interval of a public grid in which a record had the event or was lost, or that it
was followed to the grid's end. Within an interval half of who is lost is lost before the events and
half after them, as in a life table; for concordance who is lost in an interval outlives its events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.queries.validation.bins import Array, Bins
from hubbub.queries.validation.noisy_table import NoisyTable
from hubbub.queries.validation.validation_scores import (
    ScoreCurve,
    ValidationScore,
    ValidationScores,
    curve,
    fifths,
    known,
    score,
)


@dataclass(frozen=True, kw_only=True)
class Times:
    """The risk until the horizon, in bins, by what came when.

    Args:
        bins: of the risk.
        ends: of the intervals, rising; the last is the horizon.
    """

    bins: Bins
    ends: tuple[float, ...]

    @property
    def outcomes(self) -> int:
        """Event in each interval, lost in each, followed to the end."""
        return 2 * len(self.ends) + 1

    @property
    def predictions(self) -> int:
        """Bins of the risk."""
        return len(self.bins)

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the bin of the risk, and what came; `predicted` is survival at the target's grid."""
        times, events, many = targets[:, 0], targets[:, 1] > 0.5, len(self.ends)
        at = np.searchsorted(self.ends, times, side="left")  # a time at an end is before it
        lost = np.where(times < self.ends[-1], many + np.minimum(at, many - 1), 2 * many)
        seen = np.where(events & (at < many), np.minimum(at, many - 1), lost)
        return self.bins.places(1.0 - predicted[:, -1]), seen.astype(np.intp)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """All that there is to say."""
        return ValidationScores(
            scores=known(self._concordance(table), self._brier(table), self._gap(table)),
            calibration=self._calibration(table),
        )

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: a third has the event, a third is lost."""
        many, chance = len(self.ends), np.array(self.bins.values)
        weight = np.exp(-0.5 * ((np.log(chance / (1 - chance)) + 0.8) / 1.0) ** 2)
        rows = records * weight / weight.sum()
        events = np.repeat((rows * chance / many)[:, None], many, axis=1)
        left = rows * (1 - chance)
        lost = np.repeat((left / (2 * many))[:, None], many, axis=1)
        return np.hstack([events, lost, (left / 2)[:, None]])

    def _concordance(self, table: NoisyTable) -> ValidationScore | None:
        interval = table.ratio(self._ranked, self._comparable)
        return score("c_index", interval.within(0.0, 1.0), null=0.5, gain=interval.less(0.5))

    def _brier(self, table: NoisyTable) -> ValidationScore | None:
        """At the horizon, who was lost weighed by the inverse chance (Graf et al. 1999)."""
        risk = np.array(self.bins.values)

        def own(n: Array) -> Array:
            came, stayed = self._weighed(n)
            return np.asarray((came * (1 - risk) ** 2 + stayed * risk**2).sum(-1) / _all(n))

        def of_null(n: Array) -> Array:
            came, stayed = (one.sum(-1) for one in self._weighed(n))
            return np.asarray(came * stayed / (came + stayed) / _all(n))

        interval, null = table.smooth(own), table.smooth(of_null)
        gain = table.smooth(lambda n: of_null(n) - own(n))
        share = float(np.clip(null.value, 0.0, 0.25))
        return score("brier", interval.within(0.0, 1.0), null=share, gain=gain)

    def _gap(self, table: NoisyTable) -> ValidationScore | None:
        """Mean risk less the share with the event by the horizon."""
        risk = np.array(self.bins.values)

        def apart(n: Array) -> Array:
            came, stayed = (one.sum(-1) for one in self._weighed(n))
            return np.asarray((n.sum(-1) * risk).sum(-1) / _all(n) - came / (came + stayed))

        return score("calibration_gap", table.smooth(apart).within(-1.0, 1.0))

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        """The risk that was seen, by a life table of each group, over that which was foretold."""
        risk, points = np.array(self.bins.values), []
        for group in fifths(table):
            rows = table.counts[group].sum(axis=1)
            part = NoisyTable(counts=table.counts[group], sigma=table.sigma)
            at = float(np.clip((rows * risk[group]).sum() / rows.sum(), *risk[group][[0, -1]]))
            interval = part.smooth(lambda n: 1.0 - self.survival(n))
            points.append((at, interval.within(0.0, 1.0, wide=np.inf)))
        return curve("observed", points)

    def survival(self, n: Array) -> Array:
        """The share without the event at the horizon, by a life table of all rows."""
        events, lost, there = self._followed(n)
        return np.asarray(np.prod(1.0 - events / (there - lost / 2), axis=-1))

    def _weighed(self, n: Array) -> tuple[Array, Array]:
        """(…, bins): events by the horizon and records without, each over its chance to be seen."""
        many = len(self.ends)
        events, lost, there = self._followed(n)
        leaving = lost / (there - events / 2)
        stayed = np.cumprod(1.0 - leaving, axis=-1)
        before = np.concatenate([np.ones_like(stayed[..., :1]), stayed[..., :-1]], axis=-1)
        halfway = before * (1.0 - leaving / 2)
        came = (n[..., :many] / halfway[..., None, :]).sum(-1)
        return np.asarray(came), np.asarray(n[..., -1] / stayed[..., -1:])

    def _followed(self, n: Array) -> tuple[Array, Array, Array]:
        """(…, intervals): events, lost, and who was there at the beginning."""
        many, rows = len(self.ends), n.sum(-2)
        events, lost = rows[..., :many], rows[..., many : 2 * many]
        gone = np.cumsum(events + lost, axis=-1) - events - lost
        return events, lost, rows.sum(-1)[..., None] - gone

    def _later(self, n: Array) -> Array:
        """(…, bins, intervals): who outlives the events of an interval."""
        many = len(self.ends)
        events, lost = n[..., :many], n[..., many : 2 * many]
        after = np.flip(np.cumsum(np.flip(events + lost, -1), -1), -1) - events
        return np.asarray(after + n[..., -1:])

    def _ranked(self, n: Array) -> Array:
        """Comparable pairs in which the higher risk has the event first, half of equal ones."""
        later = self._later(n)
        below = np.cumsum(later, axis=-2) - later / 2
        return np.asarray((n[..., : len(self.ends)] * below).sum((-1, -2)))

    def _comparable(self, n: Array) -> Array:
        later = self._later(n).sum(-2)
        return np.asarray((n[..., : len(self.ends)].sum(-2) * later).sum(-1))


def _all(n: Array) -> Array:
    return np.asarray(n.sum((-1, -2)))
