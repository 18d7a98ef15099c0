"""Everything that is wrong with the files of a study, at once: what a run refuses, and what is odd.

The run's own reader stops at the first fault and quotes no cell. This check says all of them to
whoever has the files. What it calls refused is what that reader refuses; a test holds the two
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hubbub.errors import DataError
from hubbub.study import sources
from hubbub.study.data import Data
from hubbub.study.drafting.cell_text import (
    folded,
    is_date,
    is_limit,
    is_missing,
    measured,
)
from hubbub.study.drafting.column_draft import is_key
from hubbub.study.drafting.likely_namesakes import likely_namesakes
from hubbub.study.drafting.raw_table import Fault, RawTable, read_raw
from hubbub.study.study import Study
from hubbub.tabular import Column, Outcome, canonical, number_in, patient_key

_MOST_KINDS = 8  # of flaws in one column that are listed one by one
_FEW = 20  # records


class Flaw(NamedTuple):
    """What is wrong with a cell, and what to do; cells of one kind are one fault."""

    kind: str
    what: str
    remedy: str


Law = Callable[[str], Flaw | None]


def checked(study: Study, names: Sequence[str], folder: Path) -> list[Fault]:
    """All faults of the files of some silos, or of the test set for "test"."""
    faults: list[Fault] = []
    tables: list[RawTable] = []
    owned: list[RawTable] = []  # those of silos, where each record is somebody's
    for name in names:
        try:
            sources.check_file(study, name, folder)
            path = sources.file_of(study, name, folder)
            assert path is not None  # noqa: S101 (the study's records come from files)
            tables.append(read_raw(path))
            owned += tables[-1:] if name != sources.TEST else []
        except DataError as error:
            what, _, remedy = str(error).rpartition("; ")
            faults.append(Fault(file=name, what=what, remedy=remedy))
    return [*faults, *all_faults(tables, study.data, owned)]


def all_faults(
    tables: Sequence[RawTable], data: Data, owned: Sequence[RawTable] = ()
) -> list[Fault]:
    """All faults of some files, each by itself and together; `owned` are those of silos."""
    each = [fault for table in tables for fault in table_faults(table, data)]
    each += [fault for table in owned for fault in _patients(table, data)]
    classes = set[str]().union(*(_classes(table, data) for table in tables))
    return [*each, *_one_class([table.origin for table in tables], classes, data)]


def table_faults(table: RawTable, data: Data) -> list[Fault]:
    """All faults of one file."""
    if not table.named or not table.rows:
        return list(table.faults)
    return [
        *table.faults,
        *_names(table, data),
        *_target(table, data),
        *(fault for column in _columns(table, data) for fault in _column(table, column)),
        *_plain(table, data),
        *_oddities(table, data),
    ]


def _patients(table: RawTable, data: Data) -> Iterator[Fault]:
    """Records of nobody, patients who look alike, and what a run leaves out of a patient's."""
    if not data.patient or not table.named or not table.rows:
        return
    if data.patient not in table.header:
        yield from _absent(table, data.patient)
        return
    gap = Flaw("gap", "the cell is empty, so nobody's record it is", "fill it in, or remove it")
    yield from _rows(table, data.patient, lambda cell: None if patient_key(cell) else gap)
    counts = Counter(map(patient_key, table.column(data.patient)))
    yield from likely_namesakes(table, data.patient)
    if over := sum(max(0, count - data.most_per_patient) for count in counts.values()):
        yield _odd(
            table,
            f"{over} records are beyond the {data.most_per_patient} of a patient",
            "each patient's first ones are used: raise data.most_per_patient for more",
            data.patient,
        )


def _names(table: RawTable, data: Data) -> Iterator[Fault]:
    """Columns that the study names and the file has not."""
    for name in (*data.targets, *(column.name for column in data.columns)):
        yield from _absent(table, name)


def _absent(table: RawTable, name: str) -> Iterator[Fault]:
    """That the file has no such column, if it has none."""
    if name not in table.header:
        near = [one for one in table.header if folded(one) == folded(name)]
        said = f"there is no column of this name in the header ({', '.join(table.header)})"
        remedy = "rename the column in the file, or correct the study"
        if near:
            said = f"the header has {near[0]!r}, which differs in case or spaces only"
            remedy = f"write {name!r} in the file's first line"
        yield Fault(file=table.origin, column=name, what=said, remedy=remedy)


def _columns(table: RawTable, data: Data) -> list[Column]:
    return [_with_gaps(column, data) for column in data.columns if column.name in table.header]


def _with_gaps(column: Column, data: Data) -> Column:
    """The column; where only statistics see it, cells may be missing."""
    if column.feature and data.target:
        return column
    return replace(column, default=column.categories[0] if column.categories else column.low)


def _column(table: RawTable, column: Column) -> Iterator[Fault]:
    """Cells of a declared column that a run refuses, and how many lie outside its bounds."""
    law = _category_law(column) if column.categories else _number_law(column)
    yield from _rows(table, column.name, law)
    if column.categories:
        return
    low, high = column.bounds
    numbers = [number_in(canonical(cell)) for cell in table.column(column.name)]
    absent = set(map(column.spelled, ("", *column.missing)))
    cells = map(column.spelled, table.column(column.name))
    outside = sum(
        number is not None and cell not in absent and not low <= number <= high
        for cell, number in zip(cells, numbers, strict=True)
    )
    if outside:
        yield _odd(
            table,
            f"{outside} of {len(numbers)} values lie outside {low:g} to {high:g}",
            "they will count as the nearer bound: widen the bounds if that is too many",
            column.name,
        )


def _plain(table: RawTable, data: Data) -> Iterator[Fault]:
    """Without declared columns every column but the target must be numbers."""
    if data.columns:
        return
    for name in table.header:
        if name not in data.targets:
            yield from _rows(table, name, _wrong_number)


def _rows(table: RawTable, name: str, law: Law) -> Iterator[Fault]:
    """What a law says of a column's cells, one fault for each kind."""
    if name not in table.header:
        return
    cells = table.column(name)
    flaws = {cell: flaw for cell in dict.fromkeys(cells) if (flaw := law(cell))}
    rows: dict[str, list[int]] = {}
    for cell, row in zip(cells, table.numbers, strict=True):
        if cell in flaws:
            rows.setdefault(flaws[cell].kind, []).append(row)
    said = {flaw.kind: flaw for flaw in reversed(flaws.values())}  # by the first cell of a kind
    for kind in list(rows)[:_MOST_KINDS]:
        yield _found(table, name, said[kind].what, said[kind].remedy, rows[kind])
    rest = [row for kind in list(rows)[_MOST_KINDS:] for row in rows[kind]]
    if rest:
        said_of_all = f"{len(rows) - _MOST_KINDS} other spellings are refused too"
        yield _found(table, name, said_of_all, "correct them, or the study", rest)


def _found(table: RawTable, name: str, what: str, remedy: str, rows: Sequence[int]) -> Fault:
    return Fault(
        file=table.origin, column=name, what=what, remedy=remedy, row=rows[0], count=len(rows)
    )


def _odd(table: RawTable, what: str, remedy: str, column: str = "") -> Fault:
    """What a run takes, and people should see."""
    return Fault(file=table.origin, column=column, what=what, remedy=remedy, refused=False)


def _number_law(column: Column) -> Law:
    """Of a column with bounds."""
    absent = {"", *map(column.spelled, column.missing)}

    def law(cell: str) -> Flaw | None:
        if column.spelled(cell) in absent:
            return _gap(column)
        return _wrong_number(cell)

    return law


def _wrong_number(cell: str) -> Flaw | None:
    """Why a cell is no number for a run."""
    if number_in(canonical(cell)) is not None:
        return None
    if not cell:
        return Flaw("gap", "the cell is empty", "remove the record, or give the column a default")
    if is_missing(cell):
        said = f"{cell!r} looks like a missing value"
        return Flaw(cell, said, "list it in the column's missing")
    if (number := measured(cell)) is not None:
        if is_limit(cell):
            said = f"{cell!r} is the limit of what was measured, not a number"
            return Flaw("limit", said, f"write {number}, or list the cell in the column's missing")
        said = f"{cell!r} has a decimal comma, a thousands separator or a unit"
        return Flaw("number", said, f"write {number}")
    if is_date(cell):
        remedy = "turn it into a number, such as an age in years"
        return Flaw("date", f"{cell!r} is a date", remedy)
    return Flaw(cell, f"{cell!r} is no number, or too large", "correct the cell")


def _category_law(column: Column) -> Law:
    """Of a column with categories."""
    known = {column.spelled(one): one for one in column.categories}
    absent = {"", *map(column.spelled, column.missing)}

    def law(cell: str) -> Flaw | None:
        if column.spelled(cell) in absent:
            return _gap(column)
        if column.spelled(cell) in known:
            return None
        return _unknown(cell, column.categories, "categories", "set ignore_case = true")

    return law


def _gap(column: Column) -> Flaw | None:
    if column.default is not None:
        return None
    said = "the cell is missing, and the column has no default"
    return Flaw("gap", said, "give it one in data.columns")


def _target(table: RawTable, data: Data) -> Iterator[Fault]:
    """Cells of the target that a run refuses, and how many lie outside its bounds."""
    outcome = data.outcome
    if outcome is None:
        lists = "data.positive nor data.negative" if data.positive else "data.classes"
        known = (*data.positive, *data.negative) or data.classes
        yield from _rows(table, data.target, _class_law(known, lists))
        return
    yield from _rows(table, data.target, _outcome_law(outcome))
    lists = "data.target.positive nor data.target.negative"
    for name in outcome.columns:
        yield from _rows(table, name, _class_law((*outcome.positive, *outcome.negative), lists))
    cells = table.column(data.target) if data.target in table.header else ()
    numbers = [number for cell in cells if (number := number_in(cell)) is not None]
    most = outcome.grid[-1] if outcome.grid else outcome.high
    if outside := sum(not outcome.low <= number <= most for number in numbers):
        yield _odd(
            table,
            f"{outside} of {len(numbers)} targets lie outside {outcome.low:g} to {most:g}",
            "they will count as the nearer end: widen it if that is too many",
            data.target,
        )


def _outcome_law(outcome: Outcome) -> Law:
    """Of a target that is no class."""

    def law(cell: str) -> Flaw | None:
        if not cell:
            return Flaw("gap", "the record has no target", "remove it")
        if not (problem := outcome.problem(cell)):
            return None
        if (flaw := _wrong_number(cell)) is not None:
            return flaw._replace(remedy="remove the record") if is_missing(cell) else flaw
        return Flaw(problem, f"{cell!r} is {problem}", "correct the cell or remove the record")

    return law


def _class_law(known: Sequence[str], lists: str) -> Law:
    """Of a target that is a class, or says whether there was an event."""
    spelled = set(map(canonical, known))

    def law(cell: str) -> Flaw | None:
        if not cell:
            return Flaw("gap", "the record has no target", "remove it")
        if canonical(cell) in spelled:
            return None
        return _unknown(cell, known, lists, "add this spelling to the study")

    return law


def _unknown(cell: str, known: Sequence[str], lists: str, instead: str) -> Flaw:
    """A spelling that no list has."""
    near = next((one for one in known if folded(one) == folded(cell)), None)
    if near is not None:
        said = f"{cell!r} differs from {near!r} in case or spaces only"
        return Flaw(cell, said, f"write {near!r}, or {instead}")
    if is_missing(cell):
        said = f"{cell!r} looks like a missing value"
        return Flaw(cell, said, "remove the record, or list it as missing")
    said = f"{cell!r} is in neither {lists}" if " nor " in lists else f"{cell!r} is not in {lists}"
    return Flaw(cell, said, "correct the cell, or add the spelling to the study")


def _oddities(table: RawTable, data: Data) -> Iterator[Fault]:
    """What a run takes, and people should see."""
    if len(table.rows) < _FEW:
        said = f"there are {len(table.rows)} records only"
        remedy = "few records learn little behind the noise: check that the file is whole"
        yield _odd(table, said, remedy)
    used = [one.name for one in data.columns] or [n for n in table.header if n not in data.targets]
    for name in used:
        if name in table.header and is_key(name, [table.column(name)]):
            said = "it looks like a row's key, which tells nothing about others"
            yield _odd(table, said, "leave it out", name)
    seen = _classes(table, data)
    if len(seen) == 1:
        said = f"only one class occurs, {seen.pop()!r}"
        remedy = "check the lists of spellings; a silo may hold one class if others hold more"
        yield _odd(table, said, remedy, data.target)


def _classes(table: RawTable, data: Data) -> set[str]:
    """The classes that occur, each by its first spelling."""
    if data.target not in table.header or data.outcome is not None:
        return set()
    found = set(map(canonical, table.column(data.target)))
    if not data.positive:
        return found & set(map(canonical, data.classes))
    lists = (data.positive, data.negative)
    return {one[0] for one in lists if found & set(map(canonical, one))}


def _one_class(names: Sequence[str], classes: set[str], data: Data) -> Iterator[Fault]:
    """Nothing can be learned where all records are of one class."""
    if len(classes) == 1:
        yield Fault(
            file=", ".join(names),
            column=data.target,
            what=f"only one class occurs in all of these files, {next(iter(classes))!r}",
            remedy="check data.positive and data.negative, or check more silos at once",
        )
