"""Scores of a table of noisy counts, each with an interval that knows sampling and noise.

A table has a row for each public bin of predictions and a column for each public outcome. A score
is a smooth function of its counts; where it is a ratio of two polynomials, its interval is
Fieller's: all values that the numerator less the value times the denominator does not contradict,
which holds where a plain standard error is no guide. Derivatives are exact (complex steps). Counts
are taken to vary as Poisson's, which is right for a function that does not change where all counts
are multiplied, and the noise has the same known standard deviation in each number that was sent:
a count itself, or one of a code's. This file knows neither models nor kinds of targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.estimation.risk_sets import PrefixCode
from hubbub.estimation.statistic import plain_values

Array = NDArray[np.float64]
# From (..., bins, outcomes), real or complex, to (...).
Function = Callable[[NDArray[Any]], NDArray[Any]]
_MOST_ODDS = 30.0  # a log-odds, beyond which a chance is 0 or 1
_STEP = 1e-100  # a complex step loses no digits
_Z = 1.959963984540054  # the normal law's quantile at .975
_HALVINGS = 50  # of a stretch in which an interval ends
_INNER = 0.02  # a share nearer to 0 or 1 is too near to tell by how much it varies
_UNLIKE = (0.8, 1.5)  # times the variance of a share by its law, at most, that the counts say
_CLEAR = 3.0  # standard deviations by which a denominator must stand above 0
_TWICE = 0.3  # of the noise of a score, the most that noise in both records of pairs may have
_FEWEST = 128  # groups of bins, whatever the noise
_REACH = 2.0  # standard deviations by which the records beyond a bin stand out from their noise


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Public bins of predictions or outcomes, and what each stands for; nothing is of records."""

    cuts: tuple[float, ...]  # inner edges, rising; a value equal to one belongs to the bin above
    values: tuple[float, ...]  # what each bin stands for, one more than there are cuts

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def points(self) -> Array:
        """(bins,) what each stands for."""
        return np.array(self.values)

    @property
    def log_odds(self) -> Array:
        """Of what bins of probabilities stand for."""
        return np.asarray(np.log(self.points / (1 - self.points)))

    @property
    def widths(self) -> Array:
        """(bins,) how wide each is; the outermost reach as far to both sides of their values."""
        ends = 2 * self.values[0] - self.cuts[0], 2 * self.values[-1] - self.cuts[-1]
        return np.diff([ends[0], *self.cuts, ends[1]])

    def paired(self, begin: int, middle: bool = False) -> tuple[Bins, NDArray[np.intp]]:
        """Bins from one on two by two, and the place of each of these in them.

        A pair stands for the edge within it, or for its `middle`.
        """
        starts = [*range(min(begin, len(self))), *range(begin, len(self), 2)]
        ends, pairs = np.concatenate([[0.0], self.widths.cumsum()]), pairwise([*starts, len(self)])
        lowest = 2 * self.values[0] - self.cuts[0]
        values = [
            self.values[a]
            if b - a == 1
            else lowest + (ends[a] + ends[b]) / 2
            if middle
            else self.cuts[a]
            for a, b in pairs
        ]
        cuts = tuple(self.cuts[start - 1] for start in starts[1:])
        places = np.searchsorted(starts, np.arange(len(self)), side="right") - 1
        return Bins(cuts=cuts, values=tuple(map(float, values))), places

    def places(self, values: Array) -> NDArray[np.intp]:
        """(n,) the bin of each value; what is no number is in the first."""
        numbers = np.nan_to_num(values, nan=-np.inf)
        return np.asarray(np.searchsorted(self.cuts, numbers, side="right"), dtype=np.intp)

    def even_places(self, values: Array) -> NDArray[np.intp]:
        """The same, but a value equal to every other cut, the first one on, is in the bin below.

        So a bin has both of its edges or none, and whole numbers lie evenly about its middle.
        """
        above = self.places(values)
        below = np.searchsorted(self.cuts, np.nan_to_num(values, nan=-np.inf), side="left")
        return np.where(below % 2 == 0, below, above).astype(np.intp)


def _between(at: Callable[[float], float], number: int) -> Bins:
    """So many bins whose edges are at whole places, and which stand for what is half-way."""
    return Bins(
        cuts=tuple(at(k) for k in range(1, number)),
        values=tuple(at(k + 0.5) for k in range(number)),
    )


def of_risks(number: int) -> Bins:
    """Of probabilities, narrow wherever a model's may lie: equal in the log-odds' inverse sinh.

    >>> [round(cut, 4) for cut in of_risks(6).cuts]
    [0.0005, 0.1382, 0.5, 0.8618, 0.9995]
    """
    reach = float(np.arcsinh(_MOST_ODDS))
    return _between(
        lambda k: float(1 / (1 + np.exp(-np.sinh(reach * (2 * k / number - 1))))), number
    )


def of_amounts(low: float, high: float, number: int) -> Bins:
    """Of equal width between bounds."""
    width = (high - low) / number
    return _between(lambda k: low + width * k, number)


def of_ratios(low: float, high: float, number: int) -> Bins:
    """Of equal ratios between bounds above 0, as amounts are spread whose logarithm is learned.

    >>> [round(value, 6) for value in of_ratios(1, 100, 2).values]
    [3.162278, 31.622777]
    """
    ratio = high / low
    return _between(lambda k: low * ratio ** (k / number), number)


def of_rates(high: float, number: int) -> Bins:
    """Of expected counts, of equal width in their roots."""
    return _between(lambda k: high * (k / number) ** 2, number)


def of_counts(high: float, number: int) -> Bins:
    """Of whole numbers from 0: each its own if they are few, else ranges, wider upwards."""
    last = int(high)
    if last < number:
        starts = list(range(last + 1))
    else:
        rough = [round(last * (k / number) ** 2) for k in range(number)]
        starts = sorted({0, 1, *rough})
    ends = [*(start - 1 for start in starts[1:]), last]
    return Bins(
        cuts=tuple(start - 0.5 for start in starts[1:]),
        values=tuple((a + b) / 2 for a, b in zip(starts, ends, strict=True)),
    )


def coarser(grid: Sequence[float], most: int) -> tuple[float, ...]:
    """At most so many times of a grid, evenly taken, the last among them.

    >>> coarser([1, 2, 3, 4, 5], 2)
    (3.0, 5.0)
    """
    count = min(most, len(grid))
    places = [-(-(k + 1) * len(grid) // count) - 1 for k in range(count)]
    return tuple(float(grid[place]) for place in places)


@lru_cache(maxsize=4)
def fine_code(number: int) -> PrefixCode:
    """By which the counts of so many bins are sent (docs/privacy.md P27)."""
    return PrefixCode(bins=number, power=0.5)


@dataclass(frozen=True, kw_only=True)
class ScoreInterval:
    """A score with its 95 % interval, whose ends are infinite where noise leaves all possible."""

    value: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Whether the interval says anything."""
        return bool(np.isfinite([self.value, self.low, self.high]).all())

    def within(self, low: float, high: float, *, wide: float | None = None) -> ScoreInterval:
        """The part of it from `low` to `high`; unknown if it is as `wide` as half of that.

        That is twice its longer side, of which nothing is cut off: were it what is left between the
        bounds, values near a bound alone would be told of noisy counts.
        """
        if not self.is_known:
            return UNKNOWN
        side = max(self.value - self.low, self.high - self.value)
        if 2.0 * side >= ((high - low) / 2 if wide is None else wide):
            return UNKNOWN
        value, *ends = (float(min(max(x, low), high)) for x in (self.value, self.low, self.high))
        return ScoreInterval(value=value, low=ends[0], high=ends[1])

    def less(self, null: float) -> ScoreInterval:
        """How far it is above another value."""
        return ScoreInterval(value=self.value - null, low=self.low - null, high=self.high - null)

    def allowing(self, other: ScoreInterval) -> ScoreInterval:
        """Wider on both sides by how far the other's value is from this one's."""
        far = abs(other.value - self.value)
        low, high = self.low - far, self.high + far
        return ScoreInterval(value=self.value, low=low, high=high) if np.isfinite(far) else UNKNOWN

    def root(self) -> ScoreInterval:
        """The root of a mean of squares; unknown where noise has left nothing of it."""
        if not self.is_known or self.value <= 0:
            return UNKNOWN
        value, low, high = (sqrt(max(x, 0.0)) for x in (self.value, self.low, self.high))
        return ScoreInterval(value=value, low=low, high=high)


UNKNOWN = ScoreInterval(value=float("nan"), low=float("-inf"), high=float("inf"))


class _Noisy(ABC):
    """Counts with noise, or sums of them, of which scores are made."""

    counts: Array

    @abstractmethod
    def covariance(self, a: Array, b: Array) -> float:
        """Of two sums of the counts with these weights, by sampling and noise."""

    def ratio(self, top: Function, bottom: Function) -> ScoreInterval:
        """A score that is `top` over `bottom`, which is positive of all counts without noise."""
        values = float(top(self.counts)), float(bottom(self.counts))
        return self.quotient(values, [gradient(part, self.counts) for part in (top, bottom)])

    def quotient(
        self, values: Sequence[float], slopes: Sequence[Array], more: float = 0.0
    ) -> ScoreInterval:
        """The same by two values and their derivatives; `more` noise is in what is above."""
        a, b = slopes
        # A covariance beyond what both variances allow is noise.
        aa, bb = self.covariance(a, a) + more**2, self.covariance(b, b)
        most = sqrt(aa * bb)
        above, below = values
        return fieller(above, below, aa, min(max(self.covariance(a, b), -most), most), bb)

    def smooth(self, function: Function) -> ScoreInterval:
        """Any other score: its value and 1.96 standard errors on either side."""
        with np.errstate(all="ignore"):
            value = float(np.real(function(self.counts)))
            slope = gradient(function, self.counts)
        return self.linear(value, slope)

    def linear(self, value: float, slope: Array) -> ScoreInterval:
        """A value with these derivatives."""
        if not np.isfinite(value) or not np.isfinite(slope).all():
            return UNKNOWN
        width = _Z * sqrt(self.covariance(slope, slope))
        return ScoreInterval(value=value, low=value - width, high=value + width)


@dataclass(frozen=True, kw_only=True)
class NoisyTable(_Noisy):
    """Counts of predictions by outcomes."""

    counts: Array = field(repr=False)  # (bins, outcomes), with noise; some may be below 0
    sigma: float  # standard deviation of the noise in each number that was sent
    # (bins, numbers) how the counts of an outcome follow from what was sent; None: they were sent.
    decoded: Array | None = field(default=None, repr=False)

    @property
    def records(self) -> float:
        """How many records there are, with noise."""
        return float(self.counts.sum())

    def range_errors(self, begin: ArrayLike, end: ArrayLike) -> Array:
        """The noise in the number of records of bins from one on and before another."""
        begin, end = np.asarray(begin), np.asarray(end)
        squares = np.asarray(end - begin, dtype=np.float64)
        if self.decoded is not None:
            totals = self._totals
            squares = totals[begin, begin] + totals[end, end] - 2 * totals[begin, end]
        return np.asarray(self.sigma * np.sqrt(self.counts.shape[1] * np.maximum(squares, 0.0)))

    @cached_property
    def _totals(self) -> Array:
        """(bins + 1, bins + 1) the covariance of running totals of one outcome, of noise of 1."""
        assert self.decoded is not None, "its counts are decoded"  # noqa: S101
        totals = np.vstack([np.zeros(self.decoded.shape[1]), self.decoded.cumsum(axis=0)])
        return np.asarray(totals @ totals.T)

    def covariance(self, a: Array, b: Array) -> float:
        """Of two weighted sums of counts, by sampling and noise.

        Counts that were sent themselves vary by what they are, never too little on average. Decoded
        ones have more noise than they count, whose sum cancels only where none is cut off at 0.
        """
        if self.decoded is None:
            return float(((np.maximum(self.counts, 0.0) + self.sigma**2) * a * b).sum())
        sampled = float((self.counts * a * b).sum())
        noise = self.sigma**2 * float(((a.T @ self.decoded) * (b.T @ self.decoded)).sum())
        return (max(sampled, 0.0) if a is b else sampled) + noise

    def noise(self, weights: Array) -> float:
        """The noise in a weighted sum of counts."""
        sent = weights if self.decoded is None else weights.T @ self.decoded
        return self.sigma * float(np.linalg.norm(sent))

    def part(self, bins: slice) -> NoisyTable:
        """The counts of some bins."""
        decoded = None if self.decoded is None else self.decoded[bins]
        return replace(self, counts=self.counts[bins], decoded=decoded)

    def together(self, number: int) -> NoisyTable:
        """With the counts of so many neighbouring bins added up each time."""
        starts = np.arange(0, len(self.counts), number)
        counts = np.add.reduceat(self.counts, starts, axis=0)
        decoded = None if self.decoded is None else np.add.reduceat(self.decoded, starts, axis=0)
        return replace(self, counts=counts, decoded=decoded)

    def share(
        self,
        values: Sequence[float],
        slopes: Sequence[Array],
        more: float,
        variance: Callable[[float, Array], float],
    ) -> ScoreInterval:
        """The interval of a share of pairs: all shares that the counts do not contradict.

        Its `variance` by sampling is that of the share which is tried, not of the one that was
        found: near 1 few pairs are ordered wrongly, by chance none, from which none is known.
        """
        (a, b), (above, below) = slopes, values
        records = self.counts.sum(axis=0)
        if below <= _CLEAR * sqrt(self.covariance(b, b)) or records.min() <= 1:
            return UNKNOWN
        first, second = self.noise(a) ** 2 + more**2, self.noise(b) ** 2
        both = (first - more**2 + second - self.noise(a - b) ** 2) / 2
        share = min(max(above / below, 0.0), 1.0)
        rest = a - share * b
        sampled = (self.covariance(rest, rest) - self.noise(rest) ** 2) / below**2
        usual = variance(min(max(share, _INNER), 1 - _INNER), records)
        unlike = min(max(sampled / usual, _UNLIKE[0]), _UNLIKE[1])

        def holds(tried: float) -> bool:
            noise = first - 2 * tried * both + tried**2 * second
            spread = noise + below**2 * unlike * variance(tried, records)
            return (above - tried * below) ** 2 <= _Z**2 * spread

        if not holds(share):
            return UNKNOWN
        low, high = (_last(holds, share, end) for end in (0.0, 1.0))
        return ScoreInterval(value=share, low=low, high=high)

    @property
    def pair_noise(self) -> float:
        """The noise in the pairs of two outcomes, of which one is foretold more, by noise alone.

        That is what is left where no record is, of second order beside what records make of it.
        """
        each = np.eye(len(self.counts)) if self.decoded is None else self.decoded
        below = each.cumsum(axis=0) - each / 2
        return self.sigma**2 * float(np.linalg.norm(each.T @ below))

    def sums(self, *weights: Array) -> WeightedSums:
        """Sums of counts, each with the weights of a (bins, outcomes)."""
        wide = np.array([np.broadcast_to(weight, self.counts.shape).T for weight in weights])
        sent = wide if self.decoded is None else wide.reshape(-1, wide.shape[-1]) @ self.decoded
        flat, noise = (part.reshape(len(wide), -1) for part in (wide, sent))
        counts = self.counts.T.ravel()
        sampled = np.maximum(counts, 0.0) if self.decoded is None else counts  # as in `covariance`
        return WeightedSums(
            counts=flat @ counts, varies=(flat * sampled) @ flat.T + self.sigma**2 * noise @ noise.T
        )


@dataclass(frozen=True, kw_only=True)
class WeightedSums(_Noisy):
    """A few weighted sums of a table's counts, and their covariance."""

    counts: Array
    varies: Array

    def covariance(self, a: Array, b: Array) -> float:
        """Of two weighted sums of them."""
        product = float(a @ self.varies @ b)
        return max(product, 0.0) if a is b else product


class ExactTable(NoisyTable):
    """Counts of so many records that no derivative, which takes long, is needed of a score."""

    def ratio(self, top: Function, bottom: Function) -> ScoreInterval:
        """The score alone."""
        value = float(top(self.counts) / bottom(self.counts))
        return ScoreInterval(value=value, low=value, high=value)


def gradient(function: Function, counts: Array) -> Array:
    """(bins, outcomes) the derivatives of a function of counts."""
    steps = np.eye(counts.size).reshape(-1, *counts.shape)
    with np.errstate(all="ignore"):
        return np.imag(function(counts + 1j * _STEP * steps)).reshape(counts.shape) / _STEP


def _last(holds: Callable[[float], bool], begin: float, end: float) -> float:
    """How far something holds on the way from a place where it does."""
    if holds(end):
        return end
    for _ in range(_HALVINGS):
        middle = (begin + end) / 2
        begin, end = (middle, end) if holds(middle) else (begin, middle)
    return begin


def fieller(above: float, below: float, aa: float, ab: float, bb: float) -> ScoreInterval:
    """The interval of a ratio of two uncertain numbers with these variances and covariance.

    >>> interval = fieller(10.0, 20.0, 1.0, 0.0, 0.0)
    >>> round(interval.low, 3), interval.value, round(interval.high, 3)
    (0.402, 0.5, 0.598)
    """
    # (above - r below)^2 <= z^2 (aa - 2 r ab + r^2 bb)
    square = below**2 - _Z**2 * bb
    middle = above * below - _Z**2 * ab
    rest = above**2 - _Z**2 * aa
    root = middle**2 - square * rest
    clear = below > _CLEAR * sqrt(bb)  # one that only just stands out may do so by its noise
    if not np.isfinite(root) or not clear or root < 0:
        return UNKNOWN
    low, high = (middle - sqrt(root)) / square, (middle + sqrt(root)) / square
    return ScoreInterval(value=above / below, low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class ValidationScore:
    """One score of a model beside that of one that knows nothing of a record."""

    name: str
    value: float
    low: float  # end of the 95 % interval, of sampling and noise together
    high: float
    null: float | None = None  # of the null model; None where it has no such score
    is_better: bool | None = None  # than the null model; None: not told from it


@dataclass(frozen=True, kw_only=True)
class ScoreCurve:
    """Points with 95 % intervals of y."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class ValidationScores:
    """All that one table says, the telling score first: None of what noise hides."""

    def __init__(
        self,
        *scores: ValidationScore | None,
        calibration: ScoreCurve | None = None,
        decisions: Sequence[ScoreCurve | None] = (),
    ) -> None:
        self.scores = tuple(filter(None, scores))
        self.calibration = calibration
        self.decisions = tuple(filter(None, decisions))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        drawn = self.calibration
        return {
            "scores": {score.name: plain_values(asdict(score)) for score in self.scores},
            "calibration": None if drawn is None else plain_values(asdict(drawn)),
            "decisions": [plain_values(asdict(decision)) for decision in self.decisions],
        }


def score(
    name: str,
    interval: ScoreInterval,
    *,
    null: float | None = None,
    gain: ScoreInterval | None = None,
) -> ValidationScore | None:
    """A score, if its interval says anything; `gain` is above 0 where it is better than `null`."""
    if not interval.is_known:
        return None
    better = None
    if gain is not None and gain.is_known and not gain.low <= 0 <= gain.high:
        better = gain.low > 0
    return ValidationScore(name=name, **asdict(interval), null=null, is_better=better)


def curve(name: str, points: list[tuple[float, ScoreInterval]]) -> ScoreCurve | None:
    """The points whose intervals say anything; None if there are none."""
    kept = [(x, part.value, part.low, part.high) for x, part in points if part.is_known]
    if not kept:
        return None
    x, y, low, high = zip(*kept, strict=True)
    return ScoreCurve(name=name, x=x, y=y, low=low, high=high)


def concordance(
    table: NoisyTable,
    counted: Sequence[Function],
    slopes: Callable[[Array], Sequence[Array]],
    *,
    kinds: int,
    most: int,
    variance: Callable[[float, Array], float] | None = None,
) -> ScoreInterval:
    """The share of pairs that are ordered alike, of neighbouring bins together.

    Noise in both records of a pair adds up over bins. So no more bins are told apart than leave it
    small, `most` at most. `counted` are the pairs that are ordered alike, and all of them, of so
    many `kinds` of outcomes; `variance` is by sampling, of a share and the records of each outcome.
    """
    interval, bins = UNKNOWN, len(table.counts)
    finest = max(bins // most, 1)  # of bins together
    # From coarse to fine, by halves, until the noise of pairs shows.
    number = coarsest = max(bins // _FEWEST, finest)
    while number >= finest:
        grouped = table.together(number)
        both, twice = slopes(grouped.counts), sqrt(kinds) * grouped.pair_noise
        if number < coarsest and twice > _TWICE * grouped.noise(both[0]):
            break
        values = [float(pairs(grouped.counts)) for pairs in counted]
        if variance is None:
            interval = grouped.quotient(values, both, twice)
        else:
            interval = grouped.share(values, both, twice, variance)
        number //= 2
    return interval


def fifths(table: NoisyTable, values: Array) -> list[tuple[float, slice]]:
    """Neighbouring bins together, and the mean of their values: a fifth of all records in each.

    Which bins are together follows from noisy counts, which are public.
    """
    rows = table.counts.sum(axis=1)
    before, starts = np.concatenate([[0.0], rows.cumsum()]), [0]
    while True:
        ends = np.arange(starts[-1] + 1, len(before))
        noise = table.range_errors(starts[-1], ends)
        # A fifth of the records, and so many that their noise does not make a group by itself.
        least = np.maximum(max(before[-1] / 5 * 0.999, 1.0), 4 * noise)
        full = ends[before[ends] - before[starts[-1]] >= least]
        if not len(full) or full[0] == len(rows):
            break
        starts.append(int(full[0]))
    if not len(full):  # what is left is too little, and goes to the group before
        starts.pop()
    groups = [slice(a, b) for a, b in pairwise([*starts, len(rows)])]
    means = [(rows[group] * values[group]).sum() / rows[group].sum() for group in groups]
    return [
        (float(np.clip(mean, *values[group][[0, -1]])), group)
        for mean, group in zip(means, groups, strict=True)
    ]


def within_reach(table: NoisyTable, values: Array) -> Array:
    """Rising values of bins, the same in all from which on noise hides whether there are records.

    Noise of bins that hold nobody counts by what they stand for, so extreme ones stand for less.
    """
    before = np.concatenate([[0.0], table.counts.sum(axis=1).cumsum()])
    places = np.arange(len(values))
    few_below = before[1:] <= _REACH * table.range_errors(0, places + 1)
    few_above = before[-1] - before[:-1] <= _REACH * table.range_errors(places, len(values))
    low = max(places[few_below], default=-1) + 1
    high = min(places[few_above], default=len(values)) - 1
    return np.clip(values, values[low], values[high]) if low < high else values
