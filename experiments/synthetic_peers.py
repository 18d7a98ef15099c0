"""Trusted curators beside hubbub's synthetic records: AIM and MST of the same five tables.

    python -m experiments.synthetic_peers --curator PYTHON [--small] [--runs 3]

PYTHON is that of an environment with dpmm (`python3.11 -m venv E; E/bin/pip install dpmm`); it sees
all records at once and adds all noise itself. Tables, levels, splits and measures are those of
`synthetic_utility`, so rows of one table, epsilon and run have the same real records.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments import synthetic_figure
from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from experiments.synthetic_utility import (
    COLUMNS,
    DELTA,
    EPSILONS,
    HORIZONS,
    KEY,
    Whole,
    compared,
    levels,
    table_of,
)
from hubbub.core.errors import DataError

METHODS = ("AIM", "MST")
_SCRIPT = Path(__file__).with_name("dpmm_curator.py")


def curated(
    curator: Path, real: Whole, sizes: Sequence[int], method: str, epsilon: float, seed: int
) -> tuple[Whole, float]:
    """Records of a trusted curator, and the seconds that they took."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "levels.npz", Path(folder) / "made.npy"
        np.savez(source, levels=real, sizes=np.array(sizes))
        told = [curator, _SCRIPT, source, target, method, epsilon, DELTA, seed]
        done = subprocess.run(  # noqa: S603 (a Python that whoever measures has named)
            [str(one) for one in told], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise DataError(
                f"expected records of {method} from {curator}, it ended with "
                f"{done.stderr.strip().splitlines()[-1:]}; pip install dpmm there"
            )
        return np.load(target), float(done.stdout.split()[-1])


def measured(curator: Path, table: str, method: str, epsilon: float, run: int) -> dict[str, object]:
    """The row of one run."""
    design, train, test = table_of(table, run)
    real, held = levels(design, train), levels(design, test)
    sizes = [one.size for one in design.columns]
    made, seconds = curated(curator, real, sizes, method, epsilon, run)
    key = dict(zip(KEY, (table, method, epsilon, run), strict=True))
    return key | compared(design, made, real, held) | {"seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=3)
    parser.add_argument("--curator", type=Path, required=True, help="a Python that has dpmm")
    parser.add_argument("--method", choices=METHODS, help="only this one")
    parser.add_argument("--table", choices=tuple(HORIZONS), help="only this one")
    options = options_of(parser, arguments)
    small, named = options.small, options.named
    points = [
        (table, method, epsilon, run)
        for run in range(1 if small else options.runs)
        for table in (["Dialysis"] if small else [named.table] if named.table else HORIZONS)
        for method in ([named.method] if named.method else METHODS)
        for epsilon in (EPSILONS[1:2] if small else EPSILONS)
    ]
    fill(
        Table(path=Path(options.out) / "synthetic_peers.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(named.curator, *points[number]),
        module="experiments.synthetic_peers",
        arguments=arguments,
    )
    folder, named_so = Path(options.out), ("synthetic_utility", "synthetic_peers")
    rows = [
        row
        for name in named_so
        for row in Table(path=folder / f"{name}.csv", key=KEY, columns=COLUMNS).rows()
    ]
    tables = [table for table in HORIZONS if any(row["table"] == table for row in rows)]
    synthetic_figure.draw(rows, tables, folder / "synthetic.png")


if __name__ == "__main__":
    main()
