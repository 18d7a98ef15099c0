"""The loss and metrics of a model on public records. This file trains nothing."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import DataError, StudyError
from hubbub.core.study.sources import attempted, named_object
from hubbub.core.tabular.records import Records
from hubbub.learning.batches import Loss, Tensors, batch_of
from hubbub.learning.models import outputs_of
from hubbub.learning.null_model import Score, beside_null
from hubbub.learning.target_types import CLASSES, TargetType
from hubbub.learning.torch_settings import (
    device_of,
    device_under,
    exact_products,
    is_on,
    plain_attention,
)

_CHUNK = 1024  # records at once


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loss: Loss,
    inputs: Tensors,
    targets: torch.Tensor,
    *,
    chunk: int = _CHUNK,
    target_type: TargetType = CLASSES,
    own: Sequence[str] = (),
) -> dict[str, float]:
    """Mean loss, and the metrics of what a model is trained for, in eval mode.

    Args:
        model: gives outputs (n,) or (n, outputs); its mode is put back afterwards.
        loss: one value per record, shape (n,).
        inputs: public records, (n, ...), or a tuple of such tensors, on any device.
        targets: (n, ...).
        chunk: records evaluated at once, where the model is.
        target_type: what the model is trained for; that of a classifier if it is left out.
        own: functions "python:module:name" that score targets and predictions.

    Returns:
        "loss" (in the loss's own unit) and the target type's metrics; of a classifier "accuracy" (a
        share in [0, 1]) and, for two classes, "auc" (a probability), "brier" and
        "calibration_slope". Those of own functions stand under their names. Each where it is
        defined and finite.

    Raises:
        DataError: there is no record, or inputs and targets do not hold the same number.
        StudyError: a function is not there, raises, or gives no number.

    >>> import functools
    >>> loss = functools.partial(nn.functional.cross_entropy, reduction="none")
    >>> evaluate(nn.Identity(), loss, torch.eye(3), torch.arange(3))["accuracy"]
    1.0
    """
    logits, losses = _outputs(model, loss, inputs, targets, chunk)
    truth = targets.cpu().numpy()
    scores = {"loss": float(losses.double().mean()), **target_type.scored(logits.numpy(), truth)}
    predicted = target_type.predicted(logits).numpy()
    scores |= {name.rpartition(":")[2]: _scored(name, truth, predicted) for name in own}
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def _outputs(
    model: nn.Module, loss: Loss, inputs: Tensors, targets: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A model's outputs in eval mode, and its losses, record by record; its mode is put back."""
    batch, training = batch_of(inputs, targets), model.training
    device = device_under(model)
    outputs, losses = [], []
    model.eval()
    try:
        with exact_products(), plain_attention():
            for start in range(0, batch.size, chunk):
                piece = batch.piece(start, start + chunk).each(lambda values: values.to(device))
                outputs.append(model(*piece.inputs))
                losses.append(loss(outputs[-1], piece.labels()))
    finally:
        model.train(training)
    if not outputs:
        raise DataError("expected at least one record to evaluate, found none; check the test set")
    return torch.cat(outputs).cpu(), torch.cat(losses).cpu()


def _scored(name: str, targets: NDArray[Any], predicted: NDArray[Any]) -> float:
    """What a user's metric says; it sees public records only."""
    metric = named_object(name, "training.metrics")
    score, raised = attempted(partial(metric, targets, predicted), quotes=True)
    if not raised:
        try:
            return float(score)
        except (TypeError, ValueError):
            raised = type(score).__name__
    raise StudyError(
        f"expected {name} to give a number for targets and predictions of the public test "
        f"records, got {raised}; correct the function"
    )


def evaluate_records(
    model: nn.Module,
    records: Records,
    *,
    device: str = "cpu",
    target_type: TargetType = CLASSES,
    own: Sequence[str] = (),
) -> dict[str, float]:
    """Metrics of a model on public records.

    Args:
        model: gives outputs of shape (n,) or (n, classes); left as it is.
        records: public, such as the test set; at least one.
        device: where they are computed, a name that `hubbub.learning.device_of` takes.
        target_type, own: as for `evaluate`.

    Returns:
        What `evaluate` gives with the target type's loss.

    Raises:
        DataError: there are no records.
        ModelError: the outputs have another shape.
        UserError: there is no such device.

    >>> import numpy as np
    >>> records = Records(inputs=np.eye(3, dtype=np.float32), targets=np.arange(3))
    >>> evaluate_records(torch.nn.Identity(), records)["accuracy"]
    1.0
    """
    placed, loss, inputs, targets = _placed(model, records, device, target_type)
    return evaluate(placed, loss, inputs, targets, target_type=target_type, own=own)


@torch.no_grad()
def scores_of(
    model: nn.Module,
    records: Records,
    *,
    device: str = "cpu",
    target_type: TargetType = CLASSES,
) -> dict[str, Score]:
    """A model's scores on public records beside those of one that knows nothing of a record.

    Args:
        model, records, device, target_type: as for `evaluate_records`.

    Returns:
        By metric its value, a 95 % interval, and the null model's; see `null_model`.

    Raises:
        DataError, ModelError, UserError: as for `evaluate_records`.
    """
    placed, loss, inputs, targets = _placed(model, records, device, target_type)
    outputs, _ = _outputs(placed, loss, inputs, targets, _CHUNK)
    return beside_null(target_type, outputs.numpy(), records.targets)


def _placed(
    model: nn.Module, records: Records, device: str, target_type: TargetType
) -> tuple[nn.Module, Loss, torch.Tensor, torch.Tensor]:
    """A model where it is computed, its loss, and the records as tensors."""
    place = device_of(device)
    model = model if is_on(model, place) else copy.deepcopy(model).to(place)
    inputs, targets = torch.from_numpy(records.inputs), torch.from_numpy(records.targets)
    loss = target_type.loss(outputs_of(model, inputs[:1].to(place)), targets.dtype)
    return model, loss, inputs, targets
