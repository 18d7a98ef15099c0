"""Many thin silos in one process: time and memory of the whole protocol by the number of silos.

    python -m benchmarks.scale [--silos 100,1000,10000] [--coordinates 100000] [--nodes 3]
                               [--write] [--json] [--profile]

Every number of silos gets a fresh process, in which all parties make keys, agree on a session and
play one round: every silo's vector is noised, rounded, masked, signed, sent, verified and added,
and the compute nodes take the masks off. A silo's own vector is a single one at a coordinate of its
own, so that the sum is known; what is left over must have the standard deviation of the noise.

Memory is the high-water mark of the process above what Python, NumPy and this package take before
anything is set up. It should be a few vectors and some kilobytes of keys a silo. `--profile` prints
where the Python time goes instead.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.result_table import write_table
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.in_process import Federation, federate
from hubbub.core.session.offer import Layout
from hubbub.desk.cli.terminal import bar

RESULTS = Path(__file__).parent / "results"
SIGMA = 4.0
_STUDY = b"hubbub benchmark of scale".ljust(32, b"\0")
_NO_MODEL = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One run."""

    silos: int
    coordinates: int
    nodes: int
    word_bits: int
    setup_seconds: float
    setup_ms_per_silo: float
    round_seconds: float
    round_ms_per_silo: float
    setup_cpu_seconds: float
    round_cpu_seconds: float
    setup_kib_per_silo: float
    round_mib: float
    vector_kib: float
    load: float


class One:
    """A silo whose vector is a one at a coordinate of its own."""

    count = capacity = 0

    def __init__(self, place: int, dimension: int) -> None:
        self._place, self._dimension = place, dimension

    def clipped_sum(
        self, parameters: NDArray[np.float32], chosen: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """The one."""
        vector = np.zeros(self._dimension)
        vector[self._place] = 1.0
        return vector


def terms_for(silos: int, coordinates: int, nodes: int, word_bits: int) -> RoundParameters:
    return RoundParameters(
        dimension=coordinates,
        parameters=0,
        silos=silos,
        quorum=silos,
        steps=1,
        word_bits=word_bits,
        grid_step=1.0,
        sigma_grid=SIGMA,
        sample_rate=1.0,
        nodes=nodes,
    )


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(silos: int, coordinates: int, nodes: int, word_bits: int, quiet: bool) -> Scale:
    round_parameters = terms_for(silos, coordinates, nodes, word_bits)
    layout = Layout(names=tuple(f"silo-{k}" for k in range(1, silos + 1)), nodes=nodes)
    tasks = [One(k % coordinates, coordinates) for k in range(silos)]
    before, wall, cpu = peak_kib(), time.perf_counter(), time.process_time()
    charged = Charged()
    parties = federate(layout, round_parameters, tasks, study=_STUDY, record=charged.record)
    setup, setup_cpu = time.perf_counter() - wall, time.process_time() - cpu
    after, wall, cpu = peak_kib(), time.perf_counter(), time.process_time()
    total = round_of(parties, charged, silos, quiet=quiet)
    spent, spent_cpu = time.perf_counter() - wall, time.process_time() - cpu
    check(total, silos, coordinates)
    return Scale(
        silos=silos,
        coordinates=coordinates,
        nodes=nodes,
        word_bits=word_bits,
        setup_seconds=setup,
        setup_ms_per_silo=1e3 * setup / silos,
        round_seconds=spent,
        round_ms_per_silo=1e3 * spent / silos,
        setup_cpu_seconds=setup_cpu,
        round_cpu_seconds=spent_cpu,
        setup_kib_per_silo=(after - before) / silos,
        round_mib=(peak_kib() - after) / 1024,
        vector_kib=round_parameters.masked_bytes / 1024,
        load=os.getloadavg()[0],
    )


class Charged:
    """Tells a bar, once there is one, of every silo that is charged."""

    def __init__(self) -> None:
        self.advance: Callable[[], None] = lambda: None

    def record(self, *_: object) -> None:
        """A silo is charged."""
        self.advance()


def round_of(
    parties: Federation, charged: Charged, silos: int, *, quiet: bool
) -> NDArray[np.int64]:
    with bar(f"{silos} silos", silos, quiet=quiet) as progress:
        charged.advance = progress.advance
        return parties.sum(1, _NO_MODEL)


def check(total: NDArray[np.int64], silos: int, coordinates: int) -> None:
    """The known sum is in there, under noise of the right size."""
    ones = np.bincount(np.arange(silos) % coordinates, minlength=coordinates)
    spread = float(np.std(total - ones)) / (SIGMA * sqrt(silos))
    assert abs(spread - 1) < 6 / sqrt(2 * coordinates) + 0.01, f"noise is {spread} of what it is"


def in_fresh_process(options: argparse.Namespace, silos: int) -> Scale:
    command = [sys.executable, "-m", "benchmarks.scale", "--child", "--silos", str(silos)]
    for name in ("coordinates", "nodes", "word_bits"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return Scale(**json.loads(done.stdout))


def profile(silos: int, options: argparse.Namespace) -> None:
    profiler = cProfile.Profile()
    profiler.runcall(
        measured, silos, options.coordinates, options.nodes, options.word_bits, quiet=True
    )
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def show(rows: list[Scale]) -> None:
    print("  silos | set-up s  ms/silo  KiB/silo | round s  ms/silo  more MiB | vector KiB  load")
    for row in rows:
        print(
            f"{row.silos:7} | {row.setup_seconds:8.2f} {row.setup_ms_per_silo:8.2f} "
            f"{row.setup_kib_per_silo:9.1f} | {row.round_seconds:7.2f} "
            f"{row.round_ms_per_silo:8.2f} {row.round_mib:9.1f} | {row.vector_kib:10.1f} "
            f"{row.load:5.1f}"
        )


def write(rows: list[Scale]) -> None:
    rounded = [{k: round(v, 3) for k, v in asdict(row).items()} for row in rows]
    write_table(RESULTS / "scale.csv", rounded, of="coordinates")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", default="100,1000,10000", help="numbers of silos")
    parser.add_argument("--coordinates", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--word-bits", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results")
    parser.add_argument("--profile", action="store_true", help="where the Python time goes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.silos.split(",")]
    if options.profile:
        for silos in sizes:
            profile(silos, options)
        return
    if options.child:
        row = measured(sizes[0], options.coordinates, options.nodes, options.word_bits, quiet=False)
        print(json.dumps(asdict(row)))
        return
    rows = [in_fresh_process(options, silos) for silos in sizes]
    if options.json:
        print(json.dumps({"results": [asdict(row) for row in rows]}))
    else:
        show(rows)
    if options.write:
        write(rows)


if __name__ == "__main__":
    main()
