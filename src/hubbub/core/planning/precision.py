"""What finite precision and the mask graph add to the ideal mechanism; grid and word of the sum.

All of docs/privacy.md P4 to P7 and P8 (8) that is a number of the plan. This file knows sizes,
steps and noise; it knows no adversary and no sampling.
"""

from __future__ import annotations

from math import exp, expm1, log, pi, sqrt

from hubbub.core.errors import StudyError
from hubbub.core.planning.mechanism import CLIP_MARGIN, Mechanism
from hubbub.core.planning.noise_shares import NoiseShares
from hubbub.core.planning.step_noise import StepNoise
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.study.parties import Parties

_LEAST_GRID_SIGMA, _MOST_GRID_SIGMA = 4, 16
_UNKNOWN_BATCH = 1 << 14  # aligned records that must fit a word when the study states no number
_ASSUMED_NUMBERS = 10**7  # for the certificate, when the model's size is not known yet
# Up to the largest epsilon that is claimed, what the sampler's slack adds to delta stays below
# 0.1 %: the epsilon of other adversaries may be far above the study's (P6).
_LARGEST_CLAIM = MOST_EPSILON


def record_clip(clip: float) -> float:
    """The L2 norm to which records are clipped: C less the margin for float sums (P14)."""
    return clip * (1 - CLIP_MARGIN)


def certificate_for(
    mechanism: Mechanism,
    parties: Parties,
    numbers: int | None,
    parameters: int | None = None,
    *,
    widest: float = 1.0,
) -> Certificate:
    """P5 (rounding), P6 (sampler, martingale bound) and P8 (8) for all its sums.

    Rounding is charged at the finest noise that a plan may choose on the grid and the sampler at
    the widest, so that the certificate holds for every grid.

    Args:
        mechanism: of the sums.
        parties: who takes part.
        numbers: how many numbers a silo sends per step, if that is known.
        parameters: how many the model has, if that is known; a projection's entries depend on it.
        widest: how much wider a share may be than where all silos take part (P3).

    Raises:
        StudyError: sums of the batches are too long for the projection.
    """
    draws = float(mechanism.paid_attempts) * (numbers or _ASSUMED_NUMBERS) * parties.silos
    sigma = float(_LEAST_GRID_SIGMA)
    rounding = 2 * draws * exp(-((pi * sigma) ** 2))
    outcome = _outcome_error(_MOST_GRID_SIGMA * widest, mechanism.noise)
    slack = 1e-3 * mechanism.delta / (1 + exp(_LARGEST_CLAIM))
    drift = draws * outcome**2 + outcome * sqrt(2 * draws * log(1 / slack))
    lost_tail = draws * 1e-29  # beyond 9 standard deviations, in total variation
    return Certificate(
        epsilon=2 * (rounding + drift),
        slack=slack + lost_tail,
        failure=_entries_failure(mechanism, parameters),
        delta_factor=1 + expm1(rounding + drift),
    )


def _outcome_error(sigma_grid: float, noise: StepNoise) -> float:
    """Relative error of one outcome's probability in float64 (P6, Numbers: T = 9; P25)."""
    reach = 9 * sigma_grid
    shift, length = noise.rounded(2.0**-53 * (5 * reach + 1), sigma_grid)
    slope = (reach + 1) / sigma_grid**2 * length
    return 2 * shift * (1 + slope) * exp(slope * shift)


def _entries_failure(mechanism: Mechanism, parameters: int | None) -> float:
    """Probability that a projection's matrices are further from exact ones than P8 (8) allows."""
    if mechanism.projection is None:
        return 0.0
    if parameters:  # sums that would be too long for it are refused
        mechanism.projection.matrices(mechanism.clip, parameters, largest_batch(mechanism))
    return mechanism.projection.entries_failure(
        parameters or _ASSUMED_NUMBERS, mechanism.paid_attempts
    )


def grid_for(
    mechanism: Mechanism, parties: Parties, noise: float, shares: NoiseShares
) -> tuple[int, float, int]:
    """Word, grid standard deviation of the least share, and how many aligned records fit (P7)."""
    share = noise / sqrt(shares.count)  # in units of C; the least, where all silos take part
    reach = 12 * shares.largest_total(parties.silos) * sqrt(shares.count)  # in shares
    needed, projection = largest_batch(mechanism), mechanism.projection
    coordinate = projection.largest_coordinate if projection else 1.0  # of a record, over C
    for bits in (16, 32, 64):
        sigma = float(_MOST_GRID_SIGMA)
        while sigma >= _LEAST_GRID_SIGMA:
            spread = reach * sigma * mechanism.noise.growth
            room = (2.0 ** (bits - 1) - 1 - spread) * share / sigma
            sum_limit = int(room / coordinate)
            if sum_limit >= needed:
                return bits, sigma, sum_limit
            sigma /= 2
    raise StudyError(
        "expected a noise multiplier at which a 64-bit word holds the sum, "
        f"got {noise:.3g}; ask for a smaller epsilon"
    )


def largest_batch(mechanism: Mechanism) -> int:
    """A batch size exceeded with probability below 2^-100; a default if n is not public."""
    return _likely_batch(mechanism) if mechanism.records else _UNKNOWN_BATCH


def _likely_batch(mechanism: Mechanism) -> int:
    """A batch size of so many records, exceeded with probability below 2^-100."""
    mean = mechanism.sample_rate * mechanism.records
    return min(mechanism.records, int(mean + 12 * sqrt(mean) + 48) + 1)
