"""Some files as one: their tables with the same names of columns, and the cells of those.

Everything that is asked of people or drafted is asked of a survey, so that files are read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hubbub.core.errors import DataError
from hubbub.core.study.extracts import table_parts
from hubbub.desk.drafting.cell_text import folded
from hubbub.desk.drafting.joined_rows import joined
from hubbub.desk.drafting.raw_stream import raw_of
from hubbub.desk.drafting.raw_table import Fault, RawTable, read_raw
from hubbub.desk.drafting.repeated_keys import RepeatedKey, repeated_keys


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Some files of records.

    Args:
        paths: of the files.
        tables: in the order of the paths, all with the same names of columns.
        faults: names of columns that differ between files.
    """

    paths: tuple[Path, ...]
    tables: tuple[RawTable, ...] = field(repr=False)
    faults: tuple[Fault, ...] = field(default=(), repr=False)

    @cached_property
    def full(self) -> list[RawTable]:
        """The tables that hold records."""
        return [table for table in self.tables if table.rows]

    @cached_property
    def common(self) -> list[str]:
        """The columns that every file with records has."""
        first = self.full[0].header
        return [name for name in first if all(name in covariate.header for covariate in self.full)]

    @cached_property
    def by_file(self) -> Mapping[str, list[list[str]]]:
        """The cells of each common column, file by file."""
        return {name: [covariate.column(name) for covariate in self.full] for name in self.common}

    @cached_property
    def cells(self) -> Mapping[str, list[str]]:
        """The cells of each common column, all files in a row, numbers with decimal points."""
        return {name: [c for file in self.full for c in file.plain(name)] for name in self.common}

    @cached_property
    def likely_keys(self) -> list[RepeatedKey]:
        """The columns that may say whose a row is, the likeliest first."""
        return repeated_keys(self.full, self.common)

    def decimals(self, name: str) -> list[str]:
        """The decimal sign of a common column in each file."""
        return [table.decimal(name) for table in self.full]

    @property
    def elsewhere(self) -> dict[str, str]:
        """The columns that some file lacks, and which files."""
        names = dict.fromkeys(name for covariate in self.full for name in covariate.header)
        return {
            name: ", ".join(
                covariate.origin for covariate in self.full if name not in covariate.header
            )
            for name in names
            if name not in self.common
        }

    def joined(self, key: str) -> Survey:
        """With one row for each person that a column names.

        Raises:
            DataError: some file has no such column.
        """
        if lacking := [table.origin for table in self.full if key not in table.header]:
            raise DataError(
                f"expected --join to name a column of every file, found no {key!r} in "
                f"{', '.join(lacking)}; choose one of {', '.join(self.common)}"
            )
        tables = tuple(joined(table, key) if table.rows else table for table in self.tables)
        return Survey(paths=self.paths, tables=tables, faults=self.faults)

    def refuse_absent(self, name: str | None) -> None:
        """Refuse a column that only some files have, by the names of those that lack it."""
        lacking = [covariate for covariate in self.full if name not in covariate.header]
        if name is None or not 0 < len(lacking) < len(self.full):
            return
        raise DataError(
            f"expected a column {name!r} in every file, found none in "
            f"{', '.join(one.origin for one in lacking)}, which has "
            f"{', '.join(lacking[0].header)}; rename it there"
        )


def surveyed(paths: Sequence[Path]) -> Survey:
    """Read some files, one for each silo; of one alone if a silo drafts by itself.

    Raises:
        DataError: a file stands there twice or cannot be read, or there is no record.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError("expected every file once, got one twice; leave it out")
    raw = [raw_of(table_parts.stream(path)) if path.is_dir() else read_raw(path) for path in paths]
    return survey_of(raw, paths)


def survey_of(raw: Sequence[RawTable], paths: Sequence[Path]) -> Survey:
    """Some tables as one; see `surveyed`.

    Args:
        raw: the tables.
        paths: what silos are called after.
    """
    if not any(table.rows for table in raw):
        raise DataError(
            f"expected records in {', '.join(table.origin for table in raw)}, found none that can "
            "be read; check the files, their separators and quotes"
        )
    tables, faults = _aligned(raw)
    return Survey(paths=tuple(paths), tables=tuple(tables), faults=tuple(faults))


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
