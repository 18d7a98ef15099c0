"""One group's noisy events and numbers at risk, and the survival curve that they give.

Theory of operation. With D_k events in a bin and Y_k records at risk in it, all linear in the noisy
sum, the cumulative hazard at the edges is H_t = sum_k<=t log Y_k - log(Y_k - D_k) and S = exp(-H).
Who left after a part u of a bin with the hazard h is at risk for u of it, less what makes that the
right share of the bin's events: of those it could not have (1 - exp(-h (1 - u))) / (1 - exp(-h)),
which is 1 - u + h u (1 - u) / 2 but for h squared. Where the hazard changes inside the bin by the
part s of itself, s stands beside h: it is read off the bins around, as far as it is clear of noise.
Between edges the cumulative hazard is interpolated in powers of the time since the first edge, as
hazards rise and fall (a Weibull law's is one power), and so that it never falls. Where the power
changes from bin to bin the hazard may as well change inside: so much doubt of s is in the variance.

The noise in H is linear in the noise of the sum, up to second order, whose mean is known and taken
out. An interval holds each h that lies within z standard deviations of the estimate, by its noise
and by the sampling variance that h itself would have (Greenwood's, in proportion): a score
interval, which needs no logarithm of an H that noise may have made negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubbub.estimation.intervals import caution, normal_quantile
from hubbub.estimation.prefix_coding import rising
from hubbub.estimation.risk_sets import RiskSets
from hubbub.estimation.statistic import Array, Curve

_DRAWS = 2000  # of a band's simulation
_CLEAR = 8.0  # standard deviations of noise that survivors have while a curve goes on
_INSIDE = 32  # parts of a bin in which it is looked through
_STEEPEST, _POWERS = 2.5, (0.2, 4.0)  # of what bins tell of the hazard inside
_SEED = 1  # public: bands follow from the noisy sum alone


@dataclass(frozen=True, kw_only=True)
class SurvivalCourse:
    """One group's noisy events and numbers at risk, and the curve that they give.

    Args:
        sets: how its times are summed, numbers at risk counted.
        events: (bins,).
        exposed: (bins + 1,) at risk in each bin, who left in it in part, and at the horizon.
        partly: (bins,) sums of 2 u (1 - u) over who left after a part u of each bin.
        at_risk: (bins + 1,) just after each edge.
        inside: (bins,) the sums of 2 u (1 - u) of who left and of who entered, together.
        records: all of them, whenever they were observed.
        sigma: standard deviation of the noise in each number of the sum.
    """

    sets: RiskSets
    events: Array
    exposed: Array
    partly: Array
    at_risk: Array
    inside: Array
    records: float
    sigma: float

    @classmethod
    def of(cls, sets: RiskSets, sums: Array, sigma: float) -> SurvivalCourse:
        """From one group's noisy sum, (width,)."""
        return cls(
            sets=sets,
            events=sets.events @ sums,
            exposed=sets.exposed @ sums,
            partly=sets.partly @ sums,
            at_risk=sets.at_risk @ sums,
            inside=np.abs(sets.partly) @ sums,
            records=float(sets.records @ sums),
            sigma=sigma,
        )

    @classmethod
    def guess(cls, sets: RiskSets, records: float, sigma: float) -> SurvivalCourse:
        """As if a third had the event by the horizon, a third left before it, and both evenly."""
        entered = records * sets.entered
        at_risk = entered * (1.0 - 2 / 3 * np.arange(sets.bins + 1) / sets.bins)
        return cls(
            sets=sets,
            events=entered[:-1] / 3 / sets.bins,
            exposed=at_risk,
            partly=np.zeros(sets.bins),
            at_risk=at_risk,
            inside=np.zeros(sets.bins),
            records=records,
            sigma=sigma,
        )

    @classmethod
    def together(cls, courses: Sequence[SurvivalCourse]) -> SurvivalCourse:
        """All groups as one, with the noise of each."""
        return cls(
            sets=courses[0].sets,
            events=np.sum([course.events for course in courses], axis=0),
            exposed=np.sum([course.exposed for course in courses], axis=0),
            partly=np.sum([course.partly for course in courses], axis=0),
            at_risk=np.sum([course.at_risk for course in courses], axis=0),
            inside=np.sum([course.inside for course in courses], axis=0),
            records=sum(course.records for course in courses),
            sigma=courses[0].sigma * math.sqrt(len(courses)),
        )

    @cached_property
    def entered(self) -> Array:
        """(bins,) Y: at risk in each bin, of who left in it what could have had its events.

        The noise that the second part adds is below a hundredth of the first's: it counts h / 4
        times.
        """
        whole = self.exposed[:-1]
        if not self.partly.any():
            return whole
        hazard = -np.log1p(-np.clip(self.events / np.maximum(whole, 1.0), 0.0, 0.95))
        return np.asarray(whole - (hazard + self._slope(hazard)) / 4 * self.partly)

    def _slope(self, hazard: Array) -> Array:
        """(bins,) by what part of itself the hazard rises from the start of each bin to its end.

        A line with it has as many events early in the bin as the interpolation. It is shrunk by the
        noise and the chance in the bins beside.
        """
        edges = self.sets.ticks
        width, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
        inside = interpolated(edges, hazard)
        passed = (inside - inside[:, :1]) / (inside[:, -1:] - inside[:, :1])
        slope = 12.0 * (0.5 - np.trapezoid(passed, dx=1 / _INSIDE, axis=1))
        noise = self.sigma**2 * np.sum(self.sets.events**2, axis=1)
        drawn = (np.maximum(self.events, 0.0) + noise) / np.maximum(self.exposed[:-1], 1.0) ** 2
        last = len(width) - 1
        before, after = (
            np.maximum(np.arange(last + 1) - 1, 0),
            np.minimum(np.arange(1, last + 2), last),
        )
        rates, apart = drawn / width**2, middle[after] - middle[before]
        doubt = width**4 * (rates[after] + rates[before]) / (apart * np.maximum(hazard, 1e-12)) ** 2
        limited = np.clip(slope, -_STEEPEST, _STEEPEST)
        return np.asarray(limited * slope**2 / np.maximum(slope**2 + doubt, 1e-300))

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
        clear = np.minimum.accumulate((self.entered - self.events) / errors - _CLEAR)
        shown = min(-(-self.sets.bins // 4), self.length)  # are told together
        return caution(np.minimum(clear, clear[shown - 1])[: self.length])

    def bins_clear_of(self, deviations: float) -> int:
        """How many bins come before the first with fewer survivors than so much of their noise."""
        left = self.entered - self.events
        noisy = left < deviations * self.sigma * np.linalg.norm(self._left, axis=1)
        return int(np.argmax(noisy)) if noisy.any() else self.sets.bins

    @cached_property
    def _left(self) -> Array:
        """Y - D as linear functions of the group's sum, (bins, width)."""
        return self.sets.exposed[:-1] - self.sets.events

    @cached_property
    def hazard(self) -> Array:
        """(length,) cumulative, with the mean of the noise's second order taken out."""
        y, left = self._positive
        noise = [
            np.sum(rows[: self.length] ** 2, axis=1) * self.sigma**2
            for rows in (self.sets.exposed, self._left)
        ]
        return np.cumsum(np.log(y / left) + 0.5 * (noise[0] / y**2 - noise[1] / left**2))

    @cached_property
    def _noise_rows(self) -> Array:
        """(length, width): the cumulative hazard's noise as linear functions of the sum's."""
        y, left = self._positive
        rows = self.sets.exposed[: self.length] / y[:, None]
        return np.asarray(np.cumsum(rows - self._left[: self.length] / left[:, None], axis=0))

    @property
    def end(self) -> float:
        """Until when it is told."""
        return self.sets.grid[self.length]

    def tells(self, time: float) -> bool:
        """Whether it goes as far; a whole one goes to the horizon, also between two steps."""
        return self.length == self.sets.bins or time <= self.end

    @property
    def covariance(self) -> Array:
        """(length, length) of the cumulative hazard, by noise, sampling and the doubt of slopes."""
        rows = self._noise_rows * (self.sigma * self.wider)[:, None]
        drawn = self.greenwood + self._doubt
        return np.asarray(rows @ rows.T + np.minimum.outer(drawn, drawn))

    @property
    def noise(self) -> Array:
        """(length,) variance of the cumulative hazard by noise, and by the doubt of slopes."""
        noise = (self.sigma * self.wider) ** 2 * np.sum(self._noise_rows**2, axis=1)
        return np.asarray(noise + self._doubt)

    @cached_property
    def _doubt(self) -> Array:
        """(length,) variance of the cumulative hazard by how the hazard may change inside bins."""
        end, (y, left) = self.length, self._positive
        hazard = np.log(y / left)
        rough = roughness(self.sets.ticks[: end + 1], hazard)
        inside = np.maximum(self.inside[:end], 0.0) / 4
        return np.cumsum((hazard * rough * inside / y) ** 2)

    @cached_property
    def greenwood(self) -> Array:
        """(length,) its sampling variance, after Greenwood."""
        y, left = self._positive
        return np.cumsum(np.maximum(self.events[: self.length], 0.0) / (y * left))

    @property
    def at_risk_errors(self) -> Array:
        """(bins + 1,) standard errors of the numbers at risk.

        Where in a bin each one left adds 2 / 15, the variance of 1 - u - 3 u (1 - u).
        """
        inside = np.pad(np.maximum(self.inside[1:], 0.0), 1) * (3 * 2 / 15)
        noise = np.sum(self.sets.at_risk**2, axis=1)
        return np.asarray(np.sqrt(self.sigma**2 * noise + inside))

    @property
    def records_error(self) -> float:
        """Standard error of the number of records, by noise."""
        return float(self.sigma * self.wider[0] * np.linalg.norm(self.sets.records))

    @property
    def _positive(self) -> tuple[Array, Array]:
        """Y, and Y - D, before the curve ends."""
        y = self.entered[: self.length]
        left = y - self.events[: self.length]
        return np.maximum(y, left * 0.5), left

    @property
    def survived(self) -> Array:
        """(length,) the share without the event at the end of each bin, made to fall."""
        return np.asarray(np.exp(-rising(np.maximum(self.hazard, 0.0))))

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
        covariance = self.covariance
        errors = np.sqrt(np.diag(covariance))
        correlation = covariance / np.outer(errors, errors) + 1e-9 * np.eye(self.length)
        draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, self.length))
        widest = np.max(np.abs(draws @ np.linalg.cholesky(correlation).T), axis=1)
        return float(np.quantile(widest, confidence))

    def curve(self, name: str, confidence: float) -> Curve:
        """The curve up to where it ends."""
        low, high = self.ends(normal_quantile(confidence))
        band = self.ends(self.band_quantile(confidence))
        end = self.length + 1
        return Curve(
            name=name,
            column=self.sets.time.name,
            x=self.sets.grid[:end],
            y=from_one(self.survived),
            low=from_one(low),
            high=from_one(high),
            band_low=from_one(band[0]),
            band_high=from_one(band[1]),
            at_risk=tuple(map(float, np.maximum(self.at_risk[:end], 0.0))),
            at_risk_error=tuple(map(float, self.at_risk_errors[:end])),
        )


def interpolated(edges: Array, hazard: Array) -> Array:
    """(bins, _INSIDE + 1) cumulative hazard at even places of each bin, its edges among them.

    Args:
        edges: (bins + 1,) of two bins or more.
        hazard: (bins,) that each adds; below a billionth counts as that.
    """
    from scipy.interpolate import PchipInterpolator  # which takes long to import

    places = np.linspace(edges[:-1], edges[1:], _INSIDE + 1, axis=1) - edges[0]
    ends, whole = edges[1:] - edges[0], np.cumsum(np.maximum(hazard, 1e-9))
    if len(ends) < 2:
        return np.asarray(whole[:, None] * places / ends[:, None])
    powers = PchipInterpolator(np.log(ends), np.log(whole))
    inside = np.exp(powers(np.log(np.maximum(places, ends[0]))))
    power = min(max(float(powers(np.log(ends[0]), 1)), _POWERS[0]), _POWERS[1])
    inside[0] = whole[0] * (places[0] / ends[0]) ** power
    return np.asarray(inside)


def roughness(edges: Array, hazard: Array) -> Array:
    """(bins,) doubt of by what part of itself a hazard rises in each bin, from powers that change.

    A cumulative hazard that grows with the power p of time has a hazard that changes in a bin by
    p - 1 of the bin's width over its middle.
    """
    ends, whole = edges[1:] - edges[0], np.cumsum(np.maximum(hazard, 1e-9))
    if len(ends) < 3:
        return np.zeros(len(ends))
    changes = np.abs(np.diff(np.diff(np.log(whole)) / np.diff(np.log(ends))))  # at inner edges
    at_edges = np.concatenate([changes[:1], changes[:1], changes, changes[-1:]])
    middle = ends - np.diff(edges) / 2
    return np.asarray(np.maximum(at_edges[:-1], at_edges[1:]) * np.diff(edges) / middle)


def from_one(after: Array) -> tuple[float, ...]:
    """A curve after each bin, with the 1 before the first."""
    return (1.0, *map(float, after))
