"""What hubbub is compared with: everything is shared but who adds the noise and who sees what.

A baseline is a calculation by somebody who holds all records; nothing of it is written to a ledger,
and publishing its result is a release of its own (docs/privacy.md P17).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hubbub.noise import standard_normal
from hubbub.plan import Plan
from hubbub.randomness import SecureSource
from hubbub.round import LocalTask
from hubbub.runners.setting import Parameters, Setting
from hubbub.runners.training import Progress, State, Summation, Summed, train

Array = NDArray[np.float64]

BASELINES = ("trusted", "local-dp", "alone", "non-private")


def central(setting: Setting, baseline: str) -> Summation:
    """Somebody who sees every silo's sum adds them; the noise depends on who that is (P17)."""
    plan, source, tasks = setting.plan, SecureSource(), setting.tasks
    sigma = plan.noise_multiplier * plan.clip
    each = sigma if baseline == "local-dp" else 0.0
    total_noise = sigma if baseline == "trusted" else 0.0

    def summation(_step: int, parameters: Parameters, _left: int) -> Summed:
        total = np.zeros(parameters.size)
        for task in tasks:
            total += _noisy_sum(task, parameters, plan, source, each)
        return Summed(gradient=total + _normal(source, total.size, total_noise))

    return summation


def alone(setting: Setting, progress: Progress) -> State:
    """Every silo trains its own model at the same epsilon; metrics are averaged over the silos."""
    plan, source = setting.plan, SecureSource()
    sigma = plan.noise_multiplier * plan.clip
    share = max(1.0, plan.divisor / len(setting.records))
    runs = []
    for task in setting.tasks:

        def summation(
            _step: int, parameters: Parameters, _left: int, task: LocalTask = task
        ) -> Summed:
            return Summed(gradient=_noisy_sum(task, parameters, plan, source, sigma))

        runs.append(train(setting, summation, progress, divisor=share))
    rows = tuple(
        {key: float(np.mean([row[key] for row in at_once])) for key in at_once[0]}
        for at_once in zip(*(one.rows for one in runs), strict=True)
    )
    return replace(runs[0], rows=rows)


def _noisy_sum(
    task: LocalTask, parameters: Parameters, plan: Plan, source: SecureSource, sigma: float
) -> Array:
    """A fresh batch's clipped sum with Gaussian noise."""
    chosen = source.chosen(task.count, plan.study.training.sample_rate)
    total = task.clipped_sum(parameters, chosen)
    return total + _normal(source, total.size, sigma)


def _normal(source: SecureSource, size: int, sigma: float) -> Array:
    noise = np.zeros(size)
    if sigma > 0:
        standard_normal(source, noise)
    return noise * sigma
