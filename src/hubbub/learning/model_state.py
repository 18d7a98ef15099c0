"""What a model holds in tensors, to the byte: noticed when a forward writes to it, and put back.

A record's part is clipped and noised as a function of that record at given parameters. A forward
that writes to a parameter or a buffer makes it a function of earlier records, and what was written
would leave with the model's file, without noise (docs/privacy.md P14). A write through `.data` or
through NumPy leaves no trace in a tensor's version, so bytes are compared. This file knows neither
records nor gradients, nor what a model keeps outside tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from hubbub.core.errors import ModelError
from hubbub.learning.operation_mode import OperationMode

_WORDS = (torch.int64, torch.int32, torch.uint8)  # of 8, 4 and 1 bytes


class ModelState:
    """A copy of all parameters and buffers of a model, as large as they are.

    Args:
        model: whose they are; its children are held, it is not.

    Raises:
        ModelError: one of them has no bytes that could be compared.
    """

    def __init__(self, model: nn.Module) -> None:
        self._dicts = [
            (owner, dict(owner))
            for module in model.modules()
            for owner in (vars(module)[kind] for kind in ("_parameters", "_buffers", "_modules"))
        ]
        self._tensors = _tensors(model)
        # The same memory, shape and strides, whatever becomes of the tensors themselves.
        self._data = {name: one.detach() for name, one in self._tensors.items()}
        self._kinds = {name: _kind(one) for name, one in self._tensors.items()}
        self._memory = {name: _memory(one) for name, one in self._data.items()}
        self._copies = {name: memory.clone() for name, memory in self._memory.items()}

    def renewed(self) -> bool:
        """Take what the model holds now; False if it holds other tensors than before."""
        if self._moved():
            return False
        for name, memory in self._memory.items():
            self._copies[name].copy_(memory)
        return True

    def put_back(self) -> list[str]:
        """Put back what has changed, and name it."""
        changed = self._moved()
        if changed:
            self._replace()
        for name, memory in self._memory.items():
            if not _alike(memory, self._copies[name]):
                memory.copy_(self._copies[name])
                changed.append(name)
        return sorted(set(changed))

    def _moved(self) -> list[str]:
        """The names of what is another tensor than before, or in other memory."""
        others = [
            key
            for owner, before in self._dicts
            for key in owner.keys() | before.keys()
            if owner.get(key) is not before.get(key)
        ]
        return others + [k for k, one in self._tensors.items() if _kind(one) != self._kinds[k]]

    def _replace(self) -> None:
        for owner, before in self._dicts:
            owner.clear()
            owner.update(before)
        for name, one in self._tensors.items():
            one.data = self._data[name]
            one.requires_grad_(self._kinds[name][-1])
            one.grad = self._tensors.get(f"{name}.grad")


# Made once for each model, as memory that was never touched is dear; taken out while it is in use.
_SPARE: WeakKeyDictionary[nn.Module, ModelState] = WeakKeyDictionary()
_HELD: WeakKeyDictionary[nn.Module, ModelState | None] = WeakKeyDictionary()


@contextmanager
def state_held(model: nn.Module) -> Iterator[None]:
    """Inside, `state_unchanged` takes the model as it is now for what is to be put back.

    One copy then does for many pieces, and none is made where nobody asks; nobody else may use the
    model meanwhile.
    """
    _HELD[model] = None
    try:
        yield
    finally:
        state = _HELD.pop(model)
        if state is not None:
            _SPARE[model] = state


@contextmanager
def state_unchanged(model: nn.Module) -> Iterator[None]:
    """Refuse a forward that changes a parameter or a buffer, and put it back.

    Raises:
        ModelError: it does; or what would have to be compared has no bytes.
    """
    state = _HELD.get(model) or _taken(model)
    if model in _HELD:
        _HELD[model] = state
    try:
        yield
    finally:
        changed = state.put_back()
        if model not in _HELD:
            _SPARE[model] = state
        if changed:
            raise ModelError(_REFUSED.format(changed[:8]))


def forget(model: nn.Module) -> None:
    """Keep no memory for the next copy of a model that was tried, and may need none from now on."""
    _SPARE.pop(model, None)


def _taken(model: nn.Module) -> ModelState:
    """What the model holds now, in a copy that nobody else uses."""
    state = _SPARE.pop(model, None)
    return state if state is not None and state.renewed() else ModelState(model)


_REFUSED = (
    "expected a forward that leaves parameters and buffers alone, found that it changed {}; "
    "make the layer stateless, or put it in eval mode"
)


@contextmanager
def writes_refused(model: nn.Module) -> Iterator[None]:
    """Refuse a forward that writes to a parameter or a buffer, be it the same numbers once more.

    It sees what torch's own operations write, at whatever weights: that an embedding's max_norm,
    say, shortens nothing today.

    Raises:
        ModelError: it does.
    """
    writes = _Writes(model)
    with writes:
        yield
    if writes.names:
        raise ModelError(_REFUSED.format(sorted(writes.names)[:8]))


class _Writes(OperationMode):
    """The names of a model's tensors that operations write to."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()
        tensors = _tensors(model).items()
        self._known = {_address(one): name for name, one in tensors if one.numel()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        expected = func._schema.arguments  # noqa: SLF001 (torch has no other word for it)
        named = dict(zip((one.name for one in expected), args, strict=False)) | (kwargs or {})
        for one in expected:
            if one.alias_info is not None and one.alias_info.is_write:
                self._note(named.get(one.name))
        return func(*args, **(kwargs or {}))

    def _note(self, written: Any) -> None:
        tensors = [
            tree_leaf for tree_leaf in tree_leaves(written) if isinstance(tree_leaf, torch.Tensor)
        ]
        self.names |= {self._known[_address(t)] for t in tensors if _address(t) in self._known}


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, each once, and gradients that somebody left in them."""
    known: dict[str, torch.Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, one in known.items():
        _refuse_other_than_dense(name, one)
    left = {f"{name}.grad": _gradient(one) for name, one in known.items()}
    return known | {name: one for name, one in left.items() if one is not None}


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """What was left there; torch warns of the question where there can be none."""
    return tensor.grad if tensor.is_leaf else None


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where its numbers are and how they lie, its gradient, and whether it is trained."""
    place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
    return *place, id(_gradient(tensor)), tensor.requires_grad


def _refuse_other_than_dense(name: str, tensor: torch.Tensor) -> None:
    """Refuse what has no bytes of its own, such as a sparse matrix."""
    try:
        tensor.data_ptr()
        return
    except (RuntimeError, NotImplementedError):
        kind = f"{type(tensor).__name__} ({tensor.layout})"
    raise ModelError(
        f"expected dense parameters and buffers, found that {name} is a {kind}; hold it in dense "
        "tensors"
    )


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes under a tensor, whatever its strides leave out."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    return next(flat.view(word) for word in _WORDS if flat.numel() % word.itemsize == 0)


def _alike(memory: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether the bytes are the same; NumPy compares several times as fast as torch does."""
    if memory.device.type == "cpu":
        return np.array_equal(memory.numpy(), copy.numpy())
    return torch.equal(memory, copy)
