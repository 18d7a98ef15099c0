"""A query with its noise: everything that its sessions, its rounds and its ledger rows are made by.

Made by `study_plan.py`. This file calibrates nothing and knows no adversary.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import ceil, exp, expm1, log, pi, sqrt
from typing import Any, Generic, TypeGuard, TypeVar

from hubbub.core.errors import DataError, StudyError
from hubbub.core.planning.mechanism import CLIP_MARGIN, Mechanism, StepNoise
from hubbub.core.planning.noise_shares import NoiseShares
from hubbub.core.planning.query import Query, SteppedQuery
from hubbub.core.privacy.arguments import MOST_EPSILON
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.study.parties import Parties
from hubbub.core.study.study import Study

# What finite precision and the mask graph add to the ideal mechanism; grid and word of the sum.
#
# All of docs/privacy.md P4 to P7 and P8 (8) that is a number of the plan.

_LEAST_GRID_SIGMA, _MOST_GRID_SIGMA = 4, 16
_UNKNOWN_BATCH = 1 << 14  # aligned records that must fit a word when the study states no number
_ASSUMED_NUMBERS = 10**7  # for the certificate, when the model's size is not known yet


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
        numbers: how many numbers a silo sends per step, if that is known.
        parameters: how many the model has, if that is known; a projection's entries depend on it.
        widest: how much wider a share may be than where all silos take part (P3).
    """
    # P15: for as many attempts as the rows pay for, whole epochs of them.
    draws = float(mechanism.paid_attempts) * (numbers or _ASSUMED_NUMBERS) * parties.silos
    sigma = float(_LEAST_GRID_SIGMA)
    # P5: at the finest noise that a plan may choose; coarser noise costs less.
    rounding = 2 * draws * exp(-((pi * sigma) ** 2))
    outcome = _outcome_error(_MOST_GRID_SIGMA * widest, mechanism.noise)
    # Up to the largest epsilon that is claimed, what the sampler's slack adds to delta stays below
    # 0.1 %: the epsilon of other adversaries may be far above the study's (P6).
    slack = 1e-3 * mechanism.delta / (1 + exp(MOST_EPSILON))
    # P6 (ii): the second term of the minimum, with this slack for tau_0.
    drift = draws * outcome**2 + outcome * sqrt(2 * draws * log(1 / slack))
    lost_tail = draws * 1e-29  # beyond 9 standard deviations, in total variation
    return Certificate(
        # P5, P6: delta of what is sent is at most e^K delta(epsilon - 2 K), and the slack.
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
    return mechanism.projection.entries_failure(
        parameters or _ASSUMED_NUMBERS, mechanism.paid_attempts
    )


def grid_for(
    mechanism: Mechanism, parties: Parties, noise: float, shares: NoiseShares
) -> tuple[int, float, int]:
    """Word, grid standard deviation of the least share, and how many aligned records fit (P7)."""
    share = noise / sqrt(shares.count)  # in units of C; the least, where all silos take part
    # P7: with room for 12 standard deviations a number wraps with probability below 3.6e-33.
    reach = 12 * shares.largest_total(parties.silos) * sqrt(shares.count)  # in shares
    needed, projection = largest_batch(mechanism), mechanism.projection
    coordinate = projection.largest_coordinate if projection else 1.0  # of a record, over C
    for bits in (16, 32, 64):
        sigma = float(_MOST_GRID_SIGMA)
        # P5: a coarser grid before a longer word, but never a share of less than it is proven for.
        while sigma >= _LEAST_GRID_SIGMA:
            spread = reach * sigma * mechanism.noise.growth
            room = (2.0 ** (bits - 1) - 1 - spread) * share / sigma
            # P7: so many aligned records fit beside 12 deviations of the noise.
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
    if not mechanism.records:
        return _UNKNOWN_BATCH
    # Bernstein's inequality: e^-72 beyond, whatever the mean is.
    mean = mechanism.sample_rate * mechanism.records
    return min(mechanism.records, int(mean + 12 * sqrt(mean) + 48) + 1)


Q_co = TypeVar("Q_co", bound=Query, covariant=True)


@dataclass(frozen=True, kw_only=True)
class PlannedQuery(Generic[Q_co]):
    """A query, its calibrated mechanism, and its numbers on the wire.

    C is the mechanism's clipping norm, and sigma the standard deviation of noise, both in units of
    the sum; their ratio has no unit.

    Args:
        mechanism: how its sums are made, with the noise.
        numbers: of a sum before any projection; None if that is not known yet.
        division: how the stated noise is divided among silos (P3).
        word_bits: bits of one number on its way to the aggregator: 16, 32 or 64.
        share_sigma_grid: standard deviation of one silo's noise where all take part, in grid steps.
        sum_limit: how many records, all clipped and all in the same direction, a sum holds.
        certificate: what finite precision and the mask graph may add to epsilon and delta (P4-P6).
        known_records: records whose part in a joint batch the stated adversary knows (P10).
        epsilon: of its sums against the stated adversary, as if nothing else were asked.
    """

    query: Q_co
    mechanism: Mechanism
    numbers: int | None
    parties: Parties
    division: NoiseShares
    word_bits: int
    share_sigma_grid: float
    sum_limit: int
    certificate: Certificate
    known_records: int
    epsilon: float

    @property
    def purpose(self) -> str:
        """The query's name."""
        return self.mechanism.purpose

    @property
    def noise_multiplier(self) -> float:
        """sigma / C of the noise that the stated adversary cannot subtract; no unit."""
        return self.mechanism.noise_multiplier

    @property
    def quorum(self) -> int:
        """The least number of silos in a round; below it nothing is revealed (P3)."""
        return self.parties.silos - self.parties.dropouts

    @property
    def record_clip(self) -> float:
        """The L2 norm to which records are clipped: C less the margin for float sums (P14)."""
        return record_clip(self.mechanism.clip)

    @property
    def shares(self) -> int:
        """How many silos' shares add up to the stated noise where all silos take part (P3)."""
        return self.division.count

    @property
    def share_sigma(self) -> float:
        """Standard deviation of each silo's noise where all take part, in units of the sum (P3)."""
        return self.noise_multiplier * self.mechanism.clip / sqrt(self.shares)

    @property
    def total_noise_multiplier(self) -> float:
        """sigma / C of the noise in the revealed sum when every silo takes part; no unit."""
        return self.noise_multiplier * self.division.total(self.parties.silos)

    @property
    def total_sigma(self) -> float:
        """Standard deviation of all noise on each number of a sum, in units of the sum.

        At most, whoever is missing: sums that silos are missing from may have more noise (P3).
        """
        largest = self.division.largest_total(self.parties.silos)
        return self.noise_multiplier * largest * self.mechanism.clip

    @property
    def grid_step(self) -> float:
        """Width of a grid step, in units of the sum (P5)."""
        return self.share_sigma / self.share_sigma_grid

    @property
    def numbers_sent(self) -> int | None:
        """How many numbers a silo sends in a step: all, or those of the projection."""
        return self.mechanism.numbers_sent(self.numbers)

    @property
    def broadcast_numbers(self) -> int | None:
        """How many numbers go down to the silos; None if that is not known yet."""
        return self.query.broadcast_numbers

    def to_dict(self) -> dict[str, Any]:
        """A query beside others as plain values; its epsilon is part of the study's."""
        return {
            "purpose": self.purpose,
            "sums": self.mechanism.steps,
            "numbers": self.numbers,
            "noise_multiplier": self.noise_multiplier,
            "epsilon_alone": self.epsilon,
        }


def is_stepped(planned: PlannedQuery[Query]) -> TypeGuard[PlannedQuery[SteppedQuery]]:
    """Whether a query's sums lead from state to state."""
    return isinstance(planned.query, SteppedQuery)


# How many records a silo may hold, and so how many rows its batches have: public numbers (P19).
#
# Whoever writes a study states `data.capacity`. Where it is not stated a silo takes the first step
# of a public ladder that holds its records: an equal share of `data.records` and a little more,
# twice that, four times, and so on. Which step it took may then show, as a refusal would, and
# neighbours that take different steps are outside what P19 states.

_SLACK, _MORE = 1.02, 8  # of an equal share, so that silos of about that size need no second step


def capacity_of(study: Study, name: str, records: int) -> int:
    """The most records that a silo may hold.

    Args:
        records: how many it has, which only decides where nothing is stated.

    Raises:
        DataError: it has more than the study states.
    """
    data, silos = study.data, study.parties.silos
    if data.capacity:
        stated = data.capacity[study.parties.names.index(name) if len(data.capacity) > 1 else 0]
    elif study.shows_counts:
        stated = records  # joint batches make the number public
    elif data.records:
        stated = min(_ladder(ceil(data.records / silos), records), data.records)
    else:
        stated = _ladder(1, records)
    if records > stated:
        what = "data.capacity" if data.capacity else "data.records"
        raise DataError(
            f"expected at most {stated} records of {name}, as {what} says, got more; batches have "
            f"one public shape: state {what} as large as it is"
        )
    return stated


def _ladder(share: int, records: int) -> int:
    """The first of these public numbers that is large enough."""
    first = ceil(_SLACK * share) + _MORE
    return next(first << step for step in count() if first << step >= records)
