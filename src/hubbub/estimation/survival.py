"""Survival: what papers read off a curve, comparisons of curves, and the statistic.

The curve itself, and what its noise does to it, is in `survival_course.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import intervals, statistic_keys
from hubbub.estimation.regression import Patterns
from hubbub.estimation.risk_sets import OnRiskSets, RiskSets
from hubbub.estimation.stacking import Margins
from hubbub.estimation.statistic import Answer, Estimate, Expectation, NoisyTest, group_names
from hubbub.estimation.statistic_keys import StatisticKeys
from hubbub.estimation.survival_course import (
    SurvivalCourse,
    from_one,
    interpolated,
    roughness,
)

# What papers read off a survival curve: median, share at a time, restricted mean, differences.
#
# Theory of operation. Survival at an edge of the grid follows from the cumulative hazard H there.
# When it comes to one half is read off between two edges, where H is interpolated as the hazard
# changes from bin to bin, and in doubt by as much as these changes change. An end of its interval
# in a bin in which a quarter of all had the event moves on to its edge. Where times lie on steps,
# the curve falls at values alone, and a median is one of them.
#
# The area under the curve to the horizon changes by -(area after an edge) when the hazard before
# that edge grows by one: its variance is that linear function of the covariance of H, by sampling
# and by noise, and the same doubt is added.

_CROWDED = 0.25  # share of all with the event in one bin, inside which nothing is taken for granted
_PLACES = 128  # of a bin, between which an area is summed


class CurveReadings:
    """Numbers that one curve tells.

    Args:
        name: of its group, empty for all.
    """

    def __init__(self, course: SurvivalCourse, name: str, confidence: float) -> None:
        self._course, self._sets, self.name = course, course.sets, name
        self._names = {"column": course.sets.time.name, "group": name}
        self._z = intervals.normal_quantile(confidence)
        # The curve, and its lower and upper ends, from 1 at time 0 on.
        self._lines = [from_one(one) for one in (course.survived, *course.ends(self._z))]

    def rows(self, at: Sequence[float]) -> list[Estimate]:
        """How many records there are, the median, survival at these times, and the mean."""
        times = [self.survival(time) for time in at if self._course.tells(time)]
        records = self._course.counted(self.name, self._z)
        return [records, *self.median(), *times, *self.mean()]

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
        value, *ends = map(self._time, (middle, first, last))
        return [intervals.spanned("median", value, error, (ends[0], ends[1]), **self._names)]

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
        error, names = (high - low) / (2 * self._z), self._names | {"level": f"{time:g}"}
        return intervals.spanned("survival", value, error, (low, high), **names)

    def mean(self) -> list[Estimate]:
        """The mean time up to the horizon, where the curve goes so far."""
        horizon = self._sets.edges[-1]
        if self._course.length < self._sets.bins:
            return []
        names: dict[str, Any] = self._names | {"level": f"to {horizon:g}"}
        names |= {"quantity": "restricted mean", "within": (0.0, horizon)}
        return [intervals.estimate(self._area, self._error, self._z, **names)]

    def mean_less(self, other: CurveReadings) -> list[Estimate]:
        """The same less that of another group, whose records and noise are others."""
        if not (self.mean() and other.mean()):
            return []
        apart, error = self._area - other._area, math.hypot(self._error, other._error)
        names: dict[str, Any] = {"column": self._sets.time.name}
        names["level"] = f"{self.name} against {other.name}"
        what, p_value = "difference of restricted means", intervals.two_sided(apart / error)
        return [intervals.estimate(apart, error, self._z, quantity=what, p_value=p_value, **names)]

    @cached_property
    def _parts(self) -> Array:
        """(length + 1,) areas under the curve, bin by bin; on steps it falls at their values.

        And after the last edge, where the horizon lies between two steps.
        """
        clock, hazard = self._inside(self._lines[0])
        grid = np.asarray(self._sets.grid[: len(self._lines[0])])
        if not self._sets.time.step:
            places = np.linspace(grid[:-1], grid[1:], _PLACES + 1, axis=1)
            heights = np.exp(-np.interp(places, clock, hazard))
            return np.append(np.trapezoid(heights, places, axis=1), 0.0)
        areas = []
        for k, many in enumerate(np.minimum(self._sets.values[: len(grid) - 1], _PLACES)):
            first, last = self._sets.ticks[k : k + 2]
            values = first + (last - first) * np.arange(many) / many
            survived = np.exp(-np.interp(values, clock, hazard))
            areas.append((grid[k + 1] - grid[k]) * survived.mean())
        rest = self._sets.edges[-1] - self._sets.grid[-1]
        return np.array([*areas, rest * self._lines[0][-1]])

    @property
    def _area(self) -> float:
        return float(self._parts.sum())

    @cached_property
    def _error(self) -> float:
        """Of the area: hazards of a bin bear on half of it, or less, and on all that follow."""
        parts, after = self._parts[:-1], np.cumsum(self._parts[::-1])[::-1][:-1]
        half = (1.0 + 1.0 / self._sets.values[: len(after)]) / 2
        gradient = after - parts * half  # by the hazard of each bin
        steps = np.diff(np.append(gradient, 0.0))  # by the cumulative hazard at each edge
        hazard, rough = self._hazards(self._lines[0])
        doubt = float(np.sum((parts * hazard * rough / 12) ** 2))
        return math.sqrt(max(float(steps @ self._course.covariance @ steps), 0.0) + doubt)


# Kaplan-Meier curves with bands and numbers at risk, and the log-rank test between groups.

_TEST = "log-rank"


@dataclass(frozen=True, kw_only=True)
class Survival(OnRiskSets):
    """Kaplan-Meier curves on a public grid; records without time, event or group are left out.

    Args:
        by: classes of the column that divides records into groups.
        test: whether groups are compared by the log-rank test.
        strata: classes within which the test compares groups.
        at: times at which survival is told in a row, up to the horizon.
        time, event, edges, entry: see `OnRiskSets`; the event has two categories.
    """

    by: Levels | None = None
    test: bool = True
    at: tuple[float, ...] = ()
    strata: Levels | None = None

    kind = "survival"
    keys: ClassVar = statistic_keys.GRID | {
        "by": statistic_keys.BY,
        "test": statistic_keys.TEST,
        "at": statistic_keys.AT,
        "strata": statistic_keys.STRATA,
    }
    methods = (
        "survival was estimated by the Kaplan-Meier method on a grid of times that was "
        "fixed in advance"
    )
    if_noisy = "cut short or refused"

    @classmethod
    def read(cls, keys: StatisticKeys) -> Survival:
        compared = keys.compared(_TEST)
        by, strata = compared["by"], keys.levels("strata") if "strata" in keys.section else None
        if strata and (not compared["test"] or strata.column == by.column):
            wanted = "another column than by, beside test"
            raise keys.section.refusal("strata", wanted, "correct it, or leave it out")
        grid, at = keys.survived(), keys.section.numbers("at", ())
        return cls(**grid, **compared, at=at, strata=strata, **keys.common)

    def settings(self) -> dict[str, Any]:
        grid = statistic_keys.grid_table(self.time, self.event, self.edges, self.entry)
        test = _TEST if self.test else ""
        return grid | statistic_keys.table_of(by=self.by, test=test, at=self.at, strata=self.strata)

    def __post_init__(self) -> None:
        _ = self.sets

    @property
    def title(self) -> str:
        groups = f" by {self.by.column.name}" if self.by else ""
        return f"Survival: {self.event.name} over {self.time.name}{groups}{self.sets.since}"

    def encode(self, cells: Cells) -> Array:
        if not self._divided:
            return self.sets.encode(cells, np.zeros(len(cells[self.time.name]), dtype=np.int64))
        return self.sets.encode(cells, Patterns(on=self._divided).places(cells))

    @property
    def margins(self) -> Margins:
        """How many are at risk in each bin and have the event, with each class."""
        return self.sets.margins(self._divided)

    def expected(self, records: float, sigma: float) -> Expectation:
        sets = replace(self.sets, groups=1)
        each = max(records / len(group_names(self.by)), 1.0)
        together = sigma * math.sqrt(len(self.strata) if self.strata else 1)  # of all strata
        course = SurvivalCourse.guess(sets, each, together)
        variance = np.diag(course.covariance)
        early, error = (
            survived * math.sqrt(variance[place]) if len(variance) else math.inf
            for survived, place in ((0.9, (len(variance) - 1) // 4), (0.6, -1))
        )
        answered = SurvivalCourse.promised(sets, each, together)
        group = " of a group" if self.by else ""
        how = f"±{100 * error:.2g} points at the horizon (one standard error){sets.taken}"
        errors = {
            "survival at the horizon": error,
            "survival at a quarter of it": early,
            "at risk": float(course.at_risk_errors[0]),
        }
        told, possible = f"curve{group} known to {how}", course.length > 0
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=possible, group=group
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        names = group_names(self.by)
        blocks = sums.reshape(len(names), -1, self.sets.width)
        parts = [[SurvivalCourse(self.sets, one, sigma) for one in group] for group in blocks]
        courses = [SurvivalCourse.together(group) for group in parts]
        named = list(zip(names, courses, strict=True))
        if self.by:
            named.insert(0, ("", SurvivalCourse.together(courses)))
        shown = [pair for pair in named if pair[1].length]
        read = [CurveReadings(course, name, self.confidence) for name, course in shown]
        groups = [one for one in read if one.name]
        cut = [name for name, one in shown if one.length < self.sets.bins]
        few = [name for name in names if shown and name not in dict(shown)]
        tested = self.test and len(blocks) > 1 and bool(named[0][1].length)
        return self.make_answer(
            "" if shown else "too few records at risk for the noise",
            rows=(
                *(row for one in read for row in one.rows(self.at)),
                # Restricted means of the other groups less that of the first.
                *(row for one in groups[1:] for row in one.mean_less(groups[0])),
            ),
            curves=tuple(one.curve(name, self.confidence) for name, one in shown),
            tests=(log_rank([list(one) for one in zip(*parts, strict=True)]),) if tested else (),
            notes=(
                f"{self.sets.between}; records without {self.sets.needed}, group or stratum are "
                "left out",
                *(f"{name or 'the curve'} ends where too few are at risk" for name in cut),
                *(f"too few records of {name} for the noise" for name in few),
            ),
        )

    @cached_property
    def sets(self) -> RiskSets:
        """How its times are summed."""
        return self.on_grid(groups=math.prod(map(len, self._divided)), counted=True, at=self.at)

    @property
    def _divided(self) -> tuple[Levels, ...]:
        """The classes that divide its sum: groups, and strata in each."""
        return tuple(one for one in (self.by, self.strata) if one)


def log_rank(strata: list[list[SurvivalCourse]]) -> NoisyTest:
    """The test that two groups or more have the same hazard in every bin.

    Args:
        strata: the groups' courses in each stratum; one stratum is all records.
    """
    each = [_compared(courses) for courses in strata]
    excess, covariance = (np.sum(parts, axis=0) for parts in zip(*each, strict=True))
    degrees = len(strata[0]) - 1
    statistic = intervals.quadratic_form(excess, covariance, degrees)
    z = float(excess[0] / math.sqrt(covariance[0, 0]))
    name = "log-rank" if len(strata) == 1 else "stratified log-rank"
    return intervals.chi_square_test(name, statistic, degrees, z=z if degrees == 1 else None)


def _compared(courses: list[SurvivalCourse]) -> tuple[Array, Array]:
    """Observed less expected events of all groups but the last, and their covariance."""
    sets = courses[0].sets
    # Over the bins in which enough are at risk in all.
    end = max(SurvivalCourse.together(courses).bins_clear_of(intervals.CLEAR), 1)
    events = np.array([course.events[:end] for course in courses])
    risk = np.array([course.entered[:end] for course in courses])
    total = risk.sum(axis=0)
    hazard = events.sum(axis=0) / total
    part = risk / total
    apart = np.eye(len(courses))[:, :, None] - part[:, None, :]  # of group g by what is in h
    rows = (apart @ sets.events[:end]) - (apart * hazard) @ sets.exposed[:end]
    noise = courses[0].sigma ** 2 * np.einsum("ghw,jhw->gj", rows, rows)
    survived = np.maximum((total - events.sum(axis=0)) / (total - 1.0), 0.0)
    each = np.maximum(hazard, 0.0) * survived * np.maximum(total, 0.0)
    shared = np.clip(part, 0.0, 1.0)
    drawn = np.diag(shared @ each) - (shared * each) @ shared.T
    excess = (events - risk * hazard).sum(axis=1)
    return excess[:-1], (noise + drawn)[:-1, :-1]
