"""What finite precision and the mask graph add to ideal mechanisms (docs/privacy.md P4 to P6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf

_TRIES = 12


@dataclass(frozen=True, kw_only=True, order=True)
class Certificate:
    """If the ideal mechanism is (e, d)-DP, what is sent is (e', d')-DP.

    Here e' = e + `epsilon` and d' = `delta_factor` d + (1 + exp(e')) `slack` + `failure`.

    Args:
        epsilon: from rounding and the sampler's relative errors.
        slack: probability of outcomes whose relative error is not bounded.
        failure: probability that more is seen than the sum.
        delta_factor: from relative errors.
    """

    epsilon: float = 0.0
    slack: float = 0.0
    failure: float = 0.0
    delta_factor: float = 1.0

    def after(self, other: Certificate) -> Certificate:
        """Of both mechanisms, one after the other."""
        # P5, P6: ratios of densities multiply along a view, and probabilities of events add up.
        return Certificate(
            epsilon=self.epsilon + other.epsilon,
            slack=self.slack + other.slack,
            failure=self.failure + other.failure,
            delta_factor=self.delta_factor * other.delta_factor,
        )

    def added_delta(self, epsilon: float) -> float:
        """What is added to delta if at most `epsilon` is claimed."""
        # P6 (ii): laws are exchanged under both neighbours, and e^epsilon times the second is taken
        # away; what is only seen too much (P4) adds its probability once.
        return (1 + exp(epsilon)) * self.slack + self.failure

    def ideal_delta(self, delta: float, epsilon: float) -> float:
        """The delta that the ideal mechanism may use if at most `epsilon` is claimed at `delta`."""
        return (delta - self.added_delta(epsilon)) / self.delta_factor

    def is_within(self, kept: Certificate, epsilon: float) -> bool:
        """Whether it adds no more than what is kept for it, if at most `epsilon` is claimed."""
        return (
            self.epsilon <= kept.epsilon
            and self.delta_factor <= kept.delta_factor
            and self.added_delta(epsilon) <= kept.failure
        )

    def claim(self, ideal: Callable[[float], float], delta: float, *, near: float) -> float:
        """Epsilon of what is sent, at `delta`; inf if none was found to hold.

        `ideal` gives the ideal mechanism's epsilon at a delta. Upwards from `near`.
        """
        most = near
        for _ in range(_TRIES):
            left = self.ideal_delta(delta, most) if most < 700 else 0.0
            if left <= 0:
                return inf
            claimed = ideal(left) + self.epsilon
            # P6: the slack was counted for `most`, so it covers whatever is claimed below.
            if claimed <= most:
                return claimed
            most = 1.01 * claimed
        return inf


EXACT = Certificate()  # of ideal mechanisms
