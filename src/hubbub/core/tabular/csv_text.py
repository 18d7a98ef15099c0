"""Rows as CSV text that a spreadsheet shows and does not calculate, and such a cell as it was.

A class or a column may be called what a stranger likes, such as `=HYPERLINK(...)`, and a program
that opens the file would take it for a formula. So a text that begins like one gets an apostrophe
before it, as the OWASP's guidance against CSV injection says; numbers stay as they are. Whatever of
hubbub reads a CSV file takes the apostrophe off again.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

# The signs as they are and as East Asian keyboards write them, behind whatever is not seen; a tab
# or line end goes before all.
_FORMULA = re.compile(
    r"[\t\r\n]|[\s\ufeff\u200b-\u200f\u2060\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20].*\w",
    re.DOTALL,
)
_KEPT = re.compile(r'\s*="([^"]*)"\s*')
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    r"""Rows of values as CSV; a text that begins like a formula has an apostrophe before it.

    >>> csv_text([["class", "score"], ["=1+1", -0.5], ["-2.5", None]])
    "class,score\n'=1+1,-0.5\n-2.5,\n"
    """
    return "".join(_line([_shown(cell) for cell in row]) for row in rows)


def cell_text(cell: str) -> str:
    r"""A cell of a CSV file, without what only says that it is no formula.

    That is an apostrophe, or ="..." around a text that a spreadsheet should leave as it is.

    >>> cell_text("'=1+1"), cell_text("'s-Hertogenbosch"), cell_text('="007"')
    ('=1+1', "'s-Hertogenbosch", '007')
    """
    if cell.startswith("'") and is_like_formula(cell[1:]):
        return cell[1:]
    kept = _KEPT.fullmatch(cell)
    return kept.group(1) if kept else cell


def is_like_formula(text: str) -> bool:
    """Whether a program for tables may take a text for a formula."""
    return bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)


def _line(cells: Sequence[object]) -> str:
    """A row; its writer puts quotes around whatever is in the end of a line, so that is both."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _shown(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and is_like_formula(cell) else cell
