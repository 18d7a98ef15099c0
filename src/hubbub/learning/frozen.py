"""The frozen layers of a study: public convolutions, from a file that it names with its hash.

Everybody's features are the same because everybody's file is. Images go in, rows of features come
out, once per data set (features.py); the model that is trained never sees the images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hubbub.errors import DataError, ModelError
from hubbub.learning.frozen_features import frozen_features
from hubbub.learning.model_file import read_pinned
from hubbub.study import Frozen, Records, data_folder

_CONVOLUTION = re.compile(r"conv([1-9][0-9]?)\.(weight|bias)")


def through_frozen(
    frozen: Frozen | None,
    records: Records,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
) -> Records:
    """The records as the model sees them: as they are, or as features of the study's frozen layers.

    Args:
        frozen: of the study's model.
        records: images (n, channels, height, width) where there are frozen layers.
        folder: what the path of the weights is relative to; the current directory if None.
        cache: folder of the features; `features` beside downloaded data if None.

    Returns:
        The same n records, their inputs (n, features) in float32 where there are frozen layers.

    Raises:
        IntegrityError: the file of the weights is missing or another one.
        ModelError: the file does not hold convolutions.
        DataError: the layers cannot take the records.

    >>> records = Records(inputs=np.ones((4, 2), np.float32), targets=np.zeros(4, np.float32))
    >>> through_frozen(None, records) is records
    True
    """
    if frozen is None:
        return records
    layers = frozen_layers(frozen, folder or Path())
    images = torch.from_numpy(records.inputs)
    try:
        features = frozen_features(layers, images, cache or data_folder() / "features")
    except RuntimeError:
        shape = tuple(records.inputs.shape[1:])
        raise DataError(
            "expected images of as many channels as model.frozen takes, and large enough, found "
            f"records of shape {shape}; mend the data or name other weights"
        ) from None
    return Records(inputs=features.astype(np.float32), targets=records.targets)


def frozen_layers(frozen: Frozen, folder: Path) -> nn.Sequential:
    """Convolutions conv1, conv2, … of a file, each with ReLU and max-pooling 3/2; then a row."""
    tensors = read_pinned(folder / frozen.weights, frozen.sha256)
    names = [f"conv{number}" for number in range(1, 1 + _convolutions(tensors, frozen.weights))]
    layers: list[nn.Module] = [Normalise(frozen.mean, frozen.std)] if frozen.mean else []
    for name in names:
        layers += [_convolution(tensors, name), nn.ReLU(), nn.MaxPool2d(3, 2)]
    return nn.Sequential(*layers, nn.Flatten()).requires_grad_(False)


def _convolutions(tensors: Mapping[str, torch.Tensor], name: str) -> int:
    """How many convolutions a file holds, and nothing besides."""
    matches = [_CONVOLUTION.fullmatch(key) for key in tensors]
    found = {int(match[1]) for match in matches if match}
    whole = all(matches) and found == set(range(1, 1 + len(found))) and found
    if not whole or any(tensors.get(f"conv{k}.weight", torch.zeros(0)).dim() != 4 for k in found):
        raise ModelError(
            f"expected conv1.weight, conv1.bias, conv2.weight, … in {name}, each weight of shape "
            f"(out, in, height, width), found {sorted(tensors)[:8]}; save the layers by these names"
        )
    return len(found)


def _convolution(tensors: Mapping[str, torch.Tensor], name: str) -> nn.Conv2d:
    weight, bias = tensors[f"{name}.weight"].float(), tensors.get(f"{name}.bias")
    rows, columns, height, width = weight.shape
    layer = nn.Conv2d(columns, rows, (height, width), bias=bias is not None)
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias.float())
    return layer


class Normalise(nn.Module):
    """Subtracts public means from the channels, and divides by public standard deviations."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor(mean)[:, None, None])
        self.std = nn.Buffer(torch.tensor(std)[:, None, None])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, channels, height, width) to the same."""
        if images.dim() != 4 or images.shape[1] != len(self.mean):
            raise RuntimeError("expected one mean per channel")
        return (images - self.mean) / self.std
