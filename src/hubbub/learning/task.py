"""A silo's records beside a model: the clipped sum of a batch, as the round asks for it.

Sums of at most a few dozen records are made in float32 and added up in float64, so that the
rounding of the sum stays within the margin that the plan takes off the clipping norm
(docs/privacy.md P6 i and P14).
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.learning.gradients import clipped_sum
from hubbub.learning.metrics import evaluate
from hubbub.learning.models import default_loss
from hubbub.learning.parameters import load_parameters, parameters_vector
from hubbub.learning.self_check import checked_method
from hubbub.tabular import Records

# Silos of one process may share a replica of the model, whose parameters are written here.
_REPLICA = Lock()
_CHECKED = 4  # records of made-up data on which a method is tried


class TrainingTask:
    """One silo's records, and the model that is trained on them.

    Args:
        model: the silo's replica; silos of one process may share it.
        records: the silo's own.
        clip: norm to which each record's gradient is clipped.
        margin: the relative rounding error of the sum that `clip` already allows for.
        method: of `hubbub.learning.clipped_sum`.
    """

    def __init__(
        self, model: nn.Module, records: Records, *, clip: float, margin: float, method: str
    ) -> None:
        self._model, self._clip, self._margin, self._method = model, clip, margin, method
        self._inputs = torch.from_numpy(records.inputs)
        self._targets = torch.from_numpy(records.targets)
        self._loss = default_loss(outputs_of(model, self._inputs), self._targets.dtype)
        self._dimension = parameters_vector(model).size

    def __repr__(self) -> str:
        return "TrainingTask(<private>)"

    @property
    def count(self) -> int:
        """Number of records; never leaves the silo."""
        return int(self._targets.shape[0])

    def clipped_sum(
        self, parameters: NDArray[np.float32], chosen: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Sum over the chosen records of clipped gradients, in float64."""
        with _REPLICA:
            return self._clipped_sum(parameters, chosen)

    def _clipped_sum(
        self, parameters: NDArray[np.float32], chosen: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """The sum, while nobody else writes to the replica."""
        total = np.zeros(self._dimension)
        load_parameters(self._model, parameters)
        for part in np.split(chosen, range(0, chosen.size, _piece(chosen.size, self._margin))):
            if part.size == 0:
                continue
            index = torch.from_numpy(part)
            piece = clipped_sum(
                self._model,
                self._loss,
                self._inputs[index],
                self._targets[index],
                self._clip,
                method=self._method,
            )
            total += piece.vector.numpy()
        return total


def _piece(batch: int, margin: float) -> int:
    """Most records c of a float32 sum with 2 b (c + 2) 2^-24 <= margin (P6 i)."""
    return max(1, int(margin * 2.0**23 / max(batch, 1)) - 2)


def outputs_of(model: nn.Module, inputs: torch.Tensor) -> int:
    """1 if the model gives one number per record, else the number of its logits."""
    with torch.no_grad():
        shape = model(inputs[:1]).shape if len(inputs) else (1,)
    return 1 if len(shape) == 1 else int(shape[-1])


def method_for(model: nn.Module, shape: tuple[int, ...], targets: NDArray[np.generic]) -> str:
    """The fastest method that is right for this model, tried on made-up records of that shape."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs = torch.randn((_CHECKED, *shape))
    made_up = torch.from_numpy(np.zeros(_CHECKED, dtype=targets.dtype))
    loss = default_loss(outputs_of(model, inputs), made_up.dtype)
    return checked_method(model, loss, inputs, made_up)


def evaluate_records(model: nn.Module, records: Records) -> dict[str, float]:
    """Metrics of a model on public records."""
    inputs, targets = torch.from_numpy(records.inputs), torch.from_numpy(records.targets)
    loss = default_loss(outputs_of(model, inputs), targets.dtype)
    return evaluate(model, loss, inputs, targets)
