"""Times to an event: concordance, Brier score and calibration of the risk until a horizon.

An outcome is an interval of a public grid in which a record had the event or was lost, or that it
was followed to the grid's end. Within an interval half of who is lost is lost before the events and
half after them, as in a life table; for concordance who is lost in an interval outlives its events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.prefix_coding import PrefixCode
from hubbub.learning.queries.validation.bins import Array, Bins, fine_code
from hubbub.learning.queries.validation.noisy_table import NoisySums, NoisyTable, gradient
from hubbub.learning.queries.validation.validation_scores import (
    ScoreCurve,
    ValidationScore,
    ValidationScores,
    concordance,
    curve,
    fifths,
    known,
    score,
)

_MOST_GROUPS = 64  # of neighbouring bins of risk whose pairs are counted


@dataclass(frozen=True, kw_only=True)
class Times:
    """The risk until the horizon, in fine bins, by what came when.

    Args:
        bins: of the risk.
        ends: of the intervals, rising; the last is the horizon.
    """

    bins: Bins
    ends: tuple[float, ...]

    @property
    def code(self) -> PrefixCode:
        """Running totals of fine bins have little noise, wherever the risks lie."""
        return fine_code(len(self.bins))

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
        powers = np.stack([self._risk**power for power in range(3)])[:, None, :, None]
        seen = np.eye(self.outcomes)[:, None, :]
        each = np.broadcast_to(powers * seen, (3, self.outcomes, len(self.bins), self.outcomes))
        sums = table.sums(*each.reshape(-1, len(self.bins), self.outcomes))
        return ValidationScores(
            scores=known(self._concordance(table), self._brier(sums), self._gap(sums)),
            calibration=self._calibration(table),
        )

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: a third has the event, a third is lost."""
        many, chance, odds = len(self.ends), self._risk, self.bins.log_odds
        weight = np.gradient(odds) * np.exp(-0.5 * (odds + 0.8) ** 2)
        rows = records * weight / weight.sum()
        events = np.repeat((rows * chance / many)[:, None], many, axis=1)
        left = rows * (1 - chance)
        lost = np.repeat((left / (2 * many))[:, None], many, axis=1)
        return np.hstack([events, lost, (left / 2)[:, None]])

    def _concordance(self, table: NoisyTable) -> ValidationScore | None:
        many = len(self.ends)
        counted = (self._ranked, self._comparable)
        interval = concordance(
            table,
            counted,
            lambda n: [gradient(one, n) for one in counted],
            kinds=many * (many + 1),
            most=_MOST_GROUPS,
        )
        return score("c_index", interval.within(0.0, 1.0), null=0.5, gain=interval.less(0.5))

    def _brier(self, sums: NoisySums) -> ValidationScore | None:
        """At the horizon, who was lost weighed by the inverse chance (Graf et al. 1999)."""

        def own(n: Array) -> Array:
            came, stayed = self._weighed(self._powers(n))
            squares = came[..., 0] - 2 * came[..., 1] + came[..., 2] + stayed[..., 2]
            return np.asarray(squares / self._records(n))

        def of_null(n: Array) -> Array:
            came, stayed = (one[..., 0] for one in self._weighed(self._powers(n)))
            return np.asarray(came * stayed / (came + stayed) / self._records(n))

        interval, null = sums.smooth(own), sums.smooth(of_null)
        gain = sums.smooth(lambda n: of_null(n) - own(n))
        share = float(np.clip(null.value, 0.0, 0.25))
        return score("brier", interval.within(0.0, 1.0), null=share, gain=gain)

    def _gap(self, sums: NoisySums) -> ValidationScore | None:
        """Mean risk less the share with the event by the horizon."""

        def apart(n: Array) -> Array:
            came, stayed = (one[..., 0] for one in self._weighed(self._powers(n)))
            mean = self._powers(n)[..., 1, :].sum(-1) / self._records(n)
            return np.asarray(mean - came / (came + stayed))

        return score("calibration_gap", sums.smooth(apart).within(-1.0, 1.0))

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        """The risk that was seen, by a life table of each group, over that which was foretold."""
        seen = np.eye(self.outcomes)
        points = [
            (at, table.part(group).sums(*seen[:, None, :]).smooth(self._died))
            for at, group in fifths(table, self._risk)
        ]
        return curve("observed", [(at, one.within(0.0, 1.0, wide=np.inf)) for at, one in points])

    def _powers(self, n: Array) -> Array:
        """(…, 3, outcomes) of each outcome the records, their risks, and their squares."""
        return n.reshape(*n.shape[:-1], 3, self.outcomes)

    def _records(self, n: Array) -> Array:
        return np.asarray(self._powers(n)[..., 0, :].sum(-1))

    def _died(self, n: Array) -> Array:
        return np.asarray(1.0 - self.survival(n))

    @property
    def _risk(self) -> Array:
        return np.array(self.bins.values)

    def survival(self, n: Array) -> Array:
        """The share without the event at the horizon, by a life table of (…, outcomes)."""
        events, lost, there = self._followed(n)
        return np.asarray(np.prod(1.0 - events / (there - lost / 2), axis=-1))

    def _weighed(self, n: Array) -> tuple[Array, Array]:
        """(…, 3): events by the horizon and records without, each over its chance to be seen.

        Args:
            n: (…, 3, outcomes) as `_powers` has them; the chances are those of all records.
        """
        events, lost, there = self._followed(n[..., 0, :])
        leaving = lost / (there - events / 2)
        stayed = np.cumprod(1.0 - leaving, axis=-1)
        before = np.concatenate([np.ones_like(stayed[..., :1]), stayed[..., :-1]], axis=-1)
        halfway = before * (1.0 - leaving / 2)
        came = (n[..., : len(self.ends)] / halfway[..., None, :]).sum(-1)
        return np.asarray(came), np.asarray(n[..., -1] / stayed[..., -1:])

    def _followed(self, n: Array) -> tuple[Array, Array, Array]:
        """(…, intervals): events, lost, and who was there at the beginning, of (…, outcomes)."""
        many = len(self.ends)
        events, lost = n[..., :many], n[..., many : 2 * many]
        gone = np.cumsum(events + lost, axis=-1) - events - lost
        return events, lost, n.sum(-1)[..., None] - gone

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
