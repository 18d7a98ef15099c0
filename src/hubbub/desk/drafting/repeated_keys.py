"""Columns whose values come back from row to row as a patient's number does.

Several rows of one person that count as several people promise that person less than is written,
and nothing later tells. This file sees the cells of all files; whose they are, people say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hubbub.core.tabular.patient_keys import patient_key
from hubbub.desk.drafting.column_draft import is_named_key
from hubbub.desk.drafting.question import words_in
from hubbub.desk.drafting.raw_table import RawTable

_PEOPLE = frozenset(
    {
        *("patient", "patients", "pat", "person", "subject", "subj", "participant", "proband"),
        *("member", "customer", "client", "resident", "insuree", "mrn", "pid", "usubjid", "pt"),
        *("patientid", "personid", "subjectid", "patid", "subjid", "zper", "versicherter"),
    }
)
_ENDINGS = frozenset({"id", "nr", "no", "key", "code", "number", "nummer", "num", "hash", "ref"})
_FEW = 8  # different values, below which nothing looks like people
_CODE = re.compile(r"[\w.:/-]{1,64}")
_LETTERED = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w-]+|\d{4,18}")
_GROUPS = 20  # values that come back, before other columns say anything


@dataclass(frozen=True, kw_only=True)
class RepeatedKey:
    """A column that may say whose a row is.

    Args:
        name: of the column.
        values: how many different ones there are, each file for itself.
        rows: how many rows, those alike in all cells counted once.
        most: rows of one value.
    """

    name: str
    values: int
    rows: int
    most: int


def repeated_keys(tables: Sequence[RawTable], names: Sequence[str]) -> list[RepeatedKey]:
    """The columns, of these names, that may say whose a row is, the likeliest first.

    Args:
        tables: all files, each of which has columns of these names.
        names: of the columns.
    """
    kept = [_Rows(table) for table in tables]
    ranked = [(_rank(name), one) for name in names if (one := _repeated(name, kept)) is not None]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


class _Rows:
    """A file's rows, those that are alike in every cell once."""

    def __init__(self, table: RawTable) -> None:
        self.header = table.header
        self.rows = list(dict.fromkeys(table.rows))

    def keys(self, name: str) -> list[str]:
        """Whose each row is by a column; empty where it says nothing."""
        index = self.header.index(name)
        return [patient_key(row[index]) for row in self.rows]


def _repeated(name: str, files: Sequence[_Rows]) -> RepeatedKey | None:
    """A column, if its values come back as those of people do."""
    keys = [[key for key in file.keys(name) if key] for file in files]
    rows, values = sum(map(len, keys)), sum(len(set(own)) for own in keys)
    if values < _FEW or values >= rows:
        return None
    codes = sum(_CODE.fullmatch(key) is not None for own in keys for key in own)
    if codes < 0.95 * rows or any("." in key and _is_fraction(key) for own in keys for key in own):
        return None
    rank = _rank(name)
    least = (0.02, 0.1, 0.1)[rank] * rows
    if values < least or (rank == 2 and not _are_people(name, files, keys)):
        return None
    most = max(max(Counter(own).values(), default=0) for own in keys)
    return RepeatedKey(name=name, values=values, rows=rows, most=most)


def _is_fraction(key: str) -> bool:
    return re.fullmatch(r"[+-]?\d*\.\d+", key) is not None


def _rank(name: str) -> int:
    """0: called after people; 1: called a key; 2: called anything."""
    words = words_in(name)
    if words and words[-1] in _ENDINGS:
        if len(words) > 1 and words[-2] in _PEOPLE:
            return 0
    elif words and words[-1] in _PEOPLE:
        return 0
    return 1 if is_named_key(name) else 2


def _are_people(name: str, files: Sequence[_Rows], keys: Sequence[Sequence[str]]) -> bool:
    """Whether values are codes, and some other column never differs between rows of one value."""
    if not all(_LETTERED.fullmatch(key) for own in keys for key in own):
        return False
    others = [one for one in files[0].header if one != name]
    return any(_belongs(name, other, files) for other in others)


def _belongs(name: str, other: str, files: Sequence[_Rows]) -> bool:
    """Whether rows of one key have one value of another column, which is not nearly constant."""
    groups: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for key, cell in _pairs(name, other, files):
        groups[key].append(cell)
    several = [cells for cells in groups.values() if len(cells) > 1]
    counts = Counter(cell for cells in several for cell in cells)
    total = counts.total()
    if len(several) < _GROUPS or sum((n / total) ** 2 for n in counts.values()) > 0.8:
        return False
    alike = sum(len(set(cells)) == 1 for cells in several)
    return alike >= 0.98 * len(several)


def _pairs(name: str, other: str, files: Sequence[_Rows]) -> Iterator[tuple[tuple[int, str], str]]:
    for number, file in enumerate(files):
        if other in file.header:
            index = file.header.index(other)
            for key, row in zip(file.keys(name), file.rows, strict=True):
                if key:
                    yield (number, key), row[index]
