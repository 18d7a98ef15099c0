"""What one person's cell is: of any type a text, a number or missing, and never a failure (P31)."""

# ruff: noqa: S608 (statements for databases of the tests' own)

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.study.sql.test_engines import connect

from hubbub.core.errors import DataError, StudyError
from hubbub.core.study.extracts.cell_stream import texts_of
from hubbub.site.sql.connection import connection_of
from hubbub.site.sql.engines import rows_of
from hubbub.site.sql.owned_query import checked
from hubbub.site.sql.rendering import rendered

# Values that no driver hands over, or that it hands over as an object of its own.
DUCKDB = (
    *("DATE 'infinity'", "DATE '0044-03-15 (BC)'", "DATE '10000-01-01'", "INTERVAL 200000 YEAR"),
    *("TIMESTAMP '290000-01-01 00:00:00'", "TIMESTAMP '-infinity'", "TIME '24:00:00'"),
    *("[INTERVAL 200000 YEAR]", "{'a': DATE 'infinity'}", "'\\xff'::BLOB", "UUID()::VARCHAR"),
    *("170141183460469231731687303715884105727::HUGEINT", "'nan'::DOUBLE", "'-inf'::FLOAT"),
)
POSTGRESQL = (
    *("'infinity'::DATE", "'0044-03-15 BC'::DATE", "'10000-01-01'::DATE", "'24:00'::TIME"),
    *("'infinity'::TIMESTAMP", "'294000-01-01'::TIMESTAMPTZ", "'170000 years'::INTERVAL"),
    *("'[2020-01-01,)'::DATERANGE", "'{[1,2],[5,6]}'::INT4MULTIRANGE", "'\\xff'::BYTEA"),
    *("'NaN'::NUMERIC", "1e400::NUMERIC", "'1.2.3.4/8'::INET", "'{\"a\": 1}'::JSONB", "B'101'"),
)
ASKED = (
    "SELECT pid, x FROM t",
    "SELECT pid, CAST(x AS DOUBLE PRECISION) AS x FROM t WHERE x = 5 OR x <> 'a'",
    "SELECT pid, LOWER(x) || 'a' AS x FROM t WHERE x LIKE '%1%' OR x IN (1, 2) OR x",
    "SELECT pid, COALESCE(x, 'none') AS x FROM t WHERE NOT x IS NULL AND NOT (x) IS TRUE",
    "SELECT pid, CAST(x AS DATE) AS x FROM t WHERE x BETWEEN 1 AND 2 OR x > '2020-01-01'",
    "SELECT pid, COUNT(DISTINCT x) AS x FROM t GROUP BY pid",
    "SELECT a.pid, b.x FROM t a JOIN t b ON b.pid = a.pid AND b.x AND a.x = b.x",
)


def _answers(home: Path, query: str) -> list[tuple[str, ...]]:
    connection = connection_of("north", home)
    made = checked(query, {"t": "pid"}, patient="pid")
    statement = rendered(made.select, connection.dialect, connection.schema)
    rows = [texts_of(row) for part in rows_of(connection, statement, "north") for row in part]
    return sorted(map(tuple, rows))


@pytest.mark.slow
def test_p31_a_cell_that_no_driver_hands_over_keeps_nobody_away(postgresql: Any, tmp_path: Path):
    for place, value in enumerate(DUCKDB):
        home = connect(tmp_path / f"d{place}", "north", "duckdb:///db")
        with duckdb.connect(str(home / "db")) as opened:
            opened.execute(f"CREATE TABLE t AS SELECT '4711' AS pid, {value} AS x")
        for query in ASKED:
            _answers(home, query)
    columns = ", ".join(f"{value} AS x{place}" for place, value in enumerate(POSTGRESQL))
    url = postgresql.made("wild", f"CREATE TABLE t AS SELECT '4711'::TEXT AS pid, {columns}")
    home = connect(tmp_path / "p", "north", url)
    for place in range(len(POSTGRESQL)):
        for query in ASKED[:3]:
            _answers(home, query.replace("x", f"x{place}"))


def test_p31_bytes_of_another_encoding_keep_nobody_away(postgresql: Any, tmp_path: Path):
    home = connect(tmp_path / "s", "north", "sqlite:///db")
    with sqlite3.connect(home / "db") as opened:
        opened.execute("CREATE TABLE t (pid TEXT, x TEXT)")
        opened.execute("INSERT INTO t VALUES ('1', CAST(X'4dfc6c6c6572' AS TEXT)), ('2', X'ff')")
    for query in ASKED:
        _answers(home, query)
    assert _answers(home, ASKED[0]) == [("1", ""), ("2", "")]
    with postgresql.owner("postgres") as opened:
        opened.execute("DROP DATABASE IF EXISTS western")
        opened.execute("CREATE DATABASE western ENCODING 'WIN1252' TEMPLATE template0")
    with postgresql.owner("western") as opened:
        opened.execute("CREATE TABLE t AS SELECT '1'::TEXT AS pid, 'Müller'::TEXT AS x")
        opened.execute("INSERT INTO t SELECT '2', convert_from('\\x81'::BYTEA, 'WIN1252')")
        opened.execute("GRANT SELECT ON t TO reader")
    home = connect(tmp_path / "p", "north", postgresql.url("reader", "western"))
    assert _answers(home, "SELECT pid, x FROM t WHERE x <> 'ä'")[0] == ("1", "Müller")


@pytest.mark.parametrize(
    "said",
    [
        "CASE WHEN pid = 4711 THEN 'x' ELSE 'true' END",
        *("LOWER(s)", "NOT TRIM(s)", "s || 'a'", "COALESCE(s, 'x')", "NULLIF(s, 'x')", "'x'"),
        *("CAST(s AS TEXT) OR TRUE", "LENGTH(s) = 1 AND SUBSTRING(s, 1, 1)", "CAST(s AS DATE)"),
        *("LOWER(s) = 5", "LOWER(s) IN ('a', 5)", "5 IN (k, LOWER(s))", "LOWER(s) + 1 > 2"),
        *("CAST(s AS DATE) = 'x'", "CAST(s AS DATE) > 5", "k BETWEEN LOWER(s) AND 5", "s < k"),
        *("CASE LOWER(s) WHEN 5 THEN TRUE END", "COALESCE(CAST(s AS DATE), 5) IS NULL"),
        *("CASE WHEN TRUE THEN LOWER(s) ELSE 5 END = 'a'", "NULLIF(LOWER(s), 5) IS NULL"),
        *("LENGTH(CAST(k AS INTEGER)) = 1", "CAST(k AS INTEGER) LIKE '1%'", "-LOWER(s) = 1"),
        *(
            "CAST(CAST(s AS DOUBLE PRECISION) AS TEXT) = '1'",
            "SQRT(TRIM(s)) > 1",
            "s BETWEEN k AND s",
        ),
    ],
)
def test_p31_nothing_is_let_in_that_an_engine_would_cast_of_itself(said: str):
    for query in (
        f"SELECT pid FROM t WHERE {said}",
        f"SELECT pid, CASE WHEN ({said}) THEN 1 END AS x FROM t",
        f"SELECT a.pid FROM t a JOIN (SELECT pid, k FROM t WHERE NOT ({said})) b ON b.pid = a.pid",
    ):
        with pytest.raises(StudyError, match=r"expected data\.query to "):
            checked(query, {"t": "pid"}, patient="pid")


def test_p31_a_column_is_a_condition_where_it_is_a_number_and_not_0(tmp_path: Path):
    rows = [("1", "1"), ("2", "0"), ("3", "x"), ("4", "2.5"), ("5", None), ("6", "true")]
    for engine, opener in (("duckdb", duckdb.connect), ("sqlite", sqlite3.connect)):
        home = connect(tmp_path / engine, "north", f"{engine}:///db")
        opened = opener(str(home / "db"))
        opened.execute("CREATE TABLE t (pid TEXT, s TEXT)")
        opened.executemany("INSERT INTO t VALUES (?, ?)", rows)
        opened.commit()
        opened.close()
        assert _answers(home, "SELECT pid FROM t WHERE s") == [("1",), ("4",)]
        assert _answers(home, "SELECT pid FROM t WHERE NOT s") == [("2",)]


def test_p31_bytes_that_are_no_text_are_nobodys_key(tmp_path: Path):
    """Functions of SQLite end at a letter of number 0, and a decoder has one letter for all."""
    keys = ("12", "12.\0x", "12.\0y", "12\0.0", b"\xff", b"\xfe")
    for engine, opener in (("duckdb", duckdb.connect), ("sqlite", sqlite3.connect)):
        home = connect(tmp_path / engine, "north", f"{engine}:///db")
        opened = opener(str(home / "db"))
        opened.execute("CREATE TABLE t (pid TEXT, x TEXT)")
        for key in keys if engine == "sqlite" else keys[:4]:
            opened.execute("INSERT INTO t VALUES (CAST(? AS TEXT), CAST(? AS TEXT))", (key, key))
        opened.commit()
        opened.close()
        assert {row[0] for row in _answers(home, ASKED[0])} == {"", "12"}
        asked = "SELECT pid, LENGTH(x) AS n, CAST(x AS BIGINT) AS k, x LIKE '_' AS b FROM t"
        assert [row for row in _answers(home, asked) if row[0]] == [("12", "2", "12", "0")]
        assert ("", "", "", "") in _answers(home, asked)
        joined = "SELECT a.pid, b.x FROM t a JOIN t b ON b.pid = a.pid"
        assert [row for row in _answers(home, joined) if row[0]] == [("12", "12")]


def test_a_sqlite_database_in_utf_16_is_refused(tmp_path: Path):
    home = connect(tmp_path, "north", "sqlite:///db")
    with sqlite3.connect(tmp_path / "db") as opened:
        opened.execute("PRAGMA encoding = 'UTF-16'")
        opened.execute("CREATE TABLE t (pid TEXT, x TEXT)")
    with pytest.raises(DataError, match="UTF-16; copy it"):
        _answers(home, ASKED[0])


def test_p31_a_postgresql_domain_is_read_as_what_it_is_of(postgresql: Any, tmp_path: Path):
    url = postgresql.made(
        "domains",
        "CREATE DOMAIN dose AS NUMERIC",
        "CREATE DOMAIN share AS DOUBLE PRECISION",
        "CREATE DOMAIN answer AS BOOLEAN",
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', "
        "deterministic = false)",
        "CREATE TABLE t (pid TEXT COLLATE loose, x dose, y share, z answer)",
        "INSERT INTO t VALUES ('a', 1.50, 'NaN', TRUE), ('A', 7.00, -0.0, FALSE)",
        "CREATE TABLE u (person dose)",
        "INSERT INTO u VALUES (7.50), (7.5), ('NaN')",
    )
    home = connect(tmp_path, "north", url)
    assert _answers(home, "SELECT pid, x, y, z FROM t WHERE x > 1 AND z OR NOT z") == [
        ("A", "7", "0", "0"),
        ("a", "1.5", "", "1"),
    ]
    query = checked("SELECT person FROM u", {"u": "person"}, patient="person")
    connection = connection_of("north", home)
    statement = rendered(query.select, connection.dialect, connection.schema)
    keys = [row[0] for part in rows_of(connection, statement, "north") for row in part]
    assert keys.count("7.5") == 2


def test_p31_settings_of_a_site_say_nothing_of_a_cell(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    made = "CREATE TABLE t AS SELECT '1' AS pid, CAST('2020-01-01 22:00+00' AS TIMESTAMPTZ) AS x"
    own = ("timezone = 'Asia/Tokyo'", "transform_null_equals = on")
    url = postgresql.made("zones", made, *(f"ALTER DATABASE zones SET {one}" for one in own))
    homes = [connect(tmp_path / "p", "north", url), connect(tmp_path, "north", "duckdb:///db")]
    with duckdb.connect(str(tmp_path / "db")) as opened:
        opened.execute("SET TimeZone = 'Asia/Tokyo'")
        opened.execute(made)
    for home in homes:
        assert _answers(home, "SELECT pid, x FROM t") == [("1", "2020-01-01 22:00:00+00")]
        assert _answers(home, "SELECT pid, NULL = NULL AS x FROM t") == [("1", "")]


def test_p31_two_people_are_never_joined_as_one(postgresql: Any, tmp_path: Path):
    """Of a text `.0` is cut only where all of it is a whole number, as `canonical` has it."""
    keys = ("1.2", "1.2.0", "7", "a1", "A1", "1.20", "x.0", "9" * 29, "9" * 28 + "8", " 7")
    made = ["CREATE TABLE t (pid VARCHAR(40), x VARCHAR(40))"]
    made += [f"INSERT INTO t VALUES ('{one}', '{one}')" for one in keys]
    twin = ["CREATE TABLE u (pid VARCHAR(40))", "INSERT INTO u VALUES ('7.0'), ('7.'), ('1.2')"]
    homes = [connect(tmp_path / "p", "north", postgresql.made("keys", *made, *twin))]
    for engine, opener in (("duckdb", duckdb.connect), ("sqlite", sqlite3.connect)):
        homes.append(connect(tmp_path / engine, "north", f"{engine}:///db"))
        opened = opener(str(homes[-1] / "db"))
        nocase = " COLLATE NOCASE" if engine == "sqlite" else ""
        for one in (*made, *twin):
            opened.execute(one.replace("pid VARCHAR(40)", f"pid VARCHAR(40){nocase}"))
        opened.commit()
        opened.close()
    for home in homes:
        own = _answers(home, "SELECT a.pid, b.x FROM t a JOIN t b ON b.pid = a.pid")
        assert own == sorted((one.strip(), one.strip()) for one in keys)
        connection = connection_of("north", home)
        query = checked(
            "SELECT t.pid FROM t JOIN u ON u.pid = t.pid", {"t": "pid", "u": "pid"}, patient="pid"
        )
        statement = rendered(query.select, connection.dialect, connection.schema)
        joined = [row[0] for part in rows_of(connection, statement, "north") for row in part]
        assert sorted(joined) == ["1.2", "7", "7"]
