"""A thousand releases of twelve settings: coverage, what is answered of what was planned, sizes.

    python -m experiments.many_releases [--small] [--runs 1000]

Six settings are those of `experiments.statistics`; six have records of laws that know nothing of
the grid: a laboratory value with a long tail, skewed ages, classes of 3 %, outcomes of 4 %, losses
that differ between arms. In each release records are drawn anew from the setting's own, which are
the population; the noise of one secure sum (delta 1e-5, one silo colluding) is added to their exact
sum by one draw, as the protocol adds grid Gaussians, and the decoder of a study reads it. The truth
is the answer without noise; of curves, quantiles and medians what is counted among the records.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from experiments import statistics as known
from experiments import statistics_data as data
from experiments.command import fill, options_of, parser_of
from experiments.planned_answers import AGE, LAB, RARE, SEX, STAGE, TIME, word
from experiments.results import Table
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation import baseline_table
from hubbub.estimation.cox import Cox
from hubbub.estimation.linear import Linear
from hubbub.estimation.logistic_regression import Logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.stacking import Stacked, stack
from hubbub.estimation.statistic import Answer, Iterated, OneSum
from hubbub.estimation.survival import Survival

Array = NDArray[np.float64]
Cells = dict[str, Array]
KEY = ("setting",)
ASKED = ("epsilon", "records", "releases")
FOUND = ("plan", "answered", "coverage", "lowest", "coverage_lowest", "rejected")
COLUMNS = (*KEY, *ASKED, *FOUND)
POPULATION, SILOS = 20_000, 20
EVENT = Column(name="event", categories=("no", "yes"))
ARM = Levels(column=Column(name="arm", categories=("usual", "new")))
CLASSES = (Levels(column=SEX), Levels(column=RARE), Levels(column=STAGE))
GRID = tuple(map(float, range(0, 37, 3)))
AT = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One question, and whom it is asked of.

    Args:
        cells: makes the population.
        asked: the question.
        epsilon: of its one sum, or of all of them.
        records: of a release.
        silos: among which they are.
    """

    cells: Callable[[], Cells]
    asked: OneSum | Iterated
    epsilon: float
    records: int
    silos: int = SILOS


def population() -> Cells:
    """Patients of two arms that differ in nothing but when they are lost."""
    rng, half = np.random.default_rng(7), POPULATION // 2
    age = 20 + 70 * rng.beta(6.0, 2.0, half)
    lab = np.minimum(rng.lognormal(3.5, 1.0, half), 500.0)
    sex, rare = ((rng.random(half) < share) * 1.0 for share in (0.35, 0.03))
    stage = rng.choice(4, half, p=[0.55, 0.25, 0.15, 0.05]) * 1.0
    risk = 0.03 * (age - 70) + 0.4 * sex + 0.9 * rare + 0.35 * stage
    times = 90.0 * rng.weibull(0.7, half) * np.exp(-risk / 0.7)
    out = 5.0 + 0.5 * (age - 55) + 6.0 * sex + 10.0 * rng.standard_t(4, half)
    died = (rng.random(half) < 1.0 / (1.0 + np.exp(4.3 - risk))) * 1.0
    one = {"age": age, "lab": lab, "sex": sex, "rare": rare, "stage": stage, "died": died}
    both = {name: np.tile(values, 2) for name, values in one.items()}
    both["arm"] = np.repeat([0.0, 1.0], half)
    left = np.where(both["arm"] == 1, 70.0, 110.0) * rng.random(2 * half)
    both["time"] = np.minimum(np.tile(times, 2), left)
    both["event"] = (np.tile(times, 2) <= left) * 1.0
    both["score"] = np.tile(np.clip(out, -60.0, 120.0), 2)
    return both


SCORE = Column(name="score", low=-60, high=120)
DIED = Column(name="died", categories=("no", "yes"))


def shipped(name: str, epsilon: float) -> Setting:
    """One of `experiments.statistics`."""
    setting = known.SETTINGS[name]
    whole = known.patients(setting.patients)
    return Setting(
        cells=lambda: dict(whole.cells),
        asked=setting.asked[setting.looked_at],
        epsilon=epsilon,
        records=len(whole.site),
        silos=whole.sites,
    )


@cache
def settings() -> Mapping[str, Setting]:
    """All twelve, by name."""
    table = baseline_table.Table(columns=(AGE, LAB, RARE, STAGE), by=ARM)
    curves = Survival(time=TIME, event=EVENT, edges=GRID, by=ARM)
    spread = tuple(np.geomspace(1.0, 501.0, 65) - 1.0)
    lab = Quantiles(column=LAB, edges=(*spread[:-1], 500.0), at=AT)
    logistic = Logistic(outcome=DIED, on=CLASSES)
    cox = Cox(time=TIME, event=EVENT, edges=GRID, on=(ARM, *CLASSES))
    linear = Linear(outcome=SCORE, on=(AGE, *CLASSES[:2]))
    made_up = {
        "table of two arms alike": (table, 2.0, 2_000),
        "curves of two arms alike": (curves, 1.0, 2_200),
        "quantiles, long tail": (lab, 1.0, 6_000),
        "logistic, rare outcome": (logistic, 1.0, 20_000),
        "Cox, 48 patterns": (cox, 1.0, 50_000),
        "linear, heavy tails": (linear, 4.0, 6_000),
    }
    return {
        "Kaplan-Meier, dialysis": shipped("Kaplan-Meier, dialysis", 1.0),
        "log-rank, dialysis": shipped("log-rank, dialysis", 0.5),
        "table, dialysis": shipped("table, dialysis", 1.0),
        "quartiles of age, dialysis": shipped("quartiles of age, dialysis", 1.0),
        "chi-square, dialysis": shipped("chi-square, dialysis", 0.1),
        "Cox, dialysis": shipped("Cox, dialysis", 1.0),
        **{
            name: Setting(cells=population, asked=asked, epsilon=epsilon, records=records)
            for name, (asked, epsilon, records) in made_up.items()
        },
    }


def truth_of(setting: Setting, exact: Answer, cells: Cells) -> dict[tuple[str, ...], float]:
    """What each number of an answer is in the population, and each point of a curve."""
    asked, found = setting.asked, {known.name_of(row): row.value for row in exact.rows}
    for curve in exact.curves:
        found |= {("curve", curve.name, f"{x:g}"): y for x, y in zip(curve.x, curve.y, strict=True)}
    if isinstance(asked, Quantiles) and asked.column == LAB:  # not of whole numbers
        for row, p in zip(
            [r for r in exact.rows if r.quantity != "records"], asked.at, strict=True
        ):
            found[known.name_of(row)] = float(np.quantile(cells[asked.column.name], p))
    if isinstance(asked, Survival):
        places = asked.by.places(cells) if asked.by else np.zeros(len(cells["time"]), np.int64)
        for number, name in enumerate(asked.by.names if asked.by else ("",)):
            one = {key: values[places == number] for key, values in cells.items()}
            found |= counted_curve(one[asked.time.name], one[asked.event.name], name, asked.edges)
    return found


def counted_curve(
    times: Array, events: Array, name: str, edges: Sequence[float]
) -> dict[tuple[str, ...], float]:
    """The product-limit estimate of all records, at each edge."""
    order = np.lexsort((-events, times))
    at_risk = len(times) - np.arange(len(times))
    survived = np.cumprod(1.0 - events[order] / at_risk)
    before = np.searchsorted(times[order], edges, side="right")
    values = np.append(1.0, survived)[before]
    return {("curve", name, f"{x:g}"): float(y) for x, y in zip(edges, values, strict=True)}


def held(answer: Answer, truth: Mapping[tuple[str, ...], float]) -> list[tuple[str, bool]]:
    """Of each interval what it is of, and whether the truth lies in it."""
    found = [
        (row.quantity, row.low <= truth[known.name_of(row)] <= row.high)
        for row in answer.rows
        if known.name_of(row) in truth and row.quantity != "records"
    ]
    for curve in answer.curves:
        points = zip(curve.x[1:], curve.low[1:], curve.high[1:], strict=True)
        found += [
            ("curve", low <= truth[key] <= high)
            for x, low, high in points
            if (key := ("curve", curve.name, f"{x:g}")) in truth
        ]
    return found


def measured(name: str, runs: int) -> dict[str, object]:
    """All that is measured of one setting."""
    setting, rng = settings()[name], np.random.default_rng([2, len(name)])
    stacked, cells = stack({"one": setting.asked}), setting.cells()
    sigma = data.multiplier(setting.epsilon) * math.sqrt(setting.silos / (setting.silos - 2))
    rows = vectors(stacked, cells)
    everybody = np.ones(len(cells[next(iter(cells))]))
    exact = released(stacked, rows, everybody, known.EXACT, rng)
    truth = truth_of(setting, exact, cells)
    hits: dict[str, list[bool]] = defaultdict(list)
    answered, rejected = 0, []
    for _ in range(runs):
        weights = rng.multinomial(setting.records, everybody / len(everybody)) * 1.0
        answer = released(stacked, rows, weights, sigma, rng)
        answered += not answer.refusal
        for quantity, hit in held(answer, truth):
            hits[quantity].append(hit)
        rejected += [test.p_value < 0.05 for test in answer.tests]
    coverages = {quantity: known.mean(found) for quantity, found in hits.items()}
    lowest = min(coverages, key=lambda one: coverages[one], default="")
    plan = stacked.expected_of("one", setting.records, sigma * math.sqrt(stacked.rounds))
    return {
        "epsilon": setting.epsilon,
        "records": setting.records,
        "releases": runs,
        "plan": word(plan),
        "answered": answered / runs,
        "coverage": known.mean(hit for found in hits.values() for hit in found),
        "lowest": lowest,
        "coverage_lowest": coverages.get(lowest, math.nan),
        "rejected": known.mean(rejected),
    }


def vectors(stacked: Stacked, cells: Cells) -> Callable[[bytes], Array]:
    """The stacked vectors of all records at parameters, the last ones kept."""
    return lru_cache(maxsize=1)(lambda at: stacked.encode(cells, np.frombuffer(at, np.float32)))


def released(
    stacked: Stacked,
    rows: Callable[[bytes], Array],
    weights: NDArray[np.floating],
    sigma: float,
    rng: np.random.Generator,
) -> Answer:
    """One release, each record counted with its weight; sigma is the noise if one sum is all."""
    noise, parameters, sums = sigma * math.sqrt(stacked.rounds), stacked.start, []
    for _ in range(stacked.rounds):
        exact = weights @ rows(parameters.tobytes())
        sums.append(exact + noise * rng.standard_normal(stacked.size))
        parameters = stacked.update(sums, noise, parameters)
    return stacked.answers(sums, noise)["one"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=1000)
    options = options_of(parser, arguments)
    names = ("table of two arms alike",) if options.small else tuple(settings())
    runs = 5 if options.small else options.runs
    fill(
        Table(path=options.out / "many_releases.csv", key=KEY, columns=COLUMNS),
        [{"setting": name} for name in names],
        lambda number, _: measured(names[number], runs),
        module="experiments.many_releases",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
