"""A query with its noise: everything that its sessions, its rounds and its ledger rows are made by.

Made by `plan_of_mechanisms.py`. This file calibrates nothing and knows no adversary.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Generic, TypeGuard, TypeVar

from hubbub.core.planning import precision
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.noise_shares import NoiseShares
from hubbub.core.planning.query import Query, SteppedQuery
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.study.parties import Parties

Q_co = TypeVar("Q_co", bound=Query, covariant=True)


@dataclass(frozen=True, kw_only=True)
class PlannedQuery(Generic[Q_co]):
    """A query, its calibrated mechanism, and its numbers on the wire.

    C is the mechanism's clipping norm, and sigma the standard deviation of noise, both in units of
    the sum; their ratio has no unit.

    Args:
        query: what is asked.
        mechanism: how its sums are made, with the noise.
        numbers: of a sum before any projection; None if that is not known yet.
        parties: who takes part.
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
        return precision.record_clip(self.mechanism.clip)

    @property
    def shares(self) -> int:
        """How many silos' shares add up to the stated noise where all silos take part (P3)."""
        return self.division.count

    @property
    def share_sigma(self) -> float:
        """Standard deviation of each silo's noise where all take part, in units of the sum (P3)."""
        return self.noise_multiplier * self.mechanism.clip / sqrt(self.shares)

    @property
    def widest_share_sigma(self) -> float:
        """The same where as many silos are missing as may be: no less (P3)."""
        return self.share_sigma * self.division.widest

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
