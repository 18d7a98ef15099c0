"""Sums of clipped per-record gradients: the one thing a silo computes from its records.

The way of the data, for each piece of a batch (`_summed`):

    piece of records
      -> a method gives each parameter's gradients as `Source`s    (chain, loop: here; vmapped.py)
      -> `GradientSpace.shape` forms or projects them to `Part`s   (per_record, layer_projection)
      -> norms over all parameters, factors, weighted sum          (`_add`, with per_record.py)
      -> one vector, in the layout of parameters.py

Three methods give the same numbers and differ in speed only:

    "chain"  a plain chain of Linear and elementwise layers, as one batch
    "vmap"   any model that vmap can take, with book-keeping                (vmapped.py)
    "loop"   one record at a time, for everything else: the others are checked against it

"auto" takes the first that is provably right for this model and loss. Evaluating a whole batch at
once is right only where no record can reach another; for the chain that is decided by exact types,
from a closed list: every layer acts on each row alone, and so does the loss. This file decides
which, cuts the batch into pieces that bound the memory, clips and adds. It draws no noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from hubbub.core.errors import HubbubError, ModelError, StudyError
from hubbub.learning.batches import (
    Batch,
    Loss,
    Tensors,
    UnitLoss,
    UnitModel,
    batch_of,
    is_of_machine,
    single_value,
)
from hubbub.learning.device_sums import summed_at_once, takes_all_at_once
from hubbub.learning.model_state import has_backward_hooks, is_plain, refuse_unsafe, state_unchanged
from hubbub.learning.models import Squeeze
from hubbub.learning.parameters import ParameterLayout, layout_of
from hubbub.learning.per_record import (
    Part,
    Products,
    Source,
    Stack,
    clip_factors,
    formed,
    stored,
    total_norms,
)
from hubbub.learning.scoring import ROW_LOSSES
from hubbub.learning.sites import Site, linear_on, reached, site_parts
from hubbub.learning.study.training import PRECISIONS
from hubbub.learning.torch_settings import Traced, as_stored, modes_kept
from hubbub.learning.vmapped import likely_direct, vmapped_parts

# Losses that give one value per row and know no parameter, with reduction="none".
_ROW_LOSSES = (functional.cross_entropy, functional.binary_cross_entropy_with_logits)
_ROW_LOSS_MODULES = (nn.CrossEntropyLoss, nn.BCEWithLogitsLoss)

_ELEMENTWISE = frozenset(
    {nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU}
    | {nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish}
    | {nn.Hardsigmoid, nn.LogSigmoid, nn.Tanhshrink, nn.Dropout}
)


def chain_of(model: nn.Module, loss: Loss, batch: Batch) -> list[nn.Module] | None:
    """The layers of `model` in order, or None where the fast method is not provably right."""
    inputs, units = batch.inputs[0], False
    if isinstance(model, UnitModel) and isinstance(loss, UnitLoss) and is_plain(model):
        model, loss, inputs, units = model.rows, loss.rows, inputs.flatten(0, 1), True
    layers = list(_unrolled(model))
    fits = len(batch.inputs) == 1 and isinstance(batch.targets, tuple) == units
    # The first layer sees one row of numbers per record.
    flattened = bool(layers) and type(layers[0]) is nn.Flatten and inputs.dim() > 2
    rows = inputs.is_floating_point() and (inputs.dim() == 2 or flattened)
    known = all(is_plain(m) and _on_list(m) for m in layers)
    owned = [id(p) for m in layers for p in m.parameters()]
    if fits and rows and known and len(owned) == len(set(owned)) and _is_row_loss(loss):
        return layers
    return None


def _unrolled(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested plain Sequentials."""
    if type(model) is nn.Sequential and is_plain(model):
        for child in model:
            yield from _unrolled(child)
    else:
        yield model


def _on_list(layer: nn.Module) -> bool:
    """Whether `layer` is known to treat each row alone."""
    if type(layer) is nn.Flatten:
        return layer.start_dim == 1 and layer.end_dim == -1
    if type(layer) is nn.Linear:  # whose weight may be a tensor that follows from a parameter
        return {"weight", "bias"} <= set(vars(layer)["_parameters"])
    return type(layer) is Squeeze or type(layer) in _ELEMENTWISE


def _is_row_loss(loss: Loss) -> bool:
    """Whether `loss` is known to give one value per row; what it holds is seen in its graph."""
    if isinstance(loss, functools.partial):
        if loss.func in ROW_LOSSES:
            return not loss.args
        known = loss.func in _ROW_LOSSES and not loss.args
        return known and loss.keywords.get("reduction") == "none"
    if type(loss) in _ROW_LOSS_MODULES:
        return bool(loss.reduction == "none") and is_plain(loss)  # type: ignore[attr-defined,arg-type]
    return False


def chain_parts(
    layers: list[nn.Module], loss: Loss, layout: ParameterLayout, batch: Batch
) -> list[Source]:
    """Per-record gradients of all Linear layers, from one forward and one backward.

    A unit's rows go through the layers as rows, and meet again at each Linear one and in the loss.
    """
    sites: list[Site] = []
    places = batch.inputs[0].shape[:2] if isinstance(batch.targets, tuple) else None
    values = batch.inputs[0].flatten(0, 1) if places else batch.inputs[0]
    for layer in layers:
        owned = (layer.weight, layer.bias) if isinstance(layer, nn.Linear) else ()
        names = [layout.names.get(id(parameter)) for parameter in owned]
        if not any(names):  # elementwise, or frozen
            values = layer(values)
            continue
        met = values.unflatten(0, places) if places else values
        values, site = linear_on(met, layer.weight, layer.bias, names)
        sites.append(site)
    losses = loss(values.unflatten(0, places) if places else values, batch.targets)
    if reached(losses) & layout.names.keys():
        raise RuntimeError("the loss holds a parameter")
    backprops = torch.autograd.grad(losses.sum(), [s.edge for s in sites], allow_unused=True)
    return site_parts(sites, list(backprops))


METHODS = ("chain", "vmap", "loop")
_BUDGET = 2**23  # numbers of per-record state held at once
_FIRST = 20  # records in the first piece of a model whose footprint is not yet known

# How a model says that vmap cannot take it; warnings, where the user has made them errors.
UNABLE = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, Warning)


@dataclass(frozen=True, kw_only=True)
class Form:
    """A method made ready for one model: per-record gradients of a piece of the batch."""

    parts: Callable[[Batch], list[Source]]
    first: int  # records in the first piece
    most: int  # records in any piece
    writes: bool  # whether its forward is code that might write to the model


@dataclass(frozen=True, kw_only=True)
class GradientSpace:
    """What is clipped and added: a record's gradient, or the image of it under a linear map.

    `shape` is called for one parameter at a time, before the next one's gradients are made.
    """

    shape: Callable[[Source], Part]
    slices: dict[str, slice]  # by parameter: where its numbers lie
    size: int  # of the sum


class ClippedSum(NamedTuple):
    """The sum of clipped per-record gradients, and how many records it holds.

    Neither has noise: both are private to the silo and must not leave it as they are.

    Args:
        vector: (d,), in the order of `model.parameters()`, frozen parameters left out; on its
            device, in units of the gradient. Projected sums have length k.
        count: number of records whose gradients are in the sum.

    >>> total = ClippedSum(vector=torch.zeros(3), count=0)
    >>> total.vector.shape
    torch.Size([3])
    """

    vector: torch.Tensor
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs


def gradients_of(layout: ParameterLayout) -> GradientSpace:
    """Gradients themselves."""
    form = stored if takes_all_at_once(layout.device, layout.size) else formed
    return GradientSpace(
        shape=lambda source: (source[0], form(source[1])), slices=layout.slices, size=layout.size
    )


def clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Tensors,
    targets: Tensors,
    clip: float,
    *,
    chunk: int | None = None,
    method: str = "auto",
    counted: torch.Tensor | None = None,
    precision: str = "float32",
    space_of: Callable[[ParameterLayout], GradientSpace] = gradients_of,
) -> ClippedSum:
    """Clip each record's gradient to L2 norm `clip` and add them up.

    Guarantees:
        1. A record's contribution depends on that record alone, up to the rounding of the sum, with
           the method "loop". The others make it in a batch, and rounding may depend on the batch's
           shape, much so next to a kink of the model: give batches of one shape with `counted`
           (docs/privacy.md P14, A2).
        2. Its L2 norm is at most `clip` in exact arithmetic (docs/privacy.md P14, per_record.py).
        3. A record whose gradient is not finite contributes exactly zero and is not counted.
        4. Neither TF32 nor autocast of the caller shortens a number on its way, nor one of the
           model's forward what is made of its gradients (P14).
        5. An empty batch gives zeros. The model's parameters and buffers are left as they were.

    Requires:
        The loss of a record is what the model and `loss` give for a batch of that one record, and
        the model keeps no memory of records outside its buffers.

    Args:
        model: any module with d trainable parameters in all, all float32 or all float64 and on one
            device.
        loss: loss(outputs, targets) gives one value for each of the n records: shape (n,).
        inputs: a tensor (n, ...), or a tuple of such tensors that are passed as several arguments;
            the model gets them as they are, on its device. n may be 0.
        targets: a tensor (n, ...), or a tuple of such tensors that is passed to `loss` as it is.
        clip: largest L2 norm of a record's contribution, in units of the gradient, from 1e-30 to
            1e30.
        chunk: how many records are held in memory at once, at least 1; chosen from the model's
            footprint when None.
        method: "auto", or one of "chain", "vmap", "loop" where the caller knows better.
        counted: (n,) bool, True for the records that are added; the others add nothing, they keep
            shape and places public (A2). None: all are.
        precision: how short the numbers of forward and backward may be on a device that gains by
            it: "float32", "tf32" or "bf16". On a CPU they are what the model has.
        space_of: of a model's layout, what of a record is clipped and added: its gradient, or a
            linear image of that.

    Returns:
        The sum, of shape (d,), in the order of `model.parameters()`, in float64, or of a model of
        more than 2^14 parameters on a CPU in the model's dtype; and how many records are in it, a
        whole number from 0 to n. Neither has noise yet.

    Raises:
        ModelError: the model mixes or remembers records, or the method does not fit it.
        DataError: inputs and targets do not hold the same number of records.
        StudyError: clip, chunk, method or precision is out of range.

    Example:
        >>> import functools, torch
        >>> loss = functools.partial(torch.nn.functional.cross_entropy, reduction="none")
        >>> x, y = torch.randn(8, 5), torch.randint(3, (8,))
        >>> total, count = clipped_sum(torch.nn.Linear(5, 3), loss, x, y, clip=1.0)
        >>> total.shape, count
        (torch.Size([18]), 8)
    """
    layout, batch = layout_of(model), batch_of(inputs, targets)
    space = space_of(layout)
    _check_options(clip, chunk, method, precision)
    refuse_unsafe(model)
    if batch.size == 0:
        return ClippedSum(layout.empty(space.size).zero_(), 0)
    if counted is None:
        counted = torch.ones(batch.size, dtype=torch.bool, device=layout.device)
    for name in METHODS if method == "auto" else (method,):
        form = _form(name, model, loss, layout, batch)
        if form is None:
            continue
        try:
            guard = state_unchanged(model) if form.writes else nullcontext()
            with guard, as_stored(layout.device.type), torch.enable_grad():
                if takes_all_at_once(layout.device, layout.size):
                    tries = chunk is None and layout.device.type == "cpu"
                    rows = min(form.first if tries else chunk or batch.size, form.most)
                    total = summed_at_once(
                        form,
                        space,
                        batch,
                        clip,
                        model,
                        device=layout.device,
                        rows=rows,
                        counted=counted,
                        precision=precision,
                        affordable=_within_budget if tries else None,
                    )
                    return ClippedSum(*total)
                return _summed(form, space, layout, batch, clip, chunk, counted)
        except HubbubError:
            raise
        except UNABLE as error:
            # vmap cannot take every model; the loop can, or its error is the user's own.
            if method != "auto" or name == "loop" or is_of_machine(error):
                raise
    raise ModelError(f'expected a model that method="{method}" can take; use method="auto"')


def _check_options(clip: float, chunk: int | None, method: str, precision: str) -> None:
    if not (math.isfinite(clip) and 1e-30 <= clip <= 1e30):
        raise StudyError(f"expected a clip between 1e-30 and 1e30, found {clip}; try clip = 1.0")
    if chunk is not None and chunk < 1:
        raise StudyError(f"expected chunk >= 1, found {chunk}; leave it out to have it chosen")
    if method not in ("auto", *METHODS):
        raise StudyError(f'expected method "auto" or one of {METHODS}, found "{method}"')
    if precision not in PRECISIONS:
        raise StudyError(f'expected a precision out of {PRECISIONS}, found "{precision}"')


def _form(
    name: str, model: nn.Module, loss: Loss, layout: ParameterLayout, batch: Batch
) -> Form | None:
    """This method for this model, or None where it does not apply."""
    if name != "loop" and has_backward_hooks(model):
        return None
    layers = chain_of(model, loss, batch)
    writes = layers is None  # P14: torch's layers do not
    if name == "chain":
        if layers is None:
            return None
        parts = partial(chain_parts, layers, loss, layout)
        return Form(parts=parts, first=1024, most=_BUDGET, writes=writes)
    if name == "loop":
        parts = partial(loop_parts, model, loss, layout)
        return Form(parts=parts, first=1, most=1, writes=writes)
    direct = likely_direct(model, layout)
    copied = sum(layout.parameters[key].numel() for key in direct)
    first = max(1, min(_FIRST, _BUDGET // max(1, copied)))
    parts = partial(vmapped_parts, Traced(model), loss, layout, direct=direct)
    return Form(parts=parts, first=first, most=_BUDGET, writes=writes)


def loop_parts(
    model: nn.Module, loss: Loss, layout: ParameterLayout, record: Batch
) -> list[Source]:
    """The gradient of the one record in `record`; that of a sparse embedding is made dense."""
    value = single_value(loss(model(*record.inputs), record.targets))
    if not value.requires_grad:
        return []
    wanted = list(layout.parameters.values())
    gradients: tuple[Any, ...] = torch.autograd.grad(value, wanted, allow_unused=True)
    named = zip(layout.parameters, gradients, strict=True)
    return [(name, Stack(gradients=g.to_dense()[None])) for name, g in named if g is not None]


def affordable(
    model: nn.Module, loss: Loss, inputs: Tensors, targets: Tensors, method: str
) -> tuple[int, int]:
    """How many records' gradients the method can hold at once, as a few made-up ones show.

    And of how many products, at most, one is the sum where it is added without being made.
    """
    batch = batch_of(inputs, targets)
    layout = layout_of(model)
    form, space = _form(method, model, loss, layout, batch), gradients_of(layout)
    if form is None:
        raise ModelError(f'expected a model that method="{method}" can take; use method="auto"')
    piece = batch.piece(0, form.first)
    with torch.enable_grad():
        parts = _shaped(form.parts(piece), space)
    products = [part.right.shape[1] for _, part in parts if isinstance(part, Products)]
    return min(_affordable(parts, piece.size), form.most), max(products, default=1)


def _summed(
    form: Form,
    space: GradientSpace,
    layout: ParameterLayout,
    batch: Batch,
    clip: float,
    chunk: int | None,
    counted: torch.Tensor,
) -> ClippedSum:
    """Clip and add the counted records, piece by piece."""
    vector, count, start = layout.empty(space.size), 0, 0
    filled: set[str] = set()
    size = min(chunk or form.first, form.most)
    while start < batch.size:
        piece = batch.piece(start, start + size)
        # The model's own code may ask torch for shorter products; what is made of what it gave, the
        # projection, the norm and the sum, is whole (docs/privacy.md P14).
        with modes_kept() if form.writes else nullcontext():
            sources = form.parts(piece)
        parts = _shaped(sources, space)
        kept = counted[start : start + piece.size]
        count += _add(vector, filled, parts, space, clip, kept)
        start += piece.size
        size = min(chunk or _affordable(parts, piece.size), form.most)
        del parts  # or they would be there beside the next
    for name in space.slices.keys() - filled:
        vector[space.slices[name]] = 0
    return ClippedSum(vector, count)


def _shaped(sources: list[Source], space: GradientSpace) -> list[Part]:
    """What is clipped, of sources that go one by one: none is there beside the next one's part."""
    sources.reverse()
    return [space.shape(sources.pop()) for _ in range(len(sources))]


def _affordable(parts: list[Part], records: int) -> int:
    """How many records the budget holds, judged by the most that the last piece took at once."""
    so_far = accumulate(part.floats() for _, part in parts)
    waiting = [part.scratch if isinstance(part, Stack) else 0 for _, part in parts]
    beside = reversed([*accumulate(reversed(waiting))])
    return _within_budget(max(map(add, so_far, beside), default=0), records)


def _within_budget(numbers: int, records: int) -> int:
    """The same, where these took so many numbers."""
    return max(1, _BUDGET * records // max(1, numbers))


def _add(
    vector: torch.Tensor,
    filled: set[str],
    parts: list[Part],
    space: GradientSpace,
    clip: float,
    kept: torch.Tensor,
) -> int:
    """Add what is clipped of a piece's kept records; say how many of them were finite.

    What the vector holds of a parameter that is not among the `filled` is no sum yet.
    """
    if not parts:  # a loss that depends on no trainable parameter
        return _counted(kept)
    norms = total_norms(parts)
    factors = clip_factors(norms, clip, vector.dtype)
    kept = kept.to(factors.device)
    factors = torch.where(kept, factors, torch.zeros_like(factors))
    for name, part in parts:
        part.add_to(vector[space.slices[name]], factors, kept=int(name in filled))
        filled.add(name)
    return _counted(kept & norms.isfinite())


def _counted(rows: torch.Tensor) -> int:
    """How many are True, without telling Python a value by an operation of torch (trial.py)."""
    return int(rows.cpu().numpy().sum())
