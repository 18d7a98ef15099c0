"""Epsilon against the number of silos that really collude, for several promised numbers T.

    python -m experiments.degradation [--small]

Not in the paper. A study promises its epsilon as long as at most T silos join the aggregator; this
shows what is left if more do, and what is gained if fewer do. It comes from the plan alone: nothing
is trained. The noise is calibrated so that every T promises the same epsilon, the one that noise
multiplier 1 gives in the paper's setting. Where the table says inf, no epsilon is certified: what
finite precision adds to delta grows with e^epsilon (docs/privacy.md P6) and has used delta up. How
much it adds, at the epsilon that exact arithmetic would give, is in the table beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from string import Template
from typing import Any

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Row, Table
from hubbub.core.planning.accounts import account_of, epsilon_of, releases
from hubbub.learning.queries.training_query import training_of

STUDY = Template("""
[study]
name = "degradation"

[parties]
silos = 10
colluders = $colluders

[data]
source = "python:experiments.datasets:cifar10"
options = { silos = 10 }
records = 50000

[model]
kind = "mlp"
hidden = [384, 384, 384]
inputs = [1600]
outputs = 10
bias = false

[training]
steps = 1250
sample_rate = 0.008
clip_norm = 2.5
optimizer = { name = "adam", lr = 9e-4 }

[privacy]
epsilon = 1.6                   # noise multiplier 1 gives 1.599
delta = 1e-5
relation = "add-remove"
""")

PROMISED, SMALL_PROMISED = (0, 1, 3, 5, 8), (0, 3)
KEY = ("promised", "colluding")
COLUMNS = (*KEY, "epsilon", "delta", "noise_multiplier_left", "total_noise_multiplier")
COLUMNS += ("epsilon_exact_arithmetic", "delta_added_by_precision")
_TOP = 50.0  # where the figure ends, and every account


@lru_cache(maxsize=16)
def planned(promised: int) -> hubbub.Plan:
    """The plan that promises its epsilon against so many colluders."""
    return hubbub.plan(hubbub.Study.parse(STUDY.substitute(colluders=promised)))


def keys_of(promised: int) -> list[dict[str, object]]:
    """One row for every number of colluders that the plan's table has."""
    rows = [one for one in planned(promised).exposures if " silo" in one.adversary]
    return [
        {"promised": promised, "colluding": t}
        for t in sorted({one.colluding_silos for one in rows})
    ]


def measured(promised: int, colluding: int) -> dict[str, object]:
    """The plan's epsilon against so many, one of whom or a further silo watches from inside."""
    plan = planned(promised)
    found = [
        one
        for one in plan.exposures
        if " silo" in one.adversary and one.colluding_silos == colluding
    ][-1]
    exact = exact_epsilon(plan, found.noise_multiplier)
    return {
        "epsilon": found.epsilon,
        "delta": plan.study.privacy.delta,
        "noise_multiplier_left": found.noise_multiplier,
        "total_noise_multiplier": plan.total_noise_multiplier,
        "epsilon_exact_arithmetic": exact,
        "delta_added_by_precision": plan.certificate.added_delta(min(exact, _TOP)),
    }


def exact_epsilon(plan: hubbub.Plan, noise: float) -> float:
    """Epsilon at so much noise if nothing were rounded; inf past 50."""
    study = plan.study
    whole = releases(account_of(training_of(study).mechanism), noise, study.training.steps)
    found = epsilon_of(whole, study.privacy.delta)
    return found.upper if found else inf


def draw(rows: Sequence[Row], path: Path) -> None:
    """A curve for each promise, with a ring where it was promised."""
    from experiments.drawing import panels, plain_ticks, save

    figure, (axes,) = panels(1, width=8.2, height=5.6)
    for look, promised in enumerate(sorted({int(row["promised"]) for row in rows})):
        mine = [row for row in rows if int(row["promised"]) == promised]
        total = float(mine[0]["total_noise_multiplier"])
        promise(axes, mine, look, f"promised against T = {promised}: noise {total:.2f} C in all")
    if any(float(row["epsilon"]) == inf for row in rows):
        style = {"color": "#555555", "marker": "o", "markerfacecolor": "white", "linestyle": ":"}
        axes.plot([], [], label="hollow: by exact arithmetic, not certified", **style)
    axes.set_yscale("log")
    axes.set_ylim(0.25, 1.4 * _TOP)
    plain_ticks(axes.yaxis, (0.5, 1, 1.6, 3, 5, 10, 20, 50))
    axes.set_xlabel("silos, out of 10, that really collude with the aggregator")
    axes.set_ylabel("epsilon (delta = 1e-5, add-remove)")
    axes.set_xticks(range(10))
    axes.legend(fontsize=9, loc="upper left", title="rings: as promised")
    save(figure, path)


def promise(axes: Any, rows: Sequence[Row], look: int, label: str) -> None:
    """What is certified, then hollow what exact arithmetic would give, an arrow on each."""
    from experiments.drawing import LOOKS

    colour, marker = LOOKS[look]
    points = [(int(row["colluding"]), height(row)) for row in rows]
    sure = sum(float(row["epsilon"]) < inf for row in rows)  # epsilon grows, so these come first
    axes.plot(*zip(*points[:sure], strict=True), color=colour, marker=marker, label=label)
    beyond = points[max(0, sure - 1) :]
    axes.plot(*zip(*beyond, strict=True), color=colour, linestyle=":")
    for x, y in points[sure:]:
        axes.plot(x, y, color=colour, marker=marker, markerfacecolor="white", linestyle="")
        axes.annotate(
            "",
            (x, y * 1.22),
            (x, y * 1.05),
            arrowprops={"arrowstyle": "->", "color": colour},
        )
    for (x, y), row in zip(points, rows, strict=True):
        if row["colluding"] == row["promised"]:
            ring = {"marker": "o", "markersize": 15, "markerfacecolor": "none", "linestyle": ""}
            axes.plot(x, y, markeredgecolor=colour, **ring)


def height(row: Row) -> float:
    """Epsilon if it is certified, else what exact arithmetic would give."""
    certified = float(row["epsilon"])
    return certified if certified < inf else min(float(row["epsilon_exact_arithmetic"]), _TOP)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    keys = [
        key
        for promised in (SMALL_PROMISED if options.small else PROMISED)
        for key in keys_of(promised)
    ]
    table = Table(path=options.out / "degradation.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        keys,
        lambda number, _: measured(*(int(str(part)) for part in keys[number].values())),
        module="experiments.degradation",
        arguments=arguments,
    )
    draw(table.rows(), options.out / "degradation.png")


if __name__ == "__main__":
    main()
