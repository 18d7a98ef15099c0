"""Which column is learned, and which of its spellings mean what.

People spell one answer in many ways, and no file knows all of them: every spelling that occurs is
put into one of two lists, so that none becomes a 0 unseen. This file sees the cells of all files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hubbub.errors import DataError
from hubbub.study.drafting.cell_text import folded, is_missing, plain_number
from hubbub.study.tabular import Outcome, canonical

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


def target_draft(
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
