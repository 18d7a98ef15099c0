"""A root of a continuous function between two points at which its signs differ.

The method of Brent (1973, chapter 4): the secant or an inverse parabola through the last three
points where that makes progress, and halving where it does not. This file knows no laws.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, inf, isnan

_MOST = 100  # steps, of which a handful is usual
_XTOL, _RTOL = 2e-12, 2.0**-50


def root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = _XTOL,
    rtol: float = _RTOL,
) -> float:
    """Where the function is zero, to within xtol + rtol |root|.

    Raises:
        ValueError: the function has one sign at both points, or is no number.

    >>> round(root(lambda x: x * x - 2, 0.0, 2.0), 9)
    1.414213562
    """
    before, best = low, high
    at_before, at_best = float(function(before)), float(function(best))
    if at_before == 0:
        return before
    if (at_before < 0) == (at_best < 0) or isnan(at_before) or isnan(at_best):
        if at_best == 0:
            return best
        raise ValueError("expected a function of two signs, got one of one")
    other, at_other, last, step = before, at_before, 0.0, 0.0
    for _ in range(_MOST):
        if at_before != 0 and at_best != 0 and (at_before < 0) != (at_best < 0):
            other, at_other = before, at_before
            last = step = best - before
        if abs(at_other) < abs(at_best):
            before, best, other = best, other, best
            at_before, at_best, at_other = at_best, at_other, at_best
        near, half = (xtol + rtol * abs(best)) / 2, (other - best) / 2
        if at_best == 0 or abs(half) < near:
            break
        tried = _tried(before, best, other, at_before, at_best, at_other)
        is_good = abs(last) > near and abs(at_best) < abs(at_before)
        if is_good and 2 * abs(tried) < min(abs(last), 3 * abs(half) - near):
            last, step = step, tried
        else:
            last = step = half
        before, at_before = best, at_best
        best += step if abs(step) > near else copysign(near, half)
        at_best = float(function(best))
    return best


def _tried(a: float, b: float, c: float, at_a: float, at_b: float, at_c: float) -> float:
    """The step from b to where a line through two points, or a parabola through three, is zero."""
    if a == b or at_a == at_b:
        return inf
    if a == c:
        return -at_b * (b - a) / (at_b - at_a)
    first, second = (at_a - at_b) / (a - b), (at_c - at_b) / (c - b)
    if second == 0 or at_c == at_a:
        return inf
    return -at_b * (at_c * second - at_a * first) / (second * first * (at_c - at_a))
