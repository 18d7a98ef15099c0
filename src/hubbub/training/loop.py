"""The training loop that hubbub and its baselines share: sum, divide, step, and now and then look.

Where the sum comes from is a function, `Summation`; this file does not know who adds the noise, nor
where a state is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.training.prepared_study import Parameters, PreparedStudy

Array = NDArray[np.float64]
# From a round's number, the model, and how many attempts may still be made, to the noisy sum.
Summation = Callable[[int, Parameters, int], "Summed"]
# Called after every step with its number and the newest metrics.
Progress = Callable[[int, Mapping[str, float]], None]
Row = dict[str, float]

_EVALUATIONS = 20
_TIME = ("step", "epsilon")  # a row that says the same of both is up to date


@dataclass(frozen=True, kw_only=True)
class Summed:
    """A noisy sum of clipped gradients, or None if every attempt failed, and the attempts made."""

    gradient: Array | None
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class Look:
    """What else is asked about the model, and after which steps."""

    after: frozenset[int]
    at: Callable[[int, Parameters], Row]


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a training stands: everything that its next step depends on.

    Args:
        step: the last step that was taken; 0 before the first.
        attempts: how many attempts have been charged so far.
        parameters: the model.
        optimizer: the optimizer's state.
        rows: the metrics so far.
    """

    step: int = 0
    attempts: int = 0
    parameters: Parameters = field(repr=False)
    optimizer: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    rows: tuple[Row, ...] = ()


def train(
    setting: PreparedStudy,
    summation: Summation,
    progress: Progress,
    *,
    divisor: float,
    start: State | None = None,
    keep: Callable[[State], None] = lambda _: None,
    look: Look | None = None,
    private: bool = True,
) -> State:
    """DP-SGD: sum, divide by a public constant, step (docs/privacy.md P14).

    An abandoned attempt costs as much as a finished one (P3), so the study's steps are a budget of
    attempts: training ends when they are used up, and never spends more than was promised.

    Args:
        setting: the study, ready to run.
        summation: see `Summation`.
        progress: called after every step.
        divisor: the public constant.
        start: where to go on; the beginning if None.
        keep: called with the state after every step, before the next one begins.
        look: besides the metrics of the public test set.
        private: whether the rows say the epsilon so far.
    """
    steps = setting.study.training.steps
    looked = look.after if look else frozenset()
    due = evaluated_after(steps) | looked
    state = start or State(parameters=setting.initial)
    optimizer = setting.optimizer()
    if state.optimizer:
        optimizer.load_state(state.optimizer)

    def row(step: int, made: int, parameters: Parameters) -> Row:
        spent = {"epsilon": setting.plan.epsilon_after(made)} if private else {}
        return {"step": step, **spent, **setting.evaluate(parameters)}

    for step in range(state.step + 1, steps + 1):
        if state.attempts >= steps:
            break
        summed = summation(step, state.parameters, steps - state.attempts)
        made = state.attempts + summed.attempts
        parameters = state.parameters
        if summed.gradient is not None:
            parameters = learning.stepped(optimizer, parameters, summed.gradient, divisor)
        rows = state.rows
        if step in due or made >= steps:
            more = look.at(step, parameters) if look and step in looked else {}
            rows = (*rows, row(step, made, parameters) | more)
        state = State(
            step=step,
            attempts=made,
            parameters=parameters,
            optimizer=optimizer.state(),
            rows=rows,
        )
        keep(state)
        progress(step, rows[-1] if rows else {})
    last = row(state.step, state.attempts, state.parameters)
    if not state.rows or any(state.rows[-1].get(key) != last.get(key) for key in _TIME):
        state = replace(state, rows=(*state.rows, last))  # the last attempt was aborted
        keep(state)
    return state


def evaluated_after(steps: int) -> set[int]:
    """After which steps the model is evaluated: some twenty times, and at the end."""
    every = max(1, steps // _EVALUATIONS)
    return {*range(every, steps + 1, every), steps}
