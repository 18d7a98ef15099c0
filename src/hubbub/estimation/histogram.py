"""A histogram: how many records lie in each of a column's public bins, or have no value.

A record's block is the one-hot vector of its bin; "missing" is one bin more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation.intervals import CLEAR, SURE, caution, count, normal_quantile, share
from hubbub.estimation.stacking import Margins, number_of, of_parts
from hubbub.estimation.statistic import (
    MISSING,
    TOO_FEW,
    Answer,
    Estimate,
    Expectation,
    OneSum,
    one_hot,
)
from hubbub.estimation.statistic_keys import BINS, COLUMN, SPACING, StatisticKeys, table_of

_BINS = 20  # if nothing is said


@dataclass(frozen=True, kw_only=True)
class Histogram(OneSum):
    """How the values of a numeric column are spread over bins.

    Args:
        edges: increasing edges of the bins in the column's unit, the public bounds outermost; a
            value equal to one belongs to the bin above it.
    """

    column: Column
    edges: tuple[float, ...]

    kind = "histogram"
    keys: ClassVar = {"column": COLUMN, "bins": BINS, "spacing": SPACING}
    methods = "values were counted in bins that were fixed beforehand"
    sensitivity = 1.0  # docs/privacy.md P23
    diameter = math.sqrt(2.0)

    @classmethod
    def read(cls, keys: StatisticKeys) -> Histogram:
        column = keys.column("column", numeric=True)
        return cls(column=column, edges=keys.spaced(column, _BINS), **keys.common)

    def settings(self) -> dict[str, Any]:
        return table_of(column=self.column, bins=self.edges[1:-1])

    def __post_init__(self) -> None:
        _ = self._levels

    @property
    def title(self) -> str:
        return f"Distribution of {self.column.name}"

    @property
    def size(self) -> int:
        return len(self.edges)

    def encode(self, cells: Cells) -> Array:
        places = self._levels.places(cells)
        return one_hot(np.where(places < 0, self.size - 1, places), self.size)

    @property
    def margins(self) -> Margins:
        """How many records there are, and in each bin."""
        levels = self._levels.names if self.column.complete else (*self._levels.names, MISSING)
        parts = zip(levels, np.eye(self.size), strict=False)
        bins = {number_of((self.column.name, level)): part for level, part in parts}
        return of_parts((), {number_of(): np.ones(self.size), **bins})

    def expected(self, records: float, sigma: float) -> Expectation:
        records = max(records, 1.0)
        typical = 1.0 / (self.size - 1)
        error = math.sqrt(typical / records + (sigma / records) ** 2)
        clear = records / (sigma * math.sqrt(self.size))
        told = f"bins known to ±{sigma:.3g} records, ±{100 * error:.2g} points (one standard error)"
        errors = {"share": error, "records": sigma}
        answered, possible = clear >= CLEAR + SURE, clear >= CLEAR
        return self.make_expectation(
            errors, sigma, told, answered=answered, possible=possible, place=" in a bin"
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        margin = float(sums.sum()) / (sigma * math.sqrt(self.size)) - CLEAR
        if margin < 0:
            return self.make_answer(TOO_FEW)
        return self.make_answer(rows=self._rows(sums, sigma * float(caution(np.array(margin)))))

    def _rows(self, sums: Array, sigma: float) -> tuple[Estimate, ...]:
        z = normal_quantile(self.confidence)
        parts, everybody = np.eye(self.size), np.ones(self.size)
        rows: list[Estimate] = []
        levels = (*self._levels.names, MISSING)
        for level, part, number in zip(levels, parts, sums, strict=True):
            whole = everybody if level == MISSING else everybody - parts[-1]
            rows += [
                replace(estimate, column=self.column.name, level=level)
                for estimate in (count(float(number), sigma, z), share(sums, part, whole, sigma, z))
            ]
        return tuple(rows)

    @property
    def _levels(self) -> Levels:
        return Levels(column=self.column, cuts=self.edges[1:-1])
