"""The Gaussian mechanism without sampling: delta(epsilon) in closed form (Balle and Wang 2018).

S steps of shift mu are one step of shift mu sqrt(S) (docs/privacy.md P1, row "none").
"""

from __future__ import annotations

from math import exp, log, pi, sqrt

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr


def gaussian_delta(shift: float, epsilon: float) -> float:
    """delta(epsilon) of N(shift, 1) against N(0, 1)."""
    near, far = epsilon / shift - shift / 2, epsilon / shift + shift / 2
    if near < -5:
        return float(ndtr(-near) - exp(epsilon) * ndtr(-far))
    mills = sqrt(pi / 2) * (erfcx(near / sqrt(2)) - erfcx(far / sqrt(2)))
    return float(exp(-near * near / 2) / sqrt(2 * pi) * mills)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The epsilon at which N(shift, 1) against N(0, 1) reaches delta; 0 if delta(0) is below it."""
    if gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    high = shift * shift / 2 + shift * sqrt(2 * log(1 / delta)) + 1e-9

    def excess(epsilon: float) -> float:
        return log(max(gaussian_delta(shift, epsilon), 1e-300)) - log(delta)

    return float(brentq(excess, 0.0, high, xtol=1e-14, rtol=1e-14))
