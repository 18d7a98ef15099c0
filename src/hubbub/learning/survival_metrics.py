"""How well survival is foretold: concordance by Harrell and by Uno, and the Brier score over time.

Censoring is weighed by its inverse chance, from the Kaplan-Meier curve of the censoring among the
records themselves: those are public, and nothing else is (the Brier score of Graf et al. 1999, the
concordance of Uno et al. 2011).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


def scored(hazards: Array, grid: Sequence[float], times: Array, events: Flags) -> dict[str, float]:
    """All that are defined, by name.

    Args:
        hazards: (n, times) cumulated in each interval, -log of the chance to pass it.
        grid: the ends of the intervals.
        times: (n,), of the event or of the censoring.
        events: (n,), whether the time ends with the event.

    Returns:
        "c_index" (Harrell), "c_index_uno" (up to the last time of the grid) and
        "integrated_brier" (from the first to the last time of the grid that the records reach).
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
