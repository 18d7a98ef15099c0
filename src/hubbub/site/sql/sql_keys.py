"""Databases as a source, and their keys of `[data]`: `query`, `tables`, `reference`, `order`.

A study that names a query is checked wherever it is read, not only where there is a database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hubbub.core.errors import StudyError, with_extra
from hubbub.core.settings import Section, later, settings, table, text, texts
from hubbub.core.study.cell_stream import CellStream
from hubbub.core.study.source import TableSource

if TYPE_CHECKING:
    from hubbub.core.study.data import Data
    from hubbub.site.sql.owned_query import OwnedQuery


_QUERY = text(
    'With `"sql"`: one SELECT that [keeps people apart](privacy.md#p31); part of the study id.',
    "text, in PostgreSQL's SQL",
)
_TABLES = table(
    "With `query`: each table that it reads, and its column with the person's key.",
    "table of columns",
)
_REFERENCE = texts(
    "With `query`: tables that belong to nobody, such as a vocabulary. `approve` shows "
    "the assumption that they do not depend on who is in the database."
)
_ORDER = text(
    "With `query`: the column of its result, numbers or dates, that orders a patient's records."
)


@settings
class Query:
    """What a study asks of each silo's database."""

    query: Annotated[str, later(_QUERY)] = ""
    tables: Annotated[tuple[tuple[str, str], ...], later(_TABLES)] = ()
    reference: Annotated[tuple[str, ...], later(_REFERENCE)] = ()
    order: Annotated[str, later(_ORDER)] = ""


class SqlSource(TableSource):
    """Databases, by one query."""

    Settings = Query
    long_texts: ClassVar = {"query": 20_000}

    def readers(self) -> Mapping[str, Callable[[Section], Any]]:
        """The query must be there, and so must its tables."""
        return {"query": lambda section: section.text("query", None), "tables": tables_from}

    def order(self, request: Query) -> str:
        """As the study names it."""
        return request.order

    def parties(self, folder: Path) -> list[str]:
        """Those in the folder's `sources.toml`."""
        from hubbub.site.sql.engines import silos_in

        return silos_in(folder)

    def columns(self, data: Data) -> Sequence[str]:
        """Those of the query's result; a query that does not keep people apart is refused."""
        return _query_of(data).columns

    def stream(self, data: Data, party: str, folder: Path) -> CellStream:
        """The rows of the query's result, by the silo's `sources.toml`."""
        from hubbub.site.sql.source import stream_of  # which needs sqlglot

        return stream_of(_query_of(data), party, folder)


def _query_of(data: Data) -> OwnedQuery:
    asked = data.request
    return checked(asked.query, dict(asked.tables), reference=asked.reference, patient=data.patient)


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


def checked(*given: Any, **named: Any) -> OwnedQuery:
    """As `owned_query.checked`; StudyError too where sqlglot is not installed (P31)."""
    try:
        from hubbub.site.sql import owned_query
    except ImportError:
        raise StudyError(
            "expected sqlglot to check what a study asks of databases, found that it is not "
            f"installed; {with_extra('sql')}"
        ) from None
    return owned_query.checked(*given, **named)
