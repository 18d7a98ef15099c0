"""How good a model is on records that are public, or private inside a silo.

Nothing here is noised, so nothing here may leave a silo. This file knows no training.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.errors import DataError
from hubbub.learning.batches import Loss, Tensors, batch_of
from hubbub.learning.models import default_loss, outputs_of
from hubbub.learning.torch_settings import (
    device_of,
    device_under,
    exact_products,
    is_on,
    plain_attention,
)
from hubbub.study import Records


def auc(scores: NDArray[Any], targets: NDArray[Any]) -> float:
    """The chance that a score of a positive outranks that of a negative, ties a half."""
    scores, positive = np.asarray(scores), np.asarray(targets) > 0.5
    if scores.ndim != 1 or scores.shape != positive.shape or np.isnan(scores).any():
        raise DataError(
            f"expected scores and targets of one shape (n,) without NaN, found {scores.shape} "
            f"and {positive.shape}"
        )
    ups = int(positive.sum())
    downs = len(positive) - ups
    if not ups or not downs:
        raise DataError("expected records of both classes for an AUC, found only one class")
    _, values, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of ties, their mean
    return float((ranks[values[positive]].sum() - ups * (ups + 1) / 2) / (ups * downs))


def accuracy(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """Share of records whose class is found by logits (n,) or (n, classes)."""
    outputs, targets = np.asarray(outputs), np.asarray(targets)
    if len(outputs) != len(targets) or not len(targets):
        raise DataError(
            f"expected as many outputs as targets and at least one, found {len(outputs)} "
            f"and {len(targets)}"
        )
    found = outputs > 0 if outputs.ndim == 1 else outputs.argmax(1) == targets
    return float((found == (targets > 0.5)).mean() if outputs.ndim == 1 else found.mean())


@torch.no_grad()
def evaluate(
    model: nn.Module, loss: Loss, inputs: Tensors, targets: torch.Tensor, *, chunk: int = 1024
) -> dict[str, float]:
    """Mean loss, accuracy and, for a single logit, AUC of a classifier in eval mode.

    Args:
        model: gives logits (n,) or (n, classes); its mode is put back afterwards.
        loss: one value per record, shape (n,).
        inputs: public records, (n, ...), or a tuple of such tensors, on any device.
        targets: (n,).
        chunk: records evaluated at once, where the model is.

    Returns:
        "loss" (in the loss's own unit), "accuracy" (a share in [0, 1]) and "auc" (a probability),
        each where it is defined and a finite number.

    Raises:
        DataError: there is no record, or inputs and targets do not hold the same number.

    >>> import functools
    >>> loss = functools.partial(nn.functional.cross_entropy, reduction="none")
    >>> evaluate(nn.Identity(), loss, torch.eye(3), torch.arange(3))["accuracy"]
    1.0
    """
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
    logits, truth = torch.cat(outputs).cpu().numpy(), targets.cpu().numpy()
    found = {"loss": float(torch.cat(losses).double().mean()), "accuracy": accuracy(logits, truth)}
    if logits.ndim == 1 and len(np.unique(truth)) == 2 and np.isfinite(logits).all():
        found["auc"] = auc(logits, truth)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def evaluate_records(
    model: nn.Module, records: Records, *, device: str = "cpu"
) -> dict[str, float]:
    """Metrics of a model on public records.

    Args:
        model: gives outputs of shape (n,) or (n, classes); left as it is.
        records: public, such as the test set; at least one.
        device: where they are computed, a name that `hubbub.learning.device_of` takes.

    Returns:
        "loss" (nats per record), "accuracy" (a share in [0, 1]) and, for two classes, "auc" (a
        probability); each where it is defined and finite.

    Raises:
        DataError: there are no records.
        ModelError: the outputs have another shape.
        UserError: there is no such device.

    >>> records = Records(inputs=np.eye(3, dtype=np.float32), targets=np.arange(3))
    >>> evaluate_records(torch.nn.Identity(), records)["accuracy"]
    1.0
    """
    place = device_of(device)
    model = model if is_on(model, place) else copy.deepcopy(model).to(place)
    inputs, targets = torch.from_numpy(records.inputs), torch.from_numpy(records.targets)
    loss = default_loss(outputs_of(model, inputs[:1].to(place)), targets.dtype)
    return evaluate(model, loss, inputs, targets)
