"""Checks at set-up: does a model take the records, and which method gives its true gradients?

The method is tried once per model and loss, on a few records, in float64, against the loop. That
also finds what no list of layers can: a forward in which the records of a batch reach each other.
What a user's model says of a silo's records is kept back here. This file trains nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils._pytree import tree_leaves

from hubbub.errors import DataError, HubbubError, ModelError
from hubbub.learning.batches import Batch, Loss, Tensors, batch_of
from hubbub.learning.clipped_sums import METHODS, UNABLE, clipped_sum
from hubbub.learning.evaluation import evaluate_records
from hubbub.learning.goals import CLASSES, Goal
from hubbub.learning.inspection import refuse_unsafe, zeros_filled
from hubbub.learning.model_state import state_unchanged, writes_refused
from hubbub.learning.models import outputs_of
from hubbub.learning.torch_settings import (
    borrowed,
    device_under,
    exact_products,
    plain_attention,
)
from hubbub.learning.unit_model import UnitLoss, UnitModel
from hubbub.study import Records

_RECORDS = 4
_CHECKED = 4  # records of made-up data on which a method is tried
_TOLERANCE = 1e-9  # relative, in float64
_TRIED: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], Trial]] = WeakKeyDictionary()

Made = TypeVar("Made")


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
    trial = copy.deepcopy(model).double()
    with borrowed(), zeros_filled(trial), writes_refused(trial):
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
    with state_unchanged(model):
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


def unquoted(work: Callable[[], Made], remedy: str = "try it where it is") -> Made:
    """What `work` gives; an error of the user's model is reported by its kind alone."""
    try:
        return work()
    except HubbubError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the model is the user's)
        # What the model said may quote a record, as may a name of its own.
        known = type(error).__module__ == "builtins"
        kind = type(error).__name__ if known else "an error of its own"
    raise ModelError(
        f"expected a model that takes records of the study's shape, found that it raised {kind}; "
        f"{remedy}"
    )


def try_out(
    model: nn.Module,
    test: Records | None,
    *,
    goal: Goal = CLASSES,
    own: Sequence[str] = (),
) -> None:
    """See that a user's model takes the public test set, before anything is charged for.

    A copy of it is tried: a model may keep what it has seen, and this one is going to be sent. A
    silo's records are not tried: whether a model raises on one of them is nobody's business.

    Args:
        model: left as it is.
        test: the test set; None or no records: nothing is tried.
        goal: what the model is trained for.
        own: metrics of the user's, which are tried on all of it.

    Raises:
        ModelError: it raises an error on them, whose words are kept from the reader.
        StudyError: a metric does.

    >>> test = Records(inputs=np.ones((4, 2), np.float32), targets=np.ones(4, np.float32))
    >>> try_out(torch.nn.Linear(3, 1), test)
    Traceback (most recent call last):
        ...
    hubbub.errors.ModelError: expected a model that takes records of the study's shape, ...
    """
    if test is None or not len(test):
        return
    copied = unquoted(partial(copy.deepcopy, model))
    with borrowed():
        few = Records(inputs=test.inputs[:2], targets=test.targets[:2])
        unquoted(partial(evaluate_records, copied, few, goal=goal))
        if own:
            unquoted(partial(evaluate_records, copied, test, goal=goal, own=own))


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
    hubbub.errors.DataError: expected class numbers below 3, as the model has so many logits, ...
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
    goal: Goal = CLASSES,
) -> str:
    """The fastest method that is right for this model, tried on made-up records of that shape.

    Args:
        model: left as it is; a `UnitModel` where a unit may have several records.
        shape: of one record.
        targets: of any records; only their type and shape are looked at.
        goal: what the model is trained for.

    Returns:
        "chain", "vmap" or "loop", for use as `clipped_sum(method=...)`.

    Raises:
        ModelError: the model mixes or remembers records, or gives outputs of another shape, or
            the user's loss mixes them.
        StudyError: there is no loss for such outputs and targets.

    >>> method_for(torch.nn.Linear(5, 3), (5,), np.zeros(0, dtype=np.int64))
    'chain'
    """
    refuse_unsafe(model)
    nobody = Records(
        inputs=np.zeros((0, *shape), np.float32),
        targets=np.zeros((0, *targets.shape[1:]), targets.dtype),
    )
    with state_unchanged(model), exact_products(), plain_attention():
        trial = tried(model.rows if isinstance(model, UnitModel) else model, shape)
        if trial.outputs > 1 and targets.ndim == 1 and targets.dtype.kind == "f":
            raise ModelError(
                "expected a model with outputs of shape (n,) for two classes, found "
                f"(n, {trial.outputs}); let it give one number for each record"
            )
        trial, labels, loss = tried_on(model, nobody, goal)
        if goal.loss_name:
            some = torch.from_numpy(goal.some_targets(_CHECKED).astype(targets.dtype))
            _check_loss(goal.loss(trial.outputs, some.dtype), trial.outputs, some)
        return unquoted(partial(checked_method, model, loss, trial.inputs, labels))


def _check_loss(loss: Loss, outputs: int, targets: torch.Tensor) -> None:
    """Refuse a user's loss that gives no finite value for each record by itself."""
    shape = (_CHECKED,) if outputs == 1 else (_CHECKED, outputs)
    with borrowed() as generator:
        generator.manual_seed(0)
        some = torch.randn(shape)
    remedy = "call the loss on made-up outputs and targets"
    together: Any = unquoted(partial(loss, some, targets), remedy)
    is_one = isinstance(together, torch.Tensor) and together.shape == (_CHECKED,)
    if not is_one or not together.isfinite().all():
        raise ModelError(
            "expected model.loss to give one finite number for each record, shape (n,), found "
            "something else; reduce over everything but the records"
        )
    rows = (slice(k, k + 1) for k in range(_CHECKED))
    alone = [unquoted(partial(loss, some[row], targets[row]), remedy) for row in rows]
    if not torch.allclose(together, torch.cat([one.reshape(-1) for one in alone]), rtol=1e-4):
        raise ModelError(
            "expected model.loss to give for a batch what it gives for its records one by one, "
            "found something else: records mix; let each value come from its own record"
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Made-up records that a model takes, (4, ...), and how many outputs it gives for each."""

    inputs: torch.Tensor
    outputs: int

    @property
    def null(self) -> NDArray[np.float32]:
        """The public record that stands in empty rows."""
        return self.inputs[0].numpy()


def tried(model: nn.Module, shape: tuple[int, ...]) -> Trial:
    """The model tried on made-up records of that shape, the same for everybody.

    Raises:
        ModelError: it takes none, or gives outputs of another shape.
    """
    known = _TRIED.setdefault(model, {})
    if shape not in known:
        remedy = f"call it on made-up records of shape {(_CHECKED, *shape)} to see why"
        known[shape] = unquoted(partial(_trial, model, shape), remedy)
    return known[shape]


def tried_on(model: nn.Module, records: Records, goal: Goal) -> tuple[Trial, Tensors, Loss]:
    """Made-up records of the same shape, a target for each of them, and the loss of both.

    For a `UnitModel` they are units, of one row, of two, and so on.

    Raises:
        ModelError, StudyError: as for `tried` and the goal's loss.
    """
    units = model if isinstance(model, UnitModel) else None
    trial = tried(units.rows if units else model, tuple(records.inputs.shape[1:]))
    shape = (len(trial.inputs), *records.targets.shape[1:])
    targets = torch.from_numpy(np.zeros(shape, dtype=records.targets.dtype))
    loss = goal.loss(trial.outputs, targets.dtype)
    return _of_units(trial, targets, loss, units.places) if units else (trial, targets, loss)


def _of_units(
    trial: Trial, targets: torch.Tensor, loss: Loss, places: int
) -> tuple[Trial, Tensors, Loss]:
    """The same as units of so many places, which the made-up records fill in turns."""
    rows = torch.stack([trial.inputs.roll(-turn, 0) for turn in range(places)], dim=1)
    counts = 1 + torch.arange(len(rows)) % places
    weights = (torch.arange(places) < counts[:, None]) / counts[:, None]
    labels = targets[:, None].expand(-1, places, *targets.shape[1:]).contiguous()
    return replace(trial, inputs=rows), (labels, weights), UnitLoss(loss)


def _trial(model: nn.Module, shape: tuple[int, ...]) -> Trial:
    """Numbers; or, as a table of words has no row -0.3, codes that are in every table."""
    device = device_under(model)
    with borrowed() as generator:
        generator.manual_seed(0)
        numbers = torch.randn((_CHECKED, *shape))
        words = torch.randint(2, (_CHECKED, *shape)).float()
        for inputs in (numbers, words):
            try:
                with torch.no_grad():
                    model(inputs.to(device))
                return Trial(inputs=inputs, outputs=outputs_of(model, inputs.to(device)))
            except (IndexError, TypeError, RuntimeError):
                continue
        nothing = torch.zeros((_CHECKED, *shape))
        return Trial(inputs=nothing, outputs=outputs_of(model, nothing.to(device)))
