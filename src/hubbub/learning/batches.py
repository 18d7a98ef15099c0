"""A batch of records: tensors that share their first dimension, cut into pieces and single records.

Also what "the loss of one record" means here: the model sees a batch of one. Every method computes
the gradient of exactly this function. This file knows nothing of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hubbub.core.errors import DataError, ModelError

Tensors = torch.Tensor | tuple[torch.Tensor, ...]
Loss = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs and targets of records; `paired` says that the targets are a tuple."""

    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    paired: bool

    @property
    def size(self) -> int:
        """How many records."""
        return len(self.inputs[0])

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        """The batch with every tensor changed in the same way."""
        inputs, targets = (tuple(map(change, ts)) for ts in (self.inputs, self.targets))
        return Batch(inputs=inputs, targets=targets, paired=self.paired)

    def piece(self, start: int, stop: int) -> Batch:
        """Records start to stop - 1."""
        return self.each(lambda values: values[start:stop])

    def labels(self, targets: tuple[torch.Tensor, ...] | None = None) -> Tensors:
        """The targets as the loss expects them."""
        targets = self.targets if targets is None else targets
        return targets if self.paired else targets[0]


def batch_of(inputs: Tensors, targets: Tensors) -> Batch:
    """Check that all tensors hold the same number of records."""
    xs = inputs if isinstance(inputs, tuple) else (inputs,)
    ys = targets if isinstance(targets, tuple) else (targets,)
    if not xs or not ys or not all(t.dim() > 0 for t in (*xs, *ys)):
        raise DataError("expected inputs and targets with one row per record, found a scalar")
    sizes = {len(t) for t in (*xs, *ys)}
    if len(sizes) != 1:
        raise DataError(
            f"expected inputs and targets with the same number of records, found {sorted(sizes)}; "
            "give every tensor one row per record"
        )
    return Batch(inputs=xs, targets=ys, paired=isinstance(targets, tuple))


def single_value(value: torch.Tensor) -> torch.Tensor:
    """The loss of one record as a scalar tensor."""
    if value.numel() != 1:
        raise ModelError(
            f"expected one loss value per record, found {value.numel()} for a single record; "
            "reduce over everything but the first dimension, which is that of the records"
        )
    return value.reshape(())


def on_device(
    values: Tensors,
    device: torch.device,
    change: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.contiguous,
) -> Tensors:
    """The tensor, or each of the tuple, changed in one way and on that device."""
    if isinstance(values, tuple):
        return tuple(change(value).contiguous().to(device) for value in values)
    return change(values).contiguous().to(device)
