"""Rates with person-time: events per unit of time at risk, by group, and their ratios.

Theory of operation. A record sends a 1 where it had the event by the horizon, and half of the time
that it was followed, as a part of the horizon; with groups, in its group's place. Events D and time
P are noisy, and D is Poisson with mean rate P: the interval of a rate holds every r at which
D - r P lies within z of its standard deviations, by drawing events and by noise. Ratios are
compared on the logarithm, where both numbers of events stand clear of the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubbub.errors import StudyError
from hubbub.estimation.asked_keys import StatisticKeys, classes_told
from hubbub.estimation.intervals import (
    CLEAR,
    SURE,
    at,
    caution,
    normal_quantile,
    ratio_interval,
    ratio_of,
)
from hubbub.estimation.statistic import (
    TOO_FEW,
    Answer,
    Array,
    Cells,
    Estimate,
    Expectation,
    Levels,
    NoisyTest,
    OneSum,
    one_hot,
)
from hubbub.tabular import Column

RATE, RATE_RATIO = "rate", "rate ratio"
_HALF = 0.5  # what time is multiplied by: events are fewer, and need less noise
_UNLIMITED = 1e12  # of a rate whose interval has no upper end
_EVENTS = 1 / 3  # that are expected, of records, each followed for half of the horizon


@dataclass(frozen=True, kw_only=True)
class EventRates(OneSum):
    """Events per person-time; records without time, event or group are left out.

    Args:
        time: a numeric column from 0: how long a record was followed.
        event: a column of two categories, of which the second is the event.
        horizon: until when; time after it, and events, do not count.
        by: classes of the column that divides records into groups.
        per: the time that rates are per, in the unit of the time's column.
        weight, confidence: see `Statistic`.

    Raises:
        StudyError: a horizon that is none, or an event that is no such column.
    """

    time: Column
    event: Column
    horizon: float
    by: Levels | None = None
    per: float = 100.0

    kind = "rates"
    keys = ("time", "event", "by", "horizon", "per")

    @classmethod
    def read(cls, keys: StatisticKeys) -> EventRates:
        """The statistic that a table of a study asks for."""
        grid = keys.survived(2)
        per = keys.section.number("per", cls.per, least=0, most=1e9, open_low=True)
        return cls(
            time=grid["time"],
            event=grid["event"],
            horizon=grid["edges"][-1],
            by=keys.by(),
            per=per,
            **keys.common,
        )

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        groups = {"by": classes_told(self.by)} if self.by else {}
        own = {"time": self.time.name, "event": self.event.name, "horizon": self.horizon}
        return {**own, "per": self.per, **groups}

    def __post_init__(self) -> None:
        """Refuses a horizon or an event that is none."""
        if not 0 < self.horizon <= self.time.bounds[1] or len(self.event.categories) != 2:
            raise StudyError(
                f"expected an event of two categories and a horizon up to {self.time.bounds[1]:g}, "
                f"found {self.event.name} and {self.horizon:g}; correct them"
            )

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        groups = f" by {self.by.column.name}" if self.by else ""
        return f"Rates of {self.event.name} per {self.per:g} of {self.time.name}{groups}"

    @property
    def size(self) -> int:
        """How many numbers its block has."""
        return 2 * len(self._groups)

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P28)."""
        return math.sqrt(1.0 + _HALF**2)

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P28)."""
        return self.sensitivity * (math.sqrt(2.0) if self.by else 1.0)

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        times, ended = cells[self.time.name], cells[self.event.name]
        known = ~np.isnan(times) & (ended >= 0) & (ended < 2)
        died = known & (ended >= 1) & (times <= self.horizon)
        followed = np.clip(np.where(known, times, 0.0) / self.horizon, 0.0, 1.0)
        block = np.column_stack([died, _HALF * followed]) * known[:, None]
        if self.by is None:
            return np.asarray(block, dtype=np.float64)
        groups = one_hot(self.by.places(cells), len(self.by))
        return np.asarray((groups[:, :, None] * block[:, None, :]).reshape(len(block), -1))

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block.

        As if a third had the event, and all were followed for half of the horizon.
        """
        each = max(records / len(self._groups), 1.0)
        events, time = each * _EVENTS, each * _HALF
        sampling, noise = 1.0 / events, sigma**2 * (1 / events**2 + 1 / (_HALF * time) ** 2)
        error = math.sqrt(sampling + noise)
        group = " of a group" if self.by else ""
        told = f"rates{group} known to ±{100 * error:.2g} % (one standard error)"
        return self.make_expectation(
            {"logarithm of a rate": error},
            sigma,
            told,
            # Where one in ten has the event it is told all the same, if they are followed so long.
            answered=each / 10 >= (CLEAR + SURE) * sigma,
            possible=_HALF * time >= CLEAR * sigma,
            group=group,
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        blocks = sums.reshape(-1, 2)
        named = [
            _Rate(name, float(block[0]), float(block[1]), sigma)
            for name, block in zip(self._groups, blocks, strict=True)
        ]
        if self.by:
            events, time = map(float, blocks.sum(axis=0))
            named.insert(0, _Rate("", events, time, sigma * math.sqrt(len(blocks))))
        told = [one for one in named if one.clear >= 0]
        groups = [one for one in told if one.name or not self.by]
        few = [one.name for one in named if told and one not in told]
        return self.make_answer(
            "" if told else TOO_FEW,
            rows=(
                *(row for one in told for row in self._rows(one)),
                *(row for group in groups[1:] for row in self._ratio(group, groups[0])),
            ),
            tests=tuple(self._tests(groups)),
            notes=(
                f"records without {self.time.name}, {self.event.name} or group are left out",
                *(f"too few records of {name} for the noise" for name in few),
                *(
                    f"the rate of {one.name or 'all'} is not told: by its noise there may be next "
                    "to no time at risk, and no upper limit"
                    for one in told
                    if not self._is_limited(one)
                ),
            ),
        )

    def _rows(self, one: _Rate) -> list[Estimate]:
        """Events, time and the rate of a group."""
        z, unit = normal_quantile(self.confidence), self.horizon / _HALF
        rate, scale = one.interval(z), self.per / unit
        count = max(one.events, 0.0)
        time = unit * one.time
        common: dict[str, Any] = {"column": self.event.name, "group": one.name}
        return [
            Estimate(
                quantity="events",
                value=count,
                standard_error=one.sigma,
                low=max(count - z * one.sigma, 0.0),
                high=count + z * one.sigma,
                **common,
            ),
            Estimate(
                quantity="time at risk",
                value=time,
                standard_error=unit * one.sigma,
                low=time - z * unit * one.sigma,
                high=time + z * unit * one.sigma,
                **common,
            ),
            *[
                Estimate(
                    quantity=RATE,
                    value=scale * rate[0],
                    standard_error=scale * rate[1],
                    low=scale * rate[2],
                    high=scale * rate[3],
                    **common,
                )
            ][: self._is_limited(one)],
        ]

    def _is_limited(self, one: _Rate) -> bool:
        """Whether the interval of a rate has an upper end."""
        return one.interval(normal_quantile(self.confidence))[3] < _UNLIMITED

    def _ratio(self, one: _Rate, other: _Rate) -> list[Estimate]:
        """Of two rates, where both numbers of events stand clear of the noise."""
        if min(one.events, other.events) < CLEAR * one.sigma + 0.5:
            return []
        z = normal_quantile(self.confidence)
        logs, variances = zip(one.logarithm, other.logarithm, strict=True)
        effect, error = logs[0] - logs[1], math.sqrt(sum(variances))
        return [
            ratio_of(
                effect,
                error,
                z,
                quantity=RATE_RATIO,
                column=self.by.column.name if self.by else "",
                level=f"{one.name} against {other.name}",
            )
        ]

    def _tests(self, groups: list[_Rate]) -> list[NoisyTest]:
        """Whether groups have one rate: events less what their time explains."""
        from scipy.special import chdtrc  # which takes long to import

        if len(groups) < 2:
            return []
        events, time = np.array([(group.events, group.time) for group in groups]).T
        rate = max(float(events.sum() / time.sum()), 1e-12)
        part = time / time.sum()
        centred = np.eye(len(groups)) - np.outer(part, np.ones(len(groups)))
        own = np.maximum(rate * time, 0.0) + groups[-1].sigma ** 2 * (1.0 + rate**2)
        covariance = centred @ np.diag(own) @ centred.T
        excess, degrees = events - rate * time, len(groups) - 1
        statistic = float(excess[:-1] @ np.linalg.solve(covariance[:-1, :-1], excess[:-1]))
        p_value = float(chdtrc(degrees, statistic))
        return [
            NoisyTest(
                name="equal rates", statistic=statistic, degrees=float(degrees), p_value=p_value
            )
        ]

    @property
    def _groups(self) -> tuple[str, ...]:
        return self.by.names if self.by else ("",)


@dataclass(frozen=True)
class _Rate:
    """One group's noisy events and time, in parts of twice the horizon."""

    name: str
    events: float
    time: float
    sigma: float

    @property
    def clear(self) -> float:
        """How many standard deviations its time has above what is told."""
        return self.time / self.sigma - CLEAR

    def interval(self, z: float) -> tuple[float, float, float, float]:
        """Rate, standard error, and the ends of its interval."""
        wider = replace(self, sigma=self.sigma * float(caution(np.array(self.clear))))
        noise = wider.sigma**2
        events = max(self.events, 0.0)
        variance = (noise, max(self.time, 1.0), noise)
        rate = events / self.time
        low, high = ratio_interval(events, self.time, variance, z, (0.0, _UNLIMITED))
        return rate, math.sqrt(at(variance, rate)) / self.time, low, high

    @property
    def logarithm(self) -> tuple[float, float]:
        """Of its rate, without the mean of the noise's second order, and its variance."""
        wider = float(caution(np.array(self.events / self.sigma - CLEAR)))
        second = self.sigma**2 / 2.0 * (1.0 / self.events**2 - 1.0 / self.time**2)
        noise = (wider * self.sigma) ** 2 * (1.0 / self.events**2 + 1.0 / self.time**2)
        return math.log(self.events / self.time) + second, 1.0 / self.events + noise
