"""Head to head with FLamby: its hearts at its accuracy, its breast cancers at its c-index.

    HUBBUB_DATA=DATA python -m experiments.flamby [--small] [--data heart|brca] [--runs 5]

Not in the paper. Both data sets have FLamby's own training and test records, as the docstring of
experiments/datasets/flamby_sets.py says, also where its files of breast cancers go, which are not
shipped. Every run of hubbub goes through the whole protocol with nobody trusted, one colluding silo
and add-remove neighbours. FLamby's published private hearts are Opacus at every centre.

Settings were chosen on thirds of the training records alone, by rehearsals whose law is a run's;
docs/experiments.md says how many, and what that would have cost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from rich.console import Console

import hubbub
from experiments.command import Shown, fill, options_of, parser_of, stepwise
from experiments.datasets import BRCA_SILOS, flamby_brca, flamby_heart
from experiments.results import Table, summarise
from hubbub.core.errors import DataError
from hubbub.core.tabular.records import Records
from hubbub.learning import accuracy, scoring
from hubbub.learning.datasets import HEART_SILOS

METHODS = ("hubbub", "local-dp", "non-private")
KEY = ("data", "method", "epsilon", "seed")
COLUMNS = (*KEY, "delta", "pooled", "mean_of_silos", "scored_silos", "seconds")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One of FLamby's data sets.

    Args:
        silos: its centres or regions.
        source: of their records.
        data: keys of the study's table `[data]` besides.
        features: of a record.
        delta: at which epsilons are stated.
        settings: the training by epsilon, chosen on thirds of the training records.
        bias: of the model.
    """

    silos: tuple[str, ...]
    source: str
    data: Mapping[str, Any]
    features: int
    delta: float
    settings: Mapping[float, Mapping[str, Any]]
    bias: bool = True


def _settings(steps: int, lr: float, clip: float) -> dict[str, Any]:
    """All records in every step, and gradient descent."""
    return {
        "steps": steps,
        "sampling": "full-batch",
        "clip_norm": clip,
        "optimizer": {"name": "sgd", "lr": lr},
    }


_HEART = Benchmark(
    silos=HEART_SILOS,
    source="python:experiments.datasets:flamby_heart",
    data={"records": 486},
    features=8,
    delta=1e-4,
    settings={0.1: _settings(4, 0.5, 1.0), 1.0: _settings(6, 0.45, 2.0)},
)
SPLITS = "heart-splits"  # another split of the same sizes for each seed
BENCHMARKS = {
    "heart": _HEART,
    SPLITS: _HEART,
    "brca": Benchmark(
        silos=BRCA_SILOS,
        source="python:experiments.datasets:flamby_brca",
        data={
            "options": {"age": 3.0, "weight": 1.0},
            "records": 866,
            "target": {"kind": "time-to-event", "grid": [912.5 * k for k in range(1, 7)]},
        },
        features=39,
        delta=1e-5,
        settings=dict.fromkeys((0.5, 1.0), _settings(12, 1.5, 1.0)),
        bias=False,  # there are intercepts
    ),
}


def study_of(data: str, epsilon: float, **options: Any) -> hubbub.Study:
    """The study of one point; `options` of its source may be added, such as a fold."""
    one = BENCHMARKS[data]
    given = {**one.data.get("options", {}), **options}
    return hubbub.Study(
        name=f"flamby-{data}",
        parties={"names": list(one.silos), "colluders": 1},
        data={**one.data, "source": one.source, "options": given},
        model={"kind": "logistic", "inputs": [one.features], "bias": one.bias},
        training=one.settings[epsilon],
        privacy={"epsilon": epsilon, "delta": one.delta},
    )


@lru_cache(maxsize=8)
def planned(data: str, epsilon: float) -> hubbub.Plan:
    """The plan of a point."""
    return hubbub.plan(study_of(data, epsilon))


def records_of(data: str, party: str, **options: Any) -> Records:
    """Test records of all silos or one."""
    if data != "brca":
        return flamby_heart(party, **options)
    return flamby_brca(party, **BENCHMARKS[data].data["options"])


def scored(result: hubbub.Result, records: Records) -> float:
    """Accuracy at one half, or Harrell's c-index of the chance to be alive in the end."""
    found = np.asarray(result.predict(records.inputs), dtype=np.float64)
    if found.ndim == 1:
        return accuracy(found - 0.5, records.targets)
    times, events = records.targets[:, 0], records.targets[:, 1] > 0.5
    return scoring.harrell(-found[:, -1], times, events)


def measured(data: str, method: str, epsilon: float, seed: int, shown: Shown) -> dict[str, object]:
    """Train once, and score all test records together and each silo's apart."""
    start, plan = time.perf_counter(), planned(data, epsilon)
    options = {"split": seed} if data == SPLITS else {}
    result = hubbub.run(
        study_of(data, epsilon, **options),
        baseline=None if method == "hubbub" else method,
        progress=stepwise(shown, plan.study.training.steps),
        plan=plan,
        device="cpu",
    )
    silos = [f"test-{silo}" for silo in BENCHMARKS[data].silos]
    apart = [scored(result, records_of(data, silo, **options)) for silo in silos]
    known = [one for one in apart if np.isfinite(one)]  # a region may have no pair to compare
    return {
        "delta": plan.study.privacy.delta,
        "pooled": scored(result, records_of(data, "test", **options)),
        "mean_of_silos": float(np.mean(known)),
        "scored_silos": len(known),
        "seconds": time.perf_counter() - start,
    }


def available(data: str) -> bool:
    """Whether the records are there."""
    try:
        records_of(data, "test")
    except DataError as error:
        Console(stderr=True).print(f"without {data}: {error}", markup=False, soft_wrap=True)
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=10)
    parser.add_argument("--data", choices=tuple(BENCHMARKS), action="append", help="all otherwise")
    options = options_of(parser, arguments)
    asked = options.named.data or (("heart",) if options.small else tuple(BENCHMARKS))
    points = [
        (data, method, epsilon, seed)
        for data in asked
        if available(data)
        for epsilon in BENCHMARKS[data].settings
        for method in (METHODS[:1] if options.small else METHODS)
        for seed in range(1 if options.small else options.runs)
    ]
    table = Table(path=options.out / "flamby.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, shown: measured(*points[number], shown),
        module="experiments.flamby",
        arguments=arguments,
    )
    summarise(table, ("data", "method", "epsilon"), ("pooled", "mean_of_silos"))


if __name__ == "__main__":
    main()
