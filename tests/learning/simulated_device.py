"""GPUs that are none: memory of the processor that is marked as theirs.

`SimulatedDevice` marks storages. Torch's operations run on the processor and pass the mark on; what
two GPUs would refuse raises as it does there: numbers of two devices in one operation, NumPy's
view of a device's memory, a generator or a begun state that does not fit. What the host waits for
is counted.

It cannot show what a GPU alone does: its kernels' rounding and what they refuse of strides, but for
cuDNN's recurrent ones, autocast's own list of operations, and the threads of backward passes.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CPU = torch.device("cpu")
COUNT = 2  # of simulated GPUs, of which the first is the one that is taken when none is named
# What reads numbers to decide on a shape or on what Python does next.
WAITING = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2"),
    *("unique_dim", "unique_consecutive", "bincount", "linalg_eig", "_linalg_check_errors"),
}
INDEXED = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
RECURRENT = (torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu)
# What is asked of torch.cuda and has no answer.
_NOTHING = ("_lazy_init", "init", "synchronize", "empty_cache", "reset_peak_memory_stats")
_PLACES = torch.device | str
_device, _to, _numpy = torch.Tensor.device, torch.Tensor.to, torch.Tensor.numpy
_tolist, _deepcopy = torch.Tensor.tolist, torch.Tensor.__deepcopy__
_tensor, _autocast = torch.tensor, torch.autocast


def storage_of(tensor: torch.Tensor) -> Any:
    """Where its numbers are, under what vmap and grad have put around them."""
    with torch._C.DisableTorchFunction():
        while is_functorch_wrapped_tensor(tensor):
            tensor = get_unwrapped(tensor)
        if tensor.layout == torch.sparse_coo:
            tensor = tensor._values()
        elif tensor.layout != torch.strided:
            tensor = tensor.values()
        return tensor.untyped_storage()


def place_of(tensor: torch.Tensor) -> torch.device:
    """Whose memory that is."""
    real = _device.__get__(tensor)
    return getattr(storage_of(tensor), "place", real) if real == CPU else real


def tensors_in(values: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


class _Calls(TorchFunctionMode):
    """Where what a function of torch makes for itself belongs: beside what it is given."""

    place = CPU

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        before, given = self.place, tensors_in((args, kwargs))
        self.place = next((at for one in given if (at := place_of(one)) != CPU), CPU)
        try:
            if func in RECURRENT and self.place != CPU and torch.backends.cudnn.enabled:
                _check_begun(args)
            return func(*args, **(kwargs or {}))
        finally:
            self.place = before


class SimulatedDevice(TorchDispatchMode):
    """Inside, "cuda:0" and "cuda:1" are there; entered once in each thread.

    Attributes:
        waits: how often the host waited for a device, by what.
        sent: how often numbers went from the host to a device.
        generators: of random numbers, one for each device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.sent = 0
        self.generators = tuple(torch.Generator() for _ in range(COUNT))
        self._current = 0
        self._inside: list[ExitStack] = []
        self._calls = _Calls()

    def __enter__(self) -> SimulatedDevice:
        stack = ExitStack()
        if not self._inside:
            for target, name, value in self._patches():
                stack.enter_context(patch.object(target, name, value))
        stack.enter_context(self._calls)
        self._inside.append(stack)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._inside.pop().close()

    def _patches(self) -> list[tuple[Any, str, Any]]:
        """What Python asks of torch, and no operation sees."""
        tensor, cuda = torch.Tensor, torch.cuda
        return [
            (tensor, "device", property(place_of)),
            (tensor, "is_cuda", property(lambda values: place_of(values) != CPU)),
            (tensor, "to", _method(self._to)),
            (tensor, "cpu", lambda values: self._to(values, CPU)),
            (tensor, "cuda", lambda values, device="cuda": self._to(values, device)),
            (tensor, "numpy", _as_numpy),
            (tensor, "__array__", lambda values, *_, **__: _as_numpy(values)),
            (tensor, "tolist", _method(self._tolist)),
            (
                tensor,
                "get_device",
                lambda values: -1 if values.device == CPU else values.device.index,
            ),
            (tensor, "__deepcopy__", _copied),
            (torch, "tensor", _tensor_there),
            (torch, "autocast", _autocast_there),
            (torch.backends.cudnn, "is_acceptable", _is_for_cudnn),
            # A build for CUDA has that call, and no kernel of it for the processor.
            (torch, "_use_cudnn_rnn_flatten_weight", lambda: False),
            *((cuda, name, lambda *_, **__: None) for name in _NOTHING),
            (cuda, "is_available", lambda: True),
            (cuda, "device_count", lambda: COUNT),
            (cuda, "current_device", lambda: self._current),
            (cuda, "_exchange_device", self._exchange),
            (cuda, "_maybe_exchange_device", self._exchange),
            (cuda, "max_memory_allocated", lambda: 0),
            (cuda, "mem_get_info", lambda *_: (2**36, 2**36)),
            (cuda, "get_device_name", lambda *_: "simulated"),
            (cuda, "manual_seed", lambda seed: self._generator("cuda").manual_seed(seed)),
            (cuda, "get_rng_state", lambda at="cuda": self._generator(at).get_state()),
            (cuda, "set_rng_state", lambda state, at="cuda": self._generator(at).set_state(state)),
        ]

    def _exchange(self, index: int) -> int:
        before = self._current
        self._current = index if index >= 0 else before
        return before

    def _numbered(self, device: Any) -> torch.device:
        """The device that a name stands for."""
        place = torch.device(device)
        if place.type == "cuda" and place.index is None:
            return torch.device("cuda", self._current)
        return place

    def _generator(self, device: Any) -> torch.Generator:
        return self.generators[self._numbered(device).index]

    def _to(self, values: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        """The tensor's own method, with a copy from device to device that is seen."""
        if given and isinstance(given[0], torch.Tensor):
            given = given[0].device, given[0].dtype
        stated = (*given, named.get("device"), named.get("dtype"))
        device = next((one for one in stated if isinstance(one, _PLACES)), None)
        kind = next((one for one in stated if isinstance(one, torch.dtype)), values.dtype)
        here = place_of(values)
        there = here if device is None else self._numbered(device)
        if there.type == "meta":
            return _to(values, there, kind)
        if here == there:
            return _to(values, kind, copy=named.get("copy", False))
        self._count(here, "to")
        copied = _to(values, kind, copy=True)
        storage_of(copied).place = there
        return copied

    def _tolist(self, values: torch.Tensor) -> Any:
        self._count(place_of(values), "tolist")
        with torch._C.DisableTorchFunction():
            return _tolist(values)

    def _count(self, here: torch.device, by: str) -> None:
        """The host waits for a device that it asks; one that it sends numbers is counted alone."""
        if here == CPU and by == "to":
            self.sent += 1
        elif here != CPU:
            self.waits[by] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, named = func._schema.name.partition("::")[2], dict(kwargs or {})
        tensors = tensors_in((args, kwargs))
        wanted = named.get("device")
        if name == "copy_":
            place, source = place_of(args[0]), place_of(args[1])
            if place != source:
                self._count(source, "to")
        else:
            place = _common(name, tensors, args) if tensors else self._calls.place
        if wanted is not None and wanted.type == "cuda":
            place, named["device"] = self._numbered(wanted), CPU
        generator = named.get("generator")
        if generator is not None and generator.device.type != place.type:
            raise RuntimeError(f"Expected a '{place.type}' device type for generator")
        if name in WAITING or (name in INDEXED and _asks_where(args)):
            self._count(place, name)
        draws = place.type == "cuda" and torch.Tag.nondeterministic_seeded in func.tags
        with _drawing_from(self._generator(place)) if draws else ExitStack():
            given = func(*args, **named)
        known = {id(storage_of(one)) for one in tensors}
        for one in tensors_in(given):
            if id(storage_of(one)) not in known:
                storage_of(one).place = place
        return given


@contextmanager
def _drawing_from(generator: torch.Generator) -> Iterator[None]:
    """What is drawn inside comes from a device's generator, and not from the processor's."""
    default = torch.default_generator
    before = default.get_state()
    default.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(default.get_state())
        default.set_state(before)


def _common(name: str, tensors: list[torch.Tensor], args: Any) -> torch.device:
    """Where an operation runs; a scalar or an index of the processor's may go to a device."""
    if name in INDEXED and place_of(args[0]) != CPU:
        index = {id(one) for one in args[1] if one is not None}
        tensors = [one for one in tensors if id(one) not in index]
    places = {place_of(one) for one in tensors if one.dim() or place_of(one) != CPU}
    if len(places) > 1:
        found = [(str(place_of(one)), tuple(one.shape)) for one in tensors]
        raise RuntimeError(f"Expected all tensors to be on the same device, {name} has {found}")
    return places.pop() if places else CPU


def _asks_where(args: Any) -> bool:
    """Whether an index is a mask."""
    return any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])


def _check_begun(args: Any) -> None:
    """As cuDNN does: states and weights in memory of their own, one number beside the other."""
    begun = args[1] if isinstance(args[1], tuple | list) else [args[1]]
    if any(is_functorch_wrapped_tensor(one) for one in (args[0], *begun)):
        raise RuntimeError("cuDNN has no rule for vmap")
    if not all(one.is_contiguous() for one in begun):
        raise RuntimeError("rnn: hx is not contiguous")
    weights = [one for one in args[2] if not isinstance(one, torch.nn.Parameter)]
    if len({storage_of(one).data_ptr() for one in weights}) > 1:
        warnings.warn("RNN module weights are not part of single contiguous chunk", stacklevel=2)


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that a tensor has as its own."""

    def called(values: torch.Tensor, *args: Any, **named: Any) -> Any:
        return function(values, *args, **named)

    return called


def _as_numpy(values: torch.Tensor, **named: Any) -> Any:
    if place_of(values) != CPU:
        raise TypeError(f"can't convert {place_of(values)} device type tensor to numpy")
    with torch._C.DisableTorchFunction():
        return _numpy(values, **named)


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
    copied = _deepcopy(tensor, memo)
    storage_of(copied).place = place_of(tensor)
    return copied


def _tensor_there(values: Any, *, device: Any = None, **named: Any) -> torch.Tensor:
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    place = device or (default.device if default else CPU)
    return _tensor(values, device=CPU, **named).to(place)


def _is_for_cudnn(tensor: torch.Tensor) -> bool:
    return torch.backends.cudnn.enabled and place_of(tensor) != CPU


def _autocast_there(kind: str, *given: Any, **named: Any) -> Any:
    return _autocast("cpu" if kind == "cuda" else kind, *given, **named)
