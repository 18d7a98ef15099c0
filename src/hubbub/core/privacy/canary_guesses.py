"""From guesses about canaries to a lower bound on epsilon (docs/privacy.md P18).

A rule says of some canaries which side their coins show. Of an (epsilon, delta)-DP mechanism its
true positive rate is at most e^epsilon times its false positive rate, and delta more; so both
rates, each bounded on its own side, bound epsilon from below.

This file knows counts, and nothing of where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How many positives and negatives there were, and of how many each a rule spoke."""

    true: int
    positives: int
    false: int
    negatives: int


def worst_rates(rates: Rates, confidence: float) -> tuple[float, float]:
    """The least true and the largest false positive rate; both hold with this confidence (P18)."""
    true, false = np.array([rates.true]), np.array([rates.false])
    least, most = worst_of(true, rates.positives, false, rates.negatives, confidence)
    return float(least[0]), float(most[0])


def worst_distance(rates: Rates, confidence: float) -> float:
    """How far apart two laws are at least, in total variation, by how many guesses were right.

    A rule guesses every coin, one side where it speaks and the other where it does not. Guesses are
    right with a chance of (1 + distance) / 2 at most, where coins are fair (P18).
    """
    right = np.array([rates.true + rates.negatives - rates.false])
    wrong = rates.positives + rates.negatives - right
    return 2 * float(_inverse(right, wrong + 1, 1 - confidence)[0]) - 1


def lower_bound(rates: Rates, delta: float, confidence: float) -> float:
    """Epsilon is at least so large, at `delta`, but for a chance of 1 - confidence (P18).

    Requires: the rule was chosen without looking at these trials, which are independent.
    """
    true, false = np.array([rates.true]), np.array([rates.false])
    epsilon = lower_bounds(true, rates.positives, false, rates.negatives, delta, confidence)
    return max(0.0, float(epsilon[0]))


def lower_bounds(
    true: Counts, positives: int, false: Counts, negatives: int, delta: float, confidence: float
) -> Array:
    """log((true positive rate - delta) / false positive rate), both at their worst."""
    least, most = worst_of(true, positives, false, negatives, confidence)
    return np.log(np.maximum(least - delta, TINY) / most)


def worst_of(
    true: Counts, positives: int, false: Counts, negatives: int, confidence: float
) -> tuple[Array, Array]:
    """The least true and the largest false positive rates."""
    miss = (1 - confidence) / 2  # half of it for each of two rates
    least = _inverse(true, positives - true + 1, miss)
    return least, _inverse(false + 1, negatives - false, 1 - miss)


def _inverse(successes: Counts, failures: Counts, level: float) -> Array:
    """Quantiles of beta laws: 0 without successes, 1 without failures (Clopper, Pearson 1934)."""
    from scipy.special import betaincinv

    inside = betaincinv(np.maximum(successes, 1), np.maximum(failures, 1), level)
    return np.where(successes == 0, 0.0, np.where(failures == 0, 1.0, inside))
