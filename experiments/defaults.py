"""What the rule for clip and learning rate reaches, beside the best that could have been chosen.

    python -m experiments.defaults [--small] [--runs 4]

Linear models, by batched rehearsals that agree with `fit` (linear_rehearsals.py). Each draw splits
a cohort anew, a quarter to score. Shown is what a model takes off the loss of knowing nothing: 1 is
perfect, less than 0 is worse. *Best* is the best of 63 clips and rates on the very records that
score it, which nobody can choose; *least clip* the best rate at the smallest clip, where all
gradients have one length, as with automatic clipping (Bu et al. 2022); *former* Adam .1, clip 1, 60
steps, what hubbub had before the rule. The score is that of the rule and of no privacy:
AUC, R2, explained deviance or c-index. Cohorts on which the rule was found are not among these,
but for hearts and breast cancers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

import hubbub
from experiments.command import Shown, fill, options_of, parser_of
from experiments.linear_heads import (
    ClassHead,
    Hazards,
    LinearHead,
    Number,
    Rate,
    TwoClasses,
    head_of,
)
from experiments.linear_rehearsals import LinearModels, RehearsalLaw, Settings, rehearsed, with_bias
from experiments.made_up_records import made_up_records
from experiments.results import Table
from hubbub.core.study.study import Study
from hubbub.core.tabular.target import Outcome
from hubbub.learning import scoring
from hubbub.learning.datasets import HEART_COLUMNS, HEART_SILOS, heart
from hubbub.learning.study.training import UsualTraining, squared_length, usual_training

Array = NDArray[Any]
KEY = ("cohort", "records", "epsilon", "silos")
SCORES = ("rule", "former", "best", "least_clip", "no_privacy", "score", "score_no_privacy")
COLUMNS = (*KEY, "seen", "kind", "clip_norm", "lr", "draws", *SCORES)
CLIPS, RATES = (0.1, 0.3, 0.5, 0.75, 1.0, 1.4, 2.0, 3.0, 5.0), (0.2, 0.4, 0.7, 1.0, 1.5, 2.5, 5.0)
FORMER = Settings(clip_norm=1.0, steps=60, lr=0.1, schedule="constant")
COLLUDERS = {5: 1, 67: 5}
DELTA, TEST_SHARE, MOST_SCORED = 1e-5, 0.25, 5000
EPSILONS = (0.25, 1.0, 4.0, 8.0)
COLUMN_LINES = [
    *(f"n{k} = {{ low = 0, high = 1 }}" for k in range(12)),
    *(f'c{k} = {{ categories = ["a", "b", "c"] }}' for k in range(6)),
]
TARGETS = {
    "classes": 'target = "y"\npositive = ["1"]\nnegative = ["0"]',
    "amounts": 'target = { kind = "numeric", column = "y", low = 0, high = 100 }',
    "counts": 'target = { kind = "count", column = "y", high = 30 }',
    "times": 'target = { kind = "time-to-event", time = "y", event = "e", grid = [1, 2, 3, 4, 5] }',
}


class Cohort:
    """Features, targets, and what is public of them."""

    def __init__(self, head: LinearHead, inputs: Array, targets: Array, square: float) -> None:
        self.head, self.inputs, self.targets, self.square = head, inputs, targets, square


def bounded(inputs: Array) -> Array:
    """Features between public bounds, as which the hundredths at either end stand in here."""
    low, high = np.percentile(inputs, (1, 99), axis=0)
    found: Array = np.clip(2 * (inputs - low) / np.maximum(high - low, 1e-9) - 1, -1, 1)
    return found


def bundled(name: str) -> Cohort:
    """A data set of scikit-learn."""
    read = getattr(datasets, f"load_{name}")
    found = read(scaled=False) if name == "diabetes" else read()
    inputs = found.data / 8 - 1 if name == "digits" else bounded(found.data)
    heads: dict[str, LinearHead] = {
        "breast_cancer": TwoClasses(),
        "diabetes": Number(outcome=Outcome(kind="numeric", low=0.0, high=400.0)),
        "digits": ClassHead(outputs=10),
        "wine": ClassHead(outputs=3),
    }
    return Cohort(heads[name], inputs, found.target, 1 + inputs.shape[1] / 3)


def hearts() -> Cohort:
    """The four hospitals' records, and the public ones."""
    found = [heart(one) for one in (*HEART_SILOS, "test")]
    inputs, targets = (
        np.concatenate(one) for one in zip(*((r.inputs, r.targets) for r in found), strict=True)
    )
    return Cohort(TwoClasses(), inputs, targets, squared_length(HEART_COLUMNS))


def made_up(kind: str, seed: int) -> Cohort:
    """50,000 records of a made-up world."""
    study = Study.parse(
        f'study.name = "{kind}"\nparties = {{ silos = 5, colluders = 1 }}\n[data]\n'
        f'files = "{{name}}.csv"\n{TARGETS[kind]}\nrecords = 1000\n[data.columns]\n'
        + "\n".join(COLUMN_LINES)
        + '\n[model]\nkind = "logistic"\n[training]\nsteps = 150\nsample_rate = 0.2\n'
        "[privacy]\nepsilon = 1.0\ndelta = 1e-5\n"
    )
    random = np.random.default_rng(seed)
    inputs, targets = made_up_records(study, 50_000 + MOST_SCORED, random)
    return Cohort(head_of(study), inputs, targets, squared_length(study.data.columns))


COHORTS: dict[str, Callable[[], Cohort]] = {
    "hearts": hearts,
    **{n: partial(bundled, n) for n in ("breast_cancer", "diabetes", "digits", "wine")},
    **{f"made-up {kind} {n}": partial(made_up, kind, n) for kind in TARGETS for n in (101, 102)},
}
SEEN = ("hearts", "breast_cancer")


@cache
def cohort_of(name: str) -> Cohort:
    """A cohort, made once."""
    return COHORTS[name]()


@cache
def law_of(records: int, epsilon: float, silos: int, steps: int) -> RehearsalLaw:
    """How much noise a run of so many records has."""
    noise = hubbub.noise_multiplier(epsilon=epsilon, delta=DELTA, sample_rate=0.2, steps=steps)
    unknown = (silos - COLLUDERS[silos] - 1) / silos
    return RehearsalLaw(
        noise_multiplier=noise / sqrt(unknown), sample_rate=0.2, divisor=0.2 * records
    )


def candidates_of(usual: UsualTraining) -> list[Settings]:
    """The rule's own first, then those around it."""
    grid = [(1.0, 1.0), *((clip, rate) for clip in CLIPS for rate in RATES)]
    return [
        Settings(clip_norm=usual.clip_norm * clip, steps=usual.steps, lr=usual.lr * rate)
        for clip, rate in grid
    ]


def draw_of(cohort: Cohort, records: int, seed: int) -> tuple[Array, Array]:
    """Places of the records that train, and of those that score."""
    random = np.random.default_rng([seed, records])
    order = random.permutation(len(cohort.inputs))
    tested = min(MOST_SCORED, max(50, round(TEST_SHARE * len(order))))
    return order[tested : tested + records], order[:tested]


def telling(cohort: Cohort, models: LinearModels, place: int, test: Array, known: Array) -> float:
    """AUC, R2, explained deviance, c-index; of several classes accuracy."""
    rows = with_bias(cohort.inputs[test])
    found, targets = models.outputs(rows)[:, place], cohort.targets[test]
    head = cohort.head
    if isinstance(head, TwoClasses):
        return scoring.auc(found[:, 0], targets)
    if isinstance(head, Hazards):
        return scoring.harrell(found.mean(1), targets[:, 0], targets[:, 1] > 0.5)
    if isinstance(head, ClassHead):
        return float((found.argmax(1) == targets).mean())
    if isinstance(head, Number | Rate):
        lost = head.losses(found[:, None], head.known(targets)).mean()
        return float(1 - lost / head.null_loss(known, targets))
    raise TypeError(head)


def outcome_of(head: LinearHead) -> Outcome | None:
    """The target, as the rule wants it."""
    if isinstance(head, Hazards):
        return Outcome(kind="time-to-event", grid=head.grid)
    return head.outcome if isinstance(head, Number | Rate) else None


def measured(
    name: str, records: int, epsilon: float, silos: int, draws: int, shown: Shown
) -> dict[str, object]:
    """A row: means over draws."""
    cohort = cohort_of(name)
    train, _ = draw_of(cohort, records, 0)
    usual = usual_training(
        outcome_of(cohort.head),
        records=len(train),
        epsilon=epsilon,
        silos=silos,
        colluders=COLLUDERS[silos],
        square=cohort.square,
    )
    single, grids = [], []
    for seed in range(draws):
        alone, grid = _drawn(cohort, usual, records, epsilon, silos, seed)
        single.append(alone)
        grids.append(grid)
        shown((seed + 1) / draws)
    rule, former, without, score, score_without = np.mean(single, axis=0).tolist()
    around = np.mean(grids, axis=0).reshape(len(CLIPS), len(RATES))
    return {
        "seen": name in SEEN,
        "kind": type(cohort.head).__name__,
        "clip_norm": usual.clip_norm,
        "lr": usual.lr,
        "draws": draws,
        "rule": rule,
        "former": former,
        "best": max(rule, float(around.max())),
        "least_clip": float(around[0].max()),
        "no_privacy": without,
        "score": score,
        "score_no_privacy": score_without,
    }


def _drawn(
    cohort: Cohort, usual: UsualTraining, records: int, epsilon: float, silos: int, seed: int
) -> tuple[list[float], Array]:
    """Of one draw: the rule, the former, no privacy, two scores; and all candidates around."""
    train, test = draw_of(cohort, records, seed)
    inputs, targets = cohort.inputs[train], cohort.targets[train]
    scored, head = (cohort.inputs[test], cohort.targets[test]), cohort.head
    null = head.null_loss(targets, scored[1])

    def trained(candidates: Sequence[Settings], law: RehearsalLaw) -> LinearModels:
        return rehearsed(head, inputs, targets, candidates, law, np.random.default_rng(seed))

    def explained(models: LinearModels) -> Array:
        return np.maximum(np.nan_to_num(1 - models.losses(*scored) / null, nan=-1.0), -1.0)

    private = trained(candidates_of(usual), law_of(len(train), epsilon, silos, usual.steps))
    former = trained([FORMER], law_of(len(train), epsilon, silos, FORMER.steps))
    plain = [Settings(clip_norm=1e9, steps=600, lr=lr) for lr in (0.01, 0.03, 0.1)]
    none = trained(
        plain, RehearsalLaw(noise_multiplier=0.0, sample_rate=0.2, divisor=0.2 * len(train))
    )
    found, without = explained(private), explained(none)
    best = int(without.argmax())
    alone = [
        float(found[0]),
        float(explained(former)[0]),
        float(without[best]),
        telling(cohort, private, 0, test, targets),
        telling(cohort, none, best, test, targets),
    ]
    return alone, found[1:]


def wanted(*, small: bool) -> list[dict[str, object]]:
    """The keys of all rows."""
    if small:
        return [{"cohort": "wine", "records": 120, "epsilon": 4.0, "silos": 5}]
    real = [(name, 10**6, 5) for name in ("hearts", "breast_cancer", "diabetes", "digits", "wine")]
    worlds = [name for name in COHORTS if name.startswith("made-up")]
    made = [(name, records, 5) for name in worlds for records in (200, 1000, 5000)]
    large = [(name, 50_000, 5) for name in worlds if name.endswith("101")]
    many = [(name, 5000, 67) for name in worlds if name.endswith("102")]
    return [
        {"cohort": name, "records": records, "epsilon": epsilon, "silos": silos}
        for name, records, silos in (*real, *many, *large, *made)
        for epsilon in EPSILONS
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    keys = wanted(small=options.small)
    table = Table(path=options.out / "defaults.csv", key=KEY, columns=COLUMNS)

    def measure(number: int, shown: Shown) -> dict[str, object]:
        key: Any = keys[number]
        draws = options.runs if key["records"] < 10_000 or key["records"] == 10**6 else 1
        return measured(
            **{"name" if k == "cohort" else k: v for k, v in key.items()}, draws=draws, shown=shown
        )

    fill(table, keys, measure, module="experiments.defaults", arguments=arguments)


if __name__ == "__main__":
    main()
