"""A file of records as it is, whatever is wrong with its form: read leniently, faults listed.

A run reads files strictly (`tabular`). This file knows forms, not what columns mean. A `Fault` may
quote a cell, so it is printed where the file lies: no exception, event log or message to another
party is made from it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import compress, count, dropwhile
from operator import not_
from pathlib import Path
from typing import Any

from hubbub.core.disk import open_ordinary, why_of
from hubbub.core.errors import DataError
from hubbub.core.study.cell_stream import CellStream
from hubbub.core.tabular.cells import cell_text, read_cells, spare
from hubbub.desk.drafting.cell_text import (
    decimal_of,
    folded,
    is_date,
    is_missing,
    listed,
    measured,
    plain_number,
)

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SUMMARIES = {
    "grand total",
    "std dev",
    *listed("mean average avg median total totals subtotal sum n count sd std stdev se iqr"),
    *listed("range min max mittelwert summe gesamt moyenne somme media totale"),
}
_SUMMARY = re.compile(  # at the head of a cell, with more words behind it
    rf"({'|'.join(map(re.escape, sorted(_SUMMARIES, key=len, reverse=True)))}"
    r"|no\.|number|anzahl|%)( (of|for|page|per|by|in|on)\b.*| ?[:=(±].*| \w+ ?[:=].*|)"
)
_COMMENT = re.compile(r"(#+|//|%)( |$)")  # "#id" may be a column
_RULE = re.compile(r"[-=_*]{2,}")
_LAST = 20  # lines of a file, among which its footer stands
_LABELS = 3  # lines below the header, in which units and labels stand
_SAMPLE = 1 << 16  # letters in which the separator is looked for
_SHOWN = 60  # letters of a line
_REMOVE = "remove it, or let hubbub init --tidy leave it out"
MOST_ROWS = 200_000  # of a source, that are looked at
SAVE = "save it as “CSV UTF-8 (comma delimited)”"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong, or worth a look, in a file of records."""

    file: str
    what: str  # what was found; it may quote a cell
    remedy: str  # what to do
    column: str = ""  # in which column; empty: in no single one
    row: int | None = None  # the first row, counted from 1 after the header; None: in no single one
    count: int = 1  # how many rows have it
    refused: bool = True  # whether a run refuses the file for it; otherwise it is only worth a look
    between_sites: bool = False  # whether it shows beside other sites' files alone

    @property
    def where(self) -> str:
        """The file, the column and the row; nothing of a cell."""
        column = f", column {self.column!r}" if self.column else ""
        row = "" if self.row is None else f", row {self.row} after the header"
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        return f"{self.file}{column}{row}{more}"

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"

    def to_dict(self) -> dict[str, Any]:
        """The fault as plain values."""
        return {
            "file": self.file,
            "column": self.column or None,
            "row": self.row,
            "rows": self.count,
            "found": self.what,
            "remedy": self.remedy,
            "refused": self.refused,
        }


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """The cells of one file, stripped, and what is wrong with the file's form."""

    origin: str  # the file's name
    header: tuple[str, ...]  # names of the columns, made distinct
    # of all records, each as long as the header
    rows: tuple[tuple[str, ...], ...] = field(repr=False)
    # of the rows, counted from 1 after the header, those without use included
    numbers: tuple[int, ...] = field(repr=False)
    read: int  # how many rows there are after the header, those without use included
    faults: tuple[Fault, ...] = field(default=(), repr=False)  # what is wrong with the form
    named: bool = True  # whether the file has a header of its own
    separator: str = ","  # between cells

    @classmethod
    def of(
        cls,
        origin: str,
        header: Iterable[str],
        rows: Iterable[tuple[str, ...]],
        faults: tuple[Fault, ...] = (),
    ) -> RawTable:
        """A table of which every row is a record."""
        own = tuple(rows)
        numbers = tuple(range(1, len(own) + 1))
        head = tuple(header)
        return cls(
            origin=origin, header=head, rows=own, numbers=numbers, read=len(own), faults=faults
        )

    def column(self, name: str) -> list[str]:
        """The cells of one column."""
        index = self.header.index(name)
        return [row[index] for row in self.rows]

    def fault(self, what: str, remedy: str, column: str = "", rows: Sequence[int] = ()) -> Fault:
        """What is wrong with this file, and in which rows if it is in single ones."""
        row, count = (rows[0], len(rows)) if rows else (None, 1)
        found = Fault(file=self.origin, column=column, what=what, remedy=remedy)
        return replace(found, row=row, count=count)

    def odd(self, what: str, remedy: str, column: str = "", rows: Sequence[int] = ()) -> Fault:
        """What a run takes of this file, and people should see."""
        return replace(self.fault(what, remedy, column, rows), refused=False)

    def plain(self, name: str) -> list[str]:
        """The cells of one column, numbers with a decimal comma as every program reads them."""
        cells = self.column(name)
        if self.decimal(name) == ".":
            return cells
        respelled = {cell: plain_number(cell, ",") or cell for cell in set(cells)}
        return [respelled[cell] for cell in cells]

    def decimal(self, name: str) -> str:
        """The decimal sign of one column: 15,423 is fifteen in one file, thousands in another."""
        return decimal_of(self.column(name), self._usual_decimal)

    @cached_property
    def _usual_decimal(self) -> str:
        """What most columns have beyond doubt; by the separator, which is no decimal sign."""
        signs = Counter(decimal_of(self.column(name), "") for name in self.header)
        if signs[","] != signs["."]:
            return "," if signs[","] > signs["."] else "."
        return "," if self.separator == ";" else "."


def raw_of(stream: CellStream) -> RawTable:
    """The first rows of a source, as texts."""
    rows: list[tuple[str, ...]] = []
    header: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    for cells in stream.pieces():
        header = tuple(cells)
        rows += zip(*cells.values(), strict=True)
        if len(rows) > MOST_ROWS:
            what = f"only the first {MOST_ROWS} rows were checked"
            remedy = "a run reads all of them"
            faults = (Fault(file=stream.origin, what=what, remedy=remedy, refused=False),)
            break
    if not rows:
        raise DataError(f"expected records in {stream.origin}, found none; check what it selects")
    return RawTable.of(stream.origin, header, rows[:MOST_ROWS], faults)


def read_raw(path: Path) -> RawTable:
    """Read a file leniently."""
    if path.suffix.lower() == ".parquet":
        cells = read_cells(path)
        return RawTable.of(path.name, cells, zip(*cells.values(), strict=True))
    try:
        with open_ordinary(path) as file:
            raw = file.read()
    except OSError as error:
        raise DataError(
            f"expected a readable file of records {path}, got: {why_of(error)}; check the path"
        ) from None
    head = raw[:1000]  # of a workbook, a picture or an archive full of bytes that no text has
    odd = sum(byte < 32 and byte not in b"\t\n\v\f\r" for byte in head)
    if not _wide_encoding(raw) and odd * 20 > len(head):
        raise DataError(
            f"expected a table of text in {path}, got a file of bytes; save it as CSV, or name "
            "another file"
        )
    return _Reading(path.name).table(raw)


class _Reading:
    """One file, while it is read."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._faults: list[Fault] = []

    def table(self, raw: bytes) -> RawTable:
        """The table in a file's bytes."""
        text = self._text(raw)
        # Excel tells itself the separator by a first line of its own.
        if mark := re.match(r"sep=.\r?\n", text, re.IGNORECASE):
            self._say(f"its first line is {text[:5]!r}, not the names of the columns", "remove it")
            text = text[mark.end() :]
        # Between cells stands what makes the first lines equally many cells.
        sample = text[:_SAMPLE].rpartition("\n")[0] if len(text) > _SAMPLE else text

        def agreement(sign: str) -> float:
            """Which share of lines is as wide as the first, if that has more than one cell."""
            parsed = _parsed(sample, sign, strict=False) or []
            widths = [len(line) for line in parsed if any(line)][:200] or [0]
            width = widths[0] if widths[0] > 1 else Counter(widths).most_common(1)[0][0]
            return widths.count(width) / len(widths) if width > 1 else 0.0

        separator = max(_SEPARATORS, key=agreement)
        if separator != ",":
            self._say(f"its cells are separated by {_SEPARATORS[separator]}, not by commas", SAVE)
        lines = self._without_title(self._lines(text, separator))
        named = bool(lines) and not _is_record(lines[0], lines[1:])
        if not lines:
            self._say("the file is empty", "check that it is the right file")
        elif not named:
            self._say(
                "its first line looks like a record, not like the names of the columns",
                "put a line with the columns' names first",
            )
            lines.insert(0, [f"column-{k + 1}" for k in range(len(lines[0]))])
        header, *body = lines or [[]]
        header, body = self._narrowed(header, body)
        rows = self._records(body, header)
        if not rows:
            self._say("there are no records in it", "put the right file there, or leave it out")
        return RawTable(
            origin=self._origin,
            header=tuple(self._distinct(header)),
            rows=tuple(rows.values()),
            numbers=tuple(rows),
            read=len(body),
            faults=tuple(self._faults),
            named=named,
            separator=separator,
        )

    def _say(self, what: str, remedy: str, **more: Any) -> None:
        self._faults.append(Fault(file=self._origin, what=what, remedy=remedy, **more))

    def _text(self, raw: bytes) -> str:
        if wide := _wide_encoding(raw):
            self._say("it is UTF-16 text", SAVE)
            return raw.decode(wide, "replace").removeprefix("\ufeff")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            self._say(
                f"it is not UTF-8: byte {error.start} of the file, in line {line}, is "
                f"0x{raw[error.start]:02x}, as in files saved as Latin-1 or Windows-1252",
                SAVE,
            )
            with suppress(UnicodeDecodeError):
                return raw.decode("cp1252")
            return raw.decode("latin-1")
        if text.startswith("\ufeff"):
            self._say("it begins with a byte order mark", "no action is needed", refused=False)
        return text.removeprefix("\ufeff")

    def _lines(self, text: str, separator: str) -> list[list[str]]:
        """All lines that are not blank, or are a missing cell of one column, as stripped cells."""
        strict = _parsed(text, separator, strict=True)
        parsed = strict or _parsed(text, separator, strict=False) or []
        if strict is None:
            self._say("its quotes or line ends are damaged", 'look for an unpaired "')
        if parsed and not parsed[0]:
            self._say("its first line is blank", "let the file begin with the header")
            parsed = [*dropwhile(not_, parsed)]
        one_column = {*map(len, parsed)} == {0, 1}
        if one_column and (last := spare(parsed[1:])):
            self._say("an empty line is its last", 'remove it, or write "" for a missing cell')
            del parsed[-last:]
        kept = [line or [""] for line in parsed if line or one_column]
        return [[cell.strip() for cell in line] for line in kept]

    def _without_title(self, lines: list[list[str]]) -> list[list[str]]:
        """Without lines above the header that have far fewer cells than the table."""
        width = Counter(map(len, lines)).most_common(1)[0][0] if lines else 0
        wide = (2 * sum(map(bool, own)) > width and not _COMMENT.match(own[0]) for own in lines)
        first = next(compress(count(), wide), 0)
        # Merged cells above the names leave gaps, and the names then look like labels. A gap that
        # is first alone is above the numbers of rows, as pandas writes them, and units may follow.
        below, gaps = lines[first + 1 :], first < len(lines) and not all(lines[first][1:])
        first += bool(below) and gaps and all(below[0]) and 0 in _labels(below, width)
        if not first or width < 2:
            return lines
        title = " ".join(filter(None, lines[0]))
        what = f"there is {title!r} above the names of the columns"
        self._say(what, "let the file begin with the header", count=first)
        return lines[first:]

    def _narrowed(
        self, header: list[str], body: list[list[str]]
    ) -> tuple[list[str], list[list[str]]]:
        """Without the nameless empty columns that a separator at the end of each line makes."""
        width = len(header)
        while width and not header[width - 1] and not any(any(r[width - 1 : width]) for r in body):
            width -= 1
        if width < len(header):
            self._say("every line ends in a separator", "remove the empty columns at its end")
            body = [row[:width] + [c for c in row[width:] if c] for row in body]
        return header[:width], body

    def _records(self, body: list[list[str]], header: list[str]) -> dict[int, tuple[str, ...]]:
        """By number the rows as wide as the header, without those that are no records."""
        width, names = len(header), [*map(folded, header)]
        gaps = {k for k, row in enumerate(body) if not any(row)}
        empty = sorted(gaps) if width > 1 else []
        again = {
            k
            for k, row in enumerate(body)
            if [*map(folded, row[:1])] == names[:1] and [*map(folded, row)] == names
        }
        # The first of these kinds that a row belongs to is said of it.
        no_record = set[int]()
        for what, rows in (
            ("it repeats the names of the columns", again),
            ("it holds units or labels, not a record", _labels(body, width)),
            ("it is a row of totals", _summed(body)),
            ("it is nearly empty, as the last lines of a file often are", _footer(body, width)),
        ):
            if mine := sorted(rows - no_record - gaps):
                shown = ", ".join(filter(None, body[mine[0]]))[:_SHOWN]
                self._say(f"{what}: {shown}", _REMOVE, row=mine[0] + 1, count=len(mine))
            no_record |= rows - gaps
        kept = sorted({*range(len(body))} - no_record - {*empty})
        if empty:
            what = "there is nothing in the row"
            self._say(what, _REMOVE, row=empty[0] + 1, count=len(empty))
        if ragged := [k for k in kept if len(body[k]) != width]:
            what = f"it has {len(body[ragged[0]])} cells, the header has {width}"
            remedy = "check the separators and quotes of that row"
            self._say(what, remedy, row=ragged[0] + 1, count=len(ragged))
        return {k + 1: tuple(body[k]) for k in kept if len(body[k]) == width}

    def _distinct(self, header: list[str]) -> list[str]:
        """The names, where one stands twice or is missing another one."""
        for name, times in Counter(header).items():
            if not name:
                self._say("a column has no name", "name it in the first line", count=times)
            elif times > 1:
                what = f"the column name {name!r} occurs {times} times in the header"
                self._say(what, "rename all but one of them")
        taken: Counter[str] = Counter()

        def numbered(name: str) -> str:
            taken[name] += 1
            return name if taken[name] == 1 else numbered(f"{name}-{taken[name]}")

        return [numbered(name or f"column-{k + 1}") for k, name in enumerate(header)]


def _wide_encoding(raw: bytes) -> str:
    """The encoding of a file whose letters have two bytes; empty if they have not."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    head = raw[:1000]
    if head.count(b"\0") * 3 < len(head) or not head:
        return ""
    return "utf-16-be" if head[::2].count(b"\0") > head[1::2].count(b"\0") else "utf-16-le"


def _parsed(text: str, separator: str, *, strict: bool) -> list[list[str]] | None:
    with suppress(csv.Error):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)
        return [[*map(cell_text, row)] for row in reader]
    return None


def _summed(body: list[list[str]]) -> set[int]:
    """Rows that begin with a word such as "mean", with which no other row does.

    In the middle of a file only those with half the usual cells, as others may be records; at its
    end those with gaps, and full ones where rows begin with a key.
    """
    usual, last = _usual_filled(body), len(body) - _LAST
    heads = [next(filter(None, row), "") for row in body]
    summaries = [_SUMMARY.fullmatch(folded(head)) for head in heads]
    words = ["" if summary is None else summary.group(1) for summary in summaries]
    keyed = last > 0 and 2 * len({*heads}) > len(heads)
    rows = {
        k
        for k, row in enumerate(body)
        if words[k]
        if (k >= last and (keyed or not all(row))) or 2 * sum(map(bool, row)) <= usual
    }
    others = {word for k, word in enumerate(words) if k not in rows}
    return {k for k in rows if words[k] not in others}


def _usual_filled(body: list[list[str]]) -> int:
    filled = Counter(sum(map(bool, row)) for row in body if any(row))
    return filled.most_common(1)[0][0] if filled else 0


def _footer(body: list[list[str]], width: int) -> set[int]:
    """The last rows that are no records: rates without a word, remarks, and all below a rule.

    Each has far fewer cells than others, and none that its column has elsewhere.
    """
    # All below a line of dashes is a footer, whatever it holds.
    first = max(len(body) - _LAST, 0)
    for k in range(first, len(body)):
        if any(body[k]) and all(_RULE.fullmatch(cell) for cell in body[k] if cell):
            return {*range(k, len(body))}
    usual = _usual_filled(body) if width > 2 else 0
    full = [k >= first and 2 * sum(map(bool, row)) > usual for k, row in enumerate(body)]
    records = [*body[:first], *compress(body, full)]

    @cache
    def elsewhere(column: int) -> set[str]:
        return {row[column] for row in records if column < len(row)}

    rows = set[int]()
    for k in range(len(body) - 1, first - 1, -1):
        cells = {column: cell for column, cell in enumerate(body[k]) if cell}
        if full[k] or any(cell in elsewhere(column) for column, cell in cells.items()):
            break
        rows.add(k)
    return rows


def _labels(body: list[list[str]], width: int) -> set[int]:
    """The rows below the header in which words stand where all others have numbers."""
    rest = [row for row in body[_LABELS:] if len(row) == width]
    if len(rest) < _LAST or len(body[0]) != width:
        return set()

    def is_numeric(column: int) -> bool:
        cells = Counter(row[column] for row in rest if not is_missing(row[column]))
        numbers = sum(count for cell, count in cells.items() if measured(cell) is not None)
        return numbers * 10 > 9 * cells.total()

    words = [k for k, cell in enumerate(body[0]) if cell and measured(cell) is None]
    if sum(map(is_numeric, words)) < 2:
        return set()
    numeric = [column for column in range(width) if is_numeric(column)]
    rows = set[int]()
    for k, row in enumerate(body[:_LABELS]):
        there = [row[column] for column in numeric if len(row) == width and row[column]]
        if len(there) < 2 or any(is_missing(cell) or measured(cell) is not None for cell in there):
            break
        rows.add(k)
    return rows


def _is_record(first: list[str], body: list[list[str]]) -> bool:
    """Whether the first line holds values like those below it; a year may be a column's name."""
    numbers = [k for k, cell in enumerate(first) if _is_value(cell)]
    if not numbers or len(numbers) * 3 < len(first):
        return False
    below = [row[k] for row in body[:50] for k in numbers if k < len(row)]
    return sum(_is_value(cell) or is_missing(cell) for cell in below) * 10 >= len(below) * 8


def _is_value(cell: str) -> bool:
    year = re.fullmatch(r"(19|20)\d\d", cell) is not None
    return bool(cell) and not year and (plain_number(cell) is not None or is_date(cell))
