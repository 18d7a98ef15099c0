"""Regressions that are asked of a trained model alone: no table of [statistics] names them.

Their sums begin at what the model says, from where one step leads to the root (P32).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

from hubbub.core.errors import StudyError
from hubbub.estimation.asked_keys import StatisticKeys
from hubbub.estimation.covariates import Guess
from hubbub.estimation.newton_sums import NewtonRegression, Scored
from hubbub.estimation.statistic import Array, Expectation, Parameters


class ModelRegression(NewtonRegression):
    """What they have in common."""

    foreseen_as: ClassVar[str]  # what a plan says the errors of

    @classmethod
    def read(cls, keys: StatisticKeys) -> ModelRegression:
        """None: a study asks for it by [coefficients]."""
        del keys
        raise StudyError(
            f'expected a kind of statistics, got "{cls.kind}", which needs a trained model; ask '
            "for [coefficients]"
        )

    def settings(self) -> dict[str, Any]:
        """None, as there is no table."""
        return {}

    @abstractmethod
    def guessed(self, guess: Guess, records: float, sigma: float) -> Scored:
        """What a sum of guessed records says at their root, with noise of this deviation."""

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        """The parameters after a noisy sum that was taken at `parameters`."""
        scored = self.scored(sums, sigma, parameters)
        return (scored.at + scored.step).astype("float32")

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in one sum."""
        return self.foreseen_of(records, sigma, 1)

    def foreseen_of(self, records: float, sigma: float, sums: int) -> Expectation:
        """The same where so many sums, each with this noise, are all taken near the root."""
        return self.foreseen(
            lambda guess: self.guessed(guess, records, sigma / math.sqrt(sums)),
            sigma,
            self.foreseen_as,
        )
