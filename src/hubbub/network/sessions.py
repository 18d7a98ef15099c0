"""The sums of a networked run, in one session after another, as sessions come to an end.

A lost session is followed by a new one, which has new keys, masks and batches; what the silos had
paid for in the old one is spent (docs/privacy.md P15). What is summed is the silos' business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hubbub.assurance.transcript import Transcript
from hubbub.errors import BudgetError
from hubbub.learning.study_model import Lift
from hubbub.network.coordinator import Conductor, WaitedError
from hubbub.network.event_log import EventLog
from hubbub.network.party_folder import PartyFolder
from hubbub.network.requests import AbsentError
from hubbub.planning import Plan, mechanism_of
from hubbub.protocol.round import LocalTask, RoundParameters, decoded
from hubbub.protocol.round.projected_sum import draw_of
from hubbub.protocol.round.round_parameters import Parameters
from hubbub.protocol.wire import Tag
from hubbub.session.in_process import round_parameters_of
from hubbub.session.rounds import Assembly
from hubbub.session.session_offer import SessionOffer
from hubbub.study.standardisation import Standardisation
from hubbub.training.run_folder import RunFolder

_MOST_LOST = 3  # sessions


@dataclass(kw_only=True)
class Rounds:
    """Sums of one purpose, in one session after another, as sessions come to an end."""

    sessions: Sessions
    purpose: str
    plan: Plan
    terms: RoundParameters
    lift: Lift | None
    assembly: Assembly | None = None
    transcript: Transcript | None = None
    lost: int = 0

    def begin(self) -> None:
        """Set a session up, in place of the last one if there was one."""
        opening = SessionOffer.of(self.purpose, self.terms, self.sessions.standardisation)
        if self.transcript is not None:
            self.transcript.close()
        opened = self.sessions.conductor.open(self.plan, opening, self.terms)
        self.sessions.paid.update(opened.attempts)
        assembly, folder = opened.assembly, self.sessions.folder
        transcript = folder.new_transcript(
            assembly.study,
            assembly.session,
            self.sessions.site.roster,
            self.terms,
            purpose=self.purpose,
        )
        for anchor in assembly.anchors:
            transcript.keep(anchor)
        assembly.keep = partial(_kept, transcript)
        self.assembly, self.transcript = assembly, transcript

    def round(self, number: int, parameters: Parameters, attempts: int) -> tuple[Any | None, int]:
        """A noisy sum, None if every attempt failed, and the attempts made."""
        made = 0
        while made < attempts:
            assembly, transcript = self.session()
            try:
                total, count = assembly.round(number, parameters, attempts - made)
            except AbsentError as lost:
                made += assembly.made
                # P9: where a kept list is lost, its epoch is paid for to the end.
                made += -(self.terms.steps - attempts + made) % mechanism_of(self.plan.study).epoch
                transcript.seal()
                self._lose(number, lost)
                continue
            made += count
            transcript.seal()
            if total is not None:
                self.lost = 0
                return self._decoded(assembly, total, number, count - 1, parameters), made
        return None, made

    def _lose(self, number: int, lost: AbsentError) -> None:
        """Set up a new session in place of a lost one, unless that would not help."""
        self.lost += 1
        self.sessions.event_log.warn("lost", round=number, said=str(lost))
        if any(one.why == "budget" for one in lost.absent.values()):
            raise BudgetError(f"{lost}; no round is possible without them") from None
        if self.lost >= _MOST_LOST:
            raise WaitedError(
                f"{lost}; {self.lost} sessions in a row gave no sum, and every attempt costs: "
                "raise --deadline if the line is slow, or mend what is broken, and serve again"
            ) from None
        self.begin()

    def session(self) -> tuple[Assembly, Transcript]:
        """The session that is open."""
        assert self.assembly is not None and self.transcript is not None, "begun"  # noqa: S101, PT018
        return self.assembly, self.transcript

    def _decoded(
        self, assembly: Assembly, total: Any, number: int, attempt: int, parameters: Parameters
    ) -> Any:
        """A sum in units of the gradient, back from the projection where there is one."""
        found, seed = decoded(self.terms, total), assembly.aggregator.seed
        if self.lift is None or seed is None:
            return found
        return self.lift(found, draw_of(seed, number, attempt, self.terms.sent(parameters)))


@dataclass(kw_only=True)
class Sessions:
    """Where the sessions of a networked run are opened.

    Args:
        site: the aggregator's folder.
        conductor: sets sessions up.
        folder: of the run.
        parameters: how many the model has.
        stack: closes the transcripts.
        paid: attempts that the silos have paid for, by purpose and silo.
    """

    site: PartyFolder
    conductor: Conductor
    folder: RunFolder
    parameters: int
    event_log: EventLog
    stack: ExitStack = field(repr=False)
    standardisation: Standardisation | None = None
    paid: dict[str, Mapping[str, int]] = field(default_factory=dict)
    opened: list[Rounds] = field(default_factory=list)

    def open(
        self,
        purpose: str,
        plan: Plan,
        _tasks: Sequence[LocalTask],
        numbers: int,
        lift: Callable[[RoundParameters], Lift | None] = lambda _: None,
    ) -> Rounds:
        """Set up a session for sums of so many numbers; what is summed is the silos' business."""
        terms = round_parameters_of(plan, numbers, parameters=self.parameters)
        rounds = Rounds(sessions=self, purpose=purpose, plan=plan, terms=terms, lift=lift(terms))
        self.opened.append(rounds)
        self.stack.callback(_close, rounds)
        rounds.begin()
        return rounds

    def charged(self, purpose: str) -> int:
        """Attempts that some silo has paid for, for a purpose."""
        return max(self.paid.get(purpose, {}).values(), default=0)


def _kept(transcript: Transcript, frame: bytes) -> None:
    """Keep a frame; a MODEL is on disk before it is sent, so that no begun attempt is forgotten."""
    transcript.keep(frame)
    if frame[1] == Tag.MODEL:
        transcript.seal()


def _close(rounds: Rounds) -> None:
    if rounds.transcript is not None:
        rounds.transcript.close()
