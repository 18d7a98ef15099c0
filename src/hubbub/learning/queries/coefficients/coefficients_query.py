"""Effects of the trained model with intervals: sums of score and information at its end (P32, P36).

What a run says of it is in its folder:

    coefficient-sums.json   where the sums were taken, and the noisy sums
    coefficients.json       the answer, which follows from these and the study alone
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hubbub.core.planning.plan import Plan
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Query, QueryWarnings, Released, Turn
from hubbub.core.study.data import Data, columns_of
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.core.tabular.target import COUNT
from hubbub.estimation.cox import cox
from hubbub.estimation.linear import Linear, log_linear
from hubbub.estimation.logistic_regression import NewtonLogistic
from hubbub.estimation.model_regressions import NewtonMultinomial, NewtonPoisson
from hubbub.estimation.queries.sum_layout import SumLayout
from hubbub.estimation.queries.sums_query import SumsQuery, promise_of, tables_of
from hubbub.estimation.statistic import Expectation
from hubbub.learning.queries.coefficients.coefficients_ask import Coefficients, CoefficientsAsk
from hubbub.learning.queries.coefficients.newton_steps import NAME, NewtonSteps, OwnSums
from hubbub.learning.queries.coefficients.released_model import covariates_of

COEFFICIENT = "coefficients"
COEFFICIENT_SUMS, COEFFICIENTS = CoefficientsAsk.files


@dataclass(frozen=True)
class CoefficientsQuery(SumsQuery):
    """Newton steps from the released model.

    Args:
        asked: what they may cost, in how many sums.
        data, privacy: of the study.
    """

    asked: Coefficients
    data: Data
    privacy: Privacy

    @cached_property
    def steps(self) -> NewtonSteps | OwnSums:
        """What a record sends."""
        data, relation = self.data, self.privacy.relation
        on = covariates_of(data.features)
        if data.outcome is None:
            classes = columns_of(data)[data.target]
            several = len(classes.categories) > 2
            kind = NewtonMultinomial if several else NewtonLogistic
            return NewtonSteps(asked=kind(outcome=classes, on=on), relation=relation)
        own, *events = data.outcome.declared(data.target)
        if data.outcome.kind == COUNT:
            poisson = NewtonPoisson(outcome=own, on=on)
            return NewtonSteps(asked=poisson, relation=relation)
        if events:
            (event,), grid = events, (0.0, *data.outcome.grid)
            return OwnSums(asked=cox(own, event, grid, on), relation=relation)
        linear = log_linear if data.outcome.is_log else Linear
        return OwnSums(asked=linear(outcome=own, on=on), relation=relation)

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
    def purpose(self) -> str:
        """What its sums are for."""
        return COEFFICIENT

    @property
    def epsilon(self) -> float:
        """What they may cost."""
        return self.asked.epsilon

    @property
    def turn(self) -> Turn:
        """They are asked at the model that is released."""
        return Turn.LAST

    @property
    def kept_in(self) -> str:
        """The file of a run's folder that keeps the sums."""
        return COEFFICIENT_SUMS

    @property
    def answered_in(self) -> str:
        """The file that says what they say."""
        return COEFFICIENTS

    def start(self, model: Parameters | None) -> Parameters:
        """The model's effects, at which the first sum is taken, and no sums."""
        kept = self.layout.start
        if model is not None:
            begin = self.steps.begun_from(self.data.features, model)
            kept[1 : 1 + len(begin)] = begin
        return kept

    def warnings(self, study: Study) -> QueryWarnings:
        """Of sums that cannot be foreseen, or lost."""
        lost = (
            self.layout.rounds == 1 and study.parties.dropouts and not study.parties.compute_nodes
        )
        return QueryWarnings(
            records_unknown=(
                "data.records is not stated: how exact coefficients will be cannot be foreseen",
            ),
            sums=(
                "dropouts without compute nodes: a silo that drops out of the coefficients' only "
                "sum loses it; ask for coefficients.sums = 2, or use compute nodes",
            )
            if lost
            else (),
        )

    def plan_rows(self, planned: PlannedQuery[Query], records: int) -> list[PlanRow]:
        """How exact they will be."""
        if not records:
            return []
        found = self.expected(planned, records)
        ((quantity, error),) = found.errors
        said = "answered" if found.answered else "where records allow" if found.possible else "none"
        return [
            PlanRow(
                COEFFICIENT,
                error if np.isfinite(error) else "below the noise",
                f"standard error of the {quantity}, at most",
            ),
            PlanRow(COEFFICIENT, said, "whether they stand out of the noise"),
        ]

    def expected(self, planned: PlannedQuery[Query], records: int) -> Expectation:
        """What may be said before records are touched."""
        noise = planned.total_sigma * self.layout.unit
        return self.steps.expected(records, noise, self.asked.sums)

    def released(self, plan: Plan, parameters: Parameters) -> Released:
        """The answer, as JSON with the promise that it was made under, and as a table."""
        planned = plan.planned(COEFFICIENT)
        assert planned is not None, "a plan of this query"  # noqa: S101
        layout = self.layout
        answer = self.steps.answer(
            list(layout.sums(parameters)),
            planned.total_sigma * layout.unit,
            layout.parameters(parameters),
        )
        told = {**promise_of(plan, planned), "statistics": {NAME: answer.to_dict()}}
        return Released(
            answers={NAME: answer},
            files={COEFFICIENTS: json.dumps(told, indent=1)},
            copies=tables_of({NAME: answer.to_dict()}),
        )
