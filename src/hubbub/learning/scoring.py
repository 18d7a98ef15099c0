"""Losses of targets that are no classes: one value per record, from that record's row alone.

Public bounds and times are constants of the functions. A target beyond them counts as the bound, so
no target makes a loss of another shape. What a record may add is bounded where its gradient is
clipped (docs/privacy.md P14), not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from hubbub.core.errors import DataError

_FAINT = -15.0  # log-odds below which hazard and odds are one in float32
_LEAST_PART = 1e-9  # of the longest exposure; a shorter one has the same logarithm
_LEAST_POWER, _MOST_POWER = 0.2, 4.0  # of the time, as which a cumulated hazard may grow
_REACH = 0.2  # of Huber's square, in units of half the range between the bounds: a tenth of it


def scaled(targets: torch.Tensor, low: float, high: float, *, is_log: bool) -> torch.Tensor:
    """Amounts clipped to their bounds, which become -1 and 1, on a linear or logarithmic scale."""
    clipped = targets.clamp(low, high)
    if is_log:
        clipped, low, high = clipped.log(), log(low), log(high)
    return (2.0 * clipped - (low + high)) / (high - low)


def amount_errors(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    low: float,
    high: float,
    is_log: bool = False,
    start: float = 0.0,
    is_huber: bool = False,
) -> torch.Tensor:
    """Squared error of outputs (n,), counted from a public start, in units of half the range.

    Huber's is squared near the target, and linear beyond a tenth of the range.
    """
    known = scaled(targets, low, high, is_log=is_log).to(outputs.dtype)
    if is_huber:
        return functional.huber_loss(outputs + start, known, reduction="none", delta=_REACH)
    return (outputs + start - known) ** 2


def poisson(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    high: float,
    unit: float = 1.0,
    exposure_high: float = 0.0,
    start: float = 0.0,
) -> torch.Tensor:
    """Half the Poisson deviance of means exp(outputs + start): 0 for the target itself.

    Its slope, mean less target, is 0 on average where means are right, whatever the law of targets:
    so amounts may be learned by it as counts are (Gourieroux, Monfort and Trognon 1984). With
    exposures targets are (n, 2), and means are those of the longest exposure.
    """
    logs, known = outputs + start, targets
    if exposure_high:
        part = (targets[..., 1].clamp(0.0, exposure_high) / exposure_high).clamp(min=_LEAST_PART)
        logs, known = logs + part.log().to(outputs.dtype), targets[..., 0]
    counts = (known.clamp(0.0, high) / unit).to(outputs.dtype)
    return torch.xlogy(counts, counts) - counts - counts * logs + logs.exp()


def log_odds(outputs: torch.Tensor, times: int) -> torch.Tensor:
    """Of the hazards (n, times); outputs of 0 mean that half have the event by the last time."""
    half = 1.0 - 0.5 ** (1.0 / times)
    return outputs + log(half / (1.0 - half))


def followed(
    targets: torch.Tensor, grid: Sequence[float], step: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of times and events (n, 2), how much of each interval a record was seen, and how it ended.

    An interval ends at its time of the grid and holds it. What comes after the grid is not seen.
    With a step, times are the nearest multiples of it, and an interval ends at the last multiple
    that it holds: where events lie on visits, nothing happens between the last one and the end.

    Returns:
        The part of each interval that the record was without the event and under observation, in
        [0, 1]; 1 where it had the event inside an interval, else 0; 1 where it had the event at an
        interval's end. All (n, times), in the type of the targets.
    """
    time, event = targets[..., :1], targets[..., 1:] > 0.5
    if step:
        time, grid = (time / step).round(), [floor(end / step + 1e-6) for end in grid]
    ends = torch.tensor(grid, dtype=targets.dtype, device=targets.device)
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    seen = ((time - starts) / (ends - starts)).clamp(0.0, 1.0)
    at_end = event & (time == ends)
    inside = event & (time < ends) & ((time > starts) | (starts <= 0.0))
    return torch.where(at_end, 0.0, seen), inside.to(seen.dtype), at_end.to(seen.dtype)


def hazards(
    outputs: torch.Tensor, targets: torch.Tensor, *, grid: tuple[float, ...], step: float = 0.0
) -> torch.Tensor:
    """Minus the log-likelihood of hazards on a grid, summed over a record's own intervals.

    With H_j = -log(1 - h_j), the hazard cumulated in interval j, a record that was followed through
    the part u of that hazard (`_part_of_hazard`) without the event adds u H_j, and one that had the
    event there u H_j - log H_j: whoever is lost counts for as long as he was seen. At an interval's
    very end, where the events of all of it are noted if it is one visit long, the event adds
    -log h_j, as in discrete time; where times are finer, so few lie there that it is the end of a
    trapezoidal rule. The slope in the log-odds o_j lies in [-1, 1], as dH/do = h and h <= H.
    """
    odds = log_odds(outputs, len(grid))
    seen, inside, at_end = followed(targets, grid, step)
    # log H is o where H is nothing but e^o, and has the slope 1 there.
    clear = odds.clamp(min=_FAINT)
    log_hazard = functional.softplus(clear).log() + (odds - clear)
    hazard = functional.softplus(odds)
    each = hazard * _part_of_hazard(hazard, seen, grid) - log_hazard * inside
    return (each + functional.softplus(-odds) * at_end).sum(-1)


def _part_of_hazard(
    hazard: torch.Tensor, seen: torch.Tensor, grid: Sequence[float]
) -> torch.Tensor:
    """The part of an interval's hazard that lies in the part of the interval that was seen.

    Were it spread evenly, early losses would make a hazard that falls inside an interval too high
    for all of it. So it is spread as a power of the time: in the first interval that by which the
    cumulated hazard grows up to the second, in another that on which the hazards beside it lie. It
    has no slope of its own, so a record's gradient is bounded as before.
    """
    if len(grid) == 1:
        return seen
    ends = torch.tensor(grid, dtype=hazard.dtype, device=hazard.device)
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    middles = ((starts + ends) / 2).log()
    known = hazard.detach().clamp(min=torch.finfo(hazard.dtype).tiny)
    rates = known.log() - (ends - starts).log()
    outer = torch.cat([rates[..., 2:], rates[..., -1:]], -1) - rates[..., :-1]
    powers = 1 + outer / torch.cat([middles[2:] - middles[:-2], middles[-1:] - middles[-2:-1]])
    first = (known[..., :2].sum(-1, keepdim=True) / known[..., :1]).log() / (
        ends[1] / ends[0]
    ).log()
    powers = torch.cat([first, powers], -1).clamp(_LEAST_POWER, _MOST_POWER)
    before = torch.expm1(powers * (starts / ends).log())
    reached = torch.expm1(powers * ((starts + seen.to(ends.dtype) * (ends - starts)) / ends).log())
    return torch.where(seen < 1.0, (before - reached) / before, 1.0).to(seen.dtype)


def hazard_errors(
    outputs: torch.Tensor, targets: torch.Tensor, *, grid: tuple[float, ...], step: float = 0.0
) -> torch.Tensor:
    """Squared error of the hazards, in [0, 1]: a record's mean over its own intervals.

    An interval in which it was lost counts as much as was seen of it.
    """
    probabilities = torch.sigmoid(log_odds(outputs, len(grid)))
    seen, inside, at_end = followed(targets, grid, step)
    events = inside + at_end
    without = seen * (1.0 - events)
    errors = probabilities**2 * without + (1.0 - probabilities) ** 2 * events
    return errors.sum(-1) / (without + events).sum(-1).clamp(min=1)


# Of these it is known that a record's value depends on its own row alone, and on no parameter.
ROW_LOSSES = (amount_errors, poisson, hazards)


# How good predictions are on records that are public, by metrics with their usual names.
#
# Nothing here is noised, so nothing here may leave a silo.

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
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


def squared_errors(logits: NDArray[Any], targets: NDArray[Any]) -> Array:
    """Of the probabilities of two classes, from logits (n,): their mean is the Brier score."""
    from scipy.special import expit  # which takes long to import

    return np.asarray((expit(logits.astype(np.float64)) - targets) ** 2)


def calibration_slope(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    """The slope of a logistic regression of targets on logits: 1 if they are as sure as they may.

    nan where there is none, as all logits are one or tell the classes apart.
    """
    from scipy.special import expit

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


def deviances(rates: NDArray[Any], targets: NDArray[Any]) -> Array:
    """The Poisson deviance of each record, (n,), of rates above 0, for counts."""
    from scipy.special import xlogy

    return np.asarray(2.0 * (xlogy(targets, targets / rates) - targets + rates))


# How well survival is foretold: concordance by Harrell and by Uno, and the Brier score over time.
#
# Censoring is weighed by its inverse chance, from the Kaplan-Meier curve of the censoring among
# the records themselves: those are public, and nothing else is (the Brier score of Graf et al.
# 1999, the concordance of Uno et al. 2011).


def survival_scores(
    hazards: Array, grid: Sequence[float], times: Array, events: Flags
) -> dict[str, float]:
    """All that are defined: "c_index" (Harrell), "c_index_uno" and "integrated_brier".

    Uno's is up to the last time of the grid, and the Brier score from the first to the last time
    of it that the records reach. `hazards` (n, times) are -log of the chance to pass an interval.
    """
    if not np.isfinite(hazards).all():
        return {}
    risk = hazards.sum(1)
    by_name = {
        "c_index": harrell(risk, times, events),
        "c_index_uno": uno(risk, times, events, tau=grid[-1]),
    }
    within = [k for k, end in enumerate(grid) if times.min() <= end < times.max()]
    if len(within) > 1:
        survival = np.exp(-hazards.cumsum(1))[:, within]
        at = np.array(grid)[within]
        scores = brier_scores(survival, at, times, events)
        areas = np.diff(at) * (scores[1:] + scores[:-1]) / 2
        by_name["integrated_brier"] = float(areas.sum() / (at[-1] - at[0]))
    return {name: value for name, value in by_name.items() if np.isfinite(value)}


def harrell(risk: Array, times: Array, events: Flags) -> float:
    """The chance that of two records the one with the higher risk has the event first.

    Pairs count if the earlier time ends with the event; at the same time, if one of them does.
    """
    return _concordance(risk, times, events, np.ones(len(times)))


def uno(risk: Array, times: Array, events: Flags, *, tau: float) -> float:
    """The same with pairs weighed by the squared inverse chance not to be censored before."""
    free = uncensored(times, events, times)
    counts = events & (times < tau) & (free > 0)
    weights = np.divide(1.0, free**2, out=np.zeros(len(times)), where=counts)
    return _concordance(risk, times, events, weights)


def _concordance(risk: Array, times: Array, events: Flags, weights: Array) -> float:
    """Ties of risk count one half; nan if no pair counts."""
    right = total = 0.0
    for k in np.flatnonzero(events & (weights > 0)):
        later = (times > times[k]) | ((times == times[k]) & ~events)
        lower = (risk[later] < risk[k]).sum() + 0.5 * (risk[later] == risk[k]).sum()
        right += weights[k] * lower
        total += weights[k] * later.sum()
    return float(right / total) if total else float("nan")


def brier_scores(survival: Array, at: Array, times: Array, events: Flags) -> Array:
    """At each time the squared error of the chance to be without the event, weighed."""
    own, later = uncensored(times, events, times), uncensored(times, events, at)
    scores = np.empty(len(at))
    for k, end in enumerate(at):
        died, there = events & (times <= end), times > end
        errors = np.divide(survival[:, k] ** 2, own, out=np.zeros(len(times)), where=died)
        errors += (1 - survival[:, k]) ** 2 * there / later[k]
        scores[k] = errors.mean()
    return scores


def uncensored(times: Array, events: Flags, at: Array) -> Array:
    """Kaplan-Meier's chance not to be censored up to and at each time; events come first."""
    points, gone = np.unique(times[~events], return_counts=True)
    later = len(times) - np.searchsorted(np.sort(times), points, side="right")
    curve = np.concatenate(([1.0], np.cumprod(1.0 - gone / (later + gone))))
    return curve[np.searchsorted(points, at, side="right")]
