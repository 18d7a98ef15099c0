"""What a round asks of a silo: the sum of what is clipped of its records."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.round.batches import Rows
from hubbub.core.protocol.round.round_parameters import Parameters

Array = NDArray[np.float64]


class LocalTask(Protocol):
    """What a silo can do with its own records; the learning layer implements it."""

    @property
    def count(self) -> int:
        """Number of records; never leaves the silo."""

    @property
    def capacity(self) -> int:
        """The most records that the silo may hold; public, and at least `count` (P19)."""

    def clipped_sum(self, parameters: Parameters, rows: Rows) -> Array:
        """Sum over the rows' records of gradients clipped to norm C (docs/privacy.md P14).

        The round writes to it: it is an array that nobody else has.
        """
