"""A study drafted from files of records: who, what is learned from what, and with which settings.

Settings come from a short table by the number of records; whether they can be certified is the
plan's business. What is taken from records is named in `Draft.private`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, log10
from pathlib import Path

from hubbub.errors import DataError
from hubbub.study.drafting.cell_text import folded
from hubbub.study.drafting.column_draft import ColumnDraft, column_draft
from hubbub.study.drafting.party_names import party_names
from hubbub.study.drafting.raw_table import Fault, RawTable, read_raw
from hubbub.study.drafting.target_draft import TargetDraft, learned
from hubbub.tabular import patient_key

_STANDINS = ("second-silo", "third-silo")  # beside the only file that was given
_NAMED = 12  # columns, before the rest are counted
_EVALUATED = 5000  # records from which on an evaluation costs little
_CAPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # records of a patient


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A study as it follows from some files.

    Args:
        parties: names of the silos, those of the files first.
        files: path of each silo's file, with {name}; empty where the files' names fit none.
        target: what is learned.
        columns: what becomes of every other column.
        tables: the files, all with the same names of columns.
        faults: names of columns that differ between files.
        records: units of all silos together, rounded.
        capacity: the most units that a silo may hold, rounded up.
        patient: the column that says whose a record is; empty: each record is a unit.
        most_per_patient: records of one patient at most, rounded up; 0 without `patient`.
    """

    parties: tuple[str, ...]
    files: str
    target: TargetDraft
    columns: tuple[ColumnDraft, ...]
    tables: tuple[RawTable, ...] = field(repr=False)
    faults: tuple[Fault, ...] = field(default=(), repr=False)
    records: int
    capacity: int
    patient: str = ""
    most_per_patient: int = 0

    @property
    def used(self) -> tuple[ColumnDraft, ...]:
        """The columns that become features."""
        return tuple(one for one in self.columns if one.column)

    @property
    def sample_rate(self) -> float:
        """A fifth of few records; of many, some 400."""
        return 0.2 if self.records <= 2000 else float(f"{400 / self.records:.1g}")

    @property
    def steps(self) -> int:
        """The more records, the more steps the noise allows."""
        return 60 if self.records <= 2000 else 150 if self.records <= 20_000 else 300

    @property
    def colluders(self) -> int:
        """One, where enough silos are left to add noise."""
        return 1 if len(self.parties) > 2 else 0

    @property
    def delta(self) -> float:
        """Well below one in the number of records."""
        return float(f"1e-{max(5, ceil(log10(self.records)) + 1)}")

    @property
    def is_evaluated(self) -> bool:
        """Whether the records suffice for an evaluation that says something."""
        return self.records >= _EVALUATED

    @property
    def private(self) -> tuple[str, ...]:
        """The keys of the study whose values were taken from records."""
        spelled = "data.classes" if self.target.classes else "data.positive, data.negative"
        spelled = "data.target" if self.target.outcome else spelled
        bounded = [one.name for one in self.used if one.column and not one.column.categories]
        listed = [one.name for one in self.used if one.column and one.column.categories]
        found = [spelled, "data.records", "data.capacity"]
        found += ["data.most_per_patient"] if self.patient else []
        found += [f"bounds and missing of {_few(bounded)}"] if bounded else []
        return (*found, *([f"categories of {_few(listed)}"] if listed else []))


def draft(
    paths: Sequence[Path],
    *,
    target: str | None = None,
    kind: str | None = None,
    event: str | None = None,
    patient: str | None = None,
) -> Draft:
    """A study of these files, one for each silo.

    Args:
        paths: of the files; of one alone if a silo drafts by itself.
        target: the column to be learned; None: it is guessed.
        kind: of the target; None: it is guessed.
        event: the column that says whether a time ends with the event.
        patient: the column that says whose a record is; None: each record is a unit.

    Raises:
        DataError: a file cannot be read, or nothing in them can be learned.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError("expected every file once, got one twice; leave it out")
    raw = [read_raw(path) for path in paths]
    full = [table for table in raw if table.rows]
    if not full:
        raise DataError(
            f"expected records in {', '.join(table.origin for table in raw)}, found none that can "
            "be read; check the files, their separators and quotes"
        )
    tables, faults = _aligned(raw)
    full = [table for table in tables if table.rows]
    common = [name for name in full[0].header if all(name in one.header for one in full)]
    cells = {name: [one.column(name) for one in full] for name in common}
    for stated in (target, patient):
        _refuse_absent(stated, full)
    whose = _whose(cells, patient)
    usual = next((one.usual_decimal for one in full if one.usual_decimal == ","), ".")
    wanted = learned(
        {name: [cell for one in found for cell in one] for name, found in cells.items()},
        target,
        kind=kind,
        event=event,
        elsewhere=[one.name for one in _elsewhere(full, common)],
        usual=usual,
    )
    features = [name for name in cells if name not in wanted.columns]
    columns = [column_draft(name, cells[name], usual) for name in features]
    columns += _elsewhere(full, common)
    if not any(one.column for one in columns):
        why = "; ".join(f"{one.name}: {one.why}" for one in columns) or "there is no other"
        raise DataError(
            f"expected a column besides the target {wanted.name!r} that can be used, found none "
            f"({why}); correct the files"
        )
    names, files = party_names(paths)
    units = [len(set(one)) for one in whose] if patient else [len(one.rows) for one in tables]
    most = max(max(Counter(one).values()) for one in whose) if patient else 0
    names += _STANDINS if len(names) == 1 else ()
    total = sum(units) * len(names) // len(tables)
    return Draft(
        parties=names,
        files=files,
        target=wanted,
        columns=tuple(columns),
        tables=tuple(tables),
        faults=tuple(faults),
        records=max(_two_digits(total), len(names)),
        capacity=_ample(max(units)),
        patient=patient or "",
        most_per_patient=next(n for n in _CAPS if n >= min(most, _CAPS[-1])) if patient else 0,
    )


def _whose(cells: dict[str, list[list[str]]], patient: str | None) -> list[list[str]]:
    """Each file's patients, one for each record that has one; taken out of the columns."""
    if patient is None:
        return []
    if patient not in cells:
        raise DataError(
            f"expected --patient to name a column of every file, got {patient!r}; choose one of "
            f"{', '.join(cells)}"
        )
    found = [[*filter(None, map(patient_key, one))] for one in cells.pop(patient)]
    if not all(found):
        raise DataError(f"expected patients in column {patient!r}, found none; fill it in")
    return found


def _refuse_absent(target: str | None, tables: Sequence[RawTable]) -> None:
    """Refuse a column that only some files have, by the names of those that lack it."""
    lacking = [one for one in tables if target not in one.header]
    if target is None or not 0 < len(lacking) < len(tables):
        return
    raise DataError(
        f"expected a column {target!r} in every file, found none in "
        f"{', '.join(one.origin for one in lacking)}, which has {', '.join(lacking[0].header)}; "
        "rename it there"
    )


def _aligned(raw: Sequence[RawTable]) -> tuple[list[RawTable], list[Fault]]:
    """The tables with the names that most of them have, and what differs from those."""
    first = next((one for one in raw if one.named and one.rows), raw[0])
    usual = _usual_names([one for one in raw if one.named])
    tables, faults = [], []
    for table in raw:
        header = tuple(usual.get(folded(name), name) for name in table.header)
        if not table.named and len(table.header) == len(first.header):
            header = tuple(usual.get(folded(name), name) for name in first.header)
        elif len(set(header)) < len(header):
            header = table.header
        for old, new in zip(table.header, header, strict=True):
            if old != new and table.named:
                faults.append(_misnamed(table.origin, old, new))
        tables.append(table.renamed(header))
    return tables, faults


def _usual_names(tables: Sequence[RawTable]) -> dict[str, str]:
    """By folded name the spelling of a column that most files have, or the first of them."""
    times = Counter(name for table in tables for name in table.header)
    return {folded(name): name for name, _ in times.most_common()[::-1]}


def _misnamed(file: str, old: str, new: str) -> Fault:
    what = f"this column is spelled {new!r} in other files"
    return Fault(file=file, column=old, what=what, remedy="spell it alike in all files")


def _elsewhere(tables: Sequence[RawTable], common: Sequence[str]) -> list[ColumnDraft]:
    """The columns that some file lacks."""
    names = dict.fromkeys(name for one in tables for name in one.header if name not in common)
    lacking = {
        name: ", ".join(one.origin for one in tables if name not in one.header) for name in names
    }
    return [
        ColumnDraft(name=name, why=f"not in {files}: if it has another name there, rename it")
        for name, files in lacking.items()
    ]


def _few(names: Sequence[str]) -> str:
    """Names, of many only the first."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _two_digits(number: int) -> int:
    """Rounded down to two digits, small numbers to tens."""
    power = int(10 ** max(1, floor(log10(max(number, 1))) - 1))
    return number // power * power


def _ample(number: int) -> int:
    """A round number with a fifth of room."""
    power = int(10 ** max(1, floor(log10(max(number, 1)))))
    return ceil(1.2 * max(number, 1) / power) * power


def with_tidy(made: Draft, folder: str) -> Draft:
    """The draft of the tidy copies that lie in a folder, under the parties' names."""
    return replace(made, files=f"{folder.rstrip('/')}/{{name}}.csv")
