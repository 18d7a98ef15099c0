"""The course of the model over a run: what it must be before each round, made again.

A run that was resumed has several sessions, each of which goes on from a round that an earlier one
came to, as its checkpoint has it; so the states before those rounds are kept. Where a sum could not
be made again, the model that was sent next is believed, which a finding states. This file takes
steps and knows no messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import ProtocolError
from hubbub.learning import Stepper, stepped
from hubbub.protocol import Parameters, RoundParameters


@dataclass(frozen=True, kw_only=True)
class _State:
    """The model before a round, and the optimizer; what is None could not be made again."""

    parameters: Parameters | None = field(repr=False)
    optimizer: Mapping[str, NDArray[Any]] | None = field(repr=False)


class Course:
    """The course of the model over all sessions of a run, which begin with the rounds `starts`.

    The `initial` model is None if it cannot be rebuilt here; sums are divided by `divisor`.
    """

    def __init__(
        self,
        initial: Parameters | None,
        optimizer: Stepper,
        *,
        divisor: float,
        starts: Iterable[int],
    ) -> None:
        self._optimizer, self._divisor = optimizer, divisor
        self._starts = frozenset(starts)
        self._lost = False
        self.parameters = initial
        self.before = initial  # the model before the last step
        self._states = {1: self._state()}

    def go_back(self, round: int) -> None:
        """Begin a session at a round; what was made of it and of later ones before is dropped."""
        if round not in self._states:
            raise ProtocolError(
                "expected the session to begin where an earlier one came to, found it beginning "
                f"with round {round}"
            )
        state = self._states[round]
        self.parameters, self._lost = state.parameters, state.optimizer is None
        if state.optimizer is not None:
            self._optimizer.load_state(state.optimizer)
        self._states = {at: one for at, one in self._states.items() if at <= round}

    def arrive(self, round: int) -> None:
        """Remember the state before a round from which another session goes on."""
        if round in self._starts:
            self._states[round] = self._state()

    def expect(self, sent: Parameters, terms: RoundParameters) -> None:
        """Compare a MODEL with what was made; where nothing could be made, it is believed.

        One that was shortened on its way is not what the next step starts from.
        """
        if self.parameters is None:
            self.parameters = None if terms.short_models else sent
            return
        made = terms.sent(self.parameters)
        if sent.tobytes() != made.tobytes():
            apart = np.count_nonzero(sent.view(np.uint32) != made.view(np.uint32))
            raise ProtocolError(
                f"expected the model that follows from what was sent before, found {apart} of "
                f"{sent.size} parameters to differ: the aggregator did not take that step"
            )

    def step(self, gradient: NDArray[np.float64] | None) -> None:
        """Take a step; None: it cannot be taken here, nor any after it."""
        self.before = self.parameters
        if gradient is None or self._lost or self.parameters is None:
            self.parameters, self._lost = None, True
        else:
            self.parameters = stepped(self._optimizer, self.parameters, gradient, self._divisor)

    def _state(self) -> _State:
        return _State(
            parameters=self.parameters,
            optimizer=None if self._lost else self._optimizer.state(),
        )
