"""Medians with the least and the largest run, where times are compared: a mean feels every hiccup.

This file knows tables and marks; it must not know what is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from experiments.results import Row, Table, summarise, text

if TYPE_CHECKING:
    from experiments.drawing import Spread


def summarise_medians(table: Table, by: Sequence[str], of: Sequence[str]) -> None:
    """The summary of `results.summarise`, with a column `_median` for every column of `of`."""
    rows = table.rows()

    def more(line: Row) -> Row:
        mine = [row for row in rows if all(row[column] == line[column] for column in by)]
        return {
            f"{column}_median": text(median(float(row[column]) for row in mine)) for column in of
        }

    summarise(table, by, of, more)


def medians(pairs: Iterable[tuple[float, float]]) -> list[Spread]:
    """Marks at the medians of y for each x, in order of x, with bars from least to largest."""
    from experiments.drawing import Spread

    found: dict[float, list[float]] = {}
    for x, y in pairs:
        found.setdefault(x, []).append(y)
    return [
        Spread(x=x, mean=median(ys), least=min(ys), largest=max(ys), runs=len(ys))
        for x, ys in sorted(found.items())
    ]


def runs_of(rows: Iterable[Row], point: Sequence[str]) -> str:
    """What the marks and bars are, and how many runs each stands for."""
    counts = Counter(tuple(row[column] for column in point) for row in rows)
    least, most = min(counts.values()), max(counts.values())
    if most == 1:
        return "one run each"
    return f"median, least and largest\nof {most if least == most else f'{least} to {most}'} runs"
