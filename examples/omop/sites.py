"""Makes three hospitals' OMOP databases, of nobody, for `study.toml` beside this file.

    python examples/omop/sites.py
    python examples/omop/sites.py postgresql://owner@/postgres?host=/run/postgresql

North and south are PostgreSQL where the URL of somebody who may make databases is given, west is
DuckDB, and so are all three without one. Each has a role that may read its tables alone. What is
made: databases `hubbub_north` and `hubbub_south`, `*.duckdb` and `sources.toml` in this folder.
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from hubbub.site.omop import made_up

PEOPLE = {"north": 400, "south": 260, "west": 330}
READER = "hubbub_reader"


def at(url: str, database: str, user: str = "", password: str = "") -> str:
    """The URL of another database on the same server, for somebody else if one is named."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    place = f"{user}:{password}@{host}" if user else parts.netloc
    return urlunsplit((parts.scheme, place, f"/{database}", parts.query, ""))


def in_postgresql(url: str, name: str, rows: made_up.Rows, password: str) -> str:
    """A database on a server, and the URL of its reader."""
    import psycopg

    database = f"hubbub_{name}"
    with psycopg.connect(url, autocommit=True) as opened:
        opened.execute(f"DROP DATABASE IF EXISTS {database}")
        opened.execute(f"CREATE DATABASE {database}")
        if not opened.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [READER]).fetchone():
            opened.execute(f"CREATE ROLE {READER} LOGIN CONNECTION LIMIT 2")
        opened.execute(f"ALTER ROLE {READER} PASSWORD '{password}'")
        opened.execute(f"ALTER ROLE {READER} SET default_transaction_read_only = on")
    with psycopg.connect(at(url, database)) as opened, opened.cursor() as cursor:
        cursor.execute("CREATE SCHEMA cdm")
        cursor.execute("SET search_path = cdm")
        made_up.write(cursor.execute, rows, "%s")
        cursor.execute(f"GRANT USAGE ON SCHEMA cdm TO {READER}")
        cursor.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA cdm TO {READER}")
    return at(url, database, READER, password)


def in_duckdb(name: str, rows: made_up.Rows) -> str:
    """A file in this folder, and its URL."""
    import duckdb

    path = Path(f"{name}.duckdb")
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as opened:
        opened.begin()
        made_up.write(opened.execute, rows)
        opened.commit()
    return f"duckdb:///{path}"


def make(url: str = "") -> None:
    """Every site's database, and where each is."""
    password, lines = secrets.token_urlsafe(24), []
    for seed, (name, people) in enumerate(PEOPLE.items()):
        rows = made_up.rows(people, seed)
        lines.append(f"[{name}]")
        if url and name != "west":
            lines += [f'url = "{in_postgresql(url, name, rows, password)}"', 'schema = "cdm"']
        else:
            lines.append(f'url = "{in_duckdb(name, rows)}"')
    path = Path("sources.toml")
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(*sys.argv[1:2])
    print("made: " + ", ".join(f"{people} people of {name}" for name, people in PEOPLE.items()))
