"""Models that a study can name, made from public numbers only: a kind, shapes and a seed.

Two parties that build the same model from the same seed hold the same weights, so the first model
need not be sent. Losses here give one value per record. This file knows no training.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from math import sqrt
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hubbub.core.errors import ModelError, StudyError
from hubbub.core.study.silo_records import attempted, named_object
from hubbub.core.study.source import IN_MEMORY, is_own
from hubbub.learning.batches import Loss
from hubbub.learning.study.model import LINEAR_PROBE, WIDE_RESNET
from hubbub.learning.torch_settings import borrowed

# Least squares on normalised features, learned from one noisy sum: `kind = "linear-probe"`.
#
# Theory of operation. A record's features are brought to length 1 by a rule that is public (its
# own mean taken off, then divided by its length), and a constant joins them: z, of length 1. What
# least squares needs of all records are the sums of z z' and of z times the target. In training
# the model's parameters *are* these sums: its loss is linear in them, so that a record's gradient
# is minus its part in both, a product of two short vectors and of length 1 exactly, whatever the
# parameters. One step of plain gradient descent with all records is then the whole training, and
# the noise is that of a single release. In use, the model solves the equations.
#
# How far the noise goes is read off what was released: the sums of z z' are symmetric but for their
# noise. Eigenvalues are not believed below a share of what noise alone would reach (the largest
# eigenvalue of such a matrix). All of it is post-processing.

FLOOR = 0.2  # in largest eigenvalues of a matrix of noise alone
_CONSTANT = 0.5  # what the constant is of z
_SECOND = 0.6  # the length of a record's part in z z'; that in z times target is the rest
_FIRST = sqrt(1 - _SECOND**2)
_LEAST = 1e-6  # of the mean eigenvalue, where there is no noise
_SHARP = 50.0


class LinearProbe(nn.Module):
    """In training what is summed of a record, (n, 1 + rows); in use logits, (n,) or (n, rows)."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.second = nn.Linear(features + 1, features + 1, bias=False)
        self.first = nn.Linear(features + 1, outputs, bias=False)
        for weight in self.parameters():
            nn.init.zeros_(weight)
        self._known: tuple[torch.Tensor, ...] = ()  # both weights, and what follows from them

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Of rows of features, or of what is flattened to such."""
        rows = normalised(records.flatten(1))
        if self.training:
            square = (self.second(rows) * rows).sum(1, keepdim=True)
            return torch.cat([_SECOND * square, _FIRST * self.first(rows)], 1)
        return _logits(rows @ self._solved().T)

    def settled(self) -> SolvedProbe:
        """The same model in use: its equations are solved once, for programs that solve none."""
        return SolvedProbe(self._solved())

    @torch.no_grad()
    def _solved(self) -> torch.Tensor:
        """The weights of least squares, (outputs, features + 1); kept until the sums change."""
        weights = self.second.weight, self.first.weight
        kinds = {(one.dtype, one.device) for one in (*weights, *self._known)}
        same = bool(self._known) and len(kinds) == 1
        if not same or not all(map(torch.equal, weights, self._known)):
            self._known = *(w.detach().clone() for w in weights), least_squares(*weights)
        return self._known[-1]


class SolvedProbe(nn.Module):
    """A linear probe whose sums are final, by weights (outputs, features + 1): logits."""

    weights: torch.Tensor

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        """Of rows of features, or of what is flattened to such."""
        return _logits(normalised(records.flatten(1)) @ self.weights.T)


def least_squares(second: torch.Tensor, first: torch.Tensor, floor: float = FLOOR) -> torch.Tensor:
    """The weights (outputs, width) from both sums as they were released."""
    kind, width = first.dtype, len(second)
    second, first = second.double() / _SECOND, first.double() / _FIRST
    noise = ((second - second.T).square().sum() / (2 * width * (width - 1))).sqrt()
    even = (second + second.T) / 2
    least = floor * noise * sqrt(2 * width) + _LEAST * even.diagonal().mean().abs() + 1e-30
    values, vectors = torch.linalg.eigh(even)
    weights: torch.Tensor = first @ vectors / values.clamp(min=float(least)) @ vectors.T
    return weights.to(kind)


def normalised(rows: torch.Tensor) -> torch.Tensor:
    """(n, features + 1): each record by itself, with its mean taken off, and of length 1."""
    centred = rows - rows.mean(1, keepdim=True)
    lengths = centred.norm(dim=1, keepdim=True).clamp(min=1e-12)
    constant = torch.full_like(rows[:, :1], _CONSTANT)
    return torch.cat([sqrt(1 - _CONSTANT**2) * centred / lengths, constant], 1)


def moments_loss(
    outputs: torch.Tensor,
    targets: torch.Tensor,
    *,
    outputs_in_use: int,
    usual: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Minus a record's part in the sums times the parameters; in use the `usual` loss of logits."""
    if outputs.ndim == 1 or outputs.shape[1] == outputs_in_use:
        return usual(outputs, targets)
    if outputs_in_use == 1:
        return -outputs[:, 0] - (2 * targets.to(outputs.dtype) - 1) * outputs[:, 1]
    return -outputs[:, 0] - outputs[:, 1:].gather(1, targets[:, None])[:, 0]


def _logits(values: torch.Tensor) -> torch.Tensor:
    """From what least squares gives: -1 to 1 for two classes, else about each class's chance."""
    if values.shape[1] == 1:
        return 2 * values[:, 0].clamp(-0.99, 0.99).atanh()
    return (nn.functional.softplus(_SHARP * values) / _SHARP).log()


_LAYERED = ("logistic", "mlp", "cnn", WIDE_RESNET)
_CHANNELS = 64  # of both convolutions of the paper's network
_FULLY_CONNECTED = (384,) * 3  # the paper's head: with 1600 features and 10 classes, d = 913,152


def build_model(
    kind: str,
    *,
    inputs: tuple[int, ...],
    outputs: int,
    hidden: Sequence[int] = (),
    bias: bool = True,
    seed: bytes,
    intervals: int = 0,
    intercept: float = 0.0,
    depth: int = 16,
    width: int = 4,
) -> nn.Module:
    """Build a model whose first weights follow from `seed` alone.

    Guarantees:
        1. Same arguments, same torch, same weights, bit for bit; torch's own generator, which the
           caller may be using, is left where it was.

    Args:
        kind: "logistic" (weights zero at first), "mlp", "cnn" (the paper's: two convolutions of 64
            channels with ReLU and max-pooling, then fully connected layers), "wide-resnet" (with
            group normalisation and standardised kernels), "linear-probe" (least
            squares on normalised features, from one sum), or "python:module:factory", called as
            factory(inputs=inputs, outputs=outputs), or without these names.
        inputs: shape of one record, (features,) or (channels, height, width).
        outputs: number of logits; 1 gives outputs of shape (n,) for binary targets, more of them
            outputs of shape (n, outputs).
        hidden: widths of the hidden layers; a "cnn" without them has the paper's three of 384.
        bias: whether fully connected layers have biases.
        seed: any bytes, public.
        intervals: of a time to an event. With one output, a built-in model then gives the
            proportional log-odds of all of them, (n, intervals): one number of each record, and an
            intercept for each interval, zero at first.
        intercept: where the bias of a "logistic" begins.
        depth: of a "wide-resnet", 4 more than a multiple of 6.
        width: of a "wide-resnet": how many times the channels of a plain residual network.

    Returns:
        The model, on the CPU, with float32 parameters (a factory's are as it made them).

    Raises:
        StudyError: an unknown kind, or shapes that do not fit it.

    Example:
        >>> model = build_model("mlp", inputs=(4,), outputs=3, hidden=[8], seed=b"study")
        >>> sum(p.numel() for p in model.parameters())
        67
    """
    if outputs < 1 or not inputs or min(inputs) < 1 or any(width < 1 for width in hidden):
        raise StudyError(
            f"expected positive sizes for a model, found inputs = {inputs}, outputs = {outputs}, "
            f"hidden = {list(hidden)}"
        )
    if kind == LINEAR_PROBE:
        return LinearProbe(math.prod(inputs), outputs)
    if kind not in _LAYERED:
        return _of_factory(kind, inputs, outputs, seed)
    with seeded_by(seed):
        if kind == WIDE_RESNET:
            layers = _wide_resnet(inputs, outputs, depth, width)
        elif kind == "cnn":
            layers = _cnn(inputs, outputs, hidden, bias)
        else:
            widths = (math.prod(inputs), *(hidden if kind == "mlp" else ()), outputs)
            layers = [nn.Flatten()] * (len(inputs) > 1) + _connected(widths, bias)
        if kind == "logistic":
            weight, *biases = layers[-1].parameters()
            nn.init.zeros_(weight)
            for own in biases:
                nn.init.constant_(own, intercept)
        if outputs == 1 and intervals:  # one number becomes as many, each with an intercept
            spread = nn.Linear(1, intervals)
            nn.init.ones_(spread.weight.requires_grad_(False))
            nn.init.zeros_(spread.bias)
            layers.append(spread)
        elif outputs == 1:
            layers.append(Squeeze())
    return nn.Sequential(*layers)


@contextmanager
def seeded_by(seed: bytes) -> Iterator[None]:
    """Let torch's CPU generator follow from `seed` inside the block."""
    with borrowed() as generator:
        generator.manual_seed(int.from_bytes(hashlib.sha256(seed).digest()[:8], "big"))
        yield


class Squeeze(nn.Module):
    """Drops the last dimension, of size one: a single logit per record."""

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        """(n, 1) to (n,)."""
        return outputs.squeeze(-1)


def _connected(widths: Sequence[int], bias: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after, bias=bias), nn.ReLU()]
    return layers[:-1]


def _cnn(
    inputs: tuple[int, ...], outputs: int, hidden: Sequence[int], bias: bool
) -> list[nn.Module]:
    """The paper's CIFAR-10 network for images of any size."""
    sides = list(inputs[1:])
    layers: list[nn.Module] = []
    for channels in (inputs[0], _CHANNELS):
        layers += [nn.Conv2d(channels, _CHANNELS, 3), nn.ReLU(), nn.MaxPool2d(3, 2)]
        sides = [(side - 2 - 3) // 2 + 1 for side in sides]  # of 3-wide windows, the last by twos
    if len(inputs) != 3 or min(sides) < 1:
        raise StudyError(
            f'expected inputs = (channels, height, width) of at least 13 pixels for kind = "cnn", '
            f'found {inputs}; use kind = "mlp" for rows of numbers'
        )
    features = _CHANNELS * sides[0] * sides[1]
    widths = (features, *(hidden or _FULLY_CONNECTED), outputs)
    return [*layers, nn.Flatten(), *_connected(widths, bias)]


# Wide residual networks that see one record at a time (Zagoruyko and Komodakis 2016), with group
# normalisation and standardised kernels in place of statistics of a batch, as De et al. 2022 train
# them with differential privacy.

_GROUPS = 16
_FIRST_CHANNELS = 16  # after the first layer; of the three stages so many times the width, 2, 4
_LEAST_SQUARES = 1e-4  # of a kernel's variance times its size
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
        kernels = self.gain * centred * squares.clamp(min=_LEAST_SQUARES).rsqrt()
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


def _wide_resnet(inputs: tuple[int, ...], outputs: int, depth: int, width: int) -> list[nn.Module]:
    """The layers, from images (n, channels, height, width) to (n, outputs)."""
    if len(inputs) != 3 or min(inputs[1:]) < _SHORTEST:
        raise StudyError(
            f"expected inputs = (channels, height, width) of at least {_SHORTEST} pixels for "
            f'kind = "wide-resnet", found {inputs}; use kind = "mlp" for rows of numbers'
        )
    if depth < 10 or depth % 6 != 4:
        raise StudyError(
            f"expected a depth of 10, 16, 22, 28, … for a wide residual network, found {depth}"
        )
    layers: list[nn.Module] = [StandardisedConvolution(inputs[0], _FIRST_CHANNELS, 3)]
    low = _FIRST_CHANNELS
    for stage in range(3):
        high = _FIRST_CHANNELS * width * 2**stage
        for block in range((depth - 4) // 6):
            layers.append(ResidualBlock(low, high, 2 if stage and not block else 1))
            low = high
    end = (nn.GroupNorm(_GROUPS, low), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return [*layers, *end, nn.Linear(low, outputs)]


def _of_factory(kind: str, inputs: tuple[int, ...], outputs: int, seed: bytes) -> nn.Module:
    """What the function that "python:module:factory" names gives, held to being a module."""
    if kind == IN_MEMORY:
        raise StudyError(
            "expected the module that hubbub.fit was handed, since no study names it, found none; "
            "give it to hubbub.load as model, or run the study with hubbub.fit"
        )
    if not is_own(kind):
        known = (*_LAYERED, LINEAR_PROBE, "python:module:factory")
        raise StudyError(f'expected a model kind out of {known}, found "{kind}"')
    with seeded_by(seed):  # its module may draw random numbers when it is first run: not these
        factory = named_object(kind, "model.kind")
    shapes = f" for inputs = {inputs} and outputs = {outputs}"
    with seeded_by(seed):
        return module_from(kind, _called(factory, inputs, outputs), shapes)


def module_from(name: str, made: Callable[[], object], shapes: str = "") -> nn.Module:
    """What a user's factory gives, held to being a module."""
    model, raised = attempted(made, quotes=True)  # it sees public numbers only
    if raised:
        raise StudyError(
            f'expected "{name}" to return a torch.nn.Module{shapes}, but it raised {raised}'
        )
    if isinstance(model, nn.Module):
        return model
    raise StudyError(f'expected "{name}" to return a torch.nn.Module, found {type(model)}')


def _called(factory: Callable[..., nn.Module], *shapes: object) -> Callable[[], nn.Module]:
    """The call of a factory whose arguments are `inputs` and `outputs`, or have other names."""
    try:
        signature(factory).bind(inputs=None, outputs=None)
    except (TypeError, ValueError):
        return functools.partial(factory, *shapes)
    return functools.partial(factory, **dict(zip(("inputs", "outputs"), shapes, strict=True)))


def default_loss(outputs: int, targets: torch.dtype = torch.int64) -> Loss:
    """The loss of a classifier with so many logits, one value per record.

    Args:
        outputs: 1 for binary cross entropy with logits, else cross entropy.
        targets: dtype of the targets; binary targets may be of any, they are read as floats.

    Returns:
        loss(outputs, targets) of shape (n,), in nats: of outputs (n,) and targets (n,) for one
        logit, else of outputs (n, outputs) and targets (n,) of class numbers.

    Raises:
        StudyError: several logits, and targets that are neither class numbers nor probabilities.

    >>> loss = default_loss(1, torch.float32)
    >>> loss(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor([0.6931, 0.6931])
    """
    if outputs == 1:
        if targets.is_floating_point:
            return functools.partial(functional.binary_cross_entropy_with_logits, reduction="none")
        return binary_cross_entropy
    if not targets.is_floating_point and targets != torch.int64:
        raise StudyError(f"expected targets of dtype int64 for {outputs} classes, found {targets}")
    return functools.partial(functional.cross_entropy, reduction="none")


def binary_cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Binary cross entropy of logits (n,) against targets 0 or 1 of any dtype."""
    return functional.binary_cross_entropy_with_logits(
        outputs, targets.to(outputs.dtype), reduction="none"
    )


def outputs_of(model: nn.Module, inputs: torch.Tensor) -> int:
    """1 if the model gives one number per record in use, else the number of its logits."""
    if not len(inputs):
        return 1
    training = model.training
    try:
        with torch.no_grad():
            outputs: Any = model.eval()(inputs[:1].clone())
    finally:
        model.train(training)
    if not isinstance(outputs, torch.Tensor):
        raise ModelError(
            f"expected a model that gives one tensor, or an object with .logits, found "
            f"{'a tuple' if isinstance(outputs, tuple) else 'something else'}; return the logits "
            "alone from its forward"
        )
    shape = tuple(outputs.shape)
    if len(shape) not in (1, 2) or shape[1:] == (1,):
        words = "()" if not shape else f"({', '.join(['n', *map(str, shape[1:])])})"
        remedy = "end its forward with .squeeze(-1), or a Sequential with torch.nn.Flatten(0)"
        if not shape:  # of one record
            remedy = "squeeze(-1) in place of squeeze() leaves the records' own dimension"
        raise ModelError(
            "expected a model with outputs of shape (n,) for two classes or (n, classes) for more, "
            f"found {words}; {remedy}"
        )
    return shape[1] if len(shape) == 2 else 1
