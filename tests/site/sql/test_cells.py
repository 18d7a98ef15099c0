"""What one person's cell is: of any type a text, a number or missing, and never a failure (P31)."""

# ruff: noqa: S608 (statements for databases of the tests' own)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.site.sql.databases import ENGINES, answers, connect, database

from hubbub.core.errors import DataError, StudyError
from hubbub.core.tabular.records import is_rounded, patient_key
from hubbub.site.sql.owned_query import checked

# Values that no driver hands over, or that it hands over as an object of its own, and their texts.
DUCKDB = {
    "DATE 'infinity'": "infinity",
    "DATE '0044-03-15 (BC)'": "0044-03-15 (BC)",
    "DATE '10000-01-01'": "10000-01-01",
    "INTERVAL 200000 YEAR": "200000 years",
    "TIMESTAMP '290000-01-01 00:00:00'": "290000-01-01 00:00:00",
    "TIMESTAMP '-infinity'": "-infinity",
    "TIME '24:00:00'": "24:00:00",
    "[INTERVAL 200000 YEAR]": "[200000 years]",
    "{'a': DATE 'infinity'}": "{'a': infinity}",
    "'\\xff'::BLOB": "\\xFF",
    "'c082caf9-8f78-4701-9afd-2742dd8fac2e'::UUID": "c082caf9-8f78-4701-9afd-2742dd8fac2e",
    "170141183460469231731687303715884105727::HUGEINT": "170141183460469231731687303715884105727",
    "'nan'::DOUBLE": "",
    "'-inf'::FLOAT": "-inf",
}
POSTGRESQL = {
    "'infinity'::DATE": "infinity",
    "'0044-03-15 BC'::DATE": "0044-03-15 BC",
    "'10000-01-01'::DATE": "10000-01-01",
    "'24:00'::TIME": "24:00:00",
    "'infinity'::TIMESTAMP": "infinity",
    "'294000-01-01'::TIMESTAMPTZ": "294000-01-01 00:00:00+00",
    "'170000 years'::INTERVAL": "170000 years",
    "'[2020-01-01,)'::DATERANGE": "[2020-01-01,)",
    "'{[1,2],[5,6]}'::INT4MULTIRANGE": "{[1,3),[5,7)}",
    "'\\xff'::BYTEA": "\\xff",
    "'NaN'::NUMERIC": "",
    "1e400::NUMERIC": "1" + 400 * "0",
    "'1.2.3.4/8'::INET": "1.2.3.4/8",
    "'{\"a\": 1}'::JSONB": '{"a": 1}',
    "B'101'": "101",
}
ASKED = (
    "SELECT pid, x FROM t",
    "SELECT pid, CAST(x AS DOUBLE PRECISION) AS x FROM t WHERE x = 5 OR x <> 'a'",
    "SELECT pid, LOWER(x) || 'a' AS x FROM t WHERE x LIKE '%1%' OR x IN (1, 2) OR x",
    "SELECT pid, COALESCE(x, 'none') AS x FROM t WHERE NOT x IS NULL AND NOT (x) IS TRUE",
    "SELECT pid, CAST(x AS DATE) AS x FROM t WHERE x BETWEEN 1 AND 2 OR x > '2020-01-01'",
    "SELECT pid, COUNT(DISTINCT x) AS x FROM t GROUP BY pid",
    "SELECT a.pid, b.x FROM t a JOIN t b ON b.pid = a.pid AND b.x AND a.x = b.x",
)


@pytest.mark.slow
def test_p31_a_cell_that_no_driver_hands_over_keeps_nobody_away(postgresql: Any, tmp_path: Path):
    for place, (value, text) in enumerate(DUCKDB.items()):
        home = tmp_path / f"d{place}"
        with database(home, "duckdb") as opened:
            opened.execute(f"CREATE TABLE t AS SELECT '4711' AS pid, {value} AS x")
        held, number, lower, there, day, many, joined = (answers(home, query) for query in ASKED)
        assert held == [("4711", text)]
        assert number == [("4711", "")] * bool(text)
        assert lower in ([], [("4711", f"{text.lower()}a")])
        assert there == held * bool(text)
        assert day in ([], [("4711", "")])
        assert many == [("4711", str(int(bool(text))))]
        assert joined == []
    columns = ", ".join(f"{value} AS x{place}" for place, value in enumerate(POSTGRESQL))
    url = postgresql.made("wild", f"CREATE TABLE t AS SELECT '4711'::TEXT AS pid, {columns}")
    home = connect(tmp_path / "p", "north", url)
    for place, text in enumerate(POSTGRESQL.values()):
        held, number, lower = (
            answers(home, query.replace("x", f"x{place}")) for query in ASKED[:3]
        )
        assert held == [("4711", text)]
        assert number == [("4711", "101.0" if text == "101" else "")] * bool(text)
        assert lower in ([], [("4711", f"{text.lower()}a")])


@pytest.mark.slow
def test_p31_bytes_of_another_encoding_keep_nobody_away(postgresql: Any, tmp_path: Path):
    home = tmp_path / "s"
    with database(home, "sqlite") as opened:
        opened.execute("CREATE TABLE t (pid TEXT, x TEXT)")
        opened.execute("INSERT INTO t VALUES ('1', CAST(X'4dfc6c6c6572' AS TEXT)), ('2', X'ff')")
    for query in ASKED:
        answers(home, query)
    assert answers(home, ASKED[0]) == [("1", ""), ("2", "")]
    with postgresql.owner("postgres") as opened:
        opened.execute("DROP DATABASE IF EXISTS western")
        opened.execute("CREATE DATABASE western ENCODING 'WIN1252' TEMPLATE template0")
    with postgresql.owner("western") as opened:
        opened.execute("CREATE TABLE t AS SELECT '1'::TEXT AS pid, 'Müller'::TEXT AS x")
        opened.execute("INSERT INTO t SELECT '2', convert_from('\\x81'::BYTEA, 'WIN1252')")
        opened.execute("GRANT SELECT ON t TO reader")
    home = connect(tmp_path / "p", "north", postgresql.url("reader", "western"))
    assert answers(home, "SELECT pid, x FROM t WHERE x <> 'ä'")[0] == ("1", "Müller")


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
    for engine in ENGINES:
        home = tmp_path / engine
        with database(home, engine) as opened:
            opened.execute("CREATE TABLE t (pid TEXT, s TEXT)")
            opened.executemany("INSERT INTO t VALUES (?, ?)", rows)
        assert answers(home, "SELECT pid FROM t WHERE s") == [("1",), ("4",)]
        assert answers(home, "SELECT pid FROM t WHERE NOT s") == [("2",)]


def test_p31_bytes_that_are_no_text_are_nobodys_key(tmp_path: Path):
    """Functions of SQLite end at a letter of number 0, and a decoder has one letter for all."""
    keys = ("12", "12.\0x", "12.\0y", "12\0.0", b"\xff", b"\xfe")
    for engine in ENGINES:
        home, held = tmp_path / engine, [(key, key) for key in keys]
        with database(home, engine) as opened:
            opened.execute("CREATE TABLE t (pid TEXT, x TEXT)")
            opened.executemany(
                "INSERT INTO t VALUES (CAST(? AS TEXT), CAST(? AS TEXT))",
                held if engine == "sqlite" else held[:4],
            )
        assert {row[0] for row in answers(home, ASKED[0])} == {"", "12"}
        asked = "SELECT pid, LENGTH(x) AS n, CAST(x AS BIGINT) AS k, x LIKE '_' AS b FROM t"
        assert [row for row in answers(home, asked) if row[0]] == [("12", "2", "12", "0")]
        assert ("", "", "", "") in answers(home, asked)
        joined = "SELECT a.pid, b.x FROM t a JOIN t b ON b.pid = a.pid"
        assert [row for row in answers(home, joined) if row[0]] == [("12", "12")]


def test_a_sqlite_database_in_utf_16_is_refused(tmp_path: Path):
    with database(tmp_path, "sqlite") as opened:
        opened.execute("PRAGMA encoding = 'UTF-16'")
        opened.execute("CREATE TABLE t (pid TEXT, x TEXT)")
    with pytest.raises(DataError, match="UTF-16; copy it"):
        answers(tmp_path, ASKED[0])


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
    assert answers(home, "SELECT pid, x, y, z FROM t WHERE x > 1 AND z OR NOT z") == [
        ("A", "7", "0", "0"),
        ("a", "1.5", "", "1"),
    ]
    held = answers(home, "SELECT person FROM u", keys={"u": "person"}, patient="person")
    assert held.count(("7.5",)) == 2


def test_p31_settings_of_a_site_say_nothing_of_a_cell(
    postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    made = "CREATE TABLE t AS SELECT '1' AS pid, CAST('2020-01-01 22:00+00' AS TIMESTAMPTZ) AS x"
    own = ("timezone = 'Asia/Tokyo'", "transform_null_equals = on")
    url = postgresql.made("zones", made, *(f"ALTER DATABASE zones SET {one}" for one in own))
    with database(tmp_path, "duckdb") as opened:
        opened.execute("SET TimeZone = 'Asia/Tokyo'")
        opened.execute(made)
    for home in (connect(tmp_path / "p", "north", url), tmp_path):
        assert answers(home, "SELECT pid, x FROM t") == [("1", "2020-01-01 22:00:00+00")]
        assert answers(home, "SELECT pid, NULL = NULL AS x FROM t") == [("1", "")]


def test_p31_two_people_are_never_joined_as_one(postgresql: Any, tmp_path: Path):
    """Of a text `.0` is cut only where all of it is a whole number, as `canonical` has it."""
    keys = ("1.2", "1.2.0", "7", "a1", "A1", "1.20", "x.0", "9" * 29, "9" * 28 + "8", " 7")
    made = ["CREATE TABLE t (pid VARCHAR(40), x VARCHAR(40))"]
    made += [f"INSERT INTO t VALUES ('{one}', '{one}')" for one in keys]
    twin = ["CREATE TABLE u (pid VARCHAR(40))", "INSERT INTO u VALUES ('7.0'), ('7.'), ('1.2')"]
    homes = [connect(tmp_path / "p", "north", postgresql.made("keys", *made, *twin))]
    for engine in ENGINES:
        homes.append(tmp_path / engine)
        nocase = " COLLATE NOCASE" if engine == "sqlite" else ""
        with database(homes[-1], engine) as opened:
            for one in (*made, *twin):
                opened.execute(one.replace("pid VARCHAR(40)", f"pid VARCHAR(40){nocase}"))
    for home in homes:
        own = answers(home, "SELECT a.pid, b.x FROM t a JOIN t b ON b.pid = a.pid")
        assert own == sorted((one.strip(), one.strip()) for one in keys)
        query, both = "SELECT t.pid FROM t JOIN u ON u.pid = t.pid", {"t": "pid", "u": "pid"}
        assert answers(home, query, keys=both) == [("1.2",), ("7",), ("7",)]


def test_p31_a_real_number_that_several_whole_ones_share_is_nobodys_key(
    postgresql: Any, tmp_path: Path
):
    """As of a file or a frame: past 2**24 and 2**53 a float is several people's number."""
    real, double = 2.0**24, 2.0**53
    keys = (real - 1, -real, 3e9, double - 1, double, -double, 1e17, 0.5)
    types = {"postgres": ("REAL", "DOUBLE PRECISION"), "duckdb": ("REAL", "DOUBLE")}
    for engine in ("sqlite", "duckdb", "postgres"):
        for kind in types.get(engine, ("REAL",)):
            home, size = tmp_path / f"{engine}-{kind}", real if kind == "REAL" else double
            size = double if engine == "sqlite" else size
            made = [f"CREATE TABLE t (pid {kind})", "INSERT INTO t VALUES (NULL)"]
            made += [f"INSERT INTO t VALUES ({key:.1f})" for key in keys]
            if engine == "postgres":
                connect(home, "north", postgresql.made("real_keys", *made))
            else:
                with database(home, engine) as opened:
                    for statement in made:
                        opened.execute(statement)
            read = [key for (key,) in answers(home, "SELECT pid FROM t")]
            shared = sum(abs(key) >= size for key in keys)
            assert sum(map(is_rounded, read)) == shared
            own = [patient_key(f"{key:.1f}") for key in keys if abs(key) < size]
            assert {*map(patient_key, read)} == {"", *own}


def test_p31_a_text_of_a_shared_number_is_nobodys_key_as_in_a_file(
    postgresql: Any, tmp_path: Path
) -> None:
    keys = ["9007199254740991.0", "0009007199254740990.", "-9007199254740991.0", "0.0", "+7.00"]
    shared = ["9007199254740992.0", "+9007199254740993.0", "-0" + "9" * 400 + "."]
    keys += [*shared, "9007199254740993", "9" * 29]
    made = ["CREATE TABLE t (pid TEXT)", *(f"INSERT INTO t VALUES ('{key}')" for key in keys)]
    homes = [connect(tmp_path / "p", "north", postgresql.made("shared_keys", *made))]
    for engine in ENGINES:
        homes.append(tmp_path / engine)
        with database(homes[-1], engine) as opened:
            for statement in made:
                opened.execute(statement)
    for home in homes:
        read = [key for (key,) in answers(home, "SELECT pid FROM t")]
        assert {key for key in read if not patient_key(key)} == {*shared}
        assert {*map(patient_key, read)} == {*map(patient_key, keys)}
        assert {key for key in read if key in keys} == {*shared, "9007199254740993", "9" * 29}
