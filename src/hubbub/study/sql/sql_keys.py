"""The keys of `[data]` for a query: `query`, `tables`, `reference`, `order`.

A study that names a query is checked wherever it is read, not only where there is a database.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from hubbub.errors import StudyError, with_extra
from hubbub.section import Section

if TYPE_CHECKING:
    from hubbub.study.sql.owned_query import OwnedQuery

SQL = "sql"  # what a study calls this source


def tables_from(section: Section) -> tuple[tuple[str, str], ...]:
    """By name of each table the column that says whose a row is."""
    stated = section.content.get("tables")
    tables = stated if isinstance(stated, dict) else {}
    if not tables or not all(isinstance(key, str) and key for key in tables.values()):
        raise section.refusal(
            "tables",
            "for each table that the query reads the column with the person's key",
            'write { visits = "patient_id" }',
        )
    return tuple(sorted(tables.items()))


def check_query(
    query: str, tables: tuple[tuple[str, str], ...], reference: tuple[str, ...], patient: str
) -> tuple[str, ...]:
    """Refuse a query that does not keep people apart (docs/privacy.md P31).

    Returns:
        The columns of its result.

    Raises:
        StudyError: with the construct that is refused, and why; or sqlglot is not installed.
    """
    checked = with_sqlglot("hubbub.study.sql.owned_query", "checked")
    return checked(query, dict(tables), reference=reference, patient=patient).columns


def with_sqlglot(module: str, name: str) -> Callable[..., OwnedQuery]:
    """A function of a module that needs sqlglot.

    Raises:
        StudyError: it is not installed.
    """
    try:
        return getattr(import_module(module), name)  # type: ignore[no-any-return]
    except ImportError:
        raise StudyError(
            "expected sqlglot to check what a study asks of databases, found that it is not "
            f"installed; {with_extra('sql')}"
        ) from None
