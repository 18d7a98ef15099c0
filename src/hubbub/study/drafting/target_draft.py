"""Which column is learned, and which of its spellings mean what.

People spell one answer in many ways, and no file knows all of them: every spelling that occurs is
put into one of two lists, so that none becomes a 0 unseen. Of a target that is no class, bounds or
times follow from the cells; they are rounded outward as those of columns are, which hides little,
and a draft says so. This file sees the cells of all files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hubbub.errors import DataError
from hubbub.study.drafting.cell_text import (
    decimal_of,
    folded,
    is_missing,
    measured,
    plain_number,
)
from hubbub.study.drafting.column_draft import rounded_outward
from hubbub.tabular import COUNT, KINDS, NUMERIC, TIME_TO_EVENT, Outcome, canonical

_ANSWERS = (  # what counts as 1, and as 0
    *(("yes", "no"), ("y", "n"), ("true", "false"), ("t", "f"), ("1", "0"), ("ja", "nein")),
    *(("j", "n"), ("oui", "non"), ("si", "no"), ("sí", "no"), ("positive", "negative")),
    *(("pos", "neg"), ("positiv", "negativ"), ("+", "-"), ("dead", "alive"), ("died", "survived")),
    *(("deceased", "living"), ("case", "control"), ("ill", "healthy"), ("sick", "well")),
    *(("present", "absent"), ("event", "censored")),
)
_ONES, _ZEROS = (frozenset(side) for side in zip(*_ANSWERS, strict=True))
_NAMES = (
    *(
        "target",
        "label",
        "outcome",
        "y",
        "num",
        "class",
        "event",
        "died",
        "death",
        "dead",
        "deceased",
    ),
    *("mortality", "diagnosis", "disease", "result", "readmitted", "response", "relapse", "status"),
)
_MOST_CLASSES = 10
_TIMES = 8  # of a grid


@dataclass(frozen=True, kw_only=True)
class TargetDraft:
    """The column that is learned.

    Args:
        name: of the column.
        positive: spellings that count as 1; empty where there are more than two classes.
        negative: those that count as 0.
        classes: spellings of more than two classes.
        guessed: whether nobody named the column.
        notes: what people should know of it.
        respelled: what a tidy copy writes for a spelling of a class that has several.
        outcome: what the target is if it is no class.
        decimal: the decimal sign in which it was read then.
    """

    name: str
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    guessed: bool = False
    notes: tuple[str, ...] = ()
    respelled: Mapping[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None
    decimal: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of it."""
        return (self.name, *(self.outcome.columns if self.outcome else ()))

    @property
    def outputs(self) -> int:
        """How many numbers a model of it gives."""
        return len(self.classes) or 1


def learned(
    columns: Mapping[str, Sequence[str]],
    asked: str | None,
    *,
    kind: str | None = None,
    event: str | None = None,
    elsewhere: Sequence[str] = (),
    usual: str = ".",
) -> TargetDraft:
    """The target: a class unless another kind is asked for, or its column holds many numbers.

    Args:
        columns, asked, elsewhere: as for `_class_draft`.
        kind: "class", "numeric", "count" or "time-to-event"; None: it is guessed.
        event: the column that says whether a time ends with the event.
        usual: the decimal sign where a cell may mean two numbers.

    Raises:
        DataError: there is no such column, or none that can be learned so.
    """
    wanted = TIME_TO_EVENT if kind is None and event is not None else kind
    if wanted not in KINDS:
        try:
            return _class_draft(columns, asked, elsewhere=elsewhere)
        except DataError:
            known = asked is not None and asked in columns
            if asked is None or not known or wanted or not _is_numeric(columns[asked], usual):
                raise
            note = 'numbers, so kind = "numeric": say --kind count if they count something'
            return _drafted(NUMERIC, asked, columns, None, usual, (note,))
    for name, key in ((asked, "--target"), (event, "--event")):
        if name not in columns and (key == "--target" or wanted == TIME_TO_EVENT):
            raise DataError(
                f'expected {key} to name a column of every file for kind = "{wanted}", found '
                f"{name!r}; the files have {', '.join(columns)}"
            )
    assert asked is not None  # noqa: S101 (it is in columns)
    return _drafted(wanted, asked, columns, event, usual, ())


def _is_numeric(cells: Sequence[str], usual: str) -> bool:
    """Whether every record that has a target has a number, and there are several."""
    there = [cell for cell in cells if not is_absent(cell)]
    decimal = decimal_of(there, usual)
    return len(set(there)) > 2 and all(measured(cell, decimal) is not None for cell in there)


def _drafted(
    kind: str,
    name: str,
    columns: Mapping[str, Sequence[str]],
    event: str | None,
    usual: str,
    notes: tuple[str, ...],
) -> TargetDraft:
    """The target with its bounds, or its times and the event's spellings."""
    there = [cell for cell in columns[name] if not is_absent(cell)]
    decimal = decimal_of(there, usual)
    values = [float(measured(cell, decimal) or "nan") for cell in there]
    least, most = min(values, default=0.0), max(values, default=0.0)
    if not all(value == value for value in values) or not least < most:
        raise DataError(
            f'expected numbers in the target {name!r} for kind = "{kind}", found others, or one '
            "only; correct the files, or name another kind or column"
        )
    if kind == NUMERIC:
        low, high = rounded_outward(least, most)
        outcome = Outcome(kind=kind, low=low, high=high)
    elif kind == COUNT:
        outcome = Outcome(kind=kind, high=max(1.0, rounded_outward(0.0, most)[1]))
    else:
        end, of_event = rounded_outward(0.0, most)[1], _class_draft(columns, event)
        outcome = Outcome(
            kind=kind,
            event=of_event.name,
            positive=of_event.positive,
            negative=of_event.negative,
            grid=tuple(float(f"{end * k / _TIMES:.4g}") for k in range(1, _TIMES + 1)),
        )
        notes = (*notes, *of_event.notes)
    return TargetDraft(name=name, outcome=outcome, decimal=decimal, notes=notes)


def _class_draft(
    columns: Mapping[str, Sequence[str]], asked: str | None, *, elsewhere: Sequence[str] = ()
) -> TargetDraft:
    """The target, as asked for or guessed.

    Args:
        columns: the cells of all files, of every column that all files have.
        asked: the name of the target; None: it is guessed.
        elsewhere: columns that only some files have.

    Raises:
        DataError: there is no such column, or none that can be learned.
    """
    if asked is not None:
        if asked not in columns:
            raise DataError(
                f"expected a column {asked!r} in every file, found {', '.join(columns) or 'none'}; "
                "name one of them with --target"
            )
        return _classes_of(asked, columns[asked])
    values = {name: set(_values(cells)) for name, cells in columns.items()}
    answers = [name for name, own in values.items() if own and own <= {*_ONES, *_ZEROS}]
    two = [name for name, own in values.items() if len(own) == 2 and _is_full(columns[name])]
    many = [name for name, own in values.items() if 1 < len(own) <= _MOST_CLASSES]
    known = sorted(filter(_rank, dict.fromkeys((*answers, *many))), key=_rank)
    several = [name for name in answers if name in two]
    for name in (*known, *several[::-1], *two[::-1]):
        return replace(_classes_of(name, columns[name]), guessed=True)
    some = f" ({', '.join(elsewhere)}: only in some)" if elsewhere else ""
    raise DataError(
        f"expected a column with two values to learn, found none in all files{some}; name the "
        "column with --target, or call it the same in all files"
    )


def _is_full(cells: Sequence[str]) -> bool:
    """Whether nine cells in ten have a value, as a target's should."""
    return sum(map(is_absent, cells)) * 10 <= len(cells)


def _rank(name: str) -> int:
    """From 1, the sooner a name is a target's; 0: it is none that is known."""
    words = folded(name).replace("_", " ").replace("-", " ").split()
    return next((k for k, known in enumerate(_NAMES, 1) if known in words), 0)


def _values(cells: Sequence[str]) -> dict[str, Counter[str]]:
    """By folded text the spellings that occur, with their counts; without missing cells."""
    found: dict[str, Counter[str]] = {}
    for cell, times in Counter(cells).items():
        if not is_absent(cell):
            found.setdefault(folded(canonical(cell)), Counter())[cell] += times
    return found


def is_absent(cell: str) -> bool:
    """Whether a record has no target; “-” may mean negative, and “none” may be a class."""
    return is_missing(cell) and folded(cell) not in ("-", "none", "nil")


def _classes_of(name: str, cells: Sequence[str]) -> TargetDraft:
    """The classes of a column."""
    found = _values(cells)
    if found and set(found) <= {*_ONES, *_ZEROS}:
        return _answers(name, found)
    if len(found) == 2:
        return _two(name, found)
    if 2 < len(found) <= min(_MOST_CLASSES, max(3, len(cells) // 3)):
        return _several(name, found)
    what = "one value only" if len(found) == 1 else f"{len(found)} values"
    raise DataError(
        f"expected a target {name!r} of two to {_MOST_CLASSES} classes, found {what} in all files; "
        "name another column with --target, or say --kind amount, count or time-to-event"
    )


def _two(name: str, found: Mapping[str, Counter[str]]) -> TargetDraft:
    """A target of two values, of which people must say which is the one to be found."""
    zero, one = sorted(found, key=lambda value: (-found[value].total(), value))
    why = "rarer"
    if all(plain_number(value) is not None for value in found):
        zero, one = sorted(found, key=lambda value: float(plain_number(value) or 0))
        why = "larger"
    elif zero in _ONES or one in _ZEROS:
        zero, one, why = one, zero, "likelier"
    note = f"{one!r} counts as 1, since it is the {why} one: exchange the lists if it should not"
    return _pair(name, found[one], found[zero], note)


def _answers(name: str, found: Mapping[str, Counter[str]]) -> TargetDraft:
    """A target whose values all mean yes or no."""
    ones = [spelling for value in found if value in _ONES for spelling in found[value]]
    zeros = [spelling for value in found if value in _ZEROS for spelling in found[value]]
    note = ""
    if not ones or not zeros:
        (value, *_) = found
        missing = next(pair[1 if ones else 0] for pair in _ANSWERS if value in pair)
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
