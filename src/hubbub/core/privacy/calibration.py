"""The least noise for an epsilon and delta, which is never overspent (docs/privacy.md P2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments, dominating_pairs
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.bound import GAP, ROUGH

_FAR_OFF = 0.05
_LEAST_SLOPE = 1.5  # of log epsilon over log noise, as a first guess
_CLOSE = 2e-4  # of a calibrated noise multiplier's epsilon
_MOST_GUESS = 1.2 * arguments.MOST_EPSILON  # a guess may be too large by this factor


def calibrate(
    build: Callable[[float], Sequence[dominating_pairs.Release]], epsilon: float, delta: float
) -> float:
    """The smallest noise multiplier, to about 2e-4, whose upper epsilon is at most `epsilon`.

    It never overspends: it is accepted only after its certified upper epsilon was seen to be at
    most `epsilon`. `build` gives the releases that a noise multiplier causes.
    """
    epsilon = arguments.epsilon(epsilon, least=arguments.LEAST_EPSILON)
    delta = arguments.delta(delta)

    def spent(log_noise: float, gap: float) -> float:
        composed = Composition(dominating_pairs.from_above(build(float(np.exp(log_noise)))))
        if (guess := composed.estimate(delta)) > _MOST_GUESS:
            return log(guess) - log(epsilon)
        upper = min(composed.epsilon(delta, gap=gap).upper, _MOST_GUESS)
        return log(max(upper, 1e-12)) - log(epsilon)

    near = _rough_noise(build, epsilon, delta)
    # On few cells first: where rare large losses decide, the rough noise is far off.
    rough = _root_from_above(lambda noise: spent(noise, ROUGH), near, _FAR_OFF, _LEAST_SLOPE)
    near, slope = rough.enough, rough.steepness
    root = _root_from_above(lambda noise: spent(noise, GAP), near, _CLOSE, slope)
    return float(np.exp(root.enough))


def _rough_noise(
    build: Callable[[float], Sequence[dominating_pairs.Release]], epsilon: float, delta: float
) -> float:
    """The log noise multiplier to about 0.01, from the cumulants alone.

    Where other releases leave little of epsilon, their estimate may pass it at any noise: then it
    is where that of all is past it twice as far.
    """

    def excess(log_noise: float) -> float:
        guess = Composition(dominating_pairs.from_above(build(float(np.exp(log_noise))))).estimate(
            delta
        )
        return log(max(guess, 1e-12)) - log(epsilon)

    low, high = log(1e-3), log(1e6)
    past = max(excess(high), 0.0)
    if past > 0.5:
        raise StudyError(
            f"expected an epsilon that some noise multiplier up to 1e6 reaches, got {epsilon:g}; "
            "ask for a larger epsilon or fewer steps"
        )
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 2 * past else (low, middle)
    return high


def _root_from_above(
    spent: Callable[[float], float], start: float, close: float, slope: float
) -> _Ends:
    """What is known when a decreasing function was seen to be between -`close` and 0.

    Outwards from the start until the root is between two points, then by false position; a point
    that stays counts for half (the Illinois rule), so that both sides come nearer.
    """
    ends = _Ends(least=log(1e-3), most=log(1e6), aim=-close / 2, slope=slope)
    here = start
    for _ in range(60):
        value = spent(here)
        ends.note(here, value)
        there = ends.next(here, value)
        if -close < value <= 0 or abs(there - here) < 1e-9:
            break
        here = there
    if ends.enough == inf:
        raise StudyError(
            "expected a noise multiplier up to 1e6 to suffice; ask for a larger epsilon"
        )
    return ends


@dataclass(kw_only=True)
class _Ends:
    """What is known of where a decreasing function comes down to `aim`."""

    least: float
    most: float
    aim: float
    slope: float
    enough: float = inf  # the least point at which it was seen to be at most 0
    _low: tuple[float, float] | None = None
    _high: tuple[float, float] | None = None
    _above: bool | None = None  # whether the last value was

    def note(self, here: float, value: float) -> None:
        """The function has this value there."""
        if value <= 0:
            self.enough = min(self.enough, here)
        again, self._above = self._above == (value > self.aim), value > self.aim
        if self._above:
            self._low, self._high = (here, value), self._halved(self._high, again)
        else:
            self._low, self._high = self._halved(self._low, again), (here, value)

    def _halved(self, end: tuple[float, float] | None, again: bool) -> tuple[float, float] | None:
        """An end that stays; it counts for half if the other one was replaced twice."""
        if end is None or not again:
            return end
        return end[0], self.aim + (end[1] - self.aim) / 2

    @property
    def steepness(self) -> float:
        """How fast the function falls between the ends, as far as that is known."""
        if self._low is None or self._high is None:
            return _LEAST_SLOPE
        (low, above), (high, below) = self._low, self._high
        return max(_LEAST_SLOPE, (above - below) / (high - low))

    def next(self, here: float, value: float) -> float:
        """Where to look next."""
        if self._low is None or self._high is None:
            away = min(max((value - self.aim) / self.slope, -1.0), 1.0)
            self.slope /= 1.5
            return min(max(here + away, self.least), self.most)
        (low, above), (high, below) = self._low, self._high
        share = (above - self.aim) / (above - below)
        return low + min(max(share, 0.01), 0.99) * (high - low)
