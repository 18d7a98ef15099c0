"""What one query does with records to make a noisy sum, as one inert value.

Bound, neighbours, unit, batches, projection, noise, and how often: all that the account of the
query, its numbers on the wire and its ledger rows follow from. `accounts.py` pairs it with its
accounting. This file knows no study, no party and no adversary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import DataError
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.planning.projections import Projection
from hubbub.core.protocol.round.batches import most_rows
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy

# How the noise of one step goes with that of the others: all that a plan must know of it.
#
# `StepNoise` says what is asked of a kind of noise; noise of each step's own is here. Another kind
# is a class in a file of its own, which a query chooses by the study's key.


class StepNoise(Protocol):
    """The noise of a mechanism's steps, in what accounts, grid, plan and audit ask of it."""

    @property
    def coefficients(self) -> tuple[int, ...]:
        """What silos must agree on to make it; nothing for noise of each step's own."""

    @property
    def column(self) -> NDArray[np.float64]:
        """First column of the matrix C; silos add C^-1 Z, Z independent (P25)."""

    @property
    def epoch(self) -> int:
        """In how many steps one noise vector has a part; they are charged as one."""

    @property
    def growth(self) -> float:
        """The largest standard deviation of a step's noise, in units of a share's."""

    def charged_rate(self, rate: float) -> float:
        """The chance of a unit to be in the batch that is charged, if it is `rate` in a step's."""

    def batch_rows(self, capacity: int, rate: float) -> int:
        """The public number of rows in a batch of a silo that may hold so many units (P19)."""

    def rounded(self, shift: float, sigma: float) -> tuple[float, float]:
        """What float64 does to one outcome (P6).

        Args:
            shift: by how much it moves a draw, in grid steps.
            sigma: of the draw, in grid steps.

        Returns:
            By how much it moves the outcome, and how much longer a step of it may be than a draw's.
        """

    def shown(self, numbers: int | None) -> Mapping[str, Any]:
        """What a plan states of it, under its option's key, for sums of so many numbers."""

    def rows(self, numbers: int | None) -> list[PlanRow]:
        """The same for people."""


@dataclass(frozen=True)
class IndependentNoise:
    """Noise of each step's own (P1)."""

    coefficients: tuple[int, ...] = ()
    epoch: int = 1
    growth: float = 1.0

    @property
    def column(self) -> NDArray[np.float64]:
        """Of the identity."""
        return np.ones(1)

    def charged_rate(self, rate: float) -> float:
        """See `StepNoise`."""
        return rate

    def batch_rows(self, capacity: int, rate: float) -> int:
        """See `StepNoise`."""
        return most_rows(capacity, rate)

    def rounded(self, shift: float, sigma: float) -> tuple[float, float]:
        """See `StepNoise`."""
        return shift, 1.0

    def shown(self, numbers: int | None) -> Mapping[str, Any]:
        """Nothing: it is the noise that is expected."""
        return {}

    def rows(self, numbers: int | None) -> list[PlanRow]:
        """Nothing."""
        return []


INDEPENDENT = IndependentNoise()
OPTIONS = "hubbub.options"  # what packages register as other values of `training.noise`


WITHOUT_REPLACEMENT = "without-replacement"
# Share of the record's clipping norm that is given up so that finite precision stays within it: a
# quarter for what a projection rounds (P8 (8)), the rest for float32 sums (P6 i).
CLIP_MARGIN = 2.0**-8
SUM_MARGIN = 0.75 * CLIP_MARGIN
MOST_ROWS = 3_600_000  # of a float64 sum: P6 (i) has 2 b (b + 2) 2^-53 within that rest


def check_rows(rows: int) -> None:
    """Refuse, before anything is charged, a silo's sum for whose rounding C has no room (P6 (i)).

    Raises:
        DataError: it has more rows than that, a public number.
    """
    if rows > MOST_ROWS:
        raise DataError(
            f"expected at most {MOST_ROWS:,} rows of a silo in a sum of floats, got {rows:,}; "
            "divide its records among several silos"
        )


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """How a query's sums are made and hidden.

    Args:
        purpose: the query's name, which its sessions and ledger rows carry.
        relation: of neighbouring data sets, "add-remove" or "substitute".
        delta: of the study; a projection's slack is a part of it.
        steps: attempts that are paid for, each a noisy sum.
        clip: C, the largest L2 norm of a unit's part in a sum, in the sum's own unit.
        unit: what is protected, "record" or "patient".
        most_per_patient: how many records a patient has at most; 0: not stated.
        records: public number of units in all; 0: not public.
        counts: each silo's number of records, where it is public.
        sampling: "full-batch" (everybody), "poisson", or `WITHOUT_REPLACEMENT`.
        sample_rate: the chance of a unit to be in a batch, a probability.
        tokens: for how many steps a shuffled token list is kept, where batches are joint.
        projection: of the sums, so that fewer numbers are sent; None: all of them.
        noise: how that of one step goes with that of others.
        diameter: how far apart two units' parts can be, in units of C, where one is exchanged.
        every: steps of the training between two sums; 0 if they wait for no training.
        divisor: the public number by which a noisy sum is divided.
        noise_multiplier: sigma / C that is left against the stated adversary; 0: not calibrated.
    """

    purpose: str
    relation: str
    delta: float
    steps: int
    clip: float = 1.0
    unit: str = "record"
    most_per_patient: int = 0
    records: int = 0
    counts: tuple[int, ...] = ()
    sampling: str = "full-batch"
    sample_rate: float = 1.0
    tokens: str = "per-step"
    projection: Projection | None = None
    noise: StepNoise = INDEPENDENT
    diameter: float = 2.0
    every: int = 0
    divisor: float = 1.0
    noise_multiplier: float = 0.0

    @property
    def has_joint_batches(self) -> bool:
        """Whether all silos together draw a batch of one public size."""
        return self.sampling == WITHOUT_REPLACEMENT

    @property
    def needs_joint_seed(self) -> bool:
        """Whether silos draw something together in every attempt: matrices, or a batch."""
        return self.projection is not None or self.has_joint_batches

    def numbers_sent(self, numbers: int | None) -> int | None:
        """How many numbers a silo sends of so many: all, or those of the projection."""
        return self.projection.dimension if self.projection else numbers

    @property
    def batch(self) -> int:
        """Records in a joint batch; 0 where silos draw batches of their own."""
        return joint_batch(self.sample_rate, self.records) if self.has_joint_batches else 0

    @property
    def epoch(self) -> int:
        """How many attempts are charged as one (P9, P25).

        A record takes part once in them, where a token list is kept, or may take part once, where
        one noise vector has a part in all of them.
        """
        if self.has_joint_batches and self.tokens != "per-step":
            # P9 (e): a list has so many parts, and each record is in one of them.
            return ceil(self.records / self.batch)
        return self.noise.epoch

    @property
    def rows(self) -> int:
        """Ledger rows that pay for all attempts: one for an epoch."""
        return ceil(self.steps / self.epoch)

    @property
    def paid_attempts(self) -> int:
        """The most attempts that these rows pay for: the steps, in whole epochs."""
        return self.epoch * self.rows

    @property
    def attempts_per_list(self) -> int:
        """How many attempts a shuffled token list serves, unless its session ends; 0: no list."""
        if not self.has_joint_batches:
            return 0
        return {"per-step": 1, "per-epoch": self.epoch, "static": self.steps}[self.tokens]

    def due_by(self, step: int) -> int:
        """How many sums may have been asked for by the end of so many steps of the training."""
        return min(self.steps, step // self.every) if self.every else self.steps

    def due_after(self, sums: int) -> int:
        """How many steps of the training have an account in which so many sums are counted."""
        return sums * self.every


def joint_batch(sample_rate: float, records: int) -> int:
    """Records in a joint batch, rounded up."""
    # A whole number is not rounded up for the last digit of a float.
    return min(records, ceil(sample_rate * records * (1 - 1e-12)))


def mechanism_of_all(
    purpose: str,
    data: Data,
    privacy: Privacy,
    *,
    sums: int,
    norm: float,
    distance: float,
    every: int = 0,
) -> Mechanism:
    """Sums of vectors no longer than `norm`, over all records.

    Where one is exchanged, its vector moves by at most `distance`, which is no less than `norm`.
    C leaves room for what float sums round above it (P6 (i), up to `MOST_ROWS` of a silo).
    """
    return Mechanism(
        purpose=purpose,
        relation=privacy.relation,
        delta=privacy.delta,
        steps=sums,
        # P14: records are clipped to C less the margin, which is the norm again.
        clip=norm / (1 - CLIP_MARGIN),
        unit=data.unit,
        most_per_patient=data.most_per_patient,
        records=data.records,
        every=every,
        diameter=distance / norm if privacy.relation == "substitute" else 2.0,
    )
