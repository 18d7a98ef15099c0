"""What a validation says, as plain values: scores beside a model that knows nothing, and curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from hubbub.estimation.statistic import plain_values
from hubbub.learning.queries.validation.noisy_table import (
    Array,
    Function,
    NoisyTable,
    ScoreInterval,
)

_TWICE = 0.3  # of the noise of a score, the most that noise in both records of pairs may have
_FEWEST = 128  # groups of bins, whatever the noise
_REACH = 2.0  # standard deviations by which the records beyond a bin stand out from their noise


@dataclass(frozen=True, kw_only=True)
class ValidationScore:
    """One score of a model beside that of one that knows nothing of a record.

    Args:
        name: "auc" for example.
        value, low, high: with a 95 % interval, sampling and noise together.
        null: of the null model; None where the score is not one that it has, as a slope.
        is_better: whether the model is told from the null model, and is better; None: it is not
            told from it; False: it is worse.
    """

    name: str
    value: float
    low: float
    high: float
    null: float | None = None
    is_better: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreCurve:
    """Points with intervals.

    Args:
        name: what is drawn.
        x, y: of each point.
        low, high: 95 % intervals of y.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ValidationScores:
    """All that one table says.

    Args:
        scores: the telling one first.
        calibration: what is foretold against what came.
        decisions: net benefit over thresholds: the model, and everybody treated.
    """

    scores: tuple[ValidationScore, ...] = ()
    calibration: ScoreCurve | None = None
    decisions: tuple[ScoreCurve, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "scores": {one.name: plain_values(asdict(one)) for one in self.scores},
            "calibration": None
            if self.calibration is None
            else plain_values(asdict(self.calibration)),
            "decisions": [plain_values(asdict(decision)) for decision in self.decisions],
        }


def score(
    name: str,
    found: ScoreInterval,
    *,
    null: float | None = None,
    gain: ScoreInterval | None = None,
) -> ValidationScore | None:
    """A score, if its interval says anything.

    Args:
        name: of it.
        found: its value.
        null: of the null model.
        gain: what is above 0 where the model is better than the null model.
    """
    if not found.is_known:
        return None
    better = None
    if gain is not None and gain.is_known:
        better = True if gain.low > 0 else False if gain.high < 0 else None
    return ValidationScore(
        name=name, value=found.value, low=found.low, high=found.high, null=null, is_better=better
    )


def known(*found: ValidationScore | None) -> tuple[ValidationScore, ...]:
    """Those that there are."""
    return tuple(one for one in found if one is not None)


def curve(name: str, points: list[tuple[float, ScoreInterval]]) -> ScoreCurve | None:
    """The points whose intervals say anything; None if there are none."""
    kept = [(x, one) for x, one in points if one.is_known]
    if not kept:
        return None
    return ScoreCurve(
        name=name,
        x=tuple(float(x) for x, _ in kept),
        y=tuple(one.value for _, one in kept),
        low=tuple(one.low for _, one in kept),
        high=tuple(one.high for _, one in kept),
    )


def concordance(
    table: NoisyTable,
    counted: Sequence[Function],
    slopes: Callable[[Array], Sequence[Array]],
    *,
    kinds: int,
    most: int,
) -> ScoreInterval:
    """The share of pairs that are ordered alike, of neighbouring bins together.

    Noise in both records of a pair adds up over bins. So no more bins are told apart than leave it
    small.

    Args:
        table: of fine bins.
        counted: how many pairs of a table are ordered alike, and all of them.
        slopes: the derivatives of both at a table.
        kinds: how many pairs of outcomes are compared.
        most: groups of bins.
    """
    found, bins = None, len(table.counts)
    finest = max(bins // most, 1)  # of bins together
    number = max(bins // _FEWEST, finest)
    while number >= finest:
        grouped = table.together(number)
        both, twice = slopes(grouped.counts), sqrt(kinds) * grouped.pair_noise
        if found is not None and twice > _TWICE * grouped.noise(both[0]):
            break
        found = grouped.quotient([float(one(grouped.counts)) for one in counted], both, twice)
        if number == 1:
            break
        number //= 2
    assert found is not None, "the coarsest is always looked at"  # noqa: S101
    return found


def fifths(table: NoisyTable, values: Array) -> list[tuple[float, slice]]:
    """Neighbouring bins together, and the mean of their values: a fifth of all records in each.

    Which bins are together follows from noisy counts, which are public.
    """
    rows = table.counts.sum(axis=1)
    before, starts = np.concatenate([[0.0], rows.cumsum()]), [0]
    while True:
        ends = np.arange(starts[-1] + 1, len(before))
        noise = table.range_errors(np.array(starts[-1]), ends)
        least = np.maximum(max(before[-1] / 5 * 0.999, 1.0), 4 * noise)
        full = ends[before[ends] - before[starts[-1]] >= least]
        if not len(full) or full[0] == len(rows):
            break
        starts.append(int(full[0]))
    if not len(full):  # what is left is too little, and goes to the group before
        starts.pop()
    found = [slice(a, b) for a, b in pairwise([*starts, len(rows)])]
    means = [(rows[one] * values[one]).sum() / rows[one].sum() for one in found]
    return [
        (float(np.clip(mean, *values[one][[0, -1]])), one)
        for mean, one in zip(means, found, strict=True)
    ]


def within_reach(table: NoisyTable, values: Array) -> Array:
    """Rising values of bins, the same in all from which on noise hides whether there are records.

    Noise of bins that hold nobody counts by what they stand for, so extreme ones stand for less.
    """
    before = np.concatenate([[0.0], table.counts.sum(axis=1).cumsum()])
    first, last, places = np.array(0), np.array(len(values)), np.arange(len(values))
    few_below = before[1:] <= _REACH * table.range_errors(first, places + 1)
    few_above = before[-1] - before[:-1] <= _REACH * table.range_errors(places, last)
    low = max(places[few_below], default=-1) + 1
    high = min(places[few_above], default=len(values)) - 1
    return np.clip(values, values[low], values[high]) if low < high else values
