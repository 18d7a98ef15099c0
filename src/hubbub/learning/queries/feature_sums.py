"""What is summed to standardise features: of each silo's own records (docs/privacy.md P16)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.records import Records, unit_rows

Array = NDArray[np.float64]
Parameters = NDArray[np.float32]


class FeatureSums:
    """A silo's records: their number, and the sums of each feature and of its square less 1/2.

    Squares about their middle make a shorter vector (docs/privacy.md P16). Of patients it is their
    number, and the sums of what is each one's mean (P21).

    Args:
        records: the silo's own.
        bound: larger values count as this.
        capacity: the most units that the silo may hold; as many as there are if None.
        most: records of a patient.
    """

    def __init__(
        self, records: Records, bound: float, capacity: int | None = None, most: int = 1
    ) -> None:
        features = np.clip(records.inputs / np.float64(bound), -1.0, 1.0)
        self._features, self._squares = features, features**2 - 0.5
        if records.patients is not None:
            units = unit_rows(records.patients, most)
            self._features, self._squares = map(units.means, (features, self._squares))
        self.capacity = records.units if capacity is None else capacity

    def __repr__(self) -> str:
        return "FeatureSums(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return len(self._features)

    def clipped_sum(self, parameters: Parameters, rows: NDArray[np.intp]) -> Array:
        """(1 + 2 features,): each unit's part has norm at most sqrt(1 + 1.25 features)."""
        held = rows >= 0
        sums = [self._placed(known, held, rows) for known in (self._features, self._squares)]
        return np.concatenate(([held.sum()], *(values.sum(0) for values in sums)))

    @staticmethod
    def _placed(known: Array, held: NDArray[np.bool_], rows: NDArray[np.intp]) -> Array:
        """(rows, features) of known ones, and zeros where there is none, in the same operations."""
        padded = np.vstack([known, np.zeros(known.shape[1])])
        return np.asarray(padded[np.where(held, rows, len(known))])
