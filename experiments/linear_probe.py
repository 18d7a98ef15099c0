"""Accuracy of the linear probe on CIFAR-10, from one noisy sum.

    HUBBUB_CONV=conv.npz python -m experiments.linear_probe [--small] [--runs 3]

Least squares on the features of `utility`'s frozen layers, 32 silos, T = 0 (docs/data.md, "Linear
probe"). Every point is a rehearsal: the law of a run, without masks. The probe has one setting, the
floor below which it believes no eigenvalue. It is tried here, once at each epsilon: models learn
from the first 40,000 training records and are scored on the other 10,000. The rows of the test
records have the floor that hubbub ships.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

import torch

import hubbub
from experiments.command import Shown, fill, options_of, parser_of
from experiments.results import Table, summarise
from experiments.utility import weights_of
from hubbub.learning import models, through_frozen

CIFAR = Template("""
[study]
name = "linear probe, $name"

[parties]
silos = 32
compute_nodes = 0               # pairwise masks
colluders = 0

[data]
source = "python:experiments.datasets:cifar10"
options = { silos = 32, held_back = $held_back }
records = $records

[model]
kind = "linear-probe"
inputs = [1600]                 # features that come out of the frozen layers
outputs = 10

[model.frozen]
weights = "$weights"
sha256 = "$sha256"
mean = [0.4914, 0.4822, 0.4465]
std = [0.2023, 0.1994, 0.2010]

[training]
steps = 1
sampling = "full-batch"
clip_norm = 1.0
optimizer = { name = "sgd", lr = 1.0 }

[privacy]
epsilon = $epsilon
delta = 1e-5
""")
HEART = Template("""
[study]
name = "linear probe, small, $name"

[parties]
silos = 4
colluders = 0

[data]
source = "hubbub.datasets:heart"
records = 736

[model]
kind = "linear-probe"
inputs = [26]

[training]
steps = 1
sampling = "full-batch"
clip_norm = 1.0
optimizer = { name = "sgd", lr = 1.0 }

[privacy]
epsilon = $epsilon
delta = 1e-5
""")

FLOORS = (0.05, 0.1, 0.2, 0.4, 0.8)
HELD_BACK, TEST = "held back", "test"
PRIVATE, NO_NOISE = "rehearsal", "non-private"
KEY = ("scored", "by", "epsilon", "floor", "run")
COLUMNS = (*KEY, "delta", "noise_multiplier", "total_noise_multiplier", "accuracy")

Point = dict[str, object]


def wanted(runs: int, epsilons: Sequence[float], *, small: bool) -> list[Point]:
    """Floors on the records that are held back, then the test records."""
    shipped = models.FLOOR
    tried = [] if small else [(HELD_BACK, PRIVATE, e, f, 1) for e in epsilons for f in FLOORS]
    tested = [(TEST, PRIVATE, e, shipped, run) for run in range(1, runs + 1) for e in epsilons]
    found = [*tried, *tested, (TEST, NO_NOISE, epsilons[-1], shipped, 1)]
    return [dict(zip(KEY, one, strict=True)) for one in found]


class Measured:
    """Rehearsals of a template; one of records that are held back serves every floor."""

    def __init__(self, template: Template, **where: str) -> None:
        self._template, self._where = template, where
        self._made: dict[object, hubbub.Result] = {}

    def row(self, point: Point) -> dict[str, object]:
        """A row but for its key."""
        held_back = point["scored"] == HELD_BACK
        result = self._result(point, held_back)
        accuracy = float(result.final["accuracy"])
        if held_back:
            accuracy = scored(result, float(str(point["floor"])))
        noiseless = point["by"] == NO_NOISE
        return {
            "delta": 1e-5,
            "noise_multiplier": 0.0 if noiseless else result.plan.noise_multiplier,
            "total_noise_multiplier": 0.0 if noiseless else result.plan.total_noise_multiplier,
            "accuracy": accuracy,
        }

    def _result(self, point: Point, held_back: bool) -> hubbub.Result:
        name = " ".join(str(point[key]) for key in ("scored", "by", "epsilon", "run"))
        if name not in self._made:
            written = self._template.substitute(
                name=name,
                epsilon=point["epsilon"],
                held_back=str(held_back).lower(),
                records=40_000 if held_back else 50_000,
                **self._where,
            )
            study = hubbub.Study.parse(written)
            alone = point["by"] == NO_NOISE
            made = hubbub.run(study, baseline=NO_NOISE) if alone else hubbub.rehearse(study)[0]
            self._made = {name: made}
        return self._made[name]


@torch.no_grad()
def scored(result: hubbub.Result, floor: float) -> float:
    """Accuracy of what was released, with another floor, on the records that are held back."""
    from experiments.datasets import cifar10

    records = through_frozen(result.plan.study.model.frozen, cifar10("test", held_back=True))
    probe = result.model
    weights = models.least_squares(probe.second.weight, probe.first.weight, floor)
    rows = models.normalised(torch.from_numpy(records.inputs))
    found = (rows @ weights.T).argmax(1)
    return float((found == torch.from_numpy(records.targets)).float().mean())


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=3)
    parser.add_argument("--weights", help="file of the convolutions; $HUBBUB_CONV without it")
    options = options_of(parser, arguments)
    weights, sha256 = ("", "") if options.small else weights_of(options.named.weights)
    epsilons, runs = ((1.0,), 1) if options.small else ((0.5, 1.0), options.runs)
    points = wanted(runs, epsilons, small=options.small)
    measured = Measured(HEART if options.small else CIFAR, weights=weights, sha256=sha256)

    def measure(number: int, _: Shown) -> dict[str, object]:
        return measured.row(points[number])

    table = Table(path=options.out / "linear_probe.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        points,
        measure,
        module="experiments.linear_probe",
        arguments=arguments,
        weights_sha256=sha256,
    )
    summarise(table, (*KEY[:-1], "total_noise_multiplier"), ("accuracy",))


if __name__ == "__main__":
    main()
