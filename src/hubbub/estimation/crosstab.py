"""A contingency table of two columns, and the chi-square test of their independence.

A record's block is the one-hot vector of its cell; the test is `intervals.independence`.

Of two classes across, every group's risk is compared with the first one's. Both counts of a group,
with the outcome and without, have independent noise of one known size. The difference of two shares
has Newcombe's interval (1998, method 10), made of score intervals that know the noise. Logarithms
of ratios are taken where every count that they are of stands clear of its noise, whose second order
is taken out; variances hold sampling and noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import intervals
from hubbub.estimation.stacking import Margins, number_of, of_parts
from hubbub.estimation.statistic import TOO_FEW, Answer, Estimate, Expectation, OneSum, one_hot
from hubbub.estimation.statistic_keys import COLUMNS, TEST, StatisticKeys, classed, table_of

_TEST = "chi-square"
RISK_DIFFERENCE, RELATIVE_RISK, ODDS_RATIO = "risk difference", "relative risk", "odds ratio"
_LEAST = 0.5  # records of a count whose logarithm is taken


@dataclass(frozen=True, kw_only=True)
class Crosstab(OneSum):
    """How often the classes of two columns occur together; incomplete records are left out.

    Args:
        rows: classes down the table.
        across: classes across it.
        test: whether independence is tested.
    """

    rows: Levels
    across: Levels
    test: bool = True

    kind = "crosstab"
    keys: ClassVar = {
        "rows": classed('`"crosstab"`: the column whose categories are the rows; required there.'),
        "columns": COLUMNS,
        "test": TEST,
    }
    methods = (
        "associations were tested by chi-square, and risks compared with Newcombe's interval for "
        "differences and on the logarithmic scale for ratios"
    )
    sensitivity = 1.0  # docs/privacy.md P23
    diameter = math.sqrt(2.0)

    @classmethod
    def read(cls, keys: StatisticKeys) -> Crosstab:
        rows, across = keys.levels("rows"), keys.levels("columns")
        if rows.column == across.column:
            raise keys.section.refusal("columns", "another column than rows", "name two")
        return cls(rows=rows, across=across, test=keys.test(_TEST), **keys.common)

    def settings(self) -> dict[str, Any]:
        return table_of(rows=self.rows, columns=self.across, test=_TEST if self.test else "")

    def __post_init__(self) -> None:
        if self.rows.column.name == self.across.column.name:
            raise StudyError(
                f"expected two different columns, found {self.rows.column.name} twice; name another"
            )

    @property
    def title(self) -> str:
        return f"{self.rows.column.name} by {self.across.column.name}"

    @property
    def size(self) -> int:
        return len(self.rows) * len(self.across)

    def encode(self, cells: Cells) -> Array:
        row, column = self.rows.places(cells), self.across.places(cells)
        known = (row >= 0) & (column >= 0)
        return one_hot(np.where(known, row * len(self.across) + column, -1), self.size)

    @property
    def margins(self) -> Margins:
        """How many records there are, with each class and with two."""
        return of_parts((self.rows, self.across), {number_of(): np.ones(1)})

    def expected(self, records: float, sigma: float) -> Expectation:
        records = max(records, 1.0)
        row = records / len(self.rows)
        error = math.sqrt(0.25 / row + (sigma / row) ** 2)
        kept = 1.0 / (1.0 + sigma**2 * self.size / records)
        least = self._least(sigma)
        told = (
            f"cells known to ±{sigma:.3g} records, shares of a row to ±{100 * error:.2g} "
            f"points (one standard error); the test has {100 * kept:.2g} % of the "
            "information it would have without noise"
        )
        errors, place = {"records": sigma, "share of row": error}, " in a cell"
        answered = intervals.COMPLETE * records >= (1.0 + intervals.SURE / intervals.CLEAR) * least
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=records >= least, place=place
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        margin = (float(sums.sum()) - self._least(sigma)) / (sigma * math.sqrt(self.size))
        notes = ("records without one of the two columns are left out",)
        if margin < 0:
            return self.make_answer(TOO_FEW, notes=notes)
        sigma *= float(intervals.caution(np.array(margin)))
        counts = sums.reshape(len(self.rows), len(self.across))
        noises = _noise_of_rows(counts, sigma)
        few = [name for name, noise in zip(self.rows.names, noises, strict=True) if not noise]
        tests = (intervals.independence(counts, sigma**2 * np.eye(self.size)),) if self.test else ()
        compared = list(self._compared(counts, sigma, noises))
        shown = dict.fromkeys((row.level, row.quantity) for row in compared)
        return self.make_answer(
            rows=(*self._cells(counts, sigma, noises), *compared),
            tests=tests,
            notes=(
                *notes,
                *(f"too few records of {name} for the noise" for name in few),
                *(
                    intervals.withheld(level, ratio)
                    for level in dict.fromkeys(level for level, _ in shown)
                    for ratio in (RELATIVE_RISK, ODDS_RATIO)
                    if (level, ratio) not in shown
                ),
            ),
        )

    def _least(self, sigma: float) -> float:
        """Records below which nothing is said."""
        return intervals.CLEAR * sigma * math.sqrt(self.size)

    def _cells(self, counts: Array, sigma: float, noises: Sequence[float]) -> Iterator[Estimate]:
        """Each cell's records, and its share of the row where this is told."""
        z, width = intervals.normal_quantile(self.confidence), len(self.across)
        for group, row, noise in zip(self.rows.names, counts, noises, strict=True):
            for level, number, part in zip(self.across.names, row, np.eye(width), strict=True):
                own: dict[str, Any] = {"column": self.across.column.name, "level": level}
                own["group"] = group
                yield intervals.count(float(number), sigma, z, **own)
                if noise:
                    told = intervals.share(row, part, np.ones(width), noise, z)
                    yield replace(told, quantity="share of row", **own)

    def _compared(self, counts: Array, sigma: float, noises: Sequence[float]) -> Iterator[Estimate]:
        """The risk of every other row that is told against the first one's."""
        z, names = intervals.normal_quantile(self.confidence), self.rows.names
        for place in range(1, len(counts)):
            pair, both = counts[[place, 0]], (noises[place], noises[0])
            if len(self.across) == 2 and all(both):
                own = (self.rows.column.name, f"{names[place]} against {names[0]}")
                yield _difference(pair, both, z, *own)
                yield from _ratios(pair, sigma, z, *own)


def _noise_of_rows(counts: Array, sigma: float) -> list[float]:
    """The noise in each row's counts, with caution; 0 where it hides how many the row has."""
    clear = counts.sum(axis=1) / (sigma * math.sqrt(counts.shape[1])) - intervals.CLEAR
    return list(np.where(clear < 0, 0.0, sigma * intervals.caution(clear)))


def _difference(
    pair: Array, noises: tuple[float, float], z: float, column: str, level: str
) -> Estimate:
    """Of the shares of two groups, the first less the second."""
    having, whole = np.array([0.0, 1.0]), np.ones(2)
    one, other = (
        intervals.share(row, having, whole, noise, z)
        for row, noise in zip(pair, noises, strict=True)
    )
    apart = one.value - other.value
    error = math.hypot(one.standard_error, other.standard_error)
    low = apart - math.hypot(one.value - one.low, other.high - other.value)
    high = apart + math.hypot(one.high - one.value, other.value - other.low)
    names = {"column": column, "level": level}
    return intervals.spanned(RISK_DIFFERENCE, apart, error, (low, high), **names)


def _ratios(pair: Array, sigma: float, z: float, column: str, level: str) -> Iterator[Estimate]:
    """Of risks and of odds, those whose counts stand clear of the noise.

    What is told of a count only above a limit may be above it by the draw of the records, too.
    """
    for quantity, first in ((RELATIVE_RISK, 1), (ODDS_RATIO, 0)):
        counts, limit = pair[:, first:], intervals.CLEAR * sigma
        if counts.min() < max(limit, _LEAST):
            continue
        margins = (counts - limit) / np.sqrt(counts + sigma**2)
        least = np.maximum(margins.min(axis=1), intervals.LEAST_OF_RATIOS)
        wider = intervals.caution(least) if sigma else np.ones(2)
        parts = [_logarithm(row, sigma, odds=not first) for row in pair]
        logs, variances = map(np.array, zip(*parts, strict=True))
        effect, error = logs[0] - logs[1], math.sqrt(wider**2 @ variances)
        yield intervals.ratio_of(effect, error, z, quantity=quantity, column=column, level=level)


def _logarithm(row: Array, sigma: float, *, odds: bool) -> tuple[float, float]:
    """Of a group's risk, or of its odds, and its variance."""
    without, having = map(float, row)
    below = without if odds else without + having
    noisy = 1.0 if odds else 2.0  # numbers that make up what is below
    second = sigma**2 / 2.0 * (1.0 / having**2 - noisy / below**2)
    if odds:
        sampling, gradient = 1.0 / having + 1.0 / without, 1.0 / having**2 + 1.0 / without**2
    else:
        sampling = 1.0 / having - 1.0 / below
        gradient = sampling**2 + 1.0 / below**2
    return math.log(having / below) + second, max(sampling, 0.0) + sigma**2 * gradient
