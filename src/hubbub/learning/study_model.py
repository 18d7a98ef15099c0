"""What of a study everybody can make alike, without any records: model, goal, projections.

The aggregator makes it to run a study, and whoever verifies one makes it again.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

import hubbub.learning as learning
from hubbub.core.protocol.projection.product import Lift, lift
from hubbub.core.protocol.round.projected_sum import LAYERS, draw_key, projection_of
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.study.import_path import is_own
from hubbub.core.study.study import Study
from hubbub.learning import target_types
from hubbub.learning.low_rank import low_rank_model
from hubbub.learning.queries.model_size import record_shape
from hubbub.learning.self_check import TriedMethod
from hubbub.learning.study.model import Model
from hubbub.learning.study.model_kinds import LORA
from hubbub.learning.study.training import learning_of
from hubbub.learning.usual_outputs import with_usual_outputs


def model_of(study: Study, shape: tuple[int, ...], given: Any = None) -> Any:
    """The study's model with its first weights, for records of this shape.

    Args:
        study: whose model it is.
        shape: of one record.
        given: a module to be trained in its place, of which a copy is taken; None: there is none.
    """
    model, _ = learning_of(study)
    if given is None and model.kind == LORA:
        return low_rank_model(model, seed=study.id)
    module = copy.deepcopy(given) if given is not None else _built(study, model, shape)
    if model.is_built_in:
        return module
    return with_logits(study, module, shape)


def with_logits(study: Study, module: Any, shape: tuple[int, ...]) -> Any:
    """A user's module, whose outputs are read as what they mean (usual_outputs.py)."""
    own = is_own(study.data.source)  # whose targets may be class numbers of two classes, too
    single = learning_of(study)[0].outputs == 1
    return with_usual_outputs(module, shape, goal_of(study), single=single, pairs=not own)


def _built(study: Study, model: Model, shape: tuple[int, ...]) -> Any:
    """What the kind of model gives."""
    return learning.build_model(
        model.kind,
        inputs=shape,
        outputs=model.outputs,
        hidden=model.hidden,
        bias=model.bias,
        seed=study.id,
        intervals=len(study.data.outcome.grid) if study.data.outcome else 0,
        intercept=model.intercept,
    )


def goal_of(study: Study) -> target_types.TargetType:
    """What the study's model is trained for."""
    return target_types.goal_for(study.data.outcome, learning_of(study)[0])


def tried_model(study: Study) -> TriedMethod | None:
    """What is seen of the study's model on made-up records; None where their shape is not public.

    Args:
        study: approved here, since its own code runs.

    Returns:
        The method, and whether the work varies.

    Raises:
        StudyError, ModelError, IntegrityError: a run would refuse the model.
    """
    shape = record_shape(study)
    if shape is None:
        return None
    target_type = goal_of(study)
    targets = target_type.some_targets(2)
    if targets.dtype.kind == "f":
        targets = targets.astype(np.float32)
    model = learning.per_unit_model(model_of(study, shape), study.data.places)
    return learning.method_and_work(model, shape, targets, target_type=target_type)


def lift_of(parameters: RoundParameters, model: Any) -> Lift | None:
    """From projected sums back to whole ones; None where nothing is projected."""
    if not parameters.projection:
        return None
    if parameters.projection == LAYERS:
        layers = learning.LayerProjection.of(model, parameters.dimension)
        return lambda found, draw: layers.lift(found, draw_key(parameters, draw))
    projection = projection_of(parameters)
    return lambda found, draw: lift(found, projection, draw)
