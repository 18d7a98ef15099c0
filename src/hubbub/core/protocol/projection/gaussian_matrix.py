"""Entries N(0, 1), in steps of 2^-20, made on the fly: the paper's matrix.

Theory of operation. One AES block makes one pair of entries by the method of Box and Muller: 96
bits are a uniform u whose small values are as fine as 2^-96, and sqrt(-2 ln u) is the radius; 30
bits are an angle in the first quadrant; two bits are the signs. Logarithm, sine and cosine are
series of additions, multiplications and one division, which IEEE 754 rounds in one way only (the
functions of a mathematical library differ between machines in the last bit). The entry is the
nearest multiple of 2^-20, so that products with limbs of the vector are exact in any order.

An entry differs from one that is exactly Gaussian by at most 2^-20.9, with an independent random
sign, unless u < 2^-71; docs/privacy.md P8 says what follows. This file knows no vector's origin.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives.randomness import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    cipher_at,
    keystream_into,
)
from hubbub.core.protocol.projection import exact_grid

ENTRY_BITS = 20
# Rows of one tile of the stream: one chunk of keystream is one pair of columns of a tile.
_ROWS = CHUNK_BYTES // BLOCK_BYTES
# Columns multiplied together: so few that a linear-algebra library starts no threads of its own.
_AT_ONCE = 8
_ROOT_HALF_BITS = int(np.array(sqrt(0.5)).view(np.int64))
_MANTISSA_BITS = 52
_UNIT = 2.0**ENTRY_BITS
# Taylor coefficients from the highest power down; the next term is below 2^-33 in each.
_LOG = [1 / n for n in range(11, 0, -2)]  # ln m = 2 s (1 + s^2/3 + ...), s = (m - 1) / (m + 1)
_SIN = [-1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0]
_COS = [-1 / 3628800, 1 / 40320, -1 / 720, 1 / 24, -1 / 2, 1.0]


class Gaussian:
    """The reference kind."""

    def project(self, whole: exact_grid.Array, dimension: int, key: bytes) -> exact_grid.Array:
        """The k sums of d whole numbers times Gaussian entries."""
        totals = np.zeros((dimension, exact_grid.LIMBS), dtype=np.int64)
        for tile, rows in enumerate(_tiles(whole.size)):
            parts = exact_grid.limbs(whole[rows].astype(np.int64))
            for columns, entries in _entries(key, tile, len(parts), dimension):
                totals[columns] += (entries @ parts).astype(np.int64)
        return exact_grid.joined(totals) / _UNIT

    def lift(self, integers: exact_grid.Integers, parameters: int, key: bytes) -> exact_grid.Array:
        """The d sums of k integers times Gaussian entries."""
        parts, out = exact_grid.limbs(integers), np.empty(parameters)
        for tile, rows in enumerate(_tiles(parameters)):
            lifted = out[rows]
            totals = np.zeros((lifted.size, exact_grid.LIMBS), dtype=np.int64)
            for columns, entries in _entries(key, tile, lifted.size, integers.size):
                totals += (entries.T @ parts[columns]).astype(np.int64)
            np.divide(exact_grid.joined(totals), _UNIT, out=lifted)
        return out


def _tiles(parameters: int) -> list[slice]:
    """The rows of each tile."""
    return [slice(at, min(at + _ROWS, parameters)) for at in range(0, parameters, _ROWS)]


def _entries(
    key: bytes, tile: int, rows: int, dimension: int
) -> Iterator[tuple[slice, exact_grid.Array]]:
    """The columns of one tile, some at a time, each a row of the array; buffers are reused."""
    pairs = -(-dimension // 2)
    cipher = cipher_at(key, tile * pairs * _ROWS)
    blocks = np.empty((_ROWS, BLOCK_BYTES // 4), dtype="<u4")
    entries = np.empty((_AT_ONCE, rows))
    for start in range(0, dimension, _AT_ONCE):
        stop = min(start + _AT_ONCE, 2 * pairs)
        for column in range(0, stop - start, 2):
            keystream_into(cipher, blocks.view(np.uint8).reshape(-1).data)
            normal_pairs(blocks[:rows], entries[column], entries[column + 1])
        used = min(stop, dimension)
        yield slice(start, used), entries[: used - start]


def normal_pairs(
    blocks: NDArray[np.uint32], one: exact_grid.Array, other: exact_grid.Array
) -> None:
    """Overwrite two arrays of n with N(0, 1) in steps of 2^-20, from n AES blocks (n, 4)."""
    angle = blocks[:, 3]
    turn = (angle >> 2).astype(np.float64)
    turn += 0.5
    turn *= pi / 4 * 2.0**-29
    turn -= pi / 4
    square = turn * turn
    sine, cosine = _series(square, _SIN), _series(square, _COS)
    sine *= turn
    radius = _radius(blocks)
    np.subtract(cosine, sine, out=one)
    np.add(cosine, sine, out=other)
    signs = angle.astype(np.uint64)
    for entries, bits in ((one, signs << 63), (other, (signs >> 1) << 63)):
        np.multiply(entries, radius, out=entries)
        np.rint(entries, out=entries)
        entries.view(np.uint64)[...] |= bits


def _radius(blocks: NDArray[np.uint32]) -> exact_grid.Array:
    """sqrt(-2 ln u) / sqrt(2), in steps of 2^-20, with u = (96 bits + 1/2) / 2^96."""
    numbers = blocks[:, 2].astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-32
    middle = blocks[:, 1].astype(np.uint64) << 32
    middle |= blocks[:, 0]
    numbers += middle.astype(np.float64)
    bits = numbers.view(np.int64)
    exponents = (bits - _ROOT_HALF_BITS) >> _MANTISSA_BITS
    bits -= exponents << _MANTISSA_BITS  # numbers are now in [sqrt(1/2), sqrt(2))
    ratio = (numbers - 1) / (numbers + 1)
    logarithm = _series(ratio * ratio, _LOG)
    logarithm *= ratio
    logarithm *= -2
    logarithm += (64 - exponents) * log(2)
    np.maximum(logarithm, 0, out=logarithm)
    np.sqrt(logarithm, out=logarithm)
    logarithm *= _UNIT
    return logarithm


def _series(power: exact_grid.Array, coefficients: list[float]) -> exact_grid.Array:
    """A polynomial by Horner's rule, highest coefficient first."""
    total = power * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total += coefficient
        total *= power
    total += coefficients[-1]
    return total
