"""Columns that tell the target: filled in, or with a meaning, only once it is known.

A date of death, or a complication's code, is empty wherever the outcome did not happen. A model
with such a column is perfect on paper and useless at a bedside. This file sees the cells of one
column, and what happened in each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hubbub.desk.drafting.cell_text import folded, is_missing

_FEW = 5  # cells, or rows of either answer
_MOST_VALUES = 10


def telling(cells: Sequence[str], happened: Sequence[bool | None], sides: tuple[str, str]) -> str:
    """Why a column tells the target; empty if nothing says that it does.

    Args:
        cells: of the column, in all files.
        happened: for each of them whether the outcome did; None where that is not known.
        sides: what the target says where it did, and where it did not, in words.
    """
    known = [(cell, one) for cell, one in zip(cells, happened, strict=True) if one is not None]
    rows = Counter(one for _, one in known)
    if min(rows[True], rows[False]) < _FEW:
        return ""
    filled = Counter(one for cell, one in known if not is_missing(cell))
    for side, words in zip((True, False), sides, strict=True):
        here, beyond = filled[side] / rows[side], filled[not side] / rows[not side]
        if filled[side] >= _FEW and here >= 0.1 and beyond <= 0.02 * here:
            return f"it has a value only where {words}: it tells the target"
    if _is_the_same(known, rows):
        return f"each of its values occurs only where {sides[0]}, or only where not: it tells it"
    return ""


def _is_the_same(known: Sequence[tuple[str, bool | None]], rows: Counter[bool]) -> bool:
    """Whether few values tell the answer in nearly all rows, the rarer answer's too."""
    values = Counter((folded(cell), one) for cell, one in known)
    names = {value for value, _ in values}
    if not 2 <= len(names) <= _MOST_VALUES:
        return False
    wrong = sum(min(values[name, True], values[name, False]) for name in names)
    return wrong <= 0.02 * min(rows[True], rows[False])
