"""Entries +-1: twenty columns from each 16-bit word of the keystream.

Theory of operation. The signs of one row in twenty neighbouring columns are the characters of one
word: its sixteen bits, and four parities of nine bits each, or so. All coordinates with the same
word have the same twenty signs, so P^T x is: add each coordinate into one of 65,536 bins, then
combine the bins. P y is the same backwards: tabulate the 65,536 sums of twenty numbers, then look
one up for each coordinate.

The twenty signs r are a linear code of 2^16 words in which any nine places are independent, and
E exp<r, g> <= exp(|g|^2 / 2) for every g: no tail is heavier than with independent Gaussian
entries. Rows are independent. Nothing else is used by docs/privacy.md P8, which has the proof.
Every number below is an integer under 2^53, so all sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives.randomness import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    cipher_at,
    keystream_into,
)
from hubbub.core.protocol.projection import exact_grid

COLUMNS = 20
_WORD_BITS = 16
_WORDS = 1 << _WORD_BITS
_HALF = 1 << 8
# So narrow that a linear-algebra library starts no threads of its own.
_STRIP = 32
# Rows whose words fill one chunk of keystream.
_ROWS = CHUNK_BYTES // 2
# Rows that are added into the bins, or looked up in one table while it is in the cache, at a time.
_SPAN = 4 * _ROWS
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


def _characters(shift: int) -> exact_grid.Array:
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
    """The fast kind."""

    def project(self, whole: exact_grid.Array, dimension: int, key: bytes) -> exact_grid.Array:
        """The k signed sums of d whole numbers."""
        from scipy.sparse import csc_array  # which takes long to import

        span, groups = min(_SPAN, whole.size), _groups(dimension)
        starts, ones = np.arange(span + 1, dtype=np.int32), np.ones(span)
        sums = np.zeros((groups, COLUMNS))
        for first in range(0, whole.size, span):
            part = whole[first : first + span]
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

    def lift(self, integers: exact_grid.Integers, parameters: int, key: bytes) -> exact_grid.Array:
        """The d signed sums of k integers."""
        groups, out = _groups(integers.size), np.zeros(parameters)
        padded = np.zeros((groups, COLUMNS))
        padded.ravel()[: integers.size] = integers
        indices, looked_up = np.empty(_ROWS, dtype=np.intp), np.empty(_ROWS)
        for first in range(0, groups, _TABLES):
            tables = [_table(y) for y in padded[first : first + _TABLES]]
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


def _table(values: exact_grid.Array) -> exact_grid.Array:
    """The signed sum of twenty values for each word."""
    strips = (_HIGH.T * values) @ _LOW
    return strips.swapaxes(0, 1).reshape(_WORDS)


def _words(
    key: bytes, group: int, first: int, stop: int
) -> Iterator[tuple[slice, NDArray[np.uint16]]]:
    """The words of rows from `first`, a multiple of 8, chunk by chunk; the buffer is reused."""
    stream = np.empty(_ROWS, dtype="<u2")
    cipher = cipher_at(key, group * _GROUP + first * stream.itemsize // BLOCK_BYTES)
    for start in range(first, stop, _ROWS):
        count = min(_ROWS, stop - start)
        keystream_into(cipher, stream[:count].view(np.uint8).data)
        yield slice(start, start + count), stream[:count]
