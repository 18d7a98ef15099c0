"""The training loop that hubbub and its baselines share: sum, divide, step, and now and then look.

Where the sum comes from is a function, `Summation`; this file does not know who adds the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.runners.setting import Parameters, Setting

Array = NDArray[np.float64]
# From a round's number, the model, and how many attempts may still be made, to the noisy sum.
Summation = Callable[[int, Parameters, int], "Summed"]
# Called after every step with its number and the newest metrics.
Progress = Callable[[int, Mapping[str, float]], None]
Row = dict[str, float]

_EVALUATIONS = 20


@dataclass(frozen=True, kw_only=True)
class Summed:
    """A noisy sum of clipped gradients, or None if every attempt failed, and the attempts made."""

    gradient: Array | None
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The rows of the evaluations, the last model, and how many attempts were made in all."""

    rows: tuple[Row, ...]
    parameters: Parameters
    attempts: int


def train(
    setting: Setting,
    summation: Summation,
    progress: Progress,
    *,
    divisor: float,
    keep: Callable[[Row], None] = lambda _: None,
    private: bool = True,
) -> Trained:
    """DP-SGD: sum, divide by a public constant, step (docs/privacy.md P14).

    An abandoned attempt costs as much as a finished one (P3), so the study's steps are a budget of
    attempts: training ends when they are used up, and never spends more than was promised.

    Args:
        setting: the study, ready to run.
        summation: see `Summation`.
        progress: called after every step.
        divisor: the public constant.
        keep: called with every row of metrics as soon as it is known.
        private: whether the rows say the epsilon so far.
    """
    steps = setting.study.training.steps
    due = _evaluated(steps)
    optimizer, parameters = setting.optimizer(), setting.initial
    rows: list[Row] = []
    made = 0
    for step in range(1, steps + 1):
        summed = summation(step, parameters, steps - made)
        made += summed.attempts
        if summed.gradient is not None:
            gradient = summed.gradient / divisor
            parameters = optimizer.step(parameters, gradient).astype(np.float32)
        if step in due or made == steps:
            row: Row = {"step": step}
            if private:
                row["epsilon"] = setting.plan.epsilon_after(made)
            rows.append(row | setting.evaluate(parameters))
            keep(rows[-1])
        progress(step, rows[-1] if rows else {})
        if made == steps:
            break
    return Trained(rows=tuple(rows), parameters=parameters, attempts=made)


def _evaluated(steps: int) -> set[int]:
    """After which steps the model is evaluated: some twenty times, and at the end."""
    every = max(1, steps // _EVALUATIONS)
    return {*range(every, steps + 1, every), steps}
