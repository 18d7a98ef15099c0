"""What torch keeps for the whole process, set for a while and put back: speed, and no guarantee.

A clipping factor is exact to one part in a million only if a float32 product is a float32 product
(docs/privacy.md P14). Torch can be asked to round the factors of a matrix product to 10 or 7 bits;
`exact_products` and `plain_attention` take such short cuts back. This file knows no records.
"""

from __future__ import annotations

import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hubbub.errors import UserError

_NAME = re.compile(r"cpu|cuda(?::([0-9]{1,3}))?")
# Below this the threads of one operation wait for each other longer than they work.
_SMALL = 100_000
_WORD = 0xFFFFFFFF
_GENERATOR = threading.RLock()


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


def _first_cuda() -> torch.device:
    """The GPU that torch takes when none is named, by its number, as its tensors name it."""
    return torch.device("cuda", torch.cuda.current_device())


class _Shared:
    """A setting of the whole process: made by the first thread inside, put back by the last.

    Args:
        change: makes it, and gives what puts it back.
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


def _exactly() -> Callable[[], object]:
    """Full float32 precision in matrix products, whatever the process has asked for."""
    restore = _restoration()
    torch.set_float32_matmul_precision("highest")
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


exact_products, plain_attention = _Shared(_exactly), _Shared(_plainly)


@contextmanager
def as_stored(kind: str) -> Iterator[None]:
    """What is clipped and added are the numbers that are stored (docs/privacy.md P14).

    No factor of a product is rounded on its way (`exact_products`), and none is made shorter: where
    the caller has switched autocast on, it is off inside, on devices of this kind and this thread.
    """
    before = torch.is_autocast_enabled(kind)
    torch.set_autocast_enabled(kind, False)
    try:
        with exact_products():
            yield
    finally:
        torch.set_autocast_enabled(kind, before)


def _restoration() -> Callable[[], None]:
    """What puts the process's own choice back, in the words in which it was made."""
    try:
        return partial(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    except RuntimeError:  # it was made backend by backend, and torch wants to be asked so
        backends: Any = torch.backends
        chosen = [
            (one, one.fp32_precision) for one in (backends.cuda.matmul, backends.mkldnn.matmul)
        ]
        return partial(_choose, chosen)


def _choose(chosen: list[tuple[Any, str]]) -> None:
    for backend, precision in chosen:
        backend.fp32_precision = precision


@contextmanager
def borrowed() -> Iterator[torch.Generator]:
    """The generator of torch's CPU, which afterwards is where it was and meanwhile nobody else's.

    Two threads that ask torch for its state at once can deadlock, and weights
    drawn by two at once would follow from neither seed.
    """
    with _GENERATOR:
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
    with borrowed() as generator, torch.random.fork_rng([device] if cuda else []), _others(seed):
        generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        with _modes_kept(device.type):
            yield


@contextmanager
def _modes_kept(kind: str) -> Iterator[None]:
    """How torch computes, of this thread and of the process, is afterwards what it was (P14)."""
    dtype, grad, autocast = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled(kind),
    )
    deterministic, products = _deterministic(), _restoration()
    try:
        yield
    finally:
        products()
        # Whatever sets this loads torch's compiler, 85 MiB: not where nobody has changed anything.
        if deterministic != _deterministic() or "torch._inductor.config" in sys.modules:
            torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
        torch.set_autocast_enabled(kind, autocast)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)


def _deterministic() -> tuple[bool, bool]:
    """Whether torch is asked for deterministic algorithms, and whether it only warns."""
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
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


def is_on(model: nn.Module, device: torch.device) -> bool:
    """Whether all of the model is there."""
    return all(tensor.device == device for tensor in model.state_dict().values())
