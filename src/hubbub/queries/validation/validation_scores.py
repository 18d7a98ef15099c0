"""What a validation says, as plain values: scores beside a model that knows nothing, and curves."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from hubbub.queries.validation.noisy_table import NoisyTable, ScoreInterval


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
            "scores": {one.name: _plain(asdict(one)) for one in self.scores},
            "calibration": None if self.calibration is None else _plain(asdict(self.calibration)),
            "decisions": [_plain(asdict(decision)) for decision in self.decisions],
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


def fifths(table: NoisyTable) -> list[slice]:
    """Neighbouring bins together: a fifth of all records in each, and clear of the noise.

    Which bins are together follows from noisy counts, which are public.
    """
    rows = table.counts.sum(axis=1)
    outcomes, groups, begin = table.counts.shape[1], [], 0
    for end in range(1, len(rows) + 1):
        noise = table.sigma * math.sqrt((end - begin) * outcomes)
        if rows[begin:end].sum() >= max(rows.sum() / 5 * 0.999, 4 * noise, 1.0):
            groups.append(slice(begin, end))
            begin = end
    if begin < len(rows) and groups:
        groups[-1] = slice(groups[-1].start, len(rows))
    return groups


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
