"""A silo's table, ready for the sums of a study's statistics (docs/privacy.md P23)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.records import UnitRows
from hubbub.core.tabular.table import CodedCells
from hubbub.estimation.queries.statistic_sums import SumLayout

Array = NDArray[np.float64]
Parameters = NDArray[np.float32]


class StatisticTask:
    """One silo's table, ready for sums.

    Guarantees:
        1. A unit's part in a sum depends on that unit and on public numbers alone, and its L2 norm
           is at most 1 (docs/privacy.md P23): a patient's is the mean of the records'.
        2. A sum is made of as many records as are public, whatever the silo holds (P19).

    Args:
        layout: of the sums.
        cells: the silo's own.
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
