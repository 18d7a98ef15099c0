"""Accuracy against epsilon on CIFAR-10: hubbub's protocol, a trusted aggregator, and local DP.

    HUBBUB_CONV=conv.npz python -m experiments.utility [--small] [--runs 5]
        [--weights conv.npz] [--only hubbub] [--level 4]

The paper's figure "acc_fat": a fully connected head without biases on its frozen convolutions. The
file of these layers is the user's (docs/data.md, "Frozen layers"). Every hubbub point goes through
the real protocol with pairwise masks; its noise is asked for by epsilon, in four steps:

1. A level is a total noise, t = sigma / C of what is in the revealed sum if every silo takes part;
   the paper's levels are 2 * sigma for its sigma = 0.5, 1 and 2.
2. With T colluders of N silos, N - T - 1 shares are what the stated adversary cannot subtract. So
   at T = 0 it faces z = t * sqrt((N - 1) / N), and `hubbub.epsilon` of z is the study's epsilon.
3. `hubbub.plan` finds z again from epsilon; the total that it states is a column of the table.
4. Colluders T > 0 keep that epsilon, and the plan raises the total by sqrt((N - 1) / (N - T - 1)).

A trusted aggregator is asked for the same total noise, so its epsilon is the smaller one, of t.
Local DP is asked for hubbub's epsilon: every silo adds z itself. Local DP of 32 silos, the paper's
number, is run as what it is in law: one sum with noise z * sqrt(32).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from string import Template

import hubbub
from experiments.command import Options, Shown, fill, options_of, parser_of, stepwise
from experiments.results import Row, Table, summarise, text

CIFAR = Template("""
[study]
name = "utility, $name"

[parties]
silos = $silos
compute_nodes = 0               # pairwise masks
colluders = $colluders

[data]
source = "hubbub.datasets:cifar10"
options = { silos = $silos }
records = 50000

[model]
kind = "mlp"
hidden = [384, 384, 384]
inputs = [1600]                 # features that come out of the frozen layers
outputs = 10
bias = false

[model.frozen]
weights = "$weights"
sha256 = "$sha256"
mean = [0.4914, 0.4822, 0.4465]
std = [0.2023, 0.1994, 0.2010]

[training]
steps = 1250
sample_rate = 0.008
clip = 2.5
optimizer = { name = "adam", lr = 9e-4 }

[privacy]
epsilon = $epsilon
delta = 1e-5
relation = "add-remove"
""")

HEART = Template("""
[study]
name = "utility, small, $name"

[parties]
silos = $silos
colluders = $colluders

[data]
source = "hubbub.datasets:heart"
records = 736

[model]
kind = "mlp"
hidden = [8]
inputs = [26]

[training]
steps = 4
sample_rate = 0.2

[privacy]
epsilon = $epsilon
delta = 1e-5
""")

SILOS, PAPER_SILOS = 4, 32
STRICTER = (8.0, 16.0)
# The epsilon that the paper prints for its sampling without replacement, at 2 * sigma.
PRINTED = {1.0: 13.81, 2.0: 2.51, 4.0: 1.07}
# Final test accuracy with a trusted aggregator by total noise, means of three runs elsewhere.
ANCHORS = {1.0: 0.658, 1.03: 0.657, 2.0: 0.622, 4.0: 0.572}
HUBBUB, TRUSTED, LOCAL, LOCAL_32 = "hubbub", "trusted", "local-dp", "local-dp-32"
BASELINES = {HUBBUB: None, TRUSTED: "trusted", LOCAL: "local-dp", LOCAL_32: "trusted"}

KEY = ("method", "level", "colluders", "run")
COLUMNS: tuple[str, ...] = (
    *KEY,
    "silos",
    "epsilon",
    "delta",
    "noise_multiplier",
    "total_noise_multiplier",
)
COLUMNS += ("steps", "accuracy", "loss", "seconds_per_step")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the figure.

    Args:
        method: HUBBUB or another one of BASELINES.
        level: total noise t of hubbub with no colluders, over C.
        colluders: T.
    """

    method: str
    level: float
    colluders: int = 0

    @property
    def silos(self) -> int:
        """N of the claim."""
        return PAPER_SILOS if self.method == LOCAL_32 else SILOS

    @property
    def promised(self) -> float:
        """z, the noise over C that the stated adversary cannot subtract."""
        if self.method == TRUSTED:
            return self.level
        return self.level * sqrt((self.silos - 1) / self.silos)

    @property
    def asked(self) -> float:
        """The noise by which the study that is run states its epsilon."""
        return self.promised * (sqrt(PAPER_SILOS) if self.method == LOCAL_32 else 1.0)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained: the study's text, and its numbers that the accountant needs."""

    template: Template
    weights: str
    sha256: str
    sample_rate: float
    steps: int
    delta: float = 1e-5

    def epsilon(self, noise: float) -> float:
        """Certified epsilon of so much noise."""
        return hubbub.epsilon(
            noise_multiplier=noise,
            sample_rate=self.sample_rate,
            steps=self.steps,
            delta=self.delta,
        ).upper

    def study(self, point: Point, run: int) -> hubbub.Study:
        """The study of a point; its name, and so its first model, differs from run to run."""
        written = self.template.substitute(
            name=f"{point.method} {point.level:g} {point.colluders} run {run}",
            silos=SILOS,
            colluders=point.colluders,
            weights=self.weights,
            sha256=self.sha256,
            epsilon=self.epsilon(point.asked),
        )
        return hubbub.Study.parse(written)


def setting_of(options: Options) -> Setting:
    """The real study, or the small one."""
    if options.small:
        return Setting(template=HEART, weights="", sha256="", sample_rate=0.2, steps=4)
    path = options.named.weights or os.environ.get("HUBBUB_CONV", "")
    if not path or not Path(path).is_file():
        raise SystemExit(
            "expected the file of the paper's convolutions as --weights or $HUBBUB_CONV, found "
            f"{path or 'neither'}; see docs/experiments.md, or try --small"
        )
    sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return Setting(template=CIFAR, weights=path, sha256=sha256, sample_rate=0.008, steps=1250)


def wanted(runs: int, *, small: bool) -> list[tuple[Point, int]]:
    """Points and runs, the most telling first, so that a stopped experiment has told the most."""
    if small:
        methods = (HUBBUB, TRUSTED, LOCAL)
        small_points = [Point(method=method, level=2.0) for method in methods]
        return [(p, 1) for p in [*small_points, Point(method=HUBBUB, level=2.0, colluders=2)]]
    sigmas = (1.0, 2.0, 4.0)  # 2 * sigma, for the paper's three
    main = [Point(method=method, level=t) for t in sigmas for method in (HUBBUB, TRUSTED)]
    beside = [Point(method=HUBBUB, level=2.0, colluders=2)]
    beside += [Point(method=LOCAL_32, level=t) for t in sigmas]
    beside += [Point(method=LOCAL, level=2.0), Point(method=HUBBUB, level=2.0, colluders=1)]
    beside += [Point(method=method, level=1.03) for method in (HUBBUB, TRUSTED)]
    beside += [Point(method=LOCAL, level=t) for t in (1.0, 4.0)]
    beside += [Point(method=HUBBUB, level=1.0, colluders=T) for T in (2, 1)]
    stricter = [
        Point(method=method, level=t) for t in STRICTER for method in (TRUSTED, LOCAL_32, HUBBUB)
    ]
    everything = main + beside + stricter
    first = [(point, 1) for point in everything]
    rest = [(point, run) for run in range(2, runs + 1) for point in everything]
    ordered = dict.fromkeys(first + rest)
    return [(point, run) for point, run in ordered if run <= runs]


def key_of(point: Point, run: int) -> dict[str, object]:
    """The columns that name a run."""
    return {"method": point.method, "level": point.level, "colluders": point.colluders, "run": run}


def measured(setting: Setting, point: Point, run: int, shown: Shown) -> dict[str, object]:
    """Train once."""
    start = time.perf_counter()
    result = hubbub.run(
        setting.study(point, run),
        baseline=BASELINES[point.method],
        progress=stepwise(shown, setting.steps),
    )
    seconds = (time.perf_counter() - start) / setting.steps
    plan = result.plan
    total = {
        HUBBUB: plan.total_noise_multiplier,
        LOCAL: plan.noise_multiplier * sqrt(SILOS),
    }.get(point.method, plan.noise_multiplier)
    return {
        "silos": point.silos,
        "epsilon": setting.epsilon(point.promised),
        "delta": setting.delta,
        "noise_multiplier": point.promised,
        "total_noise_multiplier": total,
        "steps": setting.steps,
        "accuracy": float(result.final["accuracy"]),
        "loss": float(result.final["loss"]),
        "seconds_per_step": seconds,
    }


def reported(row: Row) -> Row:
    """What others report at the same total noise."""
    level = float(row["level"])
    comparable = row["method"] in (HUBBUB, TRUSTED) and row["colluders"] == "0"
    return {
        "reference_accuracy": text(ANCHORS.get(level, "")) if comparable else "",
        "paper_epsilon": text(PRINTED.get(level, "")) if comparable else "",
    }


def draw(rows: Sequence[Row], path: Path, *, small: bool = False) -> None:
    """Accuracy against epsilon, and against the total noise."""
    from experiments.drawing import curve, panels, plain_ticks, save, spreads

    figure, (left, right) = panels(2)
    names = {
        TRUSTED: "trusted aggregator",
        HUBBUB: f"hubbub, {SILOS} silos, T = 0",
        LOCAL: f"local DP, {SILOS} silos",
        LOCAL_32: f"local DP, {PAPER_SILOS} silos",
    }
    kept = [row for row in rows if row["colluders"] == "0"]
    for look, (method, name) in enumerate(names.items()):
        mine = [row for row in kept if row["method"] == method]
        pairs = [(float(row["epsilon"]), float(row["accuracy"])) for row in mine]
        if pairs:
            curve(left, spreads(pairs), look, name)
    left.set_xscale("log")
    plain_ticks(left.xaxis, (0.05, 0.1, 0.2, 0.5, 1, 2))
    left.set_xlabel("epsilon, certified (delta = 1e-5, add-remove)")
    left.set_ylabel("final test accuracy")
    left.legend(fontsize=9)
    groups = [(HUBBUB, T, f"hubbub, T = {T}") for T in (0, 1, 2)]
    groups += [(TRUSTED, 0, "trusted aggregator"), (LOCAL, 0, f"local DP, {SILOS} silos")]
    for (method, colluders, name), look in zip(groups, (1, 4, 3, 0, 2), strict=True):
        mine = [r for r in rows if r["method"] == method and int(r["colluders"]) == colluders]
        pairs = [(float(r["total_noise_multiplier"]), float(r["accuracy"])) for r in mine]
        if pairs:
            curve(right, spreads(pairs), look, name, line="-" if method == TRUSTED else "")
    if not small:
        right.plot(
            list(ANCHORS),
            list(ANCHORS.values()),
            label="trusted, measured elsewhere",
            color="#000000",
            marker="x",
            markersize=9,
            linestyle="",
            zorder=5,
        )
    right.set_xscale("log")
    plain_ticks(right.xaxis, (1, 2, 4, 8, 16, 32))
    right.set_xlabel("noise in the sum, standard deviation / clipping norm C")
    right.set_ylabel("final test accuracy")
    right.legend(fontsize=9)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    parser = parser_of(__doc__ or "")
    parser.add_argument("--weights", help="file of the convolutions; $HUBBUB_CONV without it")
    parser.add_argument("--only", choices=list(BASELINES), help="this method alone")
    parser.add_argument("--level", type=float, help="this total noise alone")
    options = options_of(parser, arguments)
    setting, only = setting_of(options), options.named
    points = [
        (point, run)
        for point, run in wanted(options.runs, small=options.small)
        if only.only in (None, point.method) and only.level in (None, point.level)
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
    by = ("method", "level", "colluders", "silos", "epsilon", "total_noise_multiplier")
    summarise(table, by, ("accuracy", "seconds_per_step"), None if options.small else reported)
    draw(table.rows(), options.out / "utility.png", small=options.small)


if __name__ == "__main__":
    main()
