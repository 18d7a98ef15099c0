"""What a query may be: statements that are let in, and what each of many others is refused for."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from hubbub.core.errors import StudyError
from hubbub.site.sql.owned_query import OwnedQuery, checked
from hubbub.site.sql.source import rendered

TABLES = {"patients": "pid", "visits": "pid", "labs": "person"}

# By statement a part of the sentence that refuses it.
REFUSED = {
    # other people's rows
    "SELECT pid, RANK() OVER (ORDER BY age) AS r FROM patients": "a window",
    "SELECT pid, LAG(age) OVER (PARTITION BY pid ORDER BY age) AS r FROM patients": "a window",
    "SELECT pid, COUNT(*) OVER () AS n FROM patients": "a window",
    "SELECT pid, age FROM patients WINDOW w AS (ORDER BY age)": "a window",
    "SELECT DISTINCT pid, age FROM patients": "DISTINCT",
    "SELECT DISTINCT ON (age) pid, age FROM patients": "DISTINCT",
    "SELECT pid, age FROM patients LIMIT 5": "LIMIT",
    "SELECT pid, age FROM patients FETCH FIRST 5 ROWS ONLY": "LIMIT or FETCH",
    "SELECT pid, age FROM patients OFFSET 5": "OFFSET",
    "SELECT pid, age FROM patients ORDER BY age": "ORDER BY",
    "SELECT pid, age FROM patients ORDER BY random() LIMIT 3": "data.query to filter",
    "SELECT MAX(pid) AS pid FROM patients": "unless it groups",
    "SELECT pid, MAX(age, 3) AS a FROM patients GROUP BY pid": "MAX with",
    "SELECT pid, COUNT(*) AS n FROM patients": "unless it groups",
    "SELECT age, COUNT(*) AS pid FROM patients GROUP BY age": "several people",
    "SELECT pid, COUNT(*) AS n FROM patients GROUP BY 1": "several people",
    "SELECT pid, COUNT(*) AS n FROM patients GROUP BY pid + 0": "several people",
    "SELECT pid, COUNT(*) AS n FROM patients GROUP BY ROLLUP (pid)": "ROLLUP",
    "SELECT pid, COUNT(*) AS n FROM patients GROUP BY CUBE (pid)": "CUBE",
    "SELECT pid, COUNT(*) AS n FROM patients GROUP BY GROUPING SETS ((pid), ())": "GROUPINGSETS",
    "SELECT pid, COUNT(*) AS n FROM patients GROUP BY ALL": "all",
    "SELECT pid, COUNT(*) AS n FROM patients GROUP BY pid HAVING COUNT(*) > 1": "HAVING",
    "SELECT pid, age FROM patients GROUP BY pid": "one of a group's rows",
    "SELECT pid, AVG(age) AS a FROM patients GROUP BY pid": "adds in an order",
    "SELECT pid, SUM(age) AS a FROM patients GROUP BY pid": "adds in an order",
    "SELECT pid, STRING_AGG(sex, ',') AS a FROM patients GROUP BY pid": "adds in an order",
    "SELECT pid, ARRAY_AGG(age) AS a FROM patients GROUP BY pid": "an aggregate",
    "SELECT pid, COUNT(*) FILTER (WHERE age > 1) AS a FROM patients GROUP BY pid": "an aggregate",
    "SELECT pid, age FROM patients QUALIFY ROW_NUMBER() OVER (ORDER BY age) = 1": "QUALIFY",
    # what gives a value of its own
    "SELECT pid, (SELECT MAX(age) FROM patients) AS m FROM patients": "a subquery",
    "SELECT pid, age FROM patients WHERE EXISTS (SELECT 1 FROM visits)": "a subquery",
    "SELECT pid, age FROM patients WHERE pid IN (SELECT pid FROM visits)": "IN without a list",
    "SELECT pid, age FROM patients WHERE age > ALL (SELECT age FROM patients)": "not on the list",
    "SELECT pid, age > ANY (ARRAY[1, 2]) AS b FROM patients": "not on the list",
    "SELECT pid, ARRAY(SELECT age FROM patients) AS a FROM patients": "data.query to filter",
    "SELECT pid, age FROM patients WHERE age > '18'": "leave the quotes out",
    "SELECT pid, age FROM patients WHERE age BETWEEN '18' AND sex": "CAST(column AS TEXT)",
    # what is often written has a cure
    "SELECT pid, SUM(age > 9) AS n FROM patients GROUP BY pid": "write COUNT(",
    "SELECT pid, ROUND(age) AS a FROM patients": "write CAST(… AS INTEGER), or compute it",
    "SELECT pid, age FROM patients WHERE sex ILIKE 'f%'": "write LOWER(…) LIKE",
    "SELECT pid, (SELECT COUNT(*) FROM visits) AS n FROM patients": "write JOIN (SELECT key",
    # joins of different people
    "SELECT p.pid, v.k FROM patients p, visits v": "without ON",
    "SELECT p.pid, v.k FROM patients p CROSS JOIN visits v": "CROSS JOIN",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.age = v.k": "the person is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.pid = v.k": "the person is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.age = v.pid": "the person is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.pid <= v.pid": "put in order",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.pid <= CAST(v.pid AS INTEGER)": "same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.pid = v.pid OR TRUE": "is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON NOT p.pid = v.pid": "is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.pid = p.pid": "is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON v.pid = v.pid": "is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON p.pid = v.pid + 1": "is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v ON (p.pid = v.pid) = FALSE": "is the same",
    "SELECT p.pid, l.k FROM patients p JOIN labs l ON p.pid = l.pid": "is the same",
    "SELECT p.pid, v.k FROM patients p JOIN visits v USING (pid)": "using",
    "SELECT p.pid, v.k FROM patients p NATURAL JOIN visits v": "NATURAL",
    "SELECT v.pid, p.age FROM patients p LEFT JOIN visits v ON p.pid = v.pid": "no column 'pid'",
    "SELECT p.pid, v.k FROM patients p RIGHT JOIN visits v ON p.pid = v.pid": "RIGHT",
    "SELECT p.pid, v.k FROM patients p FULL JOIN visits v ON p.pid = v.pid": "FULL",
    "SELECT p.pid, v.k FROM patients p JOIN LATERAL (SELECT * FROM visits) v ON TRUE": "in FROM",
    "SELECT p.pid, v.k FROM patients p JOIN visits p ON p.pid = p.pid": "for two tables",
    "SELECT a.pid, b.n FROM patients a JOIN (SELECT COUNT(*) AS n FROM visits) b ON TRUE": "groups",
    "SELECT a.pid, b.k FROM patients a JOIN (SELECT k FROM visits) b ON TRUE": "person's key",
    # set operations, other statements
    "SELECT pid, age FROM patients UNION SELECT pid, k FROM visits": "UNION",
    "SELECT pid, age FROM patients UNION ALL SELECT pid, k FROM visits": "UNION",
    "SELECT pid, age FROM patients INTERSECT SELECT pid, k FROM visits": "INTERSECT",
    "SELECT pid, age FROM patients EXCEPT SELECT pid, k FROM visits": "EXCEPT",
    "VALUES (1, 2)": "data.query to filter",
    "TABLE patients": "a star",
    "SELECT * FROM patients": "a star",
    "SELECT p.* FROM patients p": "a star",
    "SELECT pid, age INTO other FROM patients": "INTO",
    "SELECT pid, age FROM patients; DROP TABLE patients": "several statements",
    "SELECT pid, age FROM patients;;SELECT 1": "several statements",
    "DELETE FROM patients": "no SELECT",
    "UPDATE patients SET age = 1": "no SELECT",
    "INSERT INTO patients VALUES (1)": "no SELECT",
    "DROP TABLE patients": "no SELECT",
    "ATTACH DATABASE 'x' AS y": "data.query to filter",
    "PRAGMA query_only = OFF": "data.query to filter",
    "SET search_path = evil": "no SELECT",
    "CALL evil()": "data.query to filter",
    "COPY patients TO '/etc/x'": "no SELECT",
    "COPY (SELECT 1) TO PROGRAM 'sh'": "data.query to filter",
    "EXPLAIN ANALYZE SELECT pid, age FROM patients": "data.query to filter",
    "WITH x AS (DELETE FROM patients RETURNING pid) SELECT pid FROM x": "data.query to filter",
    "SELECT pid, age FROM patients FOR UPDATE": "a lock",
    "": "none",
    ";": "none",
    "SELECT": "data.query to filter",
    "SELEC pid FROM patients": "data.query to filter",
    # recursion
    "WITH RECURSIVE a AS (SELECT pid FROM patients) SELECT pid FROM a": "RECURSIVE",
    "WITH a AS (SELECT pid FROM a) SELECT pid FROM a": "the table 'a'",
    "WITH patients AS (SELECT pid FROM visits) SELECT pid FROM patients": "for two things",
    "WITH a AS (WITH b AS (SELECT 1) SELECT pid FROM patients) SELECT pid FROM a": "WITH of",
    # what differs from reading to reading
    "SELECT pid, random() AS r FROM patients": "a random number",
    "SELECT pid, age FROM patients WHERE random() < 0.5": "a random number",
    "SELECT pid, age FROM patients TABLESAMPLE BERNOULLI (10)": "a sample",
    "SELECT pid, now() AS n FROM patients": "the clock",
    "SELECT pid, CURRENT_DATE AS n FROM patients": "the clock",
    "SELECT pid, CURRENT_TIMESTAMP AS n FROM patients": "the clock",
    "SELECT pid, CURRENT_USER AS n FROM patients": "who asks",
    "SELECT pid, gen_random_uuid() AS n FROM patients": "not on the list",
    "SELECT pid, clock_timestamp() AS n FROM patients": "clock_timestamp()",
    "SELECT pid, nextval('s') AS n FROM patients": "nextval()",
    "SELECT pid, txid_current() AS n FROM patients": "txid_current()",
    # files, functions, other schemas
    "SELECT pid FROM read_csv('/etc/passwd')": "in FROM",
    "SELECT pid FROM read_csv_auto('x.csv')": "in FROM",
    "SELECT pid FROM 'x.parquet'": "other letters",
    'SELECT pid FROM "x.csv"': "other letters",
    "SELECT pid FROM generate_series(1, 9) AS t(pid)": "in FROM",
    "SELECT pid FROM pg_read_file('x') AS t(pid)": "in FROM",
    "SELECT pid, pg_read_file('/etc/passwd') AS f FROM patients": "pg_read_file()",
    "SELECT pid, pg_sleep(age) AS f FROM patients": "pg_sleep()",
    "SELECT pid, lo_import('x') AS f FROM patients": "lo_import()",
    "SELECT pid, dblink('x', 'y') AS f FROM patients": "dblink()",
    "SELECT pid, load_extension('x') AS f FROM patients": "load_extension()",
    "SELECT pid, current_setting('x') AS f FROM patients": "current_setting()",
    "SELECT pid, pg_catalog.lower(sex) AS f FROM patients": "data.query to filter",
    "SELECT pid FROM pg_catalog.pg_stat_activity": "a schema",
    "SELECT pid FROM information_schema.tables": "a schema",
    "SELECT pid FROM pg_stat_activity": "the table 'pg_stat_activity'",
    "SELECT pid FROM sqlite_master": "the table 'sqlite_master'",
    "SELECT pid FROM other.patients": "a schema",
    "SELECT pid FROM ONLY patients": "only",
    "SELECT pid FROM (VALUES (1)) AS t(pid)": "data.query to filter",
    # rows' places, columns of other queries, ambiguous ones
    "SELECT pid, ctid AS c FROM patients": "the place of a row",
    "SELECT pid, xmin AS c FROM patients": "the place of a row",
    "SELECT pid, xmax AS c FROM patients": "the place of a row",
    "SELECT pid, cmin AS c FROM patients": "the place of a row",
    "SELECT pid, cmax AS c FROM patients": "the place of a row",
    "SELECT pid, tableoid AS c FROM patients": "the place of a row",
    "SELECT pid, oid AS c FROM patients": "the place of a row",
    "SELECT pid, rowid AS c FROM patients": "the place of a row",
    "SELECT pid, _rowid_ AS c FROM patients": "the place of a row",
    "SELECT pid, rownum AS c FROM patients": "the place of a row",
    "SELECT pid, rownumber AS c FROM patients": "the place of a row",
    'SELECT pid, "ROWID" AS c FROM patients': "the place of a row",
    "SELECT pid, q.age AS c FROM patients": "not in this FROM",
    "SELECT a.pid, b.k FROM patients a JOIN (SELECT v.pid, a.age AS k FROM visits v) b "
    "ON a.pid = b.pid": "not in this FROM",
    "SELECT pid, age FROM patients p JOIN visits v ON p.pid = v.pid": "one of several tables",
    "SELECT pid, age + 1 FROM patients": "without a name",
    "SELECT pid, age, age FROM patients": "two columns",
    "SELECT age AS pid FROM patients": "no column 'pid'",
    "SELECT pid + 0 AS pid FROM patients": "no column 'pid'",
    "SELECT COALESCE(pid, 1) AS pid FROM patients": "no column 'pid'",
    "SELECT person FROM labs": "no column 'pid'",
    # texts and comments
    "SELECT pid, age FROM patients -- LIMIT 5": "a comment",
    "SELECT pid, /* age */ age FROM patients": "a comment",
    "SELECT pid, E'\\n' AS a FROM patients": "data.query to filter",
    "SELECT pid, 'a\\' AS a FROM patients": "data.query to filter",
    "SELECT pid, $1 AS a FROM patients": "a parameter",
    "SELECT pid, :x AS a FROM patients": "a parameter",
    "SELECT pid, sex COLLATE \"C\" AS a FROM patients": "a collation",
    "SELECT pid, 1e400 AS a FROM patients": "a number in another form",
    "SELECT pid, CAST(age AS evil) AS a FROM patients": "CAST",
    "SELECT pid, CAST(sex AS VARCHAR(1)) AS a FROM patients": "CAST",
    "SELECT pid, CAST(sex AS regclass) AS a FROM patients": "CAST",
    "SELECT pid, EXTRACT(YEAR FROM sex) AS a FROM patients": "not cast to a date",
    "SELECT pid, CAST('today' AS DATE) AS a FROM patients": "its clock",
    "SELECT pid, DATE 'Yesterday' AS a FROM patients": "its clock",
    "SELECT pid, age FROM patients WHERE born < '-Infinity'": "its clock",
    "SELECT pid, COALESCE(born, 'epoch') AS a FROM patients": "its clock",
    "SELECT pid, age FROM patients WHERE born IN ('2020-01-01now')": "its clock",
    "SELECT pid, CAST(LOWER(CAST(born AS DATE)) AS DATE) AS a FROM patients": "within another",
    "SELECT pid, TRIM(LEADING FROM sex) AS a FROM patients": "TRIM with position",
    "SELECT pid, LENGTH(sex, 'UTF8') AS a FROM patients": "LENGTH with encoding",
    "SELECT pid, age FROM patients WHERE age BETWEEN SYMMETRIC 9 AND 1": "BETWEEN with symmetric",
    "SELECT p.pid, v.k FROM patients p OUTER JOIN visits v ON p.pid = v.pid": "a OUTER JOIN",
    "SELECT p.pid, v.k FROM patients p LEFT INNER JOIN visits v ON p.pid = v.pid": "to filter",
    "SELECT pid, EXTRACT(EPOCH FROM born) AS a FROM patients": "EXTRACT",
    "SELECT pid, sex ~ '^(a+)+$' AS a FROM patients": "not on the list",
    "SELECT pid, ROW(1, 2) AS a FROM patients": "row()",
    "SELECT pid, age AT TIME ZONE 'utc' AS a FROM patients": "not on the list",
}  # fmt: skip
LET_IN = (
    "SELECT pid, age FROM patients",
    "SELECT p.pid, p.age, v.k FROM patients p JOIN visits v ON p.pid = v.pid AND v.k > 1",
    "SELECT p.pid, l.k FROM patients AS p LEFT JOIN labs l ON l.k > 0 AND (l.person = p.pid)",
    "SELECT p.pid, n.n FROM patients p LEFT JOIN (SELECT person, COUNT(*) AS n, "
    "MIN(CAST(k AS INTEGER)) AS low FROM labs WHERE k > 1 GROUP BY person) n "
    "ON n.person = p.pid WHERE p.age / 3 > 2",
    "WITH first AS (SELECT pid, MIN(CAST(k AS INTEGER)) AS k FROM visits GROUP BY pid), "
    "b AS (SELECT v.pid, COUNT(DISTINCT v.k) AS c FROM visits v JOIN first f ON f.pid = v.pid "
    "WHERE v.k >= f.k GROUP BY v.pid) SELECT p.pid, b.c FROM patients p JOIN b ON b.pid = p.pid",
    "SELECT pid, CASE WHEN age > 50 THEN 'old' ELSE 'young' END AS a, sex || 'x' AS s, "
    "COALESCE(age, 1) + 2 * -age AS z, TRIM(LOWER(sex)) AS t FROM patients "
    "WHERE sex LIKE 'F%' AND age BETWEEN 1 AND 90 AND NOT sex IN ('a', 'b') AND age IS NOT NULL",
    "SELECT v.pid, COUNT(*) AS n, CAST(v.k AS INTEGER) AS k FROM visits v GROUP BY v.k, v.pid",
    # who may be missing on one side, and others on both
    "SELECT p.pid, l.k FROM patients p LEFT JOIN visits v ON v.pid = p.pid "
    "LEFT JOIN labs l ON l.person = p.pid AND l.k = v.k",
    "SELECT p.pid, v.k FROM patients p LEFT JOIN visits v ON v.pid = p.pid WHERE v.pid IS NULL",
    "SELECT p.pid, COUNT(v.k) AS n, COUNT(DISTINCT v.k) AS m FROM patients p "
    "LEFT JOIN visits v ON v.pid = p.pid GROUP BY p.pid",
    "SELECT a.pid, b.k FROM patients a JOIN visits b ON a.pid = b.pid "
    "JOIN visits c ON c.pid = b.pid AND CAST(c.k AS INTEGER) < b.k",
    "WITH a AS (SELECT pid, age FROM patients), b AS (SELECT x.pid, y.age FROM a x "
    "JOIN a y ON x.pid = y.pid) SELECT pid, age FROM b",
    # aimed at one person: a value that others' rows have no part in
    "SELECT pid, 1 / (pid - 4) AS x FROM patients",
    "SELECT pid, age FROM patients WHERE 1 / (pid - 4) > 0",
    "SELECT pid, LN(age - 23) AS x, SQRT(24 - age) AS y, EXP(age * 100) AS z FROM patients",
    "SELECT pid, CAST(sex AS INTEGER) AS x, CAST(sex AS DATE) AS y FROM patients WHERE sex < 'm'",
    "SELECT pid, CASE WHEN pid = 4 THEN 1 ELSE 0 END AS x FROM patients",
    "SELECT pid, CAST('n' || 'ow' AS DATE) AS x FROM patients",
)


@pytest.mark.parametrize("query", REFUSED)
def test_p31_a_query_that_may_mix_people_or_read_elsewhere_is_refused_by_its_name(query: str):
    with pytest.raises(StudyError, match=r"expected data\.query to ") as raised:
        checked(query, TABLES, patient="pid")
    assert REFUSED[query] in str(raised.value)


def test_p31_a_query_too_long_or_too_deep_is_refused():
    for query in (
        "SELECT pid, " + "(" * 4000 + "age" + ")" * 4000 + " AS a FROM patients",
        "SELECT pid, age FROM patients WHERE " + "NOT " * 4000 + "TRUE",
        "SELECT pid, '" + "x" * 20_000 + "' AS a FROM patients",
    ):
        with pytest.raises(StudyError, match=r"expected data\.query to "):
            checked(query, TABLES, patient="pid")


MADE = (
    "CREATE TABLE patients (pid INTEGER, age INTEGER, sex TEXT, born DATE)",
    "CREATE TABLE visits (pid INTEGER, k INTEGER)",
    "CREATE TABLE labs (person INTEGER, k INTEGER)",
)
Opened = Any  # a connection of one engine or another


def _fill(opened: Opened, people: list[int], mark: str = "?") -> None:
    """A database of some people, each with rows that follow from the person alone."""
    for statement in MADE:
        opened.execute(statement)
    patient, pair = ", ".join([mark] * 3), ", ".join([mark] * 2)
    for one in people:
        sex = "FM"[one % 2] if one % 5 else None
        row = [one, 20 + one, sex]
        opened.execute(f"INSERT INTO patients VALUES ({patient}, '1980-02-03')", row)  # noqa: S608
        for k in range(one % 4):
            opened.execute(f"INSERT INTO visits VALUES ({pair})", [one, k])  # noqa: S608
            opened.execute(f"INSERT INTO labs VALUES ({pair})", [one, k * one % 3])  # noqa: S608


def _filled(people: list[int], engine: str = "sqlite") -> Opened:
    """One of an embedded engine."""
    opened = duckdb.connect() if engine == "duckdb" else sqlite3.connect(":memory:")
    _fill(opened, people)
    return opened


@cache
def _query(query: str) -> OwnedQuery:
    return checked(query, TABLES, patient="pid")


@cache
def _statement(query: str, engine: str) -> str:
    return rendered(_query(query).select, engine)


def _rows(opened: Opened, query: str, engine: str) -> list[tuple[object, ...]]:
    return sorted(map(tuple, opened.execute(_statement(query, engine)).fetchall()), key=repr)


def _differ_in(gone: int, query: str, everybody: Any, others: Any, alone: Any) -> None:
    """That what is there of one person is in the results of everybody, and no more."""
    whose = _query(query).columns.index("pid")
    assert others == [row for row in everybody if row[whose] != str(gone)], query
    assert alone == [row for row in everybody if row[whose] == str(gone)], query


@pytest.mark.slow
@pytest.mark.parametrize("query", LET_IN)
def test_p31_neighbouring_databases_give_results_that_differ_in_one_persons_rows(query: str):
    people = list(range(1, 25))

    def rows(some: list[int]) -> list[tuple[object, ...]]:
        with closing(_filled(some)) as opened:
            return _rows(opened, query, "sqlite")

    everybody = rows(people)
    assert len(everybody) > 1
    for gone in people:
        _differ_in(
            gone, query, everybody, rows([one for one in people if one != gone]), rows([gone])
        )


@pytest.mark.slow_cases("duckdb")
@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
def test_p31_the_same_holds_in_every_engine(engine: str, request: pytest.FixtureRequest):
    server = request.getfixturevalue("postgresql") if engine == "postgres" else None
    people = list(range(1, 13))

    def answers(some: list[int]) -> list[list[tuple[object, ...]]]:
        if server is None:
            with closing(_filled(some, engine)) as opened:
                return [_rows(opened, query, engine) for query in LET_IN]
        with server.owner("neighbours") as opened, opened.transaction(force_rollback=True):
            _fill(opened, some, "%s")
            return [_rows(opened, query, engine) for query in LET_IN]

    if server is not None:
        server.made("neighbours")
    everybody = answers(people)
    for gone in (4, 5, 7):
        others, alone = answers([one for one in people if one != gone]), answers([gone])
        for one in zip(LET_IN, everybody, others, alone, strict=True):
            _differ_in(gone, *one)


def test_a_negated_condition_stays_one():
    query = "SELECT pid FROM patients WHERE sex NOT LIKE 'F%' AND age NOT BETWEEN 1 AND 25"
    statement = rendered(checked(query, TABLES, patient="pid").select, "sqlite")
    with closing(_filled(list(range(1, 13)))) as opened:
        assert sorted(opened.execute(statement)) == [("11",), ("7",), ("9",)]


def test_a_word_that_holds_the_letters_of_a_clock_is_a_text_as_any():
    query = "SELECT pid, COALESCE(sex, 'unknown') AS s FROM patients"
    assert "unknown" in rendered(checked(query, TABLES, patient="pid").select, "postgres")


def test_p31_the_law_above_is_broken_by_a_statement_that_is_refused():
    with closing(_filled([1, 2, 3])) as three, closing(_filled([1, 2])) as two:
        query = "SELECT pid, COUNT(*) OVER () FROM patients"
        assert three.execute(query).fetchall()[:2] != two.execute(query).fetchall()


def test_the_statement_that_runs_is_made_of_what_was_checked():
    found = checked("SELECT pid, Age / 2 AS half FROM Patients", TABLES, patient="pid")
    statement = rendered(found.select, "postgres")
    assert statement.startswith('SELECT "t 0.0"."c 0" AS "pid", (CASE WHEN LENGTH(')
    assert 'NULLIF(CAST((2) AS DOUBLE PRECISION), 0)) AS "half" FROM (SELECT CASE ' in statement
    assert statement.endswith('AS "c 1" FROM "patients" AS "b t 0.0") AS "t 0.0"')
    assert 'TYPEOF("b t 0.0"."age")' in rendered(found.select, "sqlite")


# What engines make of names: another's column, a sibling's, a table's whole row.
NAMES = {
    "SELECT v.pid AS pid, b.hiv AS hiv FROM visits v JOIN (SELECT w.hiv AS hiv, w.note AS "
    '"K", w.pid AS k FROM visits w) b ON b.k = v.pid': "two columns",
    'SELECT v.pid AS pid, v.hiv AS "Pid" FROM visits v': "two columns",
    'SELECT a.pid FROM visits a JOIN visits "A" ON a.pid = "A".pid': "two tables",
    "SELECT a.pid, MIN(a.hiv) AS m FROM visits a GROUP BY a.pid": "several ways",
    "SELECT a.pid, MAX(CAST(a.hiv AS TEXT)) AS m FROM visits a GROUP BY a.pid": "several ways",
    "SELECT a.pid, a.hiv, COUNT(*) AS n FROM visits a GROUP BY a.pid, a.hiv": "equal values",
    "SELECT a.pid, CAST(a.hiv AS TEXT) AS h FROM visits a GROUP BY a.pid, a.hiv": "equal values",
    "WITH b AS (SELECT v.pid, CAST(v.hiv AS DOUBLE PRECISION) AS h FROM visits v) "
    "SELECT b.pid, b.h FROM b GROUP BY b.pid, b.h": "equal values",
}


@pytest.mark.parametrize("query", NAMES)
def test_p31_names_that_differ_in_letters_case_and_values_with_several_texts_are_refused(query):
    with pytest.raises(StudyError, match=NAMES[query]):
        checked(query, {"visits": "pid"}, patient="pid")


@pytest.mark.parametrize(
    ("tables", "reference"),
    [({"visits": "pid"}, ("Visits",)), ({"visits": "pid", "Visits": "note"}, ())],
)
def test_p31_one_table_has_one_name_and_one_key(tables: dict[str, str], reference: tuple[str, ...]):
    with pytest.raises(StudyError, match="twice"):
        checked("SELECT pid FROM visits", tables, reference=reference, patient="pid")


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_p31_a_column_that_a_table_lacks_is_an_error_and_never_a_siblings(engine: str):
    """DuckDB lets a SELECT in FROM see the tables before it, and would join everybody."""
    query = (
        "SELECT labs.patient_id AS k, l.hiv AS h FROM visits labs JOIN labs l "
        "ON l.patient_id = labs.patient_id"
    )
    tables = {"visits": "patient_id", "labs": "patient_id"}
    statement = rendered(checked(query, tables, patient="k").select, engine)
    made = duckdb.connect() if engine == "duckdb" else sqlite3.connect(":memory:")
    with closing(made):
        made.execute("CREATE TABLE visits (patient_id INTEGER)")
        made.execute("CREATE TABLE labs (pid INTEGER, hiv INTEGER)")
        made.execute("INSERT INTO visits VALUES (1), (2)")
        made.execute("INSERT INTO labs VALUES (1, 10), (2, 20)")
        with pytest.raises((duckdb.Error, sqlite3.Error)):
            made.execute(statement).fetchall()


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_p31_columns_of_a_select_within_are_those_that_were_checked(engine: str):
    query = (
        "SELECT v.pid, b.hiv AS hiv FROM visits v JOIN (SELECT w.pid AS k, w.note AS pid, "
        "w.hiv FROM visits w) b ON b.k = v.pid"
    )
    statement = rendered(checked(query, {"visits": "pid"}, patient="pid").select, engine)
    made = duckdb.connect() if engine == "duckdb" else sqlite3.connect(":memory:")
    with closing(made):
        made.execute("CREATE TABLE visits (pid INTEGER, note INTEGER, hiv INTEGER)")
        made.execute("INSERT INTO visits VALUES (1, 7, 0), (2, 1, 1), (3, 1, 1)")
        assert sorted(made.execute(statement).fetchall()) == [("1", "0"), ("2", "1"), ("3", "1")]


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_p31_a_least_value_has_one_text_however_rows_lie(engine: str):
    query = "SELECT v.pid, MIN(CAST(v.x AS DOUBLE PRECISION)) AS m FROM visits v GROUP BY v.pid"
    statement = rendered(checked(query, {"visits": "pid"}, patient="pid").select, engine)
    texts = set()
    for rows in ("(1, 0.0), (1, -0.0)", "(1, -0.0), (1, 0.0)"):
        made = duckdb.connect() if engine == "duckdb" else sqlite3.connect(":memory:")
        with closing(made):
            made.execute("CREATE TABLE visits (pid INTEGER, x DOUBLE)")
            made.execute(f"INSERT INTO visits VALUES {rows}")  # noqa: S608
            texts.add(str(made.execute(statement).fetchall()))
    assert len(texts) == 1


@pytest.mark.parametrize(
    "name",
    ["pg_stat_activity", "sqlite_master", "SQLITE_MASTER", "duckdb_tables", "pragma_table_info"],
)
def test_a_table_of_the_databases_own_is_refused_also_where_a_study_names_it(name: str):
    with pytest.raises(StudyError, match="the database's own"):
        checked(f'SELECT pid FROM "{name}"', {name: "pid"}, patient="pid")  # noqa: S608


def test_a_table_of_reference_is_joined_and_never_begun_with():
    query = "SELECT p.pid, c.name FROM patients p JOIN concept c ON c.id = p.age"
    assert checked(query, TABLES, reference=("concept",), patient="pid").tables == (
        "patients",
        "concept",
    )
    for other in (
        "SELECT c.id AS pid FROM concept c",
        "SELECT p.pid FROM patients p JOIN (SELECT id, name FROM concept) c ON c.id = p.age",
        "SELECT p.pid FROM patients p JOIN concept c ON TRUE",
    ):
        with pytest.raises(StudyError, match=r"expected data\.query to "):
            checked(other, TABLES, reference=("concept",), patient="pid")


SHOWN = re.compile(r'(?:```sql|query = """)\n(SELECT.*?)(?:```|""")', re.DOTALL)


def test_every_query_that_the_pages_show_is_let_in():
    pages = [*(Path(__file__).parents[3] / "docs").glob("**/*.md")]
    found = [
        (page.name, text)
        for page in pages
        for text in SHOWN.findall(page.read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in found} == {"cookbook.md", "data.md"}
    tables = {"patients": "pid", "visits": "pid"}
    for _, text in found:
        assert checked(text, tables, patient="pid").columns[0] == "pid"
