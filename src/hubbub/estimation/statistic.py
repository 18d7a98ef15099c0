"""What every kind of statistic can do: the contract between layouts, stacking and a session.

A statistic is made of public settings and columns alone. It turns records into vectors whose
length it bounds, and a noisy sum of them into an answer. It knows neither silos nor budgets.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.answer import Answer, Expectation
from hubbub.estimation.levels import Array, Cells

Parameters = NDArray[np.float32]


class Statistic(Protocol):
    """What all statistics of a study have in common: a block of the vector, and its bounds."""

    @property
    def kind(self) -> str:
        """Its kind, "table" for example."""

    @property
    def title(self) -> str:
        """What it shows, in one line."""

    @property
    def weight(self) -> float:
        """How much its errors count against those of others; positive, no unit."""

    @property
    def importance(self) -> float:
        """What noise does to answers of its kind, beside survival curves: a public constant."""

    @property
    def size(self) -> int:
        """How many numbers its block has."""

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block; no unit."""

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks; no unit."""

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block."""


@runtime_checkable
class OneSum(Statistic, Protocol):
    """One that needs a single sum."""

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""


@runtime_checkable
class Iterated(Statistic, Protocol):
    """One that needs a few sums, each taken at the parameters that the sum before it gave."""

    @property
    def rounds(self) -> int:
        """How many sums it needs."""

    @property
    def start(self) -> Parameters:
        """Parameters of the first sum."""

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        """The blocks of n records at these parameters, (n, size); bounded whatever these are."""

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        """The parameters after a noisy sum that was taken at `parameters`."""

    def answer_from(self, sums: Array, sigma: float) -> Answer:
        """The answer from all noisy sums, (rounds, size), the first of them taken at `start`."""
