"""Accuracy against epsilon on CIFAR-10: hubbub's protocol, a trusted aggregator, and local DP.

    HUBBUB_CONV=conv.npz python -m experiments.utility [--small] [--runs 5]
        [--weights conv.npz] [--only hubbub ...] [--sampling poisson] [--level 4] [--silos 32]

The paper's figure "acc_fat": a fully connected head without biases on its frozen convolutions, 32
silos. The file of these layers is the user's (docs/data.md, "Frozen layers"). Every hubbub point
goes through the real protocol with pairwise masks; its noise is asked for by epsilon in four steps:

1. A level is a total noise, t = sigma / C of what is in the revealed sum if every silo takes part;
   the paper's levels are 2 * sigma for its sigma = 0.5, 1 and 2.
2. With T colluders of N silos, N - T - 1 shares are what the stated adversary cannot subtract. So
   at T = 0 it faces z = t * sqrt((N - 1) / N), and the epsilon of z is the study's.
3. The plan finds z again from epsilon; the total that it states is a column of the table.
4. Colluders T > 0 keep that epsilon, and the plan raises the total by sqrt((N - 1) / (N - T - 1)).

A trusted aggregator is asked for the same total noise, so its epsilon is the smaller one, of t. It
sees the sum over all records whoever holds them, so it is run with the records among 4 silos. Local
DP is asked for hubbub's epsilon: every silo adds z itself, and 4 silos do ("local-dp"). That of 32
silos is run as what it is in law, a Poisson batch of all records with one noise z * sqrt(32) on its
sum; the code is the trusted aggregator's ("local-dp-one-sum").

Batches are Poisson (add-remove), or joint ones of a fixed size (substitution), which come in two
kinds. "fresh-lists" has the paper's amplification and its price, a list of tokens for every step;
here lists are dealt, not mixed (joint_batches.py). "static-list" mixes one list, by the mixers
themselves, cuts it into batches, and is charged for an epoch as for a step without sampling.

`--runs 0` makes nothing and draws what is there.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import hubbub
from experiments.command import Options, Shown, fill, options_of, parser_of, stepwise
from experiments.results import Row, Table, summarise, text
from experiments.utility_study import (
    CIFAR,
    DELTA,
    FEW,
    FRESH,
    HEART,
    HUBBUB,
    LOCAL,
    METHODS,
    ONE_SUM,
    POISSON,
    SAMPLINGS,
    SILOS,
    STATIC,
    TRUSTED,
    Point,
    PreparedStudy,
)

BASELINES = {HUBBUB: None, TRUSTED: "trusted", LOCAL: "local-dp", ONE_SUM: "trusted"}
PAPER, STRICTER = (1.0, 2.0, 4.0), (8.0, 16.0)
LOOSER, BETWEEN = (
    (0.919, 0.717, 0.577),
    (1.504, 1.196),
)  # epsilon 2, 4, 8, and 4, 8 of joint batches
# A run of 32 silos takes several times as long as any other, so the most telling come first.
FIRST = (
    (POISSON, PAPER),
    (FRESH, (2.0, 4.0)),
    (POISSON, STRICTER),
    (FRESH, (1.0, 8.0)),
    (POISSON, LOOSER),
    (FRESH, BETWEEN),
)
# The epsilon that the paper prints at a total noise, which is 2 * sigma of its text.
PRINTED = {(FRESH, 1.0): 13.81, (FRESH, 2.0): 2.51, (FRESH, 4.0): 1.07, (POISSON, 1.0): 1.6}
# Final test accuracy with a trusted aggregator by total noise, means of three runs elsewhere.
ANCHORS = {1.0: 0.658, 1.03: 0.657, 2.0: 0.622, 4.0: 0.572}

KEY = ("method", "sampling", "level", "silos", "colluders", "run")
COLUMNS: tuple[str, ...] = (*KEY, "relation", "epsilon", "delta", "study_delta")
COLUMNS += ("noise_multiplier", "total_noise_multiplier", "steps", "accuracy", "loss")


def weights_of(named: str | None) -> tuple[str, str]:
    """The file of the frozen layers, named or else in $HUBBUB_CONV, and its SHA-256."""
    path = named or os.environ.get("HUBBUB_CONV", "")
    if not path or not Path(path).is_file():
        raise SystemExit(
            "expected the file of the paper's convolutions as --weights or $HUBBUB_CONV, found "
            f"{path or 'neither'}; see docs/experiments.md, or try --small"
        )
    return path, hashlib.sha256(Path(path).read_bytes()).hexdigest()


def setting_of(options: Options) -> PreparedStudy:
    """The real study, or the small one."""
    if options.small:
        counts = (242, 235, 98, 160)
        return PreparedStudy(template=HEART, records=sum(counts), batch=147, steps=4, counts=counts)
    path, sha256 = weights_of(options.named.weights)
    return PreparedStudy(
        template=CIFAR, weights=path, sha256=sha256, records=50_000, batch=400, steps=1250
    )


def wanted(runs: int, *, small: bool) -> list[tuple[Point, int]]:
    """Points and runs, the most telling first, so that a stopped experiment has told the most."""
    if small:
        return [(point, 1) for point in _few((2.0,), 2.0, (2,)) + _joint(FEW)]
    main = [Point(method=HUBBUB, sampling=kind, level=t) for kind, levels in FIRST for t in levels]
    main += _compared(PAPER) + _compared(STRICTER) + _compared(LOOSER)
    beside = [Point(method=HUBBUB, sampling=FRESH, level=16.0)]
    beside += [Point(method=HUBBUB, sampling=STATIC, level=4.0)]
    beside += _few((2.0, 1.0, 4.0, 1.03), 2.0, (1, 2))
    everything = [(point, run) for run in (1, 2) for point in main]
    everything += [(point, 1) for point in beside]
    everything += [(point, run) for run in range(2, runs + 1) for point in main + beside]
    return [(point, run) for point, run in dict.fromkeys(everything) if run <= runs]


def _compared(levels: Sequence[float]) -> list[Point]:
    """What hubbub's curves are set beside, at these levels."""
    return [
        Point(method=method, sampling=sampling, level=level, silos=silos)
        for method, sampling, silos in (
            (TRUSTED, POISSON, FEW),
            (ONE_SUM, POISSON, SILOS),
            (TRUSTED, FRESH, FEW),
        )
        for level in levels
    ]


def _few(levels: Sequence[float], middle: float, colluders: Sequence[int]) -> list[Point]:
    """Four silos, where colluders and local DP cost what can be told apart."""
    found = [
        Point(method=method, level=level, silos=FEW)
        for level in levels
        for method in (HUBBUB, TRUSTED)
    ]
    found.append(Point(method=LOCAL, level=middle, silos=FEW))
    found += [Point(method=HUBBUB, level=middle, silos=FEW, colluders=T) for T in colluders]
    return found


def _joint(silos: int) -> list[Point]:
    """Every way to make joint batches, once, and local DP at once."""
    kinds = ((HUBBUB, FRESH), (TRUSTED, FRESH), (HUBBUB, STATIC), (ONE_SUM, POISSON))
    return [
        Point(method=method, sampling=sampling, level=2.0, silos=silos)
        for method, sampling in kinds
    ]


def key_of(point: Point, run: int) -> dict[str, object]:
    """The columns that name a run."""
    return {**{name: getattr(point, name) for name in KEY[:-1]}, "run": run}


def measured(setting: PreparedStudy, point: Point, run: int, shown: Shown) -> dict[str, object]:
    """Train once."""
    study, progress = setting.study(point, run), stepwise(shown, setting.steps)
    result = _way(point)(study, progress)
    plan = result.plan
    total = {
        HUBBUB: plan.total_noise_multiplier,
        LOCAL: plan.noise_multiplier * sqrt(point.silos),
    }.get(point.method, plan.noise_multiplier)
    return {
        "relation": point.relation,
        "epsilon": setting.accounted(point),
        "delta": DELTA,
        "study_delta": study.privacy.delta,
        "noise_multiplier": point.promised,
        "total_noise_multiplier": total,
        "steps": setting.steps,
        "accuracy": float(result.final["accuracy"]),
        "loss": float(result.final["loss"]),
    }


def _way(point: Point) -> Callable[..., Any]:
    """The function that trains a point's study."""
    if (point.method, point.sampling) == (HUBBUB, FRESH):
        from experiments import joint_batches

        return joint_batches.federated
    baseline = BASELINES[point.method]
    return lambda study, progress: hubbub.run(study, baseline=baseline, progress=progress)


def reported(row: Row) -> Row:
    """What others report at the same total noise."""
    level = float(row["level"])
    comparable = row["method"] in (HUBBUB, TRUSTED) and row["colluders"] == "0"
    printed = PRINTED.get((row["sampling"], level), "")
    return {
        "reference_accuracy": text(ANCHORS.get(level, "")) if comparable else "",
        "paper_epsilon": text(printed) if comparable else "",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    from experiments.utility_figure import draw

    parser = parser_of(__doc__ or "")
    parser.add_argument("--weights", help="file of the convolutions; $HUBBUB_CONV without it")
    parser.add_argument("--only", nargs="+", choices=METHODS, help="these methods alone")
    parser.add_argument("--sampling", choices=SAMPLINGS, help="these batches alone")
    parser.add_argument("--level", type=float, help="this total noise alone")
    parser.add_argument("--silos", type=int, help="so many silos alone")
    options = options_of(parser, arguments)
    setting, only = setting_of(options), options.named
    points = [
        (point, run)
        for point, run in wanted(options.runs, small=options.small)
        if point.method in (only.only or METHODS)
        and only.sampling in (None, point.sampling)
        and only.level in (None, point.level)
        and only.silos in (None, point.silos)
    ]
    table = Table(path=options.out / "utility.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [key_of(*one) for one in points],
        lambda number, shown: measured(setting, *points[number], shown),
        module="experiments.utility",
        arguments=arguments,
        weights_sha256=setting.sha256,
    )
    by = (*KEY[:-1], "relation", "epsilon", "total_noise_multiplier")
    summarise(table, by, ("accuracy",), None if options.small else reported)
    if options.small:
        draw(table.rows(), options.out / "utility.png", silos=FEW)
    else:
        draw(
            table.rows(), options.out / "utility.png", silos=SILOS, anchors=ANCHORS, printed=PRINTED
        )


if __name__ == "__main__":
    main()
