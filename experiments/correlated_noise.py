"""Accuracy on CIFAR-10 with correlated and with independent noise, each tuned, at one epsilon.

    HUBBUB_CONV=conv.npz python -m experiments.correlated_noise [--small] [--runs 3]
        [--tune | --by run] [--epsilon 4] [--colluders 0]

The frozen layers, the head, the silos and the length of the training are those of `utility`. Runs
have the law of a rehearsal (correlated_training.py); `--by rehearsal` and `--by run`, through the
whole protocol, make some points to hold them against. `--tune` tries settings: models learn from
the first 40,000 training records and are scored on the other 10,000, so no test record has a part
in it. Had the records been private, each trial would have been a release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import hubbub
from experiments.command import Options, Shown, fill, options_of, parser_of, stepwise
from experiments.correlated_settings import (
    CHOSEN,
    CORRELATED,
    DELTA,
    EPSILONS,
    INDEPENDENT,
    NONE,
    TRIALS,
    Setting,
    small_study,
    study_of,
)
from experiments.results import Row, Table, summarise
from experiments.utility import weights_of

if TYPE_CHECKING:
    from experiments.correlated_training import Parts

SIMULATED, REHEARSED, WHOLE = "simulation", "rehearsal", "run"
SETTING = tuple(Setting.__dataclass_fields__)
KEY = ("epsilon", "colluders", "noise", "by", "run")
COLUMNS = (*KEY, "delta", *SETTING, "noise_multiplier", "total_noise_multiplier", "accuracy")
TRIED = ("epsilon", *SETTING, "run")
LEARNT = 40_000

Point = dict[str, object]


def wanted(options: Options) -> list[Point]:
    """Points and runs, one run of everything first."""
    named = options.named
    by = REHEARSED if options.small else named.by
    beside = [dict(zip(KEY, (inf, 0, NONE, SIMULATED, 1), strict=True))]
    epsilons = (4.0,) if options.small else named.epsilon or EPSILONS
    colluders = (0,) if options.small else named.colluders or (0, 2)
    found: list[Point] = [
        dict(zip(KEY, (epsilon, silos, noise, by, run), strict=True))
        for run in range(1, 2 if options.small else options.runs + 1)
        for silos in colluders
        for epsilon in epsilons
        for noise in (CORRELATED, INDEPENDENT)
    ]
    return found + (beside if by == SIMULATED and not named.epsilon else [])


@lru_cache(maxsize=1)
def parts(weights: str, sha256: str, *, held_back: bool) -> Parts:
    """Training and test records as the head sees them, or two parts of the training records."""
    from experiments.correlated_training import Parts
    from experiments.datasets.images import load_cifar10
    from hubbub.learning import through_frozen

    study = study_of(Setting(), epsilon=4.0, colluders=0, run=0, weights=weights, sha256=sha256)
    train, test = (through_frozen(study.model.frozen, one) for one in load_cifar10())
    learnt = LEARNT if held_back else len(train)
    scored = (
        (train.inputs[LEARNT:], train.targets[LEARNT:])
        if held_back
        else (test.inputs, test.targets)
    )
    return Parts.of(train.inputs[:learnt], train.targets[:learnt], *scored)


def tried(options: Options, where: tuple[str, str], arguments: Sequence[str] | None) -> None:
    """Fill the table of trials."""
    from experiments.correlated_training import total, trained

    points = [
        (epsilon, setting, run)
        for run in range(1, options.runs + 1)
        for epsilon in options.named.epsilon or EPSILONS
        for setting in TRIALS[epsilon]
    ]

    def measure(number: int, shown: Shown) -> dict[str, object]:
        epsilon, setting, run = points[number]
        found, noise = parts(*where, held_back=True), total(setting, epsilon, 0)
        accuracy = trained(setting, found, noise=noise, seed=run - 1, shown=shown)
        return {"total_noise_multiplier": noise, "accuracy": accuracy}

    fill(
        Table(
            path=options.out / "correlated_tuning.csv",
            key=TRIED,
            columns=(*TRIED, "total_noise_multiplier", "accuracy"),
        ),
        [{"epsilon": epsilon, **asdict(setting), "run": run} for epsilon, setting, run in points],
        measure,
        module="experiments.correlated_noise",
        arguments=arguments,
        weights_sha256=where[1],
    )


def simulated(point: Point, where: tuple[str, str], shown: Shown) -> dict[str, object]:
    """Train once, in float32."""
    from experiments.correlated_training import multiplier, total, trained

    epsilon, colluders = float(str(point["epsilon"])), int(str(point["colluders"]))
    setting = CHOSEN[epsilon, str(point["noise"])]
    noise, found = total(setting, epsilon, colluders), parts(*where, held_back=False)
    seed = 1000 * int(str(point["run"])) + colluders
    return {
        "noise_multiplier": multiplier(setting, epsilon),
        "total_noise_multiplier": noise,
        "accuracy": trained(setting, found, noise=noise, seed=seed, shown=shown),
    }


def measured(study: hubbub.Study, by: object, shown: Shown) -> dict[str, object]:
    """Rehearse once, or run."""
    if by == WHOLE:
        result = hubbub.run(study, progress=stepwise(shown, study.training.steps))
    else:
        (result,) = hubbub.rehearse(study)
    return {
        "noise_multiplier": result.plan.noise_multiplier,
        "total_noise_multiplier": result.plan.total_noise_multiplier,
        "accuracy": float(result.final["accuracy"]),
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Accuracy against epsilon, a panel for each number of colluders."""
    from experiments.drawing import curve, panels, plain_ticks, save, spreads

    colluders = sorted({row["colluders"] for row in rows})
    figure, axes = panels(len(colluders), width=5.0, height=4.0)
    names = {CORRELATED: "correlated noise, SGD", INDEPENDENT: "independent noise, the best"}
    for axis, silos in zip(axes, colluders, strict=True):
        for look, (noise, label) in enumerate(names.items()):
            mine = [row for row in rows if (row["noise"], row["colluders"]) == (noise, silos)]
            pairs = ((float(row["epsilon"]), float(row["accuracy"])) for row in mine)
            curve(axis, spreads(pairs), look, label)
        axis.set_xscale("log")
        plain_ticks(axis.xaxis, sorted({float(row["epsilon"]) for row in rows}))
        axis.set_title(f"T = {silos}")
        axis.set_xlabel("epsilon")
    bounds = [bound for axis in axes for bound in axis.get_ylim()]
    for axis in axes:
        axis.set_ylim(min(bounds), max(bounds))
    axes[0].set_ylabel("test accuracy")
    axes[0].legend(frameon=False)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=3)
    parser.add_argument("--weights", help="file of the convolutions; $HUBBUB_CONV without it")
    parser.add_argument("--tune", action="store_true", help="try settings on training records")
    parser.add_argument("--by", choices=(SIMULATED, REHEARSED, WHOLE), default=SIMULATED)
    parser.add_argument("--epsilon", type=float, nargs="+", help="these alone")
    parser.add_argument("--colluders", type=int, nargs="+", help="these numbers alone")
    options = options_of(parser, arguments)
    where = ("", "") if options.small else weights_of(options.named.weights)
    if options.named.tune:
        return tried(options, where, arguments)
    points = wanted(options)

    def measure(number: int, shown: Shown) -> dict[str, object]:
        point = points[number]
        setting = CHOSEN[float(str(point["epsilon"])), str(point["noise"])]
        if point["by"] == SIMULATED:
            made = simulated(point, where, shown)
        else:
            asked = {name: point[name] for name in ("epsilon", "colluders", "run")}
            files = {} if options.small else {"weights": where[0], "sha256": where[1]}
            study = (small_study if options.small else study_of)(setting, **asked, **files)
            made = measured(study, point["by"], shown)
        return {"delta": DELTA, **asdict(setting), **made}

    table = Table(path=options.out / "correlated_noise.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        points,
        measure,
        module="experiments.correlated_noise",
        arguments=arguments,
        weights_sha256=where[1],
    )
    summarise(table, (*KEY[:-1], *SETTING), ("accuracy",))
    drawn = [row for row in table.rows() if row["noise"] != NONE]
    drawn = [row for row in drawn if options.small or row["by"] == SIMULATED]
    draw(drawn, options.out / "correlated_noise.png")
    return None


if __name__ == "__main__":
    main()
