"""Vectors as integers, so that sums are exact: the grid, and integers in limbs of 16 bits.

float64 holds every integer up to 2^53. A sum of integers whose absolute values add up to less has
one value, whatever the order of its additions. This file knows no matrix.
"""

from __future__ import annotations

from math import frexp

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import UserError

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_SUM = 2.0**52
_MOST_ENTRY = 2.0**46
LIMB_BITS = 16
LIMBS = 3
_LIMB = 1 << LIMB_BITS
_CHUNK = 1 << 14


def quantum(length: float, spread: float) -> float:
    """The least power of two in whose steps `length` <= 2^46 and `length` * `spread` <= 2^52."""
    least = max(length / _MOST_ENTRY, length * spread / MOST_SUM)
    mantissa, exponent = frexp(least)
    return 2.0 ** (exponent - 1 if mantissa == 0.5 else exponent)


def rounded(vector: NDArray[np.floating], step: float) -> Array:
    """The nearest whole numbers, in steps of the grid; float64 holds them exactly.

    Raises:
        UserError: an entry is not finite, or the vector is too long for exact sums.
    """
    whole = np.empty(vector.size)
    total = 0.0
    for start in range(0, vector.size, _CHUNK):
        part = whole[start : start + _CHUNK]
        np.divide(vector[start : start + _CHUNK], step, out=part)
        np.rint(part, out=part)
        sizes = np.abs(part)
        total += float(sizes.sum())
        # Twice, because each entry may have been rounded up by half a step.
        if not (total <= 2 * MOST_SUM and sizes.max() <= 2 * _MOST_ENTRY):
            raise UserError(
                "expected a finite vector within the projection's `clip` times `records`, got a "
                "longer one or one that is not finite; raise `records` or clip the records"
            )
    return whole


def to_grid(vector: NDArray[np.floating], step: float) -> Integers:
    """The same as integers."""
    return rounded(vector, step).astype(np.int64)


def limbs(integers: Integers) -> Array:
    """Integers up to 2^47 as (n, 3) limbs in [-2^15, 2^15], lowest first."""
    rest = integers
    out = np.empty((rest.size, LIMBS))
    for place in range(LIMBS - 1):
        upper = (rest + _LIMB // 2) >> LIMB_BITS
        out[:, place] = rest - (upper << LIMB_BITS)
        rest = upper
    out[:, -1] = rest
    return out


def joined(totals: Integers) -> Array:
    """Numbers from exact totals of their limbs (n, 3): rounded twice, in this order only."""
    top, middle, low = (totals[:, place].astype(np.float64) for place in (2, 1, 0))
    return (top * _LIMB + middle) * _LIMB + low
