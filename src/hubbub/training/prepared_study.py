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
from hubbub.errors import DataError, StudyError
from hubbub.learning import lift_of, model_of, optimizer_of
from hubbub.planning import (
    SUM_MARGIN,
    Plan,
    capacity_of,
    features_of,
    joint_batch,
    owned_records,
    record_shape,
)
from hubbub.planning import plan as plan_study
from hubbub.protocol import Lift, LocalTask, RoundParameters, group_rows
from hubbub.study import FeatureSums, Records, Study, code_hashes, sources, tabular

Parameters = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """What a program hands over instead of having a study name it.

    Args:
        records: of every silo by its name, and of the public test set under "test".
        model: whose parameters the training begins with; None: the one that the study names.
    """

    records: Mapping[str, Records] = field(repr=False)
    model: Any = field(default=None, repr=False)


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
    standardisation: Any = field(default=None, repr=False)
    device: str = "cpu"
    shape: tuple[int, ...] = ()

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

        Args:
            study: what to train.
            made: a plan that was made before.
            device: where gradients are made.
            whose: the parties whose records are at hand, silos or "test"; everybody's if None.
            folder: what relative paths of records are relative to.
            handed: records and a model that are in memory.

        Raises:
            StudyError: the study cannot be run.
            DataError: a silo's records do not fit it.
        """
        _refuse_unavailable(study)
        code_hashes.refuse_other_code(study)
        there = (*study.parties.names, sources.TEST) if whose is None else tuple(whose)
        names = [name for name in study.parties.names if name in there]

        def of(name: str) -> Records:
            loaded = (
                sources.units_of(study.data, name, handed.records[name])
                if handed
                else sources.records(study, name, folder=folder)
            )
            return learning.through_frozen(study.model.frozen, loaded)

        records = tuple(of(name) for name in names)
        public = sources.TEST in handed.records if handed else sources.has_test_set(study)
        tested = public and sources.TEST in there
        test = of(sources.TEST) if tested else None
        shape = _shape(study, (*records, test))
        units = [one.units for one in records]
        _check_counts(study, dict(zip(names, units, strict=True)))
        capacities = tuple(map(partial(capacity_of, study), names, units))
        for name, one in zip((*names, sources.TEST), (*records, test), strict=True):
            _check_shape(name, one, shape)
            if one is not None:
                tabular.refuse_other_targets(study.data.outcome, one.targets, name)
            _check_targets(name, one, study)
        if whose is None and study.data.files and study.data.outcome is None:
            _check_classes(records)
        model = copy.deepcopy(handed.model) if handed and handed.model else model_of(study, shape)
        initial = learning.parameters_vector(model)
        goal = learning.goal_of(study)
        on_units = learning.on_units(
            model, study.data.most_per_patient if study.data.patient else 0
        )
        method = ""
        if records:
            method = learning.method_for(on_units, shape, records[0].targets, goal=goal)
        if not study.model.is_built_in:
            for one in (*records, test):
                if one is not None:
                    learning.check_classes(model, one)
        if not study.model.is_built_in or study.training.metrics or goal.loss_name:
            learning.try_out(model, test, goal=goal, own=study.training.metrics)
        kept = _held_back(study, records)
        return cls(
            plan=_reused(made, study, initial.size)
            if made
            else plan_study(study, dimension=initial.size),
            model=model,
            initial=initial,
            method=method,
            on_units=on_units,
            records=tuple(one.part(~back) for one, back in zip(records, kept, strict=True)),
            held_back=tuple(one.part(back) for one, back in zip(records, kept, strict=True)),
            test=test,
            capacities=capacities,
            device=device,
            shape=shape,
        )

    @property
    def study(self) -> Study:
        """The study."""
        return self.plan.study

    @property
    def tasks(self) -> list[LocalTask]:
        """Every silo's records, ready for clipped sums."""
        return [
            self._task(records, capacity, self._rows(records.units, capacity))
            for records, capacity in zip(self.records, self.capacities, strict=True)
        ]

    @property
    def pooled_task(self) -> LocalTask:
        """All silos' records, one silo's after the other's, for who may see them all."""
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
                self.on_units, records, capacity=capacity, device=self.device, goal=goal
            )
            for records, capacity in zip(self.held_back, self.capacities, strict=True)
        ]

    @property
    def feature_sums(self) -> list[LocalTask]:
        """Every silo's records, held back or not, for the sums that standardise features."""
        asked = self.study.data.standardise
        assert asked is not None, "the plan has this query"  # noqa: S101
        pairs, most = zip(self.everything, self.capacities, strict=True), self.study.data.places
        return [FeatureSums(records, asked.bound, capacity, most) for records, capacity in pairs]

    @property
    def everything(self) -> list[Records]:
        """Every silo's records, held back or not."""
        return [Records.together(parts) for parts in zip(self.records, self.held_back, strict=True)]

    def optimizer(self) -> learning.Optimizer:
        """A fresh optimizer."""
        return optimizer_of(self.study)

    def trained(self, parameters: Parameters) -> Any:
        """The model with these parameters."""
        learning.load_parameters(self.model, parameters)
        return self.model

    def apart(self) -> PreparedStudy:
        """The same with a model of its own, so that it can be evaluated beside a step."""
        return self if self.test is None else replace(self, model=copy.deepcopy(self.model))

    def evaluate(self, parameters: Parameters) -> dict[str, float]:
        """Metrics on the public test set, if there is one."""
        if self.test is None:
            return {}
        trained, goal = self.trained(parameters), learning.goal_of(self.study)
        own = self.study.training.metrics
        return learning.evaluate_records(trained, self.test, device=self.device, goal=goal, own=own)


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


def _check_counts(study: Study, counts: Mapping[str, int]) -> None:
    """Joint batches make the numbers of records public, and the plan counts on them (P10)."""
    if study.training.sampling != "without-replacement" or len(counts) < study.parties.silos:
        return
    found = list(counts.values())
    stated = study.data.counts or found
    if list(stated) != list(found) or sum(found) != study.data.records:
        raise DataError(
            f"expected {list(study.data.counts) or study.data.records} records, as the study "
            f"states, got {list(found)}, {sum(found)} in all; joint batches make the numbers "
            "public: fix data.records or data.counts"
        )
    together = study.parties.colluders + 1
    if sum(sorted(found)[-together:]) > (most := owned_records(study, together)) > 0:
        raise DataError(
            f"expected no {together} silos to hold more than {most} of the records, as if all held "
            f"equally many, got {list(found)}; state data.counts"
        )


def _check_shape(name: str, records: Records | None, shape: Sequence[int]) -> None:
    """All parties' records have the shape that the model takes."""
    if records is not None and tuple(records.inputs.shape[1:]) != tuple(shape):
        raise DataError(
            f"expected records of shape {tuple(shape)} for {name}, "
            f"got {tuple(records.inputs.shape[1:])}; fix the data or model.inputs"
        )


def _check_targets(name: str, records: Records | None, study: Study) -> None:
    """Targets are what a built-in model is trained for; others would be learnt as nonsense."""
    if records is None:
        return
    if name == sources.TEST and not len(records):
        raise DataError("expected records in the public test set, got none; fix it")
    model, targets = study.model, records.targets
    if not model.is_built_in or study.data.outcome is not None:
        return  # only the model itself says what it gives; numbers have been checked
    if model.outputs == 1:
        fits, wanted = bool(np.isin(targets, (0, 1)).all()), "0 and 1"
    else:
        fits = targets.dtype == np.int64 and bool(np.isin(targets, range(model.outputs)).all())
        wanted = f"int64 class numbers below {model.outputs}"
    if not fits:
        raise DataError(
            f"expected targets of {wanted} for {name}, as model.outputs = {model.outputs} says, "
            "found others; fix the data or model.outputs"
        )


def _check_classes(records: Sequence[Records]) -> None:
    """All silos' records are at hand: one class alone is a mistake in a list of spellings."""
    if len(np.unique(np.concatenate([one.targets for one in records]))) == 1:
        raise DataError(
            "expected targets of two classes or more among all silos' records, found one; correct "
            "data.positive and data.negative, or data.classes (hubbub check shows them)"
        )


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
