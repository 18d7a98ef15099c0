"""What people are told of a cell that a run refuses: what it looks like, and what to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hubbub.core.tabular.cell_rule import GAP, NUMBER, SPELLING, CellFault
from hubbub.desk.drafting.cell_text import (
    folded,
    is_date,
    is_limit,
    is_missing,
    meant_by_truth,
    measured,
)


class Flaw(NamedTuple):
    """What people with the file are told of cells that are wrong in one way."""

    kind: str
    what: str
    remedy: str


def flaw_of(cell: str, fault: CellFault, known: Sequence[str], instead: str) -> Flaw:
    """What a fault means, said with the cell."""
    if fault.kind == GAP:
        return Flaw(GAP, f"expected {fault.expected}, found {fault.found}", fault.remedy)
    if fault.kind == SPELLING:
        return _unknown(cell, fault, known, instead)
    if fault.kind == NUMBER:
        return _no_number(cell, fault)
    return Flaw(fault.kind, f"{cell!r} is {fault.found}", fault.remedy)


def _no_number(cell: str, fault: CellFault) -> Flaw:
    """Why a cell is no number."""
    if is_missing(cell):
        remedy = "list it in the column's missing, or remove the record"
        return Flaw(cell, f"{cell!r} looks like a missing value", remedy)
    if (number := measured(cell)) is not None:
        if is_limit(cell):
            said = f"{cell!r} is the limit of what was measured, not a number"
            return Flaw("limit", said, f"write {number}, or list the cell in the column's missing")
        said = f"{cell!r} has a decimal comma, a thousands separator or a unit"
        return Flaw(NUMBER, said, f"write {number}")
    if is_date(cell):
        remedy = "turn it into a number, such as an age in years"
        return Flaw("date", f"{cell!r} is a date", remedy)
    return Flaw(cell, f"{cell!r} is no number, or too large", fault.remedy)


def _unknown(cell: str, fault: CellFault, known: Sequence[str], instead: str) -> Flaw:
    """A spelling that no list has."""
    near = next((one for one in known if folded(one) == folded(cell)), None)
    if near is not None:
        said = f"{cell!r} differs from {near!r} in case or spaces only"
        return Flaw(cell, said, f"write {near!r}, or {instead}")
    if (meant := meant_by_truth(cell, known)) is not None:
        said = f"{cell!r} is a truth value where {meant!r} was read as one, as by DuckDB's read_csv"
        remedy = (
            f"map it in mapping.toml, spellings = {{ {cell!r} = {meant!r} }} (--mapping writes "
            "them), or have the column read as text: read_csv(..., all_varchar = true)"
        )
        return Flaw(cell, said, remedy)
    if is_missing(cell):
        said = f"{cell!r} looks like a missing value"
        return Flaw(cell, said, "remove the record, or list it as missing")
    return Flaw(cell, f"{cell!r} is not {fault.expected}", fault.remedy)
