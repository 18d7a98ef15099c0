"""The target, `data.target`: the name of a class's column, or a table that says what is in it.

Amounts, counts and times to an event are no classes. Their cells become numbers in their own unit,
whatever the public bounds are: those are applied where a loss is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import floor
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.core.settings import (
    Section,
    is_number,
    keys_of,
    later,
    number,
    numbers,
    one_of,
    settings,
    text,
    texts,
)
from hubbub.core.tabular.cells import (
    GAP,
    LARGEST,
    NO_TARGET,
    NUMBER,
    CellFault,
    Rule,
    canonical,
    label_rule,
    number_in,
    read_column,
)
from hubbub.core.tabular.column import Column

LOG_LINK = "log-link"  # of scales, the one by which means are learned
_USUAL_MEAN = 1 / 20  # of the upper bound of an amount whose mean nobody declares
NUMERIC, COUNT, TIME_TO_EVENT = "numeric", "count", "time-to-event"
KINDS = (NUMERIC, COUNT, TIME_TO_EVENT)


@settings
class Outcome:
    """What a target that is no class is, and what is public about it."""

    kind: Annotated[str, '"numeric", "count" or "time-to-event".']
    low: Annotated[float, "public lower bound of an amount, in its own unit; 0 for the others."] = (
        0.0
    )
    high: Annotated[
        float, "public upper bound of an amount or a count; values beyond count as the bound."
    ] = 0.0
    event: Annotated[str, "the column that says whether a time ends with the event."] = ""
    positive: Annotated[tuple[str, ...], "its spellings for the event."] = ()
    negative: Annotated[
        tuple[str, ...], "its spellings for a time that ends without it; any other is refused."
    ] = ()
    grid: Annotated[
        tuple[float, ...],
        "public times, rising, at which the intervals of the hazards end; the first one begins "
        "with time 0.",
    ] = ()
    scale: Annotated[
        str,
        later(
            one_of(
                *("linear", "log", LOG_LINK),
                says='`"log"`, for a number with a long tail: the model predicts its '
                "logarithm, so errors are ratios, and predictions are about the median; "
                "a number below `low`, which is above 0, counts as `low`. "
                '`"log-link"`: the model predicts the logarithm of its mean, so 0 is '
                "allowed and predictions are means.",
                default='`"linear"`',
            )
        ),
    ] = "linear"
    mean: Annotated[
        float | None,
        later(
            number(
                -LARGEST,
                LARGEST,
                "Public guess of the mean of a number or a count (with `exposure`, per unit of "
                "exposure): what the model predicts before its first step.",
                values="number between `low` and `high`",
                default="none",
            )
        ),
    ] = None
    exposure: Annotated[
        str,
        later(
            text(
                "For a count: the column with the time, or the amount, over which it "
                "was counted, a number above 0. The model then predicts rates.",
                default="none",
            )
        ),
    ] = ""
    exposure_high: Annotated[
        float,
        later(
            number(
                0,
                LARGEST,
                "Public upper bound of an exposure, in its own unit, which `exposure` needs; a "
                "longer one counts as it.",
                above=True,
                default="none",
            )
        ),
    ] = 0.0
    step: Annotated[
        float,
        later(
            number(
                0,
                LARGEST,
                "Times are whole multiples of it, as with visits: a time counts as the nearest.",
                above=True,
                default="none",
            )
        ),
    ] = 0.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a target beside its own."""
        return tuple(filter(None, (self.event, self.exposure)))

    def declared(self, name: str) -> tuple[Column, ...]:
        """What it says of its own column of this name, and of its event's, for statistics."""
        if self.kind != TIME_TO_EVENT:
            own = Column(name=name, low=self.low, high=self.high)
            longest = self.exposure_high
            return (own, Column(name=self.exposure, low=0.0, high=longest)) if longest else (own,)
        event = Column(name=self.event, categories=(self.negative[0], self.positive[0]))
        return (Column(name=name, low=0.0, high=self.grid[-1]), event)

    @property
    def is_log(self) -> bool:
        """Whether its logarithm is learned."""
        return self.scale == "log"

    @property
    def is_log_link(self) -> bool:
        """Whether the logarithm of its mean is learned."""
        return self.kind == NUMERIC and self.scale == LOG_LINK

    @property
    def unit(self) -> float:
        """What the loss of a mean counts in: of amounts about as much as their mean is."""
        if not self.is_log_link:
            return 1.0
        return self.high * _USUAL_MEAN if self.mean is None else self.mean

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record's target."""
        return (2,) if self.kind == TIME_TO_EVENT or self.exposure_high else ()

    def rule(self, text: str) -> float | CellFault:
        """What a cell of the target's own column says: a number in its own unit."""
        if not text:
            return NO_TARGET
        value = number_in(text)
        if value is None:
            problem = "something that is no number"
        elif value < 0 and (self.kind != NUMERIC or self.is_log_link):
            problem = "a negative number"
        elif self.kind == COUNT and value % 1:
            problem = "a number with a fraction"
        else:
            return value
        kind = NUMBER if value is None else problem
        remedy = "correct the cell or remove the record"
        return CellFault(kind, _WANTED[self.kind], problem, remedy)

    def rule_of(self, name: str) -> Rule:
        """What a cell of a column of the target beside its own says: 1 of an event, else 0."""
        if name == self.exposure:
            return _exposure_rule
        lists = "data.target.positive or data.target.negative"
        return label_rule(two_classes(self.positive, self.negative), lists)


def _exposure_rule(text: str) -> float | CellFault:
    """What a cell says of how long, or of how much, was counted."""
    value = number_in(text)
    if value is not None and value > 0:
        return value
    kind, problem = (NUMBER, "something that is no number") if text else (GAP, "nothing")
    if value is not None:
        kind = problem = "an exposure that is not above 0"
    return CellFault(kind, "an exposure above 0", problem, "correct the cell or remove the record")


def outcomes(
    outcome: Outcome, name: str, cells: Mapping[str, Sequence[str]], origin: str
) -> NDArray[np.float64]:
    """The targets in their own unit: shape (n,), or (n, 2) beside an event (0 or 1) or exposure."""
    rules = {name: outcome.rule} | {other: outcome.rule_of(other) for other in outcome.columns}
    read = [
        read_column(cells[column], rule, f"{origin}, column {column!r}")
        for column, rule in rules.items()
    ]
    return np.column_stack(read) if outcome.columns else read[0]


_WANTED = {NUMERIC: "a number", COUNT: "a whole number from 0", TIME_TO_EVENT: "a time from 0"}


def two_classes(positive: Sequence[str], negative: Sequence[str]) -> dict[str, int]:
    """1 for the spellings of one list, 0 for those of the other."""
    return dict.fromkeys(map(canonical, negative), 0) | dict.fromkeys(map(canonical, positive), 1)


def refuse_other_targets(outcome: Outcome | None, targets: NDArray[Any], whose: str) -> None:
    """Refuse, with no value and no count, records whose targets are of another kind."""
    numbers = targets.dtype == np.float64
    fits = numbers == (outcome is not None)
    if outcome is not None and numbers:
        fits = targets.shape[1:] == outcome.shape
        if fits and outcome.kind == COUNT:
            counts = targets[:, 0] if outcome.shape else targets
            fits = not ((counts < 0) | (counts % 1 != 0)).any()
            fits = fits and not (outcome.shape and (targets[:, 1] <= 0).any())
        if fits and outcome.kind == TIME_TO_EVENT:
            fits = bool(np.isin(targets[:, 1], (0, 1)).all())
        if fits and outcome.is_log_link:
            fits = not (targets < 0).any()
    if not fits:
        wanted = "classes, float32 or int64" if outcome is None else _ARRAYS[outcome.kind]
        if outcome is not None and outcome.exposure_high:
            wanted = "whole numbers from 0 and exposures above 0, float64 of shape (n, 2)"
        raise DataError(
            f"expected targets of {whose} to be {wanted}, as the study's target says, found "
            "others; fix the data or data.target"
        )


_ARRAYS = {
    NUMERIC: "amounts, float64 of shape (n,)",
    COUNT: "whole numbers from 0, float64 of shape (n,)",
    TIME_TO_EVENT: "times from 0 with 1 for an event and 0 for none, float64 of shape (n, 2)",
}


_CLASS = "class"
_KEYS = {
    _CLASS: ("column",),
    NUMERIC: ("column", "low", "high", "scale", "mean"),
    COUNT: ("column", "high", "mean", "exposure", "exposure_high"),
    TIME_TO_EVENT: ("time", "event", "positive", "negative", "grid", "step"),
}
_MOST, _MOST_TIMES = 1e15, 1000
TARGET = {
    "kind": one_of(
        *(_CLASS, *KINDS), says='The kind of target; `"class"` is that of a plain column name.'
    ),
    "column": text("The column; of a time to an event it is `time`.", default="either"),
    "low": number(-_MOST, _MOST, "Public lower bound of a number.", default="either"),
    "high": number(
        *(-_MOST, _MOST, "Public upper bound of a number or a count."),
        values="to 10^15; of a count from 1",
        default="either",
    ),
    **{key: keys_of(Outcome)[key][0] for key in ("scale", "mean", "exposure", "exposure_high")},
    "time": text(
        'The column of the time, in any unit; it and the keys below are for `"time-to-event"`.',
        default="either",
    ),
    "event": text("Whether the time ends with the event: the column.", default="either"),
    "positive": texts("Its spellings for the event.", default='`["1"]`'),
    "negative": texts(
        "Its spellings for a time that ends without it; any other is refused.", default='`["0"]`'
    ),
    "grid": numbers(
        "Public times at which the intervals of the hazards end.",
        f"2 to {_MOST_TIMES:,} rising numbers above 0",
        default="either",
    ),
    "step": keys_of(Outcome)["step"][0],
}


def target_from(section: Section, default: str, *, files: bool) -> tuple[str, Outcome | None]:
    """The target's own column in `[data]`, and what it is if it is no class.

    Where records come from no files, columns need no names: there is a default.
    """
    table = section.content.get("target")
    if not isinstance(table, dict):
        return _column_name(section, "target", None if files else default), None
    inner = Section("data.target", table, tuple(TARGET))
    kind = inner.text("kind", None, options=(_CLASS, *KINDS))
    for key in [*TARGET][1:]:
        if key not in _KEYS[kind]:
            inner.absent(key, f'for kind = "{kind}"')
    own = "time" if kind == TIME_TO_EVENT else "column"
    name = _column_name(inner, own, None if files else default)
    if kind == _CLASS:
        return name, None
    for key in ("positive", "negative", "classes"):
        section.absent(key, "beside a target that is no class")
    return name, _outcome(inner, kind, name, files=files)


def _column_name(section: Section, key: str, default: str | None) -> str:
    """The name of a target's column: without one a study would be read as one of no target."""
    name = section.text(key, default)
    if not name.strip():
        raise section.refusal(key, "the name of a column", "name the target's own")
    return name


def _outcome(inner: Section, kind: str, name: str, *, files: bool) -> Outcome:
    """What the table says of a target that is no class."""
    if kind == NUMERIC:
        return _amount(inner)
    if kind == COUNT:
        return _count(inner, name, files=files)
    event = inner.text("event", None if files else "")
    if event == name or (files and not event):
        raise inner.refusal("event", "another column than the time's", "name the event's own")
    positive, negative = inner.texts("positive", ("1",)), inner.texts("negative", ("0",))
    if not (positive and negative):
        key = "negative" if positive else "positive"
        raise inner.refusal(key, "at least one spelling", 'write it like ["1"]')
    if not set(map(canonical, positive)).isdisjoint(map(canonical, negative)):
        raise inner.refusal("negative", "spellings that positive has not", "fix one list")
    listed, step = inner.content.get("grid"), 0.0
    times = listed if isinstance(listed, list) else []
    rising = all(is_number(time) and 0 < time <= _MOST for time in times) and all(
        a < b for a, b in pairwise(times)
    )
    if not rising or not 2 <= len(times) <= _MOST_TIMES:
        wanted = f"2 to {_MOST_TIMES} rising times above 0"
        raise inner.refusal("grid", wanted, "write it like [365, 730, 1095]")
    grid = tuple(map(float, times))
    if "step" in inner.content:
        step = TARGET["step"].read(inner, "step", None)
        visits = [floor(time / step + 1e-6) for time in (0.0, *grid)]
        if any(b <= a for a, b in pairwise(visits)):
            wanted = "at most the shortest interval of data.target.grid"
            raise inner.refusal("step", wanted, "lower it, or leave out times of the grid")
    return Outcome(
        kind=kind, event=event, positive=positive, negative=negative, grid=grid, step=step
    )


def _amount(inner: Section) -> Outcome:
    """A number with its bounds and its scale."""
    low, high = (TARGET[key].read(inner, key, None) for key in ("low", "high"))
    if high <= low:
        raise inner.refusal("high", f"above low = {low:g}", "exchange or widen the bounds")
    scale = TARGET["scale"].read(inner, "scale", Outcome.scale)
    if scale == "log" and low <= 0:
        other = f'scale = "{LOG_LINK}", which takes zeros'
        remedy = f"name the least number that matters, or write {other}"
        raise inner.refusal("low", 'above 0 with scale = "log"', remedy)
    if scale == LOG_LINK and low:
        raise inner.refusal("low", f'0 with scale = "{LOG_LINK}"', "write low = 0")
    mean = _mean(inner, low, high, positive=scale == LOG_LINK)
    return Outcome(kind=NUMERIC, low=low, high=high, scale=scale, mean=mean)


def _count(inner: Section, name: str, *, files: bool) -> Outcome:
    """A count, and for how long or of how much it was counted; in memory that has no column."""
    high = inner.number("high", None, least=1, most=_MOST)
    exposure, longest = inner.text("exposure", ""), Outcome.exposure_high
    if exposure or "exposure_high" in inner.content:
        longest = TARGET["exposure_high"].read(inner, "exposure_high", None)
        if exposure == name or (files and not exposure):
            wanted = "another column than the count's beside data.target.exposure_high"
            raise inner.refusal("exposure", wanted, "name the exposure's own")
    most = high if not longest else _MOST
    mean = _mean(inner, 0.0, most, positive=True)
    return Outcome(kind=COUNT, high=high, mean=mean, exposure=exposure, exposure_high=longest)


def _mean(inner: Section, low: float, high: float, *, positive: bool) -> float | None:
    """A guess of the mean that lies between the bounds."""
    if "mean" not in inner.content:
        return None
    mean = float(TARGET["mean"].read(inner, "mean", None))
    if not low <= mean <= high or (positive and mean <= 0):
        above = "above 0 and " if positive else ""
        wanted = f"{above}from {low:g} to {high:g}, the bounds"
        raise inner.refusal("mean", wanted, "correct it, or leave it out")
    return mean


def target_table(target: str, outcome: Outcome) -> dict[str, Any]:
    """The table `data.target` that is read as these."""
    own = "time" if outcome.kind == TIME_TO_EVENT else "column"
    table: dict[str, Any] = {"kind": outcome.kind, own: target}
    for key in _KEYS[outcome.kind]:
        value = table.get(key, getattr(outcome, key, None))
        optional = key in ("scale", "mean", "exposure", "exposure_high", "step")
        if not optional or value != getattr(Outcome, key):
            table[key] = list(value) if isinstance(value, tuple) else value
    return table
