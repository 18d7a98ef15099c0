"""Cumulative incidence of competing events, on a public grid (Aalen, Johansen 1978).

Theory of operation. Each kind of event has a code of its own, and a record is in one of them or has
left: its block is as long as that of a survival curve. With D_cj events of kind c in bin j, D_j of
all kinds, Y_j at risk and S the survival without any of them, the share that has had c by t is
F_c(t) = sum_{j <= t} S(j - 1) D_cj / Y_j, whose derivatives by D and Y are known. Its variance is
that of drawing the events of each bin (multinomial) and of the noise, which is linear in that of
the sum. Intervals hold every F at which the estimate is no further off than z standard deviations
by the noise and by the sampling variance that F itself would have, in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import intervals, statistic_keys
from hubbub.estimation.risk_sets import OnRiskSets, RiskSets, rising, rising_limits
from hubbub.estimation.stacking import Margins
from hubbub.estimation.statistic import Answer, Curve, Estimate, Expectation, NoisyTest, group_names
from hubbub.estimation.statistic_keys import StatisticKeys
from hubbub.estimation.survival_course import SurvivalCourse

# Gray's test that groups have the same incidence of one kind of event (Gray 1988, weight 1).
#
# Theory of operation. Of who is at risk in a group only those can yet have the event whom no other
# kind of event has taken away, and yet they are the population: with S the survival without any
# event and F the incidence, R_j = Y_j (1 - F(j - 1)) / S(j - 1) of a group's records stand for it
# in bin j. What a group has too much is U = sum_j D_j - R_j (sum of all D_j) / (sum of all R_j),
# the log-rank statistic with R for Y. It is a function of events of each kind, D, and of Y, all
# linear in the noisy sum. Its covariance is that of drawing the events of each bin (multinomial)
# and of the noise, both by its derivatives, which are known. It is made of the sums of curves alone
# (docs/privacy.md P35). It goes on as long as all groups have survivors that stand clear of the
# noise.

GRAY = "Gray's"


@dataclass(frozen=True, kw_only=True)
class GroupIncidence:
    """A group's events of all kinds, and who is at risk, over the bins that are compared.

    Args:
        events: (causes, bins), the first row of the kind that is compared.
        at_risk: (bins,).
    """

    events: Array
    at_risk: Array

    @cached_property
    def _left(self) -> Array:
        """(bins,) who has had no event."""
        return np.asarray(self.at_risk - self.events.sum(axis=0))

    @cached_property
    def _survived(self) -> Array:
        """(bins,) the share without any event before each bin."""
        return np.append(1.0, np.cumprod(self._left / self.at_risk))[:-1]

    @cached_property
    def _incidence(self) -> Array:
        """(bins,) the share with the event before each bin."""
        each = self._survived * self.events[0] / self.at_risk
        return np.append(0.0, np.cumsum(each))[:-1]

    @cached_property
    def standing(self) -> Array:
        """(bins,) R: how many records the group has in a bin, whom others' events took away too."""
        return np.asarray(self.at_risk * (1.0 - self._incidence) / self._survived)

    def derivatives(self) -> tuple[Array, Array]:
        """Of R by events of each kind, (causes, bins, bins of R), and by who is at risk."""
        after = np.triu(np.ones((len(self.at_risk),) * 2), 1)  # an earlier bin bears on later ones
        own = np.zeros(len(self.events))
        own[0] = 1.0
        later = np.append(self._incidence[1:], 0.0)  # at the end of each bin
        reached = self._incidence[None, :] - later[:, None]  # what came in between
        gone = 1.0 - self._incidence[None, :]
        per_event = (self._survived / self.at_risk)[:, None]
        lost = (1.0 + reached / gone) / self._left[:, None]
        of_events = np.array([self.standing * after * (lost - k * per_event / gone) for k in own])
        hazard = (self.events[0] / self.at_risk)[:, None]
        every = (self.events.sum(axis=0) / self.at_risk)[:, None]
        of_risk = self.standing * after * (per_event * hazard / gone - lost * every)
        return of_events, of_risk + np.diag(self.standing / self.at_risk)


def gray_test(column: str, groups: Sequence[SurvivalCourse], cause: int) -> NoisyTest | None:
    """The test of one kind of event; None if too few records are at risk for the noise.

    Args:
        column: the kind of event, for the answer.
        groups: each group's course.
        cause: which kind, counted from 0.
    """
    end = min(course.bins_clear_of() for course in groups)
    if not end:
        return None
    order = [cause, *(other for other in range(groups[0].sets.causes) if other != cause)]
    parts = [
        GroupIncidence(events=course.by_kind[order, :end], at_risk=course.entered[:end])
        for course in groups
    ]
    excess, gradients = compared_incidence(parts)
    covariance = sum(
        _drawn(part, by_events) + _noise(course, order, by_events, by_risk)
        for part, course, (by_events, by_risk) in zip(parts, groups, gradients, strict=True)
    )
    degrees = len(groups) - 1
    statistic = intervals.quadratic_form(excess[:-1], np.asarray(covariance)[:-1, :-1], degrees)
    z = math.copysign(math.sqrt(statistic), excess[0]) if degrees == 1 else None
    return intervals.chi_square_test(GRAY, statistic, degrees, column=column, z=z)


def compared_incidence(parts: Sequence[GroupIncidence]) -> tuple[Array, list[tuple[Array, Array]]]:
    """U (groups,), and for each group its derivatives: (groups, causes, bins), (groups, bins)."""
    standing = np.array([part.standing for part in parts])
    events = np.array([part.events[0] for part in parts])
    share = standing / standing.sum(axis=0)
    hazard = events.sum(axis=0) / standing.sum(axis=0)
    excess = (events - standing * hazard).sum(axis=1)
    gradients = []
    for place, part in enumerate(parts):
        apart = np.eye(len(parts))[place][:, None] - share  # (groups, bins)
        of_events, of_risk = part.derivatives()
        by_events = -np.einsum("cjk,gk->gcj", of_events, apart * hazard)
        by_events[:, 0] += apart
        gradients.append((by_events, -np.einsum("jk,gk->gj", of_risk, apart * hazard)))
    return excess, gradients


def _drawn(part: GroupIncidence, by_events: Array) -> Array:
    """(groups, groups) covariance of U by drawing a group's events in each bin."""
    events = np.maximum(part.events, 0.0)
    mean = np.einsum("gcj,cj->gj", by_events, events)
    squares = np.einsum("gcj,hcj,cj->gh", by_events, by_events, events)
    return np.asarray(squares - (mean / part.at_risk) @ mean.T)


def _noise(course: SurvivalCourse, order: Sequence[int], by_events: Array, by_risk: Array) -> Array:
    """(groups, groups) covariance of U by the noise in a group's sum."""
    end, sets = by_risk.shape[1], course.sets
    rows = by_risk @ sets.exposed[:end]
    for place, cause in enumerate(order):
        rows = rows + by_events[:, place] @ sets.events_of(cause)[:end]
    return np.asarray(course.sigma**2 * rows @ rows.T)


_TEST = "gray"


@dataclass(frozen=True, kw_only=True)
class Incidence(OnRiskSets):
    """Shares that have had each kind of event; records without time, event or group are left out.

    Args:
        by: classes of the column that divides records into groups.
        at: times at which incidence is told in a row, besides the horizon.
        test: whether groups are compared by Gray's test, for each kind of event.
        time, event, edges, entry: see `OnRiskSets`; the event has three categories or more: none,
            and its kinds.
    """

    by: Levels | None = None
    at: tuple[float, ...] = ()
    test: bool = False

    kind = "incidence"
    keys: ClassVar = statistic_keys.GRID | {
        "by": statistic_keys.BY,
        "at": statistic_keys.AT,
        "test": statistic_keys.TEST,
    }
    methods = "cumulative incidence of competing events was estimated by the Aalen-Johansen method"
    if_noisy = "cut short or refused"

    @classmethod
    def read(cls, keys: StatisticKeys) -> Incidence:
        grid, at = keys.survived(several=True), keys.section.numbers("at", ())
        return cls(**grid, **keys.compared(_TEST), at=at, **keys.common)

    def settings(self) -> dict[str, Any]:
        grid = statistic_keys.grid_table(self.time, self.event, self.edges, self.entry)
        return grid | statistic_keys.table_of(
            by=self.by, at=self.at, test=_TEST if self.test else ""
        )

    def __post_init__(self) -> None:
        _ = self.sets

    @property
    def title(self) -> str:
        groups = f" by {self.by.column.name}" if self.by else ""
        over = f"{self.event.name} over {self.time.name}"
        return f"Cumulative incidence: {over}{groups}{self.sets.since}"

    def encode(self, cells: Cells) -> Array:
        everybody = np.zeros(len(cells[self.time.name]), dtype=np.int64)
        return self.sets.encode(cells, self.by.places(cells) if self.by else everybody)

    @property
    def margins(self) -> Margins:
        """How many are at risk in each bin and have some event, with each class."""
        return self.sets.margins((self.by,) if self.by else ())

    def expected(self, records: float, sigma: float) -> Expectation:
        """As if all kinds of event were as frequent."""
        sets = self.sets
        each = max(records / len(group_names(self.by)), 1.0)
        course = SurvivalCourse.guess(sets, each, sigma)
        one = _Incidence(course, 0) if course.length else None
        error = math.sqrt(one.noise[-1] + one.sampling[-1]) if one else math.inf
        group = " of a group" if self.by else ""
        how = f"±{100 * error:.2g} points at the horizon (one standard error){sets.taken}"
        errors, told = {"incidence at the horizon": error}, f"incidence{group} known to {how}"
        answered, possible = SurvivalCourse.promised(sets, each, sigma), course.length > 0
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=possible, group=group
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        names = group_names(self.by)
        blocks = sums.reshape(len(names), -1)
        courses = [SurvivalCourse(self.sets, block, sigma) for block in blocks]
        named = list(zip(names, courses, strict=True))
        few = [name for name, course in named if not course.length]
        shown = [(name, course) for name, course in named if course.length]
        cut = [name for name, course in shown if course.length < self.sets.bins]
        causes = self.event.categories[1:]
        told = [
            (name, course, {cause: _Incidence(course, k) for k, cause in enumerate(causes)})
            for name, course in shown
        ]
        return self.make_answer(
            "" if shown else "too few records at risk for the noise",
            rows=tuple(row for one in told for row in self._rows(*one)),
            curves=tuple(
                self._curve(name, course, cause, one)
                for name, course, kinds in told
                for cause, one in kinds.items()
            ),
            tests=tuple(self._tests([course for _, course in shown])),
            notes=(
                f"records without {self.sets.needed} or group are left out",
                *(f"{name or 'the curve'} ends where too few are at risk" for name in cut),
                *(f"too few records of {name} for the noise" for name in few if shown),
            ),
        )

    def _tests(self, groups: list[SurvivalCourse]) -> Iterator[NoisyTest]:
        tested = self.event.categories[1:] if self.test and len(groups) > 1 else ()
        for place, cause in enumerate(tested):
            if (test := gray_test(cause, groups, place)) is not None:
                yield test

    def _rows(
        self, name: str, course: SurvivalCourse, kinds: Mapping[str, _Incidence]
    ) -> Iterator[Estimate]:
        z = intervals.normal_quantile(self.confidence)
        yield course.counted(name, z)
        times = [one for one in (*self.at, self.edges[-1]) if course.tells(one)]
        for cause, one in kinds.items():
            low, high = one.ends(z)
            for time in dict.fromkeys(times):
                clock = course.sets.clock(np.array([*course.sets.grid[: len(low) + 1], time]))
                value, below, above = (
                    float(np.interp(clock[-1], clock[:-1], line))
                    for line in (_from_none(part) for part in (one.share, low, high))
                )
                names = {"column": self.time.name, "level": f"{cause} by {time:g}", "group": name}
                error = (above - below) / (2 * z)
                yield intervals.spanned("incidence", value, error, (below, above), **names)

    def _curve(self, name: str, course: SurvivalCourse, cause: str, one: _Incidence) -> Curve:
        low, high = one.ends(intervals.normal_quantile(self.confidence))
        return Curve(
            name=": ".join(filter(None, (name, cause))),
            column=self.time.name,
            x=self.sets.grid[: course.length + 1],
            y=_from_none(one.share),
            low=_from_none(low),
            high=_from_none(high),
            **course.told_at_risk(),
        )

    @cached_property
    def sets(self) -> RiskSets:
        """How its times are summed."""
        causes = max(len(self.event.categories) - 1, 2)
        groups = len(group_names(self.by))
        return self.on_grid(groups=groups, counted=True, causes=causes, at=self.at)


class _Incidence:
    """The cumulative incidence of one kind of event, as far as the curve goes."""

    def __init__(self, course: SurvivalCourse, cause: int) -> None:
        end = course.length
        self._course, self._cause = course, cause
        self._events = course.by_kind[:, :end]
        self._risk = np.maximum(course.entered[:end], 1e-9)
        self._total = np.minimum(self._events.sum(axis=0), 0.99 * self._risk)
        self._before = np.append(1.0, np.cumprod(1.0 - self._total / self._risk))[:end]

    @cached_property
    def _raw(self) -> Array:
        return np.cumsum(self._before * self._events[self._cause] / self._risk)

    @property
    def share(self) -> Array:
        """(length,) at the end of each bin, made to rise."""
        return np.clip(rising(self._raw), 0.0, 1.0)

    @cached_property
    def _gradients(self) -> tuple[Array, Array]:
        """By events of each kind, (causes, length, bins), and by who is at risk, (length, bins)."""
        later = self._raw[:, None] - self._raw[None, :]  # what comes after each bin, up to t
        reached = np.tril(np.ones_like(later))
        own = reached * self._before / self._risk
        lost = reached * later / (self._risk - self._total)
        by_events = np.array(
            [own * (place == self._cause) - lost for place in range(len(self._events))]
        )
        hazard = self._events[self._cause] / self._risk
        by_risk = -own * hazard + lost * self._total / self._risk
        return by_events, by_risk

    @cached_property
    def noise(self) -> Array:
        """(length,) variance by noise."""
        sets, end = self._course.sets, len(self._risk)
        by_events, by_risk = self._gradients
        rows = by_risk @ sets.exposed[:end]
        for place, gradient in enumerate(by_events):
            rows = rows + gradient @ sets.events_of(place)[:end]
        return np.asarray((self._course.sigma * self._course.wider) ** 2 * np.sum(rows**2, axis=1))

    @cached_property
    def sampling(self) -> Array:
        """(length,) variance by drawing the events of each bin."""
        by_events, _ = self._gradients
        events = np.maximum(self._events, 0.0)
        mean = np.einsum("ctj,cj->tj", by_events, events)
        squares = np.einsum("ctj,cj->tj", by_events**2, events)
        each = squares - mean**2 / self._risk
        return np.asarray(np.maximum(each @ self._course.wider**2, 0.0))

    def ends(self, z: float) -> tuple[Array, Array]:
        """Lower and upper limits at z standard deviations, both rising."""
        share = np.maximum(self._raw, 0.0)
        least = 1.0 / self._risk[0]
        per_share = np.where(share > least, self.sampling / np.maximum(share, 1e-12), least)
        limits = rising_limits(share, per_share, self.noise, self.noise + self.sampling, z)
        return intervals.around(self.share, *(np.clip(limit, 0.0, 1.0) for limit in limits))


def _from_none(after: Array) -> tuple[float, ...]:
    return (0.0, *map(float, after))
