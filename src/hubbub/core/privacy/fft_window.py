"""Where to look: the exponential tilt, the window and the grid for one composition.

Everything decided here changes speed and sharpness only. A bad choice makes a wide bracket, never a
wrong one: `composition.py` certifies whatever it is given. The decisions are read off the laws'
coarse_laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy.coarse_law import FEW, ORDERS, CoarseLaw

Array = NDArray[np.float64]
Cuts = NDArray[np.int64]
_Near = Callable[[Array, Array], NDArray[np.bool_]]

_LOG_WRAP = log(1e10)  # tilted mass outside the window, to be confirmed on the final law
_LOG_SHARE = log(1e7)  # the same beside the tilted mass that makes delta
_DIGITS = log(1e8)  # how small that may be: round-off is about 1e-14
# The tilt may stay this far, in log delta, below the saddle point: a smaller tilt keeps rare large
# losses from dominating the tilted law, and costs only as many digits of the round-off allowance.
_SLACK = 4.0
_LEAST = 1e-30  # of deltas that a frame is made for
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
    coarse_laws: Sequence[CoarseLaw], epsilon: float, least: float = _LEAST
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
    if least <= _LEAST or best <= log(least):
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
    """Centres and widths of cells from 1/2 out; width 3^j runs to about ends[j].

    Near `last` the cells narrow again: a law that is bounded on this side may have its bulk there.
    The outermost centre is not before it: from above, what lies beyond counts as certain.
    """
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
    """What `value` makes of the composition's cumulants and their orders; inf far from its least.

    It falls, and then rises: every so many orders show where it is near.
    """
    curve = np.full(ORDERS.size, inf)

    def look(some: slice) -> None:
        curve[some] = value(
            np.asarray(sum(coarse_law.at(some) for coarse_law in coarse_laws)), ORDERS[some]
        )

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
    """The least value and its place, of what falls and then rises: every so many, then between.

    (K(s + t) - K(s) + w) / t does: its slope has the sign of t K' - (K(s + t) - K(s)) - w, which
    grows with t, for K is convex.
    """
    coarse = places[::FEW]
    least = FEW * int(value(coarse).argmin())
    fine = places[max(least - FEW + 1, 0) : least + FEW]
    values = value(fine)
    return float(values.min()), float(fine[values.argmin()])
