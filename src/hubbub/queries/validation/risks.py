"""Two classes: AUC, Brier score, calibration and decision curve of binned risks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.queries.validation.bins import Array, Bins
from hubbub.queries.validation.noisy_table import UNKNOWN, NoisyTable, ScoreInterval
from hubbub.queries.validation.validation_scores import (
    ScoreCurve,
    ValidationScore,
    ValidationScores,
    curve,
    fifths,
    known,
    score,
)

_WIDE = 6.0  # an interval of a slope that says nothing: 1 is ideal
_MOST_STEPS = 50  # of Newton's, for the slope
_FLAT, _CLEAR = 1e-9, 3.0  # of the information: none, and how far it must stand above its noise


@dataclass(frozen=True, kw_only=True)
class Risks:
    """The chance of the second class, in bins, by what came.

    Args:
        bins: of the chance.
    """

    bins: Bins

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
        """The table of so many records of a usual model: a quarter has the outcome, AUC .75."""
        chance = np.array(self.bins.values)
        spread = np.exp(-0.5 * ((np.log(chance / (1 - chance)) + 1.25) / 1.0) ** 2)
        weight = spread / (chance * (1 - chance)) * np.sqrt(chance * (1 - chance))
        rows = records * weight / weight.sum()
        return np.column_stack([rows * (1 - chance), rows * chance])

    def _auc(self, table: NoisyTable) -> ValidationScore | None:
        interval = table.ratio(_ranked, _pairs)
        return score("auc", interval.within(0.0, 1.0), null=0.5, gain=interval.less(0.5))

    def _brier(self, table: NoisyTable) -> ValidationScore | None:
        interval = table.ratio(self._squares, _all)
        gain = table.ratio(lambda n: _pairs(n) - self._squares(n) * _all(n), _pairs)
        share = float(np.clip(table.ratio(_second, _all).value, 0.0, 1.0))
        return score("brier", interval.within(0.0, 1.0), null=share * (1 - share), gain=gain)

    def _gap(self, table: NoisyTable) -> ValidationScore | None:
        """Mean chance less the share that had the outcome."""
        values = np.array(self.bins.values)

        def foretold_less_seen(n: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray((n.sum(-1) * values).sum(-1) - _second(n))

        found = table.ratio(foretold_less_seen, _all)
        return score("calibration_gap", found.within(-1.0, 1.0))

    def _slope(self, table: NoisyTable) -> ValidationScore | None:
        """Of a logistic regression of what came on the log-odds of the chance."""
        values = np.array(self.bins.values)
        return score("calibration_slope", _logistic_slope(np.log(values / (1 - values)), table))

    def _squares(self, n: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.array(self.bins.values)
        return np.asarray((n[..., 0] * values**2 + n[..., 1] * (1 - values) ** 2).sum(-1))

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        values = np.array(self.bins.values)
        points = []
        for group in fifths(table):
            rows = table.counts[group].sum(axis=1)
            part = NoisyTable(counts=table.counts[group], sigma=table.sigma)
            x = float(np.clip((rows * values[group]).sum() / rows.sum(), *values[group][[0, -1]]))
            interval = part.ratio(_second, _all)
            points.append((x, interval.within(0.0, 1.0, wide=np.inf)))
        return curve("observed", points)

    def _decisions(self, table: NoisyTable) -> tuple[ScoreCurve | None, ScoreCurve | None]:
        """Net benefit at the bins' edges (Vickers and Elkin 2006)."""
        model, everybody = [], []
        for place, cut in enumerate(self.bins.cuts, 1):
            odds = cut / (1 - cut)

            def gained(n: NDArray[np.float64], at: int = place, w: float = odds) -> Array:
                return np.asarray((n[..., at:, 1] - w * n[..., at:, 0]).sum(-1))

            def of_all(n: NDArray[np.float64], w: float = odds) -> Array:
                return np.asarray((n[..., 1] - w * n[..., 0]).sum(-1))

            model.append((cut, table.ratio(gained, _all)))
            everybody.append((cut, table.ratio(of_all, _all)))
        return curve("the model", model), curve("everybody treated", everybody)


def _all(n: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(n.sum((-1, -2)))


def _second(n: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(n[..., 1].sum(-1))


def _pairs(n: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(n[..., 0].sum(-1) * n[..., 1].sum(-1))


def _ranked(n: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pairs whose second has the higher chance, and half of those with the same."""
    below = np.cumsum(n[..., 0], axis=-1) - n[..., 0] / 2
    return np.asarray((n[..., 1] * below).sum(-1))


def _logistic_slope(x: Array, table: NoisyTable) -> ScoreInterval:
    """The slope that solves the score on noisy counts, with its sandwich error."""
    rows, ones = table.counts.sum(axis=1), table.counts[:, 1]
    design = np.column_stack([np.ones_like(x), x])
    effects = np.array([0.0, 1.0])
    for _ in range(_MOST_STEPS):
        share = 1 / (1 + np.exp(-np.clip(design @ effects, -50, 50)))
        slope = design.T @ (design * (rows * share * (1 - share))[:, None])
        least, direction = (one[..., 0] for one in np.linalg.eigh(slope))
        doubt = table.sigma * np.sqrt(
            2.0 * (((design @ direction) ** 2 * share * (1 - share)) ** 2).sum()
        )
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
