"""Scales: from a quantity to a place on the paper, with round numbers for its ticks.

This file knows numbers and lengths (in SVG units), nothing of what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log10

_LOG_FROM = 20  # largest over smallest value from which a linear axis would hide the small ones
_TICKS = 5  # of a linear axis, about


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from `low` at `start` to `high` at `end`, labelled at its ticks.

    Equal ratios are equally far apart if it is logarithmic; then 0 < low.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value stands."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = log10(value), log10(low), log10(high)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def linear(values: Iterable[float], start: float, end: float, *, whole: bool = False) -> Scale:
    """A linear scale over the values, widened to the ticks next to them."""
    known = list(values) or [0.0]
    low, high = min(known), max(known)
    step = _round_step(_span(low, high) / _TICKS)
    step = max(1.0, step) if whole else step
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    last = max(last, first + 1)
    marks = tuple(round(step * k, 12) for k in range(first, last + 1))
    return Scale(low=marks[0], high=marks[-1], start=start, end=end, ticks=marks)


def scores(values: Iterable[float], start: float, end: float) -> Scale:
    """One scale for all metrics: from 0.5 to 1, or further if need be."""
    return linear([0.5, 1.0, *values], start, end)


def bounds(values: Iterable[float], start: float, end: float) -> Scale:
    """A scale for bounds: linear from 0, or logarithmic where they differ by a large factor."""
    known = [value for value in values if value > 0]
    if not known or max(known) <= _LOG_FROM * min(known):
        return linear([0.0, *known], start, end)
    first, last = floor(log10(min(known))), ceil(log10(max(known)))
    marks = tuple(float(f"1e{k}") for k in range(first, last + 1))
    return Scale(low=marks[0], high=marks[-1], start=start, end=end, ticks=marks, log=True)


def ratios(values: Iterable[float], start: float, end: float) -> Scale:
    """A logarithmic scale around 1, with ticks at 1, 2 and 5 times powers of ten."""
    known = [1.0, *(min(max(value, 0.01), 100.0) for value in values)]
    marks = [m * 10.0**k for k in range(-2, 3) for m in (1, 2, 5)]
    low = max((mark for mark in marks if mark <= min(known) * (1 + 1e-9)), default=marks[0])
    high = min((mark for mark in marks if mark >= max(known) * (1 - 1e-9)), default=marks[-1])
    if low == high:
        low, high = 0.5, 2.0
    ticks = tuple(round(mark, 12) for mark in marks if low <= mark <= high)
    return Scale(low=low, high=high, start=start, end=end, ticks=ticks, log=True)


def _span(low: float, high: float) -> float:
    """The distance between the ends, or their size where four digits cannot tell them apart."""
    size = max(abs(low), abs(high))
    return next((span for span in (high - low, size) if span > max(1e-3 * size, 1e-9)), 1.0)


def _round_step(least: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below `least`."""
    power = float(f"1e{floor(log10(least))}")
    return power * next(m for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
