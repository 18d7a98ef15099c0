"""Whether what a plan says "yes" to is answered, and whether intervals hold then.

    python -m experiments.planned_answers [--small] [--runs 150]

For each kind of statistic, cohorts of 300 to 20,000 records with a question, a number of sites and
an epsilon from .1 to 8 are drawn at random, and asked by the encodings and the answers alone, ten
times each; the noise is that of a secure sum (see `experiments.statistics`). Covariates are skewed:
a laboratory value with a long tail, rare classes, few events; at the end the data sets of
`experiments.statistics`, at four epsilons each, fifty times. Coverage is that of regressions'
intervals where the plan said yes, records drawn anew from the law for each release, against what
100,000 records of it give without noise; so lines that are not the law's are held too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments import statistics as known
from experiments import statistics_data as data
from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation import baseline_table
from hubbub.estimation.cox import Cox, cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.linear import Linear
from hubbub.estimation.logistic_regression import Logistic, logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.stacking import stack
from hubbub.estimation.statistic import Answer, Expectation, Iterated, OneSum
from hubbub.estimation.survival import Survival

Cells = dict[str, NDArray[np.float64]]
AGE = Column(name="age", low=20, high=90)
LAB = Column(name="lab", low=0, high=500)
SEX = Column(name="sex", categories=("f", "m"))
RARE = Column(name="rare", categories=("no", "yes"))
STAGE = Column(name="stage", categories=("I", "II", "III", "IV"))
DIED = Column(name="died", categories=("no", "yes"))
TIME = Column(name="time", low=0, high=60)
GRID = tuple(map(float, range(0, 37, 3)))
OLDER = Levels(column=AGE, cuts=(50, 65))
CLASSES = (Levels(column=SEX), Levels(column=RARE), Levels(column=STAGE), OLDER)
NUMBERS = (AGE, LAB)
KINDS = (
    *("table", "quantiles", "histogram", "crosstab", "survival"),
    *("logistic", "logistic on numbers", "linear", "cox", "cox on numbers"),
)
EVENT = Column(name="event", categories=("no", "yes"))
RELEASES, OF_A_SETTING = 10, 50
RECORDS, EPSILONS = (300, 20_000), (0.1, 8.0)
KEY = ("setting", "cohorts")
COLUMNS = (*KEY, "yes", "perhaps", "no", "answered_of_yes", "answered_of_perhaps", "coverage")
ANSWERED = {"yes": "answered_of_yes", "perhaps": "answered_of_perhaps"}


@dataclass(frozen=True, kw_only=True)
class Law:
    """How records of a cohort are drawn; all numbers are drawn at random once."""

    shape: tuple[float, float]
    lab: tuple[float, float]
    sex: float
    rare: float
    stages: tuple[float, ...]
    effects: tuple[float, ...]
    hazard: float
    censored: float

    def records(self, number: int, rng: np.random.Generator) -> Cells:
        """So many records."""
        age = 20 + 70 * rng.beta(*self.shape, number)
        lab = np.minimum(rng.lognormal(*self.lab, number), 500.0)
        sex, rare = ((rng.random(number) < one).astype(np.float64) for one in (self.sex, self.rare))
        stage = rng.choice(4, number, p=self.stages).astype(np.float64)
        parts = np.array([(age - 55) / 35, np.log(lab / 50) / 2, sex, rare, stage / 2])
        risk = np.asarray(self.effects) @ parts
        risk -= risk.mean()
        death = rng.exponential(1 / self.hazard, number) * np.exp(-risk)
        left = np.minimum(rng.exponential(self.censored, number), 60.0)
        return {
            "age": age,
            "lab": lab,
            "sex": sex,
            "rare": rare,
            "stage": stage,
            "time": np.minimum(death, left),
            "event": (death <= left).astype(np.float64),
            "died": (death <= 12).astype(np.float64),
        }


def law(rng: np.random.Generator) -> Law:
    """A law at random."""
    stages = rng.dirichlet([2.0] * 4)
    return Law(
        shape=(rng.uniform(1.5, 8), rng.uniform(1.5, 8)),
        lab=(math.log(rng.uniform(40, 120)), rng.uniform(0.4, 0.9)),
        sex=rng.uniform(0.25, 0.75),
        rare=rng.uniform(0.06, 0.5),
        stages=tuple(stages),
        effects=tuple(rng.normal(0, 0.5, 5)),
        hazard=math.exp(rng.uniform(math.log(0.006), math.log(0.04))),
        censored=rng.uniform(25, 200),
    )


def question(kind: str, rng: np.random.Generator) -> OneSum | Iterated:
    """A question of a kind at random."""
    classes = tuple(CLASSES[place] for place in rng.permutation(4)[: rng.integers(1, 4)])
    number = LAB if OLDER in classes else NUMBERS[rng.integers(2)]
    mixed = (number, *classes[: rng.integers(0, 3)])
    by = classes[0] if rng.random() < 0.5 else None
    asked: Mapping[str, object] = {
        "table": lambda: (
            baseline_table.Table(columns=(AGE, LAB, STAGE), by=CLASSES[rng.integers(2)])
            if by
            else baseline_table.Table(columns=(AGE, LAB, SEX, STAGE))
        ),
        "quantiles": lambda: Quantiles(column=AGE, edges=tuple(np.linspace(20, 90, 65).tolist())),
        "histogram": lambda: Histogram(column=AGE, edges=tuple(np.linspace(20, 90, 15).tolist())),
        "crosstab": lambda: Crosstab(rows=CLASSES[2], across=CLASSES[rng.integers(2)]),
        "survival": lambda: Survival(time=TIME, event=EVENT, edges=GRID, by=by),
        "logistic": lambda: Logistic(outcome=DIED, on=classes),
        "logistic on numbers": lambda: logistic(DIED, mixed),
        "linear": lambda: Linear(
            outcome=LAB, on=(*mixed[:1], *classes) if number == AGE else classes
        ),
        "cox": lambda: Cox(time=TIME, event=EVENT, edges=GRID, on=classes),
        "cox on numbers": lambda: cox(TIME, EVENT, GRID, mixed),
    }
    return asked[kind]()  # type: ignore[operator]


def release(
    asked: OneSum | Iterated, cells: Cells, sigma: float, rng: np.random.Generator
) -> Answer:
    """One release; sigma is the noise if one sum were all."""
    stacked = stack({"one": asked})
    noise, parameters, sums = sigma * math.sqrt(stacked.rounds), stacked.start, []
    kept: dict[bytes, NDArray[np.float64]] = {}
    for _ in range(stacked.rounds):
        at = parameters.tobytes()
        if at not in kept:
            kept = {at: stacked.sum(cells, parameters)}
        sums.append(kept[at] + noise * rng.standard_normal(stacked.size))
        parameters = stacked.update(sums, noise, parameters)
    return stacked.answers(sums, noise)["one"]


def planned(asked: OneSum | Iterated, records: int, sigma: float) -> Expectation:
    """What its plan says."""
    stacked = stack({"one": asked})
    return stacked.expected_of("one", records, sigma * math.sqrt(stacked.rounds))


def word(expected: Expectation) -> str:
    """What `hubbub plan` says."""
    return "yes" if expected.answered else "perhaps" if expected.possible else "no"


def loguniform(rng: np.random.Generator, between: tuple[float, float]) -> float:
    """A number between two, whose logarithm is uniform."""
    return math.exp(rng.uniform(*map(math.log, between)))


def of_a_kind(kind: str, cohorts: int) -> dict[str, object]:
    """All that is measured of one kind of statistic, over cohorts at random."""
    rng, said, held = np.random.default_rng([1, KINDS.index(kind)]), [], []
    for _ in range(cohorts):
        cohort, number = law(rng), int(loguniform(rng, RECORDS))
        sites, asked = int(rng.integers(4, 40)), question(kind, rng)
        sigma = data.multiplier(loguniform(rng, EPSILONS)) * math.sqrt(sites / (sites - 2))
        plan = word(planned(asked, number, sigma))
        answers = [
            release(asked, cohort.records(number, rng), sigma, rng)
            for _ in range(RELEASES if plan != "no" else 0)
        ]
        said.append((plan, [not one.refusal for one in answers]))
        if plan == "yes" and kind.split(maxsplit=1)[0] in ("logistic", "linear", "cox"):
            truth = known.truth_of(release(asked, cohort.records(100_000, rng), known.EXACT, rng))
            held += [hit for one in answers for hit in known.hits(one, truth, counts=False)]
    return counted(said) | {"coverage": known.mean(held)}


def of_a_setting(name: str) -> dict[str, object]:
    """The same of one statistic of a data set."""
    setting, rng = known.SETTINGS[name], np.random.default_rng(1)
    whole, asked = known.patients(setting.patients), setting.asked[setting.looked_at]
    said = []
    for epsilon in (0.1, 0.35, 1.0, 4.0):
        sigma = known.sigma_of("secure sum", data.multiplier(epsilon), whole.sites)
        plan = word(planned(asked, len(whole.site), sigma))
        answers = [release(asked, dict(whole.cells), sigma, rng) for _ in range(OF_A_SETTING)]
        said.append((plan, [not one.refusal for one in answers]))
    return counted(said) | {"coverage": math.nan}


def counted(said: Sequence[tuple[str, Sequence[bool]]]) -> dict[str, object]:
    """How often a plan said what, and how often what it said was answered."""
    plans = {plan: sum(one == plan for one, _ in said) for plan in ("yes", "perhaps", "no")}
    return plans | {
        column: known.mean(one for said_of, found in said if said_of == plan for one in found)
        for plan, column in ANSWERED.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=150)
    options = options_of(parser, arguments)
    kinds = ("crosstab", "logistic") if options.small else KINDS
    cohorts = 4 if options.small else options.runs
    settings = () if options.small else [one for one in known.SETTINGS if "whole" not in one]
    points = {(kind, cohorts): partial(of_a_kind, kind, cohorts) for kind in kinds}
    points |= {(name, 4): partial(of_a_setting, name) for name in settings}
    keys = [dict(zip(KEY, point, strict=True)) for point in points]
    measures = list(points.values())
    fill(
        Table(path=options.out / "planned_answers.csv", key=KEY, columns=COLUMNS),
        keys,
        lambda number, _: measures[number](),
        module="experiments.planned_answers",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
