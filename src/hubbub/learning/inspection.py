"""Which models cannot be trained with a per-record guarantee, and what to put in their place.

A layer that mixes the records of a batch, or that remembers them in a buffer, gives a record more
influence than its clipped gradient. This file knows nothing of gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from hubbub.core.errors import ModelError
from hubbub.learning.batches import Loss, UnitLoss


def refuse_unsafe(model: nn.Module) -> None:
    """Refuse the known layers that mix records or remember them, and what shows no layers."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"expected a module of Python code, found {f'{name} in ' * bool(name)}TorchScript, "
                "of which no gradient of each record is to be had; hand over the module that was "
                "scripted or traced, with its state_dict"
            )
        problem = _problem(module)
        if problem:
            where = f"{type(module).__name__} {name}".rstrip()
            raise ModelError(
                f"expected layers that treat each record alone, found {where}, {problem}"
            )


def _problem(module: nn.Module) -> str:
    """What is wrong with this layer, or nothing."""
    if isinstance(module, _InstanceNorm):
        remembers = module.training and module.track_running_stats
        return "which remembers records; set track_running_stats=False" if remembers else ""
    if isinstance(module, _BatchNorm):
        mixes = module.training or module.running_mean is None
        return "which mixes the records of a batch; use nn.GroupNorm" if mixes else ""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        return "which rewrites its weight in the forward; set max_norm=None"
    return ""


def is_known(model: nn.Module, loss: Loss) -> bool:
    """Whether all of their code is torch's layers or hubbub's, which keep nothing of a record."""
    modules = list(model.modules())
    return all(map(is_plain, modules)) and all(
        f"{code.__module__}.".startswith(("torch.nn.", "hubbub.")) and code.__name__ != "<lambda>"
        for code in (*map(type, modules), *_codes(loss))
    )


def is_plain(module: nn.Module) -> bool:
    """No hooks and no forward of its own instance."""
    own = vars(module)
    return "forward" not in own and not any(v for k, v in own.items() if k.endswith("_hooks"))


def _codes(loss: Any) -> list[Any]:
    """The functions and classes that a loss is made of."""
    if isinstance(loss, partial):
        given = (loss.func, *loss.args, *loss.keywords.values())
        return [code for one in given if callable(one) for code in _codes(one)]
    if isinstance(loss, MethodType):
        return _codes(loss.__self__)
    if isinstance(loss, UnitLoss):
        return _codes(loss.rows)
    return [loss if isinstance(loss, FunctionType) else type(loss)]


@contextmanager
def zeros_filled(model: nn.Module) -> Iterator[None]:
    """Meanwhile made-up numbers in trained parameters that are all 0, as new heads are.

    At a head of zeros all outputs are alike, and no check would see what comes before it.
    """
    zeros = [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad and not parameter.any()
    ]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for zero in zeros:
            zero.copy_(torch.randn(zero.shape, generator=generator) / 4)
    try:
        yield
    finally:
        with torch.no_grad():
            for zero in zeros:
                zero.zero_()
