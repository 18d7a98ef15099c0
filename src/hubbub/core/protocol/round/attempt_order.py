"""The order of attempts, as each party keeps it: time goes forward only, who left stays away."""

from __future__ import annotations

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import Frame, doubled_by
from hubbub.core.protocol.round.round_parameters import RoundParameters


class Turn:
    """The last (round, attempt) that a party used up; time only goes forward."""

    def __init__(self) -> None:
        self.last = (0, 0)
        self._taken = b""
        self._used = 0

    def take(self, frame: Frame, steps: int, sender: str) -> None:
        """Use the time of a frame up: masks, noise and totals exist once for each."""
        late = (1, 0) <= (frame.round, frame.attempt) < self.last
        culprit = "relay" if late else doubled_by(frame, self._taken, sender)
        self.advance(frame.round, frame.attempt, steps, culprit=culprit)
        self._taken = frame.digest

    def advance(self, round: int, attempt: int, steps: int, *, culprit: str = "") -> None:
        """Go on to a later time; to blame is who asked for one that is not later."""
        if not 1 <= round <= steps:
            raise ProtocolError(f"expected a round from 1 to {steps}, got {round}", culprit=culprit)
        if (round, attempt) <= self.last:
            raise ProtocolError(
                f"expected a round after {self.last[0]}.{self.last[1]}, got {round}.{attempt}: "
                "a mask is never used twice",
                culprit=culprit,
            )
        if self._used >= steps:
            raise ProtocolError(
                f"expected at most {steps} attempts in a session, got another: each one costs as "
                "much as a step of the study",
                culprit=culprit,
            )
        self._used += 1
        self.last = (round, attempt)


class PresentThroughout:
    """Who has a part in all sums of a session so far (P25).

    Noise that goes on over the attempts of a session keeps its promise for those silos that were in
    every sum of it. So whoever leaves does not come back before the next session.

    Args:
        round_parameters: the numbers of the rounds; where noise does not go on nothing is asked.
    """

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._asked = round_parameters.needs_every_attempt
        self._present: frozenset[int] | None = None  # everybody, whom nobody need list

    def stay(self, silos: frozenset[int], sender: str) -> None:
        """Only these are left.

        Raises:
            ProtocolError: some of them had left; to blame is who has signed their names.
        """
        if not self._asked:
            return
        if self._present is not None and not silos <= self._present:
            raise ProtocolError(
                f"expected {', '.join(map(str, sorted(silos - self._present)))} to stay away until "
                "the next session, got them back: their noise has a gap",
                culprit=sender,
            )
        self._present = silos
