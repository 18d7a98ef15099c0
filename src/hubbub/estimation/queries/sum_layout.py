"""From what is asked of records to one vector, its unit and its noise; and from sums to answers.

A record's part in a sum is its stacked vector over the length of the longest, so that C is 1 and
nothing is clipped (docs/privacy.md P23). How many sums were made, the parameters at which the next
one is taken, and the sums themselves stand in one vector of numbers, which goes down to the silos
where otherwise a model does. This file knows noise and no records.

Where one sum would be enough, a study may ask for several all the same: k of them with k times the
variance say as much together, and one that is lost is not the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.levels import Array, Cells
from hubbub.core.tabular.records import UnitRows
from hubbub.core.tabular.table import CodedCells

Parameters = NDArray[np.float32]


class StackedVector(Protocol):
    """All that a query asks of a record as one vector."""

    @property
    def size(self) -> int:
        """How many numbers the vector has."""

    @property
    def start(self) -> Parameters:
        """What goes down for the first sum."""

    @property
    def least_rounds(self) -> int:
        """How few sums are enough."""

    def sum(self, cells: Cells, parameters: Parameters, shares: Array) -> Array:
        """Of all units' vectors."""

    def update(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Parameters:
        """What goes down next."""


@dataclass(frozen=True, kw_only=True)
class SumLayout:
    """How a query's records are summed: the vector, its unit, and what is kept of sums.

    Args:
        stacked: all questions as one vector.
        unit: the largest L2 norm of a record's vector, by which sums are divided.
        diameter: the largest L2 distance of two records' parts in a sum, where one is exchanged.
        rounds: how many sums are asked for.
        family: statistics whose p-values are adjusted as one family.
    """

    stacked: StackedVector
    unit: float
    diameter: float
    rounds: int
    family: tuple[str, ...] = ()

    @property
    def numbers(self) -> int:
        """How many numbers a sum has."""
        return self.stacked.size

    @property
    def start(self) -> Parameters:
        """What is kept before the first sum."""
        made, sums = np.zeros(1, np.float32), np.zeros(self.rounds * self.numbers, np.float32)
        return np.concatenate((made, self.stacked.start, sums))

    def parameters(self, kept: Parameters) -> Parameters:
        """At which the next sum is taken."""
        return kept[1 : self._begin]

    def made(self, kept: Parameters) -> int:
        """How many sums were made."""
        return int(min(max(kept[0], 0.0), self.rounds))

    def is_enough(self, kept: Parameters) -> bool:
        """Whether there are answers: enough sums were made, one where one is enough."""
        return self.made(kept) >= self.stacked.least_rounds

    def sums(self, kept: Parameters) -> Array:
        """The sums that were made, (made, numbers), in units of the stack."""
        whole = kept[self._begin :].astype(np.float64) * self.unit
        return whole.reshape(self.rounds, self.numbers)[: self.made(kept)]

    def after(self, kept: Parameters, total: Array, sigma: float) -> Parameters:
        """What is kept after one more sum.

        Args:
            kept: before it.
            total: the noisy sum.
            sigma: standard deviation of all its noise, in its own unit.
        """
        held, made = kept.copy(), self.made(kept)
        place = self._begin + made * self.numbers
        held[place : place + self.numbers] = total
        held[0] = made + 1
        if made + 1 < self.rounds:
            noisy = list(self.sums(held))  # as whoever goes on from what is kept reads them
            before = self.parameters(kept)
            held[1 : self._begin] = self.stacked.update(noisy, sigma * self.unit, before)
        return held

    def misfit(self, kept: Parameters, begin: Parameters | None, sums: int) -> str:
        """Why this cannot be what is kept after so many sums at most, as a clause; "" if it can.

        Args:
            kept: what may be.
            begin: what is kept before the first sum; None if that is not known here.
            sums: the most that may have been made.
        """
        if kept.size != self.start.size or not np.isfinite(kept).all():
            return "it has another size, or numbers that are none"
        made = self.made(kept)
        if kept[0] != made or made > sums:
            return f"it carries {kept[0]:.0f} earlier sums, where {sums} were made at most"
        if np.any(kept[self._begin + made * self.numbers :]):
            return "it has numbers where no sum was made yet"
        if made == 0 and begin is not None and kept.tobytes() != begin.tobytes():
            return "its first sum is taken elsewhere"
        return ""

    @property
    def _begin(self) -> int:
        """Where the first sum stands in what is kept."""
        return 1 + len(self.stacked.start)


# A silo's table, ready for the sums of a study's statistics (docs/privacy.md P23).


class StatisticTask:
    """One silo's table, ready for sums.

    Guarantees:
        1. A unit's part in a sum depends on that unit and on public numbers alone, and its L2 norm
           is at most 1 (docs/privacy.md P23): a patient's is the mean of the records'.
        2. A sum is made of as many records as are public, whatever the silo holds (P19).

    Args:
        capacity: the most units that the silo may hold; public.
    """

    def __init__(self, layout: SumLayout, cells: CodedCells, capacity: int) -> None:
        units = cells.unit_rows
        self._layout, self._count, self.capacity = layout, len(units.rows), capacity
        # An empty row is -1 and finds what is last: records without a cell, and no share of them.
        nothing = np.full((1, units.rows.shape[1]), -1)
        self._places = np.vstack((units.rows, nothing))
        self._shares = np.vstack((units.shares, 0.0 * nothing)).astype(np.float64)
        self._columns = {name: np.append(codes, np.nan) for name, codes in cells.columns.items()}

    def __repr__(self) -> str:
        return "StatisticTask(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return self._count

    def clipped_sum(self, parameters: Parameters, rows: NDArray[np.intp]) -> Array:
        """The rows' units added up, (numbers,), at what the aggregator has kept of other sums."""
        layout, places = self._layout, self._places[rows].reshape(-1)
        cells = {name: codes[places] for name, codes in self._columns.items()}
        total = layout.stacked.sum(cells, layout.parameters(parameters), self._shares[rows])
        return total / layout.unit


def pooled(tables: Sequence[CodedCells]) -> CodedCells:
    """All silos' tables, one after the other, for who may see them all."""
    columns = {
        name: np.concatenate([table.columns[name] for table in tables])
        for name in tables[0].columns
    }
    if tables[0].units is None:
        return CodedCells(columns)
    lengths = [len(next(iter(table.columns.values()))) for table in tables]
    firsts = np.cumsum([0, *lengths[:-1]])
    units = [table.unit_rows for table in tables]
    rows = [one.rows + first for one, first in zip(units, firsts, strict=True)]
    shares = np.concatenate([unit.shares for unit in units])
    return CodedCells(columns, UnitRows(rows=np.concatenate(rows), shares=shares))
