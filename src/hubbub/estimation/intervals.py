"""Intervals and tests from quantities that are linear in noisy sums, and families of tests.

The intervals here are found by inverting a test: of all values p that a quantity could have, those
are kept at which an unbiased difference T(p) = numerator - p denominator lies within z of its own
standard deviations, whose variance at p holds both sampling and noise. Nothing is divided by a
noisy number, so they hold also where that number is small; they are Fieller's (1954) and Wilson's
(1927) intervals in one.

What is told only above a limit may be above it by its noise. `caution` widens the noise of what is
close to its limit, so that of what is told as many intervals hold as they say.

P-values of several questions that are one family are adjusted after Holm (1979): with m of them in
rising order, the k-th is multiplied by m - k + 1, and none is smaller than one before it. The
chance that any true null hypothesis is rejected is then at most the level, however the tests depend
on one another: sums that share their noise do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hubbub.core.tabular.levels import Array
from hubbub.estimation.statistic import LOGARITHM, Answer, Estimate, NoisyTest

# Blocks of a table whose number of records is not this many standard deviations of its noise above
# zero are refused: shares of them would be uncertain by more than about a fifth.
CLEAR = 5.0
# By how many more they must be expected to be, where a plan promises an answer, and which part of
# records may lack a cell.
SURE, COMPLETE = 2.5, 0.8
# Counts of ratios are taken to be no closer above their limit, in standard deviations: intervals
# six times as wide hold as often as those of `caution`, which would reach ratios of 10^12.
LEAST_OF_RATIOS = 0.3
_LARGEST = 700.0  # logarithm of a ratio: beyond, it is no float
_LEAST_MARGIN, _HALVINGS = 0.05, 60  # of what caution looks for
_REACH = 1.96  # standard deviations of the intervals that it makes hold


def normal_quantile(confidence: float) -> float:
    """How many standard deviations a two-sided interval of this confidence reaches."""
    from scipy.special import ndtri  # which takes long to import

    return float(-ndtri((1.0 - confidence) / 2.0))


def student(z: float, degrees: float) -> float:
    """How many deviations reach as far as z do, where a variance has so many degrees of freedom."""
    from scipy.special import ndtr, stdtrit  # which take long to import

    return float(stdtrit(degrees, ndtr(z)))


def never_below_0(variance: float, error: float) -> float:
    """What a variance is on average, none below 0, of which a number with this noise is known."""
    from scipy.special import log_ndtr  # which takes long to import

    z = max(variance / error, -20.0)
    excess = math.exp(-z * z / 2 - float(log_ndtr(z))) / math.sqrt(2 * math.pi)  # normal, cut at 0
    return error * (z + excess)


def caution(margins: Array) -> Array:
    """How many times wider noise is to be taken where answers are told only above a limit.

    The lower end of an interval for the mean of a normal number that is seen only where it is above
    a limit (its law is cut off there), over that of one that is always seen.

    Args:
        margins: how far above the limit, in standard deviations of the noise.

    Returns:
        As many factors, 1 far above the limit.
    """
    from scipy.special import log_ndtr

    above = np.maximum(margins, _LEAST_MARGIN)
    low, high = above - 200.0, above  # of the mean, less the limit
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = log_ndtr(middle - above) - log_ndtr(middle) < log_ndtr(-_REACH)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.maximum((above - low) / _REACH, 1.0)


def ratio_interval(
    numerator: float,
    denominator: float,
    variance: tuple[float, float, float],
    z: float,
    within: tuple[float, float],
) -> tuple[float, float]:
    """All p in `within` where (numerator - p denominator)^2 <= z^2 (v0 + v1 p + v2 p^2).

    Args:
        numerator: noisy.
        denominator: noisy.
        variance: v0, v1, v2 of the difference at p.
        z: standard deviations that the interval reaches.
        within: public bounds of p.

    Returns:
        The ends of the interval; all of `within` where the denominator is not clear of the noise.
    """
    v0, v1, v2 = (z * z * part for part in variance)
    a = denominator**2 - v2
    b = -2.0 * numerator * denominator - v1
    c = numerator**2 - v0
    root = b * b - 4.0 * a * c
    if a <= 0 or root < 0:
        return within
    ends = ((-b - math.sqrt(root)) / (2 * a), (-b + math.sqrt(root)) / (2 * a))
    return (
        min(max(ends[0], within[0]), within[1]),
        max(min(ends[1], within[1]), within[0]),
    )


def around(values: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of intervals, moved out to estimates that were moved to where they may be."""
    return np.minimum(low, values), np.maximum(high, values)


def at(variance: tuple[float, float, float], p: float) -> float:
    """The variance at one value."""
    return max(float(np.polyval(variance[::-1], p)), 0.0)


def spanned(
    quantity: str, value: float, error: float, ends: tuple[float, float], **names: Any
) -> Estimate:
    """A number with its standard error and the ends of its interval."""
    low, high = ends
    return Estimate(
        quantity=quantity, value=value, standard_error=error, low=low, high=high, **names
    )


def estimate(
    value: float,
    error: float,
    z: float,
    *,
    within: tuple[float, float] = (-math.inf, math.inf),
    **names: Any,
) -> Estimate:
    """A number whose interval reaches z standard errors to both sides, inside its public bounds."""
    low, high = max(value - z * error, within[0]), min(value + z * error, within[1])
    return Estimate(value=value, standard_error=error, low=low, high=high, **names)


def count(
    value: float, error: float, z: float, quantity: str = "records", **names: str
) -> Estimate:
    """How many records or events there are, which noise alone leaves uncertain.

    A number that noise has made negative counts as 0: the interval then is wider than it need be.

    Args:
        error: standard deviation of its noise.
        z: standard deviations that the interval reaches.
        quantity, names: as for `Estimate`.
    """
    within = (0.0, math.inf)
    return estimate(max(value, 0.0), error, z, within=within, quantity=quantity, **names)


def share(sums: Array, part: Array, whole: Array, sigma: float, z: float) -> Estimate:
    """A share of records, uncertain by noise and by the draw of the records.

    A part that noise has made negative, or more than the whole, is moved to the nearest that is
    possible: the interval then is wider than it need be.

    Args:
        sums: (size,) the noisy sum.
        part: (size,) the part as a linear function of it.
        whole: (size,) the whole in the same way.
        sigma: standard deviation of the noise.
        z: standard deviations that the interval reaches.
    """
    records = max(float(whole @ sums), 1.0)
    numerator = min(max(float(part @ sums), 0.0), records)
    noise = sigma**2
    variance = (  # at a share p, of `part - p whole`: of the noise, and of drawing the records
        noise * float(part @ part),
        records - 2.0 * noise * float(part @ whole),
        noise * float(whole @ whole) - records,
    )
    low, high = ratio_interval(numerator, records, variance, z, (0.0, 1.0))
    value = numerator / records
    ends = min(low, value), max(high, value)  # but for rounding they are
    return spanned("share", value, math.sqrt(at(variance, value)) / records, ends)


def ratio_of(effect: float, error: float, z: float, **names: Any) -> Estimate:
    """A ratio with the test that it is 1, from its logarithm.

    Args:
        effect: the logarithm.
        error: its standard error, of sampling and noise.
        z: how many of it the interval reaches.
        names: quantity, column and level, as for `Estimate`.
    """
    logs = (effect, effect - z * error, effect + z * error)
    value, low, high = (math.exp(min(one, _LARGEST)) for one in logs)
    return Estimate(
        value=value,
        standard_error=error,
        error_of=LOGARITHM,
        low=low,
        high=high,
        p_value=two_sided(effect / error),
        **names,
    )


def withheld(what: str, quantity: str, least: str = "anything") -> str:
    """The sentence for a number whose interval would reach a bound of what it can be.

    Args:
        what, quantity: whose, and which number.
        least: what it may be by the noise.
    """
    return f"the {quantity} of {what} is withheld: by this noise it may be {least}"


def two_sided(z: float) -> float:
    """The p-value of a number that is z standard errors away from none."""
    from scipy.special import ndtr  # which takes long to import

    return float(2.0 * ndtr(-abs(z)))


def chi_square_test(name: str, statistic: float, degrees: float, **more: Any) -> NoisyTest:
    """A test whose statistic has a chi-square law of so many degrees of freedom if nothing differs.

    Args:
        name, statistic, degrees: of the test.
        more: other fields of `NoisyTest`.
    """
    from scipy.special import chdtrc  # which takes long to import

    p_value = float(chdtrc(degrees, statistic))
    return NoisyTest(name=name, statistic=statistic, degrees=degrees, p_value=p_value, **more)


def quadratic_form(vector: Array, covariance: Array, rank: int) -> float:
    """vector' covariance^+ vector, for a covariance of known rank; noise may have taken of it."""
    values, vectors = np.linalg.eigh(covariance)
    along, kept = vectors[:, -rank:].T @ vector, values[-rank:]
    return float(np.sum(np.square(along[kept > 0]) / kept[kept > 0]))


def independence(counts: Array, noise: Array) -> NoisyTest:
    """The chi-square test of independence in a table of noisy counts.

    After Gaboardi et al. 2016 and Rogers, Kifer 2017: U = O - E is what is left of the counts O
    when what rows and columns explain is taken out; if nothing depends on anything its covariance
    is P (diag E + N) P', P being the projection that takes it out and N the covariance of the
    noise, and U' Cov^+ U has a chi-square law whatever the noise is.

    Args:
        counts: (rows, columns).
        noise: covariance of the noise in them, row by row.
    """
    total = max(float(counts.sum()), 1.0)
    down, across = (_shares(counts.sum(axis=axis) / total) for axis in (1, 0))
    left = np.eye(len(down)) - np.outer(down, np.ones(len(down)))
    right = np.eye(len(across)) - np.outer(across, np.ones(len(across)))
    projection = np.kron(left, right)
    variance = np.diag(total * np.outer(down, across).ravel()) + noise
    degrees = (len(down) - 1) * (len(across) - 1)
    excess, covariance = (left @ counts @ right.T).ravel(), projection @ variance @ projection.T
    return chi_square_test("chi-square", quadratic_form(excess, covariance, degrees), degrees)


def _shares(shares: Array) -> Array:
    """Noisy shares made positive, with sum 1."""
    positive = np.maximum(shares, 1e-6)
    return np.asarray(positive / positive.sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, as many.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    risen = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(risen), 1.0)
    return [float(p) for p in adjusted]


def adjusted(answers: Mapping[str, Answer], family: Sequence[str]) -> dict[str, Answer]:
    """The answers, all p-values of those that are named adjusted as one family."""
    results = [(answers[name].rows, answers[name].tests) for name in family]
    every = [
        p
        for rows, tests in results
        for p in (*(row.p_value for row in rows), *(test.p_value for test in tests))
    ]
    left = iter(holm([p for p in every if p is not None]))
    return dict(answers) | {
        name: replace(
            answers[name],
            rows=tuple(
                row if row.p_value is None else replace(row, p_adjusted=next(left)) for row in rows
            ),
            tests=tuple(replace(test, p_adjusted=next(left)) for test in tests),
        )
        for name, (rows, tests) in zip(family, results, strict=True)
    }
