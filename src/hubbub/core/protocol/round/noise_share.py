"""A silo's share of the noise, added to its sum before it is rounded (P3, P5).

A study has one of these for each session; the silo knows no more of it. Where a sum's noise is its
own, it goes by the number of silos that the MODEL names; where noise is correlated, by the number
of the attempt in its session.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives import noise, ring
from hubbub.core.protocol.primitives.correlated_noise import CorrelatedNoise
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.masking import Attempt
from hubbub.core.protocol.round.round_parameters import RoundParameters

Array = NDArray[np.float64]


class NoiseShare(Protocol):
    """What a silo adds to its sum."""

    def added(self, total: Array, attempt: Attempt, source: SecureSource) -> ring.Residues:
        """The sum with the noise of an attempt, rounded to the grid.

        Args:
            total: the silo's sum, (dimension,).
            attempt: that was accepted.
            source: of the noise, a branch that no other attempt draws from.
        """

    def erase(self) -> None:
        """The session is over: keep nothing of its noise."""


class IndependentShare:
    """Noise of each sum's own (P3): the share of the set that its very MODEL names."""

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._round_parameters = round_parameters

    def added(self, total: Array, attempt: Attempt, source: SecureSource) -> ring.Residues:
        """See `NoiseShare`."""
        numbers = self._round_parameters
        # A plain secure sum: whole numbers on a grid of step 1, which float64 would round.
        if numbers.sigma_grid == 0 and total.dtype == np.int64:
            return ring.to_residues(total.astype(np.int64, copy=False), numbers.word_bits)
        # P3: pairwise masks open this sum for the set that this very MODEL names alone. With nodes,
        # which may open it for fewer, shares are the same in every attempt.
        sigma = numbers.share_sigma_grid(len(attempt.active))
        return noise.add_noise_and_round(
            total, sigma, source, numbers.word_bits, grid_step=numbers.grid_step
        )

    def erase(self) -> None:
        """Nothing is kept."""


class CorrelatedShare:
    """Noise that later sums take partly back (P25): each row of it once."""

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._round_parameters = round_parameters
        # P3: fixed shares, since the noise of one attempt goes on into the sums of later ones,
        # whose sets are not known yet.
        self._rows = CorrelatedNoise(
            round_parameters.correlation, round_parameters.dimension, round_parameters.sigma_grid
        )

    def added(self, total: Array, attempt: Attempt, source: SecureSource) -> ring.Residues:
        """See `NoiseShare`."""
        numbers = self._round_parameters
        # P25, rule 1: the row has the number of the attempt. Those of attempts that were accepted
        # and not answered are drawn on the way and never sent.
        share = self._rows.row(attempt.row, source)
        return noise.add_and_round(total, share, numbers.word_bits, grid_step=numbers.grid_step)

    def erase(self) -> None:
        """See `NoiseShare`."""
        self._rows.erase()


def noise_share_of(round_parameters: RoundParameters) -> NoiseShare:
    """The noise of one silo in one session."""
    if round_parameters.noise_epoch > 1:
        return CorrelatedShare(round_parameters)
    return IndependentShare(round_parameters)
