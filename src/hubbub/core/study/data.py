"""The table `[data]`: where each silo finds its records, and what is public about them.

This file reads no records, and imports no function that is named (`silo_records` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError, UserError
from hubbub.core.settings import (
    Key,
    Keys,
    Section,
    keys_of,
    number,
    read,
    read_inner,
    read_key,
    settings,
    shortened,
    table,
    text,
    texts,
    whole,
    wholes,
)
from hubbub.core.study.source import (
    IN_MEMORY,
    OWN,
    TableSource,
    is_own,
    set_source,
    set_sources,
    sources,
    table_source,
    table_sources,
)
from hubbub.core.tabular.cells import canonical
from hubbub.core.tabular.column import Column, columns_from
from hubbub.core.tabular.levels import Levels
from hubbub.core.tabular.records import MOST_PER_PATIENT, Records
from hubbub.core.tabular.table import coded_cells, encode_table
from hubbub.core.tabular.target import Outcome, target_from

MOST_COUNTS = 1_000_000
_TABLES = (".csv", ".parquet")
_SIZE = {"type": "integer", "minimum": 1}


@settings
class Standardise:
    """Features to mean 0 and standard deviation 1, from sums over all records with noise (P16)."""

    epsilon: Annotated[
        float,
        number(
            0.001,
            50,
            "The most the sums may spend ([P16](privacy.md#p16)). All parts of the "
            "study's epsilon beside the training's are at most 0.9 of it.",
        ),
    ]
    bound: Annotated[
        float,
        number(
            0,
            1e9,
            "Public bound of every feature's absolute value; larger values are cut off.",
            above=True,
        ),
    ] = 1.0


@settings
class Data:
    """Where each silo finds its records, and what is public about them."""

    source: Annotated[
        str,
        text(
            "[Built-in data](data.md#built-in-data), [a function of "
            "yours](data.md#your-own-function), a [query](data.md#databases) to each silo's "
            "database, a [cohort](howto/omop.md) in OMOP, or what `hubbub.fit` is handed.",
            '`"hubbub.datasets:heart"`, `"python:module:function"`, `"sql"`, `"omop"`, '
            '`"in-memory"`',
            default="either",
        ),
    ] = ""
    files: Annotated[
        str,
        text(
            "Each silo's file. The keys of targets and columns go with files.",
            "path with `{name}`, `.csv`, `.parquet`, or `/`: [parts](data.md#tables-in-parts)",
            default="either",
        ),
    ] = ""
    test: Annotated[
        str, text("The public test file, no silo's own.", "path, `.csv` or `.parquet`")
    ] = ""
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
        texts("Spellings that count as 0. A silo whose file has any other spelling takes no part."),
    ] = ()
    classes: Annotated[
        tuple[str, ...],
        texts(
            "Spellings of the target, in the order of the class numbers, instead of these two.",
            "list of at least 2 texts",
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
        text(
            "The column with the patient's key: all records of one patient in a silo "
            "are [one unit](data.md#patients). Without files any name."
        ),
    ] = ""
    most_per_patient: Annotated[
        int,
        whole(
            1,
            MOST_PER_PATIENT,
            "Public: the most records of one patient. With `patient`, further records are left "
            "out; alone, the plan shows the guarantee to [such a patient](privacy.md#p20).",
            default="none",
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
            "Each silo's number of units, `records` in all; among machines "
            "[joint batches](sampling.md) demand it.",
            "list of whole numbers above 0",
        ),
    ] = ()
    capacity: Annotated[
        tuple[int, ...],
        Key(
            says="Public: the most units of a silo, which determines the rows of a batch. A silo "
            "with more takes no part. Without it a silo uses [a ladder](privacy.md#p19) that "
            "starts at an equal share of `records`; its step is visible and outside the guarantee.",
            values="whole number above 0, or a list of one for each silo",
            schema={"anyOf": [_SIZE, {"type": "array", "items": _SIZE}]},
        ),
    ] = ()
    standardise: Annotated[
        Standardise | None, table("Scales features to mean 0 and deviation 1.")
    ] = None

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
    """By name the columns that statistics may be about, a model's target among them.

    StudyError: nothing says what they are.
    """
    if (public := set_source(data.source)) and (columns := public[0].columns(public[1])):
        return {column.name: column for column in columns}
    plain = data.is_declared or data.source == IN_MEMORY
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
    of_target = data.outcome.declared(data.target) if data.outcome is not None else ()
    return columns_of(data) | {column.name: column for column in of_target}


def spellings_of(data: Data) -> tuple[str, ...]:
    """The target's classes, one spelling for each."""
    return (data.negative[0], data.positive[0]) if data.positive else data.classes


def records_of_cells(
    data: Data, cells: Mapping[str, Sequence[str]], origin: str, *, patient: str = ""
) -> Records:
    """The records of a table's cells, as a study's data says; see `encode_table`."""
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
    classes = data.outcome or data
    name = data.outcome.event if data.outcome else data.target
    if not classes.positive or name not in cells:
        return cells
    unified = {
        canonical(spelling): spellings[0]
        for spellings in (classes.negative, classes.positive)
        for spelling in spellings
    }
    return {**cells, name: [unified.get(canonical(text), text) for text in cells[name]]}


def groups_of_cells(
    data: Data, by: Sequence[Levels], cells: Mapping[str, Sequence[str]], origin: str
) -> NDArray[np.int64]:
    """(n, columns) the place of each record's class of each of these columns; -1: of none."""
    coded = coded_cells(target_unified(data, cells), [levels.column for levels in by], origin)
    return np.column_stack([levels.places(coded.columns) for levels in by])


# How the table is read.


def source_keys() -> Keys:
    """The keys of `[data]` that some source has for its own; two may have one of the same name."""
    keys: Keys = {}
    for source in table_sources():
        own = source.own_keys()
        if taken := own.keys() & keys_of(Data).keys():  # whose meaning it would change
            raise UserError(
                f"expected {type(source).__module__} to have other keys of [data] than hubbub's, "
                f"found {min(taken)!r}; bring the package up to date or uninstall it"
            )
        keys |= own
    return keys


def data_from(table: Mapping[str, Any], *, targeted: bool = True) -> Data:
    """The data that a table states; without a model there is no target."""
    source = table_source(table.get("source"))
    if source is not None:
        table = source.completed(table)
    elif isinstance(place := table.get("source"), str) and place.isidentifier():
        # Before keys that it might have: of a source that is not known, none is.
        sets = set_sources()
        known = [f'"{name}:name"' if name in sets else f'"{name}"' for name in sources()]
        raise Section("data", {"source": place}, ("source",)).refusal(
            "source",
            ", ".join([*known, f'"{OWN}module:function"']),
            "fix it, or install the package that registers it",
        )
    own = source_keys()
    section = Section("data", table, (*keys_of(Data), *own))
    place, files = _origin(section, own)
    declared = bool(files) or source is not None
    if not targeted:
        for key in ("target", "positive", "negative", "classes", "test", "standardise"):
            section.absent(key, "where no model is trained: declare every column in data.columns")
    target, outcome = "", None
    if targeted:
        target, outcome = target_from(section, Data.target, files=declared)
    targets = (target, *(outcome.columns if outcome else ()))
    data = read(
        Data,
        "data",
        {key: value for key, value in table.items() if key not in own},
        source=lambda _: place,
        files=lambda _: files,
        test=_test,
        target=lambda _: target,
        outcome=lambda _: outcome,
        negative=_negative,
        classes=_classes,
        columns=lambda _: _columns(section, targets, declared=declared, targeted=targeted),
        options=_options,
        capacity=_capacity,
        standardise=lambda _: read_inner(Standardise, section, "standardise"),
        patient=_patient,
        most_per_patient=_most_per_patient,
        request=lambda _: None if source is None else source.read(section),
    )
    if source is not None:
        _check_given(section, data, source)
    return data


def _check_given(section: Section, data: Data, source: TableSource) -> None:
    """What is asked of a source keeps people apart, and gives what the study names."""
    for key in ("patient", "columns"):
        if key not in section:
            raise section.refusal(
                key,
                f'a value beside source = "{data.source}"',
                "say whose a row is, and declare columns",
            )
    given = source.columns(data)
    wanted = (*data.targets, *(column.name for column in data.columns), *filter(None, [data.order]))
    if absent := [name for name in wanted if name not in given]:
        key = next(iter(source.own_keys()), "source")
        raise StudyError(
            f"expected data.{key} to give {absent[0]!r}, got {', '.join(given)}; name its columns "
            "as the study does"
        )


def _origin(section: Section, own: Keys) -> tuple[str, str]:
    """The function or the files, one of which is empty."""
    source, files = section.text("source", Data.source), section.text("files", Data.files)
    if bool(source) == bool(files):
        raise StudyError(
            f"expected either data.source or data.files, got {'both' if source else 'neither'}; "
            'write files = "silo-{name}.csv", or name a source'
        )
    if source:
        _check_source(section, source, own)
        return source, files
    if "{name}" not in files or not files.endswith((*_TABLES, "/")):
        wanted = "a path with {name} that ends in .csv, .parquet or, for a folder of parts, /"
        raise section.refusal("files", wanted, "fix it")
    for key in ("options", *own):
        section.absent(key, "when data.files is given")
    return source, files


def _check_source(section: Section, source: str, own: Keys) -> None:
    """Code from elsewhere runs inside the silo, so a study must say plainly that it names some."""
    kind = table_source(source)
    strange = own if kind is None else [key for key in own if key not in kind.own_keys()]
    for key in (*strange, *([] if kind is None else ["options"])):
        section.absent(key, f'when data.source is "{source}"')
    if source == IN_MEMORY:
        section.absent("test", "when the records are in memory")
    if kind is not None or source == IN_MEMORY:
        return
    if set_source(source) is None and not is_own(source):
        bare = not source.startswith(OWN) and is_own(OWN + source)
        raise section.refusal(
            "source",
            " or ".join([*(f'"{name}:name"' for name in set_sources()), f'"{OWN}module:function"']),
            f'write "{OWN}" before a function of your own' if bare else "fix it",
        )
    for key in ("test", "positive", "negative", "classes", "columns"):
        section.absent(key, "when data.source is given")


def _test(section: Section) -> str:
    """The public test file, if there is one."""
    test = section.text("test", Data.test)
    if test and not test.endswith(_TABLES):
        raise section.refusal("test", "a path that ends in .csv or .parquet", "fix it")
    return test


def _patient(section: Section) -> str:
    """The column that says whose a record is; what a built-in set has no word of is refused."""
    patient = str(read_key(Data, section, "patient"))
    if "patient" not in section:
        return patient
    if set_source(section.text("source", Data.source)) is not None:
        section.absent("patient", "for a built-in source, whose records are each a person's")
    if section.content.get("files") and "columns" not in section:
        raise section.refusal(
            "patient", "beside data.columns", "declare them: without any, all columns are features"
        )
    taken = (section.content.get("target"), *section.content.get("columns", ()))
    if not patient or patient in taken:
        raise section.refusal(
            "patient", "a column that is neither the target nor one of data.columns", "name another"
        )
    return patient


def _most_per_patient(section: Section) -> int:
    """The public number of records that a patient has at most; a unit's shape follows from it."""
    if "most_per_patient" not in section and "patient" not in section:
        return Data.most_per_patient
    return int(read_key(Data, section, "most_per_patient", required=True))


def _capacity(section: Section) -> tuple[int, ...]:
    """One number for all silos, or a list of one for each."""
    # P19: how many rows a batch has must follow from public numbers, not from records.
    if isinstance(section.content.get("capacity"), int):
        return (section.whole("capacity", None, least=1, most=10**9),)
    return section.wholes("capacity", longest=MOST_COUNTS)


def _negative(section: Section) -> tuple[str, ...]:
    """The other spellings of a target with two classes: none may become a 0 unseen."""
    positive = section.texts("positive", Data.positive)
    negative = section.texts("negative", Data.negative)
    for counts_as, (other, given) in enumerate(
        [("negative", "positive"), ("positive", "negative")]
    ):
        if section.content.get(given) and not section.content.get(other):
            raise section.refusal(
                other,
                f"the spellings of the target that count as {counts_as}, beside data.{given}",
                "list them all: a cell that neither list has is refused",
            )
    if set(map(canonical, positive)) & set(map(canonical, negative)):
        raise section.refusal("negative", "spellings that data.positive has not", "fix one list")
    return negative


def _classes(section: Section) -> tuple[str, ...]:
    """The spellings of a target that is a class."""
    if section.content.get("positive"):
        section.absent("classes", "when data.positive is given")
    classes = section.texts("classes", Data.classes)
    if len({canonical(spelling) for spelling in classes}) < max(2, len(classes)):
        raise section.refusal("classes", "at least two different spellings", "list each class once")
    return classes


def _columns(
    section: Section, targets: tuple[str, ...], *, declared: bool, targeted: bool
) -> tuple[Column, ...]:
    """The declared columns, if any."""
    if "columns" not in section:
        return ()
    try:
        columns = columns_from(section.table("columns"))
    except StudyError as error:  # which quotes a list of categories in full
        fault, _, remedy = str(error).rpartition("; ")
        raise StudyError(f"{shortened(fault, 300)}; {remedy}") from None
    stated = declared or isinstance(section.content.get("target"), str)
    if stated and not {column.name for column in columns}.isdisjoint(targets):
        raise section.refusal("target", "none of data.columns", "remove it from data.columns")
    # By a model some columns are seen, and without one all are.
    seen = [column.feature for column in columns]
    if not any(seen) or not (targeted or all(seen)):
        raise StudyError(
            "expected feature = false of some columns beside a model, and of none without one, got "
            "another; correct data.columns"
        )
    return columns


def _options(section: Section) -> tuple[tuple[str, int | float | str | bool], ...]:
    """Arguments for the source's function, each of the type that is written."""
    options = section.content.get("options", {})
    plain = isinstance(options, dict) and all(
        isinstance(value, str) or (isinstance(value, int | float) and isfinite(value))
        for value in options.values()
    )
    if not plain:
        raise section.refusal("options", "a table of plain values", "write { split = 1 }")
    return tuple(sorted(options.items()))
