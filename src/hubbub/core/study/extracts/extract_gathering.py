"""Pieces of cells become arrays on disk, encoded and sealed, in bounded memory.

Of each row a few numbers that put it in its place stay in memory (`row_order`); the rest is sealed
as it comes, and opened once for each block of what is written in the end. This file knows cells and
arrays; it must not know where they came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.core.study.data import Data, groups_of_cells, records_of_cells, target_unified
from hubbub.core.study.extracts.cell_stream import Cells, CellStream
from hubbub.core.study.extracts.fitting import fitted, order_number, plain_row, refuse_absent
from hubbub.core.study.extracts.row_order import RowOrder
from hubbub.core.study.extracts.sealed_arrays import Arrays, Seal, SealedFile
from hubbub.core.study.study import Study
from hubbub.core.tabular.patient_keys import patient_key
from hubbub.core.tabular.table import coded_cells

_BLOCK = 1 << 28  # bytes of what is written that are in memory at once


def gather(study: Study, stream: CellStream, folder: Path, seal: Seal) -> dict[str, dict[str, Any]]:
    """Write what a study asks of a stream into a folder, one array a file.

    Args:
        study: says what is read of the cells, and how.
        stream: of one silo.
        folder: where `NAME.sealed` come to be: inputs and targets for a model, cells for
            statistics, patients.
        seal: of the extract.

    Returns:
        What is said of each array.

    Raises:
        DataError: cells do not fit the study, or there are none; no sentence says in which row.
    """
    growing = _Growing(folder, seal, placed=bool(study.data.patient))
    rows = RowOrder(ordered=stream.ordered)
    for cells in _pieces(study, stream):
        arrays = _encoded(study, cells, stream.origin)
        growing.add(arrays)
        if study.data.patient:
            people, order = _people(cells, study.data), _order(cells, study.data, stream.origin)
            rows.add(people, order, list(arrays.values()))
    if not growing.files:
        raise DataError(f"expected records in {stream.origin}, found none; see what it selects")
    if not study.data.patient:
        return growing.closed()
    chosen, patients = rows.chosen(study.data.most_per_patient)
    del rows
    return growing.placed(chosen, patients)


def _pieces(study: Study, stream: CellStream) -> Iterator[Cells]:
    """The cells; of what a query gives those that fit, and at least none."""
    if stream.ordered:
        yield from stream.pieces()
        return
    yield {name: [] for name in plain_row(study.data)}
    for cells in stream.pieces():
        yield fitted(study, cells, stream.origin)


def _encoded(study: Study, cells: Cells, origin: str) -> Arrays:
    """The arrays of a piece; of one without rows those of none."""
    some = len(next(iter(cells.values()), ()))
    given = cells if some else {name: [text] for name, text in plain_row(study.data).items()}
    said = ""
    try:
        found = _arrays(study, given, origin)
        return found if some else {name: array[:0] for name, array in found.items()}
    except DataError as error:
        before, mark, after = str(error).partition(", row ")
        said = before + after.partition(" after the header")[2] if mark else before
    raise DataError(f"{said} (hubbub check lists all that is wrong at once)")


def _arrays(study: Study, cells: Cells, origin: str) -> Arrays:
    data = study.data
    arrays: Arrays = {}
    if study.trains:
        records = records_of_cells(data, cells, origin)
        arrays |= {"inputs": records.inputs, "targets": records.targets}
    if study.subgroups:
        arrays["groups"] = groups_of_cells(data, study.subgroups, cells, origin)
    if study.reads_cells:
        unified = target_unified(data, cells)
        coded = coded_cells(unified, study.cell_columns.values(), origin)
        arrays["cells"] = np.column_stack(list(coded.columns.values()))
    for name in filter(None, (data.patient, data.order)):
        refuse_absent(cells, name, origin)
    if data.patient and "" in _people(cells, data):
        raise DataError(
            f"expected a patient for every record in {origin}, column {data.patient!r}, found "
            "none; fill it in or leave the record out"
        )
    return arrays


def _people(cells: Cells, data: Data) -> list[str]:
    """Whose each row is."""
    known = {text: patient_key(text) for text in set(cells[data.patient])}
    return [known[text] for text in cells[data.patient]]


def _order(cells: Cells, data: Data, origin: str) -> NDArray[np.float64]:
    """(n,): what puts a patient's rows in order; who has nothing there comes last."""
    if not data.order:
        return np.zeros(len(cells[data.patient]))
    known = {text: order_number(text) for text in set(cells[data.order])}
    if None in known.values():
        raise DataError(
            f"expected numbers or dates such as 2024-05-31 in {origin}, column {data.order!r}, "
            "found something else; correct data.order"
        )
    return np.array([known[text] for text in cells[data.order]], dtype=np.float64)


class _Growing:
    """Arrays that grow row by row, each in a sealed file."""

    def __init__(self, folder: Path, seal: Seal, *, placed: bool) -> None:
        self._folder, self._seal = folder, seal
        self._about = "raw {}" if placed else "{}"  # what comes is no piece of what is kept
        self.files: dict[str, SealedFile] = {}

    def add(self, arrays: Arrays) -> None:
        """More rows."""
        for name, array in arrays.items():
            if name not in self.files:
                self.files[name] = self._file(name, "raw", self._about.format(name), array)
            self.files[name].add(array)

    def closed(self) -> dict[str, dict[str, Any]]:
        """The arrays as they came."""
        for name in self.files:
            (self._folder / f"{name}.raw").rename(self._folder / f"{name}.sealed")
        return {name: file.said() for name, file in self.files.items()}

    def placed(
        self, chosen: NDArray[np.intp], patients: NDArray[np.intp]
    ) -> dict[str, dict[str, Any]]:
        """The arrays in their final order, without rows beyond those of a patient."""
        said = {}
        for name, raw in self.files.items():
            final = SealedFile(
                self._folder / f"{name}.sealed", self._seal, name, raw.kind, raw.shape
            )
            step = max(1, _BLOCK // max(raw.row_bytes, 1))
            for start in range(0, len(chosen), step):
                final.add(_block(raw, chosen[start : start + step]))
            (self._folder / f"{name}.raw").unlink()
            said[name] = final.said()
        final = self._file("patients", "sealed", "patients", patients)
        final.add(patients)
        return {**said, "patients": final.said()}

    def _file(self, name: str, ending: str, about: str, array: NDArray[Any]) -> SealedFile:
        path = self._folder / f"{name}.{ending}"
        return SealedFile(path, self._seal, about, array.dtype, array.shape[1:])


def _block(raw: SealedFile, rows: NDArray[np.intp]) -> NDArray[Any]:
    """Some rows of an array, in their order."""
    found = np.empty((len(rows), *raw.shape), dtype=raw.kind)
    order = np.argsort(rows)
    wanted = rows[order]
    for first, piece in raw.pieces():
        start, end = np.searchsorted(wanted, (first, first + piece.rows))
        if start < end:
            found[order[start:end]] = piece.opened()[wanted[start:end] - first]
    return found
