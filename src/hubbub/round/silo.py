"""A silo's part in a round: the only place where records become something that leaves.

Theory of operation. `accept` checks the aggregator's MODEL and says what answering it would cost
(a `Charge`). Whoever runs the silo writes the charge to the ledger, durably, and only then calls
`contribute`, which can be called once per accepted model. So a crash may over-count and never
under-count. Everything that is done with data is in `contribute`, in the order in which
docs/privacy.md proves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub import noise
from hubbub.errors import ProtocolError
from hubbub.randomness import SecureSource
from hubbub.round.answering import Answering, Attempt
from hubbub.round.terms import Parameters, Terms

Array = NDArray[np.float64]


class LocalTask(Protocol):
    """What a silo can do with its own records; the learning layer implements it."""

    @property
    def count(self) -> int:
        """Number of records; never leaves the silo."""

    def clipped_sum(self, parameters: Parameters, chosen: NDArray[np.intp]) -> Array:
        """Sum over the chosen records of gradients clipped to norm C (docs/privacy.md P14)."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What an accepted model will cost, to be written down before the answer leaves."""

    round: int
    attempt: int


class Silo:
    """One silo in one session.

    Args:
        terms: the numbers of the rounds.
        task: the silo's records.
        answering: checks models and hides answers.
        source: the silo's randomness.
    """

    def __init__(
        self, *, terms: Terms, task: LocalTask, answering: Answering, source: SecureSource
    ) -> None:
        self._terms, self._task = terms, task
        self._answering, self._source = answering, source
        self._accepted: Attempt | None = None

    def accept(self, model: bytes) -> Charge:
        """Check the aggregator's model for a new attempt at a round.

        Raises:
            ProtocolError: it is not from the aggregator, not for this session, not new, or names
                too few silos.
        """
        self._accepted = None
        self._accepted = self._answering.accept(model)
        return Charge(round=self._accepted.round, attempt=self._accepted.attempt)

    def contribute(self) -> bytes:
        """The masked answer to the accepted model; the charge has been written before.

        Raises:
            ProtocolError: no model was accepted since the last answer.
        """
        attempt, self._accepted = self._accepted, None
        if attempt is None:
            raise ProtocolError("expected an accepted model before contributing, got none")
        terms = self._terms
        chosen = self._source.chosen(self._task.count, terms.sample_rate)  # P1: Poisson
        total = self._task.clipped_sum(attempt.parameters, chosen)  # P14: each record within C
        total /= terms.grid_step
        residues = noise.add_noise_and_round(  # P3, P5: this silo's share, before rounding
            total, terms.sigma_grid, self._source, terms.word_bits
        )
        return self._answering.masked(attempt, residues)  # P4: only the whole sum is visible

    def decline(self) -> None:
        """Give up the accepted model, whose charge was refused: it cannot be answered any more."""
        self._accepted = None

    def shares(self) -> dict[int, bytes]:
        """With full shares, what goes to the compute nodes with the last answer; else nothing."""
        return self._answering.shares()
