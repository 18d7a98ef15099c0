"""Engines: the same arrays from each, nothing but reading, and errors without a cell."""

# ruff: noqa: S608 (statements for databases of the tests' own, bad ones among them)

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import closing, suppress
from pathlib import Path
from time import sleep
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.site.sql.databases import ENGINES, connect, database

from hubbub import Study
from hubbub.core.disk import locked
from hubbub.core.errors import DataError, StudyError, UserError
from hubbub.core.study import extract, silo_records
from hubbub.site.sql import engines
from hubbub.site.sql.engines import connection_of, rows_of
from hubbub.site.sql.owned_query import checked
from hubbub.site.sql.source import rendered

SECRET = "4711"  # a cell that no sentence may have
QUERY = """
SELECT p.pid, p.age, p.sex, p.died, v.n, v.late / 7 AS weeks,
       CAST(p.gone AS DATE) - CAST(p.came AS DATE) AS days,
       EXTRACT(YEAR FROM CAST(p.came AS DATE)) AS y
FROM patients p
LEFT JOIN (SELECT pid, COUNT(*) AS n, MAX(CAST(k AS INTEGER)) AS late FROM visits WHERE k > 0
           GROUP BY pid) v
  ON v.pid = p.pid
WHERE p.sex LIKE 'F%' OR p.age > 30
"""
STUDY: dict[str, Any] = {
    "study": {"name": "registry"},
    "parties": {"names": ["north", "south"], "colluders": 0},
    "data": {
        "source": "sql",
        "query": QUERY,
        "tables": {"patients": "pid", "visits": "pid"},
        "patient": "pid",
        "most_per_patient": 2,
        "order": "days",
        "target": "died",
        "records": 200,
        "columns": {
            "age": {"low": 0, "high": 100},
            "sex": {"categories": ["F", "M"]},
            "n": {"low": 0, "high": 20, "default": 0},
            "weeks": {"low": 0, "high": 9, "default": 0, "indicator": True},
            "days": {"low": 0, "high": 400},
            "y": {"low": 2000, "high": 2030},
        },
    },
    "model": {"kind": "logistic"},
    "training": {"steps": 2, "sample_rate": 0.1},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
    "statistics": {"epsilon": 0.3, "who": {"kind": "table"}},
}
TABLES = (
    "CREATE TABLE patients (pid INTEGER, age DOUBLE PRECISION, sex VARCHAR(9), died INTEGER, "
    "came DATE, gone DATE)",
    "CREATE TABLE visits (pid INTEGER, k INTEGER)",
)


def study(**data: Any) -> Study:
    """The study, with other keys of its data."""
    return Study.from_table({**STUDY, "data": STUDY["data"] | data})


def _rows(seed: int = 1, people: int = 80) -> tuple[list[tuple[Any, ...]], list[tuple[int, int]]]:
    draw = np.random.default_rng(seed)
    patients = []
    for one in range(people):
        for _ in range(1 + one % 3):
            day = int(draw.integers(1, 28))
            age = round(float(draw.normal(50, 20)), 3)
            came, gone = f"2020-01-{day:02}", f"2020-0{2 + one % 8}-{day:02}"
            patients.append((one, age, "FM"[one % 2], int(draw.integers(2)), came, gone))
    visits = [(int(draw.integers(people)), int(draw.integers(9))) for _ in range(300)]
    return patients, visits


def fill(execute: Any, mark: str, *, backwards: bool = False) -> None:
    """Both tables, in one order or the other."""
    patients, visits = _rows()
    for statement in TABLES:
        execute(statement)
    for table, rows in (("patients", patients), ("visits", visits)):
        for row in reversed(rows) if backwards else rows:
            execute(f"INSERT INTO {table} VALUES ({', '.join([mark] * len(row))})", row)


@pytest.fixture
def embedded(tmp_path: Path) -> dict[str, Path]:
    """A folder with a database by engine."""
    for engine in ENGINES:
        with database(tmp_path / engine, engine, "registry") as opened:
            fill(opened.execute, "?", backwards=engine == "sqlite")
    return {engine: tmp_path / engine for engine in ENGINES}


def arrays(home: Path, party: str = "north", made: Study | None = None) -> list[bytes]:
    """All that a silo has of the study, as bytes."""
    records = silo_records.records(made or study(), party, folder=home)
    cells = silo_records.statistic_cells(made or study(), party, folder=home)
    units = cells.unit_rows
    assert records.patients is not None
    parts = [records.inputs, records.targets, records.patients, *cells.columns.values()]
    return [np.asarray(part).tobytes() for part in (*parts, units.rows, units.shares)]


@pytest.mark.slow
def test_p31_engines_that_hold_the_same_rows_in_any_order_give_the_same_bytes(
    embedded: dict[str, Path], postgresql: Any, tmp_path: Path
):
    url = postgresql.made("registry")
    with postgresql.owner("registry") as opened:
        fill(opened.execute, "%s")
        opened.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    embedded["postgresql"] = connect(tmp_path / "postgresql", "north", url)
    found = {engine: arrays(home) for engine, home in embedded.items()}
    assert found["duckdb"] == found["sqlite"] == found["postgresql"]
    assert len(silo_records.records(study(), "north", folder=embedded["duckdb"])) > 80


@pytest.mark.slow
def test_a_patients_first_rows_are_told_by_the_order_of_the_study(embedded: dict[str, Path]):
    made = study(most_per_patient=1)
    records = silo_records.records(made, "north", folder=embedded["sqlite"])
    assert len(records) == records.units
    many = silo_records.records(study(most_per_patient=9), "north", folder=embedded["sqlite"])
    assert many.patients is not None
    days = many.inputs[:, 5]  # age, sex, n, weeks, its indicator, days
    first = [days[many.patients == one][0] for one in range(many.units)]
    assert first == [days[many.patients == one].min() for one in range(many.units)]


@pytest.mark.slow
def test_a_table_that_changes_while_a_study_goes_on_changes_nothing(embedded: dict[str, Path]):
    home = embedded["sqlite"]
    before = arrays(home)
    with closing(sqlite3.connect(home / "registry")) as opened:
        opened.execute("DELETE FROM patients")
        opened.execute("DROP TABLE visits")
        opened.commit()
    assert arrays(home) == before
    extract.forget(study().id, "north", home)
    with pytest.raises(DataError, match="expected the database of north to answer"):
        arrays(home)


@pytest.mark.slow
def test_a_view_that_changes_between_steps_changes_nothing(embedded: dict[str, Path]):
    home = embedded["duckdb"]
    with duckdb.connect(str(home / "registry")) as opened:
        opened.execute("ALTER TABLE patients RENAME TO everybody")
        opened.execute("CREATE VIEW patients AS SELECT * FROM everybody")
    before = arrays(home)
    with duckdb.connect(str(home / "registry")) as opened:
        opened.execute("CREATE OR REPLACE VIEW patients AS SELECT * FROM everybody WHERE age > 60")
    assert arrays(home) == before
    assert arrays(home, made=study(records=201)) != before  # another study reads anew


@pytest.mark.slow
def test_an_extract_is_for_its_owner_alone_and_refused_once_it_was_altered(
    embedded: dict[str, Path],
):
    home = embedded["duckdb"]
    arrays(home)
    (place,) = (home / "extracts").iterdir()
    assert place.stat().st_mode & 0o077 == 0
    assert (home / "extracts").stat().st_mode & 0o077 == 0
    with (place / "inputs.sealed").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(DataError, match="found it altered"):
        arrays(home)


@pytest.mark.slow
def test_nothing_is_left_of_a_reading_that_failed(embedded: dict[str, Path]):
    home = embedded["duckdb"]
    with pytest.raises(DataError):
        arrays(home, made=study(query=QUERY.replace("p.sex, p.died", "p.sex, p.nothing AS died")))
    assert list((home / "extracts").iterdir()) == []


def test_p31_duckdb_reads_no_file_but_its_own(tmp_path: Path):
    """Nor one that its database names, in a view, which a query takes for a table."""
    (tmp_path / "secret.csv").write_text("a\n1\n")
    read = f"SELECT a FROM read_csv('{tmp_path / 'secret.csv'}')"
    with database(tmp_path, "duckdb") as opened:
        opened.execute("CREATE TABLE own (a INTEGER)")
        opened.execute("INSERT INTO own VALUES (1)")
        opened.execute(f"CREATE VIEW others AS {read}")
    connection = connection_of("north", tmp_path)
    assert list(rows_of(connection, "SELECT a FROM own", "north")) == [[(1,)]]
    for statement in (read, "SELECT a FROM others"):
        with pytest.raises(DataError, match="answer the study's query"):
            list(rows_of(connection, statement, "north"))


@pytest.mark.slow
def test_embedded_engines_only_read(embedded: dict[str, Path], tmp_path: Path):
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    attacks = [
        "INSERT INTO visits VALUES (1, 1)",
        "DROP TABLE visits",
        f"ATTACH '{tmp_path / 'other'}' AS other",
    ]
    own = {
        "duckdb": [
            f"SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')",
            f"SELECT * FROM '{tmp_path / 'secret.csv'}'",
            f"COPY visits TO '{tmp_path / 'out.csv'}'",
            "SET enable_external_access = true",
            "SET lock_configuration = false",
            "INSTALL httpfs",
            "SELECT * FROM connection",  # a variable of the program
        ],
        "sqlite": [
            "PRAGMA query_only = OFF",
            "PRAGMA writable_schema = ON",
            "SELECT load_extension('x')",
        ],
    }
    for engine, home in embedded.items():
        connection = connection_of("north", home)
        for attack in (*attacks, *own[engine]):
            with pytest.raises(DataError, match="answer the study's query"):
                list(rows_of(connection, attack, "north"))
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "other").exists()


def test_postgresql_only_reads_and_never_as_a_superuser(postgresql: Any, tmp_path: Path):
    url = postgresql.made("held", *TABLES, f"INSERT INTO visits VALUES ({SECRET}, 1)")
    connection = connection_of("north", connect(tmp_path, "north", url))
    assert list(rows_of(connection, "SELECT pid, k FROM public.visits", "north")) == [
        [(int(SECRET), 1)]
    ]
    with postgresql.owner("held") as opened:
        opened.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO reader")
        opened.execute("CREATE TABLE hidden (pid INTEGER)")
    for attack, said in {
        "INSERT INTO public.visits VALUES (1, 1)": "DuplicateCursor|SyntaxError",
        "SELECT 1; DROP TABLE public.visits": "SyntaxError",
        "SELECT * FROM public.hidden": "InsufficientPrivilege: permission denied",
        "SELECT pg_read_file('/etc/passwd')": "InsufficientPrivilege",
        "SELECT * FROM nothing": "UndefinedTable",
    }.items():
        with pytest.raises(DataError) as raised:
            list(rows_of(connection, attack, "north"))
        assert any(one in str(raised.value) for one in said.split("|"))
    with postgresql.owner("held") as opened:
        assert opened.execute("SELECT count(*) FROM visits").fetchone() == (1,)
    owner = connect(tmp_path / "owner", "north", postgresql.url("owner", "held"))
    with pytest.raises(DataError, match="got a superuser"):
        list(rows_of(connection_of("north", owner), "SELECT 1", "north"))


def test_a_function_of_the_sites_own_is_never_called_in_place_of_the_engines(
    postgresql: Any, tmp_path: Path
):
    url = postgresql.made(
        "shadowed",
        *TABLES,
        "INSERT INTO patients VALUES (1, 50, 'F', 0, '2020-01-01', '2020-02-01')",
        "CREATE FUNCTION public.lower(TEXT) RETURNS TEXT LANGUAGE sql AS $$ SELECT 'M'::TEXT $$",
        "ALTER ROLE reader IN DATABASE shadowed SET search_path = public, pg_catalog",
    )
    home = connect(tmp_path, "north", url)
    asked = study(query=QUERY.replace("p.sex, p.died", "UPPER(LOWER(p.sex)) AS sex, p.died"))
    records = silo_records.records(asked, "north", folder=home)
    assert records.inputs[0, 1] == -1  # F, the first of two categories


@pytest.mark.slow
def test_no_sentence_of_a_database_has_a_cell(postgresql: Any, tmp_path: Path):
    url = postgresql.made(
        "quoting", "CREATE TABLE t (a TEXT)", f"INSERT INTO t VALUES ('x{SECRET}')"
    )
    homes = [connect(tmp_path / "p", "north", url)]
    for engine in ENGINES:
        homes.append(tmp_path / engine)
        with database(homes[-1], engine) as opened:
            opened.execute("CREATE TABLE t (a TEXT)")
            opened.execute(f"INSERT INTO t VALUES ('x{SECRET}')")
    raised = []
    for home in homes:
        connection = connection_of("north", home)
        table = "public.t" if connection.engine == "postgresql" else "t"
        for what in ("CAST(a AS INTEGER) / 0", "json_extract(a, '$')"):
            wrong = f"SELECT {what} FROM {table}"
            with suppress(DataError):
                list(rows_of(connection, wrong, "north"))
                continue
            with pytest.raises(DataError) as said:
                list(rows_of(connection, wrong, "north"))
            raised.append(said.value)
    assert len(raised) >= 4
    for error in raised:
        assert SECRET not in str(error)
        assert error.__cause__ is error.__context__ is None


@pytest.mark.slow
def test_a_lock_a_limit_of_time_and_a_dropped_line_are_errors_of_the_database(
    postgresql: Any, tmp_path: Path, embedded: dict[str, Path]
):
    url = postgresql.made("slow", *TABLES)
    with postgresql.owner("slow") as opened:
        opened.execute("INSERT INTO visits SELECT k, k FROM generate_series(1, 200000) k")
    connection = connection_of("north", connect(tmp_path / "p", "north", url))
    dropped = rows_of(connection, "SELECT pid, k FROM public.visits", "north")
    next(dropped)
    with postgresql.owner("slow") as opened:
        opened.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
        )
    with pytest.raises(DataError, match="answer the study's query, got"):
        list(dropped)
    quick = connection_of("north", connect(tmp_path / "p", "north", url))
    object.__setattr__(quick, "seconds", 1)
    with pytest.raises(DataError, match="QueryCanceled"):
        list(rows_of(quick, "SELECT pg_sleep(5)", "north"))
    away = connect(tmp_path / "q", "north", "postgresql://reader@/slow?host=/nowhere")
    with pytest.raises(DataError, match="OperationalError"):
        list(rows_of(connection_of("north", away), "SELECT 1", "north"))
    with closing(sqlite3.connect(embedded["sqlite"] / "registry")) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        locked = connection_of("north", embedded["sqlite"])
        with pytest.MonkeyPatch.context() as patched:
            real = sqlite3.connect
            patched.setattr(sqlite3, "connect", lambda *a, **k: real(*a, **k | {"timeout": 0.1}))
            with pytest.raises(DataError, match="locked"):
                list(rows_of(locked, "SELECT pid FROM visits", "north"))


def test_a_call_is_never_made_of_a_column_that_is_not_there(postgresql: Any, tmp_path: Path):
    """PostgreSQL reads t.count, where t has no such column, as count(t): an aggregate."""
    url = postgresql.made("calls", *TABLES, "INSERT INTO visits VALUES (1, 1), (1, 2)")
    with postgresql.owner("calls") as opened:
        opened.execute("INSERT INTO patients VALUES (1, 1, 'F', 0, '2020-01-01', '2020-02-01')")
        assert opened.execute("SELECT v.count FROM visits v").fetchone() == (2,)
    home = connect(tmp_path, "north", url)
    with pytest.raises(DataError, match="UndefinedColumn"):
        silo_records.records(
            study(query=QUERY.replace("p.died,", "p.count AS died,")), "north", folder=home
        )


def test_a_connection_is_shown_by_its_engine_alone(tmp_path: Path):
    home = connect(tmp_path, "north", "postgresql://reader:hunter2@db/registry")
    made = connection_of("north", home)
    assert repr(made) == str(made) == "<Connection to postgresql>"
    (home / "sources.toml").chmod(0o644)
    with pytest.raises(UserError, match="open to others"):
        connection_of("north", home)
    for url in ("mysql://u:hunter2@h", "hunter2", "", 3):
        (home / "sources.toml").write_text(f"[north]\nurl = {url!r}\n")
        (home / "sources.toml").chmod(0o600)
        with pytest.raises(UserError) as raised:
            connection_of("north", home)
        assert "hunter2" not in str(raised.value)
    (home / "sources.toml").write_text("[north]\nurl = hunter2\n")
    with pytest.raises(UserError) as raised:
        connection_of("north", home)
    assert "hunter2" not in str(raised.value)
    found = connection_of("south", tmp_path / "no", {"HUBBUB_SOURCE": "duckdb:///x.duckdb"})
    assert found.address == str(tmp_path / "no" / "x.duckdb")
    with pytest.raises(DataError, match="found neither"):
        connection_of("south", tmp_path / "no", {})
    with pytest.raises(UserError, match=r"url of \[HUBBUB_SOURCE\]"):
        connection_of("south", tmp_path / "no", {"HUBBUB_SOURCE": ""})


@pytest.mark.quick_cases(
    'url = "duckdb:///x"\\nminutes = "hunter2"',
    'url = "duckdb:///x"\\nminutes = [["hunter2"]]',
    'url = "duckdb:///x"\\nschema = ["hunter2"]',
    'url = "dbapi:x"\\ndriver = ["hunter2"]\\ndialect = "sqlite"',
)
@pytest.mark.parametrize(
    "lines",
    [
        'url = "duckdb:///x"\npassword = "hunter2"',
        'url = "duckdb:///x"\nminutes = "hunter2"',
        'url = "duckdb:///x"\nminutes = [["hunter2"]]',
        'url = "duckdb:///x"\nschema = ["hunter2"]',
        'url = "dbapi:x"\ndriver = ["hunter2"]\ndialect = "sqlite"',
        'url = "dbapi:x"\ndriver = "sqlite3"\ndialect = "hunter2"',
        'url = "dbapi:x"\ndriver = "hunter2"\ndialect = "sqlite"',
        'url = "duckdb://[hunter2"',
        'url = "duckdb:hunter2"',
        f'url = "sqlite:///hunter2{"x" * 300}"',
        'url = "postgresql://[hunter2"',
        'url = "postgresql://u:hunter2@/x?host=/nowhere"',
    ],
)
def test_no_value_of_a_connection_is_in_a_sentence(tmp_path: Path, lines: str):
    (tmp_path / "sources.toml").write_text(f"[north]\n{lines}\n")
    (tmp_path / "sources.toml").chmod(0o600)
    with pytest.raises((UserError, DataError)) as raised:
        silo_records.records(study(), "north", folder=tmp_path)
    shown = "".join(traceback.format_exception(raised.value, chain=True)[-1:])
    assert "hunter2" not in shown
    assert raised.value.__cause__ is raised.value.__context__ is None


def test_a_connection_is_not_written_field_by_field(tmp_path: Path):
    made = connection_of("north", connect(tmp_path, "north", "postgresql://r:hunter2@db/registry"))
    assert "hunter2" not in str(dataclasses.asdict(made))
    assert "hunter2" not in str(vars(made))
    with pytest.raises(TypeError, match="in this process"):
        pickle.dumps(made)


ENDLESS = (
    "SELECT MAX(a.k * b.k - c.k + d.k * e.k) FROM visits a, visits b, visits c, visits d, visits e"
)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", "sqlite", "dbapi"])
def test_a_query_ends_with_the_minutes_of_its_site(embedded: dict[str, Path], engine: str):
    home = embedded["sqlite" if engine == "dbapi" else engine]
    if engine == "dbapi":
        connect(home, "north", f"dbapi:{home / 'registry'}", driver="sqlite3", dialect="sqlite")
    quick = connection_of("north", home)
    object.__setattr__(quick, "seconds", 1)
    with pytest.raises(DataError, match="within the minutes"):
        list(rows_of(quick, ENDLESS, "north"))
    object.__setattr__(quick, "seconds", 4)  # enough for a first row on a busy machine
    rows = rows_of(quick, "SELECT a.pid FROM visits a, visits b", "north")
    next(rows)
    sleep(4.1)
    with pytest.raises(DataError, match="within the minutes"):
        list(rows)
    assert "hubbub-minutes" not in [one.name for one in threading.enumerate()]


@pytest.mark.slow
def test_duckdb_leaves_nothing_beside_its_database(
    embedded: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    home = embedded["duckdb"]
    connection = connection_of("north", home)
    wanted = "SELECT current_setting('temp_directory'), current_setting('memory_limit')"
    assert list(rows_of(connection, wanted, "north")) == [[("", "3.7 GiB")]]
    monkeypatch.setattr(engines, "MEMORY", "60MB")
    before = set(home.iterdir())
    large = "SELECT k, md5(k::TEXT) AS m FROM range(4000000) t(k) ORDER BY m"
    with pytest.raises(DataError, match="OutOfMemoryException"):
        list(rows_of(connection, large, "north"))
    assert set(home.iterdir()) == before


@pytest.mark.slow
def test_duckdb_tells_a_notebook_nothing_of_how_far_it_is(embedded: dict[str, Path]):
    work = (
        "import sys; from pathlib import Path\n"
        "from hubbub.site.sql.engines import connection_of\n"
        "from hubbub.site.sql.engines import rows_of\n"
        "connection = connection_of('north', Path(sys.argv[1]))\n"
        "asked = \"SELECT current_setting('enable_progress_bar')\"\n"
        "assert list(rows_of(connection, asked, 'north')) == [[(False,)]]\n"
    )
    asked = [sys.executable, "-c", work, str(embedded["duckdb"])]  # interactive, to DuckDB
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="root alone can be somebody else")
@pytest.mark.parametrize(("mode", "said"), [("DELETE", "[[(1,)]]"), ("WAL", "readonly")])
def test_a_sqlite_file_that_may_only_be_read_is_read_and_one_in_wal_mode_says_why(
    mode: str, said: str
):
    with tempfile.TemporaryDirectory(dir="/tmp") as made:  # pytest's own is for nobody else
        with closing(sqlite3.connect(Path(made) / "registry")) as opened:
            opened.execute(f"PRAGMA journal_mode = {mode}")
            opened.execute("CREATE TABLE t AS SELECT 1 AS pid")
            opened.commit()
        assert said in _as_somebody_else(Path(made), "SELECT pid FROM t")


def _as_somebody_else(home: Path, statement: str) -> str:
    """What a user who may only read hears of a database."""
    (home / "registry").chmod(0o644)
    home.chmod(0o755)
    work = f"""
import os, sqlite3
from hubbub.core.errors import HubbubError
from hubbub.site.sql.engines import Connection, Hidden
from hubbub.site.sql.engines import rows_of
made = Connection(engine="sqlite", hidden=Hidden({str(home / "registry")!r}))
os.setgid(65534), os.setuid(65534)
try:
    print(list(rows_of(made, {statement!r}, "north")))
except HubbubError as error:
    print(error)
"""
    asked = [sys.executable, "-c", work]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


def test_postgresql_goes_through_no_table_once_for_each_person(postgresql: Any, tmp_path: Path):
    """Its planner takes rows behind a checked CAST for one, and nests loops over thousands."""
    url = postgresql.made(
        "planned",
        "CREATE TABLE t AS SELECT k AS pid, '2020-01-01' AS day FROM generate_series(1, 4000) k",
        "ANALYZE t",
    )
    connection = connection_of("north", connect(tmp_path, "north", url))
    asked = "SELECT current_setting('enable_nestloop'), current_setting('cursor_tuple_fraction')"
    assert list(rows_of(connection, asked, "north")) == [[("off", "1")]]
    query = checked(
        "SELECT a.pid FROM t a JOIN "
        "(SELECT pid, MIN(CAST(day AS DATE)) AS d FROM t GROUP BY pid) b "
        "ON b.pid = a.pid AND CAST(a.day AS DATE) - b.d BETWEEN 0 AND 9",
        {"t": "pid"},
        patient="pid",
    )
    statement = rendered(query.select, "postgres", "public")
    assert sum(map(len, rows_of(connection, statement, "north"))) == 4000


# What an engine may take for its clock, and what is a day.
NO_DAYS = ("now", "NOW", " today ", "yesterday", "tomorrow", "epoch", "infinity", "now-01-01", "")
DAYS = {"2020-03-04": "2020-03-04", "2020-03-04 05:06:07": "2020-03-04"}


@pytest.mark.parametrize("value", ["s", "'to' || LOWER(s)"])
def test_p31_a_text_that_is_no_day_is_no_date_of_any_engine(
    postgresql: Any, tmp_path: Path, value: str
):
    texts = [*NO_DAYS, *DAYS] if value == "s" else ["DAY", "morrow"]
    said = [f"INSERT INTO t VALUES ({k}, '{text}')" for k, text in enumerate(texts)]
    url = postgresql.made(f"clock{len(value)}", "CREATE TABLE t (pid INTEGER, s TEXT)", *said)
    homes = [connect(tmp_path / "p", "north", url)]
    for engine in ENGINES:
        homes.append(tmp_path / engine)
        with database(homes[-1], engine) as opened:
            for statement in ("CREATE TABLE t (pid INTEGER, s TEXT)", *said):
                opened.execute(statement)
    day = f"CAST({value} AS DATE)"
    asked = f"SELECT pid, {day} AS d, EXTRACT(YEAR FROM {day}) AS y FROM t"
    query = checked(asked, {"t": "pid"}, patient="pid")
    wanted = [(DAYS.get(text, "None"), "2020" if text in DAYS else "None") for text in texts]
    for home in homes:
        connection = connection_of("north", home)
        statement = rendered(query.select, connection.dialect, connection.schema)
        found = [row for rows in rows_of(connection, statement, "north") for row in rows]
        assert [
            (str(d), str(y)) for _, d, y in sorted(found, key=lambda row: int(row[0]))
        ] == wanted


def test_a_day_of_a_site_that_writes_dates_otherwise_stays_that_day(
    postgresql: Any, tmp_path: Path
):
    url = postgresql.made(
        "german",
        *TABLES,
        "INSERT INTO patients VALUES (1, 50, 'F', 0, '2020-03-04', '2020-02-01')",
        "ALTER ROLE reader IN DATABASE german SET datestyle = 'German'",
    )
    connection = connection_of("north", connect(tmp_path, "north", url))
    query = checked(
        "SELECT pid, CAST(came AS DATE) AS d FROM patients", {"patients": "pid"}, patient="pid"
    )
    statement = rendered(query.select, connection.dialect, connection.schema)
    ((row,),) = rows_of(connection, statement, "north")
    assert str(row[1]) == "2020-03-04"


@pytest.mark.slow
def test_another_engine_is_reached_by_the_driver_that_the_site_names(embedded: dict[str, Path]):
    home = embedded["sqlite"]
    before = arrays(home)
    extract.forget(study().id, "north", home)
    connect(home, "north", f"dbapi:{home / 'registry'}", driver="sqlite3", dialect="sqlite")
    assert arrays(home) == before


def test_p31_a_cell_that_does_not_fit_is_missing_or_its_row_left_out(tmp_path: Path):
    home = connect(tmp_path, "north", "sqlite:///registry")
    with closing(sqlite3.connect(home / "registry")) as opened:
        fill(opened.execute, "?")
        opened.commit()
    made = study(query=QUERY.partition("WHERE p.sex")[0])
    before = silo_records.records(made, "north", folder=home)
    changes = {
        f"UPDATE patients SET died = {SECRET} WHERE pid = 6": -1,  # a target in no list
        "UPDATE patients SET age = 'old' WHERE pid = 9": -1,  # no default stands in for it
        f"UPDATE patients SET sex = '{SECRET}' WHERE pid = 12": -1,
        "UPDATE patients SET pid = NULL WHERE pid = 15": -1,
        "UPDATE visits SET k = 'x' WHERE pid = 18": 0,  # which has one
        "UPDATE patients SET came = 'now' WHERE pid = 21": -1,
    }
    gone = 0
    for change, less in changes.items():
        with closing(sqlite3.connect(home / "registry")) as opened:
            opened.execute(change)
            opened.commit()
        extract.forget(made.id, "north", home)
        gone += less
        assert silo_records.records(made, "north", folder=home).units == before.units + gone, change


def test_p31_a_table_of_nobody_is_read_as_one_of_no_records(tmp_path: Path):
    home = connect(tmp_path, "north", "sqlite:///registry")
    with closing(sqlite3.connect(home / "registry")) as opened:
        for statement in TABLES:
            opened.execute(statement)
        opened.commit()
    records = silo_records.records(study(), "north", folder=home)
    assert (len(records), records.inputs.shape[1:]) == (0, (7,))
    assert len(silo_records.statistic_cells(study(), "north", folder=home)) == 0


@pytest.mark.slow
def test_an_extract_shows_nothing_of_what_it_holds_and_opens_in_its_own_folder_alone(
    embedded: dict[str, Path],
):
    home = embedded["sqlite"]
    records = silo_records.records(study(), "north", folder=home)
    (place,) = (home / "extracts").iterdir()
    content = b"".join(path.read_bytes() for path in place.iterdir())
    rows = [row.tobytes() for row in records.inputs[:, :4]]
    assert not any(row in content for row in rows)
    assert all(path.stat().st_mode & 0o077 == 0 for path in place.iterdir())
    assert (home / "extracts.key").stat().st_mode & 0o077 == 0
    other = embedded["duckdb"]
    shutil.copytree(home / "extracts", other / "extracts")
    with pytest.raises(DataError, match="found it altered"):
        silo_records.records(study(), "north", folder=other)
    (home / "extracts.key").unlink()
    with pytest.raises(DataError, match="found it altered"):
        silo_records.records(study(), "north", folder=home)


@pytest.mark.slow
def test_what_a_killed_process_had_begun_is_swept_and_what_another_is_making_is_not(
    embedded: dict[str, Path],
):
    home = embedded["sqlite"]
    folder = home / "extracts"
    for name in (".making-dead", ".making-busy"):
        (folder / name).mkdir(parents=True)
        (folder / name / "inputs.raw").write_bytes(b"begun")
    with locked(folder / ".making-busy" / "lock"):
        silo_records.records(study(), "north", folder=home)
        assert {path.name for path in folder.glob(".making-*")} == {".making-busy"}


@pytest.mark.slow
def test_the_order_of_people_follows_from_their_rows_and_not_from_their_keys(tmp_path: Path):
    homes = []
    for shift in (0, 500):
        homes.append(connect(tmp_path / str(shift), "north", "sqlite:///registry"))
        with closing(sqlite3.connect(homes[-1] / "registry")) as opened:
            fill(opened.execute, "?")
            for table in ("patients", "visits"):
                opened.execute(f"UPDATE {table} SET pid = 7919 * (pid + {shift}) % 100003")
            opened.commit()
    assert arrays(homes[0]) == arrays(homes[1])


def test_a_study_names_a_query_or_nothing_of_one():
    for wrong, said in (
        ({"query": ""}, "expected data.query"),
        ({"tables": {}}, "expected data.tables"),
        ({"tables": {"patients": "pid"}}, "the table 'visits'"),
        ({"patient": "age"}, "expected data.patient"),
        ({"query": QUERY.replace("p.pid, p.age", "p.pid AS whose, p.age")}, "no column 'pid'"),
        ({"order": "nothing"}, "to give 'nothing'"),
        ({"options": {"a": 1}}, "data.options"),
        ({"query": QUERY.replace("p.sex,", "")}, "to give 'sex'"),
    ):
        with pytest.raises(StudyError, match=said):
            study(**wrong)
    plain = {key: value for key, value in STUDY["data"].items() if key not in ("source", "patient")}
    with pytest.raises(StudyError, match=r"data\.query"):
        Study.from_table({**STUDY, "data": {**plain, "files": "{name}.csv"}})


def test_the_query_is_part_of_the_study_id_and_comes_back_from_its_file():
    made = study()
    assert Study.parse(made.as_toml()).id == made.id
    assert study(query=QUERY + " AND p.age < 90").id != made.id
    assert study(tables={"patients": "pid", "visits": "pid", "labs": "pid"}).id != made.id
