"""What a model keeps beside the numbers of its parameters and buffers: attributes.

Those of its modules, of their classes, and of the parameters and buffers themselves, `grad` too.

A forward that writes there makes a record's part depend on the records before it (docs/privacy.md
P14). So attributes are looked at when a model is tried, and put back after every piece of a batch,
whatever was written. A `LinearProbe` is left out: what it keeps follows from its weights alone.

What is kept elsewhere (globals, closures, files, other objects) cannot be seen from here.
"""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from hubbub.core.errors import ModelError
from hubbub.learning.linear_probe import LinearProbe

_OURS = ("torch.", "hubbub.", "builtins")
_CONTAINERS = frozenset(vars(nn.Module())) - {"training", "_is_full_backward_hook"}
# What nobody can write into, and no copy is made of.
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, FunctionType, torch.dtype})
_BY_NAME = type | FunctionType | BuiltinFunctionType | ModuleType
_DESCRIPTORS = (property, classmethod, staticmethod, *_BY_NAME.__args__)


@contextmanager
def attributes_restored(model: nn.Module) -> Iterator[None]:
    """Afterwards all attributes are what they were, and what they held is as it was."""
    kept = _Kept(model)
    try:
        yield
    finally:
        kept.restore()


@contextmanager
def attributes_unchanged(model: nn.Module) -> Iterator[None]:
    """The same, and a model that wrote there is refused.

    Raises:
        ModelError: it did.
    """
    kept = _Kept(model)
    before = kept.prints()
    try:
        yield
        after = kept.prints()
    finally:
        kept.restore()
    changed = [kept.named(k) for k in before | after if before.get(k) != after.get(k)]
    if changed:
        raise ModelError(
            f"expected a forward that leaves the model's attributes alone, found that it changed "
            f"{changed[:4]}; keep nothing of a record, and draw from torch's own generator, which "
            "is seeded for every row"
        )


class _Kept:
    """Attributes of a model's modules, and of their classes, at one moment."""

    def __init__(self, model: nn.Module) -> None:
        tensors = (*model.parameters(), *model.buffers())
        self._known = {id(module): module for module in (*model.modules(), *tensors)}
        modules = [module for module in model.modules() if not isinstance(module, LinearProbe)]
        bases = dict.fromkeys(base for module in modules for base in type(module).__mro__)
        classes = [base for base in bases if not f"{base.__module__}.".startswith(_OURS)]
        self._owners: list[Any] = [*modules, *classes, *tensors]
        self._values = [_own(owner) for owner in self._owners]
        memo = dict(self._known)
        self._copies = [_copied(values, memo) for values in self._values]
        self._grads = [(tensor, tensor.grad) for tensor in tensors if tensor.is_leaf]
        self._containers = [
            (values[name], values[name].copy())
            for values in self._values
            for name in _CONTAINERS & values.keys()
        ]

    def restore(self) -> None:
        """Put back what was there."""
        memo = dict(self._known)
        for owner, values, copies in zip(self._owners, self._values, self._copies, strict=True):
            _put_back(owner, values, {name: _copy(one, memo) for name, one in copies.items()})
        for tensor, grad in self._grads:
            tensor.grad = grad
        for container, before in self._containers:
            if not _is_same(container, before):
                container.clear()
                container.update(before)

    def prints(self) -> dict[tuple[int, str], object]:
        """By owner and name, something that differs where what an attribute holds does."""
        found: dict[tuple[int, str], object] = {
            (place, name): _print(value, self._known)
            for place, owner in enumerate(self._owners)
            for name, value in _own(owner).items()
            if name not in _CONTAINERS
        }
        grads = [_print(one.grad, {}) for one, _ in self._grads]
        return found | {(len(self._owners) - 1, "grad"): grads}

    def named(self, one: tuple[int, str]) -> str:
        """An attribute as people read it."""
        owner = self._owners[one[0]]
        return f"{owner.__name__ if isinstance(owner, type) else type(owner).__name__}.{one[1]}"


def _copied(values: dict[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
    """Copies of what can be written into."""
    mutable = {k: v for k, v in values.items() if k not in _CONTAINERS and not _is_plain(v)}
    copies = {name: _copy(value, memo) for name, value in mutable.items()}
    return {name: one for name, one in copies.items() if one is not mutable[name]}


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """One that shares what is in the memo; the value itself if there is none."""
    with suppress(Exception):  # of a class that is the user's
        return copy.deepcopy(value, memo)
    return value


def _own(owner: Any) -> dict[str, Any]:
    """A module's attributes, or a class's that are data."""
    if not isinstance(owner, type):
        return dict(vars(owner))
    return {
        name: value
        for name, value in vars(owner).items()
        if not name.startswith("__")
        and not isinstance(value, _DESCRIPTORS)
        and not inspect.isdatadescriptor(value)
    }


def _is_same(container: Any, before: Any) -> bool:
    """Whether one of torch's own dictionaries or sets holds the same objects."""
    if isinstance(container, dict):
        return [*container] == [*before] and all(container[k] is before[k] for k in before)
    return bool(container == before)


def _put_back(owner: Any, values: dict[str, Any], copies: dict[str, Any]) -> None:
    """Give a module or a class these attributes and no others."""
    now = _own(owner)
    for name in now.keys() - values.keys():
        _remove(owner, name)
    for name, value in values.items():
        if name in copies or name not in now or now[name] is not value:
            _write(owner, name, copies.get(name, value))


def _write(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value


def _remove(owner: Any, name: str) -> None:
    if isinstance(owner, type):
        delattr(owner, name)
    else:
        del vars(owner)[name]


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN


def _print(value: Any, known: dict[int, Any]) -> object:
    """Bytes that follow from what a value holds; its identity where it does not say."""
    if _is_plain(value):
        return repr(value)
    file = io.BytesIO()
    try:
        _Pickler(file, known).dump(value)
    except Exception:  # noqa: BLE001 (of a class that is the user's)
        return id(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    """Writes what objects hold, and the model's own modules and tensors by name only."""

    def __init__(self, file: io.BytesIO, known: dict[int, Any]) -> None:
        super().__init__(file, protocol=5)
        self._known = known

    def persistent_id(self, value: Any) -> int | None:
        """Of what is looked at elsewhere, or holds nothing."""
        return id(value) if id(value) in self._known or isinstance(value, _BY_NAME) else None

    def reducer_override(self, value: Any) -> Any:
        """Tensors and generators by their numbers."""
        if isinstance(value, torch.Generator):
            return bytes, (value.get_state().numpy().tobytes(),)
        if isinstance(value, torch.Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return str, (f"{value.dtype} {tuple(value.shape)} {flat.numpy().tobytes()!r}",)
        return NotImplemented
