"""N(0, 1): masses of intervals, and the Gaussian mechanism without sampling in closed form.

Each mass is accurate relative to itself, however far in the tail.

A privacy loss bin can be a million times narrower than the distribution and thirty standard
deviations away from its centre; a difference of two distribution functions would then be noise.
Narrow intervals are integrated by Gauss-Legendre quadrature of the positive density, wide ones by
the tail function on the side where it is small.
"""

from __future__ import annotations

from functools import cache
from math import erfc, exp, log, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy.roots import root

Array = NDArray[np.float64]

INV_SQRT_2PI = 0.3989422804014327
# So many nodes integrate exp(-(c + s)^2 / 2) over |s| <= r with relative error < 1e-16 while
# r (|c| + 2) is at most the second number.
NARROW = ((3, 0.01), (6, 0.4))
_NORMAL = NormalDist()
_HALVES = {
    3: ((-0.7745966692414834, 0.5555555555555557), (0.0, 0.8888888888888888)),
    6: (
        (-0.9324695142031519, 0.17132449237917027),
        (-0.6612093864662645, 0.3607615730481387),
        (-0.2386191860831969, 0.46791393457269104),
    ),
}  # of nodes and weights, as NumPy gives them: its polynomials take longer to import than to use


@cache
def gauss(nodes: int) -> tuple[tuple[float, float], ...]:
    """Nodes in [-1, 1] of Gauss and Legendre, with their weights."""
    if half := _HALVES.get(nodes):
        return (*half, *((-node, weight) for node, weight in half[: nodes // 2][::-1]))
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return tuple(zip(places.tolist(), weights.tolist(), strict=True))


def interval_mass(edges: Array, mean: float) -> Array:
    """Masses that N(mean, 1) gives to the intervals between consecutive edges (may be infinite)."""
    return masses_between(edges[:-1], edges[1:], mean)


def masses_between(left: Array, right: Array, mean: float | Array) -> Array:
    """Masses that N(mean, 1) gives to intervals, of any shape."""
    mass = np.empty(left.shape)
    with np.errstate(invalid="ignore"):
        # The radius must not depend on the mean: it cancels in the ratio of two masses.
        centre, radius = (left + right) / 2 - mean, (right - left) / 2
        extent = radius * (np.abs(centre) + 2)
    least = -1.0
    for nodes, most in NARROW:
        narrow = np.nonzero((extent > least) & (extent <= most))
        mass[narrow] = _narrow(centre[narrow], radius[narrow], nodes)
        least = most
    wide = np.nonzero(~(extent <= least))
    mass[wide] = _wide((left - mean)[wide], (right - mean)[wide])
    return mass


def _wide(left: Array, right: Array) -> Array:
    """Difference of tail functions, taken on the side where they are small."""
    flip = left > 0
    upper = below(np.where(flip, -left, right))
    lower = below(np.where(flip, -right, left))
    return np.asarray(np.maximum(upper - lower, 0.0))


def below(points: Array) -> Array:
    """Mass of N(0, 1) below points; SciPy's takes longer to import than few points take here."""
    return np.asarray([erfc(-x / sqrt(2)) / 2 for x in points.tolist()], dtype=np.float64)


def rising(values: Array) -> Array:
    """Sorted and each once; NumPy's own `unique` loads its masked arrays first."""
    values = np.sort(values)
    return np.asarray(values[np.concatenate([[True], values[1:] != values[:-1]])])


def _narrow(centre: Array, radius: Array, nodes: int) -> Array:
    """Gauss-Legendre sum of the density over [centre - radius, centre + radius]."""
    total = np.zeros_like(centre)
    for node, weight in gauss(nodes):
        point = centre + radius * node
        total += weight * np.exp(-0.5 * point * point)
    return np.asarray(total * radius * INV_SQRT_2PI)


def log_above(loss: Array, least: float, rest: float) -> Array:
    """log(e^loss - e^least) of losses up to 0, -inf where they are not above the least.

    Far below 0 a float cannot tell from 1 what either power lacks of it.

    Args:
        rest: 1 - e^least.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = np.log(np.maximum(np.expm1(loss) + rest, 0))
        far = loss + np.log(np.maximum(-np.expm1(least - loss), 0))
        return np.asarray(np.where(loss > -1, near, far))


def upper_point(tail: float) -> float:
    """Where N(0, 1) has so much beyond."""
    return -_NORMAL.inv_cdf(tail)


def gaussian_delta(shift: float, epsilon: float) -> float:
    """delta(epsilon) of N(shift, 1) against N(0, 1) (Balle and Wang 2018).

    S steps of shift mu are one step of shift mu sqrt(S) (docs/privacy.md P1, row "full-batch").
    """
    from scipy.special import erfcx, log_ndtr, ndtr  # which takes long to import

    near, far = epsilon / shift - shift / 2, epsilon / shift + shift / 2
    if near < -5:
        return float(ndtr(-near) - exp(epsilon + float(log_ndtr(-far))))
    mills = sqrt(pi / 2) * (erfcx(near / sqrt(2)) - erfcx(far / sqrt(2)))
    return float(exp(-near * near / 2) / sqrt(2 * pi) * mills)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The epsilon at which N(shift, 1) against N(0, 1) reaches delta; 0 if delta(0) is below it."""
    if gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    high = shift * shift / 2 + shift * sqrt(2 * log(1 / delta)) + 1e-9

    def excess(epsilon: float) -> float:
        return log(max(gaussian_delta(shift, epsilon), 1e-300)) - log(delta)

    return float(root(excess, 0.0, high, xtol=1e-14, rtol=1e-14))
