"""A silo's part in a round: the only place where records become something that leaves.

Theory of operation. `accept` checks the aggregator's MODEL and says what answering it would cost
(a `Charge`). Whoever runs the silo writes the charge to the ledger, durably, and only then calls
`contribute`, which can be called once per accepted model. So a crash may over-count and never
under-count. Everything that is done with data is in `contribute`, in the order in which
docs/privacy.md proves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import ProtocolError
from hubbub.protocol.agreement import JointSeed
from hubbub.protocol.primitives import CorrelatedNoise, SecureSource, noise, ring
from hubbub.protocol.projection import Draw
from hubbub.protocol.round import batch_rows, joint_batch, projected_sum, round_parameters
from hubbub.protocol.round.masking import Attempt, Masking


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What an accepted model will cost, to be written down before the answer leaves."""

    round: int
    attempt: int
    row: int = 0  # of the session, from 1, where noise is correlated (P25)


class Silo:
    """One silo in one session.

    Args:
        terms: the numbers of the rounds.
        task: the silo's records.
        masking: checks models and hides answers.
        source: the silo's randomness; every attempt draws from a branch of it.
        seeds: the silo's part of the joint seeds, where the terms need them.
    """

    def __init__(
        self,
        *,
        round_parameters: round_parameters.RoundParameters,
        task: projected_sum.LocalTask,
        masking: Masking,
        source: SecureSource,
        seeds: JointSeed | None = None,
    ) -> None:
        self._round_parameters, self._task = round_parameters, task
        self._masking, self._source, self._seeds = masking, source, seeds
        self._accepted: Attempt | None = None
        self._seed: bytes | None = None
        self._tokens: joint_batch.Tokens | None = None
        self._noise: CorrelatedNoise | None = None
        self.groups: batch_rows.Groups | None = None
        if (
            round_parameters.correlation
        ):  # P25: one block of the matrix, and one division, for each session
            self._noise = CorrelatedNoise(
                round_parameters.correlation,
                round_parameters.dimension,
                round_parameters.sigma_grid,
            )
            self.groups = batch_rows.Groups(source, task.capacity, round_parameters.bands)

    def accept(self, model: bytes) -> Charge:
        """Check the aggregator's model for a new attempt at a round.

        Raises:
            ProtocolError: it is not from the aggregator, not for this session, not new, or names
                too few silos.
        """
        try:
            accepted = self._masking.accept(model)
        except ProtocolError as error:
            if error.culprit != "relay":  # a signed lie ends the attempt, a stray message does not
                self.decline()
            raise
        self._accepted, self._seed = accepted, None
        return Charge(round=accepted.round, attempt=accepted.attempt, row=accepted.row)

    def take_list(self, positions: NDArray[np.intp], first: int) -> None:
        """From now on, draw joint batches from a new shuffled token list.

        Args:
            positions: of the silo's own records in the list, (records,); known to nobody else.
            first: the round for which the list was made.

        Raises:
            ProtocolError: an attempt is open, whose seed may have been known to who made the list.
        """
        if self._accepted is not None:
            raise ProtocolError(
                "expected a new shuffled token list before a model is accepted, got it after; make "
                "the list first"
            )
        self._tokens = joint_batch.Tokens(positions, first)

    def reveal(self) -> bytes:
        """This silo's part of the joint seed; nobody can choose the accepted model by it any more.

        Raises:
            ProtocolError: no model was accepted.
        """
        attempt, seeds = self._opened(), self._seeds
        if seeds is None:
            raise ProtocolError("expected a study with joint seeds, got one without; nothing sent")
        return seeds.reveal(attempt.round, attempt.attempt)

    def learn_seed(self, links: Sequence[bytes]) -> None:
        """The joint seed of the accepted attempt, from the links of all active silos.

        Raises:
            ProtocolError: naming who has revealed nothing, or what it had not committed to.
        """
        attempt, seeds = self._opened(), self._seeds
        assert seeds is not None, "reveal comes first"  # noqa: S101
        self._seed = seeds.seed(attempt.round, attempt.attempt, attempt.active, links)

    def contribute(self) -> bytes:
        """The masked answer to the accepted model; the charge has been written before.

        Raises:
            ProtocolError: no model was accepted since the last answer.
        """
        attempt = self._opened()
        self._accepted = None
        source = self._source.branch(b"attempt" + attempt.model)  # P3: no attempt draws another's
        round_parameters, draw, rows = (
            self._round_parameters,
            self._draw(attempt),
            self._rows(attempt, source),
        )
        total = projected_sum.clipped_sum(
            round_parameters, self._task, attempt.parameters, rows, draw
        )  # P14, P8
        residues = self._noised(total, attempt, source)
        masked = self._masking.masked(attempt, residues)  # P4: only the whole sum is visible
        self._source.renew()
        return masked

    def _noised(
        self, total: NDArray[np.float64], attempt: Attempt, source: SecureSource
    ) -> ring.Residues:
        """The sum with this silo's share of the noise, which is added before rounding (P3, P5)."""
        round_parameters = self._round_parameters
        if self._noise is None:
            # P3: the share of the set that this very MODEL names.
            sigma = round_parameters.share_sigma_grid(len(attempt.active))
            return noise.add_noise_and_round(
                total,
                sigma,
                source,
                round_parameters.word_bits,
                grid_step=round_parameters.grid_step,
            )
        share = self._noise.row(attempt.row, source)  # P25: each row once
        return noise.add_and_round(
            total, share, round_parameters.word_bits, grid_step=round_parameters.grid_step
        )

    def _opened(self) -> Attempt:
        """The accepted attempt."""
        if self._accepted is None:
            raise ProtocolError("expected an accepted model before contributing, got none")
        return self._accepted

    def _rows(self, attempt: Attempt, source: SecureSource) -> batch_rows.Rows:
        """The silo's records in the batch, in as many rows as are public (P19)."""
        round_parameters, task = self._round_parameters, self._task
        if self.groups is not None:
            return self.groups.rows(source, task.count, attempt.row, round_parameters.sample_rate)
        if not round_parameters.batch:  # P1
            return batch_rows.poisson_rows(
                source, task.count, task.capacity, round_parameters.sample_rate
            )
        if self._tokens is None or self._seed is None:
            raise ProtocolError(
                "expected a shuffled token list and a joint seed, got none; get them"
            )
        chosen = self._tokens.chosen(
            round_parameters, self._seed, attempt.round
        )  # P9: joint batches
        return batch_rows.joint_rows(source, chosen, round_parameters.batch, task.count)

    def _draw(self, attempt: Attempt) -> Draw | None:
        """The matrix of the attempt, where sums are projected (P8)."""
        if not self._round_parameters.projection:
            return None
        if self._seed is None:
            raise ProtocolError("expected a joint seed for the projection, got none; learn it")
        return projected_sum.draw_of(self._seed, attempt.round, attempt.attempt, attempt.parameters)

    def decline(self) -> None:
        """Give up the accepted model, whose charge was refused: it cannot be answered any more."""
        self._accepted = self._seed = None

    def forget(self) -> None:
        """The session is over: erase what is kept of its noise (P25)."""
        if self._noise is not None:
            self._noise.erase()

    def shares(self) -> dict[int, bytes]:
        """With full shares, what goes to the compute nodes with the last answer; else nothing."""
        return self._masking.shares()
