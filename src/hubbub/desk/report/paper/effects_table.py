"""Effects of a regression as journals print them: each column with its classes, reference first.

Numbers are a line each. What is told of subgroups, or of each of several classes of an outcome,
stands below a line of its own. It reads plain values, as the files of a run have them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.core.number_format import NOT_KNOWN
from hubbub.desk.report.answer_tables import Answer, TextTable, estimate_words, p_cell

EFFECTS = ("logistic", "multinomial", "poisson", "linear", "cox")  # kinds of answers that are such
GEOMETRIC = "ratio of geometric means"
_AGAINST = " against "
Row = Mapping[str, Any]


def effects_table(answer: Answer) -> TextTable:
    """The table of an answer of one of these kinds."""
    quantities = dict.fromkeys(row["quantity"] for row in answer["rows"])
    what = "difference" if len(quantities) > 1 else next(iter(quantities))
    head = ("", f"{what} ({100 * answer['confidence']:g} % interval)", "p")
    groups = dict.fromkeys(row["group"] for row in answer["rows"])
    rows = [
        line
        for group in groups
        for line in _section(group, [row for row in answer["rows"] if row["group"] == group])
    ]
    return TextTable(head, tuple(rows))


def _section(group: str, rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """What is told of one group; a line where it is one number."""
    if group and len(rows) == 1:
        (row,) = rows
        yield f"{group}; {row['column']}: {row['level']}", _cell(row), p_cell(row)
        return
    if group:
        yield group, "", ""
    for column in dict.fromkeys(row["column"] for row in rows):
        own = [row for row in rows if row["column"] == column]
        reference = ""
        for row in own:
            level, against, first = row["level"].partition(_AGAINST)
            if against and first != reference:
                yield column, "", ""
                yield f"  {first}", "reference", ""
                reference = first
            label = f"  {level}" if against else ", ".join(filter(None, (column, row["level"])))
            yield label, _cell(row), p_cell(row)


def _cell(row: Row) -> str:
    known = None not in (row["value"], row["low"], row["high"])
    return estimate_words(row) if known else NOT_KNOWN
