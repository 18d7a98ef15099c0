"""python -m benchmarks.network WHAT; see the file of that name, and slow_line for `slow`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

Options = argparse.Namespace


def _kills(options: Options) -> Sequence[Any]:
    from benchmarks.network import kills

    return [
        kills.measured(options.nodes, options.kills, options.steps, options.seed, options.minutes)
    ]


def _endurance(options: Options) -> Sequence[Any]:
    from benchmarks.network import endurance

    return endurance.measured(options.nodes, options.steps)


def _crowd(options: Options) -> Sequence[Any]:
    from benchmarks.network import crowd

    return crowd.measured(options.silos, options.steps)


def _silo(options: Options) -> Sequence[Any]:
    from benchmarks.network import silo

    return silo.measured(options.steps)


def _cuts(options: Options) -> Sequence[Any]:
    from benchmarks.network import cuts

    return cuts.measured(options.nodes, options.cuts, options.seed)


def _slow(options: Options) -> Sequence[Any]:
    from benchmarks.network import slow_line

    return slow_line.measured(options.nodes, options.seed, options.darknesses, options.hidden)


def _step(options: Options) -> Sequence[Any]:
    from benchmarks.network import step

    return step.measured([options.hidden or 1000], options.steps, options.download.split(","))


def _thin(options: Options) -> Sequence[Any]:
    from benchmarks.network import thin

    return thin.measured(options.silos, options.steps)


def _absences(options: Options) -> Sequence[Any]:
    from benchmarks.network import absences

    return absences.measured(
        options.nodes,
        options.silos,
        options.away,
        options.away_seconds,
        options.steps,
        options.seed,
        options.noise,
    )


# What is measured, and over how many steps.
_WHAT: dict[str, tuple[Callable[[Options], Sequence[Any]], int]] = {
    "kills": (_kills, 600),
    "endurance": (_endurance, 1000),
    "crowd": (_crowd, 20),
    "silo": (_silo, 10),
    "cuts": (_cuts, 0),
    "slow": (_slow, 0),
    "step": (_step, 8),
    "thin": (_thin, 12),
    "absences": (_absences, 200),
}


def main() -> None:
    """Measure one thing, print it, and keep it in benchmarks/results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=_WHAT)
    parser.add_argument("--nodes", type=int, default=2, help="compute nodes; 0: pairwise masks")
    parser.add_argument(
        "--silos", type=int, default=30, help="crowd, thin: how many at most; absences: how many"
    )
    parser.add_argument("--kills", type=int, default=200, help="kills: how many")
    parser.add_argument("--cuts", type=int, default=300, help="cuts: how many")
    parser.add_argument("--seed", type=int, default=1, help="kills, cuts, slow: of chance")
    parser.add_argument("--darknesses", type=int, default=4, help="slow: how many")
    parser.add_argument("--hidden", type=int, default=0, help="slow, step: width of a hidden layer")
    parser.add_argument("--download", default="float32,bfloat16", help="step: how models go down")
    parser.add_argument("--minutes", type=float, default=60.0, help="kills: at most")
    parser.add_argument("--steps", type=int, help="of the study")
    parser.add_argument("--away", type=int, default=3, help="absences: silos away at any time")
    parser.add_argument("--away-seconds", type=float, default=600.0, help="absences: the mean")
    parser.add_argument("--noise", default="independent", help="absences: or correlated")
    options = parser.parse_args()
    measure, steps = _WHAT[options.what]
    options.steps = options.steps or steps
    for row in measure(options):
        print(row)


if __name__ == "__main__":
    main()
