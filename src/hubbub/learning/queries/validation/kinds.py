"""What a validation counts and says, by the kind of target: risks, times, classes, amounts, counts."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.risk_sets import PrefixCode
from hubbub.learning.queries.validation.noisy_table import (
    UNKNOWN,
    Array,
    Bins,
    Function,
    NoisySums,
    NoisyTable,
    ScoreCurve,
    ScoreInterval,
    ValidationScore,
    ValidationScores,
    concordance,
    curve,
    fifths,
    fine_code,
    gradient,
    known,
    score,
    within_reach,
)

# Two classes: AUC, Brier score, calibration and decision curve of risks in fine bins.
#
# Where the chances of a model lie nobody knows before it is asked. So the bins are many and narrow
# everywhere, which their code makes cheap: what is summed up over many of them has little noise.

_THRESHOLDS, _APART = (0.002, 0.95), 12  # from where to where, and every so many edges
RATE = 0.25  # of the second class, where nobody says
_USUAL = 0.6745  # the normal law's quantile at a usual AUC, .75
_FIRST, _SECOND, _BOTH = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.ones(2)
_WIDE = 6.0  # an interval of a slope that says nothing: 1 is ideal
_MOST_STEPS = 50  # of Newton's, for the slope
_FLAT, _CLEAR = 1e-9, 3.0  # of the information: none, and how far it must stand above its noise


@dataclass(frozen=True, kw_only=True)
class Risks:
    """The chance of the second class, in fine bins, by what came.

    Args:
        bins: of the chance.
        rate: share of the records that has the second class, as far as anybody knows.
    """

    bins: Bins
    rate: float = RATE

    @property
    def code(self) -> PrefixCode:
        """Running totals of fine bins have little noise, wherever the chances lie."""
        return fine_code(len(self.bins))

    @property
    def outcomes(self) -> int:
        """The first class, and the second."""
        return 2

    @property
    def predictions(self) -> int:
        """Bins of the chance."""
        return len(self.bins)

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the bin and the class of each record."""
        chance = predicted if predicted.ndim == 1 else predicted[:, -1]
        return self.bins.places(chance), (targets > 0.5).astype(np.intp)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """All that there is to say."""
        return ValidationScores(
            scores=known(
                self._auc(table), self._brier(table), self._gap(table), self._slope(table)
            ),
            calibration=self._calibration(table),
            decisions=tuple(filter(None, self._decisions(table))),
        )

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: calibrated, with an AUC of .75."""
        odds = self.bins.log_odds
        # Normal log-odds of both classes are calibrated where their means are a variance apart, and
        # the lower one is half of it below that of the rate.
        spread = sqrt(2.0) * _USUAL
        lower = log(self.rate / (1 - self.rate)) - spread**2 / 2
        found = []
        for share, middle in ((1 - self.rate, lower), (self.rate, lower + spread**2)):
            rows = np.gradient(odds) * np.exp(-0.5 * ((odds - middle) / spread) ** 2)
            found.append(records * share * rows / rows.sum())
        return np.column_stack(found)

    def _auc(self, table: NoisyTable) -> ValidationScore | None:
        interval = concordance(table, (_ranked, _pairs), _slopes, kinds=1, most=len(self.bins))
        return score("auc", interval.within(0.0, 1.0), null=0.5, gain=interval.less(0.5))

    def _brier(self, table: NoisyTable) -> ValidationScore | None:
        chance = np.array(self.bins.values)
        squares = np.column_stack([chance**2, (1 - chance) ** 2])
        sums = table.sums(squares, _FIRST, _SECOND)

        def records(n: Array) -> Array:
            return np.asarray(n[..., 1] + n[..., 2])

        def pairs(n: Array) -> Array:
            return np.asarray(n[..., 1] * n[..., 2])

        interval = sums.ratio(_place(0), records)
        gain = sums.ratio(lambda n: pairs(n) - n[..., 0] * records(n), pairs)
        share = float(np.clip(sums.ratio(_place(2), records).value, 0.0, 1.0))
        return score("brier", interval.within(0.0, 1.0), null=share * (1 - share), gain=gain)

    def _gap(self, table: NoisyTable) -> ValidationScore | None:
        """Mean chance less the share that had the outcome."""
        found = table.sums(np.array(self.bins.values)[:, None] - _SECOND, _BOTH).ratio(
            _place(0), _place(1)
        )
        return score("calibration_gap", found.within(-1.0, 1.0))

    def _slope(self, table: NoisyTable) -> ValidationScore | None:
        """Of a logistic regression of what came on the log-odds of the chance."""
        odds = within_reach(table, self.bins.log_odds)
        return score("calibration_slope", _logistic_slope(odds, table))

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        points = [
            (at, table.part(group).sums(_SECOND, _BOTH).ratio(_place(0), _place(1)))
            for at, group in fifths(table, np.array(self.bins.values))
        ]
        return curve("observed", [(at, one.within(0.0, 1.0, wide=np.inf)) for at, one in points])

    def _decisions(self, table: NoisyTable) -> tuple[ScoreCurve | None, ScoreCurve | None]:
        """Net benefit at edges of bins (Vickers and Elkin 2006)."""
        cuts = np.array(self.bins.cuts)
        places = np.flatnonzero((cuts > _THRESHOLDS[0]) & (cuts < _THRESHOLDS[1]))[::_APART] + 1
        cuts = cuts[places - 1]
        gains = np.stack([-cuts / (1 - cuts), np.ones_like(cuts)], axis=-1)[:, None, :]
        above = np.arange(len(self.bins)) >= places[:, None]
        sums = table.sums(_BOTH, *(gains * above[..., None]), *gains)

        def drawn(name: str, first: int) -> ScoreCurve | None:
            benefits = [sums.ratio(_place(first + k), _place(0)) for k in range(len(cuts))]
            return curve(name, list(zip(cuts.tolist(), benefits, strict=True)))

        return drawn("the model", 1), drawn("everybody treated", 1 + len(cuts))


def _place(number: int) -> Function:
    """One of a few sums."""
    return lambda n: n[..., number]


def _pairs(n: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(n[..., 0].sum(-1) * n[..., 1].sum(-1))


def _ranked(n: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pairs whose second has the higher chance, and half of those with the same."""
    below = np.cumsum(n[..., 0], axis=-1) - n[..., 0] / 2
    return np.asarray((n[..., 1] * below).sum(-1))


def _slopes(n: Array) -> tuple[Array, Array]:
    """The derivatives of both."""
    first, second = n.T
    above = second.sum() - second.cumsum() + second / 2
    below = first.cumsum() - first / 2
    every = np.broadcast_to([second.sum(), first.sum()], n.shape)
    return np.column_stack([above, below]), every


def _logistic_slope(x: Array, table: NoisyTable) -> ScoreInterval:
    """The slope that solves the score on noisy counts, with its sandwich error."""
    rows, ones = table.counts.sum(axis=1), table.counts[:, 1]
    design = np.column_stack([np.ones_like(x), x])
    effects = np.array([0.0, 1.0])
    for _ in range(_MOST_STEPS):
        share = 1 / (1 + np.exp(-np.clip(design @ effects, -50, 50)))
        slope = design.T @ (design * (rows * share * (1 - share))[:, None])
        least, direction = (one[..., 0] for one in np.linalg.eigh(slope))
        doubt = table.noise(_BOTH * ((design @ direction) ** 2 * share * (1 - share))[:, None])
        if least <= max(_CLEAR * doubt, _FLAT * max(rows.sum(), 1.0)):
            return UNKNOWN
        step = np.linalg.solve(slope, design.T @ (ones - rows * share))
        effects = effects + np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-12:
            break
    else:
        return UNKNOWN
    # d effects / d count = slope^-1 w (outcome - share)
    each = np.linalg.solve(slope, design.T)[1]
    interval = table.linear(float(effects[1]), np.column_stack([-each * share, each * (1 - share)]))
    return interval if interval.high - interval.low < _WIDE else UNKNOWN


# Times to an event: concordance, Brier score and calibration of the risk until a horizon.
#
# An outcome is an interval of a public grid in which a record had the event or was lost, or that it
# was followed to the grid's end. Within an interval half of who is lost is lost before the events
# and
# half after them, as in a life table; for concordance who is lost in an interval outlives its
# events.

_MOST_GROUPS = 64  # of neighbouring bins of risk whose pairs are counted


@dataclass(frozen=True, kw_only=True)
class Times:
    """The risk until the horizon, in fine bins, by what came when.

    Args:
        bins: of the risk.
        ends: of the intervals, rising; the last is the horizon.
    """

    bins: Bins
    ends: tuple[float, ...]

    @property
    def code(self) -> PrefixCode:
        """Running totals of fine bins have little noise, wherever the risks lie."""
        return fine_code(len(self.bins))

    @property
    def outcomes(self) -> int:
        """Event in each interval, lost in each, followed to the end."""
        return 2 * len(self.ends) + 1

    @property
    def predictions(self) -> int:
        """Bins of the risk."""
        return len(self.bins)

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the bin of the risk, and what came; `predicted` is survival at the target's grid."""
        times, events, many = targets[:, 0], targets[:, 1] > 0.5, len(self.ends)
        at = np.searchsorted(self.ends, times, side="left")  # a time at an end is before it
        lost = np.where(times < self.ends[-1], many + np.minimum(at, many - 1), 2 * many)
        seen = np.where(events & (at < many), np.minimum(at, many - 1), lost)
        return self.bins.places(1.0 - predicted[:, -1]), seen.astype(np.intp)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """All that there is to say."""
        powers = np.stack([self._risk**power for power in range(3)])[:, None, :, None]
        seen = np.eye(self.outcomes)[:, None, :]
        each = np.broadcast_to(powers * seen, (3, self.outcomes, len(self.bins), self.outcomes))
        sums = table.sums(*each.reshape(-1, len(self.bins), self.outcomes))
        return ValidationScores(
            scores=known(self._concordance(table), self._brier(sums), self._gap(sums)),
            calibration=self._calibration(table),
        )

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: a third has the event, a third is lost."""
        many, chance, odds = len(self.ends), self._risk, self.bins.log_odds
        weight = np.gradient(odds) * np.exp(-0.5 * (odds + 0.8) ** 2)
        rows = records * weight / weight.sum()
        events = np.repeat((rows * chance / many)[:, None], many, axis=1)
        left = rows * (1 - chance)
        lost = np.repeat((left / (2 * many))[:, None], many, axis=1)
        return np.hstack([events, lost, (left / 2)[:, None]])

    def _concordance(self, table: NoisyTable) -> ValidationScore | None:
        many = len(self.ends)
        counted = (self._ranked, self._comparable)
        interval = concordance(
            table,
            counted,
            lambda n: [gradient(one, n) for one in counted],
            kinds=many * (many + 1),
            most=_MOST_GROUPS,
        )
        return score("c_index", interval.within(0.0, 1.0), null=0.5, gain=interval.less(0.5))

    def _brier(self, sums: NoisySums) -> ValidationScore | None:
        """At the horizon, who was lost weighed by the inverse chance (Graf et al. 1999)."""

        def own(n: Array) -> Array:
            came, stayed = self._weighed(self._powers(n))
            squares = came[..., 0] - 2 * came[..., 1] + came[..., 2] + stayed[..., 2]
            return np.asarray(squares / self._records(n))

        def of_null(n: Array) -> Array:
            came, stayed = (one[..., 0] for one in self._weighed(self._powers(n)))
            return np.asarray(came * stayed / (came + stayed) / self._records(n))

        interval, null = sums.smooth(own), sums.smooth(of_null)
        gain = sums.smooth(lambda n: of_null(n) - own(n))
        share = float(np.clip(null.value, 0.0, 0.25))
        return score("brier", interval.within(0.0, 1.0), null=share, gain=gain)

    def _gap(self, sums: NoisySums) -> ValidationScore | None:
        """Mean risk less the share with the event by the horizon."""

        def apart(n: Array) -> Array:
            came, stayed = (one[..., 0] for one in self._weighed(self._powers(n)))
            mean = self._powers(n)[..., 1, :].sum(-1) / self._records(n)
            return np.asarray(mean - came / (came + stayed))

        return score("calibration_gap", sums.smooth(apart).within(-1.0, 1.0))

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        """The risk that was seen, by a life table of each group, over that which was foretold."""
        seen = np.eye(self.outcomes)
        points = [
            (at, table.part(group).sums(*seen[:, None, :]).smooth(self._died))
            for at, group in fifths(table, self._risk)
        ]
        return curve("observed", [(at, one.within(0.0, 1.0, wide=np.inf)) for at, one in points])

    def _powers(self, n: Array) -> Array:
        """(…, 3, outcomes) of each outcome the records, their risks, and their squares."""
        return n.reshape(*n.shape[:-1], 3, self.outcomes)

    def _records(self, n: Array) -> Array:
        return np.asarray(self._powers(n)[..., 0, :].sum(-1))

    def _died(self, n: Array) -> Array:
        return np.asarray(1.0 - self.survival(n))

    @property
    def _risk(self) -> Array:
        return np.array(self.bins.values)

    def survival(self, n: Array) -> Array:
        """The share without the event at the horizon, by a life table of (…, outcomes)."""
        events, lost, there = self._followed(n)
        return np.asarray(np.prod(1.0 - events / (there - lost / 2), axis=-1))

    def _weighed(self, n: Array) -> tuple[Array, Array]:
        """(…, 3): events by the horizon and records without, each over its chance to be seen.

        Args:
            n: (…, 3, outcomes) as `_powers` has them; the chances are those of all records.
        """
        events, lost, there = self._followed(n[..., 0, :])
        leaving = lost / (there - events / 2)
        stayed = np.cumprod(1.0 - leaving, axis=-1)
        before = np.concatenate([np.ones_like(stayed[..., :1]), stayed[..., :-1]], axis=-1)
        halfway = before * (1.0 - leaving / 2)
        came = (n[..., : len(self.ends)] / halfway[..., None, :]).sum(-1)
        return np.asarray(came), np.asarray(n[..., -1] / stayed[..., -1:])

    def _followed(self, n: Array) -> tuple[Array, Array, Array]:
        """(…, intervals): events, lost, and who was there at the beginning, of (…, outcomes)."""
        many = len(self.ends)
        events, lost = n[..., :many], n[..., many : 2 * many]
        gone = np.cumsum(events + lost, axis=-1) - events - lost
        return events, lost, n.sum(-1)[..., None] - gone

    def _later(self, n: Array) -> Array:
        """(…, bins, intervals): who outlives the events of an interval."""
        many = len(self.ends)
        events, lost = n[..., :many], n[..., many : 2 * many]
        after = np.flip(np.cumsum(np.flip(events + lost, -1), -1), -1) - events
        return np.asarray(after + n[..., -1:])

    def _ranked(self, n: Array) -> Array:
        """Comparable pairs in which the higher risk has the event first, half of equal ones."""
        later = self._later(n)
        below = np.cumsum(later, axis=-2) - later / 2
        return np.asarray((n[..., : len(self.ends)] * below).sum((-1, -2)))

    def _comparable(self, n: Array) -> Array:
        later = self._later(n).sum(-2)
        return np.asarray((n[..., : len(self.ends)].sum(-2) * later).sum(-1))


# More than two classes: accuracy beside always saying the commonest, and each class found.


@dataclass(frozen=True, kw_only=True)
class ClassValidation:
    """The class that is said, by the class that is.

    Args:
        many: how many there are.
    """

    many: int

    @property
    def code(self) -> None:
        """Its cells are in no order, and are sent as they are."""

    @property
    def outcomes(self) -> int:
        """As many as classes."""
        return self.many

    @property
    def predictions(self) -> int:
        """As many as classes."""
        return self.many

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the class with the largest chance, and the class."""
        said = np.nan_to_num(predicted, nan=-1.0).argmax(axis=1)
        return np.minimum(said, self.many - 1), np.clip(targets, 0, self.many - 1).astype(np.intp)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """Accuracy, and how much of each class is found."""
        return ValidationScores(scores=known(self._accuracy(table), *self._found(table)))

    def guess(self, records: float) -> Array:
        """The table of so many records, of which three in five are found."""
        cells = np.full((self.many, self.many), 0.4 / (self.many - 1)) / self.many
        np.fill_diagonal(cells, 0.6 / self.many)
        return records * cells

    def _accuracy(self, table: NoisyTable) -> ValidationScore | None:
        columns = table.counts.sum(axis=0)
        common = int(columns.argmax())
        gain = table.ratio(lambda n: _right(n) - n[..., common].sum(-1), _all_of_classes)
        null = float(np.clip(columns[common] / max(columns.sum(), 1.0), 0.0, 1.0))
        interval = table.ratio(_right, _all_of_classes)
        return score("accuracy", interval.within(0.0, 1.0), null=null, gain=gain)

    def _found(self, table: NoisyTable) -> list[ValidationScore | None]:
        scores = []
        for one in range(self.many):
            share = table.ratio(
                lambda n, k=one: n[..., k, k],  # type: ignore[misc]
                lambda n, k=one: n[..., k].sum(-1),  # type: ignore[misc]
            )
            scores.append(score(f"found_of_class_{one}", share.within(0.0, 1.0)))
        return scores


def _all_of_classes(n: Array) -> Array:
    return np.asarray(n.sum((-1, -2)))


def _right(n: Array) -> Array:
    return np.asarray(np.trace(n, axis1=-2, axis2=-1))


# Amounts and counts: c-index, R squared, errors and calibration, of binned numbers.
#
# The c-index comes first: noise hides an R squared of a few thousand records, and not which of two
# records is higher.


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """A predicted number, in bins, by the bin of the number that came.

    Args:
        bins: of predictions.
        seen: of what came.
        counts: whether these are counts, whose deviance is told.
    """

    bins: Bins
    seen: Bins
    counts: bool = False

    @property
    def code(self) -> None:
        """Its cells are few, and are sent as they are."""

    @property
    def outcomes(self) -> int:
        """Bins of what came."""
        return len(self.seen)

    @property
    def predictions(self) -> int:
        """Bins of predictions."""
        return len(self.bins)

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the bins of each record."""
        return self.bins.places(predicted), self.seen.places(targets)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """All that there is to say."""
        first = (self._deviance(table),) if self.counts else ()
        return ValidationScores(
            scores=known(
                self._c_index(table),
                *first,
                self._r_squared(table),
                self._rmse(table),
                self._mean_error(table),
                self._gap(table),
                self._slope(table),
            ),
            calibration=self._calibration(table),
        )

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: R squared .3, a spread of .2 of the range.

        Counts are taken to have means of a quarter of what is seen at most.
        """
        low, high = self.seen.values[0], self.seen.values[-1]
        middle, spread = low + (0.25 if self.counts else 0.5) * (high - low), 0.2 * (high - low)
        x, y = np.array(self.bins.values)[:, None], np.array(self.seen.values)
        wide = np.gradient(np.array(self.bins.values))[:, None] * np.gradient(y)
        cells = wide * np.exp(
            -0.5
            * (((x - middle) / (sqrt(0.3) * spread)) ** 2 + ((y - x) / (sqrt(0.7) * spread)) ** 2)
        )
        return np.asarray(records * cells / cells.sum())

    def _c_index(self, table: NoisyTable) -> ValidationScore | None:
        """How often the model puts that of two records higher which is (Harrell et al. 1982)."""
        found = table.ratio(_ordered_alike, _apart)
        return score("c_index", found.within(0.0, 1.0), null=0.5, gain=found.less(0.5))

    def _r_squared(self, table: NoisyTable) -> ValidationScore | None:
        interval = table.ratio(lambda n: self._spread(n) - _all(n) * self._squares(n), self._spread)
        return score("r_squared", interval.within(-np.inf, 1.0, wide=1.0), null=0.0, gain=interval)

    def _rmse(self, table: NoisyTable) -> ValidationScore | None:
        interval = table.ratio(self._squares, _all)
        null = table.ratio(self._spread, lambda n: _all(n) ** 2).value
        gain = table.ratio(lambda n: self._spread(n) - _all(n) * self._squares(n), self._spread)
        told = _root(interval).within(0.0, self._range)
        return score("rmse", told, null=sqrt(max(null, 0.0)), gain=gain)

    def _mean_error(self, table: NoisyTable) -> ValidationScore | None:
        apart = np.abs(np.array(self.bins.values)[:, None] - np.array(self.seen.values))
        interval = table.ratio(lambda n: np.asarray((n * apart).sum((-1, -2))), _all)
        told = interval if interval.value > 0 else UNKNOWN  # else noise has left nothing of it
        return score("mae", told.within(0.0, self._range))

    def _gap(self, table: NoisyTable) -> ValidationScore | None:
        """Mean prediction less the mean of what came."""
        apart = np.array(self.bins.values)[:, None] - np.array(self.seen.values)
        found = table.ratio(lambda n: np.asarray((n * apart).sum((-1, -2))), _all)
        return score("calibration_gap", found.within(-self._range, self._range))

    def _slope(self, table: NoisyTable) -> ValidationScore | None:
        """Of a line through what came over what was foretold, by least squares."""
        x, y = np.array(self.bins.values), np.array(self.seen.values)

        def joint(n: Array) -> Array:
            both = (n * x[:, None] * y).sum((-1, -2))
            return np.asarray(_all(n) * both - (n.sum(-1) * x).sum(-1) * (n.sum(-2) * y).sum(-1))

        def alone(n: Array) -> Array:
            rows = n.sum(-1)
            return np.asarray(_all(n) * (rows * x**2).sum(-1) - (rows * x).sum(-1) ** 2)

        return score("calibration_slope", table.ratio(joint, alone))

    def _deviance(self, table: NoisyTable) -> ValidationScore | None:
        """How much of the null model's Poisson deviance the model explains."""
        from scipy.special import xlogy  # which takes long to import

        rates, seen = np.array(self.bins.values)[:, None], np.array(self.seen.values)
        own = 2.0 * (xlogy(seen, seen / rates) - seen + rates)
        alone = xlogy(seen, np.where(seen > 0, seen, 1.0))

        def explained(n: Array) -> Array:
            records, total = _all(n), (n.sum(-2) * seen).sum(-1)
            null = 2.0 * ((n.sum(-2) * alone).sum(-1) - total * np.log(total / records))
            return np.asarray(1.0 - (n * own).sum((-1, -2)) / null)

        interval = table.smooth(explained)
        told = interval.within(-np.inf, 1.0, wide=1.0)
        return score("deviance_explained", told, null=0.0, gain=interval)

    @property
    def _range(self) -> float:
        """The most that a prediction can be off, as both are rounded."""
        ends = (*self.bins.values, *self.seen.values)
        return max(ends) - min(ends)

    def _squares(self, n: Array) -> Array:
        apart = np.array(self.bins.values)[:, None] - np.array(self.seen.values)
        return np.asarray((n * apart**2).sum((-1, -2)))

    def _spread(self, n: Array) -> Array:
        """Records times the sum of squares about the mean of what came."""
        y, columns = np.array(self.seen.values), n.sum(-2)
        return np.asarray(_all(n) * (columns * y**2).sum(-1) - (columns * y).sum(-1) ** 2)

    def _calibration(self, table: NoisyTable) -> ScoreCurve | None:
        y, points = np.array(self.seen.values), []
        for at, group in fifths(table, np.array(self.bins.values)):
            found = table.part(group).ratio(lambda n: np.asarray((n * y).sum((-1, -2))), _all)
            points.append((at, found.within(float(y[0]), float(y[-1]), wide=np.inf)))
        return curve("observed", points)


def _all(n: Array) -> Array:
    return np.asarray(n.sum((-1, -2)))


def _ordered_alike(n: Array) -> Array:
    """Pairs in other bins of outcomes that are ordered alike, and half of those foretold alike."""
    below = np.cumsum(n, axis=-1) - n  # of each prediction, with a lower outcome
    lower = np.cumsum(below, axis=-2) - below / 2
    return np.asarray((n * lower).sum((-1, -2)))


def _apart(n: Array) -> Array:
    """Pairs in other bins of outcomes."""
    columns = n.sum(-2)
    return np.asarray((columns * (np.cumsum(columns, axis=-1) - columns)).sum(-1))


def _root(found: ScoreInterval) -> ScoreInterval:
    """The root of a mean of squares; unknown where noise has left nothing of it."""
    if not found.is_known or found.value <= 0:
        return UNKNOWN
    value, low, high = (sqrt(max(x, 0.0)) for x in (found.value, found.low, found.high))
    return ScoreInterval(value=value, low=low, high=high)
