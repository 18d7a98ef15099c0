"""Targets that are no classes: amounts, counts, and times to an event.

Cells become numbers in their own unit, whatever the public bounds are: those are applied where a
loss is made of them. This file knows cells and one target, neither losses nor models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import DataError
from hubbub.tabular.cells import at_row
from hubbub.tabular.column import canonical, number_in

AMOUNT, COUNT, TIME_TO_EVENT = "amount", "count", "time-to-event"
KINDS = (AMOUNT, COUNT, TIME_TO_EVENT)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a target that is no class is, and what is public about it.

    Args:
        kind: "amount", "count" or "time-to-event".
        low: public lower bound of an amount, in its own unit; 0 for the others.
        high: public upper bound of an amount or a count; values beyond a bound count as the bound.
        event: the column that says whether a time ends with the event.
        positive: its spellings for the event.
        negative: its spellings for a time that ends without it; any other is refused.
        grid: public times, rising, at which the intervals of the hazards end; the first one begins
            with time 0.
    """

    kind: str
    low: float = 0.0
    high: float = 0.0
    event: str = ""
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    grid: tuple[float, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a target beside its own."""
        return (self.event,) if self.event else ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record's target."""
        return (2,) if self.kind == TIME_TO_EVENT else ()

    def problem(self, text: str) -> str:
        """Why a cell of the target's own column is none; empty if it is one."""
        value = number_in(text)
        if value is None:
            return "something that is no number"
        if self.kind != AMOUNT and value < 0:
            return "a negative number"
        return "a number with a fraction" if self.kind == COUNT and value % 1 else ""


def outcomes(
    outcome: Outcome, name: str, cells: Mapping[str, Sequence[str]], origin: str
) -> NDArray[np.float64]:
    """The targets in their own unit: shape (n,), or (n, 2) of time and event, which is 0 or 1.

    Raises:
        DataError: a cell is missing, or is not what the target's kind asks for.
    """
    where = f"{origin}, column {name!r}"
    refuse_blank(cells[name], where)
    for row, text in enumerate(cells[name]):
        if problem := outcome.problem(text):
            raise DataError(
                f"expected {_WANTED[outcome.kind]} {at_row(where, row)}, found {problem}; correct "
                "the cell or remove the record"
            )
    values = np.array([number_in(text) for text in cells[name]], dtype=np.float64)
    if not outcome.event:
        return values
    where = f"{origin}, column {outcome.event!r}"
    refuse_blank(cells[outcome.event], where)
    lists = "data.target.positive or data.target.negative"
    happened = two_classes(
        cells[outcome.event], outcome.positive, outcome.negative, where, lists=lists
    )
    return np.column_stack([values, happened])


_WANTED = {AMOUNT: "a number", COUNT: "a whole number from 0", TIME_TO_EVENT: "a time from 0"}


def refuse_blank(texts: Sequence[str], where: str) -> None:
    """Refuse a record without a target."""
    blank = next((row for row, text in enumerate(texts) if not text), None)
    if blank is not None:
        raise DataError(
            f"expected a target {at_row(where, blank)}, found an empty cell; remove the record"
        )


def two_classes(
    texts: Sequence[str],
    positive: Sequence[str],
    negative: Sequence[str],
    where: str,
    *,
    lists: str = "data.positive or data.negative",
) -> list[int]:
    """1 for the spellings of one list, 0 for those of the other; any other is refused."""
    index = dict.fromkeys(map(canonical, negative), 0) | dict.fromkeys(map(canonical, positive), 1)
    found = [index.get(canonical(text), -1) for text in texts]
    if -1 in found:
        raise DataError(
            f"expected a target that {lists} lists "
            f"{at_row(where, found.index(-1))}, found something else; correct the cell, or add its "
            "spelling to one of the two"
        )
    return found


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
    AMOUNT: "amounts, float64 of shape (n,)",
    COUNT: "whole numbers from 0, float64 of shape (n,)",
    TIME_TO_EVENT: "times and events, float64 of shape (n, 2)",
}
