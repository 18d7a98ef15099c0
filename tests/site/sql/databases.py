"""Small databases of a silo named north, and what a query answers there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from hubbub.core.study.cell_stream import texts_of
from hubbub.site.sql.engines import connection_of, rows_of
from hubbub.site.sql.owned_query import checked
from hubbub.site.sql.source import rendered

ENGINES = {"duckdb": duckdb.connect, "sqlite": sqlite3.connect}


def connect(home: Path, party: str, url: str, **more: Any) -> Path:
    """A silo's `sources.toml`."""
    home.mkdir(exist_ok=True, parents=True)
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in {"url": url, **more}.items()]
    path = home / "sources.toml"
    path.write_text("\n".join([f"[{party}]", *lines]))
    path.chmod(0o600)
    return home


@contextmanager
def database(home: Path, engine: str, name: str = "db") -> Iterator[Any]:
    """A new database of an engine in a folder, open to be filled; its `sources.toml` beside it."""
    connect(home, "north", f"{engine}:///{name}")
    opened = ENGINES[engine](str(home / name))
    yield opened
    opened.commit()
    opened.close()


def answers(
    home: Path, query: str, *, keys: Mapping[str, str] | None = None, patient: str = "pid"
) -> list[tuple[str, ...]]:
    """The rows of a query as the silo reads them, in order; by default of a table t."""
    connection = connection_of("north", home)
    owned = checked(query, keys or {"t": "pid"}, patient=patient)
    statement = rendered(owned.select, connection.dialect, connection.schema)
    rows = [texts_of(row) for part in rows_of(connection, statement, "north") for row in part]
    return sorted(map(tuple, rows))
