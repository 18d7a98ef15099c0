"""Targets that are no classes: amounts, counts, and times to an event.

Cells become numbers in their own unit, whatever the public bounds are: those are applied where a
loss is made of them. This file knows cells and one target, neither losses nor models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.core.settings import by_hand, later, number, one_of, settings, text
from hubbub.core.tabular.cell_rule import (
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
                says='`"log"`, for a number with a long tail: its logarithm is learned, so that '
                "errors are by how many times and about the median is predicted; a number below "
                '`low`, which is above 0, counts as `low`. `"log-link"`: the logarithm of its mean '
                "is learned, so that 0 is a value as any other and means are predicted.",
                default='`"linear"`',
            )
        ),
    ] = "linear"
    mean: Annotated[
        float | None,
        later(
            by_hand(
                number(
                    -LARGEST,
                    LARGEST,
                    "Public guess of the mean of a number or a count, with `exposure` of the count "
                    "in one unit of exposure: what a model predicts before its first step.",
                    values="number between `low` and `high`",
                    default="none",
                )
            )
        ),
    ] = None
    exposure: Annotated[
        str,
        later(
            by_hand(
                text(
                    "Of a count: the column that says for how long, or of how much, it was "
                    "counted, a number above 0. Rates are learned then.",
                    default="none",
                )
            )
        ),
    ] = ""
    exposure_high: Annotated[
        float,
        later(
            by_hand(
                number(
                    0,
                    LARGEST,
                    "Public upper bound of an exposure, in its own unit, which `exposure` needs; a "
                    "longer one counts as it.",
                    above=True,
                    default="none",
                )
            )
        ),
    ] = 0.0
    step: Annotated[
        float,
        later(
            by_hand(
                number(
                    0,
                    LARGEST,
                    "Times lie on whole numbers of it, as visits do: a time counts as the nearest.",
                    above=True,
                    default="none",
                )
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
    value = number_in(text) if text else None
    if value is not None and value > 0:
        return value
    problem = "nothing" if not text else "something that is no number"
    kind = GAP if not text else NUMBER
    if value is not None:
        kind = problem = "an exposure that is not above 0"
    return CellFault(kind, "an exposure above 0", problem, "correct the cell or remove the record")


def outcomes(
    outcome: Outcome, name: str, cells: Mapping[str, Sequence[str]], origin: str
) -> NDArray[np.float64]:
    """The targets in their own unit: shape (n,), or (n, 2) beside an event (0 or 1) or exposure.

    Raises:
        DataError: a cell is missing, or is not what the target's kind asks for.
    """
    read = [read_column(cells[name], outcome.rule, f"{origin}, column {name!r}")]
    for other in outcome.columns:
        where = f"{origin}, column {other!r}"
        read.append(read_column(cells[other], outcome.rule_of(other), where))
    return np.column_stack(read) if outcome.columns else read[0]


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
