"""What a cell says by its column: a number, or why it is none of that column's.

Each kind of column has one rule, written once. A run reads a column by it and stops at the first
fault (`read_column`); a check of files asks it of every cell and collects all that it says. A
fault's words never quote the cell: errors leave a silo.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.core.tabular.cells import at_row

GAP, NUMBER, SPELLING = "gap", "number", "spelling"  # kinds of faults that rules share
MISSING = float("nan")  # what a rule reads where a cell may be missing and is
LARGEST = float(np.finfo(np.float32).max)
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]+)\.0*")  # as databases have it too (study/sql/readings.py)


class CellFault(NamedTuple):
    """Why a cell is none of its column's.

    Args:
        kind: "gap", "number", "spelling", or a sentence's part that says more.
        expected: what the column wants.
        found: what the cell is instead, without its content.
        remedy: what to do.
    """

    kind: str
    expected: str
    found: str
    remedy: str


Rule = Callable[[str], float | CellFault]


def read_column(texts: Sequence[str], rule: Rule, where: str) -> NDArray[np.float64]:
    """The numbers of one column's cells, (n,).

    Args:
        texts: its cells, stripped.
        rule: of the column.
        where: the table and column, for errors.

    Raises:
        DataError: the first cell that the rule finds at fault; its content is not quoted.
    """
    read = {text: rule(text) for text in set(texts)}  # columns repeat themselves
    numbers = np.empty(len(texts))
    for row, text in enumerate(texts):
        value = read[text]
        if isinstance(value, CellFault):
            raise DataError(
                f"expected {value.expected} {at_row(where, row)}, found {value.found}; "
                f"{value.remedy}"
            )
        numbers[row] = value
    return numbers


def number_rule(text: str) -> float | CellFault:
    """The rule of a column of which the study says nothing: finite numbers."""
    value = number_in(text)
    if value is not None:
        return value
    return CellFault(
        *(NUMBER if text else GAP, "a number", "something else" if text else "an empty cell"),
        "correct the cell, or declare in data.columns what it means (categories, missing, default)",
    )


def label_rule(places: Mapping[str, int], lists: str) -> Rule:
    """The rule of a target that the study spells out.

    Args:
        places: what each spelling counts as.
        lists: the keys of the study that list them, as "data.positive or data.negative".
    """

    def rule(text: str) -> float | CellFault:
        if not text:
            return NO_TARGET
        if (place := places.get(canonical(text))) is not None:
            return place
        expected = f"a target that {lists} lists"
        remedy = f"correct the cell, or add its spelling to {lists}"
        return CellFault(SPELLING, expected, "something else", remedy)

    return rule


NO_TARGET = CellFault(GAP, "a target", "an empty cell", "remove the record")


def canonical(text: str) -> str:
    """One spelling for one value: "1.0", which other programs write for a whole 1, becomes "1".

    Only where the whole text is a number: `1.2.0` is another key than `1.2`.
    """
    text = text.strip()
    whole = _WHOLE_NUMBER.fullmatch(text)
    return whole.group(1) if whole else text


def number_in(text: str) -> float | None:
    """The finite number that `text` spells, else None (an exception would quote the cell)."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST and "_" not in text else None
