"""Rules that guess canaries' coins by their scores: chosen on some trials, judged on others (P18).

No bound rests on how a rule was chosen, as long as other trials judge it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from hubbub.core.planning.accounts import Account, account_of, least_certified, releases
from hubbub.core.planning.study_plan import main_of
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.canary_guesses import TINY, Rates, lower_bounds, worst_of
from hubbub.core.privacy.tradeoff import TradeOff, upper_curve
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.audit_result import WorstRates

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

_THRESHOLDS = 200  # that are tried on each side
LOOKS = 2 * _THRESHOLDS  # at trials by which a rule is chosen
_FINE = 12  # rules are told apart by 12ths of two octaves of noise, and between them by lines
_RARE = 1e-6  # delta at which their curves are sharpest


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


def chosen_rule(trials: Trials, delta: float, confidence: float) -> Rule:
    """The rule that does best on these trials; others must judge it.

    Each is taken at a confidence that many could have at once, or a lucky one would be chosen.
    """
    confidence = 1 - (1 - confidence) / LOOKS
    return _best(trials, partial(lower_bounds, delta=delta, confidence=confidence))


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
        least, most = worst_of(true, positives, false, negatives, confidence)
        return np.where(least > 0, ndtri(least) - ndtri(np.maximum(most, TINY)), -np.inf)

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


def rates_of(rule: Rule, trials: Trials) -> Rates:
    """How a rule does on these trials."""
    true, positives, false, negatives = _counted(trials, np.array([rule.threshold]), rule.says)
    return Rates(true=int(true[0]), positives=positives, false=int(false[0]), negatives=negatives)


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


class Choice:
    """Which of several rules shows most of a study, roughly: a few curves serve for all of them.

    They are those of the study without a projection, and of an adversary without records.
    """

    def __init__(self, study: Study, noise: float, confidence: float) -> None:
        mechanism = main_of(study).mechanism
        self._how = replace(account_of(mechanism), projected=None)
        self._steps, self._noise, self._confidence = mechanism.steps, noise, confidence
        self.delta = study.privacy.delta

    def value(self, rates: Rates, looks: int = 1) -> float:
        """With how little noise a study could just have had these rates; `_FINE` less for 4 times.

        They are taken at a confidence that so many `looks` could have at once.
        """
        seen = WorstRates.of(rates, 1 - (1 - self._confidence) / looks)
        low, high = -_FINE, 2 * _FINE
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._spare(seen, middle) > 0 else (low, middle)
        if -_FINE < low < 2 * _FINE:
            before, after = self._spare(seen, low - 1), self._spare(seen, low)
            return 1 - low - before / (before - after)
        return (1 if low < 0 else -1) - low + seen.least - seen.most

    @staticmethod
    def ratio(apart: float) -> float:
        """Of noise, by how far two values are apart."""
        return float(4 ** (apart / _FINE))

    def _spare(self, seen: WorstRates, place: int) -> float:
        """With so many 12ths of two octaves more noise than the plan's."""
        noise = max(self._noise * 4 ** (place / _FINE), least_certified(self._how))
        return seen.spare(_curve(self._how, noise, self._steps))


@lru_cache(maxsize=200)
def _curve(how: Account, noise: float, steps: int) -> TradeOff:
    return upper_curve(Composition(releases(how, noise, steps)), near=_RARE)
