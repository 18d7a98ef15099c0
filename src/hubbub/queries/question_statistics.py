"""From what a study asks to the statistic that answers it: names of columns become columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hubbub import estimation
from hubbub.study import NUMBER, Column, Question

Columns = Mapping[str, Column]


def statistic_of_question(
    asked: Question, columns: Columns
) -> estimation.OneSum | estimation.Iterated:
    """The statistic, by the study's columns.

    Raises:
        StudyError: what is asked cannot be made.
    """
    return _KINDS[asked.kind](asked, columns)


def _common(asked: Question) -> dict[str, Any]:
    return {"weight": asked.weight, "confidence": asked.confidence}


def _by(asked: Question, columns: Columns) -> estimation.Levels | None:
    return estimation.Levels(column=columns[asked.by]) if asked.by else None


def _table(asked: Question, columns: Columns) -> estimation.OneSum:
    described = tuple(columns[name] for name in asked.columns)
    return estimation.Table(columns=described, by=_by(asked, columns), **_common(asked))


def _histogram(asked: Question, columns: Columns) -> estimation.OneSum:
    column = columns[asked.column]
    return estimation.Histogram(column=column, edges=asked.bins, **_common(asked))


def _quantiles(asked: Question, columns: Columns) -> estimation.OneSum:
    column = columns[asked.column]
    return estimation.Quantiles(column=column, edges=asked.bins, at=asked.at, **_common(asked))


def _crosstab(asked: Question, columns: Columns) -> estimation.OneSum:
    down, across = (
        estimation.Levels(column=columns[name]) for name in (asked.rows, *asked.columns)
    )
    return estimation.Crosstab(rows=down, across=across, test=bool(asked.test), **_common(asked))


def _survival(asked: Question, columns: Columns) -> estimation.OneSum:
    grid = _grid(asked, columns)
    test = bool(asked.test)
    return estimation.Survival(**grid, by=_by(asked, columns), test=test, **_common(asked))


def _grid(asked: Question, columns: Columns) -> dict[str, Any]:
    """Time, event and the edges of the grid."""
    return {
        "time": columns[asked.time],
        "event": columns[asked.event],
        "edges": asked.bins,
    }


def _covariates(asked: Question, columns: Columns) -> tuple[estimation.Levels | Column, ...]:
    """Classes, or columns where a number takes part as it is."""
    return tuple(
        columns[name]
        if how == NUMBER
        else estimation.Levels(column=columns[name], cuts=() if isinstance(how, str) else how)
        for name, how in asked.on
    )


def _logistic(asked: Question, columns: Columns) -> estimation.OneSum | estimation.Iterated:
    outcome = columns[asked.outcome]
    return estimation.logistic(outcome=outcome, on=_covariates(asked, columns), **_common(asked))


def _linear(asked: Question, columns: Columns) -> estimation.OneSum:
    outcome = columns[asked.outcome]
    return estimation.Linear(outcome=outcome, on=_covariates(asked, columns), **_common(asked))


def _cox(asked: Question, columns: Columns) -> estimation.OneSum | estimation.Iterated:
    on = _covariates(asked, columns)
    return estimation.cox(**_grid(asked, columns), on=on, **_common(asked))


_KINDS: Mapping[str, Callable[[Question, Columns], estimation.OneSum | estimation.Iterated]] = {
    "table": _table,
    "histogram": _histogram,
    "quantiles": _quantiles,
    "crosstab": _crosstab,
    "survival": _survival,
    "logistic": _logistic,
    "linear": _linear,
    "cox": _cox,
}
