"""What of a study everybody can make alike, without any records: model, target, projections.

The aggregator makes it to run a study, and whoever verifies one makes it again.
"""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import hubbub.learning as learning
from hubbub.core.errors import ModelError
from hubbub.core.planning.projections import Projection, transform_of
from hubbub.core.protocol.round.draw import Lift
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.study.source import is_own
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.learning import target_types
from hubbub.learning.batches import UnitModel
from hubbub.learning.evaluation import Score, scores_of
from hubbub.learning.frozen import low_rank_model
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.parameters import load_parameters
from hubbub.learning.self_check import TriedMethod
from hubbub.learning.study.model import LORA, record_shape
from hubbub.learning.study.training import learning_of
from hubbub.learning.target_types import Classes, TargetType
from hubbub.learning.torch_settings import device_under
from hubbub.learning.trial import first_taken
from hubbub.learning.views import Views, views_of

Parameters = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A study's model as one machine makes gradients of it; silos of one process share it."""

    model: nn.Module = field(repr=False)  # steps are written into it to evaluate it
    # The same as the study's units see it, a patient's records at once; and as it is trained, all
    # views of a unit's records at once.
    per_unit_model: nn.Module | UnitModel = field(repr=False)
    per_view_model: nn.Module | UnitModel = field(repr=False)
    initial: Parameters = field(repr=False)
    target_type: TargetType
    method: str = ""  # how clipped gradients of it are made
    device: str = "cpu"
    shape: tuple[int, ...] = ()  # of one record's features
    views: Views | None = None
    column_names: tuple[str, ...] = ()  # of data frames that were fitted by their places

    def trained(self, parameters: Parameters) -> nn.Module:
        """The model with these parameters."""
        load_parameters(self.model, parameters)
        return self.model

    def beside_null(self, parameters: Parameters, test: Records) -> dict[str, Score]:
        """Scores on a public test set beside those of a model that knows nothing."""
        return scores_of(
            self.trained(parameters), test, device=self.device, target_type=self.target_type
        )


# Models whose outputs mean logits but are no tensor of logits: they are read as what they mean.
#
# Hugging Face's models give an object with `.logits`; many give (n, 1) for (n,), the logits of both
# of two classes, or end in a sigmoid or a softmax, which the loss would apply once more. What a
# model does is seen on made-up records; a forward hook then makes its outputs the usual ones, so
# that names of parameters stay what they are.

_LEAST = 1e-6  # of a probability, whose logarithm is taken
_KEEPING = frozenset(  # operations after which probabilities are still some
    {
        *("Squeeze", "Unsqueeze", "View", "UnsafeView", "Select", "Slice", "Alias", "T"),
        *("Transpose", "Permute", "ToCopy", "Clamp"),
    }
)
_LOG = logging.getLogger(__name__)


def with_usual_outputs(
    model: nn.Module,
    shape: tuple[int, ...],
    target_type: TargetType,
    *,
    single: bool,
    pairs: bool = True,
) -> nn.Module:
    """The model itself, with a hook where its outputs are others that mean the same.

    `single` says that the study's model has one output, (n,), and `pairs` that (n, 2) are then the
    logits of both classes: not so where targets may be class numbers, whose usual outputs they are.
    """
    raw = {mode: _outputs_on_made_up(model, shape, mode) for mode in (False, True)}
    logits = _logits_in(raw[False])
    if not isinstance(logits, torch.Tensor) or logits.ndim not in (1, 2):
        return model  # which is refused where it is tried
    classes = isinstance(target_type, Classes)
    reads = classes and not target_type.loss_name
    usual = UsualOutputs(
        columns=logits.shape[1] if single and logits.ndim == 2 else 0,
        last={mode: _last_operation(_logits_in(raw[mode])) if reads else "" for mode in raw},
    )
    if last := usual.last[False] or usual.last[True]:
        _LOG.warning(
            "the model ends in a %s, which the loss already contains: its outputs are "
            "read as probabilities; leave that layer out, and they are logits",
            last,
        )
    if usual.columns not in (1, 2 if pairs and classes else 1):
        usual = replace(usual, columns=0)
    if last or usual.columns or any(_logits_in(one) is not one for one in raw.values()):
        model.register_forward_hook(usual)
    return model


@dataclass(frozen=True, kw_only=True)
class UsualOutputs:
    """A forward hook that gives logits (n,) or (n, classes).

    Many a model gives logits in training and probabilities elsewhere.
    """

    columns: int  # that outputs have where they are to be (n,); 0: they stay as they are
    last: Mapping[bool, str]  # in training or not: "sigmoid" or "softmax", which is undone, or ""

    def __call__(self, model: nn.Module, _: Any, raw: Any) -> torch.Tensor:
        """Of what the model gives."""
        logits: torch.Tensor = _logits_in(raw)
        last = self.last[model.training]
        if last == "softmax" and logits.ndim == 2 and logits.shape[1] > 1:
            logits = logits.clamp_min(_LEAST).log()
        elif last:  # one probability of each record, whatever it was made by
            logits = logits.logit(_LEAST)
        if self.columns == 1:
            return logits.squeeze(-1)
        return logits[..., 1] - logits[..., 0] if self.columns == 2 else logits


def _logits_in(outputs: Any) -> Any:
    """The logits of an object or a mapping that names them; else what is given."""
    if isinstance(outputs, Mapping):
        return outputs.get("logits", outputs)
    return getattr(outputs, "logits", outputs)


def _outputs_on_made_up(model: nn.Module, shape: tuple[int, ...], training: bool) -> Any:
    """What a copy of the model gives for records that anybody can make; None if it takes none."""
    try:
        trial = copy.deepcopy(model).train(training)
        with torch.enable_grad():
            return first_taken(shape, lambda inputs: trial(inputs.to(device_under(model))))
    except (Exception, SystemExit):  # noqa: BLE001 (it is the user's, and refused where it is tried)
        return None


def _last_operation(outputs: Any) -> str:
    """What made these outputs, if it is a sigmoid or a softmax; empty for anything else."""
    node: Any = getattr(outputs, "grad_fn", None)
    while node is not None and _kind(node) in _KEEPING:
        node = node.next_functions[0][0]
    kind = "" if node is None else _kind(node).lower()
    return kind if kind in ("sigmoid", "softmax") else ""


def _kind(node: Any) -> str:
    """The name of an operation, without what torch puts behind it."""
    return str(node.name()).partition("Backward")[0]


def model_of(study: Study, shape: tuple[int, ...], given: Any = None) -> Any:
    """The study's model with its first weights, for records of this shape; or a copy of `given`."""
    model, _ = learning_of(study)
    if given is None and model.kind == LORA:
        return low_rank_model(model, seed=study.id)
    try:
        module = copy.deepcopy(given)
    except (TypeError, RuntimeError, pickle.PicklingError) as error:
        raise ModelError(
            f"expected a module that can be copied, found that {error}; hold no lock, file, "
            "connection or computed tensor in it (torch.nn.utils.parametrizations hold none)"
        ) from error
    if given is None:
        module = learning.build_model(
            model.kind,
            inputs=shape,
            outputs=model.outputs,
            hidden=model.hidden,
            bias=model.bias,
            seed=study.id,
            intervals=len(study.data.outcome.grid) if study.data.outcome else 0,
            intercept=model.intercept,
            depth=model.depth,
            width=model.width,
        )
    if any(one.is_cuda for one in (*module.parameters(), *module.buffers())):
        module = module.cpu()  # where it is tried: what it cannot take stops a GPU
    return module if model.is_built_in else with_logits(study, module, shape)


def with_logits(study: Study, module: Any, shape: tuple[int, ...]) -> Any:
    """A user's module, whose outputs are read as what they mean."""
    module = getattr(module, "_orig_mod", module)  # of a compiled one, whose copies lose hooks
    own = is_own(study.data.source)  # whose targets may be class numbers of two classes, too
    single = learning_of(study)[0].outputs == 1
    return with_usual_outputs(module, shape, goal_of(study), single=single, pairs=not own)


def goal_of(study: Study) -> target_types.TargetType:
    """What the study's model is trained for."""
    return target_types.goal_for(study.data.outcome, learning_of(study)[0])


def tried_model(study: Study) -> TriedMethod | None:
    """What is seen of the study's model on made-up records; None where their shape is not public.

    The study is one that was approved here, since its own code runs.

    Raises:
        StudyError, ModelError, IntegrityError: a run would refuse the model.
    """
    shape = record_shape(study)
    if shape is None:
        return None
    target_type = goal_of(study)
    targets = target_type.some_targets(2)
    targets = targets.astype(np.float32) if targets.dtype.kind == "f" else targets
    views = views_of(learning_of(study)[1].augment, shape)
    model = per_view_model(study, model_of(study, shape), views)
    return learning.method_and_work(model, shape, targets, target_type=target_type)


def per_view_model(study: Study, model: nn.Module, views: Views | None) -> nn.Module:
    """The model as it is trained: on the views of a unit's records, or on these themselves."""
    places = study.data.places
    return learning.per_unit_model(model, max(1, places) * views.count if views else places)


def layers_of(projection: Projection | None) -> Callable[[nn.Module], LayerProjection] | None:
    """What makes a model's projection layer by layer; None where sums are projected, or nothing."""
    if projection is None or not projection.clips_after:
        return None
    return partial(LayerProjection.of, dimension=projection.dimension)


def lift_of(parameters: RoundParameters, model: Any) -> Lift | None:
    """From projected sums back to whole ones; None where nothing is projected."""
    transform = transform_of(parameters)
    if transform is None:
        return None
    if not transform.clips_after:
        return transform.lift
    layers, key = LayerProjection.of(model, parameters.dimension), transform.key
    return lambda found, draw: layers.lift(found, key(draw))
