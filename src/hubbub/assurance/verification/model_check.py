"""The model of a run as whoever verifies it makes it again: its first weights, and its last.

A model that only the study's own code or data can make is not made: they may come from anybody.
This file knows a plan and a file of tensors, and no session.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

import hubbub.learning as learning
from hubbub.assurance.evidence import Finding, check_ordinary, judged, not_verifiable, wrong
from hubbub.assurance.verification.damage import RESTORE
from hubbub.assurance.verification.model_course import Course
from hubbub.errors import HubbubError
from hubbub.planning import Plan, told_shape
from hubbub.protocol import LAYERS, Lift, Parameters, RoundParameters


def initial_of(plan: Plan) -> Parameters | None:
    """The model before round 1; None if only code that the study names can make it."""
    model = _built(plan)
    return None if model is None else learning.parameters_vector(model)


def course_of(plan: Plan, initial: Parameters | None, starts: Iterable[int]) -> Course:
    """The course of the model over sessions that begin with these rounds."""
    optimizer = learning.optimizer_of(plan)
    return Course(initial, optimizer, divisor=plan.divisor, starts=starts)


def _built(plan: Plan, *, flattened: bool = False) -> Any:
    """The study's model with its first weights; None if its own code or data must say how large.

    Neither is looked at. Where the shape of a record is not stated, the weights are right all the
    same, but have the names of a model whose records are rows, or, `flattened`, made into rows.
    """
    shape = told_shape(plan.study, plan.dimension)
    if shape is None or not plan.study.model.is_built_in:
        return None
    return learning.model_of(plan.study, (1, *shape) if flattened else shape)


def lift_for(terms: RoundParameters, plan: Plan) -> tuple[Lift | None, bool]:
    """From projected sums to whole ones, if they are projected; and whether that can be done."""
    model = _built(plan) if terms.projection == LAYERS else None
    if terms.projection == LAYERS and model is None:
        return None, False
    return learning.lift_of(terms, model), True


def last_model(
    path: Path, plan: Plan, parameters: Parameters | None, before: Parameters | None
) -> Finding:
    """The model is what the last step gave.

    If the run was interrupted between the last sum that it could pay for and the step along it, the
    model is the one `before`: the sum is paid for, and the step is lost.
    """
    claim = f"{path} holds the model that the last step gave"
    if _built(plan) is None:
        claim = (
            f"{path} contains the numbers that the last step gave, in the order that it states; "
            "what others are for, only the study's own code or data say"
        )
    if parameters is None:
        return not_verifiable(f"that {claim}: the last step could not be made again")
    try:
        check_ordinary(path)
        stored = _stored(path, plan, parameters.size)
    except (HubbubError, SafetensorError, OSError) as error:
        return wrong(claim, error)
    if stored is None:
        return not_verifiable(f"that {claim}: it states none")
    if stored.tobytes() == parameters.tobytes():
        return judged(claim, "")
    if before is not None and stored.tobytes() == before.tobytes():
        return judged(f"{claim} that an interruption has left", "")
    return judged(claim, f"it holds another; {RESTORE}")


def _stored(path: Path, plan: Plan, size: int) -> Parameters | None:
    """The parameters in a file as one vector; None if nothing says in which order.

    A model of the study's own making is not built here, so the file itself has to say it.
    """
    model = _built(plan)
    if model is None:
        return learning.stored_parameters(path, size)
    if not plan.study.model.inputs and not _is_named(path, model):
        model = _built(plan, flattened=True)
    learning.load_model(path, model)
    return learning.parameters_vector(model)


def _is_named(path: Path, model: Any) -> bool:
    """Whether the tensors of a file have the names of the model's."""
    with safe_open(path, framework="np") as file:
        return set(file.keys()) == set(model.state_dict())
