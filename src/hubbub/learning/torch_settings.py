"""What torch keeps for the whole process, set for a while and put back: speed, and no guarantee.

A clipping factor is exact to one part in a million only if a float32 product is a float32 product
(docs/privacy.md P14). Torch can be asked to round the factors of a product to 10 or 7 bits;
`exact_products` and `plain_attention` take such short cuts back, and `modes_kept` whatever a model
has asked torch for, before anything is made of what the model gave. This file knows no records.
"""

from __future__ import annotations

import math
import os
import random
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hubbub.core.errors import UserError

_NAME = re.compile(r"cpu|cuda(?::([0-9]{1,3}))?")
# Below this the threads of one operation wait for each other longer than they work.
_SMALL = 100_000
_WORD = 0xFFFFFFFF
_ONE = 1.0  # a name, so that no product with it is made before the code runs
_GENERATOR = threading.RLock()
_CPU = torch.device("cpu")


def device_of(name: str) -> torch.device:
    """The device that "auto", "cpu" or "cuda" (also "cuda:1") stands for on this machine.

    Args:
        name: "auto" takes the GPU where torch sees one.

    Returns:
        The device.

    Raises:
        UserError: another name, or a GPU that is not there.

    >>> device_of("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return _first_cuda() if torch.cuda.is_available() else torch.device("cpu")
    named = _NAME.fullmatch(name)
    if named is None:
        raise UserError(f'expected device to be "auto", "cpu" or "cuda", got {name!r}; choose one')
    if name != "cpu" and int(named[1] or 0) >= torch.cuda.device_count():
        raise UserError(
            f"expected {name} to be a GPU that torch can use, found {torch.cuda.device_count()} of "
            'them; take device = "auto" or "cpu", or install torch with CUDA'
        )
    return _first_cuda() if name == "cuda" else torch.device(name)


def device_under(model: nn.Module) -> torch.device | None:
    """Where the model's parameters are; None for a model that has none."""
    return next((parameter.device for parameter in model.parameters()), None)


def has_room(device: torch.device, size: int) -> bool:
    """Whether a GPU has four times so many bytes free: what is there all the time leaves room."""
    return device.type == "cuda" and 4 * size < torch.cuda.mem_get_info(device)[0]


def _first_cuda() -> torch.device:
    """The GPU that torch takes when none is named, by its number, as its tensors name it."""
    return torch.device("cuda", torch.cuda.current_device())


class _Shared:
    """A setting of the whole process: made by the first thread inside, put back by the last.

    `change` makes it, and gives what puts it back.
    """

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change, self._lock, self._inside = change, threading.Lock(), 0
        self._restore: Callable[[], object] = lambda: None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._restore = self._change()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._restore()


# Where torch keeps how far the factors of a float32 product are rounded: first what others follow
# that say nothing themselves. By torch's own attributes, "mkldnn" cannot be set alone.
_PRECISIONS: tuple[tuple[str, str], ...] = (
    *(("generic", "all"), ("cuda", "all"), ("mkldnn", "all")),
    *(("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn")),
    *(("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn")),
)
if not hasattr(torch._C, "_get_fp32_precision_getter"):  # noqa: SLF001 (before 2.9, only the older)
    _PRECISIONS = ()
# Torch's older words for the same; it wants to be asked in these too where somebody has used them.
_OLDER: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32),  # noqa: SLF001 (see above)
)


def _precision(place: tuple[str, str]) -> str:
    return str(torch._C._get_fp32_precision_getter(*place))  # noqa: SLF001 (see _PRECISIONS)


def _set_precision(place: tuple[str, str], precision: str) -> None:
    torch._C._set_fp32_precision_setter(*place, precision)  # noqa: SLF001 (see _PRECISIONS)


def _exactly() -> Callable[[], object]:
    """IEEE products of float32 numbers in every operation, whatever the process has asked for."""
    restore = _restoration()
    torch.set_float32_matmul_precision("highest")
    torch._C._set_cudnn_allow_tf32(False)  # noqa: SLF001 (see _OLDER)
    for place in _PRECISIONS:
        if place[1] != "all":  # which no operation looks at where its own says something
            _set_precision(place, "ieee")
    return restore


def _plainly() -> Callable[[], object]:
    """Attention written out, layer by layer.

    For torch's fused forms vmap has no rules, and its short cut for evaluation puts zeros where a
    record is padded, so that another function is evaluated than was trained.
    """
    inside = ExitStack()
    inside.callback(
        torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
    )
    torch.backends.mha.set_fastpath_enabled(False)
    inside.enter_context(sdpa_kernel(SDPBackend.MATH))
    return inside.close


def _repeatably() -> Callable[[], object]:
    """The same bits each time, on a device too, where sums by atomic additions would differ.

    Whether rows are alone could not be seen otherwise (A2). No memory is filled for it.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    inside = ExitStack()
    fills: Any = torch.utils.deterministic
    inside.callback(setattr, fills, "fill_uninitialized_memory", fills.fill_uninitialized_memory)
    enabled, warns = _deterministic()
    inside.callback(torch.use_deterministic_algorithms, enabled, warn_only=warns)
    cudnn = torch.backends.cudnn
    for name in ("deterministic", "benchmark"):  # kernels are chosen by shapes, not by time (A2)
        inside.callback(setattr, cudnn, name, getattr(cudnn, name))
    torch.use_deterministic_algorithms(True, warn_only=True)
    # What of a model has no such kernel is no fault of whoever runs it, and is tried (A2).
    inside.enter_context(warnings.catch_warnings())
    warnings.filterwarnings("ignore", ".*(have a deterministic impl|is not deterministic because)")
    fills.fill_uninitialized_memory, cudnn.deterministic, cudnn.benchmark = False, True, False
    return inside.close


def _shortly() -> Callable[[], object]:
    """New numbers of float32, as torch comes."""
    restore = partial(torch.set_default_dtype, torch.get_default_dtype())
    torch.set_default_dtype(torch.float32)
    return restore


exact_products, plain_attention = _Shared(_exactly), _Shared(_plainly)
alike_each_time, _float32_made = _Shared(_repeatably), _Shared(_shortly)


@contextmanager
def made_on(device: torch.device) -> Iterator[None]:
    """Tensors made without a device or dtype are there and float32, whatever the caller's defaults.

    Or made-up records would not be where the model is, and a study's model follow from them.
    """
    there = torch.device(device) if _depth()[0] else nullcontext()  # a mode slows down all calls
    with _float32_made(), there:
        yield


@contextmanager
def as_stored(kind: str) -> Iterator[None]:
    """What is clipped and added are the numbers that are stored (docs/privacy.md P14).

    No factor of a product is rounded on its way (`exact_products`), and none is made shorter: where
    the caller has switched autocast on, it is off inside, on devices of this kind and this thread,
    and so is the rounding of very small numbers to zero.
    """
    before, flushes = torch.is_autocast_enabled(kind), _flushes()
    torch.set_autocast_enabled(kind, False)
    torch.set_flush_denormal(False)
    try:
        with exact_products():
            yield
    finally:
        torch.set_flush_denormal(flushes)
        torch.set_autocast_enabled(kind, before)


@contextmanager
def computing(device: torch.device) -> Iterator[None]:
    """How torch computes for hubbub, whatever the caller has set: unrounded, on a GPU repeatably.

    The models' tensors without a device are made on this one.
    """
    alike = nullcontext() if device.type == "cpu" else alike_each_time()
    with as_stored(device.type), plain_attention(), alike, made_on(device):
        yield


@contextmanager
def shortened(precision: str, kind: str) -> Iterator[None]:
    """Forward and backward in numbers as short as a study lets them be, on devices of this kind.

    "float32" changes nothing; "tf32" has a GPU round the factors of float32 products to 10 bits,
    "bf16" has matrices and convolutions of 8 bits. What comes of it is stored and measured before
    it is clipped, and clipped and added in float64 (docs/privacy.md P14).
    """
    restore: Callable[[], object] = _restoration() if precision == "tf32" else lambda: None
    timed, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False  # by shapes (A2)
    try:
        if precision == "tf32":  # in the older words, which set the newer: who asks in either may
            torch._C._set_cublas_allow_tf32(True)  # noqa: SLF001 (see _OLDER)
            torch._C._set_cudnn_allow_tf32(True)  # noqa: SLF001 (the same)
        with torch.autocast(kind, torch.bfloat16, enabled=precision == "bf16"):
            yield
    finally:
        torch.backends.cudnn.benchmark = timed
        restore()


def _flushes() -> bool:
    """Whether this thread takes numbers below the normal ones for zero, of which torch has no word.

    >>> _flushes()
    False
    """
    return math.ulp(0.0) * _ONE == 0


def _restoration() -> Callable[[], None]:
    """What puts the process's own precision back, in the words in which it was asked for."""
    older: list[tuple[Callable[[Any], object], Any]] = []
    for get, put in _OLDER:
        with suppress(RuntimeError):  # somebody has set these operation by operation
            older.append((put, get()))
    return partial(_put_back, older, {place: _precision(place) for place in _PRECISIONS})


def _put_back(
    older: list[tuple[Callable[[Any], object], Any]], before: dict[tuple[str, str], str]
) -> None:
    """Nothing is touched where nothing has changed: another thread may be in a sum."""
    if before and all(_precision(place) == precision for place, precision in before.items()):
        return
    for put, value in older:
        put(value)
    for place, precision in before.items():
        if _precision(place) != precision:
            _set_precision(place, "none")  # and so what its like say
        if _precision(place) != precision:
            _set_precision(place, precision)


@contextmanager
def borrowed() -> Iterator[torch.Generator]:
    """The generator of torch's CPU, which afterwards is where it was and meanwhile nobody else's.

    Two threads that ask torch for its state at once can deadlock, and weights
    drawn by two at once would follow from neither seed.
    """
    with _GENERATOR, made_on(_CPU):
        before = torch.default_generator.get_state()
        try:
            yield torch.default_generator
        finally:
            torch.default_generator.set_state(before)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random layers follow from `seed` inside; generators are put back afterwards.

    Torch's, Python's and NumPy's: what a row is drawn follows from the seed, the row and the shape,
    not from other rows. Models may draw from any of them (docs/privacy.md P19). Torch's modes are
    put back too: a model that changes one for a record would compute later rows in another way.
    """
    cuda = device.type == "cuda"
    forked = torch.random.fork_rng([device] if cuda else [])
    with borrowed() as generator, forked, _others(seed), made_on(device):
        generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):  # or that of another GPU would be seeded
                torch.cuda.manual_seed(seed)
        with modes_kept():
            yield


@contextmanager
def modes_kept() -> Iterator[None]:
    """How torch computes, in this thread and in the process, is afterwards what it was (P14)."""
    before = [(get, put, get()) for get, put in _MODES]
    products = _restoration()
    try:
        yield
    finally:
        products()
        for get, put, value in before:
            if get() != value:
                put(value)


def _deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _enter_inference(enabled: bool) -> None:
    """Begin a mode over the one that a model has left on; it ends with what is held, so never."""
    _NEVER_ENDED.append(torch._C._InferenceMode(enabled))  # noqa: SLF001 (see above)


def _default_device() -> Any:
    """What stands for it, if it was ever chosen; torch's own question makes a tensor."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # noqa: SLF001 (see above)


def _depth() -> tuple[int, int]:
    """How many modes stand over every call of torch: over its functions, and over operations."""
    return (
        torch._C._len_torch_function_stack(),  # noqa: SLF001 (torch has no other word)
        torch._C._len_torch_dispatch_stack(),  # noqa: SLF001 (the same)
    )


def _leave_modes(depth: tuple[int, int]) -> None:
    """Take off those that a model has put there and not taken off."""
    while _depth()[0] > depth[0]:
        torch._C._pop_torch_function_stack()  # noqa: SLF001 (the same)
    while _depth()[1] > depth[1]:
        torch._C._pop_torch_dispatch_stack()  # noqa: SLF001 (the same)


def _named(get: str, put: str, *names: str) -> Iterator[tuple[Callable[[], Any], Any]]:
    """What torch's own attributes read and set, by the functions behind them, without locks."""
    known = vars(torch._C)  # noqa: SLF001 (see above)
    for one in names:
        if {get.format(one), put.format(one)} <= known.keys():  # torch of before has not all
            yield known[get.format(one)], known[put.format(one)]


# Each is read, and set where it has changed. Modes over all calls come first, or they would see the
# others, and the default device, which is such a mode, before them; what ends inference says of
# gradients too. To set deterministic algorithms loads torch's compiler, 85 MiB: not where nobody
# has changed anything.
_NEVER_ENDED: list[object] = []
_MODES: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (_default_device, lambda one: torch.set_default_device(one.device if one else None)),
    (_depth, _leave_modes),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_inference_mode_enabled, _enter_inference),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (torch.get_num_threads, torch.set_num_threads),
    (_flushes, torch.set_flush_denormal),
    *(
        mode
        for kind in ("cpu", "cuda")
        for mode in (
            (partial(torch.is_autocast_enabled, kind), partial(torch.set_autocast_enabled, kind)),
            (partial(torch.get_autocast_dtype, kind), partial(torch.set_autocast_dtype, kind)),
        )
    ),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (_deterministic, lambda one: torch.use_deterministic_algorithms(one[0], warn_only=one[1])),
    *_named("_get_{}", "_set_{}", *(f"cudnn_{one}" for one in ("enabled", "benchmark"))),
    *_named("_get_{}_deterministic", "_set_{}_deterministic", "cudnn", "mkldnn"),
    *_named("_get_{}_enabled", "_set_{}_enabled", "mkldnn", "nnpack"),
    *_named("_get_{}_preferred_backend", "_set_{}_preferred_backend", "blas", "linalg"),
    *_named("_get_{}_sdp_enabled", "_set_sdp_use_{}", "flash", "mem_efficient", "math", "cudnn"),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (np.geterr, lambda errors: np.seterr(**errors)),
)


@contextmanager
def _others(seed: int) -> Iterator[None]:
    """The same of Python's generator and of NumPy's old one, which belong to the process."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (a model may use it)
    random.seed(seed)
    np.random.seed([seed & _WORD, seed >> 32 & _WORD])  # noqa: NPY002 (the same)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002 (the same)


@contextmanager
def threads_for(parameters: int) -> Iterator[None]:
    """torch's own number of threads inside, or one for a model with few parameters.

    Args:
        parameters: how many trainable parameters the model has; below 100,000 they are few.

    Returns:
        A context manager, which puts torch's number back.

    >>> with threads_for(27):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if parameters < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Libraries ask this before they look at a value to choose a shorter way, as transformers does where
# a mask may hide nothing. It is asked for one thread, whatever other threads do meanwhile.
_TRACED, _is_tracing = threading.local(), torch.jit.is_tracing


def _is_traced() -> bool:
    """In torch's place, also in modules that are scripted, which cannot take what comes last."""
    if torch.jit.is_scripting():
        return False
    return getattr(_TRACED, "here", False) or _is_tracing()


vars(torch.jit)["is_tracing"] = _is_traced


@contextmanager
def as_traced() -> Iterator[None]:
    """Have a model go the way that does not depend on values, where it has one: as when traced."""
    before, _TRACED.here = getattr(_TRACED, "here", False), True
    try:
        yield
    finally:
        _TRACED.here = before


class Traced(nn.Module):
    """A model that goes that way once vmap has refused what it does otherwise.

    Not before: what is traced may do without torch's `functional_call`, or sizes that are numbers.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.is_told = model, False

    def forward(self, *inputs: Any) -> Any:
        """As the model's."""
        with as_traced() if self.is_told else nullcontext():
            return self.model(*inputs)

    def turns(self, error: RuntimeError) -> bool:
        """Whether it goes another way after this error: vmap refuses whatever the values are."""
        turned = not self.is_told and "vmap: " in str(error)
        self.is_told |= turned
        return turned


def is_on(model: nn.Module, device: torch.device) -> bool:
    """Whether all of the model is there."""
    return all(one.device == device for one in (*model.parameters(), *model.buffers()))
