"""The training loop that hubbub and its baselines share: sum, divide, step, and now and then look.

Where the sum comes from is a function, `Summation`; this file does not know who adds the noise, nor
where a state is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Self

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
        row_due: attempts at which a row of this step is still to be made, as it is made beside the
            next one; 0 if none is.
    """

    step: int = 0
    attempts: int = 0
    parameters: Parameters = field(repr=False)
    optimizer: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    rows: tuple[Row, ...] = ()
    row_due: int = 0


class BackgroundEvaluation:
    """Rows of metrics, made on a thread of its own while the next step goes on.

    A row is a function of public things: the model, the test set and the attempts so far. One that
    is not made yet when a run ends early is made when the run goes on, from the checkpoint.

    Args:
        row: from a step, the attempts and a model to the row; it shares no model with the step.
    """

    def __init__(self, row: Callable[[int, int, Parameters], Row]) -> None:
        self._row, self._pool = row, ThreadPoolExecutor(1)
        self._next: Future[Row] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def begin(self, state: State) -> None:
        """Begin the row that a state owes, if it does."""
        if state.row_due:
            self._next = self._pool.submit(self._row, state.step, state.row_due, state.parameters)

    def rows(self) -> tuple[Row, ...]:
        """The row that was begun, once it is made; nothing if none was."""
        begun, self._next = self._next, None
        return () if begun is None else (begun.result(),)


def train(
    prepared: PreparedStudy,
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
        prepared: the study, ready to run.
        summation: see `Summation`.
        progress: called after every step.
        divisor: the public constant.
        start: where to go on; the beginning if None.
        keep: called with the state after every step, before the next one begins.
        look: besides the metrics of the public test set.
        private: whether the rows say the epsilon so far.
    """
    steps = prepared.study.training.steps
    looked = look.after if look else frozenset()
    due = evaluated_after(steps, prepared.looks) | looked
    state = start or State(parameters=prepared.initial)
    optimizer = prepared.optimizer()
    if state.optimizer:
        optimizer.load_state(state.optimizer)
    evaluator = prepared.with_own_model()

    def spent(step: int, attempts: int) -> Row:
        epsilon = {"epsilon": prepared.plan.epsilon_after(attempts)} if private else {}
        return {"step": step, **epsilon}

    def row(step: int, attempts: int, parameters: Parameters) -> Row:
        return spent(step, attempts) | evaluator.evaluate(parameters)

    with BackgroundEvaluation(row) as beside:
        beside.begin(state)
        for step in range(state.step + 1, steps + 1):
            if state.attempts >= steps:
                break
            summed = summation(step, state.parameters, steps - state.attempts)
            attempts = state.attempts + summed.attempts
            parameters = state.parameters
            if summed.gradient is not None:
                parameters = learning.stepped(optimizer, parameters, summed.gradient, divisor)
            rows = (*state.rows, *beside.rows())
            is_last = step == steps or attempts >= steps
            if is_last or step in looked:  # what a session was asked for is not asked again
                more = look.at(step, parameters) if look and step in looked else {}
                rows = (*rows, row(step, attempts, parameters) | more)
            owes = step in due and not (is_last or step in looked)
            state = State(
                step=step,
                attempts=attempts,
                parameters=parameters,
                optimizer=optimizer.state(),
                rows=rows,
                row_due=attempts if owes else 0,
            )
            beside.begin(state)
            keep(state)
            progress(step, rows[-1] if rows else {})
        if state.row_due:
            state = replace(state, rows=(*state.rows, *beside.rows()), row_due=0)
            keep(state)
    newest, now = state.rows[-1] if state.rows else {}, spent(state.step, state.attempts)
    if any(newest.get(key) != value for key, value in now.items()):  # attempts were aborted since
        last = row(state.step, state.attempts, state.parameters)
        state = replace(state, rows=(*state.rows, last))
        keep(state)
    return state


def evaluated_after(steps: int, looks: int) -> set[int]:
    """After which steps the model is evaluated: about so many times, and at the end."""
    every = max(1, steps // looks) if looks else steps
    return {*range(every, steps + 1, every), steps}
