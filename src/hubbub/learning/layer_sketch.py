"""The public matrices of a layer: a few sign vectors for its rows and a few for its columns.

Theory of operation. A parameter of `rows` x `columns` is seen through the vectors p_1..p_r of
`rows` signs and q_1..q_c of `columns` signs: its gradient G becomes the numbers p_a' G q_b, taken
row by row of the r x c grid of all pairs (a, b) until there are `sent` of them, times
1 / sqrt(sent). Where all signs are independent and fair, the mean of p_a p_a' G q_b q_b' is G for
every pair, so lifting each number back along its own pair is right on average, and the mean of the
squared length of what is sent is |G|^2. Nothing here needs the last row of the grid to be full:
any number of coordinates can be sent. The grid is as square as the parameter allows, because the
length of what is sent fluctuates least there.

This file knows no torch, no record and no gradient; its numbers follow from shapes and k alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.protocol.primitives.randomness import CHUNK_BYTES, cipher_at, keystream_into
from hubbub.core.protocol.projection.exact_grid import Array, Integers

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
