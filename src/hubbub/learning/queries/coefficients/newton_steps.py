"""What is asked of a record for a model's coefficients: the block of one regression, on its scale.

Two files say of which, and where its sums are taken: `newton_steps` and `own_sums`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hubbub.core.tabular.column import Column
from hubbub.estimation import newton_sums
from hubbub.estimation.logistic_regression import NewtonLogistic
from hubbub.estimation.model_regressions import ModelRegression
from hubbub.estimation.newton_sums import Sum
from hubbub.estimation.queries.sum_layout import Array, Cells, Parameters
from hubbub.estimation.stacking import Stacked, stack
from hubbub.estimation.statistic import Answer, Expectation, Iterated, OneSum
from hubbub.learning.queries.coefficients.released_model import effects_of

NAME = "model coefficients"
LOST = "its sums were charged, and lost in an interruption"


@dataclass(frozen=True, kw_only=True)
class ModelSums:
    """The block of a regression, alone in its vector.

    Args:
        asked: the regression.
        relation: "add-remove" or "substitute".
    """

    asked: OneSum | Iterated
    relation: str

    @property
    def stacked(self) -> Stacked:
        """The block on its scale, alone."""
        return stack({NAME: self.asked}, self.relation)

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return self.asked.size

    @property
    def least_rounds(self) -> int:
        """A model is released without coefficients, too."""
        return 0


# Score and information at the released model, and Newton steps from there (docs/privacy.md P32).
#
# A record sends the block of a logistic regression on numbers (P23 (f)), of counts or of several
# classes (P36), taken at the effects that the released model has. The first two sums lead a step on
# each, two more one step together, and all others are taken there; what those that were taken near
# the root say together is the answer, and the released model is one of these places. So nothing has
# to be found from zero, and one sum may do where such a regression by itself needs ten.

_ENDS, _LEAST = (1, 2, 4), 8  # sums after which a step is over, and how many there are at least
FAR = "the released model is too far from what the records say"
CURE = "; ask for coefficients.sums = 2 or more, or give the training more of epsilon"
_NOTE = (
    "of all records, held back or not, that lack neither the outcome nor a feature; one Newton "
    "step from the released model: what is likeliest, not what was released"
)


@dataclass(frozen=True, kw_only=True)
class NewtonSteps(ModelSums):
    """All that is asked of a record, as one vector."""

    asked: NewtonLogistic | ModelRegression

    @property
    def start(self) -> Parameters:
        """Where the first sum is taken, and the next one: at no effects, see `begun_at`."""
        return self.begun_at(self.asked.start)

    def begun_at(self, effects: Parameters) -> Parameters:
        """The same where the first sum is taken at these effects (width,)."""
        return np.concatenate([effects, effects])

    def rounds(self, sums: int) -> int:
        """How many sums are asked for: one, or as many as leave most of the epsilon to the last."""
        return sums if sums == 1 else max(sums, _LEAST)

    def begun_from(self, columns: Sequence[Column], model: Parameters) -> Parameters:
        """Where the first sum is taken: at the released model's effects."""
        return self.begun_at(effects_of(columns, model))

    def sum(self, cells: Cells, parameters: Parameters, shares: Array) -> Array:
        """Of all units' vectors, at the effects of this step."""
        return self.stacked.sum(cells, parameters[len(self.asked.start) :], shares)

    def update(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Parameters:
        """The first place, and a step on from the last, where a step is over."""
        first, last = np.split(parameters, 2)
        if len(noisy) not in _ENDS:
            return parameters
        total, noise = self._mean(self._by_step(noisy)[-1], sigma)
        return np.concatenate([first, self.asked.update(total, noise, last)])

    def answer(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Answer:
        """What the noisy sums say, the first of which was taken at the first place."""
        sums = self._played(noisy, sigma, np.split(parameters, 2)[0])
        if not sums:
            return self._named(self.asked.make_answer(LOST))
        told = [self.asked.scored(*one) for one in sums]
        answer = self.asked.answer_of_sums(told)
        if answer.refusal.startswith(newton_sums.FAR):
            where = answer.refusal.removeprefix(newton_sums.FAR) if len(told) > 1 else ""
            answer = replace(answer, refusal=f"{FAR}{where}{CURE}")
        return self._named(answer, self.asked.remarks(sums))

    def expected(self, records: float, sigma: float, sums: int) -> Expectation:
        """What may be said before records are touched; of one sum, if the model is near them."""
        _, noise = self.stacked.own(NAME, np.zeros(self.size), sigma)
        expected = self.asked.foreseen_of(records, noise, self.rounds(sums))
        return expected if sums > 1 else replace(expected, answered=False)

    def _played(self, noisy: Sequence[Array], sigma: float, at: Parameters) -> list[Sum]:
        """The mean of the sums at each place, with the effects there."""
        sums = []
        for step in self._by_step(noisy):
            total, noise = self._mean(step, sigma)
            sums.append(Sum(total, noise, at))
            at = self.asked.update(total, noise, at)
        return sums

    def _by_step(self, noisy: Sequence[Array]) -> list[Sequence[Array]]:
        """The sums that were taken at one place each."""
        steps = [noisy[begin:end] for begin, end in itertools.pairwise((0, *_ENDS, len(noisy)))]
        return [step for step in steps if len(step)]

    def _mean(self, step: Sequence[Array], sigma: float) -> tuple[Array, float]:
        """The block of the mean of some sums, and its noise."""
        total, noise = self.stacked.own(NAME, np.mean(step, axis=0), sigma)
        return total, noise / math.sqrt(len(step))

    def _named(self, answer: Answer, remarks: Sequence[str] = ()) -> Answer:
        """With a title and notes of its own."""
        notes = (_NOTE, *remarks, *answer.notes[1:]) if answer.notes else ()
        return replace(answer, title=f"Coefficients of the model: {answer.title}", notes=notes)


# Coefficients of amounts and of times to an event, by regressions that find their own way.
#
# An amount's are those of least squares, which one sum of moments tells (docs/privacy.md P23 (e)).
# A
# time's are hazard ratios of a Cox regression on the target's grid, in ten sums that begin at no
# effects (P23 (g)): a hazard of a model in discrete time is no effect on a hazard that has none,
# and
# one step from there would lead elsewhere. Neither needs the released model.

_OWN_NOTE = "of all records, held back or not; what is likeliest, not what was released"


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
        notes = (*answer.notes, _OWN_NOTE) if answer.notes else ()
        return replace(answer, title=f"Coefficients of the model: {answer.title}", notes=notes)
