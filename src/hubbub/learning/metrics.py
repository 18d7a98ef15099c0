"""How good predictions are on records that are public, by metrics with their usual names.

Nothing here is noised, so nothing here may leave a silo. This file knows arrays, no models.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from hubbub.core.errors import DataError

_NEWTON = 100  # steps, at most
_FAR = 1e3  # a slope beyond this has no end: the classes are told apart by every record


def auc(scores: NDArray[Any], targets: NDArray[Any]) -> float:
    """The chance that a score of a positive outranks that of a negative, ties a half."""
    scores, positive = np.asarray(scores), np.asarray(targets) > 0.5
    if scores.ndim != 1 or scores.shape != positive.shape or np.isnan(scores).any():
        raise DataError(
            f"expected scores and targets of one shape (n,) without NaN, found {scores.shape} "
            f"and {positive.shape}"
        )
    ups = int(positive.sum())
    downs = len(positive) - ups
    if not ups or not downs:
        raise DataError("expected records of both classes for an AUC, found only one class")
    _, values, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of ties, their mean
    return float((ranks[values[positive]].sum() - ups * (ups + 1) / 2) / (ups * downs))


def accuracy(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """Share of records whose class is found by logits (n,) or (n, classes)."""
    outputs, targets = np.asarray(outputs), np.asarray(targets)
    if len(outputs) != len(targets) or not len(targets):
        raise DataError(
            f"expected as many outputs as targets and at least one, found {len(outputs)} "
            f"and {len(targets)}"
        )
    right = outputs > 0 if outputs.ndim == 1 else outputs.argmax(1) == targets
    return float((right == (targets > 0.5)).mean() if outputs.ndim == 1 else right.mean())


def brier(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    """Mean squared error of the probabilities of two classes, from logits (n,)."""
    return float(np.mean((expit(logits.astype(np.float64)) - targets) ** 2))


def calibration_slope(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    """The slope of a logistic regression of targets on logits: 1 if they are as sure as they may.

    Returns:
        The slope; nan where there is none, as all logits are one or tell the classes apart.
    """
    rows = np.column_stack([np.ones(len(logits)), logits.astype(np.float64)])
    effects = np.zeros(2)
    for _ in range(_NEWTON):
        chances = expit(rows @ effects)
        curvature = rows.T @ (rows * (chances * (1 - chances))[:, None])
        if np.linalg.cond(curvature) > 1e12 or abs(effects[1]) > _FAR:
            return float("nan")
        step = np.linalg.solve(curvature, rows.T @ (targets - chances))
        effects = effects + step
        if np.abs(step).max() < 1e-10 * (1 + np.abs(effects).max()):
            return float(effects[1])
    return float("nan")


def errors(predicted: NDArray[Any], targets: NDArray[Any]) -> dict[str, float]:
    """Root mean squared error and mean absolute error, in the targets' unit."""
    away = predicted - targets
    return {"rmse": float(np.sqrt(np.mean(away**2))), "mae": float(np.mean(np.abs(away)))}


def poisson_deviance(rates: NDArray[Any], targets: NDArray[Any]) -> float:
    """Mean Poisson deviance of rates above 0, for counts."""
    return float(2.0 * np.mean(xlogy(targets, targets / rates) - targets + rates))
