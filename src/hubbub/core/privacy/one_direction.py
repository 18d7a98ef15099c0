"""Bounds of one direction of the relation, on grids that are refined until they are close (P13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, sqrt

import numpy as np

from hubbub.core.privacy import (
    bound,
    coarse_law,
    composition,
    discretise,
    dominating_pairs,
    effort,
    fft_window,
    laws,
)
from hubbub.core.privacy.bound import Bound

LEAST_SEEN = 1e-30  # directions are not compared at smaller deltas
_TRIES = 6
_FRAMES = 4
_CLEAR = 0.02  # a direction that is further below the first one is not composed on its own
_LAST = 690.0  # exp() of which a float still holds: past the last cut of any grid
_FAR = 0.8  # a guess that is past a bound by more is a poor one
_LEAST_EPSILON = 0.01  # smaller ones are known to this times the gap
_CLOSE = 1e-3  # the gap of a law that is asked at many epsilons, times epsilon where that is less
_DEAR = 4  # times as many points as a first look has
_MANY_POINTS = 2e6  # of a grid finer than what is promised needs; some two seconds
_CELL_POINTS = 5  # the work on a cell of a grid, besides its law; see `effort`


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is read off the composed laws, and how closely."""

    coarse_laws: list[coarse_law.CoarseLaw]
    frame: fft_window.TiltedGrid
    read: Callable[[composition.ComposedLaw], float]
    allowed: Callable[[Bound], float]
    enough: float = 0.0  # below which nobody asks
    guess: float = 0.0  # for which the frame was made: a bound far below it makes it a poor one


class OneDirection:
    """The losses of releases in one direction of the relation.

    Args:
        releases: gathered, each kind once.
        way: which direction, 0 or 1; a release whose directions are alike has only 0.
    """

    def __init__(self, releases: Sequence[dominating_pairs.Release], way: int) -> None:
        self._parts = [
            (release.laws[min(way, len(release.laws) - 1)], release.count) for release in releases
        ]
        self._count = sum(release.count for release in releases)
        self._points = 0.0  # that the last grids had, see `effort`
        self._step_made = 0.0

    def guess(self, delta: float) -> float:
        """About epsilon, from the cumulants alone."""
        return fft_window.chernoff_epsilon(self._coarse_laws(delta), delta)

    def epsilon(self, delta: float, gap: float, enough: float = 0.0) -> Bound:
        """Epsilon at a delta; framed anew where the first guess was far too large.

        It is of no interest how far below `enough` it is.
        """
        best, frames = Bound(lower=0.0, upper=inf), 0
        if self._is_beyond_floats(delta):
            return best
        coarse_laws = self._coarse_laws(delta)
        guess = fft_window.chernoff_epsilon(coarse_laws, delta)
        while True:
            scale = max(_LEAST_EPSILON, guess)
            frame = fft_window.frame_for_delta(coarse_laws, delta, gap * scale, guess)
            step = fft_window.step_for_gap(0.4 * gap * scale, frame.saddle, self._count)
            question = _Question(
                coarse_laws=coarse_laws,
                frame=frame,
                read=lambda law: law.epsilon(delta),
                allowed=lambda best: gap * max(_LEAST_EPSILON, best.lower),
                guess=guess,
                enough=enough,
            )
            best = self._refined(question, fft_window.first_look(frame, step), best)
            frames += 1
            near = best.upper > _FAR * guess or best.upper <= enough  # past all bounds, too
            if near or frames == _FRAMES or best.upper - best.lower <= question.allowed(best):
                break
            guess = best.upper
        wide = gap < bound.ROUGH and not bound.is_narrow(best, 0.9)
        if wide and enough < best.upper < inf:
            excess = (best.upper - best.lower) / (bound.WIDEST * max(1.0, best.lower))
            step = self._step_made * min(max(sqrt(0.5 / excess), 0.25), 0.7)
            step = fft_window.step_within(frame, coarse_laws, step, finer=4)
            best = self._bracket(question, step, best)
        return best

    def delta(self, epsilon: float, gap: float) -> Bound:
        """Delta at an epsilon; framed anew where the first guess was far too large."""
        guess, best, last = LEAST_SEEN, Bound(lower=0.0, upper=1.0), None
        for _ in range(_FRAMES):
            coarse_laws = self._coarse_laws(guess)
            frame = fft_window.frame_for_epsilon(coarse_laws, epsilon, least=guess)
            if frame == last:  # which has said all that it can
                break
            question = _Question(
                coarse_laws=coarse_laws,
                frame=frame,
                read=lambda law: law.delta(epsilon),
                allowed=lambda best: gap * best.lower + LEAST_SEEN,
            )
            step = fft_window.step_for_gap(
                0.4 * gap / max(1.0, frame.saddle), frame.saddle, self._count
            )
            look = fft_window.first_look(frame, step)
            if last is None and look > _DEAR * step:  # a better guess is worth a look
                best = self._bracket(question, look, best)
            else:
                best = self._refined(question, step, best)
            if best.upper - best.lower <= 4 * gap * best.lower or best.upper < LEAST_SEEN:
                break
            guess, last = max(best.lower, best.upper / 100), frame
        return best

    def stays_below(self, epsilon: float, delta: float, first: float) -> bool:
        """Whether delta is surely less at epsilon: one upper bound, on few cells.

        Args:
            first: the guess at epsilon in the first direction, which is too large by about as much
                as the one in this direction.
        """
        coarse_laws = self._coarse_laws(delta)
        this = fft_window.chernoff_epsilon(coarse_laws, delta)
        room = epsilon * (1 - this / first) if first > 0 else 0.0
        if room <= _CLEAR * epsilon:
            return False
        if epsilon < _FAR * this:
            frame = fft_window.frame_for_epsilon(coarse_laws, epsilon, least=delta)
        else:
            frame = fft_window.frame_for_delta(coarse_laws, delta, room / 4)
        return self._upper_law(coarse_laws, frame, room / 4).delta(epsilon) < delta

    def law_from_above(self, near: float) -> composition.ComposedLaw:
        """The composed law from above, sharpest where delta is `near`."""
        coarse_laws = self._coarse_laws(near)
        gap = _close(coarse_laws, near)
        frame = fft_window.frame_for_delta(coarse_laws, near, gap)
        return self._upper_law(coarse_laws, frame, gap)

    def law_from_below(self, near: float) -> composition.ComposedLaw:
        """The composed law from below, sharpest where delta is `near`."""
        coarse_laws = self._coarse_laws(near)
        gap = _close(coarse_laws, near)
        frame = fft_window.frame_for_delta(coarse_laws, near, gap)
        return self._laws(coarse_laws, frame, self._step(coarse_laws, frame, gap))[0]

    def _is_beyond_floats(self, delta: float) -> bool:
        """Whether losses that no grid holds are likelier than delta, so that no bound is finite."""
        last, sums = _LAST, 0.0
        for law, count in self._parts:
            p, q = (masses[-1] for masses in law.masses(np.array([-inf, 0.0, last, inf])))
            sums += count * max(float(p - q * exp(last)), 0.0)  # as `discretise` does
        return sums > delta

    def _coarse_laws(self, delta: float) -> list[coarse_law.CoarseLaw]:
        """The coarse law of every release, as far out as delta needs it."""
        tail = coarse_law.tail_for(delta, self._count)
        atoms = coarse_law.atoms_for(len(self._parts))
        return [coarse_law.coarse_law_of(law, count, tail, atoms) for law, count in self._parts]

    def _refined(self, question: _Question, step: float, best: Bound) -> Bound:
        """On finer and finer grids until the sides are as close as allowed."""
        before, stalled, points = inf, 0, 0.0
        for _ in range(_TRIES):
            finer = fft_window.step_within(question.frame, question.coarse_laws, step)
            if points / finer > _MANY_POINTS and bound.is_narrow(best, 0.9):
                break
            best = self._bracket(question, finer, best)
            points = self._points * finer
            excess = (best.upper - best.lower) / question.allowed(best)
            stalled += excess > 0.9 * before or excess == inf
            poor = best.upper <= _FAR * question.guess
            enough = best.upper <= question.enough
            beyond = best.lower - question.frame.centre > composition.LARGEST_EXPONENT
            if excess <= 1 or stalled > 1 or finer > step or poor or enough or beyond:
                break
            # The gap is quadratic in the step; linear where a law's bulk is within one cell.
            step, before = finer * min(max(sqrt(0.6 / excess), 0.2), 0.7), excess
        return best

    def _bracket(self, question: _Question, step: float, best: Bound) -> Bound:
        """What a grid of this step says, where it is better than what is known already."""
        lower, upper = self._laws(question.coarse_laws, question.frame, step)
        return Bound(
            lower=max(best.lower, question.read(lower)), upper=min(best.upper, question.read(upper))
        )

    def _laws(
        self, coarse_laws: list[coarse_law.CoarseLaw], frame: fft_window.TiltedGrid, step: float
    ) -> tuple[composition.ComposedLaw, composition.ComposedLaw]:
        """The composed law from below and from above on one grid."""
        below, above = [], []
        for law, count, cells in self._grids(coarse_laws, frame, step):
            low, high = discretise.bracket(law, cells, frame.saddle)
            below.append((low, count))
            above.append((high, count))
        return composition.compose(below, frame, -1), composition.compose(above, frame, +1)

    def _upper_law(
        self, coarse_laws: list[coarse_law.CoarseLaw], frame: fft_window.TiltedGrid, gap: float
    ) -> composition.ComposedLaw:
        """The composed law from above, at most about `gap` too large in epsilon."""
        grids = self._grids(coarse_laws, frame, self._step(coarse_laws, frame, gap))
        above = [(discretise.above(law, cells), count) for law, count, cells in grids]
        return composition.compose(above, frame, +1)

    def _step(
        self, coarse_laws: list[coarse_law.CoarseLaw], frame: fft_window.TiltedGrid, gap: float
    ) -> float:
        """The step of a grid whose laws are about `gap` apart in epsilon."""
        step = fft_window.step_for_gap(gap, frame.saddle, self._count)
        return fft_window.step_within(frame, coarse_laws, step)

    def _grids(
        self, coarse_laws: list[coarse_law.CoarseLaw], frame: fft_window.TiltedGrid, step: float
    ) -> Iterator[tuple[laws.Law, int, fft_window.Grid]]:
        """The law and count of every release, and the law's cells."""
        self._step_made = step
        self._points = (frame.high - frame.low) / step
        effort.spend(self._points)
        for (law, count), coarse in zip(self._parts, coarse_laws, strict=True):
            cells = fft_window.grid(coarse, frame.saddle, step, frame.order)
            points = cells.cuts.size * (_CELL_POINTS + laws.work_of(law))
            effort.spend(points)
            self._points += points
            yield law, count, cells


def _close(coarse_laws: Sequence[coarse_law.CoarseLaw], near: float) -> float:
    """The gap of a law that is asked at many epsilons, below all losses that it has."""
    guess = fft_window.chernoff_epsilon(coarse_laws, near)
    return _CLOSE * min(1.0, guess) if guess > 0 else _CLOSE
