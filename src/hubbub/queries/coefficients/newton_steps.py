"""Score and information at the released model, and Newton steps from there (docs/privacy.md P32).

A record sends the block of a logistic regression on numbers (P23 (f)), of counts or of several
classes (P36), taken at the effects that the released model has. Each sum leads a step on; what all
that were taken near the root say together is the answer, and the released model is one of these
places. So nothing has to be found from zero, and one sum may do where such a regression by itself
needs ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hubbub import estimation
from hubbub.queries.coefficients.model_sums import LOST, NAME, ModelSums
from hubbub.queries.coefficients.released_model import effects_of
from hubbub.queries.statistic_sums import Array, Cells, Parameters
from hubbub.tabular import Column

# From here one step still leads to the root but for little beside its standard error: half of the
# logarithm of a ratio, over half of a range or between classes
# (experiments/coefficients_coverage.py); and so many standard errors more, as noise in the sum
# before leads there.
_FAR_OFF, _ERRORS = 0.5, 1.0
FAR = (
    "the released model is too far from what the records say: ask for more coefficients.sums, or "
    "give the training more of epsilon"
)
_NOTE = (
    "of all records, held back or not, that lack neither the outcome nor a feature; one Newton "
    "step from the released model: what is likeliest, not what was released"
)


@dataclass(frozen=True, kw_only=True)
class NewtonSteps(ModelSums):
    """All that is asked of a record, as one vector."""

    asked: estimation.NewtonLogistic | estimation.ModelRegression

    @property
    def start(self) -> Parameters:
        """Where the first sum is taken, and the next one: at no effects, see `begun_at`."""
        return self.begun_at(self.asked.start)

    def begun_at(self, effects: Parameters) -> Parameters:
        """The same where the first sum is taken at these effects (width,)."""
        return np.concatenate([effects, effects])

    def rounds(self, sums: int) -> int:
        """How many sums are asked for, where a study wants so many."""
        return sums

    def begun_from(self, columns: Sequence[Column], model: Parameters) -> Parameters:
        """Where the first sum is taken: at the released model's effects."""
        return self.begun_at(effects_of(columns, model))

    def sum(self, cells: Cells, parameters: Parameters, shares: Array) -> Array:
        """Of all units' vectors, at the effects of this step."""
        return self.stacked.sum(cells, parameters[len(self.asked.start) :], shares)

    def update(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Parameters:
        """The first place, and a step on from the last."""
        first, last = np.split(parameters, 2)
        total, noise = self.stacked.own(NAME, noisy[-1], sigma)
        return np.concatenate([first, self.asked.update(total, noise, last)])

    def answer(
        self, noisy: Sequence[Array], sigma: float, parameters: Parameters
    ) -> estimation.Answer:
        """What the noisy sums say, the first of which was taken at the first place."""
        sums = self._played(noisy, sigma, np.split(parameters, 2)[0])
        if not sums:
            return self._named(self.asked.make_answer(LOST))
        told = [self.asked.scored(*one) for one in sums]
        # Where noise led there, one more sum has been taken since.
        errors = _ERRORS if len(told) > 1 else 0.0
        root, is_near = estimation.near_root(
            told, self.asked.first, far=_FAR_OFF, errors=errors, judged=0
        )
        if root is not None and not is_near:
            return self._named(self.asked.make_answer(FAR))
        answer = self.asked.explained_refusal(self.asked.answer_of(root), told[-1])
        return self._named(answer, self.asked.remarks(sums))

    def expected(self, records: float, sigma: float, sums: int) -> estimation.Expectation:
        """What may be said before records are touched, if the model is near what they say."""
        _, noise = self.stacked.own(NAME, np.zeros(self.size), sigma)
        return self.asked.foreseen_of(records, noise, sums)

    def _played(self, noisy: Sequence[Array], sigma: float, at: Parameters) -> list[estimation.Sum]:
        """Each sum with the effects at which it was taken."""
        sums = []
        for one in noisy:
            total, noise = self.stacked.own(NAME, one, sigma)
            sums.append(estimation.Sum(total, noise, at))
            at = self.asked.update(total, noise, at)
        return sums

    def _named(self, answer: estimation.Answer, remarks: Sequence[str] = ()) -> estimation.Answer:
        """With a title and notes of its own."""
        notes = (_NOTE, *remarks, *answer.notes[1:]) if answer.notes else ()
        return replace(answer, title=f"Coefficients of the model: {answer.title}", notes=notes)
