"""Models whose outputs mean logits but are no tensor of logits: they are read as what they mean.

Hugging Face's models give an object with `.logits`; many give (n, 1) for (n,), the logits of both
of two classes, or end in a sigmoid or a softmax, which the loss would apply once more. What a model
does is seen on made-up records; a forward hook then makes its outputs the usual ones, so that names
of parameters stay what they are. This file knows no records.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from hubbub.learning.target_types import Classes, TargetType
from hubbub.learning.torch_settings import borrowed, device_under
from hubbub.learning.trial import made_up

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

    Args:
        model: a user's; the hook is put on it.
        shape: of one record.
        target_type: what it is trained for.
        single: whether the study's model has one output, (n,).
        pairs: whether (n, 2) are then the logits of both classes; not so where targets may be class
            numbers, of which they are the usual outputs.
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
            "the model ends in a %s, which the loss has already: its outputs are read as "
            "probabilities; leave that layer out, and they are logits",
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

    Args:
        columns: that outputs have where they are to be (n,); 0: they stay as they are.
        last: by whether the model is in training, "sigmoid" or "softmax", which is undone; empty:
            neither. Many a model gives logits in training and probabilities elsewhere.
    """

    columns: int
    last: Mapping[bool, str]

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
        with borrowed() as generator, torch.enable_grad():
            for inputs in made_up(generator, shape):
                try:
                    return trial(inputs.to(device_under(model)))
                except (IndexError, TypeError, RuntimeError):
                    continue
    except Exception:  # noqa: BLE001, S110 (the model is the user's, and is refused where it is tried)
        pass
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
