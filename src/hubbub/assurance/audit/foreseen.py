"""What the canaries of a sound study are expected to show, by calculation: nothing is played.

A score is the logarithm of a likelihood ratio, so a rule with threshold t has the rates at which
the trade-off curve of a canary's own pair of laws has the slope e^t (Neyman, Pearson). That pair is
the account's, but where the account charges more than a canary does (docs/privacy.md P18): for
longer projections, and for batches in which all others are alike. So the best rule for a number of
canaries is known before anything was seen, and so is how many are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import numpy as np

from hubbub.assurance.evidence import Choice
from hubbub.planning import Plan, mechanism_of, releases
from hubbub.privacy import MOST_EPSILON, Composition, Rates, Release, Rule

_LEVELS = np.concatenate([[0.0], np.geomspace(1e-3, MOST_EPSILON, 48)])  # rules lie between them
_NEAR = 1e-3  # delta at which curves are sharpest
_ENDLESS = 10**12  # canaries


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A rule about the first kind of scores, and its true and false positive rates."""

    rule: Rule
    true: float
    false: float

    def rates(self, judged: int) -> Rates:
        """What it counts of so many canaries, half of them on each side."""
        half = judged // 2
        true, false = round(self.true * half), round(self.false * half)
        return Rates(true=true, positives=half, false=false, negatives=half)


class Foreseen:
    """What so many canaries a run are expected to show of a study as it is planned.

    Args:
        plan: of the study.
        canaries: in a run; where sums are projected, they are in each other's way.
        choice: tells which rates show most.
    """

    def __init__(self, plan: Plan, canaries: int, choice: Choice) -> None:
        self._plan, self._canaries, self._choice = plan, canaries, choice

    def best(self, judged: int) -> Expected:
        """The one that shows most if so many canaries judge it."""
        return max(self._expected, key=lambda one: self._value(one, judged))

    def share(self, judged: int) -> float:
        """How much of what it shows of endless canaries it shows of so many, as ratio of noise."""
        best = self.best(judged)
        return self._choice.ratio(self._value(best, judged) - self._value(best, _ENDLESS))

    def _value(self, one: Expected, judged: int) -> float:
        return self._choice.value(one.rates(judged))

    @cached_property
    def _expected(self) -> Sequence[Expected]:
        """Rules all along the curve of each direction."""
        whole = Composition(_released(self._plan, self._canaries))
        levels, found = _LEVELS, []
        for says, deltas in zip((True, False), whole.profiles(levels, near=_NEAR), strict=False):
            false = np.maximum(-np.diff(deltas) / np.diff(np.exp(levels)), 0.0)
            true = np.minimum(deltas[:-1] + np.exp(levels[:-1]) * false, 1.0)
            middle = (levels[1:] + levels[:-1]) / 2
            found += [
                Expected(rule=Rule(threshold=t if says else -t, says=says), true=p, false=f)
                for t, p, f in zip(middle.tolist(), true.tolist(), false.tolist(), strict=True)
                if p > 0
            ]
        return found


def share_of_others(plan: Plan, canaries: int) -> float:
    """The variance that all canaries together add to the score of one, in units of C^2 (P18)."""
    training = plan.study.training
    if not training.projection:
        return 0.0
    there = 1.0 if plan.study.privacy.relation == "substitute" else 0.5
    return (canaries - 1) * there * training.sample_rate / training.projection


def _released(plan: Plan, canaries: int) -> list[Release]:
    """What a training tells of one canary, if nothing else is known of who is in a batch."""
    how = replace(mechanism_of(plan.study), projected=None)
    if how.sampling == "without-replacement":
        how = replace(how, sampling="poisson")
    noise = sqrt(plan.stated.noise_multiplier**2 + share_of_others(plan, canaries))
    return releases(how, noise, plan.study.training.steps)
