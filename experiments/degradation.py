"""Epsilon against the number of silos that really collude, for several promised numbers T.

    python -m experiments.degradation [--small]

Not in the paper. A study promises its epsilon as long as at most T silos join the aggregator; this
shows what is left if more do, and what is gained if fewer do. It comes from the plan alone: nothing
is trained. The noise is calibrated so that every T promises the same epsilon, the one that noise
multiplier 1 gives in the paper's setting. Where the table says inf, no epsilon is certified: what
finite precision adds to delta grows with e^epsilon (docs/privacy.md P6) and has used delta up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from string import Template

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Row, Table

STUDY = Template("""
[study]
name = "degradation"

[parties]
silos = 10
colluders = $colluders

[data]
source = "hubbub.datasets:cifar10"
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
clip = 2.5
optimizer = { name = "adam", lr = 9e-4 }

[privacy]
epsilon = 1.6                   # noise multiplier 1 gives 1.599
delta = 1e-5
relation = "add-remove"
""")

PROMISED, SMALL_PROMISED = (0, 1, 3, 5, 8), (0, 3)
KEY = ("promised", "colluding")
COLUMNS = (*KEY, "epsilon", "delta", "noise_multiplier_left", "total_noise_multiplier")
_TOP = 30.0  # where arrows stand for rows without a certified epsilon


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
    return {
        "epsilon": found.epsilon,
        "delta": plan.study.privacy.delta,
        "noise_multiplier_left": found.noise_multiplier,
        "total_noise_multiplier": plan.total_noise_multiplier,
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """A curve for each promise, with a ring where it was promised."""
    from experiments.drawing import LOOKS, panels, plain_ticks, save

    figure, (axes,) = panels(1, width=7.6, height=5)
    beyond = False
    for look, promised in enumerate(sorted({int(row["promised"]) for row in rows})):
        mine = [row for row in rows if int(row["promised"]) == promised]
        sure = [row for row in mine if float(row["epsilon"]) < inf]
        colour, marker = LOOKS[look]
        x, y = ([float(row[key]) for row in sure] for key in ("colluding", "epsilon"))
        total = float(mine[0]["total_noise_multiplier"])
        label = f"promised against T = {promised}: noise {total:.2f} C in all"
        axes.plot(x, y, color=colour, marker=marker, label=label)
        kept = [row for row in sure if int(row["colluding"]) == promised]
        for row in kept:
            axes.plot(
                int(row["colluding"]),
                float(row["epsilon"]),
                marker="o",
                markersize=15,
                markerfacecolor="none",
                markeredgecolor=colour,
                linestyle="",
            )
        for row in mine:
            if float(row["epsilon"]) == inf:
                beyond = True
                place = int(row["colluding"]) + 0.1 * (look - 2)
                axes.plot(place, _TOP, color=colour, marker="$\\uparrow$", markersize=11)
    if beyond:
        axes.axhline(_TOP, color="#888888", linewidth=0.8, linestyle=":")
        axes.annotate("arrows: no epsilon is certified", (0, _TOP * 1.06), fontsize=9)
    axes.set_yscale("log")
    plain_ticks(axes.yaxis, (0.2, 0.5, 1, 1.6, 3, 5, 10, 20))
    axes.set_xlabel("silos, out of 10, that really collude with the aggregator")
    axes.set_ylabel("epsilon, certified (delta = 1e-5, add-remove)")
    axes.set_xticks(range(10))
    axes.legend(fontsize=9, loc="upper left", bbox_to_anchor=(0, 0.93), title="rings: as promised")
    save(figure, path)


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
