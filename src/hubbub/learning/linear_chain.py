"""The fast method: a plain chain of Linear and elementwise layers on rows, evaluated as one batch.

Evaluating the whole batch at once is right only where no record can reach another. That is decided
here by exact types, from a closed list: every layer acts on each row alone, and so does the loss.
Whatever is not on the list goes through vmap or the loop. No hooks: the chain is walked here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from hubbub.learning.batches import Batch, Loss, UnitLoss, UnitModel
from hubbub.learning.inspection import is_plain
from hubbub.learning.parameters import ParameterLayout
from hubbub.learning.per_record import Site, Source, linear_on, site_parts
from hubbub.learning.scoring import ROW_LOSSES

# Losses that give one value per row and know no parameter, with reduction="none".
_ROW_LOSSES = (functional.cross_entropy, functional.binary_cross_entropy_with_logits)
_ROW_LOSS_MODULES = (nn.CrossEntropyLoss, nn.BCEWithLogitsLoss)

_ELEMENTWISE = frozenset(
    {nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU}
    | {nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish}
    | {nn.Hardsigmoid, nn.LogSigmoid, nn.Tanhshrink, nn.Dropout}
)


class Squeeze(nn.Module):
    """Drops the last dimension, of size one: a single logit per record."""

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        """(n, 1) to (n,)."""
        return outputs.squeeze(-1)


def chain_of(model: nn.Module, loss: Loss, batch: Batch) -> list[nn.Module] | None:
    """The layers of `model` in order, or None where the fast method is not provably right."""
    inputs, units = batch.inputs[0], False
    if isinstance(model, UnitModel) and isinstance(loss, UnitLoss) and is_plain(model):
        model, loss, inputs, units = model.rows, loss.rows, inputs.flatten(0, 1), True
    layers = list(_unrolled(model))
    rows = len(batch.inputs) == 1 and batch.paired == units and _rows(inputs, layers)
    known = all(is_plain(m) and _on_list(m) for m in layers)
    owned = [id(p) for m in layers for p in m.parameters()]
    if rows and known and len(owned) == len(set(owned)) and _is_row_loss(loss):
        return layers
    return None


def _rows(inputs: torch.Tensor, layers: list[nn.Module]) -> bool:
    """Whether the first layer sees one row of numbers per record."""
    flattened = bool(layers) and type(layers[0]) is nn.Flatten
    return inputs.is_floating_point() and (inputs.dim() == 2 or (flattened and inputs.dim() > 2))


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
    return type(layer) in (nn.Linear, Squeeze) or type(layer) in _ELEMENTWISE


def _is_row_loss(loss: Loss) -> bool:
    """Whether `loss` is known to give one value per row."""
    if isinstance(loss, functools.partial):
        if loss.func in ROW_LOSSES:
            return not loss.args
        options = loss.keywords
        tensors = any(isinstance(v, nn.Parameter) for v in options.values())
        known = loss.func in _ROW_LOSSES and not loss.args and not tensors
        return known and options.get("reduction") == "none"
    if type(loss) in _ROW_LOSS_MODULES:
        return bool(loss.reduction == "none") and is_plain(loss)  # type: ignore[attr-defined,arg-type]
    return False


def chain_parts(
    layers: list[nn.Module], loss: Loss, layout: ParameterLayout, batch: Batch
) -> Iterator[Source]:
    """Per-record gradients of all Linear layers, from one forward and one backward.

    A unit's rows go through the layers as rows, and meet again at each Linear one and in the loss.
    """
    sites: list[Site] = []
    places = batch.inputs[0].shape[:2] if batch.paired else None
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
    losses = loss(values.unflatten(0, places) if places else values, batch.labels())
    edges = [site.edge for site in sites]
    backprops = torch.autograd.grad(losses.sum(), edges, allow_unused=True)
    return site_parts(sites, list(backprops))
