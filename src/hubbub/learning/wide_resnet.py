"""Wide residual networks that see one record at a time (Zagoruyko and Komodakis 2016).

With group normalisation and standardised kernels in place of statistics of a batch, as De et al.
2022 train them with differential privacy.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from hubbub.core.errors import StudyError

_GROUPS = 16
_CHANNELS = 16  # after the first layer; of the three stages so many times the width, 2, 4
_LEAST = 1e-4  # of a kernel's variance times its size
_SHORTEST = 8  # pixels, which are halved twice


class StandardisedConvolution(nn.Conv2d):
    """A convolution by kernels of mean 0 and of one length, times a gain for each."""

    def __init__(self, low: int, high: int, kernel: int, stride: int = 1) -> None:
        super().__init__(low, high, kernel, stride, kernel // 2)
        self.gain = nn.Parameter(torch.ones(high, 1, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Of (n, channels, height, width)."""
        centred = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        squares = centred.square().sum((1, 2, 3), keepdim=True)
        kernels = self.gain * centred * squares.clamp(min=_LEAST).rsqrt()
        return functional.conv2d(images, kernels, self.bias, self.stride, self.padding)


class ResidualBlock(nn.Module):
    """Two convolutions of what is normalised, beside a short cut."""

    def __init__(self, low: int, high: int, stride: int) -> None:
        super().__init__()
        self.before, self.between = nn.GroupNorm(_GROUPS, low), nn.GroupNorm(_GROUPS, high)
        self.first = StandardisedConvolution(low, high, 3, stride)
        self.second = StandardisedConvolution(high, high, 3)
        self.short_cut: nn.Module | None = None
        if stride != 1 or low != high:
            self.short_cut = StandardisedConvolution(low, high, 1, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Of (n, channels, height, width)."""
        rectified = torch.relu(self.before(images))
        beside = images if self.short_cut is None else self.short_cut(rectified)
        changed: torch.Tensor = self.second(torch.relu(self.between(self.first(rectified))))
        return beside + changed


def wide_resnet(
    inputs: tuple[int, ...], outputs: int, *, depth: int, width: int
) -> list[nn.Module]:
    """The layers, from images (n, channels, height, width) to (n, outputs).

    Args:
        inputs: (channels, height, width), sides of at least 8 pixels.
        outputs: number of logits.
        depth: of convolutions and the last layer, 4 more than a multiple of 6.
        width: how many times the channels of a plain residual network.

    Raises:
        StudyError: the records are no such images, or there is no such depth.
    """
    if len(inputs) != 3 or min(inputs[1:]) < _SHORTEST:
        raise StudyError(
            f"expected inputs = (channels, height, width) of at least {_SHORTEST} pixels for "
            f'kind = "wide-resnet", found {inputs}; use kind = "mlp" for rows of numbers'
        )
    if depth < 10 or depth % 6 != 4:
        raise StudyError(
            f"expected a depth of 10, 16, 22, 28, … for a wide residual network, found {depth}"
        )
    layers: list[nn.Module] = [StandardisedConvolution(inputs[0], _CHANNELS, 3)]
    low = _CHANNELS
    for stage in range(3):
        high = _CHANNELS * width * 2**stage
        for block in range((depth - 4) // 6):
            layers.append(ResidualBlock(low, high, 2 if stage and not block else 1))
            low = high
    end = (nn.GroupNorm(_GROUPS, low), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return [*layers, *end, nn.Linear(low, outputs)]
