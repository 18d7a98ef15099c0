"""Tables that a notebook hands over become the cells of silos, with whose their rows are.

A digest stands for each table while the program runs. This file knows cells; it must not know what
is asked of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubbub.core.errors import DataError, StudyError
from hubbub.core.tabular.cells import cells_of
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.table import CodedCells, coded_cells
from hubbub.learning.runs import array_inputs

_PATIENT = "patient"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What silos have in memory.

    Args:
        cells: of every silo by its name.
        digests: of the whole tables, by the silos' names.
        patient: the column that says whose a row is; empty: each row is a unit.
    """

    cells: Mapping[str, CodedCells] = field(repr=False)
    digests: Mapping[str, str] = field(repr=False)
    patient: str


def tables_of(
    silos: Mapping[str, Any],
    columns: Sequence[Column],
    patients: str | Mapping[str, Any] | None,
    most_per_patient: int | None,
) -> Tables:
    """The tables of silos, checked.

    Args:
        silos: each silo's table by its name.
        columns: what is public of each column.
        patients: whose each row is: a column of every table, keys by each silo's name, or None.
        most_per_patient: how many rows of a patient count.

    Raises:
        StudyError: there are patients, and it is not said how many rows of one count.
        DataError: a table does not fit the columns, or a row has no patient.
    """
    if patients is not None and not most_per_patient:
        raise StudyError(
            "expected most_per_patient beside patients, the public number of rows of one patient "
            "that count, got none; state it"
        )
    patient = patients if isinstance(patients, str) else _PATIENT if patients is not None else ""
    whole = {who: _with_keys(who, table, patients, patient) for who, table in silos.items()}
    cells = {
        who: coded_cells(table, columns, who, patient=patient, most=most_per_patient or 0)
        for who, table in whole.items()
    }
    digests = {who: _digest(table) for who, table in whole.items()}
    return Tables(cells=cells, digests=digests, patient=patient)


def _with_keys(
    who: str, table: Any, patients: str | Mapping[str, Any] | None, patient: str
) -> dict[str, list[str]]:
    """A table's cells, beside which its patients' keys stand in a column."""
    cells = cells_of(table)
    if isinstance(patients, Mapping):
        if who not in patients:
            raise DataError(f"expected the patients of {who} beside its rows, found none; add them")
        cells = {**cells, patient: list(map(str, array_inputs.keys_of(patients[who])))}
    if patient and patient not in cells:
        raise DataError(
            f"expected a column {patient!r} that says whose each row of {who} is, found none; "
            "correct its name"
        )
    if len(set(map(len, cells.values()))) > 1:
        raise DataError(
            f"expected a patient for every row of {who}, found another number of them; give as many"
        )
    return cells


def _digest(cells: Mapping[str, Sequence[str]]) -> str:
    """What stands for a table while the program runs: all of its cells."""
    whole = json.dumps(sorted((name, list(column)) for name, column in cells.items()))
    return hashlib.sha256(whole.encode()).hexdigest()
