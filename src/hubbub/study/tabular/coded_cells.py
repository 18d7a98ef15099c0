"""The cells of a silo's table as numbers that statistics are made of, by the study's public rules.

A number is clipped to the column's public bounds, a category is its place in the public list, and
what is missing is not a number: no default stands in for it, as one does in features. Errors name
the file, the column and the row, never the content of a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import DataError
from hubbub.study.tabular.cells import at_row
from hubbub.study.tabular.column import Column, plain_feature
from hubbub.study.tabular.table import patients_of
from hubbub.study.tabular.unit_rows import UnitRows, unit_rows

Codes = NDArray[np.float64]


@dataclass(frozen=True)
class CodedCells:
    """One silo's table. Never printed, never sent.

    Args:
        columns: by name (n,) float64: a number within the bounds, or a category's place from 0; NaN
            where the cell is missing.
        units: the rows of each patient, where these are the units; each row is one if None.
    """

    columns: Mapping[str, Codes] = field(repr=False)
    units: UnitRows | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """How many units there are: itself private to the silo."""
        return len(self.unit_rows.rows)

    @property
    def unit_rows(self) -> UnitRows:
        """The rows of each unit."""
        if self.units is not None:
            return self.units
        rows = np.arange(len(next(iter(self.columns.values()))))[:, None]
        return UnitRows(rows=rows, shares=np.ones(rows.shape, np.float32))


def coded_cells(
    cells: Mapping[str, Sequence[str]],
    columns: Iterable[Column],
    origin: str,
    *,
    patient: str = "",
    most: int = 0,
) -> CodedCells:
    """The cells of a table that are of these columns.

    Args:
        cells: of all columns, as texts.
        columns: of the statistics.
        origin: what error messages call the table.
        patient: the column that says whose a record is; empty: each record is a unit.
        most: records of a patient that count, the first ones.

    Raises:
        DataError: a column is missing, or a cell is neither of its column nor missing.
    """
    coded = {}
    for column in columns:
        if column.name not in cells:
            raise DataError(
                f"expected a column {column.name!r} in {origin}, found none of that name; rename "
                "the column in the file or correct the study"
            )
        where = f"{origin}, column {column.name!r}"
        coded[column.name] = _codes(column, cells[column.name], where)
    units = None
    if patient:
        whose = patients_of(cells[patient], f"{origin}, column {patient!r}")
        units = unit_rows(whose, most)
    return CodedCells(coded, units)


def _codes(column: Column, texts: Sequence[str], where: str) -> Codes:
    """One column's."""
    absent = {"", *map(column.spelled, column.missing)}
    known = {text: column.spelled(text) for text in set(texts)}
    spelled = [known[text] for text in texts]
    gone = np.array([text in absent for text in spelled], dtype=bool)
    found = (_places if column.categories else _numbers)(column, spelled, gone, where)
    return np.where(gone, np.nan, found)


def _numbers(column: Column, spelled: Sequence[str], gone: NDArray[np.bool_], where: str) -> Codes:
    """Numbers within the public bounds; what is missing is 0 for now."""
    texts = ["0" if missing else text for text, missing in zip(spelled, gone, strict=True)]
    return np.clip(plain_feature(texts, where)[:, 0], *column.bounds)


def _places(column: Column, spelled: Sequence[str], gone: NDArray[np.bool_], where: str) -> Codes:
    """Places in the public list of categories."""
    index = {column.spelled(category): k for k, category in enumerate(column.categories)}
    found = np.array([index.get(text, -1) for text in spelled], dtype=np.float64)
    strange = (found < 0) & ~gone
    if strange.any():
        raise DataError(
            f"expected one of {list(column.categories)} {at_row(where, int(strange.argmax()))}, "
            "found something else; correct the cell, or add its spelling to categories or missing "
            "in data.columns"
        )
    return found
