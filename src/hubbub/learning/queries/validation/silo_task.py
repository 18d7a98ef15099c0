"""One silo's records beside the trained model, ready for the sum of a validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.round.batch_rows import EMPTY
from hubbub.core.tabular.records import Records, unit_rows
from hubbub.learning.queries.validation.validation_layout import CENTRE, ValidationLayout

Array = NDArray[np.float64]


class SiloTask:
    """One silo's records, ready for the sum.

    Guarantees:
        1. A unit's part depends on that unit and on public numbers alone, and its L2 norm is at
           most 1 (docs/privacy.md P27): a patient's is the mean of the records'.
        2. The model sees batches of one public shape, whatever the silo holds (P19): who is of
           another group is an empty row.

    Args:
        layout: of the tables.
        evaluation: sums the cells of rows.
        groups: (units, blocks) the place of each unit's group in each block; -1: in none.
    """

    def __init__(self, layout: ValidationLayout, evaluation: Any, groups: NDArray[np.intp]) -> None:
        self._layout, self._evaluation = layout, evaluation
        # An empty row is -1 and finds what is last: a unit of no group.
        self._groups = np.vstack([groups, np.full((1, groups.shape[1]), -1)])

    def __repr__(self) -> str:
        return "SiloTask(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return int(self._evaluation.count)

    @property
    def capacity(self) -> int:
        """The most units that the silo may hold; public."""
        return int(self._evaluation.capacity)

    def clipped_sum(self, parameters: NDArray[np.float32], rows: NDArray[np.intp]) -> Array:
        """The rows' units added up, (numbers,), at these parameters of the model."""
        parts = []
        for number, block in enumerate(self._layout.blocks):
            mine = self._groups[rows, number]
            for place in range(len(block.groups)):
                kept = np.where(mine == place, rows, EMPTY)
                counts = self._evaluation.clipped_sum(parameters, kept)
                parts.append(block.scale * self._layout.encoded(counts))
        return np.concatenate(parts)


def groups_of(
    layout: ValidationLayout, records: Records, centre: int, places: int
) -> NDArray[np.intp]:
    """(units, blocks) in which table of each block a silo's units are.

    Args:
        layout: of the tables.
        records: of the silo.
        centre: the silo's place among all.
        places: the most records of a patient; 0 where each record is a unit.
    """
    first = np.arange(len(records))
    if records.patients is not None:
        first = unit_rows(records.patients, places).rows[:, 0]
    columns, known = [np.zeros(len(first), np.intp)], 0
    for block in layout.blocks[1:]:
        if block.by == CENTRE:
            columns.append(np.full(len(first), centre, np.intp))
            continue
        assert records.groups is not None, "records have the groups that are asked for"  # noqa: S101
        columns.append(records.groups[first, known].astype(np.intp))
        known += 1
    return np.column_stack(columns)
