"""The aggregator's side of a networked study: sessions are set up until all have come, and closed.

A try at a set-up is in `session/setup.py`, the rounds are in `session/rounds.py`. Messages travel
through an engine, and everybody but the aggregator is somewhere else.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hubbub.errors import BudgetError, ProtocolError, UserError
from hubbub.network.party_folder import COLLATERAL, PartyFolder
from hubbub.network.patience import Patience, WaitedError  # noqa: F401 (it is met here)
from hubbub.network.requests import UNREADABLE, Requests
from hubbub.planning import is_sparse
from hubbub.protocol import EVERYBODY, Frame, Tag, parse
from hubbub.session import (
    OWN,
    Absent,
    AbsentError,
    Answer,
    Call,
    Rounds,
    SessionOffer,
    SetUp,
    check_apart,
    layout_of,
)
from hubbub.study import Standardisation, Study
from hubbub.training import SessionPlan
from hubbub.verification import MachineAttester, StudyAttestation, checked_part

_PAUSE = 2.0  # seconds; the shortest
_CLOSINGS = 5  # times that a silo is asked for its signed part
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
        made, asked = MachineAttester(party_folder.home / COLLATERAL), study.attestation
        self._attests = None if asked is None else StudyAttestation(asked=asked, attester=made)
        self.standardisation: Standardisation | None = None
        self._patience = Patience(timeouts=requests.timeouts, pause=_PAUSE)
        self._open: dict[str, Rounds] = {}  # the newest session of each purpose
        self._doubted: set[str] = set()  # who did not do its part, since the last sum

    def standardise(self, found: Standardisation | None) -> None:
        """From now on, tell silos how features are standardised."""
        self.standardisation = found

    def charged(self, purpose: str) -> int:
        """Attempts that some silo says it has paid for, for a purpose."""
        return max(self.requests.paid.get(purpose, {}).values(), default=0)

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up; wait for those who are not there.

        Raises:
            WaitedError: somebody did not come in time, or does not take part as things are.
            ProtocolError: somebody broke the protocol, or a relay does so again and again.
            UserError: the study is approved here no more.
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
                liars = [one for one in error.absent.values() if one.why in ("protocol", "garbled")]
                lies += bool(liars)
                if lies >= _LIES:
                    raise self._unsound(lies, error, liars) from None
                waiting = ", ".join(f"{n} ({one.said})" for n, one in error.absent.items())
                self.requests.warn("waiting", parties=waiting)
                self._patience.wait(error, in_round=False, check=self.check_approval)
            else:
                count = len(self.requests.roster.parties)
                seconds = time.monotonic() - began
                self.requests.note("open", purpose=wanted.purpose, parties=count, seconds=seconds)
                self._begin(wanted.purpose, rounds)
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
        rounds.ask_absent_every(timeouts.ask_again, timeouts.clock.now)
        rounds.permit = self.check_approval
        rounds.on_probation |= self._doubted_places & {*self.requests.roster.silos}
        self.requests.left_out({})
        self._patience.begun()
        self._patience.opened()
        self._open[purpose] = rounds

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
        roster, attests = self.requests.roster, self._attests
        at = attests.now() if attests else 0
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
        everybody = dict.fromkeys(range(1, len(roster.parties)), ())
        self.requests.ask_all(Call.PING, everybody, made.session)
        return made.open_session()

    def lost(self, number: int, _in_a_row: int, lost: AbsentError) -> None:
        """Hear that a session was lost in a round; raise unless a new one would help."""
        self.requests.warn("lost", round=number, said=str(lost))
        self._count_sums()
        self._doubt(lost, in_round=True)
        if any(one.why == "budget" for one in lost.absent.values()):
            raise BudgetError(f"{lost}; no round is possible without them") from None
        self._patience.wait(lost, in_round=True, check=self.check_approval)

    def close(
        self, rounds: Rounds, sessions: Sequence[bytes], parameters: bytes
    ) -> list[dict[str, Any]]:
        """Give everybody the model, and have the silos sign what their ledgers hold.

        A silo that does not answer is asked again, a few times: a run is closed once, and nobody
        can have its part later.

        Returns:
            What the silos say that answered; who did not is in the event log.
        """
        listed = json.dumps({"sessions": [one.hex() for one in sessions]}).encode()
        frames = [
            self._frame(rounds, Tag.CLOSE, listed),
            self._frame(rounds, Tag.RESULT, parameters),
        ]
        parts: dict[int, dict[str, Any]] = {}
        left = set(self.requests.roster.silos)
        for turn in range(_CLOSINGS):
            if turn:
                self.requests.timeouts.clock.sleep(_PAUSE * 2.0 ** (turn - 1))
            asked = dict.fromkeys(sorted(left), frames)
            for index, received in self.requests.ask(Call.CLOSE, asked, rounds.session):
                if (part := self._part(rounds, index, received, sessions)) is not None:
                    parts[index] = part
            left -= parts.keys()
            if not left:
                break
        else:
            names = ", ".join(map(self.requests.roster.name, sorted(left)))
            self.requests.warn("unsigned", parties=names)
        return list(parts.values())

    def _part(
        self, rounds: Rounds, index: int, received: Answer, sessions: Sequence[bytes]
    ) -> dict[str, Any] | None:
        """A silo's signed part, if its answer has one that can be used."""
        if isinstance(received, Absent):
            return None
        roster = self.requests.roster
        try:
            frame = parse(received[0], roster, study=rounds.study, session=rounds.session)
            if frame.tag is not Tag.CLOSED or frame.sender != index:
                raise ProtocolError("expected CLOSED, got another frame", culprit="relay")
            payload = json.loads(bytes(frame.payload))
            silo = roster.parties[index]
            return checked_part(payload, silo, study=self.study.id, sessions=sessions)
        except UNREADABLE as error:
            self.requests.warn("garbled", whom=roster.name(index), said=str(error))
            return None

    def _frame(self, rounds: Rounds, tag: Tag, payload: bytes) -> bytes:
        return Frame(
            tag=tag,
            study=rounds.study,
            session=rounds.session,
            sender=0,
            receiver=EVERYBODY,
            payload=payload,
        ).sealed(self.party_folder.keys)


def _blamed(liars: Sequence[Absent], colluders: int) -> str:
    """Who is to blame: whom the aggregator has caught, or more parties accuse than may collude.

    One party's word is enough to say that somebody on the way is.
    """
    caught = [one.culprit for one in liars if one.why == "garbled" and one.culprit]
    if caught:
        return caught[0]
    counts = Counter(one.culprit for one in liars)
    name, count = counts.most_common(1)[0] if counts else ("", 0)
    return name if name == "relay" or count > max(1, colluders) else ""
