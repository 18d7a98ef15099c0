"""What a validation counts, and what it says, by the target's kind.

Of two classes, and of times to an event, the cells are narrow bins of the risk: where the risks of
a model lie nobody knows before it is asked. A code makes them cheap: what is summed up over many of
them has little noise. Of amounts, counts and more than two classes the cells are few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.risk_sets import PrefixCode
from hubbub.learning.queries.validation.noisy_table import (
    UNKNOWN,
    Array,
    Bins,
    Function,
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
    score,
    within_reach,
)

Places = NDArray[np.intp]
RATE = 0.25  # of the second class, where nobody says
_THRESHOLDS, _APART = (0.002, 0.95), 12  # from where to where, and every so many edges
_USUAL = 0.6745  # the normal law's quantile at a usual AUC, .75
_FIRST, _SECOND, _BOTH = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.ones(2)
_WIDE = 6.0  # an interval of a slope that says nothing: 1 is ideal
_MOST_STEPS = 50  # of Newton's, for the slope
_FLAT, _CLEAR = 1e-9, 3.0  # of the information: none, and how far it must stand above its noise
_COARSE = 0.5  # spreads of what came that a bin is wide, times its share of records
_HEAPED = 0.125  # of an interval of the gap, that records on one value of a bin may move it
_MOST_GROUPS = 64  # of neighbouring bins of risk whose pairs are counted


class Kind(ABC):
    """A kind of target: which cells there are, and what a table of them says."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Of a table: a row for each prediction, a column for each outcome."""

    @property
    def code(self) -> PrefixCode | None:
        """By which the counts of each outcome are sent; None: as they are."""
        return None

    @abstractmethod
    def places(self, predicted: Array, targets: Array) -> tuple[Places, Places]:
        """(n,) the row and the column of each record."""

    @abstractmethod
    def scored(self, table: NoisyTable) -> ValidationScores:
        """All that a table says."""

    @abstractmethod
    def guess(self, records: float) -> Array:
        """The table of so many usual records, without noise."""


def _observed(
    table: NoisyTable, bins: Bins, come: Sequence[Array], ends: tuple[float, float] = (0.0, 1.0)
) -> ScoreCurve | None:
    """What outcomes came to, on average, over what was foretold: a point for each fifth.

    What outcomes `come` to is given first as it is, then by coarser bins, for which it allows.
    """

    def mean(group: slice) -> ScoreInterval:
        own, *others = (
            table.part(group).sums(came, np.ones(1)).ratio(_place(0), _place(1)) for came in come
        )
        return reduce(ScoreInterval.allowing, others, own).within(*ends, wide=np.inf)

    return curve("observed", [(at, mean(group)) for at, group in fifths(table, bins.points)])


@dataclass(frozen=True, kw_only=True)
class _OfRisks(Kind):
    """A risk in fine bins."""

    bins: Bins

    @property
    def code(self) -> PrefixCode:
        """Running totals of fine bins have little noise, wherever the risks lie."""
        return fine_code(len(self.bins))


@dataclass(frozen=True, kw_only=True)
class Risks(_OfRisks):
    """The chance of the second class, by what came."""

    rate: float = RATE  # share of the records that has the second class, as far as anybody knows

    @property
    def shape(self) -> tuple[int, int]:
        """Bins of the chance, by the first class and the second."""
        return len(self.bins), 2

    def places(self, predicted: Array, targets: Array) -> tuple[Places, Places]:
        """(n,) the bin and the class of each record."""
        chance = predicted if predicted.ndim == 1 else predicted[:, -1]
        return self.bins.places(chance), (targets > 0.5).astype(np.intp)

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: calibrated, with an AUC of .75."""
        odds = self.bins.log_odds
        # Normal log-odds of both classes are calibrated where their means are a variance apart, and
        # the lower one is half of it below that of the rate.
        spread = sqrt(2.0) * _USUAL
        lower = log(self.rate / (1 - self.rate)) - spread**2 / 2
        columns = []
        for share, middle in ((1 - self.rate, lower), (self.rate, lower + spread**2)):
            rows = np.gradient(odds) * np.exp(-0.5 * ((odds - middle) / spread) ** 2)
            columns.append(records * share * rows / rows.sum())
        return np.column_stack(columns)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """AUC, Brier score, calibration and decision curve."""
        # Mean chance less the share that had the outcome.
        apart = table.sums(self.bins.points[:, None] - _SECOND, _BOTH)
        odds = within_reach(table, self.bins.log_odds)
        return ValidationScores(
            self._auc(table),
            self._brier(table),
            score("calibration_gap", apart.ratio(_place(0), _place(1)).within(-1.0, 1.0)),
            score("calibration_slope", _logistic_slope(odds, table)),
            calibration=_observed(table, self.bins, [_SECOND]),
            decisions=self._decisions(table),
        )

    def _auc(self, table: NoisyTable) -> ValidationScore | None:
        pairs, most = (_ranked, _pairs), len(self.bins)
        interval = concordance(table, pairs, _slopes, kinds=1, most=most, variance=_auc_variance)
        return score("auc", interval.within(0.0, 1.0), null=0.5, gain=interval.less(0.5))

    def _brier(self, table: NoisyTable) -> ValidationScore | None:
        chance = self.bins.points
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

        return drawn("the model", 1), drawn("treating everybody", 1 + len(cuts))


def _place(number: int) -> Function:
    """Gives one of a few sums."""
    return lambda n: n[..., number]


def _pairs(n: Array) -> Array:
    return np.asarray(n[..., 0].sum(-1) * n[..., 1].sum(-1))


def _ranked(n: Array) -> Array:
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


def _auc_variance(auc: float, records: Array) -> float:
    """Of an AUC by sampling (Hanley and McNeil 1982)."""
    first, second = records
    both_above, one_above = auc / (2 - auc) - auc**2, 2 * auc**2 / (1 + auc) - auc**2
    return float(
        (auc * (1 - auc) + (second - 1) * both_above + (first - 1) * one_above) / (first * second)
    )


def _logistic_slope(x: Array, table: NoisyTable) -> ScoreInterval:
    """The slope of a logistic regression on `x`, by the score of noisy counts, with its error."""
    rows, ones = table.counts.sum(axis=1), table.counts[:, 1]
    design = np.column_stack([np.ones_like(x), x])
    effects = np.array([0.0, 1.0])
    for _ in range(_MOST_STEPS):
        share = 1 / (1 + np.exp(-np.clip(design @ effects, -50, 50)))
        slope = design.T @ (design * (rows * share * (1 - share))[:, None])
        least, direction = (part[..., 0] for part in np.linalg.eigh(slope))
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


@dataclass(frozen=True, kw_only=True)
class Times(_OfRisks):
    """The risk of an event until the horizon, by what came when.

    An outcome is an interval of a public grid in which a record had the event or was lost, or that
    it was followed to the grid's end. Within an interval half of who is lost is lost before the
    events and half after them, as in a life table; for concordance who is lost in an interval
    outlives its events.
    """

    ends: tuple[float, ...]  # of the intervals, rising; the last is the horizon

    @property
    def shape(self) -> tuple[int, int]:
        """Bins of the risk, by event in each interval, lost in each, followed to the end."""
        return len(self.bins), 2 * len(self.ends) + 1

    def places(self, predicted: Array, targets: Array) -> tuple[Places, Places]:
        """(n,) the bin of the risk, and what came; `predicted` is survival at the target's grid."""
        times, events, many = targets[:, 0], targets[:, 1] > 0.5, len(self.ends)
        at = np.searchsorted(self.ends, times, side="left")  # a time at an end is before it
        lost = np.where(times < self.ends[-1], many + np.minimum(at, many - 1), 2 * many)
        seen = np.where(events & (at < many), np.minimum(at, many - 1), lost)
        return self.bins.places(1.0 - predicted[:, -1]), seen.astype(np.intp)

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: a third has the event, a third is lost."""
        many, chance, odds = len(self.ends), self.bins.points, self.bins.log_odds
        # Log-odds are about normal.
        weight = np.gradient(odds) * np.exp(-0.5 * (odds + 0.8) ** 2)
        rows = records * weight / weight.sum()
        events = np.repeat((rows * chance / many)[:, None], many, axis=1)
        left = rows * (1 - chance)
        lost = np.repeat((left / (2 * many))[:, None], many, axis=1)
        return np.hstack([events, lost, (left / 2)[:, None]])

    def scored(self, table: NoisyTable) -> ValidationScores:
        """Concordance, Brier score and calibration of the risk until the horizon."""
        many, risk, seen = len(self.ends), self.bins.points, np.eye(self.shape[1])
        counted = (self._ranked, self._comparable)
        c_index = concordance(
            table,
            counted,
            lambda n: [gradient(pairs, n) for pairs in counted],
            kinds=many * (many + 1),
            most=_MOST_GROUPS,
        )
        # Of each outcome the records, their risks, and their squares: (3, outcomes) sums, flat.
        powers = np.stack([risk**power for power in range(3)])[:, None, :, None]
        weights = np.broadcast_to(powers * seen[:, None, :], (3, len(seen), *self.shape))
        sums = table.sums(*weights.reshape(-1, *self.shape))

        # At the horizon, who was lost weighed by the inverse chance (Graf et al. 1999).
        def brier(n: Array) -> Array:
            came, stayed = self._weighed(n)
            squares = came[..., 0] - 2 * came[..., 1] + came[..., 2] + stayed[..., 2]
            return np.asarray(squares / self._records(n))

        def brier_of_null(n: Array) -> Array:
            came, stayed = (part[..., 0] for part in self._weighed(n))
            return np.asarray(came * stayed / (came + stayed) / self._records(n))

        # Mean risk less the share with the event by the horizon.
        def gap(n: Array) -> Array:
            came, stayed = (part[..., 0] for part in self._weighed(n))
            mean = self._powers(n)[..., 1, :].sum(-1) / self._records(n)
            return np.asarray(mean - came / (came + stayed))

        # The risk that was seen, by a life table of each fifth, over what was foretold.
        def observed(group: slice) -> ScoreInterval:
            came = (
                table.part(group).sums(*seen[:, None, :]).smooth(lambda n: 1.0 - self.survival(n))
            )
            return came.within(0.0, 1.0, wide=np.inf)

        points = [(at, observed(group)) for at, group in fifths(table, self.bins.points)]
        own, null = sums.smooth(brier), sums.smooth(brier_of_null)
        gain = sums.smooth(lambda n: brier_of_null(n) - brier(n))
        share = float(np.clip(null.value, 0.0, 0.25))
        return ValidationScores(
            score("c_index", c_index.within(0.0, 1.0), null=0.5, gain=c_index.less(0.5)),
            score("brier", own.within(0.0, 1.0), null=share, gain=gain),
            score("calibration_gap", sums.smooth(gap).within(-1.0, 1.0)),
            calibration=curve("observed", points),
        )

    def _powers(self, n: Array) -> Array:
        """(…, 3, outcomes) of each outcome the records, their risks, and their squares."""
        return n.reshape(*n.shape[:-1], 3, self.shape[1])

    def _records(self, n: Array) -> Array:
        return np.asarray(self._powers(n)[..., 0, :].sum(-1))

    def survival(self, n: Array) -> Array:
        """The share without the event at the horizon, by a life table of (…, outcomes)."""
        events, lost, there = self._followed(n)
        return np.asarray(np.prod(1.0 - events / (there - lost / 2), axis=-1))

    def _weighed(self, flat: Array) -> tuple[Array, Array]:
        """(…, 3): events by the horizon and records without, each over its chance to be seen."""
        n = self._powers(flat)
        events, lost, there = self._followed(n[..., 0, :])  # the chances are those of all records
        # Half of who is lost in an interval is lost before its events.
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


@dataclass(frozen=True, kw_only=True)
class ClassValidation(Kind):
    """More than two classes: the class that is said, by the class that is."""

    many: int

    @property
    def shape(self) -> tuple[int, int]:
        """Classes by classes."""
        return self.many, self.many

    def places(self, predicted: Array, targets: Array) -> tuple[Places, Places]:
        """(n,) the class with the largest chance, and the class."""
        likeliest = np.nan_to_num(predicted, nan=-1.0).argmax(axis=1)
        most = self.many - 1
        return np.minimum(likeliest, most), np.clip(targets, 0, most).astype(np.intp)

    def guess(self, records: float) -> Array:
        """The table of so many records, of which three in five are found."""
        cells = np.full((self.many, self.many), 0.4 / (self.many - 1)) / self.many
        np.fill_diagonal(cells, 0.6 / self.many)
        return records * cells

    def scored(self, table: NoisyTable) -> ValidationScores:
        """Accuracy beside always saying the commonest class, and how much of each is found."""
        columns = table.counts.sum(axis=0)
        common = int(columns.argmax())

        def right(n: Array) -> Array:
            return np.asarray(np.trace(n, axis1=-2, axis2=-1))

        def share_found(k: int) -> ScoreInterval:
            return table.ratio(lambda n: n[..., k, k], lambda n: n[..., k].sum(-1))

        accuracy = table.ratio(right, _all)
        return ValidationScores(
            score(
                "accuracy",
                accuracy.within(0.0, 1.0),
                null=float(np.clip(columns[common] / max(columns.sum(), 1.0), 0.0, 1.0)),
                gain=table.ratio(lambda n: right(n) - n[..., common].sum(-1), _all),
            ),
            *(
                score(f"found_of_class_{k}", share_found(k).within(0.0, 1.0))
                for k in range(self.many)
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Amounts(Kind):
    """A predicted amount or count, in bins, by the bin of the number that came."""

    bins: Bins  # of predictions
    seen: Bins  # of what came
    counts: bool = False  # whether these are counts, whose deviance is told

    @property
    def shape(self) -> tuple[int, int]:
        """Bins of predictions, by bins of what came."""
        return len(self.bins), len(self.seen)

    def places(self, predicted: Array, targets: Array) -> tuple[Places, Places]:
        """(n,) the bins of each record."""
        return self.bins.even_places(predicted), self.seen.even_places(targets)

    def guess(self, records: float) -> Array:
        """The table of so many records of a usual model: R squared .3, a spread of .2 of the range.

        Counts are taken to have means of a quarter of what is seen at most.
        """
        low, high = self.seen.values[0], self.seen.values[-1]
        middle, spread = low + (0.25 if self.counts else 0.5) * (high - low), 0.2 * (high - low)
        x, y = self.bins.points[:, None], self.seen.points
        wide = np.gradient(self.bins.points)[:, None] * np.gradient(y)
        cells = wide * np.exp(
            -0.5
            * (((x - middle) / (sqrt(0.3) * spread)) ** 2 + ((y - x) / (sqrt(0.7) * spread)) ** 2)
        )
        return np.asarray(records * cells / cells.sum())

    def scored(self, table: NoisyTable) -> ValidationScores:
        """The c-index, the deviance of counts, R squared, errors and calibration.

        All records of a bin count as its middle. An interval is wider by what taking bins two by
        two would change, which is more than that, unless most records share a few values.

        The c-index comes first: noise hides an R squared of a few thousand records, and not which
        of two records is higher (Harrell et al. 1982).
        """
        x, y = self.bins.points, self.seen.points
        widest = max(*x, *y) - min(*x, *y)  # that a prediction can be off, as both are rounded
        c_index = table.ratio(_ordered_alike, _pairs_apart)
        told, spread = self._errors(table, self.bins, self.seen)
        coarser, lowest, highest = self._coarser(), float(y[0]), float(y[-1])
        if self._is_coarse(table, spread, told["calibration_gap"]):
            told |= dict.fromkeys(told.keys() - {"deviance_explained"}, UNKNOWN)
        for bins, seen, places in coarser:
            others, _ = self._errors(table, bins, seen, places)
            told = {name: one.allowing(others[name]) for name, one in told.items()}
        if self.counts and coarser:  # bins of both move its corner alike, which may cancel
            bins, _, (rows, _) = coarser[-1]
            every = np.arange(len(self.seen), dtype=np.intp)
            others, _ = self._errors(table, bins, self.seen, (rows, every))
            told["mae"] = told["mae"].allowing(others["mae"])
        r_squared, explained = told["r_squared"], told.get("deviance_explained", UNKNOWN)
        come = [y, *(seen.points[places[1]] for _, seen, places in coarser)]
        return ValidationScores(
            score("c_index", c_index.within(0.0, 1.0), null=0.5, gain=c_index.less(0.5)),
            *(
                score(name, one.within(-np.inf, 1.0, wide=1.0), null=0.0, gain=one)
                for name, one in (("deviance_explained", explained), ("r_squared", r_squared))
            ),
            score("rmse", told["rmse"].within(0.0, widest), null=spread, gain=r_squared),
            score("mae", told["mae"].within(0.0, widest)),
            score("calibration_gap", told["calibration_gap"].within(-widest, widest)),
            score("calibration_slope", told["calibration_slope"]),
            calibration=_observed(table, self.bins, come, (lowest, highest)),
        )

    def _errors(
        self, table: NoisyTable, bins: Bins, seen: Bins, places: Sequence[Places] = ()
    ) -> tuple[dict[str, ScoreInterval], float]:
        """Errors and slopes by these bins, in which the table's have `places`; and the spread."""
        x, y = bins.points, seen.points
        # Sums of 1, of both from the middle, of their squares and product, and of what they differ.
        u, v = x - (x[0] + x[-1]) / 2, y - (x[0] + x[-1]) / 2
        u1, u2, off = _unrounded(u)[:, None], _unrounded(u**2)[:, None], np.abs(u[:, None] - v)
        v1, v2 = _of_whole(v, seen.widths) if self.counts else (_unrounded(v), _unrounded(v**2))
        off = _unrounded(off) if self.counts else off  # of amounts both roundings of it cancel
        weights = [np.ones(1), u1, v1, u2, v2, u1 * v1, off, *(self._deviances(x, y))]
        if places:
            shape = len(bins), len(seen)
            weights = [np.broadcast_to(one, shape)[np.ix_(*places)] for one in weights]
        sums = table.sums(*weights)

        def squares(n: Array) -> Array:
            return np.asarray(n[..., 3] - 2 * n[..., 5] + n[..., 4])

        def spread(n: Array) -> Array:
            """Records times the sum of squares about the mean of what came."""
            return np.asarray(n[..., 0] * n[..., 4] - n[..., 2] ** 2)

        told = {
            "r_squared": sums.ratio(lambda n: spread(n) - n[..., 0] * squares(n), spread),
            "rmse": sums.ratio(squares, _place(0)).root(),
            "mae": sums.ratio(_place(6), _place(0)),
            "calibration_gap": sums.ratio(lambda n: n[..., 1] - n[..., 2], _place(0)),
            # Of a line through what came over what was foretold, by least squares.
            "calibration_slope": sums.ratio(
                lambda n: n[..., 0] * n[..., 5] - n[..., 1] * n[..., 2],
                lambda n: n[..., 0] * n[..., 3] - n[..., 1] ** 2,
            ),
        }
        if told["mae"].value <= 0:  # noise has left nothing of it
            told["mae"] = UNKNOWN
        if self.counts:
            told["deviance_explained"] = sums.smooth(_explained)
        return told, sqrt(max(sums.ratio(spread, lambda n: n[..., 0] ** 2).value, 0.0))

    def _deviances(self, x: Array, y: Array) -> Sequence[Array]:
        """Counts, how far each is from each prediction, and what the null model makes of it."""
        if not self.counts:
            return ()
        from scipy.special import xlogy  # which takes long to import

        rates = x[:, None]
        own = 2.0 * (xlogy(y, y / rates) - y + rates)
        return y, _unrounded(own), xlogy(y, np.where(y > 0, y, 1.0))

    def _coarser(self) -> list[tuple[Bins, Bins, tuple[Places, Places]]]:
        """Ways to take neighbouring bins together, and the places of the table's in them.

        What they change shows how much it matters that all records of a bin count as its middle.
        """
        ranges = np.append(self.seen.widths > 1.5, True)  # of counts, after those that have a bin
        first = int(ranges.argmax()) if self.counts else 0
        ways = []
        for begin in (1, 0):
            bins, rows = self.bins.paired(begin)
            seen, columns = self.seen.paired(first + begin, middle=self.counts)
            if min(len(bins), len(seen) if first == 0 else 3) > 2:
                ways.append((bins, seen, (rows, columns)))
        last = len(self.seen) - 1
        if self.counts and first <= last and (first == last or len(ways) < 2):
            # No two ranges to pair, or one way alone: the last range with what is below it, too.
            seen, columns = self.seen.paired(last - 1, middle=True)
            ways.insert(0, (self.bins, seen, (np.arange(len(self.bins)), columns)))
        return ways

    def _is_coarse(self, table: NoisyTable, spread: float, gap: ScoreInterval) -> bool:
        """Whether where records lie in their bin moves a mean: many in a wide one, or on one value.

        Zeros, or predictions of few values, fill a bin beyond three times those beside it. How far
        they may be from what it stands for is held against how far the gap is known.
        """
        most, far = _COARSE * spread * table.records, _HEAPED * (gap.high - gap.low) * table.records
        for side, bins in [(1, self.bins), *([] if self.counts else [(0, self.seen)])]:
            counts, widths = table.counts.sum(axis=side), bins.widths
            some = np.maximum(counts, 0.0)
            beside = np.convolve(some, [3.0, 0.0, 3.0], mode="same")
            noise = 19.0 * table.counts.shape[side] * table.sigma**2
            heaped = counts - beside - _CLEAR * np.sqrt(noise + some + 3.0 * beside)
            if (counts * widths).max() > most or (heaped * widths).max() > far:
                return True
        return False


def _explained(n: Array) -> Array:
    """How much of the null model's Poisson deviance the model explains."""
    records, total = n[..., 0], n[..., 7]
    null = 2.0 * (n[..., 9] - total * np.log(total / records))
    return np.asarray(1.0 - n[..., 8] / null)


def _unrounded(values: Array) -> Array:
    """What bins stand for, less what it adds to a mean that all of a bin are taken to be there.

    Where a law is smooth that is what even noise as wide as a bin would add (Sheppard 1898): of
    bins of width w, and squares, w^2 / 12. The first axis is that of the bins.
    """
    bends = np.diff(values, 2, axis=0)
    return np.asarray(values - np.concatenate([bends[:1], bends, bends[-1:]]) / 24)


def _of_whole(values: Array, widths: Array) -> tuple[Array, Array]:
    """The same of ranges of whole numbers, for sums of these and of their squares.

    Ranges that become wider hold more records below their middle where fewer are further up: with
    w^2 - 1 = W, and W' its slope, a smooth law adds W' / 12, and W / 12 + value W' / 6 to squares.
    """
    square = widths**2 - 1
    rises = np.where(square > 0.5, np.gradient(square, values), 0.0)
    return values - rises / 12, values**2 - square / 12 - values * rises / 6


def _all(n: Array) -> Array:
    """Records of a table."""
    return np.asarray(n.sum((-1, -2)))


def _ordered_alike(n: Array) -> Array:
    """Pairs in other bins of outcomes that are ordered alike, and half of those foretold alike."""
    below = np.cumsum(n, axis=-1) - n  # of each prediction, with a lower outcome
    lower = np.cumsum(below, axis=-2) - below / 2
    return np.asarray((n * lower).sum((-1, -2)))


def _pairs_apart(n: Array) -> Array:
    """Pairs in other bins of outcomes."""
    columns = n.sum(-2)
    return np.asarray((columns * (np.cumsum(columns, axis=-1) - columns)).sum(-1))
