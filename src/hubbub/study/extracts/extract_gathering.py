"""Pieces of cells become arrays on disk, encoded, in bounded memory.

Rows of a database come in any order. Here they are put in one that follows from themselves: by
person, then by `data.order`, then by what is in the row; so which of a person's rows are the first
ones depends on that person's rows alone (docs/privacy.md P31), and two engines that hold the same
rows give the same bytes. A person's place among others is by a hash of the key. This file knows
cells and arrays; it must not know where they came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import DataError
from hubbub.study.data import Data, columns_of, records_of_cells, target_unified
from hubbub.study.extracts.cell_stream import Cells, CellStream
from hubbub.study.study import Study
from hubbub.tabular import coded_cells, number_in, patient_key
from hubbub.tabular.records import first_rows

_CHUNK = 1 << 16  # rows that are moved at once
Arrays = dict[str, NDArray[Any]]
_CONTENT: tuple[str, ...] = ("inputs", "targets", "cells")


def gather(study: Study, stream: CellStream, folder: Path) -> list[str]:
    """Write what a study asks of a stream into a folder, one array a file.

    Args:
        study: says what is read of the cells, and how.
        stream: of one silo.
        folder: where `NAME.npy` come to be: inputs and targets for a model, cells for statistics,
            patients.

    Returns:
        The names.

    Raises:
        DataError: cells do not fit the study, or there are none; no sentence says in which row.
    """
    with ExitStack() as opened:
        growing = _Growing(folder, opened)
        for piece in _encoded(study, stream):
            growing.add(piece)
        raw = growing.arrays()
    if not raw:
        raise DataError(f"expected records in {stream.origin}, found none; see what it selects")
    return _placed(raw, study.data, folder, ordered=stream.ordered)


def _encoded(study: Study, stream: CellStream) -> Iterator[Arrays]:
    """The arrays of each piece."""
    for cells in stream.pieces():
        said = ""
        try:
            yield _arrays(study, cells, stream.origin)
        except DataError as error:
            before, mark, after = str(error).partition(", row ")
            said = before + after.partition(" after the header")[2] if mark else before
        if said:
            raise DataError(f"{said} (hubbub check lists all that is wrong at once)")


def _arrays(study: Study, cells: Cells, origin: str) -> Arrays:
    data = study.data
    found: Arrays = {}
    if study.model is not None:
        records = records_of_cells(data, cells, origin)
        found |= {"inputs": records.inputs, "targets": records.targets}
    if study.reads_cells:
        unified = target_unified(data, cells)
        coded = coded_cells(unified, columns_of(data).values(), origin)
        found["cells"] = np.column_stack(list(coded.columns.values()))
    if data.patient:
        found["people"] = _people(cells, data.patient, origin)
    if data.order:
        found["order"] = _order(cells, data.order, origin)
    return found


def _people(cells: Cells, column: str, origin: str) -> NDArray[np.uint64]:
    """(n, 2): the hash of whose each row is; two people share one with chance 2^-80 at most."""
    _refuse_absent(cells, column, origin)
    numbers = b"".join(map(_person, cells[column]))
    if b"" in {_person(text) for text in set(cells[column])}:
        raise DataError(
            f"expected a patient for every record in {origin}, column {column!r}, found none; fill "
            "it in or leave the record out"
        )
    return np.frombuffer(numbers, dtype="<u8").reshape(-1, 2)


@lru_cache(maxsize=1 << 16)
def _person(text: str) -> bytes:
    key = patient_key(text)
    return blake2b(key.encode(), digest_size=16).digest() if key else b""


def _order(cells: Cells, column: str, origin: str) -> NDArray[np.float64]:
    """(n,): what puts a patient's rows in order; who has nothing there comes last."""
    _refuse_absent(cells, column, origin)
    known = {text: _number(text) for text in set(cells[column])}
    if None in known.values():
        raise DataError(
            f"expected numbers or dates such as 2024-05-31 in {origin}, column {column!r}, found "
            "something else; correct data.order"
        )
    return np.array([known[text] for text in cells[column]], dtype=np.float64)


def _number(text: str) -> float | None:
    if not text:
        return float("inf")
    if (value := number_in(text)) is not None:
        return value
    try:
        return float(date.fromisoformat(text[:10]).toordinal())
    except ValueError:
        return None


def _refuse_absent(cells: Cells, column: str, origin: str) -> None:
    if column not in cells:
        raise DataError(
            f"expected a column {column!r} in {origin}, found none of that name; name it in the "
            "result, or correct the study"
        )


class _Growing:
    """Arrays that grow row by row, each in a file."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._folder, self._opened = folder, opened
        self._files: dict[str, IO[bytes]] = {}
        self._kinds: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def add(self, arrays: Arrays) -> None:
        """More rows."""
        for name, array in arrays.items():
            if name not in self._files:
                path = self._folder / f"{name}.raw"
                self._files[name] = self._opened.enter_context(path.open("xb"))
                self._kinds[name] = array.dtype, array.shape[1:]
            self._files[name].write(np.ascontiguousarray(array).data)

    def arrays(self) -> Arrays:
        """All rows."""
        for file in self._files.values():
            file.flush()
        found = {}
        for name, (kind, shape) in self._kinds.items():
            flat = np.memmap(self._folder / f"{name}.raw", dtype=kind, mode="r")
            found[name] = flat.reshape(-1, *shape)
        return found


def _placed(raw: Arrays, data: Data, folder: Path, *, ordered: bool) -> list[str]:
    """Write the arrays in their final order, without rows beyond those of a patient."""
    content: list[str] = [name for name in _CONTENT if name in raw]
    chosen: NDArray[np.intp] | None = None
    final: Arrays = {}
    if "people" in raw:
        units = _units(raw["people"])
        if ordered:
            units = _as_they_come(units)
            chosen = np.arange(len(units), dtype=np.intp)
        else:
            chosen = _own_order(units, raw, content)
        chosen = chosen[first_rows(units[chosen], data.most_per_patient)]
        final["patients"] = units[chosen]
    for name in content:
        _write(folder / f"{name}.npy", raw[name], chosen)
    for name, array in final.items():
        np.save(folder / f"{name}.npy", array)
    for name in raw:
        (folder / f"{name}.raw").unlink()
    return [*content, *final]


def _units(people: NDArray[np.uint64]) -> NDArray[np.intp]:
    """(n,): the number of each row's person, from 0, in the order of their hashes."""
    order = np.lexsort((people[:, 1], people[:, 0]))
    ordered = people[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    units = np.empty(len(order), dtype=np.intp)
    units[order] = np.cumsum(first) - 1
    return units


def _as_they_come(units: NDArray[np.intp]) -> NDArray[np.intp]:
    """The numbers of people in the order in which they come."""
    _, firsts = np.unique(units, return_index=True)
    rank = np.empty(len(firsts), dtype=np.intp)
    rank[np.argsort(firsts)] = np.arange(len(firsts))
    return rank[units]


def _own_order(units: NDArray[np.intp], raw: Arrays, content: list[str]) -> NDArray[np.intp]:
    """The order of rows that follows from themselves."""
    by = raw.get("order", np.zeros(1))
    keys = (by, units) if len(by) == len(units) else (units,)
    chosen = np.lexsort(keys).astype(np.intp)
    same = np.ones(max(len(chosen) - 1, 0), dtype=bool)
    for key in keys:
        own = key[chosen]
        same &= own[1:] == own[:-1]
    for start, end in _stretches(same):
        rows = chosen[start:end]
        parts = [b"".join(raw[name][row].tobytes() for name in content) for row in rows]
        chosen[start:end] = rows[sorted(range(len(rows)), key=parts.__getitem__)]
    return chosen


def _stretches(same: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Stretches of rows of which each is as the one before."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    for start, end in edges.reshape(-1, 2):
        yield int(start), int(end) + 1


def _write(path: Path, source: NDArray[Any], chosen: NDArray[np.intp] | None) -> None:
    """Some rows of an array, piece by piece."""
    rows = len(source) if chosen is None else len(chosen)
    shape = (rows, *source.shape[1:])
    target = np.lib.format.open_memmap(path, mode="w+", dtype=source.dtype, shape=shape)
    for start in range(0, rows, _CHUNK):
        part = slice(start, start + _CHUNK)
        target[part] = source[part] if chosen is None else source[chosen[part]]
    target.flush()
