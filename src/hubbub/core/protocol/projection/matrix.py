"""Which matrix: what all matrices of a study have in common, and what makes each of them fresh.

This file decides sizes, the grid and the key of a matrix; it makes no entry of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError, UserError
from hubbub.core.protocol.round.draw import Draw

# Vectors as integers, so that sums are exact: the grid, and integers in limbs of 16 bits.
#
# float64 holds every integer up to 2^53. A sum of integers whose absolute values add up to less has
# one value, whatever the order of its additions.

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


KINDS = ("gaussian", "sign")
MOST_PARAMETERS = 1 << 24
# Of the quarter of its margin, 2^-8, that the plan leaves to the projection (P8 (8)).
_MOST_ROUNDING = 2.0**-11
_MOST_RESULTS = 2.0**-17


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A kind of projection: everything about it that the guarantee depends on.

    Args:
        kind: "gaussian" (entries N(0, 1/k), the paper's) or "sign" (entries +-1/sqrt(k), fast).
        parameters: d, length of the sums.
        dimension: k, length of what is sent.
        clip: C, the norm to which records are clipped before they are summed.
        records: the most records that one sum may hold; it fixes the grid, so it must not be
            chosen from private counts.

    Raises:
        StudyError: a value is out of its range, or the grid would be too coarse to be certified.

    Source: docs/privacy.md P8.

    >>> Projection(kind="sign", parameters=900_000, dimension=400, clip=1.0, records=400).allowance
    ... # doctest: +ELLIPSIS
    1.1...e-07
    """

    kind: str
    parameters: int
    dimension: int
    clip: float
    records: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise StudyError(
                f"expected a projection of kind {' or '.join(KINDS)}, got {self.kind!r}; choose one"
            )
        _whole("parameters", self.parameters, 2, MOST_PARAMETERS)
        _whole("dimension", self.dimension, 2, self.parameters)
        _whole("records", self.records, 1, 1 << 40)
        if not (isfinite(self.clip) and self.clip > 0):
            raise StudyError(f"expected clip above 0, got {self.clip!r}; choose a clipping norm")
        if self._rounding > _MOST_ROUNDING or self._results > _MOST_RESULTS:
            raise StudyError(
                f"expected sums that fit a grid of {MOST_SUM:.1e} steps, got {self.records} "
                f"records in {self.parameters} parameters; lower one of them"
            )

    def key(self, draw: Draw) -> bytes:
        """The AES-128 key of the matrix of a draw; public, as the matrix is."""
        return draw.key_of(self.kind, self.parameters, self.dimension)

    @property
    def quantum(self) -> float:
        """Width of a step of the grid on which sums are put, a power of two."""
        return quantum(self.clip * self.records, sqrt(self.parameters))

    @property
    def allowance(self) -> float:
        """By how much finite precision may lengthen a record's part in a sum, relative to clip."""
        return self._rounding + self._results

    @property
    def _rounding(self) -> float:
        """Putting the sum on the grid moves each of two neighbours by at most sqrt(d) / 2 steps."""
        # P8 (8): alpha.
        return self.quantum * sqrt(self.parameters) / self.clip

    @property
    def _results(self) -> float:
        """The results of both are rounded three times; a matrix's norm is below 16 sqrt(d)."""
        # P8 (8): beta.
        return 2.0**-46 * sqrt(self.parameters) * self.records


def _whole(name: str, value: object, least: int, most: int) -> None:
    """Refuse what is not a whole number in the range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise StudyError(
            f"expected {name} to be a whole number from {least} to {most}, got {value!r}; "
            "choose one in that range"
        )
