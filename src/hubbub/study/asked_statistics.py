"""The table `[statistics]`: tables, curves, tests and regressions that a study asks for.

A question names columns and break points, all of them public. This file knows what may be asked of
which columns; it knows neither how an answer is summed nor how it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from hubbub.errors import StudyError
from hubbub.section import Section, is_number, key_of
from hubbub.tabular import Column

Columns = Mapping[str, Column]
# A covariate of a regression: its column, and the break points that cut a number into categories,
# or how else it takes part.
NUMBER, CATEGORIES = "number", "categories"
Covariate = tuple[str, str | tuple[float, ...]]

_COMMON = ("kind", "weight", "confidence")
_MORE = (
    *("columns", "by", "column", "at", "bins", "rows", "time", "event", "horizon", "test"),
    *("outcome", "on"),
)
_KEYS = {
    "table": ("columns", "by"),
    "histogram": ("column", "bins"),
    "quantiles": ("column", "at", "bins"),
    "crosstab": ("rows", "columns", "test"),
    "survival": ("time", "event", "by", "bins", "horizon", "test"),
    "logistic": ("outcome", "on"),
    "linear": ("outcome", "on"),
    "cox": ("time", "event", "on", "bins", "horizon"),
}
_WRITTEN = ("name", "columns", "bins", "on")  # in a form of their own
_TESTS = {"crosstab": "chi-square", "survival": "log-rank"}
_BINS = {"histogram": 20, "quantiles": 64, "survival": 12, "cox": 12}
_MOST_BINS, _MOST_QUESTIONS, _MOST_COVARIATES = 1000, 100, 30
NEWTON_ROUNDS = 4  # sums that a regression on numbers takes


@dataclass(frozen=True, kw_only=True)
class Question:
    """One statistic that is asked for; keys that its kind has not keep their defaults.

    Args:
        name: the table's, under which it is answered.
        kind: "table", "histogram", "quantiles", "crosstab", "survival", "logistic", "linear" or
            "cox".
        columns: that a table describes, or the one across a crosstab.
        by: a column of groups, side by side; empty: none.
        column: whose distribution is asked for.
        at: probabilities of quantiles.
        bins: public edges of intervals, in the column's unit, the outermost included.
        rows: the column down a crosstab.
        time, event: of a survival time: how long, and whether it ended with the event, which is the
            second category.
        test: "chi-square" or "log-rank"; empty: none.
        outcome: that a regression explains.
        on: what it explains it by.
        weight: of its accuracy beside that of others, no unit.
        confidence: of its intervals, a probability.
    """

    name: str
    kind: str
    columns: tuple[str, ...] = ()
    by: str = ""
    column: str = ""
    at: tuple[float, ...] = ()
    bins: tuple[float, ...] = ()
    rows: str = ""
    time: str = ""
    event: str = ""
    test: str = ""
    outcome: str = ""
    on: tuple[Covariate, ...] = ()
    weight: float = 1.0
    confidence: float = 0.95

    @property
    def rounds(self) -> int:
        """How many sums it takes: a few where numbers are covariates of what is not linear."""
        newton = self.kind != "linear" and any(how == NUMBER for _, how in self.on)
        return NEWTON_ROUNDS if newton else 1

    @property
    def used(self) -> tuple[str, ...]:
        """The columns that it looks at, each once."""
        single = (self.by, self.column, self.rows, self.time, self.event, self.outcome)
        named = (*self.columns, *single, *(name for name, _ in self.on))
        return tuple(dict.fromkeys(filter(None, named)))

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from; what has its default is left out."""
        table = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in _WRITTEN and getattr(self, one.name) != one.default
        }
        if self.bins:
            table["bins"] = list(self.bins[1:-1])
            if "horizon" in _KEYS[self.kind]:
                table["horizon"] = self.bins[-1]
        if self.columns:
            table["columns"] = self.columns[0] if self.kind == "crosstab" else list(self.columns)
        if self.on:
            table["on"] = {
                name: how if isinstance(how, str) else list(how) for name, how in self.on
            }
        return table


@dataclass(frozen=True, kw_only=True)
class AskedStatistics:
    """All statistics of a study: one release together.

    Args:
        questions: in the order of the file.
        epsilon: what they may cost beside a training, as a part of the study's; 0: all of it.
        sums: in how many they are asked where one would do, so that one may be lost.
    """

    questions: tuple[Question, ...]
    epsilon: float = 0.0
    sums: int = 1

    @property
    def rounds(self) -> int:
        """How many sums over all records they take."""
        return max(self.sums, *(one.rounds for one in self.questions))

    def to_table(self) -> dict[str, Any]:
        """The table that it is read from."""
        part: dict[str, Any] = {"epsilon": self.epsilon} if self.epsilon else {}
        part |= {"sums": self.sums} if self.sums > 1 else {}
        return part | {one.name: one.to_table() for one in self.questions}


def statistics_from(table: Mapping[str, Any], columns: Columns, *, trains: bool) -> AskedStatistics:
    """The statistics that the table `[statistics]` states, of these columns.

    Raises:
        StudyError: what is asked for is none, or not of these columns.
    """
    named = {name: one for name, one in table.items() if isinstance(one, dict)}
    plain = {key: value for key, value in table.items() if key not in named}
    section = Section("statistics", plain, ("epsilon", "sums"))
    if not trains:
        section.absent("epsilon", "where no model is trained: statistics have all of the study's")
    if not 0 < len(named) <= _MOST_QUESTIONS:
        raise StudyError(
            f"expected 1 to {_MOST_QUESTIONS} tables [statistics.NAME], got {len(named)}; add one "
            'such as [statistics.baseline] with kind = "table"'
        )
    part = section.number("epsilon", None, least=1e-3, most=50) if trains else 0.0
    asked = tuple(_question(name, one, columns) for name, one in named.items())
    sums = section.whole("sums", AskedStatistics.sums, least=1, most=16)
    if sums > 1 and any(one.rounds > 1 for one in asked):
        raise section.refusal(
            "sums", "1 beside a regression on numbers, which takes a few", "leave it out"
        )
    return AskedStatistics(questions=asked, epsilon=part, sums=sums)


def _question(name: str, table: Mapping[str, Any], columns: Columns) -> Question:
    """One question."""
    path = f"statistics.{key_of(name)}"
    section = Section(path, table, (*_COMMON, *_MORE))
    kind = section.text("kind", None, options=tuple(_KEYS))
    reader = _AskedKeys(section, kind, columns)
    for key in (key for key in _MORE if key not in _KEYS[kind]):
        reader.section.absent(key, f'for kind = "{kind}"')
    return Question(
        name=name,
        kind=kind,
        weight=reader.section.number("weight", Question.weight, least=1e-3, most=1e3),
        confidence=reader.section.number("confidence", 0.95, least=0.5, most=0.999),
        **_READERS[kind](reader),
    )


@dataclass(frozen=True)
class _AskedKeys:
    """The keys of one question, held against the columns."""

    section: Section
    kind: str
    columns: Columns

    def of(self, key: str, *, numeric: bool | None = None, pair: bool = False) -> Column:
        """The column that a key names: a number, categories, or two of them."""
        name = self.section.text(key, None)
        column = self.columns.get(name)
        if column is None:
            known = ", ".join(self.columns)
            raise self.section.refusal(key, f"one of the columns {known}", "declare it")
        if numeric is not None and numeric == bool(column.categories):
            what = "a numeric column" if numeric else "a column with categories"
            raise self.section.refusal(key, what, "name another, or declare it so")
        if pair and len(column.categories) != 2:
            what = "a column with two categories, of which the second is the event"
            raise self.section.refusal(key, what, 'declare it like categories = ["no", "yes"]')
        return column

    def name(self, key: str, *, numeric: bool | None = None, pair: bool = False) -> str:
        """The name of such a column."""
        return self.of(key, numeric=numeric, pair=pair).name

    def group(self) -> str:
        """The column of groups, if there is one."""
        return self.name("by", numeric=False) if "by" in self.section else ""

    def test(self) -> str:
        """The test that goes with the kind, if it is asked for."""
        if "test" not in self.section:
            return ""
        return self.section.text("test", None, options=(_TESTS[self.kind],))

    def edges(self, column: Column, *, start: float | None = None) -> tuple[float, ...]:
        """Edges of intervals: so many of equal width over the public bounds, or as listed."""
        low, high = (float(bound) for bound in column.bounds)
        low = low if start is None else start
        if "horizon" in _KEYS[self.kind]:
            high = self.section.number("horizon", high, least=low, most=high, open_low=True)
        value = self.section.content.get("bins", _BINS[self.kind])
        if isinstance(value, list):
            return (low, *self.cuts("bins", value, low, high), high)
        number = self.section.whole("bins", _BINS[self.kind], least=2, most=_MOST_BINS)
        return (*(low + (high - low) * k / number for k in range(number)), high)

    def cuts(self, key: str, value: object, low: float, high: float) -> tuple[float, ...]:
        """Break points that rise between two bounds."""
        found = _numbers(value)
        ends = (low, *found, high)
        if not 0 < len(found) < _MOST_BINS or any(a >= b for a, b in pairwise(ends)):
            raise StudyError(
                f"expected {self.section.path(key)} to be break points that rise between the "
                f"public bounds {low:g} and {high:g}, got {str(value)[:80]}; put them in order"
            )
        return found

    def covariates(self, other: tuple[str, ...]) -> tuple[Covariate, ...]:
        """What a regression is on."""
        table = self.section.table("on")
        if not 0 < len(table) <= _MOST_COVARIATES:
            raise self.section.refusal(
                "on", f"1 to {_MOST_COVARIATES} columns", 'write it like { sex = "categories" }'
            )
        inner = Section(self.section.path("on"), table, tuple(table))
        return tuple(self._covariate(inner, name, other) for name in table)

    def _covariate(self, inner: Section, name: str, other: tuple[str, ...]) -> Covariate:
        column, value = self.columns.get(name), inner.content[name]
        if column is None or name in other:
            known = ", ".join(one for one in self.columns if one not in other)
            raise StudyError(
                f"expected one of the columns {known} in {inner.title}, got {key_of(name)}; "
                "declare it, or remove it"
            )
        word = CATEGORIES if column.categories else NUMBER
        if value == word:
            return name, word
        if column.categories or not isinstance(value, list):
            more = "" if column.categories else ", or break points such as [40, 60]"
            raise inner.refusal(name, f'"{word}"{more}', "choose one")
        return name, self.cuts(f"on.{key_of(name)}", value, *column.bounds)


def _numbers(value: object) -> tuple[float, ...]:
    """A list of finite numbers; empty if it is none."""
    if not isinstance(value, list) or not all(map(is_number, value)):
        return ()
    return tuple(float(one) + 0.0 for one in value)


def _table(reader: _AskedKeys) -> dict[str, Any]:
    by = reader.group()
    names = reader.section.texts("columns", tuple(one for one in reader.columns if one != by))
    wrong = [one for one in names if one not in reader.columns or one == by]
    if wrong or not names or len(set(names)) < len(names):
        raise reader.section.refusal(
            "columns", f"different columns out of {', '.join(reader.columns)}", "correct the list"
        )
    return {"columns": names, "by": by}


def _histogram(reader: _AskedKeys) -> dict[str, Any]:
    column = reader.of("column", numeric=True)
    return {"column": column.name, "bins": reader.edges(column)}


def _quantiles(reader: _AskedKeys) -> dict[str, Any]:
    column = reader.of("column", numeric=True)
    at = _numbers(reader.section.content.get("at", [0.25, 0.5, 0.75]))
    ends = (0.0, *at, 1.0)
    if not at or any(a >= b for a, b in pairwise(ends)):
        raise reader.section.refusal(
            "at", "probabilities between 0 and 1 that rise", "write it like [0.25, 0.5, 0.75]"
        )
    return {"column": column.name, "at": at, "bins": reader.edges(column)}


def _crosstab(reader: _AskedKeys) -> dict[str, Any]:
    rows, columns = (reader.name(key, numeric=False) for key in ("rows", "columns"))
    if rows == columns:
        raise reader.section.refusal("columns", "another column than rows", "name two")
    return {"rows": rows, "columns": (columns,), "test": reader.test()}


def _survived(reader: _AskedKeys) -> dict[str, Any]:
    """Time, event, and the grid from 0 to the horizon."""
    time = reader.of("time", numeric=True)
    if time.bounds[0] < 0:
        raise reader.section.refusal("time", "a column with bounds from 0", "correct its low")
    event = reader.name("event", pair=True)
    return {"time": time.name, "event": event, "bins": reader.edges(time, start=0.0)}


def _survival(reader: _AskedKeys) -> dict[str, Any]:
    by, test = reader.group(), reader.test()
    if test and not by:
        raise reader.section.refusal("test", "absent without by, which says the groups", "add by")
    return _survived(reader) | {"by": by, "test": test}


def _regression(reader: _AskedKeys) -> dict[str, Any]:
    pair = reader.kind == "logistic"
    outcome = reader.name("outcome", numeric=None if pair else True, pair=pair)
    return {"outcome": outcome, "on": reader.covariates((outcome,))}


def _cox(reader: _AskedKeys) -> dict[str, Any]:
    found = _survived(reader)
    return found | {"on": reader.covariates((found["time"], found["event"]))}


_READERS: Mapping[str, Callable[[_AskedKeys], dict[str, Any]]] = {
    "table": _table,
    "histogram": _histogram,
    "quantiles": _quantiles,
    "crosstab": _crosstab,
    "survival": _survival,
    "logistic": _regression,
    "linear": _regression,
    "cox": _cox,
}
