"""What a set-up costs beside that of another version: pairs of runs, one straight after the other.

    python -m benchmarks.set_ups --before SRC [--rounds 9] [--write]

`SRC` is the `src` of another version, such as `git archive COMMIT src | tar -x -C FOLDER` leaves
it. Nearly all of a `secure_sum` of short vectors is its set-up, all parties in one process. A run
is a process of its own, which sums once before it is timed; in every second pair the other version
is first. A row has the medians of processor milliseconds a silo, and of the ratios of pairs.

Asked for: at most 10 % more than before sessions had a ROLL (ff6e6aa7).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.result_table import write_table

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).parent / "results" / "set_ups.csv"
LENGTH = 10
CASES = {  # by name: silos, colluders (None: the usual), compute nodes
    "10 silos": (10, None, 0),
    "67 silos, complete graph": (67, 65, 0),
    "150 silos": (150, None, 0),
    "67 silos, 3 nodes": (67, None, 3),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case; times in processor milliseconds a silo.

    Args:
        ratio: now over before; the median of the pairs.
        lower, upper: quartiles of that.
    """

    case: str
    pairs: int
    before_ms: float
    now_ms: float
    ratio: float
    lower: float
    upper: float


def timed(case: str) -> float:
    """Processor milliseconds a silo of one sum, in this process."""
    import hubbub

    silos, colluders, nodes = CASES[case]
    vectors = [[1] * LENGTH] * silos
    named = {"colluders": colluders, "compute_nodes": nodes}
    hubbub.secure_sum(vectors[:4], compute_nodes=nodes)  # what is imported and made once
    began = time.process_time()
    hubbub.secure_sum(vectors, **named)
    return 1000 * (time.process_time() - began) / silos


def asked(case: str, source: Path) -> float:
    """The same in a process of its own, with the source of a version."""
    paths = os.pathsep.join([str(source), str(ROOT)])
    command = [sys.executable, "-m", "benchmarks.set_ups", "--one", case]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return float(subprocess.check_output(command, env=environment, cwd="/"))


def row_of(case: str, before: Path, rounds: int) -> Row:
    """So many pairs."""
    pairs = []
    for number in range(rounds):
        order = (before, ROOT / "src") if number % 2 == 0 else (ROOT / "src", before)
        times = {source: asked(case, source) for source in order}
        pairs.append((times[before], times[ROOT / "src"]))
    ratios = [now / then for then, now in pairs]
    lower, _, upper = quantiles(ratios, n=4)
    return Row(
        case=case,
        pairs=rounds,
        before_ms=round(median(then for then, _ in pairs), 2),
        now_ms=round(median(now for _, now in pairs), 2),
        ratio=round(median(ratios), 3),
        lower=round(lower, 3),
        upper=round(upper, 3),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="the src of another version")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE}")
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(timed(options.one))
        return
    if options.before is None:
        parser.error("expected --before, the src of another version")
    rows = [row_of(case, options.before.resolve(), options.rounds) for case in CASES]
    for row in rows:
        print(row)
    if options.write:
        write_table(TABLE, rows)


if __name__ == "__main__":
    main()
