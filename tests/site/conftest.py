"""A PostgreSQL server of the tests' own, in a folder that goes with them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

# Debian's, the newest last; elsewhere what is in PATH.
_BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: int(one.parent.name))
_BINARIES = _BINARIES or [Path(one).resolve().parent for one in [shutil.which("initdb")] if one]


class Server:
    """A server that listens at a socket in its folder.

    Args:
        folder: with its socket.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, role: str, database: str) -> str:
        """Where a role finds a database."""
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def owner(self, database: str) -> Any:
        """A connection as who may do everything."""
        import psycopg

        return closing(psycopg.connect(self.url("owner", database), autocommit=True))

    def made(self, database: str, *statements: str) -> str:
        """A new database, which the role `reader` may read: its url for that role."""
        with self.owner("postgres") as opened:
            opened.execute(f"DROP DATABASE IF EXISTS {database}")
            opened.execute(f"CREATE DATABASE {database}")
        with self.owner(database) as opened:
            for one in statements:
                opened.execute(one)
            opened.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        return self.url("reader", database)


def _as_nobody() -> dict[str, Any]:
    """Who runs the server: it refuses to be root."""
    if os.getuid():
        return {}
    names = {one.pw_name for one in pwd.getpwall()}
    return {"user": "postgres" if "postgres" in names else "nobody"}


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server; tests that want it are skipped by name where it is not installed."""
    pytest.importorskip("psycopg")
    if not _BINARIES:
        pytest.skip("no PostgreSQL is installed (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="hubbub-pg-", dir="/tmp"))
    who = _as_nobody()
    if who:
        shutil.chown(folder, who["user"])
    quiet: dict[str, Any] = {**who, "cwd": folder, "stdout": subprocess.DEVNULL}
    quiet |= {"stderr": subprocess.DEVNULL}
    data, binaries = folder / "data", _BINARIES[-1]
    make = [binaries / "initdb", "-D", data, "-U", "owner", "-A", "trust", "-E", "UTF8", "-N"]
    subprocess.run([*map(str, make), "--locale=C"], check=True, **quiet)
    settings = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    control = [str(binaries / "pg_ctl"), "-D", str(data), "-w", "-t", "120"]
    subprocess.run(
        [*control, "-o", settings, "-l", str(folder / "log"), "start"], check=True, **quiet
    )
    server = Server(folder)
    try:
        with server.owner("postgres") as opened:
            opened.execute("CREATE ROLE reader LOGIN")
        yield server
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, **quiet)
        shutil.rmtree(folder, ignore_errors=True)
