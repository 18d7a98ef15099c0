"""The logarithm of a law's Fourier transform, so exact that a power of ten million may be taken.

Theory of operation (docs/privacy.md P13 (3)). A coefficient that an FFT computes errs by about u =
2^-53 whatever its size, and a power S of it by S u. But where |phi|^S is anything at all, phi - 1
is about 1 / S, and that difference can be had with an error relative to itself. With z = e^(-i t),

    z^k - 1 = k (z - 1) + (z - 1)^2 (positive sum of powers of z),

so the transform of the masses near the centre, less 1, is their mean times z - 1, and (z - 1)^2
times the transform of their tails added up twice. The FFT of those errs by u times their sum, about
half the variance; with the factor |z - 1|^2 that is u |phi - 1|. What lies far from the centre has
mass below 1 / S, and an FFT of its own.

Of many laws the product is next to nothing but at some tens of the lowest frequencies, for it is
about a Gaussian as wide as a tenth of the window. Once that is seen of the laws multiplied so far,
whose transforms bound the product, others are summed at what is left alone: sin and cos of k t are
exact relative to z^k - 1. What was left is counted as error. This file knows masses on integers, no
losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from math import ceil, floor, inf, log, log2, log10, nan, sqrt

import numpy as np
from numpy import fft
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy.arguments import spend
from hubbub.core.privacy.laws import Law, work_of

Array = NDArray[np.float64]
Cuts = NDArray[np.int64]
Spectrum = NDArray[np.complex128]

_UNIT = 2.0**-53
# Error of one coefficient of an FFT of a probability vector, in units of 2^-53 per binary stage.
_FFT_CONSTANT = 4.0
_LOW = 64  # a power of which an FFT's own error is nothing
_TOGETHER = 8
_LEAST = 1e-300
_ODD: list[int] = sorted(3**a * 5**b for a in range(41) for b in range(28))
_SUM = 40  # roundings in a pairwise sum of up to 2^30 numbers, and in what becomes of it
_NOTHING = -44.0  # the log of a coefficient that is nothing beside round-off
_SUMMED = 1 << 18  # terms that are summed at once
_FEWER = 256  # of so many frequencies one is left where sums are quicker than an FFT


def fast_size(least: int) -> int:
    """The least number from `least` on with no prime factor above 5: an FFT of it is quick.

    >>> [fast_size(least) for least in (7, 1000, 1025)]
    [8, 1000, 1080]
    """
    few = takewhile(lambda odd: odd < 2 * least, _ODD)  # a power of two is below that
    return min(one << (-(-least // one) - 1).bit_length() for one in few)


class PowerProduct:
    """The product of powers of transforms, and a bound on the error of every coefficient."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept = np.arange(size // 2 + 1)  # frequencies that are still looked at
        self._lost = np.zeros(size // 2 + 1)  # how large a coefficient of another one may be
        self._logarithm: Spectrum = np.zeros(size // 2 + 1, dtype=np.complex128)
        self._largest = np.zeros(size // 2 + 1)  # the log of how large it may be
        self._relative = np.zeros(size // 2 + 1)
        self._waiting: list[tuple[Spectrum, Array]] = []  # of the same low power
        self._power = 0
        self.shift = 0  # of all laws, which are centred before they are transformed

    def multiply(self, cuts: Cuts, mass: Array, count: int) -> None:
        """By the power `count` of the transform of masses that sum to one, at increasing cuts."""
        # About the mean, so that m of P13 (3) is less than a grid step.
        centre = round(float((mass * cuts).sum()))
        self.shift += count * centre
        if self._kept.size < self._lost.size:
            less_one, error = _summed(cuts - centre, mass, self._kept, self._size)
            self._take(*_logarithm(less_one, error), count)
            return
        if count <= _LOW:
            if len(self._waiting) >= _TOGETHER or count != self._power:
                self._settle()
            self._power = count
            self._waiting.append(_plain(cuts - centre, mass, self._size))
            return
        less_one, error = _less_one(cuts - centre, mass, 0.5 / count, self._size)
        self._take(*_logarithm(less_one, error), count)

    def leave(self) -> None:
        """Look no more at frequencies where the product is nothing, if few others are left."""
        self._settle()
        left = self._largest > _NOTHING
        if left.sum() > self._kept.size // _FEWER:
            return
        # P13 (3): what is not looked at any more is an error, as large as it may be.
        self._lost[self._kept[~left]] = np.exp(self._largest[~left])
        self._kept, self._logarithm = self._kept[left], self._logarithm[left]
        self._largest, self._relative = self._largest[left], self._relative[left]

    def result(self) -> tuple[Spectrum, Array]:
        """The coefficients, and by how much each may be wrong, the inverse's part included."""
        self._settle()
        error = self._lost
        error[self._kept] = np.exp(self._largest) * (self._relative + error_of_one(self._size))
        whole = np.zeros(error.size, dtype=np.complex128)
        whole[self._kept] = np.exp(self._logarithm)
        return whole, error

    def _settle(self) -> None:
        """Multiply by the powers that wait, all at once: logarithms are dear."""
        if not self._waiting:
            return
        product = self._waiting[0][0].copy()
        bound, relative = np.ones(product.size), np.zeros(product.size)
        for value, _ in self._waiting[1:]:
            product *= value
        for value, error in self._waiting:
            size = np.abs(value) + error
            bound, relative = bound * size, relative + error / size + 8 * _UNIT
        modulus = np.log(np.maximum(np.abs(product), _LEAST))
        self._logarithm += self._power * (modulus + 1j * np.angle(product))
        self._largest += self._power * np.log(bound)
        self._relative += self._power * relative
        self._waiting = []

    def _take(self, logarithm: Spectrum, error: Array, count: int) -> None:
        """Multiply by one power. |(phi + e)^S - phi^S| <= S |e| (|phi| + |e|)^(S - 1)."""
        bound = np.log(np.exp(logarithm.real) + error)
        self._logarithm += count * logarithm
        self._largest += count * bound
        self._relative += count * error * np.exp(-bound)


def error_of_one(size: int) -> float:
    """The largest error of a coefficient of an FFT of numbers whose sizes add up to one."""
    return _FFT_CONSTANT * _UNIT * log2(size)


def _plain(places: Cuts, mass: Array, size: int) -> tuple[Spectrum, Array]:
    """The transform, and a bound on its error."""
    value = fft.rfft(np.bincount(places % size, weights=mass, minlength=size))
    return value, np.full(value.size, error_of_one(size))


def _less_one(places: Cuts, mass: Array, tail: float, size: int) -> tuple[Spectrum, Array]:
    """The transform less one, and a bound on its error; `tail` may be far from the centre."""
    first, last = _near(mass, tail)
    near, error = _near_centre(places[first:last], mass[first:last], size)
    rest = np.concatenate([mass[:first], mass[last:]])
    away = np.concatenate([places[:first], places[last:]])
    far = fft.rfft(np.bincount(away % size, weights=rest, minlength=size))
    error += 2 * error_of_one(size) * float(rest.sum())
    # P13 (3): far[0] is the mass far out, so each part is a transform less its own share of 1.
    return near + (far - far[0]), error


def _summed(places: Cuts, mass: Array, frequencies: Cuts, size: int) -> tuple[Spectrum, Array]:
    """The transform less one at some frequencies, and a bound on its error."""
    rows = max(1, _SUMMED // places.size)
    sums = np.empty((3, frequencies.size))
    for first in range(0, frequencies.size, rows):
        few = slice(first, first + rows)
        turn = frequencies[few, None] * places % size
        angle = 2 * np.pi / size * np.where(2 * turn > size, turn - size, turn)
        half = np.sin(angle / 2)
        parts = (-2 * half**2, -np.sin(angle), 2 * np.abs(half))  # and |z^k - 1|
        sums[:, few] = [(mass * part).sum(axis=1) for part in parts]
    return sums[0] + 1j * sums[1], 2 * _SUM * _UNIT * sums[2]


def _near(mass: Array, tail: float) -> tuple[int, int]:
    """The range of masses that leaves out at most `tail` on either side."""
    first = int(np.searchsorted(np.cumsum(mass), tail))
    last = mass.size - int(np.searchsorted(np.cumsum(mass[::-1]), tail))
    return first, last


def _near_centre(places: Cuts, mass: Array, size: int) -> tuple[Spectrum, Array]:
    """Sum of mass (z^place - 1) at all frequencies, and a bound on its error."""
    angle = 2 * np.pi / size * np.arange(size // 2 + 1)
    step = -2 * np.sin(angle / 2) ** 2 - 1j * np.sin(angle)  # z - 1
    least, most = min(int(places[0]), 0), max(int(places[-1]), 0)
    dense = np.zeros(most - least + 1)
    dense[places - least] = mass
    right, left = _added_twice(dense[-least:]), _added_twice(dense[: 1 - least][::-1])
    # z^k - 1 needs z^0 ... z^(k-2), and z^-k - 1 needs z^-1 ... z^-k.
    twice = np.concatenate([left[:0:-1], right[2:]])
    indices = np.arange(least, least + twice.size)
    curved = fft.rfft(np.bincount(indices % size, weights=twice, minlength=size))
    mean = float((mass * places).sum())
    total, spread = float(twice.sum()), float((mass * np.abs(places)).sum())
    length = np.abs(step)
    roundings = 4 * ceil(sqrt(dense.size)) + _SUM
    error = length**2 * total * (error_of_one(size) + roundings * _UNIT)
    # P13 (3): (z - 1) m + (z - 1)^2 times the transform of the tails added up twice.
    return step * (mean + step * curved), error + length * spread * _SUM * _UNIT


def _added_twice(mass: Array) -> Array:
    """At k: the sum over places p >= k of (p - k + 1) mass[p]."""
    return _sums_from(_sums_from(mass))


def _sums_from(numbers: Array) -> Array:
    """Sums over all places from the k-th on, in blocks: 2 sqrt(n) roundings instead of n."""
    block = ceil(sqrt(numbers.size))
    padded = np.zeros(block * block)
    padded[-numbers.size :] = numbers[::-1]
    rows = np.cumsum(padded.reshape(block, block), axis=1)
    rows[1:] += np.cumsum(rows[:-1, -1])[:, None]
    return np.asarray(rows.reshape(-1)[-numbers.size :][::-1])


def _logarithm(less_one: Spectrum, error: Array) -> tuple[Spectrum, Array]:
    """log(1 + w), to a few roundings of w where that is small, of 1 elsewhere."""
    real, imag = less_one.real, less_one.imag
    size = np.abs(less_one)
    modulus = np.empty(size.size)
    small = size < 0.5
    modulus[small] = 0.5 * np.log1p((2 * real + real**2 + imag**2)[small])
    modulus[~small] = np.log(np.maximum(np.hypot(1 + real, imag)[~small], _UNIT))
    lost = np.where(small, 16 * size, 8.0) * _UNIT
    return modulus + 1j * np.arctan2(imag, 1 + real), error + lost


# A coarse sketch of a step's law: some 1500 atoms, for which cumulants are cheap.
#
# Where to look is read off it; nothing that is certified rests on it.

ORDERS = np.geomspace(1e-4, 1e8, 361)  # among which frames are chosen
FEW = 8  # of them that are worked on together: what they need is in a cache
_ATOMS = 1500
_FEWEST_ATOMS = 150
_DEAR = 30.0  # see `work_of`
_TAIL = 1e-26  # P-mass outside the sketch; the range of the grid is the same
_CUT = 1e-4  # share of delta that all steps may leave outside their coarse_laws
_LOG_NOTHING = 60.0
_LOG_ZERO = -746.0  # exp() of less is zero
_LARGEST_LOSS = 600.0  # of a grid: exp() of it is finite; what is beyond goes to the ends or +inf


@dataclass(frozen=True, kw_only=True)
class CoarseLaw:
    """A step's law as few atoms, how often it happens, and the edges it was drawn from."""

    count: int
    loss: Array
    mass: Array
    low: float
    high: float
    atom: bool
    once: Array  # of one step, at the orders among which frames are chosen; NaN until asked for

    def cumulants(self, orders: Array) -> Array:
        """log E exp(order * L) for every order, times the count."""
        return np.asarray(self.count * _cumulants_of(self.loss, self.mass, orders))

    def at(self, some: slice) -> Array:
        """`cumulants` at some of the orders among which frames are chosen; they are kept."""
        kept = self.once[some]
        if (new := np.isnan(kept)).any():
            kept[new] = _cumulants_of(self.loss, self.mass, ORDERS[some][new])
        return np.asarray(self.count * kept)

    def lowest(self, order: float) -> float:
        """The least loss for which a grid has a cell: under the tilt nothing lies below it.

        What does counts as this loss above, and not at all below; either way it is e^-60 of the
        tilted mass.
        """
        if order <= 0:
            return self.low
        moment = float(self.cumulants(np.array([order]))[0]) / self.count
        return max(self.low, min((moment - _LOG_NOTHING) / order, self.high))

    def tilted(self, order: float) -> Array:
        """Masses under the tilt, summing to one."""
        exponent = order * self.loss + np.log(self.mass)
        weight = np.exp(exponent - exponent.max())
        return np.asarray(weight / weight.sum())


def coarse_law_of(law: Law, count: int, tail: float = _TAIL, atoms: int = _ATOMS) -> CoarseLaw:
    """A law's coarse atoms, for so many steps, without losses of less probability than `tail`."""
    return replace(_coarse(law, tail, atoms), count=count)


def atoms_for(laws: int) -> int:
    """Of each sketch, where there are so many."""
    return max(_FEWEST_ATOMS, min(_ATOMS, 20 * _ATOMS // laws))


def tail_for(delta: float, count: int) -> float:
    """The probability of losses of one step, among so many, that are nothing beside delta."""
    level = floor(log10(_CUT * delta / count))  # few values: coarse_laws are kept
    return 10.0 ** max(level, -40)


@lru_cache(maxsize=32)  # a run asks for the same law after every number of its steps
def _coarse(law: Law, tail: float, atoms: int) -> CoarseLaw:
    """The atoms of one step; a third as many of a law that is dear."""
    if work_of(law) > _DEAR:
        atoms = max(_FEWEST_ATOMS, atoms // 3)
    spend(ORDERS.size * atoms / 50 + atoms * work_of(law))
    edges = law.quantiles(tail, atoms)
    p, q = law.masses(np.concatenate([[-np.inf], edges, [np.inf]]))
    seen = (p > 1e-300) & (q > 1e-300)
    loss, mass = np.log(p[seen] / q[seen]), p[seen]
    if law.atom > 0:
        loss, mass = np.append(loss, 0.0), np.append(mass, law.atom)
    if not loss.size:
        raise StudyError(
            "expected losses that a float can hold, got larger ones in every outcome; add noise: "
            "so little hides nothing"
        )
    rank = np.argsort(loss)
    return CoarseLaw(
        count=1,
        loss=loss[rank],
        mass=mass[rank],
        once=np.full(ORDERS.size, nan),
        low=max(float(edges[0]), -_LARGEST_LOSS),
        high=min(float(edges[-1]), _LARGEST_LOSS),
        atom=law.atom > 0,
    )


def _cumulants_of(loss: Array, mass: Array, orders: Array) -> Array:
    """log E exp(order * L) of one step, for every order; few at a time, which a cache holds."""
    few = (orders[first : first + FEW] for first in range(0, orders.size, FEW))
    return np.concatenate([_log_moments(loss, np.log(mass), some) for some in few])


def _log_moments(loss: Array, log_mass: Array, orders: Array) -> Array:
    """The same; exp() is not asked for what it would make zero of, which takes it longest."""
    exponent = np.outer(orders, loss)
    exponent += log_mass
    top = exponent.max(axis=1)
    exponent -= top[:, None]
    terms = np.exp(exponent, where=exponent > _LOG_ZERO, out=np.zeros_like(exponent))
    return np.asarray(top + np.log(terms.sum(axis=1)))


# Where to look: the exponential tilt, the window and the grid for one composition.
#
# Everything decided here changes speed and sharpness only. A bad choice makes a wide bracket, never
# a wrong one: `composition.py` certifies whatever it is given. The decisions are read off the laws'
# coarse_laws.

_Near = Callable[[Array, Array], NDArray[np.bool_]]

_LOG_WRAP = log(1e10)  # tilted mass outside the window, to be confirmed on the final law
_LOG_SHARE = log(1e7)  # the same beside the tilted mass that makes delta
_DIGITS = log(1e8)  # how small that may be: round-off is about 1e-14
# The tilt may stay this far, in log delta, below the saddle point: a smaller tilt keeps rare large
# losses from dominating the tilted law, and costs only as many digits of the round-off allowance.
_SLACK = 4.0
_LEAST_STEP = 1e-30  # of deltas that a frame is made for
_FINEST = 1 << 20  # most points of a window, and of a grid over a law's range: bounds memory
_LOOK = 1 << 16  # points with which a frame is tried
_COARSEST = 1 << 9  # fewest points of a window


@dataclass(frozen=True, kw_only=True)
class TiltedGrid:
    """The tilt, the window of composed losses, and the orders that bound what lies outside it."""

    order: float
    saddle: float
    centre: float
    low: float
    high: float
    order_above: float
    order_below: float


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cells of the loss axis: centres at offset + step * cuts, odd widths in steps, no gaps."""

    step: float
    offset: float
    cuts: Cuts
    widths: Cuts


def log_kernel_peak(order: float | Array) -> float | Array:
    """log of max over t > 0 of exp(-order t)(1 - exp(-t)) (docs/privacy.md P13)."""
    return order * (np.log(order) - np.log1p(order)) - np.log1p(order)


def frame_for_delta(
    coarse_laws: Sequence[CoarseLaw], delta: float, gap: float, guess: float = inf
) -> TiltedGrid:
    """A frame around the epsilon at which the composition reaches delta.

    It is at most `guess`. Where rare large losses decide, the guess from the cumulants may be ten
    times the truth; then a first bracket gives a better one.
    """
    epsilon = _chernoff(coarse_laws, delta)
    best = float(epsilon.min())
    if guess < best:
        return frame_for_epsilon(coarse_laws, guess, delta)
    saddle = float(ORDERS[np.argmax(epsilon <= best + 0.02 * gap)])
    order = float(ORDERS[np.argmax(_is_close(epsilon, ORDERS) & (saddle >= ORDERS))])
    return _frame(coarse_laws, 0.0 if best <= 0 else min(order, saddle), saddle, max(best, 0.0))


def frame_for_epsilon(
    coarse_laws: Sequence[CoarseLaw], epsilon: float, least: float = _LEAST_STEP
) -> TiltedGrid:
    """A frame around a given epsilon, to see a delta that is not much below `least`."""

    def value(total: Array, orders: Array) -> Array:
        return np.asarray(total - orders * epsilon + log_kernel_peak(orders))

    log_delta = _curve(coarse_laws, value, lambda found, _: found <= _goal(found, least)[1])
    best, allowed, wrap = _goal(log_delta, least)
    saddle = float(ORDERS[np.argmax(log_delta <= best + 0.02)])
    order = float(ORDERS[np.argmax(log_delta <= allowed)])
    return _frame(coarse_laws, 0.0 if order == ORDERS[0] else order, saddle, epsilon, wrap=wrap)


def _goal(log_delta: Array, least: float) -> tuple[float, float, float]:
    """The best log delta, up to which one the tilt may stay, and the window's log share."""
    best = max(float(log_delta.min()), log(least))
    if least <= _LEAST_STEP or best <= log(least):
        return best, best + _SLACK, _LOG_WRAP
    # Most of the tilted mass is elsewhere than what makes delta. A tilt that leaves enough
    # digits of that lets rare large losses weigh least, and the window be narrowest.
    allowed = max(best + 1.0, log(least) + _DIGITS)
    return best, allowed, _LOG_SHARE + allowed - log(least)


def chernoff_epsilon(coarse_laws: Sequence[CoarseLaw], delta: float) -> float:
    """An estimate of epsilon from the cumulants alone (a start for root finding, no bound)."""
    return float(_chernoff(coarse_laws, delta).min())


def _chernoff(coarse_laws: Sequence[CoarseLaw], delta: float) -> Array:
    """The epsilon that each order gives."""

    def epsilon(total: Array, orders: Array) -> Array:
        return np.asarray((total - log(delta) + log_kernel_peak(orders)) / orders)

    return _curve(coarse_laws, epsilon, _is_close)


def _is_close(epsilon: Array, orders: Array) -> NDArray[np.bool_]:
    """Which orders' epsilon is, in log delta, little above the least."""
    return np.asarray(orders * (epsilon - epsilon.min()) <= _SLACK)


def step_for_gap(gap: float, order: float, count: int) -> float:
    """Grid step at which upper and lower bound differ by about `gap`: gap = (order+1) S h^2 / 8."""
    return float(np.sqrt(8 * gap / ((order + 1) * count)))


def first_look(frame: TiltedGrid, step: float) -> float:
    """A step with few points, by which a frame may turn out to be a poor one."""
    return max(step, (frame.high - frame.low) / _LOOK)


def step_within(
    frame: TiltedGrid, coarse_laws: Sequence[CoarseLaw], step: float, finer: int = 1
) -> float:
    """The nearest step with which neither the window nor a law's grid has too many points.

    `finer` times as many as usual are allowed.
    """
    window, finest = frame.high - frame.low, finer * _FINEST
    reach = max(
        [window, *(coarse_law.high - coarse_law.lowest(frame.order) for coarse_law in coarse_laws)]
    )
    return max(min(step, window / _COARSEST), window / finest, reach / (4 * finest))


def grid(one: CoarseLaw, order: float, step: float, tilt: float) -> Grid:
    """Cells for one law: one `step` wide in the bulk, 3, 9, 27 ... steps in the tails.

    The error of a cell is its tilted mass, at the saddle point's `order`, times its width squared,
    so width^3 may grow like one over the mass that lies further out.
    """
    weight = one.tilted(order)
    offset = _offset(one, weight, step)
    away = one.loss - offset
    above, below = np.cumsum(weight[::-1])[::-1], np.cumsum(weight)
    most = max(0, floor(log(max(1.0, 0.5 / (step * (order + 1))), 3)))
    right = [ceil(_reach(away, above, j) / step) for j in range(1, most + 1)]
    left = [ceil(-_reach(-away[::-1], below[::-1], j) / step) for j in range(1, most + 1)]
    outer = _cells(right, ceil((one.high - offset) / step))
    inner = _cells([-edge for edge in left], ceil((offset - one.lowest(tilt)) / step))
    centre = np.concatenate([-inner[0][::-1], [0], outer[0]])
    widths = np.concatenate([inner[1][::-1], [1], outer[1]])
    return Grid(step=step, offset=offset, cuts=centre, widths=widths)


def _offset(one: CoarseLaw, weight: Array, step: float) -> float:
    """The loss of the heaviest cell, so that a bulk narrower than a step falls on a cut."""
    if one.atom:
        return 0.0
    at = float(one.loss[np.searchsorted(np.cumsum(weight), 0.5)])
    for _ in range(3):
        near = np.abs(one.loss - at) <= step / 2
        mass = one.mass[near]
        at = float(np.log(mass.sum() / (mass * np.exp(-one.loss[near])).sum()))
    return at


def _reach(loss: Array, beyond: Array, level: int) -> float:
    """The loss past which less than 27^-level / 1000 of the tilted mass lies."""
    return float(loss[min(int(np.sum(1000 * beyond > 27.0**-level)), loss.size - 1)])


def _cells(ends: list[int], last: int) -> tuple[Cuts, Cuts]:
    """Centres and widths of cells from 1/2 out; width 3^j runs to about ends[j]."""
    # Near `last` the cells narrow again: a law that is bounded on this side may have its bulk
    # there. The outermost centre is not before it: from above, what lies beyond counts as certain.
    runs, edge = [], 1  # the next cell's inner edge is at edge - 1/2
    rising = list(enumerate([*ends, last + 1]))
    for level, end in rising + [(level, last + 1) for level in reversed(range(len(ends)))]:
        width, stop = 3**level, min(end, last + 1)
        count = max(0, (stop - edge) // width)
        runs.append((edge + (width - 1) // 2 + width * np.arange(count), np.full(count, width)))
        edge += width * count
    centres, widths = (np.concatenate(part).astype(np.int64) for part in zip(*runs, strict=True))
    if widths.size and widths[-1] > 1:
        return np.append(centres, edge), np.append(widths, 1)
    return centres, widths


def _curve(
    coarse_laws: Sequence[CoarseLaw], value: Callable[[Array, Array], Array], is_near: _Near
) -> Array:
    """What `value` makes of the composition's cumulants and orders; inf far from its least."""
    curve = np.full(ORDERS.size, inf)

    def look(some: slice) -> None:
        curve[some] = value(
            np.asarray(sum(coarse_law.at(some) for coarse_law in coarse_laws)), ORDERS[some]
        )

    # It falls, and then rises: every so many orders show where it is near.
    look(slice(None, None, FEW))
    coarse = curve[::FEW]
    first, least = np.argmax(is_near(coarse, ORDERS[::FEW])), np.argmin(coarse)
    look(slice(FEW * max(int(first) - 1, 0), FEW * (int(least) + 1)))
    return curve


def _cumulants(coarse_laws: Sequence[CoarseLaw], orders: Array) -> Array:
    """Cumulants of the whole composition."""
    return np.asarray(sum(coarse_law.cumulants(orders) for coarse_law in coarse_laws))


def _frame(
    coarse_laws: Sequence[CoarseLaw],
    order: float,
    saddle: float,
    epsilon: float,
    wrap: float = _LOG_WRAP,
) -> TiltedGrid:
    """The window that holds nearly all of the tilted composition, and epsilon."""
    mean, variance = 0.0, 0.0
    for coarse_law in coarse_laws:
        weight = coarse_law.tilted(order)
        first = float(weight @ coarse_law.loss)
        mean += coarse_law.count * first
        variance += coarse_law.count * float(weight @ (coarse_law.loss - first) ** 2)
    spread = max(variance**0.5, 1e-12)
    # Rare large losses leave a law far wider than its spread: then smaller orders are right.
    offsets = np.geomspace(min(0.02 / spread, 0.1), 200 / spread, 60)
    now = float(_cumulants(coarse_laws, np.array([order]))[0])

    def reach(away: Array) -> Array:
        return (_cumulants(coarse_laws, order + away) - now + wrap) / np.abs(away)

    high, above = _lowest(reach, offsets)
    low, below = _lowest(reach, -offsets)
    margin = 0.02 * (high + low)
    floor_of_exp = mean - 600 / max(order, 1e-9)  # exp(-order (l - centre)) stays finite
    return TiltedGrid(
        order=order,
        saddle=saddle,
        centre=mean,
        low=max(min(-low, epsilon) - margin, floor_of_exp),
        high=max(high, epsilon) + margin,
        order_above=above,
        order_below=-below,
    )


def _lowest(value: Callable[[Array], Array], places: Array) -> tuple[float, float]:
    """The least value and its place, of what falls and then rises: every so many, then between."""
    # (K(s + t) - K(s) + w) / t does: its slope has the sign of t K' - (K(s + t) - K(s)) - w, which
    # grows with t, for K is convex.
    coarse = places[::FEW]
    least = FEW * int(value(coarse).argmin())
    fine = places[max(least - FEW + 1, 0) : least + FEW]
    values = value(fine)
    return float(values.min()), float(fine[values.argmin()])
