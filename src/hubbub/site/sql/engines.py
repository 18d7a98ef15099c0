"""Where a site's database is: in the site's own folder or its environment, never in a study.

`sources.toml`, which its owner alone may read, lies in the party's folder:

    [north]                              # the silo
    url = "postgresql://reader@db.north.example/registry"
    schema = "research"                  # PostgreSQL: where the tables are; else "public"
    minutes = 30                         # the longest that a query may take

With one silo, `HUBBUB_SOURCE` may have the url instead. This file knows addresses; it must not know
queries.
"""

from __future__ import annotations

import importlib
import os
import sqlite3
import stat
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn
from urllib.parse import urlsplit

from hubbub.core.disk import read_text, toml_table
from hubbub.core.errors import DataError, UserError, with_extra
from hubbub.core.settings import key_of, shortened
from hubbub.core.study.extract import SOURCES, home_of

VARIABLE = "HUBBUB_SOURCE"
ENGINES = {"duckdb": "duckdb", "sqlite": "sqlite", "postgresql": "postgres", "dbapi": ""}
_KEYS = ("url", "schema", "minutes", "driver", "dialect")


class Hidden:
    """A text that may hold a password: in no repr, no `asdict`, no copy and no pickle."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def text(self) -> str:
        """For the engine alone."""
        return self._text

    def __repr__(self) -> str:
        """Shows nothing of it."""
        return "<hidden>"

    def __deepcopy__(self, memo: object) -> Hidden:
        """Itself, so that `asdict` has no other."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuses to be written anywhere."""
        raise TypeError("expected to keep a connection in this process")


@dataclass(frozen=True, kw_only=True, repr=False)
class Connection:
    """How a site's database is reached. Never printed: it may hold a password."""

    engine: str  # one of `ENGINES`
    hidden: Hidden  # a path, a PostgreSQL URL, or what a driver's `connect` takes
    schema: str = ""  # of the tables; empty: the usual one
    seconds: int = 1800  # the longest that a query may take
    driver: str = ""  # the module of "dbapi"
    dialect: str = ""  # sqlglot's name of its SQL

    @property
    def address(self) -> str:
        """What the engine takes."""
        return self.hidden.text

    def __repr__(self) -> str:
        """Shows the engine alone."""
        return f"<Connection to {self.engine}>"


def connection_of(
    party: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Connection:
    """A silo's connection."""
    path = home_of(folder) / SOURCES
    if path.is_file():
        table = _table(path)
        if party in table:
            return _from_table(party, table[party], path.parent)
    known = os.environ if environment is None else environment
    if (url := known.get(VARIABLE)) is not None:  # an empty one is refused, as any other
        return _from_table(VARIABLE, {"url": url}, folder)
    raise DataError(
        f"expected the database of {party} in {path.resolve()} or in {VARIABLE}, found neither; "
        f'write [{party}] and url = "duckdb:///registry.duckdb" there'
    )


def silos_in(folder: Path) -> list[str]:
    """The silos whose databases a folder's file names."""
    path = home_of(folder) / SOURCES
    return list(_table(path)) if path.is_file() else []


def _table(path: Path) -> dict[str, dict[str, object]]:
    """The file, which others must not read."""
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise UserError(
            f"expected {path} to be readable by its owner alone, it is open to others; chmod 600 "
            f"{path}, and change a password that stands in it"
        )
    table = None
    with suppress(OSError, ValueError):
        table = toml_table(read_text(path))
    if table is None or not all(isinstance(one, dict) for one in table.values()):
        # Raised out here: what the reader says may quote the file.
        raise UserError(f"expected a TOML file with a table for each silo in {path}; fix it")
    return table


def _from_table(name: str, table: Mapping[str, object], folder: Path) -> Connection:
    """The connection that a table states; no sentence has a value of it."""
    if unknown := [key for key in table if key not in _KEYS]:
        raise UserError(
            f"expected keys of [{name}] among {', '.join(_KEYS)}, got {key_of(unknown[0])[:40]}; "
            "remove it, and write a password into url"
        )
    for key, value in table.items():
        fits = type(value) is int and 1 <= value <= 24 * 60
        if key == "minutes" and not fits:
            raise UserError(
                f"expected minutes of [{name}] to be a whole number from 1 to 1440; correct it"
            )
        if key not in ("minutes", "url") and not isinstance(value, str):
            raise UserError(f"expected {key} of [{name}] to be a text; correct it")
    given: dict[str, Any] = {"minutes": 30, "driver": "", "dialect": "", **table}
    url = given.get("url")
    scheme, _, rest = url.partition(":") if isinstance(url, str) else ("", "", "")
    scheme = "postgresql" if scheme == "postgres" else scheme
    if scheme not in ENGINES:
        raise UserError(
            f"expected url of [{name}] to begin with duckdb:///, sqlite:///, "
            "postgresql:// or dbapi:, got another; fix it"
        )
    if scheme == "dbapi" and not (given["driver"] and given["dialect"]):
        raise UserError(
            f"expected driver and dialect beside a dbapi: url of [{name}], got none; name "
            "the driver's Python module and sqlglot's word for the SQL"
        )
    # What an engine takes: a path is relative to the folder of the file that states it.
    address: str | None = {"postgresql": url, "dbapi": rest}.get(scheme)
    if address is None:
        with suppress(ValueError):  # whose sentence may quote it
            address = str(folder / urlsplit(str(url)).path.removeprefix("/"))
    if address is None:
        raise UserError(f"expected url of [{name}] to be one, it cannot be read; fix it")
    return Connection(
        engine=scheme,
        hidden=Hidden(address),
        schema=given.get("schema", "public" if scheme == "postgresql" else ""),
        seconds=60 * given["minutes"],
        driver=given["driver"],
        dialect=given["dialect"] or ENGINES[scheme],
    )


# Engines: a query in, its rows out, piece by piece; no table is changed, and nothing else is read.
#
# hubbub writes none of it but the extract. DuckDB spills nothing: a query that takes more memory
# than `MEMORY` fails. SQLite puts what it sorts in files of the system's temporary folder that no
# longer have a name and are their owner's alone; PostgreSQL where its server does.
#
# A database's words may quote a cell, so its exceptions end here. What is raised instead names
# their kind, and their sentence where it can only be about names and rights; it is for the site's
# own eyes, and nothing of it leaves (`network/envelope.py`).

Rows = Sequence[Sequence[object]]
BATCH = 20_000  # rows at once
MEMORY = "4GB"  # the most that DuckDB takes
# Of PostgreSQL's errors those whose sentence is about names, rights, locks and lines: none has a
# value of a row, as those of classes 22 and 23 have.
_ABOUT_NAMES = ("08", "28", "3D", "3F", "42", "53", "55", "57")
# PostgreSQL cannot tell how many rows a checked CAST leaves, takes them for one, and would go
# through a table once for each person; all joins have equal keys, and all rows are wanted.
_PLANS = ("enable_nestloop = off", "cursor_tuple_fraction = 1", "jit = off")
# How PostgreSQL reads a query, and writes values as texts, whatever a role or a database has set.
_TEXTS = (
    *("transform_null_equals = off", "timezone = 'UTC'"),
    *("datestyle = 'ISO, YMD'", "intervalstyle = 'postgres'", "bytea_output = 'hex'"),
    *("extra_float_digits = 1", "standard_conforming_strings = on"),
)
_SQLITE_ABOUT_FILES = ("no such", "locked", "readonly", "unable to open", "not a database")
_SQLITE_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION}


def rows_of(connection: Connection, statement: str, party: str) -> Iterator[Rows]:
    """The rows of a statement, at most `BATCH` at once.

    Raises:
        DataError: the database does not answer, or not within the connection's seconds, the time
            between pieces included; with its kind of error, and no cell.
    """
    run = {"duckdb": _duckdb, "sqlite": _sqlite, "postgresql": _postgresql, "dbapi": _dbapi}
    said, until = "", monotonic() + connection.seconds
    try:
        with closing(run[connection.engine](connection, statement)) as pieces:
            for rows in pieces:
                if monotonic() >= until:
                    said = "no end"
                    break
                yield rows
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 (a driver raises what it likes)
        said = _kind(error, connection.address)
    if said and monotonic() >= until:
        said += " within the minutes that sources.toml allows"
    if said:  # out here, since the exception above may quote a row
        raise DataError(
            f"expected the database of {party} to answer the study's query, got {said}; "
            "check whether the query runs, and what its role may read"
        )


def _kind(error: Exception, address: str) -> str:
    """What an engine's error is, without a cell and without the address."""
    kind = type(error).__name__
    state = getattr(error, "sqlstate", None) or ""
    said = ""
    if state[:2] in _ABOUT_NAMES:
        said = str(getattr(getattr(error, "diag", None), "message_primary", "") or "")
    elif kind in ("CatalogException", "BinderException", "IOException", "PermissionException"):
        said = str(error).partition("\n")[0]
    elif isinstance(error, sqlite3.OperationalError | sqlite3.DatabaseError):
        said = str(error) if any(word in str(error) for word in _SQLITE_ABOUT_FILES) else ""
    said = " ".join(said.replace(address, "the database").split()) if address else ""
    return f"{kind}: {shortened(said, 200)}" if said else kind


@contextmanager
def _interrupted(opened: Any, seconds: float) -> Iterator[None]:
    """Has a connection give up after so many seconds, again and again until it has."""
    interrupt = getattr(opened, "interrupt", None) or getattr(opened, "cancel", None)
    done = threading.Event()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            wait = 0.2
            with suppress(Exception):
                interrupt()  # type: ignore[misc]

    watching = threading.Thread(target=watch, daemon=True, name="hubbub-minutes")
    if interrupt is not None:
        watching.start()
    try:
        yield
    finally:
        done.set()
        if interrupt is not None:
            watching.join()


def _duckdb(connection: Connection, statement: str) -> Generator[Rows]:
    """DuckDB: read only, without files, extensions or variables of this program.

    It spills nothing: by default it would do so beside the database, for all to read.
    """
    try:
        import duckdb
    except ImportError:
        raise _without("DuckDB", "duckdb") from None
    _refuse_absent(connection.address)
    settings: dict[str, Any] = {
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "threads": "1",
        "temp_directory": "",
        "memory_limit": MEMORY,
    }
    with duckdb.connect(connection.address, read_only=True, config=settings) as opened:
        opened.execute("SET enable_progress_bar = false")  # else a notebook shows one
        with suppress(duckdb.Error):  # without ICU it knows no other
            opened.execute("SET TimeZone = 'UTC'")
        opened.execute("SET lock_configuration = true")
        with _interrupted(opened, connection.seconds):
            yield from _fetched(opened.execute(statement))


def _sqlite(connection: Connection, statement: str) -> Generator[Rows]:
    """SQLite: read only, and an authorizer that lets it select alone."""
    _refuse_absent(connection.address)
    path = Path(connection.address).resolve().as_uri()
    with closing(sqlite3.connect(f"{path}?mode=ro", uri=True, timeout=30)) as opened:
        opened.text_factory = partial(_decoded, codec="utf-8")
        for pragma in ("query_only = ON", "trusted_schema = OFF", "case_sensitive_like = ON"):
            opened.execute(f"PRAGMA {pragma}")
        if opened.execute("PRAGMA encoding").fetchone() != ("UTF-8",):
            # It orders texts in another way, and has one letter for all halves of letters.
            raise DataError(
                "expected a SQLite database in UTF-8, found one in UTF-16; copy it, with sqlite3 "
                "OLD .dump | sqlite3 NEW"
            )
        opened.set_authorizer(
            lambda action, *_: (
                sqlite3.SQLITE_OK if action in _SQLITE_ALLOWED else sqlite3.SQLITE_DENY
            )
        )
        with _interrupted(opened, connection.seconds):
            yield from _fetched(opened.execute(statement))


def _postgresql(connection: Connection, statement: str) -> Generator[Rows]:
    """PostgreSQL: one read-only transaction of one snapshot, by a role that is no superuser."""
    try:
        import psycopg
    except ImportError:
        raise _without("PostgreSQL", "psycopg") from None
    with closing(psycopg.connect(connection.address, connect_timeout=30)) as opened:
        encoding = opened.info.parameter_status("server_encoding") or "UTF8"
        # As the server has them: it fails at letters that another encoding does not know.
        opened.execute(f"SET client_encoding = '{encoding}'")
        opened.commit()
        codec = opened.info.encoding

        class Decoded(psycopg.adapt.Loader):
            def load(self, data: Any) -> str | None:
                return _decoded(bytes(data), "latin-1" if codec == "ascii" else codec)

        for kind in ("text", "varchar", "bpchar", "name"):
            opened.adapters.register_loader(kind, Decoded)
        opened.read_only = True
        opened.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        milliseconds = 1000 * connection.seconds
        with opened.cursor() as cursor:
            cursor.execute("SET LOCAL search_path = pg_catalog")  # no function of a site's own
            cursor.execute(f"SET LOCAL statement_timeout = {milliseconds}")
            for said in _TEXTS:
                cursor.execute(f"SET LOCAL {said}")
            cursor.execute("SET LOCAL lock_timeout = '60s'")
            for said in _PLANS:
                cursor.execute(f"SET LOCAL {said}")
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            if cursor.fetchone() != (False,):
                raise DataError(
                    "expected a role of PostgreSQL that may only read, got a superuser; make one "
                    "as docs/howto/postgresql.md shows, and name it in sources.toml"
                )
        with opened.cursor(name="hubbub") as cursor:
            cursor.itersize = BATCH
            cursor.execute(statement)
            yield from _fetched(cursor)


def _dbapi(connection: Connection, statement: str) -> Generator[Rows]:
    """Any engine by its Python driver (PEP 249), which the site names: not tried by hubbub.

    It is interrupted where its connection has `interrupt` or `cancel`; where it has none, the time
    of a query that gives no rows is the driver's to limit.
    """
    driver = importlib.import_module(connection.driver)
    with closing(driver.connect(connection.address)) as opened:
        cursor = opened.cursor()
        with _interrupted(opened, connection.seconds):
            cursor.execute(statement)
            yield from _fetched(cursor)
        with suppress(Exception):
            opened.rollback()


def _decoded(content: bytes, codec: str) -> str | None:
    """A text; nothing of bytes that are none, as a program of another encoding leaves them.

    No letter stands for such bytes: keys of several people would become one.
    """
    with suppress(UnicodeDecodeError):
        return content.decode(codec)
    return None


def _fetched(cursor: Any) -> Iterator[Rows]:
    """What a cursor has, piece by piece."""
    while rows := cursor.fetchmany(BATCH):
        yield rows


def _refuse_absent(address: str) -> None:
    """Refuse a file that is not there, which an engine would make or explain at length."""
    if not Path(address).is_file():
        raise DataError(
            "expected a database where url says, from the folder of sources.toml on, found no such "
            "file; correct url"
        )


def _without(engine: str, module: str) -> DataError:
    return DataError(
        f"expected {module} to read {engine}, found that it is not installed; {with_extra('sql')}"
    )
