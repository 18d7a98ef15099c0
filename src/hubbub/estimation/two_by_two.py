"""Risks of groups compared with the first one's: difference, ratio, and ratio of odds.

Theory of operation. Both counts of a group, with the outcome and without, have independent noise of
one known size. The difference of two shares has Newcombe's interval (1998, method 10), made of
score intervals that know the noise. Logarithms of ratios are taken where every count that they are
of stands clear of its noise, whose second order is taken out; variances hold sampling and noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from hubbub.estimation.intervals import CLEAR, caution, normal_quantile, ratio_of, share
from hubbub.estimation.statistic import Array, Estimate

RISK_DIFFERENCE, RELATIVE_RISK, ODDS_RATIO = "risk difference", "relative risk", "odds ratio"
_LEAST = 0.5  # records of a count whose logarithm is taken


def compared(
    counts: Array, sigma: float, confidence: float, column: str, names: Sequence[str]
) -> tuple[Estimate, ...]:
    """Every group against the first one, where the outcome has two classes; else nothing.

    Args:
        counts: (groups, 2) noisy, the second with the outcome.
        sigma: standard deviation of the noise in each.
        confidence: of the intervals.
        column: whose classes the groups are.
        names: of the groups.
    """
    if counts.shape[1] != 2:
        return ()
    z, estimates = normal_quantile(confidence), list[Estimate]()
    for place in range(1, len(counts)):
        pair, level = counts[[place, 0]], f"{names[place]} against {names[0]}"
        estimates.append(_difference(pair, sigma, z, column, level))
        estimates += _ratios(pair, sigma, z, column, level)
    return tuple(estimates)


def _difference(pair: Array, sigma: float, z: float, column: str, level: str) -> Estimate:
    """Of the shares of two groups, the first less the second."""
    one, other = (share(row, np.array([0.0, 1.0]), np.ones(2), sigma, z) for row in pair)
    apart = one.value - other.value
    error = math.hypot(one.standard_error, other.standard_error)
    return Estimate(
        quantity=RISK_DIFFERENCE,
        column=column,
        level=level,
        value=apart,
        standard_error=error,
        low=apart - math.hypot(one.value - one.low, other.high - other.value),
        high=apart + math.hypot(one.high - one.value, other.value - other.low),
    )


def _ratios(pair: Array, sigma: float, z: float, column: str, level: str) -> Iterator[Estimate]:
    """Of risks and of odds, those whose counts stand clear of the noise."""
    least = float(pair.min())
    for quantity, told, sign in (
        (RELATIVE_RISK, float(pair[:, 1].min()), 0.0),
        (ODDS_RATIO, least, 1.0),
    ):
        if told < max(CLEAR * sigma, _LEAST):
            continue
        wider = float(caution(np.array(told / sigma - CLEAR))) if sigma else 1.0
        logs, variances = zip(*(_logarithm(row, sigma, wider, sign) for row in pair), strict=True)
        effect, error = logs[0] - logs[1], math.sqrt(sum(variances))
        yield ratio_of(effect, error, z, quantity=quantity, column=column, level=level)


def _logarithm(row: Array, sigma: float, wider: float, odds: float) -> tuple[float, float]:
    """Of a group's risk, or of its odds, and its variance."""
    without, having = map(float, row)
    below = without if odds else without + having
    noisy = 1.0 if odds else 2.0  # numbers that make up what is below
    second = sigma**2 / 2.0 * (1.0 / having**2 - noisy / below**2)
    if odds:
        sampling, gradient = 1.0 / having + 1.0 / without, 1.0 / having**2 + 1.0 / without**2
    else:
        sampling = 1.0 / having - 1.0 / below
        gradient = sampling**2 + 1.0 / below**2
    noise = (wider * sigma) ** 2 * gradient
    return math.log(having / below) + second, max(sampling, 0.0) + noise
