"""Where the sums of a run come from: sessions, their transcripts, and what was paid for in them.

The same for a run in one process and among machines; what differs is who sets a session up, and who
says what was paid for (`Venue`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from hubbub.planning import Plan, attempts_of_list, mechanism_of
from hubbub.protocol import Lift, LocalTask, RoundParameters
from hubbub.session import (
    AbsentError,
    NoisySums,
    NoRecorder,
    Recorder,
    Rounds,
    round_parameters_of,
)
from hubbub.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """What a session is set up for.

    Args:
        purpose: "training", or one of the study's auxiliary queries.
        plan: of the mechanism.
        terms: the numbers of the rounds.
        tasks: what the silos sum, where they are in this process.
    """

    purpose: str
    plan: Plan
    terms: RoundParameters
    tasks: Sequence[LocalTask] = field(repr=False)

    @property
    def attempts_per_list(self) -> int:
        """Attempts that a shuffled token list serves; 0 where there are none."""
        return attempts_of_list(self.plan.study)


class Venue(Protocol):
    """Where the parties are."""

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up."""

    def lost(self, number: int, in_a_row: int, lost: AbsentError) -> None:
        """Hear that a session was lost in a round; raise unless a new one would help."""

    def charged(self, purpose: str) -> int:
        """Attempts that were paid for in this run for a purpose."""


@dataclass(frozen=True, kw_only=True)
class RunSessions:
    """The sessions of one run.

    Args:
        venue: where the parties are.
        folder: the run's, if it has one.
        parameters: how many the model has.
        stack: closes the transcripts.
        opened: the sums that were asked for, by purpose.
    """

    venue: Venue
    folder: RunFolder | None
    parameters: int
    stack: ExitStack = field(repr=False)
    opened: dict[str, NoisySums] = field(default_factory=dict)

    def open(
        self,
        purpose: str,
        plan: Plan,
        tasks: Sequence[LocalTask],
        numbers: int,
        lift: Callable[[RoundParameters], Lift | None] = lambda _: None,
        parameters: int | None = None,
    ) -> NoisySums:
        """Set up a session for sums of so many numbers; `parameters` go down, if not the model."""
        size = self.parameters if parameters is None else parameters
        terms = round_parameters_of(plan, numbers, parameters=size)
        wanted = SessionPlan(purpose=purpose, plan=plan, terms=terms, tasks=tasks)
        sums = NoisySums(
            set_up=lambda: self.venue.set_up(wanted),
            record=lambda rounds: self._recorder(rounds, purpose),
            terms=terms,
            epoch=mechanism_of(plan.study).epoch,
            lost=self.venue.lost,
            lift=lift(terms),
        )
        self.opened[purpose] = sums
        return sums

    def charged(self, purpose: str) -> int:
        """Attempts that were paid for in this run for a purpose."""
        return self.venue.charged(purpose)

    def _recorder(self, rounds: Rounds, purpose: str) -> Recorder:
        """The transcript of a session, if the run has a folder."""
        if self.folder is None:
            return NoRecorder()
        transcript = self.folder.new_transcript(
            rounds.study, rounds.session, rounds.peers.roster, rounds.terms, purpose=purpose
        )
        return self.stack.enter_context(transcript)
