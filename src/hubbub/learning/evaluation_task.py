"""A silo's records beside a trained model: sums of what each says of itself.

Rows, pieces and a record at which the model raises are as in training_task.py; nothing is clipped,
since what a record adds is bounded by its marks (docs/privacy.md P16, P27).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import ModelError
from hubbub.core.tabular.records import Records
from hubbub.learning.attributes import attributes_restored
from hubbub.learning.batches import Loss, Tensors, batch_of, on_device
from hubbub.learning.clipped_sums import UNABLE
from hubbub.learning.independence_check import kinds_for
from hubbub.learning.inspection import zeros_filled
from hubbub.learning.marks import Marks, ScoreMarks
from hubbub.learning.model_state import state_held, state_unchanged, writes_refused
from hubbub.learning.padded_batches import PaddedBatches, Rows, piece_size, rows_are_alone
from hubbub.learning.parameter_vector import layout_of, load_parameters
from hubbub.learning.raising import RaisingOperations
from hubbub.learning.replicas import CHECKED, REPLICA, places_of, replica
from hubbub.learning.self_check import checked_method
from hubbub.learning.study.score_vector import ScoreVector
from hubbub.learning.target_types import CLASSES, TargetType
from hubbub.learning.torch_settings import device_of, exact_products, plain_attention
from hubbub.learning.trial import Trial, tried_on, unquoted
from hubbub.learning.unit_model import UnitLoss
from hubbub.learning.vmapped import vmapped_losses

_ADD_REMOVE = ScoreMarks(ScoreVector.of("add-remove"))
_MOST_EVALUATED = 128  # rows of the largest piece of an evaluation


class EvaluationTask:
    """A silo's records beside a trained model: the sum of what each says of itself by its marks.

    Of patients it is the sum of what is each one's mean.

    Guarantees:
        1. A record's part depends on that record, on its row and on public numbers alone: it is
           found under vmap or one by one, where the model is more than a chain of known layers
           (docs/privacy.md P19).

    Args:
        model: as for `TrainingTask`.
        records: that the model is compared with, such as those that are held back.
        method, capacity, device, target_type: as for `TrainingTask`.
        marks: how a record becomes a vector; by its score and loss if it is left out.

    Raises:
        UserError: there is no such device.
        ModelError, StudyError: as for `TrainingTask`.

    >>> model = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    >>> records = Records(
    ...     inputs=np.ones((4, 2), np.float32), targets=np.array([0, 0, 0, 1], np.float32)
    ... )
    >>> task = EvaluationTask(model, records)
    >>> total = task.clipped_sum(np.ones(3, np.float32), np.arange(4))
    >>> round(ScoreVector.of("add-remove").scores_of(total)[0], 6)
    0.25
    """

    def __init__(
        self,
        model: nn.Module,
        records: Records,
        *,
        method: str = "auto",
        capacity: int | None = None,
        device: str = "cpu",
        target_type: TargetType = CLASSES,
        marks: Marks = _ADD_REMOVE,
    ) -> None:
        self.capacity = records.units if capacity is None else capacity
        self._device, self._marks = device_of(device), marks
        self._model = replica(model, self._device)
        self._layout = layout_of(self._model)
        trial, targets, loss = tried_on(self._model, records, target_type)
        self._each: Loss = loss.each if isinstance(loss, UnitLoss) else loss
        self._target_type, self._key = target_type, (records.targets.dtype, target_type)
        self._method = "loop" if method == "auto" else method
        if method == "auto":
            few = trial.inputs.to(self._device), on_device(targets, self._device)
            with suppress(ModelError):  # row by row no model mixes
                self._method = checked_method(self._model, loss, *few)
        most = self._checked(trial, targets, piece_size(self.capacity, _MOST_EVALUATED))
        self._rows = PaddedBatches(
            records, trial.null, most=most, device=self._device, places=places_of(model)
        )

    def __repr__(self) -> str:
        return "EvaluationTask(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return self._rows.count

    def clipped_sum(self, parameters: NDArray[np.float32], rows: Rows) -> NDArray[np.float64]:
        """What the rows' records add to an evaluation, without noise.

        Args:
            parameters, rows: as for `TrainingTask.clipped_sum`.

        Returns:
            (size of the marks,) float64: each record adds its marks, such as the `ScoreVector` of
            what the goal finds of it (1 for the right class) and of its loss / MOST_LOSS, both from
            0 to 1; nothing if the model raises on it.

        Raises:
            DataError: the parameters are not of length d.
        """
        with self._evaluating():
            load_parameters(self._model, parameters)
            with state_held(self._model):
                return self._rows.total(rows, self._marks.size, partial(self._piece, self._marks))

    def _checked(self, trial: Trial, targets: Tensors, size: int) -> int:
        """Rows of a piece of at most `size`, as `TrainingTask` checks them (A2)."""
        known, raising = CHECKED.setdefault(self._model, {}), RaisingOperations()
        key = ("evaluation", self._method, size, self._key)
        if key not in known:
            kinds = kinds_for(self._model, self._each)
            with self._evaluating(), zeros_filled(self._model), writes_refused(self._model):
                # A record's score moves with its output; the cell it is in may not.
                work = raising.seen_in(partial(self._piece, _ADD_REMOVE))
                self._try_row(trial, targets)
                alone = self._takes(trial, targets) and rows_are_alone(
                    work, trial, targets, size, self._device, kinds
                )
            known[key] = size, size, alone and not raising.names
        if known[key][-1]:
            return size
        self._method = "loop"
        return 1

    def _try_row(self, trial: Trial, targets: Tensors) -> None:
        """Refuse a model that a single made-up row has write to its tensors (P14)."""
        row = trial.inputs[:1].to(self._device)
        label = on_device(targets, self._device, lambda values: values[:1])
        with state_unchanged(self._model):
            unquoted(lambda: self._each(self._model(row), label))

    def _takes(self, trial: Trial, targets: Tensors) -> bool:
        """Whether the method can have several rows in a piece."""
        few = trial.inputs.to(self._device), on_device(targets, self._device)
        with suppress(*UNABLE):  # in evaluation a model may do what vmap cannot take
            return self._method in ("chain", "vmap") and len(self._losses(*few)) == 2
        return False

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """The replica in evaluation mode, while nobody else writes to it."""
        with REPLICA, exact_products(), plain_attention(), torch.no_grad():
            training = self._model.training
            self._model.eval()
            try:
                yield
            finally:
                self._model.train(training)

    def _piece(
        self, marks: Marks, inputs: torch.Tensor, targets: Tensors, kept: torch.Tensor
    ) -> NDArray[np.float64]:
        # What is written is seen first, and then put back with what it was written in.
        with attributes_restored(self._model), state_unchanged(self._model):
            outputs, losses = self._losses(inputs, targets)
        labels, *weights = targets if isinstance(targets, tuple) else (targets,)
        if weights:  # of a unit's places
            outputs, labels = outputs.flatten(0, 1), labels.flatten(0, 1)
        columns = marks.columns(self._target_type, outputs, labels, losses.reshape(-1))
        if weights:  # which add up to 1
            columns = (columns.reshape(marks.size, *losses.shape) * weights[0]).sum(2)
        return columns.masked_fill(~kept.to(columns.device), 0.0).sum(1).cpu().numpy()

    def _losses(self, inputs: torch.Tensor, targets: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and losses of rows; no row sees another, whatever the model does."""
        if self._method == "vmap":
            batch = batch_of(inputs, targets)
            return vmapped_losses(self._model, self._each, self._layout, batch)
        outputs = self._model(inputs)  # of known layers, or of one row
        return outputs, self._each(outputs, targets)
