"""The accountant: certified epsilon and delta of a sequence of steps.

Every function returns both sides: a `Bound` whose `upper` may be promised and whose `lower` no
analysis of the same dominating pairs could undercut. Numerical errors are inside the bound.
Sources: docs/privacy.md P1, P2 (which pairs), P11-P13 (numerics).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments, dominating_pairs, laws, normal, one_direction
from hubbub.core.privacy.bound import GAP, Bound

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
        ways = max(len(release.laws) for release in self._releases)
        self._ways = [one_direction.OneDirection(self._releases, way) for way in range(ways)]

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
            value = normal.gaussian_epsilon(shift, delta)
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
        ask: Callable[[one_direction.OneDirection, float], Bound],
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
            if worst.upper < inf and not self._stays_below(way, *point(worst.lower)):
                other = ask(way, worst.lower)
                lower, upper = max(worst.lower, other.lower), max(worst.upper, other.upper)
                worst = Bound(lower=lower, upper=upper)
        return worst

    def _stays_below(self, way: one_direction.OneDirection, epsilon: float, delta: float) -> bool:
        """Whether a direction need not be composed as closely as the first."""
        if delta < one_direction.LEAST_SEEN:
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
        return _near(normal.gaussian_delta(shift, float(epsilon)), shift, most=1.0)

    def estimate(self, delta: float) -> float:
        """A quick guess at epsilon, no bound: what root finding starts from."""
        if (shift := self._gaussian) is not None:
            # Far out, Mill's bound on the tail is a good guess and cannot overflow.
            far = _far_guess(shift, delta)
            return normal.gaussian_epsilon(shift, delta) if far < arguments.MOST_EPSILON else far
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
