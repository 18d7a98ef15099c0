"""Cells that come piece by piece as one table for drafting and checking: the first of many rows."""

from __future__ import annotations

from hubbub.core.errors import DataError
from hubbub.core.study.extracts.cell_stream import CellStream
from hubbub.desk.drafting.raw_table import Fault, RawTable

MOST_ROWS = 200_000


def raw_of(stream: CellStream) -> RawTable:
    """The first rows of a source, as texts.

    Raises:
        DataError: it cannot be read, or there are none.
    """
    rows: list[tuple[str, ...]] = []
    header: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    for cells in stream.pieces():
        header = tuple(cells)
        rows += zip(*cells.values(), strict=True)
        if len(rows) > MOST_ROWS:
            rows = rows[:MOST_ROWS]
            said = f"only the first {MOST_ROWS} rows were looked at"
            remedy = "a run reads all of them"
            faults = (Fault(file=stream.origin, what=said, remedy=remedy, refused=False),)
            break
    if not rows:
        raise DataError(f"expected records in {stream.origin}, found none; see what it selects")
    return RawTable(
        origin=stream.origin,
        header=header,
        rows=tuple(rows),
        numbers=tuple(range(1, len(rows) + 1)),
        faults=faults,
    )
