"""A study drafted from files of records: who, what is learned from what, and with which settings.

Settings come from the rule of `usual_training`; whether they can be certified is the plan's
business. What is taken from records is named in `Draft.private`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import combinations, islice, permutations, product, takewhile
from keyword import iskeyword
from math import ceil, floor, log, log10
from pathlib import Path
from string import ascii_letters, digits
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError, StudyError
from hubbub.core.number_format import few, offered
from hubbub.core.study.parties import is_name, is_reserved
from hubbub.core.tabular.cells import CellFault
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import patient_key
from hubbub.desk.drafting.asked_query import AskedQuery
from hubbub.desk.drafting.cell_text import is_missing
from hubbub.desk.drafting.column_draft import NOT_RECORDED, ColumnDraft, column_draft
from hubbub.desk.drafting.column_meaning import (
    by_name,
    few_whole_numbers,
    follow_ups,
    telling,
    time_event_pairs,
)
from hubbub.desk.drafting.raw_table import Fault, RawTable
from hubbub.desk.drafting.survey import Answers, Survey, target_tiers
from hubbub.desk.drafting.target_draft import TargetDraft, learned
from hubbub.estimation.row_rules import RowRules
from hubbub.learning.study.training import UsualTraining, squared_length, usual_training

EPSILON = 1.0  # of a draft

_STANDINS = ("second-silo", "third-silo")  # beside the only file that was given
_ENOUGH, _RARE = 200, 0.2  # records, and the share of an outcome, of which the log-odds are stated
_OTHERS = 3  # columns that may be the target instead
_NAMED = 12  # columns, before the rest are counted
_MANY = (2000, 10_000)  # records from which on a validation needs less of epsilon
_FEWER = 2  # times fewer cells of a column, in the rows that are kept
_CAPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # records of a patient


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A study as it follows from some files."""

    parties: tuple[str, ...]  # names of the silos, those of the files first
    files: str  # path of each silo's file, with {name}; empty where the files' names fit none
    target: TargetDraft  # what is learned
    columns: tuple[ColumnDraft, ...]  # what becomes of every other column
    tables: tuple[RawTable, ...] = field(repr=False)
    faults: tuple[Fault, ...] = field(default=(), repr=False)
    records: int  # units of all silos together, rounded
    capacity: int  # the most units that a silo may hold, rounded up
    patient: str = ""  # the column that says whose a record is; empty: each record is a unit
    most_per_patient: int = 0  # records of one patient at most, rounded up; 0 without `patient`
    # share of each silo's records that scores the model; 0: nobody asked for it
    test_share: float = 0.0
    validation_epsilon: float = 0.0  # what the validation costs; 0: there is none
    validation_bins: int = 0  # of its predictions; 0: as many as a study has that says nothing
    asked: AskedQuery | None = None  # the query that the tables came from; None: files
    intercept: float = 0.0  # the log-odds of a rare outcome, rounded to halves; 0 of any other

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that become features."""
        return tuple(draft.column for draft in self.columns if draft.column)

    @property
    def rules(self) -> LikelyRules:
        """What holds in every row of the files."""
        full = [table for table in self.tables if table.rows]
        names = [column.name for column in self.used]
        cells = {name: [cell for table in full for cell in table.column(name)] for name in names}
        return likely_rules(self.used, cells)

    @property
    def usual(self) -> UsualTraining:
        """How the model is trained."""
        return usual_training(
            self.target.outcome,
            records=max(1, round(self.records * (1 - self.test_share))),
            epsilon=EPSILON,
            silos=len(self.parties),
            colluders=self.colluders,
            square=squared_length(self.used),
        )

    @property
    def colluders(self) -> int:
        """One, where enough silos are left to add noise."""
        return 1 if len(self.parties) > 2 else 0

    @property
    def delta(self) -> float:
        """Well below one in the number of records."""
        return float(f"1e-{max(5, ceil(log10(self.records)) + 1)}")

    @property
    def validation_shares(self) -> tuple[float, ...]:
        """The parts of epsilon that a validation may have, the first of which is enough.

        Of .5, .3 and .2 the training has 17, 6 and 3 % more noise, which adds up in squares.
        """
        usual = sum(self.records >= most for most in _MANY)
        return (0.5, 0.3, 0.2)[usual::-1]

    @property
    def private(self) -> tuple[str, ...]:
        """The keys of the study whose values were taken from records."""
        spelled = "data.classes" if self.target.classes else "data.positive, data.negative"
        bounded = [column.name for column in self.used if not column.categories]
        listed = [column.name for column in self.used if column.categories]
        bounds = f"bounds, steps, typical values and missing of {few(bounded, _NAMED)}"
        keys = {
            "data.target" if self.target.outcome else spelled: True,
            "data.records": True,
            "data.capacity": True,
            "data.most_per_patient": self.patient,
            "model.intercept": self.intercept,
            bounds: bounded,
            f"categories of {few(listed, _NAMED)}": listed,
        }
        return tuple(key for key, is_said in keys.items() if is_said)


def draft(survey: Survey, given: Answers) -> Draft:
    """A study of these files, one for each silo."""
    for stated in (given.target, given.event, given.patient):
        survey.refuse_absent(stated)
    # A key is no column to learn, nor one to learn from.
    whose = _whose(survey, given.patient)
    tiers = target_tiers(survey, given)
    if given.target is None and not tiers:
        elsewhere = ", ".join(survey.elsewhere)
        some = f" ({elsewhere}: only in some)" if elsewhere else ""
        raise DataError(
            "expected a column with two values to predict, found none in all "
            f"files{some}; name the column with --target, or call it the same in all files"
        )
    cells = {name: own for name, own in survey.cells.items() if name != given.patient}
    wanted = learned(cells, given.target or tiers[0][0], kind=given.kind, event=given.event)
    others = [name for tier in tiers for name in tier if name not in wanted.columns][:_OTHERS]
    wanted = replace(wanted, guessed=given.target is None, others=tuple(others))
    happened = wanted.happened(cells)
    columns = _columns(survey, given, wanted, cells, happened)
    if not any(column.column for column in columns):
        why = "; ".join(f"{column.name}: {column.why}" for column in columns)
        raise DataError(
            f"expected a usable column besides the target {wanted.name!r}, found none "
            f"({why or 'there is no other'}); correct the files"
        )
    # Units of one file stand for those of the silos that are not here.
    names, files = party_names(survey.paths)
    names = survey.silos or names
    units = [len(set(own)) for own in whose] or [len(table.rows) for table in survey.tables]
    most = max((max(Counter(own).values()) for own in whose), default=0)
    names += _STANDINS if len(names) == 1 else ()
    total, largest = sum(units) * len(names) // len(survey.tables), max(*units, 1)
    unit = int(10 ** max(1, floor(log10(max(total, 1))) - 1))  # two digits; of small numbers, one
    power = int(10 ** max(1, floor(log10(largest))))
    return Draft(
        parties=names,
        files=files,
        target=wanted,
        columns=columns,
        tables=survey.tables,
        faults=survey.faults,
        records=max(total // unit * unit, len(names)),
        capacity=ceil(1.2 * largest / power) * power,  # a round number with a fifth of room
        patient=given.patient or "",
        intercept=0.0 if wanted.outcome or wanted.classes else _log_odds(happened),
        most_per_patient=next(n for n in _CAPS if n >= min(most, _CAPS[-1])) if most else 0,
    )


def _columns(
    survey: Survey,
    given: Answers,
    wanted: TargetDraft,
    cells: Mapping[str, Sequence[str]],
    happened: Sequence[bool | None],
) -> tuple[ColumnDraft, ...]:
    """What becomes of every column but the target's and the patients'."""
    keys = {key.name for key in survey.likely_keys}
    ends, there = _ends(survey, wanted), wanted.is_there(cells)
    drafts, rows = [], Counter(there)
    for name, own in cells.items():
        if name in wanted.columns:
            continue
        why = "it identifies a person, so it predicts nothing for others" if name in keys else ""
        why = why or ends.get(name, "") or telling(own, happened, wanted.sides)
        # A column that lies beside no target cannot be learned from.
        filled = Counter(has for cell, has in zip(own, there, strict=True) if not is_missing(cell))
        kept, lost = (filled[has] / max(rows[has], 1) for has in (True, False))
        if lost and not kept:
            why = why or f"it is empty in every row that has {wanted.name!r}"
        if why:
            drafts.append(ColumnDraft(name=name, why=why))
            continue
        # Codes as people have said, or as the name does.
        is_code = name in given.codes or (name not in given.amounts and by_name(name) is True)
        is_code = is_code and bool(few_whole_numbers(own))
        decimals = [table.decimal(name) for table in survey.full]
        drafted = column_draft(name, survey.by_file[name], decimals, is_code=is_code)
        if is_code and name not in given.codes:
            note = "treated as codes, because of its name: --amounts if it counts or measures"
            drafted = drafted.with_note(note)
        if kept * _FEWER < lost:
            drafted = drafted.with_note(
                f"filled in for {kept:.0%} of the rows with a target, empty in {lost:.0%} "
                "of the others"
            )
        drafts.append(drafted)
    for name, files in survey.elsewhere.items():
        why = f"missing in {files}: rename it there if it has another name"
        drafts.append(ColumnDraft(name=name, why=why))
    return tuple(drafts)


def _log_odds(happened: Sequence[bool | None]) -> float:
    """Of what happened to few or to nearly all, in halves; 0 of any other, or of few records."""
    known = [did for did in happened if did is not None]
    rate = sum(known) / max(len(known), 1)
    if len(known) < _ENOUGH or not 0 < min(rate, 1 - rate) < _RARE:
        return 0.0
    return round(2 * log(rate / (1 - rate))) / 2


def _ends(survey: Survey, wanted: TargetDraft) -> dict[str, str]:
    """Times that end when the target is known, and why they are left out."""
    if wanted.outcome is not None and wanted.outcome.event:
        return {}
    why = (
        f"it looks like the follow-up time of {wanted.name!r}, which would reveal it: to "
        "predict time and event together, use --time and --event"
    )
    pairs = time_event_pairs(survey.cells)
    times = [pair.time for pair in pairs if pair.is_sure and pair.event == wanted.name]
    if wanted.outcome is None:
        times += follow_ups(survey.cells)
    return dict.fromkeys(times, why)


def _whose(survey: Survey, patient: str | None) -> list[list[str]]:
    """Each file's patients, one for each record that has one; none where no column says."""
    if patient is None:
        return []
    if patient not in survey.by_file:
        raise DataError(
            f"expected --patient to name a column that every file has, got {patient!r}; "
            f"choose one of {offered(survey.by_file)}"
        )
    keys = [[*filter(None, map(patient_key, cells))] for cells in survey.by_file[patient]]
    if not all(keys):
        raise DataError(f"expected patients in column {patient!r}, found none; fill it in")
    return keys


# What parties are called after their files, and the one pattern that leads to all of them.

_ENDS = (".csv", ".parquet", "/")
_LETTERS = ascii_letters + digits


def party_names(paths: Sequence[Path]) -> tuple[tuple[str, ...], str]:
    """Names that are allowed and differ, and the pattern with {name} that leads to the files.

    >>> party_names([Path("data/silo-north.csv"), Path("data/silo-south.csv")])
    (('north', 'south'), 'data/silo-{name}.csv')
    >>> party_names([Path("Nord Süd.csv"), Path("b.csv")])
    (('nord-sud', 'b'), '')
    """
    texts = [path.as_posix() + "/" * path.is_dir() for path in paths]
    before, after = _shared(texts)
    names = [text[len(before) : len(text) - len(after)] for text in texts]
    fits = all(text.endswith(_ENDS) for text in texts) and after.endswith(_ENDS)
    if fits and len(set(names)) == len(names) and all(map(_may_be_called, names)):
        return tuple(names), f"{before}{{name}}{after}"
    made: list[str] = []  # as near to the files' names as parties can have
    for number, path in enumerate(paths, 1):
        plain = unicodedata.normalize("NFKD", path.stem).encode("ascii", "ignore").decode().lower()
        name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:50]
        made.append(name if _may_be_called(name) and name not in made else f"silo-{number}")
    return tuple(made), ""


def _may_be_called(name: str) -> bool:
    return is_name(name) and not is_reserved(name)


def _shared(texts: Sequence[str]) -> tuple[str, str]:
    """What all paths begin and end with, up to where a word begins or ends."""
    if len(set(texts)) == 1:
        folder, _, file = texts[0].removesuffix("/").rpartition("/")
        after = "/" if texts[0].endswith("/") else "." + file.rpartition(".")[2]
        return f"{folder}/" if folder else "", after
    before = _alike(texts).rstrip(_LETTERS)
    after = _alike([text[len(before) :][::-1] for text in texts])[::-1]
    return before, after.lstrip(_LETTERS)


def _alike(texts: Sequence[str]) -> str:
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in same)


# Rules that hold in every row of some files, and would not by chance: proposals for `[synthetic]`.
# A rule is proposed where rows that break it would be many if its two columns had nothing to do
# with each other. Whether it holds for everybody, people say; its numbers are rounded, as bounds
# are.

_EXPECTED = 20.0  # rows that would break a rule by chance
_MOST_COLUMNS, _MOST_RULES = 30, 10
Values = NDArray[np.float64]  # numbers, or places of categories; nan where there is none


@dataclass(frozen=True, kw_only=True)
class LikelyRules:
    """What may be said of every record."""

    follows: Mapping[str, str]  # by a column its expression
    possible: tuple[str, ...]  # expressions that hold


def likely_rules(columns: Sequence[Column], cells: Mapping[str, Sequence[str]]) -> LikelyRules:
    """Rules of these columns, by the cells of all files."""
    some = columns[:_MOST_COLUMNS]
    values = {}
    for column in some:
        own = cells[column.name]
        rules = {cell: column.rule_with_gaps(cell) for cell in set(own)}
        read = [np.nan if isinstance(v := rules[cell], CellFault) else v for cell in own]
        values[column.name] = np.array(read)

    def both(first: Column, second: Column) -> tuple[Column, Column, Values, Values]:
        """Two columns, and their values in the rows that have both."""
        a, b = values[first.name], values[second.name]
        known = ~(np.isnan(a) | np.isnan(b))
        return first, second, a[known], b[known]

    def is_read(**rules: Any) -> bool:
        """Whether a study may say so; a long name or an odd one fits no expression."""
        try:
            _ = RowRules(columns={column.name: column for column in some}, **rules)
        except StudyError:
            return False
        return True

    numbers = [column for column in some if not column.categories]
    classes = [column for column in some if column.categories]
    follows: dict[str, str] = {}
    for category, number in product(classes, numbers):
        text = _follows(*both(category, number))
        if text and is_read(follows=((category.name, text),)):
            follows.setdefault(category.name, text)
    rest = [column for column in classes if column.name not in follows]
    possible = [
        *(rule for pair in combinations(classes, 2) for rule in _exclusive(*both(*pair))),
        *(rule for pair in permutations(numbers, 2) for rule in _ordered(*both(*pair))),
        *(rule for pair in product(rest, numbers) for rule in _bounded(*both(*pair))),
    ]
    readable = (text for text in possible if is_read(possible=(text,)))
    return LikelyRules(follows=follows, possible=tuple(islice(readable, _MOST_RULES)))


def _exclusive(a: Column, b: Column, first: Values, second: Values) -> Iterator[str]:
    """Categories that never come together."""
    shape = len(a.categories), len(b.categories)
    pairs = (first * shape[1] + second).astype(np.int64)
    met = np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)
    expected = np.outer(met.sum(axis=1), met.sum(axis=0)) / max(len(first), 1)
    for i, j in np.argwhere((met == 0) & (expected >= _EXPECTED)):
        names = a.categories[i], b.categories[j]
        if NOT_RECORDED not in names:
            yield f"not ({_is(a, names[0])} and {_is(b, names[1])})"


def _follows(a: Column, number: Column, place: Values, value: Values) -> str:
    """Whether the second of two categories is all that lies above a number, or up to it."""
    if len(a.categories) != 2:
        return ""
    below, above = value[place == 0], value[place == 1]
    if min(len(below), len(above)) < _EXPECTED:
        return ""
    if below.max() < above.min():
        return f"{_name(number)} > {_between(below.max(), above.min())}"
    if above.max() < below.min():
        return f"{_name(number)} <= {_between(above.max(), below.min())}"
    return ""


def _bounded(a: Column, number: Column, place: Values, value: Values) -> Iterator[str]:
    """Numbers beyond which a category never is."""
    low, high = number.bounds
    places = -floor(log10((high - low) / 5))
    for k, category in enumerate(a.categories):
        own = value[place == k]
        if category == NOT_RECORDED or len(own) < _EXPECTED:
            continue
        share = len(own) / len(value)
        most, least = _rounded(own.max(), places, up=True), _rounded(own.min(), places, up=False)
        for sign, end, beyond in (
            (">", most, value > float(most)),
            ("<", least, value < float(least)),
        ):
            if beyond.sum() * share >= _EXPECTED:
                yield f"not ({_is(a, category)} and {_name(number)} {sign} {end})"


def _ordered(a: Column, b: Column, first: Values, second: Values) -> Iterator[str]:
    """A number that is never above another one."""
    if len(first) and (first <= second).all():
        ranks = np.searchsorted(np.sort(second), first)  # of others' values that lie below
        if ranks.mean() >= _EXPECTED and (first < second).any():
            yield f"{_name(a)} <= {_name(b)}"


def _is(column: Column, category: str) -> str:
    return f"{_name(column)} == {json.dumps(category, ensure_ascii=False)}"


def _name(column: Column) -> str:
    name = column.name
    return name if name.isidentifier() and name.isascii() and not iskeyword(name) else f"`{name}`"


def _between(least: float, most: float) -> str:
    """The roundest number from the first on that is below the second."""
    places = -floor(log10(most - least) + 1)
    while float(text := _rounded(least, places, up=True)) >= most:
        places += 1
    return text


def _rounded(value: float, places: int, *, up: bool) -> str:
    """A number to so many decimal places, never on the other side of itself.

    >>> _rounded(0.3, 1, up=True), _rounded(1.1, 1, up=False), _rounded(-0.04, 1, up=True)
    ('0.3', '1.1', '0')
    """
    exact = Decimal(repr(float(value)))  # as it is written: 1.1 / 0.1 is above 11
    way = ROUND_CEILING if up else ROUND_FLOOR
    return f"{(exact.quantize(Decimal(1).scaleb(-places), way) + 0).normalize():f}"
