"""Who is in a silo's batch: each by a coin of its own, groups in turn, or all silos draw together.

A study has one of these for each session; the silo asks it for rows and knows no more of it.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.masking import Attempt
from hubbub.core.protocol.round.round_parameters import RoundParameters

# The rows of a batch: where a silo's chosen records stand, in a shape that tells nothing (P19).
#
# A silo has a public *capacity*, at least its number of records, and a batch a public number of
# rows. Every place of the capacity tosses a coin, whether there is a record at it or not; all coins
# are tossed again while there are more heads than rows; the heads go to distinct rows by a fresh
# uniform injection. A row without a record is EMPTY. So how many rows there are follows from public
# sizes, and which are filled from secret coins, never from what a record says.
#
# Where noise is correlated over b attempts (P25), places are divided into b groups that take turns.
# Who is in which group is drawn once in a session, for places and not for records: a record that is
# exchanged for another stays in its group. A group's chance is b times as large, up to 1.

Rows = NDArray[np.intp]

EMPTY = -1
# The chance that all coins are tossed again. It costs no privacy, and less than that of the signal.
_REDRAWN = 0.02


@lru_cache(maxsize=4096)
def most_rows(capacity: int, rate: float) -> int:
    """The public number of rows in a Poisson batch, at least 1.

    Args:
        capacity: the most records that the silo may hold.
        rate: probability with which a record is in a batch.

    Returns:
        The least number that at most one batch in fifty exceeds.
    """
    from scipy.special import bdtrc  # which takes long to import

    if rate >= 1:
        return max(1, capacity)
    rows = max(1, int(rate * capacity))
    while bdtrc(rows, capacity, rate) > _REDRAWN:
        rows += 1
    return min(rows, max(1, capacity))


def poisson_rows(source: SecureSource, records: int, capacity: int, rate: float) -> Rows:
    """A Poisson batch in its rows (P1, P19).

    Args:
        source: of the coins and the injection.
        records: how many there are, at most `capacity`.
        capacity, rate: as for `most_rows`.

    Returns:
        (most_rows,) positions of records, or EMPTY.
    """
    # P19: all coins again, and no head is left out: that costs nothing, even where it is seen.
    rows = most_rows(capacity, rate)
    while (heads := source.chosen(capacity, rate)).size > rows:
        pass
    # P19: places without a record toss their coins, too, so coins tell nothing of how many there
    # are.
    return injected(source, np.where(heads < records, heads, EMPTY), rows)


def group_rate(rate: float, turns: int) -> float:
    """With which chance a record of the group whose turn it is comes into the batch."""
    together = rate * turns
    return 1.0 if together > 1 - 1e-9 else together


def group_rows(capacity: int, rate: float, turns: int) -> int:
    """The public number of rows in a batch of one of so many groups; one group is everybody."""
    return most_rows(ceil(capacity / turns), group_rate(rate, turns))


class Groups:
    """In which group each place of one silo is, for one session.

    Args:
        capacity: the most records that the silo may hold.
        turns: how many groups there are.
    """

    def __init__(self, source: SecureSource, capacity: int, turns: int) -> None:
        # P25: of places, so that two records that are exchanged are in one group; sizes are public.
        self._groups, self._turns = source.permutation(capacity) % turns, turns

    def of(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """In which group places are, from 0: nothing that the account needs kept (P25)."""
        return np.asarray(self._groups[places], dtype=np.intp)

    def __repr__(self) -> str:
        return "Groups(<secret>)"

    def most(self, rate: float) -> int:
        """The public number of rows in a batch."""
        return group_rows(self._groups.size, rate, self._turns)

    def heads(self, source: SecureSource, attempt: int, rate: float) -> NDArray[np.intp]:
        """The places in the batch of an attempt, from 1, with or without a record (P1, P25).

        Args:
            attempt: in its session, from 1.
            rate: of the study, as if all took part in every attempt.
        """
        turn = np.flatnonzero(self._groups == (attempt - 1) % self._turns)
        # P19, P25: coins of the group alone, and all of them again.
        most, each = self.most(rate), group_rate(rate, self._turns)
        while (heads := source.chosen(turn.size, each)).size > most:
            pass
        return np.asarray(turn[heads])

    def rows(self, source: SecureSource, records: int, attempt: int, rate: float) -> Rows:
        """The batch of an attempt in its rows (P19)."""
        heads = self.heads(source, attempt, rate)
        return injected(source, np.where(heads < records, heads, EMPTY), self.most(rate))


def joint_rows(source: SecureSource, chosen: NDArray[np.intp], batch: int, records: int) -> Rows:
    """A silo's part of a joint batch in its rows: the number of its records is public there (P19).

    Args:
        chosen: positions of the silo's records in the batch.
        batch: records in the batch, of all silos.
        records: how many the silo has.
    """
    return injected(source, chosen, min(batch, records))


def injected(source: SecureSource, chosen: NDArray[np.intp], rows: int) -> Rows:
    """The chosen records in distinct rows, uniformly; the other rows are EMPTY.

    Args:
        chosen: positions of at most `rows` records.
        rows: public.
    """
    placed = np.full(rows, EMPTY, dtype=np.intp)
    # P19: in the order of their places, one record's coin would shift the rows of all after it.
    placed[source.permutation(rows)[: chosen.size]] = chosen
    return placed


class Batches(Protocol):
    """Which of a silo's records take part in an attempt, in how many rows (P19).

    Attributes:
        most: rows that a batch may have; public.
    """

    most: int

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> Rows:
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
        self.most = most_rows(capacity, rate)

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> Rows:
        """By the silo's own coins alone."""
        return poisson_rows(source, records, self._capacity, self._rate)


class GroupBatches:
    """The same, of groups of records that take turns (P25)."""

    def __init__(self, groups: Groups, rate: float) -> None:
        self.groups, self._rate = groups, rate
        self.most = groups.most(rate)

    def rows(
        self, source: SecureSource, records: int, attempt: Attempt, seed: bytes | None
    ) -> Rows:
        """Of the group whose turn the attempt is."""
        return self.groups.rows(source, records, attempt.row, self._rate)


def batches_of(round_parameters: RoundParameters, capacity: int, source: SecureSource) -> Batches:
    """The batches of one silo that draws alone, in one session.

    Who is in which group is drawn here, once.

    Raises:
        ProtocolError: in this session all silos draw together.
    """
    # P10: by coins of its own a silo's part of a joint batch would be of another law.
    if round_parameters.batch:
        raise ProtocolError("expected what joint batches are drawn from, got nothing")
    if round_parameters.noise_epoch > 1:
        groups = Groups(source, capacity, round_parameters.noise_epoch)
        return GroupBatches(groups, round_parameters.sample_rate)
    return PoissonBatches(capacity, round_parameters.sample_rate)
