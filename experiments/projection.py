"""Accuracy with randomly projected sums, and the bytes and the time that they save, at one epsilon.

    python -m experiments.projection [--small] [--runs 3]
    HUBBUB_CONV=conv.npz python -m experiments.projection --paper [--runs 0]

The paper's figure "projection_acc" shows accuracy for k = 50 to 400 against the fold decrease of
the running time, at epsilon 1.7. The first command has every point of a small model through the
real protocol with pairwise masks, and shows the bytes. The second has the paper's own model,
913,152 parameters, with 8 compute nodes and 10 silos: run 0 of a point has the processor time of
a step of the real protocol, all parties in one process; further runs are rehearsals of 1,250
steps, for the accuracy.
Each point has the account that the plan states for its kind (docs/privacy.md P8), which charges for
a fresh projection in every step. Gaussian matrices of that model are left out: they are made anew
by every silo in each step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from string import Template

import numpy as np

import hubbub
from experiments.command import Options, Shown, fill, options_of, parser_of, stepwise
from experiments.results import Row, Table, summarise
from experiments.utility import weights_of
from experiments.utility_study import CIFAR
from hubbub.core.planning.accounts import account_of
from hubbub.learning.runs.baselines import REHEARSAL
from hubbub.learning.runs.preparing import prepare
from hubbub.learning.runs.run_study import run_prepared

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

Weights = tuple[str, str]  # the file, and its SHA-256
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
_TIMED = 5  # steps
PAPER_COLUMNS = (*KEY, "by", "parameters", "noise_multiplier", "steps", "seconds_per_step")
PAPER_COLUMNS += ("bytes_per_step", "accuracy")
COLUMNS += ("bytes_per_step", "bytes_saved_fold", "steps", "accuracy", "loss", "seconds_per_step")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A kind of projection and its k; `NONE` and 0 for none."""

    kind: str = NONE
    k: int = 0

    def study(self, template: Template, run: int) -> hubbub.Study:
        """The study of this point; its name, and so its first model, differs from run to run."""
        text = template.substitute(name=f"{self.kind} {self.k} run {run}", projection=self.settings)
        return hubbub.Study.parse(text)

    def of_the_paper(self, run: int, weights: Weights) -> hubbub.Study:
        """The same of the paper's model, with compute nodes."""
        return hubbub.Study.parse(
            CIFAR.substitute(
                name=f"projection {self.kind} {self.k} run {run}",
                silos=10,
                nodes=8,
                colluders=0,
                weights=weights[0],
                sha256=weights[1],
                batches=f"sample_rate = 0.008\n{self.settings}",
                hidden="384, 384, 384",
                clip=2.5,
                optimizer='name = "adam", lr = 9e-4',
                epsilon=1.7,
                delta=1e-5,
                relation="add-remove",
            )
        )

    @property
    def settings(self) -> str:
        """What a study's training says of the projection."""
        kind = f'projection_kind = "{self.kind}"\n' if self.k else ""
        return f"{kind}projection = {self.k}"


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
    projected = account_of(plan.mechanism).projected
    sent = plan.upload_bytes_per_step or 0
    return {
        "silos": study.parties.silos,
        "parameters": plan.dimension,
        "epsilon": result.epsilon,
        "delta": study.privacy.delta,
        "account": projected.account if projected else "no projection, P1",
        "noise_multiplier": plan.noise_multiplier,
        "bytes_per_step": sent,
        "bytes_saved_fold": unprojected_bytes(template) / sent,
        "steps": study.training.steps,
        "accuracy": float(result.final["accuracy"]),
        "loss": float(result.final["loss"]),
        "seconds_per_step": seconds,
    }


def timed(point: Point, run: int, weights: Weights, shown: Shown) -> dict[str, object]:
    """Time a few steps through the protocol in run 0; else rehearse the training."""
    study = point.of_the_paper(run, weights)
    plan, times = hubbub.plan(study), []
    if run == 0:
        study = study.changed(training=replace(study.training, steps=_TIMED))

    def after_step(step: int, _row: object) -> None:
        times.append(time.process_time())
        shown(step / study.training.steps)

    baseline = REHEARSAL if run else None
    result = run_prepared(prepare(study), None, baseline=baseline, progress=after_step)
    return {
        "by": baseline or "protocol",
        "parameters": plan.dimension,
        "noise_multiplier": plan.noise_multiplier,
        "steps": study.training.steps,
        "seconds_per_step": float(median(np.diff(times))),
        "bytes_per_step": plan.upload_bytes_per_step or 0,
        "accuracy": float(result.final["accuracy"]) if run else "",
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


def traded(rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """By kind, of each rehearsal how many times faster a step is, and its accuracy."""
    seconds = {
        (row["kind"], row["k"]): float(row["seconds_per_step"]) for row in rows if row["run"] == "0"
    }
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["accuracy"]:
            fold = seconds[NONE, "0"] / seconds[row["kind"], row["k"]]
            found.setdefault(row["kind"], []).append((fold, float(row["accuracy"])))
    return found


def draw_paper(rows: Sequence[Row], path: Path) -> None:
    """The paper's figure: accuracy against the fold decrease of the running time."""
    from experiments.drawing import curve, panels, save, spreads

    figure, (axes,) = panels(1)
    for look, (kind, pairs) in enumerate(traded(rows).items()):
        curve(axes, spreads(pairs), look, "no projection" if kind == NONE else kind)
    axes.set_xlabel("fold decrease of a step's running time (8 compute nodes, epsilon 1.7)")
    axes.set_ylabel("final test accuracy")
    axes.legend(fontsize=9)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    parser = parser_of(__doc__ or "")
    parser.add_argument("--paper", action="store_true", help="the paper's model")
    options = options_of(parser, arguments)
    if options.named.paper:
        _fill_paper(options, arguments)
        return
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


def _fill_paper(options: Options, arguments: Sequence[str] | None) -> None:
    """Fill the table of the paper's model, the times first."""
    weights = weights_of(None)
    points = [Point(), *(Point(kind=kind, k=k) for k in reversed(KS) for kind in KINDS[:2])]
    keys = [key_of(point, run) for run in range(options.runs + 1) for point in points]
    table = Table(path=options.out / "projection_paper.csv", key=KEY, columns=PAPER_COLUMNS)
    fill(
        table,
        keys,
        lambda number, shown: timed(
            points[number % len(points)], number // len(points), weights, shown
        ),
        module="experiments.projection",
        arguments=arguments,
        weights_sha256=weights[1],
    )
    by = ("kind", "k", "noise_multiplier", "bytes_per_step")
    summarise(table, by, ("accuracy", "seconds_per_step"))
    if traded(table.rows()):
        draw_paper(table.rows(), options.out / "projection_paper.png")


if __name__ == "__main__":
    main()
