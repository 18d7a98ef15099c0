"""A study made ready to run: its plan, its model, and what every silo at hand has for it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query, QueryState, Scores, SiloData, SteppedQuery
from hubbub.core.protocol.round.draw import Lift
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records

Parameters = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PreparedStudy:
    """A study made ready to run."""

    plan: Plan  # of all that it asks
    silos: tuple[SiloData, ...] = field(repr=False)  # what each silo at hand has
    # The model as this machine makes gradients of it; None where none is trained.
    learner: Any = field(default=None, repr=False)
    test: Records | None = field(default=None, repr=False)  # the public test set
    # Where queries beside the main one came to, by purpose.
    states: Mapping[str, QueryState] = field(default_factory=dict, repr=False)
    standardisation: Any = field(default=None, repr=False)  # of features; None if not, or not yet
    looks: int = 20  # about how often the model is evaluated on the way; 0: in the end alone

    @property
    def study(self) -> Study:
        """The study."""
        return self.plan.study

    @property
    def initial(self) -> Parameters:
        """What goes down for the main query's first sum."""
        return self.start(self.plan.main.query).parameters

    def start(self, query: SteppedQuery, model: Parameters | None = None) -> QueryState:
        """Where a query begins, at a model or the first one."""
        if model is None and self.learner is not None:
            model = self.learner.initial
        parameters = query.start(model)
        assert parameters is not None, "a query begins with the model or its own"  # noqa: S101
        return QueryState(parameters=parameters)

    @property
    def counts(self) -> list[int]:
        """Each silo's number of units in the main query's sums, which never leave it."""
        return [self.plan.main.query.units(silo) for silo in self.silos]

    @property
    def tasks(self) -> list[LocalTask]:
        """Every silo's records, ready for the main query's sums."""
        return self.tasks_of(self.plan.main.query)

    def tasks_of(self, query: Query) -> list[LocalTask]:
        """Every silo's records, ready for a query's sums."""
        return [query.task(silo) for silo in self.silos]

    def lift(self, round_parameters: RoundParameters) -> Lift | None:
        """From projected sums back to whole ones, where the study projects them."""
        return self.plan.main.query.lift(round_parameters, self.learner)

    def trained(self, parameters: Parameters) -> Any:
        """The model with these parameters; None where none is trained."""
        return None if self.learner is None else self.learner.trained(parameters)

    def with_own_model(self) -> PreparedStudy:
        """The same with a model that no silo here uses, to be evaluated beside a step."""
        if self.learner is None or self.test is None or not self.silos:
            return self
        return replace(self, learner=replace(self.learner, model=copy.deepcopy(self.learner.model)))

    def evaluate(self, parameters: Parameters) -> Scores:
        """Metrics on the public test set, if there is one."""
        return self.plan.main.query.scores(self.learner, self.test, parameters)

    def beside_null(self, parameters: Parameters) -> dict[str, Any]:
        """Scores on the public test set beside those of a model that knows nothing; {} without."""
        if self.learner is None or self.test is None:
            return {}
        scores: dict[str, Any] = self.learner.beside_null(parameters, self.test)
        return scores

    def with_answer(self, planned: PlannedQuery[SteppedQuery], state: QueryState) -> PreparedStudy:
        """The study as it is once a query beside the main one is answered."""
        prepared = replace(self, states={**self.states, planned.purpose: state})
        changed: PreparedStudy = planned.query.effect(prepared, state)
        return changed

    def standardised(self, made: Any) -> PreparedStudy:
        """The study with everybody's features standardised."""

        def of(records: Records | None) -> Records | None:
            return None if records is None else made.of(records)

        silos = (
            replace(silo, records=of(silo.records), held_back=of(silo.held_back))
            for silo in self.silos
        )
        return replace(self, silos=tuple(silos), test=of(self.test), standardisation=made)
