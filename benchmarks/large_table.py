"""A table of a million rows and 50 columns at one silo: encoded once, summed, trained on.

    python -m benchmarks.large_table [--rows 100000 1000000] [--write]

The silo's file is a folder of Parquet parts of 100,000 rows, 40 columns of numbers and 10 of
categories; two others have a thousand rows each. Each row of the table is a process of its own, of
which `getrusage` says what it took; imports are taken off. "read" is pyarrow's reading of the same
parts, column by column, into NumPy: nothing is checked, scaled or sealed there. "encoded" is the
extract of records and of cells; "again" is what a silo that was started again reads. "statistics"
and "training" are whole runs, which begin anew and so encode once more: a table of all numbers, and
20 steps of a logistic model at a rate of 0.01. Processor time is what compares on a busy machine;
memory is what the process held at most, its libraries included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.result_table import write_table

RESULTS = Path(__file__).parent / "results" / "large_table.csv"
NUMBERS, CATEGORIES, PART = 40, 10, 100_000
SILOS = ("large", "one", "two")
_HEAD = """
import json, os, resource, sys, warnings
from pathlib import Path
import numpy as np, pyarrow.parquet, torch
import hubbub
from hubbub.core.study.study import Study
from hubbub.core.study import sources
from hubbub.learning.runs.run_study import run
warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
os.chdir(folder)
study = {name: Study.load(folder / f"{name}.toml") for name in ("records", "statistics")}
def took():
    one = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([one.ru_utime, one.ru_stime])
before, base = took(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""
_TAIL = """
found = dict(zip(("user", "system"), (took() - before).tolist()))
found["base_mb"], found["peak_mb"] = base // 1024, (
    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
)
print(json.dumps(found))
"""
_WORK = {
    "read": """
for path in sorted((folder / "silo-large").iterdir()):
    for column in pyarrow.parquet.read_table(path).columns:
        column.to_numpy()
""",
    "encoded, records": 'sources.records(study["records"], "large")',
    "again, records": 'sources.records(study["records"], "large").inputs.sum()',
    "encoded, cells": 'sources.statistic_cells(study["statistics"], "large")',
    "statistics": 'run(study["statistics"], "run-statistics")',
    "training": 'run(study["records"], "run-training")',
}


def written(folder: Path, rows: int) -> None:
    """The silos' parts, and two studies of them."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    for name in SILOS:
        (folder / f"silo-{name}").mkdir()
        left = rows if name == "large" else 1000
        for part in range(-(-left // PART)):
            size = min(PART, left - part * PART)
            made = {f"n{k}": rng.normal(50, 10, size).round(1) for k in range(NUMBERS)}
            labels = np.array(["no", "mild", "severe", "unknown"])
            made |= {f"c{k}": labels[rng.integers(0, 4, size)] for k in range(CATEGORIES)}
            odds = (made["n0"] - made["n1"]) / 20
            made["sick"] = (rng.random(size) < 1 / (1 + np.exp(-odds))).astype("i8")
            parquet.write_table(pa.table(made), folder / f"silo-{name}" / f"{part:04}.parquet")
    (folder / "records.toml").write_text(_study(rows, training=True))
    (folder / "statistics.toml").write_text(_study(rows, training=False))


def _study(rows: int, *, training: bool) -> str:
    columns = [f"n{k} = {{ low = 0, high = 100, default = 50 }}" for k in range(NUMBERS)]
    columns += [
        f'c{k} = {{ categories = ["no", "mild", "severe", "unknown"] }}' for k in range(CATEGORIES)
    ]
    named = ", ".join(f'"n{k}"' for k in range(NUMBERS))
    target, asked = (
        (
            'target = "sick"',
            '[model]\nkind = "logistic"\n[training]\nsteps = 20\nsample_rate = 0.01',
        )
        if training
        else ("", f'[statistics.means]\nkind = "table"\ncolumns = [{named}]')
    )
    return "\n".join(
        [
            '[study]\nname = "a large table"\n[parties]',
            f"names = {list(SILOS)}\ncolluders = 1".replace("'", '"'),
            f'[data]\nfiles = "silo-{{name}}/"\nrecords = {rows + 2000}\n{target}',
            "[data.columns]",
            *columns,
            asked,
            "[privacy]\nepsilon = 1.0\ndelta = 1e-7",
        ]
    )


def measured(rows: int) -> list[dict[str, object]]:
    """A row for each piece of work."""
    found = []
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        written(folder, rows)
        for name, work in _WORK.items():
            run = [sys.executable, "-c", _HEAD + work + _TAIL, str(folder)]
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr)
            told = json.loads(done.stdout.splitlines()[-1])
            found.append(
                {
                    "rows": rows,
                    "what": name,
                    "user_s": round(told["user"], 2),
                    "system_s": round(told["system"], 2),
                    "libraries_mb": int(told["base_mb"]),
                    "peak_mb": int(told["peak_mb"]),
                }
            )
            print(*found[-1].values(), sep="  ", flush=True)
    return found


def main() -> None:
    """Print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--write", action="store_true", help=f"to {RESULTS}")
    options = parser.parse_args()
    rows = [row for number in options.rows for row in measured(number)]
    if options.write:
        write_table(RESULTS, rows)


if __name__ == "__main__":
    main()
