"""The trainable parameters of a model as one flat vector: which, in which order, where each lies.

The order is that of `model.parameters()`, frozen parameters left out and tied ones counted once.
Everything that crosses the border of this package (sums, noise, masks) is such a vector. This file
knows nothing of records, losses or clipping.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hubbub.core.errors import DataError, ModelError

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

    def empty(self) -> torch.Tensor:
        """A fresh vector of the model's dtype, where the model is, with nothing in it yet."""
        return torch.empty(self.size, dtype=self.dtype, device=self.device)


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
            f"{'all of them frozen' if next(model.parameters(), None) is not None else 'none'}; "
            "call requires_grad_(True) on those that are to learn"
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
