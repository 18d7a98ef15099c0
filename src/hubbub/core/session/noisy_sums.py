"""Noisy sums of one purpose, in one session after another, as sessions come to an end.

A run's training is such a series, and so is whatever else it asks of the silos. A lost session is
followed by a new one, which has new keys, masks and batches; what the silos had paid for in the old
one is spent (docs/privacy.md P15). This file knows how a sum becomes numbers again; it does not
know what is summed, or why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.projection.product import Lift
from hubbub.core.protocol.round.projected_sum import draw_of
from hubbub.core.protocol.round.revealed_sum import RevealedSum
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.core.session.ask import AbsentError
from hubbub.core.session.recorder import Recorder
from hubbub.core.session.rounds import Rounds

NoisySum = NDArray[np.float64] | RevealedSum


@dataclass(kw_only=True)
class NoisySums:
    """Sums of one purpose.

    Args:
        set_up: sets a session up.
        record: where the messages of a session are kept.
        round_parameters: the numbers of the rounds.
        epoch: attempts that one row in a ledger pays for (P9).
        lost: told of a lost session: the number of its round, and how many were lost in a row
            without a sum; raises unless a new session would help.
        lift: from a projected sum and its draw to the whole one, where sums are projected.
        rounds: the session that is open.
    """

    set_up: Callable[[], Rounds]
    record: Callable[[Rounds], Recorder]
    round_parameters: RoundParameters
    epoch: int
    lost: Callable[[int, int, AbsentError], None]
    lift: Lift | None = None
    rounds: Rounds = field(init=False)
    _in_a_row: int = 0

    def __post_init__(self) -> None:
        self._open()

    def round(
        self, number: int, parameters: Parameters, attempts: int
    ) -> tuple[NoisySum | None, int]:
        """A round's noisy sum.

        Args:
            number: from 1.
            parameters: the model.
            attempts: the most to make, in all sessions.

        Returns:
            The sum in units of the gradient, None if every attempt failed, and the attempts made.
        """
        attempts_made = 0
        while attempts_made < attempts:
            try:
                total, count = self.rounds.round(number, parameters, attempts - attempts_made)
            except AbsentError as lost:
                attempts_made += self.rounds.attempts_begun
                # P9: where a kept list is lost, its epoch is paid for to the end.
                attempts_made += (
                    -(self.round_parameters.steps - attempts + attempts_made) % self.epoch
                )
                self.rounds.recorder.seal()
                self._in_a_row += 1
                self.lost(number, self._in_a_row, lost)
                self.rounds.recorder.close()
                self._open()
                continue
            attempts_made += count
            self.rounds.recorder.seal()
            if total is not None:
                self._in_a_row = 0
                return self._decoded(total, number, count - 1, parameters), attempts_made
        return None, attempts_made

    def _decoded(
        self, total: ring.Integers, number: int, attempt: int, parameters: Parameters
    ) -> NoisySum:
        """A sum in units of the gradient, back from the projection where there is one."""
        values, seed = RevealedSum(self.round_parameters, total), self.rounds.aggregator.seed
        if self.lift is None or seed is None:
            return values
        return self.lift(
            np.asarray(values),
            draw_of(seed, number, attempt, self.round_parameters.sent(parameters)),
        )

    def _open(self) -> None:
        """A new session, whose messages are kept from the first."""
        self.rounds = self.set_up()
        self.rounds.recorder = self.record(self.rounds)
        for frame in self.rounds.opening:
            self.rounds.recorder.keep(frame)
        self.rounds.recorder.seal()  # before any round rests on it
