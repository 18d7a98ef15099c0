"""A module for tests."""

from __future__ import annotations

from torch import nn


class Net(nn.Module):
    """A module around one function of itself."""

    def __init__(self, forward, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)
        self._call = forward

    def forward(self, *inputs):
        return self._call(self, *inputs)
