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

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, isnan, log, sqrt

import numpy as np
from numpy import fft
from numpy.typing import NDArray

from hubbub.core.privacy import discretise, fft_window, transform

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
        epsilon -= self.sign * self.doubt
        if epsilon - self.centre > LARGEST_EXPONENT:  # exp() would overflow: nothing is claimed
            return 1.0 if self.sign > 0 else 0.0
        index = max(floor((epsilon - self.first) / self.step) + 1, 0)
        first, second = 0.0, 0.0
        if index < self.tail.size:
            first = float(self.tail[index])
            second = float(self.tail_discounted[index]) * exp(epsilon - self.centre)
        scale = exp(min(self.log_scale - self.order * self.centre, 700.0))
        error = scale * 4 * _UNIT * self.tail.size * (abs(first) + abs(second))
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
        root = self._crossing(delta, float(places[crossed[-1]]), float(places[crossed[-1] + 1]))
        nudge = self.sign * 1e-12 * max(1.0, root)
        while (self.delta(root) > delta) == (self.sign > 0):  # until the root is on the safe side
            root, nudge = root + nudge, 2 * nudge
        return max(root, 0.0)

    def _crossing(self, delta: float, low: float, high: float) -> float:
        """Where delta is crossed between two epsilons, by halving.

        SciPy's root finders leave a cycle of references to what they were given, and so to this
        law's arrays until the collector comes by.
        """
        while high - low > 1e-13 * max(1.0, high):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high if self.sign > 0 else low


def compose(
    steps: Sequence[tuple[discretise.GridLaw, int]], frame: fft_window.TiltedGrid, sign: int
) -> ComposedLaw:
    """Convolve `count` copies of every law within the frame's window.

    The sign is +1 if the laws dominate the steps, -1 if they are dominated.
    """
    step = steps[0][0].step
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
    peak = exp(float(fft_window.log_kernel_peak(frame.order))) if frame.order > 0 else 1.0
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
    if order == 0:
        return sqrt(size)
    integral = 1 / (2 * order) - 2 / (2 * order + 1) + 1 / (2 * order + 2)
    return sqrt(integral / step + 1)


def _outside(
    steps: Sequence[tuple[discretise.GridLaw, int]],
    frame: fft_window.TiltedGrid,
    log_scale: float,
    low: float,
    high: float,
) -> float:
    """Chernoff bound on the tilted mass of the composed law outside [low, high].

    Any order gives a bound. The frame's own were chosen on a sketch, so smaller ones are tried too.
    """

    def grown(order: float) -> float:
        return sum(count * law.log_moment(frame.order + order) for law, count in steps) - log_scale

    above = (grown(a) - a * high for a in frame.order_above * _SHARES)
    below = (grown(-b) + b * low for b in frame.order_below * _SHARES)
    return exp(min(0.0, *above)) + exp(min(0.0, *below))
