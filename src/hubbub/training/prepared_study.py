"""A study made ready to run: its plan, its model, and everybody's records."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.errors import StudyError
from hubbub.learning import lift_of, model_of, optimizer_of
from hubbub.planning import (
    SUM_MARGIN,
    Plan,
    capacity_of,
    check_expected,
    features_of,
    joint_batch,
    layout_of_sums,
    record_shape,
)
from hubbub.planning import plan as plan_study
from hubbub.protocol import Lift, LocalTask, RoundParameters, group_rows
from hubbub.study import CodedCells, FeatureSums, Records, Study, code_hashes, sources
from hubbub.training import record_checks, statistic_task

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
    """A study made ready to run: its plan, its model, and everybody's records."""

    plan: Plan
    model: Any = field(repr=False)
    on_units: Any = field(repr=False)  # the same model, as the study's units see it
    initial: Parameters = field(repr=False)
    method: str
    records: tuple[Records, ...] = field(repr=False)
    held_back: tuple[Records, ...] = field(default=(), repr=False)
    test: Records | None = field(repr=False)
    capacities: tuple[int, ...] = ()
    cells: tuple[CodedCells, ...] = field(default=(), repr=False)
    cell_capacities: tuple[int, ...] = ()
    kept_sums: Parameters | None = field(default=None, repr=False)
    standardisation: Any = field(default=None, repr=False)
    device: str = "cpu"
    shape: tuple[int, ...] = ()
    looks: int = 20  # about how often the model is evaluated on the way; 0: in the end alone

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
        """Load the records, build the model, make the plan unless one is given.

        Where statistics alone are asked for, the tables are loaded, and what is kept of sums stands
        for the model.

        Args:
            study: what to train.
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
        learning.device_of(device)
        _refuse_unavailable(study)
        code_hashes.refuse_other_code(study)
        there = (*study.parties.names, sources.TEST) if whose is None else tuple(whose)
        names = [name for name in study.parties.names if name in there]
        cells = _cells(study, names, folder, handed) if study.statistics else ()
        cell_capacities = tuple(map(partial(capacity_of, study), names, map(len, cells)))
        if not study.trains:
            return cls._of_statistics(study, made, cells, cell_capacities)

        def of(name: str) -> Records:
            loaded = (
                sources.units_of(study.data, name, handed.records[name])
                if handed
                else sources.records(study, name, folder=folder)
            )
            return learning.through_frozen(study.model.extractor, loaded)

        records = tuple(of(name) for name in names)
        public = sources.TEST in handed.records if handed else sources.has_test_set(study)
        tested = public and sources.TEST in there
        test = of(sources.TEST) if tested else None
        shape = _shape(study, (*records, test))
        record_checks.check_records(study, dict(zip(names, records, strict=True)), test, shape)
        capacities = tuple(map(partial(capacity_of, study), names, (one.units for one in records)))
        if whose is None and study.data.files and study.data.outcome is None:
            record_checks.check_classes(records)
        model = copy.deepcopy(handed.model) if handed and handed.model else model_of(study, shape)
        initial = learning.parameters_vector(model)
        goal = learning.goal_of(study)
        on_units = learning.on_units(model, study.data.places)
        method = ""
        if records:
            method = learning.method_for(on_units, shape, records[0].targets, goal=goal)
        if not study.model.is_built_in:
            for one in (*records, test):
                if one is not None:
                    learning.check_classes(model, one)
        if not study.model.is_built_in or study.training.metrics or goal.loss_name:
            learning.try_out(model, test, goal=goal, own=study.training.metrics)
        kept_back = _held_back(study, records)
        whole = (
            _reused(made, study, initial.size)
            if made
            else plan_study(study, dimension=initial.size)
        )
        check_expected(whole)
        return cls(
            plan=whole,
            model=model,
            initial=initial,
            method=method,
            on_units=on_units,
            records=tuple(one.part(~back) for one, back in zip(records, kept_back, strict=True)),
            held_back=tuple(one.part(back) for one, back in zip(records, kept_back, strict=True)),
            test=test,
            capacities=capacities,
            cells=cells,
            cell_capacities=cell_capacities,
            device=device,
            shape=shape,
        )

    @classmethod
    def _of_statistics(
        cls,
        study: Study,
        made: Plan | None,
        cells: tuple[CodedCells, ...],
        capacities: tuple[int, ...],
    ) -> PreparedStudy:
        """A study that asks for statistics alone: sums stand where a model would."""
        plan = _reused(made, study, made.dimension or 0) if made else plan_study(study)
        check_expected(plan)
        kept = model_of(study, ())
        return cls(
            plan=plan,
            model=kept,
            on_units=kept,
            initial=learning.parameters_vector(kept),
            method="",
            records=(),
            test=None,
            capacities=capacities,
            cells=cells,
            cell_capacities=capacities,
            shape=(plan.dimension or 0,),
        )

    @property
    def study(self) -> Study:
        """The study."""
        return self.plan.study

    @property
    def numbers(self) -> int:
        """How many numbers a sum of the training has, before any projection."""
        return self.plan.dimension or self.initial.size

    @property
    def counts(self) -> list[int]:
        """Each silo's number of records, which never leave it."""
        return [one.units for one in self.records] if self.study.trains else [*map(len, self.cells)]

    @property
    def statistic_tasks(self) -> list[LocalTask]:
        """Every silo's table, ready for the sums of statistics."""
        layout = layout_of_sums(self.study)
        pairs = zip(self.cells, self.cell_capacities, strict=True)
        return [statistic_task.StatisticTask(layout, one, capacity) for one, capacity in pairs]

    @property
    def tasks(self) -> list[LocalTask]:
        """Every silo's records, ready for clipped sums."""
        if not self.study.trains:
            return self.statistic_tasks
        return [
            self._task(records, capacity, self._rows(records.units, capacity))
            for records, capacity in zip(self.records, self.capacities, strict=True)
        ]

    @property
    def pooled_task(self) -> LocalTask:
        """All silos' records, one silo's after the other's, for who may see them all."""
        if not self.study.trains:
            layout, capacity = layout_of_sums(self.study), sum(self.capacities)
            return statistic_task.StatisticTask(layout, statistic_task.pooled(self.cells), capacity)
        pairs = list(zip(self.records, self.capacities, strict=True))
        rows = sum(self._rows(records.units, capacity) for records, capacity in pairs)
        pooled = Records.together(self.records)
        return self._task(pooled, sum(self.capacities), rows, margin=1.0)  # no grid is certified

    def _task(
        self, records: Records, capacity: int, rows: int, margin: float = SUM_MARGIN
    ) -> LocalTask:
        return learning.TrainingTask(
            self.on_units,
            records,
            clip=self.plan.record_clip,
            margin=margin,
            method=self.method,
            capacity=capacity,
            rows=rows,
            device=self.device,
            goal=learning.goal_of(self.study),
        )

    def _rows(self, units: int, capacity: int) -> int:
        """The public number of rows in a silo's batches."""
        rate = self.study.training.sample_rate
        if self.study.training.sampling == "without-replacement":
            return min(joint_batch(rate, self.study.data.records), units)
        correlated = self.plan.correlation
        return group_rows(capacity, rate, correlated.bands if correlated else 1)

    def lift(self, terms: RoundParameters) -> Lift | None:
        """From projected sums back to whole ones, where the study projects them."""
        return lift_of(terms, self.model)

    @property
    def evaluation_tasks(self) -> list[LocalTask]:
        """Every silo's held-back records."""
        goal = learning.goal_of(self.study)
        return [
            learning.EvaluationTask(
                self.on_units,
                records,
                method=self.method,
                capacity=capacity,
                device=self.device,
                goal=goal,
            )
            for records, capacity in zip(self.held_back, self.capacities, strict=True)
        ]

    @property
    def feature_sums(self) -> list[LocalTask]:
        """Every silo's records, held back or not, for the sums that standardise features."""
        asked = self.study.data.standardise
        assert asked is not None, "the plan has this query"  # noqa: S101
        whole = map(Records.together, zip(self.records, self.held_back, strict=True))
        pairs, most = zip(whole, self.capacities, strict=True), self.study.data.places
        return [FeatureSums(records, asked.bound, capacity, most) for records, capacity in pairs]

    def optimizer(self) -> learning.Stepper:
        """A fresh optimizer, or what keeps sums in its place."""
        return optimizer_of(self.plan)

    def trained(self, parameters: Parameters) -> Any:
        """The model with these parameters."""
        learning.load_parameters(self.model, parameters)
        return self.model

    def with_own_model(self) -> PreparedStudy:
        """The same with a model of its own, so that it can be evaluated beside a step."""
        return self if self.test is None else replace(self, model=copy.deepcopy(self.model))

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Metrics on the public test set, if there is one."""
        if self.test is None:
            return {}
        trained, goal = self.trained(parameters), learning.goal_of(self.study)
        own = self.study.training.metrics
        return learning.evaluate_records(trained, self.test, device=self.device, goal=goal, own=own)


def _cells(
    study: Study, names: Sequence[str], folder: Path | None, handed: InMemory | None
) -> tuple[CodedCells, ...]:
    """The silos' tables."""
    if handed and handed.cells:
        return tuple(handed.cells[name] for name in names)
    return tuple(sources.statistic_cells(study, name, folder=folder) for name in names)


def _held_back(study: Study, records: tuple[Records, ...]) -> list[NDArray[np.bool_]]:
    """Which of every silo's records are held back from training: none, or each by itself (P16)."""
    asked = study.training.evaluate
    if asked is None:
        return [np.zeros(len(one), dtype=bool) for one in records]
    return [learning.held_back(one, asked.holdout, study.id) for one in records]


def _shape(study: Study, records: Sequence[Records | None]) -> tuple[int, ...]:
    """Of one record, as it is public, or as the records at hand have it."""
    shape = record_shape(study)
    there = [one for one in records if one is not None]
    if shape is None and not there:
        raise StudyError(
            "expected the shape of a record where no records are at hand, got none; state "
            "model.inputs, such as [26]"
        )
    shape = shape or tuple(there[-1].inputs.shape[1:])
    if study.data.standardise is not None:
        features_of(shape)
    return shape


def _reused(made: Plan, study: Study, dimension: int) -> Plan:
    """A plan for a study that differs in the data's options only, such as another public split."""

    def planned(one: Study) -> Study:
        return replace(one, toml="", data=replace(one.data, options=()))

    if planned(made.study) != planned(study) or made.dimension not in (None, dimension):
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
