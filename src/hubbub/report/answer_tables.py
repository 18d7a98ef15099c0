"""Answers of statistics as tables of text: one row for each thing, one column for each group.

It reads plain values, as `statistics.json` has them; the page and the terminal show the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.report.number_format import NOT_KNOWN, amount

Answer = Mapping[str, Any]
_LEAST_P = 1e-4
_MOST_PLACES = 8  # of a curve in a table


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Args:
        head: names of the columns; the first is empty.
        rows: as many cells each.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table_of(answer: Answer) -> TextTable | None:
    """The numbers of an answer with their intervals; None where it has no numbers."""
    rows = answer["rows"]
    if not rows:
        return None
    if answer["kind"] == "crosstab":
        return _pivoted(rows, lambda row: row["group"], lambda row: row["level"])
    if answer["kind"] == "histogram":
        return _pivoted(rows, lambda row: row["level"], lambda row: row["quantity"])
    table = _pivoted(rows, _label, lambda row: row["group"])
    tested = {_label(row): row["p_value"] for row in rows if row["p_value"] is not None}
    if not tested:
        return table
    shown = tuple((*row, p_words(tested.get(row[0]))) for row in table.rows)
    return TextTable((*table.head, "p"), shown)


def curves_of(answer: Answer) -> TextTable | None:
    """Survival curves at up to eight of their times; None of other answers."""
    curves = answer["curves"]
    if answer["kind"] != "survival" or not curves:
        return None
    places = max((one["x"] for one in curves), key=len)
    shown = places[:: -(-len(places) // _MOST_PLACES)]
    rows = [(amount(x), *(_survived(one, x) for one in curves)) for x in shown]
    whole = "all" if len(curves) > 1 else "without the event"
    return TextTable(
        (
            "after",
            *(one["name"] or whole for one in curves),
        ),
        tuple(rows),
    )


def _survived(curve: Mapping[str, Any], x: float) -> str:
    """A curve at one of its places."""
    if x not in curve["x"]:
        return ""
    k = curve["x"].index(x)
    value, low, high = (100 * curve[key][k] for key in ("y", "low", "high"))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"


def answer_lines(name: str, answer: Answer) -> list[str]:
    """An answer as lines of text."""
    if answer["refusal"]:
        return [f"{name}: not answered: {answer['refusal']}"]
    lines = [line for table in (table_of(answer), curves_of(answer)) for line in _lines(table)]
    return [f"{name}: {answer['title']}", *lines, *map(test_words, answer["tests"])]


def _lines(table: TextTable | None) -> list[str]:
    """A table with its columns below each other."""
    rows = [] if table is None else [table.head, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def test_words(test: Mapping[str, Any]) -> str:
    """A test in a sentence."""
    degrees = f"{test['degrees']} degree{'' if test['degrees'] == 1 else 's'} of freedom"
    z = "" if test["z"] is None else f", z = {amount(test['z'])}"
    return (
        f"{test['name']} test, noise taken into account: statistic {amount(test['statistic'])} on "
        f"{degrees}{z}, p {p_words(test['p_value'], equal='= ')}"
    )


def p_words(value: float | None, *, equal: str = "") -> str:
    """A p-value to two digits, or that it is very small."""
    if value is None:
        return ""
    return f"< {_LEAST_P:g}" if value < _LEAST_P else f"{equal}{value:.2g}"


def _pivoted(rows: Sequence[Mapping[str, Any]], down: Any, across: Any) -> TextTable:
    """Rows and columns in the order in which they first come."""
    names = list(dict.fromkeys(across(row) for row in rows))
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        found.setdefault(down(row), {}).setdefault(across(row), []).append(_cell(row))
    whole = "all" if len(names) > 1 else "estimate and interval"
    head = ("", *(name or whole for name in names))
    body = [
        (label, *("; ".join(cells.get(name, [NOT_KNOWN])) for name in names))
        for label, cells in found.items()
    ]
    return TextTable(head, tuple(body))


def _label(row: Mapping[str, Any]) -> str:
    """What a number is about."""
    about = ": ".join(filter(None, (row["column"], row["level"])))
    plain = row["quantity"] in ("share", "records")
    return about if about and plain else ", ".join(filter(None, (about, row["quantity"])))


def _cell(row: Mapping[str, Any]) -> str:
    """A number with the ends of its interval."""
    if row["value"] is None:
        return NOT_KNOWN
    shown, unit = _shown(row["quantity"]), " %" if row["quantity"].startswith("share") else ""
    if row["low"] == row["value"] == row["high"]:  # known without an interval
        return f"{shown(row['value'])}{unit}"
    ends = " to ".join(_end(shown, row[key]) for key in ("low", "high"))
    return f"{shown(row['value'])}{unit} ({ends})"


def _end(shown: Any, value: float | None) -> str:
    """An end of an interval, which may not be known."""
    return NOT_KNOWN if value is None else str(shown(value))


def _shown(quantity: str) -> Any:
    """How numbers of a quantity are written."""
    if quantity.startswith("share"):
        return lambda value: f"{100 * value:.1f}"
    if quantity == "records":
        return lambda value: f"{value:,.0f}"
    return lambda value: f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
