"""A batch of records: tensors that share their first dimension, cut into pieces and single records.

Also what "the loss of one record" means here: the model sees a batch of one. Every method computes
the gradient of exactly this function. This file knows nothing of gradients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import DataError, ModelError
from hubbub.core.tabular.records import Records

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


# A patient's rows as one record: the model on all of them, and the mean of their losses.
#
# Theory of operation (docs/privacy.md P21). Every method here sums clipped gradients of
# *records*. A unit of k places is made one: its inputs are (k, ...), the model that sees them is
# `UnitModel`, and its loss the weighted sum over its places, whose gradient is the mean of its
# rows' gradients. So a unit is clipped once, as a record is, and whatever holds for records holds
# for it. A place without a row has weight 0 and holds a row of the same unit, so that it adds
# nothing of its own.
#
# Which rows a unit has is known to tabular/records.py; what becomes of a layer's products over
# several rows is the business of per_record.py.

# Targets (n, k), and the weights of the places (n, k).
Weighted = tuple[torch.Tensor, ...]


class UnitModel(nn.Module):
    """A model on units of k rows: (n, k, ...) to (n, k, ...).

    Args:
        rows: the model of single rows, whose parameters are this one's.
        places: k, the most rows of a unit, public.
    """

    rows: nn.Module

    def __init__(self, rows: nn.Module, places: int) -> None:
        super().__init__()
        self.rows, self.places = rows, places

    def forward(self, units: torch.Tensor) -> torch.Tensor:
        """The outputs of each unit's rows."""
        outputs: torch.Tensor = self.rows(units.flatten(0, 1))
        return outputs.reshape(*units.shape[:2], *outputs.shape[1:])


class UnitLoss:
    """The mean loss of each unit's rows.

    Args:
        rows: the loss of rows, one value for each.
    """

    def __init__(self, rows: Loss) -> None:
        self.rows = rows

    def each(self, outputs: torch.Tensor, targets: Weighted) -> torch.Tensor:
        """(n, k): the loss of every place."""
        losses = self.rows(outputs.flatten(0, 1), targets[0].flatten(0, 1))
        return losses.reshape(targets[1].shape)

    def __call__(self, outputs: torch.Tensor, targets: Weighted) -> torch.Tensor:
        """(n,), of outputs (n, k, ...)."""
        return (self.each(outputs, targets) * targets[1]).sum(1)


def per_unit_model(model: nn.Module, places: int) -> nn.Module:
    """The model as units of so many rows see it; itself where each record is a unit."""
    return UnitModel(model, places) if places else model


# Which records are held back from training, to be asked about the model (docs/privacy.md P16).
#
# Each record decides it alone, so that one more or less changes nothing about the others.


def held_back(records: Records, share: float, seed: bytes) -> NDArray[np.bool_]:
    """Which records are held back: about this share of them, each by its own bytes and the seed.

    Of a patient all are or none, by the bytes of all of them in their order.

    Args:
        records: n of them.
        share: probability that a record is held back, in (0, 1).
        seed: public bytes, such as the study id.

    Returns:
        (n,) bool, True for the records that are held back.

    >>> records = Records(
    ...     inputs=np.arange(200, dtype=np.float32)[:, None], targets=np.zeros(200, np.float32)
    ... )
    >>> 10 < held_back(records, 0.2, b"study").sum() < 80
    np.True_
    """
    limit = int(share * 2.0**64)
    units = np.arange(len(records)) if records.patients is None else records.patients
    hashes = [hashlib.sha256(seed) for _ in range(records.units)]
    for unit, one, y in zip(units, records.inputs, records.targets, strict=True):
        hashes[unit].update(one.tobytes() + y.tobytes())
    first = [int.from_bytes(digest.digest()[:8], "big") < limit for digest in hashes]
    return np.array(first, dtype=bool)[units]
