"""The extract: what a source gave a study at one reading, encoded and sealed, kept at the site.

A table may change while a study goes on, and nobody may see that it does: records are read once,
before others are told that this party is there, and what was read is used until the study is over,
withdrawn or begun anew. It lies in the party's folder, sealed: `extracts/ID-NAME/`, by
`extracts.key`.

Pieces of cells become arrays in bounded memory: of each row a few numbers that put it in its place
stay in memory (`RowOrder`); the rest is sealed as it comes. This file must not know where cells
came from.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.disk import locked, sync_folder, why_of
from hubbub.core.errors import DataError
from hubbub.core.study.cell_stream import Cells, CellStream
from hubbub.core.study.data import Data, groups_of_cells, records_of_cells, target_unified
from hubbub.core.study.sealed_arrays import (
    HEAD,
    Arrays,
    Seal,
    SealedFile,
    key_in,
    read_arrays,
    write_head,
)
from hubbub.core.study.study import Study
from hubbub.core.tabular.cells import MISSING as NO_NUMBER
from hubbub.core.tabular.cells import CellFault, Rule, at_row, number_in
from hubbub.core.tabular.records import (
    Records,
    first_rows,
    patient_key,
    patient_numbers,
    unit_rows,
)
from hubbub.core.tabular.table import CodedCells, check_present, class_rule, coded_cells

EXTRACTS, _MAKING, _LOCK = "extracts", ".making-", "lock"
SOURCES, _HOME = "sources.toml", "hubbub-home"
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_BLOCK = 1 << 28  # bytes of what is written that are in memory at once
_GAP = ""  # the text of a missing cell
Hashes = NDArray[np.uint64]  # (n, 2)
_HASH_BYTES = 16
_NONE = np.empty((0, 2), dtype="<u8")


def home_of(folder: Path) -> Path:
    """The party's folder: the one that is given, or `hubbub-home` in it."""
    inner = folder / _HOME
    return inner if not (folder / SOURCES).is_file() and inner.is_dir() else folder


def records_in(study: Study, party: str, home: Path, opened: Callable[[], CellStream]) -> Records:
    """A silo's records: those of its extract, which is made in its home where there is none yet.

    DataError: the source that is `opened` cannot be read, or the extract was damaged.
    """
    names = ("inputs", "targets", "patients", "groups")
    return Records(**_extract(study, party, home, opened, names))


def cells_in(study: Study, party: str, home: Path, opened: Callable[[], CellStream]) -> CodedCells:
    """A silo's cells for statistics; see `records_in`."""
    extract = _extract(study, party, home, opened, ("cells", "patients"))
    units = None
    if "patients" in extract:
        units = unit_rows(np.asarray(extract["patients"]), study.data.most_per_patient)
    columns = {name: extract["cells"][:, place] for place, name in enumerate(study.cell_columns)}
    return CodedCells(columns, units)


def forget(study: bytes, party: str, home: Path) -> None:
    """Remove a study's extract, and what a process that was killed had begun: it is over here."""
    place = _place(study, party, home)
    shutil.rmtree(place, ignore_errors=True)
    _sweep(place.parent)


def is_kept(study: Study, party: str, home: Path) -> bool:
    """Whether a study's extract is there."""
    return (_place(study.id, party, home) / HEAD).is_file()


def _place(study: bytes, party: str, home: Path) -> Path:
    return home / EXTRACTS / f"{study.hex()[:32]}-{party}"


def _seal(study: Study, party: str, home: Path) -> Seal:
    return Seal(key_in(home), f"{study.id.hex()} {party}")


def _extract(
    study: Study, party: str, home: Path, opened: Callable[[], CellStream], names: tuple[str, ...]
) -> Arrays:
    """Some arrays of an extract, and what there is of them."""
    if not is_kept(study, party, home):
        _make(study, party, home, opened())
    place = _place(study.id, party, home)
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        return read_arrays(place, _seal(study, party, home), names)
    raise DataError(
        f"expected what was read for {study.name} as it was kept in {place.resolve()} for "
        f"{party}, found it altered; bring back a copy, or withdraw the study"
    )


def _make(study: Study, party: str, home: Path, stream: CellStream) -> None:
    """Read a source once; the extract is there whole, or not at all."""
    place = _place(study.id, party, home)
    with ExitStack() as held:
        try:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _sweep(place.parent)
            scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=_MAKING))  # its owner's alone
            held.callback(shutil.rmtree, scratch, ignore_errors=True)
            held.enter_context(locked(scratch / _LOCK))
            seal = _seal(study, party, home)
        except (OSError, ValueError) as error:
            why = why_of(error) if isinstance(error, OSError) else "a key that is none"
            raise DataError(
                f"expected to keep what is read in {place.parent.resolve()}, got: {why}; see who "
                "may write there"
            ) from None
        write_head(scratch, seal, gather(study, stream, scratch, seal))
        with suppress(OSError):  # another process was first: its extract is the study's
            scratch.rename(place)
            sync_folder(place.parent)


def _sweep(folder: Path) -> None:
    """Remove what a process that was killed has begun."""
    for left in folder.glob(f"{_MAKING}*"):
        with suppress(OSError):  # it is being made
            with locked(left / _LOCK):
                pass
            shutil.rmtree(left, ignore_errors=True)


# From cells to arrays.


def gather(study: Study, stream: CellStream, folder: Path, seal: Seal) -> dict[str, dict[str, Any]]:
    """Write what a study asks of a silo's stream into a folder, and say what is there.

    One array is a file `NAME.sealed`: inputs and targets for a model, cells for statistics,
    patients. DataError: cells do not fit, or there are none; no sentence says in which row.
    """
    data, growing = study.data, _Growing(folder, seal, placed=bool(study.data.patient))
    rows = RowOrder(ordered=stream.ordered)
    for cells in _pieces(study, stream):
        arrays = _encoded(study, cells, stream.origin)
        growing.add(arrays)
        if data.patient:
            order = _order(cells, data, stream.origin)
            rows.add(_people(cells, data), order, list(arrays.values()))
    if not growing.files:
        raise DataError(f"expected records in {stream.origin}, found none; see what it selects")
    if not data.patient:
        return growing.closed()
    chosen, patients = rows.chosen(data.most_per_patient)
    del rows  # 40 bytes a row, beside the blocks to come
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
    rows = len(next(iter(cells.values()), ()))
    given = cells if rows else {name: [text] for name, text in plain_row(study.data).items()}
    try:
        return {name: array[:rows] for name, array in _arrays(study, given, origin).items()}
    except DataError as error:  # which row it is, is left out
        before, mark, after = str(error).partition(", row ")
        fault = before + after.partition(" after the header")[2] if mark else before
    raise DataError(f"{fault} (hubbub check lists all that is wrong at once)")


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
    _refuse_absent(cells, [*filter(None, (data.patient, data.order))], origin)
    if data.patient:
        patient_numbers(cells[data.patient], partial(at_row, f"{origin}, column {data.patient!r}"))
    return arrays


_refuse_absent = partial(check_present, remedy="name it in the result, or correct the study")


def _people(cells: Cells, data: Data) -> list[str]:
    """Whose each row is."""
    keys = {text: patient_key(text) for text in set(cells[data.patient])}
    return [keys[text] for text in cells[data.patient]]


def _order(cells: Cells, data: Data, origin: str) -> NDArray[np.float64]:
    """(n,): what puts a patient's rows in order; who has nothing there comes last."""
    if not data.order:
        return np.zeros(len(cells[data.patient]))
    numbers = {text: order_number(text) for text in set(cells[data.order])}
    if None in numbers.values():
        raise DataError(
            f"expected numbers or dates such as 2024-05-31 in {origin}, column {data.order!r}, "
            "found something else; correct data.order"
        )
    return np.array([numbers[text] for text in cells[data.order]], dtype=np.float64)


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
                path, about = self._folder / f"{name}.raw", self._about.format(name)
                shape = array.shape[1:]
                self.files[name] = SealedFile(path, self._seal, about, array.dtype, shape)
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
        described = {}
        for name, raw in self.files.items():
            final = self._final(name, raw.kind, raw.shape)
            step = max(1, _BLOCK // max(raw.row_bytes, 1))
            for start in range(0, len(chosen), step):
                final.add(_block(raw, chosen[start : start + step]))
            (self._folder / f"{name}.raw").unlink()
            described[name] = final.said()
        final = self._final("patients", patients.dtype, ())
        final.add(patients)
        return {**described, "patients": final.said()}

    def _final(self, name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> SealedFile:
        return SealedFile(self._folder / f"{name}.sealed", self._seal, name, kind, shape)


def _block(raw: SealedFile, rows: NDArray[np.intp]) -> NDArray[Any]:
    """Some rows of an array, in their order."""
    block = np.empty((len(rows), *raw.shape), dtype=raw.kind)
    order = np.argsort(rows)
    wanted = rows[order]
    first = 0
    for place, count in enumerate(raw.rows):
        start, end = np.searchsorted(wanted, (first, first + count))
        if start < end:  # each piece is opened once
            block[order[start:end]] = raw.opened(place, first)[wanted[start:end] - first]
        first += count
    return block


# Which rows stand where: an order that follows from the rows themselves.
#
# A database gives rows in any order. Rows of a person are put in that of `data.order`, then of a
# hash of what is encoded of them; people in that of a hash of their rows. So which of a person's
# rows are the first ones depends on that person's rows alone, and nothing that is kept follows from
# whose rows they are: keys only group rows, by a hash whose key is forgotten (docs/privacy.md P31).


@dataclass
class RowOrder:
    """What is kept in memory of each row until all have come."""

    ordered: bool  # whether rows come in an order that is theirs
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _people: list[Hashes] = field(default_factory=list, repr=False)
    _orders: list[NDArray[np.float64]] = field(default_factory=list, repr=False)
    _rows: list[Hashes] = field(default_factory=list, repr=False)

    def add(
        self, people: list[str], order: NDArray[np.float64], encoded: list[NDArray[np.generic]]
    ) -> None:
        """More rows: whose each is, what orders a person's (n,), what is kept of each (n, ...)."""
        digests = {
            person: blake2b(person.encode(), digest_size=_HASH_BYTES, key=self._key).digest()
            for person in set(people)
        }
        self._people.append(_hashes(b"".join([digests[person] for person in people])))
        if not self.ordered:
            self._orders.append(order)
            self._rows.append(_row_hashes(encoded, len(people)))

    def chosen(self, most: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which rows stay, `most` of a person, in their final order; each one's person, from 0."""
        units = _numbers(np.concatenate([_NONE, *self._people]))
        if self.ordered:
            # People are numbered in the order in which they come.
            _, firsts = np.unique(units, return_index=True)
            rank = np.empty(len(firsts), dtype=np.intp)
            rank[np.argsort(firsts)] = np.arange(len(firsts))
            units = rank[units]
            rows = np.flatnonzero(first_rows(units, most))
            return rows, units[rows]
        hashes = np.concatenate([_NONE, *self._rows])
        order = np.concatenate([np.empty(0), *self._orders])
        rows = np.lexsort((hashes[:, 1], hashes[:, 0], order, units)).astype(np.intp)
        rows = rows[first_rows(units[rows], most)]
        return _people_in_order(rows, units[rows], hashes)


def _people_in_order(
    rows: NDArray[np.intp], units: NDArray[np.intp], hashes: Hashes
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows, which lie person by person, with people put in the order of what they have."""
    starts = np.flatnonzero(np.diff(units, prepend=-1))
    counts = np.diff(starts, append=len(units))
    # A person with one row stands by its hash; with several, by the hash of these hashes.
    own = hashes[rows[starts]]
    for unit in np.flatnonzero(counts > 1):
        start = starts[unit]
        content = hashes[rows[start : start + counts[unit]]].tobytes()
        own[unit] = _hashes(blake2b(content, digest_size=_HASH_BYTES).digest())[0]
    ranks = np.lexsort((own[:, 1], own[:, 0]))
    counts = counts[ranks]
    before = np.cumsum(counts) - counts  # rows of those who come before each
    begin = np.repeat(starts[ranks] - before, counts)
    placed = rows[begin + np.arange(len(rows))]
    return placed, np.repeat(np.arange(len(ranks), dtype=np.intp), counts)


def _row_hashes(encoded: list[NDArray[np.generic]], rows: int) -> Hashes:
    """Of the bytes of each row."""
    if not rows:
        return _hashes(b"")
    parts = [np.ascontiguousarray(array).reshape(rows, -1).view(np.uint8) for array in encoded]
    content = np.hstack(parts)
    width, flat = content.shape[1], content.tobytes()
    starts = range(0, len(flat), width)
    digests = (blake2b(flat[k : k + width], digest_size=_HASH_BYTES).digest() for k in starts)
    return _hashes(b"".join(digests))


def _hashes(content: bytes) -> Hashes:
    return np.frombuffer(content, dtype="<u8").reshape(-1, 2)


def _numbers(people: Hashes) -> NDArray[np.intp]:
    """(n,): the number of each row's person, from 0."""
    order = np.lexsort((people[:, 1], people[:, 0]))
    ordered = people[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    units = np.empty(len(order), dtype=np.intp)
    units[order] = np.cumsum(first) - 1
    return units


# What a query gave, as cells that fit: those that do not are missing, or their row is nobody's.
#
# Whoever writes a query and declares its columns could have a silo fail at one person's cell, and
# so tell of it (docs/privacy.md P31). So no cell does. One that is none of its column's counts as a
# missing one, which has a default or is a gap; a row that cannot have one, such as a row without
# its target, is left out. A column that is not there is the study's fault, and is refused.


def fitted(study: Study, cells: Cells, origin: str) -> Cells:
    """The cells of the rows that stay, each of its column or missing."""
    data, rules = study.data, _rules(study)
    fitting = dict(cells)
    stays = [True] * len(next(iter(cells.values()), ()))
    _refuse_absent(cells, [*rules], origin)
    for name, rule in rules.items():
        # P31: no cell makes a silo fail, which others would see; each row is judged by itself.
        may_be_missing = not isinstance(rule(_GAP), CellFault)
        fits = {text: not isinstance(rule(text), CellFault) for text in set(cells[name])}
        fitting[name] = [text if fits[text] else _GAP for text in cells[name]]
        if not may_be_missing:
            stays = [kept and fits[text] for kept, text in zip(stays, cells[name], strict=True)]
    if data.order and data.order in cells and data.order not in rules:
        is_order = {text: order_number(text) is not None for text in set(cells[data.order])}
        fitting[data.order] = [text if is_order[text] else _GAP for text in cells[data.order]]
    if data.patient in cells:
        people = _people(cells, data)
        stays = [kept and bool(person) for kept, person in zip(stays, people, strict=True)]
    if all(stays):
        return fitting
    return {name: list(compress(column, stays)) for name, column in fitting.items()}


def _rules(study: Study) -> dict[str, Rule]:
    """By column what its cells say; where an empty one is a fault, a row without it is left out."""
    data, outcome = study.data, study.data.outcome
    rules = {}
    for name, column in study.cell_columns.items():
        trained = study.trains and column.feature and name not in data.targets
        rules[name] = column.rule if trained else column.rule_with_gaps
    if outcome is None and data.target:
        rule = class_rule(data.positive, data.negative, data.classes)
        rules[data.target] = (
            rule if study.trains else lambda text: rule(text) if text else NO_NUMBER
        )
    elif outcome is not None and study.trains:
        rules[data.target] = outcome.rule
        rules |= {name: outcome.rule_of(name) for name in outcome.columns}
    return rules


def plain_row(data: Data) -> dict[str, str]:
    """A row that fits, of nobody: what arrays of no rows are shaped by."""
    row = {
        column.name: column.categories[0] if column.categories else str(column.low)
        for column in data.columns
    }
    outcome = data.outcome
    if outcome is not None:
        row[data.target] = str(max(outcome.low, 0.0))
        if outcome.event:
            row[outcome.event] = outcome.positive[0]
        if outcome.exposure:
            row[outcome.exposure] = str(outcome.exposure_high)
    elif data.target:
        row[data.target] = (data.positive or data.classes or ("0",))[0]
    if data.order:
        row.setdefault(data.order, "0")
    return row | ({data.patient: "1"} if data.patient else {})


def order_number(text: str) -> float | None:
    """What a cell of `data.order` counts as, a number or days; None: it is neither.

    >>> order_number("2024-05-31 18:00") - order_number("2024-05-31T09:00+03:00")
    0.5
    """
    if not text:
        return float("inf")
    if (value := number_in(text)) is not None:
        return value
    for part in (text, text[:10]):  # a time that is spelled in another way is its day
        with suppress(ValueError):
            moment = datetime.fromisoformat(part)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (moment - _FIRST) / timedelta(days=1)
    return None
