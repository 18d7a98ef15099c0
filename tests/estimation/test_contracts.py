"""Every kind of statistics keeps the contract of kinds from outside; broken ones do not."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm
from tests.estimation.asking.test_own_statistic import Above

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells
from hubbub.estimation.histogram import Histogram
from hubbub.estimation.kinds import KINDS
from hubbub.estimation.statistic import Answer, Expectation, OneSum, scaled
from hubbub.estimation.statistic_keys import StatisticKeys
from hubbub.testing import check_statistic
from hubbub.testing import statistics as suite
from hubbub.testing.laws import too_often

AGE = Column(name="age", low=20, high=90)
TIME = Column(name="time", low=0, high=10)
SINCE = Column(name="since", low=0, high=9)
SEX = Column(name="sex", categories=("f", "m"))
BLOOD = Column(name="blood", categories=("0", "A", "B", "AB"))
DIED = Column(name="died", categories=("no", "yes"))
COLUMNS = (AGE, TIME, SINCE, SEX, BLOOD, DIED)
GRID: dict[str, Any] = {
    "time": "time",
    "event": "died",
    "bins": list(map(float, range(1, 8))),
    "horizon": 8.0,
}
CLASSES, NUMBERS = {"age": [40, 60], "sex": "categories"}, {"age": "number", "blood": "categories"}
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "table": ("table", {"columns": ["age", "time", "sex", "blood"]}),
    "table by group": ("table", {"columns": ["age", "blood"], "by": "sex"}),
    "histogram": ("histogram", {"column": "age", "bins": [40.0, 60.0]}),
    "quantiles": ("quantiles", {"column": "age", "bins": 6}),
    "crosstab": ("crosstab", {"rows": "sex", "columns": "blood", "test": "chi-square"}),
    "crosstab of pairs": ("crosstab", {"rows": "blood", "columns": "died"}),
    "quantiles by group": ("quantiles", {"column": "age", "by": "sex", "test": "wilcoxon"}),
    "survival": ("survival", GRID),
    "survival in two bins": ("survival", {"time": "time", "event": "died", "bins": 2}),
    "survival by group": ("survival", {**GRID, "by": "sex", "test": "log-rank"}),
    "survival, late": ("survival", {**GRID, "entry": "since"}),
    "incidence": ("incidence", {**GRID, "event": "blood"}),
    "incidence by group": ("incidence", {**GRID, "event": "blood", "by": "sex", "test": "gray"}),
    "rates": ("rates", {"time": "time", "event": "died", "horizon": 8.0, "by": "sex"}),
    "centres": ("centres", {"by": "blood", "outcome": "died"}),
    "logistic": ("logistic", {"outcome": "died", "covariates": CLASSES}),
    "linear": ("linear", {"outcome": "time", "covariates": {"age": "number", "sex": "categories"}}),
    "cox": ("cox", {**GRID, "covariates": CLASSES}),
    "logistic on numbers": ("logistic", {"outcome": "died", "covariates": NUMBERS}),
    "cox on numbers": ("cox", {**GRID, "covariates": {"age": "number", "sex": "categories"}}),
}
assert {kind for kind, _ in TABLES.values()} == KINDS.keys()  # none is left untried


def patients() -> Cells:
    """As they come: most are followed for less than a horizon of 8, older patients die sooner."""
    rng, records = np.random.default_rng(1), 2000
    age = 20 + 70 * rng.beta(2, 2, records)
    time = np.minimum(rng.exponential(200 / age), 10.0)
    cells = {
        "age": age,
        "time": time,
        "since": np.minimum(time, 9.0) * rng.choice([0.0, 0.3], records),
        "sex": rng.integers(0, 2, records).astype(float),
        "blood": rng.integers(0, 4, records).astype(float),
        "died": (rng.random(records) < 0.6).astype(float),
    }
    cells["age"][::40] = np.nan
    return cells


def in_bins(cells: Cells) -> dict[tuple[str, str, str, str], float]:
    """What a histogram of ages counts, by NumPy."""
    counts, _ = np.histogram(cells["age"], [20, 40, 60, np.inf])
    names = ("20 to <40", "40 to <60", "60 to 90")
    return {
        **{("records", "age", name, ""): count for name, count in zip(names, counts, strict=True)},
        ("records", "age", "missing", ""): np.isnan(cells["age"]).sum(),
    }


def means(cells: Cells) -> dict[tuple[str, str, str, str], float]:
    return {("mean", "age", "", ""): np.nanmean(cells["age"])}


TRUTHS = {"histogram": in_bins, "table": means}


@pytest.mark.quick_cases("table", "histogram", "crosstab of pairs", "survival in two bins")
@pytest.mark.parametrize("name", TABLES)
def test_a_kind_of_statistics_keeps_its_contract(name: str) -> None:
    kind, table = TABLES[name]
    check_statistic(KINDS[kind], table, COLUMNS, cells=patients(), truth=TRUTHS.get(name))


# Kinds that break a law each, all of one that keeps them.


ABOVE = {"column": "age", "than": 50.0}


def test_a_kind_of_ones_own_keeps_the_contract() -> None:
    def true(cells: Cells) -> dict[tuple[str, str, str, str], float]:
        return {("records", "", "", ""): float((cells["age"] > 50).sum())}

    check_statistic(Above, ABOVE, [AGE], truth=true)
    assert "above" not in KINDS  # and is forgotten again


class Longer(Above):
    def encode(self, cells: Cells) -> Array:
        return 1.01 * super().encode(cells)


class Further(Above):
    """Both signs, which are two apart."""

    def encode(self, cells: Cells) -> Array:
        return 2 * super().encode(cells) - 1


class Unclipped(Above):
    """Bounded, but where a cell is infinite."""

    def encode(self, cells: Cells) -> Array:
        low, high = self.column.bounds
        unit = (cells[self.column.name] - low) / (high - low)
        return np.where(unit < 1e6, np.minimum(np.nan_to_num(unit), 1), unit)[:, None] * 0.5


class Unmissing(Above):
    def encode(self, cells: Cells) -> Array:
        return np.abs(scaled(cells, self.column))[:, None]


class Centred(Above):
    """By the mean of the records that are there, which one of them moves for all."""

    def encode(self, cells: Cells) -> Array:
        inside = np.clip(np.nan_to_num(cells["age"], nan=20.0), 20, 90)
        return (inside > (inside.mean() if len(inside) else 0.0)).astype(np.float64)[:, None]


class Overwriting(Above):
    def encode(self, cells: Cells) -> Array:
        cells["age"][:] = np.nan_to_num(cells["age"])
        return super().encode(cells)


class Drawing(Above):
    """Adds noise of its own to the answer."""

    def answer(self, sums: Array, sigma: float) -> Answer:
        return super().answer(sums + random.random(), sigma)


SEEN: list[float] = [0.0]


class Remembering(Above):
    """Tells the records that it has seen beside the noisy sum."""

    def encode(self, cells: Cells) -> Array:
        SEEN.append(float(np.nansum(cells["age"][-3:])))
        return super().encode(cells)

    def answer(self, sums: Array, sigma: float) -> Answer:
        return super().answer(sums + SEEN[-1], sigma)


class Consuming(Above):
    def answer(self, sums: Array, sigma: float) -> Answer:
        sums += 1
        return super().answer(sums - 1, sigma)


class Outside(Above):
    """More than nobody has no interval that holds it."""

    def answer(self, sums: Array, sigma: float) -> Answer:
        answer = super().answer(sums, sigma)
        return replace(
            answer, rows=tuple(replace(row, high=min(row.high, 1e6)) for row in answer.rows)
        )


class Crowded(Above):
    """No block where there is no record."""

    def encode(self, cells: Cells) -> Array:
        inside = cells[self.column.name].reshape(len(cells[self.column.name]), -1)
        return (inside > self.than).astype(np.float64)


class Deaf(Above):
    def answer(self, sums: Array, sigma: float) -> Answer:
        return super().answer(np.array([100.0]), 1.0)


class Failing(Above):
    def answer(self, sums: Array, sigma: float) -> Answer:
        return super().answer(np.array([math.exp(math.log(sums[0]))]), sigma)


class Biased(Above):
    def answer(self, sums: Array, sigma: float) -> Answer:
        return super().answer(1.02 * sums, sigma)


class Narrow(Above):
    def answer(self, sums: Array, sigma: float) -> Answer:
        answer = super().answer(sums, sigma)
        rows = [
            replace(row, low=(row.value + row.low) / 2, high=(row.value + row.high) / 2)
            for row in answer.rows
        ]
        return replace(answer, rows=tuple(rows))


class Promising(Above):
    def answer(self, sums: Array, sigma: float) -> Answer:
        enough = sums[0] > 40 * sigma
        return super().answer(sums, sigma) if enough else self.make_answer("too few")


class Hopeful(Above):
    def expected(self, records: float, sigma: float) -> Expectation:
        return super().expected(records, 10 / (1 + sigma))


class Silent(Above):
    methods = ""


class Forgetful(Above):
    """A setting that no study carries on."""

    def settings(self) -> dict[str, Any]:
        return {"column": self.column.name, "than": 50.0}


class Lenient(Above):
    """Takes what is no number for 50."""

    @classmethod
    def read(cls, keys: StatisticKeys) -> OneSum:
        than = keys.section.content.get("than")
        given = than if isinstance(than, float) else 50.0
        return cls(column=keys.column("column", numeric=True), than=given, **keys.common)


class Crashing(Above):
    @classmethod
    def read(cls, keys: StatisticKeys) -> OneSum:
        than = float(keys.section.content["than"])
        return cls(column=keys.column("column", numeric=True), than=than, **keys.common)


class Nameless(Above):
    kind = "histogram"


class Unwritable(Above):
    def answer(self, sums: Array, sigma: float) -> Answer:
        return replace(super().answer(sums, sigma), notes=({1, 2},))  # type: ignore[arg-type]


class Shapeless(Above):
    size = 2


class Loose(Above):
    sensitivity, diameter = 5.0, 5.0


class Untold(Above):
    """A key that is not written."""

    def settings(self) -> dict[str, Any]:
        return {"column": self.column.name}


class Blank(Above):
    @property
    def title(self) -> str:  # type: ignore[override]
        raise ZeroDivisionError


BROKEN: dict[type[OneSum], str] = {
    Longer: "no block .* is longer than `sensitivity`",
    Further: "is further from another than `diameter`",
    Unclipped: "finite whatever stands in cells",
    Unmissing: "finite whatever stands in cells",
    Centred: "follows from that record alone",
    Overwriting: "leaves the cells as they are",
    Drawing: "follows from the noisy sums and their noise alone",
    Remembering: "follows from the noisy sums and their noise alone",
    Consuming: "leaves the sums as they are",
    Outside: "each interval .* holds its own estimate",
    Crowded: "makes a block of any record",
    Deaf: "says what the sums say",
    Failing: "has an answer for any finite sums",
    Biased: "true answer where there is no noise",
    Narrow: r"hold their value in 0\.95 of releases",
    Promising: "is answered where a plan promises that",
    Hopeful: "no better answer with more noise",
    Silent: "`methods` .* is a line of its own",
    Forgetful: "the same after it is written and read",
    Lenient: r"statistics\.checked\.than",
    Crashing: "refused by a StudyError, found KeyError",
    Nameless: "a name of its own",
    Unwritable: "has an answer for any finite sums",
    Loose: "no more than 4 times what blocks reach, found 5, of which a search reaches 1",
    Untold: "is read as it is written, found StudyError",
    Blank: "nothing of Blank raises while it is tried, found ZeroDivisionError",
    Shapeless: r"makes \(2000, size\) numbers",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_kind_that_breaks_a_law_is_refused_by_that_law(kind: type[OneSum]) -> None:
    def true(cells: Cells) -> dict[tuple[str, str, str, str], float]:
        return {("records", "", "", ""): float((cells["age"] > 60).sum())}

    with pytest.raises(AssertionError, match=BROKEN[kind]):
        check_statistic(kind, {"column": "age", "than": 60.0}, [AGE], truth=true)


def test_a_histogram_that_is_told_a_wrong_truth_is_refused() -> None:
    def wrong(cells: Cells) -> dict[tuple[str, str, str, str], float]:
        return {row: count + 1 for row, count in in_bins(cells).items()}

    with pytest.raises(AssertionError, match="true answer"):
        check_statistic(Histogram, TABLES["histogram"][1], [AGE], truth=wrong)


def test_what_the_contract_lets_through_is_what_its_head_says() -> None:
    def least(number: int, chance: float, rows: int) -> int:
        """How many of so many releases are too often, where an answer has so many rows."""
        each = suite._FALSE_ALARM / (rows + 1)
        return next(hits for hits in range(number) if too_often(hits, number, chance, each))

    releases = (suite._RELEASES, suite._RELEASES_OF_MANY_SUMS)
    miss, head = 1 - 0.95 + suite._SHORT, " ".join((suite.__doc__ or "").split())
    for rows, misses, refusals in ((1, (28, 17), (13, 9)), (40, (31, 18), (14, 10))):
        assert tuple(least(number, miss, rows) for number in releases) == misses
        assert tuple(least(number, suite._REFUSED, rows) for number in releases) == refusals
    assert "from 28 misses of its value in 100 on, or 17 in 40, and 13 or 9 releases" in head
    assert "where it has forty, from 31 or 18 and 14 or 10 on" in head
    for part, chances in ((3, (0.99, 0.83)), (2, (0.67, 0.07))):
        short = 2 * norm.cdf(-norm.isf(0.025) / part)  # misses of intervals so much shorter
        found = [binom.sf(least(n, miss, 40) - 1, n, short) for n in releases]
        assert all(abs(one - said) < 0.015 for one, said in zip(found, chances, strict=True)), found
    assert "with a probability of .99 or, of many sums, .83; half as long with .67 or .07" in head
