"""What papers read off a survival curve: median, share at a time, restricted mean, differences.

Theory of operation. Between edges hazards are constant, so survival at a time, and when it comes to
one half, follow from the cumulative hazard H at the edges, and so do their intervals from those of
the curve. The area under it to the horizon changes by -(area after an edge) when the hazard before
that edge grows by one: its variance is that linear function of the covariance of H, by sampling and
by noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from hubbub.estimation.intervals import normal_quantile
from hubbub.estimation.statistic import Array, Estimate
from hubbub.estimation.survival_course import SurvivalCourse, from_one


class CurveReadings:
    """Numbers that one curve tells.

    Args:
        course: the curve.
        name: of its group, empty for all.
        confidence: of intervals.
    """

    def __init__(self, course: SurvivalCourse, name: str, confidence: float) -> None:
        self._course, self._name = course, name
        self._z = normal_quantile(confidence)

    def median(self) -> list[Estimate]:
        """The median time, where the curve and its interval's ends come down to one half."""
        middle, low, high = (_crossing(self._edges, line) for line in self._lines)
        if not math.isfinite(middle):
            return []
        return [self._row("median", "", middle, (high - low) / (2 * self._z), low, high)]

    def survival(self, time: float) -> Estimate:
        """The share without the event after a time at which the curve is told."""
        end = len(self._lines[0])
        value, low, high = (
            math.exp(np.interp(time, self._edges[:end], np.log(np.maximum(line, 1e-300))))
            for line in self._lines
        )
        error = (high - low) / (2 * self._z)
        return self._row("survival", f"{time:g}", value, error, low, high)

    def mean(self) -> list[Estimate]:
        """The mean time up to the horizon, where the curve goes so far."""
        if self._course.length < self._course.sets.bins:
            return []
        return [self._mean("restricted mean", self._area, self._error)]

    def mean_less(self, other: CurveReadings) -> list[Estimate]:
        """The same less that of another group, whose records and noise are others."""
        if not (self.mean() and other.mean()):
            return []
        apart, error = self._area - other._area, math.hypot(self._error, other._error)
        from scipy.special import ndtr  # which takes long to import

        difference = self._mean("difference of restricted means", apart, error)
        p_value = float(2.0 * ndtr(-abs(apart) / error))
        level = f"{self._name} against {other._name}"
        return [replace(difference, group="", level=level, p_value=p_value)]

    def _mean(self, quantity: str, value: float, error: float) -> Estimate:
        reach = self._z * error
        level = f"to {self._edges[-1]:g}"
        return self._row(quantity, level, value, error, value - reach, value + reach)

    def _row(
        self, quantity: str, level: str, value: float, error: float, low: float, high: float
    ) -> Estimate:
        return Estimate(
            quantity=quantity,
            column=self._course.sets.time.name,
            level=level,
            group=self._name,
            value=value,
            standard_error=error,
            low=low,
            high=high,
        )

    @property
    def _edges(self) -> tuple[float, ...]:
        return self._course.sets.edges

    @cached_property
    def _lines(self) -> tuple[tuple[float, ...], ...]:
        """The curve, and its lower and upper ends, from 1 at time 0 on."""
        survived = (self._course.survived, *self._course.ends(self._z))
        return tuple(from_one(one) for one in survived)

    @cached_property
    def _parts(self) -> Array:
        """(length,) areas under the curve, bin by bin."""
        survived = np.asarray(self._lines[0])
        hazard = -np.diff(np.log(np.maximum(survived, 1e-300)))
        share = np.where(hazard > 1e-9, -np.expm1(-hazard) / np.maximum(hazard, 1e-300), 1.0)
        return np.asarray(np.diff(self._edges[: len(survived)]) * survived[:-1] * share)

    @property
    def _area(self) -> float:
        return float(self._parts.sum())

    @cached_property
    def _error(self) -> float:
        """Of the area: hazards of a bin bear on half of it, and on all that follow."""
        after = np.cumsum(self._parts[::-1])[::-1]
        gradient = after - self._parts / 2  # by the hazard of each bin
        steps = np.diff(np.append(gradient, 0.0))  # by the cumulative hazard at each edge
        return math.sqrt(max(float(steps @ self._course.covariance @ steps), 0.0))


def _crossing(x: Sequence[float], survived: Sequence[float]) -> float:
    """When a falling curve comes to one half, hazards being constant between x; inf if never."""
    below = np.flatnonzero(np.asarray(survived) <= 0.5)
    if not len(below):
        return math.inf
    hazard = -np.log(np.maximum(survived, 1e-300))
    before, after = below[0] - 1, below[0]
    part = (math.log(2.0) - hazard[before]) / (hazard[after] - hazard[before])
    return float(x[before] + part * (x[after] - x[before]))
