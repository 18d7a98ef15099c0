"""How well statistics come out of one noisy sum, against local noise and each site alone.

    python -m experiments.statistics [--small] [--runs 200]

The noise is simulated directly: a secure sum of N silos, one of which may collude, has the variance
z^2 N / (N - 2) in all, times the number of sums; with local noise every silo adds z^2 of its own; a
site alone has its own records and z^2. Errors are those against the pooled exact answer. Coverage
is counted twice: against the pooled answer, and, with records drawn anew from the data for each
release, against the data as the population. A refusal is counted, not scored. Other ways than the
secure sum have a quarter of the releases. Size is that of tests whose groups were dealt at random
among the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import statistics_data as data
from experiments.command import fill, options_of, parser_of
from experiments.results import Row, Table
from hubbub.core.tabular.levels import Levels
from hubbub.estimation import baseline_table
from hubbub.estimation.cox import Cox, cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.linear import Linear
from hubbub.estimation.logistic_regression import Logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.stacking import stack
from hubbub.estimation.statistic import Answer, Estimate, Iterated, NoisyTest, OneSum, Parameters
from hubbub.estimation.survival import Survival

Array = NDArray[np.float64]
EPSILONS = (0.1, 0.5, 1.0, 2.0)
MODES = ("secure sum", "local noise", "each site alone")
EXACT = 1e-6  # noise of what counts as exact
KEY = ("setting", "mode", "epsilon")
MEASURES = ("error", "mean_z", "power", "size", "se_ratio")
COVERAGES = ("coverage_pooled", "coverage_population", "coverage_band")
COLUMNS = (*KEY, "releases", "answered", *MEASURES, *COVERAGES)
OLDER = Levels(column=data.AGE, cuts=(40, 50, 60, 70))
ON = (OLDER, Levels(column=data.DIABETES))
MONTHLY = tuple(map(float, range(37)))
QUARTERS = tuple(365.25 / 4 * k for k in range(13))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One statistic, alone or among others, of one data set.

    Args:
        patients: the data set's name.
        asked: all statistics of the study.
        looked_at: the one that is measured.
        dealt: a column that is dealt at random where a test's size is measured.
    """

    patients: str
    asked: Mapping[str, OneSum | Iterated]
    looked_at: str
    dealt: str = ""


def alone(patients: str, one: OneSum | Iterated, dealt: str = "") -> Setting:
    """A study with one statistic."""
    return Setting(patients=patients, asked={"one": one}, looked_at="one", dealt=dealt)


DIALYSIS_TABLE = baseline_table.Table(columns=(data.AGE, data.DISEASE, data.BEGIN, data.EVENT))
AGES = Quantiles(column=data.AGE, edges=tuple(map(float, range(20, 91))))
BY_DIABETES = Survival(
    time=data.MONTHS, event=data.EVENT, edges=MONTHLY, by=Levels(column=data.DIABETES)
)
COX = Cox(time=data.MONTHS, event=data.EVENT, edges=MONTHLY, on=ON)
DISEASE_DIED = Crosstab(rows=Levels(column=data.DISEASE), across=Levels(column=data.EVENT))
WHOLE = {
    "table": DIALYSIS_TABLE,
    "ages": AGES,
    "disease": DISEASE_DIED,
    "survival": BY_DIABETES,
    "cox": COX,
}
SETTINGS = {
    "table, dialysis": alone("dialysis", DIALYSIS_TABLE),
    "table, leukaemia": alone(
        "leukaemia", baseline_table.Table(columns=(data.AGE, data.SEX, data.OLD, data.WBC))
    ),
    "table, heart": alone("heart", baseline_table.Table(columns=data.HEART)),
    "quartiles of age, dialysis": alone("dialysis", AGES),
    "Kaplan-Meier, dialysis": alone(
        "dialysis", Survival(time=data.MONTHS, event=data.EVENT, edges=MONTHLY)
    ),
    "Kaplan-Meier, leukaemia": alone(
        "leukaemia", Survival(time=data.DAYS, event=data.EVENT, edges=QUARTERS)
    ),
    "log-rank, dialysis": alone("dialysis", BY_DIABETES, "diabetes"),
    "log-rank, leukaemia": alone(
        "leukaemia",
        Survival(time=data.DAYS, event=data.EVENT, edges=QUARTERS, by=Levels(column=data.OLD)),
        "old",
    ),
    "chi-square, dialysis": alone("dialysis", DISEASE_DIED, "disease"),
    "logistic, dialysis": alone("dialysis", Logistic(outcome=data.DIED, on=ON)),
    "Cox, dialysis": alone("dialysis", COX),
    "Cox, leukaemia": alone(
        "leukaemia",
        Cox(
            time=data.DAYS,
            event=data.EVENT,
            edges=QUARTERS,
            on=(Levels(column=data.OLD), Levels(column=data.SEX)),
        ),
    ),
    "Cox on numbers, leukaemia": alone(
        "leukaemia",
        cox(data.DAYS, data.EVENT, QUARTERS, (data.AGE, Levels(column=data.SEX))),
    ),
    "Cox on numbers, dialysis": alone(
        "dialysis",
        cox(data.MONTHS, data.EVENT, MONTHLY[::3], (data.AGE, Levels(column=data.DIABETES))),
    ),
    "linear, dialysis": alone(
        "dialysis", Linear(outcome=data.AGE, on=(data.BEGIN, Levels(column=data.EVENT)))
    ),
    **{
        f"whole study: {name}": Setting(patients="dialysis", asked=WHOLE, looked_at=name)
        for name in ("table", "survival", "cox")
    },
}
SMALL = ("table, heart",)


class Truth(NamedTuple):
    """The exact answer, by what a number is about."""

    answer: Answer
    rows: Mapping[tuple[str, ...], float]
    errors: Mapping[tuple[str, ...], float]
    curves: Mapping[str, Array]


@cache
def patients(name: str) -> data.Patients:
    """A data set, read once."""
    return data.DATA[name]()


@cache
def vectors(name: str) -> Callable[[Parameters], Array]:
    """The stacked vectors of all records of a setting, at the parameters of a sum."""
    setting = SETTINGS[name]
    stacked, cells = stack(setting.asked), patients(setting.patients).cells
    if stacked.rounds > 1:
        return lambda parameters: stacked.encode(cells, parameters)
    rows = stacked.encode(cells)
    return lambda _: rows


def released(
    setting: Setting,
    rows: Callable[[Parameters], Array],
    weights: Array,
    sigma: float,
    rng: np.random.Generator,
) -> Answer:
    """One release, each record counted with its weight; sigma is the noise if one sum is all."""
    stacked = stack(setting.asked)
    noise, parameters, sums = sigma * math.sqrt(stacked.rounds), stacked.start, []
    for _ in range(stacked.rounds):
        sums.append(weights @ rows(parameters) + noise * rng.standard_normal(stacked.size))
        parameters = stacked.update(sums, noise, parameters)
    return stacked.answers(sums, noise)[setting.looked_at]


def truth_of(answer: Answer) -> Truth:
    """An exact answer in a form to look things up in."""
    return Truth(
        answer,
        {name_of(row): row.value for row in answer.rows},
        {name_of(row): row.standard_error for row in answer.rows},
        {curve.name: np.asarray(curve.y) for curve in answer.curves},
    )


def name_of(row: Estimate) -> tuple[str, ...]:
    """What a number is about."""
    return (row.quantity, row.column, row.level, row.group)


def sigma_of(mode: str, noise: float, sites: int) -> float:
    """Standard deviation of the noise in a number of the sum that is read."""
    if mode == "secure sum":
        return noise * math.sqrt(sites / (sites - 2))
    return noise * math.sqrt(sites) if mode == "local noise" else noise


def measured(name: str, mode: str, epsilon: float, runs: int) -> dict[str, object]:
    """All that is measured of one point."""
    setting, rows = SETTINGS[name], vectors(name)
    whole = patients(setting.patients)
    sigma = sigma_of(mode, data.multiplier(epsilon), whole.sites)
    rng, records = np.random.default_rng(1), len(whole.site)
    answered = partial(released, setting, rows, rng=rng)
    everybody = np.ones((1, records))
    truth = truth_of(answered(everybody[0], EXACT))
    alone = np.eye(whole.sites)[:, whole.site] if mode == MODES[2] else everybody
    releases = [answered(alone[run % len(alone)], sigma) for run in range(runs)]
    told = [release for release in releases if not release.refusal]
    found = {
        "releases": runs,
        "answered": len(told) / runs,
        "error": mean(error(release, truth) for release in told),
        # Which group has more events than expected is no matter here.
        "mean_z": abs(mean(z for release in told for z in tested(release, lambda test: test.z))),
        "power": mean(p < 0.05 for release in told for p in tested(release, lambda t: t.p_value)),
        "se_ratio": mean(ratio for release in told for ratio in ratios(release, truth)),
        "size": math.nan,
        "coverage_pooled": math.nan,
        "coverage_population": math.nan,
        "coverage_band": math.nan,
    }
    if mode == MODES[2]:
        return found
    drawn = [
        answered(rng.multinomial(records, np.full(records, 1 / records)), sigma)
        for _ in range(runs)
    ]
    found["coverage_pooled"] = mean(hit for release in told for hit in hits(release, truth, True))
    found["coverage_population"] = mean(
        hit for release in drawn for hit in hits(release, truth, False)
    )
    found["coverage_band"] = mean(hit for release in drawn for hit in bands(release, truth))
    if setting.dealt:
        dealt = (
            released(setting, dealt_rows(setting, rng), everybody[0], sigma, rng)
            for _ in range(runs)
        )
        found["size"] = mean(
            p < 0.05 for release in dealt for p in tested(release, lambda test: test.p_value)
        )
    return found


def dealt_rows(setting: Setting, rng: np.random.Generator) -> Callable[[Parameters], Array]:
    """The vectors of all records after one column was dealt at random."""
    cells = patients(setting.patients).cells
    again = {**cells, setting.dealt: rng.permutation(cells[setting.dealt])}
    return lambda parameters: stack(setting.asked).encode(again, parameters)


def error(release: Answer, truth: Truth) -> float:
    """Largest error of a curve or of a share; mean error of quantiles or of log ratios."""
    if release.curves and release.kind == "survival":
        curve = release.curves[0]  # of all records
        return float(np.abs(np.asarray(curve.y) - truth.curves[curve.name][: len(curve.y)]).max())
    rows = [(row.value, truth.rows.get(name_of(row)), row.quantity) for row in release.rows]
    shares = [abs(one - two) for one, two, what in rows if two is not None and "share" in what]
    if shares:
        return 100 * max(shares)
    ratio = [
        abs(math.log(one / two)) for one, two, what in rows if two is not None and "ratio" in what
    ]
    return mean(ratio or (abs(one - two) for one, two, _ in rows if two is not None))


def ratios(release: Answer, truth: Truth) -> list[float]:
    """Standard errors over those without noise."""
    return [
        row.standard_error / truth.errors[name_of(row)]
        for row in release.rows
        if release.kind in ("logistic", "cox", "linear") and name_of(row) in truth.errors
    ]


def tested(release: Answer, of: Callable[[NoisyTest], float | None]) -> list[float]:
    """One number of each test."""
    return [value for test in release.tests if (value := of(test)) is not None]


def hits(release: Answer, truth: Truth, counts: bool) -> list[bool]:
    """Whether each interval holds the exact value; numbers of records only if wanted."""
    found = [
        row.low <= truth.rows[name_of(row)] <= row.high
        for row in release.rows
        if name_of(row) in truth.rows and (counts or row.quantity != "records")
    ]
    for curve in release.curves:
        exact = truth.curves[curve.name][: len(curve.y)]
        inside = (np.asarray(curve.low) <= exact) & (exact <= np.asarray(curve.high))
        found += [bool(one) for one in inside[1:]]
    return found


def bands(release: Answer, truth: Truth) -> list[bool]:
    """Whether each band holds the whole exact curve."""
    return [
        bool(
            np.all(np.asarray(curve.band_low) <= truth.curves[curve.name][: len(curve.y)])
            and np.all(truth.curves[curve.name][: len(curve.y)] <= np.asarray(curve.band_high))
        )
        for curve in release.curves
        if curve.band_low
    ]


def mean(values: object) -> float:
    """Of numbers or truths; nan of none."""
    found = list(values)  # type: ignore[call-overload]
    return float(np.mean(found)) if found else math.nan


def draw(rows: Sequence[Row], path: Path) -> None:
    """Errors of three statistics over epsilon, and coverage of all."""
    from experiments.drawing import LOOKS, panels, plain_ticks, save

    shown = {
        "table, dialysis": "worst share of Table 1, points",
        "Kaplan-Meier, dialysis": "largest error of the curve",
        "log-rank, dialysis": "log-rank z (exact: 7.9)",
    }
    figure, axes = panels(len(shown) + 1, width=4.8)
    for panel, (name, label) in zip(axes, shown.items(), strict=False):
        column = "mean_z" if "log-rank" in name else "error"
        for (colour, marker), mode in zip(LOOKS, MODES, strict=False):
            line = [row for row in rows if (row["setting"], row["mode"]) == (name, mode)]
            pairs = [(float(row["epsilon"]), abs(float(row[column]))) for row in line]
            if pairs:
                panel.plot(*zip(*pairs, strict=True), color=colour, marker=marker, label=mode)
        panel.set_xscale("log")
        panel.set_yscale("linear" if column == "mean_z" else "log")
        panel.set_title(name, fontsize=11)
        panel.set_ylabel(label)
    for row in rows:
        held = float(row["coverage_population"])
        if row["mode"] == MODES[0] and not math.isnan(held):
            axes[-1].plot(float(row["epsilon"]), held, ".", color=LOOKS[0][0])
    axes[-1].axhline(0.95, color="#000000", linewidth=0.8)
    axes[-1].set(xscale="log", ylim=(0.85, 1.0), ylabel="coverage of 95 % intervals")
    axes[-1].set_title("all settings, records drawn anew", fontsize=11)
    for panel in axes:
        plain_ticks(panel.xaxis, EPSILONS)
        panel.set_xlabel("epsilon")
    if axes[0].lines:
        axes[0].legend(fontsize=9)
    save(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table and draw it."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=200)
    options = options_of(parser, arguments)
    names = SMALL if options.small else tuple(SETTINGS)
    runs = 5 if options.small else options.runs
    points = [
        (name, mode, epsilon)
        for mode in MODES
        for name in names
        if mode == MODES[0] or "whole" not in name
        for epsilon in EPSILONS
    ]
    table = Table(path=options.out / "statistics.csv", key=KEY, columns=COLUMNS)
    fill(
        table,
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(
            *points[number], runs if points[number][1] == MODES[0] else -(-runs // 4)
        ),
        module="experiments.statistics",
        arguments=arguments,
    )
    draw(table.rows(), options.out / "statistics.png")


if __name__ == "__main__":
    main()
