"""Which column is learned, and which of its spellings mean what.

People spell one answer in many ways, and no file knows all of them: every spelling that occurs is
put into one of two lists, so that none becomes a 0 unseen. Of a target that is no class, bounds or
times follow from the cells; they are rounded outward as those of columns are, which hides little,
and a draft says so. This file sees the cells of all files.
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
from hubbub.core.tabular.cells import Rule, canonical
from hubbub.core.tabular.table import class_rule
from hubbub.core.tabular.target import COUNT, KINDS, LOG_LINK, NUMERIC, TIME_TO_EVENT, Outcome
from hubbub.desk.drafting.cell_text import folded, measured, plain_number
from hubbub.desk.drafting.column_draft import rounded_outward
from hubbub.desk.drafting.column_meaning import (
    ANSWERS,
    MOST_CLASSES,
    ONES,
    ZEROS,
    counts_something,
    is_absent,
    is_censoring,
)

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
    "a long tail: some values lie beyond {high:g} and count as it, since bounds that hold them "
    "would make all others alike"
)
_LOG_NOTE = (
    'a long tail, so scale = "log": its logarithm is learned, and errors are by how many times'
)
_NEGATIVE_NOTE = (
    "{count} times are below 0, such as {least:g}: dates the wrong way round? Such rows are "
    "refused, and left out by --tidy"
)
_LINK_NOTE = (
    'a long tail, and zeros, so scale = "log-link": the logarithm of its mean is learned; mean is '
    "where a model begins"
)


@dataclass(frozen=True, kw_only=True)
class TargetDraft:
    """The column that is learned.

    Args:
        name: of the column.
        positive: spellings that count as 1; empty where there are more than two classes.
        negative: those that count as 0.
        classes: spellings of more than two classes.
        guessed: whether nobody named the column.
        others: columns that may be it instead.
        notes: what people should know of it.
        seen: the same where it quotes cells or counts rows, so that no study has it.
        respelled: what a tidy copy writes for a spelling of a class that has several.
        outcome: what the target is if it is no class.
    """

    name: str
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    guessed: bool = False
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    respelled: Mapping[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of it."""
        return (self.name, *(self.outcome.columns if self.outcome else ()))

    def happened(self, columns: Mapping[str, Sequence[str]]) -> list[bool | None]:
        """For each row whether the outcome did; None where that is not known, or means nothing."""
        outcome = self.outcome
        if outcome is not None and not outcome.event:
            numbers = (measured(cell) for cell in columns[self.name])
            return [None if number is None else float(number) > 0 for number in numbers]
        lists = (self.positive, self.negative)
        if outcome is not None:
            lists = (outcome.positive, outcome.negative)
        ones, zeros = ({*map(canonical, listed)} for listed in lists)
        cells = map(canonical, columns[outcome.event if outcome else self.name])
        return [True if cell in ones else False if cell in zeros else None for cell in cells]

    def is_there(self, columns: Mapping[str, Sequence[str]]) -> list[bool]:
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
        outcome = self.outcome
        if outcome is not None and not outcome.event:
            return f"{self.name!r} is above 0", f"{self.name!r} is 0"
        name = outcome.event if outcome else self.name
        lists = (outcome.positive, outcome.negative) if outcome else (self.positive, self.negative)
        yes, no = (f"{name!r} is {' or '.join(listed[:2])}" for listed in lists)
        return yes, no

    @property
    def outputs(self) -> int:
        """How many numbers a model of it gives."""
        return len(self.classes) or 1


def learned(
    columns: Mapping[str, Sequence[str]],
    asked: str,
    *,
    kind: str | None = None,
    event: str | None = None,
) -> TargetDraft:
    """The target: a class unless another kind is asked for, or its column counts or measures.

    Args:
        columns: the cells of all files, of every column that all files have, numbers with decimal
            points.
        asked: the name of the target.
        kind: "class", "numeric", "count" or "time-to-event"; None: it is guessed.
        event: the column that says whether a time ends with the event.

    Raises:
        DataError: there is no such column, or none that can be learned so.
    """
    wanted = TIME_TO_EVENT if kind is None and event is not None else kind
    if wanted is None and asked in columns and counts_something(asked, columns[asked]):
        note = f'whole numbers from 0, so kind = "{COUNT}": say --kind class if they are classes'
        return _drafted(COUNT, asked, columns, None, (note,))
    if wanted not in KINDS:
        try:
            return _class_draft(columns, asked)
        except DataError:
            if asked not in columns or wanted or not _is_numeric(columns[asked]):
                raise
            note = f'numbers, so kind = "{NUMERIC}": say --kind {COUNT} if they count something'
            return _drafted(NUMERIC, asked, columns, None, (note,))
    for name, key in ((asked, "--target"), (event, "--event")):
        if name not in columns and (key == "--target" or wanted == TIME_TO_EVENT):
            raise DataError(
                f'expected {key} to name a column of every file for kind = "{wanted}", found '
                f"{name!r}; the files have {', '.join(columns)}"
            )
    return _drafted(wanted, asked, columns, event, ())


def _is_numeric(cells: Sequence[str]) -> bool:
    """Whether every record that has a target has a number, and there are several."""
    there = [cell for cell in cells if not is_absent(cell)]
    return len(set(there)) > 2 and all(measured(cell) is not None for cell in there)


def _drafted(
    kind: str,
    name: str,
    columns: Mapping[str, Sequence[str]],
    event: str | None,
    notes: tuple[str, ...],
) -> TargetDraft:
    """The target with its bounds, or its times and the event's spellings."""
    there = [cell for cell in columns[name] if not is_absent(cell)]
    values = [float(measured(cell) or "nan") for cell in there]
    least, most = min(values, default=0.0), max(values, default=0.0)
    if not all(value == value for value in values) or not least < most:
        raise DataError(
            f'expected numbers in the target {name!r} for kind = "{kind}", found '
            f"{_others(there)}; correct the files, or name another kind or column"
        )
    seen: tuple[str, ...] = ()
    if kind == NUMERIC:
        outcome = _amount(values)
        if outcome.is_log or outcome.is_log_link:
            notes = (*notes, _LOG_NOTE if outcome.is_log else _LINK_NOTE)
        if not outcome.is_log and not outcome.low <= least <= most <= outcome.high:
            notes = (*notes, _TAIL_NOTE.format(high=outcome.high))
    elif kind == COUNT:
        outcome = Outcome(kind=kind, high=max(1.0, rounded_outward(0.0, most)[1]))
    else:
        if slips := [value for value in values if value < 0]:
            seen = (_NEGATIVE_NOTE.format(count=len(slips), least=min(slips)),)
            values = [value for value in values if value >= 0]
        of_event, step = _event_of(columns, event or ""), _step_of(values)
        outcome = Outcome(
            kind=kind,
            event=of_event.name,
            positive=of_event.positive,
            negative=of_event.negative,
            grid=_grid(values, step),
            step=step,
        )
        notes, seen = (*notes, *of_event.notes), (*seen, *of_event.seen)
    return TargetDraft(name=name, outcome=outcome, notes=notes, seen=seen)


def _step_of(times: Sequence[float]) -> float:
    """What all times are whole numbers of where these are few, as those of visits are; else 0.

    Several sites' visits may be spread over weeks: no step of which there are many is one.
    """
    places = sorted(set(times) - {0.0})
    if not 1 < len(places) <= _MOST_VISITS:
        return 0.0
    step = float(f"{min(b - a for a, b in pairwise((0.0, *places))):.12g}")
    if places[-1] > _MOST_VISITS * step:
        return 0.0
    return step if all(abs(t / step - round(t / step)) < _OFF_STEP for t in places) else 0.0


def _grid(times: Sequence[float], step: float) -> tuple[float, ...]:
    """Times at which intervals end, up to one that a tenth of the records reach.

    They are evenly spaced, or, where a fifth of the records would lie in one interval, so that each
    holds as many; on visits where all times lie on few.
    """
    ordered = sorted(times)
    last = ordered[len(ordered) - 1 - len(ordered) // 10]
    places = sorted({one for one in ordered if 0 < one <= last})
    if len(places) <= _MOST_VISITS:
        near = [last * k / _TIMES for k in range(1, _TIMES + 1)]
        visits = {min(places, key=lambda one: abs(one - time)) for time in near}
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


def _at_least_two(ends: list[float], step: float) -> tuple[float, ...]:
    """Times of a grid, of which one alone is none."""
    ends = ends if len(ends) > 1 else [*ends, ends[0] + step]
    return tuple(float(f"{time:.5g}") for time in ends)


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
        low, high = rounded_outward(ordered[cut], ordered[-1 - cut])
        return Outcome(kind=NUMERIC, low=low, high=high)
    if len(ordered) - len(above) > _MOST_ZEROS * len(ordered):
        usual = _FAR * ordered[-1 - len(ordered) // 100] if len(ordered) >= _MANY else ordered[-1]
        high = _one_digit(min(ordered[-1], usual or ordered[-1]), ceil)
        mean = float(f"{fmean(min(value, high) for value in ordered):.1g}")
        return Outcome(kind=NUMERIC, high=high, scale=LOG_LINK, mean=mean)
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


def _others(there: Sequence[str]) -> str:
    """What a target of numbers has that is none."""
    words = [cell for cell in dict.fromkeys(there) if measured(cell) is None]
    if words:
        return f"{', '.join(map(repr, words[:3]))}{' and others' if len(words) > 3 else ''}"
    return "one number only" if there else "none"


def _event_of(columns: Mapping[str, Sequence[str]], name: str) -> TargetDraft:
    """The event's spellings; of a column that says who was censored they are the other way round.

    Raises:
        DataError: the column has not two answers.
    """
    draft, found = None, _how_many(_values(columns[name]))
    with suppress(DataError):
        draft = _class_draft(columns, name)
        found = ", ".join(draft.classes)
    if draft is None or draft.classes:
        raise DataError(
            f"expected the event's column {name!r} to say yes or no, found {found}; name one that "
            "does with --event, or write who had the event in a column of two values"
        )
    if not is_censoring(name) or {"censored", "event"} & {*map(folded, draft.positive)}:
        return draft
    note = f"{name!r} says who was censored, so its {draft.positive[0]!r} is no event"
    return replace(draft, positive=draft.negative, negative=draft.positive, notes=(note,))


def _class_draft(columns: Mapping[str, Sequence[str]], asked: str) -> TargetDraft:
    """The classes of a column that all files must have.

    Raises:
        DataError: there is no such column, or none that can be learned.
    """
    if asked not in columns:
        raise DataError(
            f"expected a column {asked!r} in every file, found {', '.join(columns) or 'none'}; "
            "name one of them with --target"
        )
    return _classes_of(asked, columns[asked])


def _values(cells: Sequence[str]) -> dict[str, Counter[str]]:
    """By folded text the spellings that occur, with their counts; without missing cells."""
    values: dict[str, Counter[str]] = {}
    for cell, times in Counter(cells).items():
        if not is_absent(cell):
            values.setdefault(folded(canonical(cell)), Counter())[cell] += times
    return values


def _classes_of(name: str, cells: Sequence[str]) -> TargetDraft:
    """The classes of a column."""
    values_of, slips = _without_slips(_values(cells))
    drafted = _of_values(name, values_of, len(cells))
    if not slips:
        return drafted
    more = " and others" * (len(slips) > _SHOWN)
    note = (
        f"no class, as next to no row has it: {', '.join(map(repr, slips[:_SHOWN]))}{more}; slips, "
        "or a footer? Such rows are refused, and left out by --tidy"
    )
    return replace(drafted, seen=(note,))


def _without_slips(
    values: Mapping[str, Counter[str]],
) -> tuple[Mapping[str, Counter[str]], list[str]]:
    """The values without those that next to no record has, and these; a stage may be rare."""
    total = sum(spelled.total() for spelled in values.values())
    least = max(_FEWEST_OF_CLASS, total // _MANY)
    rare = {
        value
        for value, spelled in values.items()
        if spelled.total() < least and not re.fullmatch(r"\d", value)
    }
    slips = sum(values[value].total() for value in rare)
    if (
        total < _MANY
        or _SLIPS * slips > total
        or len(values) - len(rare) < 2
        or set(values) <= {*ONES, *ZEROS}
    ):
        return values, []
    kept = {value: spelled for value, spelled in values.items() if value not in rare}
    return kept, sorted(spelling for value in rare for spelling in values[value])


def _of_values(name: str, values_of: Mapping[str, Counter[str]], cells: int) -> TargetDraft:
    """The classes, of the values that count."""
    if values_of and set(values_of) <= {*ONES, *ZEROS}:
        return _answers(name, values_of)
    if len(values_of) == 2:
        return _two(name, values_of)
    if 2 < len(values_of) <= min(MOST_CLASSES, max(3, cells // 3)):
        return _several(name, values_of)
    raise DataError(
        f"expected a target {name!r} of two to {MOST_CLASSES} classes, found "
        f"{_how_many(values_of)} in all files; name another column with --target, or say --kind "
        "numeric, count or time-to-event"
    )


def _how_many(values: Mapping[str, Counter[str]]) -> str:
    """In words how many values occur."""
    return "one value only" if len(values) == 1 else f"{len(values)} values"


def _two(name: str, found: Mapping[str, Counter[str]]) -> TargetDraft:
    """A target of two values, of which people must say which is the one to be found."""
    zero, one = sorted(found, key=lambda value: (-found[value].total(), value))
    why = "rarer"
    if all(plain_number(value) is not None for value in found):
        zero, one = sorted(found, key=lambda value: float(plain_number(value) or 0))
        why = "larger"
    elif zero in ONES or one in ZEROS:
        zero, one, why = one, zero, "likelier"
    note = f"{one!r} counts as 1, since it is the {why} one: exchange the lists if it should not"
    return _pair(name, found[one], found[zero], note)


def _answers(name: str, found: Mapping[str, Counter[str]]) -> TargetDraft:
    """A target whose values all mean yes or no."""
    ones = [spelling for value in found if value in ONES for spelling in found[value]]
    zeros = [spelling for value in found if value in ZEROS for spelling in found[value]]
    note = ""
    if not ones or not zeros:
        (value, *_) = found
        missing = next(pair[1 if ones else 0] for pair in ANSWERS if value in pair)
        (zeros if ones else ones).append(missing)
        note = f"only one class occurs; {missing!r} was made up for the other: correct it"
    return _pair(name, ones, zeros, note)


def _pair(name: str, ones: Iterable[str], zeros: Iterable[str], note: str) -> TargetDraft:
    return TargetDraft(
        name=name,
        positive=tuple(sorted(ones)),
        negative=tuple(sorted(zeros)),
        notes=(note,) if note else (),
    )


def _several(name: str, found: Mapping[str, Counter[str]]) -> TargetDraft:
    """More than two classes; stages from 0 upwards are two: none, and any."""
    if all(value.isdigit() for value in found) and "0" in found:
        ones = [spelling for value in found if value != "0" for spelling in found[value]]
        note = "0 against every other number: write classes instead to tell them apart"
        return _pair(name, ones, list(found["0"]), note)
    order = sorted(found, key=lambda value: (float(plain_number(value) or "inf"), value))
    usual = {value: found[value].most_common(1)[0][0] for value in found}
    respelled = {
        spelling: usual[value]
        for value, spellings in found.items()
        for spelling in spellings
        if canonical(spelling) != canonical(usual[value])
    }
    classes = tuple(canonical(usual[value]) for value in order)
    return TargetDraft(name=name, classes=classes, respelled=respelled)
