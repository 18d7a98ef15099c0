"""Two classes: AUC, Brier score, calibration and decision curve of risks in fine bins.

Where the chances of a model lie nobody knows before it is asked. So the bins are many and narrow
everywhere, which their code makes cheap: what is summed up over many of them has little noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.prefix_coding import PrefixCode
from hubbub.learning.queries.validation.bins import Array, Bins, fine_code
from hubbub.learning.queries.validation.noisy_table import (
    UNKNOWN,
    Function,
    NoisyTable,
    ScoreInterval,
)
from hubbub.learning.queries.validation.validation_scores import (
    ScoreCurve,
    ValidationScore,
    ValidationScores,
    concordance,
    curve,
    fifths,
    known,
    score,
    within_reach,
)

_THRESHOLDS, _APART = (0.002, 0.95), 12  # from where to where, and every so many edges
RATE = 0.25  # of the second class, where nobody says
_USUAL = 0.6745  # the normal law's quantile at a usual AUC, .75
_FIRST, _SECOND, _BOTH = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.ones(2)
_WIDE = 6.0  # an interval of a slope that says nothing: 1 is ideal
_MOST_STEPS = 50  # of Newton's, for the slope
_FLAT, _CLEAR = 1e-9, 3.0  # of the information: none, and how far it must stand above its noise


@dataclass(frozen=True, kw_only=True)
class Risks:
    """The chance of the second class, in fine bins, by what came.

    Args:
        bins: of the chance.
        rate: share of the records that has the second class, as far as anybody knows.
    """

    bins: Bins
    rate: float = RATE

    @property
    def code(self) -> PrefixCode:
        """Running totals of fine bins have little noise, wherever the chances lie."""
        return fine_code(len(self.bins))

    @property
    def outcomes(self) -> int:
        """The first class, and the second."""
        return 2

    @property
    def predictions(self) -> int:
        """Bins of the chance."""
        return len(self.bins)

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the bin and the class of each record."""
        chance = predicted if predicted.ndim == 1 else predicted[:, -1]
        return self.bins.places(chance), (targets > 0.5).astype(np.intp)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """All that there is to say."""
        return ValidationScores(
            scores=known(
                self._auc(table), self._brier(table), self._gap(table), self._slope(table)
            ),
            calibration=self._calibration(table),
            decisions=tuple(filter(None, self._decisions(table))),
        )

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: calibrated, with an AUC of .75."""
        odds = self.bins.log_odds
        # Normal log-odds of both classes are calibrated where their means are a variance apart, and
        # the lower one is half of it below that of the rate.
        spread = sqrt(2.0) * _USUAL
        lower = log(self.rate / (1 - self.rate)) - spread**2 / 2
        found = []
        for share, middle in ((1 - self.rate, lower), (self.rate, lower + spread**2)):
            rows = np.gradient(odds) * np.exp(-0.5 * ((odds - middle) / spread) ** 2)
            found.append(records * share * rows / rows.sum())
        return np.column_stack(found)

    def _auc(self, table: NoisyTable) -> ValidationScore | None:
        interval = concordance(table, (_ranked, _pairs), _slopes, kinds=1, most=len(self.bins))
        return score("auc", interval.within(0.0, 1.0), null=0.5, gain=interval.less(0.5))

    def _brier(self, table: NoisyTable) -> ValidationScore | None:
        chance = np.array(self.bins.values)
        squares = np.column_stack([chance**2, (1 - chance) ** 2])
        sums = table.sums(squares, _FIRST, _SECOND)

        def records(n: Array) -> Array:
            return np.asarray(n[..., 1] + n[..., 2])

        def pairs(n: Array) -> Array:
            return np.asarray(n[..., 1] * n[..., 2])

        interval = sums.ratio(_place(0), records)
        gain = sums.ratio(lambda n: pairs(n) - n[..., 0] * records(n), pairs)
        share = float(np.clip(sums.ratio(_place(2), records).value, 0.0, 1.0))
        return score("brier", interval.within(0.0, 1.0), null=share * (1 - share), gain=gain)

    def _gap(self, table: NoisyTable) -> ValidationScore | None:
        """Mean chance less the share that had the outcome."""
        found = table.sums(np.array(self.bins.values)[:, None] - _SECOND, _BOTH).ratio(
            _place(0), _place(1)
        )
        return score("calibration_gap", found.within(-1.0, 1.0))

    def _slope(self, table: NoisyTable) -> ValidationScore | None:
        """Of a logistic regression of what came on the log-odds of the chance."""
        odds = within_reach(table, self.bins.log_odds)
        return score("calibration_slope", _logistic_slope(odds, table))

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        points = [
            (at, table.part(group).sums(_SECOND, _BOTH).ratio(_place(0), _place(1)))
            for at, group in fifths(table, np.array(self.bins.values))
        ]
        return curve("observed", [(at, one.within(0.0, 1.0, wide=np.inf)) for at, one in points])

    def _decisions(self, table: NoisyTable) -> tuple[ScoreCurve | None, ScoreCurve | None]:
        """Net benefit at edges of bins (Vickers and Elkin 2006)."""
        cuts = np.array(self.bins.cuts)
        places = np.flatnonzero((cuts > _THRESHOLDS[0]) & (cuts < _THRESHOLDS[1]))[::_APART] + 1
        cuts = cuts[places - 1]
        gains = np.stack([-cuts / (1 - cuts), np.ones_like(cuts)], axis=-1)[:, None, :]
        above = np.arange(len(self.bins)) >= places[:, None]
        sums = table.sums(_BOTH, *(gains * above[..., None]), *gains)

        def drawn(name: str, first: int) -> ScoreCurve | None:
            benefits = [sums.ratio(_place(first + k), _place(0)) for k in range(len(cuts))]
            return curve(name, list(zip(cuts.tolist(), benefits, strict=True)))

        return drawn("the model", 1), drawn("everybody treated", 1 + len(cuts))


def _place(number: int) -> Function:
    """One of a few sums."""
    return lambda n: n[..., number]


def _pairs(n: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(n[..., 0].sum(-1) * n[..., 1].sum(-1))


def _ranked(n: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pairs whose second has the higher chance, and half of those with the same."""
    below = np.cumsum(n[..., 0], axis=-1) - n[..., 0] / 2
    return np.asarray((n[..., 1] * below).sum(-1))


def _slopes(n: Array) -> tuple[Array, Array]:
    """The derivatives of both."""
    first, second = n.T
    above = second.sum() - second.cumsum() + second / 2
    below = first.cumsum() - first / 2
    every = np.broadcast_to([second.sum(), first.sum()], n.shape)
    return np.column_stack([above, below]), every


def _logistic_slope(x: Array, table: NoisyTable) -> ScoreInterval:
    """The slope that solves the score on noisy counts, with its sandwich error."""
    rows, ones = table.counts.sum(axis=1), table.counts[:, 1]
    design = np.column_stack([np.ones_like(x), x])
    effects = np.array([0.0, 1.0])
    for _ in range(_MOST_STEPS):
        share = 1 / (1 + np.exp(-np.clip(design @ effects, -50, 50)))
        slope = design.T @ (design * (rows * share * (1 - share))[:, None])
        least, direction = (one[..., 0] for one in np.linalg.eigh(slope))
        doubt = table.noise(_BOTH * ((design @ direction) ** 2 * share * (1 - share))[:, None])
        if least <= max(_CLEAR * doubt, _FLAT * max(rows.sum(), 1.0)):
            return UNKNOWN
        step = np.linalg.solve(slope, design.T @ (ones - rows * share))
        effects = effects + np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-12:
            break
    else:
        return UNKNOWN
    # d effects / d count = slope^-1 w (outcome - share)
    each = np.linalg.solve(slope, design.T)[1]
    interval = table.linear(float(effects[1]), np.column_stack([-each * share, each * (1 - share)]))
    return interval if interval.high - interval.low < _WIDE else UNKNOWN
