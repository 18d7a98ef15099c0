"""The trainable parameters of a model as one flat vector: which, in which order, where each lies.

The order is that of `model.parameters()`, frozen parameters left out and tied ones counted once.
Everything that crosses the border of this package (sums, noise, masks) is such a vector. This file
knows nothing of records, losses or clipping.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import nn

from hubbub.core.disk import json_value, npz_arrays, open_ordinary, read_bytes, why_of, write_bytes
from hubbub.core.errors import DataError, IntegrityError, ModelError

_DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True, kw_only=True)
class ParameterLayout:
    """Where each trainable parameter lies in the flat vector of length `size`."""

    parameters: dict[str, nn.Parameter]
    slices: dict[str, slice]
    names: dict[int, str]  # by id() of the Parameter object
    size: int
    dtype: torch.dtype
    device: torch.device

    def empty(self, size: int) -> torch.Tensor:
        """A fresh vector of the model's dtype, where the model is, with nothing in it yet."""
        return torch.empty(size, dtype=self.dtype, device=self.device)


def layout_of(model: nn.Module) -> ParameterLayout:
    """Lay out the trainable parameters of `model`, or refuse what cannot be laid out."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name, parameter in parameters.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ModelError(
                f"expected initialised parameters, found the lazy {name}; run the model once "
                "on an example before training it"
            )
    if not parameters:
        raise ModelError(
            "expected parameters to train, found "
            f"{('all of them frozen' if next(model.parameters(), None) is not None else 'none')}; "
            "call requires_grad_(True) on those that should be trained"
        )
    kinds = {(p.dtype, p.device) for p in parameters.values()}
    if len(kinds) != 1 or next(iter(kinds))[0] not in _DTYPES:
        kinds_seen = sorted(f"{dtype} on {device}" for dtype, device in kinds)
        raise ModelError(
            "expected trainable parameters that are all float32 or all float64 on one device, "
            f"found {kinds_seen}; convert the model with model.float()"
        )
    dtype, device = next(iter(kinds))
    slices, start = {}, 0
    for name, parameter in parameters.items():
        slices[name] = slice(start, start + parameter.numel())
        start += parameter.numel()
    return ParameterLayout(
        parameters=parameters,
        slices=slices,
        names={id(p): name for name, p in parameters.items()},
        size=start,
        dtype=dtype,
        device=device,
    )


def parameters_vector(model: nn.Module) -> NDArray[np.float32]:
    """Copy the trainable parameters of `model` into one vector.

    Args:
        model: all of its trainable parameters float32 or all float64, on one device.

    Returns:
        (d,) float32, in the order of `model.parameters()`; frozen parameters are left out.

    Raises:
        ModelError: the parameters cannot be laid out in one vector.

    >>> parameters_vector(nn.Linear(5, 3)).shape
    (18,)
    """
    layout = layout_of(model)
    pieces = [p.detach().reshape(-1).cpu().numpy() for p in layout.parameters.values()]
    return np.concatenate(pieces, dtype=np.float32, casting="same_kind")


def load_parameters(model: nn.Module, vector: NDArray[np.float32]) -> None:
    """Write a vector into the trainable parameters of `model`, in place.

    Args:
        model: with d trainable parameters in all.
        vector: (d,) float32, in the order of `model.parameters()`.

    Raises:
        DataError: the vector is not of length d.
        ModelError: the parameters cannot be laid out in one vector.

    >>> model = nn.Linear(2, 1)
    >>> load_parameters(model, np.array([1.0, 2.0, 3.0], dtype=np.float32))
    >>> model.bias.item()
    3.0
    """
    layout = layout_of(model)
    if vector.shape != (layout.size,):
        raise DataError(
            f"expected a vector of shape ({layout.size},) for this model, found {vector.shape}; "
            "build the model that the vector was taken from"
        )
    if layout.device.type == "cpu":
        for name, parameter in layout.parameters.items():
            own = parameter.detach().numpy()
            own[...] = vector[layout.slices[name]].reshape(own.shape)
        return
    source = torch.from_numpy(np.array(vector)).to(layout.device, layout.dtype)
    with torch.no_grad():
        for name, parameter in layout.parameters.items():
            parameter.copy_(source[layout.slices[name]].view_as(parameter))


# Models on disk: safetensors with a small header of strings, and a digest over all of it.
#
# Loading reads numbers and never executes code. The digest finds a damaged file; it is no
# signature: who may vouch for a model is decided elsewhere.

_UNREADABLE = (ValueError, TypeError, LookupError, RuntimeError, AttributeError)
_DIGEST, _ORDER = "sha256", "parameters"
_MOST_BYTES = 2**36  # of public weights
_MOST_HEADER = 2**24  # of a file of tensors: some hundred thousand of them


def save_model(path: Path, model: nn.Module, metadata: Mapping[str, str] | None = None) -> None:
    """Write the parameters and buffers of `model`, all at once or not at all.

    Args:
        path: the file, replaced if it exists.
        model: any module.
        metadata: public strings such as the study id and the model's kind.

    Raises:
        ModelError: the metadata is not a mapping of strings, or uses one of the keys "sha256" and
            "parameters", which says in which order those that are trained make one vector.
        OSError: the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.safetensors"
    ...     save_model(path, nn.Linear(2, 1), {"kind": "logistic"})
    ...     load_model(path, nn.Linear(2, 1))
    {'kind': 'logistic'}
    """
    header = dict(metadata or {})
    texts = all(isinstance(v, str) for v in (*header, *header.values()))
    if {_DIGEST, _ORDER} & set(header) or not texts:
        raise ModelError(
            'expected metadata of strings without the keys "sha256" and "parameters"; rename or '
            "str() it"
        )
    header[_ORDER] = json.dumps([k for k, v in model.named_parameters() if v.requires_grad])
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in model.state_dict().items()}
    header[_DIGEST] = _digest(tensors, header)
    write_bytes(path, *_ordered(save(tensors, metadata=header)))


def _ordered(content: bytes) -> tuple[bytes, memoryview]:
    """The same file, its header in the order of names: equal models are equal bytes."""
    end = 8 + int.from_bytes(content[:8], "little")
    text = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, memoryview(content)[end:]


def load_model(path: Path, model: nn.Module) -> dict[str, str]:
    """Read a file written by `save_model` into `model`, and return its metadata.

    Args:
        path: the file.
        model: of the shapes that the file holds; its parameters and buffers are overwritten.

    Returns:
        What `save_model` was given as metadata.

    Raises:
        IntegrityError: the file is damaged.
        ModelError: the file holds a model of another shape.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.safetensors"
    ...     save_model(path, nn.Linear(2, 1))
    ...     load_model(path, nn.Linear(3, 1))
    Traceback (most recent call last):
        ...
    hubbub.core.errors.ModelError: expected ... to hold the names and shapes of this model, ...
    """
    tensors, header = _tensors_and_header(path)
    if header.pop(_DIGEST, None) != _digest(tensors, header):
        raise IntegrityError(f"expected the digest of {path} to match its contents; copy it again")
    _refuse_other_shapes(path, model, {k: v.shape for k, v in tensors.items()})
    model.load_state_dict(tensors)
    header.pop(_ORDER, None)
    return header


def refuse_other_model(path: Path, made: Callable[[], nn.Module]) -> None:
    """Refuse a file of another model, before memory is taken for the one that `made` gives."""
    with _opened(path) as file:
        shapes = {k: torch.Size(file.get_slice(k).get_shape()) for k in file.keys()}  # noqa: SIM118 (no mapping)
    try:
        with torch.device("meta"):
            model = made()
    except (RuntimeError, TypeError, OverflowError):  # sizes past all measure
        model = nn.Module()
    _refuse_other_shapes(path, model, shapes)


def _refuse_other_shapes(path: Path, model: nn.Module, shapes: Mapping[str, torch.Size]) -> None:
    if {k: v.shape for k, v in model.state_dict().items()} != shapes:
        raise ModelError(
            f"expected {path} to hold the names and shapes of this model, found others; build the "
            "model that its metadata names"
        )


def stored_shape(path: Path) -> tuple[int, ...]:
    """The shape of one record's features, as the metadata of a file says it under "inputs"."""
    with suppress(ValueError):
        shape = json_value(stored_header(path).get("inputs", ""))
        if isinstance(shape, list) and shape and all(type(one) is int for one in shape):
            return tuple(shape)
    raise IntegrityError(
        f"expected {path} to state the shape of a record's features, found none; copy it again"
    )


def stored_header(path: Path) -> dict[str, str]:
    """What `save_model` was given as metadata of a file; IntegrityError if it is damaged."""
    with _opened(path) as file:
        header = dict(file.metadata() or {})
    return {name: text for name, text in header.items() if name not in (_DIGEST, _ORDER)}


def stored_parameters(path: Path, size: int) -> NDArray[np.float32] | None:
    """What a file's trained parameters are as one vector, in the order that the file states.

    No model is built, and no more numbers are read than there are to be.

    Args:
        path: a file that `save_model` wrote, or anybody.
        size: how many numbers there are to be.

    Returns:
        (size,) float32; None if the file states no order.

    Raises:
        IntegrityError: it is damaged, or states another number of them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.safetensors"
    ...     save_model(path, nn.Linear(2, 1))
    ...     stored_parameters(path, 3).shape
    (3,)
    """
    tensors, header = _tensors_and_header(path)
    if _ORDER not in header:
        return None
    try:
        names = json_value(header[_ORDER])
        parts = [tensors[name].reshape(-1) for name in names]
        if len(set(names)) < len(names) or sum(map(torch.numel, parts)) != size:
            raise ValueError("other parameters")
        return torch.cat(parts).to(torch.float32).numpy()
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise IntegrityError(
            f"expected {path} to hold {size} parameters in an order that it states, found "
            f"something else ({type(error).__name__}); copy it anew"
        ) from None


def read_pinned(path: Path, sha256: str) -> dict[str, torch.Tensor]:
    """The tensors of a `.npz`, `.safetensors` or `.pth` file, if it has that SHA-256."""
    try:
        content = read_bytes(path, most=_MOST_BYTES)
    except OSError as error:
        raise IntegrityError(
            f"expected the public weights {path}, found that they cannot be read: "
            f"{why_of(error)}; put the file there"
        ) from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise IntegrityError(
            f"expected {path} to have the SHA-256 {sha256}, found {digest}; get the file that the "
            "study names"
        )
    try:
        if path.suffix == ".pth":
            return _unpickled(content)
        if path.suffix != ".safetensors":
            return {name: torch.from_numpy(array) for name, array in npz_arrays(content).items()}
        _check_header(content[:8])
        return load(content)
    except (SafetensorError, UnpicklingError, EOFError, *_UNREADABLE) as error:
        raise IntegrityError(
            f"expected tensors in {path}, found that {error}; name another file in the study"
        ) from error


def _unpickled(content: bytes) -> dict[str, torch.Tensor]:
    """The tensors that torch saved by their names, by its reader that runs no code of the file."""
    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):  # before 2.6 it may
        raise ValueError("torch before 2.6 cannot read it safely")
    tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    pairs = tensors.items() if isinstance(tensors, dict) else [(None, None)]
    if not all(isinstance(name, str) and isinstance(one, torch.Tensor) for name, one in pairs):
        raise ValueError("it holds something else")
    return dict(tensors)


def _check_header(size: bytes) -> None:
    """The first bytes of a file say how long its header is; ValueError if it is too long."""
    if int.from_bytes(size, "little") > _MOST_HEADER:
        raise ValueError(f"its header has more than {_MOST_HEADER} bytes")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of tensors, which is an ordinary one with a header of some measure."""
    try:
        with open_ordinary(path) as start:
            _check_header(start.read(8))
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, ValueError, RuntimeError, OSError) as error:
        raise IntegrityError(
            f"expected a complete safetensors file at {path}, found that {error}; copy it again"
        ) from error


def _tensors_and_header(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with _opened(path) as file:
        return {k: file.get_tensor(k) for k in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118 (no mapping)


def _digest(tensors: Mapping[str, torch.Tensor], header: Mapping[str, str]) -> str:
    """SHA-256 over names, types, shapes, values and metadata."""
    digest = hashlib.sha256(json.dumps(sorted(header.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
