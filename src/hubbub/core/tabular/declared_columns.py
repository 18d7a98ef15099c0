"""The columns that a study declares: the table `[data.columns]`, an entry for each, as `Column`s.

What an entry says is checked for its form here, and by the `Column` for what it means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import keys_of
from hubbub.core.tabular.column import Column


def columns_from(table: object) -> tuple[Column, ...]:
    """Parses the `[data.columns]` table of a study into columns, in the order of the table.

    >>> columns_from({"sex": {"categories": ["Male", "Female"]}})[0].width
    1

    Args:
        table: one entry per column; its keys are those of `Column` without `name`.

    Raises:
        StudyError: an unknown key, a value of the wrong type, or settings that contradict.
    """
    if not isinstance(table, Mapping) or not table:
        raise StudyError(
            "expected data.columns to be a table with one entry per column, found none; "
            "write for example age = {low = 20, high = 90}, or leave data.columns out"
        )
    return tuple(_column_from(name, entry) for name, entry in table.items())


def _column_from(name: str, entry: Any) -> Column:
    where = f"data.columns.{name}"
    if not isinstance(entry, Mapping):
        raise StudyError(
            f"expected {where} to be a table such as {{low = 0, high = 1}}, found {entry!r}; "
            "write the column's public bounds or its categories"
        )
    known = tuple(keys_of(Column))
    for key in entry:
        if key not in known:
            raise StudyError(
                f"expected {where} to hold only {', '.join(known)}, found {key!r}; remove or "
                "correct that key"
            )
    indicator, ignore_case = (_truth(entry, key, where) for key in ("indicator", "ignore_case"))
    default = entry.get("default", Column.default)
    categories = _spellings(entry, "categories", where)
    if categories and isinstance(default, int) and not isinstance(default, bool):
        default = str(default)
    return Column(
        name=name,
        low=entry.get("low"),
        high=entry.get("high"),
        step=entry.get("step"),
        categories=categories,
        default=default,
        indicator=indicator,
        missing=_spellings(entry, "missing", where),
        ignore_case=ignore_case,
        other=_text(entry, "other", where),
        feature=_truth(entry, "feature", where, otherwise=Column.feature),
        complete=_truth(entry, "complete", where),
        reference=_text(entry, "reference", where),
    )


def _truth(entry: Mapping[str, Any], key: str, where: str, *, otherwise: bool = False) -> bool:
    value = entry.get(key, otherwise)
    if not isinstance(value, bool):
        raise StudyError(
            f"expected {where}.{key} to be true or false, found {value!r}; write one of the two"
        )
    return value


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise StudyError(f"expected {where}.{key} to be a text, found {value!r}; put it in quotes")
    return value


def _spellings(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = entry.get(key, [])
    if not isinstance(values, list | tuple) or not all(
        isinstance(value, str | int) and not isinstance(value, bool) for value in values
    ):
        raise StudyError(
            f"expected {where}.{key} to be a list of texts, found {values!r}; write each value as "
            'it is spelled in the file, for example ["yes", "no"]'
        )
    return tuple(str(value) for value in values)
