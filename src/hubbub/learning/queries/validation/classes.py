"""More than two classes: accuracy beside always saying the commonest, and each class found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.learning.queries.validation.bins import Array
from hubbub.learning.queries.validation.noisy_table import NoisyTable
from hubbub.learning.queries.validation.validation_scores import (
    ValidationScore,
    ValidationScores,
    known,
    score,
)


@dataclass(frozen=True, kw_only=True)
class ClassValidation:
    """The class that is said, by the class that is.

    Args:
        many: how many there are.
    """

    many: int

    @property
    def code(self) -> None:
        """Its cells are in no order, and are sent as they are."""

    @property
    def outcomes(self) -> int:
        """As many as classes."""
        return self.many

    @property
    def predictions(self) -> int:
        """As many as classes."""
        return self.many

    def places(self, predicted: Array, targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the class with the largest chance, and the class."""
        said = np.nan_to_num(predicted, nan=-1.0).argmax(axis=1)
        return np.minimum(said, self.many - 1), np.clip(targets, 0, self.many - 1).astype(np.intp)

    def scored(self, table: NoisyTable) -> ValidationScores:
        """Accuracy, and how much of each class is found."""
        return ValidationScores(scores=known(self._accuracy(table), *self._found(table)))

    def guess(self, records: float) -> Array:
        """The table of so many records, of which three in five are found."""
        cells = np.full((self.many, self.many), 0.4 / (self.many - 1)) / self.many
        np.fill_diagonal(cells, 0.6 / self.many)
        return records * cells

    def _accuracy(self, table: NoisyTable) -> ValidationScore | None:
        columns = table.counts.sum(axis=0)
        common = int(columns.argmax())
        gain = table.ratio(lambda n: _right(n) - n[..., common].sum(-1), _all)
        null = float(np.clip(columns[common] / max(columns.sum(), 1.0), 0.0, 1.0))
        interval = table.ratio(_right, _all)
        return score("accuracy", interval.within(0.0, 1.0), null=null, gain=gain)

    def _found(self, table: NoisyTable) -> list[ValidationScore | None]:
        scores = []
        for one in range(self.many):
            share = table.ratio(
                lambda n, k=one: n[..., k, k],  # type: ignore[misc]
                lambda n, k=one: n[..., k].sum(-1),  # type: ignore[misc]
            )
            scores.append(score(f"found_of_class_{one}", share.within(0.0, 1.0)))
        return scores


def _all(n: Array) -> Array:
    return np.asarray(n.sum((-1, -2)))


def _right(n: Array) -> Array:
    return np.asarray(np.trace(n, axis1=-2, axis2=-1))
