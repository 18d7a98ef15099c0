"""How much of the promised epsilon an audit shows, through the real protocol, and what it costs.

    python -m experiments.audit_power [--small] [--kind NAME ...] [--epsilon NUMBER ...]

Each row is one audit with its default sizes of a study with 60 steps, a twentieth of the records in
a batch, and four silos of whom one is the aggregator's. Processor time is that of all processes,
and has the plan in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import hubbub
from experiments.command import Options, Shown, fill, options_of, parser_of
from experiments.results import Table

EPSILONS, SMALL_EPSILONS = (1.0, 4.0, 8.0), (4.0,)
STEPS, SMALL_STEPS = 60, 4
SMALL_SIZE = {"runs": 2, "canaries": 40}
POISSON = 'relation = "add-remove"\n[training]\nsample_rate = 0.05\n'
JOINT = 'relation = "substitute"\n[training]\nsampling = "without-replacement"\nbatch = 500\n'
KINDS = {
    "Poisson": POISSON,
    "correlated noise": POISSON + 'noise = "correlated"\nbands = 4\n'
    'optimizer = {name = "sgd", lr = 1}\n',
    "one list": JOINT + 'tokens = "static"\n',
    "a list for an epoch": JOINT + 'tokens = "per-epoch"\n',
    "fresh lists": JOINT + 'tokens = "per-step"\n',
    "Gaussian projection": POISSON + 'projection = 400\nprojection_kind = "gaussian"\n',
    "sign projection": POISSON + 'projection = 400\nprojection_kind = "sign"\n',
    "projection by layers": POISSON + 'projection = 400\nprojection_kind = "layers"\n',
}
TOML = """
study.name = "audit power"
parties = {{silos = 4, colluders = 1}}
data = {{source = "python:nowhere:nothing", records = 10000}}
model = {{kind = "logistic", inputs = [2000]}}
[privacy]
epsilon = {epsilon}
delta = 1e-5
{kind}steps = {steps}
clip_norm = 1.0
"""
KEY = ("kind", "epsilon")
COLUMNS = (*KEY, "shown", "share", "contradicted", "runs", "canaries", "processor_seconds")


def study_of(kind: str, epsilon: float, steps: int) -> hubbub.Study:
    """The study of a row."""
    return hubbub.Study.parse(TOML.format(kind=KINDS[kind], epsilon=epsilon, steps=steps))


def measured(kind: str, epsilon: float, shown: Shown, *, small: bool) -> dict[str, object]:
    """One audit."""
    asked, before = study_of(kind, epsilon, SMALL_STEPS if small else STEPS), processor()
    size = SMALL_SIZE if small else {}
    found = hubbub.audit(asked, **size, progress=lambda _: shown(0.5))
    return {
        "shown": round(found.lower, 3),
        "share": round(found.lower / found.audited, 3),
        "contradicted": found.contradicted,
        "runs": found.runs,
        "canaries": found.canaries,
        "processor_seconds": round(processor() - before, 1),
    }


def processor() -> float:
    """Processor seconds of this process and of all its children that have ended."""
    return sum(os.times()[:4])


def _points(options: Options) -> list[tuple[str, float]]:
    named = options.named
    epsilons = SMALL_EPSILONS if options.small else named.epsilon
    return [(kind, epsilon) for kind in named.kind for epsilon in epsilons]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=EPSILONS)
    options = options_of(parser, arguments)
    points = _points(options)
    fill(
        Table(path=options.out / "audit_power.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, shown: measured(*points[number], shown, small=options.small),
        module="experiments.audit_power",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
