"""The keys of `[data]` for a query: `query`, `tables`, `reference`, `order`.

A study that names a query is checked wherever it is read, not only where there is a database.
"""

from __future__ import annotations

from hubbub.errors import StudyError, with_extra
from hubbub.section import Section

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
    try:
        from hubbub.study.sql.owned_query import checked
    except ImportError:
        raise StudyError(
            "expected sqlglot to check data.query, found that it is not installed; "
            f"{with_extra('sql')}"
        ) from None
    return checked(query, dict(tables), reference=reference, patient=patient).columns
