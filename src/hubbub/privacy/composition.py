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
from math import ceil, exp, floor, log, log2, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import brentq

from hubbub.privacy.discretise import GridLaw
from hubbub.privacy.tilting import Frame, log_kernel_peak

Array = NDArray[np.float64]

_UNIT = 2.0**-53
# Error of one coefficient of an FFT of a probability vector, in units of 2^-53 per binary stage.
_FFT_CONSTANT = 4.0


@dataclass(frozen=True, kw_only=True)
class ComposedLaw:
    """A composed law on one FFT window; `sign` is +1 to bound delta from above, -1 from below."""

    sign: int
    order: float
    centre: float
    losses: Array
    tail: Array  # sums over losses >= losses[j] of p~ exp(-order (l - centre))
    tail_discounted: Array  # the same with one more factor exp(-(l - centre))
    log_scale: float
    allowance: float  # times exp(log_scale - order eps): wrap-around and FFT round-off
    infinite: float

    def delta(self, epsilon: float) -> float:
        """delta(epsilon), certified on the side that `sign` says."""
        index = int(np.searchsorted(self.losses, epsilon, side="right"))
        first, second = 0.0, 0.0
        if index < self.losses.size:
            first = float(self.tail[index])
            second = float(self.tail_discounted[index]) * exp(epsilon - self.centre)
        scale = exp(min(self.log_scale - self.order * self.centre, 700.0))
        error = scale * 4 * _UNIT * sqrt(self.losses.size) * (abs(first) + abs(second))
        error += exp(min(self.log_scale - self.order * epsilon, 700.0)) * self.allowance
        value = scale * (first - second) + self.infinite + self.sign * error
        return min(max(value, 0.0), 1.0)

    def epsilon(self, delta: float) -> float:
        """The epsilon of a delta: `sign` > 0 rounds up, < 0 rounds down; inf outside the window."""
        first, last = max(0.0, float(self.losses[0])), float(self.losses[-1])
        # Far below the centre the allowance swamps delta: look for the crossing from above.
        places = np.linspace(first, max(last, first), 65)
        values = [self.delta(float(place)) for place in places]
        crossed = [k for k in range(64) if values[k] > delta >= values[k + 1]]
        if not crossed:
            settled = self.sign > 0 and values[0] <= delta
            return first if settled else (float("inf") if self.sign > 0 else 0.0)

        def excess(epsilon: float) -> float:
            return log(max(self.delta(epsilon), 1e-300)) - log(delta)

        low, high = float(places[crossed[-1]]), float(places[crossed[-1] + 1])
        root = float(brentq(excess, low, high, xtol=1e-13, rtol=1e-13))
        nudge = 1e-12 * max(1.0, root)
        return root + nudge if self.sign > 0 else max(root - nudge, 0.0)


def compose(steps: Sequence[tuple[GridLaw, int]], frame: Frame, sign: int) -> ComposedLaw:
    """Convolve `count` copies of every law within the frame's window.

    Args:
        steps: laws on grids with one common step, and how often each happens.
        frame: tilt and window.
        sign: +1 if the laws dominate the steps, -1 if they are dominated.
    """
    step = steps[0][0].step
    size = fft.next_fast_len(ceil((frame.high - frame.low) / step) + 2, real=True)
    spectrum: NDArray[np.complex128] = np.ones(size // 2 + 1, dtype=np.complex128)
    log_size = np.zeros(spectrum.size)
    parts: list[tuple[int, Array]] = []
    shifts, origin, log_scale, infinite = 0, 0.0, 0.0, 0.0
    for law, count in steps:
        moment = law.log_moment(frame.order)
        with np.errstate(divide="ignore"):
            mass = np.exp(np.log(law.mass) + frame.order * law.losses - moment)
        shift = round(float(mass @ law.cuts))
        one = fft.rfft(np.bincount((law.cuts - shift) % size, weights=mass, minlength=size))
        spectrum *= one**count
        parts.append((count, np.log(np.maximum(np.abs(one), _UNIT))))
        log_size += count * parts[-1][1]
        shifts += count * shift
        origin += count * law.offset
        log_scale += count * moment
        infinite += count * law.infinite
    first = floor((frame.low - origin) / step)
    probability = np.roll(fft.irfft(spectrum, size), -((first - shifts) % size))
    losses = origin + step * (first + np.arange(size))
    round_off = _round_off(parts, log_size, size) * _kernel_norm(frame.order, step, size)
    wrap = _outside(steps, frame, log_scale, float(losses[0]), float(losses[-1]))
    peak = exp(float(log_kernel_peak(frame.order))) if frame.order > 0 else 1.0
    away = losses - frame.centre
    weighted = probability * np.exp(-frame.order * away)
    return ComposedLaw(
        sign=sign,
        order=frame.order,
        centre=frame.centre,
        losses=losses,
        tail=np.cumsum(weighted[::-1])[::-1],
        tail_discounted=np.cumsum((weighted * np.exp(-away))[::-1])[::-1],
        log_scale=log_scale,
        allowance=peak * wrap + round_off,
        infinite=infinite if sign > 0 else 0.0,
    )


def _round_off(parts: Sequence[tuple[int, Array]], log_size: Array, size: int) -> float:
    """Euclidean norm of the error of the convolved masses.

    An error `a` in a coefficient phi becomes S a |phi|^(S - 1) in its S-th power, times the other
    factors; by Parseval the norm over the spectrum, divided by sqrt(size), is that of the masses.
    """
    unit = _FFT_CONSTANT * _UNIT * log2(size)
    error = np.exp(log_size)
    for count, log_one in parts:
        error += count * np.exp(log_size - log_one)
    return unit * sqrt(2 * float(error @ error) / size)


def _kernel_norm(order: float, step: float, size: int) -> float:
    """Euclidean norm of t -> exp(-order t)(1 - exp(-t)) over the grid points t > 0."""
    if order == 0:
        return sqrt(size)
    integral = 1 / (2 * order) - 2 / (2 * order + 1) + 1 / (2 * order + 2)
    return sqrt(integral / step + 1)


def _outside(
    steps: Sequence[tuple[GridLaw, int]], frame: Frame, log_scale: float, low: float, high: float
) -> float:
    """Chernoff bound on the tilted mass of the composed law outside [low, high]."""
    above, below = frame.order + frame.order_above, frame.order - frame.order_below
    log_above = sum(count * law.log_moment(above) for law, count in steps) - log_scale
    log_below = sum(count * law.log_moment(below) for law, count in steps) - log_scale
    return exp(min(log_above - frame.order_above * high, 0.0)) + exp(
        min(log_below + frame.order_below * low, 0.0)
    )
