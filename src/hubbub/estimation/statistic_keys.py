"""The keys of a table `[statistics.NAME]` that several kinds have, and how they are read.

A kind names its keys in its own file, those here or others (`Statistic.keys`), and reads them
against the study's columns: what kinds have in common, such as break points and covariates, is read
here. All of it is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.number_format import offered
from hubbub.core.settings import (
    Key,
    Section,
    key_of,
    number,
    numbers,
    one_of,
    table,
    text,
)
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels, column_of, cuts_from

MOST_BINS, _ON_GRID = 1000, 12  # the second of times, if nothing is said
SPACINGS = ("equal", "log")
COMMON: Mapping[str, Key] = {
    "weight": number(
        1e-3, 1e3, "The weight of its errors against those of others.", default="`1.0`"
    ),
    "confidence": number(0.5, 0.999, "Of its intervals.", default="`0.95`"),
}
# A column with categories, or a numeric one with its break points.
_CLASSED: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1, "maxProperties": 1}]
}


def classed(says: str) -> Key:
    """A column with categories, or a numeric one with its break points."""
    return Key(
        says=says,
        values="column with categories, or break points such as `{ age = [60, 75] }`",
        schema=_CLASSED,
        default="none",
    )


# Keys that several kinds have.
COLUMNS = Key(
    says='`"table"`: the columns to describe, all if left out. `"crosstab"`: the column '
    "whose categories are the columns.",
    values="list of columns, numeric ones also in classes; in a crosstab one",
    schema={"anyOf": [{"type": "array", "items": _CLASSED}, *_CLASSED["anyOf"]]},
    default="none",
)
BY = classed(
    '`"table"`, `"quantiles"`, `"survival"`, `"incidence"`, `"rates"`: groups '
    'to compare. `"centres"`: the centres; required there.'
)
COLUMN = text(
    '`"histogram"`, `"quantiles"`: the column of values; required there.',
    "numeric column",
    default="none",
)
AT = numbers(
    '`"quantiles"`: the probabilities; quartiles if left out. `"survival"`, '
    '`"incidence"`: times at which the estimates are listed.',
    "rising list of numbers between 0 and 1, or of times",
    default="none",
)
BINS = Key(
    says='`"histogram"`, `"quantiles"`, `"survival"`, `"incidence"`, `"cox"`: the '
    "number of intervals of equal width, or a list of break points.",
    values=f"2 to {MOST_BINS:,}, or a rising list of break points",
    schema={
        "anyOf": [
            {"type": "integer", "minimum": 2, "maximum": MOST_BINS},
            {"type": "array", "items": {"type": "number"}},
        ]
    },
    default="none",
)
SPACING = one_of(
    *SPACINGS,
    says='`"histogram"`, `"quantiles"` without break points: `"log"` for a long tail, '
    "with bins of equal ratios; if the lower bound is 0, the first bin ends at a "
    "thousandth of the upper one.",
    default="none",
)
TIME = text(
    '`"survival"`, `"incidence"`, `"cox"`, `"rates"`: how long a record was '
    "observed; required there.",
    "numeric column with bounds from 0",
    default="none",
)
EVENT = text(
    "Whether that time ended with the event, the second category; required there. "
    '`"rates"`: or the number of events in that time. `"incidence"`: the kind of '
    "event, all categories but the first.",
    "column with two categories; with three or more; numeric, from 0",
    default="none",
)
ENTRY = text(
    '`"survival"`, `"incidence"`, `"cox"` on classes: when observation of a record '
    "began; from time 0 if left out. Its lower bound is where the grid begins.",
    "numeric column, on the scale of `time`",
    default="none",
)
HORIZON = Key(
    says="End of the grid; the upper bound of `time` if left out.",
    values="above 0, to the bound of `time`",
    schema={"type": "number", "exclusiveMinimum": 0},
    default="none",
)
# Of times to an event on a grid.
GRID: dict[str, Key] = {
    "time": TIME,
    "event": EVENT,
    "entry": ENTRY,
    "bins": BINS,
    "horizon": HORIZON,
}
TEST = one_of(
    *("chi-square", "log-rank", "proportional-hazards", "wilcoxon", "gray"),
    says='`"crosstab"`; `"survival"` with `by`; `"cox"` on classes; `"quantiles"` and '
    '`"incidence"` with `by`.',
    default="none",
)
STRATA = classed(
    '`"survival"`, `"cox"` on classes: the test, or the regression, compares records '
    "within these strata."
)
OUTCOME = text(
    '`"logistic"`, `"linear"`: the outcome; `"centres"`: what is counted; required there.',
    'column: two categories, or for `"linear"` numeric',
    default="none",
)
COVARIATES = table(
    '`"logistic"`, `"linear"`, `"cox"`: how each covariate enters: a list of break '
    'points, `"number"` (ten sums, except for `"linear"`) or `"categories"`; '
    "required there.",
    "table of columns",
    default="none",
)
REFERENCE = table(
    '`"logistic"`, `"linear"`, `"cox"`: the reference class; the first if left out.',
    'table such as `{ stage = "II" }`',
    default="none",
)
# Of a regression whose covariates explain one column.
OF_OUTCOME = {"outcome": OUTCOME, "covariates": COVARIATES, "reference": REFERENCE}


_MOST_COVARIATES = 30
_NUMBER, _CATEGORIES = "number", "categories"  # how a covariate takes part, but for break points


@dataclass(frozen=True)
class StatisticKeys:
    """The keys of one statistic, held against the columns.

    Every method refuses what is wrong with a `StudyError` of one sentence.
    """

    section: Section
    columns: Mapping[str, Column]

    @property
    def common(self) -> dict[str, Any]:
        """What every statistic has: its weight beside others, and the confidence of intervals."""
        return {
            key: COMMON[key].read(self.section, key, default)
            for key, default in (("weight", 1.0), ("confidence", 0.95))
        }

    def column(
        self, key: str, *, numeric: bool | None = None, pair: bool = False, several: bool = False
    ) -> Column:
        """The column that a key names: a number, categories, two of them, or three and more."""
        column = self.columns.get(self.section.text(key, None))
        if column is None:
            known = offered(self.columns)
            raise self.section.refusal(key, f"one of the columns {known}", "declare it")
        if numeric is not None and numeric == bool(column.categories):
            what = "a numeric column" if numeric else "a column with categories"
            raise self.section.refusal(key, what, "name another, or declare it so")
        if pair and len(column.categories) != 2:
            what = "a column with two categories, of which the second is the event"
            raise self.section.refusal(key, what, 'declare it like categories = ["no", "yes"]')
        if several and len(column.categories) < 3:
            what = "a column with “no event” and two or more kinds of event"
            remedy = 'declare it like categories = ["none", "relapse", "death"]'
            raise self.section.refusal(key, what, remedy)
        return column

    def levels(self, key: str) -> Levels:
        """The classes of the column that a key names, by its break points if it is numeric."""
        value = self.section.content.get(key)
        if isinstance(value, dict):
            return self._classes(key, value)
        return Levels(column=self.column(key, numeric=False))

    def described(self, key: str, by: Levels | None) -> tuple[Levels | Column, ...]:
        """Columns, or classes of numeric ones, without that of the groups; all if left out."""
        groups = by.column.name if by else ""
        known = [name for name in self.columns if name != groups]
        value = self.section.content.get(key, known)
        listed = value if isinstance(value, list) else []
        found = [
            self._classes(key, one) if isinstance(one, dict) else self.columns[one]
            for one in listed
            if isinstance(one, dict) or (isinstance(one, str) and one in known)
        ]
        names = {column_of(one).name for one in found} - {groups}
        if not listed or len(names) < len(listed):
            wanted = f"different columns out of {offered(self.columns)}"
            raise self.section.refusal(key, wanted, "correct the list")
        return tuple(found)

    def _classes(self, key: str, table: Mapping[str, Any]) -> Levels:
        """Classes that a table of one column says: { age = [60, 75] }."""
        if len(table) != 1:
            raise self.section.refusal(
                key, "one column, or its break points such as { age = [60, 75] }", "name one"
            )
        inner = Section(self.section.path(key), table, tuple(table))
        covariate = self._covariate(inner, next(iter(table)), set())
        if not isinstance(covariate, Levels):
            raise self.section.refusal(key, "break points of a numeric column", "list them")
        return covariate

    def by(self) -> Levels | None:
        """The groups that the key `by` names, if it is there."""
        return self.levels("by") if "by" in self.section else None

    def compared(self, name: str) -> dict[str, Any]:
        """The groups, and whether the test of them is asked for, which needs them."""
        by, test = self.by(), self.test(name)
        if test and not by:
            raise self.section.refusal(
                "test", "absent without by, which names the groups", "add by"
            )
        return {"by": by, "test": test}

    def test(self, name: str) -> bool:
        """Whether the test that goes with the statistic is asked for."""
        return "test" in self.section and bool(self.section.text("test", None, options=(name,)))

    def edges(
        self, column: Column, bins: int, *, start: float | None = None, horizon: bool = False
    ) -> tuple[float, ...]:
        """Edges of intervals by the key `bins`: so many of equal width, or break points as listed.

        Intervals of values on a step hold as many of them each, and end between two; times have
        grids of their own (`RiskSets.grid`).

        Args:
            column: between whose public bounds they are.
            bins: how many, if nothing is said.
            start: where the first begins, if not at the lower bound.
            horizon: whether the key `horizon` may say where the last ends.
        """
        low, high = (float(bound) for bound in column.bounds)
        low = low if start is None else start
        if horizon:
            high = self.section.number("horizon", high, least=low, most=high, open_low=True)
        value = self.section.content.get("bins", bins)
        if isinstance(value, list):
            cuts = cuts_from(self.section.path("bins"), value, low, high, MOST_BINS - 1)
            return (low, *(cuts if horizon else column.cuts_between(cuts)), high)
        number = self.section.whole("bins", bins, least=2, most=MOST_BINS)
        if not horizon:
            return (low, *column.even_cuts(number), high)
        return (*(low + (high - low) * k / number for k in range(number)), high)

    def spaced(self, column: Column, bins: int) -> tuple[float, ...]:
        """Edges between a column's bounds by the keys `bins` and `spacing`.

        With `spacing = "log"` bins have equal ratios; from 0, all but the first, which ends at a
        thousandth of the upper bound.
        """
        if self.section.text("spacing", SPACINGS[0], options=SPACINGS) == SPACINGS[0]:
            return self.edges(column, bins)
        low, high = (float(bound) for bound in column.bounds)
        if low < 0:
            raise self.section.refusal(
                "spacing", '"equal" for a column with a bound below 0', "or list break points"
            )
        if isinstance(self.section.content.get("bins"), list):
            raise self.section.refusal(
                "spacing", "absent where bins lists break points", "remove it"
            )
        number = self.section.whole("bins", bins, least=2, most=MOST_BINS)
        start, ratios = (low, number) if low else (high / 1000, number - 1)
        first = () if low else (low,)
        edges = (*first, *(start * (high / start) ** (k / ratios) for k in range(ratios)), high)
        return (low, *column.cuts_between(edges[1:-1]), high)

    def survived(self, *, several: bool = False) -> dict[str, Any]:
        """Time, event, and the grid to the horizon; several: the event has kinds.

        The grid begins at 0, or at the lower bound of the column that says when a record entered.
        """
        time = self.column("time", numeric=True)
        if time.bounds[0] < 0:
            raise self.section.refusal("time", "a column with bounds from 0", "correct its low")
        event = self.column("event", pair=not several, several=several)
        grid = {"time": time, "event": event}
        if "entry" not in self.section:
            return grid | {"edges": self.edges(time, _ON_GRID, start=0.0, horizon=True)}
        entry = self.column("entry", numeric=True)
        if entry == time or not 0 <= entry.bounds[0] < time.bounds[1]:
            wanted = "another column than time, with a lower bound from 0 to below that of time"
            raise self.section.refusal("entry", wanted, "name another, or correct its low")
        edges = self.edges(time, _ON_GRID, start=float(entry.bounds[0]), horizon=True)
        return grid | {"edges": edges, "entry": entry}

    def covariates(self, *explained: Column) -> tuple[Levels | Column, ...]:
        """What a regression is on, by the key `covariates`: classes, or columns of numbers."""
        self._refuse_bare_names("covariates")
        table, other = self.section.table("covariates"), {one.name for one in explained}
        if not 0 < len(table) <= _MOST_COVARIATES:
            raise self.section.refusal(
                "covariates",
                f"1 to {_MOST_COVARIATES} columns",
                'write it like { sex = "categories" }',
            )
        inner = Section(self.section.path("covariates"), table, tuple(table))
        found = [self._covariate(inner, name, other) for name in table]
        if "reference" not in self.section:
            return tuple(found)
        classes = [one.column.name for one in found if isinstance(one, Levels)]
        first = self.section.table("reference")
        section = Section(self.section.path("reference"), first, tuple(classes))
        return tuple(
            replace(one, reference=section.text(one.column.name, None, options=one.names))
            if isinstance(one, Levels) and one.column.name in section
            else one
            for one in found
        )

    def _refuse_bare_names(self, key: str) -> None:
        """Refuse a list of columns, or one, by the table that says how each of them counts."""
        names = self.section.content.get(key)
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list):
            return
        known = [name for name in names if isinstance(name, str) and name in self.columns]
        kinds = {one: _CATEGORIES if self.columns[one].categories else _NUMBER for one in known}
        example = ", ".join(f'{key_of(one)} = "{kind}"' for one, kind in kinds.items())
        raise self.section.refusal(
            key,
            "a table that says how each column enters the model",
            f"write it like {{ {example or 'age = [40, 60]'} }}, where a list holds break points",
        )

    def _covariate(self, inner: Section, name: str, other: set[str]) -> Levels | Column:
        column, value = self.columns.get(name), inner.content[name]
        if column is None or name in other:
            known = offered(one for one in self.columns if one not in other)
            raise StudyError(
                f"expected one of the columns {known} in {inner.title}, got {key_of(name)}; "
                "declare it, or remove it"
            )
        word = _CATEGORIES if column.categories else _NUMBER
        if value == word:
            return Levels(column=column) if column.categories else column
        if column.categories or not isinstance(value, list):
            more = "" if column.categories else ", or break points such as [40, 60]"
            raise inner.refusal(name, f'"{word}"{more}', "choose one")
        cuts = cuts_from(inner.path(key_of(name)), value, *column.bounds, MOST_BINS - 1)
        return Levels(column=column, cuts=cuts)


def covariates_table(on: tuple[Levels | Column, ...]) -> dict[str, Any]:
    """The keys `covariates` and `reference` that covariates are read from."""
    first = {
        covariate.column.name: covariate.reference
        for covariate in on
        if isinstance(covariate, Levels) and covariate.reference
    }
    how: dict[str, Any] = {
        column_of(one).name: (list(one.cuts) or _CATEGORIES) if isinstance(one, Levels) else _NUMBER
        for one in on
    }
    return {"covariates": how, **({"reference": first} if first else {})}


def grid_table(
    time: Column, event: Column, edges: tuple[float, ...], entry: Column | None = None
) -> dict[str, Any]:
    """The keys that time, event, entry and a grid are read from."""
    return table_of(time=time, event=event, entry=entry, bins=edges[1:-1], horizon=edges[-1])


def table_of(**keys: Any) -> dict[str, Any]:
    """Keys as a study's file has them: columns by name, classes, lists; those that are empty go."""
    return {key: _written(value) for key, value in keys.items() if value}


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(part) for part in value]
    if isinstance(value, Levels) and value.cuts:
        return {value.column.name: list(value.cuts)}
    return column_of(value).name if isinstance(value, Levels | Column) else value
