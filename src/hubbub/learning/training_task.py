"""A silo's records beside the model that is trained on them: sums of clipped gradients.

Sums of at most a few dozen rows are made in float32 and added up in float64, so that the rounding
of the sum stays within the margin that the plan takes off the clipping norm (docs/privacy.md P6 i
and P14). In which rows records stand, and what becomes of one at which the model raises, is in
padded_batches.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.kept_pages import kept_pages
from hubbub.core.tabular.records import Records
from hubbub.learning.attributes import attributes_restored
from hubbub.learning.batches import Tensors, on_device
from hubbub.learning.clipped_sums import ClippedSum, affordable, clipped_sum
from hubbub.learning.independence_check import kinds_for
from hubbub.learning.inspection import zeros_filled
from hubbub.learning.layer_projection import LayerProjection
from hubbub.learning.model_state import state_held, writes_refused
from hubbub.learning.padded_batches import (
    PaddedBatches,
    Rows,
    even_size,
    piece_size,
    rows_are_alone,
)
from hubbub.learning.parameter_vector import layout_of, load_parameters
from hubbub.learning.raising import RaisingOperations
from hubbub.learning.replicas import CHECKED, REPLICA, places_of, replica
from hubbub.learning.self_check import checked_method
from hubbub.learning.target_types import CLASSES, TargetType
from hubbub.learning.torch_settings import device_of, exact_products, plain_attention
from hubbub.learning.trial import Trial, tried_on, unquoted


class TrainingTask:
    """One silo's records, and the model that is trained on them.

    Guarantees:
        1. A record's part in a sum depends on that record, on its row and on public numbers alone,
           and its L2 norm is at most `clip` (docs/privacy.md P14, P19).
        2. A record on which the model raises, or whose gradient is not finite, adds zero; what the
           model said stays here.

    Args:
        model: the silo's replica; silos of one process may share it. A `UnitModel` where the
            records are those of patients, each of whom then is one unit (docs/privacy.md P21).
        records: the silo's own.
        clip: L2 norm to which each record's gradient is clipped, in units of the gradient.
        margin: the relative rounding error of the sum that `clip` already allows for; no unit.
        method: one that `hubbub.learning.clipped_sum` takes.
        capacity: the most records that the silo may hold, public; as many as there are if None.
        rows: of a batch, public; the capacity if None.
        device: a name that `hubbub.learning.device_of` takes.
        target_type: what the model is trained for; that of a classifier if it is left out.

    Raises:
        UserError: there is no such device.
        ModelError: the model cannot take made-up records of this shape.
        StudyError: there is no loss for the records' targets.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
    >>> records = Records(
    ...     inputs=np.ones((4, 2), np.float32), targets=np.array([0, 0, 0, 1], np.float32)
    ... )
    >>> task = TrainingTask(model, records, clip=1.0, margin=1e-5, method="auto")
    >>> task.clipped_sum(np.zeros(3, np.float32), np.arange(4)).round(3).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        model: nn.Module,
        records: Records,
        *,
        clip: float,
        margin: float,
        method: str,
        capacity: int | None = None,
        rows: int | None = None,
        device: str = "cpu",
        target_type: TargetType = CLASSES,
    ) -> None:
        self.capacity = records.units if capacity is None else capacity
        self._clip, self._device = clip, device_of(device)
        self._model = replica(model, self._device)
        self._dimension = layout_of(model).size
        trial, targets, self._loss = tried_on(self._model, records, target_type)
        self._method, self._key = method, (records.targets.dtype, target_type)
        if method == "auto":
            self._method = checked_method(self._model, self._loss, trial.inputs, targets)
        most = self._checked(trial, targets, self.capacity if rows is None else rows, margin)
        self._rows = PaddedBatches(
            records, trial.null, most=most, device=self._device, places=places_of(model)
        )

    def __repr__(self) -> str:
        return "TrainingTask(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return self._rows.count

    def clipped_sum(self, parameters: NDArray[np.float32], rows: Rows) -> NDArray[np.float64]:
        """Sum over the rows' records of clipped gradients, without noise.

        Args:
            parameters: (d,) float32, of the model at which gradients are taken.
            rows: (m,) positions of records, from 0, or EMPTY, which is -1; m is public.

        Returns:
            (d,) float64, in units of the gradient; zeros if all rows are empty.

        Raises:
            DataError: the parameters are not of length d.
        """
        return self._total(partial(clipped_sum, self._model), parameters, rows, self._dimension)

    def projected_sum(
        self, parameters: NDArray[np.float32], rows: Rows, dimension: int, draw_key: bytes
    ) -> NDArray[np.float64]:
        """The same of gradients projected layer by layer to `dimension` numbers, then clipped.

        Args:
            parameters, rows: as for `clipped_sum`.
            dimension: k, how many numbers a projection has.
            draw_key: the 16 public bytes that make the matrices.

        Returns:
            (k,) float64, in units of the gradient.

        Raises:
            DataError: as for `clipped_sum`.
            StudyError: so many numbers do not fit the model.
        """
        layers = LayerProjection.of(self._model, dimension)
        projected = partial(layers.clipped_sum, self._model, draw_key=draw_key)
        return self._total(projected, parameters, rows, dimension)

    def _total(
        self,
        summed: Callable[..., ClippedSum],
        parameters: NDArray[np.float32],
        rows: Rows,
        size: int,
    ) -> NDArray[np.float64]:
        """Sums of a few rows each, in float64, while nobody else writes to the replica."""
        with REPLICA, exact_products(), plain_attention():
            load_parameters(self._model, parameters)
            with state_held(self._model):
                return self._rows.total(rows, size, partial(self._piece, summed))

    def _piece(
        self,
        summed: Callable[..., ClippedSum],
        inputs: torch.Tensor,
        targets: Tensors,
        kept: torch.Tensor,
    ) -> NDArray[Any]:
        """The sum over a piece's kept rows, in the model's type."""
        with attributes_restored(self._model):
            part = summed(
                self._loss,
                inputs,
                targets,
                self._clip,
                method=self._method,
                chunk=self._chunk,
                counted=kept,
            )
        return np.asarray(part.vector.cpu().numpy())

    def _checked(self, trial: Trial, targets: Tensors, rows: int, margin: float) -> int:
        """Rows of a piece of such a batch; sets how many of them the method takes at once.

        A2 is not taken on trust: where what a row adds moves with what stands in the others, or an
        operation may raise, every row becomes a piece of its own, as with the loop.
        """
        known, raising = CHECKED.setdefault(self._model, {}), RaisingOperations()
        key = (self._method, rows, margin, self._key)
        if key not in known:
            with REPLICA, exact_products(), plain_attention(), kept_pages(self._dimension):
                few = trial.inputs.to(self._device), on_device(targets, self._device)
                most, products = unquoted(
                    partial(affordable, self._model, self._loss, *few, self._method)
                )
                within = 1 if self._method == "loop" else rows_within(margin, products)
                size = piece_size(rows, within)
                self._chunk = even_size(size, most)
                work = raising.seen_in(partial(self._piece, partial(clipped_sum, self._model)))
                with zeros_filled(self._model), writes_refused(self._model):
                    kinds = kinds_for(self._model, self._loss)
                    alone = rows_are_alone(work, trial, targets, size, self._device, kinds)
            known[key] = size, self._chunk, alone and not raising.names
        size, self._chunk, alone = known[key]
        if not alone:
            self._method, self._chunk = "loop", 1
        return size if alone else 1


def rows_within(margin: float, products: int = 1) -> int:
    """Most rows P of a float32 sum with 2 P (P + 2) 2^-24 <= margin (P6 i).

    Where each row is the sum of t > 1 products, with 2 sqrt(t) P (t P + 4) 2^-24 (P21).
    """
    most = margin * 2.0**23
    if products == 1:
        return max(1, int(sqrt(most + 1)) - 1)
    return max(1, int((sqrt(4 + sqrt(products) * most) - 2) / products))
