"""The two products with a matrix that is never stored: P^T x at a silo, P y at the aggregator."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import UserError
from hubbub.core.protocol.projection import entries, matrix
from hubbub.core.protocol.projection.matrix import Array, quantum, rounded, to_grid
from hubbub.core.protocol.round.draw import Draw


def project(
    vector: NDArray[np.floating],
    projection: matrix.Projection,
    draw: Draw,
) -> Array:
    """The k numbers P^T x of a clipped sum x.

    Guarantees:
        1. Bit-identical on every machine.
        2. Linear and exact, up to one rounding of each result, on vectors that lie on the grid.
        3. Others are first rounded to the grid, which lengthens a record's part in the sum by no
           more than `projection.allowance`.

    Requires: the matrix was drawn after the model was fixed, and is used for this step only.

    Args:
        vector: (d,), a sum of at most `projection.records` vectors of norm at most C.

    Returns:
        (k,) float64, in the units of `vector`.

    Raises:
        UserError: `vector` has another length, is too long or not finite; no value is shown.

    Source: the paper's Algorithm 3, steps 1 and 2; docs/privacy.md P8.

    >>> from hubbub.core.protocol.projection.matrix import Projection
    >>> from hubbub.core.protocol.round.draw import Draw
    >>> small = Projection(kind="sign", parameters=4, dimension=2, clip=1.0, records=1)
    >>> y = project(np.array([1.0, 0, 0, 0]), small, Draw(seed=bytes(32), step=1))
    >>> np.abs(y).round(6).tolist()
    [0.707107, 0.707107]
    """
    _expect(vector, projection.parameters)
    # P8 (8): on the grid sums are exact in any order; the margin pays for what rounding adds.
    whole = rounded(vector, projection.quantum)
    sums = _engine(projection).project(whole, projection.dimension, projection.key(draw))
    return sums * (projection.quantum / sqrt(projection.dimension))


def lift(
    projected: NDArray[np.floating],
    projection: matrix.Projection,
    draw: Draw,
) -> Array:
    """The d numbers P y: an unbiased estimate of the sum whose noisy projection is y.

    Guarantees: bit-identical on every machine; within 2^-45 of the exact
    product, relative to the largest |y| times sqrt(k).

    Args:
        projected: (k,), public: post-processing of what was revealed.

    Returns:
        (d,) float64.

    Raises:
        UserError: `projected` has another length or is not finite.

    Source: the paper, section "DP random projection".
    """
    _expect(projected, projection.dimension)
    largest = float(np.abs(projected).max())
    if largest == 0:
        return np.zeros(projection.parameters)
    step = quantum(largest, projection.dimension) if np.isfinite(largest) else 1.0
    integers = to_grid(projected, step)
    out = _engine(projection).lift(integers, projection.parameters, projection.key(draw))
    out *= step / sqrt(projection.dimension)
    return out


def _engine(projection: matrix.Projection) -> entries.Gaussian | entries.Signs:
    return entries.Gaussian() if projection.kind == "gaussian" else entries.Signs()


def _expect(vector: NDArray[np.floating], size: int) -> None:
    """Refuse another shape."""
    if vector.shape != (size,):
        raise UserError(
            f"expected a vector of {size} numbers, got an array of shape {vector.shape}; "
            "use the projection that the study states"
        )
