"""A study made ready to run: its plan, its model, and what every silo at hand has for it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.errors import StudyError
from hubbub.planning import (
    Plan,
    PlannedQuery,
    Query,
    QueryState,
    Scores,
    SiloData,
    SteppedQuery,
    capacity_of,
    record_shape,
)
from hubbub.protocol import Lift, LocalTask, RoundParameters
from hubbub.queries import StandardisingQuery, check_expected, features_of, held_back_share
from hubbub.queries import plan as plan_study
from hubbub.study import Standardisation, Study, imported_code, known_code, sources
from hubbub.tabular import CodedCells, Records
from hubbub.training import record_checks

Parameters = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """What a program hands over instead of having a study name it.

    Args:
        records: of every silo by its name, and of the public test set under "test".
        model: whose parameters the training begins with; None: the one that the study names.
        cells: of every silo by its name, for statistics.
    """

    records: Mapping[str, Records] = field(default_factory=dict, repr=False)
    model: Any = field(default=None, repr=False)
    cells: Mapping[str, CodedCells] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class PreparedStudy:
    """A study made ready to run.

    Args:
        plan: of all that it asks.
        silos: what each silo at hand has.
        learner: the model as this machine makes gradients of it; None where none is trained.
        test: the public test set; None if there is none.
        states: where queries beside the main one came to, by purpose.
        standardisation: how features are standardised; None if they are not, or not yet.
        looks: about how often the model is evaluated on the way; 0: in the end alone.
    """

    plan: Plan
    silos: tuple[SiloData, ...] = field(repr=False)
    learner: learning.Learner | None = field(default=None, repr=False)
    test: Records | None = field(default=None, repr=False)
    states: Mapping[str, QueryState] = field(default_factory=dict, repr=False)
    standardisation: Standardisation | None = field(default=None, repr=False)
    looks: int = 20

    @classmethod
    def of(
        cls,
        study: Study,
        made: Plan | None = None,
        device: str = "cpu",
        *,
        whose: Sequence[str] | None = None,
        folder: Path | None = None,
        handed: InMemory | None = None,
    ) -> PreparedStudy:
        """Load what the study asks of, build the model, make the plan unless one is given.

        Args:
            study: what to run.
            made: a plan that was made before.
            device: where gradients are made.
            whose: the parties whose records are at hand, silos or "test"; everybody's if None.
            folder: what relative paths of records are relative to.
            handed: records and a model that are in memory.

        Raises:
            StudyError: the study cannot be run.
            UserError: there is no such device.
            DataError: a silo's records do not fit it.
        """
        _refuse_unavailable(study)
        for name, digest in imported_code.keep(study).items():
            known_code.note(name, digest)  # whoever runs a study runs its code
        there = (*study.parties.names, sources.TEST) if whose is None else tuple(whose)
        names = [name for name in study.parties.names if name in there]
        silos = {name: _with_cells(study, name, folder, handed) for name in names}
        learner, test = None, None
        if study.model is not None:
            records, test = _records(study, names, folder, handed, tested=sources.TEST in there)
            shape = _shape(study, [*records.values(), *([] if test is None else [test])])
            record_checks.check_records(study, records, test, shape)
            silos = {name: _with_records(study, name, silos[name], records[name]) for name in names}
            learning.device_of(device)
            learner = _learner(study, records, test, shape, handed, device)
            silos = {name: replace(one, learner=learner) for name, one in silos.items()}
        dimension = None if learner is None else learner.initial.size
        plan = _reused(made, study, dimension) if made else plan_study(study, dimension=dimension)
        check_expected(plan)
        return cls(plan=plan, silos=tuple(silos.values()), learner=learner, test=test)

    @property
    def study(self) -> Study:
        """The study."""
        return self.plan.study

    @property
    def initial(self) -> Parameters:
        """What goes down for the main query's first sum."""
        return self.start(self.plan.main.query).parameters

    def start(self, query: SteppedQuery) -> QueryState:
        """Where a query begins."""
        model = None if self.learner is None else self.learner.initial
        parameters = query.start(model)
        assert parameters is not None, "a query begins with the model or its own"  # noqa: S101
        return QueryState(parameters=parameters)

    @property
    def counts(self) -> list[int]:
        """Each silo's number of units in the main query's sums, which never leave it."""
        return [self.plan.main.query.units(silo) for silo in self.silos]

    @property
    def max_units(self) -> list[int]:
        """The most that each may have of them; public."""
        return [self.plan.main.query.max_units(silo) for silo in self.silos]

    @property
    def tasks(self) -> list[LocalTask]:
        """Every silo's records, ready for the main query's sums."""
        return self.tasks_of(self.plan.main.query)

    def tasks_of(self, query: Query) -> list[LocalTask]:
        """Every silo's records, ready for a query's sums."""
        return [query.task(silo) for silo in self.silos]

    @property
    def pooled_task(self) -> LocalTask:
        """All silos' records, one silo's after the other's, for who may see them all."""
        return self.plan.main.query.pooled_task(self.silos)

    def lift(self, round_parameters: RoundParameters) -> Lift | None:
        """From projected sums back to whole ones, where the study projects them."""
        return self.plan.main.query.lift(round_parameters, self.learner)

    def trained(self, parameters: Parameters) -> Any:
        """The model with these parameters; None where none is trained."""
        if self.learner is None:
            return None
        learning.load_parameters(self.learner.model, parameters)
        return self.learner.model

    def with_own_model(self) -> PreparedStudy:
        """The same with a model that no silo here uses, to be evaluated beside a step."""
        if self.learner is None or self.test is None or not self.silos:
            return self
        return replace(self, learner=replace(self.learner, model=copy.deepcopy(self.learner.model)))

    def evaluate(self, parameters: Parameters) -> Scores:
        """Metrics on the public test set, if there is one."""
        return self.plan.main.query.scores(self.learner, self.test, parameters)

    def beside_null(self, parameters: Parameters) -> dict[str, learning.Score]:
        """Scores on the public test set beside those of a model that knows nothing; {} without."""
        if self.learner is None or self.test is None:
            return {}
        learner = self.learner
        return learning.scores_of(
            self.trained(parameters),
            self.test,
            device=learner.device,
            target_type=learner.target_type,
        )

    def with_answer(self, planned: PlannedQuery[Query], state: QueryState) -> PreparedStudy:
        """The study as it is once a query beside the main one is answered."""
        prepared = replace(self, states={**self.states, planned.purpose: state})
        if isinstance(planned.query, StandardisingQuery):
            return prepared.standardised(planned.query.standardisation(state))
        return prepared

    def standardised(self, made: Standardisation) -> PreparedStudy:
        """The study with everybody's features standardised."""
        return replace(
            self,
            silos=tuple(_standardised(silo, made) for silo in self.silos),
            test=None if self.test is None else made.of(self.test),
            standardisation=made,
        )


def _with_cells(study: Study, name: str, folder: Path | None, handed: InMemory | None) -> SiloData:
    """A silo's table, if statistics are asked for."""
    if not study.reads_cells:
        return SiloData()
    if handed and handed.cells:
        cells = handed.cells[name]
    else:
        cells = sources.statistic_cells(study, name, folder=folder)
    return SiloData(cells=cells, max_cells=capacity_of(study, name, len(cells)))


def _records(
    study: Study,
    names: Sequence[str],
    folder: Path | None,
    handed: InMemory | None,
    *,
    tested: bool,
) -> tuple[dict[str, Records], Records | None]:
    """The records of these silos by name, and the public test set if there is one here."""
    model, _ = study.learning

    def of(name: str) -> Records:
        loaded = (
            sources.units_of(study.data, name, handed.records[name])
            if handed
            else sources.records(study, name, folder=folder)
        )
        # Without frozen layers torch, which takes seconds to load, is not needed yet.
        return learning.through_frozen(model.extractor, loaded) if model.extractor else loaded

    records = {name: of(name) for name in names}
    public = sources.TEST in handed.records if handed else sources.has_test_set(study)
    return records, of(sources.TEST) if public and tested else None


def _learner(
    study: Study,
    records: Mapping[str, Records],
    test: Records | None,
    shape: tuple[int, ...],
    handed: InMemory | None,
    device: str,
) -> learning.Learner:
    """The model, tried on records that are at hand."""
    settings, training = study.learning
    given = handed.model if handed else None
    model = copy.deepcopy(given) if given else learning.model_of(study, shape)
    target_type = learning.goal_of(study)
    per_unit_model = learning.per_unit_model(model, study.data.places)
    method, first = "", next(iter(records.values()), None)
    if first is not None:
        method = learning.method_for(per_unit_model, shape, first.targets, target_type=target_type)
    if not settings.is_built_in:
        for record in (*records.values(), test):
            if record is not None:
                learning.check_classes(model, record)
    if not settings.is_built_in or training.metrics or target_type.loss_name:
        learning.try_out(model, test, target_type=target_type, own=training.metrics)
    return learning.Learner(
        model=model,
        per_unit_model=per_unit_model,
        initial=learning.parameters_vector(model),
        target_type=target_type,
        method=method,
        device=device,
        shape=shape,
    )


def _with_records(study: Study, name: str, silo: SiloData, records: Records) -> SiloData:
    """A silo with its records, of which each decides by itself whether it is held back (P16)."""
    back, share = np.zeros(len(records), dtype=bool), held_back_share(study)
    if share:
        back = learning.held_back(records, share, study.id)
    return replace(
        silo,
        centre=study.parties.names.index(name),
        records=records.part(~back),
        held_back=records.part(back),
        max_units=capacity_of(study, name, records.units),
    )


def _standardised(silo: SiloData, made: Standardisation) -> SiloData:
    """A silo with standardised features."""
    return replace(
        silo,
        records=None if silo.records is None else made.of(silo.records),
        held_back=None if silo.held_back is None else made.of(silo.held_back),
    )


def _shape(study: Study, records: Sequence[Records]) -> tuple[int, ...]:
    """Of one record, as it is public, or as the records at hand have it."""
    shape = record_shape(study)
    if shape is None and not records:
        raise StudyError(
            "expected the shape of a record where no records are at hand, got none; state "
            "model.inputs, such as [26]"
        )
    shape = shape or tuple(records[-1].inputs.shape[1:])
    if study.data.standardise is not None:
        features_of(shape)
    return shape


def _reused(made: Plan, study: Study, dimension: int | None) -> Plan:
    """A plan for a study that differs in the data's options only, such as another public split."""

    def planned(one: Study) -> Study:
        return replace(one, toml="", data=replace(one.data, options=()))

    known = dimension or made.dimension
    if planned(made.study) != planned(study) or made.dimension not in (None, known):
        raise StudyError(
            "expected a plan of this study, got another's; leave the plan out and it is made anew"
        )
    if made.dimension is None:  # it counts on more parameters than there are
        return plan_study(study, dimension=dimension)
    return replace(made, study=study)


def _refuse_unavailable(study: Study) -> None:
    """What the study format knows and this version cannot run."""
    if study.is_unattested:
        raise StudyError(
            f'expected parties.trust = "none" or an [attestation.silo], got "'
            f'{study.parties.trust}" without it; smaller noise shares are believed of attested '
            "silos only: say what they must show, or leave trust out"
        )
