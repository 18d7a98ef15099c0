"""A training made again for who verifies a run: its first weights, and the model it came to.

A model is built only where it is one of hubbub's: code that a study names is never run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

import hubbub.learning as learning
from hubbub.core.errors import HubbubError
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.query import Parameters
from hubbub.core.protocol.projection.product import Lift
from hubbub.core.protocol.round.projected_sum import LAYERS
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.verification.evidence.evidence_file import (
    RESTORE,
    Finding,
    check_ordinary,
    not_verifiable,
    signed,
    wrong,
)
from hubbub.core.verification.replay.course import Course
from hubbub.learning.study.model import told_shape
from hubbub.learning.study.training import learning_of


def initial_of(plan: Plan) -> Parameters | None:
    """The model before round 1; None if only code that the study names can make it."""
    model = _built(plan)
    return None if model is None else learning.parameters_vector(model)


def _built(plan: Plan, *, flattened: bool = False) -> Any:
    """The study's model with its first weights; None if its own code or data must say how large.

    Neither is looked at. Where the shape of a record is not stated, the weights are right all the
    same, but have the names of a model whose records are rows, or, `flattened`, made into rows.
    """
    if plan.study.model is None:
        return None
    shape = told_shape(plan.study, plan.dimension)
    if shape is None or not learning_of(plan.study)[0].is_built_in:
        return None
    return learning.model_of(plan.study, (1, *shape) if flattened else shape)


def lift_for(round_parameters: RoundParameters, plan: Plan) -> tuple[Lift | None, bool]:
    """From projected sums to whole ones, if they are projected; and whether that can be done."""
    model = _built(plan) if round_parameters.projection == LAYERS else None
    if round_parameters.projection == LAYERS and model is None:
        return None, False
    return learning.lift_of(round_parameters, model), True


def model_findings(path: Path, plan: Plan, course: Course, shown: Set[bytes]) -> Iterator[Finding]:
    """The model is what the last step gave, and what silos were shown before they were asked at it.

    Args:
        path: of its file.
        plan: of the study.
        course: of its training.
        shown: the RESULTs of all sessions.
    """
    claim = f"{path} holds the model that the last step gave"
    if _built(plan) is None:
        claim = (
            f"{path} contains the numbers that the last step gave, in the order that it states; "
            "what others are for, only the study's own code or data say"
        )
    if course.led is None:
        yield course.judged(claim, "").covering("replay.model")
        if not shown:
            return
    try:
        check_ordinary(path)
        stored = _stored(path, plan, plan.dimension or 0)
    except (HubbubError, SafetensorError, OSError) as error:
        yield wrong(claim, error).covering("replay.model")
        return
    if stored is None:
        yield not_verifiable(f"that {claim}: it states none").covering("replay.model")
        return
    if course.led is not None:
        same = stored.tobytes() == course.led.parameters.tobytes()
        why = "" if same else f"it holds another; {RESTORE}"
        yield course.judged(claim, why).covering("replay.model")
    if shown:
        same, claim = shown == {stored.tobytes()}, f"{path} holds the RESULT that silos were shown"
        yield signed(claim) if same else wrong(claim, f"they were shown another; {RESTORE}")


def _stored(path: Path, plan: Plan, size: int) -> Parameters | None:
    """The parameters in a file as one vector; None if nothing says in which order.

    A model of the study's own making is not built here, so the file itself has to say it.
    """
    model = _built(plan)
    if model is None:
        return learning.stored_parameters(path, size)
    if not learning_of(plan.study)[0].inputs and not _is_named(path, model):
        model = _built(plan, flattened=True)
    learning.load_model(path, model)
    return learning.parameters_vector(model)


def _is_named(path: Path, model: Any) -> bool:
    """Whether the tensors of a file have the names of the model's."""
    with safe_open(path, framework="np") as file:
        return set(file.keys()) == set(model.state_dict())
