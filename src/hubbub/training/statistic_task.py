"""A silo's table, ready for the sums of a study's statistics (docs/privacy.md P23)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.planning import SumLayout
from hubbub.study import CodedCells

Array = NDArray[np.float64]
Parameters = NDArray[np.float32]


class StatisticTask:
    """One silo's table, ready for sums.

    Guarantees:
        1. A record's part in a sum depends on that record and on public numbers alone, and its L2
           norm is at most 1 (docs/privacy.md P23).

    Args:
        layout: of the sums.
        cells: the silo's own.
        capacity: the most records that the silo may hold; public.
    """

    def __init__(self, layout: SumLayout, cells: CodedCells, capacity: int) -> None:
        self._layout, self._cells, self.capacity = layout, cells, capacity

    def __repr__(self) -> str:
        return "StatisticTask(<private>)"

    @property
    def count(self) -> int:
        """Number of records; never leaves the silo."""
        return len(self._cells)

    def clipped_sum(self, parameters: Parameters, rows: NDArray[np.intp]) -> Array:
        """The rows' records added up, (numbers,), at what the aggregator has kept of other sums."""
        layout = self._layout
        cells = self._cells.of(rows[rows >= 0])
        return layout.stacked.sum(cells, layout.parameters(parameters)) / layout.unit


def pooled(tables: Sequence[CodedCells]) -> CodedCells:
    """All silos' tables, one after the other, for who may see them all."""
    names = tables[0].columns
    return CodedCells(
        {name: np.concatenate([one.columns[name] for one in tables]) for name in names}
    )
