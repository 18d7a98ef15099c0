"""The plain method: one forward and one backward per record. Right for every model, never fast.

The other methods are checked against it. This file knows nothing of layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from hubbub.learning.batches import Batch, Loss, single_value
from hubbub.learning.parameter_vector import ParameterLayout
from hubbub.learning.per_record import Source, Stack


def loop_parts(
    model: nn.Module, loss: Loss, layout: ParameterLayout, record: Batch
) -> list[Source]:
    """The gradient of the one record in `record`."""
    value = single_value(loss(model(*record.inputs), record.labels()))
    if not value.requires_grad:
        return []
    wanted = list(layout.parameters.values())
    gradients: Sequence[torch.Tensor | None] = torch.autograd.grad(value, wanted, allow_unused=True)
    named = zip(layout.parameters, gradients, strict=True)
    return [(name, Stack(gradients=_dense(g)[None])) for name, g in named if g is not None]


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """Embeddings with sparse=True give sparse gradients."""
    return gradient.to_dense() if gradient.is_sparse else gradient
