"""How the noise of one step goes with that of the others: all that a plan must know of it.

`StepNoise` says what is asked of a kind of noise; noise of each step's own is here. Another kind is
a class in a file of its own, which `queries/training_query.py` chooses by the study's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.round.batch_rows import most_rows


class StepNoise(Protocol):
    """The noise of a mechanism's steps, in what accounts, grid, plan and audit ask of it."""

    @property
    def coefficients(self) -> tuple[int, ...]:
        """What silos must agree on to make it; nothing for noise of each step's own."""

    @property
    def column(self) -> NDArray[np.float64]:
        """First column of the matrix C; silos add C^-1 Z, Z independent (P25)."""

    @property
    def epoch(self) -> int:
        """In how many steps one noise vector has a part; they are charged as one."""

    @property
    def growth(self) -> float:
        """The largest standard deviation of a step's noise, in units of a share's."""

    def charged_rate(self, rate: float) -> float:
        """With which chance a unit is in a batch that is charged, where it is `rate` in a step."""

    def batch_rows(self, capacity: int, rate: float) -> int:
        """The public number of rows in a batch of a silo that may hold so many units (P19)."""

    def rounded(self, shift: float, sigma: float) -> tuple[float, float]:
        """What float64 does to one outcome (P6).

        Args:
            shift: by how much it moves a draw, in grid steps.
            sigma: of the draw, in grid steps.

        Returns:
            By how much it moves the outcome, and how much longer a step of it may be than a draw's.
        """

    def shown(self, numbers: int | None) -> Mapping[str, Any]:
        """What a plan shows of it, by its option's key (`plan_options.py`), for such sums."""


@dataclass(frozen=True)
class IndependentNoise:
    """Noise of each step's own (P1)."""

    coefficients: tuple[int, ...] = ()
    epoch: int = 1
    growth: float = 1.0

    @property
    def column(self) -> NDArray[np.float64]:
        """Of the identity."""
        return np.ones(1)

    def charged_rate(self, rate: float) -> float:
        """See `StepNoise`."""
        return rate

    def batch_rows(self, capacity: int, rate: float) -> int:
        """See `StepNoise`."""
        return most_rows(capacity, rate)

    def rounded(self, shift: float, sigma: float) -> tuple[float, float]:
        """See `StepNoise`."""
        return shift, 1.0

    def shown(self, numbers: int | None) -> Mapping[str, Any]:
        """Nothing: it is the noise that is expected."""
        return {}


INDEPENDENT = IndependentNoise()
