"""The law of many steps, and certified values of its delta(epsilon).

Theory of operation (docs/privacy.md P13). Let p be a step's P-masses on the grid, M(s) = sum of
p_k exp(s l_k), and p~ = p exp(s l) / M(s) the tilted law. The tilted laws of all steps are
convolved with one FFT; then

    delta(eps) = M_total * sum over l > eps of p~(l) exp(-s l) (1 - exp(eps - l)).

With s at the saddle point the sum runs over the bulk of p~, so the round-off of the FFT is relative
to delta instead of to one: delta = 1e-12 is as easy as 1e-2. What is not exact is bounded and added
(upper) or taken away (lower): the tilted mass outside the FFT window, by Chernoff; the FFT's
round-off, by Parseval and Cauchy-Schwarz; the sums' round-off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, inf, isnan, log, sqrt

import numpy as np
from numpy import fft
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments, discretise, dominating_pairs, laws, transform
from hubbub.core.privacy.transform import (
    CoarseLaw,
    Grid,
    TiltedGrid,
    atoms_for,
    chernoff_epsilon,
    coarse_law_of,
    first_look,
    frame_for_delta,
    frame_for_epsilon,
    grid,
    log_kernel_peak,
    step_for_gap,
    step_within,
    tail_for,
)

Array = NDArray[np.float64]
Spectrum = NDArray[np.complex128]

_UNIT = 2.0**-53
LARGEST_EXPONENT = 700.0
_MANY = 8  # kinds of steps of which few frequencies are looked at
_SHARES = np.array([1.0, 0.75, 0.5, 0.25])  # of the orders that bound the mass outside a window


@dataclass(frozen=True, kw_only=True)
class ComposedLaw:
    """A composed law on one FFT window; `sign` is +1 to bound delta from above, -1 from below."""

    sign: int
    order: float
    centre: float
    first: float  # the window's losses are first + step * j
    step: float
    tail: Array  # sums over losses from the j-th on of p~ exp(-order (l - centre))
    tail_discounted: Array  # the same with one more factor exp(-(l - centre))
    log_scale: float
    allowance: float  # times exp(log_scale - order eps): wrap-around and FFT round-off
    infinite: float
    doubt: float  # bounds the relative error that all steps' masses have together

    def delta(self, epsilon: float) -> float:
        """delta(epsilon), certified on the side that `sign` says."""
        # P13 (4): an upper law is read at epsilon less what all its masses may be wrong by, a lower
        # one at as much more.
        epsilon -= self.sign * self.doubt
        if epsilon - self.centre > LARGEST_EXPONENT:  # exp() would overflow: nothing is claimed
            return 1.0 if self.sign > 0 else 0.0
        # (1 - e^(epsilon - l))_+ is 0 up to epsilon, so the sum begins past it.
        index = max(floor((epsilon - self.first) / self.step) + 1, 0)
        first, second = 0.0, 0.0
        if index < self.tail.size:
            first = float(self.tail[index])
            second = float(self.tail_discounted[index]) * exp(epsilon - self.centre)
        scale = exp(min(self.log_scale - self.order * self.centre, 700.0))
        # P13 (4): each of the two running sums over the window errs by 4 n u of its size at most.
        error = scale * 4 * _UNIT * self.tail.size * (abs(first) + abs(second))
        # P13 (1), (3): what is wrapped around, and the round-off of the FFT.
        error += exp(min(self.log_scale - self.order * epsilon, 700.0)) * self.allowance
        value = scale * (first - second) + self.infinite + self.sign * error
        if isnan(value):
            return 1.0 if self.sign > 0 else 0.0
        return min(max(value * exp(self.sign * self.doubt), 0.0), 1.0)

    def epsilon(self, delta: float) -> float:
        """The epsilon of a delta: `sign` > 0 rounds up, < 0 rounds down; inf outside the window."""
        first, last = max(0.0, self.first), self.first + self.step * (self.tail.size - 1)
        # Far below the centre the allowance swamps delta: look for the crossing from above.
        places = np.linspace(first, max(last, first), 65)
        values = [self.delta(float(place)) for place in places]
        crossed = [k for k in range(64) if values[k] > delta >= values[k + 1]]
        if not crossed:
            settled = self.sign > 0 and values[0] <= delta
            return first if settled else (float("inf") if self.sign > 0 else 0.0)
        return self._crossing(delta, float(places[crossed[-1]]), float(places[crossed[-1] + 1]))

    def _crossing(self, delta: float, low: float, high: float) -> float:
        """Where delta is crossed between two epsilons, by halving."""
        # SciPy's root finders leave a cycle of references to what they were given, and so to this
        # law's arrays until the collector comes by.
        while high - low > 1e-13 * max(1.0, high):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        # Only what `delta` says at the number itself is certified: the end on the safe side.
        return high if self.sign > 0 else low


def compose(
    steps: Sequence[tuple[discretise.GridLaw, int]], frame: TiltedGrid, sign: int
) -> ComposedLaw:
    """Convolve `count` copies of every law within the frame's window.

    The sign is +1 if the laws dominate the steps, -1 if they are dominated.
    """
    step = steps[0][0].step
    # P13 (1): what lies outside so many points is wrapped around; `allowance` pays for it.
    size = transform.fast_size(ceil((frame.high - frame.low) / step) + 2)
    moments = [law.log_moment(frame.order) for law, _ in steps]
    counted = list(zip(steps, moments, strict=True))
    spectrum, shift, error = _spectrum(counted, frame.order, size)
    origin = sum(count * law.offset for law, count in steps)
    start = floor((frame.low - origin) / step)
    probability = np.roll(fft.irfft(spectrum, size), -((start - shift) % size))
    del spectrum
    first, last = origin + step * start, origin + step * (start + size - 1)
    log_scale = sum(count * moment for (_, count), moment in counted)
    peak = exp(float(log_kernel_peak(frame.order))) if frame.order > 0 else 1.0
    away = first - frame.centre + step * np.arange(size)
    with np.errstate(over="ignore", invalid="ignore"):  # `delta` claims nothing from a NaN
        weighted = probability * np.exp(-frame.order * away)
        tail = np.cumsum(weighted[::-1])[::-1]
        discounted = np.cumsum((weighted * np.exp(-away))[::-1])[::-1]
    return ComposedLaw(
        sign=sign,
        order=frame.order,
        centre=frame.centre,
        first=first,
        step=step,
        tail=tail,
        tail_discounted=discounted,
        log_scale=log_scale,
        allowance=peak * _outside(steps, frame, log_scale, first, last)
        + error * _kernel_norm(frame.order, step, size),
        # P13: S p_inf is no less than 1 - (1 - p_inf)^S; a lower law leaves it out.
        infinite=sum(count * law.infinite for law, count in steps) if sign > 0 else 0.0,
        doubt=sum(
            count * (law.doubt + _tilting_error(law, frame.order, moment))
            for (law, count), moment in counted
        ),
    )


def _spectrum(
    steps: Sequence[tuple[tuple[discretise.GridLaw, int], float]], order: float, size: int
) -> tuple[Spectrum, int, float]:
    """The Fourier transform of the tilted convolution, shifted down, and its masses' round-off.

    Every law is centred before it is transformed; `shift` is by how many steps in all.
    """
    whole, many = transform.PowerProduct(size), len(steps) >= _MANY
    tilted = [(law.cuts, _tilted(law, order, moment), count) for (law, count), moment in steps]
    for cuts, mass, count in sorted(tilted, key=_width, reverse=True) if many else tilted:
        whole.multiply(cuts, mass, count)
        if many:
            whole.leave()
    spectrum, error = whole.result()
    # P13 (3), Parseval: the inverse scales the norm by n^-1/2; of a real law half the coefficients
    # are kept, and count twice.
    return spectrum, whole.shift, sqrt(2 * float(error @ error) / size)


def _tilted(law: discretise.GridLaw, order: float, moment: float) -> Array:
    """Its masses under the tilt, which sum to one."""
    with np.errstate(divide="ignore"):
        mass = np.exp(np.log(law.mass) + order * law.losses - moment)
    return np.asarray(mass / mass.sum())


def _width(part: tuple[discretise.Cuts, Array, int]) -> float:
    """The variance of so many steps, in grid steps: the widest leave least in a product."""
    cuts, mass, count = part
    return float(count * (mass @ (cuts - mass @ cuts) ** 2))


def _tilting_error(law: discretise.GridLaw, order: float, moment: float) -> float:
    """P13 (4): the exponent of a tilted mass is rounded, relative to the size of its terms."""
    smallest = float(law.mass[law.mass > 0].min())
    steepest = order * float(np.abs(law.losses).max())
    return 4 * _UNIT * (4 - log(smallest) + steepest + abs(moment))


def _kernel_norm(order: float, step: float, size: int) -> float:
    """Euclidean norm of t -> exp(-order t)(1 - exp(-t)) over the grid points t > 0."""
    # P13 (3): at order 0 the kernel is at most 1 on each point of the window.
    if order == 0:
        return sqrt(size)
    integral = 1 / (2 * order) - 2 / (2 * order + 1) + 1 / (2 * order + 2)
    return sqrt(integral / step + 1)


def _outside(
    steps: Sequence[tuple[discretise.GridLaw, int]],
    frame: TiltedGrid,
    log_scale: float,
    low: float,
    high: float,
) -> float:
    """Chernoff bound on the tilted mass of the composed law outside [low, high]."""

    def grown(order: float) -> float:
        return sum(count * law.log_moment(frame.order + order) for law, count in steps) - log_scale

    # P13 (2): any order gives a bound. The frame's own were chosen on a sketch, so smaller ones are
    # tried too.
    above = (grown(a) - a * high for a in frame.order_above * _SHARES)
    below = (grown(-b) + b * low for b in frame.order_below * _SHARES)
    return exp(min(0.0, *above)) + exp(min(0.0, *below))


# A number that is known from two sides, and how far apart they may be.

GAP = 3e-4  # relative distance of the two sides of a bound
ROUGH = 0.01  # of calibrations that are still far from their goal
WIDEST = 1e-3  # a bracket of epsilon that is told, where epsilon is at most 1; else relatively


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A number known to lie in [lower, upper]; `upper` is the end to guarantee.

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


def is_narrow(bound: Bound, share: float = 1.0) -> bool:
    """Whether a bracket of epsilon is as narrow as is promised, or that share of it."""
    return bound.upper - bound.lower <= share * WIDEST * max(1.0, bound.lower)


def told(bound: Bound) -> Bound:
    """A bracket of epsilon that may be told; refused where it is wider than is promised."""
    if bound.upper == inf:
        raise StudyError(
            "expected an epsilon of losses that a float can hold, got larger ones with more than "
            "delta; add noise: so little hides nothing"
        )
    # P13: its upper end holds all the same, but how much of it is only arithmetic nobody could say.
    if not is_narrow(bound):
        raise StudyError(
            f"expected epsilon with bounds within {WIDEST:g} of each other, got bounds of "
            f"{bound.lower:.4g} and {bound.upper:.4g}; add noise, or take fewer steps "
            "or a delta less close to 0 or 1"
        )
    return bound


# Bounds of one direction of the relation, on grids that are refined until they are close (P13).

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
_CELL_POINTS = 5  # the work on a cell of a grid, besides its law; see `arguments.spend`


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is read off the composed laws, and how closely."""

    coarse_laws: list[CoarseLaw]
    frame: TiltedGrid
    read: Callable[[ComposedLaw], float]
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
        self._points = 0.0  # that the last grids had, see `arguments.spend`
        self._step_made = 0.0

    def guess(self, delta: float) -> float:
        """About epsilon, from the cumulants alone."""
        return chernoff_epsilon(self._coarse_laws(delta), delta)

    def epsilon(self, delta: float, gap: float, enough: float = 0.0) -> Bound:
        """Epsilon at a delta; framed anew where the first guess was far too large.

        It is of no interest how far below `enough` it is.
        """
        best, frames = Bound(lower=0.0, upper=inf), 0
        if self._is_beyond_floats(delta):
            return best
        coarse_laws = self._coarse_laws(delta)
        guess = chernoff_epsilon(coarse_laws, delta)
        while True:
            scale = max(_LEAST_EPSILON, guess)
            frame = frame_for_delta(coarse_laws, delta, gap * scale, guess)
            step = step_for_gap(0.4 * gap * scale, frame.saddle, self._count)
            question = _Question(
                coarse_laws=coarse_laws,
                frame=frame,
                read=lambda law: law.epsilon(delta),
                allowed=lambda best: gap * max(_LEAST_EPSILON, best.lower),
                guess=guess,
                enough=enough,
            )
            best = self._refined(question, first_look(frame, step), best)
            frames += 1
            near = best.upper > _FAR * guess or best.upper <= enough  # past all bounds, too
            if near or frames == _FRAMES or best.upper - best.lower <= question.allowed(best):
                break
            guess = best.upper
        wide = gap < ROUGH and not is_narrow(best, 0.9)
        if wide and enough < best.upper < inf:
            excess = (best.upper - best.lower) / (WIDEST * max(1.0, best.lower))
            step = self._step_made * min(max(sqrt(0.5 / excess), 0.25), 0.7)
            step = step_within(frame, coarse_laws, step, finer=4)
            best = self._bracket(question, step, best)
        return best

    def delta(self, epsilon: float, gap: float) -> Bound:
        """Delta at an epsilon; framed anew where the first guess was far too large."""
        guess, best, last = LEAST_SEEN, Bound(lower=0.0, upper=1.0), None
        for _ in range(_FRAMES):
            coarse_laws = self._coarse_laws(guess)
            frame = frame_for_epsilon(coarse_laws, epsilon, least=guess)
            if frame == last:  # which has said all that it can
                break
            question = _Question(
                coarse_laws=coarse_laws,
                frame=frame,
                read=lambda law: law.delta(epsilon),
                allowed=lambda best: gap * best.lower + LEAST_SEEN,
            )
            step = step_for_gap(0.4 * gap / max(1.0, frame.saddle), frame.saddle, self._count)
            look = first_look(frame, step)
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
        this = chernoff_epsilon(coarse_laws, delta)
        room = epsilon * (1 - this / first) if first > 0 else 0.0
        if room <= _CLEAR * epsilon:
            return False
        if epsilon < _FAR * this:
            frame = frame_for_epsilon(coarse_laws, epsilon, least=delta)
        else:
            frame = frame_for_delta(coarse_laws, delta, room / 4)
        # P2: delta falls with epsilon, so this direction's epsilon is below the given one.
        return self._upper_law(coarse_laws, frame, room / 4).delta(epsilon) < delta

    def law_from_above(self, near: float) -> ComposedLaw:
        """The composed law from above, sharpest where delta is `near`."""
        coarse_laws = self._coarse_laws(near)
        gap = _close(coarse_laws, near)
        frame = frame_for_delta(coarse_laws, near, gap)
        return self._upper_law(coarse_laws, frame, gap)

    def law_from_below(self, near: float) -> ComposedLaw:
        """The composed law from below, sharpest where delta is `near`."""
        coarse_laws = self._coarse_laws(near)
        gap = _close(coarse_laws, near)
        frame = frame_for_delta(coarse_laws, near, gap)
        return self._laws(coarse_laws, frame, self._step(coarse_laws, frame, gap))[0]

    def _is_beyond_floats(self, delta: float) -> bool:
        """Whether losses that no grid holds are likelier than delta, so that no bound is finite."""
        last, sums = _LAST, 0.0
        for law, count in self._parts:
            p, q = (masses[-1] for masses in law.masses(np.array([-inf, 0.0, last, inf])))
            sums += count * max(float(p - q * exp(last)), 0.0)  # as `discretise` does
        return sums > delta

    def _coarse_laws(self, delta: float) -> list[CoarseLaw]:
        """The coarse law of every release, as far out as delta needs it."""
        tail = tail_for(delta, self._count)
        atoms = atoms_for(len(self._parts))
        return [coarse_law_of(law, count, tail, atoms) for law, count in self._parts]

    def _refined(self, question: _Question, step: float, best: Bound) -> Bound:
        """On finer and finer grids until the sides are as close as allowed."""
        before, stalled, points = inf, 0, 0.0
        for _ in range(_TRIES):
            finer = step_within(question.frame, question.coarse_laws, step)
            if points / finer > _MANY_POINTS and is_narrow(best, 0.9):
                break
            best = self._bracket(question, finer, best)
            points = self._points * finer
            excess = (best.upper - best.lower) / question.allowed(best)
            stalled += excess > 0.9 * before or excess == inf
            poor = best.upper <= _FAR * question.guess
            enough = best.upper <= question.enough
            beyond = best.lower - question.frame.centre > LARGEST_EXPONENT
            if excess <= 1 or stalled > 1 or finer > step or poor or enough or beyond:
                break
            # The gap is quadratic in the step; linear where a law's bulk is within one cell.
            step, before = finer * min(max(sqrt(0.6 / excess), 0.2), 0.7), excess
        return best

    def _bracket(self, question: _Question, step: float, best: Bound) -> Bound:
        """What a grid of this step says, where it is better than what is known already."""
        lower, upper = self._laws(question.coarse_laws, question.frame, step)
        # Both grids are certified, so the better end of either counts.
        return Bound(
            lower=max(best.lower, question.read(lower)), upper=min(best.upper, question.read(upper))
        )

    def _laws(
        self, coarse_laws: list[CoarseLaw], frame: TiltedGrid, step: float
    ) -> tuple[ComposedLaw, ComposedLaw]:
        """The composed law from below and from above on one grid."""
        below, above = [], []
        for law, count, cells in self._grids(coarse_laws, frame, step):
            low, high = discretise.bracket(law, cells, frame.saddle)
            below.append((low, count))
            above.append((high, count))
        return compose(below, frame, -1), compose(above, frame, +1)

    def _upper_law(
        self, coarse_laws: list[CoarseLaw], frame: TiltedGrid, gap: float
    ) -> ComposedLaw:
        """The composed law from above, at most about `gap` too large in epsilon."""
        grids = self._grids(coarse_laws, frame, self._step(coarse_laws, frame, gap))
        above = [(discretise.above(law, cells), count) for law, count, cells in grids]
        return compose(above, frame, +1)

    def _step(self, coarse_laws: list[CoarseLaw], frame: TiltedGrid, gap: float) -> float:
        """The step of a grid whose laws are about `gap` apart in epsilon."""
        step = step_for_gap(gap, frame.saddle, self._count)
        return step_within(frame, coarse_laws, step)

    def _grids(
        self, coarse_laws: list[CoarseLaw], frame: TiltedGrid, step: float
    ) -> Iterator[tuple[laws.Law, int, Grid]]:
        """The law and count of every release, and the law's cells."""
        self._step_made = step
        self._points = (frame.high - frame.low) / step
        arguments.spend(self._points)
        for (law, count), coarse in zip(self._parts, coarse_laws, strict=True):
            cells = grid(coarse, frame.saddle, step, frame.order)
            points = cells.cuts.size * (_CELL_POINTS + laws.work_of(law))
            arguments.spend(points)
            self._points += points
            yield law, count, cells


def _close(coarse_laws: Sequence[CoarseLaw], near: float) -> float:
    """The gap of a law that is asked at many epsilons, below all losses that it has."""
    guess = chernoff_epsilon(coarse_laws, near)
    return _CLOSE * min(1.0, guess) if guess > 0 else _CLOSE
