"""Whether groups of a table differ: tests and standardised differences of noisy means and shares.

Theory of operation. A group's mean is uncertain by its sampling variance s^2 / n and by a noise
variance that is known. Welch's test takes both as what the mean's weight is one over: t for two
groups, F for more, whose degrees of freedom come from the sampling part alone, as noise has no
doubt about its own variance. Shares are compared by chi-square with the noise in each count.

A standardised mean difference has no sign, so noise makes it larger: its square is told less what
noise adds to it on average.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from hubbub.estimation.crosstab import independence
from hubbub.estimation.statistic import Array, NoisyTest

Group = TypeVar("Group")


class GroupMean(NamedTuple):
    """A numeric column in one group.

    Args:
        mean: of it, in any unit.
        spread: its variance, over the number of records.
        records: how many have a value.
        noise: variance of the mean by noise.
        is_spread_known: whether the interval of the spread lies above 0.
    """

    mean: float
    spread: float
    records: float
    noise: float
    is_spread_known: bool = True

    @property
    def variance(self) -> float:
        """Of a record, with one degree of freedom taken off."""
        return self.spread * self.records / (self.records - 1.0)


class GroupShares(NamedTuple):
    """Classes of a column in one group.

    Args:
        counts: (m,) noisy.
        noise: (m, m) covariance of their noise.
    """

    counts: Array
    noise: Array

    @property
    def shares(self) -> Array:
        """(m,) of records, none below 0."""
        positive = np.maximum(self.counts, 0.0)
        return np.asarray(positive / max(float(positive.sum()), 1.0))

    @property
    def noise_of_shares(self) -> Array:
        """(m, m) covariance of the noise in the shares."""
        apart = np.eye(len(self.counts)) - np.outer(self.shares, np.ones(len(self.counts)))
        return np.asarray(apart @ self.noise @ apart.T / max(float(self.counts.sum()), 1.0) ** 2)


def compare_means(column: str, groups: Sequence[GroupMean]) -> NoisyTest:
    """Welch's test of two means or more, and how far apart they are in standard deviations."""
    from scipy.special import fdtrc, stdtr  # which take long to import

    sampling = np.array([group.variance / group.records for group in groups])
    variances = np.maximum(sampling + [group.noise for group in groups], 1e-300)
    means, below = np.array([(group.mean, group.records - 1.0) for group in groups]).T
    weights, own = 1.0 / variances, sampling / variances
    whole, number = weights.sum(), len(groups)
    loose = (1.0 - weights / whole) ** 2 / below
    square = float(weights @ (means - weights @ means / whole) ** 2) / (number - 1)
    smaller = 1.0 + 2.0 * (number - 2) / (number**2 - 1) * float(loose @ own)
    doubt = float(loose @ own**2)
    degrees_below = min((number**2 - 1) / (3.0 * doubt), 1e9) if doubt > 0 else 1e9
    statistic = square / smaller
    test = NoisyTest(
        name="Welch's F",
        column=column,
        statistic=statistic,
        degrees=float(number - 1),
        degrees_below=degrees_below,
        p_value=float(fdtrc(number - 1, degrees_below, statistic)),
        smd=_mean_over_pairs(groups, _means_apart)
        if all(group.is_spread_known for group in groups)
        else None,
    )
    if number > 2:
        return test
    t = math.copysign(math.sqrt(square), float(means[0] - means[1]))
    return replace(
        test,
        name="Welch's t",
        statistic=t,
        degrees=degrees_below,
        degrees_below=None,
        p_value=float(2.0 * stdtr(degrees_below, -abs(t))),
    )


def compare_shares(column: str, groups: Sequence[GroupShares]) -> NoisyTest:
    """The chi-square test of classes by group, and how far apart two groups' shares are."""
    counts = np.array([group.counts for group in groups])
    width = counts.shape[1]
    noise = np.zeros((counts.size, counts.size))
    for place, one in enumerate(groups):
        own = slice(place * width, (place + 1) * width)
        noise[own, own] = one.noise
    test = independence(counts, noise)
    return replace(test, column=column, smd=_mean_over_pairs(groups, _shares_apart))


def _mean_over_pairs(groups: Sequence[Group], apart: Callable[[Group, Group], float]) -> float:
    pairs = [apart(*pair) for pair in itertools.combinations(groups, 2)]
    return float(np.mean(pairs))


def _means_apart(first: GroupMean, second: GroupMean) -> float:
    """Means apart over the root of the mean variance."""
    unit = max((first.variance + second.variance) / 2.0, 1e-300)
    square = ((first.mean - second.mean) ** 2 - first.noise - second.noise) / unit
    return math.sqrt(max(square, 0.0))


def _shares_apart(first: GroupShares, second: GroupShares) -> float:
    """The same of all shares but the first, by the mean of both covariances (Yang, Dalton 2012)."""
    apart = (first.shares - second.shares)[1:]
    each = [np.diag(one) - np.outer(one, one) for one in (first.shares, second.shares)]
    inverse = np.linalg.pinv((each[0] + each[1])[1:, 1:] / 2.0, hermitian=True)
    noise = (first.noise_of_shares + second.noise_of_shares)[1:, 1:]
    square = float(apart @ inverse @ apart) - float(np.trace(inverse @ noise))
    return math.sqrt(max(square, 0.0))
