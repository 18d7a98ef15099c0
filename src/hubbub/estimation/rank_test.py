"""Wilcoxon's test of two groups, and Kruskal and Wallis' of more, from noisy counts in bins.

Theory of operation. With n_gk records of group g in bin k, p_g the group's share and a_k the middle
rank of a bin over all records, from 0 to 1, U_g = sum_k (n_gk - p_g n_k) a_k is what ranks have too
much in a group. Ranks are noisy, too, but what they multiply is small if groups do not differ: U is
linear in the noise but for a mean of second order, which is known and taken out. Values in one bin
are ties: without noise, the test is the usual one with its correction for ties.
"""

from __future__ import annotations

import numpy as np

from hubbub.estimation.crosstab import quadratic_form
from hubbub.estimation.statistic import Array, NoisyTest


def rank_test(counts: Array, rows: Array, sigma: float) -> NoisyTest:
    """The test that values of two groups or more have the same law.

    Args:
        counts: (groups, bins) noisy, bins by rising values.
        rows: (bins, width): from a group's sum, whose noise is independent, to its counts.
        sigma: standard deviation of the noise in each number of a sum.
    """
    from scipy.special import chdtrc, ndtr  # which take long to import

    groups, bins = counts.shape
    total = counts.sum(axis=0)
    records = max(float(total.sum()), 2.0)
    part = np.clip(counts.sum(axis=1) / records, 0.0, 1.0)
    middle = np.tril(np.ones((bins, bins)), -1) + 0.5 * np.eye(bins)
    ranks = middle @ total / records
    apart = ranks - total @ ranks / records
    excess = (counts - np.outer(part, total)) @ ranks
    noise = sigma**2 * rows @ rows.T  # of one group's counts
    second = (np.trace(middle @ noise) - ranks @ noise.sum(axis=0)) / records
    excess = excess - (1.0 - part * groups) * second
    spread = max(float(np.maximum(total, 0.0) @ apart**2), 1e-12) / (records - 1.0)
    centred = np.eye(groups) - np.outer(part, np.ones(groups))
    covariance = spread * records * (np.diag(part) - np.outer(part, part)) + float(
        apart @ noise @ apart
    ) * (centred @ centred.T)
    degrees = groups - 1
    if degrees == 1:
        z = float(excess[0] / np.sqrt(covariance[0, 0]))
        return NoisyTest(
            name="Wilcoxon",
            statistic=z * z,
            degrees=1.0,
            p_value=float(2.0 * ndtr(-abs(z))),
            z=z,
        )
    statistic = quadratic_form(excess[:-1], covariance[:-1, :-1], degrees)
    return NoisyTest(
        name="Kruskal-Wallis",
        statistic=statistic,
        degrees=float(degrees),
        p_value=float(chdtrc(degrees, statistic)),
    )
