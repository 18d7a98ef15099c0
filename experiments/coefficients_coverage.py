"""Coverage of the intervals of a linear model's coefficients (docs/privacy.md P32).

    python -m experiments.coefficients_coverage [--small] [--runs 200]

Records are drawn anew for each release from a law on two numbers and a column of three classes
(logistic; "amounts": linear; "logarithms": linear of them; "times": proportional hazards, a third
lost; "counts": Poisson with a mean of 2 up to a bound of 12; "spread counts": with twice the
variance, 20; "classes": three), and the noise of its secure sums (delta 1e-5, 20 silos, one of
which may collude) is added.
The released model is the law with an error in each effect ("near", and of counts and classes: of
deviation .2; "far": the effects are half of the law's, as of a training that was stopped early;
"zero": none at all). "told"
is the part of effects that were told; coverage is that of their 95 % intervals, of the law's
effects; "width" is the mean width of the intervals of a number's effect over half of its range,
of ratios on the log scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from experiments.statistics_data import multiplier
from hubbub.core.tabular.column import Column
from hubbub.estimation.cox import cox
from hubbub.estimation.linear import Linear, log_linear
from hubbub.estimation.logistic_regression import NewtonLogistic
from hubbub.estimation.model_regressions import NewtonMultinomial, NewtonPoisson
from hubbub.estimation.statistic import Answer, Estimate
from hubbub.learning.queries.coefficients.coefficients_query import (
    NewtonSteps,
    OwnSums,
    covariates_of,
)

Array = NDArray[np.float64]
SILOS = 20
RECORDS, EPSILONS, SUMS = (1000, 4000), (1.0, 4.0), (1, 2)
MORE, LATER = (2000, 10000), (1.0, 2.0, 4.0)  # of counts, classes and logarithms
STARTS = ("near", "far", "zero")
KEY = ("start", "records", "epsilon", "sums")
COLUMNS = (*KEY, "releases", "told", "coverage", "width")

DIED = Column(name="died", categories=("no", "yes"))
ON = (
    Column(name="age", low=20, high=90),
    Column(name="pressure", low=80, high=200),
    Column(name="ward", categories=("a", "b", "c")),
)
# Intercept, half a range of each number, two classes against the first.
LAW = np.array([-0.8, 2.0, -1.0, 0.5, 0.9])
OTHER = np.array([1.0, -0.6, 0.2, 0.5])  # of an amount in tens, of times on the log scale
OWN = {
    "amounts": OwnSums(
        asked=Linear(outcome=Column(name="amount", low=0, high=100), on=covariates_of(ON)),
        relation="add-remove",
    ),
    "times": OwnSums(
        asked=cox(
            Column(name="time", low=0, high=36),
            DIED,
            tuple(3.0 * k for k in range(13)),
            covariates_of(ON),
        ),
        relation="add-remove",
    ),
}
OWN["logarithms"] = OwnSums(
    asked=log_linear(Column(name="amount", low=1, high=1000), covariates_of(ON)),
    relation="add-remove",
)
STEPS = NewtonSteps(asked=NewtonLogistic(outcome=DIED, on=covariates_of(ON)), relation="add-remove")
STAGE = Column(name="stage", categories=("I", "II", "III"))
NEWTON = {
    **dict.fromkeys(STARTS, STEPS),
    **{
        kind: NewtonSteps(
            asked=NewtonPoisson(
                outcome=Column(name="count", low=0, high=high), on=covariates_of(ON)
            ),
            relation="add-remove",
        )
        for kind, high in (("counts", 12), ("spread counts", 20))
    },
    "classes": NewtonSteps(
        asked=NewtonMultinomial(outcome=STAGE, on=covariates_of(ON)), relation="add-remove"
    ),
}
COUNTS = np.array([0.6, 0.5, -0.3, 0.1, 0.2])  # logarithm of a rate, intercept first
CLASSES = np.array([[-0.4, 1.0, -0.5, 0.3, 0.5], [-0.6, -0.8, 0.4, 0.2, 0.7]]).T  # of two logits
PLACES = (*STARTS, "amounts", "times", "logarithms", "counts", "spread counts", "classes")
LAWS = {**dict.fromkeys(STARTS, LAW), "classes": CLASSES.ravel()}
LAWS |= dict.fromkeys(("counts", "spread counts"), COUNTS)


def cells(records: int, rng: np.random.Generator) -> dict[str, Array]:
    """A table of the law's."""
    made = {
        "age": np.clip(rng.normal(58, 14, records), 20, 90),
        "pressure": np.clip(rng.normal(130, 22, records), 80, 200),
        "ward": rng.choice(3, records, p=[0.5, 0.3, 0.2]).astype(np.float64),
    }
    risks = 1 / (1 + np.exp(-STEPS.asked.covariates.design(made) @ LAW))
    return made | {"died": (rng.random(records) < risks).astype(np.float64)}


def told_of(kind: str, records: int, rng: np.random.Generator) -> dict[str, Array]:
    """The same table with a count, or a class of three."""
    made = cells(records, rng)
    design = STEPS.asked.covariates.design(made)
    if kind == "classes":
        odds = np.exp(np.column_stack([np.zeros(records), design @ CLASSES]))
        shares = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
        return made | {"stage": (rng.random((records, 1)) > shares).sum(axis=1).astype(np.float64)}
    rates = np.exp(design @ COUNTS)
    if kind == "spread counts":
        rates = rng.gamma(rates)  # their variance, beside a Poisson law's, is as large as that
    return made | {"count": rng.poisson(rates).astype(np.float64)}


def released(start: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """Where the first sum is taken."""
    law = LAWS[start]
    apart = rng.normal(0, 0.2, len(law)) if start not in ("far", "zero") else 0.0
    return np.asarray(law * {"far": 0.5, "zero": 0.0}.get(start, 1.0) + apart, np.float32)


def others(kind: str, records: int, rng: np.random.Generator) -> dict[str, Array]:
    """The same table with an amount, or with times."""
    made = cells(records, rng)
    pull = STEPS.asked.covariates.design(made)[:, 1:] @ OTHER
    if kind == "amounts":
        amount = 50 + 10 * pull + rng.normal(0, 12, records)
        return made | {"amount": np.clip(amount, 0, 100)}
    if kind == "logarithms":
        return made | {"amount": np.exp(3.5 + pull / 2 + rng.normal(0, 0.7, records))}
    end, lost = rng.exponential(40 * np.exp(-pull)), rng.exponential(60, records)
    return made | {"time": np.minimum(end, lost), "died": (end <= lost).astype(np.float64)}


def answered_otherwise(point: tuple[str, int, float, int], rng: np.random.Generator) -> Answer:
    """What one release of an amount or of times says."""
    kind, records, epsilon, sums = point
    own = OWN[kind]
    alone = multiplier(epsilon) * math.sqrt(SILOS / (SILOS - 2))
    sigma = alone * own.stacked.sensitivity * math.sqrt(sums)
    table, noisy, at = others(kind, records, rng), list[Array](), own.start
    for _ in range(sums):
        total = own.sum(table, at, np.ones((records, 1)))
        noisy.append(total + sigma * rng.standard_normal(own.size))
        at = own.update(noisy, sigma, at) if len(noisy) < sums else at
    return own.answer(noisy, sigma, at)


def answered(point: tuple[str, int, float, int], rng: np.random.Generator) -> Answer:
    """What one release says."""
    start, records, epsilon, sums = point
    if start in OWN:
        return answered_otherwise(point, rng)
    steps = NEWTON[start]
    alone = multiplier(epsilon) * math.sqrt(SILOS / (SILOS - 2))
    rounds = steps.rounds(sums)
    sigma = alone * steps.stacked.sensitivity * math.sqrt(rounds)
    table, noisy = cells(records, rng) if start in STARTS else told_of(start, records, rng), []
    parameters = steps.begun_at(released(start, rng))
    place, total = None, np.zeros(0)
    for _ in range(rounds):
        if place is None or (place != parameters).any():
            place, total = parameters, steps.sum(table, parameters, np.ones((records, 1)))
        noisy.append(total + sigma * rng.standard_normal(steps.size))
        parameters = steps.update(noisy, sigma, parameters)
    return steps.answer(noisy, sigma, parameters)


def truths_of(start: str) -> dict[tuple[str, ...], float]:
    """What is told of the law, by column, level and class."""
    covariates = STEPS.asked.covariates
    if start == "classes":
        effects = CLASSES[1:] * covariates.per_unit[:, None]
        return {
            (*name, f"{one} against I"): math.exp(effects[place, number])
            for place, name in enumerate(covariates.names)
            for number, one in enumerate(STAGE.categories[1:])
        }
    law = OTHER if start in OWN else LAWS[start][1:]
    effects = law * covariates.per_unit * {"amounts": 10.0, "logarithms": 0.5}.get(start, 1.0)
    told = effects if start == "amounts" else np.exp(effects)
    return {(*name, ""): float(one) for name, one in zip(covariates.names, told, strict=True)}


def measured(point: tuple[str, int, float, int], runs: int) -> dict[str, object]:
    """A row."""
    rng = np.random.default_rng([PLACES.index(point[0]), point[1], int(4 * point[2]), point[3]])
    per_unit, truths = STEPS.asked.covariates.per_unit, truths_of(point[0])
    rows = [row for _ in range(runs) for row in answered(point, rng).rows]
    held = [row.low <= truths[row.column, row.level, row.group] <= row.high for row in rows]
    widths = [_width(row) / per_unit[0] for row in rows if row.column == "age"]
    return {
        "releases": runs,
        "told": len(rows) / runs / len(truths),
        "coverage": float(np.mean(held)) if held else math.nan,
        "width": float(np.mean(widths)) if widths else math.nan,
    }


def _width(row: Estimate) -> float:
    return math.log(row.high / row.low) if row.error_of else row.high - row.low


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=200)
    options = options_of(parser, arguments)
    runs = 5 if options.small else options.runs
    points = [
        (start, records, epsilon, sums)
        for start in (STARTS[:1] if options.small else STARTS)
        for records in (RECORDS[:1] if options.small else RECORDS)
        for epsilon in (EPSILONS[1:] if options.small else EPSILONS)
        for sums in SUMS
    ]
    points += [
        (kind, records, epsilon, 10 if kind == "times" else 1)
        for kind in ("amounts", "times")
        for records in (RECORDS[:1] if options.small else RECORDS)
        for epsilon in (EPSILONS[1:] if options.small else EPSILONS)
    ]
    points += [
        (kind, records, epsilon, 1 if kind in OWN else 2)
        for kind in PLACES[5:]
        for records in (MORE[:1] if options.small else MORE)
        for epsilon in (LATER[1:] if options.small else LATER)
    ]
    fill(
        Table(path=Path(options.out) / "coefficients_coverage.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(points[number], runs),
        module="experiments.coefficients_coverage",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
