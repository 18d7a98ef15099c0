"""Linear regression from one noisy sum of moments.

Theory of operation. With w = (1, covariates, outcome), numbers in [-1, 1] and classes 0 or 1, a
record's block is the upper triangle of w w', less what is known: a class times itself is the class,
times another class of its column 0, and a half is taken off the square of a number. The effects
solve the noisy normal equations; with residual weights v = (-effects, 1) the equations' own noise
is linear, and the covariance is S^-1 (s^2 S + C) S^-1. Where residuals are narrow beside the public
bounds, noise drowns their variance s^2: then it hardly matters beside C, and what it is on average
given a noisy number and that it is not below 0 stands for it.

Where residuals fan out that is too little, and what would tell, sums of fourth order, drowns in
noise: s^2 is some hundredth of the squared range. So intervals are a tenth wider, which is what a
spread that grows by e^(.2 z) with a normal covariate z needs; by e^(.3 z), they hold .94 for .95.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import statistic_keys
from hubbub.estimation.effects import (
    HIDDEN,
    TOO_NOISY,
    Effects,
    Root,
    definite,
    sandwich,
    too_noisy,
)
from hubbub.estimation.intervals import never_below_0
from hubbub.estimation.regression import LEFT_OUT, Guess, OfOutcome
from hubbub.estimation.statistic import Answer, Expectation, OneSum, scaled
from hubbub.estimation.statistic_keys import StatisticKeys

_WIDER = 1.1  # intervals, for residuals that fan out


@dataclass(frozen=True, kw_only=True)
class Linear(OfOutcome, OneSum):
    """Slopes and differences of a numeric outcome; incomplete records are left out.

    Args:
        on: see `Regression`.
    """

    kind = "linear"
    keys: ClassVar = statistic_keys.OF_OUTCOME
    methods = "differences of means are from linear regressions"
    note = (
        f"{LEFT_OUT}; standard errors assume the same spread of residuals everywhere; "
        "intervals and tests are a tenth wider to allow for unequal spread"
    )

    @classmethod
    def read(cls, keys: StatisticKeys) -> Linear:
        outcome = keys.column("outcome", numeric=True)
        return cls(outcome=outcome, on=keys.covariates(outcome), **keys.common)

    def settings(self) -> dict[str, Any]:
        return {"outcome": self.outcome.name, **statistic_keys.covariates_table(self.on)}

    def __post_init__(self) -> None:
        if self.outcome.categories:
            raise StudyError(
                f"expected a numeric outcome, found the categories of {self.outcome.name}; use a "
                "logistic regression"
            )
        super().__post_init__()

    @property
    def size(self) -> int:
        return len(self._pairs[0])

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23)."""
        columns, numbers = len(self.on) + 1, self.covariates.numbers + 1
        return math.sqrt(1 + columns + columns * (columns - 1) / 2 + numbers / 4)

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        numbers = self.covariates.numbers + 1
        pairs = sum(isinstance(covariate, Levels) and len(covariate) == 2 for covariate in self.on)
        classes = len(self.on) + 1 - numbers - pairs
        turned = itertools.product(range(numbers + 1), range(classes + 1), range(pairs + 1))
        farthest = max(_distance(numbers, classes, pairs, *one) for one in turned)
        return math.sqrt(max(farthest, self.sensitivity**2))

    def encode(self, cells: Cells) -> Array:
        w = np.column_stack([self.covariates.design(cells), scaled(cells, self.outcome)])
        left, right = self._pairs
        block = w[:, left] * w[:, right] - self._halves
        return np.where(np.isnan(w).any(axis=1, keepdims=True), 0.0, block)

    def expected(self, records: float, sigma: float) -> Expectation:
        """As if nothing were correlated."""

        def found(guess: Guess) -> Effects | None:
            moments = np.pad(self.covariates.moments(guess), (0, 1))
            moments[-1, -1] = guess.spread
            return self._fit(moments * max(records, 1.0), sigma)

        return self.expected_with(found, sigma, "effect on half of the outcome's range")

    def answer(self, sums: Array, sigma: float) -> Answer:
        moments = self._moments(sums)
        fit = self._fit(moments, sigma)
        low, high = self.outcome.bounds
        answer = self.answer_with(fit and fit.per(self.covariates.per_unit * (high - low) / 2))
        if answer.refusal != TOO_NOISY:
            return answer
        means = moments[0, 1:-1] / max(moments[0, 0], sigma)
        inner = moments[1:-1, 1:-1] - np.outer(means, moments[0, 1:-1])
        return replace(answer, refusal=too_noisy(self.covariates.names, inner, sigma))

    def _moments(self, sums: Array) -> Array:
        """The moment matrix of w, from noisy sums of its distinct entries."""
        left, right = self._pairs
        entries = sums + self._halves * sums[0]
        moments = np.zeros((self._width, self._width))
        moments[left, right] = moments[right, left] = entries
        classes = np.flatnonzero(~self._square)
        moments[classes, classes] = moments[0, classes]
        return moments

    def _fit(self, moments: Array, sigma: float) -> Effects | None:
        """The normal equations' root, if the moments of covariates stand clear of their noise."""
        seen, compared = self._seen(moments, sigma)
        pairs = np.ix_(seen, seen)
        inner, outer = moments[:-1, :-1][pairs], moments[:-1, -1][seen]
        if not definite(inner):
            return None
        effects = np.asarray(np.linalg.solve(inner, outer), dtype=np.float64)
        v = np.zeros(self._width)
        v[:-1][seen], v[-1] = -effects, 1.0
        records = max(moments[0, 0] - len(effects), 1.0)  # less the degrees of freedom
        rows = self._moved(v)
        blur = sigma / records * float(np.linalg.norm(v @ rows))
        spread = never_below_0(float(v @ moments @ v) / records, blur)
        rows = rows[:-1][seen]
        noise = sigma**2 / spread**2 * (rows @ rows.T)

        def doubt(vectors: Array) -> Array:
            wide = np.zeros((vectors.shape[1], self._width))
            wide[:, np.flatnonzero(seen)] = vectors.T
            return (
                sigma / spread * np.array([np.linalg.norm(one @ self._moved(one)) for one in wide])
            )

        fit = sandwich(Root(effects, inner / spread), noise, doubt, first=1)
        shown = fit.among(seen[1:])
        clear = np.where(compared[1:], shown.clear, 0.0)
        return replace(shown, clear=clear, wider=_WIDER, may_diverge=False)

    def _seen(self, moments: Array, sigma: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(width - 1,) which components take part, and which are compared with somebody.

        Where nobody is in a reference, its column's largest class takes its place: other effects
        are adjusted for the column all the same, but the differences asked for are not known.
        """
        seen = self._square[:-1] | (np.diag(moments)[:-1] >= HIDDEN * sigma)
        seen[0] = True
        compared = np.ones(len(seen), dtype=np.bool_)
        for place, one in enumerate(self.on):
            own = 1 + np.flatnonzero(np.equal(self.covariates.column, place))
            many = moments[0, own]
            of_reference = HIDDEN * sigma * math.sqrt(1 + len(own))
            if isinstance(one, Levels) and moments[0, 0] - many.sum() < of_reference:
                seen[own[np.argmax(many)]] = False
                compared[own] = False
        return seen, compared

    def _moved(self, v: Array) -> Array:
        """(width, size) what noise of 1 in each sum does to the moments times v (width,)."""
        rows = np.zeros((self._width, self.size))
        numbers = np.arange(self.size)
        left, right = self._pairs
        np.add.at(rows, (left, numbers), v[right])
        np.add.at(rows, (right, numbers), np.where(left == right, 0.0, v[left]))
        first = np.flatnonzero((left == 0) & (right > 0) & ~self._square[right])
        rows[right[first], first] += v[right[first]]  # a class times itself
        rows[:, 0] += np.where(self._square, v, 0.0) / 2 * (np.arange(self._width) > 0)
        return rows

    @property
    def _width(self) -> int:
        return self.covariates.width + 1

    @cached_property
    def _square(self) -> NDArray[np.bool_]:
        """(width,) whether a component of w is a number, whose square says more than itself."""
        return np.array([False, *self.covariates.number, True])

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries of w w' that are sent, (0, 0) first."""
        left, right = np.triu_indices(self._width)
        column = np.array([-1, *self.covariates.column, len(self.on)])
        known = (column[left] == column[right]) & (left > 0) & ~self._square[left]
        return np.asarray(left[~known]), np.asarray(right[~known])

    @cached_property
    def _halves(self) -> Array:
        """(size,) a half where the square of a number is sent, less the half."""
        left, right = self._pairs
        return np.where((left == right) & (left > 0), 0.5, 0.0)


def _distance(numbers: int, classes: int, pairs: int, a: int, m: int, r: int) -> int:
    """The squared distance of two blocks that differ in some of their columns (P23 (e)).

    Args:
        numbers, classes, pairs: how many columns there are of numbers, of three classes or more,
            and of two.
        a, m, r: how many of them differ: numbers from one bound to the other.
    """
    alone = 4 * a + 2 * m + r
    one_number = 4 * a * (numbers - a + classes - m + pairs - r) + numbers * (2 * m + r)
    of_classes = 2 * (math.comb(classes, 2) - math.comb(classes - m, 2) + m * (pairs - r))
    of_pairs = r * classes + math.comb(pairs, 2) - math.comb(pairs - r, 2)
    return alone + one_number + of_classes + of_pairs


# Linear regression of an amount's logarithm: by how many times an effect makes it larger.
#
# It is least squares (`linear`) on another scale: an amount is clipped to its public bounds, both
# above 0, and their logarithms are the bounds of what is summed, so that a record's block is as
# long as any other's (docs/privacy.md P36).


def log_linear(outcome: Column, on: tuple[Levels | Column, ...]) -> LogLinear:
    """The regression of an amount's logarithm.

    Args:
        outcome: its column, with bounds above 0 in its own unit.
        on: the covariates, see `Regression`.

    Raises:
        StudyError: an outcome or covariates that are none.
    """
    low, high = outcome.bounds
    if low <= 0:
        raise StudyError(
            f"expected bounds above 0 for {outcome.name}, whose logarithm is modelled, "
            f"found {low:g}; use the smallest amount that matters as the lower bound"
        )
    return LogLinear(outcome=replace(outcome, low=math.log(low), high=math.log(high)), on=on)


@dataclass(frozen=True, kw_only=True)
class LogLinear(Linear):
    """Ratios of geometric means per unit and between classes.

    Args:
        outcome: the amount's column, with the logarithms of its bounds.
        on: see `Regression`.
    """

    ratio = "ratio of geometric means"
    methods = "ratios of geometric means are from linear regressions of logarithms"

    @property
    def explained(self) -> str:
        return f"log {self.outcome.name}"

    def encode(self, cells: Cells) -> Array:
        amount = cells[self.outcome.name]
        low, high = np.exp(self.outcome.bounds)
        return Linear.encode(self, {**cells, self.outcome.name: np.log(np.clip(amount, low, high))})
