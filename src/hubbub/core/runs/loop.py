"""The loop by which every query is asked: a sum, a step along it, the next sum.

Where a sum comes from is a function, `Summation`; this file does not know who adds the noise, nor
where a state is kept.

An abandoned attempt costs as much as a finished one (docs/privacy.md P3), so the sums of a query
are a budget of attempts: asking ends when they are used up, and never spends more than was
promised. What was charged counts, whether its sum was seen or lost: that is the whole rule of
going on after an interruption (P15).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, QueryState, Scores, SteppedQuery
from hubbub.core.protocol.round.aggregator import RevealedSum
from hubbub.core.runs.prepared_study import PreparedStudy

Array = NDArray[np.float64]
# From a round's number, what goes down, and how many attempts may still be made, to the noisy sum.
Summation = Callable[[int, Parameters, int], "Summed"]
# Called after every step with its number and the newest metrics.
Progress = Callable[[int, Mapping[str, float]], None]
Keep = Callable[[QueryState], None]


@dataclass(frozen=True, kw_only=True)
class Summed:
    """A noisy sum, or None if every attempt failed, and the attempts made."""

    gradient: Array | RevealedSum | None
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class EvaluationSchedule:
    """What else is asked about the model, and after which steps."""

    after: frozenset[int]
    at: Callable[[int, Parameters], Scores]


def ask(
    planned: PlannedQuery[SteppedQuery],
    summation: Summation,
    state: QueryState,
    *,
    divisor: float,
    keep: Keep,
    settle: Callable[[], None] = lambda: None,
    follow: Callable[[QueryState], QueryState] = lambda state: state,
) -> QueryState:
    """Ask for a query's sums until they are made, or its attempts are used up.

    Args:
        planned, summation: the query with its noise, and what gives its sums.
        state: where to go on, with all attempts that were charged for it.
        divisor: the public constant by which a sum is divided (docs/privacy.md P14).
        keep: called with the state after every step, before the next one begins.
        settle: returns once `keep` is done with it, whose optimizer the next step writes over.
        follow: what else is learned after a step, before the state is kept.

    Returns:
        The last state, with the query's result.
    """
    most, query = planned.mechanism.steps, planned.query
    stepper = query.stepper(planned)
    if state.optimizer:
        stepper.load_state(state.optimizer)
    for step in range(state.step + 1, most + 1):
        # P3: an attempt costs as much abandoned as finished, so attempts are the budget and not
        # steps.
        if state.attempts >= most:
            break
        summed = summation(step, state.parameters, most - state.attempts)
        attempts, parameters = state.attempts + summed.attempts, state.parameters
        settle()
        if summed.gradient is not None:
            parameters = stepper.step(parameters, summed.gradient, divisor)
        del summed  # or it would be there beside the next
        state = replace(
            state,
            step=step,
            attempts=attempts,
            parameters=parameters,
            optimizer=stepper.state(),
        )
        if step == most or attempts >= most:
            state = _with_result(query, state)
        state = follow(state)
        keep(state)
    # Here too: what was charged before a crash may have been the last attempt.
    return _with_result(query, state)


def _with_result(query: SteppedQuery, state: QueryState) -> QueryState:
    """A state after the last attempt, with what its query has led to."""
    result = query.result(state)
    return state if result is state.parameters else replace(state, parameters=result)


def caught_up(
    planned: PlannedQuery[SteppedQuery],
    state: QueryState,
    sums: Mapping[int, Array],
    *,
    divisor: float,
) -> QueryState:
    """A state after sums, by their rounds, that were made before a crash came into their steps.

    What was charged for them counts already.
    """
    stepper = planned.query.stepper(planned)
    if state.optimizer:
        stepper.load_state(state.optimizer)
    for step in sorted(sums):
        parameters = stepper.step(state.parameters, sums[step], divisor)
        state = replace(
            state, step=step, parameters=parameters, optimizer=stepper.state(), row_due=0
        )
    return state


class Metrics:
    """The rows of metrics of a run: the public test set, epsilon so far, and held-back records.

    Most rows are made on a thread of its own while the next step goes on: they are a function of
    public things, the model, the test set and the attempts so far. One that is not made yet when a
    run ends early is made when the run goes on, from the checkpoint.
    """

    def __init__(
        self, prepared: PreparedStudy, schedule: EvaluationSchedule | None, *, private: bool
    ) -> None:
        self._plan, self._private, self._schedule = prepared.plan, private, schedule
        self._evaluator = prepared.with_own_model()
        self._steps = prepared.plan.mechanism.steps
        self._asked = schedule.after if schedule else frozenset()
        # After about so many steps the model is evaluated, and at the end.
        every = max(1, self._steps // prepared.looks) if prepared.looks else self._steps
        self._due = {*range(every, self._steps + 1, every), self._steps} | self._asked
        self._pool = ThreadPoolExecutor(1)
        self._next: Future[Scores] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def begin(self, state: QueryState) -> None:
        """Begin the row that a state owes, if it does."""
        if state.row_due:
            row = (state.step, state.row_due, state.parameters)
            self._next = self._pool.submit(self._row, *row)

    def follow(self, state: QueryState) -> QueryState:
        """With the rows that are made by now; the one of this step may be made beside the next."""
        step, rows = state.step, (*state.rows, *self._begun())
        is_last = step == self._steps or state.attempts >= self._steps
        if is_last or step in self._asked:  # what a session was asked for is not asked again
            scores = self._row(step, state.attempts, state.parameters)
            if self._schedule and step in self._asked:
                scores |= self._schedule.at(step, state.parameters)
            state = replace(state, rows=(*rows, scores), row_due=0)
        else:
            due = state.attempts if step in self._due else 0
            state = replace(state, rows=rows, row_due=due)
        self.begin(state)
        return state

    def complete(self, state: QueryState) -> QueryState:
        """With the row that is still owed, and one of all attempts that were charged since."""
        if state.row_due:
            state = replace(state, rows=(*state.rows, *self._begun()), row_due=0)
        newest, now = state.rows[-1] if state.rows else {}, self._spent(state.step, state.attempts)
        if any(newest.get(key) != value for key, value in now.items()):
            last = self._row(state.step, state.attempts, state.parameters)
            state = replace(state, rows=(*state.rows, last))
        return state

    def _begun(self) -> tuple[Scores, ...]:
        """The row that was begun, once it is made; nothing if none was."""
        begun, self._next = self._next, None
        return () if begun is None else (begun.result(),)

    def _row(self, step: int, attempts: int, parameters: Parameters) -> Scores:
        return self._spent(step, attempts) | self._evaluator.evaluate(parameters)

    def _spent(self, step: int, attempts: int) -> Scores:
        epsilon = {"epsilon": self._plan.epsilon_after(attempts)} if self._private else {}
        return {"step": step, **epsilon}


def train(
    prepared: PreparedStudy,
    summation: Summation,
    progress: Progress,
    *,
    divisor: float,
    start: QueryState | None = None,
    keep: Keep = lambda _: None,
    settle: Callable[[], None] = lambda: None,
    schedule: EvaluationSchedule | None = None,
    private: bool = True,
) -> QueryState:
    """Ask the main query as `ask` does, and look now and then what has come of it.

    Args:
        prepared, summation, divisor, keep, settle: see `ask`.
        progress: called after every step.
        start: where to go on; the beginning if None.
        schedule: evaluations besides the metrics of the public test set.
        private: whether the rows say the epsilon so far.
    """
    state = start or QueryState(parameters=prepared.initial)

    def kept(state: QueryState) -> None:
        keep(state)
        progress(state.step, state.rows[-1] if state.rows else {})

    with Metrics(prepared, schedule, private=private) as metrics:
        metrics.begin(state)
        state = ask(
            prepared.plan.main,
            summation,
            state,
            divisor=divisor,
            keep=kept,
            settle=settle,
            follow=metrics.follow,
        )
        complete = metrics.complete(state)
    if complete is not state:
        keep(complete)
    return complete
