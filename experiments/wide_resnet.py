"""Accuracy of a wide residual network on CIFAR-10 without public data, with nobody trusted.

    python -m experiments.wide_resnet [--small] [--runs 1] [--minutes 12]
        [--epsilons 1 8] [--batch 4096] [--views 16]

WRN-16-4 with group norm and standardised kernels, as De et al. 2022 train it: clip 1, SGD at rate 2
without momentum, mean gradients of 16 views of a record, batches of 4,096, an exponential mean of
the models. 8 silos, T = 0, rehearsed: batches and noise have the law of the real protocol's run, on
one machine that holds all records, with a GPU where there is one. With `--minutes` three steps
are timed first, and each run has as many as then fit into its share, with the noise of so many.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from string import Template
from typing import Any

import numpy as np
import torch

import hubbub
from experiments import datasets
from experiments.command import Shown, fill, options_of, parser_of
from experiments.datasets.dealing import TEST
from experiments.results import Table, summarise
from hubbub.core.tabular.records import Records
from hubbub.learning.runs.baselines import REHEARSAL
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.run_study import run_prepared

KEY = ("epsilon", "batch", "views", "steps", "test_records", "run")
COLUMNS = (
    *KEY,
    *("silos", "delta", "records", "parameters", "noise_multiplier", "total_noise_multiplier"),
    *("device", "seconds_before", "seconds_per_step", "accuracy"),
)
SILOS, DELTA = 8, 1e-5
STUDY = Template("""
[study]
name = "wide residual network, $epsilon $steps run $run"

[parties]
silos = 8
colluders = 0

[data]
source = "python:experiments.wide_resnet:$source"
$options
records = $records

[model]
kind = "wide-resnet"
depth = $depth
width = $width
inputs = [3, $side, $side]
outputs = $outputs

[training]
steps = $steps
sample_rate = $rate
clip_norm = 1.0
optimizer = { name = "sgd", lr = 2.0 }
augment = { views = $views }
average = { kind = "exponential" }

[privacy]
epsilon = $epsilon
delta = 1e-5
""")
FULL = {1.0: 875, 2.0: 1125, 4.0: 1875, 8.0: 2500}  # steps, by epsilon
_TIMED = 3

Point = dict[str, Any]


def made_up(party: str) -> Records:
    """Small images, bright on the left or on the right, for the small variant."""
    generator = np.random.default_rng(len(party) + ord(party[-1]))
    targets = np.arange(10) % 2
    images = generator.normal(size=(10, 3, 8, 8)).astype(np.float32)
    images[targets == 1, :, :, :4] += 2
    return Records(inputs=images, targets=targets.astype(np.int64))


def cifar10(party: str, *, tested: int = 10_000) -> Records:
    """CIFAR-10, of whose test records the first are taken."""
    records = datasets.cifar10(party, silos=SILOS)
    return records.part(np.arange(tested)) if party == TEST else records


def measured(point: Point, shown: Shown, *, small: bool) -> dict[str, object]:
    """Rehearse once."""
    records, side, source = (80, 8, "made_up") if small else (50_000, 32, "cifar10")
    written = STUDY.substitute(
        point,
        source=source,
        options="" if small else f"options = {{ tested = {point['test_records']} }}",
        records=records,
        side=side,
        outputs=1 if small else 10,
        depth=10 if small else 16,
        width=1 if small else 4,
        rate=point["batch"] / records,
    )
    start, times = time.perf_counter(), []

    def after_step(step: int, _row: object) -> None:
        times.append(time.perf_counter())
        shown(step / point["steps"])

    prepared = prepare(hubbub.Study.parse(written))
    result = run_prepared(prepared, None, baseline=REHEARSAL, progress=after_step)
    cuda = torch.cuda.is_available()
    return {
        "silos": SILOS,
        "delta": DELTA,
        "records": records,
        "parameters": result.plan.dimension,
        "noise_multiplier": result.plan.noise_multiplier,
        "total_noise_multiplier": result.plan.total_noise_multiplier,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "seconds_before": times[0] - start - (pace := float(median(np.diff(times)))),
        "seconds_per_step": pace,
        "accuracy": float(result.final["accuracy"]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=1)
    parser.add_argument("--minutes", type=float, help="of all runs that this command makes")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(FULL))
    parser.add_argument("--batch", type=int, default=4096, help="mean number of records")
    parser.add_argument("--views", type=int, default=16)
    parser.add_argument("--tested", type=int, default=10_000, help="test records")
    parser.add_argument("--steps", type=int, help="in place of those of the full training")
    options = options_of(parser, arguments)
    named, steps = options.named, dict(FULL)
    if options.small:
        named.epsilons, named.batch, named.views, named.steps = [8.0], 20, 2, 3
        named.tested = 10
    common = {"batch": named.batch, "views": named.views, "test_records": named.tested}
    if named.minutes:
        start, timed = time.perf_counter(), {"epsilon": 8.0, "steps": _TIMED, "run": 0, **common}
        trial: Any = measured(timed, lambda _: None, small=options.small)
        left = 60 * named.minutes - (time.perf_counter() - start)
        share = left / len(named.epsilons) / options.runs - trial["seconds_before"]
        fitting = max(_TIMED, int(share / trial["seconds_per_step"]))
        steps = {epsilon: min(count, fitting) for epsilon, count in FULL.items()}
    points: list[Point] = [
        {"epsilon": epsilon, **common, "steps": named.steps or steps[epsilon], "run": run}
        for run in range(1, options.runs + 1)
        for epsilon in named.epsilons
    ]
    table = Table(path=options.out / "wide_resnet.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        points,
        lambda number, shown: measured(points[number], shown, small=options.small),
        module="experiments.wide_resnet",
        arguments=arguments,
    )
    summarise(table, KEY[:-1], ("accuracy", "seconds_per_step"))


if __name__ == "__main__":
    main()
