"""Bounds of one direction of the relation, on grids that are refined until they are close (P13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, sqrt

from hubbub.privacy import (
    bound,
    coarse_law,
    composition,
    discretise,
    dominating_pairs,
    effort,
    fft_window,
    laws,
)
from hubbub.privacy.bound import Bound

LEAST_SEEN = 1e-30  # directions are not compared at smaller deltas
_TRIES = 6
_FRAMES = 4
_CLEAR = 0.02  # a direction that is further below the first one is not composed on its own
_FAR = 0.8  # a guess that is past a bound by more is a poor one
_LEAST_EPSILON = 0.01  # smaller ones are known to this times the gap
_CLOSE = 1e-3  # the gap of a law that is asked at many epsilons
_CELL_POINTS = 5  # the work on a cell of a grid, besides its law; see `effort`


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is read off the composed laws, and how closely."""

    sketches: list[coarse_law.Sketch]
    frame: fft_window.TiltedGrid
    read: Callable[[composition.ComposedLaw], float]
    allowed: Callable[[Bound], float]
    guess: float = 0.0  # for which the frame was made: a bound far below it makes it a poor one


class OneDirection:
    """The losses of releases in one direction of the relation.

    Args:
        releases: gathered, each kind once.
        way: which direction, 0 or 1; a release whose directions are alike has only 0.
    """

    def __init__(self, releases: Sequence[dominating_pairs.Release], way: int) -> None:
        self._parts = [(one.laws[min(way, len(one.laws) - 1)], one.count) for one in releases]
        self._count = sum(one.count for one in releases)

    def guess(self, delta: float) -> float:
        """About epsilon, from the cumulants alone."""
        return fft_window.chernoff_epsilon(self._sketches(delta), delta)

    def epsilon(self, delta: float, gap: float) -> Bound:
        """Epsilon at a delta; framed anew where the first guess was far too large."""
        sketches = self._sketches(delta)
        guess = fft_window.chernoff_epsilon(sketches, delta)
        best, frames = Bound(lower=0.0, upper=inf), 0
        while True:
            scale = max(_LEAST_EPSILON, guess)
            frame = fft_window.frame_for_delta(sketches, delta, gap * scale, guess)
            step = fft_window.step_for_gap(0.4 * gap * scale, frame.saddle, self._count)
            question = _Question(
                sketches=sketches,
                frame=frame,
                read=lambda law: law.epsilon(delta),
                allowed=lambda best: gap * max(_LEAST_EPSILON, best.lower),
                guess=guess,
            )
            best = self._refined(question, fft_window.first_look(frame, step), best)
            frames += 1
            near = best.upper > _FAR * guess
            if near or frames == _FRAMES or best.upper - best.lower <= question.allowed(best):
                break
            guess = best.upper
        if gap < bound.ROUGH and not bound.is_narrow(best, 0.9):
            step = fft_window.step_within(frame, sketches, step / 4, finer=4)
            best = self._bracket(question, step, best)
        return best

    def delta(self, epsilon: float, gap: float) -> Bound:
        """Delta at an epsilon; framed anew where the first guess was far too large."""
        guess, best = LEAST_SEEN, Bound(lower=0.0, upper=1.0)
        for _ in range(_FRAMES):
            sketches = self._sketches(guess)
            frame = fft_window.frame_for_epsilon(sketches, epsilon, least=guess)
            question = _Question(
                sketches=sketches,
                frame=frame,
                read=lambda law: law.delta(epsilon),
                allowed=lambda best: gap * best.lower + LEAST_SEEN,
            )
            step = fft_window.step_for_gap(
                0.4 * gap / max(1.0, frame.saddle), frame.saddle, self._count
            )
            best = self._refined(question, step, best)
            if best.upper - best.lower <= 4 * gap * best.lower or best.upper < LEAST_SEEN:
                break
            guess = max(best.lower, best.upper / 100)
        return best

    def stays_below(self, epsilon: float, delta: float, first: float) -> bool:
        """Whether delta is surely less at epsilon: one upper bound, on few cells.

        Args:
            first: the guess at epsilon in the first direction, which is too large by about as much
                as the one in this direction.
        """
        sketches = self._sketches(delta)
        this = fft_window.chernoff_epsilon(sketches, delta)
        room = epsilon * (1 - this / first) if first > 0 else 0.0
        if room <= _CLEAR * epsilon:
            return False
        if epsilon < _FAR * this:
            frame = fft_window.frame_for_epsilon(sketches, epsilon, least=delta)
        else:
            frame = fft_window.frame_for_delta(sketches, delta, room / 4)
        return self._upper_law(sketches, frame, room / 4).delta(epsilon) < delta

    def law_from_above(self, near: float) -> composition.ComposedLaw:
        """The composed law from above, sharpest where delta is `near`."""
        sketches = self._sketches(near)
        return self._upper_law(sketches, fft_window.frame_for_delta(sketches, near, _CLOSE), _CLOSE)

    def law_from_below(self, near: float) -> composition.ComposedLaw:
        """The composed law from below, sharpest where delta is `near`."""
        sketches = self._sketches(near)
        frame = fft_window.frame_for_delta(sketches, near, _CLOSE)
        return self._laws(sketches, frame, self._step(sketches, frame, _CLOSE))[0]

    def _sketches(self, delta: float) -> list[coarse_law.Sketch]:
        """The coarse law of every release, as far out as delta needs it."""
        tail = coarse_law.tail_for(delta, self._count)
        atoms = coarse_law.atoms_for(len(self._parts))
        return [coarse_law.sketch(law, count, tail, atoms) for law, count in self._parts]

    def _refined(self, question: _Question, step: float, best: Bound) -> Bound:
        """On finer and finer grids until the sides are as close as allowed."""
        before, stalled = inf, 0
        for _ in range(_TRIES):
            finer = fft_window.step_within(question.frame, question.sketches, step)
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
        lower, upper = self._laws(question.sketches, question.frame, step)
        return Bound(
            lower=max(best.lower, question.read(lower)), upper=min(best.upper, question.read(upper))
        )

    def _laws(
        self, sketches: list[coarse_law.Sketch], frame: fft_window.TiltedGrid, step: float
    ) -> tuple[composition.ComposedLaw, composition.ComposedLaw]:
        """The composed law from below and from above on one grid."""
        below, above = [], []
        for law, count, cells in self._grids(sketches, frame, step):
            low, high = discretise.bracket(law, cells, frame.saddle)
            below.append((low, count))
            above.append((high, count))
        return composition.compose(below, frame, -1), composition.compose(above, frame, +1)

    def _upper_law(
        self, sketches: list[coarse_law.Sketch], frame: fft_window.TiltedGrid, gap: float
    ) -> composition.ComposedLaw:
        """The composed law from above, at most about `gap` too large in epsilon."""
        grids = self._grids(sketches, frame, self._step(sketches, frame, gap))
        above = [(discretise.above(law, cells), count) for law, count, cells in grids]
        return composition.compose(above, frame, +1)

    def _step(
        self, sketches: list[coarse_law.Sketch], frame: fft_window.TiltedGrid, gap: float
    ) -> float:
        """The step of a grid whose laws are about `gap` apart in epsilon."""
        step = fft_window.step_for_gap(gap, frame.saddle, self._count)
        return fft_window.step_within(frame, sketches, step)

    def _grids(
        self, sketches: list[coarse_law.Sketch], frame: fft_window.TiltedGrid, step: float
    ) -> Iterator[tuple[laws.Law, int, fft_window.Grid]]:
        """The law and count of every release, and the law's cells."""
        effort.spend((frame.high - frame.low) / step)
        for (law, count), made in zip(self._parts, sketches, strict=True):
            cells = fft_window.grid(made, frame.saddle, step, frame.order)
            effort.spend(cells.cuts.size * (_CELL_POINTS + laws.work_of(law)))
            yield law, count, cells
