"""From guesses about canaries to a lower bound on epsilon (docs/privacy.md P18).

A rule says of some canaries which side their coins show, by their scores. Of an (epsilon, delta)-DP
mechanism its true positive rate is at most e^epsilon times its false positive rate, and delta more;
so both rates, each bounded on its own side, bound epsilon from below.

This file knows scores and coins, and nothing of where they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

_THRESHOLDS = 200  # that are tried on each side
LOOKS = 2 * _THRESHOLDS  # at trials by which a rule is chosen
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What was seen of canaries, larger where a coin is more likely True, and their coins."""

    scores: Array
    coins: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Says True of scores of at least `threshold`, or else False of those below it."""

    threshold: float
    says: bool


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How many positives and negatives there were, and of how many each a rule spoke."""

    true: int
    positives: int
    false: int
    negatives: int


def chosen_rule(trials: Trials, delta: float, confidence: float) -> Rule:
    """The rule that does best on these trials; others must judge it.

    Each is taken at a confidence that many could have at once, or a lucky one would be chosen.
    """
    confidence = 1 - (1 - confidence) / LOOKS
    return _best(trials, partial(_bounds, delta=delta, confidence=confidence))


def surest_rule(trials: Trials) -> Rule:
    """The rule whose guesses are right most often."""

    def right(true: Counts, positives: int, false: Counts, negatives: int) -> Array:
        return true / max(positives, 1) - false / max(negatives, 1)

    return _best(trials, right)


def widest_rule(trials: Trials, confidence: float) -> Rule:
    """The rule whose rates lie furthest apart, as quantiles of a normal law.

    It is the best one where scores are about Gaussian, as after many steps, whatever delta is.
    """
    from scipy.special import ndtri  # which takes long to import

    confidence = 1 - (1 - confidence) / LOOKS

    def apart(true: Counts, positives: int, false: Counts, negatives: int) -> Array:
        least, most = _worst(true, positives, false, negatives, confidence)
        return np.where(least > 0, ndtri(least) - ndtri(np.maximum(most, _TINY)), -np.inf)

    return _best(trials, apart)


def _best(trials: Trials, worth: Callable[[Counts, int, Counts, int], Array]) -> Rule:
    """The rule of the largest worth, by what `_counted` says of each."""
    best = []
    for says, thresholds in _thresholds(trials.scores):
        worths = worth(*_counted(trials, thresholds, says))
        place = int(np.argmax(worths))
        best.append((float(worths[place]), float(thresholds[place]), says))
    _, threshold, says = max(best)
    return Rule(threshold=threshold, says=says)


def worst_rates(rates: Rates, confidence: float) -> tuple[float, float]:
    """The least true and the largest false positive rate; both hold with this confidence (P18)."""
    true, false = np.array([rates.true]), np.array([rates.false])
    least, most = _worst(true, rates.positives, false, rates.negatives, confidence)
    return float(least[0]), float(most[0])


def worst_distance(rates: Rates, confidence: float) -> float:
    """How far apart two laws are at least, in total variation, by how many guesses were right.

    A rule guesses every coin, one side where it speaks and the other where it does not. Guesses are
    right with a chance of (1 + distance) / 2 at most, where coins are fair (P18).
    """
    right = np.array([rates.true + rates.negatives - rates.false])
    wrong = rates.positives + rates.negatives - right
    return 2 * float(_inverse(right, wrong + 1, 1 - confidence)[0]) - 1


def rates_of(rule: Rule, trials: Trials) -> Rates:
    """How a rule does on these trials."""
    true, positives, false, negatives = _counted(trials, np.array([rule.threshold]), rule.says)
    return Rates(true=int(true[0]), positives=positives, false=int(false[0]), negatives=negatives)


def lower_bound(rates: Rates, delta: float, confidence: float) -> float:
    """Epsilon is at least so large, at `delta`, but for a chance of 1 - confidence (P18).

    Requires: the rule was chosen without looking at these trials, which are independent.
    """
    true, false = np.array([rates.true]), np.array([rates.false])
    epsilon = _bounds(true, rates.positives, false, rates.negatives, delta, confidence)
    return max(0.0, float(epsilon[0]))


def _thresholds(scores: Array) -> tuple[tuple[bool, Array], tuple[bool, Array]]:
    """For rules that say True, and False, of so few or of up to half of the scores."""
    # Of strict deltas and seldom sampled records the few largest or smallest scores tell most.
    ordered = np.sort(scores)
    few = np.geomspace(1, max(1, ordered.size // 2), _THRESHOLDS).astype(np.intp)
    return (True, ordered[ordered.size - few]), (False, ordered[np.minimum(few, scores.size - 1)])


def _counted(trials: Trials, thresholds: Array, says: bool) -> tuple[Counts, int, Counts, int]:
    """True and false positives of a rule at each threshold, and how many there could be."""
    one, other = (np.sort(trials.scores[trials.coins == side]) for side in (True, False))
    low, high = np.searchsorted(one, thresholds), np.searchsorted(other, thresholds)
    if says:
        return one.size - low, one.size, other.size - high, other.size
    return high, other.size, low, one.size


def _bounds(
    true: Counts, positives: int, false: Counts, negatives: int, delta: float, confidence: float
) -> Array:
    """log((true positive rate - delta) / false positive rate), both at their worst."""
    least, most = _worst(true, positives, false, negatives, confidence)
    return np.log(np.maximum(least - delta, _TINY) / most)


def _worst(
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
