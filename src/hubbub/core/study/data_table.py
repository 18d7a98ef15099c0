"""How the table `[data]` is read: what goes with files, with a source, with patients.

This file imports no function that is named and reads no records; what is read stands in `data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.section import Section, shortened
from hubbub.core.settings import keys_of, read, read_inner, read_key
from hubbub.core.study import import_path
from hubbub.core.study.data import MOST_COUNTS, Data, Standardise
from hubbub.core.study.source import (
    TableSource,
    set_source,
    set_sources,
    table_source,
    table_sources,
)
from hubbub.core.study.target import target_from
from hubbub.core.tabular.cell_rule import canonical
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.declared_columns import columns_from

_TABLES = (".csv", ".parquet")
_FILES = (*_TABLES, "/")  # or a folder of parts
_OWN_FUNCTION = f'"{import_path.OWN}module:function"'


def data_from(stated: Mapping[str, Any], *, targeted: bool = True) -> Data:
    """The data that a table states; without a model there is no target."""
    asked = table_source(stated.get("source"))
    if asked is not None:
        stated = asked.completed(stated)
    own = _keys_of_sources()
    section = Section("data", stated, (*keys_of(Data), *own))
    source, files = _origin(section)
    declared = bool(files) or asked is not None
    if not targeted:
        for key in ("target", "positive", "negative", "classes", "test", "standardise"):
            section.absent(key, "where no model is trained: declare every column in data.columns")
    target, outcome = "", None
    if targeted:
        target, outcome = target_from(section, Data.target, files=declared)
    named = (target, *(outcome.columns if outcome else ()))
    data = read(
        Data,
        "data",
        {key: value for key, value in stated.items() if key not in own},
        source=lambda _: source,
        files=lambda _: files,
        test=_test,
        target=lambda _: target,
        outcome=lambda _: outcome,
        negative=_negative,
        classes=_classes,
        columns=lambda _: _columns(section, named, declared=declared, targeted=targeted),
        options=_options,
        capacity=_capacity,
        standardise=lambda _: read_inner(Standardise, section, "standardise"),
        patient=_patient,
        most_per_patient=_most_per_patient,
        request=lambda _: None if asked is None else asked.read(section),
    )
    if asked is not None:
        _check_asked(section, data, asked)
    return data


def _check_asked(section: Section, data: Data, source: TableSource) -> None:
    """What is asked keeps people apart, and gives what the study names."""
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
    if not patient or patient in (
        section.content.get("target"),
        *section.content.get("columns", ()),
    ):
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
    if isinstance(section.content.get("capacity"), int):
        return (section.whole("capacity", None, least=1, most=10**9),)
    return section.wholes("capacity", longest=MOST_COUNTS)


def _origin(section: Section) -> tuple[str, str]:
    """The function or the files, one of which is empty."""
    source, files = section.text("source", Data.source), section.text("files", Data.files)
    if bool(source) == bool(files):
        raise StudyError(
            f"expected either data.source or data.files, got {'both' if source else 'neither'}; "
            'write files = "silo-{name}.csv", or name a source'
        )
    if source:
        _check_source(section, source)
    else:
        _check_files(section, files)
    return source, files


def _check_source(section: Section, source: str) -> None:
    """Code from elsewhere runs inside the silo, so a study must say plainly that it names some."""
    asked = table_source(source)
    for key in _keys_of_sources():
        if asked is None or key not in asked.own_keys():
            section.absent(key, f'when data.source is "{source}"')
    if asked is not None:
        section.absent("options", f'when data.source is "{source}"')
        return
    if source == import_path.IN_MEMORY:
        section.absent("test", "when the records are in memory")
        return
    if set_source(source) is None and not import_path.is_own(source):
        own = not source.startswith(import_path.OWN) and import_path.is_own(
            import_path.OWN + source
        )
        raise section.refusal(
            "source",
            " or ".join([*(f'"{name}:name"' for name in set_sources()), _OWN_FUNCTION]),
            f'write "{import_path.OWN}" before a function of your own' if own else "fix it",
        )
    for key in ("test", "positive", "negative", "classes", "columns"):
        section.absent(key, "when data.source is given")


def _keys_of_sources() -> list[str]:
    """The keys of `[data]` that some source has for its own."""
    return [key for kind in table_sources() for key in kind.own_keys()]


def _check_files(section: Section, files: str) -> None:
    """One file for each silo, of a kind that can be read."""
    if "{name}" not in files or not files.endswith(_FILES):
        wanted = "a path with {name} that ends in .csv, .parquet or, for a folder of parts, /"
        raise section.refusal("files", wanted, "fix it")
    for key in ("options", *_keys_of_sources()):
        section.absent(key, "when data.files is given")


def _test(section: Section) -> str:
    """The public test file, if there is one."""
    test = section.text("test", Data.test)
    if test and not test.endswith(_TABLES):
        raise section.refusal("test", "a path that ends in .csv or .parquet", "fix it")
    return test


def _negative(section: Section) -> tuple[str, ...]:
    """The other spellings of a target with two classes: none may become a 0 unseen."""
    positive = section.texts("positive", Data.positive)
    negative = section.texts("negative", Data.negative)
    if bool(positive) != bool(negative):
        given, other, means = (
            ("positive", "negative", 0) if positive else ("negative", "positive", 1)
        )
        raise section.refusal(
            other,
            f"the spellings of the target that count as {means}, beside data.{given}",
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
    """The declared columns, if any; 1 and 1.0 are one bound, and must give the same study id."""
    if "columns" not in section:
        return ()
    try:
        columns = tuple(_normal(column) for column in columns_from(section.table("columns")))
    except StudyError as error:  # which quotes a list of categories in full
        said, _, remedy = str(error).rpartition("; ")
        raise StudyError(f"{shortened(said, 300)}; {remedy}") from None
    stated = declared or isinstance(section.content.get("target"), str)
    if stated and not {column.name for column in columns}.isdisjoint(targets):
        raise section.refusal("target", "none of data.columns", "remove it from data.columns")
    if not any(column.feature for column in columns) or not (
        targeted or all(column.feature for column in columns)
    ):
        raise StudyError(
            "expected feature = false of some columns beside a model, and of none without one, got "
            "another; correct data.columns"
        )
    return columns


def _normal(column: Column) -> Column:
    """The column with every number in one form."""
    default = column.default
    if column.categories:
        text = default is None or isinstance(default, str)
        return column if text else replace(column, default=canonical(str(default)))
    low, high = (float(bound) + 0.0 for bound in column.bounds)
    return replace(
        column,
        low=low,
        high=high,
        step=None if column.step is None else float(column.step),
        default=None if default is None else float(default) + 0.0,
    )


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
