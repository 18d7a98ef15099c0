"""The columns that statistics may be about: those that a study declares, or a built-in source has.

What a silo reads for them is in `sources`. This file reads no record.
"""

from __future__ import annotations

from hubbub.errors import StudyError
from hubbub.study import datasets, import_path
from hubbub.study.data import Data
from hubbub.study.tabular import Column


def columns_of(data: Data) -> dict[str, Column]:
    """By name, the target of a model among them.

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
    if data.files and data.target:
        found[data.target] = Column(name=data.target, categories=spellings_of(data))
    return found


def spellings_of(data: Data) -> tuple[str, ...]:
    """The target's classes, one spelling for each."""
    return (data.negative[0], data.positive[0]) if data.positive else data.classes
