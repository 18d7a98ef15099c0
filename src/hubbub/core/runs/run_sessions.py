"""Where the sums of a run come from: sessions, their transcripts, and what was paid for in them.

The same for a run in one process and among machines; what differs is who sets a session up, and who
says what was paid for (`Backend`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query
from hubbub.core.protocol.projection.product import Lift
from hubbub.core.protocol.round.projected_sum import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.runs.run_folder import RunFolder
from hubbub.core.session.ask import AbsentError
from hubbub.core.session.layout import round_parameters_of
from hubbub.core.session.noisy_sums import NoisySums
from hubbub.core.session.recorder import NoRecorder, Recorder
from hubbub.core.session.rounds import Rounds


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """What a session is set up for.

    Args:
        plan: of the study.
        planned: the query whose sums are made in it.
        round_parameters: the numbers of the rounds.
        tasks: what the silos sum, where they are in this process.
    """

    plan: Plan
    planned: PlannedQuery[Query]
    round_parameters: RoundParameters
    tasks: Sequence[LocalTask] = field(repr=False)

    @property
    def purpose(self) -> str:
        """The query's."""
        return self.planned.purpose


class Backend(Protocol):
    """Where the parties are."""

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up."""

    def lost(self, number: int, in_a_row: int, lost: AbsentError) -> None:
        """Hear that a session was lost in a round; raise unless a new one would help."""

    def charged(self, purpose: str, begun: Callable[[], int]) -> int:
        """Attempts that were paid for in this run for a purpose; `begun` counts those it began."""


@dataclass(frozen=True, kw_only=True)
class RunSessions:
    """The sessions of one run.

    Args:
        backend: where the parties are.
        plan: of the study.
        folder: the run's, if it has one.
        stack: closes the transcripts.
        opened: the sums that were asked for, by purpose.
    """

    backend: Backend
    plan: Plan
    folder: RunFolder | None
    stack: ExitStack = field(repr=False)
    opened: dict[str, NoisySums] = field(default_factory=dict)

    def open(
        self,
        planned: PlannedQuery[Query],
        tasks: Sequence[LocalTask],
        lift: Callable[[RoundParameters], Lift | None] = lambda _: None,
    ) -> NoisySums:
        """Set up a session for a query's sums."""
        round_parameters = round_parameters_of(planned)
        wanted = SessionPlan(
            plan=self.plan, planned=planned, round_parameters=round_parameters, tasks=tasks
        )
        sums = NoisySums(
            set_up=lambda: self.backend.set_up(wanted),
            record=lambda rounds: self._recorder(rounds, planned.purpose),
            round_parameters=round_parameters,
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
            rounds.study,
            rounds.session,
            rounds.peers.roster,
            rounds.round_parameters,
            purpose=purpose,
        )
        return self.stack.enter_context(transcript)
