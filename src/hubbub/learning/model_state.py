"""What a model keeps and writes, seen in each of torch's operations.

Torch keeps its compiler away from a mode's own code, and loads it to do so: 800 modules and 85 MiB
of memory in each silo. Here that is done only where somebody has loaded it.
"""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hubbub.core.errors import ModelError
from hubbub.learning.batches import Loss, UnitLoss
from hubbub.learning.models import LinearProbe


class OperationMode(TorchDispatchMode):
    """A mode whose `__torch_dispatch__` is no part of what torch compiles."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        cls.__torch_dispatch__ = _not_compiled(cls.__torch_dispatch__)  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch, from 2.9 on, keeps its compiler away itself."""
        return False


def _not_compiled(seen: Any) -> Any:
    kept_away = torch._disable_dynamo(seen)  # noqa: SLF001 (torch's own way)

    @functools.wraps(seen)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (kept_away if "torch._dynamo" in sys.modules else seen)(*args, **kwargs)

    return called


# What a model holds in tensors, to the byte: noticed when a forward writes to it, and put back.
#
# A record's part is clipped and noised as a function of that record at given parameters. A forward
# that writes to a parameter or a buffer makes it a function of earlier records, and what was
# written would leave with the model's file, without noise (docs/privacy.md P14). A write through
# `.data` or through NumPy leaves no trace in a tensor's version, so bytes are compared.

_WORDS = (torch.int64, torch.int32, torch.uint8)  # of 8, 4 and 1 bytes


class ModelState:
    """A copy of all parameters and buffers of a model, as large as they are.

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
        # Once where several share it, as the weights of a recurrent layer do on a GPU.
        first = {one.untyped_storage().data_ptr(): k for k, one in reversed(self._data.items())}
        self._memory = {name: _memory(self._data[name]) for name in first.values()}
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
        pairs = {name: (memory, self._copies[name]) for name, memory in self._memory.items()}
        for name in _unequal(pairs):
            self._memory[name].copy_(self._copies[name])
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
    """Refuse, with a ModelError, a forward that changes a parameter or a buffer; put it back."""
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
    """Refuse, with a ModelError, a forward that writes to a parameter or a buffer.

    It sees what torch's own operations write, be it the same numbers once more: that an embedding's
    max_norm, say, shortens nothing today.
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
        self._known = {at: name for name, one in _tensors(model).items() for at in addresses(one)}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        expected = func._schema.arguments  # noqa: SLF001 (torch has no other word for it)
        named = dict(zip((one.name for one in expected), args, strict=False)) | (kwargs or {})
        for one in expected:
            if one.alias_info is not None and one.alias_info.is_write:
                written = addresses(named.get(one.name))
                self.names |= {self._known[at] for at in written if at in self._known}
        return func(*args, **(kwargs or {}))


def tensors_in(values: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of tuples, lists and mappings."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def addresses(values: Any) -> list[int]:
    """Of the memory of tensors that have any: a view its base's, a sparse one its values'."""
    held = [numbers for tensor in tensors_in(values) if (numbers := _stored(tensor)).numel()]
    return [numbers.untyped_storage().data_ptr() for numbers in held]


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout == torch.strided:
        return tensor
    if tensor.layout == torch.sparse_coo:
        return tensor._values()  # noqa: SLF001 (values() takes none that is not coalesced)
    return tensor.values()


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, each once, and gradients that somebody left in them."""
    known: dict[str, torch.Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, one in known.items():
        try:
            one.data_ptr()
        except (RuntimeError, NotImplementedError):  # it has no bytes of its own
            kind = f"{type(one).__name__} ({one.layout})"
            raise ModelError(
                f"expected dense parameters and buffers, found that {name} is a {kind}; hold it in "
                "dense tensors"
            ) from None
    left = {f"{name}.grad": _gradient(one) for name, one in known.items()}
    return known | {name: one for name, one in left.items() if one is not None}


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """What was left there; torch warns of the question where there can be none."""
    return tensor.grad if tensor.is_leaf else None


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where its numbers are and how they lie, its gradient, and whether it is trained."""
    place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
    return *place, id(_gradient(tensor)), tensor.requires_grad


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes under a tensor, whatever its strides leave out."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    return next(flat.view(word) for word in _WORDS if flat.numel() % word.itemsize == 0)


def _unequal(pairs: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> list[str]:
    """Whose bytes differ; NumPy compares several times as fast as torch does on a processor.

    A device is asked once for all of them, as each answer is waited for.
    """
    on_device = {name: pair for name, pair in pairs.items() if pair[0].device.type != "cpu"}
    names = [
        name
        for name, (memory, copy) in pairs.items()
        if name not in on_device and not np.array_equal(memory.numpy(), copy.numpy())
    ]
    if on_device:
        differ = torch.stack([memory.ne(copy).any() for memory, copy in on_device.values()])
        names += [name for name, unlike in zip(on_device, differ.tolist(), strict=True) if unlike]
    return names


# What a model keeps beside the numbers of its parameters and buffers: attributes.
#
# Those of its modules, of their classes, and of the parameters and buffers themselves, `grad` too.
#
# A forward that writes there makes a record's part depend on the records before it
# (docs/privacy.md P14). So attributes are looked at when a model is tried, and put back after
# every piece of a batch, whatever was written. A `LinearProbe` is left out: what it keeps follows
# from its weights alone.
#
# What is kept elsewhere (globals, closures, files, other objects) cannot be seen from here.

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
    """The same, and a model that wrote there is refused with a ModelError."""
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
            "expected a forward that leaves the model's attributes alone, found that it "
            f"changed {changed[:4]}; store nothing about a record, and draw from torch's "
            "own generator, which is seeded for every row"
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
    written = {k: v for k, v in values.items() if k not in _CONTAINERS and type(v) not in _PLAIN}
    copies = {name: _copy(value, memo) for name, value in written.items()}
    return {name: one for name, one in copies.items() if one is not written[name]}


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
    now, is_class = _own(owner), isinstance(owner, type)
    write = partial(setattr, owner) if is_class else vars(owner).__setitem__
    remove = partial(delattr, owner) if is_class else vars(owner).__delitem__
    for name in now.keys() - values.keys():
        remove(name)
    for name, value in values.items():
        if name in copies or name not in now or now[name] is not value:
            write(name, copies.get(name, value))


def _print(value: Any, known: dict[int, Any]) -> object:
    """Bytes that follow from what a value holds; its identity where it does not say."""
    if type(value) in _PLAIN:
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


def refuse_unsafe(model: nn.Module) -> None:
    """Refuse the known layers that mix records or remember them, and what shows no layers.

    Such a layer gives a record more influence than its clipped gradient.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"expected a module of Python code, found {f'{name} in ' * bool(name)}TorchScript, "
                "for which gradients of single records are not available; pass the module that was "
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
    if type(module).get_extra_state is not nn.Module.get_extra_state:
        return "whose state_dict holds more than tensors; leave out its get_extra_state"
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


def has_backward_hooks(model: nn.Module) -> bool:
    """Whether modules or parameters have hooks for gradients, which only the loop calls."""
    hooks = (
        getattr(one, name, None)
        for one in (*model.modules(), *model.parameters())
        for name in ("_backward_hooks", "_backward_pre_hooks")
    )
    return any(hooks)


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
    zeros = [one for one in model.parameters() if one.requires_grad and not one.any()]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for zero in zeros:
            zero.copy_(torch.randn(zero.shape, generator=generator, device="cpu") / 4)
    try:
        yield
    finally:
        with torch.no_grad():
            for zero in zeros:
                zero.zero_()
