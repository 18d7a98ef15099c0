"""The accountant: certified epsilon and delta of a sequence of steps.

Every function returns both sides: a `Bound` whose `upper` may be promised and whose `lower` no
analysis of the same dominating pairs could undercut. Numerical errors are inside the bound.
Sources: docs/privacy.md P1, P2 (which pairs), P11-P13 (numerics).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments, composition, dominating_pairs, laws
from hubbub.core.privacy.composition import GAP, ROUGH, Bound
from hubbub.core.privacy.laws import gaussian_delta, gaussian_epsilon

Array = NDArray[np.float64]

_MANY = 20  # kinds of steps of which an answer may be half as sharp
# Relative error allowed to the closed form of the Gaussian mechanism in float64.
_CLOSED_FORM = 1e-11


class Composition:
    """Releases on one data set, in any order, composed adaptively (docs/privacy.md P2)."""

    def __init__(self, releases: Sequence[dominating_pairs.Release]) -> None:
        if not releases:
            raise StudyError("expected at least one step, got none; pass a list of steps")
        arguments.whole("steps", sum(r.count for r in releases), least=1, most=arguments.MOST_STEPS)
        self._releases = _gathered(releases)
        # P2: removal and addition apart; a release that is its own reverse counts in both.
        ways = max(len(release.laws) for release in self._releases)
        self._ways = [composition.OneDirection(self._releases, way) for way in range(ways)]

    def epsilon(self, delta: float, *, gap: float = GAP, most: float = inf) -> Bound:
        """Epsilon at a delta; the sides differ by at most about gap * max(0.01, epsilon).

        They may be further apart, see `bound.is_narrow`.

        Raises:
            StudyError: it is surely above `most`.
        """
        delta = arguments.delta(delta)
        if most < inf and self._is_beyond(most, delta):
            raise StudyError(
                f"expected epsilon up to {most:g}, got about {self.estimate(delta):.4g}; "
                "add noise or take fewer steps"
            )
        if (shift := self._gaussian) is not None:
            value = gaussian_epsilon(shift, delta)
            return _near(value, shift, most=inf)
        if len(self._releases) > _MANY or self._is_enclosed:
            gap *= 2
        return _worst_epsilon(tuple(self._releases), delta, gap)

    def delta(self, epsilon: float, *, gap: float = GAP) -> Bound:
        """Delta at an epsilon; the sides differ by at most about gap, relatively."""
        epsilon = arguments.epsilon(epsilon, most=arguments.MOST_LOSS)
        if (shift := self._gaussian) is not None:
            return self._closed(shift, epsilon)
        return self._worst(lambda way, _: way.delta(epsilon, gap), lambda least: (epsilon, least))

    def worst_epsilon(self, delta: float, gap: float) -> Bound:
        """Of all directions, not in closed form."""
        return self._worst(
            lambda way, enough: way.epsilon(delta, gap, enough), lambda least: (least, delta)
        )

    def _worst(
        self,
        ask: Callable[[composition.OneDirection, float], Bound],
        point: Callable[[float], tuple[float, float]],
    ) -> Bound:
        """The larger of the directions, each composed on its own (P2).

        Args:
            ask: one of them; less than a number that is given need not be known closely.
            point: the epsilon and the delta at which an answer stands.
        """
        first, *others = self._ways
        worst = ask(first, 0.0)
        for way in others:
            # P2: a direction whose delta is certainly less there cannot be the worse.
            if worst.upper < inf and not self._stays_below(way, *point(worst.lower)):
                other = ask(way, worst.lower)
                lower, upper = max(worst.lower, other.lower), max(worst.upper, other.upper)
                worst = Bound(lower=lower, upper=upper)
        return worst

    def _stays_below(self, way: composition.OneDirection, epsilon: float, delta: float) -> bool:
        """Whether a direction need not be composed as closely as the first."""
        if delta < composition.LEAST_SEEN:
            return False
        return way.stays_below(epsilon, delta, self.estimate(delta))

    def profile(self, epsilons: Array, *, near: float) -> Array:
        """Upper deltas at many epsilons from one convolution, sharpest where delta is `near`."""
        return np.asarray(np.max(self.profiles(epsilons, near=near), axis=0))

    def profiles(self, epsilons: Array, *, near: float) -> Array:
        """The same for each direction: (1 or 2, number of epsilons)."""
        if (shift := self._gaussian) is not None:
            return np.array([[self._closed(shift, one).upper for one in epsilons]])
        composed = (way.law_from_above(near) for way in self._ways)
        return np.array([[law.delta(float(one)) for one in epsilons] for law in composed])

    def lower_profile(self, epsilons: Array, *, near: float) -> Array:
        """Lower deltas at many epsilons: the larger of the directions."""
        if (shift := self._gaussian) is not None:
            return np.array([self._closed(shift, one).lower for one in epsilons])
        composed = (way.law_from_below(near) for way in self._ways)
        curves = [[law.delta(float(one)) for one in epsilons] for law in composed]
        return np.asarray(np.max(curves, axis=0))

    @staticmethod
    def _closed(shift: float, epsilon: float) -> Bound:
        """Delta of a Gaussian step."""
        return _near(gaussian_delta(shift, float(epsilon)), shift, most=1.0)

    def estimate(self, delta: float) -> float:
        """A quick guess at epsilon, no bound: what root finding starts from."""
        if (shift := self._gaussian) is not None:
            # Far out, Mill's bound on the tail is a good guess and cannot overflow.
            far = _far_guess(shift, delta)
            return gaussian_epsilon(shift, delta) if far < arguments.MOST_EPSILON else far
        steps = (release.gaussian for release in self._releases if release.gaussian is not None)
        alone = max((_far_guess(shift, delta) for shift in steps), default=0.0)
        if alone > 2 * arguments.MOST_EPSILON:  # what is composed with it can only add
            return alone
        return self._ways[0].guess(delta)

    def _is_beyond(self, most: float, delta: float) -> bool:
        """Whether epsilon is surely above `most`; rare large losses make guesses too large."""
        guess = self.estimate(delta)
        if guess <= 1.2 * most:
            return False
        if guess > 20 * most or self._gaussian is not None:
            return True
        return self.delta(most).lower > delta

    @property
    def _is_enclosed(self) -> bool:
        """Whether a law is known from two sides only, which are some way apart."""
        return any(isinstance(release.laws[0], laws.Enclosed) for release in self._releases)

    @property
    def _gaussian(self) -> float | None:
        """The shift of the whole composition if nothing but Gaussian steps is in it."""
        shifts = [r.gaussian for r in self._releases]
        if any(shift is None for shift in shifts):
            return None
        # P1: S steps of shift m are one of m sqrt(S).
        squares = (r.count * (r.gaussian or 0.0) ** 2 for r in self._releases)
        return sqrt(sum(squares))


@lru_cache(maxsize=64)  # of a plan's adversaries, several may know as much
def _worst_epsilon(
    releases: tuple[dominating_pairs.Release, ...], delta: float, gap: float
) -> Bound:
    """Epsilon of releases that are gathered already."""
    return Composition(releases).worst_epsilon(delta, gap)


def _gathered(releases: Sequence[dominating_pairs.Release]) -> list[dominating_pairs.Release]:
    """Equal releases added up, Gaussian ones merged into a single Gaussian step."""
    counts: dict[tuple[object, ...], dominating_pairs.Release] = {}
    square = 0.0
    ways = max(len(r.laws) for r in releases)
    # P1: squares of Gaussian shifts add up, and equal laws become one power of a transform.
    for release in releases:
        if release.gaussian is not None:
            square += release.count * release.gaussian**2
            continue
        key = (repr(release.laws),)
        seen = counts.get(key)
        total = release.count + (seen.count if seen else 0)
        counts[key] = dominating_pairs.Release(laws=release.laws, count=total)
    merged = list(counts.values())
    if square > 0:
        law = laws.Removal(rate=1.0, shift=sqrt(square))
        merged.append(dominating_pairs.Release(laws=(law,) * ways, count=1, gaussian=sqrt(square)))
    return merged


def _far_guess(shift: float, delta: float) -> float:
    """Mill's bound on the epsilon of a Gaussian step, a good guess where it is large."""
    return shift**2 / 2 + shift * sqrt(2 * log(1 / delta))


def _near(value: float, shift: float, *, most: float) -> Bound:
    """A closed form with its floating-point allowance; small shifts cancel digits."""
    error = _CLOSED_FORM + 1e-14 / shift
    return Bound(lower=max(value * (1 - error), 0.0), upper=min(value * (1 + error), most))


# The least noise for an epsilon and delta, which is never overspent (docs/privacy.md P2).

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
        # P8, P10: of a law known from two sides the upper one: an upper epsilon is asked for.
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
    # The least noise at which a certified epsilon was seen to be small enough, never one between.
    return float(np.exp(root.enough))


def _rough_noise(
    build: Callable[[float], Sequence[dominating_pairs.Release]], epsilon: float, delta: float
) -> float:
    """The log noise multiplier to about 0.01, from the cumulants alone."""

    def excess(log_noise: float) -> float:
        guess = Composition(dominating_pairs.from_above(build(float(np.exp(log_noise))))).estimate(
            delta
        )
        return log(max(guess, 1e-12)) - log(epsilon)

    low, high = log(1e-3), log(1e6)
    # Where other releases leave little of epsilon, their estimate may pass it at any noise: then it
    # is where that of all is past it twice as far.
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
