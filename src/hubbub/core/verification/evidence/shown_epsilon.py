"""From an audit's counts to epsilon: with how much noise a study could just not have had them.

What a rule's rates and right guesses show is held against the whole trade-off curve of the study's
own mechanism (docs/privacy.md P18). This file knows no canary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import exp, log

from hubbub.core.planning.accounts import Account, account_of, epsilon_of, least_certified, releases
from hubbub.core.planning.exposure import owned_records
from hubbub.core.planning.study_queries import main_of
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.canary_guesses import Rates, lower_bound, worst_distance, worst_rates
from hubbub.core.privacy.dominating_pairs import Release
from hubbub.core.privacy.roots import root
from hubbub.core.privacy.tradeoff import TradeOff, upper_curve
from hubbub.core.study.study import Study

_MOST_NOISE = 1e5  # a mechanism with more has power for nothing
_EXACT = 1e-9  # logarithms of noise are found so exactly
_FINE = 12  # rules are told apart by 12ths of two octaves of noise, and between them by lines
_RARE = 1e-6  # delta at which their curves are sharpest


def epsilon_shown(study: Study, rates: Rates, confidence: float) -> float:
    """Epsilon of a training's sums is at least so large, as these rates show (P18).

    The largest of three bounds that together fail once in 1 / (1 - confidence): what two rates say
    by themselves, and the epsilon of the study's own mechanism with so much noise that it could
    just not have had them, or so many right guesses.
    """
    delta, seen = study.privacy.delta, _Worst.of(rates, confidence)
    by_rates = lower_bound(rates, delta, (1 + confidence) / 2)

    @cache
    def spare(logarithm: float) -> float:
        curve = upper_curve(Composition(_released(study, exp(logarithm))), near=seen.most / 10)
        return seen.spare(curve)

    low, high = log(least_certified(account_of(main_of(study).mechanism))), log(_MOST_NOISE)
    if spare(high) >= 0:
        return by_rates
    if spare(low) <= 0:
        return MOST_EPSILON
    epsilon = epsilon_of(_released(study, exp(root(spare, low, high, xtol=_EXACT))), delta)
    return max(by_rates, epsilon.lower if epsilon else MOST_EPSILON)


class Choice:
    """Which of several rules shows most of a study, roughly: a few curves serve for all of them.

    They are those of the study without a projection, and of an adversary without records.

    Args:
        study: that is audited.
        noise: of its plan.
        confidence: of the bound.
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
        seen = _Worst.of(rates, 1 - (1 - self._confidence) / looks)
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

    def _spare(self, seen: _Worst, place: int) -> float:
        """With so many 12ths of two octaves more noise than the plan's."""
        noise = max(self._noise * 4 ** (place / _FINE), least_certified(self._how))
        return seen.spare(_curve(self._how, noise, self._steps))


@lru_cache(maxsize=200)
def _curve(how: Account, noise: float, steps: int) -> TradeOff:
    """What so many steps may tell."""
    return upper_curve(Composition(releases(how, noise, steps)), near=_RARE)


@dataclass(frozen=True, kw_only=True)
class _Worst:
    """What rates show at least, at the confidence of each of three bounds.

    Args:
        least, most: the least true and the largest false positive rate.
        apart: how far apart the laws of both sides are at least, by right guesses.
    """

    least: float
    most: float
    apart: float

    @classmethod
    def of(cls, rates: Rates, confidence: float) -> _Worst:
        """At half of what may go wrong for the rates, and half for the guesses."""
        each = (1 + confidence) / 2
        least, most = worst_rates(rates, each)
        return cls(least=least, most=most, apart=worst_distance(rates, each))

    def spare(self, curve: TradeOff) -> float:
        """How much more power a mechanism has than was seen; it falls as noise grows."""
        power = float(curve.true_positive_rate(self.most))
        return min(power - self.least, float(curve.delta[0]) - self.apart)


def _released(study: Study, noise: float) -> list[Release]:
    """The study's training with this noise multiplier, to the stated adversary."""
    mechanism = main_of(study).mechanism
    known = owned_records(mechanism, study.parties, study.parties.colluders + 1)
    return releases(account_of(mechanism), noise, mechanism.steps, known)
