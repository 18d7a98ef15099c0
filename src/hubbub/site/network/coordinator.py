"""The aggregator of a networked study: whom it asks, its sessions, and the close."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hubbub.core.errors import BudgetError, IntegrityError, NoRoomError, ProtocolError, UserError
from hubbub.core.ledger.head_statement import HeadStatement
from hubbub.core.number_format import few
from hubbub.core.planning.noise_shares import is_sparse
from hubbub.core.planning.query import Parameters
from hubbub.core.planning.study_plan import main_of
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, parse
from hubbub.core.runs.federated import SessionPlan
from hubbub.core.session.ask import LEFT_OUT, Absent, AbsentError, Answer, Call
from hubbub.core.session.joint_batches import joint_batches
from hubbub.core.session.offer import OWN, SessionOffer, check_apart, layout_of
from hubbub.core.session.rounds import Rounds
from hubbub.core.session.setup import SetUp, new_session
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Standardisation
from hubbub.core.verification.attestation.study_attestation import StudyAttestation
from hubbub.core.verification.evidence.collecting import checked_part
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.proposals import Outbox
from hubbub.site.network.requests import SET_BACK, UNREADABLE, Requests
from hubbub.site.network.waiting import Door, Patience

# Whom the aggregator asks to take part in a session, and when it waits for more of them.
#
# A session needs N - D silos and all nodes. Once so many give a sign of life, the others have some
# time of grace to come; who comes later is in the next session (docs/privacy.md P29). A silo that
# has failed in a set-up whose ROLL had named it sits out the next few tries, twice as many each
# time, if it can be spared, and so does one of two of whom one complains of the other: else one
# silo could keep a session from ever being set up.

Suspect = tuple[int, ...]  # a silo, or two of whom one has complained of the other
_FEW = 3  # tries
_MOST_DOUBLINGS = 10


@dataclass(kw_only=True)
class Gathering:
    """Who came, and who failed."""

    requests: Requests
    _enough_since: float | None = None  # when so many were there as a session needs
    _failures: Counter[Suspect] = field(default_factory=Counter)
    _sits_out: Counter[Suspect] = field(default_factory=Counter)  # tries that are left

    def failed(self, error: AbsentError, colluders: int) -> int:
        """A set-up came to nothing: who had been there before sits out the next ones.

        Args:
            colluders: more than so many parties cannot all be lying.
        """
        names = {self.requests.roster.name(index): index for index in self.requests.roster.silos}
        alone, pairs = _suspects(error, names, max(1, colluders))
        for suspect in sorted([*alone, *pairs]) if error.rolled else ():
            self._sits_out[suspect] = _FEW << min(self._failures[suspect], _MOST_DOUBLINGS)
            self._failures[suspect] += 1
        return len(_left_out([*alone, *pairs], set()))

    def away(self, made: SetUp) -> dict[int, Absent]:
        """Who is not asked to take part in the next try, and why, by roster index.

        Raises:
            AbsentError: too few are there, or others may still come.
        """
        away = self._silent(made)
        roster = self.requests.roster
        spare = len(roster.silos) - made.round_parameters.quorum - len(away)
        out = _left_out([one for one, _ in self._sits_out.most_common()], away.keys())
        for index in out[: max(spare, 0)]:
            away[index] = Absent(
                why=LEFT_OUT, said="it failed during a set-up, and is left out of this one"
            )
        self._sits_out -= Counter(dict.fromkeys(self._sits_out, 1))  # keeps what is above zero
        self._enough_since = None
        return away

    def _silent(self, made: SetUp) -> dict[int, Absent]:
        """Who gives no sign of life, though the others have waited for it."""
        roster, timeouts = self.requests.roster, self.requests.timeouts
        everybody = dict.fromkeys(range(1, len(roster.parties)), ())
        answers = self.requests.ask(Call.PING, everybody, made.session)
        silent = {index: one for index, one in answers if isinstance(one, Absent)}
        now = timeouts.clock.now()
        try:
            made.check_enough(silent)
        except AbsentError:
            self._enough_since = None
            raise
        if self._enough_since is None:
            self._enough_since = now
        if silent and now < self._enough_since + timeouts.grace:
            raise AbsentError({roster.name(index): one for index, one in silent.items()})
        return silent


def _suspects(
    error: AbsentError, silos: Mapping[str, int], liars: int
) -> tuple[set[Suspect], set[Suspect]]:
    """Who may have spoilt a set-up, alone or one of two, where at most so many parties lie.

    Whoever gave no answer; of one that complains and one that it complains of either. But of whom
    more complain than can lie, it is itself.
    """
    told = {name: {*absence.culprit.split(" and ")} for name, absence in error.absent.items()}
    blamed = Counter(name for names in told.values() for name in names & silos.keys())
    sure = {name for name, count in blamed.items() if count > liars}
    alone, pairs = {(silos[name],) for name in sure}, set[Suspect]()
    for name in told.keys() & silos.keys() - sure:
        others = told[name] & silos.keys() - {name}
        if not others:
            alone.add((silos[name],))
        elif not others & sure:
            pairs |= {(silos[name], silos[other]) for other in others}
    return {*alone}, {*pairs}


def _left_out(suspects: Sequence[Suspect], away: Set[int]) -> list[int]:
    """Few silos with whom one of every pair is out, and who is suspected alone, in this order.

    Of each pair one lies. So whoever is in more of them goes first; and once one of each is out, a
    liar that is still in must find somebody new to complain of, which puts it into more.
    """
    out = [suspect[0] for suspect in suspects if len(suspect) == 1 and suspect[0] not in away]
    while left := [suspect for suspect in suspects if not {*suspect} & {*out, *away}]:
        out.append(Counter(index for suspect in left for index in suspect).most_common(1)[0][0])
    return out


# The end of a networked study, at the aggregator: everybody gets the model and signs its part.
#
# A silo need not be in the last session of a study: it is told the end in the newest one that it
# has finished, of the study's main query if there is one, since what was done to the features was
# said there.

_PAUSE = 2.0  # seconds; the shortest
_CLOSINGS = 5  # times that a silo is asked for its signed part


@dataclass(kw_only=True)
class StudyClosing:
    """The sessions that silos have finished, and the end of all of them."""

    requests: Requests
    study: Study
    result: bytes = field(default=b"", repr=False)  # what is asked last is asked at it
    untold: set[str] = field(default_factory=set)  # who was away at the end
    _newest: dict[int, tuple[bool, bytes]] = field(default_factory=dict)

    def finished(self, purpose: str, session: bytes, silos: Iterable[int]) -> None:
        """These silos have set up a session."""
        main = purpose == main_of(self.study).mechanism.purpose
        for index in silos:
            if main or not self._newest.get(index, (False,))[0]:
                self._newest[index] = main, session

    def release(self, keys: Keys, rounds: Rounds) -> None:
        """Show the silos of a session the model that it is asked at, which each signs.

        Who does not sign it takes no part: it would refuse the session's MODELs, and others pay.
        """
        parts = [self._frame(keys, rounds.session, Tag.RESULT, self.result)]
        digest, signed = hashlib.sha256(self.result).digest(), list[bytes]()
        absent = rounds.attendance.absent
        asked = dict.fromkeys(rounds.attendance.present, parts)
        for index, received in self.requests.ask(Call.RESULT, asked, rounds.session):
            word = self._word(digest, rounds.session, index, received)
            if isinstance(word, Absent):
                absent[index] = replace(word, why=LEFT_OUT)
            else:
                signed.append(word)
        rounds.opening = [*rounds.opening, *parts, *signed]

    def _word(self, digest: bytes, session: bytes, index: int, received: Answer) -> bytes | Absent:
        """A silo's word for the RESULT with a digest, or why there is none."""
        if isinstance(received, Absent):
            return received
        roster = self.requests.roster
        try:
            (data,) = received
            if self._told(data, session, index, Tag.RESULT_SIGNED) != digest:
                raise ProtocolError(
                    "expected a signature for the RESULT that it was shown, got one for another",
                    culprit=roster.name(index),
                )
        except UNREADABLE as error:
            culprit = error.culprit if isinstance(error, ProtocolError) else ""
            return self.requests.garbled(index, str(error), culprit or "relay")
        return data

    def close(
        self, keys: Keys, sessions: Sequence[bytes], parameters: bytes, others: Iterable[int] = ()
    ) -> list[dict[str, Any]]:
        """Give every silo the model, and have them sign what their ledgers hold.

        A silo that does not answer is asked again, a few times: a run is closed once, and nobody
        can have its part later. Who has not answered is in the event log.

        Args:
            keys: the aggregator's.
            sessions: those with a transcript.
            parameters: the model.
            others: who is told that the study is over, once, if it has no part to sign. So is who
                has not answered: it may not take a model, of a session that it does not know.
        """
        heads = {name: head.to_dict() for name, head in self.requests.heads.items()}
        listed = json.dumps({"sessions": [one.hex() for one in sessions], "heads": heads}).encode()
        parts: dict[int, dict[str, Any]] = {}
        left = dict(self._newest)
        for turn in range(_CLOSINGS):
            if turn and left:
                self.requests.timeouts.clock.sleep(_PAUSE * 2.0 ** (turn - 1))
            for session in sorted({session for _, session in left.values()}):
                told = ((Tag.CLOSE, listed), (Tag.RESULT, parameters))
                frames = [self._frame(keys, session, tag, payload) for tag, payload in told]
                asked = {i: frames for i in sorted(left) if left[i][1] == session}
                for index, received in self.requests.ask(Call.CLOSE, asked, session):
                    if (part := self.part(session, index, received, sessions)) is not None:
                        parts[index] = part
            left = {index: where for index, where in left.items() if index not in parts}
        heard = {*parts}
        if alone := {*others, *left} - heard:
            session = new_session()  # nobody knows it: none is asked for its part
            frame = self._frame(keys, session, Tag.CLOSE, listed)
            heard |= self.requests.tell_end(frame, session, alone)
        parties = enumerate(self.requests.roster.parties[1:], 1)
        self.untold = {party.name for index, party in parties if index not in heard}
        # Who has paid in a process before this one is in no session here, and cannot be asked.
        paid = {name for each in self.requests.least_paid.values() for name in each if each[name]}
        names = {index: self.requests.roster.name(index) for index in self.requests.roster.silos}
        late = [n for i, n in names.items() if i not in parts and (i in left or n in paid)]
        if late:
            self.requests.warn("unsigned", parties=few(late))
        return list(parts.values())

    def part(
        self, session: bytes, index: int, received: Answer, sessions: Sequence[bytes]
    ) -> dict[str, Any] | None:
        """A silo's signed part, if its answer has one that can be used."""
        if isinstance(received, Absent):
            return None
        roster = self.requests.roster
        try:
            payload = json.loads(self._told(received[0], session, index, Tag.CLOSED))
            silo = roster.parties[index]
            part = checked_part(payload, silo, study=self.study.id, sessions=sessions)
        except UNREADABLE as error:
            self.requests.garbled(index, str(error), culprit="")
            return None
        # A deposit's CLOSED comes after its READY; and another study may have had a newer one.
        if witness := self.requests.witness:
            with suppress(IntegrityError, *UNREADABLE):
                ready = json.loads(self._told(received[1], session, index, Tag.READY))
                self.requests.take_head(witness, silo.name, HeadStatement.of(ready["ledger"]))
        return part

    def _told(self, data: bytes, session: bytes, index: int, tag: Tag) -> bytes:
        """What a silo itself has said in a frame; ProtocolError if it is another's, or another."""
        frame = parse(data, self.requests.roster, study=self.study.id, session=session)
        if frame.tag is not tag or frame.sender != index:
            raise ProtocolError(f"expected {tag.name}, got another frame", culprit="relay")
        return bytes(frame.payload)

    def _frame(self, keys: Keys, session: bytes, tag: Tag, payload: bytes) -> bytes:
        return Frame(
            tag=tag,
            study=self.study.id,
            session=session,
            sender=0,
            receiver=EVERYBODY,
            payload=payload,
        ).sealed(keys)


# The aggregator's side of a networked study: sessions are set up until the rounds end, and closed.
#
# A try at a set-up is in `session/setup.py`, the rounds are in `session/rounds.py`. Messages travel
# through an engine, and everybody but the aggregator is somewhere else.

_LOST = 3  # attempts that a silo may have paid for and others not, before anybody is told
_LIES = 3  # set-ups that may fail by what a relay can do, before the run stops


class Coordinator:
    """The aggregator of one study, approved there: the backend of a networked run."""

    def __init__(
        self,
        party_folder: PartyFolder,
        study: Study,
        requests: Requests,
        door: Door | None = None,
    ) -> None:
        check_apart(study)
        self._door, self._has_begun = door or Door(), False
        self.party_folder, self.study, self.requests = party_folder, study, requests
        self._attests: StudyAttestation | None = None
        if (asked := study.attestation) is not None:
            self._attests = StudyAttestation(asked=asked, attester=party_folder.attester)
        self.standardisation: Standardisation | None = None
        self._patience = Patience(timeouts=requests.timeouts, pause=_PAUSE)
        self._open: dict[str, Rounds] = {}  # the newest session of each purpose
        self.answered: dict[str, Counter[str]] = {}  # attempts in sessions before, by purpose
        self._unbelieved: set[tuple[str, int]] = set()  # silos that were told of, by purpose
        self._doubted: set[str] = set()  # who did not do its part, since the last sum
        self._returns: Counter[int] = Counter()  # of who was missing, by roster index
        self._gathering = Gathering(requests=requests)
        self.closing = StudyClosing(requests=requests, study=study)

    def standardise(self, standardisation: Standardisation | None) -> None:
        """From now on, tell silos how features are standardised."""
        self.standardisation = standardisation

    def release(self, parameters: Parameters) -> None:
        """From now on, what is set up is asked at this model, which silos are shown before."""
        self.closing.result = np.asarray(parameters, dtype="<f4").tobytes()

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
        """Refuse what silos have signed in the end, if it is less than what they have answered."""
        answers = self._answers(main_of(self.study).mechanism.purpose)
        less = {part["silo"]: part["attempts"] for part in parts}
        less = {name: count for name, count in less.items() if count < answers[name]}
        if less:
            listed = ", ".join(f"{name} {count} of {answers[name]}" for name, count in less.items())
            raise IntegrityError(
                "expected every silo to have paid for what it answered, but they signed: "
                f"{listed}: their folders were set back, and their records have spent more than "
                "their ledgers say; have them find what is missing with hubbub ledger missing"
            )

    def set_up(self, wanted: SessionPlan) -> Rounds:
        """Set a session up; wait for those who are not there.

        Raises:
            WaitedError: somebody did not come in time, or does not take part as things are.
            ProtocolError: somebody broke the protocol, or a relay does so again and again.
            UserError: the study is approved here no more.
            IntegrityError: somebody was set back without whom it cannot go on.
            NoRoomError: caps have no room for it, as things are; nothing was paid.
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
                said = ("protocol", "garbled")
                liars = [absence for absence in error.absent.values() if absence.why in said]
                spared = error.rolled and 0 < needed <= parties.dropouts
                lies += bool(liars) and not spared  # else the next try is without them
                if lies >= _LIES:
                    raise self._unsound(lies, error, liars) from None
                # Who is waited for, by reason; of many the first ones.
                names: dict[str, list[str]] = {}
                for name, absent in error.absent.items():
                    names.setdefault(absent.said, []).append(name)
                listed = (f"{few(those)} ({why})" for why, those in names.items())
                self.requests.warn("waiting", parties=", ".join(listed))
                self._patience.wait(error, in_round=False, check=self.check_approval)
            else:
                count = len(rounds.attendance.silos) + len(self.requests.roster.nodes)
                seconds = time.monotonic() - began
                self.requests.note("open", purpose=wanted.purpose, parties=count, seconds=seconds)
                self._begin(wanted.purpose, rounds)
                if wanted.planned.query.is_asked_last:
                    self.closing.release(self.party_folder.keys, rounds)
                return rounds

    def _unsound(self, lies: int, error: AbsentError, liars: Sequence[Absent]) -> ProtocolError:
        """Why a session cannot be set up: who carries the messages, or a party with two voices."""
        said = f"expected a set-up that every party could check, got {lies} that failed: {error}"
        if not self.requests.twice:
            culprit = _blamed(liars, self.study.parties.colluders)
            said += "; find out who carries the messages, and start again"
            return ProtocolError(said, culprit=culprit)
        names = ", ".join(sorted(self.requests.twice))
        return ProtocolError(
            f"{said}; two processes take part as {names}, and either of them answers: stop one "
            "of them; if there is only one, find out who carries the messages"
        )

    def _begin(self, purpose: str, rounds: Rounds) -> None:
        """A session is set up: whoever failed last is on probation in it."""
        timeouts = self.requests.timeouts
        rounds.attendance.ask_again_every(timeouts.ask_again, timeouts.clock.now, self._returns)
        rounds.permit = self.check_approval
        rounds.attendance.on_probation |= self._doubted_places & {*self.requests.roster.silos}
        self.requests.left_out(rounds.attendance.named_absent)
        self._patience.begun()
        self._patience.opened()
        self.answered[purpose] = self._answers(purpose)  # those of the session before, too
        self._open[purpose] = rounds
        for each in self.requests.paid:
            self.charged(each, lambda: 0)  # notes it
        self.closing.finished(purpose, rounds.session, rounds.attendance.silos)

    def check_approval(self) -> None:
        """What was approved here still is: an administrator ends a run from here too."""
        if not self.party_folder.approves(self.study.id):
            raise UserError(
                f"expected {self.study.name} and its roster to be approved in "
                f"{self.party_folder.home.resolve()}, they were withdrawn or replaced while it was "
                "served; approve a study with the current roster, and serve that"
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
        # Who gave a sign of life, and then held a session up, does so once, and not for long again.
        doubted = self._doubted | self.requests.unopened
        parties = enumerate(self.requests.roster.parties)
        return {index for index, party in parties if party.name in doubted}

    def _count_sums(self) -> None:
        """What was reached makes up for sessions that were begun."""
        for rounds in self._open.values():
            if rounds.sums:
                self._doubted.clear()
                attempts = rounds.round_parameters.steps if is_sparse(self.study.parties) else 1
                self._patience.reached(rounds.sums, attempts)
                rounds.sums = 0

    def _tried(self, wanted: SessionPlan) -> Rounds:
        """One try at a set-up, with a session of its own."""
        self.check_approval()
        if not self._has_begun:
            self._door.enter(self.study.id)
        attests, at = self._attests, self._attests.now() if self._attests else 0
        offered = (wanted.purpose, wanted.round_parameters, self.standardisation, at)
        joint = joint_batches(wanted.planned.mechanism, self.study.data.counts)
        made = SetUp(
            peers=self.requests,
            keys=self.party_folder.keys,
            study=self.study.id,
            layout=layout_of(wanted.plan),
            round_parameters=wanted.round_parameters,
            offer=SessionOffer.of(*offered),
            joint=joint,
            attests=attests,
            doubted=self._doubted_places,
        )
        self.requests.expect(wanted.purpose, wanted.round_parameters, joint)
        purposes = [query.purpose for query in wanted.plan.queries]
        self.requests.least_paid = {purpose: self._least_paid(purpose) for purpose in purposes}
        try:
            return replace(made, away=self._gathering.away(made)).open_session()
        except AbsentError as error:
            self._door.leave(self.study.id)
            if self._refusing(error) > self.study.parties.dropouts and not error.begun:
                raise NoRoomError(f"{error}; it can begin once they have room for it") from None
            raise

    def lost(self, number: int, _in_a_row: int, lost: AbsentError) -> None:
        """Hear that a session was lost in a round; raise unless a new one would help."""
        self.requests.warn("lost", round=number, said=str(lost))
        self._count_sums()
        self._doubt(lost, in_round=True)
        if self._refusing(lost) > self.study.parties.dropouts:
            raise BudgetError(f"{lost}; no round is possible without them") from None
        self._patience.wait(lost, in_round=True, check=self.check_approval)

    @staticmethod
    def _refusing(error: AbsentError) -> int:
        """How many are missing because their ledgers refuse."""
        return sum(absence.why == "budget" for absence in error.absent.values())

    def has_begun(self) -> None:
        """All ledgers have let the study in: another may begin."""
        self._has_begun = True
        self._door.leave(self.study.id)

    def close(self, sessions: Sequence[bytes], parameters: bytes) -> list[dict[str, Any]]:
        """See `StudyClosing.close`."""
        absent = [
            index
            for rounds in self._open.values()
            for index, one in rounds.attendance.absent.items()
            if one.why != "silent"
        ]
        others = [*self.requests.roster.nodes, *absent]
        parts = self.closing.close(self.party_folder.keys, sessions, parameters, others)
        with suppress(OSError):  # the run is over, whoever hears of it
            Outbox(self.party_folder).note_untold(self.study.id, self.closing.untold)
        return parts


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
