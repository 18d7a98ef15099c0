"""The table `[data]`: where each silo finds its records, and what is public about them.

This file knows how records are declared; it reads none, and imports no function that is named. What
a silo reads for them is in `sources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from hubbub.errors import StudyError
from hubbub.section import Section, shortened
from hubbub.study import datasets, import_path
from hubbub.study.target import target_from
from hubbub.tabular import MOST_PER_PATIENT, Column, Outcome, canonical, columns_from

_KEYS = ("source", "files", "test", "target", "positive", "negative", "classes", "columns")
_MORE = ("options", "records", "counts", "capacity", "standardise")
_PATIENT = ("patient", "most_per_patient")
_TABLES = (".csv", ".parquet")


def data_from(table: Mapping[str, Any], *, targeted: bool = True) -> Data:
    """The data that a table states; without a model there is no target."""
    section = Section("data", table, (*_KEYS, *_MORE, *_PATIENT))
    source, files = _origin(section)
    if not targeted:
        for key in ("target", "positive", "negative", "classes", "test", "standardise"):
            section.absent(key, "where no model is trained: declare every column in data.columns")
    target, outcome = "", None
    if targeted:
        target, outcome = target_from(section, Data.target, files=bool(files))
    named = (target, *(outcome.columns if outcome else ()))
    return Data(
        source=source,
        files=files,
        test=_test(section),
        target=target,
        outcome=outcome,
        positive=section.texts("positive", Data.positive),
        negative=_negative(section),
        classes=_classes(section),
        columns=_columns(section, named, targeted=targeted)
        if "columns" in section
        else Data.columns,
        options=_options(section),
        records=section.whole("records", Data.records, least=0, most=10**12),
        counts=section.wholes("counts", longest=1_000_000),
        capacity=_capacity(section),
        standardise=_standardise(section),
        patient=_patient(section),
        most_per_patient=_most_per_patient(section),
    )


def _patient(section: Section) -> str:
    """The column that says whose a record is; what a built-in set has no word of is refused."""
    patient = section.text("patient", Data.patient)
    if "patient" not in section:
        return patient
    if import_path.is_built_in(section.text("source", Data.source)):
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
    return section.whole("most_per_patient", None, least=1, most=MOST_PER_PATIENT)


def _capacity(section: Section) -> tuple[int, ...]:
    """One number for all silos, or a list of one for each."""
    if isinstance(section.content.get("capacity"), int):
        return (section.whole("capacity", None, least=1, most=10**9),)
    return section.wholes("capacity", longest=1_000_000)


def _origin(section: Section) -> tuple[str, str]:
    """The function or the files, one of which is empty."""
    source, files = section.text("source", Data.source), section.text("files", Data.files)
    if bool(source) == bool(files):
        raise StudyError(
            f"expected either data.source or data.files, got {'both' if source else 'neither'}; "
            f'write source = "{import_path.BUILT_IN}:heart" or files = "silo-{{name}}.csv"'
        )
    if source:
        _check_source(section, source)
    else:
        _check_files(section, files)
    return source, files


def _check_source(section: Section, source: str) -> None:
    """Code from elsewhere runs inside the silo, so a study must say plainly that it names some."""
    if source == import_path.IN_MEMORY:
        section.absent("test", "when the records are in memory")
        return
    if not import_path.is_built_in(source) and not import_path.is_own(source):
        own = not source.startswith(import_path.OWN) and import_path.is_own(
            import_path.OWN + source
        )
        raise section.refusal(
            "source",
            f'"{import_path.BUILT_IN}:name" or "{import_path.OWN}module:function"',
            f'write "{import_path.OWN}" before a function of your own' if own else "fix it",
        )
    for key in ("test", "positive", "negative", "classes", "columns"):
        section.absent(key, "when data.source is given")


def _check_files(section: Section, files: str) -> None:
    """One file for each silo, of a kind that can be read."""
    if "{name}" not in files or not files.endswith(_TABLES):
        raise section.refusal("files", "a path with {name} that ends in .csv or .parquet", "fix it")
    section.absent("options", "when data.files is given")


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


def _columns(section: Section, targets: tuple[str, ...], *, targeted: bool) -> tuple[Column, ...]:
    """The declared columns; 1 and 1.0 are the same bound, and must give the same study id."""
    try:
        columns = tuple(_normal(column) for column in columns_from(section.table("columns")))
    except StudyError as error:  # which quotes a list of categories in full
        said, _, remedy = str(error).rpartition("; ")
        raise StudyError(f"{shortened(said, 300)}; {remedy}") from None
    stated = bool(section.content.get("files")) or isinstance(section.content.get("target"), str)
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
        column, low=low, high=high, default=None if default is None else float(default) + 0.0
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


def _standardise(section: Section) -> Standardise | None:
    """The table `standardise`, if there is one."""
    inner = section.inner("standardise", ("epsilon", "bound"))
    if inner is None:
        return None
    return Standardise(
        epsilon=inner.number("epsilon", None, least=1e-3, most=50),
        bound=inner.number("bound", Standardise.bound, least=0, most=1e9, open_low=True),
    )


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """Features to mean 0 and standard deviation 1, from sums over all records with noise (P16).

    Args:
        epsilon: what the sums may cost; it is part of the study's.
        bound: a public bound of every feature's absolute value; beyond it features are cut off.
    """

    epsilon: float
    bound: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where each silo finds its records, and what is public about them.

    Args:
        source: function that returns a silo's records; empty where there are files.
        files: path of each silo's file, with {name}; empty where there is a source.
        test: path of the public test file; empty: none.
        target: the target's column; of a time to event, that of the time.
        outcome: what the target is if it is no class; None: a class.
        positive: spellings of the target that count as 1.
        negative: those that count as 0; any other is refused where it is read.
        classes: spellings of the target, in the order of the class numbers.
        columns: the columns that become features, or that statistics are about; empty: all but the
            target, as they are.
        options: arguments of the source's function, by name.
        records: public number of units of all silos together, of patients where `patient` says
            whose records they are; 0: not public.
        counts: number of units of each silo, in the order of the parties, where joint batches
            make that public; empty: not public.
        capacity: the most units that a silo may hold, public: one number for all silos, or one
            for each in the order of the parties; empty: a step above an equal share of `records`.
        standardise: features to mean 0 and deviation 1; None: as they are.
        patient: the column whose equal cells make records of a silo one unit; empty: each is one.
        most_per_patient: the most records of one patient, public; 0: not stated.
    """

    source: str = ""
    files: str = ""
    test: str = ""
    target: str = "target"
    outcome: Outcome | None = None
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    classes: tuple[str, ...] = ("0", "1")
    columns: tuple[Column, ...] = ()
    options: tuple[tuple[str, int | float | str | bool], ...] = ()
    records: int = 0
    counts: tuple[int, ...] = ()
    capacity: tuple[int, ...] = ()
    standardise: Standardise | None = None
    patient: str = ""
    most_per_patient: int = 0

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
    scheme, _, name = data.source.partition(":")
    if scheme == import_path.BUILT_IN and name in datasets.TABLES:
        columns, _read = datasets.TABLES[name]
        return {column.name: column for column in columns}
    if data.source not in ("", import_path.IN_MEMORY) or not data.columns:
        raise StudyError(
            "expected data.columns of data.files beside [statistics], or the built-in source of "
            f"{' or '.join(datasets.TABLES)}, got "
            f"{data.source or 'no columns'}; declare the columns with their bounds and categories"
        )
    found = {column.name: column for column in data.columns}
    if data.files and data.target and data.outcome is None:
        found[data.target] = Column(name=data.target, categories=spellings_of(data))
    return found


def spellings_of(data: Data) -> tuple[str, ...]:
    """The target's classes, one spelling for each."""
    return (data.negative[0], data.positive[0]) if data.positive else data.classes
