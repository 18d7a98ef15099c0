"""A table of one silo's records: checked against what the study declares, then encoded.

For a model cells become features and targets. For statistics a number is clipped to the column's
public bounds, a category is its place in the public list, and what is missing is not a number: no
default stands in for it, as one does in features. Errors never have the content of a cell.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError, StudyError
from hubbub.core.tabular.cells import (
    Rule,
    at_row,
    canonical,
    label_rule,
    number_in,
    number_rule,
    read_column,
)
from hubbub.core.tabular.column import Column, column_features
from hubbub.core.tabular.records import Records, UnitRows, patient_numbers, unit_rows
from hubbub.core.tabular.target import Outcome, outcomes, two_classes

TWO_CLASSES = ("0", "1")
Codes = NDArray[np.float64]


def encode_table(
    cells: Mapping[str, Sequence[str]],
    *,
    target: str,
    columns: Sequence[Column] = (),
    positive: Sequence[str] = (),
    negative: Sequence[str] = (),
    classes: Sequence[str] = TWO_CLASSES,
    patient: str = "",
    outcome: Outcome | None = None,
    origin: str = "table",
) -> Records:
    """The records in the cells of one silo's table.

    Guarantees:
        1. A record's features depend on that record and the arguments alone.
        2. No error carries the content of a cell.

    Args:
        cells: for each column the text of its cells; "" is a missing cell.
        target: the column to be learned.
        columns: what becomes features, in this order. Without any, all columns but the target must
            be numeric and are used unscaled, in header order.
        positive, negative: spellings of the target that count as 1, and as 0; others are refused.
        classes: without these, class k is the k-th spelling. Two classes give float32 in {0, 1},
            more give int64; none: the target is the number 0 or 1.
        patient: beside `columns`, the column that says whose record it is; empty: none.
        outcome: what the target, then float64, is if it is no class.
        origin: what error messages call the table.

    Raises:
        DataError: the cells do not fit the declared columns.
        StudyError: the arguments contradict each other.
    """
    named = _named(target, outcome)
    names = [column.name for column in columns]
    for name in named:
        if name in names:
            raise StudyError(
                f"expected the target {name!r} not to be a feature too, found it among the "
                "columns; remove it from data.columns"
            )
    if len(set(names)) < len(names):
        raise StudyError("expected every column once, found a name twice; remove one of the two")
    check_present(cells, [*named, *names], origin)
    if not cells[target]:
        raise DataError(f"expected at least one record in {origin}, found none; check the file")
    where = f"{origin}, column {target!r}"
    targets: NDArray[Any]
    if outcome is not None:
        targets = outcomes(outcome, target, cells, origin)
    elif not (positive or classes):
        targets = read_column(cells[target], number_rule, where).astype(np.float32)
    else:
        rule = class_rule(positive, negative, classes)
        kind = np.int64 if len(classes) > 2 and not positive else np.float32
        targets = read_column(cells[target], rule, where).astype(kind)
    inputs = encode_inputs(cells, target=target, columns=columns, outcome=outcome, origin=origin)
    return Records(inputs=inputs, targets=targets, patients=_patients(cells, patient, origin))


def _patients(
    cells: Mapping[str, Sequence[str]], column: str, origin: str
) -> NDArray[np.intp] | None:
    """Whose each record is, (n,), as numbers from 0; None if it is not asked."""
    if not column:
        return None
    check_present(cells, [column], origin)
    return patient_numbers(cells[column], partial(at_row, f"{origin}, column {column!r}"))


def encode_inputs(
    cells: Mapping[str, Sequence[str]],
    *,
    target: str,
    columns: Sequence[Column] = (),
    outcome: Outcome | None = None,
    origin: str = "table",
) -> NDArray[np.float32]:
    """The features of a table, (n, features) float32, whose target may be missing.

    DataError: a cell does not fit its column, a column is missing, or there is none.
    """
    check_present(cells, [column.name for column in columns], origin)
    if columns:
        blocks = [
            column_features(c, cells[c.name], f"{origin}, column {c.name!r}") for c in columns
        ]
    else:
        names = [name for name in cells if name not in _named(target, outcome)]
        read = (read_column(cells[n], number_rule, f"{origin}, column {n!r}") for n in names)
        blocks = [values[:, None] for values in read]
    if not blocks:
        raise DataError(
            f"expected a column besides the target {target!r} in {origin}, found none; check the "
            "separator of the file"
        )
    return np.hstack(blocks).astype(np.float32)


def _named(target: str, outcome: Outcome | None) -> tuple[str, ...]:
    """The columns of the target."""
    return (target, *(outcome.columns if outcome else ()))


def check_present(
    cells: Mapping[str, Sequence[str]],
    names: Sequence[str],
    origin: str,
    remedy: str = "rename the column in the file or correct the study",
) -> None:
    """Refuse cells without a column that the study names."""
    for name in names:
        if name not in cells:
            raise DataError(
                f"expected a column {name!r} in {origin}, found none of that name; {remedy}"
            )


def class_rule(positive: Sequence[str], negative: Sequence[str], classes: Sequence[str]) -> Rule:
    """The rule of a target that is one of two classes with lists of spellings, or of `classes`.

    StudyError: these are fewer than two, or one is there twice.
    """
    if positive:
        return label_rule(two_classes(positive, negative), "data.positive or data.negative")
    places = {canonical(spelling): place for place, spelling in enumerate(classes)}
    if len(places) != len(classes) or len(places) < 2:
        raise StudyError(
            f"expected at least two different classes, found {list(classes)!r}; list every class "
            "of the target once"
        )
    stated = "data.positive or data.negative" if tuple(classes) == TWO_CLASSES else "data.classes"
    return label_rule(places, stated)


@dataclass(frozen=True)
class CodedCells:
    """One silo's table. Never printed, never sent."""

    # By name (n,): a number within the bounds, or a category's place from 0; NaN where missing.
    columns: Mapping[str, Codes] = field(repr=False)
    # The rows of each patient, where these are the units; each row is one if None.
    units: UnitRows | None = field(default=None, repr=False)
    # Columns in which some number below 0 counts as a bound.
    negative: frozenset[str] = field(default=frozenset(), repr=False)

    def __len__(self) -> int:
        """How many units there are: itself private to the silo."""
        return len(self.unit_rows.rows)

    @property
    def unit_rows(self) -> UnitRows:
        """The rows of each unit."""
        if self.units is not None:
            return self.units
        rows = np.arange(len(next(iter(self.columns.values()))))[:, None]
        return UnitRows(rows=rows, shares=np.ones(rows.shape, np.float32))


def coded_cells(
    cells: Mapping[str, Sequence[str]],
    columns: Collection[Column],
    origin: str,
    *,
    patient: str = "",
    most: int = 0,
) -> CodedCells:
    """The cells of a table that are of these columns; `most` records of a patient count.

    DataError: a column is missing, or a cell is neither of its column nor missing.
    """
    coded = {}
    check_present(cells, [column.name for column in columns], origin)
    for column in columns:
        where = f"{origin}, column {column.name!r}"
        coded[column.name] = read_column(cells[column.name], column.rule_of_cells, where)
    whose = _patients(cells, patient, origin)
    units = None if whose is None else unit_rows(whose, most)
    negative = frozenset(column.name for column in columns if _reads_negatives(column, cells))
    return CodedCells(coded, units, negative)


def _reads_negatives(column: Column, cells: Mapping[str, Sequence[str]]) -> bool:
    """Whether a column of numbers from 0 on has one below that does not mean missing."""
    if column.low is None or column.low < 0:
        return False
    absent = set(map(column.spelled, column.missing))
    spelled = set(map(column.spelled, set(cells[column.name]))) - absent
    return any((number_in(text) or 0.0) < 0 for text in spelled)
