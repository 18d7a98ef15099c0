"""All queries of a study through the protocol, in one process or among machines.

What is asked before the training comes first, each query in a session of its own and with rows of
its own in the ledgers: the sums that standardise features, and those of statistics. Then comes the
main query, between whose steps the model is evaluated on records that the silos hold back
(docs/privacy.md P16), and at last what is asked at the released model, its validation. Where sums
come from is a function, `Opened`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Query, QueryState, Scores, SteppedQuery, Turn
from hubbub.core.protocol.round.draw import Lift
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.runs import loop, run_folder
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.runs.run_folder import RunFolder
from hubbub.core.session.ask import AbsentError
from hubbub.core.session.offer import round_parameters_of
from hubbub.core.session.rounds import NoisySums, NoRecorder, Recorder, Rounds
from hubbub.core.tabular.records import Standardisation

FindLift = Callable[[RoundParameters], Lift | None]


def no_lift(_: RoundParameters) -> None:
    """Nothing is projected."""


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """What a session is set up for: the sums of one query."""

    plan: Plan
    planned: PlannedQuery[Query]
    round_parameters: RoundParameters
    tasks: Sequence[LocalTask] = field(repr=False)  # of the silos that are in this process

    @property
    def purpose(self) -> str:
        """The query's."""
        return self.planned.purpose


class Backend(Protocol):
    """Where the parties are: in one process, or apart."""

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up."""

    def lost(self, number: int, in_a_row: int, lost: AbsentError) -> None:
        """Hear that a session was lost in a round; raise unless a new one would help."""

    def charged(self, purpose: str, begun: Callable[[], int]) -> int:
        """Attempts that were paid for in this run for a purpose; `begun` counts those it began."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What gives a query's sums, and the attempts that were paid for before, seen or lost."""

    summation: loop.Summation
    charged: int = 0


# Opens a session for a query, with everybody's task and what lifts projected sums.
Opened = Callable[..., Asked]


@dataclass(frozen=True, kw_only=True)
class RunSessions:
    """The sessions of one run, their transcripts, and what was paid for in them."""

    backend: Backend
    plan: Plan
    folder: RunFolder | None
    stack: ExitStack = field(repr=False)  # closes the transcripts
    opened: dict[str, NoisySums] = field(default_factory=dict)  # that were asked for, by purpose

    def asked(
        self,
        planned: PlannedQuery[Query],
        tasks: Sequence[LocalTask],
        lift: FindLift = no_lift,
    ) -> Asked:
        """What asks for a query's sums through the protocol, by the run's ledgers."""
        sums = self.open(planned, tasks, lift)

        def summation(number: int, parameters: Parameters, left: int) -> loop.Summed:
            total, made = sums.round(number, parameters, left)
            return loop.Summed(gradient=total, attempts=made)

        return Asked(summation=summation, charged=self.charged(planned.purpose))

    def open(
        self,
        planned: PlannedQuery[Query],
        tasks: Sequence[LocalTask],
        lift: FindLift = no_lift,
    ) -> NoisySums:
        """Set up a session for a query's sums."""
        round_parameters = round_parameters_of(planned)
        wanted = SessionPlan(
            plan=self.plan, planned=planned, round_parameters=round_parameters, tasks=tasks
        )
        sums = NoisySums(
            set_up=lambda: self.backend.set_up(wanted),
            record=lambda rounds: self._recorder(rounds, planned.purpose),
            epoch=planned.mechanism.epoch,
            lost=self.backend.lost,
            lift=lift(round_parameters),
        )
        self.opened[planned.purpose] = sums
        return sums

    def charged(self, purpose: str) -> int:
        """Attempts that were paid for in this run for a purpose."""
        folder = self.folder
        return self.backend.charged(purpose, lambda: folder.models_sent(purpose) if folder else 0)

    def _recorder(self, rounds: Rounds, purpose: str) -> Recorder:
        """The transcript of a session, if the run has a folder."""
        if self.folder is None:
            return NoRecorder()
        transcript = self.folder.new_transcript(
            rounds.channel.study,
            rounds.channel.session,
            rounds.channel.roster,
            rounds.round_parameters,
            purpose=purpose,
        )
        return self.stack.enter_context(transcript)


def train_federated(
    prepared: PreparedStudy,
    sessions: RunSessions,
    *,
    start: QueryState | None,
    progress: loop.Progress,
    keep: loop.Keep,
    settle: Callable[[], None] = lambda: None,
    offer: Callable[[Standardisation | None], None] = lambda _: None,
    release: Callable[[Parameters], None] = lambda _: None,
    begin: Callable[[QueryState], None] = lambda _: None,
) -> tuple[PreparedStudy, QueryState]:
    """Ask all that a study asks: every silo adds its share of the noise, only sums are seen.

    Args:
        prepared, sessions: the study, ready to run, and where sums are asked for.
        start, progress, keep, settle: see `train`.
        offer: told how features are standardised, before silos are told.
        release: told the model that is released, before what is asked last is asked at it.
        begin: told where the main query goes on, with all that counts as spent.
    """
    opened = sessions.asked
    prepared = ask_before(prepared, opened, sessions.folder)
    offer(prepared.standardisation)
    schedule = evaluations(prepared, opened)
    main, state = prepared.plan.main, start or QueryState(parameters=prepared.initial)
    state = _caught_up(main, state, sessions.folder, prepared.lift)
    asked = opened(main, prepared.tasks, prepared.lift)
    # P15: what was charged counts, whether a checkpoint knows of it or not.
    state = replace(state, attempts=max(state.attempts, asked.charged))
    begin(state)
    trained = loop.train(
        prepared,
        asked.summation,
        progress,
        divisor=prepared.plan.mechanism.divisor,
        start=state,
        keep=keep,
        settle=settle,
        schedule=schedule,
    )
    settle()  # a run that goes on from here releases no other
    release(trained.parameters)
    return ask_last(prepared, trained, opened, sessions.folder), trained


def ask_before(
    prepared: PreparedStudy, opened: Opened, folder: run_folder.RunFolder | None
) -> PreparedStudy:
    """Ask what is asked before the main query, or take what an interrupted run has kept of it.

    Raises:
        IntegrityError: sums were charged and lost in an interruption, and an answer needs them.
    """
    for planned in prepared.plan.stepped:
        if planned is not prepared.plan.main and not planned.query.is_asked_last:
            prepared = _answered(prepared, planned, opened, folder)
    return prepared


def ask_last(
    prepared: PreparedStudy,
    trained: QueryState,
    opened: Opened,
    folder: run_folder.RunFolder | None,
) -> PreparedStudy:
    """Ask what is asked at what the main query has led to, as `ask_before` does."""
    for planned in prepared.plan.stepped:
        if planned.query.is_asked_last:
            prepared = _answered(prepared, planned, opened, folder, trained.parameters)
    return prepared


def _answered(
    prepared: PreparedStudy,
    planned: PlannedQuery[SteppedQuery],
    opened: Opened,
    folder: run_folder.RunFolder | None,
    model: Parameters | None = None,
) -> PreparedStudy:
    """The study with the answer of a query that is asked at a model, the first one if None."""
    query, state = planned.query, prepared.start(planned.query, model)
    if folder is not None:
        kept = query.restored(folder.path, state)
        state = _caught_up(planned, kept, folder)
        if state.step > kept.step:
            folder.store(query, state)
    if state.step < planned.mechanism.steps:
        asked = opened(planned, prepared.tasks_of(query))
        state = loop.ask(
            planned,
            asked.summation,
            replace(state, attempts=max(state.attempts, asked.charged)),
            divisor=planned.mechanism.divisor,
            keep=lambda state: None if folder is None else folder.store(query, state),
        )
    query.check_complete(state)
    return prepared.with_answer(planned, state)


def _caught_up(
    planned: PlannedQuery[SteppedQuery],
    state: QueryState,
    folder: run_folder.RunFolder | None,
    lift: FindLift = no_lift,
) -> QueryState:
    """A state with the sums that were made, and whose steps a crash has lost."""
    if folder is None:
        return state
    sums = folder.sums_after(state, planned.purpose, lift(round_parameters_of(planned)))
    return loop.caught_up(planned, state, sums, divisor=planned.mechanism.divisor)


def evaluations(prepared: PreparedStudy, opened: Opened) -> loop.EvaluationSchedule | None:
    """Evaluations on held-back records between the steps, if the study asks for them.

    After every so many steps there is a sum, unless its attempts were charged before and lost.
    """
    between = (one for one in prepared.plan.beside if one.query.turn is Turn.BETWEEN)
    if (planned := next(between, None)) is None:
        return None
    every, asked = planned.mechanism.every, opened(planned, prepared.tasks_of(planned.query))
    spent = asked.charged

    def at(step: int, parameters: Parameters) -> Scores:
        nonlocal spent
        number = step // every
        # P15: its attempt was paid for and its sum lost; another would be one more than was
        # planned.
        if spent >= number:
            return {}
        summed = asked.summation(number, parameters, number - spent)
        spent += summed.attempts
        total = summed.gradient
        if total is None:
            return {}
        return planned.query.scores_of(np.asarray(total), prepared.study, planned.total_sigma)

    steps = range(every, prepared.plan.mechanism.steps + 1, every)
    return loop.EvaluationSchedule(after=frozenset(steps), at=at)
