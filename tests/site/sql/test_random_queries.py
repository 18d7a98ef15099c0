"""Random queries over hostile cells: no person shows in whether one is answered, no engine in what.

Queries are drawn from a grammar of all that is let in, with values of the wrong type now and then;
what `checked` refuses is not run. Each of the others is asked of databases that differ in the rows
of one person, who has cells that engines are known to fail at.
"""

# ruff: noqa: S608 (statements for databases of the tests' own)

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.site.sql.databases import ENGINES, connect, database

from hubbub.core.errors import StudyError
from hubbub.core.study.cell_stream import texts_of
from hubbub.core.tabular.cells import canonical
from hubbub.site.sql.engines import connection_of, rows_of
from hubbub.site.sql.owned_query import OwnedQuery, checked
from hubbub.site.sql.source import rendered

TABLES = {"t": "pid", "u": "person"}
REFERENCE = ("r",)
SCHEMA = (
    "CREATE TABLE t (pid VARCHAR(40), s VARCHAR(4000), k BIGINT, d DOUBLE PRECISION, "
    "born DATE, b BOOLEAN, n DECIMAL(20, 6))",
    "CREATE TABLE u (person VARCHAR(40), s VARCHAR(4000), k INTEGER, seen TIMESTAMP)",
    "CREATE TABLE r (k INTEGER, name VARCHAR(40))",
)
COLUMNS = {
    "t": ("pid", "s", "k", "d", "born", "b", "n"),
    "u": ("person", "s", "k", "seen"),
    "r": ("k", "name"),
}
TEXTS = (
    *(
        "",
        " ",
        "x",
        "1",
        "1.0",
        "1.2",
        "1.2.0",
        "007",
        " 7 ",
        "-0",
        "+5",
        ".5",
        "5.",
        "1e5",
        "1E-3",
    ),
    *("1e400", "1e-400", "0x1", "nan", "NaN", "inf", "-Infinity", "now", "true", "false", "yes"),
    *("2024-02-29", "2023-02-29", "10000-01-01", "infinity", "0044-03-15 BC", "24:00", "%", "_"),
    *("Ä", "ß", "İ", "é", "\u00a07", "９", "'", '"', "a" * 3000, "9" * 40, "3.592862", "A1", "a1"),
    *("122.853394926", "-141.355255176", "0.1", "0.30000000000000004", "1_000", "1,5", "\ufffd"),
)
WHOLES = (0, 1, -1, 7, 4711, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 10**15, None)
REALS = (
    *(0.0, -0.0, 1.0, -1.5, 0.1, 0.1 + 0.2, 3.592862, 1e15, 1e16, 1.5e15, 123456789.125, None),
    *(1e-5, 1e-19, 1e-300, 1e19, 1e20, 1e290, float("inf"), float("-inf")),
)
DAYS = ("2024-02-29", "0001-01-01", "9999-12-31", "10000-01-01", "1970-01-01", None)
MOMENTS = ("2024-02-29 10:11:12", "9999-12-31 23:59:59", "2000-01-01 00:00:00", None)
DECIMALS = ("0.000000", "1.500000", "-7.000000", "123456789.123456", "0.100000", None)
WHO = "4711"
Row = tuple[Any, ...]


def _rows(person: str, draw: random.Random, texts: tuple[str, ...]) -> dict[str, list[Row]]:
    """A person's rows."""

    def some(several: tuple[Any, ...]) -> Any:
        return draw.choice(several)

    truths = (True, False, None)
    return {
        "t": [
            (
                person,
                some(texts),
                some(WHOLES),
                some(REALS),
                some(DAYS),
                some(truths),
                some(DECIMALS),
            )
            for _ in range(draw.randint(1, 3))
        ],
        "u": [
            (person, some(texts), draw.choice((0, 1, 7, -3, 2**31 - 1, None)), some(MOMENTS))
            for _ in range(draw.randint(0, 3))
        ],
    }


def populations() -> list[dict[str, list[Row]]]:
    """Databases that differ in one person's rows: not there, one row of each text, and others."""
    draw = random.Random(5)
    others = [_rows(str(one), draw, TEXTS) for one in (*range(1, 10), "A1", "a1", "1.2", "1.2.0")]
    hostile = [_rows(WHO, draw, TEXTS) for _ in range(8)]
    alone = [
        {},
        {"t": [row for one in hostile for row in one["t"]], "u": hostile[0]["u"]},
        {
            "t": [(WHO, text, 2**63 - 1, float("inf"), "9999-12-31", True, None) for text in TEXTS],
            "u": [(WHO, text, 1, MOMENTS[1]) for text in TEXTS],
        },
    ]
    reference = [(one, name) for one in (0, 1, 7) for name in ("a", "1")]
    return [
        {
            table: [*(row for one in others for row in one[table]), *person.get(table, [])]
            for table in ("t", "u")
        }
        | {"r": reference}
        for person in alone
    ]


class Grammar:
    """Random queries, most of them of the types that are let in."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._names: list[str] = []
        self._tables: list[tuple[str, str]] = []  # alias, table

    def _one(self, *several: str) -> str:
        return self._draw.choice(several)

    def query(self) -> str:
        """One SELECT."""
        self._tables = [("a", "t")]
        joins = ""
        if self._draw.random() < 0.5:
            self._tables.append(("c", self._one("t", "u")))
            key = TABLES[self._tables[-1][1]]
            more = f" AND {self.condition(1)}" if self._draw.random() < 0.5 else ""
            side = self._one("JOIN", "LEFT JOIN")
            joins += f" {side} {self._tables[-1][1]} c ON c.{key} = a.pid{more}"
        if self._draw.random() < 0.2:
            self._tables.append(("e", "r"))
            joins += f" {self._one('JOIN', 'LEFT JOIN')} r e ON e.k = {self._column()}"
        where = f" WHERE {self.condition(2)}" if self._draw.random() < 0.6 else ""
        if self._draw.random() < 0.3:
            results = ", ".join(f"{self._aggregate()} AS x{k}" for k in range(2))
            return f"SELECT a.pid, {results} FROM t a{joins}{where} GROUP BY a.pid"
        results = ", ".join(f"{self.value(2)} AS x{k}" for k in range(self._draw.randint(1, 3)))
        plain = f"SELECT a.pid, {results} FROM t a{joins}{where}"
        if self._draw.random() < 0.2:
            self._tables = [("w", "w")]
            return f"SELECT w.pid, {self.value(1)} AS y, w.x0 AS z FROM ({plain}) w"
        return plain

    def _aggregate(self) -> str:
        return self._one(
            "COUNT(*)",
            f"COUNT({self.value(1)})",
            f"COUNT(DISTINCT {self.value(1)})",
            f"MIN({self.number(1)})",
            f"MAX(CAST({self._column()} AS DOUBLE PRECISION))",
            f"MAX(CAST({self._column()} AS BIGINT))",
            f"MIN(CAST({self._column()} AS DATE))",
        )

    def _column(self) -> str:
        alias, table = self._draw.choice(self._tables)
        return f"{alias}.{self._draw.choice(COLUMNS.get(table, ('pid', 'x0')))}"

    def value(self, depth: int) -> str:
        """Of any type."""
        kinds = (self.number, self.text, self.day, self.condition, self._either)
        return self._draw.choice(kinds)(depth)

    def _either(self, depth: int) -> str:
        if depth <= 0:
            return self._column()
        kind = self._draw.choice((self.number, self.text, self.day, self.value))
        first, second = kind(depth - 1), kind(depth - 1)
        return self._one(
            f"CASE WHEN {self.condition(depth - 1)} THEN {first} ELSE {second} END",
            f"CASE WHEN {self.condition(depth - 1)} THEN {first} END",
            f"CASE {self._column()} WHEN {first} THEN {second} END",
            f"COALESCE({first}, {second})",
            f"NULLIF({first}, {second})",
            self._column(),
        )

    def number(self, depth: int) -> str:
        """A number, or a column that is read as one."""
        if depth <= 0:
            return self._one(
                *(
                    self._column(),
                    self._column(),
                    "0",
                    "1",
                    "1.5",
                    "0.1",
                    "4711",
                    "9007199254740993",
                ),
                f"CAST({self._column()} AS DOUBLE PRECISION)",
                f"CAST({self._column()} AS INTEGER)",
            )
        a, b = self.number(depth - 1), self.number(depth - 1)
        return self._one(
            *(f"{a} + {b}", f"({a} - {b})", f"{a} * {b}", f"{a} / {b}", f"-{a}", f"ABS({a})"),
            *(f"SQRT({a})", f"FLOOR({a})", f"CEIL({a})", f"LENGTH({self.text(depth - 1)})"),
            *(f"CAST({a} AS BIGINT)", f"CAST({self.text(depth - 1)} AS DOUBLE PRECISION)"),
            f"EXTRACT({self._one('YEAR', 'MONTH', 'DAY')} FROM {self.day(0)})",
            f"{self.day(0)} - {self.day(0)}",
            f"CAST({self.condition(depth - 1)} AS INTEGER)",
        )

    def text(self, depth: int) -> str:
        """A text, or a column that is read as one."""
        if depth <= 0:
            return self._one(
                *(self._column(), self._column(), "'x'", "'1.0'", "''", "'Ä'", "'2024-02-29'"),
                f"CAST({self._column()} AS TEXT)",
            )
        a = self.text(depth - 1)
        return self._one(
            *(f"LOWER({a})", f"UPPER({a})", f"TRIM({a})", f"SUBSTRING({a}, 2, 3)"),
            *(f"{a} || {self.text(depth - 1)}", f"CAST({self._column()} AS VARCHAR)"),
            f"CAST(CAST({self._column()} AS BIGINT) AS TEXT)",
            f"CAST({self.day(0)} AS TEXT)",
        )

    def day(self, depth: int) -> str:
        """A day."""
        return self._one(
            *(f"CAST({self._column()} AS DATE)",) * 3,
            "CAST('2024-02-29' AS DATE)",
            f"CAST({self.text(min(depth, 1))} AS DATE)",
        )

    def condition(self, depth: int) -> str:
        """A condition, now and then of values that are none."""
        if self._draw.random() < 0.1:
            return self._one("TRUE", "FALSE", "NULL", self._column(), self.value(depth - 1))
        if depth > 0 and self._draw.random() < 0.4:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return self._one(
                *(f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})", f"({a}) IS NOT TRUE"),
                f"({a}) = ({b})",
            )
        kind = self._draw.choice((self.number, self.text, self.day))
        a, b, c = (kind(depth - 1) for _ in range(3))
        if self._draw.random() < 0.1:
            b = self.value(depth - 1)
        return self._one(
            *(f"{a} = {b}", f"{a} <> {b}", f"{a} < {b}", f"{a} >= {b}", f"{a} BETWEEN {b} AND {c}"),
            *(f"{a} IN ({b}, {c})", f"{a} IS NULL", f"{a} IS NOT NULL"),
            f"{self.text(depth - 1)} LIKE {self._one(repr('%1%'), repr('a%'), repr('_'))}",
        )


def queries(number: int, seed: int) -> Iterator[tuple[str, OwnedQuery]]:
    """So many that are let in."""
    grammar, found = Grammar(seed), 0
    while found < number:
        text = grammar.query()
        with suppress(StudyError):
            yield text, checked(text, TABLES, reference=REFERENCE, patient="pid")
            found += 1


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """By engine a folder with the database of each population."""
    homes: dict[str, list[Path]] = {}
    for engine in ENGINES:
        for held in populations():
            home = tmp_path_factory.mktemp(engine)
            with database(home, engine) as opened:
                _fill(opened.execute, held, "?")
            homes.setdefault(engine, []).append(home)
    return homes


def _fill(execute: Any, held: dict[str, list[Row]], mark: str) -> None:
    for statement in SCHEMA:
        execute(statement)
    for table, rows in held.items():
        for row in rows:
            execute(f"INSERT INTO {table} VALUES ({', '.join([mark] * len(row))})", row)


def answers(query: OwnedQuery, homes: list[Path]) -> list[Counter[Row]]:
    """For each database the rows that a silo reads, as its columns take them.

    Raises:
        DataError: one of them fails.
    """
    connections = [connection_of("north", home) for home in homes]
    statement = rendered(query.select, connections[0].dialect, connections[0].schema)
    found = []
    for connection in connections:
        pieces = [row for rows in rows_of(connection, statement, "north") for row in rows]
        columns = [map(canonical, texts_of(column)) for column in zip(*pieces, strict=True)]
        found.append(Counter(zip(*columns, strict=True)))
    return found


def _asked(homes: dict[str, list[Path]], number: int, seed: int) -> None:
    """Ask all; a query that fails raises `DataError`."""
    for text, query in queries(number, seed):
        found = {engine: answers(query, own) for engine, own in homes.items()}
        whose = query.columns.index("pid")
        for engine, (without, *others) in found.items():
            for other in others:
                rest = Counter({row: n for row, n in other.items() if row[whose] != WHO})
                assert rest == without, (engine, text)
        first, *more = found.values()
        for one in more:
            assert one == first, text


@pytest.mark.slow
def test_p31_random_queries_show_no_person_and_no_engine(embedded: dict[str, list[Path]]):
    _asked(embedded, 12, seed=1)


@pytest.mark.slow
def test_p31_600_random_queries_show_no_person_and_no_engine(
    embedded: dict[str, list[Path]], postgresql: Any, tmp_path: Path
):
    homes = dict(embedded)
    for place, held in zip(count(), populations()):
        url = postgresql.made(f"random{place}")
        with postgresql.owner(f"random{place}") as opened:
            _fill(opened.execute, held, "%s")
            opened.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        homes.setdefault("postgresql", []).append(connect(tmp_path / str(place), "north", url))
    _asked(homes, 600, seed=2)
