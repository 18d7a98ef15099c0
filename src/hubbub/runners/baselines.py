"""What hubbub is compared with: everything is shared but who adds the noise and who sees what.

A baseline is a calculation by somebody who holds all records; nothing of it is written to a ledger,
and publishing its result is a release of its own (docs/privacy.md P17).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.noise import standard_normal
from hubbub.projection import Draw
from hubbub.projection.matrix import SEED_BYTES
from hubbub.randomness import SecureSource
from hubbub.round import LocalTask, Terms
from hubbub.round.projected import clipped_sum, draw_of
from hubbub.runners.federation import terms_of
from hubbub.runners.public import Lift
from hubbub.runners.setting import Parameters, Setting
from hubbub.runners.training import Progress, State, Summation, Summed, train

Array = NDArray[np.float64]

BASELINES = ("trusted", "local-dp", "alone", "non-private")


def central(setting: Setting, baseline: str) -> Summation:
    """Somebody who sees every silo's sum adds them; the noise depends on who that is (P17)."""
    plan, sums = setting.plan, _Sums.of(setting, projects=baseline != "non-private")
    tasks, sigma = setting.tasks, plan.noise_multiplier * plan.clip
    each = sigma if baseline == "local-dp" else 0.0
    total_noise = sigma if baseline == "trusted" else 0.0

    def summation(step: int, parameters: Parameters, _left: int) -> Summed:
        draw = sums.draw(step, parameters)
        total = sums.noise(total_noise)
        for task in tasks:
            total += sums.noisy(task, parameters, draw, each)
        return Summed(gradient=sums.lifted(total, draw))

    return summation


def alone(setting: Setting, progress: Progress) -> State:
    """Every silo trains its own model at the same epsilon; metrics are averaged over the silos."""
    plan, sums = setting.plan, _Sums.of(setting, projects=True)
    sigma = plan.noise_multiplier * plan.clip
    share = max(1.0, plan.divisor / len(setting.records))
    runs = []
    for task in setting.tasks:

        def summation(
            step: int, parameters: Parameters, _left: int, task: LocalTask = task
        ) -> Summed:
            draw = sums.draw(step, parameters)
            total = sums.noisy(task, parameters, draw, sigma)
            return Summed(gradient=sums.lifted(total, draw))

        runs.append(train(setting, summation, progress, divisor=share))
    rows = tuple(
        {key: float(np.mean([row[key] for row in at_once])) for key in at_once[0]}
        for at_once in zip(*(one.rows for one in runs), strict=True)
    )
    return replace(runs[0], rows=rows)


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Clipped sums as in the protocol, by somebody who adds the noise in the open."""

    terms: Terms
    rate: float
    lift: Lift | None
    source: SecureSource = field(default_factory=SecureSource, repr=False)

    @classmethod
    def of(cls, setting: Setting, *, projects: bool) -> _Sums:
        terms = terms_of(setting.plan, setting.initial.size)
        if not projects:
            terms = replace(terms, projection="", dimension=terms.parameters)
        rate = setting.study.training.sample_rate
        return cls(terms=terms, rate=rate, lift=setting.lift(terms))

    def draw(self, step: int, parameters: Parameters) -> Draw | None:
        """A fresh matrix for a step, if sums are projected."""
        seed = self.source.bytes(SEED_BYTES)
        return draw_of(seed, step, 0, parameters) if self.terms.projection else None

    def noisy(
        self, task: LocalTask, parameters: Parameters, draw: Draw | None, sigma: float
    ) -> Array:
        """A fresh batch's clipped sum with Gaussian noise."""
        chosen = self.source.chosen(task.count, self.rate)
        return clipped_sum(self.terms, task, parameters, chosen, draw) + self.noise(sigma)

    def noise(self, sigma: float) -> Array:
        """Gaussian noise on every number of a sum."""
        noise = np.zeros(self.terms.dimension)
        if sigma > 0:
            standard_normal(self.source, noise)
        return noise * sigma

    def lifted(self, total: Array, draw: Draw | None) -> Array:
        """The whole sum, if it was projected."""
        return total if self.lift is None or draw is None else self.lift(total, draw)
