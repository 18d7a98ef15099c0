"""Projections in a round: which matrix an attempt has, and a silo's sum through it (P8).

The matrix follows from the joint seed and the model, so everybody makes the same one and nobody
could have known it when the model was fixed. It is never stored: P^T x is made at a silo, P y at
the aggregator.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import UserError
from hubbub.core.protocol.projection import entries
from hubbub.core.protocol.projection.matrix import Array, Projection, quantum, rounded, to_grid
from hubbub.core.protocol.round.batches import Rows
from hubbub.core.protocol.round.draw import Draw
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters

LAYERS = "layers"  # the kind that is made layer by layer, before records are clipped


class ProjectingTask(LocalTask, Protocol):
    """The same where gradients can be projected layer by layer."""

    def projected_sum(self, parameters: Parameters, rows: Rows, draw_key: bytes) -> Array:
        """Sum over the rows' records of projected gradients, clipped to norm C after it (P8)."""


@dataclass(frozen=True)
class ProjectedSums:
    """The projection that round parameters state, as a `Transform` of their sums."""

    round_parameters: RoundParameters

    @property
    def clips_after(self) -> bool:
        """Whether it goes layer by layer (P8 (6))."""
        return self.round_parameters.projection == LAYERS

    def matrices(self, rows: int = 0) -> Projection:
        """Those of the whole vector.

        Args:
            rows: of a silo's batches, a public number; its sums are put on a grid that fits them
                all.

        Raises:
            StudyError: so many records are too many for the model's size.
        """
        stated = self.round_parameters
        return Projection(
            kind=stated.projection,
            parameters=stated.parameters,
            dimension=stated.dimension,
            clip=stated.clip,
            # P19: without a public number of records the plan assumes one. A silo's rows may be
            # more.
            records=max(stated.most_records, rows),
        )

    def check_rows(self, rows: int) -> None:
        """See `Transform`: more rows than the grid of a projection can hold."""
        if not self.clips_after:
            self.matrices(rows)

    def key(self, draw: Draw) -> bytes:
        """Of the matrices."""
        stated = self.round_parameters
        return draw.key_of(stated.projection, stated.parameters, stated.dimension)

    def clipped_sum(self, task: LocalTask, parameters: Parameters, rows: Rows, draw: Draw) -> Array:
        """See `Transform`."""
        # P8 (6): records are clipped after the projection, so C bounds each whatever the matrix is.
        if self.clips_after:
            return cast(ProjectingTask, task).projected_sum(parameters, rows, self.key(draw))
        # P8: a projection is linear, so the sum of clipped records is projected, once. How much
        # longer a record may have become is charged.
        # P8 (8): on a grid that follows from public rows, so neighbours' sums are rounded alike.
        return project(task.clipped_sum(parameters, rows), self.matrices(rows.size), draw)

    def lift(self, transformed: Array, draw: Draw) -> Array:
        """See `Transform`."""
        return lift(transformed, self.matrices(), draw)


# The two products with a matrix that is never stored.


def project(
    vector: NDArray[np.floating],
    projection: Projection,
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
    projection: Projection,
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


def _engine(projection: Projection) -> entries.Gaussian | entries.Signs:
    return entries.Gaussian() if projection.kind == "gaussian" else entries.Signs()


def _expect(vector: NDArray[np.floating], size: int) -> None:
    """Refuse another shape."""
    if vector.shape != (size,):
        raise UserError(
            f"expected a vector of {size} numbers, got an array of shape {vector.shape}; "
            "use the projection that the study states"
        )
