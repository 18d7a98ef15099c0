"""Effects of the trained model with intervals: sums of score and information at its end (P32, P36).

What a run says of it is in its folder:

    coefficient-sums.json   where the sums were taken, and the noisy sums
    coefficients.json       the answer, which follows from these and the study alone
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Query, QueryState, QueryWarnings, Released, Turn
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Cells, Levels
from hubbub.core.tabular.target import COUNT
from hubbub.estimation import newton_sums
from hubbub.estimation.kinds import regression_of
from hubbub.estimation.newton_sums import NewtonRegression, Sum
from hubbub.estimation.queries.sum_layout import Array, SumLayout
from hubbub.estimation.queries.sums_query import SumsQuery, promise_of, tables_of
from hubbub.estimation.stacking import Stacked, stack
from hubbub.estimation.statistic import Answer, Expectation, Iterated, OneSum
from hubbub.learning.queries.coefficients.coefficients_ask import Coefficients, CoefficientsAsk

COEFFICIENT = "coefficients"
COEFFICIENT_SUMS, COEFFICIENTS = CoefficientsAsk.files
NAME = "model coefficients"
LOST = "its sums were charged, and lost in an interruption"
FAR = "the released model is too far from the maximum-likelihood estimate"
CURE = "; ask for coefficients.sums = 2 or more, or give the training more epsilon"
_ENDS, _LEAST = (1, 2, 4), 8  # sums after which a step is over, and how many there are at least
_NOTE = (
    "of all records, held back or not, with an outcome and all features; one Newton step "
    "from the released model towards maximum likelihood, not the released coefficients"
)
_OWN_NOTE = (
    "of all records, held back or not; maximum-likelihood estimates, not the released coefficients"
)


@dataclass(frozen=True)
class CoefficientsQuery(SumsQuery):
    """Newton steps from the released model."""

    asked: Coefficients  # what they may cost, in how many sums
    data: Data
    privacy: Privacy

    purpose, kept_in, answered_in = COEFFICIENT, COEFFICIENT_SUMS, COEFFICIENTS
    turn = Turn.LAST  # at the model that is released

    @cached_property
    def steps(self) -> OwnSums | NewtonSteps:
        """What a record sends."""
        on, relation = covariates_of(self.data.features), self.privacy.relation
        asked, outcome = regression_of(self.data, on), self.data.outcome
        if outcome is not None and outcome.kind != COUNT:
            return OwnSums(asked=asked, relation=relation)
        assert isinstance(asked, NewtonRegression), "of classes and counts"  # noqa: S101
        return NewtonSteps(asked=asked, relation=relation)

    @cached_property
    def layout(self) -> SumLayout:
        """The block, no longer than 1."""
        stacked = self.steps.stacked
        length = stacked.sensitivity
        return SumLayout(
            stacked=self.steps,
            unit=length,
            diameter=min(2.0, stacked.diameter / length),
            rounds=self.steps.rounds(self.asked.sums),
        )

    @property
    def epsilon(self) -> float:
        """What they may cost."""
        return self.asked.epsilon

    def start(self, model: Parameters | None) -> Parameters:
        """The model's effects, at which the first sum is taken, and no sums."""
        kept = self.layout.start
        if model is not None:
            begin = self.steps.begun_from(self.data.features, model)
            kept[1 : 1 + len(begin)] = begin
        return kept

    def warnings(self, study: Study) -> QueryWarnings:
        """Of sums that cannot be foreseen, or lost."""
        unknown = "data.records is not stated: the precision of coefficients cannot be computed in"
        lost = (
            "dropouts without compute nodes: a silo that drops out of the coefficients' only "
            "sum loses it; ask for coefficients.sums = 2, or use compute nodes"
        )
        parties = study.parties
        may_be_lost = self.layout.rounds == 1 and parties.dropouts and not parties.compute_nodes
        return QueryWarnings(
            records_unknown=(f"{unknown} advance",), sums=(lost,) if may_be_lost else ()
        )

    def _expected(self, planned: PlannedQuery[Query], records: int) -> Expectation:
        """What may be said of them before any record is touched."""
        # Sums are in units of the longest vector.
        noise = planned.total_sigma * self.layout.unit
        return self.steps.expected(records, noise, self.asked.sums)

    def check_expected(self, plan: Plan) -> None:
        """See `Query`."""
        planned, records = plan.planned(COEFFICIENT), plan.study.data.records
        if planned and records and not self._expected(planned, records).possible:
            raise StudyError(
                "expected coefficients that stand out from the noise, got coefficients.epsilon = "
                f"{self.epsilon:g}, where none would; raise it, take fewer columns, or leave "
                "[coefficients] out"
            )

    def plan_rows(self, planned: PlannedQuery[Query], records: int) -> list[PlanRow]:
        """How exact they will be."""
        if not records:
            return []
        expected = self._expected(planned, records)
        ((quantity, error),) = expected.errors
        told = error if np.isfinite(error) else "below the noise"
        answered = "where records allow" if expected.possible else "none"
        answered = "answered" if expected.answered else answered
        return [
            PlanRow(COEFFICIENT, told, f"standard error of the {quantity}, at most"),
            PlanRow(COEFFICIENT, answered, "whether they stand out from the noise"),
        ]

    def released(self, plan: Plan, state: QueryState) -> Released:
        """The answer, as JSON with the promise that it was made under, and as a table."""
        planned = plan.planned(COEFFICIENT)
        assert planned is not None, "a plan of this query"  # noqa: S101
        layout, kept = self.layout, state.parameters
        answer = self.steps.answer(
            list(layout.sums(kept)), planned.total_sigma * layout.unit, layout.parameters(kept)
        )
        named = {NAME: answer.to_dict()}
        content = {**promise_of(plan, planned), "statistics": named}
        return Released(
            answers={NAME: answer},
            files={COEFFICIENTS: json.dumps(content, indent=1)},
            copies=tables_of(named),
        )


@dataclass(frozen=True, kw_only=True)
class _ModelSums:
    """All that is asked of a record, as one vector: the block of a regression on its scale."""

    asked: OneSum | Iterated  # the regression
    relation: str

    @property
    def stacked(self) -> Stacked:
        """The block, alone."""
        return stack({NAME: self.asked}, self.relation)

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return self.asked.size

    @property
    def least_rounds(self) -> int:
        """A model is released without coefficients, too."""
        return 0

    @property
    def start(self) -> Parameters:
        """Where the first sum is taken, whatever the released model is."""
        return self.asked.start

    def begun_from(self, columns: Sequence[Column], model: Parameters) -> Parameters:
        """The same beside a released model of these columns."""
        return self.start

    def sum(self, cells: Cells, parameters: Parameters, shares: Array) -> Array:
        """Of all units' vectors."""
        return self.stacked.sum(cells, parameters, shares)

    def _titled(self, answer: Answer, notes: Sequence[str]) -> Answer:
        """With a title of its own, and these notes if it has any."""
        title = f"Coefficients of the model: {answer.title}"
        return replace(answer, title=title, notes=tuple(notes) if answer.notes else ())


@dataclass(frozen=True, kw_only=True)
class OwnSums(_ModelSums):
    """Amounts and times to an event, by regressions that find their own way.

    An amount's are those of least squares, which one sum of moments tells (docs/privacy.md P23
    (e)). A time's are hazard ratios of a Cox regression on the target's grid, in ten sums that
    begin at no effects (P23 (g)): a hazard of a model in discrete time is no effect on a hazard
    that has none, and one step from there would lead elsewhere. Neither needs the released model.
    """

    def rounds(self, sums: int) -> int:
        """How many sums are asked for, where a study wants so many."""
        return self.asked.rounds if self.asked.rounds > 1 else sums

    def update(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Parameters:
        """Where the next sum is taken."""
        return self.stacked.update(noisy, sigma, parameters)

    def answer(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Answer:
        """What the noisy sums say; of one that would be enough their mean."""
        if len(noisy) < self.stacked.least_rounds:
            return self._titled(self.asked.make_answer(LOST), ())
        sums, error = list(noisy), sigma
        if self.stacked.rounds == 1:
            sums, error = [np.mean(noisy, axis=0)], sigma / math.sqrt(len(noisy))
        answer = self.stacked.answers(sums, error)[NAME]
        return self._titled(answer, notes=[*answer.notes, _OWN_NOTE])

    def expected(self, records: float, sigma: float, sums: int) -> Expectation:
        """What may be said before records are touched, with this noise in each of so many sums."""
        spare = self.rounds(sums) / self.stacked.rounds
        return self.stacked.expected_of(NAME, records, sigma / math.sqrt(spare))


@dataclass(frozen=True, kw_only=True)
class NewtonSteps(_ModelSums):
    """Score and information at the released model, and Newton steps from there (P32).

    A record sends the block of a logistic regression on numbers (P23 (f)), of counts or of several
    classes (P36), taken at the effects that the released model has. The first two sums lead a step
    on each, two more one step together, and all others are taken there; those that were taken near
    the root say together the answer. So one sum may do where such a regression needs ten.
    """

    asked: NewtonRegression

    @property
    def start(self) -> Parameters:
        """Where the first sum is taken, and the next one: at no effects, see `begun_at`."""
        return self.begun_at(self.asked.start)

    def begun_at(self, effects: Parameters) -> Parameters:
        """The same where the first sum is taken at these effects (width,)."""
        return np.concatenate([effects, effects])

    def begun_from(self, columns: Sequence[Column], model: Parameters) -> Parameters:
        """The same at the released model's effects."""
        return self.begun_at(effects_of(columns, model))

    def rounds(self, sums: int) -> int:
        """How many sums are asked for: one, or as many as leave most of the epsilon to the last."""
        return sums if sums == 1 else max(sums, _LEAST)

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
        sums, place = list[Sum](), np.split(parameters, 2)[0]
        for step in self._by_step(noisy):
            total, noise = self._mean(step, sigma)
            sums.append(Sum(total, noise, place))
            place = self.asked.update(total, noise, place)
        if not sums:
            return self._titled(self.asked.make_answer(LOST), ())
        answer = self.asked.answer_of_sums([self.asked.scored(*part) for part in sums])
        if answer.refusal.startswith(newton_sums.FAR):
            where = answer.refusal.removeprefix(newton_sums.FAR) if len(sums) > 1 else ""
            answer = replace(answer, refusal=f"{FAR}{where}{CURE}")
        remarks = (*self.asked.remarks(sums), *answer.notes[1:])
        return self._titled(answer, notes=[_NOTE, *remarks])

    def expected(self, records: float, sigma: float, sums: int) -> Expectation:
        """What may be said before records are touched; of one sum, if the model is near them."""
        _, noise = self.stacked.own(NAME, np.zeros(self.size), sigma)
        expected = self.asked.foreseen_of(records, noise, self.rounds(sums))
        return expected if sums > 1 else replace(expected, answered=False)

    def _by_step(self, noisy: Sequence[Array]) -> list[Sequence[Array]]:
        """The sums that were taken at one place each."""
        steps = [noisy[begin:end] for begin, end in itertools.pairwise((0, *_ENDS, len(noisy)))]
        return [step for step in steps if len(step)]

    def _mean(self, step: Sequence[Array], sigma: float) -> tuple[Array, float]:
        """The block of the mean of some sums, and its noise."""
        total, noise = self.stacked.own(NAME, np.mean(step, axis=0), sigma)
        return total, noise / math.sqrt(len(step))


def covariates_of(columns: Sequence[Column]) -> tuple[Levels | Column, ...]:
    """The columns that a model sees, as covariates of a regression."""
    return tuple(Levels(column=column) if column.categories else column for column in columns)


def effects_of(columns: Sequence[Column], model: Parameters) -> Parameters:
    """(1 + effects,) the intercept and effects of a model, in the order of `Covariates`.

    Those of numbers are per half of their range, of classes against the first; of several classes
    of the outcome side by side over the first. The model is (features + 1,) weights, and the bias
    at the end; of several classes (classes, features) weights, and then (classes,) biases.
    """
    features = sum(column.width for column in columns)
    outputs = len(model) // (features + 1)
    weights, biases = np.split(model.astype(np.float64), [features * outputs])
    by_output = zip(weights.reshape(outputs, -1).tolist(), biases.tolist(), strict=True)
    effects = np.array([_of_output(columns, own, bias) for own, bias in by_output])
    # The model sees several classes as a number of 0 or 1 each, so that there is more than one way
    # to say the same; effects compare each class with the first.
    against = effects if outputs == 1 else effects[1:] - effects[0]
    return against.T.ravel().astype(np.float32)


def _of_output(columns: Sequence[Column], weights: Sequence[float], bias: float) -> list[float]:
    """The same of one output's weights and bias."""
    constant, effects, begin = [bias], list[float](), 0
    for column in columns:
        own = list(weights[begin : begin + column.width - column.indicator])
        begin += column.width
        if column.reference:
            own.insert(column.reference_place, 0.0)
        if len(column.categories) == 2 and not column.reference:  # seen as -1 and +1
            constant.append(-own[0])
            effects.append(2.0 * own[0])
        elif column.categories:
            constant.append(own[0])
            effects += [weight - own[0] for weight in own[1:]]
        else:
            effects += own
    return [math.fsum(constant), *effects]
