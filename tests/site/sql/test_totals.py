"""No cell makes a query fail: what does not fit is missing, and alike in every engine (P31)."""

# ruff: noqa: S608 (statements for databases of the tests' own)

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlglot import exp
from tests.site.sql.databases import ENGINES, connect, database

from hubbub.core.errors import StudyError
from hubbub.site.sql.engines import connection_of, rows_of
from hubbub.site.sql.owned_query import checked
from hubbub.site.sql.source import is_number, rendered

TABLE = "CREATE TABLE t (pid INTEGER, s VARCHAR(99), k INTEGER, d DOUBLE PRECISION)"
LARGEST = 2**31 - 1
# By text what it is as a number; None: it is none.
TEXTS = {
    "5": 5.0, " 7 ": 7.0, "-12": -12.0, "1.5": 1.5, ".5": 0.5, "5.": 5.0, "-.5": -0.5,
    "1e3": 1000.0, "1E+3": 1000.0, "-2.5e-05": -2.5e-05, "007": 7.0,
    "+3": 3.0, "+.5": 0.5, "+1e+3": 1000.0,
    **dict.fromkeys(
        ["", "abc", "nan", "NaN", "inf", "-Infinity", "1_000", "0x1f", "1e400", "1e-400", "--1"]
    ),
    **dict.fromkeys(["1-2", "1.2.3", ".", "-", "-.", "e5", "1e", "1e5.5", "1e5-", "+-1", "1,5"]),
    **dict.fromkeys(["++1", "3+", "-+1", "+", "+.", "+e5", "１２"]),
    **dict.fromkeys(["9" * 40, "1" * 33, "1e99", "now", "12abc", "1 2", "٣", "½", "1e-"]),
}  # fmt: skip
DAYS = {
    "2020-02-29": True, "2019-12-31": True, "2000-02-29": True, "2020-01-01 05:06": True,
    **dict.fromkeys(
        ["2019-02-29", "1900-02-29", "2020-02-30", "2020-04-31", "2020-13-01", "2020-00-10"], False
    ),
    **dict.fromkeys(["0000-01-01", "2020-01-00", "2020-01-32", "infinity", "2020-1-1"], False),
}  # fmt: skip
NUMBERS = (
    *((LARGEST, 1e308), (-LARGEST - 1, -1e308), (0, 0.0), (1, 5e-324), (-1, -1.0)),
    *((7, 6.5), (None, None)),
)
AIMED = (
    "1 / (pid - 3)",
    "k + k",
    "k * k * k",
    "-k",
    "ABS(k)",
    "k - 2147483647 - 2",
    "d * d",
    "d / k / k",
    "1 / d",
    "SQRT(k)",
    "LN(k)",
    "LN(SQRT(d))",
    "EXP(k)",
    "EXP(d)",
    "FLOOR(d / 3)",
    "CAST(d AS INTEGER)",
    "CAST(k * 2 AS BIGINT)",
    "CAST(k AS INTEGER) * CAST(k AS INTEGER)",
    "CAST(s AS INTEGER)",
    "CAST(s AS DOUBLE PRECISION)",
    "s + 1",
    "CAST(s AS DATE) - CAST('2020-01-01' AS DATE)",
    "EXTRACT(YEAR FROM CAST(s AS DATE))",
    "CASE WHEN CAST(s AS DOUBLE PRECISION) > d THEN 1 ELSE 0 END",
    "LENGTH(s || s || s)",
    "LENGTH(SUBSTRING(s, 2, 3))",
    "COALESCE(SQRT(k), d)",
    "NULLIF(EXP(k), d)",
)


def _homes(postgresql: Any, tmp_path: Path, name: str, rows: list[tuple[Any, ...]]) -> list[Path]:
    """One table in each engine."""
    url = postgresql.made(name, TABLE)
    with postgresql.owner(name) as opened, opened.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s)", rows)
    homes = [connect(tmp_path / "p", "north", url)]
    for engine in ENGINES:
        homes.append(tmp_path / engine)
        with database(homes[-1], engine) as opened:
            opened.execute(TABLE)
            opened.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    plain = tmp_path / "other"  # an engine without regular expressions, by its driver
    homes.append(
        connect(plain, "north", f"dbapi:{tmp_path}/sqlite/db", driver="sqlite3", dialect="sqlite")
    )
    return homes


@cache
def _statement(query: str, dialect: str, schema: str) -> str:
    return rendered(checked(query, {"t": "pid"}, patient="pid").select, dialect, schema)


def _found(home: Path, query: str) -> list[tuple[Any, ...]]:
    connection = connection_of("north", home)
    statement = _statement(query, connection.dialect, connection.schema)
    rows = [tuple(row) for part in rows_of(connection, statement, "north") for row in part]
    return sorted(rows, key=lambda row: int(row[0]))


def test_p31_a_text_is_a_number_or_missing_alike_in_every_engine(postgresql: Any, tmp_path: Path):
    rows = [(place, text, None, None) for place, text in enumerate(TEXTS)]
    for home in _homes(postgresql, tmp_path, "texts", rows):
        found = _found(home, "SELECT pid, CAST(s AS DOUBLE PRECISION) AS x FROM t")
        assert {text: x for text, (_, x) in zip(TEXTS, found, strict=True)} == TEXTS
        whole = _found(home, "SELECT pid, CAST(s AS INTEGER) AS x FROM t")
        assert [x is None for _, x in whole] == [x is None for x in TEXTS.values()]


def test_p31_a_day_of_no_calendar_is_missing_in_every_engine(postgresql: Any, tmp_path: Path):
    rows = [(place, text, None, None) for place, text in enumerate(DAYS)]
    for home in _homes(postgresql, tmp_path, "days", rows):
        found = _found(home, "SELECT pid, CAST(s AS DATE) AS x FROM t")
        assert [x is not None for _, x in found] == list(DAYS.values())


@pytest.mark.slow
def test_p31_no_cell_makes_an_expression_fail_and_all_engines_agree(
    postgresql: Any, tmp_path: Path
):
    """Each of these fails in PostgreSQL as it stands, for some row."""
    texts = [*TEXTS, *DAYS]
    rows = [
        (place, text, *NUMBERS[place % len(NUMBERS)])
        for place, text in enumerate([*texts, *texts[: len(NUMBERS)]])
    ]
    homes = _homes(postgresql, tmp_path, "aimed", rows)
    for value in AIMED:
        query = f"SELECT pid, {value} AS x FROM t"
        first, *others = (_found(home, query) for home in homes)
        assert len(first) == len(rows), value
        assert {x is None for _, x in first} >= {False}, value
        for other in others:
            assert [_alike(x) for _, x in first] == [_alike(x) for _, x in other], value
        aimed = f"SELECT pid, COUNT(*) AS n FROM t WHERE {value} > 1 GROUP BY pid"
        assert len({len(_found(home, aimed)) for home in homes}) == 1, value


def _alike(value: object) -> object:
    return None if value is None else pytest.approx(float(str(value)), rel=1e-14)


def test_p31_tables_are_joined_whatever_their_keys_are(postgresql: Any, tmp_path: Path):
    """DuckDB reads a text beside a number as one, and fails at one that is none."""
    home = connect(tmp_path, "north", "duckdb:///db")
    with duckdb.connect(str(home / "db")) as opened:
        opened.execute("CREATE TABLE t (pid VARCHAR, s VARCHAR)")
        opened.execute("CREATE TABLE u (pid INTEGER, k DOUBLE)")
        opened.execute("INSERT INTO t VALUES ('1', '1'), ('x4711', '5'), ('3', 'x')")
        opened.execute("INSERT INTO u VALUES (1, 1), (3, 2)")
    query = "SELECT t.pid, u.k FROM t JOIN u ON u.pid = t.pid AND u.k = t.s"
    found = checked(query, {"t": "pid", "u": "pid"}, patient="pid")
    rows = rows_of(connection_of("north", home), rendered(found.select, "duckdb"), "north")
    assert [tuple(row) for part in rows for row in part] == [("1", "1")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("s LIKE s", "pattern that a cell gives"),
        ("SUBSTRING(s, 1, k)", "SUBSTRING at other places"),
        ("SUBSTRING(s, -1, 2)", "SUBSTRING at other places"),
        ("d * d * d * d * d * d", "too large, or too close to 0"),
        ("EXP(k) * EXP(k) * EXP(k) * EXP(k)", "too large, or too close to 0"),
        # What lies near 0 makes a quotient large, and two that are alike differ by as little.
        ("1" + " / LN(d)" * 19, "too large, or too close to 0"),
        ("1" + " / (LN(d) - 1)" * 10, "too large, or too close to 0"),
        ("SQRT(SQRT(SQRT(SQRT(d))))", "within 3 others"),
        ("CAST(s AS DATE) + 1", "arithmetic of a date"),
        (
            "CAST(LOWER(CASE WHEN CAST(s AS INTEGER) > 1 THEN s END) AS INTEGER)",
            "within another",
        ),
    ],
)
def test_p31_what_no_engine_can_be_kept_from_failing_at_is_refused(value: str, said: str):
    with pytest.raises(StudyError, match=said):
        checked(f"SELECT pid, {value} AS x FROM t", {"t": "pid"}, patient="pid")


def test_p31_no_cell_makes_whole_numbers_overflow():
    """The product is a real number: no whole one holds what the largest of a CAST may give."""
    value = "CAST(d AS BIGINT) * 10000"
    made = checked(f"SELECT pid, {value} AS x FROM t", {"t": "pid"}, patient="pid")
    with duckdb.connect() as opened:
        opened.execute(TABLE)
        opened.execute("INSERT INTO t VALUES (1, '', 0, 999e12), (2, '', 0, 3.0)")
        found = dict(opened.execute(rendered(made.select, "duckdb")).fetchall())
    assert found == {"1": 999e16, "2": 30_000}


def test_p31_a_text_cannot_be_doubled_until_a_database_gives_up():
    clauses, last = ["a0 AS (SELECT pid, s FROM t)"], "a0"
    for place in range(1, 40):
        clauses.append(f"a{place} AS (SELECT pid, s || s AS s FROM {last})")
        last = f"a{place}"
    query = f"WITH {', '.join(clauses)} SELECT pid, LENGTH(s) AS n FROM {last}"
    made = checked(query, {"t": "pid"}, patient="pid")
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE t (pid INTEGER, s VARCHAR)")
        opened.execute("INSERT INTO t VALUES (1, 'ab')")
        assert opened.execute(rendered(made.select, "duckdb")).fetchall() == [("1", 2000)]


def test_p31_an_engine_without_regular_expressions_knows_the_same_numbers():
    texts = {text: number is not None for text, number in TEXTS.items() if text != "1e99"}
    condition = is_number(exp.column("s"), "mysql").sql(dialect="duckdb")
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE t (s TEXT)")
        opened.executemany("INSERT INTO t VALUES (?)", [[text] for text in texts])
        assert dict(opened.execute(f"SELECT s, {condition} FROM t").fetchall()) == texts
