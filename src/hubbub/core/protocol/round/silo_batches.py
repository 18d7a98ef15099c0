"""Who is in a silo's batch: each by a coin of its own, groups in turn, or all silos draw together.

A study has one of these for each session; the silo asks it for rows and knows no more of it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round import batch_rows, joint_batch
from hubbub.core.protocol.round.masking import Attempt
from hubbub.core.protocol.round.round_parameters import RoundParameters


class Batches(Protocol):
    """Which of a silo's records take part in an attempt, in how many rows (P19)."""

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> batch_rows.Rows:
        """The batch of an attempt.

        Args:
            source: of its coins, and of the injection into rows.
            records: how many the silo has.
            attempt: that was accepted.
            seed: of the attempt, to which all active silos have contributed; None if there is none.
        """


class PoissonBatches:
    """Every record by a coin of its own (P1)."""

    def __init__(self, capacity: int, rate: float) -> None:
        self._capacity, self._rate = capacity, rate

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> batch_rows.Rows:
        """By the silo's own coins alone."""
        return batch_rows.poisson_rows(source, records, self._capacity, self._rate)


class GroupBatches:
    """The same, of groups of records that take turns (P25)."""

    def __init__(self, groups: batch_rows.Groups, rate: float) -> None:
        self.groups, self._rate = groups, rate

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> batch_rows.Rows:
        """Of the group whose turn the attempt is."""
        return self.groups.rows(source, records, attempt.row, self._rate)


class TokenBatches:
    """All silos draw one batch of a public size from a shuffled token list (P9, P10)."""

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._round_parameters = round_parameters
        self._tokens: joint_batch.Tokens | None = None

    def take_list(self, positions: NDArray[np.intp], first: int) -> None:
        """From now on, draw from a new list; see `Silo.take_list`."""
        self._tokens = joint_batch.Tokens(positions, first)

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> batch_rows.Rows:
        """The silo's own among those that the joint seed has drawn.

        Raises:
            ProtocolError: there is no list, or no seed.
        """
        if self._tokens is None or seed is None:
            raise ProtocolError(
                "expected a shuffled token list and a joint seed, got none; get them"
            )
        chosen = self._tokens.chosen(self._round_parameters, seed, attempt.round)
        return batch_rows.joint_rows(source, chosen, self._round_parameters.batch, records)


def batches_of(
    round_parameters: RoundParameters, capacity: int, source: SecureSource
) -> PoissonBatches | GroupBatches | TokenBatches:
    """The batches of one silo in one session; who is in which group is drawn here, once."""
    if round_parameters.noise_epoch > 1:
        groups = batch_rows.Groups(source, capacity, round_parameters.noise_epoch)
        return GroupBatches(groups, round_parameters.sample_rate)
    if round_parameters.batch:
        return TokenBatches(round_parameters)
    return PoissonBatches(capacity, round_parameters.sample_rate)
