"""A contingency table of two columns, and the chi-square test of their independence.

A record's block is the one-hot vector of its cell. The test (after Gaboardi et al. 2016 and Rogers,
Kifer 2017): U = O - E is what is left of the noisy counts O when what rows and columns explain is
taken out; if nothing depends on anything its covariance is P (diag E + sigma^2 I) P', P being
the projection that takes it out, and U' Cov^+ U has a chi-square law whatever the noise is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.estimation import two_by_two
from hubbub.estimation.intervals import (
    CLEAR,
    COMPLETE,
    SURE,
    caution,
    count,
    normal_quantile,
    share,
)
from hubbub.estimation.stacking import Margins, number_of, of_parts
from hubbub.estimation.statistic import (
    TOO_FEW,
    Answer,
    Array,
    Cells,
    Estimate,
    Expectation,
    Levels,
    NoisyTest,
    OneSum,
    one_hot,
)
from hubbub.estimation.statistic_keys import StatisticKeys, classes_told

_TEST = "chi-square"


@dataclass(frozen=True, kw_only=True)
class Crosstab(OneSum):
    """How often the classes of two columns occur together; incomplete records are left out.

    Args:
        rows: classes down the table.
        across: classes across it.
        test: whether independence is tested.
        weight, confidence: see `Statistic`.

    Raises:
        StudyError: twice the same column.
    """

    rows: Levels
    across: Levels
    test: bool = True

    kind = "crosstab"
    keys = ("rows", "columns", "test")
    sensitivity = 1.0  # docs/privacy.md P23
    diameter = math.sqrt(2.0)

    @classmethod
    def read(cls, keys: StatisticKeys) -> Crosstab:
        """The statistic that a table of a study asks for."""
        rows, across = keys.levels("rows"), keys.levels("columns")
        if rows.column == across.column:
            raise keys.section.refusal("columns", "another column than rows", "name two")
        return cls(rows=rows, across=across, test=keys.test(_TEST), **keys.common)

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        tested = {"test": _TEST} if self.test else {}
        columns = {"rows": classes_told(self.rows), "columns": classes_told(self.across)}
        return {**columns, **tested}

    def __post_init__(self) -> None:
        """Refuses a column against itself."""
        if self.rows.column.name == self.across.column.name:
            raise StudyError(
                f"expected two different columns, found {self.rows.column.name} twice; name another"
            )

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return f"{self.rows.column.name} by {self.across.column.name}"

    @property
    def size(self) -> int:
        """How many numbers its block has."""
        return len(self.rows) * len(self.across)

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        row, column = self.rows.places(cells), self.across.places(cells)
        known = (row >= 0) & (column >= 0)
        return one_hot(np.where(known, row * len(self.across) + column, -1), self.size)

    @property
    def margins(self) -> Margins:
        """How many records there are, with each class and with two."""
        return of_parts((self.rows, self.across), {number_of(): np.ones(1)})

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block."""
        records = max(records, 1.0)
        row = records / len(self.rows)
        error = math.sqrt(0.25 / row + (sigma / row) ** 2)
        kept = 1.0 / (1.0 + sigma**2 * self.size / records)
        least = self._least(sigma)
        told = (
            f"cells known to ±{sigma:.3g} records, shares of a row to ±{100 * error:.2g} points "
            f"(one standard error); the test has {100 * kept:.2g} % of the information that it has "
            "without noise"
        )
        errors = {"records": sigma, "share of row": error}
        return self.make_expectation(
            errors,
            sigma,
            told,
            answered=COMPLETE * records >= (1.0 + SURE / CLEAR) * least,
            possible=records >= least,
            place=" in a cell",
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        margin = (float(sums.sum()) - self._least(sigma)) / (sigma * math.sqrt(self.size))
        notes = ("records that lack one of the two columns are left out",)
        if margin < 0:
            return self.make_answer(TOO_FEW, notes=notes)
        sigma *= float(caution(np.array(margin)))
        counts = sums.reshape(len(self.rows), len(self.across))
        tests = (chi_square(counts, sigma),) if self.test else ()
        compared = two_by_two.compared(
            counts, sigma, self.confidence, self.rows.column.name, self.rows.names
        )
        rows = (*self._cells(sums, sigma), *compared)
        return self.make_answer(rows=rows, tests=tests, notes=notes)

    def _least(self, sigma: float) -> float:
        """Records below which nothing is said."""
        return CLEAR * sigma * math.sqrt(self.size)

    def _cells(self, sums: Array, sigma: float) -> tuple[Estimate, ...]:
        z, width = normal_quantile(self.confidence), len(self.across)
        cells = []
        for place, part in enumerate(np.eye(self.size)):
            row, column = divmod(place, width)
            whole = np.zeros(self.size)
            whole[row * width : (row + 1) * width] = 1.0
            of_row = replace(share(sums, part, whole, sigma, z), quantity="share of row")
            cells += [
                replace(
                    one,
                    column=self.across.column.name,
                    level=self.across.names[column],
                    group=self.rows.names[row],
                )
                for one in (count(float(sums[place]), sigma, z), of_row)
            ]
        return tuple(cells)


def chi_square(counts: Array, sigma: float) -> NoisyTest:
    """The test of independence in a table (rows, columns) of counts with independent noise."""
    return independence(counts, sigma**2 * np.eye(counts.size))


def independence(counts: Array, noise: Array) -> NoisyTest:
    """The same where the noise in the counts, row by row, has this covariance."""
    from scipy.special import chdtrc  # which takes long to import

    total = max(float(counts.sum()), 1.0)
    down, across = (_shares(counts.sum(axis=axis) / total) for axis in (1, 0))
    left = np.eye(len(down)) - np.outer(down, np.ones(len(down)))
    right = np.eye(len(across)) - np.outer(across, np.ones(len(across)))
    projection = np.kron(left, right)
    variance = np.diag(total * np.outer(down, across).ravel()) + noise
    degrees = (len(down) - 1) * (len(across) - 1)
    statistic = quadratic_form(
        (left @ counts @ right.T).ravel(), projection @ variance @ projection.T, degrees
    )
    return NoisyTest(
        name=_TEST,
        statistic=statistic,
        degrees=degrees,
        p_value=float(chdtrc(degrees, statistic)),
    )


def quadratic_form(vector: Array, covariance: Array, rank: int) -> float:
    """vector' covariance^+ vector, for a covariance of known rank."""
    values, vectors = np.linalg.eigh(covariance)
    return float(np.sum((vectors[:, -rank:].T @ vector) ** 2 / values[-rank:]))


def _shares(shares: Array) -> Array:
    """Noisy shares made positive, with sum 1."""
    positive = np.maximum(shares, 1e-6)
    return np.asarray(positive / positive.sum())
