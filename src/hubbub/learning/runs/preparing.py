"""From a study to one that is ready to run: records are read, the model is made and tried.

What is prepared runs in `prepared_study`. This file reads records and knows models, and checks what
was wanted before anything is loaded or charged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import hubbub.learning as learning
from hubbub.core.disk import json_value, read_bytes
from hubbub.core.errors import DataError, IntegrityError, StudyError, UserError
from hubbub.core.planning.exposure import owned_records
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import capacity_of
from hubbub.core.planning.query import SiloData
from hubbub.core.planning.study_plan import plan as plan_study
from hubbub.core.runs import run_folder
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.study import foreign_code, silo_records
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import NEGATIVE_TIME, TimeColumn
from hubbub.core.tabular.records import Records
from hubbub.core.tabular.table import CodedCells
from hubbub.core.tabular.target import refuse_other_targets
from hubbub.core.verification.evidence.evidence_file import difference
from hubbub.learning.queries.beside_training import features_of
from hubbub.learning.queries.training_query import held_back_share, training_of
from hubbub.learning.runs import baselines
from hubbub.learning.study.model import record_shape
from hubbub.learning.study.training import learning_of


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """What a program hands over instead of having a study name it."""

    # Of every silo by its name, and of the public test set under "test".
    records: Mapping[str, Records] = field(default_factory=dict, repr=False)
    model: Any = field(default=None, repr=False)  # its parameters are the first; None: the study's
    cells: Mapping[str, CodedCells] = field(default_factory=dict, repr=False)  # for statistics
    column_names: tuple[str, ...] = ()  # of data frames whose columns are features by their places


def prepare(
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
        study, made: what to run, and a plan that was made before.
        device: where gradients are made.
        whose: the parties whose records are at hand, silos or "test"; everybody's if None.
        folder: what relative paths of records are relative to.
        handed: records and a model that are in memory.

    Raises:
        StudyError, UserError, DataError: as `hubbub.run`.
    """
    if study.is_unattested:  # which the study format knows, and this version cannot run
        raise StudyError(
            'expected parties.trust = "none" or an [attestation.silo], got '
            f'"{study.parties.trust}" without it; smaller noise shares are accepted '
            "only from attested silos: state what they must show, or leave trust out"
        )
    for name, digest in foreign_code.keep(study).items():
        foreign_code.note(name, digest)  # whoever runs a study runs its code
    # Who runs apart holds the records of one party; who runs alone those of all.
    there = (*study.parties.names, silo_records.TEST) if whose is None else tuple(whose)
    names = [name for name in study.parties.names if name in there]
    silos = {name: _with_cells(study, name, folder, handed) for name in names}
    learner, test = None, None
    if study.model is not None:
        records, test = _records(study, names, folder, handed, tested=silo_records.TEST in there)
        shape = _shape(study, [*records.values(), *([] if test is None else [test])])
        _check_records(study, records, test, shape)
        silos = {name: _with_records(study, name, silos[name], records[name]) for name in names}
        # Refused here, before a model is built.
        learning.device_of(device)
        learner = _learner(study, records, test, shape, handed, device)
        silos = {name: replace(silo, learner=learner) for name, silo in silos.items()}
    # How many parameters there are is known by now, whatever the study says of it.
    dimension = None if learner is None else learner.initial.size
    plan = _reused(made, study, dimension) if made else plan_study(study, dimension=dimension)
    for planned in plan.queries:
        planned.query.check_expected(plan)
    return PreparedStudy(plan=plan, silos=tuple(silos.values()), learner=learner, test=test)


def _with_cells(study: Study, name: str, folder: Path | None, handed: InMemory | None) -> SiloData:
    """A silo's table, if statistics are asked for."""
    if not study.reads_cells:
        return SiloData()
    if handed and handed.cells:
        cells = handed.cells[name]
        # It was read before anybody knew which columns are times.
        for key, column in sorted(study.cell_columns.items()):
            if isinstance(column, TimeColumn) and key in cells.negative:
                raise DataError(
                    f"expected {NEGATIVE_TIME.expected} in {name}, column {key!r}, found "
                    f"{NEGATIVE_TIME.found}; {NEGATIVE_TIME.remedy}"
                )
    else:
        cells = silo_records.statistic_cells(study, name, folder=folder)
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
    model, _ = learning_of(study)

    def of(name: str) -> Records:
        if handed:
            loaded = silo_records.units_of(study.data, name, handed.records[name])
        else:
            loaded = silo_records.records(study, name, folder=folder)
        # Without frozen layers torch, which takes seconds to load, is not needed yet.
        return learning.through_frozen(model.extractor, loaded) if model.extractor else loaded

    records = {name: of(name) for name in names}
    public = silo_records.TEST in handed.records if handed else silo_records.has_test_set(study)
    return records, of(silo_records.TEST) if public and tested else None


def _learner(
    study: Study,
    records: Mapping[str, Records],
    test: Records | None,
    shape: tuple[int, ...],
    handed: InMemory | None,
    device: str,
) -> learning.Learner:
    """The model, tried on records that are at hand."""
    settings, training = learning_of(study)
    model = learning.model_of(study, shape, handed.model if handed else None)
    target_type = learning.goal_of(study)
    per_unit_model = learning.per_unit_model(model, study.data.places)
    views = learning.views_of(training.augment, shape)
    per_view_model = learning.per_view_model(study, model, views) if views else per_unit_model
    # How gradients of single records are made, which follows from the model.
    method, first = "", next(iter(records.values()), None)
    if first is not None:
        method = learning.method_for(per_view_model, shape, first.targets, target_type=target_type)
    if not settings.is_built_in:
        for record in (*records.values(), test):
            if record is not None:
                learning.check_classes(model, record)
    # Code of the study's own is tried out, on public records where there are some.
    if not settings.is_built_in or training.metrics or target_type.loss_name:
        learning.try_out(model, test, target_type=target_type, own=training.metrics)
    return learning.Learner(
        model=model,
        per_unit_model=per_unit_model,
        per_view_model=per_view_model,
        initial=learning.parameters_vector(model),
        target_type=target_type,
        method=method,
        device=device,
        shape=shape,
        views=views,
        column_names=handed.column_names if handed else (),
    )


def _with_records(study: Study, name: str, silo: SiloData, records: Records) -> SiloData:
    """A silo with its records, of which each decides by itself whether it is held back (P16)."""
    # Whose coin falls so is kept from the training, whoever asks of it.
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

    def without_options(of: Study) -> Study:
        return of.changed(data=replace(of.data, options=()))

    is_other = without_options(made.study) != without_options(study)
    if is_other or made.dimension not in (None, dimension or made.dimension):
        raise StudyError(
            "expected a plan of this study, got another's; leave the plan out and it is computed"
        )
    if made.dimension is None:  # it counts on more parameters than there are
        return plan_study(study, dimension=dimension)
    return replace(made, study=study)


def _check_records(
    study: Study, silos: Mapping[str, Records], test: Records | None, shape: Sequence[int]
) -> None:
    """Numbers, shapes and targets of the records at hand; DataError if they do not fit."""
    _check_counts(study, [records.units for records in silos.values()])
    if test is not None and not len(test):
        raise DataError("expected records in the public test set, got none; fix it")
    there = {**silos, **({} if test is None else {silo_records.TEST: test})}
    for name, records in there.items():
        own = tuple(records.inputs.shape[1:])
        if own != tuple(shape):
            raise DataError(
                f"expected records of shape {tuple(shape)} for {name}, got {own}; fix the data "
                "or model.inputs"
            )
        refuse_other_targets(study.data.outcome, records.targets, name)
        _check_targets(name, records, study)


def _check_counts(study: Study, counts: list[int]) -> None:
    """Joint batches make the numbers of records public, and the plan counts on them (P10)."""
    if not study.shows_counts or len(counts) < study.parties.silos:
        return
    data, together = study.data, study.parties.colluders + 1
    if list(data.counts or counts) != counts or sum(counts) != data.records:
        raise DataError(
            f"expected {list(data.counts) or data.records} records, as the study states, "
            f"got {counts}, {sum(counts)} in all; joint batches make the numbers public: "
            "correct data.records or data.counts"
        )
    most = owned_records(training_of(study).mechanism, study.parties, together)
    if sum(sorted(counts)[-together:]) > most > 0:
        raise DataError(
            f"expected no {together} silos to hold more than {most} of the records, as if "
            f"all held equally many, got {counts}; state data.counts"
        )


def _check_targets(name: str, records: Records, study: Study) -> None:
    """Targets are what a built-in model is trained for; others would be learnt as nonsense."""
    (model, _), targets = learning_of(study), records.targets
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


def check_wanted(
    study: Study, out: str | Path | None, baseline: str | None, audit: str | Path | None = None
) -> None:
    """Refuse what cannot be run, or leaves nothing that an audit could stand in."""
    if baseline is not None and baseline not in baselines.BASELINES:
        raise StudyError(
            f"expected baseline to be one of {', '.join(baselines.BASELINES)}, "
            f"got {baseline!r}; choose one"
        )
    if study.parties.roster and baseline is None:
        raise StudyError(
            "expected a study without parties.roster in one process, where keys are made for the "
            "run, got one with it; leave it out to try the study, or use hubbub serve and join"
        )
    if baseline is not None and study.training is None:
        raise StudyError(
            f"expected no baseline of a study with statistics only, got {baseline!r}; "
            "leave it out, or see what a run would give with hubbub.rehearse"
        )
    if out is not None:
        run_folder.refuse_used(Path(out))
    if audit is not None and (baseline is not None or out is None):
        raise UserError(
            "expected an audit with a run that leaves evidence, got one with "
            f"{('no folder' if out is None else 'a baseline')}; leave it out"
        )


def check_plan(path: Path, made: Plan) -> None:
    """The plan is still the one by which the run began: noise and account go together."""
    try:
        why = difference(json_value(read_bytes(path)), json.loads(made.to_json()))
    except (OSError, ValueError, RecursionError, OverflowError) as error:
        why = f"it cannot be read ({type(error).__name__})"
    if why:
        raise IntegrityError(
            f"expected {path} to be the plan that follows from the study, {why}; restore "
            "it, or use the version of hubbub that began the run"
        )
