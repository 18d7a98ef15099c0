"""Seconds of a round and memory by the number of thin silos, all of them in one process.

    python -m experiments.scaling [--small] [--runs 5]

Not in the paper. 100 to 100,000 silos, 10,000 numbers of 16 bits, three compute nodes: all parties
make keys, agree on a session and play one round of the real protocol, which is
benchmarks/scale.py. A silo's vector costs nothing to make, so the time is that of noise, rounding,
masks, signatures and sums. Every run has a process of its own, whose high-water mark of memory is
in the table, and beside it what Python and its libraries had taken before anything was set up.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks import scale

from experiments.command import Shown, fill, options_of, parser_of
from experiments.medians import medians, runs_of, summarise_medians
from experiments.results import Row, Table

COORDINATES, SMALL_COORDINATES = 10_000, 1_000
NODES, WORD_BITS = 3, 16
SILOS, SMALL_SILOS = (100, 1_000, 10_000, 30_000, 100_000), (10, 40)
KEY = ("silos", "run")
TIMES = (
    "round_seconds",
    "round_cpu_seconds",
    "round_ms_per_silo",
    "setup_seconds",
    "setup_cpu_seconds",
)
MEMORY = ("start_mib", "peak_mib", "kib_per_silo")
COLUMNS = (
    *KEY,
    "coordinates",
    "nodes",
    "word_bits",
    *TIMES,
    "vector_kib",
    *MEMORY,
    "load",
)


@dataclass(frozen=True, kw_only=True)
class Lone:
    """What a process of its own found."""

    start_mib: float
    peak_mib: float
    found: scale.Scale


def peak_mib() -> float:
    """The high-water mark of this process's resident memory.

    It is read from the kernel's page about the process: getrusage's begins with what the parent had
    when it started this one.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("expected VmHWM in /proc/self/status, found none; run this on Linux")


def played(silos: int, coordinates: int) -> Lone:
    """One session and one round; meant for a fresh process."""
    start = peak_mib()
    found = scale.measured(silos, coordinates, NODES, WORD_BITS, quiet=True)
    return Lone(start_mib=start, peak_mib=peak_mib(), found=found)


def measured(silos: int, coordinates: int, shown: Shown) -> Mapping[str, object]:
    """One run, in a process of its own."""
    shown(0)
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        lone = process.submit(played, silos, coordinates).result()
    found = lone.found
    return {
        "coordinates": found.coordinates,
        "nodes": found.nodes,
        "word_bits": found.word_bits,
        "round_seconds": found.round_seconds,
        "round_cpu_seconds": found.round_cpu_seconds,
        "round_ms_per_silo": found.round_ms_per_silo,
        "setup_seconds": found.setup_seconds,
        "setup_cpu_seconds": found.setup_cpu_seconds,
        "vector_kib": found.vector_kib,
        "start_mib": lone.start_mib,
        "peak_mib": lone.peak_mib,
        "kib_per_silo": 1024 * (lone.peak_mib - lone.start_mib) / silos,
        "load": found.load,
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Seconds and memory against the number of silos."""
    from experiments.drawing import curve, panels, plain_ticks, save

    figure, (left, right) = panels(2)

    def mark(axes: object, column: str, look: int, label: str, line: str = "-") -> None:
        pairs = [(float(row["silos"]), float(row[column])) for row in rows]
        curve(axes, medians(pairs), look, label, line=line)

    # All of it is on one thread, so this is also what it takes where nothing else runs.
    mark(left, "setup_cpu_seconds", 1, "set-up, once a session", "--")
    mark(left, "round_cpu_seconds", 0, "a round")
    left.set_ylabel("processor seconds")
    left.set_yscale("log")
    plain_ticks(left.yaxis, (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100))
    mark(right, "peak_mib", 0, "the process at its most")
    mark(right, "start_mib", 5, "before set-up: Python and its libraries", "--")
    right.set_ylabel("resident memory, MiB")
    silos = sorted({int(row["silos"]) for row in rows})
    for axes in (left, right):
        axes.set_xscale("log")
        plain_ticks(axes.xaxis, silos)
        numbers = int(rows[0]["coordinates"])
        axes.set_xlabel(f"silos ({numbers:,} numbers, {rows[0]['nodes']} compute nodes)")
    right.set_ylim(0, 1.2 * max(float(row["peak_mib"]) for row in rows))
    left.legend(fontsize=9, title=runs_of(rows, KEY[:1]))
    right.legend(fontsize=9, loc="upper left")
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    sizes = SMALL_SILOS if options.small else SILOS
    coordinates = SMALL_COORDINATES if options.small else COORDINATES
    runs = 1 if options.small else options.runs
    keys = [{"silos": silos, "run": run} for run in range(1, runs + 1) for silos in sizes]
    table = Table(path=options.out / "scaling.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        keys,
        lambda number, shown: measured(keys[number]["silos"], coordinates, shown),
        module="experiments.scaling",
        arguments=arguments,
    )
    summarise_medians(table, ("silos", "coordinates", "nodes", "word_bits"), (*TIMES, *MEMORY))
    draw(table.rows(), options.out / "scaling.png")


if __name__ == "__main__":
    main()
