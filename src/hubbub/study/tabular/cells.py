"""Files of records as text: the cells of a CSV or Parquet file by column, stripped, "" if missing.

What a cell means is not decided here. Exceptions of the readers beneath may quote the file, so
none of them is passed on or chained: an error is raised after their `except` clause has ended.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hubbub.errors import DataError


def read_cells(path: Path, wanted: Sequence[str] = ()) -> dict[str, list[str]]:
    """The cells of a `.parquet` file, or else of a CSV file, by column and as stripped text.

    Args:
        path: the file.
        wanted: columns without which others need not be read: a Parquet file may hold some that are
            no text or number; without any, all are.

    Raises:
        DataError: the file is missing, damaged, or not a table with distinct column names.
    """
    return _parquet_cells(path, wanted) if path.suffix.lower() == ".parquet" else _csv_cells(path)


def at_row(where: str, row: int) -> str:
    """How error messages point to a row, which is counted from 0 here and from 1 there."""
    return f"in {where}, row {row + 1} after the header"


def _csv_cells(path: Path) -> dict[str, list[str]]:
    rows = _csv_rows(path)
    header = [name.strip() for name in rows[0]] if rows else []
    if not header or len(set(header)) < len(header) or "" in header:
        raise DataError(
            f"expected a first line with distinct column names in {path.name}, found an empty or "
            "repeated name; correct the header"
        )
    body = [row for row in rows[1:] if row]
    for number, row in enumerate(body):
        if len(row) != len(header):
            raise DataError(
                f"expected {len(header)} cells {at_row(path.name, number)}, found {len(row)}; "
                "check the commas and quotes of that row"
            )
    return {name: [row[k].strip() for row in body] for k, name in enumerate(header)}


def _csv_rows(path: Path) -> list[list[str]]:
    reason = "it is not there or may not be read"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(csv.reader(file, strict=True))
    except OSError:
        pass
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except csv.Error:
        reason = "its quotes or line ends are damaged"
    # Raised out here because the exceptions above carry bytes of the file.
    raise DataError(f"expected a readable CSV file {path.name}, but {reason}; check the path")


def _parquet_cells(path: Path, wanted: Sequence[str]) -> dict[str, list[str]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(
            f"expected pyarrow to read {path.name}, found that it is not installed; run "
            "pip install hubbub[parquet] or convert the file to .csv"
        ) from None
    table, names = None, []
    with suppress(Exception):  # whatever it says, it may quote a cell
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
        read = file.read([name for name in names if not wanted or name in wanted])
        table = {name: read[name].to_pylist() for name in read.column_names}
    if len(set(names)) < len(names):
        raise DataError(
            f"expected every column of {path.name} once, found one twice; remove one of them"
        )
    if table is None:
        raise DataError(
            f"expected a readable Parquet file {path.name}, found that it is not there or damaged; "
            "check the path"
        )
    return {name: [_as_text(value) for value in values] for name, values in table.items()}


def _as_text(value: object) -> str:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if missing else str(value).strip()
