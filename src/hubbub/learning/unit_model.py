"""A patient's rows as one record: the model on all of them, and the mean of their losses.

Theory of operation (docs/privacy.md P21). Every method here sums clipped gradients of *records*. A
unit of k places is made one: its inputs are (k, ...), the model that sees them is `UnitModel`, and
its loss the weighted sum over its places, whose gradient is the mean of its rows' gradients. So a
unit is clipped once, as a record is, and whatever holds for records holds for it. A place without a
row has weight 0 and holds a row of the same unit, so that it adds nothing of its own.

Which rows a unit has is known to tabular/records.py; what becomes of a layer's products over
several rows is the business of per_record.py.
"""

from __future__ import annotations

import torch
from torch import nn

from hubbub.learning.batches import Loss

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
