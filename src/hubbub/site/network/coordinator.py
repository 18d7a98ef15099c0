"""The aggregator's side of a networked study: sessions are set up until the rounds end, and closed.

Whom a session begins with is in `gathering.py`, a try at a set-up in `session/setup.py`, the rounds
in `session/rounds.py`, the end in `closing.py`. Messages travel through an engine, and everybody
but the aggregator is somewhere else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hubbub.core.errors import BudgetError, IntegrityError, ProtocolError, UserError
from hubbub.core.number_format import few
from hubbub.core.planning.mask_degree import is_sparse
from hubbub.core.planning.query import Parameters
from hubbub.core.planning.study_queries import main_of
from hubbub.core.runs.run_sessions import SessionPlan
from hubbub.core.session.ask import Absent, AbsentError
from hubbub.core.session.layout import layout_of
from hubbub.core.session.rounds import Rounds
from hubbub.core.session.session_offer import OWN, SessionOffer, check_apart
from hubbub.core.session.setup import SetUp
from hubbub.core.study.study import Study
from hubbub.core.tabular.standardisation import Standardisation
from hubbub.core.verification.attestation.study_attestation import StudyAttestation
from hubbub.site.attestation.devices import MachineAttester
from hubbub.site.network.closing import StudyClosing
from hubbub.site.network.gathering import Gathering
from hubbub.site.network.party_folder import COLLATERAL, PartyFolder
from hubbub.site.network.patience import Patience, WaitedError  # noqa: F401 (it is met here)
from hubbub.site.network.requests import SET_BACK, Requests

_PAUSE = 2.0  # seconds; the shortest
_LOST = 3  # attempts that a silo may have paid for and others not, before anybody is told
_LIES = 3  # set-ups that may fail by what a relay can do, before the run stops


class Coordinator:
    """The aggregator of one study: the backend of a networked run.

    Args:
        party_folder: its own folder.
        study: approved there; see `host.check`.
        requests: asks the parties.

    Raises:
        RefusedError: the study cannot be run apart.
    """

    def __init__(self, party_folder: PartyFolder, study: Study, requests: Requests) -> None:
        check_apart(study)
        self.party_folder, self.study, self.requests = party_folder, study, requests
        attester, asked = MachineAttester(party_folder.home / COLLATERAL), study.attestation
        self._attests = None if asked is None else StudyAttestation(asked=asked, attester=attester)
        self.standardisation: Standardisation | None = None
        self._patience = Patience(timeouts=requests.timeouts, pause=_PAUSE)
        self._open: dict[str, Rounds] = {}  # the newest session of each purpose
        self.answered: dict[str, Counter[str]] = {}  # attempts in sessions before, by purpose
        self._unbelieved: set[tuple[str, int]] = set()  # silos that were told of, by purpose
        self._doubted: set[str] = set()  # who did not do its part, since the last sum
        self._gathering = Gathering(requests=requests)
        self._closing = StudyClosing(requests=requests, study=study)

    def standardise(self, found: Standardisation | None) -> None:
        """From now on, tell silos how features are standardised."""
        self.standardisation = found

    def release(self, parameters: Parameters) -> None:
        """From now on, what is set up is asked at this model, which silos are shown before."""
        self._closing.result = np.asarray(parameters, dtype="<f4").tobytes()

    def charged(self, purpose: str, begun: Callable[[], int]) -> int:
        """Attempts of a purpose that so many silos say to have paid for as cannot all be lying.

        Of those that this run has begun itself one silo's word is enough, or its answer. In the
        main query all of them count: a silo may have paid that does not come back.
        """
        roster, said = self.requests.roster, self.requests.paid.get(purpose, {})
        told = {index: said[name] for index in roster.silos if (name := roster.name(index)) in said}
        most = self.party_folder.notes.most_paid(self.study.id, purpose, told)
        liars = max(1, self.study.parties.colluders)
        believed = ([*sorted(most.values(), reverse=True), *[0] * (liars + 1)])[liars]
        for index, count in sorted(most.items()):
            if count > believed + _LOST and (purpose, index) not in self._unbelieved:
                self._unbelieved.add((purpose, index))
                self.requests.warn("unbelieved", whom=roster.name(index), count=count)
        own = begun()
        if purpose != main_of(self.study).mechanism.purpose:
            own = min(own, max([*most.values(), *self._answers(purpose).values()], default=0))
        return max(believed, own)

    def _least_paid(self, purpose: str) -> dict[str, int]:
        """Attempts that silos have paid for: what each has answered, or has said before (P15)."""
        noted = self.party_folder.notes.most_paid(self.study.id, purpose, {})
        names = {index: self.requests.roster.name(index) for index in self.requests.roster.silos}
        answers = self._answers(purpose)
        return {name: max(answers[name], noted.get(index, 0)) for index, name in names.items()}

    def _answers(self, purpose: str) -> Counter[str]:
        """How many attempts each silo has answered, in all sessions of this run."""
        answers, name = Counter(self.answered.get(purpose, {})), self.requests.roster.name
        if rounds := self._open.get(purpose):
            answers.update({name(index): count for index, count in rounds.answers.items()})
        return answers

    def check_paid(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """What silos have signed in the end, against what they have answered.

        Raises:
            IntegrityError: one has paid for less: its folder was set back.
        """
        answers = self._answers(main_of(self.study).mechanism.purpose)
        less = {part["silo"]: part["attempts"] for part in parts}
        less = {name: count for name, count in less.items() if count < answers[name]}
        if less:
            listed = ", ".join(f"{name} {count} of {answers[name]}" for name, count in less.items())
            raise IntegrityError(
                f"expected every silo to have paid for what it has answered, they have signed: "
                f"{listed}: their folders were set back, and what their records have spent is more "
                "than their ledgers say; have them find what is missing with hubbub ledger missing"
            )

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up; wait for those who are not there.

        Raises:
            WaitedError: somebody did not come in time, or does not take part as things are.
            ProtocolError: somebody broke the protocol, or a relay does so again and again.
            UserError: the study is approved here no more.
            IntegrityError: somebody was set back without whom it cannot go on.
        """
        lies = 0
        while True:
            began = time.monotonic()
            self._count_sums()
            try:
                rounds = self._tried(wanted)
            except AbsentError as error:
                if error.begun:
                    self._patience.begun()
                self._doubt(error, in_round=False)
                parties = self.study.parties
                if sum(one.why == SET_BACK for one in error.absent.values()) > parties.dropouts:
                    raise IntegrityError(f"{error}; then serve again") from None
                needed = self._gathering.failed(error, parties.colluders)
                liars = [
                    absence
                    for absence in error.absent.values()
                    if absence.why in ("protocol", "garbled")
                ]
                spared = error.rolled and 0 < needed <= parties.dropouts
                lies += bool(liars) and not spared  # else the next try is without them
                if lies >= _LIES:
                    raise self._unsound(lies, error, liars) from None
                self.requests.warn("waiting", parties=_why_absent(error))
                self._patience.wait(error, in_round=False, check=self.check_approval)
            else:
                count = len(rounds.attendance.silos) + len(self.requests.roster.nodes)
                seconds = time.monotonic() - began
                self.requests.note("open", purpose=wanted.purpose, parties=count, seconds=seconds)
                self._begin(wanted.purpose, rounds)
                if wanted.planned.query.is_asked_last:
                    self._closing.release(self.party_folder.keys, rounds)
                return rounds

    def _unsound(self, lies: int, error: AbsentError, liars: Sequence[Absent]) -> ProtocolError:
        """Why a session cannot be set up: who carries the messages, or a party with two voices."""
        said = f"expected a set-up that everybody could check, got {lies} that failed: {error}"
        if self.requests.twice:
            names = ", ".join(sorted(self.requests.twice))
            return ProtocolError(
                f"{said}; two processes take part as {names}, of which either answers: end one of "
                "them; if there is one alone, find out who carries the messages"
            )
        return ProtocolError(
            f"{said}; find out who carries the messages, and start again",
            culprit=_blamed(liars, self.study.parties.colluders),
        )

    def _begin(self, purpose: str, rounds: Rounds) -> None:
        """A session is set up: whoever failed last is on probation in it."""
        timeouts = self.requests.timeouts
        rounds.attendance.ask_again_every(timeouts.ask_again, timeouts.clock.now)
        rounds.permit = self.check_approval
        rounds.attendance.on_probation |= self._doubted_places & {*self.requests.roster.silos}
        self.requests.left_out(rounds.attendance.named_absent)
        self._patience.begun()
        self._patience.opened()
        self.answered[purpose] = self._answers(purpose)  # those of the session before, too
        self._open[purpose] = rounds
        for each in self.requests.paid:
            self.charged(each, lambda: 0)  # notes it
        self._closing.finished(purpose, rounds.session, rounds.attendance.silos)

    def check_approval(self) -> None:
        """What was approved here still is: an administrator ends a run from here too.

        Raises:
            UserError: it is not.
        """
        if not self.party_folder.approves(self.study.id):
            raise UserError(
                f"expected {self.study.name} and its roster to be approved in "
                f"{self.party_folder.home.resolve()}, they were withdrawn or replaced since it is "
                "served; approve a study with the roster that holds now, and serve that"
            )

    def _doubt(self, error: AbsentError, *, in_round: bool) -> None:
        """Who did not do its part is asked first from now on, until there is a sum.

        Who has only not come yet is not meant: together they may be all.
        """
        failed = in_round or error.begun
        self._doubted |= {name for name, one in error.absent.items() if failed or one.why in OWN}
        self.requests.left_out(error.absent)

    @property
    def _doubted_places(self) -> set[int]:
        parties = self.requests.roster.parties
        return {index for index in range(1, len(parties)) if parties[index].name in self._doubted}

    def _count_sums(self) -> None:
        """What was reached makes up for sessions that were begun."""
        for rounds in self._open.values():
            if rounds.sums:
                self._doubted.clear()
                few = rounds.round_parameters.steps if is_sparse(self.study.parties) else 1
                self._patience.reached(rounds.sums, few)
                rounds.sums = 0

    def _tried(self, wanted: SessionPlan) -> Rounds:
        """One try at a set-up, with a session of its own."""
        self.check_approval()
        attests, at = self._attests, self._attests.now() if self._attests else 0
        made = SetUp(
            peers=self.requests,
            keys=self.party_folder.keys,
            study=self.study.id,
            layout=layout_of(wanted.plan),
            round_parameters=wanted.round_parameters,
            offer=SessionOffer.of(
                wanted.purpose, wanted.round_parameters, self.standardisation, at
            ),
            counts=self.study.data.counts,
            attempts_per_list=wanted.planned.mechanism.attempts_per_list,
            attests=attests,
            doubted=self._doubted_places,
        )
        self.requests.expect(wanted.purpose, wanted.round_parameters, self.study.data.counts)
        purposes = [query.purpose for query in wanted.plan.queries]
        self.requests.least_paid = {purpose: self._least_paid(purpose) for purpose in purposes}
        return replace(made, away=self._gathering.away(made)).open_session()

    def lost(self, number: int, _in_a_row: int, lost: AbsentError) -> None:
        """Hear that a session was lost in a round; raise unless a new one would help."""
        self.requests.warn("lost", round=number, said=str(lost))
        self._count_sums()
        self._doubt(lost, in_round=True)
        refusing = sum(absence.why == "budget" for absence in lost.absent.values())
        if refusing > self.study.parties.dropouts:
            raise BudgetError(f"{lost}; no round is possible without them") from None
        self._patience.wait(lost, in_round=True, check=self.check_approval)

    def close(self, sessions: Sequence[bytes], parameters: bytes) -> list[dict[str, Any]]:
        """Give everybody the model, and have the silos sign what their ledgers hold.

        Args:
            sessions: of the study, of which there is a transcript.
            parameters: the model.

        Returns:
            What the silos say that answered; who did not is in the event log.
        """
        return self._closing.close(self.party_folder.keys, sessions, parameters)


def _why_absent(error: AbsentError) -> str:
    """Who is waited for, by reason; of many the first ones."""
    names: dict[str, list[str]] = {}
    for name, absent in error.absent.items():
        names.setdefault(absent.said, []).append(name)
    return ", ".join(f"{few(those)} ({said})" for said, those in names.items())


def _blamed(liars: Sequence[Absent], colluders: int) -> str:
    """Who is to blame: whom the aggregator has caught, or more parties accuse than may collude.

    One party's word is enough to say that somebody on the way is.
    """
    caught = [liar.culprit for liar in liars if liar.why == "garbled" and liar.culprit]
    if caught:
        return caught[0]
    counts = Counter(liar.culprit for liar in liars)
    name, count = counts.most_common(1)[0] if counts else ("", 0)
    return name if name == "relay" or count > max(1, colluders) else ""
