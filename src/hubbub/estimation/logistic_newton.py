"""Logistic regression on numbers, by a few noisy sums of scores.

Theory of operation. With w = (1, covariates), |w|^2 <= W,
a record sends its part (y - m) w of the score and, scaled by sqrt(11 / W), its part m (1 - m) w w'
of the information: where one is long the other is short, so the second costs nothing
(docs/privacy.md P23).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.errors import StudyError
from hubbub.estimation.answer import Answer, Expectation
from hubbub.estimation.covariates import Covariates
from hubbub.estimation.effects import LEFT_OUT, answer_of
from hubbub.estimation.levels import Array, Cells, Levels
from hubbub.estimation.logistic_cells import Logistic
from hubbub.estimation.newton_sums import ROUNDS, Scored, Triangle, foreseen, together
from hubbub.estimation.statistic import Parameters
from hubbub.study import Column


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
        return self._covariates.width + self._triangle.size

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
        return np.zeros(self._covariates.width, np.float32)

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        """The blocks of n records at these parameters, (n, size)."""
        from scipy.special import expit  # which takes long to import

        w = self._covariates.design(cells)
        place = Levels(column=self.outcome).places(cells)
        unknown = np.isnan(w).any(axis=1) | (place < 0)
        w[unknown] = 0.0
        with np.errstate(all="ignore"):
            mean = expit(np.nan_to_num(w @ parameters.astype(np.float64)))
        squares = self._scale * self._triangle.squares(mean * (1 - mean), w)
        return np.column_stack([(place - mean)[:, None] * w, squares])

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        """The parameters after a noisy sum that was taken at `parameters`."""
        step = self.scored(sums, sigma, parameters).step
        return (parameters + step).astype(np.float32)

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in each of its sums.

        As if nothing were correlated, numbers had a variance of a ninth of their squared half
        range, all classes were alike and a quarter of records had the outcome.
        """
        moments = self._covariates.moments
        made_up = np.concatenate([0.0 * moments[0], self._scale * self._triangle.entries(moments)])
        return foreseen(
            self.scored(3 / 16 * max(records, 1.0) * made_up, sigma, self.start),
            sigma,
            "logarithm of an odds ratio over half of a column's range",
            first=1,
        )

    def answer_from(self, sums: Array, sigma: float) -> Answer:
        """The answer from all noisy sums, (rounds, size)."""
        found = together(self, sums, sigma, first=1)
        names = self._covariates.names
        per_unit = found and found.per(self._covariates.per_unit)
        return answer_of(self, per_unit, names, ["odds ratio"] * len(names), LEFT_OUT)

    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says of the effects, the intercept first, that was taken at `parameters`."""
        width, scale = self._covariates.width, self._scale
        return Scored(
            at=parameters.astype(np.float64),
            score=sums[:width],
            information=self._triangle.matrix(sums[width:]) / scale,
            noise=sigma**2 * np.eye(width),
            blur=sigma / scale,
        )

    @property
    def _triangle(self) -> Triangle:
        return Triangle(width=self._covariates.width)

    @property
    def _scale(self) -> float:
        """What the information is multiplied by (docs/privacy.md P23)."""
        return math.sqrt(11.0 / (1.0 + len(self.on)))

    @property
    def _covariates(self) -> Covariates:
        return Covariates(on=self.on)
