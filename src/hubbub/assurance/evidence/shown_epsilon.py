"""From an audit's counts to epsilon: with how much noise a study could just not have had them.

What a rule's rates and right guesses show is held against the whole trade-off curve of the study's
own mechanism (docs/privacy.md P18). This file knows no canary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import exp, log

from hubbub.planning import epsilon_of, least_certified, mechanism_of, owned_records, releases
from hubbub.privacy import (
    MOST_EPSILON,
    Composition,
    Rates,
    Release,
    TradeOff,
    lower_bound,
    root,
    upper_curve,
    worst_distance,
    worst_rates,
)
from hubbub.study import Study

_MOST_NOISE = 1e5  # a mechanism with more has power for nothing
_EXACT = 1e-9  # logarithms of noise are found so exactly
_FINE = 24  # rules are told apart by 24ths of two octaves of noise
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

    low, high = log(least_certified(mechanism_of(study))), log(_MOST_NOISE)
    if spare(high) >= 0:
        return by_rates
    if spare(low) <= 0:
        return MOST_EPSILON
    found = epsilon_of(_released(study, exp(root(spare, low, high, xtol=_EXACT))), delta)
    return max(by_rates, found.lower if found else MOST_EPSILON)


class Choice:
    """Which of several rules shows most of a study, roughly: a few curves serve for all of them.

    Args:
        study: that is audited.
        noise: of its plan.
        confidence: of the bound.
    """

    def __init__(self, study: Study, noise: float, confidence: float) -> None:
        self._study, self._noise, self._confidence = study, noise, confidence
        self._curves: dict[int, TradeOff] = {}

    def value(self, rates: Rates) -> float:
        """Larger for rates that less noise explains."""
        seen, low, high = _Worst.of(rates, self._confidence), -_FINE, 2 * _FINE
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if seen.spare(self._curve(middle)) > 0 else (low, middle)
        return -low + seen.least - seen.most

    def _curve(self, place: int) -> TradeOff:
        """With so many 24ths of two octaves more noise than the plan's."""
        if place not in self._curves:
            noise = max(
                self._noise * 4 ** (place / _FINE), least_certified(mechanism_of(self._study))
            )
            whole = Composition(_released(self._study, noise))
            self._curves[place] = upper_curve(whole, near=_RARE)
        return self._curves[place]


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
    known = owned_records(study, study.parties.colluders + 1)
    return releases(mechanism_of(study), noise, study.training.steps, known)
