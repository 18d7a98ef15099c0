"""Coverage of intervals and size of tests of what papers print besides curves and Table 1.

    python -m experiments.paper_methods [--small] [--runs 200]

Records are drawn anew for each release from a law whose truth is known, and encoded; the noise of
one secure sum at epsilon 1 (delta 1e-5, 20 silos, one of which may collude) is added to their sum.
Coverage is that of 95 % intervals over all rows of a quantity; size is how often p < .05 where
nothing differs, of centres how often any of them stands out after Holm. `answered` is how often a
quantity that was asked for is told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from experiments.statistics_data import multiplier
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.baseline_table import Table as Baseline
from hubbub.estimation.centres import Centres
from hubbub.estimation.cox import Cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.incidence import Incidence
from hubbub.estimation.logistic_regression import Logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.rates import EventRates
from hubbub.estimation.statistic import Answer, OneSum
from hubbub.estimation.survival import Survival

Array = NDArray[Any]
Cells = dict[str, Array]
RECORDS = (500, 2000, 10_000)
EPSILON, SILOS = 1.0, 20
KEY = ("question", "what", "records")
COLUMNS = (*KEY, "releases", "answered", "rows", "coverage", "size")

TIME = Column(name="time", low=0, high=60)
ENTRY = Column(name="entry", low=0, high=60)
AGE = Column(name="age", low=0, high=120)
DIED = Column(name="died", categories=("no", "yes"))
CAUSE = Column(name="cause", categories=("none", "relapse", "death"))
SEX = Levels(column=Column(name="sex", categories=("f", "m")))
STAGE = Levels(column=Column(name="stage", categories=("I", "II", "III")))
WARD = Levels(column=Column(name="ward", categories=("A", "B", "C")))
CENTRE = Levels(column=Column(name="centre", categories=tuple("abcdefgh")))
GRID = tuple(3.0 * k for k in range(13))
AT = (0.25, 0.5, 0.75)


class Question(NamedTuple):
    """What is asked of which records, and what is true of a row of the answer.

    Args:
        asked: the statistic.
        draw: records from a generator.
        truth: of a row, by its quantity, level and group; None where it has none.
        quantities: whose coverage is measured, each with how many rows there should be.
        tests: whose size is measured: names of tests, or quantities whose p-values are.
    """

    asked: OneSum
    draw: Callable[[np.random.Generator, int], Cells]
    truth: Callable[[Any, Cells], float | None]
    quantities: Mapping[str, int]
    tests: Sequence[str] = ()


def _basics(rng: np.random.Generator, n: int) -> Cells:
    return {
        "sex": (rng.random(n) < 0.4) * 1.0,
        "stage": rng.choice(3, n, p=[0.5, 0.3, 0.2]) * 1.0,
        "ward": rng.integers(0, 3, n) * 1.0,
    }


def _followed(cells: Cells, rng: np.random.Generator, hazard: Array) -> Cells:
    event, left = rng.exponential(1 / hazard), rng.uniform(12, 60, len(hazard))
    return {**cells, "time": np.minimum(event, left), "died": (event <= left) * 1.0}


def _risks(rng: np.random.Generator, n: int) -> Cells:
    cells = _basics(rng, n)
    return {**cells, "died": (rng.random(n) < 0.25 + 0.15 * cells["sex"]) * 1.0}


def _logits(rng: np.random.Generator, n: int) -> Cells:
    cells = _basics(rng, n)
    risk = 1 / (1 + np.exp(1 - 0.5 * cells["sex"] - 0.4 * cells["stage"]))
    return {**cells, "died": (rng.random(n) < risk) * 1.0}


def _hazards(rng: np.random.Generator, n: int) -> Cells:
    cells = _basics(rng, n)
    return _followed(cells, rng, 0.02 * np.exp(0.5 * cells["sex"] + 0.4 * cells["stage"]))


def _in_wards(rng: np.random.Generator, n: int, effect: float = 0.5) -> Cells:
    """Wards have hazards of their own, and other shares of the second sex."""
    cells = _basics(rng, n)
    sex = (rng.random(n) < 0.3 + 0.2 * cells["ward"]) * 1.0
    base = np.array([0.01, 0.02, 0.05])[cells["ward"].astype(int)]
    return _followed({**cells, "sex": sex}, rng, base * np.exp(effect * sex))


def _alike_in_wards(rng: np.random.Generator, n: int) -> Cells:
    return _in_wards(rng, n, 0.0)


def _by_sex(rng: np.random.Generator, n: int) -> Cells:
    cells = _basics(rng, n)
    return _followed(cells, rng, 0.03 * (1 + 0.5 * cells["sex"]))


def _alike_by_sex(rng: np.random.Generator, n: int) -> Cells:
    cells = _basics(rng, n)
    return _followed(cells, rng, np.full(n, 0.03))


def _ages(rng: np.random.Generator, n: int) -> Cells:
    cells = _basics(rng, n)
    return {**cells, "age": rng.gamma(9, 6, n), "died": (rng.random(n) < 0.3) * 1.0}


def _causes(rng: np.random.Generator, n: int) -> Cells:
    relapse, death = rng.exponential(50, n), rng.exponential(100, n)
    first, left = np.minimum(relapse, death), rng.uniform(12, 60, n)
    kind = np.where(relapse <= death, 1.0, 2.0)
    return {"time": np.minimum(first, left), "cause": np.where(first <= left, kind, 0.0)}


def _centres(rng: np.random.Generator, n: int, spread: float = 0.05) -> Cells:
    centre = rng.integers(0, len(CENTRE), n)
    share = np.clip(0.3 + spread * rng.standard_normal(len(CENTRE)), 0.05, 0.95)
    died = (rng.random(n) < share[centre]) * 1.0
    return {"centre": centre * 1.0, "died": died, "shares": share}


def _centres_alike(rng: np.random.Generator, n: int) -> Cells:
    return _centres(rng, n, 0.0)


def _entered(rng: np.random.Generator, n: int, effect: float = 0.5) -> Cells:
    """A third from the start, others within a year; who had the event before is never seen."""
    cells = _basics(rng, 3 * n)
    hazard = 0.03 * np.exp(effect * cells["sex"])
    entry = np.where(rng.random(3 * n) < 1 / 3, 0.0, rng.uniform(0, 12, 3 * n))
    event, left = rng.exponential(1 / hazard), entry + rng.uniform(6, 48, 3 * n)
    cells |= {"time": np.minimum(event, left), "died": (event <= left) * 1.0, "entry": entry}
    there = np.flatnonzero(entry < cells["time"])[:n]
    return {name: values[there] for name, values in cells.items()}


def _entered_alike(rng: np.random.Generator, n: int) -> Cells:
    return _entered(rng, n, 0.0)


def _causes_by_sex(rng: np.random.Generator, n: int, later: float = 3.0) -> Cells:
    """Two of five would relapse, in both sexes at the same times; others die, men sooner."""
    cells = _basics(rng, n)
    relapses = rng.random(n) < 0.4
    death = rng.exponential(30 / (1 + (later - 1) * cells["sex"]))
    first, left = np.where(relapses, rng.exponential(15, n), death), rng.uniform(12, 60, n)
    kind = np.where(relapses, 1.0, 2.0)
    return {**cells, "time": np.minimum(first, left), "cause": np.where(first <= left, kind, 0.0)}


def _causes_alike(rng: np.random.Generator, n: int) -> Cells:
    return _causes_by_sex(rng, n, 1.0)


def _survived(row: Any, _: Cells) -> float | None:
    rates = {"f": 0.03, "m": 0.045}
    if row.quantity == "difference of restricted means":
        return _mean_to_36(rates["m"]) - _mean_to_36(rates["f"])
    if row.group not in rates:
        return None
    rate = rates[row.group]
    return math.exp(-rate * float(row.level)) if row.quantity == "survival" else _mean_to_36(rate)


def _mean_to_36(rate: float) -> float:
    return -math.expm1(-36 * rate) / rate


def _survived_late(row: Any, _: Cells) -> float | None:
    rates = {"f": 0.03, "m": 0.03 * math.exp(0.5)}
    return math.exp(-rates[row.group] * float(row.level)) if row.group in rates else None


def _ratios(row: Any, _: Cells) -> float | None:
    if row.level == "trend per class":
        return math.exp(0.4)
    if row.column == "sex":
        return math.exp(0.5)
    if row.column == "stage":
        return math.exp(0.4 if row.level.startswith("II ") else 0.8)
    return 1.0  # interactions, of which there are none


def _risk(row: Any, _: Cells) -> float | None:
    known = {"risk difference": 0.15, "relative risk": 1.6, "odds ratio": 2.0}
    return known.get(row.quantity)


def _quantile(row: Any, _: Cells) -> float | None:
    return float(stats.gamma(9, scale=6).ppf(float(row.level)))


def _incidence(row: Any, _: Cells) -> float | None:
    kind, month = row.level.split(" by ")
    return (2 if kind == "relapse" else 1) / 3 * (1 - math.exp(-0.03 * float(month)))


def _rate(row: Any, _: Cells) -> float | None:
    if row.quantity == "rate ratio":
        return 1.5
    return {"f": 3.0, "m": 4.5}.get(row.group)


def _centre(row: Any, cells: Cells) -> float | None:
    if row.group not in CENTRE.names:
        return None
    return float(cells["shares"][CENTRE.names.index(row.group)])


def _nothing(_: Any, __: Cells) -> None:
    return None


DEAD = Levels(column=DIED)
ON = (SEX, STAGE)
PATTERNS: dict[str, Any] = {"trend": ("stage",), "subgroups": "sex"}
SURVIVAL = Survival(time=TIME, event=DIED, edges=GRID, by=SEX, at=(12.0, 24.0))
QUESTIONS: dict[str, Question] = {
    "table": Question(
        Baseline(columns=(AGE, DIED), by=STAGE), _ages, _nothing, {}, ("Welch's F", "chi-square")
    ),
    "table of two": Question(Baseline(columns=(AGE,), by=SEX), _ages, _nothing, {}, ("Welch's t",)),
    "crosstab": Question(
        Crosstab(rows=SEX, across=DEAD),
        _risks,
        _risk,
        {"risk difference": 1, "relative risk": 1, "odds ratio": 1},
    ),
    "survival": Question(
        SURVIVAL,
        _by_sex,
        _survived,
        {"survival": 4, "restricted mean": 2, "difference of restricted means": 1},
    ),
    "survival alike": Question(
        SURVIVAL, _alike_by_sex, _nothing, {}, ("difference of restricted means", "log-rank")
    ),
    "survival in wards": Question(
        Survival(time=TIME, event=DIED, edges=GRID, by=SEX, strata=WARD),
        _alike_in_wards,
        _nothing,
        {},
        ("stratified log-rank",),
    ),
    "logistic": Question(
        Logistic(outcome=DIED, on=ON, **PATTERNS), _logits, _ratios, {"odds ratio": 7}, ()
    ),
    "logistic with interactions": Question(
        Logistic(outcome=DIED, on=ON, interactions=(("sex", "stage"),)),
        _logits,
        _ratios,
        {"odds ratio": 5},
        ("interaction",),
    ),
    "cox": Question(
        Cox(time=TIME, event=DIED, edges=GRID, on=ON, test=True, **PATTERNS),
        _hazards,
        _ratios,
        {"hazard ratio": 7},
        ("proportional hazards",),
    ),
    "cox in wards": Question(
        Cox(time=TIME, event=DIED, edges=GRID, on=(SEX,), strata=WARD),
        _in_wards,
        _ratios,
        {"hazard ratio": 1},
    ),
    "quantiles by group": Question(
        Quantiles(column=AGE, edges=tuple(map(float, range(0, 121, 2))), by=SEX, test=True),
        _ages,
        _quantile,
        {"quantile": 9},
        ("Wilcoxon",),
    ),
    "incidence": Question(
        Incidence(time=TIME, event=CAUSE, edges=GRID, at=(12.0, 24.0)),
        _causes,
        _incidence,
        {"incidence": 6},
    ),
    "late entries": Question(
        Survival(time=TIME, event=DIED, edges=GRID, by=SEX, at=(12.0, 24.0), entry=ENTRY),
        _entered,
        _survived_late,
        {"survival": 4},
    ),
    "late entries alike": Question(
        Survival(time=TIME, event=DIED, edges=GRID, by=SEX, entry=ENTRY),
        _entered_alike,
        _nothing,
        {},
        ("log-rank",),
    ),
    "cox, late entries": Question(
        Cox(time=TIME, event=DIED, edges=GRID, on=(SEX,), entry=ENTRY),
        _entered,
        _ratios,
        {"hazard ratio": 1},
    ),
    "incidence alike": Question(
        Incidence(time=TIME, event=CAUSE, edges=GRID, by=SEX, test=True),
        _causes_alike,
        _nothing,
        {},
        ("Gray's",),
    ),
    "relapse alike": Question(
        Incidence(time=TIME, event=CAUSE, edges=GRID, by=SEX, test=True),
        _causes_by_sex,
        _nothing,
        {},
        ("Gray's",),
    ),
    "rates": Question(
        EventRates(time=TIME, event=DIED, horizon=36.0, by=SEX),
        _by_sex,
        _rate,
        {"rate": 2, "rate ratio": 1},
    ),
    "rates alike": Question(
        EventRates(time=TIME, event=DIED, horizon=36.0, by=SEX),
        _alike_by_sex,
        _nothing,
        {},
        ("equal rates",),
    ),
    "centres": Question(
        Centres(by=CENTRE, outcome=DIED),
        _centres,
        _centre,
        {"share": 8, "share, shrunken": 8},
    ),
    "centres alike": Question(
        Centres(by=CENTRE, outcome=DIED), _centres_alike, _nothing, {}, ("share", "chi-square")
    ),
}


def released(question: Question, cells: Cells, rng: np.random.Generator) -> Answer:
    """The answer to records, with the noise of one secure sum."""
    asked = question.asked
    sigma = multiplier(EPSILON) * asked.sensitivity * math.sqrt(SILOS / (SILOS - 2))
    sums = asked.encode(cells).sum(axis=0)
    return asked.answer(sums + sigma * rng.standard_normal(asked.size), sigma)


@cache
def measured(name: str, records: int, runs: int) -> dict[str, dict[str, object]]:
    """By quantity or test: how often it is told, and holds or rejects."""
    question, rng = QUESTIONS[name], np.random.default_rng(records)
    held: dict[str, list[bool]] = {what: [] for what in question.quantities}
    rejected: dict[str, list[bool]] = {what: [] for what in question.tests}
    for _ in range(runs):
        cells = question.draw(rng, records)
        answer = released(question, cells, rng)
        for row in answer.rows:
            exact = question.truth(row, cells) if row.quantity in held else None
            if exact is not None:
                held[row.quantity].append(row.low <= exact <= row.high)
        for what in question.tests:
            p_values = _p_values(answer, what)
            first = p_values[:1] if what == "Gray's" else p_values  # of the first kind alone
            rejected[what] += [min(first) < 0.05] if first else []
    of_rows = {
        what: _row(runs, len(found) / runs / question.quantities[what], found, "coverage")
        for what, found in held.items()
    }
    of_tests = {
        f"{what} test": _row(runs, len(found) / runs, found, "size")
        for what, found in rejected.items()
    }
    return of_rows | of_tests


def _p_values(answer: Answer, what: str) -> list[float]:
    """Of tests of a name, or of rows of a quantity, adjusted if they are."""
    tests = [one.p_value for one in answer.tests if one.name == what]
    rows = [
        row.p_value if row.p_adjusted is None else row.p_adjusted
        for row in answer.rows
        if row.quantity == what and row.p_value is not None
    ]
    return tests or rows


def _row(runs: int, answered: float, found: list[bool], column: str) -> dict[str, object]:
    share = float(np.mean(found)) if found else math.nan
    empty: dict[str, object] = {"coverage": math.nan, "size": math.nan}
    return {"releases": runs, "answered": answered, "rows": len(found)} | empty | {column: share}


def whats(question: Question) -> list[str]:
    """What is measured of a question."""
    return [*question.quantities, *(f"{one} test" for one in question.tests)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=200)
    options = options_of(parser, arguments)
    runs = 5 if options.small else options.runs
    points = [
        (name, what, records)
        for records in (RECORDS[1:2] if options.small else RECORDS)
        for name, question in QUESTIONS.items()
        for what in whats(question)
    ]
    fill(
        Table(path=options.out / "paper_methods.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(points[number][0], points[number][2], runs)[points[number][1]],
        module="experiments.paper_methods",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
