"""Kaplan-Meier curves with bands and numbers at risk, and the log-rank test between groups.

How a curve follows from its noisy sums is in `survival_course`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hubbub.core.tabular.column import Column
from hubbub.estimation.asked_keys import StatisticKeys, check_at, classes_told, grid_table
from hubbub.estimation.covariates import Patterns
from hubbub.estimation.crosstab import quadratic_form
from hubbub.estimation.intervals import CLEAR, count, normal_quantile
from hubbub.estimation.risk_sets import OnRiskSets, RiskSets
from hubbub.estimation.shared_margins import Margins
from hubbub.estimation.statistic import (
    Answer,
    Array,
    Cells,
    Estimate,
    Expectation,
    Levels,
    NoisyTest,
    group_names,
)
from hubbub.estimation.survival_course import SurvivalCourse
from hubbub.estimation.survival_readings import CurveReadings

_BINS = 12  # if nothing is said
_TEST = "log-rank"


@dataclass(frozen=True, kw_only=True)
class Survival(OnRiskSets):
    """Kaplan-Meier curves on a public grid; records without time, event or group are left out.

    Args:
        time: a numeric column: how long a record was followed.
        event: a column of two categories, of which the second is the event.
        edges: increasing edges of the bins in the unit of the time, the horizon last.
        by: classes of the column that divides records into groups.
        test: whether groups are compared by the log-rank test.
        strata: classes within which the test compares groups.
        entry: a numeric column that says since when a record was observed; None if all were from
            the start (docs/privacy.md P34).
        at: times at which survival is told in a row, up to the horizon.
        weight, confidence: see `Statistic`.

    Raises:
        StudyError: edges outside of the bounds or not increasing, or an event that is no such
            column.
    """

    time: Column
    event: Column
    edges: tuple[float, ...]
    by: Levels | None = None
    test: bool = True
    at: tuple[float, ...] = ()
    strata: Levels | None = None
    entry: Column | None = None

    kind = "survival"
    keys = ("time", "event", "entry", "by", "bins", "horizon", "test", "at", "strata")
    if_noisy = "cut short or refused"

    @classmethod
    def read(cls, keys: StatisticKeys) -> Survival:
        """The statistic that a table of a study asks for."""
        by, test = keys.by(), keys.test(_TEST)
        if test and not by:
            raise keys.section.refusal("test", "absent without by, which says the groups", "add by")
        strata = keys.levels("strata") if "strata" in keys.section else None
        if strata and (not test or not by or strata.column == by.column):
            wanted = "another column than by, beside test"
            raise keys.section.refusal("strata", wanted, "correct it, or leave it out")
        grid, at = keys.survived(_BINS), keys.numbers("at", ())
        if "at" in keys.section and not at:
            raise keys.section.refusal("at", "a list of times", "write it like [12, 24]")
        return cls(**grid, by=by, test=test, at=at, strata=strata, **keys.common)

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        groups = {"by": classes_told(self.by)} if self.by else {}
        tested = {"test": _TEST} if self.test else {}
        at: dict[str, Any] = {"at": list(self.at)} if self.at else {}
        at |= {"strata": classes_told(self.strata)} if self.strata else {}
        grid = grid_table(self.time, self.event, self.edges, self.entry)
        return {**grid, **groups, **tested, **at}

    def __post_init__(self) -> None:
        """Refuses a grid or an event that is none, and times outside of the grid."""
        check_at(self.at, self.edges)
        _ = self.sets

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        groups = f" by {self.by.column.name}" if self.by else ""
        return f"Survival: {self.event.name} over {self.time.name}{groups}{self.sets.since}"

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        if not self._divided:
            return self.sets.encode(cells, np.zeros(len(cells[self.time.name]), dtype=np.int64))
        return self.sets.encode(cells, Patterns(on=self._divided).places(cells))

    @property
    def margins(self) -> Margins:
        """How many are at risk in each bin and have the event, with each class."""
        return self.sets.margins(self._divided)

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block."""
        sets = replace(self.sets, groups=1)
        each = max(records / len(group_names(self.by)), 1.0)
        together = sigma * math.sqrt(len(self.strata) if self.strata else 1)  # of all strata
        course = SurvivalCourse.guess(sets, each, together)
        variance = course.noise + course.greenwood
        early, error = (
            survived * math.sqrt(variance[place]) if len(variance) else math.inf
            for survived, place in ((0.9, (len(variance) - 1) // 4), (0.6, -1))
        )
        answered, possible = course.length == sets.bins, course.length > 0
        group = " of a group" if self.by else ""
        how = f"±{100 * error:.2g} points at the horizon (one standard error)"
        errors = {
            "survival at the horizon": error,
            "survival at a quarter of it": early,
            "at risk": float(course.at_risk_errors[0]),
        }
        told = f"curve{group} known to {how}{sets.if_entered}"
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=possible, group=group
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        blocks = sums.reshape(len(group_names(self.by)), -1, self.sets.width)
        parts = [[SurvivalCourse.of(self.sets, one, sigma) for one in group] for group in blocks]
        courses = [SurvivalCourse.together(group) for group in parts]
        named = list(zip(group_names(self.by), courses, strict=True))
        if self.by:
            named.insert(0, ("", SurvivalCourse.together(courses)))
        shown = [pair for pair in named if pair[1].length]
        cut = [name for name, one in shown if one.length < self.sets.bins]
        tested = self.test and len(blocks) > 1 and bool(named[0][1].length)
        return self.make_answer(
            "" if shown else "too few records at risk for the noise",
            rows=(
                *(row for name, one in shown for row in self._rows(name, one)),
                *self._apart([pair for pair in shown if pair[0]]),
            ),
            curves=tuple(one.curve(name, self.confidence) for name, one in shown),
            tests=(log_rank([list(one) for one in zip(*parts, strict=True)], sigma),)
            if tested
            else (),
            notes=(
                f"{self.sets.between}; records without {self.sets.needed}, group or stratum are "
                "left out",
                *(f"{name or 'the curve'} ends where too few are at risk" for name in cut),
                *(
                    f"too few records of {name} for the noise"
                    for name in group_names(self.by)
                    if shown and name not in [one for one, _ in shown]
                ),
            ),
        )

    def _rows(self, name: str, course: SurvivalCourse) -> list[Estimate]:
        z = normal_quantile(self.confidence)
        records = count(course.records, course.records_error, z)
        readings = CurveReadings(course, name, self.confidence)
        times = [readings.survival(time) for time in self.at if course.tells(time)]
        return [replace(records, group=name), *readings.median(), *times, *readings.mean()]

    def _apart(self, named: Sequence[tuple[str, SurvivalCourse]]) -> list[Estimate]:
        """Restricted means of the other groups less that of the first."""
        read = [CurveReadings(course, name, self.confidence) for name, course in named]
        return [row for one in read[1:] for row in one.mean_less(read[0])]

    @cached_property
    def sets(self) -> RiskSets:
        """How its times are summed."""
        return RiskSets(
            time=self.time,
            event=self.event,
            edges=self.edges,
            groups=math.prod(map(len, self._divided)),
            counted=True,
            entry=self.entry,
            at=self.at,
        )

    @property
    def _divided(self) -> tuple[Levels, ...]:
        """The classes that divide its sum: groups, and strata in each."""
        return tuple(one for one in (self.by, self.strata) if one)


class _Compared(NamedTuple):
    """The log-rank statistic of all groups but the last, and its covariance."""

    excess: Array
    covariance: Array


def log_rank(strata: list[list[SurvivalCourse]], sigma: float) -> NoisyTest:
    """The test that two groups or more have the same hazard in every bin.

    Args:
        strata: the groups' courses in each stratum; one stratum is all records.
        sigma: standard deviation of the noise in each number of the sum.
    """
    from scipy.special import chdtrc  # which takes long to import

    each = [_compared(courses, sigma) for courses in strata]
    compared = _Compared(*(np.sum(parts, axis=0) for parts in zip(*each, strict=True)))
    degrees = len(strata[0]) - 1
    statistic = quadratic_form(compared.excess, compared.covariance, degrees)
    z = float(compared.excess[0] / math.sqrt(compared.covariance[0, 0]))
    return NoisyTest(
        name="log-rank" if len(strata) == 1 else "stratified log-rank",
        statistic=statistic,
        degrees=degrees,
        p_value=float(chdtrc(degrees, statistic)),
        z=z if degrees == 1 else None,
    )


def _compared(courses: list[SurvivalCourse], sigma: float) -> _Compared:
    """Observed less expected events, over the bins in which enough are at risk in all."""
    sets, end = courses[0].sets, max(SurvivalCourse.together(courses).bins_clear_of(CLEAR), 1)
    events = np.array([course.events[:end] for course in courses])
    risk = np.array([course.entered[:end] for course in courses])
    total = risk.sum(axis=0)
    hazard = events.sum(axis=0) / total
    part = risk / total
    apart = np.eye(len(courses))[:, :, None] - part[:, None, :]  # of group g by what is in h
    rows = (apart @ sets.events[:end]) - (apart * hazard) @ sets.exposed[:end]
    noise = sigma**2 * np.einsum("ghw,jhw->gj", rows, rows)
    each = np.maximum(hazard, 0.0) * (total - events.sum(axis=0)) / (total - 1.0) * total
    shared = np.clip(part, 0.0, 1.0)
    drawn = np.diag(shared @ each) - (shared * each) @ shared.T
    excess = (events - risk * hazard).sum(axis=1)
    return _Compared(excess=excess[:-1], covariance=(noise + drawn)[:-1, :-1])
