"""The two loops over noise that take most of its time, compiled: where numba is (the extra `fast`).

The same words make the same numbers as NumPy does in `noise.py`, bit for bit, in a third of the
time; and no thread holds another up, so that silos of one process go side by side. Each loop is
IEEE float64 in the order that is written: nothing may be reassociated or fused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

WORTH = 1 << 20  # numbers of a vector from which on it pays to compile, which takes a second


class Loops(NamedTuple):
    """Both of them, over one chunk of `noise.py`.

    Args:
        points: from words, layers' widths and inner edges: the points, and the places of those
            that are not under the curve for certain; returns how many these are.
        rounded: a vector with so many times its noise, in residues; returns whether every number
            fits.
    """

    points: Callable[..., int]
    rounded: Callable[..., bool]


@cache
def loops() -> Loops | None:
    """Compiled once in a process; None without numba."""
    try:
        from numba import njit
    except ImportError:
        return None
    compiled: Any = njit(nogil=True)
    return Loops(compiled(_points), compiled(_rounded))


def _points(words: Any, scale: Any, inner: Any, out: Any, places: Any) -> int:
    """P6 (iii): ten bits are the layer and the other 54, with their sign, the point."""
    count = 0
    for i in range(words.size):
        layer = words[i] & (scale.size - 1)
        out[i] = (words[i] >> 10) * scale[layer]
        if abs(out[i]) >= inner[layer]:
            places[count] = i
            count += 1
    return count


def _rounded(
    vector: Any, grid_step: float, noise: Any, sigma: float, largest: float, out: Any
) -> bool:
    """P5, P6: the noise joins the fraction of each number, its integer part joins in integers."""
    fits = True
    for i in range(vector.size):
        steps = vector[i] / grid_step
        whole = np.floor(steps)
        fits &= -largest < steps < largest
        out[i] = np.int64(np.rint(noise[i] * sigma + (steps - whole))) + np.int64(whole)
    return fits
