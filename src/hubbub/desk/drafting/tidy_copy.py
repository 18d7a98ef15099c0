"""Copies of files of records as every program reads them: UTF-8, commas, decimal points.

Only what the study names is copied, so no patient's number or name: where the study says whose a
record is, patients are numbered anew. Nothing is guessed but how a number is spelled, a limit such
as <0.5 being its number, and no record is altered otherwise: those without a target or a patient
are left out, and rows that have not as many cells as the header, and all are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hubbub.core.disk import PRIVATE, write_text
from hubbub.core.errors import UserError
from hubbub.core.tabular.cell_rule import CellFault
from hubbub.core.tabular.csv_text import csv_text
from hubbub.core.tabular.patient_keys import patient_key
from hubbub.desk.drafting.cell_text import measured, seen
from hubbub.desk.drafting.column_draft import ColumnDraft
from hubbub.desk.drafting.raw_table import RawTable
from hubbub.desk.drafting.study_draft import Draft
from hubbub.desk.drafting.target_candidates import is_absent


def write_tidy(made: Draft, folder: Path, *, replace: bool = False) -> dict[str, int]:
    """Write a copy of every file, for its owner's eyes only.

    Args:
        made: the draft that says which columns are used.
        folder: where copies go, under the parties' names.
        replace: whether copies that are there may be written over.

    Returns:
        By party, how many rows were left out.

    Raises:
        UserError: there is a file already.
        OSError: the folder cannot be written.
    """
    targets = [folder / f"{name}.csv" for name in made.parties[: len(made.tables)]]
    there = [path for path in targets if path.exists()]
    if there and not replace:
        raise UserError(
            f"expected no file {there[0]} yet, found one; name another folder with --tidy, or add "
            "--replace"
        )
    folder.mkdir(parents=True, exist_ok=True)
    left_out = {}
    for path, table in zip(targets, made.tables, strict=True):
        rows = _rows(made, table)
        write_text(path, _text(made, rows), mode=PRIVATE)
        read = max(table.numbers, default=0)
        left_out[path.stem] = read - len(rows)
    return left_out


def _rows(made: Draft, table: RawTable) -> list[list[str]]:
    """The records that have a target, with the columns in use."""
    if not table.rows:
        return []
    learned = made.target
    own = len(learned.columns)
    targets = [table.plain(name) for name in learned.columns]
    if learned.outcome is not None:
        targets[0] = _measured(targets[0])
    else:
        targets[0] = [learned.respelled.get(cell, cell) for cell in targets[0]]
    rule = learned.rule
    known = {cell for cell in set(targets[0]) if not isinstance(rule(cell), CellFault)}
    columns = [_covariate(one, table) for one in made.used]
    return [
        ([number] if made.patient else []) + row
        for number, *row in zip(_numbers(made, table), *targets, *columns, strict=True)
        if number and not any(map(is_absent, row[:own])) and row[0] in known
    ]


def _covariate(covariate: ColumnDraft, table: RawTable) -> list[str]:
    """The cells of a column that becomes features."""
    cells = table.column(covariate.name)
    is_number = covariate.column is not None and not covariate.column.categories
    return _measured(cells, table.decimal(covariate.name)) if is_number else [*map(seen, cells)]


def _numbers(made: Draft, table: RawTable) -> list[str]:
    """Whose each row is, by a number of this copy alone; empty where the file does not say."""
    if not made.patient:
        return ["1"] * len(table.rows)
    known: dict[str, str] = {}
    keys = map(patient_key, table.column(made.patient))
    return [known.setdefault(key, str(1 + len(known))) if key else "" for key in keys]


def _measured(cells: Sequence[str], decimal: str = ".") -> list[str]:
    """The cells, those that are numbers in one way of writing them."""
    return [measured(cell, decimal) or cell for cell in cells]


def _text(made: Draft, rows: list[list[str]]) -> str:
    whose = [made.patient] if made.patient else []
    return csv_text(
        [[*whose, *made.target.columns, *(covariate.name for covariate in made.used)], *rows]
    )
