"""Is joining worth it? Each site alone, local DP, hubbub, and all records pooled.

    python -m experiments.joining [--small] [--data heart|rand] [--runs 10]

Not in the paper. Four real hospitals (heart disease, comes with hubbub) and the six sites of RAND's
health insurance experiment (fetched once, docs/data.md; left out with a message where it cannot be
had). Every run takes another public split into training and test records, the same for all methods.
Hubbub's epsilon is promised against the aggregator with one colluding silo. Local DP needs to trust
nobody, a site alone shows its model only, and "trusted" needs somebody who sees all records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any

from rich.console import Console

import hubbub
from experiments.command import Shown, fill, options_of, parser_of, stepwise
from experiments.datasets import RAND_SITES
from experiments.results import Row, Table, summarise
from hubbub.core.errors import DataError
from hubbub.core.study import silo_records
from hubbub.learning.datasets import HEART_SILOS

STUDY = Template("""
[study]
name = "joining-$data"

[parties]
names = $silos
compute_nodes = 0               # pairwise masks
colluders = 1

[data]
source = "$source"
options = { split = $split }
records = $records

[model]
kind = "logistic"
inputs = [$features]

[training]
steps = 60
sample_rate = 0.2
clip_norm = 1.0
optimizer = { name = "adam", lr = 0.1 }

[privacy]
epsilon = $epsilon
delta = 1e-5
relation = "add-remove"
""")


@dataclass(frozen=True, kw_only=True)
class Sites:
    """A data set of several sites.

    Args:
        title: of its panel.
        source: as a study names it.
        silos: names of the sites.
        records: for training, about; public, as the divisor is.
        features: of a record.
        epsilons: of its points.
    """

    title: str
    source: str
    silos: tuple[str, ...]
    records: int
    features: int
    epsilons: tuple[float, ...]


SITES = {
    "heart": Sites(
        title="heart disease, four hospitals, 920 patients",
        source="hubbub.datasets:heart",
        silos=HEART_SILOS,
        records=736,
        features=26,
        epsilons=(0.25, 0.5, 1.0, 2.0),
    ),
    "rand": Sites(
        title="RAND health insurance, six sites, 5,912 people",
        source="python:experiments.datasets:rand",
        silos=RAND_SITES,
        records=4730,
        features=21,
        epsilons=(0.05, 0.1, 0.25, 1.0),
    ),
}
SMALL_EPSILONS = (1.0,)
METHODS = {
    "hubbub": "hubbub, 1 colluder",
    "trusted": "pooled, somebody is trusted",
    "local-dp": "local DP",
    "alone": "each site alone (mean)",
    "non-private": "pooled, no privacy",
}
KEY = ("data", "method", "epsilon", "split")
COLUMNS = (*KEY, "delta", "total_noise_multiplier", "auc", "accuracy", "seconds")


def study_of(data: str, epsilon: float, split: int) -> hubbub.Study:
    """The study of one point."""
    sites = SITES[data]
    return hubbub.Study.parse(
        STUDY.substitute(
            data=data,
            source=sites.source,
            silos=json.dumps(sites.silos),
            records=sites.records,
            features=sites.features,
            epsilon=epsilon,
            split=split,
        )
    )


@lru_cache(maxsize=16)
def planned(data: str, epsilon: float) -> hubbub.Plan:
    """The plan, which is the same for every split."""
    return hubbub.plan(study_of(data, epsilon, 0))


def measured(data: str, method: str, epsilon: float, split: int, shown: Shown) -> dict[str, object]:
    """Train once; the noise in the sum is hubbub's or the baseline's."""
    plan = planned(data, epsilon)
    start = time.perf_counter()
    result = hubbub.run(
        study_of(data, epsilon, split),
        baseline=None if method == "hubbub" else method,
        progress=stepwise(shown, plan.study.training.steps),
        plan=plan,
    )
    totals = {
        "hubbub": plan.total_noise_multiplier,
        "local-dp": plan.noise_multiplier * plan.study.parties.silos**0.5,
        "non-private": 0.0,
    }
    return {
        "delta": plan.study.privacy.delta,
        "total_noise_multiplier": totals.get(method, plan.noise_multiplier),
        "auc": float(result.final["auc"]),
        "accuracy": float(result.final["accuracy"]),
        "seconds": time.perf_counter() - start,
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel for each data set."""
    from experiments.drawing import panels, save

    found = [data for data in SITES if any(row["data"] == data for row in rows)]
    figure, axes = panels(len(found), width=6.6, height=5.8)
    for panel, data in zip(axes, found, strict=True):
        compared(panel, [row for row in rows if row["data"] == data])
        panel.set_title(SITES[data].title, fontsize=11)
    save(figure, path)


def compared(panel: Any, rows: Sequence[Row]) -> None:
    """AUC against epsilon; without privacy there is no epsilon, so it is a line."""
    from experiments.drawing import curve, plain_ticks, spreads

    for look, (method, name) in enumerate(METHODS.items()):
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        if method == "non-private":
            whole = spreads((0.0, float(row["auc"])) for row in mine)[0]
            panel.axhline(whole.mean, color="#000000", linestyle="--", label=name)
            continue
        # Beside each other, so that bars can be told apart.
        query = 1.03 ** (look - 1.5)
        pairs = [(query * float(row["epsilon"]), float(row["auc"])) for row in mine]
        curve(panel, spreads(pairs), look, name)
    panel.set_xscale("log")
    plain_ticks(panel.xaxis, sorted({float(row["epsilon"]) for row in rows}))
    panel.set_xlabel("epsilon (delta = 1e-5, add-remove; against whom: see text)")
    panel.set_ylabel("AUC on the public test set")
    splits = len({row["split"] for row in rows})
    title = f"mean, least and largest of {splits} public split" + ("s" if splits > 1 else "")
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}  # below all bars
    panel.legend(fontsize=8.5, title=title, title_fontsize=8.5, **place)


def available(data: str) -> bool:
    """Whether the records are there, or could be fetched."""
    try:
        silo_records.records(study_of(data, 1.0, 0), silo_records.TEST)
    except DataError as error:
        Console(stderr=True).print(f"without {data}: {error}", markup=False, soft_wrap=True)
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    parser = parser_of(__doc__ or "")
    parser.add_argument("--data", choices=tuple(SITES), action="append", help="all, if left out")
    parser.set_defaults(runs=10)
    options = options_of(parser, arguments)
    asked = options.named.data or (("heart",) if options.small else tuple(SITES))
    splits = range(1 if options.small else options.runs)
    points = [
        (data, method, epsilon, split)
        for data in asked
        if available(data)
        for split in splits
        for epsilon in (SMALL_EPSILONS if options.small else SITES[data].epsilons)
        for method in METHODS
    ]
    table = Table(path=options.out / "joining.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, shown: measured(*points[number], shown),
        module="experiments.joining",
        arguments=arguments,
    )
    summarise(table, ("data", "method", "epsilon", "total_noise_multiplier"), ("auc",))
    draw(table.rows(), options.out / "joining.png")


if __name__ == "__main__":
    main()
