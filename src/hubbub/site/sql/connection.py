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

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from hubbub.core.disk import read_text, toml_table
from hubbub.core.errors import DataError, StudyError, UserError
from hubbub.core.section import Section, key_of
from hubbub.core.study.extracts.extract import SOURCES, home_of

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
    """How a site's database is reached. Never printed: it may hold a password.

    Args:
        engine: "duckdb", "sqlite", "postgresql", or "dbapi" for another one's Python driver.
        hidden: its address: a path, a PostgreSQL URL, or what that driver's `connect` takes.
        schema: of the tables; empty: the usual one.
        seconds: the longest that a query may take.
        driver: the module of "dbapi".
        dialect: sqlglot's name of its SQL.
    """

    engine: str
    hidden: Hidden
    schema: str = ""
    seconds: int = 1800
    driver: str = ""
    dialect: str = ""

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
    """A silo's connection.

    Args:
        party: its name.
        folder: its own folder, or the one that holds `hubbub-home`.
        environment: variables; those of the process if None.

    Raises:
        UserError: the file may be read by others, or is none.
        DataError: it does not say where the database of this silo is.
    """
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
    section = Section(name, table, _KEYS)
    wrong = ""
    for key, read in _READ.items():
        try:
            read(section)
        except StudyError:  # its sentence quotes the value
            wrong = wrong or key
    if wrong:
        raise UserError(f"expected {wrong} of [{name}] to be {_WANTED[wrong]}; correct it")
    return _from_section(section, folder)


def _from_section(section: Section, folder: Path) -> Connection:
    """The connection of a table whose values are of the right kind."""
    url = section.content.get("url")
    scheme, _, rest = url.partition(":") if isinstance(url, str) else ("", "", "")
    scheme = "postgresql" if scheme == "postgres" else scheme
    if scheme not in ENGINES:
        raise UserError(
            f"expected url of [{section.name}] to begin with duckdb:///, sqlite:///, "
            "postgresql:// or dbapi:, got another; fix it"
        )
    driver = section.text("driver", "")
    dialect = section.text("dialect", "")
    if scheme == "dbapi" and not (driver and dialect):
        raise UserError(
            f"expected driver and dialect beside a dbapi: url of [{section.name}], got none; name "
            "the driver's Python module and sqlglot's word for the SQL"
        )
    address = None
    with suppress(ValueError):  # whose sentence may quote it
        address = _address(scheme, str(url), rest, folder)
    if address is None:
        raise UserError(f"expected url of [{section.name}] to be one, it cannot be read; fix it")
    return Connection(
        engine=scheme,
        hidden=Hidden(address),
        schema=section.text("schema", "public" if scheme == "postgresql" else ""),
        seconds=60 * _minutes(section),
        driver=driver,
        dialect=dialect or ENGINES[scheme],
    )


def _minutes(section: Section) -> int:
    return section.whole("minutes", 30, least=1, most=24 * 60)


_READ: dict[str, Callable[[Section], object]] = {
    "minutes": _minutes,
    **{key: partial(Section.text, key=key, default="") for key in ("schema", "driver", "dialect")},
}
_WANTED = {
    "minutes": "a whole number from 1 to 1440",
    **dict.fromkeys(("schema", "driver", "dialect"), "a text"),
}


def _address(scheme: str, url: str, rest: str, folder: Path) -> str:
    """What an engine takes: a path is relative to the folder of the file that states it."""
    if scheme == "postgresql":
        return url
    if scheme == "dbapi":
        return rest
    return str(folder / urlsplit(url).path.removeprefix("/"))
