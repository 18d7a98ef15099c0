"""Kaplan-Meier curves with bands and numbers at risk, and the log-rank test between groups.

Theory of operation. With D_k events in a bin and Y_k records at risk at its start, both linear in
the noisy sum, the cumulative hazard is H_t = sum_k<=t log Y_k - log(Y_k - D_k) and S = exp(-H). The
noise in H is linear in the noise of the sum, up to second order, whose mean is known and taken out.
An interval holds each h that lies within z standard deviations of the estimate, by its noise and
by the sampling variance that h itself would have (Greenwood's, in proportion): a score interval,
which needs no logarithm of an H that noise may have made negative. For times between edges the
curve is that of times rounded up to the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hubbub.estimation.asked_keys import StatisticKeys, grid_table
from hubbub.estimation.crosstab import quadratic_form
from hubbub.estimation.intervals import CLEAR, caution, count, normal_quantile
from hubbub.estimation.prefix_coding import rising
from hubbub.estimation.risk_sets import OnRiskSets, RiskSets
from hubbub.estimation.statistic import (
    Answer,
    Array,
    Cells,
    Curve,
    Estimate,
    Expectation,
    Levels,
    NoisyTest,
)
from hubbub.tabular import Column

_DRAWS = 2000  # of a band's simulation
_CLEAR = 8.0  # standard deviations of noise that survivors have while a curve goes on
_SEED = 1  # public: bands follow from the noisy sum alone

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

    kind = "survival"
    keys = ("time", "event", "by", "bins", "horizon", "test")
    if_noisy = "cut short or refused"

    @classmethod
    def read(cls, keys: StatisticKeys) -> Survival:
        """The statistic that a table of a study asks for."""
        by, test = keys.by(), keys.test(_TEST)
        if test and not by:
            raise keys.section.refusal("test", "absent without by, which says the groups", "add by")
        return cls(**keys.survived(_BINS), by=by, test=test, **keys.common)

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        groups = {"by": self.by.column.name} if self.by else {}
        tested = {"test": _TEST} if self.test else {}
        return {**grid_table(self.time, self.event, self.edges), **groups, **tested}

    def __post_init__(self) -> None:
        """Refuses a grid or an event that is none."""
        _ = self.sets

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        groups = f" by {self.by.column.name}" if self.by else ""
        return f"Survival: {self.event.name} over {self.time.name}{groups}"

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        everybody = np.zeros(len(cells[self.time.name]), dtype=np.int64)
        return self.sets.encode(cells, self.by.places(cells) if self.by else everybody)

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block.

        As if a third had the event by the horizon, a third left before it, and both evenly.
        """
        sets = replace(self.sets, groups=1)
        each = max(records / len(self._groups), 1.0)
        events = np.full(sets.bins, each / 3 / sets.bins)
        at_risk = each * (1.0 - 2 / 3 * np.arange(sets.bins + 1) / sets.bins)
        course = _Course(sets, events, at_risk, sigma)
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
        told = f"curve{group} known to {how}"
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=possible, group=group
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        blocks = sums.reshape(len(self._groups), self.sets.width)
        courses = [
            _Course(self.sets, self.sets.events @ one, self.sets.at_risk @ one, sigma)
            for one in blocks
        ]
        named = list(zip(self._groups, courses, strict=True))
        if self.by:
            named.insert(0, ("", _together(courses)))
        shown = [pair for pair in named if pair[1].length]
        cut = [name for name, one in shown if one.length < self.sets.bins]
        tested = self.test and len(blocks) > 1 and bool(named[0][1].length)
        return self.make_answer(
            "" if shown else "too few records at risk for the noise",
            rows=tuple(row for name, one in shown for row in self._rows(name, one)),
            curves=tuple(one.curve(name, self.confidence) for name, one in shown),
            tests=(log_rank(courses, sigma),) if tested else (),
            notes=(
                f"times are rounded up to the grid; records without {self.time.name}, "
                f"{self.event.name} or group are left out",
                *(f"{name or 'the curve'} ends where too few are at risk" for name in cut),
                *(
                    f"too few records of {name} for the noise"
                    for name in self._groups
                    if shown and name not in [one for one, _ in shown]
                ),
            ),
        )

    def _rows(self, name: str, course: _Course) -> list[Estimate]:
        z = normal_quantile(self.confidence)
        error = float(course.at_risk_errors[0] * course.wider[0])
        records = count(float(course.at_risk[0]), error, z)
        return [replace(records, group=name), *course.median(name, self.time.name, self.confidence)]

    @property
    def _groups(self) -> tuple[str, ...]:
        return self.by.names if self.by else ("",)

    @property
    def sets(self) -> RiskSets:
        """How its times are summed."""
        return RiskSets(
            time=self.time, event=self.event, edges=self.edges, groups=len(self._groups)
        )


@dataclass(frozen=True)
class _Course:
    """One group's noisy events and numbers at risk, and the curve that they give."""

    sets: RiskSets
    events: Array  # (bins,)
    at_risk: Array  # (bins + 1,)
    sigma: float

    @cached_property
    def length(self) -> int:
        """How many bins come before the first whose survivors do not stand out from the noise.

        A curve over less than a quarter of the grid is none: it would be there by luck.
        """
        length = self.bins_clear_of(_CLEAR)
        return length if 4 * length >= self.sets.bins else 0

    @cached_property
    def wider(self) -> Array:
        """(length,) how many times wider the noise is taken, as bins are told that are clear."""
        errors = self.sigma * np.linalg.norm(self._left, axis=1)
        clear = np.minimum.accumulate((self.at_risk[:-1] - self.events) / errors - _CLEAR)
        shown = min(-(-self.sets.bins // 4), self.length)  # are told together
        return caution(np.minimum(clear, clear[shown - 1])[: self.length])

    def bins_clear_of(self, deviations: float) -> int:
        """How many bins come before the first with fewer survivors than so much of their noise."""
        left = self.at_risk[:-1] - self.events
        noisy = left < deviations * self.sigma * np.linalg.norm(self._left, axis=1)
        return int(np.argmax(noisy)) if noisy.any() else self.sets.bins

    @cached_property
    def _left(self) -> Array:
        """Y - D as linear functions of the group's sum, (bins, width)."""
        return self.sets.at_risk[:-1] - self.sets.events

    @cached_property
    def hazard(self) -> Array:
        """(length,) cumulative, with the mean of the noise's second order taken out."""
        y, left = self._positive
        noise = [
            np.sum(rows[: self.length] ** 2, axis=1) * self.sigma**2
            for rows in (self.sets.at_risk, self._left)
        ]
        return np.cumsum(np.log(y / left) + 0.5 * (noise[0] / y**2 - noise[1] / left**2))

    @cached_property
    def _noise_rows(self) -> Array:
        """(length, width): the cumulative hazard's noise as linear functions of the sum's."""
        y, left = self._positive
        rows = self.sets.at_risk[: self.length] / y[:, None]
        return np.asarray(np.cumsum(rows - self._left[: self.length] / left[:, None], axis=0))

    @property
    def noise(self) -> Array:
        """(length,) variance of the cumulative hazard by noise."""
        return np.asarray((self.sigma * self.wider) ** 2 * np.sum(self._noise_rows**2, axis=1))

    @cached_property
    def greenwood(self) -> Array:
        """(length,) its sampling variance, after Greenwood."""
        y, left = self._positive
        return np.cumsum(np.maximum(self.events[: self.length], 0.0) / (y * left))

    @property
    def at_risk_errors(self) -> Array:
        """(bins + 1,) standard errors of the numbers at risk."""
        return np.asarray(self.sigma * np.linalg.norm(self.sets.at_risk, axis=1))

    @property
    def _positive(self) -> tuple[Array, Array]:
        """Y, and Y - D, before the curve ends."""
        y = self.at_risk[: self.length]
        left = (self.at_risk[:-1] - self.events)[: self.length]
        return np.maximum(y, left * 0.5), left

    def ends(self, z: float) -> tuple[Array, Array]:
        """Survival's lower and upper limits at z standard deviations, both non-increasing."""
        y, _ = self._positive
        risen = np.cumsum(np.maximum(self.events[: self.length], 0.0) / y)
        per_hazard = np.where(risen > 0, self.greenwood / np.maximum(risen, 1e-300), 1.0 / y)
        middle = self.hazard + z * z * per_hazard / 2
        root = np.sqrt(np.maximum(z * z * self.noise + middle**2 - self.hazard**2, 0.0))
        low, high = (np.exp(-np.maximum(middle + sign * root, 0.0)) for sign in (1, -1))
        return np.minimum.accumulate(low), np.maximum.accumulate(high[::-1])[::-1]

    def band_quantile(self, confidence: float) -> float:
        """How many standard deviations a band reaches that holds the whole curve."""
        rows = self._noise_rows * (self.sigma * self.wider)[:, None]
        covariance = rows @ rows.T + np.minimum.outer(self.greenwood, self.greenwood)
        errors = np.sqrt(np.diag(covariance))
        correlation = covariance / np.outer(errors, errors) + 1e-9 * np.eye(self.length)
        draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, self.length))
        widest = np.max(np.abs(draws @ np.linalg.cholesky(correlation).T), axis=1)
        return float(np.quantile(widest, confidence))

    def curve(self, name: str, confidence: float) -> Curve:
        """The curve up to where it ends."""
        hazard = rising(np.maximum(self.hazard, 0.0))
        low, high = self.ends(normal_quantile(confidence))
        band = self.ends(self.band_quantile(confidence))
        end = self.length + 1
        return Curve(
            name=name,
            x=self.sets.edges[:end],
            y=_from_one(np.exp(-hazard)),
            low=_from_one(low),
            high=_from_one(high),
            band_low=_from_one(band[0]),
            band_high=_from_one(band[1]),
            at_risk=tuple(map(float, np.maximum(self.at_risk[:end], 0.0))),
            at_risk_error=tuple(map(float, self.at_risk_errors[:end])),
        )

    def median(self, name: str, unit: str, confidence: float) -> list[Estimate]:
        """The median time, where the curve and its upper limit come down to one half."""
        curve = self.curve(name, confidence)
        low, middle, high = (
            np.flatnonzero(np.asarray(line) <= 0.5) for line in (curve.low, curve.y, curve.high)
        )
        if not len(middle):
            return []
        ends = curve.x[low[0] - 1], curve.x[high[0]] if len(high) else math.inf
        return [
            Estimate(
                quantity="median",
                column=unit,
                group=name,
                value=curve.x[middle[0]],
                standard_error=(ends[1] - ends[0]) / (2 * normal_quantile(confidence)),
                low=ends[0],
                high=ends[1],
            )
        ]


def _together(courses: list[_Course]) -> _Course:
    """All groups as one, with the noise of each."""
    return _Course(
        courses[0].sets,
        np.sum([course.events for course in courses], axis=0),
        np.sum([course.at_risk for course in courses], axis=0),
        courses[0].sigma * math.sqrt(len(courses)),
    )


class _Compared(NamedTuple):
    """The log-rank statistic of all groups but the last, and its covariance."""

    excess: Array
    covariance: Array


def log_rank(courses: list[_Course], sigma: float) -> NoisyTest:
    """The test that two groups or more have the same hazard in every bin."""
    from scipy.special import chdtrc  # which takes long to import

    found = _compared(courses, sigma)
    degrees = len(courses) - 1
    statistic = quadratic_form(found.excess, found.covariance, degrees)
    z = float(found.excess[0] / math.sqrt(found.covariance[0, 0]))
    return NoisyTest(
        name="log-rank",
        statistic=statistic,
        degrees=degrees,
        p_value=float(chdtrc(degrees, statistic)),
        z=z if degrees == 1 else None,
    )


def _compared(courses: list[_Course], sigma: float) -> _Compared:
    """Observed less expected events, over the bins in which enough are at risk in all."""
    sets, end = courses[0].sets, max(_together(courses).bins_clear_of(CLEAR), 1)
    events = np.array([course.events[:end] for course in courses])
    risk = np.array([course.at_risk[:end] for course in courses])
    total = risk.sum(axis=0)
    hazard = events.sum(axis=0) / total
    part = risk / total
    apart = np.eye(len(courses))[:, :, None] - part[:, None, :]  # of group g by what is in h
    rows = (apart @ sets.events[:end]) - (apart * hazard) @ sets.at_risk[:end]
    noise = sigma**2 * np.einsum("ghw,jhw->gj", rows, rows)
    each = np.maximum(hazard, 0.0) * (total - events.sum(axis=0)) / (total - 1.0) * total
    shared = np.clip(part, 0.0, 1.0)
    drawn = np.diag(shared @ each) - (shared * each) @ shared.T
    excess = (events - risk * hazard).sum(axis=1)
    return _Compared(excess=excess[:-1], covariance=(noise + drawn)[:-1, :-1])


def _from_one(after: Array) -> tuple[float, ...]:
    return (1.0, *map(float, after))
