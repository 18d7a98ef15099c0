"""Table 1: how many records there are, shares of categories, means and spreads of numbers.

Theory of operation (after ResidualPlanner, Xiao et al. 2023). One record's block is a 1, for each
categorical column the one-hot vector of its category, or of "missing", less its mean 1/m, and for
each numeric column x in [-1, 1] and x^2 - 1/2, or a 1 at "missing"; a column that is complete has
no place for "missing". What all categories have in
common is so told once, by the 1, and a record's block is shorter than with plain one-hot vectors.
With groups, a record's block stands in the place of its group, and groups are compared by
`compare_means` and `compare_shares`. A numeric column may be described in classes, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels, column_of
from hubbub.estimation import intervals
from hubbub.estimation.stacking import Margin, Margins, number_of, of_parts
from hubbub.estimation.statistic import (
    MISSING,
    TOO_FEW,
    Answer,
    Estimate,
    Expectation,
    NoisyTest,
    OneSum,
    group_names,
    group_sums,
    in_own_groups,
    one_hot,
    scaled,
)
from hubbub.estimation.statistic_keys import BY, COLUMNS, StatisticKeys, table_of

# Whether groups of a table differ: tests and standardised differences of noisy means and shares.
#
# Theory of operation. A group's mean is uncertain by its sampling variance s^2 / n and by a noise
# variance that is known. Welch's test takes both as what the mean's weight is one over: t for two
# groups, F for more, whose degrees of freedom come from the sampling part alone, as noise has no
# doubt about its own variance. For s^2 stands what it is on average, given a noisy number and that
# it is not below 0. Shares are compared by chi-square with the noise in each count.
#
# A standardised mean difference has no sign, so noise makes it larger: its square is told less what
# noise adds to it on average.


class GroupMean(NamedTuple):
    """A numeric column in one group.

    Args:
        mean: of it, in any unit.
        spread: its variance, over the number of records.
        records: how many have a value.
        noise: variance of the mean by noise.
        doubt: standard deviation of the spread by noise.
        is_spread_known: whether the interval of the spread lies above 0.
    """

    mean: float
    spread: float
    records: float
    noise: float
    doubt: float
    is_spread_known: bool = True

    @property
    def variance(self) -> float:
        """Of a record, with one degree of freedom taken off."""
        return self.spread * self.records / (self.records - 1.0)

    @property
    def drawn(self) -> float:
        """Variance of the mean by drawing the records."""
        likely = intervals.never_below_0(self.spread, self.doubt) if self.doubt else self.spread
        return likely / (self.records - 1.0)

    @property
    def skewness(self) -> float:
        """The least third central moment over the variance, of numbers in [-1, 1].

        By as much does the variance rise with the mean, from one draw of the records to another.
        """
        spread, far = self.drawn * (self.records - 1.0), math.sqrt(self.noise)
        low, high = (max(1.0 + side * self.mean, far, 1e-300) for side in (1, -1))
        return max(spread / low - low, 0.0) - max(spread / high - high, 0.0)

    @property
    def looseness(self) -> float:
        """One over the degrees of freedom that its variance by drawing and noise has."""
        part = self.drawn / max(self.drawn + self.noise, 1e-300)
        return max(part**2 / (self.records - 1.0), 1e-12)


class GroupShares(NamedTuple):
    """Classes of a column in one group.

    Args:
        counts: (m,) noisy.
        noise: (m, m) covariance of their noise.
    """

    counts: Array
    noise: Array

    @property
    def shares(self) -> Array:
        """(m,) of records, none below 0."""
        positive = np.maximum(self.counts, 0.0)
        return np.asarray(positive / max(float(positive.sum()), 1.0))

    @property
    def noise_of_shares(self) -> Array:
        """(m, m) covariance of the noise in the shares."""
        apart = np.eye(len(self.counts)) - np.outer(self.shares, np.ones(len(self.counts)))
        return np.asarray(apart @ self.noise @ apart.T / max(float(self.counts.sum()), 1.0) ** 2)


def compare_means(column: str, groups: Sequence[GroupMean]) -> NoisyTest:
    """Welch's test of two means or more, and how far apart they are in standard deviations."""
    from scipy.special import fdtrc, stdtr  # which take long to import

    variances = np.array([max(group.drawn + group.noise, 1e-300) for group in groups])
    means, weights = np.array([group.mean for group in groups]), 1.0 / variances
    whole, number = weights.sum(), len(groups)
    loose = float((1.0 - weights / whole) ** 2 @ [group.looseness for group in groups])
    square = float(weights @ (means - weights @ means / whole) ** 2) / (number - 1)
    smaller = 1.0 + 2.0 * (number - 2) / (number**2 - 1) * loose
    degrees_below = min((number**2 - 1) / (3.0 * max(loose, 1e-300)), 1e9)
    statistic = square / smaller
    test = NoisyTest(
        name="Welch's F",
        column=column,
        statistic=statistic,
        degrees=float(number - 1),
        degrees_below=degrees_below,
        p_value=float(fdtrc(number - 1, degrees_below, statistic)),
        smd=float(np.mean([_means_apart(*pair) for pair in itertools.combinations(groups, 2)]))
        if all(group.is_spread_known for group in groups)
        else None,
    )
    if number > 2:
        return test
    t = math.copysign(math.sqrt(square), float(means[0] - means[1]))
    return replace(
        test,
        name="Welch's t",
        statistic=t,
        degrees=degrees_below,
        degrees_below=None,
        p_value=float(2.0 * stdtr(degrees_below, -abs(t))),
    )


def compare_shares(column: str, groups: Sequence[GroupShares]) -> NoisyTest:
    """The chi-square test of classes by group, and how far apart two groups' shares are."""
    counts = np.array([group.counts for group in groups])
    width = counts.shape[1]
    noise = np.zeros((counts.size, counts.size))
    for place, one in enumerate(groups):
        own = slice(place * width, (place + 1) * width)
        noise[own, own] = one.noise
    test = intervals.independence(counts, noise)
    apart = [_shares_apart(*pair) for pair in itertools.combinations(groups, 2)]
    return replace(test, column=column, smd=float(np.mean(apart)))


def _means_apart(first: GroupMean, second: GroupMean) -> float:
    """Means apart over the root of the mean variance."""
    unit = max((first.variance + second.variance) / 2.0, 1e-300)
    square = ((first.mean - second.mean) ** 2 - first.noise - second.noise) / unit
    return math.sqrt(max(square, 0.0))


def _shares_apart(first: GroupShares, second: GroupShares) -> float:
    """The same of all shares but the first, by the mean of both covariances (Yang, Dalton 2012)."""
    apart = (first.shares - second.shares)[1:]
    each = [np.diag(one) - np.outer(one, one) for one in (first.shares, second.shares)]
    inverse = np.linalg.pinv((each[0] + each[1])[1:, 1:] / 2.0, hermitian=True)
    noise = (first.noise_of_shares + second.noise_of_shares)[1:, 1:]
    square = float(apart @ inverse @ apart) - float(np.trace(inverse @ noise))
    return math.sqrt(max(square, 0.0))


LEFT_OUT = "records without a group are left out"
_SPREAD = 4.0  # standard deviations of its noise below which a variance is not told
Described = Column | Levels  # a column as it is, or a numeric one in classes


@dataclass(frozen=True, kw_only=True)
class Table(OneSum):
    """Table 1 of a study: a column of numbers for all records or for each group.

    Args:
        columns: what is described, at least one: columns, or classes of numeric ones.
        by: classes of the column that divides records into groups; records without it are left out.
    """

    columns: tuple[Described, ...]
    by: Levels | None = None

    kind = "table"
    keys: ClassVar = {"columns": COLUMNS, "by": BY}
    methods = "means were compared by Welch's test and shares by the chi-square test"

    @classmethod
    def read(cls, keys: StatisticKeys) -> Table:
        by = keys.by()
        return cls(columns=keys.described("columns", by), by=by, **keys.common)

    def settings(self) -> dict[str, Any]:
        return table_of(columns=self.columns, by=self.by)

    def __post_init__(self) -> None:
        names = [column_of(column).name for column in self.columns]
        if not names or len(set(names)) < len(names):
            raise StudyError(
                f"expected a table of different columns, found {names}; name each of them once"
            )
        if self.by and self.by.column.name in names:
            raise StudyError(
                "expected a table that describes other columns than the one that divides "
                f"it, found {self.by.column.name} in both columns and by; leave it out of "
                "columns, or divide by another"
            )

    @property
    def title(self) -> str:
        groups = f" by {self.by.column.name}" if self.by else ""
        return (
            f"Description of {', '.join(column_of(column).name for column in self.columns)}{groups}"
        )

    @property
    def size(self) -> int:
        return self._width * len(group_names(self.by))

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23).

        Of classes in m places a record has 1 - 1/m, squared, of numbers t^2 + 1/4 <= 5/4.
        """
        squares = [1.0 - 1.0 / part.size if part.levels else 1.25 for part in self._parts]
        return math.sqrt(1.0 + sum(squares))

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        alike = math.sqrt(sum(2.0 if part.levels else 4.0 for part in self._parts))
        return alike if not self.by else max(alike, math.sqrt(2.0) * self.sensitivity)

    def encode(self, cells: Cells) -> Array:
        blocks = [part.block(cells) for part in self._parts]
        block = np.column_stack([np.ones(len(blocks[0])), *blocks])
        return in_own_groups(block, self.by, cells)

    @property
    def margins(self) -> Margins:
        """How many records there are, with each class and with two."""
        rows: dict[Margin, Array] = {number_of(): np.eye(self._width)[0]}
        for part in self._parts:
            if part.levels:
                levels = (*part.levels.names, MISSING)
                for level, row in zip(levels, part.counts(self._width), strict=False):
                    rows[number_of((part.column.name, level))] = row
        return of_parts((self.by,) if self.by else (), rows)

    @cached_property
    def _parts(self) -> tuple[_Part, ...]:
        """The columns with their places in a block, after the 1 of a record."""
        parts: list[_Part] = []
        for one in self.columns:
            column, start = column_of(one), parts[-1].end if parts else 1
            levels = Levels(column=one) if isinstance(one, Column) and one.categories else one
            classes = levels if isinstance(levels, Levels) else None
            size = len(classes or (0, 0)) + (not column.complete)
            parts.append(_Part(column, classes, start, size))
        return tuple(parts)

    @property
    def _width(self) -> int:
        return self._parts[-1].end

    def expected(self, records: float, sigma: float) -> Expectation:
        each = max(records / len(group_names(self.by)), 1.0)
        error = math.sqrt(0.25 / each + (sigma / each) ** 2)
        mean = math.sqrt(1 / 3 / each + (sigma / each) ** 2) / 2
        group = " of a group" if self.by else ""
        told = (
            f"shares{group} known to ±{100 * error:.2g} points and means to ±{100 * mean:.2g} % of "
            "their column's range (one standard error)"
        )
        errors = {"share": error, "mean over range": mean}
        answered = each >= (intervals.CLEAR + intervals.SURE) * sigma
        possible = each >= intervals.CLEAR * sigma
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=possible, group=group
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        z = intervals.normal_quantile(self.confidence)
        told = [
            _Group(
                self._parts,
                z,
                name,
                block,
                noise * float(intervals.caution(block[:1] / noise - intervals.CLEAR)[0]),
            )
            for name, block, noise in group_sums(sums, self.by, sigma)
            if block[0] >= intervals.CLEAR * noise
        ]
        names = [one.group for one in told]
        refused = [name for name in group_names(self.by) if name not in names]
        rows = [one.rows() for one in told]
        return self.make_answer(
            "" if told else TOO_FEW,
            rows=tuple(row for group in rows for row in group),
            tests=self._tests([one for one in told if one.group]) if self.by else (),
            notes=(
                *(f"too few records of {group} for the noise" for group in refused if told),
                *(note for one, own in zip(told, rows, strict=True) for note in one.withheld(own)),
                *((LEFT_OUT,) if self.by and told else ()),
            ),
        )

    def _tests(self, groups: Sequence[_Group]) -> tuple[NoisyTest, ...]:
        """Whether the groups that are told differ, column by column."""
        if len(groups) < 2:
            return ()
        return tuple(
            compare_shares(part.column.name, [group.counted(part) for group in groups])
            if part.levels
            else compare_means(part.column.name, [group.moments(part) for group in groups])
            for part in self._parts
        )


class _Part(NamedTuple):
    """A described column and its place in a block."""

    column: Column
    levels: Levels | None  # the classes by which it is described; None of a number
    start: int
    size: int

    @property
    def end(self) -> int:
        """Where the next column's place begins."""
        return self.start + self.size

    @property
    def counted(self) -> float:
        """How many noisy numbers make up that of records with a value."""
        return 1.0 if self.column.complete else 2.0

    def block(self, cells: Cells) -> Array:
        """(n, size) what records send of it."""
        if self.levels:
            places = self.levels.places(cells)
            missing = -1 if self.column.complete else self.size - 1
            return one_hot(np.where(places < 0, missing, places), self.size) - 1.0 / self.size
        x = scaled(cells, self.column)
        gone = np.isnan(x)
        numbers = [np.where(gone, 0, x), np.where(gone, 0, x * x - 0.5), gone]
        return np.column_stack(numbers[: self.size])

    def counts(self, width: int) -> Array:
        """(size, width): counts of its classes as linear functions of a block.

        Centred one-hot vectors add up to 0, so the noise in their sum is taken out.
        """
        counts = np.zeros((self.size, width))
        counts[:, self.start : self.end] = np.eye(self.size) - 1.0 / self.size
        counts[:, 0] = 1.0 / self.size
        return counts


class _Group(NamedTuple):
    """One group's noisy block."""

    parts: tuple[_Part, ...]
    z: float  # standard deviations that intervals reach
    group: str
    block: Array
    sigma: float

    def rows(self) -> list[Estimate]:
        """All numbers of this group."""
        rows = [intervals.count(float(self.block[0]), self.sigma, self.z, group=self.group)]
        for part in self.parts:
            rows += self._shares(part, part.levels) if part.levels else self._numbers(part)
        return rows

    def withheld(self, rows: Sequence[Estimate]) -> Iterator[str]:
        """Why numbers that the noise leaves open up to a bound of what they can be are not told."""
        of = f" of {self.group}" if self.group else ""
        shown = {(row.quantity, row.column) for row in rows}
        for part in self.parts:
            name = part.column.name
            for what, quantity, least in (
                ("mean", "mean", "anything"),
                ("standard deviation", "sd", "0"),
            ):
                if not part.levels and (quantity, name) not in shown:
                    yield intervals.withheld(f"{name}{of}", what, least)

    def counted(self, part: _Part) -> GroupShares:
        """The classes of a column, without "missing"."""
        rows = part.counts(len(self.block))[: len(part.levels or ())]
        return GroupShares(rows @ self.block, self.sigma**2 * rows @ rows.T)

    def moments(self, part: _Part) -> GroupMean:
        """Mean and spread of a numeric column, scaled to [-1, 1]."""
        total, squares = self.block[part.start : part.start + 2]
        known = self.block[0] - (0.0 if part.column.complete else self.block[part.start + 2])
        records = max(float(known), 2.0)
        mean = min(max(float(total) / records, -1.0), 1.0)
        spread = min(max(float(squares) / records + 0.5 - mean**2, 0.0), 1.0 - mean**2)
        noise = (self.sigma / records) ** 2 * (1.0 + part.counted * mean**2)
        deviation = self._deviation(part, mean, spread, records)
        doubt = math.sqrt(self._noise_of_spread(part, mean, spread, records))
        return GroupMean(mean, spread, records, noise, doubt, is_spread_known=deviation.low > 0)

    def _noise_of_spread(self, part: _Part, mean: float, spread: float, records: float) -> float:
        """Its variance by noise."""
        gradient = 1 + 4 * mean**2 + part.counted * (spread + mean**2 - 0.5 - 2 * mean**2) ** 2
        return (self.sigma / records) ** 2 * gradient

    def _shares(self, part: _Part, levels: Levels) -> list[Estimate]:
        counts, column = part.counts(len(self.block)), part.column
        everybody = counts.sum(axis=0)
        if column.complete:
            return list(self._each(column, levels.names, counts, everybody))
        known = self._each(column, levels.names, counts, everybody - counts[-1])
        return [*known, *self._each(column, (MISSING,), counts[-1:], everybody)]

    def _each(
        self, column: Column, names: Sequence[str], parts: Array, whole: Array
    ) -> Iterator[Estimate]:
        """The shares of classes in the whole, both as linear functions of the block."""
        for level, row in zip(names, parts, strict=False):
            estimate = intervals.share(self.block, row, whole, self.sigma, self.z)
            yield replace(estimate, column=column.name, level=level, group=self.group)

    def _numbers(self, part: _Part) -> list[Estimate]:
        """Mean, standard deviation, and who lacks a value."""
        column = part.column
        found = self.moments(part)
        mean, spread, records, *_ = found
        sampling, rises = records**2 * found.drawn, records**2 / (records - 1) * found.skewness
        noise = self.sigma**2
        variance = (noise + sampling - rises * mean, rises, part.counted * noise)
        z = intervals.student(self.z, 1.0 / found.looseness)
        ends = intervals.ratio_interval(mean * records, records, variance, z, (-1.0, 1.0))
        low, half = column.bounds[0], (column.bounds[1] - column.bounds[0]) / 2
        rows = []
        if ends[0] > -1 or ends[1] < 1:
            error = half * math.sqrt(intervals.at(variance, mean)) / records
            value, first, last = (low + half * (one + 1) for one in (mean, *ends))
            names = {"column": column.name, "group": self.group}
            rows.append(intervals.spanned("mean", value, error, (first, last), **names))
        deviation = self._deviation(part, mean, spread, records)
        rows += [deviation] if deviation.low > 0 else []  # 0 is a bound, and no estimate
        if column.complete:
            return rows
        everybody, missing = np.eye(len(self.block))[[0, part.start + 2]]
        return [*rows, *self._each(column, (MISSING,), missing[None], everybody)]

    def _deviation(self, part: _Part, mean: float, spread: float, records: float) -> Estimate:
        """The sample's standard deviation, by one record less.

        A number in [-1, 1] has a fourth central moment of at most v (1 + |mean|)^2, v being its
        variance, which bounds the sampling variance of v without knowing its law. The interval
        holds each v from which the estimate is no further than by the errors that it would have,
        with caution: it is told where it does not reach 0.
        """
        noise, widest = self._noise_of_spread(part, mean, spread, records), (1 + abs(mean)) ** 2
        noise *= float(intervals.caution(np.array(spread / math.sqrt(noise) - _SPREAD))) ** 2
        error = math.sqrt(noise + max(spread * widest - spread**2, 0.0) / records)
        half = (part.column.bounds[1] - part.column.bounds[0]) / 2
        half *= math.sqrt(records / (records - 1.0))
        value, each = math.sqrt(spread), self.z**2 / records
        middle = (spread + each * widest / 2) / (1 + each)
        reach = math.sqrt(max(middle**2 - (spread**2 - self.z**2 * noise) / (1 + each), 0.0))
        error = half * min(error / (2 * value) if value else 1.0, 1.0)
        ends = math.sqrt(max(middle - reach, 0.0)), math.sqrt(min(middle + reach, 1.0))
        names = {"column": part.column.name, "group": self.group}
        reached = half * ends[0], half * ends[1]
        return intervals.spanned("sd", half * value, error, reached, **names)
