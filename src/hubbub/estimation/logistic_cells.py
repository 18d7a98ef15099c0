"""Logistic regression on covariates with few classes, from one noisy sum.

Theory of operation. A record's block is the one-hot vector of its pattern of covariates and its
outcome. With y_p and n_p records of pattern p with the outcome and in all, the score
U(b) = sum_p x_p (y_p - n_p m_p), m_p = 1 / (1 + exp(-b x_p)), is linear in the noise; its
root has the covariance I^-1 (I + C) I^-1, with C = sigma^2 sum_p x_p x_p' ((1 - m_p)^2 + m_p^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.errors import StudyError
from hubbub.estimation.answer import Answer, Expectation
from hubbub.estimation.effects import LEFT_OUT, Effects, answer_of, newton, planned, sandwich
from hubbub.estimation.levels import Array, Cells, Levels, one_hot
from hubbub.estimation.patterns import Patterns
from hubbub.study import Column


@dataclass(frozen=True, kw_only=True)
class Logistic:
    """Odds ratios between classes; records that lack the outcome or a covariate are left out.

    Args:
        outcome: a column of two categories, of which the second is explained.
        on: the covariates, each with its classes; the first of them is compared with.
        weight: how much its errors count against those of other statistics; no unit.
        confidence: of its intervals, a probability.

    Raises:
        StudyError: an outcome or covariates that are none.
    """

    outcome: Column
    on: tuple[Levels, ...]
    weight: float = 1.0
    confidence: float = 0.95

    kind = "logistic"
    importance = 0.4
    sensitivity = 1.0  # docs/privacy.md P23
    diameter = math.sqrt(2.0)

    def __post_init__(self) -> None:
        """Refuses an outcome or covariates that are none."""
        if len(self.outcome.categories) != 2:
            raise StudyError(
                f"expected an outcome of two categories, found {self.outcome.name}; declare them"
            )
        _ = self._patterns

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        names = ", ".join(levels.column.name for levels in self.on)
        return f"Logistic regression of {self.outcome.name} on {names}"

    @property
    def size(self) -> int:
        """How many numbers its block has."""
        return 2 * len(self._patterns)

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        pattern = self._patterns.places(cells)
        outcome = Levels(column=self.outcome).places(cells)
        known = (pattern >= 0) & (outcome >= 0)
        return one_hot(np.where(known, 2 * pattern + outcome, -1), self.size)

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block.

        As if all patterns were alike and a quarter had the outcome.
        """
        each = max(records, 1.0) / len(self._patterns)
        counts = np.tile([0.75 * each, 0.25 * each], (len(self._patterns), 1))
        found = self._fit(counts, sigma)
        return planned(found, sigma, "logarithm of an odds ratio")

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        found = self._fit(sums.reshape(-1, 2), sigma)
        names = self._patterns.names
        return answer_of(self, found, names, ["odds ratio"] * len(names), LEFT_OUT)

    def _fit(self, counts: Array, sigma: float) -> Effects | None:
        """Intercept and effects from (patterns, 2) noisy counts."""
        from scipy.special import expit  # which takes long to import

        x = np.column_stack([np.ones(len(counts)), self._patterns.design])
        total = counts.sum(axis=1)

        def at(effects: Array) -> tuple[Array, Array]:
            mean = expit(x @ effects)
            information = (x.T * (total * mean * (1 - mean))) @ x
            return x.T @ (counts[:, 1] - total * mean), information

        found = newton(at, x.shape[1])
        if found is None:
            return None
        mean = expit(x @ found[0])
        return sandwich(*found, sigma**2 * (x.T * ((1 - mean) ** 2 + mean**2)) @ x, first=1)

    @property
    def _patterns(self) -> Patterns:
        return Patterns(on=self.on)
