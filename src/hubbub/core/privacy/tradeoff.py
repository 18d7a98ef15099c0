"""The whole trade-off between epsilon and delta, and what it leaves to a membership attack.

One epsilon at one delta is a point of a curve; everything an attacker can do follows from the curve
(Wasserman and Zhou 2010; Dong, Roth, Su 2022). This file reads it off one composition. It knows
nothing of how that came about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, arguments
from hubbub.core.privacy.certificate import EXACT, Certificate

Array = NDArray[np.float64]

_POINTS = 200
_SHARPEST = 1e-8  # from there the curve is within about 3 % from delta = 1 down to 1e-12
_LEAST_DELTA = 1e-12  # that a curve shows by itself
_LARGER = (1e-5, 1e-3, 0.1)
_LEAST_SPAN = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class TradeOff:
    """Certified deltas at increasing epsilons, from above and, where they are known, from below.

    Args:
        epsilon: (m,) float64, increasing, from 0 to 50; no unit.
        delta: (m,) float64 probabilities, never below the exact values, never increasing.
        lower: (m,) float64 probabilities, never above the exact values of the dominating pairs,
            never increasing; None of what is sent, which is not known from below.

    >>> curve = TradeOff(epsilon=np.array([0.0, 1.0]), delta=np.array([0.2, 0.0]))
    >>> curve.true_positive_rate([0.0, 0.1]).round(3).tolist()
    [0.0, 0.272]
    """

    epsilon: Array
    delta: Array
    lower: Array | None = None

    def under(self, certificate: Certificate) -> TradeOff:
        """The curve of what is sent, in finite precision, from that of the ideal mechanism (P6).

        Args:
            certificate: what finite precision adds.

        Returns:
            A curve of as many points; its epsilons are the certificate's larger.
        """
        epsilon = self.epsilon + certificate.epsilon
        added = (1 + np.exp(epsilon)) * certificate.slack + certificate.failure
        delta = np.minimum(1.0, certificate.delta_factor * self.delta + added)
        # Delta does not grow with epsilon, so what holds at a smaller one holds here.
        return TradeOff(epsilon=epsilon, delta=np.minimum.accumulate(delta))

    def true_positive_rate(self, false_positive_rate: ArrayLike) -> Array:
        """The largest true-positive rates of any membership attack, at false-positive rates.

        Guarantees: no test, whatever its computing power and whatever it knows besides one record,
        is right about the record more often. The bound is the least over all points of the curve of
        e^epsilon FPR + delta and 1 - e^-epsilon (1 - FPR - delta), one for each direction.

        Args:
            false_positive_rate: probabilities in [0, 1], of any shape.

        Returns:
            Probabilities, float64, in the same shape.

        Raises:
            StudyError: a number is not between 0 and 1.

        Source: docs/privacy.md P2.
        """
        rates = _rates(false_positive_rate)[..., None]
        direct = np.exp(self.epsilon) * rates + self.delta
        complementary = 1 - np.exp(-self.epsilon) * (1 - rates - self.delta)
        least = np.minimum(direct, complementary).min(axis=-1)
        return np.asarray(np.where(rates[..., 0] >= 1, 1.0, np.minimum(1.0, least)))


def trade_off_of(whole: accountant.Composition, epsilons: ArrayLike | None) -> TradeOff:
    """The curve of a composition, from both sides."""
    levels = _default_levels(whole) if epsilons is None else _levels(epsilons)
    looked_at = _looked_at(whole, _SHARPEST)
    if looked_at is None:
        return TradeOff(epsilon=levels, delta=np.ones_like(levels), lower=np.zeros_like(levels))
    lower = whole.lower_profile(levels, near=looked_at)
    return TradeOff(
        epsilon=levels,
        delta=np.minimum.accumulate(whole.profile(levels, near=looked_at)),
        lower=np.maximum.accumulate(lower[::-1])[::-1],
    )


def _looked_at(whole: accountant.Composition, near: float) -> float | None:
    """The delta at which a curve is to be sharpest; None: all of it is 1, as far as is known.

    Where that much delta is spent far past the largest epsilon, look nearer by; where all of it is,
    nothing better than 1 is promised.
    """
    levels = (near, *(delta for delta in _LARGER if delta > near))
    within = (level for level in levels if whole.estimate(level) <= 1.2 * arguments.MOST_EPSILON)
    return next(within, None)


def power_bound(
    whole: accountant.Composition, false_positive_rate: float, certificate: Certificate = EXACT
) -> float:
    """The largest true-positive rate at one false-positive rate."""
    curve = upper_curve(whole, near=false_positive_rate / 10)
    return float(curve.under(certificate).true_positive_rate(false_positive_rate))


def upper_curve(whole: accountant.Composition, *, near: float) -> TradeOff:
    """The curve from above, from epsilon 0 to 50, sharpest where delta is about `near`."""
    near = min(max(near, _LEAST_DELTA), 0.1)
    levels = np.concatenate([[0.0], np.geomspace(1e-3, arguments.MOST_EPSILON, 400)])
    looked_at, deltas = _looked_at(whole, near), np.ones_like(levels)
    if looked_at is not None:
        deltas = np.minimum.accumulate(whole.profile(levels, near=looked_at))
    return TradeOff(epsilon=levels, delta=deltas)


def _default_levels(whole: accountant.Composition) -> Array:
    """Even steps from 0 to where delta is about 1e-12."""
    last = min(max(whole.estimate(_LEAST_DELTA), _LEAST_SPAN), arguments.MOST_EPSILON)
    return np.linspace(0.0, last, _POINTS)


def _levels(epsilons: ArrayLike) -> Array:
    """The epsilons asked for, increasing."""
    levels = _numbers("epsilons", epsilons)
    good = levels.ndim == 1 and levels.size and np.all((levels >= 0) & (levels <= 50))
    if not good:
        raise StudyError(
            f"expected epsilons to be a list of numbers between 0 and {arguments.MOST_EPSILON:g}, "
            f"got an array of shape {levels.shape}; pass such a list, or none at all"
        )
    return np.sort(levels)


def _rates(values: ArrayLike) -> Array:
    """False-positive rates."""
    rates = _numbers("false_positive_rate", values)
    if not np.all((rates >= 0) & (rates <= 1)):
        raise StudyError(
            "expected false_positive_rate between 0 and 1, got other numbers; pass probabilities"
        )
    return rates


def _numbers(name: str, values: ArrayLike) -> Array:
    """An array of floats."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise StudyError(f"expected {name} to be numbers, got something else; pass numbers") from (
            None
        )
