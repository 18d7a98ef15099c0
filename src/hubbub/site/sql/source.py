"""A silo's database as a stream of cells: the study's query, by the site's connection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sqlglot.dialects.dialect import Dialect

from hubbub.core.errors import UserError
from hubbub.core.study.data import Data
from hubbub.core.study.extracts.cell_stream import Cells, CellStream, texts_of
from hubbub.site.sql.connection import connection_of
from hubbub.site.sql.engines import rows_of
from hubbub.site.sql.owned_query import OwnedQuery, checked
from hubbub.site.sql.rendering import rendered


def stream(data: Data, party: str, folder: Path) -> CellStream:
    """The rows of a study's query at a silo.

    Args:
        data: what is asked.
        party: the silo.
        folder: its own, with `sources.toml`.

    Raises:
        UserError, DataError: nothing says where its database is, or it cannot be read.
    """
    asked = data.request
    query = checked(
        asked.query, dict(asked.tables), reference=asked.reference, patient=data.patient
    )
    return stream_of(query, party, folder)


def stream_of(query: OwnedQuery, party: str, folder: Path) -> CellStream:
    """The rows of a checked query; see `stream`."""
    return CellStream(
        origin=f"the database of {party}",
        pieces=partial(_pieces, query, party, folder),
        ordered=False,
    )


def _pieces(query: OwnedQuery, party: str, folder: Path) -> Iterator[Cells]:
    connection = connection_of(party, folder)
    if Dialect.get(connection.dialect) is None:  # sqlglot's own sentence would quote it
        raise UserError(
            f"expected dialect of [{party}] in sources.toml to be sqlglot's word for the SQL, got "
            "another; correct it"
        )
    statement = rendered(query.select, connection.dialect, connection.schema)
    for rows in rows_of(connection, statement, party):
        columns = zip(*rows, strict=True)
        yield {name: texts_of(own) for name, own in zip(query.columns, columns, strict=True)}
