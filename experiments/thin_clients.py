"""What hiding the sum costs a step of 100 thin silos, by the number of compute nodes.

    python -m experiments.thin_clients [--small] [--runs 5]

The paper's figure "fold_increase_thin": model `1m` (784-536-536-536-10), MNIST dealt to 100 silos,
2, 4 and 8 compute nodes, medians of five runs. A run is a session with fresh keys and two steps
of each kind, in turn, after a step that does not count. Set-up is not in a step's time. A fold is
the time of a step through the real protocol over that of a step with the same work and nothing
hidden: clipping, noise, rounding, sum and optimizer, the residues being added directly. Both are
measured in the same run, in three ways:

- wall: all parties in one process, the clear step on one thread, the other on one or two; of a
  run's steps the least, since other work on the machine only ever adds;
- cpu: processor time of the same;
- path: the slowest path through a step if each party has a core of its own, as in the paper:
  slowest silo + aggregator + slowest compute node, in processor time (step_times.py).

The paper's way is its Algorithm 1 to the letter, 32 bits a number, each from Python's `secrets`.
Only the making of shares is counted, not the sums of its nodes. It would take minutes a step, so it
is timed on a part of one silo's numbers and multiplied; the table says how many and by what.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.secure_sum import paper
from numpy.typing import NDArray

from experiments.command import Shown, fill, options_of, parser_of
from experiments.medians import medians, runs_of, summarise_medians
from experiments.results import Row, Table
from experiments.step_times import APART, Case, compared, paths_of, processor_seconds

STEPS, THREADS = 2, (1, 2)
NODES, SMALL_NODES = (2, 4, 8), (2, 3)
FULL = Case(silos=100)
SMALL = Case(silos=4, hidden=(8,), records=80, rate=0.2)
KEY = ("nodes", "run")
FOLDS = ("fold_wall_1", "fold_wall_2", "fold_cpu", "fold_path")
PAPER_FOLDS = ("fold_paper_cpu", "fold_paper_path")
SECONDS = ("clear_wall", "wall_1", "wall_2", "clear_cpu", "cpu", "clear_path", "path")
PARTS = ("clear_silo", "silo", "clear_aggregator", "aggregator", "node")
PAPER = ("paper_coordinates_timed", "paper_silos_timed", "paper_multiplied_by", "paper_silo")
COLUMNS = (
    *KEY,
    "silos",
    "coordinates",
    "word_bits",
    "images",
    "steps",
    *SECONDS,
    *PARTS,
    *FOLDS,
    *PAPER,
    *PAPER_FOLDS,
    "setup_seconds",
    "load",
)

Words = NDArray[np.uint32]


def messages_of(vector: Words, nodes: int) -> list[Words]:
    """Algorithm 1, steps 1 and 2, for one silo: what it sends to each compute node."""
    drawn = [np.array(paper.full_share(vector.size), dtype=np.uint32) for _ in range(nodes - 1)]
    last = np.zeros_like(vector)
    for share in drawn:
        last -= share
    return [vector + drawn[0], *drawn[1:], last]


def paper_columns(
    nodes: int, silos: int, coordinates: int, clear_cpu: float, clear_path: float
) -> dict[str, object]:
    """The paper's way on a part of one silo's numbers, and what follows for a whole step."""
    timed = min(paper.SAMPLE, coordinates)
    spent = processor_seconds(lambda: messages_of(np.zeros(timed, dtype=np.uint32), nodes))
    silo = spent * coordinates / timed
    return {
        "paper_coordinates_timed": timed,
        "paper_silos_timed": 1,
        "paper_multiplied_by": silos * coordinates / timed,
        "paper_silo": silo,
        "fold_paper_cpu": (clear_cpu + silos * silo) / clear_cpu,
        "fold_paper_path": (clear_path + silo) / clear_path,
    }


def measured(case: Case, nodes: int, shown: Shown) -> Mapping[str, object]:
    """One run."""
    found = compared(replace(case, nodes=nodes), STEPS, THREADS, shown)
    clear, apart, one, two = found.clear, *(found.masked[each] for each in (APART, 1, 2))
    round_parameters = found.ready.round_parameters
    return {
        "silos": case.silos,
        "coordinates": round_parameters.dimension,
        "word_bits": round_parameters.word_bits,
        "images": found.images,
        "steps": STEPS,
        "clear_wall": clear.wall,
        "wall_1": one.wall,
        "wall_2": two.wall,
        "clear_cpu": clear.cpu,
        "cpu": one.cpu,
        **paths_of(clear, apart),
        "node": apart.node,
        "fold_wall_1": one.wall / clear.wall,
        "fold_wall_2": two.wall / clear.wall,
        "fold_cpu": one.cpu / clear.cpu,
        "fold_path": apart.path / clear.path,
        **paper_columns(nodes, case.silos, round_parameters.dimension, clear.cpu, clear.path),
        "setup_seconds": found.setup,
        "load": os.getloadavg()[0],
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Left what hubbub costs, right the paper's way beside it, which needs another scale."""
    from experiments.drawing import curve, panels, plain_ticks, save

    figure, (left, right) = panels(2, width=6.6, height=5)
    ours = {
        "fold_wall_1": "one process, one thread: wall time",
        "fold_wall_2": "one process, two threads: wall time",
        "fold_cpu": "one process: processor time",
        "fold_path": "each party a core of its own: slowest path",
    }
    paper_s = {
        "fold_paper_cpu": "one process, the paper's way*",
        "fold_paper_path": "each party a core of its own, the paper's way*",
    }

    def mark(axes: object, column: str, look: int, label: str, line: str) -> None:
        # On the left beside each other, so that bars can be told apart.
        query = 1.025 ** (look - 2) if axes is left else 1.0
        pairs = [(query * float(row["nodes"]), float(row[column])) for row in rows]
        curve(axes, medians(pairs), look, label, line=line)

    for look, (column, name) in enumerate(ours.items()):
        mark(left, column, look, name, "-")
        if column in ("fold_cpu", "fold_path"):
            mark(right, column, look, f"{name.partition(':')[0]}, hubbub", "-")
    for look, (column, name) in zip((4, 5), paper_s.items(), strict=True):
        mark(right, column, look, name, "--")
    nodes = sorted({int(row["nodes"]) for row in rows})
    for axes in (left, right):
        axes.axhline(1, color="#000000", linewidth=1, linestyle=":")
        axes.set_xscale("log")
        plain_ticks(axes.xaxis, nodes)
        axes.set_xlabel("compute nodes")
        axes.set_ylabel("time of a step, over that of the clear step")
    left.set_ylim(0, 1.6 * max(float(row[column]) for row in rows for column in ours))
    left.set_title("hubbub", fontsize=10)
    right.set_yscale("log")
    right.set_ylim(0.5, 40 * max(float(row["fold_paper_cpu"]) for row in rows))
    plain_ticks(right.yaxis, (1, 3, 10, 30, 100, 300, 1000, 3000))
    right.set_title("beside full shares from Python's `secrets`", fontsize=10)
    title = runs_of(rows, KEY[:1])
    left.legend(fontsize=9, loc="upper left", title=title)
    right.legend(fontsize=9, loc="upper left")
    part = int(rows[0]["paper_coordinates_timed"])
    whole, silos = int(rows[0]["coordinates"]), int(rows[0]["silos"])
    right.set_xlabel(
        f"compute nodes\n* making the shares is timed on {part:,} of {whole:,} numbers "
        f"of one silo of {silos},\nand multiplied; the sums of the paper's nodes are left out"
    )
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    case, nodes = (SMALL, SMALL_NODES) if options.small else (FULL, NODES)
    runs = 2 if options.small else options.runs
    keys = [{"nodes": each, "run": run} for each in nodes for run in range(1, runs + 1)]
    table = Table(path=options.out / "thin_clients.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        keys,
        lambda number, shown: measured(case, keys[number]["nodes"], shown),
        module="experiments.thin_clients",
        arguments=arguments,
    )
    by = ("nodes", "silos", "coordinates", "word_bits", "images", *PAPER[:3])
    summarise_medians(table, by, (*FOLDS, *PAPER_FOLDS, *SECONDS, *PARTS, "paper_silo"))
    draw(table.rows(), options.out / "thin_clients.png")


if __name__ == "__main__":
    main()
