"""A folder of Parquet or Arrow files as one table, read part by part, never whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from hubbub.core.disk import open_ordinary
from hubbub.core.errors import DataError, with_extra
from hubbub.core.study.extracts.cell_stream import Cells, CellStream
from hubbub.core.tabular.cells import cells_of, is_in_proportion

_ENDS = (".parquet", ".arrow", ".feather")
_ROWS = 20_000  # at once


def stream(folder: Path) -> CellStream:
    """The rows of all parts, in the order of their names.

    Args:
        folder: that holds them, and nothing else that is read.

    Raises:
        DataError: there are none, or pyarrow is not installed; reading them, that one is damaged or
            has other columns than the first.
    """
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in _ENDS)
    if not paths:
        raise DataError(
            f"expected parts that end in {', '.join(_ENDS)} in {folder.resolve()}, found none; put "
            "them there"
        )
    return CellStream(origin=folder.name, pieces=partial(_pieces, paths, folder.name), ordered=True)


def _pieces(paths: list[Path], origin: str) -> Iterator[Cells]:
    header: list[str] | None = None
    for path in paths:
        for cells in _part(path):
            header = header or sorted(cells)
            if sorted(cells) != header:
                raise DataError(
                    f"expected the same columns in all parts of {origin}, found others in "
                    f"{path.name}; write it anew"
                )
            yield cells


def _part(path: Path) -> Iterator[Cells]:
    """The pieces of one file; whatever its reader says may quote a cell, and is not passed on."""
    reading = _reader(path)
    pieces: Iterator[Cells] | None = None
    with suppress(Exception), open_ordinary(path) as file:
        pieces = reading(file)
        while True:
            piece = next(pieces, None)
            if piece is None:
                return
            yield piece
    raise DataError(
        f"expected a readable part {path.name}, found it damaged or too densely packed; write it"
    )


def _reader(path: Path) -> Callable[[Any], Iterator[Cells]]:
    try:
        import pyarrow.ipc as ipc
        import pyarrow.parquet as parquet
    except ImportError:
        raise DataError(
            f"expected pyarrow to read {path.name}, found that it is not installed; "
            f"{with_extra('parquet')}"
        ) from None

    def parquet_cells(file: Any) -> Iterator[Cells]:
        size = file.seek(0, 2)
        opened = parquet.ParquetFile(file, thrift_string_size_limit=size + 1)
        if not is_in_proportion(opened.metadata, len(opened.schema_arrow.names), size):
            raise ValueError(path.name)
        for batch in opened.iter_batches(_ROWS, use_threads=False):
            yield cells_of(_columns(batch))

    def arrow_cells(file: Any) -> Iterator[Cells]:
        opened = ipc.open_file(file)
        for place in range(opened.num_record_batches):
            batch = opened.get_batch(place)
            for start in range(0, batch.num_rows, _ROWS):
                yield cells_of(_columns(batch.slice(start, _ROWS)))

    return parquet_cells if path.suffix.lower() == ".parquet" else arrow_cells


def _columns(batch: Any) -> dict[str, list[object]]:
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise ValueError("a column twice")
    return {name: batch.column(name).to_pylist() for name in names}
