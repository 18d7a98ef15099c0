"""A check at set-up: does the fast method give this model's true per-record gradients?

Run once per model and loss, on a few records, in float64, against the loop. It also finds what no
list of layers can: a forward in which the records of a batch reach each other. This file trains
nothing.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from hubbub.errors import DataError, HubbubError, ModelError
from hubbub.learning.batches import Batch, Loss, Tensors, batch_of
from hubbub.learning.gradients import METHODS, UNABLE, clipped_sum
from hubbub.learning.inspection import buffers_unchanged, refuse_unsafe
from hubbub.learning.torch_settings import borrowed

_RECORDS = 4
_TOLERANCE = 1e-9  # relative, in float64


def checked_method(model: nn.Module, loss: Loss, inputs: Tensors, targets: Tensors) -> str:
    """Find the fastest method that is right for this model, for use as `clipped_sum(method=...)`.

    The model is copied; neither it nor torch's generator is touched. Random layers are compared
    with their randomness off.

    Args:
        model: the model to train.
        loss: one value per record, shape (n,).
        inputs: (n, ...), or a tuple of such tensors; a few records are enough, at least two.
        targets: (n, ...), or a tuple of such tensors.

    Returns:
        "chain", "vmap" or "loop".

    Raises:
        ModelError: the model mixes or remembers records.
        DataError: fewer than two records.

    >>> import functools
    >>> loss = functools.partial(nn.functional.cross_entropy, reduction="none")
    >>> checked_method(nn.Linear(5, 3), loss, torch.randn(4, 5), torch.arange(4) % 3)
    'chain'
    """
    refuse_unsafe(model)
    batch = batch_of(inputs, targets).piece(0, _RECORDS)
    if batch.size < 2:
        raise DataError(f"expected at least two records for the check, found {batch.size}")
    with borrowed():
        trial = copy.deepcopy(model).double()
        batch = batch.each(_double)
        _refuse_mixing(trial, batch)
        trial.eval()
        clip = 0.7 * _norm(trial, loss, batch)
        truth = _sum(trial, loss, batch, clip, "loop")
        fast = (m for m in METHODS if m != "loop" and _agrees(trial, loss, batch, clip, m, truth))
        return next(fast, "loop")


def _double(values: torch.Tensor) -> torch.Tensor:
    """Real numbers in float64; others as they are."""
    return values.double() if values.is_floating_point() else values


def _sum(model: nn.Module, loss: Loss, batch: Batch, clip: float, method: str) -> torch.Tensor:
    """The clipped sum of the batch by one method."""
    return clipped_sum(model, loss, batch.inputs, batch.labels(), clip, method=method).vector


def _norm(model: nn.Module, loss: Loss, batch: Batch) -> float:
    """The first record's gradient norm, so that the check clips some records and not others."""
    norm = float(_sum(model, loss, batch.piece(0, 1), 1e30, "loop").norm())
    return norm if 1e-20 < norm < 1e20 else 1.0


def _agrees(
    model: nn.Module, loss: Loss, batch: Batch, clip: float, method: str, truth: torch.Tensor
) -> bool:
    """Whether `method` takes the model and gives the loop's sum."""
    try:
        found = _sum(model, loss, batch, clip, method)
    except (HubbubError, *UNABLE):
        return False
    return bool((found - truth).norm() <= _TOLERANCE * max(clip, float(truth.norm())))


@torch.no_grad()
def _refuse_mixing(model: nn.Module, batch: Batch) -> None:
    """Refuse a model whose outputs for a batch are not those of its records one by one."""
    with buffers_unchanged(model):
        for training in {model.training, False}:
            model.train(training)
            together, again = _tensors(model(*batch.inputs)), _tensors(model(*batch.inputs))
            if not all(map(torch.equal, together, again)):
                continue  # random layers: nothing can be compared
            alone = [_tensors(model(*batch.piece(i, i + 1).inputs)) for i in range(batch.size)]
            for whole, *pieces in zip(together, *alone, strict=True):
                _refuse_unequal(whole, pieces)


def _refuse_unequal(whole: torch.Tensor, pieces: list[torch.Tensor]) -> None:
    """Refuse outputs that do not stack up."""
    stacks = all(p.dim() == whole.dim() > 0 for p in pieces) and len(whole) == len(pieces)
    if stacks and torch.allclose(whole, torch.cat(pieces), rtol=1e-6, atol=1e-9, equal_nan=True):
        return
    raise ModelError(
        "expected outputs for a batch that are those of its records one by one, found others: "
        "records mix; use nn.GroupNorm or nn.LayerNorm in place of batch statistics, and "
        "batch_first=True in attention"
    )


def _tensors(outputs: Any) -> list[torch.Tensor]:
    """The tensors among a model's outputs."""
    return [x for x in tree_leaves(outputs) if isinstance(x, torch.Tensor)]
