"""The accountant: certified epsilon and delta of a sequence of steps.

Every function returns both sides: a `Bound` whose `upper` may be promised and whose `lower` no
analysis of the same dominating pairs could undercut. Numerical errors are inside the bound.
Sources: docs/privacy.md P1, P2 (which pairs), P11-P13 (numerics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import StudyError
from hubbub.privacy import (
    arguments,
    coarse_law,
    composition,
    discretise,
    effort,
    laws,
    mechanism,
    normal,
    tilting,
)

Array = NDArray[np.float64]

GAP = 3e-4  # relative distance of the two sides of a bound
ROUGH = 0.01  # of calibrations that are still far from their goal
WIDEST = 1e-3  # a bracket of epsilon that is told, where epsilon is at most 1; else relatively
_TRIES = 6
_FRAMES = 4
_MANY = 20  # kinds of steps of which an answer may be half as sharp
_CLEAR = 0.02  # a direction that is further below the first one is not composed on its own
_FAR = 0.8  # a guess that is past a bound by more is a poor one
_LEAST_EPSILON = 0.01  # smaller ones are known to this times the gap
_LEAST_SEEN = 1e-30  # directions are not compared at smaller deltas
# Relative error allowed to the closed form of the Gaussian mechanism in float64.
_CLOSED_FORM = 1e-11
_CELL_POINTS = 5  # the work on a cell of a grid, besides its law; see `effort`


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A number known to lie in [lower, upper]; `upper` is the one to promise.

    Args:
        lower: nothing below it can be true of the same dominating pairs; an epsilon (no unit) or a
            delta (a probability), as was asked for.
        upper: certified; in the same unit.

    >>> bound = Bound(lower=0.99, upper=1.0)
    >>> bound.upper - bound.lower < 0.02
    True
    """

    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is read off the composed laws of one direction, and how closely."""

    way: int
    sketches: list[coarse_law.Sketch]
    frame: tilting.TiltedGrid
    read: Callable[[composition.ComposedLaw], float]
    allowed: Callable[[Bound], float]
    guess: float = 0.0  # for which the frame was made: a bound far below it makes it a poor one


def is_narrow(bound: Bound, share: float = 1.0) -> bool:
    """Whether a bracket of epsilon is as narrow as is promised, or that share of it."""
    return bound.upper - bound.lower <= share * WIDEST * max(1.0, bound.lower)


class Composition:
    """Releases on one data set, in any order, composed adaptively (docs/privacy.md P2)."""

    def __init__(self, releases: Sequence[mechanism.Release]) -> None:
        if not releases:
            raise StudyError("expected at least one step, got none; pass a list of steps")
        arguments.whole("steps", sum(r.count for r in releases), least=1, most=arguments.MOST_STEPS)
        self._releases = _gathered(releases)

    def epsilon(self, delta: float, *, gap: float = GAP, most: float = inf) -> Bound:
        """Epsilon at a delta; the sides differ by at most about gap * max(0.01, epsilon).

        They may be further apart, see `is_narrow`.

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
        return self._worst(
            lambda way: self._delta_one_way(way, epsilon, gap),
            lambda way, least: self._stays_below(way, epsilon, least),
        )

    def _worst(
        self, one_way: Callable[[int], Bound], stays_below: Callable[[int, float], bool]
    ) -> Bound:
        """The larger of the directions, each composed on its own (P2)."""
        worst = one_way(0)
        for way in range(1, self._ways):
            if not stays_below(way, worst.lower):
                other = one_way(way)
                lower, upper = max(worst.lower, other.lower), max(worst.upper, other.upper)
                worst = Bound(lower=lower, upper=upper)
        return worst

    def profile(self, epsilons: Array, *, near: float) -> Array:
        """Upper deltas at many epsilons from one convolution, sharpest where delta is `near`."""
        return np.asarray(np.max(self.profiles(epsilons, near=near), axis=0))

    def profiles(self, epsilons: Array, *, near: float) -> Array:
        """The same for each direction: (1 or 2, number of epsilons)."""
        if (shift := self._gaussian) is not None:
            return np.array([[self._closed(shift, one).upper for one in epsilons]])
        laws = (self._upper_law(*framed, 1e-3) for framed in self._framed(near))
        return np.array([[law.delta(float(one)) for one in epsilons] for law in laws])

    def lower_profile(self, epsilons: Array, *, near: float) -> Array:
        """Lower deltas at many epsilons: the larger of the directions."""
        if (shift := self._gaussian) is not None:
            return np.array([self._closed(shift, one).lower for one in epsilons])
        curves = []
        for way, sketches, frame in self._framed(near):
            step = tilting.step_for_gap(1e-3, frame.saddle, self._count)
            step = tilting.step_within(frame, sketches, step)
            lower, _ = self._laws(way, sketches, frame, step)
            curves.append([lower.delta(float(one)) for one in epsilons])
        return np.asarray(np.max(curves, axis=0))

    def _framed(
        self, near: float
    ) -> Iterator[tuple[int, list[coarse_law.Sketch], tilting.TiltedGrid]]:
        """Every direction, with the frame in which it is sharpest where delta is `near`."""
        for way in range(self._ways):
            sketches = self._sketches(way, near)
            yield way, sketches, tilting.frame_for_delta(sketches, near, 1e-3)

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
        steps = (one.gaussian for one in self._releases if one.gaussian is not None)
        alone = max((_far_guess(shift, delta) for shift in steps), default=0.0)
        if alone > 2 * arguments.MOST_EPSILON:  # what is composed with it can only add
            return alone
        return tilting.chernoff_epsilon(self._sketches(0, delta), delta)

    def _is_beyond(self, most: float, delta: float) -> bool:
        """Whether epsilon is surely above `most`; rare large losses make guesses too large."""
        guess = self.estimate(delta)
        if guess <= 1.2 * most:
            return False
        if guess > 20 * most or self._gaussian is not None:
            return True
        return self.delta(most).lower > delta

    @property
    def _count(self) -> int:
        return sum(one.count for one in self._releases)

    @property
    def _is_enclosed(self) -> bool:
        """Whether a law is known from two sides only, which are some way apart."""
        return any(isinstance(one.laws[0], laws.Enclosed) for one in self._releases)

    @property
    def _ways(self) -> int:
        return max(len(r.laws) for r in self._releases)

    @property
    def _gaussian(self) -> float | None:
        """The shift of the whole composition if nothing but Gaussian steps is in it."""
        shifts = [r.gaussian for r in self._releases]
        if any(shift is None for shift in shifts):
            return None
        squares = (r.count * (r.gaussian or 0.0) ** 2 for r in self._releases)
        return sqrt(sum(squares))

    def _sketches(self, way: int, delta: float) -> list[coarse_law.Sketch]:
        """The coarse law of every release in one direction, as far out as delta needs it."""
        tail = coarse_law.tail_for(delta, self._count)
        atoms = coarse_law.atoms_for(len(self._releases))
        return [coarse_law.sketch(_law(one, way), one.count, tail, atoms) for one in self._releases]

    def _stays_below(self, way: int, epsilon: float, delta: float) -> bool:
        """Whether a direction is surely below delta at epsilon: one upper bound, on few cells."""
        if delta < _LEAST_SEEN:
            return False
        sketches = self._sketches(way, delta)
        # What is guessed from cumulants is too large by about as much in the first direction.
        first, this = self.estimate(delta), tilting.chernoff_epsilon(sketches, delta)
        room = epsilon * (1 - this / first) if first > 0 else 0.0
        if room <= _CLEAR * epsilon:
            return False
        if epsilon < _FAR * this:
            frame = tilting.frame_for_epsilon(sketches, epsilon, least=delta)
        else:
            frame = tilting.frame_for_delta(sketches, delta, room / 4)
        return self._upper_law(way, sketches, frame, room / 4).delta(epsilon) < delta

    def worst_epsilon(self, delta: float, gap: float) -> Bound:
        """Of all directions, not in closed form."""
        return self._worst(
            lambda way: self._epsilon_one_way(way, delta, gap),
            lambda way, least: self._stays_below(way, least, delta),
        )

    def _epsilon_one_way(self, way: int, delta: float, gap: float) -> Bound:
        """One direction of `epsilon`; framed anew where the first guess was far too large."""
        sketches = self._sketches(way, delta)
        guess = tilting.chernoff_epsilon(sketches, delta)
        best, frames = Bound(lower=0.0, upper=inf), 0
        while True:
            scale = max(_LEAST_EPSILON, guess)
            frame = tilting.frame_for_delta(sketches, delta, gap * scale, guess)
            step = tilting.step_for_gap(0.4 * gap * scale, frame.saddle, self._count)
            question = _Question(
                way=way,
                sketches=sketches,
                frame=frame,
                read=lambda law: law.epsilon(delta),
                allowed=lambda best: gap * max(_LEAST_EPSILON, best.lower),
                guess=guess,
            )
            best = self._refined(question, tilting.first_look(frame, step), best)
            frames += 1
            near = best.upper > _FAR * guess
            if near or frames == _FRAMES or best.upper - best.lower <= question.allowed(best):
                break
            guess = best.upper
        if gap < ROUGH and not is_narrow(best, 0.9):
            step = tilting.step_within(frame, sketches, step / 4, finer=4)
            best = self._bracket(question, step, best)
        return best

    def _delta_one_way(self, way: int, epsilon: float, gap: float) -> Bound:
        """One direction of `delta`; framed anew where the first guess was far too large."""
        guess, best = _LEAST_SEEN, Bound(lower=0.0, upper=1.0)
        for _ in range(_FRAMES):
            sketches = self._sketches(way, guess)
            frame = tilting.frame_for_epsilon(sketches, epsilon, least=guess)
            question = _Question(
                way=way,
                sketches=sketches,
                frame=frame,
                read=lambda law: law.delta(epsilon),
                allowed=lambda best: gap * best.lower + _LEAST_SEEN,
            )
            step = tilting.step_for_gap(
                0.4 * gap / max(1.0, frame.saddle), frame.saddle, self._count
            )
            best = self._refined(question, step, best)
            if best.upper - best.lower <= 4 * gap * best.lower or best.upper < _LEAST_SEEN:
                break
            guess = max(best.lower, best.upper / 100)
        return best

    def _refined(self, question: _Question, step: float, best: Bound) -> Bound:
        """One direction, on finer and finer grids until the sides are as close as allowed."""
        before, stalled = inf, 0
        for _ in range(_TRIES):
            finer = tilting.step_within(question.frame, question.sketches, step)
            best = self._bracket(question, finer, best)
            excess = (best.upper - best.lower) / question.allowed(best)
            stalled += excess > 0.9 * before
            poor = best.upper <= _FAR * question.guess
            if excess <= 1 or stalled > 1 or finer > step or poor:
                break
            # The gap is quadratic in the step; linear where a law's bulk is within one cell.
            step, before = finer * min(max(sqrt(0.6 / excess), 0.2), 0.7), excess
        return best

    def _bracket(self, question: _Question, step: float, best: Bound) -> Bound:
        """What a grid of this step says, where it is better than what is known already."""
        lower, upper = self._laws(question.way, question.sketches, question.frame, step)
        return Bound(
            lower=max(best.lower, question.read(lower)), upper=min(best.upper, question.read(upper))
        )

    def _laws(
        self, way: int, sketches: list[coarse_law.Sketch], frame: tilting.TiltedGrid, step: float
    ) -> tuple[composition.ComposedLaw, composition.ComposedLaw]:
        """The composed law from below and from above on one grid."""
        below, above = [], []
        for one, law, cells in self._grids(way, sketches, frame, step):
            low, high = discretise.bracket(law, cells, frame.saddle)
            below.append((low, one.count))
            above.append((high, one.count))
        return composition.compose(below, frame, -1), composition.compose(above, frame, +1)

    def _upper_law(
        self, way: int, sketches: list[coarse_law.Sketch], frame: tilting.TiltedGrid, gap: float
    ) -> composition.ComposedLaw:
        """The composed law from above, at most about `gap` too large in epsilon."""
        step = tilting.step_for_gap(gap, frame.saddle, self._count)
        step = tilting.step_within(frame, sketches, step)
        grids = self._grids(way, sketches, frame, step)
        above = [(discretise.above(law, cells), one.count) for one, law, cells in grids]
        return composition.compose(above, frame, +1)

    def _grids(
        self, way: int, sketches: list[coarse_law.Sketch], frame: tilting.TiltedGrid, step: float
    ) -> Iterator[tuple[mechanism.Release, laws.Law, tilting.Grid]]:
        """Every release with its law in one direction, and the law's cells."""
        effort.spend((frame.high - frame.low) / step)
        for one, made in zip(self._releases, sketches, strict=True):
            law = _law(one, way)
            cells = tilting.grid(made, frame.saddle, step, frame.order)
            effort.spend(cells.cuts.size * (_CELL_POINTS + laws.work_of(law)))
            yield one, law, cells


@lru_cache(maxsize=64)  # of a plan's adversaries, several may know as much
def _worst_epsilon(releases: tuple[mechanism.Release, ...], delta: float, gap: float) -> Bound:
    """Epsilon of releases that are gathered already."""
    return Composition(releases).worst_epsilon(delta, gap)


def _law(one: mechanism.Release, way: int) -> laws.Law:
    """The law of a release in one direction."""
    return one.laws[min(way, len(one.laws) - 1)]


def _gathered(releases: Sequence[mechanism.Release]) -> list[mechanism.Release]:
    """Equal releases added up, Gaussian ones merged into a single Gaussian step."""
    counts: dict[tuple[object, ...], mechanism.Release] = {}
    square = 0.0
    ways = max(len(r.laws) for r in releases)
    for one in releases:
        if one.gaussian is not None:
            square += one.count * one.gaussian**2
            continue
        key = (repr(one.laws),)
        seen = counts.get(key)
        total = one.count + (seen.count if seen else 0)
        counts[key] = mechanism.Release(laws=one.laws, count=total)
    merged = list(counts.values())
    if square > 0:
        law = laws.Removal(rate=1.0, shift=sqrt(square))
        merged.append(mechanism.Release(laws=(law,) * ways, count=1, gaussian=sqrt(square)))
    return merged


def _far_guess(shift: float, delta: float) -> float:
    """Mill's bound on the epsilon of a Gaussian step, a good guess where it is large."""
    return shift**2 / 2 + shift * sqrt(2 * log(1 / delta))


def _near(value: float, shift: float, *, most: float) -> Bound:
    """A closed form with its floating-point allowance; small shifts cancel digits."""
    error = _CLOSED_FORM + 1e-14 / shift
    return Bound(lower=max(value * (1 - error), 0.0), upper=min(value * (1 + error), most))
