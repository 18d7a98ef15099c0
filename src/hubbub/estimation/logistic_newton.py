"""Logistic regression on numbers, by a few Newton steps on noisy sums.

Theory of operation (after Avella-Medina, Bradshaw, Loh 2023). With w = (1, covariates), |w|^2 <= W,
a record sends its part (y - m) w of the score and, scaled by sqrt(11 / W), its part m (1 - m) w w'
of the information: where one is long the other is short, so the second costs nothing
(docs/privacy.md P23). Each sum moves the parameters by a Newton step. The last sum's root has the
covariance H^-1 (H + sigma^2) H^-1; what the step left over is of second order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from hubbub.errors import StudyError
from hubbub.estimation.answer import Answer, Expectation
from hubbub.estimation.covariates import Covariates
from hubbub.estimation.effects import LEFT_OUT, Effects, answer_of, planned, sandwich
from hubbub.estimation.levels import Array, Cells, Levels
from hubbub.estimation.logistic_cells import Logistic
from hubbub.estimation.statistic import Parameters
from hubbub.study import Column

ROUNDS = 4
_LARGEST_STEP = 3.0  # Newton's first step from 0 is seldom longer
_FAR = 1.0  # a last step of this length, on covariates in [-1, 1], is no convergence
_CLEAR = 4.0  # standard deviations of its noise that the information must have everywhere


def logistic(
    outcome: Column,
    on: tuple[Levels | Column, ...],
    *,
    weight: float = 1.0,
    confidence: float = 0.95,
) -> Logistic | NewtonLogistic:
    """A logistic regression: one sum where all covariates are classes, else a few Newton sums.

    Args:
        outcome: a column of two categories, of which the second is explained.
        on: the covariates: classes, the first of which is compared with, or numeric columns.
        weight: how much its errors count against those of other statistics; no unit.
        confidence: of its intervals, a probability.

    Raises:
        StudyError: an outcome or covariates that are none.
    """
    classes = tuple(one for one in on if isinstance(one, Levels))
    if len(classes) == len(on):
        return Logistic(outcome=outcome, on=classes, weight=weight, confidence=confidence)
    return NewtonLogistic(outcome=outcome, on=on, weight=weight, confidence=confidence)


@dataclass(frozen=True, kw_only=True)
class NewtonLogistic:
    """Odds ratios per unit and between classes; incomplete records are left out.

    Args:
        outcome: a column of two categories, of which the second is explained.
        on: the covariates: classes, the first of which is compared with, or numeric columns.
        weight: how much its errors count against those of other statistics; no unit.
        confidence: of its intervals, a probability.

    Raises:
        StudyError: an outcome or covariates that are none.
    """

    outcome: Column
    on: tuple[Levels | Column, ...]
    weight: float = 1.0
    confidence: float = 0.95

    kind = "logistic"
    importance = 0.4
    rounds = ROUNDS

    def __post_init__(self) -> None:
        """Refuses an outcome or covariates that are none."""
        if len(self.outcome.categories) != 2:
            raise StudyError(
                f"expected an outcome of two categories, found {self.outcome.name}; declare them"
            )
        _ = self._covariates

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return f"Logistic regression of {self.outcome.name} on {self._covariates.title}"

    @property
    def size(self) -> int:
        """How many numbers its block has: the score's, then the information's."""
        return self._width + len(self._pairs[0])

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block, at any parameters (docs/privacy.md P23)."""
        return math.sqrt(1.0 + len(self.on))

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return 2.0 * self.sensitivity

    @property
    def start(self) -> Parameters:
        """Parameters of the first sum: no effects."""
        return np.zeros(self._width, np.float32)

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        """The blocks of n records at these parameters, (n, size)."""
        w = self._covariates.design(cells)
        place = Levels(column=self.outcome).places(cells)
        unknown = np.isnan(w).any(axis=1) | (place < 0)
        w[unknown] = 0.0
        with np.errstate(all="ignore"):
            mean = expit(np.nan_to_num(w @ parameters.astype(np.float64)))
        left, right = self._pairs
        squares = (mean * (1 - mean))[:, None] * w[:, left] * w[:, right] * self._lengths
        return np.column_stack([(place - mean)[:, None] * w, squares])

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        """The parameters after a noisy sum that was taken at `parameters`."""
        step = np.clip(self._step(sums, sigma)[0], -_LARGEST_STEP, _LARGEST_STEP)
        return (parameters + step).astype(np.float32)

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in each of its sums.

        As if nothing were correlated, numbers had a variance of a ninth of their squared half
        range, all classes were alike and a quarter of records had the outcome.
        """
        means, spreads = self._covariates.typical
        information = 3 / 16 * max(records, 1.0) * (np.diag(spreads) + np.outer(means, means))
        return planned(
            self._effects(means * 0.0, information, sigma),
            sigma,
            "logarithm of an odds ratio over half of a column's range",
        )

    def answer_at(self, sums: Array, sigma: float, parameters: Parameters) -> Answer:
        """The answer from the last noisy sum, taken at `parameters`."""
        step, information = self._step(sums, sigma)
        near = bool(np.abs(step).max() <= _FAR)
        found = self._effects(parameters + step, information, sigma) if near else None
        names = self._covariates.names
        per_unit = found and found.per(self._covariates.per_unit)
        return answer_of(self, per_unit, names, ["odds ratio"] * len(names), LEFT_OUT)

    def _step(self, sums: Array, sigma: float) -> tuple[Array, Array]:
        """A Newton step, shortened where the noise is as large as the information; and that."""
        left, right = self._pairs
        information = np.zeros((self._width, self._width))
        information[left, right] = sums[self._width :] / self._lengths
        information += np.triu(information, 1).T
        values, vectors = np.linalg.eigh(information)
        least = self._noise_of_information(sigma)
        solved = (vectors.T @ sums[: self._width]) / np.maximum(values, least)
        return np.asarray(vectors @ solved), information

    def _noise_of_information(self, sigma: float) -> float:
        """About the largest eigenvalue that noise alone makes."""
        return sigma * math.sqrt((1.0 + len(self.on)) / 11.0) * math.sqrt(2.0 * self._width)

    def _effects(self, values: Array, information: Array, sigma: float) -> Effects | None:
        """All but the intercept, if the information stands out from its noise everywhere."""
        least = float(np.linalg.eigvalsh(information)[0])
        if least < _CLEAR * self._noise_of_information(sigma):
            return None
        return sandwich(values, information, sigma**2 * np.eye(self._width), first=1)

    @property
    def _width(self) -> int:
        return self._covariates.width

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries of w w' that are sent."""
        left, right = np.triu_indices(self._width)
        return np.asarray(left), np.asarray(right)

    @cached_property
    def _lengths(self) -> Array:
        """What each of them is multiplied by: a triangle as long as the whole matrix."""
        left, right = self._pairs
        whole = np.where(left == right, 1.0, math.sqrt(2.0))
        return np.asarray(whole * math.sqrt(11.0 / (1.0 + len(self.on))))

    @property
    def _covariates(self) -> Covariates:
        return Covariates(on=self.on)
