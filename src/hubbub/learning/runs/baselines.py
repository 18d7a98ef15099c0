"""What hubbub is compared with: everything is shared but who adds the noise and who sees what.

A baseline is a calculation by somebody who holds all records; nothing of it is written to a ledger,
and publishing its result is a release of its own (docs/privacy.md P17). A rehearsal is one, too: it
has the law of a run and none of its protection.

Batches are drawn as the plan accounts for them; joint ones have exactly b records of all silos'
together, and whoever draws them knows them. Local DP then holds against whoever owns no more
records than the plan's stated adversary (P10). A silo alone has its own part of such a batch, as
large as chance makes it: a record's chance is the plan's b / n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.projections import transform_of
from hubbub.core.planning.query import Query, QueryState
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.correlated_noise import CorrelatedNoise
from hubbub.core.protocol.primitives.noise import add_and_round, standard_normal
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import Groups, Rows, joint_rows, most_rows, poisson_rows
from hubbub.core.protocol.round.draw import SEED_BYTES, Draw, Lift, Transform, clipped_sum, draw_of
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded
from hubbub.core.runs import federated, loop, prepared_study
from hubbub.core.session.joint_batches import JointBatches, joint_batches
from hubbub.core.session.offer import round_parameters_of

Array = NDArray[np.float64]
Places = NDArray[np.intp]

BASELINES: tuple[str, ...] = ("trusted", "local-dp", "alone", "non-private")
REHEARSAL = "rehearsal"
_WORD_BITS = 64  # of a rehearsed sum, which nobody sends


def central(prepared: prepared_study.PreparedStudy, baseline: str) -> loop.Summation:
    """The sum over all silos; the noise depends on who adds it (P17).

    Independent noise of N silos, added up, is one draw of sqrt(N) times the deviation.
    """
    plan, sums = prepared.plan, _Sums.of(prepared, projects=baseline != "non-private")
    numbers, rehearses = sums.round_parameters, baseline == REHEARSAL
    sigma, silos = plan.noise_multiplier * plan.mechanism.clip, plan.study.parties.silos
    # One curator adds the noise once; in local DP each silo adds all of it by itself; a rehearsal
    # has the law of a run: the noise of all shares, on the grid (P3, P5).
    noise = sums.noise_of(
        {
            "trusted": sigma,
            "local-dp": sigma * sqrt(silos),
            REHEARSAL: numbers.sigma_grid * sqrt(len(sums.counts)),
        }.get(baseline, 0.0)
    )

    def summation(step: int, parameters: prepared_study.Parameters, _left: int) -> loop.Summed:
        sent = numbers.sent(parameters) if rehearses else parameters
        chance = sums.chance(step, sent)
        total, added = sums.exact(sent, chance), noise(step)
        if rehearses:
            residues = add_and_round(total, added, _WORD_BITS, grid_step=numbers.grid_step)
            total = decoded(numbers, ring.to_integers(residues))
        else:
            total = total + added
        return loop.Summed(gradient=sums.lifted(total, chance))

    return summation


def alone(prepared: prepared_study.PreparedStudy, progress: loop.Progress) -> QueryState:
    """Every silo trains its own model at the same epsilon; metrics are averaged over the silos."""
    plan, tasks, sums = prepared.plan, prepared.tasks, _Sums.of(prepared, projects=True)
    sigma = plan.noise_multiplier * plan.mechanism.clip
    # A silo divides by its part of the expected batch.
    share = max(1.0, plan.mechanism.divisor / len(tasks))

    def of_silo(silo: int, task: LocalTask) -> loop.Summation:
        noise = sums.noise_of(sigma)

        def summation(step: int, parameters: prepared_study.Parameters, _left: int) -> loop.Summed:
            chance = sums.chance(step, parameters)
            rows = sums.rows(silo, chance)
            total = clipped_sum(sums.transform, task, parameters, rows, chance.draw)
            return loop.Summed(gradient=sums.lifted(total + noise(step), chance))

        return summation

    runs = [
        loop.train(prepared, of_silo(silo, task), progress, divisor=share)
        for silo, task in enumerate(tasks)
    ]
    # What all silos' models have at a step, on average.
    rows = tuple(
        {
            key: float(np.mean([row[key] for row in at_once]))
            for key in at_once[0]
            if all(key in row for row in at_once)
        }
        for at_once in zip(*(run.rows for run in runs), strict=True)
    )
    return replace(runs[0], rows=rows)


class _Chance(NamedTuple):
    """What is drawn once for all silos in a step; None where the study asks for no such thing."""

    step: int
    draw: Draw | None
    batch: Places | None


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Clipped sums as in the protocol, by somebody who adds the noise in the open."""

    round_parameters: RoundParameters
    task: LocalTask = field(repr=False)  # all silos' records, one silo's after the other's
    counts: Sequence[int] = field(repr=False)  # of records, by silo
    capacities: Sequence[int]
    lift: Lift | None
    transform: Transform | None
    source: SecureSource = field(repr=False)  # of all that is drawn
    order: bytes = field(repr=False)  # seed of batches that share out all records by epoch
    joint: JointBatches | None = None  # where all draw together
    groups: Sequence[Groups] = ()  # of each silo's places, where they take turns (P25)

    @classmethod
    def of(cls, prepared: prepared_study.PreparedStudy, *, projects: bool) -> _Sums:
        round_parameters = round_parameters_of(prepared.plan.main)
        # Without noise there is no reason to project.
        if not projects:
            dimension = prepared.plan.main.numbers or round_parameters.dimension
            round_parameters = replace(round_parameters, projection="", dimension=dimension)
        query, silos = prepared.plan.main.query, prepared.silos
        source, capacities = SecureSource(), [query.max_units(silo) for silo in silos]
        turns = round_parameters.noise_epoch
        return cls(
            round_parameters=round_parameters,
            task=query.pooled_task(silos),
            counts=prepared.counts,
            capacities=capacities,
            lift=prepared.lift(round_parameters),
            transform=transform_of(round_parameters),
            source=source,
            order=source.bytes(SEED_BYTES),
            joint=joint_batches(prepared.plan.main.mechanism, prepared.counts),
            groups=[Groups(source, capacity, turns) for capacity in capacities if turns > 1],
        )

    def chance(self, step: int, parameters: prepared_study.Parameters) -> _Chance:
        """A fresh matrix and a joint batch for a step, if there are such."""
        seed = self.source.bytes(SEED_BYTES)
        numbers, batch = self.round_parameters, None
        draw = draw_of(seed, step, 0, parameters) if numbers.projection else None
        if self.joint:
            # Places of exactly b records: drawn anew (P10), or the step's part of an epoch (P9).
            order = self.source.bytes(SEED_BYTES) if numbers.fresh_lists else self.order
            batch = self.joint.places(numbers, order, step)
        return _Chance(step, draw, batch)

    def rows(self, silo: int, chance: _Chance) -> Rows:
        """A silo's records in the joint batch, or a Poisson batch of its own (P1)."""
        count, batch, rate = self.counts[silo], chance.batch, self.round_parameters.sample_rate
        if self.groups:
            return self.groups[silo].rows(self.source, count, chance.step, rate)
        if batch is None:
            return poisson_rows(self.source, count, self.capacities[silo], rate)
        first = sum(self.counts[:silo])
        chosen = batch[(first <= batch) & (batch < first + count)] - first
        return joint_rows(self.source, chosen, self.round_parameters.batch, count)

    def exact(self, parameters: prepared_study.Parameters, chance: _Chance) -> Array:
        """The clipped sum over every silo's part of the batch, without noise."""
        batch, rate = chance.batch, self.round_parameters.sample_rate
        if self.groups:  # which take turns (P25)
            first, places = 0, []
            for group, count in zip(self.groups, self.counts, strict=True):
                heads = group.heads(self.source, chance.step, rate)
                places.append(first + heads[heads < count])
                first += count
            batch = np.concatenate(places)
        elif batch is None:
            batch = poisson_batches(self.source, self.counts, self.capacities, rate)
        return clipped_sum(self.transform, self.task, parameters, batch, chance.draw)

    def noise_of(self, sigma: float) -> Callable[[int], Array]:
        """The noise on every number of a sum, by the step of one training."""
        numbers = self.round_parameters
        if numbers.noise_epoch > 1 and sigma > 0:
            rows = CorrelatedNoise(numbers.correlation, numbers.dimension, sigma)
            return lambda attempt: rows.row(attempt, self.source)

        def fresh(_: int) -> Array:
            drawn = np.zeros(numbers.dimension)
            if sigma > 0:
                standard_normal(self.source, drawn)
            return drawn * sigma

        return fresh

    def lifted(self, total: Array, chance: _Chance) -> Array:
        """The whole sum, if it was projected."""
        draw = chance.draw
        return total if self.lift is None or draw is None else self.lift(total, draw)


def poisson_batches(
    source: SecureSource, records: Sequence[int], capacities: Sequence[int], rate: float
) -> NDArray[np.intp]:
    """Poisson batches of many silos as `poisson_rows` draws them, all in one list.

    For who may see everybody's records, and asks for no rows.

    Args:
        records: how many each silo has; the records are counted on from silo to silo.
        capacities, rate: as for `most_rows`, for each silo.
    """
    ends = np.cumsum(capacities)
    most = np.array([most_rows(capacity, rate) for capacity in capacities])
    heads = source.chosen(int(ends[-1]), rate)
    parts = np.split(heads, np.searchsorted(heads, ends[:-1]))
    first, batches = 0, []
    for silo, (start, part) in enumerate(zip(ends - capacities, parts, strict=True)):
        here = part - start
        while here.size > most[silo]:
            here = source.chosen(capacities[silo], rate)
        batches.append(first + here[here < records[silo]])
        first += records[silo]
    return np.concatenate(batches)


def exact_queries(_: PlannedQuery[Query], tasks: Sequence[LocalTask]) -> federated.Asked:
    """Sums without noise or protocol, for the baseline that keeps no privacy."""

    def summation(_number: int, parameters: prepared_study.Parameters, _left: int) -> loop.Summed:
        sums = [task.clipped_sum(parameters, np.arange(task.count)) for task in tasks]
        return loop.Summed(gradient=np.sum(sums, axis=0))

    return federated.Asked(summation=summation)
