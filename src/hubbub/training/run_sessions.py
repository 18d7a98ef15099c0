"""Where the sums of a run come from: sessions, their transcripts, and what was paid for in them.

The same for a run in one process and among machines; what differs is who sets a session up, and who
says what was paid for (`Venue`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Protocol

from hubbub.assurance.ledger import Entry, Kind, Ledger, entry_of, kind_of
from hubbub.errors import BudgetError
from hubbub.planning import TRAINING, Plan, attempts_of_list, mechanism_of
from hubbub.protocol import Charge, Keys, Lift, LocalTask, Roster, RoundParameters, Session, cores
from hubbub.session import (
    AbsentError,
    Federation,
    NoisySums,
    NoRecorder,
    Notice,
    Recorder,
    Rounds,
    federate,
    layout_of,
    raised_by,
    round_parameters_of,
)
from hubbub.study import Study
from hubbub.training.run_folder import RunFolder

# Coordinates from which a silo's step is long enough to be worth a thread of its own.
_WORTH_THREADS = 20_000


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
    ) -> NoisySums:
        """Set up a session for sums of so many numbers."""
        terms = round_parameters_of(plan, numbers, parameters=self.parameters)
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


@dataclass(frozen=True, kw_only=True)
class LocalVenue:
    """All parties in this process, each with a ledger.

    Args:
        study: the run's.
        keys: everybody's, in the order of the roster: the same in all of the run's sessions.
        ledgers: the silos' by roster index; empty where nothing is written down.
        folder: the run's, if it has one.
        notice: told in a few words what takes long.
    """

    study: Study
    keys: Sequence[Keys] = field(repr=False)
    ledgers: Mapping[int, Ledger] = field(repr=False)
    folder: RunFolder | None
    notice: Notice = field(default=lambda _: None, repr=False)

    @property
    def roster(self) -> Roster:
        """Everybody."""
        return Roster.of(self.keys)

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up."""
        every = attempts_of_list(wanted.plan.study) if wanted.terms.batch else 0
        return self.federated(wanted, every=every).rounds

    def federated(self, wanted: SessionPlan, *, every: int) -> Federation:
        """Everybody in a new session, with a shuffled token list for so many attempts."""
        plan, terms = wanted.plan, wanted.terms
        kind, epoch = kind_of(plan), mechanism_of(plan.study).epoch
        most = self._most(kind, ceil(terms.steps / epoch))

        def record(index: int, session: Session, charge: Charge) -> None:
            entry = entry_of(plan, session, charge, kind)
            try:
                self.ledgers[index].charge(entry, attempts=most.get(index))
            except BudgetError as error:
                raise BudgetError(f"{plan.study.parties.names[index - 1]}: {error}") from None

        return federate(
            layout_of(plan),
            terms,
            wanted.tasks,
            study=self.study.id,
            every=every,
            epoch=epoch,
            keys=self.keys,
            record=record if self.ledgers else None,
            threads=cores() if terms.dimension >= _WORTH_THREADS else 1,
            purpose=wanted.purpose,
            notice=self.notice,
        )

    def lost(self, _number: int, _in_a_row: int, lost: AbsentError) -> None:
        """Nobody of this process comes back: what its ledger said is raised."""
        raise raised_by(lost) from None

    def charged(self, purpose: str) -> int:
        """Attempts that some silo has paid for since the run began, but for other purposes.

        Those of sessions that the run does not know count for every purpose: a copy of its folder
        may have made them.
        """
        if self.folder is None:
            return 0
        folder = self.folder
        others = {one for name in folder.purposes - {purpose} for one in folder.sessions(name)}
        made = {
            (entry.session, entry.round, entry.attempt)
            for index, ledger in self.ledgers.items()
            for entry in self._since(ledger, index)
            if entry.session not in others
        }
        epoch = mechanism_of(self.study).epoch if purpose == TRAINING else 1
        return len(made) * epoch  # a new shuffled token list is a new epoch

    def _most(self, kind: Kind, rows: int) -> dict[int, int]:
        """What was there before the run, and so many rows: no copy of it makes more."""
        most = {}
        for index, ledger in self.ledgers.items():
            mine = sum(one.kind.like(kind) for one in self._since(ledger, index))
            most[index] = ledger.spent_on(self.study.id, kind) - mine + rows
        return most

    def _since(self, ledger: Ledger, index: int) -> Iterator[Entry]:
        """The study's entries since the run began."""
        if self.folder is None:
            return iter(())
        head = self.folder.head(self.study.parties.names[index - 1])
        return (entry for entry in ledger.entries(after=head) if entry.study == self.study.id)


def opened_ledgers(home: Path | None, study: Study, stack: ExitStack) -> dict[int, Ledger]:
    """Every silo's ledger by roster index; none without a folder for them."""
    if home is None:
        return {}
    return {
        index: stack.enter_context(Ledger(home / f"{name}.sqlite"))
        for index, name in enumerate(study.parties.names, 1)
    }
