"""The tables of `utility` in docs/experiments.md, written again from its summary.

    python -m experiments.utility_page

Text between the tables is for people to write: it says what the numbers mean, and is to be read
again when they change.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from experiments.results import Row, text
from experiments.utility import KEY, PAPER, PRINTED, STRICTER
from experiments.utility_study import (
    FEW,
    FRESH,
    HUBBUB,
    LOCAL,
    ONE_SUM,
    STATIC,
    TRUSTED,
    Point,
)

ROOT = Path(__file__).parents[1]
PAGE, SUMMARY = ROOT / "docs" / "experiments.md", ROOT / "experiments/results/utility_summary.csv"
LEVELS = PAPER + STRICTER

Lines = list[Sequence[str]]


class Summary:
    """The summary's rows by their points."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = {tuple(row[name] for name in KEY[:-1]): row for row in rows}

    def row(self, point: Point) -> Row | None:
        """The summary of a point's runs, if there are any."""
        return self._rows.get(tuple(text(getattr(point, name)) for name in KEY[:-1]))

    def cells(self, point: Point) -> tuple[str, str]:
        """Accuracy and epsilon, for a table."""
        row = self.row(point)
        return (accuracy(row), f"{float(row['epsilon']):.3f}") if row else ("", "")


def accuracy(row: Row) -> str:
    """The mean, how far the runs lie apart, and how many there are unless it is five."""
    mean, runs = f"{float(row['accuracy_mean']):.4f}", int(row["runs"])
    if runs == 1:
        return f"{mean} (1 run)"
    least, largest = (float(row[f"accuracy_{end}"]) for end in ("least", "largest"))
    return f"{mean} ({least:.4f}–{largest:.4f}{'' if runs == 5 else f', {runs} runs'})"


def poisson(found: Summary) -> Lines:
    """Poisson sampling, 32 silos."""
    lines: Lines = [
        (
            "noise t",
            "hubbub, T = 0",
            "epsilon",
            "local DP of 32 as one sum, same epsilon",
            "trusted aggregator",
            "epsilon",
        )
    ]
    for t in LEVELS:
        local, _ = found.cells(Point(method=ONE_SUM, level=t))
        lines.append(
            (
                f"{t:g}",
                *found.cells(Point(method=HUBBUB, level=t)),
                local,
                *found.cells(Point(method=TRUSTED, level=t, silos=FEW)),
            )
        )
    return lines


def joint(found: Summary) -> Lines:
    """Joint batches, 32 silos."""
    lines: Lines = [
        (
            "noise t",
            "tokens",
            "hubbub, T = 0",
            "epsilon",
            "trusted aggregator",
            "epsilon",
            "the paper prints",
        )
    ]
    for t in LEVELS:
        lines.append(
            (
                f"{t:g}",
                "fresh lists",
                *found.cells(Point(method=HUBBUB, sampling=FRESH, level=t)),
                *found.cells(Point(method=TRUSTED, sampling=FRESH, level=t, silos=FEW)),
                _printed(FRESH, t),
            )
        )
    static = found.cells(Point(method=HUBBUB, sampling=STATIC, level=4.0))
    lines.append(("4", "static list", *static, "", "", ""))
    return lines


def few(found: Summary) -> Lines:
    """Four silos, Poisson sampling."""
    lines: Lines = [("epsilon", "method", "total noise / C", "accuracy")]
    methods = [(f"hubbub, T = {T}", HUBBUB, T) for T in range(3)]
    methods += [("local DP", LOCAL, 0), ("trusted aggregator", TRUSTED, 0)]
    for t in (2.0, 4.0):
        for words, method, T in methods:
            row = found.row(Point(method=method, level=t, silos=FEW, colluders=T))
            if row:
                noise, epsilon = float(row["total_noise_multiplier"]), float(row["epsilon"])
                lines.append((f"{epsilon:.3f}", words, f"{noise:.2f}", accuracy(row)))
    return lines


def _printed(sampling: str, level: float) -> str:
    """The epsilon that the paper prints."""
    return str(PRINTED.get((sampling, level), "none"))


def filled(page: str, tables: Sequence[Lines]) -> str:
    """The page with these tables in the place of those that have the same headers.

    Raises:
        ValueError: the page has no such table.
    """
    lines = page.split("\n")
    for table in tables:
        start = lines.index(_line(table[0]))
        old = list(takewhile(lambda line: line.startswith("|"), lines[start:]))
        rule = _line(["---"] * len(table[0]))
        lines[start : start + len(old)] = [_line(table[0]), rule, *map(_line, table[1:])]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def written(page: str) -> str:
    """The page as the committed summary has it."""
    with SUMMARY.open(newline="", encoding="utf-8") as file:
        found = Summary(csv.DictReader(file))
    return filled(page, [poisson(found), joint(found), few(found)])


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
