"""Bias and coverage of survival curves, tests, quantiles and slopes where values lie off the grid.

    python -m experiments.coverage [--small] [--runs 500]

Records are drawn anew for each release from a law whose truth is known, and encoded; the noise of
one secure sum at epsilon 1 (delta 1e-5, 20 silos, one of which may collude) is added to their sum.
Bias is that of the mean over all releases, in standard deviations of an estimate, at its worst
place; coverage that of 95 % intervals, over all places and at the worst; a test's size is how often
p < .05 where nothing differs. Numbers at risk are held against those of the records drawn. The
largest number of records has two fifths of the releases, and no log-rank tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from experiments.statistics_data import multiplier
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.cox import Cox
from hubbub.estimation.linear import Linear
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.statistic import Answer, OneSum
from hubbub.estimation.survival import Survival

Array = NDArray[np.float64]
Generator = np.random.Generator
Cells = dict[str, Array]
RECORDS = (500, 2200, 6000, 20_000, 50_000)
EPSILON, SILOS = 1.0, 20
KEY = ("question", "law", "records")
MEASURES = ("bias", "coverage", "coverage_least", "coverage_band")
BESIDE = ("median_bias", "median_coverage", "at_risk_coverage", "size")
COLUMNS = (*KEY, "releases", "answered", *MEASURES, *BESIDE)

TIME = Column(name="time", low=0, high=60)
DIED = Column(name="died", categories=("no", "yes"))
ARM = Levels(column=Column(name="arm", categories=("usual", "new")))
STAGE = Levels(column=Column(name="stage", categories=("I", "II", "III")))
GRID = tuple(3.0 * k for k in range(13))
AT = (0.1, 0.25, 0.5, 0.75, 0.9)
RATIOS = (1.7, 1.4, 2.0)  # of the arm, of stages II and III
SLOPE = 0.6


class Law(NamedTuple):
    """A law of values, as numbers drawn and as its distribution function."""

    draw: Callable[[Generator, int], Array]
    below: Callable[[Array], Array]
    top: float  # public upper bound, where there is one

    def quantile(self, p: float) -> float:
        """Where its distribution function is p."""
        return float(brentq(lambda x: float(self.below(np.array(x))) - p, 0.0, 10 * self.top))


def of(drawn: stats.rv_frozen, top: float) -> Law:
    """A law of SciPy's."""
    return Law(lambda rng, n: np.asarray(drawn.rvs(n, random_state=rng)), drawn.cdf, top)


def mixed(one: Law, other: Law, share: float) -> Law:
    """The first law with this share, else the second."""
    return Law(
        lambda rng, n: np.where(rng.random(n) < share, one.draw(rng, n), other.draw(rng, n)),
        lambda x: share * one.below(x) + (1 - share) * other.below(x),
        max(one.top, other.top),
    )


TIMES = {
    "exponential": of(stats.expon(scale=40), 60),
    "Weibull, rising": of(stats.weibull_min(1.7, scale=40), 60),
    "Weibull, falling": of(stats.weibull_min(0.7, scale=40), 60),
    "mixture": mixed(of(stats.expon(scale=6), 60), of(stats.expon(scale=70), 60), 0.3),
}
VALUES = {
    "normal": of(stats.norm(60, 12), 120),
    "gamma": of(stats.gamma(4, scale=8), 120),
    "log-normal": of(stats.lognorm(0.5, scale=80), 600),
    "mixture": mixed(of(stats.norm(30, 5), 100), of(stats.norm(65, 12), 100), 0.4),
}
FANS = {"alike": 0.0, "e^.2z": 0.2, "e^.3z": 0.3}


class Release(NamedTuple):
    """What is told of one release: at each place the error, and whether the interval holds."""

    errors: Sequence[float] = ()
    held: Sequence[bool] = ()
    band: Sequence[bool] = ()
    median: tuple[float, bool] | None = None
    at_risk: Sequence[bool] = ()
    rejected: Sequence[bool] = ()


def asked_once(asked: OneSum, cells: Cells, rng: Generator) -> Answer:
    """The answer of one release."""
    sigma = total_noise() * asked.sensitivity
    sums = asked.encode(cells).sum(axis=0)
    return asked.answer(sums + sigma * rng.standard_normal(len(sums)), sigma)


@cache
def total_noise() -> float:
    """Standard deviation of all noise on a number, at sensitivity 1."""
    return multiplier(EPSILON) * math.sqrt(SILOS / (SILOS - 2))


def censored(time: Array, left: Array, **more: Array) -> Cells:
    """What is seen of times where some leave before."""
    return {"time": np.minimum(time, left), "died": (time <= left) * 1.0, **more}


def survival(law: str, records: int, rng: Generator) -> Release:
    """A curve over 36 months in 12 bins; all leave evenly over 60 months."""
    cells = censored(TIMES[law].draw(rng, records), rng.uniform(0, 60, records))
    answer = asked_once(Survival(time=TIME, event=DIED, edges=GRID), cells, rng)
    if not answer.curves or len(answer.curves[0].x) < len(GRID):
        return Release()
    (curve,) = answer.curves
    x = np.asarray(curve.x)
    true = 1 - TIMES[law].below(x)
    inside = [
        (np.asarray(low) <= true) & (true <= np.asarray(high))
        for low, high in ((curve.low, curve.high), (curve.band_low, curve.band_high))
    ]
    half = TIMES[law].quantile(0.5)
    medians = [row for row in answer.rows if row.quantity == "median"]
    apart = np.abs(curve.at_risk - np.sum(cells["time"] > x[:, None], axis=1))
    return Release(
        errors=list(np.asarray(curve.y)[1:] - true[1:]),
        held=list(inside[0][1:]),
        band=[bool(inside[1].all())],
        median=(medians[0].value - half, medians[0].low <= half <= medians[0].high)
        if medians
        else None,
        at_risk=list(apart <= stats.norm.ppf(0.975) * np.asarray(curve.at_risk_error)),
    )


def groups(rng: Generator, records: int) -> tuple[Array, Array, Array]:
    """Arms, stages, and when records leave: those of the new arm sooner."""
    arm, stage = (rng.random(records) < 0.3) * 1.0, rng.integers(0, 3, records) * 1.0
    sooner, later = rng.exponential(15, records), rng.uniform(10, 80, records)
    return arm, stage, np.where(arm == 1, sooner, later)


def log_rank(law: str, records: int, rng: Generator) -> Release:
    """Two arms with the same law, of which one is followed for less."""
    arm, _, left = groups(rng, records)
    cells = censored(TIMES[law].draw(rng, records), left, arm=arm)
    answer = asked_once(Survival(time=TIME, event=DIED, edges=GRID, by=ARM), cells, rng)
    return Release(rejected=[test.p_value < 0.05 for test in answer.tests])


def hazards(law: str, records: int, rng: Generator) -> Release:
    """Cox regression on two columns with classes, hazards in proportion to a Weibull law's."""
    arm, stage, left = groups(rng, records)
    ratio = RATIOS[0] ** arm * np.choose(stage.astype(int), (1.0, *RATIOS[1:]))
    time = TIMES[law].draw(rng, records) * ratio ** (-1 / SHAPES[law])
    cells = censored(time, left, arm=arm, stage=stage)
    rows = asked_once(Cox(time=TIME, event=DIED, edges=GRID, on=(ARM, STAGE)), cells, rng).rows
    if len(rows) < len(RATIOS):
        return Release()
    pairs = list(zip(rows, RATIOS, strict=True))
    return Release(
        errors=[math.log(row.value / true) for row, true in pairs],
        held=[row.low <= true <= row.high for row, true in pairs],
    )


SHAPES = {"exponential": 1.0, "Weibull, rising": 1.7, "Weibull, falling": 0.7}


def quantiles(law: str, records: int, rng: Generator) -> Release:
    """Five quantiles from 64 bins."""
    top = VALUES[law].top
    column = Column(name="x", low=0, high=top)
    edges = tuple(top * k / 64 for k in range(65))
    cells = {"x": VALUES[law].draw(rng, records)}
    rows = asked_once(Quantiles(column=column, edges=edges, at=AT), cells, rng).rows
    pairs = [(row, VALUES[law].quantile(p)) for row, p in zip(rows, AT, strict=False)]
    return Release(
        errors=[row.value - true for row, true in pairs],
        held=[row.low <= true <= row.high for row, true in pairs],
    )


def slopes(law: str, records: int, rng: Generator) -> Release:
    """One slope, residuals spreading with a normal covariate."""
    age, outcome = Column(name="age", low=20, high=90), Column(name="outcome", low=0, high=120)
    z = np.clip(rng.standard_normal(records), -35 / 12, 35 / 12)
    spread = 9 * np.exp(FANS[law] * z)
    noise = spread * rng.standard_normal(records)
    cells = {"age": 55 + 12 * z, "outcome": 60 + SLOPE * 12 * z + noise}
    rows = asked_once(Linear(outcome=outcome, on=(age,)), cells, rng).rows
    return Release(
        errors=[row.value - SLOPE for row in rows],
        held=[row.low <= SLOPE <= row.high for row in rows],
    )


QUESTIONS: Mapping[str, tuple[Callable[[str, int, Generator], Release], Sequence[str]]] = {
    "survival": (survival, tuple(TIMES)),
    "log-rank": (log_rank, ("exponential", "Weibull, falling")),
    "cox": (hazards, tuple(SHAPES)),
    "quantiles": (quantiles, tuple(VALUES)),
    "linear": (slopes, tuple(FANS)),
}


def measured(question: str, law: str, records: int, runs: int) -> dict[str, object]:
    """All that is measured of one point."""
    release, rng = QUESTIONS[question][0], np.random.default_rng(records)
    found = [release(law, records, rng) for _ in range(runs)]
    told = [one for one in found if one.errors or one.rejected]
    errors, held = (np.array([one[k] for one in told if one.errors]) for k in (0, 1))
    medians = [one.median for one in told if one.median]
    apart = np.array([error for error, _ in medians])
    return {
        "releases": runs,
        "answered": len(told) / runs,
        "bias": _bias(errors),
        "coverage": mean(held),
        "coverage_least": float(held.mean(axis=0).min()) if held.size else math.nan,
        "coverage_band": mean([one.band for one in told if one.band]),
        "median_bias": _bias(apart),
        "median_coverage": mean([inside for _, inside in medians]),
        "at_risk_coverage": mean([one.at_risk for one in told if one.at_risk]),
        "size": mean([one.rejected for one in told if one.rejected]),
    }


def _bias(errors: Array) -> float:
    """The largest mean, in standard deviations; nan of too few releases."""
    if len(errors) < 5:
        return math.nan
    return float(np.max(np.abs(errors.mean(axis=0)) / errors.std(axis=0)))


def mean(values: object) -> float:
    """Of truths; nan of none."""
    found = np.asarray(values, dtype=np.float64)
    return float(found.mean()) if found.size else math.nan


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=500)
    options = options_of(parser, arguments)
    runs = 5 if options.small else options.runs
    points = [
        (question, law, records)
        for question, (_, laws) in QUESTIONS.items()
        for law in (laws[:1] if options.small else laws)
        for records in (RECORDS[1:3] if options.small else RECORDS)
        if question != "log-rank" or records < RECORDS[-1]
    ]
    fill(
        Table(path=Path(options.out) / "coverage.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(
            *points[number], runs if points[number][2] < RECORDS[-1] else -(-runs * 2 // 5)
        ),
        module="experiments.coverage",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
