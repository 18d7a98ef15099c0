"""A training of the experiment `correlated_noise`: the law of a rehearsal, in a third of its time.

Batches, clipped sums, noise and steps are those of `hubbub.rehearse`, drawn by torch from a seed,
worked out in float32 and not rounded onto a grid; some runs of the experiment are rehearsals, to
hold this against. Nothing of it is private. This file knows tensors; it must not know studies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import cos, isinf, pi, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.correlated_settings import DELTA, RATE, SILOS, STEPS, Setting
from hubbub.core.planning.noise_correlation import best_column, least_noise
from hubbub.core.protocol.primitives.correlated_noise import UNIT

RECORDS = 50_000
FEATURES, CLASSES = 1600, 10

Tensor = torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Features and classes to learn from, and to be scored on."""

    inputs: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    scored_inputs: Tensor = field(repr=False)
    scored_targets: Tensor = field(repr=False)

    @classmethod
    def of(cls, *arrays: NDArray[Any]) -> Parts:
        """From arrays in the order of the fields."""
        return cls(
            **dict(zip(cls.__dataclass_fields__, map(torch.from_numpy, arrays), strict=True))
        )


class Head:
    """The fully connected layers: all weights in one vector, and each layer's view of it."""

    def __init__(self, hidden: str) -> None:
        widths = map(int, hidden.split(",") if hidden else ())
        self._pairs = list(pairwise((FEATURES, *widths, CLASSES)))
        layers = [torch.nn.Linear(*pair, bias=False).weight.detach() for pair in self._pairs]
        self.flat = torch.cat([layer.reshape(-1) for layer in layers])
        self.layers = self.views(self.flat)

    def views(self, flat: Tensor) -> list[Tensor]:
        """Matrices of a vector's numbers."""
        parts = flat.split([before * after for before, after in self._pairs])
        return [
            part.view(after, before)
            for part, (before, after) in zip(parts, self._pairs, strict=True)
        ]

    def outputs(self, rows: Tensor) -> list[Tensor]:
        """The rows, and what each layer makes of them; the last are logits."""
        found = [rows]
        for layer in self.layers[:-1]:
            found.append((found[-1] @ layer.T).relu_())
        return [*found, found[-1] @ self.layers[-1].T]

    def clipped_sum(self, rows: Tensor, targets: Tensor, clip: float, into: Tensor) -> None:
        """The sum of the records' clipped gradients; a layer's is an outer product."""
        *inputs, logits = self.outputs(rows)
        pull = torch.softmax(logits, 1)
        pull[torch.arange(len(rows)), targets] -= 1
        pulls = [pull]
        for layer, output in zip(self.layers[:0:-1], inputs[:0:-1], strict=True):
            pulls.insert(0, (pulls[0] @ layer) * (output > 0))
        both = list(zip(inputs, pulls, strict=True))
        squares = torch.stack([a.square().sum(1) * p.square().sum(1) for a, p in both]).sum(0)
        factors = (clip / squares.sqrt()).clamp(max=1)
        for (a, p), view in zip(both, self.views(into), strict=True):
            torch.mm((p * factors[:, None]).T, a, out=view)

    def accuracy(self, rows: Tensor, targets: Tensor) -> float:
        """The share of rows of which the class is found."""
        return float((self.outputs(rows)[-1].argmax(1) == targets).float().mean())


class Noise:
    """Rows of noise of one deviation, as protocol/primitives/correlated_noise.py makes them."""

    def __init__(self, setting: Setting, size: int, sigma: float) -> None:
        column = best_column(setting.bands, setting.kept, setting.schedule, STEPS)
        self._column = torch.tensor(np.array(column) / UNIT, dtype=torch.float32)
        self._window, self._sigma = torch.zeros(max(setting.bands - 1, 1), size), sigma

    def row(self, step: int) -> Tensor:
        """The noise of a step from 1."""
        made = torch.randn(self._window.shape[1]).mul_(self._sigma)
        if (bands := len(self._column)) > 1:
            kept = len(self._window)
            back = torch.arange(1, min(bands, step))
            factors = torch.zeros(kept)
            factors[(step - 1 - back) % kept] = self._column[back]
            made -= factors @ self._window
            made /= self._column[0]
            self._window[(step - 1) % kept] = made
        return made


class Mover:
    """SGD with momentum, or Adam, in float32."""

    def __init__(self, setting: Setting, size: int) -> None:
        self._setting = setting
        self._first, self._second = torch.zeros(size), torch.zeros(size)

    def move(self, parameters: Tensor, gradient: Tensor, step: int) -> None:
        """One step, in place."""
        setting, done = self._setting, (step - 1) / STEPS
        shapes = {"linear": 1 - done, "cosine": 0.5 * (1 + cos(pi * done))}
        rate = setting.lr * shapes.get(setting.schedule, 1.0)
        if setting.optimizer == "sgd":
            self._first.mul_(setting.momentum).add_(gradient)
            parameters.sub_(self._first, alpha=rate)
            return
        self._first.mul_(0.9).add_(gradient, alpha=0.1)
        self._second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = (self._second / (1 - 0.999**step)).sqrt_().add_(1e-8)
        parameters.addcdiv_(self._first / (1 - 0.9**step), size, value=-rate)


def multiplier(setting: Setting, epsilon: float) -> float:
    """z: the noise over C that the stated adversary cannot subtract."""
    if isinf(epsilon):
        return 0.0
    return least_noise(setting.bands, STEPS, RATE, epsilon, DELTA, "add-remove")


def total(setting: Setting, epsilon: float, colluders: int) -> float:
    """The noise of all shares over C (P3)."""
    return multiplier(setting, epsilon) * sqrt(SILOS / (SILOS - colluders - 1))


def trained(
    setting: Setting,
    parts: Parts,
    *,
    noise: float,
    seed: int,
    shown: Callable[[float], None] = lambda _: None,
) -> float:
    """Train once, with batches as large as those of all records; the accuracy on the other part."""
    torch.manual_seed(seed)
    head, size = Head(setting.hidden), len(parts.targets)
    gradient, mover = torch.empty_like(head.flat), Mover(setting, head.flat.numel())
    groups = torch.randint(0, setting.bands, (size,))
    rows = Noise(setting, head.flat.numel(), noise * setting.clip)
    chance = RATE * RECORDS / size * setting.bands
    for step in range(1, STEPS + 1):
        chosen = torch.rand(size) < chance
        if setting.bands > 1:
            chosen &= groups == step % setting.bands
        at = chosen.nonzero()[:, 0]
        head.clipped_sum(parts.inputs[at], parts.targets[at], setting.clip, gradient)
        gradient.add_(rows.row(step)).div_(RATE * RECORDS)
        mover.move(head.flat, gradient, step)
        shown(step / STEPS)
    return head.accuracy(parts.scored_inputs, parts.scored_targets)
