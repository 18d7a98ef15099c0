"""N(0, 1): masses of intervals, and the Gaussian mechanism without sampling in closed form.

Each mass is accurate relative to itself, however far in the tail.

A privacy loss bin can be a million times narrower than the distribution and thirty standard
deviations away from its centre; a difference of two distribution functions would then be noise.
Narrow intervals are integrated by Gauss-Legendre quadrature of the positive density, wide ones by
the tail function on the side where it is small.
"""

from __future__ import annotations

from math import exp, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, ndtr

from hubbub.privacy.roots import root

Array = NDArray[np.float64]

_INV_SQRT_2PI = 0.3989422804014327
# So many nodes integrate exp(-c s) over |s| <= r with relative error < 1e-16 while r (|c| + 1) is
# at most the second number.
_NARROW = ((3, 0.01), (6, 0.4))
_GAUSS = {nodes: tuple(np.array(np.polynomial.legendre.leggauss(nodes)).T) for nodes, _ in _NARROW}


def interval_mass(edges: Array, mean: float) -> Array:
    """Masses that N(mean, 1) gives to the intervals between consecutive edges (may be infinite)."""
    mass = np.empty(edges.size - 1)
    with np.errstate(invalid="ignore"):
        # The radius must not depend on the mean: it cancels in the ratio of two masses.
        centre, radius = (edges[:-1] + edges[1:]) / 2 - mean, np.diff(edges) / 2
        extent = radius * (np.abs(centre) + 1)
    least = -1.0
    for nodes, most in _NARROW:
        narrow = np.flatnonzero((extent > least) & (extent <= most))
        mass[narrow] = _narrow(centre[narrow], radius[narrow], nodes)
        least = most
    wide = np.flatnonzero(~(extent <= least))
    mass[wide] = _wide(edges[wide] - mean, edges[wide + 1] - mean)
    return mass


def _wide(left: Array, right: Array) -> Array:
    """Difference of tail functions, taken on the side where they are small."""
    flip = left > 0
    upper = ndtr(np.where(flip, -left, right))
    lower = ndtr(np.where(flip, -right, left))
    return np.asarray(np.maximum(upper - lower, 0.0))


def _narrow(centre: Array, radius: Array, nodes: int) -> Array:
    """Gauss-Legendre sum of the density over [centre - radius, centre + radius]."""
    total = np.zeros_like(centre)
    for node, weight in _GAUSS[nodes]:
        point = centre + radius * node
        total += weight * np.exp(-0.5 * point * point)
    return np.asarray(total * radius * _INV_SQRT_2PI)


def gaussian_delta(shift: float, epsilon: float) -> float:
    """delta(epsilon) of N(shift, 1) against N(0, 1) (Balle and Wang 2018).

    S steps of shift mu are one step of shift mu sqrt(S) (docs/privacy.md P1, row "none").
    """
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
