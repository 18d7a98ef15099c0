"""Table 1 as journals print it: n (%), mean (SD) or median [IQR], all records, groups, p and SMD.

Numbers of records are noisy: a class's is its share of those who have a value. What the noise is
stands in a note below the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.core.number_format import NOT_KNOWN, amount
from hubbub.desk.report.answer_tables import Answer, TextTable, p_cell

Row = Mapping[str, Any]
_MISSING = "missing"


def table_one(answer: Answer, quantiles: Sequence[Answer]) -> TextTable:
    """The table of an answer of the kind "table".

    Args:
        answer: of it.
        quantiles: answers of that kind; medians of what they describe are told besides.
    """
    groups = list(dict.fromkeys(row["group"] for row in answer["rows"]))
    tests = {test["column"]: test for test in answer["tests"] if test.get("column")}
    head = ["", *(_head(answer, group) for group in groups), *(["p", "SMD"] if tests else [])]
    rows: list[tuple[str, ...]] = []
    for column in dict.fromkeys(row["column"] for row in answer["rows"] if row["column"]):
        own = [row for row in answer["rows"] if row["column"] == column]
        described = [*_column(column, own, groups, answer), *_medians(column, groups, quantiles)]
        for place, (label, cells) in enumerate(described):
            last = _tested(tests.get(column)) if place == 0 else ("", "")
            rows.append((label, *cells, *(last if tests else ())))
    return TextTable(tuple(head), tuple(rows))


def noise_note(answer: Answer) -> str:
    """What the noise in the table's counts is."""
    errors = [row["standard_error"] for row in answer["rows"] if row["quantity"] == "records"]
    least, most = min(errors), max(errors)
    size = amount(least) if f"{least:.2g}" == f"{most:.2g}" else f"{least:.2g} to {most:.2g}"
    return (
        f"Counts carry noise with a standard deviation of {size} records, which the tests take "
        "into account"
    )


def tests_note(answer: Answer) -> Iterator[str]:
    """Which tests p-values are of, and what SMD is; nothing where nothing is compared."""
    named = dict.fromkeys(test["name"] for test in answer["tests"] if test.get("column"))
    if named:
        yield (
            f"P-values are of {' or '.join(f'{name} test' for name in named)}, noise taken into "
            "account; SMD is the standardised mean difference"
        )


def _head(answer: Answer, group: str) -> str:
    (records,) = (
        row["value"]
        for row in answer["rows"]
        if row["quantity"] == "records" and row["group"] == group
    )
    return f"{group or 'Overall'} (n = {records:,.0f})"


def _column(
    column: str, rows: Sequence[Row], groups: Sequence[str], answer: Answer
) -> Iterator[tuple[str, list[str]]]:
    """The lines of one column: mean (SD), or a line for each class below its name."""
    known = {(row["quantity"], row["level"], row["group"]): row for row in rows}
    if any(row["quantity"] == "mean" for row in rows):
        cells = [
            _spread(known.get(("mean", "", group)), known.get(("sd", "", group)))
            for group in groups
        ]
        yield f"{column}, mean (SD)", cells
    else:
        yield f"{column}, n (%)", ["" for _ in groups]
    for level in dict.fromkeys(row["level"] for row in rows if row["quantity"] == "share"):
        cells = [_counted(known, level, group, _records(answer, group)) for group in groups]
        yield f"  {level}", cells


def _records(answer: Answer, group: str) -> float:
    return next(
        float(row["value"])
        for row in answer["rows"]
        if row["quantity"] == "records" and row["group"] == group
    )


def _counted(known: Mapping[tuple[str, str, str], Row], level: str, group: str, all_: float) -> str:
    """n (%) of a class; of "missing", out of all records."""
    row = known.get(("share", level, group))
    if row is None or row["value"] is None:
        return NOT_KNOWN
    gone = known.get(("share", _MISSING, group))
    without = 0.0 if gone is None or level == _MISSING else gone["value"]
    return f"{row['value'] * all_ * (1.0 - without):,.0f} ({100 * row['value']:.1f})"


def _spread(mean: Row | None, deviation: Row | None) -> str:
    if mean is None or deviation is None:
        return NOT_KNOWN
    return f"{_short(mean['value'])} ({_short(deviation['value'])})"


def _medians(
    column: str, groups: Sequence[str], quantiles: Sequence[Answer]
) -> Iterator[tuple[str, list[str]]]:
    """The median and quartiles, of all or by group, where somebody asked for them."""
    medians = {
        (row["group"], row["level"]): row["value"]
        for answer in quantiles
        for row in answer["rows"]
        if row["column"] == column and row["quantity"] == "quantile"
    }
    levels = ("0.5", "0.25", "0.75")
    known = [all((group, level) in medians for level in levels) for group in groups]
    if any(known):
        cells = [
            "{} [{}, {}]".format(*(_short(medians[group, level]) for level in levels))
            if there
            else NOT_KNOWN
            for group, there in zip(groups, known, strict=True)
        ]
        yield f"{column}, median [IQR]", cells


def _tested(test: Row | None) -> tuple[str, str]:
    if test is None:
        return "", ""
    return p_cell(test), "" if test["smd"] is None else f"{test['smd']:.3f}"


def _short(value: float | None) -> str:
    if value is None:
        return NOT_KNOWN
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
