"""Training from a notebook: arrays or data frames in, a `Result` out, no file needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.core.errors import ModelError, StudyError
from hubbub.core.runs import loop
from hubbub.core.settings import Section
from hubbub.core.study import silo_records
from hubbub.core.study.source import IN_MEMORY
from hubbub.core.study.study import Study
from hubbub.core.tabular.column import columns_from
from hubbub.core.tabular.target import Outcome, target_from
from hubbub.estimation.data_frame import library_of
from hubbub.learning.runs import array_inputs, preparing, result, run_study, uncounted
from hubbub.learning.runs.metric_log import logged
from hubbub.learning.runs.preparing import InMemory, prepare
from hubbub.learning.study.model import LINEAR_PROBE, LORA, MODEL_KINDS
from hubbub.learning.study.training import STEPS


def fit(
    silos: Mapping[str, array_inputs.Table],
    *,
    epsilon: float,
    delta: float = 1e-5,
    colluders: int = 1,
    model: Any = "logistic",
    test: array_inputs.Table | None = None,
    classes: Sequence[object] | None = None,
    target: Mapping[str, Any] | None = None,
    columns: Mapping[str, Mapping[str, Any]] | None = None,
    hidden: Sequence[int] = (),
    intercept: float | None = None,
    steps: int | None = None,
    sample_rate: float = 0.2,
    clip_norm: float | None = None,
    optimizer: Mapping[str, Any] | None = None,
    augment: Mapping[str, Any] | None = None,
    average: Mapping[str, Any] | None = None,
    relation: str = "add-remove",
    compute_nodes: int = 0,
    records: int | None = None,
    capacity: int | Sequence[int] | None = None,
    patients: Mapping[str, Any] | None = None,
    most_per_patient: int | None = None,
    statistics: Mapping[str, Any] | None = None,
    validation: Mapping[str, Any] | float | None = None,
    name: str = "fit",
    out: str | Path | None = None,
    baseline: str | None = None,
    progress: bool | loop.Progress | None = None,
    device: str = "auto",
    log: str | None = None,
) -> result.Result:
    """Train one model across silos whose records are in memory, with the full protocol.

    Settings that are not parameters here have a study's defaults; to change them, write
    a `Study`. All numbers but the records themselves are public.

    Guarantees:
        1. Those of `run`: the model is (epsilon, delta)-DP against the aggregator with `colluders`
           silos, each record of a silo being one unit, or with `patients` each patient of a silo.
        2. The result's summary lists what was read off the records and counts as public.
        3. Fitting again without a common ledger gives an `UncountedWarning`.

    Args:
        silos: by each silo's name its features, an array or tensor (n, ...) or a data frame, and
            its targets (n,), numbers or texts; or a `torch.utils.data.Dataset` of such pairs, each
            record's own. Without `columns` features are used as they are:
            bring them to about -1 to 1 by public numbers.
        epsilon: the guarantee against the aggregator with `colluders` silos; no unit.
        delta: the probability with which the guarantee may fail.
        colluders: number of silos that may collude with the aggregator.
        model: "logistic", "mlp" (with `hidden`), "cnn", "linear-probe" (with one step of "sgd"),
            or a torch module that gives one logit per
            record, shape (n,), for two classes, else (n, classes); the module is left as it is.
            Outputs with `.logits`, (n, 1) or the logits (n, 2) of both classes are taken for what
            they are, probabilities of a last sigmoid or softmax with a note. For
            a target that is no class it gives (n,), or (n, times) for a time to an event.
        test: public features and targets for the metrics; None: no metrics.
        classes: the values of the targets, the second of two being the positive one; None: those
            that occur, sorted, all of them at some silo. Which ones occur then counts as public.
        target: what targets are if they are no classes, by the keys of `data.target` in a study,
            such as `{"kind": "numeric", "low": 0, "high": 30}`, "count" with "high", or
            "time-to-event" with "grid", whose targets are (n, 2), times and 1 or 0 for the event.
        columns: for data frames, how each column becomes features, by the keys of `data.columns` in
            a study, such as `{"age": {"low": 20, "high": 90}}`.
        hidden: widths of the hidden layers of "mlp".
        intercept: where the bias of a "logistic" of two classes begins, by what is public: the
            log-odds of a rare class, -4.5 of one in ninety; None: 0.
        steps: number of steps; None: 150.
        sample_rate: the chance of a record to be in a batch, a probability.
        clip_norm: the largest norm of a record's gradient; None: by the rule that `hubbub init`
            has, from numbers of records and features, epsilon and the target's kind.
        optimizer: name and options, as in a study; None: Adam, whose rate is of the same rule and
            falls linearly to 0.
        augment: views of each record, whose mean gradient is clipped, such as `{"views": 8}` of
            images (n, channels, height, width); None: the record itself.
        average: which mean of the models of all steps is the result, such as
            `{"kind": "exponential"}` or `{"kind": "tail", "share": 0.25}`; None: the last model.
        relation: of neighbouring data sets, "add-remove" or "substitute".
        compute_nodes: number of parties that hold masks; 0: silos mask each other's sums.
        records: public number of units in all; None: as many as there are, which then counts as
            public.
        capacity: public number of units that a silo may hold, one for all or one for each in their
            order; None: the step of a public ladder that holds a silo's, which then counts as
            public.
        patients: by each silo's name whose its records are, (n,) numbers or texts: those of one
            patient are one unit then, clipped once. None: each record is a unit.
        most_per_patient: beside `patients` the public number of records of one patient at most;
            further ones are left out. Without, it adds what a patient is promised to the plan.
        statistics: what is asked beside the training, as `[statistics]` of a study has it:
            `{"epsilon": 0.5, "baseline": {"kind": "table"}}`, of the data frames' `columns`; what
            the model must not see of them has `"feature": False`. Its epsilon is a part of the
            whole.
        validation: how good the model is on the silos' own records, told with noise and an
            interval (docs/validation.md): the epsilon that it may cost, a part of the whole, or
            `[validation]` of a study, such as `{"epsilon": 0.3, "centres": True}`; `by` takes
            `columns`.
        name: of the study.
        out: folder for the results, with the silos' ledgers in `ledgers` beside it; None: write
            nothing, keep no ledger.
        baseline, progress, device, log: see `run`.

    Returns:
        The model, its metrics and its epsilon; with `statistics` their answers, with `validation`
        its scores, too.

    Raises:
        StudyError: the numbers contradict each other.
        DataError: a silo's arrays do not fit, it has no records, or silos spell classes in several
            ways.
        ModelError: the model cannot be trained with a guarantee for every record.
        UserError: the folder holds something, or the device is not there.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def silo():
    ...     x = rng.uniform(-1, 1, (200, 3))
    ...     return x, np.where(x[:, 0] > 0, "ill", "well")
    >>> result = fit({"north": silo(), "south": silo(), "east": silo()}, epsilon=5, steps=20,
    ...              classes=["well", "ill"], test=silo())
    >>> result.final["auc"] > 0.8, result.predict(np.eye(3)).shape
    (True, (3,))

    Without a public test set the silos' own records say how good it is:

    >>> result = fit({"north": silo(), "south": silo(), "east": silo()}, epsilon=8, steps=20,
    ...              classes=["well", "ill"], validation=3.0)
    >>> score = result.validation["all"]["scores"]["auc"]
    >>> score["low"] > 0.5, score["is_better"], result.epsilon <= 8
    (True, True, True)
    """
    array_inputs.refuse_fewer(silos, "(X, y)", "divide the records among silos", colluders)
    # What was stated, before any record is looked at.
    stated = array_inputs.declared(columns)
    declared = columns_from(stated) if stated else ()
    encoded = [column for column in declared if column.feature]
    _check_model(model)
    if optimizer is not None and not isinstance(optimizer, Mapping):
        raise StudyError(
            "expected optimizer to be a mapping such as {'name': 'adam', 'lr': 0.1}, got "
            f"{type(optimizer).__name__}; write one"
        )
    if validation is not None and not isinstance(validation, Mapping):
        validation = {"epsilon": validation}
    if capacity is not None and np.ndim(capacity):  # whatever several come in
        capacity = list(capacity)  # type: ignore[arg-type]  # there are several
    # Everybody's records, as features and targets.
    silos = {who: array_inputs.arrays_of(who, table) for who, table in silos.items()}
    test = None if test is None else array_inputs.arrays_of(silo_records.TEST, test)
    tables = {**silos, **({} if test is None else {silo_records.TEST: test})}
    by_place = () if encoded else array_inputs.columns_alike(tables)
    outcome = _outcome(target, classes)
    names = () if outcome else array_inputs.classes_of(silos, classes)
    parts = {
        who: array_inputs.records_of(who, table, names, encoded, outcome)
        for who, table in tables.items()
    }
    parts |= {
        who: array_inputs.with_patients(who, parts[who], patients)
        for who in silos
        if patients is not None
    }
    # What the study says that nobody has stated: read off the records, and told in the end.
    shape = next(iter(parts.values())).inputs.shape[1:]
    is_built_in = isinstance(model, str)
    if is_built_in and not encoded and model != LINEAR_PROBE:  # which scales each record itself
        array_inputs.warn_of_far_features({who: parts[who] for who in silos})
    units = sum(parts[who].units for who in silos) if records is None else records
    outputs = 1 if len(names) == 2 else len(names)
    if outcome is not None:  # for times a built-in model has the proportional form
        outputs = 1 if is_built_in else len(outcome.grid) or 1
    content = array_inputs.plain(
        {
            "study": {"name": name},
            "parties": {
                "names": list(silos),
                "colluders": colluders,
                "compute_nodes": compute_nodes,
            },
            "data": {
                "source": IN_MEMORY,
                **({"target": dict(target or {})} if outcome else {"classes": list(names)}),
                "records": units,
                **_stated(capacity=capacity, patient=None if patients is None else "patient"),
                **({"most_per_patient": most_per_patient} if most_per_patient else {}),
                **({"columns": stated} if stated else {}),
            },
            "model": {
                "kind": model if is_built_in else IN_MEMORY,
                "inputs": list(shape),
                "outputs": outputs,
                **({"hidden": hidden} if hidden else {}),
                **_stated(intercept=intercept),
            },
            "training": {
                "steps": STEPS if steps is None else steps,
                "sample_rate": sample_rate,
                **_stated(
                    clip_norm=clip_norm, optimizer=optimizer, augment=augment, average=average
                ),
            },
            "privacy": {"epsilon": epsilon, "delta": delta, "relation": relation},
            **_stated(statistics=statistics, validation=validation),
        }
    )
    # Clip, optimizer and bins follow the rules where they are not stated.
    study = Study.from_table(content)
    usual = [part for ask in study.asks for part in ask.usual(study).items()]
    completed = {name: {**followed, **content[name]} for name, followed in usual}
    study = Study.from_table(content | completed)
    # A validation by subgroups needs of each record its class, too.
    if by := study.subgroups:
        parts |= {who: array_inputs.with_groups(who, parts[who], silos[who], by) for who in silos}
    preparing.check_wanted(study, out, baseline)
    handed = InMemory(records=parts, column_names=by_place, model=None if is_built_in else model)
    frames = {who: table[0] for who, table in silos.items()}
    if statistics is not None:  # which are made of the data frames beside the targets
        tables_asked = array_inputs.tables_of(frames, declared, patients, most_per_patient)
        handed = replace(handed, cells=tables_asked.cells)
    prepared = prepare(study, device=device, handed=handed)
    # A baseline charges nothing.
    if baseline is None:
        ledgers = None if out is None else (Path(out).parent / "ledgers").resolve()
        uncounted.warn_if_uncounted(dict.fromkeys(silos, ledgers))
    telling = run_study.telling(progress, study)
    with telling as after_step, logged(log, study, baseline) as metric_log:
        learned = run_study.run_prepared(
            prepared, out, baseline=baseline, progress=after_step, metric_log=metric_log
        )
    # What counts as public, since it was not stated.
    read_off = [
        *([study.data.unit_count] if records is None else []),
        *([f"how many {study.data.unit}s a silo may hold, to a factor of 2"] * (capacity is None)),
        *([result.classes_in_words(names)] if classes is None and not outcome else []),
    ]
    return replace(
        learned.with_library(library_of(next(iter(frames.values())))), made_public=tuple(read_off)
    )


def _stated(**keys: Any) -> dict[str, Any]:
    """Those that somebody has given."""
    return {key: value for key, value in keys.items() if value is not None}


def _outcome(target: Any, classes: object) -> Outcome | None:
    if target is None:
        return None
    if not isinstance(target, Mapping) or classes is not None:
        raise StudyError(
            "expected target to be a mapping such as {'kind': 'numeric', 'low': 0, 'high': 30}, "
            "without classes beside it, got something else; write one"
        )
    section = Section("data", {"target": array_inputs.plain(dict(target))}, ("target",))
    return target_from(section, "target", files=False)[1]


def _check_model(model: Any) -> None:
    if isinstance(model, str) or (hasattr(model, "state_dict") and not isinstance(model, type)):
        return
    named = ", ".join(f'"{kind}"' for kind in MODEL_KINDS if kind != LORA)
    raise ModelError(
        f"expected model to be {named} or a torch module, got "
        f"{('a class' if isinstance(model, type) else type(model).__name__)}; pass a module"
    )
