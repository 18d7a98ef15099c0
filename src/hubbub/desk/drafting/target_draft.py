"""Which column is learned, and which of its spellings mean what.

People spell one answer in many ways: every spelling that occurs is put into one of two lists, so
that none becomes a 0 unseen. This file sees the cells of all files.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, floor, log, log10
from statistics import fmean, pstdev

from hubbub.core.errors import DataError
from hubbub.core.number_format import offered
from hubbub.core.tabular.cells import Rule, canonical
from hubbub.core.tabular.table import class_rule
from hubbub.core.tabular.target import COUNT, KINDS, LOG_LINK, NUMERIC, TIME_TO_EVENT, Outcome
from hubbub.desk.drafting.cell_text import folded, measured, plain_number, seen
from hubbub.desk.drafting.column_draft import ends_within, rounded_outward
from hubbub.desk.drafting.column_meaning import (
    ANSWERS,
    MOST_CLASSES,
    ONES,
    ZEROS,
    counts_something,
    is_absent,
    is_censoring,
)

Columns = Mapping[str, Sequence[str]]  # the cells of all files, numbers with decimal points
Spellings = Mapping[str, Counter[str]]  # by folded text those that occur, with their counts

_TIMES = 8  # of a grid
_MOST_VISITS = 60  # different times, of which an interval may end at any
_OFF_STEP = 1e-6  # steps by which a time may miss one: what its last digits leave out
_FEWEST_ALIKE = 10  # records of one time, which is nobody's own then
_MOST_ZEROS = 0.02  # share of values that are none, before a logarithm says too little
_FEWEST_LOGS = 20  # different values
_SLIPS = 20  # of the records, one part at most are slips
_FEWEST_OF_CLASS = 3  # records, of many
_SHOWN = 5  # spellings
_MANY = 200  # values, from which on a hundredth at either end is no single person
_LONG_TAIL = 3.0  # skewness, from which on the largest values would leave all others one number
_FAR = 4.0  # times that which one in a hundred exceeds: a slip, or nobody like the others
_TAIL_NOTE = (
    "a long tail: some values lie above {high:g} and count as it, because bounds that include "
    "them would make all others look alike"
)
_LOG_NOTE = 'a long tail, so scale = "log": the model predicts its logarithm, and errors are ratios'
_NEGATIVE_NOTE = (
    "{count} times are below 0, such as {least:g}: are the dates in the wrong order? Such rows are "
    "refused, and left out by --tidy"
)
_LINK_NOTE = (
    'a long tail with zeros, so scale = "log-link": the model predicts the logarithm '
    "of its mean; “mean” is where it starts"
)


@dataclass(frozen=True, kw_only=True)
class TargetDraft:
    """The column that is learned."""

    name: str  # of the column
    # spellings that count as 1; empty where there are more than two classes
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()  # those that count as 0
    classes: tuple[str, ...] = ()  # spellings of more than two classes
    guessed: bool = False  # whether nobody named the column
    others: tuple[str, ...] = ()  # columns that may be it instead
    notes: tuple[str, ...] = ()  # what people should know of it
    # the same where it quotes cells or counts rows, so that no study has it
    seen: tuple[str, ...] = ()
    # what a tidy copy writes for a spelling of a class that has several
    respelled: Mapping[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None  # what the target is if it is no class

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of it."""
        return (self.name, *(self.outcome.columns if self.outcome else ()))

    @property
    def _answers(self) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
        """The column that says whether the outcome happened, with its spellings; None: a number."""
        if self.outcome is None:
            return self.name, self.positive, self.negative
        event = self.outcome.event
        return (event, self.outcome.positive, self.outcome.negative) if event else None

    def happened(self, columns: Columns) -> list[bool | None]:
        """For each row whether the outcome did; None where that is not known, or means nothing."""
        if self._answers is None:
            numbers = (measured(cell) for cell in columns[self.name])
            return [None if number is None else float(number) > 0 for number in numbers]
        name, *lists = self._answers
        ones, zeros = ({*map(canonical, listed)} for listed in lists)
        cells = map(canonical, columns[name])
        return [True if cell in ones else False if cell in zeros else None for cell in cells]

    def is_there(self, columns: Columns) -> list[bool]:
        """For each row whether it has a target."""
        cells = zip(*(columns[name] for name in self.columns), strict=True)
        return [not any(map(is_absent, row)) for row in cells]

    @property
    def rule(self) -> Rule:
        """By which a run reads the target's own column."""
        if self.outcome is not None:
            return self.outcome.rule
        return class_rule(self.positive, self.negative, self.classes)

    @property
    def sides(self) -> tuple[str, str]:
        """What it says where the outcome happened, and where it did not, in words."""
        if self._answers is None:
            return f"{self.name!r} is above 0", f"{self.name!r} is 0"
        name, *lists = self._answers
        yes, no = (f"{name!r} is {' or '.join(listed[:2])}" for listed in lists)
        return yes, no

    @property
    def outputs(self) -> int:
        """How many numbers a model of it gives."""
        return len(self.classes) or 1


def learned(
    columns: Columns, asked: str, *, kind: str | None = None, event: str | None = None
) -> TargetDraft:
    """The target: a class unless another kind is asked for, or its column counts or measures."""
    wanted = TIME_TO_EVENT if kind is None and event is not None else kind
    cells = columns.get(asked)
    if wanted is None and cells is not None and counts_something(asked, cells):
        note = f'whole numbers from 0, so kind = "{COUNT}": use --kind class if they are classes'
        return _number(COUNT, asked, cells, (note,))
    if wanted not in KINDS:
        if cells is None:
            there_are = offered(columns) or "none"
            raise DataError(
                f"expected a column {asked!r} in every file, found {there_are}; "
                "name one of them with --target"
            )
        try:
            return _classes(asked, cells)
        except DataError:
            there = [cell for cell in cells if not is_absent(cell)]
            measures = len(set(there)) > 2 and all(measured(cell) is not None for cell in there)
            if wanted or not measures:
                raise
            note = f'numbers, so kind = "{NUMERIC}": use --kind {COUNT} if they count something'
            return _number(NUMERIC, asked, cells, (note,))
    for name, key in ((asked, "--target"), (event, "--event")):
        if name not in columns and (key == "--target" or wanted == TIME_TO_EVENT):
            raise DataError(
                f'expected {key} to name a column of every file for kind = "{wanted}", '
                f"found {name!r}; the files have {offered(columns)}"
            )
    if wanted == TIME_TO_EVENT:
        return _time(columns, asked, event or "")
    return _number(wanted, asked, columns[asked], ())


def _values(kind: str, name: str, cells: Sequence[str]) -> list[float]:
    there = [cell for cell in cells if not is_absent(cell)]
    words = [cell for cell in dict.fromkeys(there) if measured(cell) is None]
    values = [float(measured(cell) or "nan") for cell in there]
    is_nothing = not words and kind != NUMERIC and max(values, default=0.0) <= 0
    if words or is_nothing or len(set(values)) < 2:
        got = "none above 0" if is_nothing else "one number only" if there else "none"
        if words:
            got = f"{', '.join(map(repr, words[:3]))}{' and others' if len(words) > 3 else ''}"
        raise DataError(
            f'expected numbers in the target {name!r} for kind = "{kind}", found '
            f"{got}; correct the files, or name another kind or column"
        )
    return values


def _number(kind: str, name: str, cells: Sequence[str], notes: tuple[str, ...]) -> TargetDraft:
    values = _values(kind, name, cells)
    least, most = min(values), max(values)
    if kind == COUNT:
        outcome = Outcome(kind=kind, high=max(1.0, rounded_outward(0.0, most)[1]))
        return TargetDraft(name=name, outcome=outcome, notes=notes)
    outcome = _amount(values)
    if outcome.is_log or outcome.is_log_link:
        notes = (*notes, _LOG_NOTE if outcome.is_log else _LINK_NOTE)
    if not outcome.is_log and not outcome.low <= least <= most <= outcome.high:
        notes = (*notes, _TAIL_NOTE.format(high=outcome.high))
    return TargetDraft(name=name, outcome=outcome, notes=notes)


def _time(columns: Columns, name: str, event_name: str) -> TargetDraft:
    """A time until an event, with the times that it is told by and the event's spellings."""
    values = _values(TIME_TO_EVENT, name, columns[name])
    event = _event_of(columns, event_name)
    remarks = event.seen
    if slips := [value for value in values if value < 0]:
        remarks = (_NEGATIVE_NOTE.format(count=len(slips), least=min(slips)), *remarks)
        values = [value for value in values if value >= 0]
    # What all times are whole numbers of where these are few, as those of visits are; else 0.
    # Several sites' visits may be spread over weeks: no step of which there are many is one.
    step, places = 0.0, sorted(set(values) - {0.0})
    if 1 < len(places) <= _MOST_VISITS:
        least = float(f"{min(b - a for a, b in pairwise((0.0, *places))):.12g}")
        if places[-1] <= _MOST_VISITS * least:
            near = all(abs(t / least - round(t / least)) < _OFF_STEP for t in places)
            step = least if near else 0.0
    outcome = Outcome(
        kind=TIME_TO_EVENT,
        event=event.name,
        positive=event.positive,
        negative=event.negative,
        grid=_grid(values, step),
        step=step,
    )
    return TargetDraft(name=name, outcome=outcome, notes=event.notes, seen=remarks)


def _grid(times: Sequence[float], step: float) -> tuple[float, ...]:
    """Times at which intervals end, up to one that a tenth of the records reach.

    They are evenly spaced, or, where a fifth of the records would lie in one interval, so that each
    holds as many; on visits where all times lie on few.
    """
    ordered = sorted(times)
    last = ordered[len(ordered) - 1 - len(ordered) // 10] or ordered[-1]
    places = sorted({time for time in ordered if 0 < time <= last})
    if len(places) <= _MOST_VISITS:
        near = [last * k / _TIMES for k in range(1, _TIMES + 1)]
        visits = {min(places, key=lambda place: abs(place - time)) for time in near}
        return _at_least_two(sorted(visits), step or last)
    if ordered.count(last) < _FEWEST_ALIKE:  # nobody's own time, if it is not shared
        power = 10.0 ** (floor(log10(last / _TIMES)) - 1)
        last = _TIMES * floor(last / _TIMES / power) * power
    even = [last * k / _TIMES for k in range(1, _TIMES + 1)]
    held = [bisect_right(ordered, end) for end in (0.0, *even)]
    if max(after - before for before, after in pairwise(held)) * 5 >= len(ordered):
        within = [time for time in ordered if 0 < time <= last]
        rough = {float(f"{within[len(within) * k // _TIMES]:.2g}") for k in range(1, _TIMES)}
        even = [*sorted(time for time in rough if time < last), last]
    return _at_least_two(even, last)


def _at_least_two(ends: Sequence[float], step: float) -> tuple[float, ...]:
    """Times of a grid, to five digits, of which one alone is none."""
    first, *rest = sorted({float(f"{time:.5g}") for time in ends})
    if not rest:
        second = float(f"{first + step:.5g}")
        rest = [second if second > first else 2 * first]
    return (first, *rest)


def _amount(values: Sequence[float]) -> Outcome:
    """A number; of one with a long tail, as most money and times have, the logarithm is learned.

    Where there are zeros, which have none, that of its mean.
    """
    ordered = sorted(values)
    above = [value for value in ordered if value > 0]
    logs = [log(value) for value in above]
    few = len(set(above)) < _FEWEST_LOGS
    if ordered[0] < 0 or few or abs(_skew(logs)) >= _skew(above) - 1:
        cut = len(ordered) // 100 if len(ordered) >= _MANY and _skew(ordered) > _LONG_TAIL else 0
        low, high = rounded_outward(*ends_within(ordered, cut))
        return Outcome(kind=NUMERIC, low=low, high=high)
    if len(ordered) - len(above) > _MOST_ZEROS * len(ordered):
        usual = _FAR * ordered[-1 - len(ordered) // 100] if len(ordered) >= _MANY else ordered[-1]
        high = _one_digit(min(ordered[-1], usual or ordered[-1]), ceil)
        mean = float(f"{fmean(min(value, high) for value in ordered):.1g}")
        return Outcome(kind=NUMERIC, high=high, scale=LOG_LINK, mean=mean)
    # The least hundredth would widen the logarithm's range for few.
    ends = above[len(above) // 100], ordered[-1]
    return Outcome(
        kind=NUMERIC, low=_one_digit(ends[0], floor), high=_one_digit(ends[1], ceil), scale="log"
    )


def _skew(values: Sequence[float]) -> float:
    """How much longer the tail above the mean is; no unit, 0 of a symmetric one."""
    middle, spread = fmean(values), pstdev(values)
    return fmean(((value - middle) / spread) ** 3 for value in values) if spread else 0.0


def _one_digit(value: float, towards: Callable[[float], int]) -> float:
    """A number above 0 with one digit, at most or at least as large."""
    power = floor(log10(value))
    return float(f"{towards(value / 10.0**power):d}e{power}")


def _event_of(columns: Columns, name: str) -> TargetDraft:
    """The event's spellings; of a column that says who was censored, the other way round."""
    draft, answers = None, _how_many(_spellings(columns[name]))
    with suppress(DataError):
        draft = _classes(name, columns[name])
        answers = ", ".join(draft.classes)
    if draft is None or draft.classes:
        raise DataError(
            f"expected the event's column {name!r} to say yes or no, found {answers}; name one "
            "that does with --event, or make a column of two values that says who had the event"
        )
    if not is_censoring(name) or {"censored", "event"} & {*map(folded, draft.positive)}:
        return draft
    ended = draft.positive[0]
    note = f"{name!r} says who was censored, so its {ended!r} does not count as an event"
    return replace(draft, positive=draft.negative, negative=draft.positive, notes=(note,))


def _spellings(cells: Sequence[str]) -> Spellings:
    values: dict[str, Counter[str]] = {}
    for cell, times in Counter(map(seen, cells)).items():
        if not is_absent(cell):
            values.setdefault(folded(canonical(cell)), Counter())[cell] += times
    return values


def _how_many(values: Spellings) -> str:
    return "one value only" if len(values) == 1 else f"{len(values)} values"


def _classes(name: str, cells: Sequence[str]) -> TargetDraft:
    values, slips = _without_slips(_spellings(cells))
    if values and set(values) <= {*ONES, *ZEROS}:
        draft = _of_answers(name, values)
    elif len(values) == 2:
        draft = _of_two(name, values)
    elif 2 < len(values) <= min(MOST_CLASSES, max(3, len(cells) // 3)):
        draft = _of_several(name, values)
    else:
        raise DataError(
            f"expected a target {name!r} of two to {MOST_CLASSES} classes, found "
            f"{_how_many(values)} in all files; name another column with --target, or use "
            "--kind numeric, count or time-to-event"
        )
    if not slips:
        return draft
    more = " and others" * (len(slips) > _SHOWN)
    note = (
        "not a class, because hardly any row has it: "
        f"{', '.join(map(repr, slips[:_SHOWN]))}{more}; typing errors, or a footer? Such "
        "rows are refused, and left out by --tidy"
    )
    return replace(draft, seen=(note,))


def _without_slips(values: Spellings) -> tuple[Spellings, list[str]]:
    """The values without those that next to no record has, and these; a stage may be rare."""
    totals = {value: spelled.total() for value, spelled in values.items()}
    total = sum(totals.values())
    # Of many records a class has at least some, unless it is a stage, which has one digit.
    least = max(_FEWEST_OF_CLASS, total // _MANY)
    rare = {v for v in values if totals[v] < least and not re.fullmatch(r"\d", v)}
    many = total >= _MANY and _SLIPS * sum(totals[value] for value in rare) <= total
    if not many or len(values) - len(rare) < 2 or set(values) <= {*ONES, *ZEROS}:
        return values, []
    kept = {value: spelled for value, spelled in values.items() if value not in rare}
    return kept, sorted(spelling for value in rare for spelling in values[value])


def _of_two(name: str, values: Spellings) -> TargetDraft:
    """A target of two values, of which people must say which is the one to be found."""
    zero, one = sorted(values, key=lambda value: (-values[value].total(), value))
    why = "rarer"
    if all(plain_number(value) is not None for value in values):
        zero, one = sorted(values, key=lambda value: float(plain_number(value) or 0))
        why = "larger"
    elif zero in ONES or one in ZEROS:
        zero, one, why = one, zero, "likelier"
    note = f"{one!r} counts as 1, because it is the {why} one: swap the lists if it should not"
    return _pair(name, values[one], values[zero], note)


def _of_answers(name: str, values: Spellings) -> TargetDraft:
    """A target whose values all mean yes or no."""
    ones = [spelling for value in values if value in ONES for spelling in values[value]]
    zeros = [spelling for value in values if value in ZEROS for spelling in values[value]]
    note = ""
    if not ones or not zeros:
        (value, *_) = values
        other = next(pair[1 if ones else 0] for pair in ANSWERS if value in pair)
        (zeros if ones else ones).append(other)
        note = f"only one class occurs; {other!r} is a placeholder for the other: correct it"
    return _pair(name, ones, zeros, note)


def _pair(name: str, ones: Iterable[str], zeros: Iterable[str], note: str) -> TargetDraft:
    yes, no, notes = tuple(sorted(ones)), tuple(sorted(zeros)), (note,) if note else ()
    return TargetDraft(name=name, positive=yes, negative=no, notes=notes)


def _of_several(name: str, values: Spellings) -> TargetDraft:
    """More than two classes; stages from 0 upwards are two: none, and any."""
    if all(value.isdigit() for value in values) and "0" in values:
        ones = [spelling for value in values if value != "0" for spelling in values[value]]
        note = "0 against every other number: write classes instead to keep them apart"
        return _pair(name, ones, values["0"], note)
    order = sorted(values, key=lambda value: (float(plain_number(value) or "inf"), value))
    usual = {value: spelled.most_common(1)[0][0] for value, spelled in values.items()}
    respelled = {
        spelling: usual[value]
        for value, spelled in values.items()
        for spelling in spelled
        if canonical(spelling) != canonical(usual[value])
    }
    classes = tuple(canonical(usual[value]) for value in order)
    return TargetDraft(name=name, classes=classes, respelled=respelled)
