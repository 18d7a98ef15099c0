"""python -m benchmarks.network failures | kills | endurance | steps | capture; see each file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Options = argparse.Namespace


def _failures(options: Options) -> Sequence[Any]:
    from benchmarks.network import failures

    return failures.measured(options.nodes, options.only, options.log)


def _kills(options: Options) -> Sequence[Any]:
    from benchmarks.network import kills

    return [
        kills.measured(options.nodes, options.kills, options.steps, options.seed, options.minutes)
    ]


def _endurance(options: Options) -> Sequence[Any]:
    from benchmarks.network import endurance

    return endurance.measured(options.nodes, options.steps)


def _steps(options: Options) -> Sequence[Any]:
    from benchmarks.network import steps

    return [
        steps.measured(download, options.steps, options.rate)
        for download in ("float32", "bfloat16")
    ]


def _capture(options: Options) -> Sequence[Any]:
    from benchmarks.network import capture

    return capture.measured(options.steps)


# What is measured, and over how many steps.
_WHAT: dict[str, tuple[Callable[[Options], Sequence[Any]], int]] = {
    "failures": (_failures, 0),
    "kills": (_kills, 600),
    "endurance": (_endurance, 1000),
    "steps": (_steps, 45),
    "capture": (_capture, 40),
}


def main() -> None:
    """Measure one thing, print it, and keep it in benchmarks/results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=_WHAT)
    parser.add_argument("--nodes", type=int, default=2, help="compute nodes; 0: pairwise masks")
    parser.add_argument("--only", nargs="*", default=[], help="failures: blows with these words")
    parser.add_argument("--log", type=Path, help="failures: file for what the journals said")
    parser.add_argument("--kills", type=int, default=200, help="kills: how many")
    parser.add_argument("--seed", type=int, default=1, help="kills: of chance")
    parser.add_argument("--minutes", type=float, default=60.0, help="kills: at most")
    parser.add_argument("--steps", type=int, help="of the study")
    parser.add_argument("--rate", type=float, default=0.2, help="steps: the sample rate")
    options = parser.parse_args()
    _make_importable()
    measure, steps = _WHAT[options.what]
    options.steps = options.steps or steps
    for row in measure(options):
        print(row)


def _make_importable() -> None:
    """FLARE's workers run in folders of their own, and find these modules all the same."""
    root, before = str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = root if before is None else os.pathsep.join((root, before))


if __name__ == "__main__":
    main()
