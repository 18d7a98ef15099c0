"""Cells as numbers: scaled to [-1, 1], or as the number of one of a column's public classes.

Both are total: whatever float stands in a cell, infinities and missing values included, becomes a
number in range or "missing". Bounds, categories and cuts are the study's; nothing is computed from
records here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import StudyError
from hubbub.study import Column

Array = NDArray[np.float64]
# By column name (n,) floats: numbers in the column's unit or the place of the category, nan if
# missing.
Cells = Mapping[str, Array]

MISSING = "missing"


def scaled(cells: Cells, column: Column) -> Array:
    """(n,) numbers in [-1, 1], nan where the cell is missing."""
    low, high = column.bounds
    unit = (np.clip(cells[column.name], low, high) - low) / (high - low)
    return np.asarray(np.clip(2.0 * unit - 1.0, -1.0, 1.0))


def one_hot(places: NDArray[np.int64], size: int) -> Array:
    """(n, size) with a 1 at each place; places below 0 give zeros."""
    hot = np.zeros((len(places), size))
    rows = np.flatnonzero(places >= 0)
    hot[rows, places[rows]] = 1.0
    return hot


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The public classes of a column: its categories, or the ranges between its cuts.

    Args:
        column: a categorical column, or a numeric one with cuts.
        cuts: increasing break points inside the bounds of a numeric column; a value equal to one
            belongs to the range above it.

    Raises:
        StudyError: no classes, or cuts that do not increase inside the bounds.

    >>> Levels(column=Column(name="age", low=20, high=90), cuts=(40, 60)).names
    ('20 to 40', '40 to 60', '60 to 90')
    """

    column: Column
    cuts: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what has fewer than two classes."""
        if self.column.categories:
            if self.cuts:
                raise self._refusal("no cuts for a column with categories", "remove them")
            return
        inside = (self.column.bounds[0], *self.cuts, self.column.bounds[1])
        if not self.cuts or not all(a < b for a, b in pairwise(inside)):
            raise self._refusal(
                f"increasing cuts between {inside[0]:g} and {inside[-1]:g}", "give the break points"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each class."""
        if self.column.categories:
            return self.column.categories
        edges = (self.column.bounds[0], *self.cuts, self.column.bounds[1])
        return tuple(f"{a:g} to {b:g}" for a, b in pairwise(edges))

    def __len__(self) -> int:
        return len(self.names)

    def places(self, cells: Cells) -> NDArray[np.int64]:
        """(n,) the number of each record's class, -1 where its cell is missing or unknown."""
        values = cells[self.column.name]
        if self.cuts:
            found = np.searchsorted(np.array(self.cuts, dtype=np.float64), values, side="right")
            return np.asarray(np.where(np.isnan(values), -1, found), dtype=np.int64)
        known = (values >= 0) & (values < len(self))
        return np.where(known, values, -1.0).astype(np.int64)

    def _refusal(self, expected: str, remedy: str) -> StudyError:
        return StudyError(
            f"expected {expected} in column {self.column.name}, found {list(self.cuts)}; {remedy}"
        )
