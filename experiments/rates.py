"""What the scores of an attack show: rates of right and wrong hits, and least epsilon and delta.

Every (epsilon, delta) that is true of a mechanism allows an attack at most
`true positives <= e^epsilon false positives + delta`, so rates that were measured bound both from
below. The rates are bounded by Clopper and Pearson (1934). This file knows scores; it must not know
what was attacked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

DOUBT = 0.05  # that one of the two rates of an attack is outside its bound


@dataclass(frozen=True, kw_only=True)
class Hits:
    """How often an attack said yes.

    Args:
        true: where yes was right.
        false: where it was wrong.
        trials: how often each of the two was tried.
    """

    true: int
    false: int
    trials: int

    @property
    def true_least(self) -> float:
        """Lower bound on the rate of true positives; too high with probability DOUBT / 2."""
        return (
            float(beta.ppf(DOUBT / 2, self.true, self.trials - self.true + 1)) if self.true else 0
        )

    @property
    def false_most(self) -> float:
        """Upper bound on the rate of false positives; too low with probability DOUBT / 2."""
        if self.false == self.trials:
            return 1.0
        return float(beta.ppf(1 - DOUBT / 2, self.false + 1, self.trials - self.false))

    def epsilon(self, delta: float) -> float:
        """At this delta no smaller epsilon allows such rates, with confidence 1 - DOUBT."""
        sure = self.true_least - delta
        return max(0.0, log(sure / self.false_most)) if sure > 0 else 0.0

    def delta(self, epsilon: float) -> float:
        """At this epsilon no smaller delta allows such rates, with confidence 1 - DOUBT."""
        return max(0.0, self.true_least - exp(epsilon) * self.false_most)


def best_hits(
    right: NDArray[np.float64], wrong: NDArray[np.float64], worth: Callable[[Hits], float]
) -> Hits:
    """The hits of the threshold that is worth the most.

    It is chosen on the first half of the trials and measured on the second, so that the choice
    does not flatter the attack.

    Args:
        right: scores where yes is right; high scores say yes. Shape (trials,).
        wrong: scores where it is wrong. Shape (trials,).
        worth: of hits.
    """
    half = right.size // 2
    rates = np.geomspace(1 / half, 0.5, 60)
    tried = np.unique(np.quantile(wrong[:half], 1 - rates))

    def hits(threshold: float, part: slice) -> Hits:
        true, false = right[part] > threshold, wrong[part] > threshold
        return Hits(true=int(true.sum()), false=int(false.sum()), trials=true.size)

    best = max(tried, key=lambda threshold: worth(hits(threshold, slice(half))))
    return hits(best, slice(half, None))
