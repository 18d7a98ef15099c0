"""The tables, curves and tests of answers as CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.core.disk import file_name
from hubbub.core.tabular.csv_text import csv_text

TABLES = "tables"
_CURVE = ("x", "y", "low", "high", "band_low", "band_high", "at_risk", "at_risk_error")


def tables_of(answers: Mapping[str, Any]) -> dict[str, str]:
    """Every table, curve and test of some answers as CSV, by the name of its file."""
    taken: set[str] = set()
    tables = {}
    for name, answer in answers.items():
        own = _own_name(name, taken)
        for kind, rows in _tables(answer):
            tables[f"{TABLES}/{own}{kind}.csv"] = _text(rows)
    return tables


def _own_name(name: str, taken: set[str]) -> str:
    """What the files of an answer are called, as no other's are; their names are then taken."""
    own = file_name(name, lambda one: not taken & {*_files(one)})
    taken.update(_files(own.casefold()))
    return own


def _files(own: str) -> list[str]:
    return [own + kind for kind in ("", "-curves", "-tests")]


def _tables(answer: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """What of an answer is a table, and the end of its file's name."""
    tables = {
        "": answer["rows"],
        "-curves": [row for curve in answer["curves"] for row in _points(curve)],
        "-tests": answer["tests"],
    }
    yield from ((kind, rows) for kind, rows in tables.items() if rows)


def _points(curve: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One curve, a row for each place."""
    known = [key for key in _CURVE if curve[key]]
    for values in zip(*(curve[key] for key in known), strict=True):
        yield {"name": curve["name"], **dict(zip(known, values, strict=True))}


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a CSV file with a header."""
    names = list(rows[0])
    return csv_text([names, *([row.get(name) for name in names] for row in rows)])
