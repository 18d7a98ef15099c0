"""What several blocks tell alike is the same in all, and nothing is taken to be that is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from estimation.made_up import AGE, DIED, SEX, STAGE, TIME, patients
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.baseline_table import Table
from hubbub.estimation.cox import Cox
from hubbub.estimation.crosstab import Crosstab
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.logistic_regression import Logistic, logistic
from hubbub.estimation.quantiles import Quantiles
from hubbub.estimation.stacking import projected, stack
from hubbub.estimation.statistic import Answer, Iterated, OneSum
from hubbub.estimation.survival import Survival

COLUMNS = {one.name: one for one in (AGE, DIED, SEX, STAGE, TIME)}
GRID = tuple(map(float, range(0, 25, 3)))
BINS = tuple(map(float, range(20, 91, 10)))


def asked(*complete: str) -> dict[str, OneSum | Iterated]:
    """A question of every kind, some of whose columns are complete."""
    age, died, sex, stage, time = (
        replace(COLUMNS[name], complete=name in complete)
        for name in ("age", "died", "sex", "stage", "time")
    )
    by_sex, by_stage, older = (
        Levels(column=sex),
        Levels(column=stage),
        Levels(column=age, cuts=BINS[1:-1]),
    )
    return {
        "table": Table(columns=(age, sex, stage, died)),
        "table by sex": Table(columns=(age, stage), by=by_sex),
        "histogram": Histogram(column=age, edges=BINS),
        "quantiles": Quantiles(column=age, edges=BINS),
        "crosstab": Crosstab(rows=by_stage, across=by_sex),
        "survival": Survival(time=time, event=died, edges=GRID, by=by_sex),
        "all": Survival(time=time, event=died, edges=GRID),
        "logistic": Logistic(outcome=died, on=(by_sex, older)),
        "cox": Cox(time=time, event=died, edges=GRID, on=(by_sex, by_stage)),
        "numbers": logistic(died, (age, by_sex)),
    }


def with_gaps(*complete: str) -> dict[str, np.ndarray]:
    """Patients who lack a tenth of the cells of every column that is not complete."""
    rng = np.random.default_rng(1)
    cells = patients()
    return {
        name: np.where(rng.random(len(one)) < 0.1, np.nan, one) if name not in complete else one
        for name, one in cells.items()
    }


CASES = ((), ("sex",), ("sex", "stage"), ("age", "died", "time"), tuple(COLUMNS))


@pytest.mark.parametrize("complete", CASES, ids="-".join)
def test_without_noise_all_margins_of_one_name_are_equal(complete: tuple[str, ...]) -> None:
    """Whatever cells are missing of columns that may lack some."""
    stacked = stack(asked(*complete))
    total, apart = stacked.sum(with_gaps(*complete)), stacked._apart
    assert len(apart) >= 7  # of the tables, the histogram and the quantiles
    lengths = np.linalg.norm(apart, axis=1)
    assert np.abs(apart @ total / lengths).max() < 1e-4


def test_a_column_that_lacks_cells_and_says_that_it_does_not_would_be_seen() -> None:
    """The test above can fail."""
    stacked = stack(asked("sex"))
    apart, total = stacked._apart, stacked.sum(with_gaps())
    assert np.abs(apart @ total / np.linalg.norm(apart, axis=1)).max() > 1


def numbers(found: dict[str, Answer]) -> list[float]:
    whole = [
        row.value
        for name in ("table", "survival", "all")
        for row in found[name].rows
        if row.quantity == "records" and not row.group
    ]
    parts = (("table by sex", ""), ("crosstab", "sex"))
    return whole + [
        sum(
            row.value
            for row in found[name].rows
            if row.quantity == "records" and row.column == column and (row.group or column)
        )
        for name, column in parts
    ]


def test_one_cohort_has_one_number_of_records() -> None:
    stacked, rng = stack(asked(*COLUMNS)), np.random.default_rng(2)
    total = stacked.sum(patients(), stacked.start)
    sums = [total + 3.0 * rng.standard_normal(stacked.size) for _ in range(stacked.rounds)]
    found = numbers(stacked.answers(sums, 3.0))
    assert len(found) == 5
    assert np.ptp(found) < 1e-6
    assert found[0] == pytest.approx(1500, abs=60)


def test_together_blocks_know_a_number_as_well_as_least_squares_say() -> None:
    """A histogram's total beside a table's: weights by their variances, without a draw."""
    questions: dict[str, OneSum | Iterated] = {
        "table": Table(columns=(SEX,)),
        "histogram": Histogram(column=AGE, edges=BINS),
    }
    stacked, sigma = stack(questions), 5.0
    kept = [projected(one, stacked._apart)[0] / stacked.scales[0] for one in np.eye(stacked.size)]
    variances = [sigma**2 / stacked.scales[0] ** 2, 8 * sigma**2 / stacked.scales[1] ** 2]
    best = 1 / np.sqrt(sum(1 / one for one in variances))
    assert sigma * np.linalg.norm(kept) == pytest.approx(best, rel=1e-5)
    assert stacked.sum(patients()) @ kept == pytest.approx(1500, rel=1e-5)


@pytest.mark.slow
def test_intervals_of_margins_that_are_shared_hold_the_truth() -> None:
    """60 releases of shares and curves; at least 93 of 100 intervals hold the pooled number."""
    stacked, rng = stack(asked(*COLUMNS)), np.random.default_rng(4)
    total = stacked.sum(patients(), stacked.start)
    exact = stacked.answers([total] * stacked.rounds, 1e-9)
    held, sigma = [], 4.0
    for _ in range(60):
        sums = [total + sigma * rng.standard_normal(stacked.size) for _ in range(stacked.rounds)]
        found = stacked.answers(sums, sigma)
        for name in ("table", "crosstab", "cox", "logistic"):
            known = {(r.quantity, r.column, r.level, r.group): r.value for r in exact[name].rows}
            held += [
                row.low - 1e-6
                <= known[row.quantity, row.column, row.level, row.group]
                <= row.high + 1e-6
                for row in found[name].rows
            ]
    assert len(held) > 1000
    assert np.mean(held) >= 0.93
