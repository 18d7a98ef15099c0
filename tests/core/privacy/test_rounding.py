"""P5 and P6 with fifty digits: the law of rounded sums, and the density of the sampler's layers."""

from __future__ import annotations

from itertools import product

import pytest
from mpmath import binomial, erfc, exp, log, mp, mpf, ncdf, npdf, pi, quad, sqrt

from hubbub.core.protocol.primitives.noise import layers


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


# Rounding after noise (P5) ----------------------------------------------------------------------

_, _INNER, _EDGE, _TAIL_START = layers()


def kappa(shares):
    """The sum of P5, in the order given."""
    total, variance = mpf(0), mpf(shares[0]) ** 2
    for share in shares[1:]:
        v = variance * mpf(share) ** 2 / (variance + mpf(share) ** 2)
        tau = 2 * sum(exp(-2 * pi**2 * j**2 * v) for j in range(1, 8))
        total -= log(1 - tau)
        variance += mpf(share) ** 2
    return total


def rounded(centre, share, reach):
    """Probabilities of the integers for one silo's number with noise, rounded."""
    edges = [ncdf((k + mpf(1) / 2 - centre) / share) for k in range(-reach - 1, reach + 1)]
    return {k: edges[k + reach + 1] - edges[k + reach] for k in range(-reach, reach + 1)}


def integral_of_normal(z, order):
    """The normal density, integrated `order` times from minus infinity."""
    if order == 1:
        return ncdf(z)
    if order == 2:
        return z * ncdf(z) + npdf(z)
    return ((z**2 + 1) * ncdf(z) + z * npdf(z)) / 2


def smoothed(k, centre, sigma, silos):
    """E B_n(k - X): the density at k of a normal number and n uniform ones."""
    terms = (
        (-1) ** j
        * binomial(silos, j)
        * sigma ** (silos - 1)
        * integral_of_normal((k - centre + mpf(silos) / 2 - j) / sigma, silos)
        for j in range(silos + 1)
    )
    return sum(terms)


def largest_theta(shares):
    """Over fractional numbers of the silos, and integers about the sum and out in the tail."""
    shares = [mpf(one) for one in shares]
    sigma = sqrt(sum(one**2 for one in shares))
    reach = int(12 * max(shares))
    found = mpf(0)
    for fractions in product((mpf(0), mpf(1) / 4, mpf(1) / 2), repeat=len(shares)):
        laws = [rounded(c, s, reach) for c, s in zip(fractions, shares, strict=True)]
        for k in (-6, -1, 0, 1):
            exact = sum_at(laws, k)
            found = max(found, abs(log(exact / smoothed(k, sum(fractions), sigma, len(shares)))))
    return found


def sum_at(laws, k):
    """The probability that the silos' integers sum to k."""
    *first, last = laws
    if len(first) == 1:
        return sum(p * last.get(k - one, 0) for one, p in first[0].items())
    both = {}
    for one, p in first[0].items():
        for two, q in first[1].items():
            both[one + two] = both.get(one + two, mpf(0)) + p * q
    return sum(p * last.get(k - one, 0) for one, p in both.items())


# Shares, the largest |theta| that was found, and kappa, as docs/privacy.md P5 lists them.
TABLE = [
    ((1, 1), 6.06e-5, 1.03e-4),
    ((1.5, 1.5), 2.22e-10, 4.54e-10),
    ((1.5, 1.5, 1.5), 2.9e-13, 4.54e-10),
    ((1, 2), 1.06e-7, 2.77e-7),
    ((1, 1.5, 0.9), 2.2e-6, 7.9e-6),
]


@pytest.mark.slow_cases("(1.5, 1.5, 1.5)-2.9e-13-4.54e-10", "(1, 1.5, 0.9)-2.2e-06-7.9e-06")
@pytest.mark.parametrize(("shares", "theta", "most"), TABLE, ids=str)
def test_p5_rounded_sums_are_within_kappa_of_the_smoothed_gaussian(shares, theta, most):
    assert float(kappa(shares)) == pytest.approx(most, rel=0.01)
    found = largest_theta(shares)
    assert found <= kappa(shares)
    assert 0.6 * theta < found < 1.5 * theta  # which fractions and sums are tried matters so much


def test_p5_at_one_grid_step_the_difference_is_seen():
    """A bound of 1e-5 would be refuted, and so would the law without the rounding's boxes."""
    assert largest_theta((1, 1)) > mpf("1e-5")
    whole = sum_at([rounded(mpf(0), mpf(1), 12)] * 2, 0)
    assert abs(log(whole / (npdf(0) / sqrt(2)))) > mpf("1e-2")


# The sampler's layers (P6 iii) ------------------------------------------------------------------

UNIT = mpf(2) ** -53


def test_p6_the_stored_edges_give_the_normal_density_within_forty_two_units():
    """Over f: the share of the layers that take a point for certain, plus that of its own."""
    edges = [mpf(float(one)) for one in _EDGE]
    heights = [exp(-(one**2) / 2) for one in edges]
    ratios, certain = [], mpf(0)
    for layer in range(len(_INNER)):
        low, high = edges[layer + 1], edges[layer]
        if layer:  # the lowest layer's points beyond the edge are drawn from the tail
            rise = heights[layer + 1] - heights[layer]
            for part in (mpf(1) / 8, mpf(1) / 2, mpf(7) / 8):
                x = low + part * (high - low)
                f = exp(-(x**2) / 2)
                own = (f - heights[layer]) / rise / edges[layer]
                ratios.append((certain + own) / f)
        certain += 1 / edges[layer]
    beyond = (edges[0] - edges[1]) / edges[0]  # of the lowest layer, which goes to the tail
    tail = sqrt(pi / 2) * erfc(mpf(float(_TAIL_START)) / sqrt(mpf(2)))
    ratios.append(beyond / tail)
    assert max(ratios) / min(ratios) - 1 <= 42 * UNIT
    assert max(ratios) / min(ratios) - 1 > UNIT / 4  # stored edges are no exact ones


def test_p6_marsaglias_tail_is_the_normal_one():
    """An exponential beyond t that is taken with probability exp(-v^2 / 2)."""
    t = mpf(float(_TAIL_START))
    accepted = quad(lambda v: t * exp(-t * v) * exp(-(v**2) / 2), [0, 1, 4, 20])
    for v in (mpf("0.1"), mpf(1), mpf(3)):
        density = t * exp(-t * v) * exp(-(v**2) / 2) / accepted
        wanted = npdf(t + v) / ncdf(-t)
        assert abs(density / wanted - 1) < mpf("1e-30")
