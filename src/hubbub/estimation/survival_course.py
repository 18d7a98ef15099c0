"""The curve of survival that a noisy sum of events and numbers at risk gives, with its band.

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

from hubbub.core.tabular.levels import Array
from hubbub.estimation import intervals
from hubbub.estimation.risk_sets import RiskSets, rising, rising_limits
from hubbub.estimation.statistic import Curve, Estimate

_DRAWS = 2000  # of a band's simulation
_CLEAR = 8.0  # standard deviations of noise that survivors have while a curve goes on
_FOLLOWED = 0.05  # of records that have a time, to the horizon where they are skewed
_INSIDE = 32  # parts of a bin in which it is looked through
_STEEPEST, _POWERS = 2.5, (0.2, 4.0)  # of what bins tell of the hazard inside
_MOST = 3.0  # of the deviation of a hazard in a bin
_NO_LINE = 1 / 8  # of the square of a hazard's slope: what a line leaves of one so steep
_SEED = 1  # public: bands follow from the noisy sum alone


@dataclass(frozen=True)
class SurvivalCourse:
    """One group's noisy sum, and the curve that it gives.

    Args:
        sets: how its times are summed, numbers at risk counted.
        sums: (width,) noisy.
        sigma: standard deviation of the noise in each number of the sum.
    """

    sets: RiskSets
    sums: Array
    sigma: float

    @classmethod
    def guess(
        cls, sets: RiskSets, records: float, sigma: float, *, skewed: bool = False
    ) -> SurvivalCourse:
        """As if a third had the event by the horizon, a third left before it, and both evenly.

        Skewed: as if one in five lacked a cell and of the others all but `_FOLLOWED` had it by the
        horizon, most of them early.
        """
        entered, places = records * sets.entered, np.arange(sets.bins + 1) / sets.bins
        part = intervals.COMPLETE * _FOLLOWED**places if skewed else 1.0 - 2 / 3 * places
        events = entered[:-1] * -np.diff(part) / (1 if skewed else 2)
        return cls(sets, sets.coded(events, entered * part), sigma)

    @classmethod
    def together(cls, courses: Sequence[SurvivalCourse]) -> SurvivalCourse:
        """All groups as one, with the noise of each."""
        sums = np.sum([course.sums for course in courses], axis=0)
        return cls(courses[0].sets, sums, courses[0].sigma * math.sqrt(len(courses)))

    @cached_property
    def events(self) -> Array:
        """(bins,) of all kinds."""
        return np.asarray(self.sets.events @ self.sums)

    @cached_property
    def by_kind(self) -> Array:
        """(causes, bins) events of each kind."""
        kinds = range(self.sets.causes)
        return np.array([self.sets.events_of(cause) @ self.sums for cause in kinds])

    @cached_property
    def exposed(self) -> Array:
        """(bins + 1,) at risk in each bin, who left in it in part, and at the horizon."""
        return np.asarray(self.sets.exposed @ self.sums)

    @cached_property
    def partly(self) -> Array:
        """(bins,) sums of 2 u (1 - u) over who left after a part u of each bin."""
        return np.asarray(self.sets.partly @ self.sums)

    @cached_property
    def inside(self) -> Array:
        """(bins,) the sums of 2 u (1 - u) of who left and of who entered, together."""
        return np.asarray(np.abs(self.sets.partly) @ self.sums)

    @cached_property
    def entered(self) -> Array:
        """(bins,) Y: at risk in each bin, of who left in it what could have had its events.

        The noise that the second part adds is below a hundredth of the first's: it counts h / 4
        times.
        """
        whole = self.exposed[:-1]
        if not self.partly.any():
            return whole
        return np.asarray(whole - (self._within + self._slopes[0]) / 4 * self.partly)

    @cached_property
    def _within(self) -> Array:
        """(bins,) hazard as if who left in a bin was at risk for the part before."""
        whole = np.maximum(self.exposed[:-1], 1.0)
        return np.asarray(-np.log1p(-np.clip(self.events / whole, 0.0, 0.95)))

    @cached_property
    def _slopes(self) -> tuple[Array, Array]:
        """(bins,) by what part of itself the hazard rises from the start of each bin to its end.

        A line with it has as many events early in the bin as the interpolation. It is shrunk by the
        noise and the chance in the bins around. The second is the variance that this leaves: 1 at
        most, as hardly any hazard changes by more, and what a line says wrongly of a steep one.
        """
        noise = self.sigma**2 * np.sum(self.sets.events**2, axis=1)
        drawn = (np.maximum(self.events, 0.0) + noise) / np.maximum(self.exposed[:-1], 1.0) ** 2
        moved = self._within + np.diag(np.minimum(np.sqrt(drawn), _MOST))  # by each in turn
        slope, *others = _steepness(self.sets.ticks, np.vstack([self._within, moved]))
        doubt = np.sum((np.array(others) - slope) ** 2, axis=0)
        kept = slope**2 / np.maximum(slope**2 + doubt, 1e-300)
        limited = np.clip(slope, -_STEEPEST, _STEEPEST)
        return limited * kept, doubt / (1.0 + doubt) + (_NO_LINE * limited**2) ** 2

    @cached_property
    def length(self) -> int:
        """How many bins come before the first whose survivors do not stand out from the noise.

        One bin is no curve unless it is a quarter of the grid: nothing beside it says how the
        hazard changes inside it.
        """
        length = self.bins_clear_of()
        return length if length >= self._least else 0

    @property
    def _least(self) -> int:
        """How many bins a curve has at least."""
        return min(-(-self.sets.bins // 4), 2)

    @cached_property
    def wider(self) -> Array:
        """(length,) how many times wider noise and chance are taken, as only clear bins are told.

        Both lead to more survivors than there should be where a bin is the last that is told.
        """
        errors = self.sigma * np.linalg.norm(self._left, axis=1)
        left = self.entered - self.events
        drawn = np.maximum(left * self.events / np.maximum(self.entered, 1.0), 0.0)
        clear = np.minimum.accumulate((left - _CLEAR * errors) / np.sqrt(errors**2 + drawn))
        shown = min(self._least, self.length)  # are told together
        return intervals.caution(np.minimum(clear, clear[shown - 1])[: self.length])

    def bins_clear_of(self, deviations: float = _CLEAR) -> int:
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

    @classmethod
    def promised(cls, sets: RiskSets, records: float, sigma: float) -> bool:
        """Whether there will be a curve: to the horizon as guessed, cut short if skewed."""
        goes, least = (
            cls.guess(sets, records, sigma, skewed=skewed).bins_clear_of(_CLEAR + intervals.SURE)
            for skewed in (False, True)
        )
        return goes == sets.bins and 4 * least >= sets.bins

    def tells(self, time: float) -> bool:
        """Whether it goes as far; a whole one goes to the horizon, also between two steps."""
        return self.length == self.sets.bins or time <= self.sets.grid[self.length]

    @cached_property
    def covariance(self) -> Array:
        """(length, length) of the cumulative hazard, by noise, sampling and the doubt of slopes."""
        end, (y, left) = self.length, self._positive
        # Its noise as linear functions of the sum's, (length, width).
        rows = self.sets.exposed[:end] / y[:, None]
        rows = np.cumsum(rows - self._left[:end] / left[:, None], axis=0)
        rows = rows * (self.sigma * self.wider)[:, None]
        # How the hazard may change inside bins.
        hazard = np.log(y / left)
        rough = roughness(self.sets.ticks[: end + 1], hazard) ** 2 + self._slopes[1][:end]
        inside = np.maximum(self.inside[:end], 0.0) / 4
        drawn = self.greenwood + np.cumsum(rough * (hazard * inside / y) ** 2)
        return np.asarray(rows @ rows.T + np.minimum.outer(drawn, drawn))

    @cached_property
    def greenwood(self) -> Array:
        """(length,) its sampling variance, after Greenwood, of the last bins with caution."""
        y, left = self._positive
        return np.cumsum(self.wider**2 * np.maximum(self.events[: self.length], 0.0) / (y * left))

    @property
    def at_risk_errors(self) -> Array:
        """(bins + 1,) standard errors of the numbers at risk.

        Where in a bin each one left adds 2 / 15, the variance of 1 - u - 3 u (1 - u).
        """
        inside = np.pad(np.maximum(self.inside[1:], 0.0), 1) * (3 * 2 / 15)
        noise = np.sum(self.sets.at_risk**2, axis=1)
        return np.asarray(np.sqrt(self.sigma**2 * noise + inside))

    def counted(self, name: str, z: float) -> Estimate:
        """How many records a group of this name has, whenever they were observed."""
        row = self.sets.records
        error = float(self.sigma * self.wider[0] * np.linalg.norm(row))
        return intervals.count(float(row @ self.sums), error, z, group=name)

    def told_at_risk(self) -> dict[str, tuple[float, ...]]:
        """Numbers at risk just after each edge up to where it ends, and their errors."""
        end = self.length + 1
        counts = np.maximum((self.sets.at_risk @ self.sums)[:end], 0.0)
        errors = self.at_risk_errors[:end]
        return {"at_risk": tuple(counts.tolist()), "at_risk_error": tuple(errors.tolist())}

    @property
    def _positive(self) -> tuple[Array, Array]:
        """Y, and Y - D, before the curve ends."""
        y = self.entered[: self.length]
        left = y - self.events[: self.length]
        return np.maximum(y, left * 0.5), left

    @property
    def survived(self) -> Array:
        """(length,) the share without the event at the end of each bin, made to fall."""
        return np.asarray(np.exp(-np.maximum(rising(self.hazard), 0.0)))

    def ends(self, z: float) -> tuple[Array, Array]:
        """Survival's lower and upper limits at z standard deviations, both non-increasing."""
        y, _ = self._positive
        risen = np.cumsum(np.maximum(self.events[: self.length], 0.0) / y)
        per_hazard = np.where(risen > 0, self.greenwood / np.maximum(risen, 1e-300), 1.0 / y)
        variance = np.diag(self.covariance)
        noise = variance - self.greenwood
        limits = rising_limits(self.hazard, per_hazard, noise, variance, z)
        # Made no less than 0 last: what is pooled would be above 0 for one limit that is.
        high, low = (np.exp(-np.maximum(limit, 0.0)) for limit in limits)
        return intervals.around(self.survived, low, high)

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
        low, high = self.ends(intervals.normal_quantile(confidence))
        band = self.ends(self.band_quantile(confidence))
        return Curve(
            name=name,
            column=self.sets.time.name,
            x=self.sets.grid[: self.length + 1],
            y=from_one(self.survived),
            low=from_one(low),
            high=from_one(high),
            band_low=from_one(band[0]),
            band_high=from_one(band[1]),
            **self.told_at_risk(),
        )


def interpolated(edges: Array, hazard: Array) -> Array:
    """(..., bins, _INSIDE + 1) cumulative hazard at even places of each bin, its edges among them.

    Args:
        edges: (bins + 1,) of two bins or more.
        hazard: (..., bins) that each adds; below a billionth counts as that.
    """
    from scipy.interpolate import PchipInterpolator  # which takes long to import

    places = np.linspace(edges[:-1], edges[1:], _INSIDE + 1, axis=1) - edges[0]
    ends, whole = edges[1:] - edges[0], np.cumsum(np.maximum(hazard, 1e-9), axis=-1)
    if len(ends) < 2:
        return np.asarray(whole[..., None] * places / ends[:, None])
    powers = PchipInterpolator(np.log(ends), np.log(whole), axis=-1)
    inside = np.exp(powers(np.log(np.maximum(places, ends[0]))))
    power = np.clip(powers(np.log(ends[0]), 1), *_POWERS)[..., None]
    inside[..., 0, :] = whole[..., :1] * (places[0] / ends[0]) ** power
    return np.asarray(inside)


def _steepness(edges: Array, hazard: Array) -> Array:
    """(..., bins) the line's rise, over the hazard, that has as many events early in each bin."""
    inside = interpolated(edges, hazard)
    passed = (inside - inside[..., :1]) / (inside[..., -1:] - inside[..., :1])
    return np.asarray(12.0 * (0.5 - np.trapezoid(passed, dx=1 / _INSIDE, axis=-1)))


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
