"""Everything that is wrong with the files of a study, at once: what a run refuses, and what is odd.

A run stops at the first fault and quotes no cell. This check asks the same rules of every cell
(`tabular/cells.py`), and says all that they refuse to whoever has the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np

from hubbub.core.errors import DataError
from hubbub.core.number_format import offered, several
from hubbub.core.settings import key_of
from hubbub.core.study import silo_records
from hubbub.core.study.cell_stream import mapped, mapping_of
from hubbub.core.study.data import Data
from hubbub.core.study.extract import home_of
from hubbub.core.study.study import Study
from hubbub.core.tabular.cells import GAP, CellFault, Rule, canonical, number_in, number_rule
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.records import is_rounded, patient_key
from hubbub.core.tabular.table import class_rule
from hubbub.core.tabular.target import Outcome
from hubbub.desk.drafting.cell_text import flaw_of, folded, measured
from hubbub.desk.drafting.column_draft import common_step
from hubbub.desk.drafting.column_meaning import apart, cannot_be
from hubbub.desk.drafting.raw_table import Fault, RawTable, raw_of, read_raw
from hubbub.desk.drafting.survey import cut_numbers, is_key, likely_namesakes

_MOST_KINDS = 8  # of flaws in one column that are listed one by one
_FEW = 20  # records
_LUMPS, _LUMP = 3, 10  # values for each bin, and records of each value, that make a column lumpy
_COPIES, _MOST_CELLS = 0.02, 1_000_000  # a share of rows, and cells of a file looked at more often
_MUCH = 5  # of the records, one part that is lost in one interval
_MOST_VISITS, _MANY = 60, 10  # different times, and records at each, on average
_WORTH_SAYING = 50  # of so many values one outside the bounds costs nothing

Numbers = Sequence[tuple[float, int]]  # of a column, each with its row


def checked(study: Study, names: Sequence[str], folder: Path) -> list[Fault]:
    """All faults of the files of some silos, or of the test set for "test"."""
    faults: list[Fault] = []
    tables: list[RawTable] = []
    owned: list[RawTable] = []  # those of silos, where each record is somebody's
    for name in names:
        try:
            tables.append(read_site(study, name, folder))
            owned += tables[-1:] if name != silo_records.TEST else []
        except DataError as error:
            what, _, remedy = str(error).rpartition("; ")
            faults.append(Fault(file=name, what=what, remedy=remedy))
    # What the study's data are, with the columns that its statistics read as times.
    columns = study.cell_columns if study.reads_cells else {}
    named = tuple(columns.get(column.name, column) for column in study.data.columns)
    lumps = [fault for table in owned for fault in _lumps(table, study)]
    return [*faults, *all_faults(tables, replace(study.data, columns=named), owned), *lumps]


def read_site(study: Study, name: str, folder: Path) -> RawTable:
    """What a party has, as it is at this moment, and as a site's mapping makes it."""
    if study.data.is_extracted and name != silo_records.TEST:
        return raw_of(silo_records.opened(study.data, name, folder))
    silo_records.check_file(study, name, folder)
    path = silo_records.file_of(study, name, folder)
    assert path is not None  # noqa: S101 (the study's records come from files)
    table = read_raw(path)
    if name == silo_records.TEST:
        return table
    mapping = mapping_of(name, home_of(folder), study.data.patient, study.data.columns)
    if not mapping:
        return table
    cells = mapped({name: table.column(name) for name in table.header}, mapping)
    rows = tuple(zip(*cells.values(), strict=True))
    return replace(table, header=tuple(cells), rows=rows)


def all_faults(
    tables: Sequence[RawTable], data: Data, owned: Sequence[RawTable] = ()
) -> list[Fault]:
    """All faults of some files, each by itself and together; `owned` are those of silos."""
    faults = [fault for table in tables for fault in table_faults(table, data)]
    faults += [fault for table in owned for fault in _patients(table, data)]
    faults += [fault for column in data.columns for fault in _other_units(owned, column)]
    classes = set[str]().union(*(_classes(table, data) for table in tables))
    if len(classes) == 1:  # no run refuses it, as that would tell of records
        faults.append(
            Fault(
                file=", ".join(table.origin for table in tables),
                column=data.target,
                what=f"only one class occurs in all of these files, {next(iter(classes))!r}",
                remedy="check data.positive and data.negative, or check more silos at once",
            )
        )
    return faults


def table_faults(table: RawTable, data: Data) -> list[Fault]:
    """All faults of one file."""
    faults = list(table.faults)
    if not table.named or not table.rows:
        return faults
    for name in (*data.targets, *(column.name for column in data.columns)):
        faults += _absent(table, name)
    faults += _target(table, data)
    for column in data.columns:
        if column.name in table.header:
            faults += _column(table, column, data)
    # Without declared columns every column but the target must be numbers.
    for name in table.header if not data.columns else ():
        if name not in data.targets:
            faults += _rows(table, name, number_rule)
    return [*faults, *_oddities(table, data)]


def _patients(table: RawTable, data: Data) -> Iterator[Fault]:
    """Records of nobody, patients who look alike, and what a run leaves out of a patient's."""
    if not data.patient or not table.named or not table.rows:
        return
    if data.patient not in table.header:
        yield from _absent(table, data.patient)
        return
    found = "an empty cell, so the record belongs to nobody"
    nobody = CellFault(GAP, "a patient", found, "fill it in, or remove it")
    found = "a number whose digits a program has rounded, which several patients may share"
    rounded = CellFault("rounded", "a patient", found, "export the column as text")

    def rule(cell: str) -> float | CellFault:
        return 0.0 if patient_key(cell) else rounded if is_rounded(cell) else nobody

    yield from _rows(table, data.patient, rule)
    counts = Counter(map(patient_key, table.column(data.patient)))
    yield from likely_namesakes(table, data.patient)
    most = data.most_per_patient
    if over := sum(max(0, count - most) for count in counts.values()):
        yield table.odd(
            f"{several(over, 'record')} past the {most} that count for each patient",
            "only each patient's first records are used: raise data.most_per_patient for more",
            data.patient,
        )


def _absent(table: RawTable, name: str) -> Iterator[Fault]:
    """That the file has no column that the study names, if it has none."""
    if name not in table.header:
        what = f"the header has no column of this name ({offered(table.header)})"
        remedy = "rename the column in the file, or correct the study"
        if near := [own for own in table.header if folded(own) == folded(name)]:
            what = f"the header has {near[0]!r}, which differs only in case or spaces"
            remedy = f"write {name!r} in the file's first line"
        yield table.fault(what, remedy, name)


def _column(table: RawTable, column: Column, data: Data) -> Iterator[Fault]:
    """Cells of a declared column that a run refuses, and how many it takes as another value."""
    needed = column.feature and data.target  # where only statistics see it, cells may be missing
    rule = column.rule if needed else column.rule_with_gaps
    yield from _rows(table, column.name, rule, column.categories, instead="set ignore_case = true")
    if not column.categories:
        yield from _outside(table, column)
    elif column.other:
        listed = {"", *map(column.spelled, (*column.categories, *column.missing))}
        cells = [cell for cell in table.column(column.name) if column.spelled(cell) not in listed]
        if len(cells) * 3 > len(table.rows):
            yield table.odd(
                f"{len(cells)} of {len(table.rows)} cells are in no list and count as "
                f"{column.other!r}",
                "if the most common of them are spellings of a category, list them",
                column.name,
            )


def _outside(table: RawTable, column: Column) -> Iterator[Fault]:
    """Numbers that cannot be, that lie between a column's steps, or outside its bounds."""
    low, high = column.bounds
    there = _numbers(table, column)
    impossible = set(cannot_be(column.name, [number for number, _ in there]))
    if slips := [(number, row) for number, row in there if number in impossible]:
        remedy = "it counts as the nearer bound: correct the cell, or list it as missing"
        yield _odd(table, column, f"{slips[0][0]:g} cannot be", remedy, slips)
    if column.step:
        near = 1e-6 * column.step
        within = [(number, row) for number, row in there if low <= number <= high]
        if off := [pair for pair in within if abs(pair[0] - column.nearest(pair[0])) > near]:
            what = f"{off[0][0]:.15g} is not {low:g} plus whole steps of {column.step:g}"
            remedy = "it will count as the nearest valid value: correct the cells, or the step"
            yield _odd(table, column, what, remedy, off)
    outside = [
        (number, row)
        for number, row in there
        if not low <= number <= high and number not in impossible
    ]
    if len(outside) * _WORTH_SAYING > len(table.rows):
        widen = "widen the bounds if that is too many"
        if 2 * len(outside) > len(there):
            widen = "is it in another unit (hubbub check --mapping)? Otherwise widen the bounds"
        yield table.odd(
            f"{len(outside)} of {len(table.rows)} values lie outside {low:g} to {high:g}",
            f"they will count as the nearer bound: {widen}",
            column.name,
        )
        return
    span = high - low
    if far := [pair for pair in outside if not low - span <= pair[0] <= high + span]:
        what = f"{far[0][0]:g} lies far outside {low:g} to {high:g}"
        remedy = "a typing error, or another unit? It will count as the nearer bound"
        yield _odd(table, column, what, remedy, far)


def _odd(table: RawTable, column: Column, what: str, remedy: str, numbers: Numbers) -> Fault:
    return table.odd(what, remedy, column.name, [row for _, row in numbers])


def _other_units(tables: Sequence[RawTable], column: Column) -> Iterator[Fault]:
    """Files whose middle half of a column lies apart from the others'."""
    if column.categories or any(column.name not in table.header for table in tables):
        return
    files = [[number for number, _ in _numbers(table, column)] for table in tables]
    for place, ((low, high), usual) in apart(files).items():
        fault = tables[place].odd(
            f"half of its values lie between {low:.3g} and {high:.3g}, the other silos' "
            f"around {usual:.3g}",
            "is it in another unit, or are these other patients? A unit's factor goes into "
            f"mapping.toml, under [NAME.{key_of(column.name)}] with the silo's name "
            "(docs/howto/mapping.md)",
            column.name,
        )
        yield replace(fault, between_sites=True)


def _numbers(table: RawTable, column: Column) -> Numbers:
    """The numbers of a column, however its file writes them: 1,234.5 lies beside others' 1234.5."""
    absent, decimal = set(map(column.spelled, ("", *column.missing))), table.decimal(column.name)
    return [
        (float(number), row)
        for cell, row in zip(table.column(column.name), table.numbers, strict=True)
        if (number := measured(cell, decimal)) is not None and column.spelled(cell) not in absent
    ]


def _lumps(table: RawTable, study: Study) -> Iterator[Fault]:
    """Columns of times and quantiles whose few values are told as if they lay evenly in bins."""
    told = dict[str, int]()
    for _, asked in study.statistics.named if study.statistics else ():
        column, edges = getattr(asked, "time", None), getattr(asked, "edges", ())
        if column is None and asked.kind == "quantiles":
            column = getattr(asked, "column", None)
        if isinstance(column, Column) and not column.step and column.name in table.header:
            told[column.name] = max(told.get(column.name, 0), len(edges) - 1)
    for name, bins in told.items():
        cells = map(canonical, table.column(name))
        values = [number for cell in cells if (number := number_in(cell)) is not None]
        different = len(set(values))
        if len(values) > _FEW and different <= min(_LUMPS * bins, len(values) // _LUMP):
            step = common_step(values)
            remedy = f"step = {step:.9g}, if the other silos agree" if step else "their step"
            yield table.odd(
                f"{different} different values make up all {len(values)}",
                f"declare {remedy} in data.columns: without it they count as spread evenly",
                name,
            )


def _rows(
    table: RawTable,
    name: str,
    rule: Rule,
    spellings: Sequence[str] = (),
    *,
    instead: str = "add this spelling to the study",
) -> Iterator[Fault]:
    """What a column's rule refuses of its cells, one fault for each kind."""
    if name not in table.header:
        return
    cells = table.column(name)
    read = {cell: rule(cell) for cell in dict.fromkeys(cells)}
    flaws = {
        cell: flaw_of(cell, fault, spellings, instead)
        for cell, fault in read.items()
        if isinstance(fault, CellFault)
    }
    rows: dict[str, list[int]] = {}
    for cell, row in zip(cells, table.numbers, strict=True):
        if cell in flaws:
            rows.setdefault(flaws[cell].kind, []).append(row)
    # A kind is told by its first cell, with all of its rows.
    first = {flaw.kind: flaw for flaw in reversed(flaws.values())}  # of each kind, the first cell's
    for kind in list(rows)[:_MOST_KINDS]:
        yield table.fault(first[kind].what, first[kind].remedy, name, rows[kind])
    if rest := [row for kind in list(rows)[_MOST_KINDS:] for row in rows[kind]]:
        what = f"{len(rows) - _MOST_KINDS} other spellings are refused too"
        yield table.fault(what, "correct them, or the study", name, rest)


def _target(table: RawTable, data: Data) -> Iterator[Fault]:
    """Cells of the target that a run refuses, and how many lie outside its bounds."""
    outcome = data.outcome
    if outcome is None:
        rule = class_rule(data.positive, data.negative, data.classes)
        spellings = (*data.positive, *data.negative) or data.classes
        yield from _rows(table, data.target, rule, spellings)
        return
    yield from _rows(table, data.target, outcome.rule)
    for name in outcome.columns:
        yield from _rows(table, name, outcome.rule_of(name), (*outcome.positive, *outcome.negative))
    cells = table.column(data.target) if data.target in table.header else ()
    numbers = [number for cell in cells if (number := number_in(cell)) is not None]
    outside = sum(not outcome.low <= number <= outcome.high for number in numbers)
    if outside and not outcome.grid:
        yield table.odd(
            f"{outside} of {len(numbers)} targets lie outside {outcome.low:g} to {outcome.high:g}",
            "they will count as the nearer bound: widen it if that is too many",
            data.target,
        )
    if outcome.exposure in table.header:
        cells = table.column(outcome.exposure)
        if longer := sum((number_in(cell) or 0.0) > outcome.exposure_high for cell in cells):
            yield table.odd(
                f"{longer} of {len(cells)} exposures are above {outcome.exposure_high:g}",
                "they will count as that limit, but with all of their counts: raise exposure_high",
                outcome.exposure,
            )
    if outcome.grid and numbers:
        yield from _times(table, data, outcome, numbers)


def _times(
    table: RawTable, data: Data, outcome: Outcome, times: Sequence[float]
) -> Iterator[Fault]:
    """Intervals of the grid in which much happens that the model takes to be spread evenly."""
    ends, few = (0.0, *outcome.grid), set(times) - {0.0}
    if (longer := sum(time > ends[-1] for time in times)) * _MUCH >= len(times):
        yield table.odd(
            f"{longer} of {len(times)} times lie beyond the grid, which ends at {ends[-1]:g}",
            "what happens after it is not observed: extend the grid if that matters",
            data.target,
        )
    off = [time for time in few if time <= ends[-1] and time not in ends]
    if len(few) <= _MOST_VISITS and off and not outcome.step and len(times) >= _MANY * len(few):
        yield table.odd(
            f"{len(few)} values make up all times, and {len(off)} of them are not times "
            "of the grid",
            "if they are visits, use the visits' times as the grid, or set data.target.step",
            data.target,
        )
    if outcome.event not in table.header:
        return
    rule = outcome.rule_of(outcome.event)
    ended = [rule(cell) for cell in table.column(outcome.event)]
    both = zip(map(number_in, table.column(data.target)), ended, strict=True)
    lost = [time for time, event in both if time is not None and not event]
    for begin, end in pairwise(ends):
        inside = sum(begin < time < end for time in lost)
        if inside * _MUCH >= len(times):
            yield table.odd(
                f"{inside} of {len(times)} records leave observation after {begin:g} and "
                f"before {end:g}, in one interval of the grid",
                "its events count as spread evenly over it: add times to the grid between them",
                data.target,
            )


def _oddities(table: RawTable, data: Data) -> Iterator[Fault]:
    """What a run takes, and people should see."""
    if len(table.rows) < _FEW:
        yield table.odd(
            f"it has only {several(len(table.rows), 'record')}",
            "so few records add little that shows above the noise: check that the file is complete",
        )
    if not data.patient:
        yield from _copies(table)
    for name in table.header:
        yield from cut_numbers(table, name)
    declared = [column.name for column in data.columns if column.name in table.header]
    features = [name for name in table.header if name not in data.targets]
    for name in declared if data.columns else features:
        if is_key(name, [table.column(name)]):
            what = "it looks like an identifier, which predicts nothing for others"
            yield table.odd(what, "leave it out", name)
    classes = _classes(table, data)
    if len(classes) == 1:
        yield table.odd(
            f"only one class occurs, {classes.pop()!r}",
            "check the lists of spellings; it is fine for a silo to have one class if "
            "others have both",
            data.target,
        )


def _copies(table: RawTable) -> Iterator[Fault]:
    """Rows that stand there twice, in every cell or in every cell but those of one column.

    More often than chance would have it, if columns knew nothing of each other.
    """
    count, columns = len(table.rows), list(zip(*table.rows, strict=True))
    alike = [sum((n / count) ** 2 for n in Counter(cells).values()) for cells in columns]
    # Rows are compared by the sum of their cells' hashes, from which one column's can be taken.
    hashes = [np.array([hash((k, cell)) for cell in cells]) for k, cells in enumerate(columns)]
    rows = np.sum(hashes, axis=0)
    is_quick = count * len(columns) <= _MOST_CELLS
    for place, left_out in [(None, 0), *(enumerate(hashes) if is_quick else ())]:
        copies = count - len(np.unique(rows - left_out))
        chance = prod(share for k, share in enumerate(alike) if k != place) * count**2 / 2
        if copies > max(_COPIES * count, 10 * chance):
            but = "" if place is None else f" but {table.header[place]!r}"
            yield table.odd(
                f"{copies} of {count} rows are copies of another row in every cell{but}",
                "the guarantee is for one row: a person with two rows is protected less "
                "(hubbub epsilon --records-per-unit 2). Remove the copies, or name the "
                "column with the person's key (data.patient)",
            )
            return


def _classes(table: RawTable, data: Data) -> set[str]:
    if data.target not in table.header or data.outcome is not None:
        return set()
    classes = set(map(canonical, table.column(data.target)))
    if not data.positive:
        return classes & set(map(canonical, data.classes))
    lists = (data.positive, data.negative)
    return {listed[0] for listed in lists if classes & set(map(canonical, listed))}
