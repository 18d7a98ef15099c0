"""`secure_sum` of many short vectors: the sparse mask graph beside the complete one.

    python -m benchmarks.many_silos [--rounds 3] [--write] [--json]

Nearly all of it is the set-up: keys, seed, agreements, all parties in one process. The two graphs
are summed on in turn; times are medians of processor time. The complete one, which any number of
colluders leaves whole, is left out beyond 100 silos. Threads change nothing: the library's public
key operations hold Python's lock.

Asked for: at most 4 s at 300 silos.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

import hubbub
from benchmarks.result_table import write_table

TABLE = Path(__file__).parent / "results" / "many_silos.csv"
LENGTH, COMPLETE_UP_TO = 100, 100
SILOS = (30, 100, 300)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Seconds of one sum of so many vectors."""

    silos: int
    graph: str
    cpu_seconds: float
    wall_seconds: float
    ms_per_silo: float


def rows_of(silos: int, rounds: int) -> list[Row]:
    vectors = list(np.random.default_rng(silos).integers(-1000, 1000, (silos, LENGTH)))
    graphs: dict[str, int | None] = {"usual": None}
    if silos <= COMPLETE_UP_TO:
        graphs["complete"] = silos - 2
    spent: dict[str, list[tuple[float, float]]] = {graph: [] for graph in graphs}
    for _ in range(rounds):
        for graph, colluders in graphs.items():
            cpu, wall = time.process_time(), time.perf_counter()
            total = hubbub.secure_sum(vectors, colluders=colluders)
            spent[graph].append((time.process_time() - cpu, time.perf_counter() - wall))
            assert (total == np.sum(vectors, axis=0)).all(), "the sum is exact"
    return [row_of(silos, graph, times) for graph, times in spent.items()]


def row_of(silos: int, graph: str, times: list[tuple[float, float]]) -> Row:
    cpu, wall = (median(column) for column in zip(*times, strict=True))
    return Row(
        silos=silos,
        graph=graph,
        cpu_seconds=round(cpu, 3),
        wall_seconds=round(wall, 3),
        ms_per_silo=round(1e3 * cpu / silos, 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    hubbub.secure_sum([[1], [2]])  # what is imported and made once
    rows = [row for silos in SILOS for row in rows_of(silos, options.rounds)]
    for row in rows:
        print(json.dumps(asdict(row)) if options.json else row)
    if options.write:
        write_table(TABLE, rows)


if __name__ == "__main__":
    main()
