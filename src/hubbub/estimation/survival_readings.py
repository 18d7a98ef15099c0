"""What papers read off a survival curve: median, share at a time, restricted mean, differences.

Theory of operation. Survival at an edge of the grid follows from the cumulative hazard H there.
When it comes to one half is read off between two edges, where H is interpolated as the hazard
changes from bin to bin, and in doubt by as much as these changes change. An end of its interval in
a bin in which a quarter of all had the event moves on to its edge. Where times lie on steps, the
curve falls at values alone, and a median is one of them.

The area under the curve to the horizon changes by -(area after an edge) when the hazard before that
edge grows by one: its variance is that linear function of the covariance of H, by sampling and by
noise, and the same doubt is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from hubbub.estimation.intervals import normal_quantile
from hubbub.estimation.risk_sets import RiskSets
from hubbub.estimation.statistic import Array, Estimate
from hubbub.estimation.survival_course import SurvivalCourse, from_one, interpolated, roughness

_CROWDED = 0.25  # share of all with the event in one bin, inside which nothing is taken for granted
_PLACES = 128  # of a bin, between which an area is summed


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
        middle, low, high = (
            self._crossing(line, reach * self._z)
            for line, reach in zip(self._lines, (0, 1, -1), strict=True)
        )
        if not math.isfinite(middle):
            return []
        first, last = self._edge(low, -1), self._edge(high, 1)
        error = (last - first) / (2 * self._z)
        ends = map(self._time, (middle, first, last))
        value, low, high = ends
        return [self._row("median", "", value, error, low, high)]

    def _crossing(self, line: Sequence[float], reach: float) -> float:
        """When a line comes to one half, on the clock, moved by its doubt; infinite if never."""
        clock, hazard = self._inside(line, reach)
        return float(np.interp(math.log(2.0), hazard, clock, right=math.inf))

    def _inside(self, line: Sequence[float], reach: float = 0.0) -> tuple[Array, Array]:
        """A line's places on the clock, and its cumulative hazard, which rises, at each."""
        hazard, rough = self._hazards(line)
        edges = self._sets.ticks[: len(line)]
        inside = interpolated(edges, hazard)
        part = np.linspace(0.0, 1.0, inside.shape[1])
        # Of a line h s u (1 - u) / 2; a jump inside the bin bends half as much again.
        doubt = 0.75 * (hazard * rough)[:, None] * part * (1.0 - part)
        moved = np.clip(inside + reach * doubt, inside[:, :1], inside[:, -1:])
        places = np.linspace(edges[:-1], edges[1:], inside.shape[1], axis=1)
        risen = np.append(0.0, np.maximum.accumulate(moved[:, 1:].ravel()))
        return np.append(edges[0], places[:, 1:]), risen

    def _hazards(self, line: Sequence[float]) -> tuple[Array, Array]:
        """What hazard a line has in each bin, and the doubt of how it changes there."""
        hazard = np.diff(-np.log(np.maximum(line, 1e-300)))
        return hazard, roughness(self._sets.ticks[: len(line)], hazard)

    def _edge(self, clock: float, side: int) -> float:
        """A place on the clock, or the edge beyond it of a bin with a quarter of all events."""
        drops = -np.diff(self._lines[0])
        place = min(int(np.searchsorted(self._sets.ticks[1:], clock)), len(drops))
        if not math.isfinite(clock) or place == len(drops) or drops[place] < _CROWDED:
            return clock
        first = 1.0 if self._sets.time.step else 0.0  # of the values in the bin
        return float(self._sets.ticks[place + 1] if side > 0 else self._sets.ticks[place] + first)

    def _time(self, clock: float) -> float:
        """The first time at which so much of the clock has passed, which is a value on a step."""
        on_steps = self._sets.time.step and math.isfinite(clock)
        return self._sets.time.at_step(math.ceil(clock - 1e-9) - 1) if on_steps else clock

    def survival(self, time: float) -> Estimate:
        """The share without the event after a time at which the curve is told, one of its edges."""
        clock = self._sets.clock(np.array(time))
        value, low, high = (
            float(np.interp(clock, self._sets.ticks[: len(line)], line)) for line in self._lines
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
        level = f"to {self._sets.edges[-1]:g}"
        return self._row(quantity, level, value, error, value - reach, value + reach)

    def _row(
        self, quantity: str, level: str, value: float, error: float, low: float, high: float
    ) -> Estimate:
        return Estimate(
            quantity=quantity,
            column=self._sets.time.name,
            level=level,
            group=self._name,
            value=value,
            standard_error=error,
            low=low,
            high=high,
        )

    @property
    def _sets(self) -> RiskSets:
        return self._course.sets

    @cached_property
    def _lines(self) -> tuple[tuple[float, ...], ...]:
        """The curve, and its lower and upper ends, from 1 at time 0 on."""
        survived = (self._course.survived, *self._course.ends(self._z))
        return tuple(from_one(one) for one in survived)

    @cached_property
    def _parts(self) -> Array:
        """(length,) areas under the curve, bin by bin; on steps it falls at their values."""
        clock, hazard = self._inside(self._lines[0])
        grid = np.asarray(self._sets.grid[: len(self._lines[0])])
        if not self._sets.time.step:
            places = np.linspace(grid[:-1], grid[1:], _PLACES + 1, axis=1)
            heights = np.exp(-np.interp(places, clock, hazard))
            return np.asarray(np.trapezoid(heights, places, axis=1))
        areas = []
        for k, many in enumerate(np.minimum(self._sets.values[: len(grid) - 1], _PLACES)):
            first, last = self._sets.ticks[k : k + 2]
            values = first + (last - first) * np.arange(many) / many
            survived = np.exp(-np.interp(values, clock, hazard))
            areas.append((grid[k + 1] - grid[k]) * survived.mean())
        return np.array(areas)

    @property
    def _rest(self) -> float:
        """The area after the last edge, where the horizon lies between two steps."""
        return (self._sets.edges[-1] - self._sets.grid[-1]) * self._lines[0][-1]

    @property
    def _area(self) -> float:
        return float(self._parts.sum()) + self._rest

    @cached_property
    def _error(self) -> float:
        """Of the area: hazards of a bin bear on half of it, or less, and on all that follow."""
        after = np.cumsum(self._parts[::-1])[::-1] + self._rest
        half = (1.0 + 1.0 / self._sets.values[: len(after)]) / 2
        gradient = after - self._parts * half  # by the hazard of each bin
        steps = np.diff(np.append(gradient, 0.0))  # by the cumulative hazard at each edge
        hazard, rough = self._hazards(self._lines[0])
        doubt = float(np.sum((self._parts * hazard * rough / 12) ** 2))
        return math.sqrt(max(float(steps @ self._course.covariance @ steps), 0.0) + doubt)
