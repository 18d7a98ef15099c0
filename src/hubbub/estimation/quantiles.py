"""Quantiles of a numeric column, and the distribution function that they are read from.

Theory of operation. A record's block is its bin's column of a prefix code. Between the edges of
bins the distribution function is interpolated so that it rises (Fritsch, Carlson 1980). An interval
holds every value at which the function is no further from the probability than what sampling and
the noise there, whose law is known, leave uncertain; noise between two edges is that of a number
between theirs. How values lie within a bin is not known: by how much it or a bin beside it is off
the line of the densities around it, as far as that is clear of noise and chance, is a doubt, which
is nothing where bins are fine. An end in a bin that holds a quarter of all records moves on to its
edge.

A column with a step has bins of whole steps. Its values are then thought of as spread over a step
around each, and what is read off there is the value in the middle: of a bin with one value, exactly
the first at which the function comes to the probability.

With groups a record's column stands in its group's place, and all counts are there for a test of
ranks (`rank_test`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import intervals, statistic_keys
from hubbub.estimation.risk_sets import PrefixCode, rising
from hubbub.estimation.stacking import Margins, number_of, of_parts
from hubbub.estimation.statistic import (
    TOO_FEW,
    Answer,
    Curve,
    Estimate,
    Expectation,
    NoisyTest,
    OneSum,
    group_names,
    group_sums,
    in_own_groups,
)
from hubbub.estimation.statistic_keys import StatisticKeys

# Wilcoxon's test of two groups, and Kruskal and Wallis' of more, from noisy counts in bins.
#
# Theory of operation. With n_gk records of group g in bin k, p_g the group's share and a_k the
# middle rank of a bin over all records, from 0 to 1, U_g = sum_k (n_gk - p_g n_k) a_k is what ranks
# have too much in a group. Ranks are noisy, too, but what they multiply is small if groups do not
# differ: U is linear in the noise but for a mean of second order, which is known and taken out.
# Values in one bin are ties: without noise, the test is the usual one with its correction for ties.


def rank_test(counts: Array, rows: Array, sigma: float) -> NoisyTest:
    """The test that values of two groups or more have the same law.

    Args:
        counts: (groups, bins) noisy, bins by rising values.
        rows: (bins, width): from a group's sum, whose noise is independent, to its counts.
        sigma: standard deviation of the noise in each number of a sum.
    """
    groups, bins = counts.shape
    total = counts.sum(axis=0)
    records = max(float(total.sum()), 2.0)
    part = np.clip(counts.sum(axis=1) / records, 0.0, 1.0)
    middle = np.tril(np.ones((bins, bins)), -1) + 0.5 * np.eye(bins)
    ranks = middle @ total / records
    apart = ranks - total @ ranks / records
    excess = (counts - np.outer(part, total)) @ ranks
    noise = sigma**2 * rows @ rows.T  # of one group's counts
    second = (np.trace(middle @ noise) - ranks @ noise.sum(axis=0)) / records
    excess = excess - (1.0 - part * groups) * second
    spread = max(float(np.maximum(total, 0.0) @ apart**2), 1e-12) / (records - 1.0)
    centred = np.eye(groups) - np.outer(part, np.ones(groups))
    covariance = spread * records * (np.diag(part) - np.outer(part, part)) + float(
        apart @ noise @ apart
    ) * (centred @ centred.T)
    degrees = groups - 1
    if degrees == 1:
        z = float(excess[0] / np.sqrt(covariance[0, 0]))
        return NoisyTest(
            name="Wilcoxon", statistic=z * z, degrees=1.0, p_value=intervals.two_sided(z), z=z
        )
    statistic = intervals.quadratic_form(excess[:-1], covariance[:-1, :-1], degrees)
    return intervals.chi_square_test("Kruskal-Wallis", statistic, float(degrees))


_TEST = "wilcoxon"
_POWER = 0.45
_BINS, _VALUES = 64, 256  # if nothing is said; of values on a step
_BETWEEN = 16  # steps in which a bin is looked through
_CROWDED = 0.25  # share of records in a bin of which nothing is taken for granted


@dataclass(frozen=True, kw_only=True)
class Quantiles(OneSum):
    """Quantiles of a numeric column; records without a value are left out.

    Args:
        edges: increasing edges of the bins in the column's unit, the public bounds outermost.
        at: probabilities, each between 0 and 1.
        by: classes of the column that divides records into groups; records without it are left out.
        test: whether groups are compared by their ranks.
    """

    column: Column
    edges: tuple[float, ...]
    at: tuple[float, ...] = (0.25, 0.5, 0.75)
    by: Levels | None = None
    test: bool = False

    kind = "quantiles"
    keys: ClassVar = {
        "column": statistic_keys.COLUMN,
        "at": statistic_keys.AT,
        "bins": statistic_keys.BINS,
        "spacing": statistic_keys.SPACING,
        "by": statistic_keys.BY,
        "test": statistic_keys.TEST,
    }
    methods = "quantiles were read from binned distribution functions"

    @classmethod
    def read(cls, keys: StatisticKeys) -> Quantiles:
        column = keys.column("column", numeric=True)
        at = keys.section.numbers("at", cls.at)
        if not at or any(a >= b for a, b in pairwise((0.0, *at, 1.0))):
            raise keys.section.refusal(
                "at", "probabilities between 0 and 1 that rise", "write it like [0.25, 0.5, 0.75]"
            )
        bins = min(column.steps + 1, _VALUES) if column.step else 0  # each value its own
        edges = keys.spaced(column, max(bins, _BINS))
        return cls(column=column, at=at, edges=edges, **keys.compared(_TEST), **keys.common)

    def settings(self) -> dict[str, Any]:
        test, bins = _TEST if self.test else "", self.edges[1:-1]
        return statistic_keys.table_of(
            column=self.column, at=self.at, bins=bins, by=self.by, test=test
        )

    def __post_init__(self) -> None:
        _ = self._levels
        if self.by and self.by.column.name == self.column.name:
            raise StudyError(
                f"expected groups by another column than {self.column.name}; correct by"
            )
        if not self.at or not all(0 < p < 1 for p in self.at):
            raise StudyError(
                f"expected probabilities between 0 and 1, found {list(self.at)}; write for example "
                "at = [0.25, 0.5, 0.75]"
            )

    @property
    def title(self) -> str:
        groups = f" by {self.by.column.name}" if self.by else ""
        return f"Quantiles of {self.column.name}{groups}"

    @property
    def size(self) -> int:
        return self._code.bins * len(group_names(self.by))

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23)."""
        return self._code.sensitivity

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23, P28)."""
        alike = self._code.diameter
        return alike if self.by is None else max(alike, math.sqrt(2.0) * self.sensitivity)

    def encode(self, cells: Cells) -> Array:
        return in_own_groups(self._code.encode(self._places(cells)), self.by, cells)

    def _places(self, cells: Cells) -> NDArray[np.int64]:
        """(n,) the number of each record's bin, those at the bounds first and last; or -1."""
        places, values = self._levels.places(cells), cells[self.column.name]
        if not self._own:
            return places
        low, high = self.column.bounds
        inside = places + 1 - (values <= low) + (values >= high)
        return np.where(places < 0, -1, inside)

    @property
    def margins(self) -> Margins:
        """How many records have a value, and in each bin."""
        firsts = np.append(0, np.arange(1, self._bins) + self._own)
        rows = zip(self._levels.names, np.add.reduceat(self._code.counts, firsts), strict=True)
        bins = {number_of((self.column.name, level)): row for level, row in rows}
        whole = {number_of(): self._code.totals[-1]} if self.column.complete else {}
        return of_parts((self.by,) if self.by else (), bins | whole)

    def expected(self, records: float, sigma: float) -> Expectation:
        """Of the median, if values lie in the column's range like a bell of six deviations."""
        records = max(records / len(group_names(self.by)), 1.0)
        totals = self._code.totals
        noise = sigma * float(np.linalg.norm(totals[len(totals) // 2] - 0.5 * totals[-1])) / records
        error = math.sqrt(0.25 / records + noise**2)
        unit = error * (self.edges[-1] - self.edges[0]) / 2.4
        clear = records / (sigma * float(np.linalg.norm(totals[-1])))
        told = (
            f"quantiles known to ±{100 * error:.2g} points of probability, about ±{unit:.2g} in "
            "the column's unit (one standard error)"
        )
        errors, group = {"probability": error, "value": unit}, " of a group" if self.by else ""
        answered = intervals.COMPLETE * clear >= intervals.CLEAR + intervals.SURE
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=clear >= intervals.CLEAR, group=group
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        last = self._code.totals[-1]
        length = float(np.linalg.norm(last))
        told = [
            (name, block, noise * float(intervals.caution(np.array(clear - intervals.CLEAR))))
            for name, block, noise in group_sums(sums, self.by, sigma)
            if (clear := float(last @ block) / (noise * length)) >= intervals.CLEAR
        ]
        names = [name for name, *_ in told]
        few = [name for name in group_names(self.by) if told and name not in names]
        kept = [place for place, name in enumerate(group_names(self.by)) if name in names]
        blocks, code = sums.reshape(-1, self._code.bins)[kept], self._code.counts
        tested = self.test and len(kept) > 1
        rows = tuple(
            replace(row, group=name)
            for name, block, noise in told
            for row in self._quantiles(block, noise)
        )
        bounds = dict.fromkeys(row.level for row in rows if row.value in self.column.bounds)
        return self.make_answer(
            "" if told else TOO_FEW,
            rows=rows,
            curves=tuple(self._curve(name, block, noise) for name, block, noise in told),
            tests=(rank_test(blocks @ code.T, code, sigma),) if tested else (),
            notes=(
                f"records without {self.column.name}{' or group' if self.by else ''} are left out",
                *(f"too few records of {name} for the noise" for name in few),
                *([f"{', '.join(bounds)}: at a bound, or beyond it"] if bounds else []),
            ),
        )

    def _quantiles(self, sums: Array, sigma: float) -> Iterator[Estimate]:
        """The estimates for all probabilities."""
        from scipy.interpolate import PchipInterpolator  # which takes long to import

        edges, shares = self._ends, self._monotone(sums)
        places = np.append(
            np.linspace(edges[:-1], edges[1:], _BETWEEN, endpoint=False).T, edges[-1]
        )
        smooth = PchipInterpolator(edges, shares)(places)
        single = np.diff(edges) < 3 * self._half  # bins of one value, which are known inside
        crowded = (np.diff(shares) > _CROWDED) & ~single
        records, z = float(self._code.totals[-1] @ sums), intervals.normal_quantile(self.confidence)
        part = np.arange(_BETWEEN) / _BETWEEN
        doubt = np.where(single, 0.0, self._doubt(sums, sigma) / records)
        unsure = np.append(np.outer(doubt, part * (1 - part) / 2), 0.0)
        for p in self.at:
            noise = (sigma / records) ** 2 * self._noise(p)
            reach = z * np.sqrt(noise + p * (1 - p) / records + unsure**2)
            low = _first_rise(places, smooth - p + reach)
            high = 0.0 - _first_rise(-places[::-1], p + reach[::-1] - smooth[::-1])  # no -0.0
            at = np.clip(np.searchsorted(edges, (low, high), side="right") - 1, 0, self._bins - 1)
            # Of a bin with so many records any place may be the quantile's, so its ends are.
            low = float(edges[at[0]]) + 2 * self._half if crowded[at[0]] else low
            high = float(edges[at[1] + 1]) if crowded[at[1]] and high > edges[at[1]] else high
            value = self._value(_first_rise(places, smooth - p))
            names = {"column": self.column.name, "level": f"{p:g}"}
            ends = min(self._value(low), value), max(self._value(high), value)  # but for rounding
            error = max(high - low, 0.0) / (2 * z)
            yield intervals.spanned("quantile", value, error, ends, **names)

    def _doubt(self, sums: Array, sigma: float) -> Array:
        """(bins,) twice the records that a bin, or one beside it, has off the line around it."""
        if self._bins < 3:
            return np.zeros(self._bins)  # each crowded
        rows, width = np.diff(self._below, axis=0), np.diff(self._ends)
        middle = (self._ends[1:] + self._ends[:-1]) / 2
        part = (middle[1:-1] - middle[:-2]) / (middle[2:] - middle[:-2])
        before, after = (1 - part) / width[:-2], part / width[2:]
        around = np.stack([before, -1 / width[1:-1], after]) * 2 * width[1:-1]
        counts = np.stack([rows[:-2], rows[1:-1], rows[2:]])
        off = np.einsum("kb,kbw->bw", around, counts)
        drawn = (around**2 * np.maximum(counts @ sums, 0.0)).sum(axis=0)
        chance = sigma**2 * np.sum(off**2, axis=1) + drawn
        inner = np.sqrt(np.maximum((off @ sums) ** 2 - chance, 0.0))
        padded = np.pad(inner, 2, mode="edge")
        return np.asarray(np.max([padded[:-2], padded[1:-1], padded[2:]], axis=0))

    def _value(self, place: float) -> float:
        """What is read off at a place: on a step the value around which it lies."""
        column = self.column
        if not column.step:
            return place
        number = column.steps_below(place - self._half)
        return column.at_step(min(max(number, 0), column.steps))

    @property
    def _half(self) -> float:
        """Half a step; 0 without one."""
        return (self.column.step or 0.0) / 2

    @property
    def _ends(self) -> Array:
        """(bins + 1,) the edges, on a step with half of it around the bounds."""
        edges = np.asarray(self.edges, dtype=np.float64)
        return edges + self._half * np.array([-1.0, *np.zeros(self._bins - 1), 1.0])

    def _noise(self, p: float) -> Array:
        """(places,) variance of a distribution function less p times the whole, at sigma 1."""
        rows = self._below - p * self._code.totals[-1]
        left, right = rows[:-1, :, None], rows[1:, :, None]
        part = np.arange(_BETWEEN) / _BETWEEN
        inside = np.sum((left * (1 - part) + right * part) ** 2, axis=1)
        return np.append(inside, np.sum(rows[-1] ** 2))

    @cached_property
    def _below(self) -> Array:
        """(bins + 1, width): from a coded sum to the records below each edge, or at the first."""
        totals = self._code.totals
        return totals[:-1] if self._own else np.vstack([np.zeros(len(totals)), totals])

    def _monotone(self, sums: Array) -> Array:
        """(bins + 1,) the distribution function at the edges, made to rise within 0 and 1."""
        below = self._below @ sums / float(self._code.totals[-1] @ sums)
        return np.clip(rising(below), 0.0, 1.0)

    def _curve(self, name: str, sums: Array, sigma: float) -> Curve:
        z, first = intervals.normal_quantile(self.confidence), 1 - self._own
        whole = self._code.totals[-1]
        shares = [intervals.share(sums, below, whole, sigma, z) for below in self._below[first:-1]]
        y = self._monotone(sums)[first:-1]
        ends = np.array([(one.low, one.high) for one in shares]).reshape(-1, 2).T
        low, high = intervals.around(y, *ends)
        return Curve(
            name=name if self.by else self.column.name,
            column=self.column.name,
            x=self.edges if self._own else (*map(self._value, self._ends[1:]),),
            y=(*map(float, y), 1.0),
            low=(*map(float, low), 1.0),
            high=(*map(float, high), 1.0),
        )

    @property
    def _own(self) -> int:
        """How many bins each bound has for itself: on a step its value is in one already."""
        return 0 if self.column.step else 1

    @property
    def _bins(self) -> int:
        return len(self.edges) - 1

    @property
    def _levels(self) -> Levels:
        return Levels(column=self.column, cuts=self.edges[1:-1])

    @property
    def _code(self) -> PrefixCode:
        return PrefixCode(bins=self._bins + 2 * self._own, power=_POWER)


def _first_rise(places: Array, values: Array) -> float:
    """Where values first come to 0 from below; they go straight from place to place."""
    k = int(np.argmax(values >= 0)) if values[-1] >= 0 else len(values) - 1
    if k == 0 or values[k] <= values[k - 1]:
        return float(places[k])
    part = min(-values[k - 1] / (values[k] - values[k - 1]), 1.0)
    return float(places[k - 1] + part * (places[k] - places[k - 1]))
