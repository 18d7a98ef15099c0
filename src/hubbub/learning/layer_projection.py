"""Projection layer by layer, clipped after projecting: short vectors whose sensitivity is exact.

Theory of operation. Where a record meets a layer as backprops B (t x rows) and activations A
(t x columns), its gradient is B'A, and what is sent of it is P'B'A Q = (BP)'(AQ): a product of two
small matrices, so the gradient itself is never made. The projected gradient of the whole model,
k numbers, is stored for each record, and *that* is clipped. So a record's part in the sum is at
most the clipping norm in length whatever the matrices are, known beforehand or chosen by an
adversary (docs/privacy.md P8 (6) and P14): no probability of failure and no factor for an overlong
projection. The sum is charged as if there were no projection.

The price is that clipping sees the projected length, which is the true one only on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isqrt, prod, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from hubbub.core.errors import ModelError, StudyError, UserError
from hubbub.core.protocol.primitives.randomness import (
    CHUNK_BYTES,
    KEY_BYTES,
    cipher_at,
    keystream_into,
)
from hubbub.core.protocol.projection.matrix import Array, Integers, quantum, to_grid
from hubbub.learning.batches import Loss, Tensors
from hubbub.learning.clipped_sums import ClippedSum, GradientSpace, clipped_sum
from hubbub.learning.parameters import ParameterLayout, layout_of
from hubbub.learning.per_record import Part, Positions, Rows, Source, Stack, Windows, written_out

# The public matrices of a layer: a few sign vectors for its rows and a few for its columns.
#
# Theory of operation. A parameter of `rows` x `columns` is seen through the vectors p_1..p_r of
# `rows` signs and q_1..q_c of `columns` signs: its gradient G becomes the numbers p_a' G q_b,
# taken row by row of the r x c grid of all pairs (a, b) until there are `sent` of them, times 1 /
# sqrt(sent). Where all signs are independent and fair, the mean of p_a p_a' G q_b q_b' is G for
# every pair, so lifting each number back along its own pair is right on average, and the mean of
# the squared length of what is sent is |G|^2. Nothing here needs the last row of the grid to be
# full: any number of coordinates can be sent. The grid is as square as the parameter allows,
# because the length of what is sent fluctuates least there.

Signs = NDArray[np.int8]

_APART = 1 << 64  # AES blocks between the streams of two parameters
_FINE_BITS = 40  # so fine that no share grows by more than one from a level to the next
_LEVEL_BITS = 96  # so high that every share is whole at the top


@dataclass(frozen=True, kw_only=True)
class LayerMatrix:
    """How one parameter, as a matrix `rows` x `columns`, becomes `sent` numbers.

    `place` is the parameter's number in the model: it has a stretch of the keystream of its own.
    """

    rows: int
    columns: int
    sent: int
    place: int

    @property
    def kept(self) -> bool:
        """Whether the gradient is sent as it is: it has no more numbers than may be sent."""
        return self.sent == self.rows * self.columns

    @property
    def grid(self) -> tuple[int, int]:
        """r and c: how many vectors for the rows and how many for the columns."""
        side = min(self.rows, isqrt(self.sent - 1) + 1)
        across = min(self.columns, -(-self.sent // side))
        return -(-self.sent // across), across

    @property
    def scale(self) -> float:
        """What the signed sums are multiplied with."""
        return 1.0 if self.kept else 1 / sqrt(self.sent)

    def signs(self, draw_key: bytes) -> tuple[Signs, Signs]:
        """The vectors p as (rows, r) and q as (columns, c), from one bit of keystream each."""
        down, across = self.grid
        bits = _bits(draw_key, self.place * _APART, self.rows * down + self.columns * across)
        signs = 1 - 2 * bits.view(np.int8)
        outer, inner = np.split(signs, [self.rows * down])
        return outer.reshape(self.rows, down), inner.reshape(self.columns, across)

    def lift(self, integers: Integers, draw_key: bytes) -> Array:
        """The exact signed sums of each entry of the parameter, (rows * columns,), unscaled.

        The absolute values of `integers` add up to less than 2^53, so no addition rounds.
        """
        outer, inner = (side.astype(np.float64) for side in self.signs(draw_key))
        numbers = np.zeros(self.grid)
        numbers.ravel()[: self.sent] = integers
        sums = (outer @ numbers) @ inner.T
        return np.asarray(sums + 0.0).ravel()  # libraries differ in the sign of a zero


def _bits(key: bytes, block: int, count: int) -> NDArray[np.uint8]:
    """`count` bits of the keystream from that block on, as zeros and ones."""
    stream = np.empty(-(-count // 8), dtype=np.uint8)
    cipher = cipher_at(key, block)
    for start in range(0, stream.size, CHUNK_BYTES):
        keystream_into(cipher, stream[start : start + CHUNK_BYTES].data)
    return np.unpackbits(stream, count=count, bitorder="little")


def layer_matrices(shapes: Sequence[tuple[int, ...]], dimension: int) -> tuple[LayerMatrix, ...]:
    """Divide `dimension` numbers over parameters of these shapes.

    A parameter is a matrix of its first dimension by all others; a vector is a matrix of one
    column. The variance of what is lifted is the sum of size / sent * |gradient|^2 over the
    parameters; the division makes it least for gradients of one length, so that `sent` goes like
    the square root of the size. A parameter that gets as many numbers as it has is kept as it is.
    """
    sizes = [prod(shape) for shape in shapes]
    if not sizes or min(sizes) == 0:
        raise StudyError(
            f"expected parameters of at least one number each, found the shapes {list(shapes)}; "
            "freeze empty parameters or take them out of the model"
        )
    if not len(sizes) <= dimension <= sum(sizes):
        raise StudyError(
            f"expected a projection to between {len(sizes)} numbers, one for each parameter of "
            f"the model, and {sum(sizes)}, all there are, got {dimension}; choose another dimension"
        )
    shares = zip(shapes, _divided(sizes, dimension), strict=True)
    return tuple(
        LayerMatrix(rows=shape[0] if shape else 1, columns=prod(shape[1:]), sent=sent, place=place)
        for place, (shape, sent) in enumerate(shares)
    )


def _divided(sizes: list[int], dimension: int) -> list[int]:
    """The whole numbers from 1 to `sizes` that add up to `dimension` with least sum of ratios."""
    level = 0
    for bit in reversed(range(_LEVEL_BITS)):
        raised = level | 1 << bit
        if sum(_worth(size, raised) for size in sizes) <= dimension:
            level = raised
    shares = [_worth(size, level) for size in sizes]
    left = dimension - sum(shares)
    # One level up, more of them grow by one than there is left for: the first ones have it.
    growing = [place for place, size in enumerate(sizes) if _worth(size, level + 1) > shares[place]]
    for place in growing[:left]:
        shares[place] += 1
    return shares


def _worth(size: int, level: int) -> int:
    """The numbers that each lower size / sent by at least 2^40 / level, and the first in any case.

    From j to j + 1 it falls by size / (j (j + 1)).
    """
    steps = (isqrt(1 + 4 * (size * level >> _FINE_BITS)) - 1) // 2
    return min(size, 1 + steps)


Side = torch.Tensor | None  # the sign vectors of one side, or None where nothing is projected


@dataclass(frozen=True, kw_only=True)
class LayerProjection:
    """A projection of a model's gradient to `dimension` numbers, a few for each parameter.

    Guarantees:
        1. A record's part in `clipped_sum` has L2 norm at most `clip`, for any draw key.
        2. Over draw keys, the mean of `lift` of a record's projected gradient is that gradient.
        3. The division of `dimension` over the parameters follows from the shapes alone.

    Args:
        shapes: of the trainable parameters, in the order of `model.parameters()`.
        dimension: k, how many numbers are sent: at least one for each parameter, at most d.

    Raises:
        StudyError: `dimension` does not fit the shapes.

    Source: docs/privacy.md P8 (6).

    >>> LayerProjection.of(nn.Linear(5, 3), 8).parts
    ((3, 5, 6), (3, 1, 2))
    """

    shapes: tuple[tuple[int, ...], ...]
    dimension: int

    def __post_init__(self) -> None:
        if isinstance(self.dimension, bool) or not isinstance(self.dimension, int):
            raise StudyError(
                f"expected dimension to be a whole number, got {self.dimension!r}; choose one"
            )
        _ = self._matrices  # refuses a dimension that cannot be divided

    @classmethod
    def of(cls, model: nn.Module, dimension: int) -> LayerProjection:
        """The projection of `model` to `dimension` numbers.

        Args:
            model: whose trainable parameters are counted.
            dimension: k, how many numbers are sent.

        Returns:
            The projection, which follows from the shapes alone.

        Raises:
            ModelError: the trainable parameters cannot be laid out in one vector.
            StudyError: `dimension` is too small or too large for the model.
        """
        return cls(shapes=_shapes(layout_of(model)), dimension=dimension)

    @property
    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """Rows, columns and numbers sent of each parameter."""
        return tuple((m.rows, m.columns, m.sent) for m in self._matrices)

    @cached_property
    def _matrices(self) -> tuple[LayerMatrix, ...]:
        return layer_matrices(self.shapes, self.dimension)

    def clipped_sum(
        self,
        model: nn.Module,
        loss: Loss,
        inputs: Tensors,
        targets: Tensors,
        clip: float,
        draw_key: bytes,
        **options: Any,
    ) -> ClippedSum:
        """Project each record's gradient, clip it to L2 norm `clip` and add them up.

        Guarantees and requirements are those of `hubbub.learning.clipped_sum`, with "gradient"
        read as "projected gradient".

        Args:
            model, loss, inputs, targets: as for `hubbub.learning.clipped_sum`.
            clip: largest L2 norm of a record's projected gradient, from 1e-30 to 1e30.
            draw_key: the 16 public bytes that make the matrices; fresh ones for each step.
            options: chunk, method, counted and precision of `hubbub.learning.clipped_sum`.

        Returns:
            The sum, of shape (k,), in the dtype that `hubbub.learning.clipped_sum` gives, and the
            number of records in it.

        Raises:
            ModelError: the model has other parameters than this projection was made for, or mixes
                or remembers records.
            DataError: inputs and targets do not hold the same number of records.
            StudyError: an option or the draw key is out of range.
        """
        _check_key(draw_key)
        space_of = partial(self._space_of, draw_key)
        return clipped_sum(model, loss, inputs, targets, clip, space_of=space_of, **options)

    def _space_of(self, draw_key: bytes, layout: ParameterLayout) -> GradientSpace:
        """Projected gradients of a model of this layout."""
        shapes = _shapes(layout)
        if shapes != self.shapes:
            raise ModelError(
                f"expected a model with parameters of shapes {self.shapes}, found {shapes}; "
                "make the projection with LayerProjection.of(model, ...)"
            )
        pairs = {
            name: _sign_vectors(matrix, draw_key, layout)
            for name, matrix in zip(layout.parameters, self._matrices, strict=True)
        }
        return GradientSpace(
            shape=partial(_shaped, pairs),
            slices=dict(zip(layout.parameters, self._slices(), strict=True)),
            size=self.dimension,
        )

    def lift(self, projected: NDArray[np.float64], draw_key: bytes) -> NDArray[np.float64]:
        """The unbiased estimate of the sum of d numbers whose noisy projection is `projected`.

        Guarantees: bit-identical on every machine and for every number of threads, since the signed
        sums are sums of integers below 2^53. The numbers of a parameter are first rounded to steps
        of at most max(2^-45, k 2^-51) times the largest of them.

        Args:
            projected: (k,), public: post-processing of what was revealed.
            draw_key: the one with which it was made.

        Returns:
            (d,) float64, in the order of `model.parameters()`.

        Raises:
            UserError: `projected` has another length or is not finite.
            StudyError: the draw key is not of 16 bytes.
        """
        _check_key(draw_key)
        if projected.shape != (self.dimension,) or not np.isfinite(projected).all():
            raise UserError(
                f"expected a vector of {self.dimension} finite numbers, got another length or "
                "some that are not finite; use the projection that the study states"
            )
        pieces = zip(self._matrices, self._slices(), strict=True)
        return np.concatenate([_lifted(m, projected[at], draw_key) for m, at in pieces])

    def _slices(self) -> list[slice]:
        """Where the numbers of each parameter lie in the projected vector."""
        stops = np.cumsum([matrix.sent for matrix in self._matrices]).tolist()
        return [slice(stop - m.sent, stop) for m, stop in zip(self._matrices, stops, strict=True)]


def _shapes(layout: ParameterLayout) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(p.shape) for p in layout.parameters.values())


def _check_key(draw_key: bytes) -> None:
    if len(draw_key) != KEY_BYTES:
        raise StudyError(
            f"expected a draw key of {KEY_BYTES} bytes, got {len(draw_key)}; derive it from the "
            "joint seed"
        )


def _lifted(
    matrix: LayerMatrix, numbers: NDArray[np.float64], draw_key: bytes
) -> NDArray[np.float64]:
    if matrix.kept:
        return numbers.astype(np.float64)
    largest = float(np.abs(numbers).max())
    if largest == 0:
        return np.zeros(matrix.rows * matrix.columns)
    step = quantum(largest, matrix.sent)
    return matrix.lift(to_grid(numbers, step), draw_key) * (step * matrix.scale)


Pair = tuple[LayerMatrix, Side, Side]  # of one parameter, with (rows, r) and (columns, c)


def _sign_vectors(matrix: LayerMatrix, draw_key: bytes, layout: ParameterLayout) -> Pair:
    """The vectors that `draw_key` makes, as tensors of the model's kind."""
    if matrix.kept:
        return matrix, None, None
    outer, inner = map(torch.from_numpy, matrix.signs(draw_key))
    place = layout.device, layout.dtype
    return matrix, outer.to(*place), inner.to(*place)


def _shaped(pairs: dict[str, Pair], source: Source) -> Part:
    """The projected gradients of one parameter, (n, sent)."""
    name, given = source
    matrix, outer, inner = pairs[name]
    if isinstance(given, Windows) and given.groups == 1:
        given = given.positions()
    held = 0
    if isinstance(given, Positions):
        held = given.floats()
        left, right = _onto(given.left, outer), _onto(given.right, inner)
        grids = torch.bmm(left.mT, right.to(left.dtype))
    elif isinstance(given, Rows):  # of a table, those that each record has touched
        if outer is None:
            left = functional.one_hot(given.index, matrix.rows).to(given.values.dtype)
        else:
            left = outer[given.index]
        grids = torch.bmm(left.mT, _onto(given.values, inner))
    else:
        gradients = written_out(given).view(-1, matrix.rows, matrix.columns)
        grids = _onto(_onto(gradients, inner).mT, outer).mT
    # The first numbers of each record's grid (n, r, c).
    projected = grids.flatten(1)[:, : matrix.sent] * matrix.scale
    return name, Stack(gradients=projected, scratch=held)


def _onto(values: torch.Tensor, side: Side) -> torch.Tensor:
    """(n, t, m) times (m, few)."""
    return values if side is None else values.to(side.dtype) @ side
