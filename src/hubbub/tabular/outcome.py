"""Targets that are no classes: amounts, counts, and times to an event.

Cells become numbers in their own unit, whatever the public bounds are: those are applied where a
loss is made of them. This file knows cells and one target, neither losses nor models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import DataError
from hubbub.settings import later, one_of, settings
from hubbub.tabular.cell_rule import (
    NO_TARGET,
    NUMBER,
    CellFault,
    Rule,
    canonical,
    label_rule,
    number_in,
    read_column,
)
from hubbub.tabular.column import Column

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
                *("linear", "log"),
                says='`"log"`, for a number with a long tail: its logarithm is learned, so that '
                "errors are by how many times; a number below `low`, which is above 0, counts as "
                "`low`.",
                default='`"linear"`',
            )
        ),
    ] = "linear"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a target beside its own."""
        return (self.event,) if self.event else ()

    def declared(self, name: str) -> tuple[Column, ...]:
        """What it says of its own column of this name, and of its event's, for statistics."""
        if self.kind != TIME_TO_EVENT:
            return (Column(name=name, low=self.low, high=self.high),)
        event = Column(name=self.event, categories=(self.negative[0], self.positive[0]))
        return (Column(name=name, low=0.0, high=self.grid[-1]), event)

    @property
    def is_log(self) -> bool:
        """Whether its logarithm is learned."""
        return self.scale == "log"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record's target."""
        return (2,) if self.kind == TIME_TO_EVENT else ()

    def rule(self, text: str) -> float | CellFault:
        """What a cell of the target's own column says: a number in its own unit."""
        if not text:
            return NO_TARGET
        value = number_in(text)
        if value is None:
            problem = "something that is no number"
        elif self.kind != NUMERIC and value < 0:
            problem = "a negative number"
        elif self.kind == COUNT and value % 1:
            problem = "a number with a fraction"
        else:
            return value
        kind = NUMBER if value is None else problem
        remedy = "correct the cell or remove the record"
        return CellFault(kind, _WANTED[self.kind], problem, remedy)

    @property
    def event_rule(self) -> Rule:
        """What a cell of the event's column says: 1 if there was one, else 0."""
        lists = "data.target.positive or data.target.negative"
        return label_rule(two_classes(self.positive, self.negative), lists)


def outcomes(
    outcome: Outcome, name: str, cells: Mapping[str, Sequence[str]], origin: str
) -> NDArray[np.float64]:
    """The targets in their own unit: shape (n,), or (n, 2) of time and event, which is 0 or 1.

    Raises:
        DataError: a cell is missing, or is not what the target's kind asks for.
    """
    values = read_column(cells[name], outcome.rule, f"{origin}, column {name!r}")
    if not outcome.event:
        return values
    where = f"{origin}, column {outcome.event!r}"
    return np.column_stack([values, read_column(cells[outcome.event], outcome.event_rule, where)])


_WANTED = {NUMERIC: "a number", COUNT: "a whole number from 0", TIME_TO_EVENT: "a time from 0"}


def two_classes(positive: Sequence[str], negative: Sequence[str]) -> dict[str, int]:
    """1 for the spellings of one list, 0 for those of the other."""
    return dict.fromkeys(map(canonical, negative), 0) | dict.fromkeys(map(canonical, positive), 1)


def refuse_other_targets(outcome: Outcome | None, targets: NDArray[Any], whose: str) -> None:
    """Refuse records whose targets are of another kind than the study's.

    Raises:
        DataError: they are; the message holds neither a value nor a count.
    """
    numbers = targets.dtype == np.float64
    fits = numbers == (outcome is not None)
    if outcome is not None and numbers:
        fits = targets.shape[1:] == outcome.shape
        if outcome.kind == COUNT:
            fits = fits and not ((targets < 0) | (targets % 1 != 0)).any()
    if not fits:
        wanted = "classes, float32 or int64" if outcome is None else _ARRAYS[outcome.kind]
        raise DataError(
            f"expected targets of {whose} to be {wanted}, as the study's target says, found "
            "others; fix the data or data.target"
        )


_ARRAYS = {
    NUMERIC: "amounts, float64 of shape (n,)",
    COUNT: "whole numbers from 0, float64 of shape (n,)",
    TIME_TO_EVENT: "times and events, float64 of shape (n, 2)",
}
