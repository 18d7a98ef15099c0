"""What a record adds to an evaluation: a short vector of its score and loss, or the cell it is in.

All of it is a function of the record's own prediction, target and loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hubbub.learning.study.score_vector import ScoreVector
from hubbub.learning.target_types import MOST_LOSS, TargetType


class Marks(Protocol):
    """How a record becomes a vector."""

    @property
    def size(self) -> int:
        """How many numbers it has."""

    def columns(
        self,
        target_type: TargetType,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        losses: torch.Tensor,
    ) -> torch.Tensor:
        """(size, n) float64, a column for each of n records."""


@dataclass(frozen=True)
class ScoreMarks:
    """How well a record is done, and its loss (docs/privacy.md P16).

    Args:
        vector: how both become a vector.
    """

    vector: ScoreVector

    @property
    def size(self) -> int:
        """That it is there, its score, its loss."""
        return 3

    def columns(
        self,
        target_type: TargetType,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        losses: torch.Tensor,
    ) -> torch.Tensor:
        """(3, n)."""
        marks = target_type.record_score(outputs, targets).double()
        # What is not a number counts as the largest loss and error, as a wrong class does (P16).
        marks = marks.nan_to_num(nan=1.0).clamp(0.0, 1.0)
        bounded = (losses.double() / MOST_LOSS).nan_to_num(nan=1.0).clamp(0.0, 1.0)
        presence, scale = self.vector.presence, self.vector.scale
        scores = torch.stack([marks, bounded])
        return torch.cat([torch.full_like(bounded, presence)[None], scale * (scores - 0.5)])


class Placed(Protocol):
    """Public cells, a row for each bin of predictions and a column for each outcome."""

    @property
    def predictions(self) -> int:
        """How many rows."""

    @property
    def outcomes(self) -> int:
        """How many columns."""

    def places(
        self, predicted: NDArray[Any], targets: NDArray[Any]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(n,) the row and the column of each record."""


@dataclass(frozen=True)
class CellMarks:
    """A 1 in the cell of a record's prediction and outcome, 0 elsewhere (docs/privacy.md P27).

    Args:
        cells: where a record belongs.
    """

    cells: Placed

    @property
    def size(self) -> int:
        """How many cells."""
        return self.cells.predictions * self.cells.outcomes

    def columns(
        self,
        target_type: TargetType,
        outputs: torch.Tensor,
        targets: torch.Tensor,
        losses: torch.Tensor,
    ) -> torch.Tensor:
        """(cells, n)."""
        predicted, known = target_type.compared(outputs, targets.cpu().numpy())
        rows, columns = self.cells.places(predicted, known)
        place = rows * self.cells.outcomes + columns
        hot = np.zeros((self.size, len(place)))
        hot[place, np.arange(len(place))] = 1.0
        return torch.from_numpy(hot).to(outputs.device)
