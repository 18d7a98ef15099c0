"""A batch of records: tensors that share their first dimension, cut into pieces and single records.

Also what "the loss of one record" means here: the model sees a batch of one. Every method computes
the gradient of exactly this function. This file knows nothing of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hubbub.errors import DataError, ModelError

Tensors = torch.Tensor | tuple[torch.Tensor, ...]
Loss = Callable[[Any, Any], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs and targets of `size` records; `paired` says that the targets are a tuple."""

    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    paired: bool
    size: int

    def piece(self, start: int, stop: int) -> Batch:
        """Records start to stop - 1."""
        return Batch(
            inputs=tuple(x[start:stop] for x in self.inputs),
            targets=tuple(y[start:stop] for y in self.targets),
            paired=self.paired,
            size=min(stop, self.size) - start,
        )

    def on(self, device: torch.device | None) -> Batch:
        """The same records on another device; None leaves them where they are."""
        return Batch(
            inputs=tuple(x.to(device) for x in self.inputs),
            targets=tuple(y.to(device) for y in self.targets),
            paired=self.paired,
            size=self.size,
        )

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
    paired = isinstance(targets, tuple)
    return Batch(inputs=xs, targets=ys, paired=paired, size=sizes.pop())


def single_value(value: torch.Tensor) -> torch.Tensor:
    """The loss of one record as a scalar tensor."""
    if value.numel() != 1:
        raise ModelError(
            f"expected one loss value per record, found {value.numel()} for a single record; "
            "reduce over everything but the first dimension, which is that of the records"
        )
    return value.reshape(())
