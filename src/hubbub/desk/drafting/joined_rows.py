"""Rows of one person that hold its values apart: a baseline's in one, an outcome's in another.

REDCap's longitudinal exports and every table of visits with forms of their own are so. As records
they are useless: the row with the outcome has no predictor. Joined by the person's key, each
column's first value is left. This file knows cells, not what columns mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hubbub.core.tabular.patient_keys import patient_key
from hubbub.desk.drafting.cell_text import is_missing
from hubbub.desk.drafting.raw_table import RawTable

_RARE = 0.01  # share of rows, whose pattern of filled cells may be a slip
_REDCAP = "redcap_"  # what it says of a row itself
_HALF = 0.5  # of the people, who have a value of a column


def scattered(tables: Sequence[RawTable], key: str) -> tuple[str, str] | None:
    """Two columns that most people have, in rows of their own; None where there are none.

    Args:
        tables: all files.
        key: the column that says whose a row is.
    """
    rows = Counter[frozenset[str]]()
    people = Counter[frozenset[str]]()
    for table in tables:
        own = dict[str, frozenset[str]]()
        for person, row in zip(map(patient_key, table.column(key)), table.rows, strict=True):
            cells = zip(table.header, row, strict=True)
            filled = frozenset(name for name, cell in cells if not is_missing(cell)) - {key}
            rows[filled] += 1
            own[person] = own.get(person, frozenset()) | filled
        people.update(own.values())
    least = _RARE * rows.total()
    together = [filled for filled, count in rows.items() if count >= least]
    held = Counter[str]()
    for filled, count in people.items():
        held.update(dict.fromkeys(filled, count))
    most = [
        name
        for name in tables[0].header
        if held[name] >= _HALF * people.total() and not name.startswith(_REDCAP)
    ]
    for place, name in enumerate(most):
        beside = frozenset[str]().union(*(filled for filled in together if name in filled))
        if apart := [other for other in most[place + 1 :] if beside and other not in beside]:
            return name, apart[0]
    return None


def joined(table: RawTable, key: str) -> RawTable:
    """One row for each person: of every column the first value; rows of nobody are left out."""
    people: dict[str, list[str]] = {}
    for person, row in zip(map(patient_key, table.column(key)), table.rows, strict=True):
        if person:
            kept = people.setdefault(person, list(row))
            kept[:] = [
                new if is_missing(old, number=False) else old
                for old, new in zip(kept, row, strict=True)
            ]
    rows = tuple(map(tuple, people.values()))
    return replace(table, rows=rows, numbers=tuple(range(1, len(rows) + 1)))
