"""Checks at set-up: does a model take the records, and which method gives its true gradients?

The method is tried once per model and loss, on a few records, in float64, against the loop.
What a user's model says of a silo's records is kept back here. This file trains nothing.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import DataError, HubbubError, ModelError
from hubbub.core.kept_pages import kept_pages
from hubbub.core.tabular.records import Records
from hubbub.learning.batches import Batch, Loss, Tensors, UnitModel, batch_of
from hubbub.learning.clipped_sums import METHODS, UNABLE, clipped_sum
from hubbub.learning.evaluation import evaluate_records
from hubbub.learning.model_state import (
    forget,
    refuse_unsafe,
    state_unchanged,
    writes_refused,
    zeros_filled,
)
from hubbub.learning.parameters import layout_of
from hubbub.learning.target_types import CLASSES, TargetType
from hubbub.learning.torch_settings import borrowed, computing
from hubbub.learning.trial import (
    MADE_UP,
    RaisingOperations,
    refuse_memory,
    refuse_mixing,
    tried,
    tried_on,
    unquoted,
    work_varies,
)

_RECORDS = 4
_TOLERANCE = 1e-9  # relative, in float64

_LOG = logging.getLogger(__name__)


def checked_method(model: nn.Module, loss: Loss, inputs: Tensors, targets: Tensors) -> str:
    """Find the fastest method that is right for this model, for use as `clipped_sum(method=...)`.

    The model is copied; neither it nor any generator is touched. The methods are compared with
    random layers off; whether records reach each other is seen at a seed (trial.py).

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
    trial = copy.deepcopy(model).double()
    with borrowed(), zeros_filled(trial), writes_refused(trial):
        batch = batch.each(lambda values: values.double() if values.is_floating_point() else values)
        refuse_memory(trial, loss, batch)
        refuse_mixing(trial, batch)
        forget(trial)
        trial.eval()
        # So that the check clips some records and not others.
        norm = float(_sum(trial, loss, batch.piece(0, 1), 1e30, "loop").norm())
        clip = 0.7 * (norm if 1e-20 < norm < 1e20 else 1.0)
        # Where all were clipped, what is made too long would not show; so none is clipped, too.
        truths = {most: _sum(trial, loss, batch, most, "loop") for most in (1e6 * clip, clip)}
        for method in METHODS[:-1]:
            if all(_agrees(trial, loss, batch, method, clip, *truth) for truth in truths.items()):
                return method
        return "loop"


def _sum(model: nn.Module, loss: Loss, batch: Batch, clip: float, method: str) -> torch.Tensor:
    return clipped_sum(model, loss, batch.inputs, batch.targets, clip, method=method).vector


def _agrees(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    method: str,
    size: float,
    clip: float,
    truth: torch.Tensor,
) -> bool:
    """Whether `method` takes the model and gives the loop's sum of gradients of about this size."""
    try:
        total = _sum(model, loss, batch, clip, method)
    except (HubbubError, *UNABLE):
        return False
    return bool(total.sub_(truth).norm() <= _TOLERANCE * max(size, float(truth.norm())))


def try_out(
    model: nn.Module,
    test: Records | None,
    *,
    target_type: TargetType = CLASSES,
    own: Sequence[str] = (),
) -> None:
    """See that a user's model takes the public test set, before anything is charged for.

    A copy of it is tried: a model may keep what it has seen, and this one is going to be sent. A
    silo's records are not tried: whether a model raises on one of them is nobody's business.

    Args:
        model: left as it is.
        test: the test set; None or no records: nothing is tried.
        target_type: what the model is trained for.
        own: metrics of the user's, which are tried on all of it.

    Raises:
        ModelError: it raises an error on them, whose words are kept from the reader.
        StudyError: a metric does.

    >>> test = Records(inputs=np.ones((4, 2), np.float32), targets=np.ones(4, np.float32))
    >>> try_out(torch.nn.Linear(3, 1), test)
    Traceback (most recent call last):
        ...
    hubbub.core.errors.ModelError: expected a model that takes records of the study's shape, ...
    """
    if test is None or not len(test):
        return
    copied = unquoted(partial(copy.deepcopy, model))
    with borrowed():
        few = Records(inputs=test.inputs[:2], targets=test.targets[:2])
        remedy = "call it on the public test records to see why"
        unquoted(partial(evaluate_records, copied, few, target_type=target_type), remedy)
        if own:
            more = partial(evaluate_records, copied, test, target_type=target_type, own=own)
            unquoted(more, remedy)


def check_classes(model: nn.Module, records: Records) -> None:
    """Refuse class numbers for which a user's model has no logit.

    Args:
        model: left as it is.
        records: a silo's, or the test set.

    Raises:
        DataError: there are such class numbers.
        ModelError: the model takes no made-up records of this shape.

    >>> records = Records(inputs=np.ones((4, 2), np.float32), targets=np.array([0, 1, 1, 5]))
    >>> check_classes(torch.nn.Linear(2, 3), records)
    Traceback (most recent call last):
        ...
    hubbub.core.errors.DataError: expected class numbers below 3, as the model has so many ...
    """
    outputs = tried(model, tuple(records.inputs.shape[1:])).outputs
    classes = outputs > 1 and records.targets.dtype == np.int64
    if classes and not np.isin(records.targets, range(outputs)).all():
        raise DataError(
            f"expected class numbers below {outputs}, as the model has so many logits, found "
            "others; correct the data or the model"
        )


def method_for(
    model: nn.Module,
    shape: tuple[int, ...],
    targets: NDArray[np.generic],
    *,
    target_type: TargetType = CLASSES,
) -> str:
    """The fastest method that is right for this model, tried on made-up records of that shape.

    A model that does more for one record than for another is warned of, in the log.

    Args:
        model: left as it is; a `UnitModel` where a unit may have several records.
        shape: of one record.
        targets: of any records; only their type and shape are looked at.
        target_type: what the model is trained for.

    Returns:
        "chain", "vmap" or "loop", for use as `clipped_sum(method=...)`.

    Raises:
        ModelError: the model mixes or remembers records, or gives outputs of another shape, or
            the user's loss mixes them.
        StudyError: there is no loss for such outputs and targets.

    >>> method_for(torch.nn.Linear(5, 3), (5,), np.zeros(0, dtype=np.int64))
    'chain'
    """
    tried_out = method_and_work(model, shape, targets, target_type=target_type)
    if tried_out.work_varies:
        _LOG.warning(
            "the model does more work for one synthetic record than for another of the same shape: "
            "the time it takes reveals something about records, which epsilon does not cover"
        )
    return tried_out.method


@dataclass(frozen=True, kw_only=True)
class TriedMethod:
    """How a model's gradients are made, and what was seen of the time that this takes.

    Args:
        method: "chain", "vmap" or "loop".
        work_varies: whether made-up records of one shape made the model do other work; never under
            the first two methods.

    >>> TriedMethod(method="vmap", work_varies=False).method
    'vmap'
    """

    method: str
    work_varies: bool


def method_and_work(
    model: nn.Module,
    shape: tuple[int, ...],
    targets: NDArray[np.generic],
    *,
    target_type: TargetType = CLASSES,
) -> TriedMethod:
    """What `method_for` finds, and whether a record decides how much is done for it.

    Args:
        model, shape, targets, target_type: as for `method_for`.

    Returns:
        Both; that the work varies is certain, that it does not is only what was seen (P19).

    Raises:
        ModelError, StudyError: as for `method_for`.

    >>> method_and_work(torch.nn.Linear(5, 3), (5,), np.zeros(0, dtype=np.int64)).work_varies
    False
    """
    refuse_unsafe(model)
    nobody = Records(
        inputs=np.zeros((0, *shape), np.float32),
        targets=np.zeros((0, *targets.shape[1:]), targets.dtype),
    )
    with kept_pages(layout_of(model).size), computing(torch.device("cpu")):
        with state_unchanged(model):
            trial = tried(model.rows if isinstance(model, UnitModel) else model, shape)
            if trial.outputs > 1 and targets.ndim == 1 and targets.dtype.kind == "f":
                raise ModelError(
                    "expected a model with outputs of shape (n,) for two classes, found "
                    f"(n, {trial.outputs}); let it give one number for each record, such as by "
                    "nn.Linear(..., 1)"
                )
            trial, labels, loss = tried_on(model, nobody, target_type)
            if target_type.loss_name:
                some = torch.from_numpy(target_type.some_targets(MADE_UP).astype(targets.dtype))
                _check_loss(target_type.loss(trial.outputs, some.dtype), trial.outputs, some)
        forget(model)
        method = unquoted(partial(checked_method, model, loss, trial.inputs, labels))
        more = partial(work_varies, model, loss, trial.inputs, labels)
        with state_unchanged(model) if method == "loop" else nullcontext():
            varies = method == "loop" and unquoted(more)
    return TriedMethod(method=method, work_varies=varies)


def _check_loss(loss: Loss, outputs: int, targets: torch.Tensor) -> None:
    """Refuse a user's loss that gives no finite value for each record by itself."""
    shape = (MADE_UP,) if outputs == 1 else (MADE_UP, outputs)
    with borrowed() as generator:
        generator.manual_seed(0)
        some = torch.randn(shape)
    remedy = "call the loss on made-up outputs and targets"
    with RaisingOperations(some.device).following((some, targets)):
        together: Any = unquoted(partial(loss, some, targets), remedy)
    is_one = isinstance(together, torch.Tensor) and together.shape == (MADE_UP,)
    if not is_one or not together.isfinite().all():
        raise ModelError(
            "expected model.loss to give one finite number for each record, shape (n,), found "
            "something else; reduce over everything but the records"
        )
    rows = (slice(k, k + 1) for k in range(MADE_UP))
    alone = [unquoted(partial(loss, some[row], targets[row]), remedy) for row in rows]
    apart, near = torch.cat([one.reshape(-1) for one in alone]), 1e-4 * float(together.abs().max())
    if not torch.allclose(together, apart, rtol=1e-4, atol=min(1e-8, near)):
        raise ModelError(
            "expected model.loss to give for a batch what it gives for its records one by one, "
            "found something else: records mix; compute each value from its own record only"
        )
