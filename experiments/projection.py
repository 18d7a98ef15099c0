"""Accuracy with randomly projected sums, and the bytes that they save, at one epsilon.

    python -m experiments.projection [--small] [--runs 3]

The paper's figure "projection_acc" shows accuracy for k = 50 to 400 against the fold decrease of
the running time. Here a step with masks costs nearly what it costs without them, so what
projection can still buy is bytes, and those are on the axis. Every point goes through the real
protocol, at the paper's epsilon 1.7, with the account that the plan states for its kind
(docs/privacy.md P8), which charges for a fresh projection in every step. The model is a small one,
because every silo makes the whole Gaussian matrix anew in each step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import Template

import hubbub
from experiments.command import Shown, fill, options_of, parser_of, stepwise
from experiments.results import Row, Table, summarise

MNIST = Template("""
[study]
name = "projection, $name"

[parties]
silos = 3
compute_nodes = 0               # pairwise masks
colluders = 0

[data]
source = "python:experiments.datasets:mnist"
options = { silos = 3 }
records = 60000

[model]
kind = "mlp"
hidden = [16]
inputs = [1, 28, 28]
outputs = 10

[training]
steps = 200
sample_rate = 0.01
clip_norm = 1.0
optimizer = { name = "adam", lr = 5e-3 }
$projection

[privacy]
epsilon = 1.7
delta = 1e-5
relation = "add-remove"
""")

HEART = Template("""
[study]
name = "projection, small, $name"

[parties]
silos = 4
colluders = 0

[data]
source = "hubbub.datasets:heart"
records = 736

[model]
kind = "mlp"
hidden = [8]
inputs = [26]

[training]
steps = 2
sample_rate = 0.2
$projection

[privacy]
epsilon = 2.0
delta = 1e-5
""")

NONE, KINDS = "none", ("layers", "sign", "gaussian")
KS, SMALL_KS = (50, 100, 200, 400), (16,)
KEY = ("kind", "k", "run")
COLUMNS: tuple[str, ...] = (
    *KEY,
    "silos",
    "parameters",
    "epsilon",
    "delta",
    "account",
    "noise_multiplier",
)
COLUMNS += ("bytes_per_step", "bytes_saved_fold", "steps", "accuracy", "loss", "seconds_per_step")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A kind of projection and its k; `NONE` and 0 for none."""

    kind: str = NONE
    k: int = 0

    def study(self, template: Template, run: int) -> hubbub.Study:
        """The study of this point; its name, and so its first model, differs from run to run."""
        kind = f'projection_kind = "{self.kind}"\n' if self.k else ""
        text = template.substitute(
            name=f"{self.kind} {self.k} run {run}", projection=f"{kind}projection = {self.k}"
        )
        return hubbub.Study.parse(text)


def wanted(runs: int, ks: Sequence[int]) -> list[tuple[Point, int]]:
    """Points and runs: one run of everything first; Gaussian matrices, which take long, last."""
    cheap = [Point(), *(Point(kind=kind, k=k) for kind in KINDS[:2] for k in ks)]
    dear = [Point(kind=KINDS[2], k=k) for k in ks]
    later = [(p, run) for points in (cheap, dear) for run in range(2, runs + 1) for p in points]
    return [(point, 1) for point in cheap + dear] + later


def key_of(point: Point, run: int) -> dict[str, object]:
    """The columns that name a run."""
    return {"kind": point.kind, "k": point.k, "run": run}


@lru_cache(maxsize=1)
def unprojected_bytes(template: Template) -> int:
    """What a silo sends in a step without projection."""
    return hubbub.plan(Point().study(template, 0)).upload_bytes_per_step or 0


def measured(template: Template, point: Point, run: int, shown: Shown) -> dict[str, object]:
    """Train once through the protocol."""
    study = point.study(template, run)
    start = time.perf_counter()
    result = hubbub.run(study, progress=stepwise(shown, study.training.steps))
    seconds = (time.perf_counter() - start) / study.training.steps
    plan = result.plan
    sent = plan.upload_bytes_per_step or 0
    return {
        "silos": study.parties.silos,
        "parameters": plan.dimension,
        "epsilon": result.epsilon,
        "delta": study.privacy.delta,
        "account": plan.projected.account if plan.projected else "no projection, P1",
        "noise_multiplier": plan.noise_multiplier,
        "bytes_per_step": sent,
        "bytes_saved_fold": unprojected_bytes(template) / sent,
        "steps": study.training.steps,
        "accuracy": float(result.final["accuracy"]),
        "loss": float(result.final["loss"]),
        "seconds_per_step": seconds,
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Accuracy against k, and against the bytes that a silo sends."""
    from experiments.drawing import curve, panels, plain_ticks, save, spreads

    figure, (left, right) = panels(2)
    names = {"gaussian": "Gaussian, as in the paper", "sign": "signs", "layers": "by layers"}
    whole = spreads((0.0, float(row["accuracy"])) for row in rows if row["kind"] == NONE)
    for axes, column in ((left, "k"), (right, "bytes_per_step")):
        for look, (kind, name) in enumerate(names.items()):
            mine = [row for row in rows if row["kind"] == kind]
            pairs = [(float(row[column]), float(row["accuracy"])) for row in mine]
            curve(axes, spreads(pairs), look, name)
        axes.set_xscale("log")
        axes.set_ylabel("final test accuracy")
    if whole:
        left.axhline(whole[0].mean, color="#000000", linestyle="--", label="no projection")
        left.axhspan(whole[0].least, whole[0].largest, color="#000000", alpha=0.12, linewidth=0)
        unprojected = [row for row in rows if row["kind"] == NONE]
        pairs = [(float(row["bytes_per_step"]), float(row["accuracy"])) for row in unprojected]
        curve(right, spreads(pairs), 5, "no projection")
    plain_ticks(left.xaxis, sorted({int(row["k"]) for row in rows if row["kind"] != NONE}))
    plain_ticks(right.xaxis, (200, 500, 1_000, 2_000, 5_000, 10_000, 25_000))
    epsilon = float(rows[0]["epsilon"])
    left.set_xlabel(f"k, numbers sent in a step (epsilon {epsilon:.2g}, delta 1e-5 for all)")
    right.set_xlabel("bytes that a silo sends in a step")
    left.legend(fontsize=9)
    right.legend(fontsize=9)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    template, ks = (HEART, SMALL_KS) if options.small else (MNIST, KS)
    points = wanted(1 if options.small else options.runs, ks)
    table = Table(path=options.out / "projection.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [key_of(*one) for one in points],
        lambda number, shown: measured(template, *points[number], shown),
        module="experiments.projection",
        arguments=arguments,
    )
    by = ("kind", "k", "account", "noise_multiplier", "bytes_per_step", "bytes_saved_fold")
    summarise(table, by, ("accuracy", "seconds_per_step"))
    draw(table.rows(), options.out / "projection.png")


if __name__ == "__main__":
    main()
