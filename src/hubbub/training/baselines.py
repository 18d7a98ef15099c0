"""What hubbub is compared with: everything is shared but who adds the noise and who sees what.

A baseline is a calculation by somebody who holds all records; nothing of it is written to a ledger,
and publishing its result is a release of its own (docs/privacy.md P17).

Batches are drawn as the plan accounts for them. Joint ones have exactly b records of all silos'
together; whoever draws them knows them, so tokens have no part in it. Local DP then holds against
whoever owns no more records than the plan's stated adversary: others know more of the batch (P10).
A silo alone has its own part of such a batch, as large as chance makes it: so a record's chance is
the plan's b / n, however many records the silo has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol import (
    SEED_BYTES,
    Draw,
    Lift,
    LocalTask,
    RoundParameters,
    Rows,
    SecureSource,
    chosen_records,
    clipped_sum,
    draw_of,
    joint_rows,
    partition,
    poisson_rows,
    standard_normal,
    without_replacement,
)
from hubbub.session import round_parameters_of
from hubbub.training import loop, prepared_study

Array = NDArray[np.float64]
Places = NDArray[np.intp]

BASELINES = ("trusted", "local-dp", "alone", "non-private")


def central(setting: prepared_study.PreparedStudy, baseline: str) -> loop.Summation:
    """Somebody who sees every silo's sum adds them; the noise depends on who that is (P17)."""
    plan, sums = setting.plan, _Sums.of(setting, projects=baseline != "non-private")
    sigma = plan.noise_multiplier * plan.clip
    each = sigma if baseline == "local-dp" else 0.0
    total_noise = sigma if baseline == "trusted" else 0.0

    def summation(step: int, parameters: prepared_study.Parameters, _left: int) -> loop.Summed:
        chance = sums.chance(step, parameters)
        total = sums.noise(total_noise)
        for silo in range(len(sums.tasks)):
            total += sums.noisy(silo, parameters, chance, each)
        return loop.Summed(gradient=sums.lifted(total, chance))

    return summation


def alone(setting: prepared_study.PreparedStudy, progress: loop.Progress) -> loop.State:
    """Every silo trains its own model at the same epsilon; metrics are averaged over the silos."""
    plan, sums = setting.plan, _Sums.of(setting, projects=True)
    sigma = plan.noise_multiplier * plan.clip
    share = max(1.0, plan.divisor / len(setting.records))
    runs = []
    for silo in range(len(sums.tasks)):

        def summation(
            step: int, parameters: prepared_study.Parameters, _left: int, silo: int = silo
        ) -> loop.Summed:
            chance = sums.chance(step, parameters)
            total = sums.noisy(silo, parameters, chance, sigma)
            return loop.Summed(gradient=sums.lifted(total, chance))

        runs.append(loop.train(setting, summation, progress, divisor=share))
    rows = tuple(
        {
            key: float(np.mean([row[key] for row in at_once]))
            for key in at_once[0]
            if all(key in row for row in at_once)
        }
        for at_once in zip(*(one.rows for one in runs), strict=True)
    )
    return replace(runs[0], rows=rows)


@dataclass(frozen=True, kw_only=True)
class _Chance:
    """What is drawn once for all silos in a step; None where the study asks for no such thing."""

    draw: Draw | None
    batch: Places | None = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Clipped sums as in the protocol, by somebody who adds the noise in the open.

    Args:
        terms: of the rounds.
        tasks: the silos' records.
        places: of every silo's records among all.
        lift: from projected sums to whole ones.
        source: of all that is drawn.
        order: the seed of batches that share out all records, epoch by epoch.
    """

    terms: RoundParameters
    tasks: Sequence[LocalTask] = field(repr=False)
    places: Sequence[Places] = field(repr=False)
    lift: Lift | None
    source: SecureSource = field(repr=False)
    order: bytes = field(repr=False)

    @classmethod
    def of(cls, setting: prepared_study.PreparedStudy, *, projects: bool) -> _Sums:
        terms = round_parameters_of(setting.plan, setting.initial.size)
        if not projects:
            terms = replace(terms, projection="", dimension=terms.parameters)
        tasks, source = setting.tasks, SecureSource()
        ends = np.cumsum([task.count for task in tasks])
        return cls(
            terms=terms,
            tasks=tasks,
            places=np.split(np.arange(ends[-1]), ends[:-1]),
            lift=setting.lift(terms),
            source=source,
            order=source.bytes(SEED_BYTES),
        )

    def chance(self, step: int, parameters: prepared_study.Parameters) -> _Chance:
        """A fresh matrix and a joint batch for a step, if there are such."""
        seed = self.source.bytes(SEED_BYTES)
        draw = draw_of(seed, step, 0, parameters) if self.terms.projection else None
        return _Chance(draw=draw, batch=self.batch(step) if self.terms.batch else None)

    def batch(self, step: int) -> Places:
        """Places of exactly b records: drawn anew (P10), or the step's part of an epoch (P9)."""
        terms = self.terms
        if not terms.fresh_lists:
            return partition(self.order, terms.records, terms.batch, step)
        return without_replacement(self.source.bytes(SEED_BYTES), terms.records, terms.batch, step)

    def rows(self, silo: int, batch: Places | None) -> Rows:
        """A silo's records in the joint batch, or a Poisson batch of its own (P1)."""
        task = self.tasks[silo]
        if batch is None:
            rate = self.terms.sample_rate
            return poisson_rows(self.source, task.count, task.capacity, rate)
        chosen = chosen_records(batch, self.places[silo])
        return joint_rows(self.source, chosen, self.terms.batch, task.count)

    def noisy(
        self, silo: int, parameters: prepared_study.Parameters, chance: _Chance, sigma: float
    ) -> Array:
        """The clipped sum of a silo's part of the batch, with Gaussian noise."""
        task, rows = self.tasks[silo], self.rows(silo, chance.batch)
        return clipped_sum(self.terms, task, parameters, rows, chance.draw) + self.noise(sigma)

    def noise(self, sigma: float) -> Array:
        """Gaussian noise on every number of a sum."""
        noise = np.zeros(self.terms.dimension)
        if sigma > 0:
            standard_normal(self.source, noise)
        return noise * sigma

    def lifted(self, total: Array, chance: _Chance) -> Array:
        """The whole sum, if it was projected."""
        draw = chance.draw
        return total if self.lift is None or draw is None else self.lift(total, draw)
