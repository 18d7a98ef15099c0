"""From what a study asks to the statistic that answers it: names of columns become columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hubbub import estimation
from hubbub.estimation import Iterated, Levels, OneSum
from hubbub.study import Column, Question

Columns = Mapping[str, Column]


def kind_of_question(asked: Question, columns: Columns) -> OneSum | Iterated:
    """The statistic, by the study's columns.

    Raises:
        StudyError: what is asked cannot be made.
    """
    return _KINDS[asked.kind](asked, columns)


def _common(asked: Question) -> dict[str, Any]:
    return {"weight": asked.weight, "confidence": asked.confidence}


def _by(asked: Question, columns: Columns) -> Levels | None:
    return Levels(column=columns[asked.by]) if asked.by else None


def _table(asked: Question, columns: Columns) -> OneSum:
    described = tuple(columns[name] for name in asked.columns)
    return estimation.Table(columns=described, by=_by(asked, columns), **_common(asked))


def _histogram(asked: Question, columns: Columns) -> OneSum:
    column = columns[asked.column]
    return estimation.Histogram(column=column, edges=asked.bins, **_common(asked))


def _quantiles(asked: Question, columns: Columns) -> OneSum:
    column = columns[asked.column]
    return estimation.Quantiles(column=column, edges=asked.bins, at=asked.at, **_common(asked))


def _crosstab(asked: Question, columns: Columns) -> OneSum:
    down, across = (Levels(column=columns[name]) for name in (asked.rows, *asked.columns))
    return estimation.Crosstab(rows=down, across=across, test=bool(asked.test), **_common(asked))


_KINDS: Mapping[str, Callable[[Question, Columns], OneSum | Iterated]] = {
    "table": _table,
    "histogram": _histogram,
    "quantiles": _quantiles,
    "crosstab": _crosstab,
}
