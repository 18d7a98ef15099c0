"""The two mechanisms of arXiv 2605.15648: a noisy sum that is divided by a number of records.

The account is of the sum (SGM). Divided by the expected batch, sample rate × records, the noise
tells how many records there are; divided by the batch that was drawn, how many were in it. Where
records say nothing all numbers are noise of that scale, and their squares' sum has the law of a
scaled chi-square: what a threshold on it shows is exact, and needs no run. Libraries divide so, and
the two are here without any: `opacus_claims` attacks Opacus itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom, chi2

import hubbub
from benchmarks.conformance.claim import Claim
from hubbub.core.privacy.composition import Bound

DELTA = 1e-5
_POINTS = 1000  # thresholds that are tried
_SMALLEST = -700.0  # a logarithm; probabilities below are taken for this one, so that less is shown
Scales = Mapping[float, float]  # by the noise's scale its probability


def claims(library: str) -> Iterator[Claim]:
    """One of each; the noise is 4 times the largest norm, and one step is made."""
    for records, rate, numbers in ((100, 0.1, 20_000), (1, 0.1, 1_000)):
        expected = [{1 / (rate * count): 1.0} for count in (records, records + 1)]
        drawn = [_drawn(count, rate) for count in (records, records + 1)]
        divided = {"the expected batch (EASGM)": expected, "the batch drawn (ASGM)": drawn}
        for by, (absent, present) in divided.items():
            yield Claim(
                library=library,
                case=f"noisy sum over {by}: {records} or {records + 1} records, q {rate:g}, z 4, "
                f"1 step, {numbers:,} numbers",
                claimed=hubbub.epsilon(
                    noise_multiplier=4.0, sample_rate=rate, steps=1, delta=DELTA
                ).upper,
                certified=shown(present, absent, numbers, DELTA),
                known="https://arxiv.org/abs/2605.15648",
            )


def _drawn(records: int, rate: float) -> Scales:
    """Of a Poisson batch; an empty one divides by 1."""
    scales = {1.0: 0.0}
    for size in range(records + 1):
        scale = 1 / max(size, 1)
        scales[scale] = scales.get(scale, 0.0) + float(binom.pmf(size, records, rate))
    return scales


def shown(present: Scales, absent: Scales, numbers: int, delta: float) -> Bound:
    """At least how much epsilon the length of so many numbers of noise shows.

    Of any event that has the probability P with the record and Q without, epsilon is at least
    log((P - delta) / Q), and the other way round. Here the length is below a threshold, or above.
    """
    scales = [*present, *absent]
    ends = chi2.ppf([1e-12, 1 - 1e-12], numbers)
    thresholds = np.geomspace(ends[0] * min(scales) ** 2, ends[1] * max(scales) ** 2, _POINTS)
    best = 0.0
    for tail in (chi2.logcdf, chi2.logsf):
        with_it, without = (
            logsumexp(
                [
                    np.log(share) + tail(thresholds / scale**2, numbers)
                    for scale, share in law.items()
                    if share
                ],
                axis=0,
            )
            for law in (present, absent)
        )
        for more, less in ((with_it, without), (without, with_it)):
            rest = np.exp(more) - delta
            seen = rest > 0
            if seen.any():
                least = np.maximum(less[seen], _SMALLEST)
                best = max(best, float((np.log(rest[seen]) - least).max()))
    return Bound(lower=best, upper=inf)
