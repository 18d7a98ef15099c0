"""The end of a run: its result; and model, answers, evidence and report in its folder."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub import learning
from hubbub.core.disk import inside, write_bytes, write_text
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import QueryState, Released
from hubbub.core.runs import loop, prepared_study, run_folder
from hubbub.core.runs.renderers import render
from hubbub.core.runs.run_folder import REPORT, SCORES
from hubbub.core.runs.spending import Spending
from hubbub.core.tabular.records import Standardisation
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import MODEL
from hubbub.estimation.queries.sums_query import SumsQuery, sums_in
from hubbub.learning.queries.beside_training import STANDARDISED
from hubbub.learning.queries.validation.validation_query import (
    VALIDATION,
    planned_validation,
    validation_of,
    write_validation,
)
from hubbub.learning.runs.result import Result, scores_to_dict
from hubbub.learning.study.training import learning_of


def conclude(
    prepared: prepared_study.PreparedStudy,
    trained: loop.State,
    folder: run_folder.RunFolder | None,
    *,
    epsilon: float,
    evidence: Callable[[], str] | None,
    began: float,
    is_copied: bool = False,
    baseline: str | None = None,
    spending: Spending | None = None,
) -> Result:
    """The result of a run, and what its folder holds in the end: model, evidence, report.

    Raises:
        IntegrityError: sums were charged and lost in an interruption, and an answer needs them.
    """
    states = {**prepared.states, prepared.plan.main.purpose: trained}
    prepared.plan.main.query.check_complete(trained)
    validated = _validated(prepared, states)
    released = _released(prepared.plan, states)
    result = Result(
        model=copy.deepcopy(prepared.trained(trained.parameters)),
        metrics=trained.rows,
        epsilon=epsilon,
        plan=prepared.plan,
        folder=folder.path if folder else None,
        standardisation=prepared.standardisation,
        is_copied=is_copied,
        baseline=baseline,
        spending=spending,
        scores=prepared.beside_null(trained.parameters) if baseline is None else {},
        shape=prepared.learner.shape if prepared.learner else (),
        statistics={name: one for part in released for name, one in part.answers.items()},
        states=states,
        validation=validated,
    )
    if folder is not None:
        prepared.plan.main.query.store(folder.path, trained)
        _write_released(folder.path, released)
        if validated is not None:
            write_validation(folder.path, validated)
        if result.model is not None:
            write_model(folder.path, prepared.plan, result.model, result.shape)
        if result.scores:
            kept_scores = json.dumps(scores_to_dict(result.scores), indent=2)
            write_text(folder.path / SCORES, kept_scores)
        if spending is not None:
            spending.write(folder.path)
        if evidence is not None:
            run_folder.write_evidence(folder.path, evidence())
        render("folder", folder.path, seconds=time.perf_counter() - began, thorough=True)
    return result


def _validated(
    prepared: prepared_study.PreparedStudy, states: Mapping[str, QueryState]
) -> dict[str, Any] | None:
    """What the study's validation says; None where it was not asked."""
    planned = planned_validation(prepared.plan)
    if planned is None or VALIDATION not in states:
        return None
    return validation_of(prepared.plan, planned.query.sums(states[VALIDATION]))


def answered_in(folder: Path, plan: Plan) -> Result | None:
    """What a folder holds of a study that asks for statistics alone; None if it is not finished.

    Raises:
        IntegrityError: a file of it was altered.
    """
    if not all((folder / name).is_file() for name in (FILE, REPORT)):
        return None
    query = plan.main.query
    if not isinstance(query, SumsQuery):
        return None
    kept = sums_in(folder, query.layout, query.kept_in)
    state = QueryState(parameters=kept)
    query.check_complete(state)
    epsilon = plan.epsilon()
    return Result(
        model=None,
        metrics=({"step": query.layout.made(kept), "epsilon": epsilon},),
        epsilon=epsilon,
        plan=plan,
        folder=folder,
        statistics=query.released(plan, kept).answers,
        states={plan.main.purpose: state},
    )


def write_result(
    folder: Path,
    prepared: prepared_study.PreparedStudy,
    parameters: NDArray[np.float32],
    standardisation: Standardisation | None,
) -> None:
    """Put into a silo's own folder what its study has given: the model, or the statistics."""
    plan = prepared.plan
    run_folder.write_study(folder, plan.study)
    model = prepared.trained(parameters)
    if prepared.learner is not None:
        write_model(folder, plan, model, prepared.learner.shape)
    if standardisation is not None:
        write_text(folder / STANDARDISED, standardisation.to_json())
    state = QueryState(parameters=parameters)
    if released := _released(plan, {plan.main.purpose: state}):
        plan.main.query.store(folder, state)
        _write_released(folder, released)


def _released(plan: Plan, states: Mapping[str, QueryState]) -> list[Released]:
    """What queries give people, where they have come so far."""
    released = [
        planned.query.released(plan, states[planned.purpose].parameters)
        for planned in plan.stepped
        if planned.purpose in states
    ]
    return [one for one in released if one.files]


def _write_released(folder: Path, released: Sequence[Released]) -> None:
    """Put it into a folder."""
    for one in released:
        for name, text in one.files.items():
            write_text(inside(folder, name), text)
        for name, copied in one.copies.items():
            path = inside(folder, name)
            path.parent.mkdir(exist_ok=True)
            content = copied.encode() if isinstance(copied, str) else copied
            write_bytes(path, content, durable=False)


def write_model(folder: Path, plan: Plan, model: Any, shape: tuple[int, ...]) -> None:
    """Put the trained model into a run's folder, with the shape of one record's features."""
    settings, _ = learning_of(plan.study)
    header = {
        "study": plan.study.id.hex(),
        "kind": settings.kind,
        "inputs": json.dumps(shape),
    }
    learning.save_model(folder / MODEL, model, header)
