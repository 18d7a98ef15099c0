"""Is joining worth it? Four hospitals alone, with local DP, with hubbub, and with records pooled.

    python -m experiments.joining [--small] [--runs 10]

Not in the paper. The heart-disease records of four real hospitals come with hubbub. Every run takes
another public split into training and test records, the same for all methods. Hubbub's epsilon is
promised against the aggregator with one colluding silo. Local DP needs to trust nobody, a hospital
alone shows its model only, and "trusted" needs somebody who sees all records.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from string import Template

import hubbub
from experiments.command import Shown, fill, options_of, parser_of, stepwise
from experiments.results import Row, Table, summarise

STUDY = Template("""
[study]
name = "joining"

[parties]
names = ["cleveland", "hungary", "switzerland", "va-long-beach"]
compute_nodes = 0               # pairwise masks
colluders = 1

[data]
source = "hubbub.datasets:heart"
options = { split = $split }
records = 736

[model]
kind = "logistic"
inputs = [26]

[training]
steps = 60
sample_rate = 0.2
clip = 1.0
optimizer = { name = "adam", lr = 0.1 }

[privacy]
epsilon = $epsilon
delta = 1e-5
relation = "add-remove"
""")

EPSILONS, SMALL_EPSILONS = (0.25, 0.5, 1.0, 2.0), (1.0,)
METHODS = {
    "hubbub": "hubbub, 1 colluder",
    "trusted": "pooled, somebody is trusted",
    "local-dp": "local DP",
    "alone": "each hospital alone (mean)",
    "non-private": "pooled, no privacy",
}
KEY = ("method", "epsilon", "split")
COLUMNS = (*KEY, "delta", "total_noise_multiplier", "auc", "accuracy", "seconds")


def study_of(epsilon: float, split: int) -> hubbub.Study:
    """The study of one point."""
    return hubbub.Study.parse(STUDY.substitute(epsilon=epsilon, split=split))


@lru_cache(maxsize=16)
def planned(epsilon: float) -> hubbub.Plan:
    """The plan, which is the same for every split."""
    return hubbub.plan(study_of(epsilon, 0))


def measured(method: str, epsilon: float, split: int, shown: Shown) -> dict[str, object]:
    """Train once; the noise in the sum is hubbub's or the baseline's."""
    plan = planned(epsilon)
    start = time.perf_counter()
    result = hubbub.run(
        study_of(epsilon, split),
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
    """AUC against epsilon; without privacy there is no epsilon, so it is a line."""
    from experiments.drawing import curve, panels, plain_ticks, save, spreads

    figure, (axes,) = panels(1, width=9, height=4.8)
    for look, (method, name) in enumerate(METHODS.items()):
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        if method == "non-private":
            whole = spreads((0.0, float(row["auc"])) for row in mine)[0]
            axes.axhline(whole.mean, color="#000000", linestyle="--", label=name)
            continue
        # Beside each other, so that bars can be told apart.
        aside = 1.03 ** (look - 1.5)
        pairs = [(aside * float(row["epsilon"]), float(row["auc"])) for row in mine]
        curve(axes, spreads(pairs), look, name)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, sorted({float(row["epsilon"]) for row in rows}))
    axes.set_xlabel(
        "epsilon (delta = 1e-5, add-remove; promised against different people: see text)"
    )
    axes.set_ylabel("AUC on the public test set")
    splits = len({row["split"] for row in rows})
    title = f"mean, least and largest\nof {splits} public splits"
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5), title=title)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=10)
    options = options_of(parser, arguments)
    splits = range(1 if options.small else options.runs)
    points: list[tuple[str, float, int]] = []
    for split in splits:
        for epsilon in SMALL_EPSILONS if options.small else EPSILONS:
            points += [(method, epsilon, split) for method in METHODS]
    table = Table(path=options.out / "joining.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, shown: measured(*points[number], shown),
        module="experiments.joining",
        arguments=arguments,
    )
    summarise(table, ("method", "epsilon", "total_noise_multiplier"), ("auc",))
    draw(table.rows(), options.out / "joining.png")


if __name__ == "__main__":
    main()
