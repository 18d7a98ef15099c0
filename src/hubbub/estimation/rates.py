"""Rates with person-time: events per unit of time at risk, by group, and their ratios.

Theory of operation. A record sends a 1 where it had the event by the horizon, and half of the time
that it was followed, as a part of the horizon; with groups, in its group's place. Events D and time
P are noisy, and D is Poisson with mean rate P: the interval of a rate holds every r at which
D - r P lies within z of its standard deviations, by drawing events and by noise. Ratios are
compared on the logarithm, where both numbers of events stand clear of the noise.

Where the event is a number, how often a record had it in its time, people differ more than chance
does, so D is no Poisson number. A record then sends its number y and time t also as y^2, y t and
t^2: their sums tell the variance of D - r P, the sum of (y - r t)^2, whatever law y has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.settings import number
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import intervals
from hubbub.estimation.statistic import (
    TOO_FEW,
    Answer,
    Estimate,
    Expectation,
    NoisyTest,
    OneSum,
    group_names,
    group_sums,
    in_own_groups,
)
from hubbub.estimation.statistic_keys import BY, EVENT, HORIZON, TIME, StatisticKeys, table_of

RATE, RATE_RATIO = "rate", "rate ratio"
_HALF = 0.5  # what time is multiplied by: events are fewer, and need less noise
_UNLIMITED = 1e12  # of a rate whose interval has no upper end
_SQUARES = np.array([0.5, 0.25, 0.25])  # what y^2, y t and t^2 are multiplied by
_NUMBERS = 1 / 10  # mean of a number of events, of the most
_EVENTS = 1 / 3  # that are expected, of records, each followed for half of the horizon


@dataclass(frozen=True, kw_only=True)
class EventRates(OneSum):
    """Events per person-time; records without time, event or group are left out.

    Args:
        time: a numeric column from 0: how long a record was followed.
        event: a column of two categories, of which the second is the event; or a numeric column
            from 0, how many events a record had in its time.
        horizon: until when; time after it, and events, do not count. All time, of numbers.
        by: classes of the column that divides records into groups.
        per: the time that rates are per, in the unit of the time's column.
    """

    time: Column
    event: Column
    horizon: float
    by: Levels | None = None
    per: float = 100.0

    kind = "rates"
    keys: ClassVar = {
        "time": TIME,
        "event": EVENT,
        "by": BY,
        "horizon": HORIZON,
        "per": number(
            0,
            1e9,
            '`"rates"`: the person-time of a rate, in the unit of `time`; 100 if left out.',
            above=True,
            default="none",
        ),
    }
    methods = (
        "rates are events over person-time, with score intervals, and were compared on "
        "the logarithmic scale"
    )

    @classmethod
    def read(cls, keys: StatisticKeys) -> EventRates:
        per = keys.section.number("per", cls.per, least=0, most=1e9, open_low=True)
        event = keys.columns.get(str(keys.section.content.get("event")))
        if event is None or event.categories:
            grid = keys.survived()
            time, event, horizon = grid["time"], grid["event"], grid["edges"][-1]
        else:
            keys.section.absent("horizon", "where event is a number, which covers all the time")
            time = keys.column("time", numeric=True)
            horizon = float(time.bounds[1])
        own: dict[str, Any] = {"time": time, "event": event, "horizon": horizon, "per": per}
        return cls(**own, by=keys.by(), **keys.common)

    def settings(self) -> dict[str, Any]:
        horizon = None if self._is_number else self.horizon
        return table_of(time=self.time, event=self.event, horizon=horizon, per=self.per, by=self.by)

    def __post_init__(self) -> None:
        if self._is_number:
            if self.time.bounds[0] < 0 or self.event.bounds[0] != 0 or self.event == self.time:
                raise StudyError(
                    "expected a number of events from 0 and a time from 0, found "
                    f"{self.event.name} and {self.time.name}; correct their low"
                )
        elif not 0 < self.horizon <= self.time.bounds[1] or len(self.event.categories) != 2:
            raise StudyError(
                f"expected an event of two categories and a horizon up to {self.time.bounds[1]:g}, "
                f"found {self.event.name} and {self.horizon:g}; correct them"
            )

    @property
    def title(self) -> str:
        groups = f" by {self.by.column.name}" if self.by else ""
        return f"Rates of {self.event.name} per {self.per:g} of {self.time.name}{groups}"

    @property
    def size(self) -> int:
        width = 2 + len(_SQUARES) if self._is_number else 2
        return width * len(group_names(self.by))

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P28)."""
        squares = float((_SQUARES**2).sum()) if self._is_number else 0.0
        return math.sqrt(1.0 + _HALF**2 + squares)

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P28)."""
        return self.sensitivity * (math.sqrt(2.0) if self.by else 1.0)

    def encode(self, cells: Cells) -> Array:
        times, ended = cells[self.time.name], cells[self.event.name]
        known = ~np.isnan(times) & ~np.isnan(ended)
        if not self._is_number:
            known &= (ended >= 0) & (ended < 2)
        followed = np.clip(np.where(known, times, 0.0) / self.horizon, 0.0, 1.0)
        if self._is_number:
            number = np.clip(np.where(known, ended, 0.0) / self._most, 0.0, 1.0)
            squares = np.column_stack([number**2, number * followed, followed**2])
            block = np.column_stack([number, _HALF * followed, _SQUARES * squares])
        else:
            died = known & (ended >= 1) & (times <= self.horizon)
            block = np.column_stack([died, _HALF * followed])
        return in_own_groups(block * known[:, None], self.by, cells)

    def expected(self, records: float, sigma: float) -> Expectation:
        # As if a third had the event, and all were followed for half of the horizon; of numbers, as
        # if their mean and spread were a tenth of the bound.
        each = max(records / len(group_names(self.by)), 1.0)
        events, time = each * (_NUMBERS if self._is_number else _EVENTS), each * _HALF
        sampling = 1.0 / (each if self._is_number else events)
        noise = sigma**2 * (1 / events**2 + 1 / (_HALF * time) ** 2)
        error = math.sqrt(sampling + noise)
        group = " of a group" if self.by else ""
        told = f"rates{group} known to ±{100 * error:.2g} % (one standard error), if " + (
            f"records have {_NUMBERS * self._most:g} events on average"
            if self._is_number
            else "a third of the records have the event"
        )
        return self.make_expectation(
            {"logarithm of a rate": error},
            sigma,
            told,
            # Where one in ten has the event it is told all the same, if they are followed so long.
            answered=each / 10 >= (intervals.CLEAR + intervals.SURE) * sigma,
            possible=_HALF * time >= intervals.CLEAR * sigma,
            group=group,
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        named = [self._rate(*group) for group in group_sums(sums, self.by, sigma)]
        told = [one for one in named if one.clear >= 0]
        groups = [one for one in told if one.name or not self.by]
        few = [one.name for one in named if told and one not in told]
        ratios = {self._against(one, groups[0]): self._ratio(one, groups[0]) for one in groups[1:]}
        return self.make_answer(
            "" if told else TOO_FEW,
            rows=(
                *(row for one in told for row in self._rows(one)),
                *(row for rows in ratios.values() for row in rows),
            ),
            tests=tuple(self._tests(groups)),
            notes=(
                f"records without {self.time.name}, {self.event.name} or group are left out",
                *(f"too few records of {name} for the noise" for name in few),
                *(
                    (
                        f"the rate of {one.name or 'all'} is withheld: with this noise there "
                        "may be almost no time at risk, so there is no upper limit"
                    )
                    for one in told
                    if not self._is_limited(one)
                ),
                *(
                    intervals.withheld(level, RATE_RATIO)
                    for level, rows in ratios.items()
                    if not rows
                ),
            ),
        )

    def _rate(self, name: str, block: Array, sigma: float) -> _Rate:
        """A group's events and time, and how much more than a Poisson number events vary."""
        events, time, *squares = block.tolist()
        if not self._is_number:
            return _Rate(name, events, time, sigma)
        poisson = 1.0 / self._most
        if events < intervals.CLEAR * sigma or time <= 0:  # too few to see how they vary
            return _Rate(name, events, time, sigma, poisson)
        rate = events / time
        weights = np.array([1.0, -2 * _HALF * rate, (_HALF * rate) ** 2]) / _SQUARES
        # Noise may leave less than people and chance do: people only add to what chance does.
        return _Rate(name, events, time, sigma, max(float(weights @ squares) / events, poisson))

    def _rows(self, group: _Rate) -> list[Estimate]:
        """Events, time and the rate of a group."""
        z, unit = intervals.normal_quantile(self.confidence), self.horizon / _HALF
        names: dict[str, Any] = {"column": self.event.name, "group": group.name}
        events, error = max(group.events, 0.0) * self._most, group.sigma * self._most
        rows = [
            intervals.count(events, error, z, "events", **names),
            intervals.estimate(
                unit * group.time, unit * group.sigma, z, quantity="time at risk", **names
            ),
        ]
        if self._is_limited(group):
            scale = self.per / unit * self._most
            value, error, low, high = (scale * part for part in group.interval(z))
            rows.append(intervals.spanned(RATE, value, error, (low, high), **names))
        return rows

    def _is_limited(self, one: _Rate) -> bool:
        """Whether the interval of a rate has an upper end."""
        return one.interval(intervals.normal_quantile(self.confidence))[3] < _UNLIMITED

    def _ratio(self, one: _Rate, other: _Rate) -> list[Estimate]:
        """Of two rates, where both numbers of events stand clear of the noise."""
        if min(one.events, other.events) < intervals.CLEAR * one.sigma + 0.5:
            return []
        z = intervals.normal_quantile(self.confidence)
        logs, variances = zip(one.logarithm, other.logarithm, strict=True)
        effect, error = logs[0] - logs[1], math.sqrt(sum(variances))
        column = self.by.column.name if self.by else ""
        names = {"quantity": RATE_RATIO, "column": column, "level": self._against(one, other)}
        return [intervals.ratio_of(effect, error, z, **names)]

    def _against(self, one: _Rate, other: _Rate) -> str:
        return f"{one.name} against {other.name}"

    def _tests(self, groups: list[_Rate]) -> list[NoisyTest]:
        """Whether groups have one rate: events less what their time explains."""
        if len(groups) < 2:
            return []
        events, time = np.array([(group.events, group.time) for group in groups]).T
        # Below 0, too, where noise has made it so: what is left of events adds up to nothing.
        rate = float(events.sum() / time.sum())
        part = time / time.sum()
        centred = np.eye(len(groups)) - np.outer(part, np.ones(len(groups)))
        spread = np.array([group.dispersion for group in groups])
        noise = np.array([group.wider**2 for group in groups])
        own = spread * np.maximum(rate * time, 0.0) + noise * (1.0 + rate**2)
        covariance = centred @ np.diag(own) @ centred.T
        excess, degrees = events - rate * time, len(groups) - 1
        statistic = float(excess[:-1] @ np.linalg.solve(covariance[:-1, :-1], excess[:-1]))
        return [intervals.chi_square_test("equal rates", statistic, float(degrees))]

    @property
    def _is_number(self) -> bool:
        """Whether the event is how many there were."""
        return not self.event.categories

    @property
    def _most(self) -> float:
        """The most events of a record."""
        return float(self.event.bounds[1]) if self._is_number else 1.0


@dataclass(frozen=True)
class _Rate:
    """One group's noisy events, in parts of the most of a record, and time, of twice the horizon.

    Args:
        events, time, sigma: the numbers, and the standard deviation of their noise.
        dispersion: the variance of events by chance, over their mean.
    """

    name: str
    events: float
    time: float
    sigma: float
    dispersion: float = 1.0

    @property
    def clear(self) -> float:
        """How many standard deviations its time has above what is told."""
        return self.time / self.sigma - intervals.CLEAR

    @property
    def wider(self) -> float:
        """Its noise with caution, as it is told only where its time is clear."""
        return self.sigma * float(intervals.caution(np.array(self.clear)))

    def interval(self, z: float) -> tuple[float, float, float, float]:
        """Rate, standard error, and the ends of its interval."""
        noise = self.wider**2
        events = max(self.events, 0.0)
        variance = (noise, self.dispersion * max(self.time, 1.0), noise)
        rate = events / self.time
        low, high = intervals.ratio_interval(events, self.time, variance, z, (0.0, _UNLIMITED))
        return rate, math.sqrt(intervals.at(variance, rate)) / self.time, low, high

    @property
    def logarithm(self) -> tuple[float, float]:
        """Of its rate, without the mean of the noise's second order, and its variance.

        It is told only where events stand clear of the noise, as they may by chance, too.
        """
        drawn = self.dispersion * self.events
        margin = (self.events - intervals.CLEAR * self.sigma) / math.sqrt(drawn + self.sigma**2)
        second = self.sigma**2 / 2.0 * (1.0 / self.events**2 - 1.0 / self.time**2)
        noise = self.sigma**2 * (1.0 / self.events**2 + 1.0 / self.time**2)
        variance = self.dispersion / self.events + noise
        wider = float(intervals.caution(np.array(max(margin, intervals.LEAST_OF_RATIOS))))
        return math.log(self.events / self.time) + second, wider**2 * variance
