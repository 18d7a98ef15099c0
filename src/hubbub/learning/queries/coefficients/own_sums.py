"""Coefficients of amounts and of times to an event, by regressions that find their own way.

An amount's are those of least squares, which one sum of moments tells (docs/privacy.md P23 (e)). A
time's are hazard ratios of a Cox regression on the target's grid, in ten sums that begin at no
effects (P23 (g)): a hazard of a model in discrete time is no effect on a hazard that has none, and
one step from there would lead elsewhere. Neither needs the released model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hubbub.core.tabular.column import Column
from hubbub.estimation.queries.statistic_sums import Array, Cells, Parameters
from hubbub.estimation.statistic import Answer, Expectation
from hubbub.learning.queries.coefficients.model_sums import LOST, NAME, ModelSums

_NOTE = "of all records, held back or not; what is likeliest, not what was released"


@dataclass(frozen=True, kw_only=True)
class OwnSums(ModelSums):
    """All that is asked of a record, as one vector."""

    @property
    def start(self) -> Parameters:
        """Where the first sum is taken."""
        return self.asked.start

    def rounds(self, sums: int) -> int:
        """How many sums are asked for, where a study wants so many."""
        return self.asked.rounds if self.asked.rounds > 1 else sums

    def begun_from(self, columns: Sequence[Column], model: Parameters) -> Parameters:
        """Where the first sum is taken, whatever the released model is."""
        del columns, model
        return self.start

    def sum(self, cells: Cells, parameters: Parameters, shares: Array) -> Array:
        """Of all units' vectors."""
        return self.stacked.sum(cells, parameters, shares)

    def update(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Parameters:
        """Where the next sum is taken."""
        return self.stacked.update(noisy, sigma, parameters)

    def answer(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Answer:
        """What the noisy sums say; of one that would be enough their mean."""
        del parameters
        if len(noisy) < self.stacked.least_rounds:
            return self._named(self.asked.make_answer(LOST))
        sums, error = list(noisy), sigma
        if self.stacked.rounds == 1:
            sums, error = [np.mean(noisy, axis=0)], sigma / math.sqrt(len(noisy))
        return self._named(self.stacked.answers(sums, error)[NAME])

    def expected(self, records: float, sigma: float, sums: int) -> Expectation:
        """What may be said before records are touched, with this noise in each of so many sums."""
        spare = self.rounds(sums) / self.stacked.rounds
        return self.stacked.expected_of(NAME, records, sigma / math.sqrt(spare))

    def _named(self, answer: Answer) -> Answer:
        """With a title and a note of its own."""
        notes = (*answer.notes, _NOTE) if answer.notes else ()
        return replace(answer, title=f"Coefficients of the model: {answer.title}", notes=notes)
