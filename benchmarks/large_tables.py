"""What a large table costs a silo: seconds and memory of its one reading, in own processes.

    python -m benchmarks.large_tables [--rows 100000 10000000] [--sources parquet duckdb] [--write]

A made-up table of three rows a patient, nine columns, in a folder of Parquet parts or a database,
is read, encoded, sealed, and opened again, as `hubbub approve` and a study do. `getrusage` says
what each process took; the first row of a source is the process with its imports alone. For
PostgreSQL name a database by the URLs of who may write to it and of a role that may only read:
`--postgresql postgresql://owner@/large postgresql://reader@/large`.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.result_table import write_table

RESULTS = Path(__file__).parent / "results" / "large_tables.csv"
PART = 1_000_000  # rows of a Parquet file
COLUMNS = {
    "pid": "CAST(k / 3 AS BIGINT)",
    "age": "18 + hash(k) % 800 / 10.0",
    "sex": "CASE WHEN hash(k + 1) % 2 = 0 THEN 'F' ELSE 'M' END",
    "pressure": "90 + hash(k + 2) % 900 / 10.0",
    "weight": "50 + hash(k + 3) % 600 / 10.0",
    "ward": "'w' || hash(k + 4) % 9",
    "day": "CAST(hash(k + 5) % 3000 AS INTEGER)",
    "glucose": "CASE WHEN hash(k + 6) % 9 > 0 THEN 60 + hash(k + 7) % 2000 / 10.0 END",
    "died": "CAST(hash(k + 8) % 10 = 0 AS INTEGER)",
}
TABLE = (
    "CREATE TABLE seen (pid BIGINT, age DOUBLE PRECISION, sex TEXT, pressure DOUBLE PRECISION, "
    "weight DOUBLE PRECISION, ward TEXT, day INTEGER, glucose DOUBLE PRECISION, died INTEGER)"
)
_READ = """
import json, resource, sys
from pathlib import Path
from time import perf_counter
from hubbub import Study
from hubbub.core.study import sources
study, folder = Study.load(sys.argv[1]), Path(sys.argv[2])
began, found = perf_counter(), {"records": 0}
if sys.argv[3] == "all":
    records = sources.records(study, "north", folder=folder)
    found = {"records": len(records), "patients": records.units}
    found["kept_mb"] = sum(one.stat().st_size for one in folder.rglob("*.sealed")) >> 20
used = resource.getrusage(resource.RUSAGE_SELF)
found |= {"seconds": round(perf_counter() - began, 1), "processor": round(used.ru_utime, 1)}
print(json.dumps({**found, "peak_mb": used.ru_maxrss >> 10}))
"""


def study(source: str, rows: int) -> str:
    """The study that asks for every row, at most two of a patient."""
    query = ", ".join(COLUMNS)
    asked = f'source = "sql"\nquery = "SELECT {query} FROM seen"\ntables = {{ seen = "pid" }}'  # noqa: S608
    asked = 'files = "{name}/"' if source == "parquet" else asked
    order = "" if source == "parquet" else 'order = "day"\n'
    return f"""
[study]
name = "large"
[parties]
names = ["north", "south"]
colluders = 0
[data]
{asked}
target = "died"
records = {rows}
capacity = {2 * rows}
patient = "pid"
most_per_patient = 2
{order}[data.columns]
age = {{ low = 18, high = 98 }}
sex = {{ categories = ["F", "M"] }}
pressure = {{ low = 90, high = 180 }}
weight = {{ low = 50, high = 110 }}
ward = {{ categories = [{", ".join(f'"w{one}"' for one in range(9))}] }}
glucose = {{ low = 60, high = 260, default = 100, indicator = true }}
[model]
kind = "logistic"
[training]
steps = 2
sample_rate = 0.001
[privacy]
epsilon = 1.0
delta = 1e-7
"""


def lay(source: str, rows: int, folder: Path, server: Sequence[str]) -> None:
    """The table, and what a silo says of it."""
    import duckdb

    made = ", ".join(f"{value} AS {name}" for name, value in COLUMNS.items())
    url = server[1] if source == "postgresql" else f"{source}:///registry.{source}"
    with duckdb.connect(str(folder / "registry.duckdb")) as opened:
        opened.execute("SET threads = 1; SET memory_limit = '1GB'")
        opened.execute(TABLE if source == "duckdb" else "SELECT 1")
        (folder / "north").mkdir()
        for part, start in enumerate(range(0, rows, PART)):
            piece = f"SELECT {made} FROM range({start}, {min(start + PART, rows)}) t(k)"  # noqa: S608
            if source == "parquet":
                opened.execute(f"COPY ({piece}) TO '{folder}/north/{part:04}.parquet'")
            elif source == "duckdb":
                opened.execute(f"INSERT INTO seen {piece}")
            else:
                pieces = iter(partial(opened.execute(piece).fetchmany, 10_000), [])
                fill = _into_sqlite if source == "sqlite" else _into_postgresql
                fill(pieces, str(folder / "registry.sqlite") if source == "sqlite" else server[0])
    path = folder / "sources.toml"
    path.write_text(f'[north]\nurl = "{url}"\nminutes = 120\n', encoding="utf-8")
    path.chmod(0o600)
    (folder / "study.toml").write_text(study(source, rows), encoding="utf-8")


def _into_sqlite(pieces: Iterable[list[tuple[object, ...]]], path: str) -> None:
    """Rows into a file."""
    with closing(sqlite3.connect(path)) as opened:
        opened.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        for rows in pieces:
            opened.executemany(f"INSERT INTO seen VALUES ({', '.join('?' * len(COLUMNS))})", rows)  # noqa: S608
        opened.commit()


def _into_postgresql(pieces: Iterable[list[tuple[object, ...]]], url: str) -> None:
    """Rows into a database."""
    import psycopg

    with psycopg.connect(url) as opened, opened.cursor() as cursor:
        cursor.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        cursor.execute("GRANT SELECT ON seen TO PUBLIC")
        with cursor.copy("COPY seen FROM STDIN") as copy:
            for rows in pieces:
                for row in rows:
                    copy.write_row(row)


def measured(folder: Path, what: str) -> dict[str, float]:
    """What a process took that reads everything, or nothing."""
    run = [sys.executable, "-c", _READ, str(folder / "study.toml"), str(folder), what]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Print the rows, and keep them with `--write`."""
    ask = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    ask.add_argument("--rows", type=int, nargs="+", default=[100_000, 10_000_000])
    ask.add_argument("--sources", nargs="+", default=["parquet", "duckdb", "sqlite"])
    ask.add_argument("--postgresql", nargs=2, default=[], metavar=("OWNER", "READER"))
    ask.add_argument("--write", action="store_true")
    given = ask.parse_args()
    sources = [*given.sources, *(["postgresql"] if given.postgresql else [])]
    found: list[dict[str, object]] = []
    for source in sources:
        for place, rows in enumerate(given.rows):
            with tempfile.TemporaryDirectory(prefix="hubbub-large-") as made:
                folder = Path(made)
                lay(source, rows, folder, given.postgresql)
                for what in ("imports", "all") if not place else ("all",):
                    said = measured(folder, what)
                    counted = rows if what == "all" else 0
                    found.append({"source": source, "rows": counted, **said})
                    print(found[-1], flush=True)
    if given.write:
        write_table(RESULTS, found)


if __name__ == "__main__":
    main()
