"""One column of a table: its public bounds or categories, and how its cells become features.

A silo may scale, clip and one-hot encode only by what the study has made public. A mean, a maximum
or a list of categories taken from the records would leave the silo inside the model without any
noise, so nothing here is computed from the data.

Numbers are mapped to [-1, 1] and two categories to -1 and +1, because centred features make the
clipped gradients of different records point in different directions (on the heart data, at epsilon
0.5, [0, 1] loses about 0.006 of AUC). Where nearly all records are of one category, 0 for it, its
`reference`, leaves most of them short (`experiments/wide.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from math import ceil, floor, inf, isnan, log10, nextafter
from typing import Annotated, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.settings import Key, keys_of, later, number, settings, text, texts, truth
from hubbub.core.tabular.cells import (
    GAP,
    LARGEST,
    MISSING,
    SPELLING,
    CellFault,
    Rule,
    canonical,
    number_in,
    number_rule,
    read_column,
)

_MOST_STEPS = 10**9
_MOST_SIZE = 1e12  # of a number, in steps: it has 15 digits
_OFF_STEP = 1e-6  # steps by which a bound may miss one: what its last digits leave out


def column_features(column: Column, texts: Sequence[str], where: str) -> NDArray[np.float64]:
    """All features of one column, shape (n, column.width).

    DataError: a cell is none of the column's, or is missing and the column has no default.
    """
    values = read_column(texts, column.rule, where)
    gone = np.isnan(values)
    if gone.any():  # the rule has let them pass, so there is a default
        default = str(column.default)
        if column.categories:  # whose own spelling may be one of those that mean missing
            places = [column.spelled(category) for category in column.categories]
            values[gone] = places.index(column.spelled(default))
        else:
            values[gone] = float(default)
    # P1: a record's features follow from its own cells and the study, whatever others hold.
    if not column.categories:  # the public bounds are mapped to -1 and 1
        low, high = column.bounds
        block = ((2.0 * values - (low + high)) / (high - low))[:, None]
    elif len(column.categories) == 2 and not column.reference:
        block = (2.0 * values - 1.0)[:, None]
    else:  # one 0/1 feature per category but the reference
        block = np.eye(len(column.categories))[values.astype(np.int64)]
        block = np.delete(block, column.reference_place, 1) if column.reference else block
    return np.column_stack([block, gone]) if column.indicator else block


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= LARGEST


def _exact(text: str) -> Decimal | None:
    """The number that a text spells, if it does, to every digit: of long codes many are one float.

    One too small for a `Decimal` is 0. Truth values are 0 and 1, as databases write them.
    """
    if (truth := text.casefold()) in ("true", "false"):
        return Decimal(truth == "true")
    if number_in(text) is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal(0)


def _spellings(says: str, values: str = "list of texts", *, default: str = "") -> Key:
    """A list of texts, or of whole numbers, which are spelled like them."""
    items = {"type": ["string", "integer"]}
    return replace(texts(says, values, default=default), schema={"type": "array", "items": items})


@settings
class Column:
    """How one column of a table becomes features. Every field is public: part of the study.

    A numeric column has `low` and `high`: its values are clipped to them and mapped to [-1, 1]. A
    categorical column has `categories`: two give one feature, -1 for the first and +1 for the
    second; more give one 0/1 feature each. With a `reference`, each of the others gives one.

    Raises:
        StudyError: the fields contradict each other.

    >>> Column(name="age", low=20.0, high=90.0).width
    1
    >>> Column(name="blood", categories=("0", "A", "B", "AB")).feature_names
    ('blood=0', 'blood=A', 'blood=B', 'blood=AB')
    """

    name: Annotated[str, "the column's name in the header."]
    low: Annotated[
        float | None,
        number(-LARGEST, LARGEST, "Public lower bound.", values="number", default="either"),
    ] = None
    high: Annotated[
        float | None,
        number(-LARGEST, LARGEST, "Public upper bound.", values="number", default="either"),
    ] = None
    step: Annotated[
        float | None,
        later(
            number(
                0.0,
                LARGEST,
                "Valid values are `low` and whole steps above it, such as whole "
                "numbers: quantiles are then such values, and times may be visits.",
                above=True,
                values="number that divides high − low",
            )
        ),
    ] = None
    categories: Annotated[
        tuple[str, ...],
        _spellings("Spellings that may occur.", "list of at least 2 texts", default="either"),
    ] = ()
    default: Annotated[
        str | float | None,
        Key(
            says="What a missing cell counts as; without it, a missing cell is an error.",
            values="number in the bounds, or a category",
            schema={"type": ["number", "string"]},
        ),
    ] = None
    indicator: Annotated[
        bool, truth('Beside a default, adds the feature "was missing": 1 or 0.')
    ] = False
    missing: Annotated[
        tuple[str, ...], _spellings("Spellings that mean missing, besides the empty cell.")
    ] = ()
    ignore_case: Annotated[
        bool, truth("Spellings that differ only in upper and lower case are the same.")
    ] = False
    other: Annotated[
        str,
        later(
            text(
                "The category of every unlisted spelling; without it, such a cell is an error.",
                "one of the categories",
            )
        ),
    ] = ""
    feature: Annotated[
        bool, truth("Whether the model, too, sees the column, not only `[statistics]`.")
    ] = True
    complete: Annotated[
        bool,
        later(
            truth(
                "No cell is missing: a file with an empty cell is refused, and Table 1, "
                "which need not count missing cells, is more precise."
            )
        ),
    ] = False
    reference: Annotated[
        str,
        later(
            text(
                "The category whose features are all 0, for the one that most records "
                "have; every other category is a feature of 0 or 1.",
                "one of the categories",
            )
        ),
    ] = ""

    def __post_init__(self) -> None:
        """Refuses a column that is neither plainly numeric nor plainly categorical."""
        if self.categories:
            self._check_categorical()
        else:
            self._check_numeric()
        if self.complete and (self.missing or self.default is not None):
            gaps = (*self.missing, self.default)
            self._refuse("no missing and no default beside complete = true", gaps, "remove one")
        if self.indicator and self.default is None:
            self._refuse(
                "a default beside indicator = true", None, "add default or remove indicator"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The public bounds of a numeric column, in the column's own unit.

        StudyError: the column is categorical.
        """
        if self.low is None or self.high is None:
            found = (self.low, self.high)
            self._refuse("low and high, or categories", found, "add the column's public bounds")
        return self.low, self.high

    @property
    def steps(self) -> int:
        """How many steps lie between the bounds; 0: values are not known to lie on any."""
        low, high = self.bounds
        return round((high - low) / self.step) if self.step else 0

    def at_step(self, number: int) -> float:
        """The value so many steps above the lower bound, without the last digits of its sum.

        Args:
            number: of steps, up to `steps`.

        Returns:
            A value of a column with a step.
        """
        (low, high), steps = self.bounds, self.steps
        if number in (0, steps):
            return high if number else float(low)
        places = 14 - floor(log10(max(abs(low), abs(high))))
        return round(low + number * (self.step or 0.0), places) + 0.0

    def steps_below(self, cut: float) -> int:
        """How many values of a column with a step lie below a number.

        Args:
            cut: the number, within the bounds.

        Returns:
            As many steps as the first value above lies above the lower bound.
        """
        low, _ = self.bounds
        return ceil((cut - low) / (self.step or 1.0) - _OFF_STEP)

    def cuts_between(self, cuts: Sequence[float]) -> tuple[float, ...]:
        """Break points, on a step each moved to the middle of it, below the first value above.

        What is cut off stays the same, whatever the last digits of a value are.

        Args:
            cuts: that rise.

        Returns:
            As many, or fewer where several cut off the same.
        """
        if not self.step:
            return tuple(cuts)
        below = dict.fromkeys(map(self.steps_below, cuts))
        kept = (number for number in below if 0 < number <= self.steps)
        return tuple(self.at_step(number) - self.step / 2 for number in kept)

    def even_cuts(self, ranges: int) -> tuple[float, ...]:
        """Break points of ranges of equal width; on a step, of as many values each.

        Args:
            ranges: how many, at most.

        Returns:
            The break points inside the bounds.
        """
        low, high = self.bounds
        if not self.step:
            return tuple(low + (high - low) * k / ranges for k in range(1, ranges))
        each = -(-(self.steps + 1) // ranges) if ranges < self.steps else 1
        return self.cuts_between([*map(self.at_step, range(each, self.steps + 1, each))])

    def nearest(self, value: float) -> float:
        """What a number counts as.

        Args:
            value: any number.

        Returns:
            The nearest within the bounds, and on a step where the column has one.
        """
        low, high = self.bounds
        inside = min(max(value, low), high)
        return self.at_step(round((inside - low) / self.step)) if self.step else inside

    def spelled(self, text: str) -> str:
        """The one spelling that stands for all that are the same in this column.

        Args:
            text: a cell, or a spelling of the study.

        Returns:
            The text without spaces around it, a whole number in its shortest form.
        """
        return canonical(text).casefold() if self.ignore_case else canonical(text)

    @property
    def rule(self) -> Rule:
        """What the column's cells say to a model: a missing one needs a default."""
        with_gaps = self.rule_with_gaps

        def rule(text: str) -> float | CellFault:
            value = with_gaps(text)
            return value if isinstance(value, CellFault) or not isnan(value) else self._gap

        return rule if self.default is None else with_gaps

    @property
    def rule_with_gaps(self) -> Rule:
        """What they say: a number of the column, a category's place from 0, or `MISSING`.

        In a complete column a missing cell is a fault.
        """
        return self._rule(self.nearest)

    @property
    def rule_of_cells(self) -> Rule:
        """The same for statistics, which bound numbers themselves (docs/privacy.md P23).

        A number beyond the upper bound is one just beyond it: of a time it tells that a record was
        followed past the horizon, and not up to it.
        """
        if self.categories:
            return self.rule_with_gaps
        last, beyond = self.bounds[1] + (self.step or 0.0) / 2, nextafter(self.bounds[1], inf)
        return self._rule(lambda value: self.nearest(value) if value <= last else beyond)

    def _rule(self, counted: Callable[[float], float]) -> Rule:
        """A rule by which numbers count as what is given for them."""
        absent = {"", *map(self.spelled, self.missing)}
        places = {self.spelled(name): place for place, name in enumerate(self.categories)}
        unlisted = CellFault(
            *(SPELLING, f"one of the {len(places)} declared categories", "something else"),
            "correct the cell, or add its spelling to categories or missing in data.columns",
        )
        alike = CellFault(
            *(SPELLING, "the spelling in categories of an equal value", "another"),
            "spell it alike or, if it is another code, list it in categories too",
        )
        beyond = places[self.spelled(self.other)] if self.other else unlisted
        numbers = {*map(_exact, places)} - {None}

        def rule(text: str) -> float | CellFault:
            spelled = self.spelled(text)
            if spelled in absent:
                return self._gap if self.complete else MISSING
            if places:  # 1.50 is no other category beside 1.5, nor surely the same
                if (place := places.get(spelled)) is not None:
                    return place
                return alike if _exact(spelled) in numbers else beyond
            value = number_rule(spelled)
            return value if isinstance(value, CellFault) else counted(value)

        return rule

    @property
    def _gap(self) -> CellFault:
        remedy = "give the column a public default in data.columns or remove the record"
        if self.complete:
            remedy = "mend the cell, or take complete = true off the column in data.columns"
        return CellFault(GAP, "a value", "a missing cell", remedy)

    @property
    def reference_place(self) -> int:
        """The place of the reference among the categories; -1 without one."""
        spellings = [self.spelled(category) for category in self.categories]
        return spellings.index(self.spelled(self.reference)) if self.reference else -1

    @property
    def width(self) -> int:
        """How many features the column becomes."""
        return len(self.feature_names)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature, in order."""
        # Of two categories without a reference the second is the feature.
        apart = 0 if len(self.categories) == 2 and not self.reference else self.reference_place
        others = (name for place, name in enumerate(self.categories) if place != apart)
        names = tuple(f"{self.name}={category}" for category in others) or (self.name,)
        return (*names, f"{self.name} missing") if self.indicator else names

    def _check_categorical(self) -> None:
        spellings = [self.spelled(category) for category in self.categories]
        default = None if self.default is None else str(self.default)
        if self.low is not None or self.high is not None:
            self._refuse("either categories or low and high", "both", "remove one of them")
        if self.step is not None:
            self._refuse("step beside low and high alone", self.step, "remove it")
        if len(set(spellings)) < len(spellings) or len(spellings) < 2:
            self._refuse(
                "at least two different categories", list(self.categories), "list each value once"
            )
        if set(spellings) & set(map(self.spelled, self.missing)):
            self._refuse(
                "missing to differ from the categories", list(self.missing), "remove the overlap"
            )
        for key, category in (
            ("other", self.other or None),
            ("reference", self.reference or None),
            ("default", default),
        ):
            if category is not None and self.spelled(category) not in spellings:
                self._refuse(f"{key} to be a category", getattr(self, key), "add it to categories")

    def _check_numeric(self) -> None:
        (low, high), default = self.bounds, self.default
        for key in ("other", "reference"):
            if category := getattr(self, key):
                self._refuse(f"{key} beside categories alone", category, "remove it")
        if not (_is_number(low) and _is_number(high)):
            self._refuse("low and high to be numbers", (low, high), "give both public bounds")
        if low >= high:
            self._refuse("low < high", (low, high), "exchange or widen the bounds")
        if self.step is not None:
            self._check_step(self.step, high - low)
        if default is None:
            return
        if not _is_number(default) or not low <= float(default) <= high:
            self._refuse(f"default to be a number in [{low}, {high}]", default, "correct it")

    def _check_step(self, step: float, span: float) -> None:
        if not _is_number(step) or not step > 0 or not span / step <= _MOST_STEPS:
            self._refuse(
                f"step to be a number above 0, at most {_MOST_STEPS:,} of them between the bounds",
                *(step, "correct it, or leave it out"),
            )
        if max(map(abs, self.bounds)) > _MOST_SIZE * step:
            self._refuse(
                "step to show in numbers as large as low and high",
                *(step, "write values less a round number near low, or leave it out"),
            )
        many = span / step
        if not many > 0.5 or abs(many - round(many)) > _OFF_STEP:
            fits = f"{ceil(many) * step + self.bounds[0]:.15g}"
            self._refuse(
                "step to divide high - low, so that both bounds are values",
                *(step, f"write for example high = {fits}"),
            )

    def _refuse(self, expected: str, found: object, remedy: str) -> NoReturn:
        raise StudyError(
            f"expected {expected} in data.columns.{self.name}, found {found!r}; {remedy}"
        )


class TimeColumn(Column):
    """A numeric column that some statistic reads as times: a number below 0 is a slip.

    As one outside of the bounds it would count as 0, as who left at once.
    """

    def _rule(self, counted: Callable[[float], float]) -> Rule:
        """The column's, which refuses times below 0, or below a bound that is itself below."""
        usual, least = super()._rule(counted), min(0.0, self.bounds[0])

        def rule(text: str) -> float | CellFault:
            value = usual(text)
            if isinstance(value, CellFault) or isnan(value):
                return value
            return NEGATIVE_TIME if (number_in(self.spelled(text)) or 0.0) < least else value

        return rule

    @classmethod
    def of(cls, column: Column) -> TimeColumn:
        """The same column, read as times."""
        return cls(**vars(column))


NEGATIVE_TIME = CellFault(
    *("a negative number", "a time from 0", "a negative number"),
    "correct the cell or remove the record",
)


def columns_from(table: object) -> tuple[Column, ...]:
    """The columns of a study's table `[data.columns]`, in its order.

    StudyError: an unknown key, a value of the wrong type, or settings that contradict.
    """
    if not isinstance(table, Mapping) or not table:
        raise StudyError(
            "expected data.columns to be a table with one entry per column, found none; "
            "write for example age = {low = 20, high = 90}, or leave data.columns out"
        )
    return tuple(_column_from(name, entry) for name, entry in table.items())


def _column_from(name: str, entry: Any) -> Column:
    """What an entry says, checked for its form here and by the `Column` for what it means."""
    where = f"data.columns.{name}"
    if not isinstance(entry, Mapping):
        raise StudyError(
            f"expected {where} to be a table such as {{low = 0, high = 1}}, found {entry!r}; "
            "write the column's public bounds or its categories"
        )
    known = keys_of(Column)
    if strange := [key for key in entry if key not in known]:
        raise StudyError(
            f"expected {where} to hold only {', '.join(known)}, found {strange[0]!r}; remove or "
            "correct that key"
        )
    for key, (fits, expected, remedy) in _FORMS.items():
        if key in entry and not fits(entry[key]):
            raise StudyError(
                f"expected {where}.{key} to be {expected}, found {entry[key]!r}; {remedy}"
            )
    values = dict(entry)
    for key in ("categories", "missing"):
        values[key] = tuple(map(str, entry.get(key, ())))
    default = entry.get("default")
    if values["categories"] and isinstance(default, int | float):
        values["default"] = canonical(str(default))
    column = Column(name=name, **values)
    # 1 and 1.0 are one bound, and must give the same study id.
    keys = () if column.categories else ("low", "high", "step", "default")
    stated = [key for key in keys if values.get(key) is not None]
    numbers: dict[str, Any] = {key: float(values[key]) + 0.0 for key in stated}
    return replace(column, **numbers)


def _are_spellings(value: object) -> bool:
    """A list of texts, or of whole numbers, which are spelled like them."""
    return isinstance(value, list | tuple) and all(
        isinstance(spelling, str | int) and not isinstance(spelling, bool) for spelling in value
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | None) and not isinstance(value, bool)


_TRUTH = (lambda value: isinstance(value, bool), "true or false", "write one of the two")
_TEXT = (lambda value: isinstance(value, str), "a text", "put it in quotes")
_SPELLINGS = (
    _are_spellings,
    "a list of texts",
    'write each value as it is spelled in the file, for example ["yes", "no"]',
)
_FORMS: dict[
    str, tuple[Callable[[Any], bool], str, str]
] = {  # of an entry's keys, in the order in which they are refused
    **dict.fromkeys(("indicator", "ignore_case"), _TRUTH),
    **dict.fromkeys(("categories", "missing"), _SPELLINGS),
    **dict.fromkeys(("feature", "complete"), _TRUTH),
    **dict.fromkeys(("other", "reference"), _TEXT),
    "default": (_is_plain, "a text or a number", "write one of them"),
}
