"""The public classes of a column: its categories, or the ranges between its cuts.

What they are follows from the study alone; of a record they say which of them it is in, whatever
float stands in its cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.number_format import offered
from hubbub.core.settings import is_number
from hubbub.core.tabular.column import Column

Array = NDArray[np.float64]
# By column name (n,) floats: numbers in the column's unit or the place of the category, nan if
# missing.
Cells = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Levels:
    """The public classes of a column: its categories, or the ranges between its cuts.

    Args:
        column: a categorical column, or a numeric one with cuts.
        cuts: increasing break points inside the bounds of a numeric column; a value equal to one
            belongs to the range above it.
        reference: the class that others are compared with; the first if empty.

    Raises:
        StudyError: no classes, or cuts that do not increase inside the bounds.

    >>> Levels(column=Column(name="age", low=20, high=90), cuts=(40, 60)).names
    ('20 to <40', '40 to <60', '60 to 90')
    >>> Levels(column=Column(name="age", low=20, high=90, step=1), cuts=(40, 60)).names
    ('20 to 39', '40 to 59', '60 to 90')
    """

    column: Column
    cuts: tuple[float, ...] = ()
    reference: str = ""

    def __post_init__(self) -> None:
        """Refuses what has fewer than two classes, and a reference that is none of them."""
        if self.column.categories:
            if self.cuts:
                raise self._refusal("no cuts for a column with categories", "remove them")
        else:
            self._check_cuts()
        if self.reference and self.reference not in self.names:
            raise StudyError(
                f"expected one of {offered(self.names)} as the reference of column "
                f"{self.column.name}, found {self.reference}; correct it"
            )

    def _check_cuts(self) -> None:
        inside = (self.column.bounds[0], *self.cuts, self.column.bounds[1])
        if not self.cuts or not all(a < b for a, b in pairwise(inside)):
            raise self._refusal(
                f"increasing cuts between {inside[0]:g} and {inside[-1]:g}", "give the break points"
            )
        if self.column.step and any(first > last for first, last in self._values):
            raise self._refusal(
                f"a value in whole steps of {self.column.step:g} between any two cuts",
                "remove some",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each class."""
        if self.column.categories:
            return self.column.categories
        step, (low, high) = self.column.step, self.column.bounds
        if step:
            ends = [tuple(map(self.column.at_step, pair)) for pair in self._values]
        else:
            ends = list(pairwise((low, *self.cuts, high)))
        numbers = {end for pair in ends for end in pair}
        digits = 6 if len({f"{end:.6g}" for end in numbers}) == len(numbers) else 15
        ranges = [(f"{a:.{digits}g}", f"{b:.{digits}g}") for a, b in ends]
        if step:
            return tuple(f"{a} to {b}" if a != b else a for a, b in ranges)
        return (*(f"{a} to <{b}" for a, b in ranges[:-1]), "{} to {}".format(*ranges[-1]))

    @property
    def _values(self) -> list[tuple[int, int]]:
        """The first and the last step of each class, of a column with a step."""
        firsts = [0, *map(self.column.steps_below, self.cuts), self.column.steps + 1]
        return [(first, after - 1) for first, after in pairwise(firsts)]

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of its classes, that of the reference first."""
        first = self.names.index(self.reference) if self.reference else 0
        return (first, *(place for place in range(len(self)) if place != first))

    def __len__(self) -> int:
        return len(self.names)

    def places(self, cells: Cells) -> NDArray[np.int64]:
        """(n,) the number of each record's class, -1 where its cell is missing or unknown."""
        values = cells[self.column.name]
        if self.cuts:
            cuts = np.array(self.cuts, dtype=np.float64)
            places = (values[:, None] >= cuts).sum(axis=1)  # a search takes as long as it must
            return np.asarray(np.where(np.isnan(values), -1, places), dtype=np.int64)
        inside = (values >= 0) & (values < len(self))
        return np.where(inside, values, -1.0).astype(np.int64)

    def _refusal(self, expected: str, remedy: str) -> StudyError:
        return StudyError(
            f"expected {expected} in column {self.column.name}, found {list(self.cuts)}; {remedy}"
        )


def cuts_from(path: str, value: Any, low: float, high: float, most: int) -> tuple[float, ...]:
    """Break points that a study states, at most so many, which rise between two bounds."""
    is_list = isinstance(value, list) and all(map(is_number, value))
    cuts = tuple(float(cut) + 0.0 for cut in value) if is_list else ()
    if not 0 < len(cuts) <= most or not all(a < b for a, b in pairwise((low, *cuts, high))):
        raise StudyError(
            f"expected {path} to be at most {most} break points that rise between the public "
            f"bounds {low:g} and {high:g}, got {str(value)[:80]}; put them in order, within these"
        )
    return cuts


def column_of(classed: Levels | Column) -> Column:
    """The column itself, or the one whose classes these are."""
    return classed if isinstance(classed, Column) else classed.column
