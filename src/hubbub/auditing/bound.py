"""From guesses about canaries to a lower bound on epsilon (docs/privacy.md P18).

A rule says of some canaries that they are there, by their scores. Of an (epsilon, delta)-DP
mechanism its true positive rate is at most e^epsilon times its false positive rate, and delta more;
so both rates, each bounded on its own side, bound epsilon from below. So do those of a rule that
says of some canaries that they are not there.

This file knows scores and coins, and nothing of where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

_THRESHOLDS = 400  # that are tried, at equal shares of all scores


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What was seen of canaries, and the coins that decided about them.

    Args:
        scores: one number for each, larger where the canary is more likely to be there.
        heads: whether it was there; of canaries that are exchanged, whether it was the first.
    """

    scores: Array
    heads: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Says "heads" of scores of at least `threshold`; or else "tails" of those below it."""

    threshold: float
    says_heads: bool


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How often a rule spoke, of those of whom it was right to and of the others.

    Args:
        true: how many it spoke of rightly, of `positives`.
        false: how many wrongly, of `negatives`.
    """

    true: int
    positives: int
    false: int
    negatives: int


def chosen_rule(trials: Trials, delta: float, confidence: float) -> Rule:
    """The rule with the largest bound on these trials; others must judge it.

    All rules' bounds hold at once, so that a lucky one does not look better than it is.
    """
    confidence = 1 - (1 - confidence) / (2 * _THRESHOLDS)
    shares = np.linspace(0.0, 1.0, _THRESHOLDS)
    thresholds = np.unique(np.quantile(trials.scores, shares, method="higher"))
    best = []
    for says_heads in (True, False):
        bounds = _bounds(*_counted(trials, thresholds, says_heads), delta, confidence)
        place = int(np.argmax(bounds))
        best.append((float(bounds[place]), float(thresholds[place]), says_heads))
    _, threshold, says_heads = max(best)
    return Rule(threshold=threshold, says_heads=says_heads)


def rates_of(rule: Rule, trials: Trials) -> Rates:
    """How a rule does on these trials."""
    found = _counted(trials, np.array([rule.threshold]), rule.says_heads)
    true, positives, false, negatives = (int(np.ravel(one)[0]) for one in found)
    return Rates(true=true, positives=positives, false=false, negatives=negatives)


def lower_bound(rates: Rates, delta: float, confidence: float) -> float:
    """Epsilon is at least so large, at `delta`, but for a chance of 1 - confidence (P18).

    Requires: the rule was chosen without looking at these trials, which are independent.
    """
    true, false = np.array([rates.true]), np.array([rates.false])
    return float(_bounds(true, rates.positives, false, rates.negatives, delta, confidence)[0])


def _counted(
    trials: Trials, thresholds: Array, says_heads: bool
) -> tuple[Counts, int, Counts, int]:
    """True and false positives of a rule at each threshold, and how many there could be."""
    here, gone = np.sort(trials.scores[trials.heads]), np.sort(trials.scores[~trials.heads])
    below = np.searchsorted(here, thresholds), np.searchsorted(gone, thresholds)
    if says_heads:
        return here.size - below[0], here.size, gone.size - below[1], gone.size
    return below[1], gone.size, below[0], here.size


def _bounds(
    true: Counts, positives: int, false: Counts, negatives: int, delta: float, confidence: float
) -> Array:
    """log((true positive rate - delta) / false positive rate), both at their worst; at least 0."""
    miss = (1 - confidence) / 2  # half of it for each of two rates
    least = _inverse(true, positives - true + 1, miss)
    most = _inverse(false + 1, negatives - false, 1 - miss)
    return np.log(np.maximum((least - delta) / most, 1.0))


def _inverse(successes: Counts, failures: Counts, level: float) -> Array:
    """Quantiles of beta laws: 0 without successes, 1 without failures (Clopper, Pearson 1934)."""
    inside = betaincinv(np.maximum(successes, 1), np.maximum(failures, 1), level)
    return np.where(successes == 0, 0.0, np.where(failures == 0, 1.0, inside))
