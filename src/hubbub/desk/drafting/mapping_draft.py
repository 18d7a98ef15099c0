"""What a site may have to map, seen from its cells: a first `mapping.toml`, to be looked through.

It may quote cells, so it is for who has them. Units are guessed: if hardly a value is within a
column's bounds, and usual units bring nearly all there, the first few of them are proposed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from hubbub.core.section import key_of
from hubbub.core.study.data import Data, spellings_of
from hubbub.core.tabular.cell_rule import canonical, number_in
from hubbub.core.tabular.column import Column
from hubbub.desk.drafting.cell_text import folded, meant_by_truth
from hubbub.desk.drafting.likely_units import FACTORS, OFFSETS, Unit
from hubbub.desk.drafting.raw_table import RawTable

_PROPOSED = 3
_DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d", "%d-%m-%Y", "%Y/%m/%d")
_FEW_INSIDE, _MANY_INSIDE = 0.5, 0.95


def mapping_draft(table: RawTable, party: str, data: Data) -> str:
    """The text of a `mapping.toml` for one silo; empty where nothing seems to need one.

    Args:
        table: the site's cells.
        party: the silo.
        data: what the study asks for.
    """
    parts = []
    for name, column in _wanted(data):
        source = _source(name, table.header)
        lines = [f"from = {_text(source)}"] if source and source != name else []
        if source:
            lines += _lines(table.column(source), column, name, data)
        else:
            lines.append(f"# from = which of {', '.join(map(_text, table.header))}?")
        if lines:
            parts.append("\n".join([f"[{key_of(party)}.{key_of(name)}]", *lines]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _wanted(data: Data) -> Iterator[tuple[str, Column | None]]:
    yield from ((name, None) for name in (*filter(None, [data.patient]), *data.targets))
    yield from ((column.name, column) for column in data.columns)


def _source(name: str, header: Sequence[str]) -> str:
    """The site's name of a column: the same, or one that differs in case and spaces only."""
    if name in header:
        return name
    return next((one for one in header if folded(one) == folded(name)), "")


def _lines(cells: Sequence[str], column: Column | None, name: str, data: Data) -> list[str]:
    """What a column's cells need."""
    known: Sequence[str]
    missing: Sequence[str] = ()
    if column is not None and not column.categories:
        return _number_lines([cell for cell in cells if cell], column)
    if column is not None:
        known, missing = column.categories, column.missing
    elif name == data.target and data.outcome is None:
        known = (*data.negative, *data.positive) or data.classes or spellings_of(data)
    elif data.outcome is not None and name in data.outcome.columns:
        known = (*data.outcome.negative, *data.outcome.positive)
    else:
        return []
    listed = set(map(canonical, (*known, *missing)))
    strange = sorted({canonical(c) for c in cells if c} - listed)[:20]
    near = {cell: _meant(cell, known, missing) for cell in strange}
    sure = [f"{_text(cell)} = {_text(to)}" for cell, to in near.items() if to]
    lines = [f"spellings = {{ {', '.join(sure)} }}"] if sure else []
    left = ", ".join(_text(cell) for cell, to in near.items() if not to)
    return [*lines, *([f"# spellings: what are {left}?"] if left else [])]


def _meant(cell: str, known: Sequence[str], missing: Sequence[str]) -> str:
    """The study's spelling that a cell is surely; empty if it may be any."""
    near = (one for one in (*known, *missing) if folded(one) == folded(cell))
    return next(near, None) or meant_by_truth(cell, known) or ""


def _number_lines(cells: Sequence[str], column: Column) -> list[str]:
    """Decimal signs, dates and units."""
    lines, plain = [], [number_in(canonical(cell)) for cell in cells]
    if None in plain:
        commas = [number_in(cell.replace(",", ".")) for cell in cells]
        if sum(comma is not None for comma in commas) > sum(one is not None for one in plain):
            lines, plain = ['decimal = ","'], commas
    numbers = [one for one in plain if one is not None]
    if cells and not numbers:
        date = next((one for one in _DATES if _are_dates(cells, one)), "")
        return [f"# these look like dates, as {date}: the study wants a number"] if date else []
    for factor, offset in _units(numbers, column):
        unit = f"# factor = {factor:.7g}" + (f", offset = {offset}" if offset else "")
        lines.append(f"{unit}: hardly a value is within the bounds; another unit?")
    return lines


def _units(numbers: Sequence[float], column: Column) -> list[Unit]:
    """Usual factors and offsets that bring values into the bounds; none where they are there."""
    low, high = column.bounds

    def inside(unit: Unit) -> float:
        return sum(low <= unit.of(number) <= high for number in numbers) / max(len(numbers), 1)

    if not numbers or inside(Unit(1.0)) >= _FEW_INSIDE:
        return []
    return [unit for unit in (*OFFSETS, *FACTORS) if inside(unit) >= _MANY_INSIDE][:_PROPOSED]


def _are_dates(cells: Sequence[str], form: str) -> bool:
    try:
        return all(datetime.strptime(cell, form) for cell in cells[:200])  # noqa: DTZ007 (days)
    except ValueError:
        return False


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
