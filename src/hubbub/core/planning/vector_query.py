"""A noisy sum of vectors that silos bring along: whoever made them promises how long parts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.query import Array, Parameters, Query, SiloData

if TYPE_CHECKING:
    from hubbub.core.protocol.round.projected_sum import LocalTask

VECTOR = "vector"


@dataclass(frozen=True)
class VectorQuery(Query):
    """One sum of vectors of so many numbers.

    Args:
        asked: how long a unit's part is, and what it costs.
        length: how many numbers a vector has.
    """

    asked: Mechanism
    length: int

    @property
    def mechanism(self) -> Mechanism:
        """One sum of everybody's."""
        return self.asked

    @property
    def numbers(self) -> int:
        """Of a vector."""
        return self.length

    @property
    def broadcast_numbers(self) -> int:
        """Nothing goes down."""
        return 0

    def units(self, silo: SiloData) -> int:
        """Nobody knows of how many units a vector is."""
        return 0

    def max_units(self, silo: SiloData) -> int:
        """As `units`."""
        return 0

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's vector."""
        assert silo.vector is not None, "such a sum has vectors"  # noqa: S101
        return _GivenSum(silo.vector)

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """The exact sum of all vectors."""
        vectors = [silo.vector for silo in silos if silo.vector is not None]
        return _GivenSum(np.sum(vectors, axis=0))


class _GivenSum:
    """A silo whose sum is given."""

    count = capacity = 0

    def __init__(self, vector: Array) -> None:
        self._vector = vector

    def clipped_sum(self, parameters: Parameters, rows: NDArray[np.intp]) -> Array:
        """The given vector."""
        return self._vector.copy()
