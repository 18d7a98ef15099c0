"""The table `[data]`: where each silo finds its records, and what is public about them.

This file knows how records are declared; it reads none, and imports no function that is named. What
a silo reads for them is in `sources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.settings import Key, by_hand, number, settings, table, text, texts, whole, wholes
from hubbub.core.study import import_path
from hubbub.core.study.source import set_source, table_source
from hubbub.core.tabular.cell_rule import canonical
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.core.tabular.outcome import Outcome
from hubbub.core.tabular.records import MOST_PER_PATIENT, Records
from hubbub.core.tabular.table import coded_cells, encode_table

MOST_COUNTS = 1_000_000
_SIZE = {"type": "integer", "minimum": 1}


@settings
class Standardise:
    """Features to mean 0 and standard deviation 1, from sums over all records with noise (P16)."""

    epsilon: Annotated[
        float,
        number(
            0.001,
            50,
            "What the sums may cost ([P16](privacy.md#p16)). All parts of the study's epsilon "
            "beside the training's are at most 0.9 of it.",
        ),
    ]
    bound: Annotated[
        float,
        number(
            0,
            1e9,
            "Public bound of every feature's absolute value; what is beyond it is cut off.",
            above=True,
        ),
    ] = 1.0


@settings
class Data:
    """Where each silo finds its records, and what is public about them."""

    source: Annotated[
        str,
        by_hand(
            text(
                "[Built-in data](data.md#built-in-data), [a function of "
                "yours](data.md#your-own-function), a [query](data.md#databases) to each silo's "
                "database, a [cohort](howto/omop.md) in OMOP, or what `hubbub.fit` is handed.",
                '`"hubbub.datasets:heart"`, `"python:module:function"`, `"sql"`, `"omop"`, '
                '`"in-memory"`',
                default="either",
            )
        ),
    ] = ""
    files: Annotated[
        str,
        by_hand(
            text(
                "Each silo's file. The keys of targets and columns go with files.",
                "path with `{name}`, `.csv`, `.parquet`, or `/`: [parts](data.md#tables-in-parts)",
                default="either",
            )
        ),
    ] = ""
    test: Annotated[str, by_hand(text("The public test file.", "path, `.csv` or `.parquet`"))] = ""
    target: Annotated[
        str,
        Key(
            says="The [target](data.md#the-target): the column of a class, or a table. With "
            "`source` it may be left out.",
            values="text or table",
            schema={"type": ["string", "object"]},
            default="required",
        ),
    ] = "target"
    outcome: Annotated[Outcome | None, "what the target is if it is no class; None: a class."] = (
        None
    )
    positive: Annotated[tuple[str, ...], texts("Spellings of the target that count as 1.")] = ()
    negative: Annotated[
        tuple[str, ...],
        by_hand(
            texts("Spellings that count as 0. A silo whose file has any other one takes no part.")
        ),
    ] = ()
    classes: Annotated[
        tuple[str, ...],
        by_hand(
            texts(
                "Spellings of the target, in the order of the class numbers, instead of these two.",
                "list of at least 2 texts",
            )
        ),
    ] = ("0", "1")
    columns: Annotated[
        tuple[Column, ...],
        table("The columns that become features. Without it: all but the target, as they are."),
    ] = ()
    options: Annotated[
        tuple[tuple[str, int | float | str | bool], ...],
        table(
            "Arguments of the source's function.",
            "table of texts, numbers, truth values",
        ),
    ] = ()
    request: Annotated[Any, "what the study asks of its source, by the source's own keys."] = None
    patient: Annotated[
        str,
        by_hand(
            text(
                "The column that says whose a record is: all records of one patient in a silo are "
                "[one unit](data.md#patients). Without files any name."
            )
        ),
    ] = ""
    most_per_patient: Annotated[
        int,
        by_hand(
            whole(
                1,
                MOST_PER_PATIENT,
                "Public: the most records of one patient. Beside `patient` further ones are left "
                "out; alone, the plan shows what [such a patient](privacy.md#p20) is promised.",
                default="none",
            )
        ),
    ] = 0
    records: Annotated[
        int,
        whole(
            0,
            10**12,
            "Public number of units (patients, or records) of all silos; 0: not public. The sum is "
            'divided by the batch that follows from it; `batch`, `"sgd"` and '
            '`"without-replacement"` need it.',
        ),
    ] = 0
    counts: Annotated[
        tuple[int, ...],
        wholes(
            MOST_COUNTS,
            "Each silo's number of units, `records` in all; [among machines]"
            "(network.md#joint-batches) joint batches demand it.",
            "list of whole numbers above 0",
        ),
    ] = ()
    capacity: Annotated[
        tuple[int, ...],
        Key(
            says="Public: the most units of a silo, from which a batch's rows follow. One with "
            "more takes no part. Without it a silo climbs [a ladder](privacy.md#p19) from an "
            "equal share of `records`, whose step shows and is outside the promise.",
            values="whole number above 0, or a list of one for each silo",
            schema={"anyOf": [_SIZE, {"type": "array", "items": _SIZE}]},
        ),
    ] = ()
    standardise: Annotated[Standardise | None, table("Features to mean 0 and deviation 1.")] = None

    @property
    def is_extracted(self) -> bool:
        """Whether records are read piece by piece, once, and kept: of a database, or of parts."""
        return self.is_asked or self.files.endswith("/")

    @property
    def is_asked(self) -> bool:
        """Whether records are asked of a source with cells, such as a database."""
        return table_source(self.source) is not None

    @property
    def is_public(self) -> bool:
        """Whether records are of a public data set."""
        return set_source(self.source) is not None

    @property
    def order(self) -> str:
        """The column by which a patient's first records are told; empty: any are."""
        source = table_source(self.source)
        return "" if source is None else source.order(self.request)

    @property
    def is_declared(self) -> bool:
        """Whether the study says what is in cells: of files, or of a database."""
        return bool(self.files) or self.is_asked

    @property
    def unit(self) -> str:
        """What is protected: "patient" or "record"."""
        return "patient" if self.patient else "record"

    @property
    def unit_count(self) -> str:
        """How many units there are, in words."""
        return f"the number of {self.unit}s ({self.records})"

    @property
    def places(self) -> int:
        """How many records a unit may have; 0 where each record is one."""
        return self.most_per_patient if self.patient else 0

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns of the target; none where only statistics are asked for."""
        target = (self.target,) if self.target else ()
        return (*target, *(self.outcome.columns if self.outcome else ()))

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that become features."""
        return tuple(column for column in self.columns if column.feature)


def columns_of(data: Data) -> dict[str, Column]:
    """By name the columns that statistics may be about, the target of a model among them.

    Raises:
        StudyError: nothing says what the columns are.
    """
    if (public := set_source(data.source)) and (columns := public[0].columns(public[1])):
        return {column.name: column for column in columns}
    plain = data.is_declared or data.source == import_path.IN_MEMORY
    if not plain or not data.columns:
        raise StudyError(
            "expected data.columns of data.files beside [statistics], or a built-in source with a "
            f"table of its own, got {data.source or 'no columns'}; declare the columns with their "
            "bounds and categories"
        )
    by_name = {column.name: column for column in data.columns}
    if data.is_declared and data.target and data.outcome is None:
        by_name[data.target] = Column(name=data.target, categories=spellings_of(data))
    return by_name


def columns_with_target(data: Data) -> dict[str, Column]:
    """The same, and those of a target that is no class."""
    told = data.outcome.declared(data.target) if data.outcome is not None else ()
    return columns_of(data) | {column.name: column for column in told}


def spellings_of(data: Data) -> tuple[str, ...]:
    """The target's classes, one spelling for each."""
    return (data.negative[0], data.positive[0]) if data.positive else data.classes


def records_of_cells(
    data: Data, cells: Mapping[str, Sequence[str]], origin: str, *, patient: str = ""
) -> Records:
    """The records of a table's cells, as a study's data says.

    Args:
        data: of the study.
        cells: texts by column, of each row.
        origin: what sentences call the table.
        patient: the column that says whose a row is; empty: it is not asked.

    Raises:
        DataError: naming the first cell that does not fit.
    """
    return encode_table(
        cells,
        target=data.target,
        columns=data.features,
        positive=data.positive,
        negative=data.negative,
        classes=data.classes,
        patient=patient,
        outcome=data.outcome,
        origin=origin,
    )


def target_unified(data: Data, cells: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """The cells with one spelling for each class of a target, or an event, that has several."""
    said = data.outcome or data
    name = data.outcome.event if data.outcome else data.target
    if not said.positive or name not in cells:
        return cells
    one = dict.fromkeys(map(canonical, said.negative), said.negative[0]) | dict.fromkeys(
        map(canonical, said.positive), said.positive[0]
    )
    return {**cells, name: [one.get(canonical(text), text) for text in cells[name]]}


def groups_of_cells(
    data: Data, by: Sequence[Levels], cells: Mapping[str, Sequence[str]], origin: str
) -> NDArray[np.int64]:
    """(n, columns) the place of each record's class of each of these columns; -1: of none.

    Raises:
        DataError: naming the first cell that does not fit.
    """
    coded = coded_cells(target_unified(data, cells), [one.column for one in by], origin)
    return np.column_stack([one.places(coded.columns) for one in by])
