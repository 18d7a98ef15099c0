"""Files of records as text: the cells of a CSV or Parquet file by column, stripped, "" if missing.

Exceptions of the readers beneath may quote the file, so none of them is passed on or chained: an
error is raised after their `except` clause has ended. What a cell says by its column is a number,
or why it is none of that column's: a run stops at the first fault (`read_column`), a check collects
all. A fault's words never quote the cell: errors leave a silo.

A class or a column may be called what a stranger likes, such as `=HYPERLINK(...)`. So in CSV a text
that begins like a formula has an apostrophe before it (OWASP, CSV injection), which whatever of
hubbub reads a CSV file takes off again.
"""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import open_ordinary
from hubbub.core.errors import DataError, with_extra
from hubbub.core.number_format import several

# The signs as they are and as East Asian keyboards write them, behind whatever is not seen; a tab
# or line end goes before all.
_FORMULA = re.compile(
    r"[\t\r\n]|[\s\ufeff\u200b-\u200f\u2060\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20].*\w",
    re.DOTALL,
)
_KEPT = re.compile(r'\s*="([^"]*)"\s*')
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    r"""Rows of values as CSV; a text that begins like a formula has an apostrophe before it.

    >>> csv_text([["class", "score"], ["=1+1", -0.5], ["-2.5", None]])
    "class,score\n'=1+1,-0.5\n-2.5,\n"
    """
    lines = []
    for row in rows:
        cells = (f"'{at}" if isinstance(at, str) and is_like_formula(at) else at for at in row)
        # The writer puts quotes around whatever is in the end of a line, so that is both signs.
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerow(cells)
        lines.append(text.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def cell_text(cell: str) -> str:
    r"""A cell of a CSV file, without what only says that it is no formula.

    That is an apostrophe, or ="..." around a text that a spreadsheet should leave as it is.

    >>> cell_text("'=1+1"), cell_text("'s-Hertogenbosch"), cell_text('="007"')
    ('=1+1', "'s-Hertogenbosch", '007')
    """
    if cell.startswith("'") and is_like_formula(cell[1:]):
        return cell[1:]
    kept = _KEPT.fullmatch(cell)
    return kept.group(1) if kept else cell


def is_like_formula(text: str) -> bool:
    """Whether a program for tables may take a text for a formula."""
    return bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)


# A Parquet file may pack a column of equal cells into a few bytes: as many cells as it may have.
_FEW, _PACKED = 1 << 20, 16  # of any file; and for each of its bytes
_BATCH = 1024  # rows that are unpacked at once
_REMEMBERED = 1000  # texts of a column


def read_cells(path: Path, wanted: Sequence[str] = ()) -> dict[str, list[str]]:
    """The cells of a `.parquet` file, or else of a CSV file, by column and as stripped text.

    Others than the `wanted` columns, if there are any, need not be read.

    DataError: the file is missing, damaged, or not a table with distinct column names.
    """
    read = _parquet_cells if path.suffix.lower() == ".parquet" else _csv_cells
    return read(path, wanted)


def cells_of(table: Any) -> dict[str, list[str]]:
    """The cells of a data frame, or any mapping of columns to values, as `read_cells` gives them.

    DataError: it is none, or its columns are not of one length.
    """
    names = column_names(table)
    try:
        # What an array or a series gives are its values, which no sentence may have as names.
        if names is None and not isinstance(table, Mapping):
            raise TypeError
        names = list(table if names is None else names)
        if twice := [name for name, times in Counter(map(str, names)).items() if times > 1]:
            raise _uneven(twice)
        columns = {name: table[name] for name in names}
        cells = {str(name): [*map(_in_memory, plain_values(at))] for name, at in columns.items()}
    except DataError:
        raise
    except (TypeError, KeyError, IndexError, ValueError):
        remedy = "call its collect()" if hasattr(table, "collect") else "convert it"
        raise DataError(
            f"expected a data frame or a mapping of columns, found {type(table).__name__}; {remedy}"
        ) from None
    lengths = {name: len(own) for name, own in cells.items()}
    if len({*lengths.values()}) > 1:
        usual = Counter(lengths.values()).most_common(1)[0][0]
        raise _uneven([name for name, length in lengths.items() if length != usual])
    return cells


def _uneven(names: Sequence[str]) -> DataError:
    return DataError(
        "expected columns of one length with names of their own, found others: "
        f"{', '.join(map(repr, names[:5]))}; correct the table"
    )


def column_names(table: Any) -> list[Any] | None:
    """Of a data frame of pandas or Polars, or a table of Arrow; None of anything else."""
    names = getattr(table, "column_names", None)  # an Arrow table's own `columns` are values
    names = getattr(table, "columns", None) if names is None else names
    return None if names is None else list(names)


def at_row(where: str, row: int) -> str:
    """How error messages point to a row, which is counted from 0 here and from 1 there."""
    return f"in {where}, row {row + 1} after the header"


_SAVE = "save it as CSV UTF-8 (comma delimited)"


def _csv_cells(path: Path, wanted: Sequence[str]) -> dict[str, list[str]]:
    rows = _csv_rows(path)
    header = [name.strip() for name in rows[0]] if rows else []
    if not header or len(set(header)) < len(header) or "" in header:
        raise DataError(
            f"expected a first line with distinct column names in {path.name}, found an empty or "
            "repeated name; correct the header"
        )
    # An empty line is a missing cell where there is one column, as Polars and Arrow have it too.
    body = [row or [""] for row in rows[1:] if row or len(header) == 1]
    if len(header) == 1 and {*";\t|"} & {*rows[0][0]} and header[0] not in wanted:
        raise DataError(
            f"expected commas between the names of columns in {path.name}, found other signs; "
            f"{_SAVE}"
        )
    if len(header) == 1 and spare(rows[1:]):
        raise DataError(
            f"expected no empty line at the end alone of {path.name}, which has one column, found "
            'one; remove it, or write "" where a cell is missing'
        )
    for number, row in enumerate(body):
        if len(row) != len(header):
            raise DataError(
                f"expected {several(len(header), 'cell')} {at_row(path.name, number)}, found "
                f"{len(row)}; check the commas and quotes of that row"
            )
    return {name: [row[k].strip() for row in body] for k, name in enumerate(header)}


def spare(rows: Sequence[Sequence[str]]) -> int:
    """How many of one column's last lines are empty, and no other: missing, or of no record."""
    full = sum(map(bool, rows))
    return len(rows) - full if full and all(rows[:full]) else 0


def _csv_rows(path: Path) -> list[list[str]]:
    reason = "it is not there, is no ordinary file or may not be read"
    remedy = "check the path, which a study has in data.files or data.test"
    try:
        with open_ordinary(path) as raw, TextIOWrapper(raw, "utf-8-sig", newline="") as file:
            return [[*map(cell_text, row)] for row in csv.reader(file, strict=True)]
    except OSError:
        pass
    except UnicodeDecodeError:
        reason, remedy = "it is not UTF-8 text", _SAVE
    except csv.Error as error:
        reason = "its quotes or line ends are damaged, or no commas stand between its cells"
        remedy = f"correct it, or {_SAVE}"
        if "field limit" in str(error):
            reason = (
                f"a cell has more than {csv.field_size_limit():,} characters, as where a quote is "
                "opened and never closed"
            )
            remedy = "close the quote, or leave out the column of long texts"
    # Raised out here because the exceptions above carry bytes of the file.
    raise DataError(f"expected a readable CSV file {path.name}, but {reason}; {remedy}")


def _parquet_cells(path: Path, wanted: Sequence[str]) -> dict[str, list[str]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(
            f"expected pyarrow to read {path.name}, found that it is not installed; "
            f"convert the file to .csv, or {with_extra('parquet')}"
        ) from None
    table, names, fits = None, [], True
    # Whatever a reader says, it may quote a cell.
    with suppress(Exception), open_ordinary(path) as raw:
        size = raw.seek(0, 2)
        file = parquet.ParquetFile(raw, thrift_string_size_limit=size + 1)
        names = file.schema_arrow.names
        read = [name for name in names if not wanted or name in wanted]
        fits = is_in_proportion(file.metadata, len(read), size)
        if fits and len(set(names)) == len(names):
            table = _in_batches(file, read)
    if len(set(names)) < len(names):
        raise DataError(
            f"expected every column of {path.name} once, found one twice; remove one of them"
        )
    if not fits:
        raise DataError(
            f"expected a Parquet file {path.name} with cells in proportion to its size, found far "
            "more; if the file is right, convert it to .csv"
        )
    if table is None:
        raise DataError(
            f"expected a readable Parquet file {path.name}, found that it is not there or damaged; "
            "check the path"
        )
    return table


def is_in_proportion(metadata: Any, columns: int, size: int) -> bool:
    """Whether a file of so many bytes states cells, and bytes once unpacked, that it may have."""
    groups = range(metadata.num_row_groups)
    rows = max(metadata.num_rows, sum(metadata.row_group(k).num_rows for k in groups))
    unpacked = sum(metadata.row_group(k).total_byte_size for k in groups)
    room = _FEW + _PACKED * size
    return bool(rows * max(columns, 1) <= room and unpacked <= 8 * room)


def _in_batches(file: Any, names: list[str]) -> dict[str, list[str]]:
    """The cells of some columns; equal ones share their text, as far as that is quickly seen."""
    cells: dict[str, list[str]] = {name: [] for name in names}
    texts: dict[str, dict[str, str]] = {name: {} for name in names}
    for batch in file.iter_batches(_BATCH, columns=names, use_threads=False):
        for name in names:
            seen = texts[name]
            for value in plain_values(batch.column(name)):
                text = text_of(value)
                cells[name].append(seen.get(text, text))
                if len(seen) < _REMEMBERED:
                    seen.setdefault(text, text)
    return cells


def plain_values(column: Any) -> Iterable[object]:
    """The values of a column of a data frame or of Arrow; short floats stay what they are."""
    kind = getattr(column, "type", getattr(column, "dtype", ""))
    # Of categories, and of Arrow's dictionaries and runs, the type is that of what they stand for.
    kind = getattr(getattr(kind, "categories", None), "dtype", kind)
    kind = getattr(kind, "pyarrow_dtype", kind)
    short = _SHORT.get(str(getattr(kind, "value_type", kind)).casefold())
    # Arrow keeps values in objects of its own.
    values: Iterable[object] = column.to_pylist() if hasattr(column, "to_pylist") else column
    if short is None and str(kind) == "object":  # as pandas makes of short floats without a type
        return (_shortest(value) for value in values)
    if short is None:
        return values
    return (short(value) if isinstance(value, float) else value for value in values)


def _shortest(value: object) -> object:
    """A value without a type, as a short float where it has 15 digits or more and is one exactly.

    Of other floats of so many digits one in 2**29 is.
    """
    if type(value) is not float or not abs(value) < LARGEST or value.is_integer():
        return value
    short = np.float32(value)
    digits = Decimal(repr(value)).as_tuple().digits
    return short if float(short) == value and len(digits) > 14 else value


# What libraries call floats that show the type of each of their values only in the column's.
_SHORT: dict[str, type[np.floating[Any]]] = {
    **dict.fromkeys(("float", "float32", "float[pyarrow]"), np.float32),
    **dict.fromkeys(("halffloat", "float16", "halffloat[pyarrow]"), np.float16),
}


def _in_memory(value: object) -> str:
    """The text of a cell of a data frame, which has values of its own for what is missing."""
    return "" if type(value).__name__ in ("NAType", "NaTType") else text_of(value)


def text_of(value: object) -> str:
    """The text of a value; numbers that are equal have one, whatever sign of zero and scale.

    Of a short float it is the shortest that is that float. One so large that several whole numbers
    share it is in powers of ten, by which it is told from theirs (`tabular/records.py`).

    >>> text_of(-0.0), text_of(Decimal("1.50")), text_of(None), text_of(np.float32(0.7))
    ('0.0', '1.5', '', '0.7')
    >>> text_of(np.float32(16_777_217))
    '1.6777216000000000E+07'
    """
    if value is None or (isinstance(value, float | np.floating | Decimal) and math.isnan(value)):
        return ""
    if isinstance(value, np.float32 | np.float16) and exact_below(value) <= abs(value) < math.inf:
        return f"{float(value):.16E}"
    if isinstance(value, float | np.floating):
        return str(float(str(value)) + 0.0)  # NumPy writes a float32 of 9999999 as 9.999999e+06
    if isinstance(value, Decimal) and value.is_finite():
        text = f"{value:f}"  # of any length: arithmetic rounds to 28 digits
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text
    if isinstance(value, bytes):  # as some programs write texts to Parquet
        with suppress(UnicodeDecodeError):
            return value.decode().strip()
    return str(value).strip()


def exact_below(value: object) -> float:
    """Up to where a float is one whole number alone: 2**53, of NumPy's shorter types 24 or 11."""
    return 2.0 ** (int(np.finfo(value).nmant) + 1 if isinstance(value, np.floating) else 53)


GAP, NUMBER, SPELLING = "gap", "number", "spelling"  # kinds of faults that rules share
MISSING = float("nan")  # what a rule reads where a cell may be missing and is
LARGEST = float(np.finfo(np.float32).max)
LONGEST_KEY = 1000  # letters of a text whose forms are compared: to compose a long one takes hours
_SHARED = re.compile(r"-?[0-9]\.[0-9]{16}E\+[0-9]{2}")  # of `text_of`: a short float's whole number
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]+)\.0*")  # as databases have it too (site/sql/source.py)


class CellFault(NamedTuple):
    """Why a cell is none of its column's."""

    kind: str  # "gap", "number", "spelling", or a sentence's part that says more
    expected: str
    found: str  # without its content
    remedy: str


Rule = Callable[[str], float | CellFault]


def read_column(texts: Sequence[str], rule: Rule, where: str) -> NDArray[np.float64]:
    """The numbers of one column's stripped cells, (n,); `where` names it in errors.

    DataError: the first cell that the rule finds at fault; its content is not quoted.
    """
    read = {text: rule(text) for text in set(texts)}  # columns repeat themselves
    numbers = np.empty(len(texts))
    for row, text in enumerate(texts):
        value = read[text]
        if isinstance(value, CellFault):
            raise DataError(
                f"expected {value.expected} {at_row(where, row)}, found {value.found}; "
                f"{value.remedy}"
            )
        numbers[row] = value
    return numbers


def number_rule(text: str) -> float | CellFault:
    """The rule of a column of which the study says nothing: finite numbers."""
    value = number_in(text)
    if value is not None:
        return value
    return CellFault(
        *(NUMBER if text else GAP, "a number", "something else" if text else "an empty cell"),
        "correct the cell, or declare in data.columns what it means (categories, missing, default)",
    )


def label_rule(places: Mapping[str, int], lists: str) -> Rule:
    """The rule of a target whose spellings, and what each counts as, the study lists."""

    def rule(text: str) -> float | CellFault:
        if not text:
            return NO_TARGET
        if (place := places.get(canonical(text))) is not None:
            return place
        expected = f"a target that {lists} lists"
        remedy = f"correct the cell, or add its spelling to {lists}"
        return CellFault(SPELLING, expected, "something else", remedy)

    return rule


NO_TARGET = CellFault(GAP, "a target", "an empty cell", "remove the record")


def canonical(text: str) -> str:
    r"""One spelling for one value: "1.0", which other programs write for a whole 1, becomes "1".

    Only where the whole text is a number: `1.2.0` is another key than `1.2`. A letter that Unicode
    composes in two ways is one.

    >>> canonical(" 7.00 "), canonical("-0.0"), canonical("u\u0308") == "\u00fc"
    ('7', '0', True)
    """
    text = text.strip()
    if not text.isascii() and len(text) <= LONGEST_KEY:
        text = unicodedata.normalize("NFC", text)
    if _SHARED.fullmatch(text):
        return f"{float(text):.0f}"
    whole = _WHOLE_NUMBER.fullmatch(text)
    number = whole.group(1) if whole else text
    return "0" if number == "-0" else number


def number_in(text: str) -> float | None:
    """The finite number that `text` spells, else None (an exception would quote the cell).

    Its digits are 0 to 9: no database reads those of other scripts (`site/sql/source.py`).
    """
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST and "_" not in text and text.isascii() else None
