"""A model's scores on public records beside those of a model that knows nothing of a record.

The null model guesses, says the commoner class, or gives everybody the mean of the test records.
Whether a model is better is judged on the difference record by record, which is known better than
either score; a rank's interval is where it would not be a surprise. Public records are taken to be
drawn one by one from those that the model is for. Nothing is noised, so nothing may be private.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, ndtri, xlogy

from hubbub.learning import metrics, survival_metrics
from hubbub.learning.target_types import Amount, Classes, Count, TargetType, TimeToEvent

_Z = float(ndtri(0.975))
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric of a model, and what a model that knows nothing would have.

    Args:
        value: of the metric.
        low, high: a 95 % interval of what it would be on ever more such records.
        null: that of the null model.
        records: that it was measured on.
        is_better: whether the model is told from the null model, and is better; None: it is not
            told from it; False: it is worse.
    """

    value: float
    low: float
    high: float
    null: float
    records: int
    is_better: bool | None

    def to_dict(self) -> dict[str, Any]:
        """The score as plain values."""
        return dict(vars(self))


def beside_null(
    target_type: TargetType, outputs: NDArray[Any], targets: NDArray[Any]
) -> dict[str, Score]:
    """Scores by the usual names of metrics, the telling one first; those that are defined.

    Args:
        target_type: what the model is trained for.
        outputs: of the model, as `TargetType.scored` takes them.
        targets: of the public test records.

    >>> classes = Classes()
    >>> rare = np.array([1.0] * 2 + [0.0] * 98)
    >>> found = beside_null(classes, np.full(100, -9.0) + np.linspace(0, 1e-3, 100), rare)
    >>> found["accuracy"].value, found["accuracy"].null, found["accuracy"].is_better
    (0.98, 0.98, None)
    """
    if not np.isfinite(outputs).all() or len(targets) < 2:
        return {}
    scores: dict[str, Score] = {}
    if isinstance(target_type, Classes):
        scores = _classes(outputs, targets)
    elif isinstance(target_type, Amount | Count):
        predicted, known = target_type.compared(torch.from_numpy(outputs), targets)
        known = known.astype(np.float64)
        least = target_type.low if isinstance(target_type, Amount) and target_type.is_log else 0.0
        scores = _logarithms(predicted, np.maximum(known, least)) if least else {}
        counts, longest = False, 0.0
        if isinstance(target_type, Count):
            counts, longest = target_type.unit == 1.0, target_type.exposure_high
        null = np.full(len(known), known.mean())
        if longest:
            exposures = np.clip(targets[:, 1], 0.0, longest)
            null = known.sum() / exposures.sum() * exposures
        scores |= _numbers(predicted, known, null, counts=counts)
    elif isinstance(target_type, TimeToEvent):
        scores = _times(target_type, outputs, targets)
    return {name: one for name, one in scores.items() if isfinite(one.value)}


def _classes(outputs: NDArray[Any], targets: NDArray[Any]) -> dict[str, Score]:
    """AUC and Brier of two classes that both occur, and accuracy."""
    scores: dict[str, Score] = {}
    labels = (targets > 0.5) if outputs.ndim == 1 else targets
    kinds, counts = np.unique(labels, return_counts=True)
    if outputs.ndim == 1 and len(kinds) == 2:
        scores["auc"] = _rank(metrics.auc(outputs, targets), int(counts[1]), int(counts[0]))
        errors = (expit(outputs.astype(np.float64)) - labels) ** 2
        scores["brier"] = _mean(errors, (labels.mean() - labels) ** 2)
    said = outputs > 0 if outputs.ndim == 1 else outputs.argmax(1)
    commoner = kinds[np.argmax(counts)]
    wrong, null = (said != labels).astype(float), (labels != commoner).astype(float)
    apart = _mean(wrong, null)
    low, high = _wilson(1 - apart.value, len(labels))
    scores["accuracy"] = Score(
        value=1 - apart.value,
        low=low,
        high=high,
        null=1 - apart.null,
        records=len(labels),
        is_better=apart.is_better,
    )
    return scores


def _numbers(predicted: Array, known: Array, null: Array, *, counts: bool) -> dict[str, Score]:
    """Errors beside those of everybody's mean, or rate; of counts, their deviance first."""
    scores: dict[str, Score] = {}
    if counts and known.mean() > 0:
        own, others = (_deviances(rate, known) for rate in (predicted, null))
        scores["poisson_deviance"] = _mean(own, others)
    squares = _mean((predicted - known) ** 2, (null - known) ** 2)
    scores["rmse"] = _of(squares, lambda value: sqrt(max(value, 0.0)))
    middle = np.median(known)
    scores["mae"] = _mean(np.abs(predicted - known), np.abs(middle - known))
    return scores


def _logarithms(predicted: Array, known: Array) -> dict[str, Score]:
    """Errors of logarithms beside those of their mean."""
    own, logs = np.log(predicted), np.log(known)
    squares = _mean((own - logs) ** 2, (logs.mean() - logs) ** 2)
    return {"rmsle": _of(squares, lambda value: sqrt(max(value, 0.0)))}


def _deviances(rates: Array, known: Array) -> Array:
    return np.asarray(2.0 * (xlogy(known, known / rates) - known + rates))


def _times(
    target_type: TimeToEvent, outputs: NDArray[Any], targets: NDArray[Any]
) -> dict[str, Score]:
    """Harrell's concordance; of its pairs about as many are independent as records have events."""
    times, events = targets[:, 0], targets[:, 1] > 0.5
    value = target_type.scored(outputs, targets).get("c_index", float("nan"))
    ups = int(events.sum())
    if not ups or not isfinite(survival_metrics.harrell(times, times, events)):
        return {}
    return {"c_index": _rank(value, ups, max(1, len(times) - ups // 2))}


def _rank(value: float, ups: int, downs: int) -> Score:
    """A share of pairs that are ranked rightly, with the values at which it were no surprise.

    Hanley and McNeil (1982), equation 1, inverted: the error is that at the end of the interval,
    so that a perfect score of three records is no certainty.
    """
    low = _end(value, -1.0, ups, downs)
    high = _end(value, 1.0, ups, downs)
    better = True if low > 0.5 else False if high < 0.5 else None
    return Score(value=value, low=low, high=high, null=0.5, records=ups + downs, is_better=better)


def _rank_error(rank: float, ups: int, downs: int) -> float:
    """The standard error of an AUC."""
    one, two = rank / (2 - rank), 2 * rank**2 / (1 + rank)
    parts = rank * (1 - rank), (ups - 1) * (one - rank**2), (downs - 1) * (two - rank**2)
    return sqrt(max(0.0, sum(parts)) / (ups * downs))


def _end(value: float, side: float, ups: int, downs: int) -> float:
    """The farthest rank on one side from which the value is 1.96 standard errors away at most."""
    near, far = value, 0.5 + side / 2
    for _ in range(50):
        middle = (near + far) / 2
        inside = abs(middle - value) <= _Z * _rank_error(middle, ups, downs)
        near, far = (middle, far) if inside else (near, middle)
    return near


def _mean(own: Array, null: Array) -> Score:
    """A mean of errors, whose smaller is better, beside another's on the same records."""
    count, value = len(own), float(own.mean())
    width = _Z * float(own.std(ddof=1)) / sqrt(count)
    gained = null - own
    gain, doubt = float(gained.mean()), _Z * float(gained.std(ddof=1)) / sqrt(count)
    better = True if gain > doubt else False if gain < -doubt else None
    return Score(
        value=value,
        low=max(0.0, value - width),
        high=value + width,
        null=float(null.mean()),
        records=count,
        is_better=better,
    )


def _of(score: Score, function: Callable[[float], float]) -> Score:
    """The same in another unit, which rises with it."""
    value, low, high, null = map(function, (score.value, score.low, score.high, score.null))
    return Score(
        value=value, low=low, high=high, null=null, records=score.records, is_better=score.is_better
    )


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    width = _Z * sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return max(0.0, middle - width), min(1.0, middle + width)
