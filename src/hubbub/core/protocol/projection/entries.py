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
from hubbub.core.protocol.projection import matrix

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
    """Products with a matrix of Gaussian entries: the paper's own kind, and the slower one."""

    def project(self, numbers: matrix.Array, dimension: int, key: bytes) -> matrix.Array:
        """The k sums of d whole numbers times Gaussian entries."""
        totals = np.zeros((dimension, matrix.LIMBS), dtype=np.int64)
        for tile, rows in enumerate(_tiles(numbers.size)):
            parts = matrix.limbs(numbers[rows].astype(np.int64))
            for columns, entries in _entries(key, tile, len(parts), dimension):
                totals[columns] += (entries @ parts).astype(np.int64)
        return matrix.joined(totals) / _UNIT

    def lift(self, integers: matrix.Integers, parameters: int, key: bytes) -> matrix.Array:
        """The d sums of k integers times Gaussian entries."""
        parts, out = matrix.limbs(integers), np.empty(parameters)
        for tile, rows in enumerate(_tiles(parameters)):
            lifted = out[rows]
            totals = np.zeros((lifted.size, matrix.LIMBS), dtype=np.int64)
            for columns, entries in _entries(key, tile, lifted.size, integers.size):
                totals += (entries.T @ parts[columns]).astype(np.int64)
            np.divide(matrix.joined(totals), _UNIT, out=lifted)
        return out


def _tiles(parameters: int) -> list[slice]:
    """The rows of each tile."""
    return [slice(at, min(at + _ROWS, parameters)) for at in range(0, parameters, _ROWS)]


def _entries(
    key: bytes, tile: int, rows: int, dimension: int
) -> Iterator[tuple[slice, matrix.Array]]:
    """The columns of one tile, some at a time, each a row of the array; buffers are reused."""
    pairs = -(-dimension // 2)
    # P8: each tile has blocks of its own, so entries are independent.
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


def normal_pairs(blocks: NDArray[np.uint32], first: matrix.Array, second: matrix.Array) -> None:
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
    np.subtract(cosine, sine, out=first)
    np.add(cosine, sine, out=second)
    signs = angle.astype(np.uint64)
    for entries, bits in ((first, signs << 63), (second, (signs >> 1) << 63)):
        np.multiply(entries, radius, out=entries)
        np.rint(entries, out=entries)
        entries.view(np.uint64)[...] |= bits


def _radius(blocks: NDArray[np.uint32]) -> matrix.Array:
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


def _series(power: matrix.Array, coefficients: list[float]) -> matrix.Array:
    """A polynomial by Horner's rule, highest coefficient first."""
    total = power * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total += coefficient
        total *= power
    total += coefficients[-1]
    return total


# Entries +-1: twenty columns from each 16-bit word of the keystream.
#
# Theory of operation. The signs of one row in twenty neighbouring columns are the characters of one
# word: its sixteen bits, and four parities of nine bits each, or so. All coordinates with the same
# word have the same twenty signs, so P^T x is: add each coordinate into one of 65,536 bins, then
# combine the bins. P y is the same backwards: tabulate the 65,536 sums of twenty numbers, then look
# one up for each coordinate.
#
# The twenty signs r are a linear code of 2^16 words in which any nine places are independent, and
# E exp<r, g> <= exp(|g|^2 / 2) for every g: no tail is heavier than with independent Gaussian
# entries. Rows are independent. Nothing else is used by docs/privacy.md P8, which has the proof.
# Every number below is an integer under 2^53, so all sums are exact.

COLUMNS = 20
_WORD_BITS = 16
_WORDS = 1 << _WORD_BITS
_HALF = 1 << 8
# So narrow that a linear-algebra library starts no threads of its own.
_STRIP = 32
# Rows whose words fill one chunk of keystream.
_SIGN_ROWS = CHUNK_BYTES // 2
# Rows that are added into the bins, or looked up in one table while it is in the cache, at a time.
_SPAN = 4 * _SIGN_ROWS
_TABLES = 64  # of half a megabyte, that are made together
_GROUP = 1 << 64  # AES blocks between the streams of two groups of columns


def column_masks() -> list[int]:
    """Which bits of a word each column is the parity of.

    Sixteen single bits and four checks. With the columns 1..15, 15 and 1, 2, 4, 8 as vectors of
    four bits, the checks' code is a simplex code and an even-weight code side by side: its words
    have weight 10 or 12.
    """
    numbers = [min(bit + 1, 15) for bit in range(_WORD_BITS)]
    checks = [
        sum(1 << bit for bit in range(_WORD_BITS) if numbers[bit] >> check & 1)
        for check in range(4)
    ]
    return [1 << bit for bit in range(_WORD_BITS)] + checks


def _characters(shift: int) -> matrix.Array:
    """(20, 256): the sign of each column that comes from one half of a word."""
    return np.array(
        [
            [1.0 - 2.0 * ((mask >> shift & byte).bit_count() & 1) for byte in range(_HALF)]
            for mask in column_masks()
        ]
    )


_HIGH = _characters(8)  # (20, 256)
_LOW = _characters(0).reshape(COLUMNS, -1, _STRIP).swapaxes(0, 1)  # (8, 20, 32)


class Signs:
    """Products with a matrix of signs, the fast kind."""

    def project(self, numbers: matrix.Array, dimension: int, key: bytes) -> matrix.Array:
        """The k signed sums of d whole numbers."""
        from scipy.sparse import csc_array  # which takes long to import

        span, groups = min(_SPAN, numbers.size), _groups(dimension)
        starts, ones = np.arange(span + 1, dtype=np.int32), np.ones(span)
        sums = np.zeros((groups, COLUMNS))
        for first in range(0, numbers.size, span):
            part = numbers[first : first + span]
            for group in range(groups):
                places = np.empty(part.size, dtype=np.int32)
                for rows, words in _words(key, group, first, first + part.size):
                    places[rows.start - first : rows.stop - first] = words
                # Each bin is the sum of the numbers whose word it is. A product with a sparse
                # matrix says so at the speed of `np.add.at`, and lets other threads run meanwhile.
                picks = (ones[: part.size], places, starts[: part.size + 1])
                bins = csc_array(picks, shape=(_WORDS, part.size)) @ part
                strips = bins.reshape(_HALF, -1, _STRIP).swapaxes(0, 1)
                sums[group] += ((_HIGH @ strips) * _LOW).sum(axis=(0, 2))
        return sums.reshape(-1)[:dimension]

    def lift(self, integers: matrix.Integers, parameters: int, key: bytes) -> matrix.Array:
        """The d signed sums of k integers."""
        groups, out = _groups(integers.size), np.zeros(parameters)
        padded = np.zeros((groups, COLUMNS))
        padded.ravel()[: integers.size] = integers
        indices, looked_up = np.empty(_SIGN_ROWS, dtype=np.intp), np.empty(_SIGN_ROWS)
        for first in range(0, groups, _TABLES):
            # For each word the signed sum of a group's twenty values: its strips' outer sums.
            tables = [
                ((_HIGH.T * values) @ _LOW).swapaxes(0, 1).reshape(_WORDS)
                for values in padded[first : first + _TABLES]
            ]
            for start in range(0, parameters, _SPAN):
                stop = min(start + _SPAN, parameters)
                for group, table in enumerate(tables, first):
                    for rows, words in _words(key, group, start, stop):
                        places, part = indices[: words.size], looked_up[: words.size]
                        places[:] = words
                        table.take(places, out=part, mode="clip")
                        out[rows] += part
        return out


def _groups(dimension: int) -> int:
    """Groups of twenty columns; the last may be used in part."""
    return -(-dimension // COLUMNS)


def _words(
    key: bytes, group: int, first: int, stop: int
) -> Iterator[tuple[slice, NDArray[np.uint16]]]:
    """The words of rows from `first`, a multiple of 8, chunk by chunk; the buffer is reused."""
    stream = np.empty(_SIGN_ROWS, dtype="<u2")
    cipher = cipher_at(key, group * _GROUP + first * stream.itemsize // BLOCK_BYTES)
    for start in range(first, stop, _SIGN_ROWS):
        count = min(_SIGN_ROWS, stop - start)
        keystream_into(cipher, stream[:count].view(np.uint8).data)
        yield slice(start, start + count), stream[:count]
