"""A session at one party, what was offered, who answers, whether it is over."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

from hubbub import VERSION
from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.kept_pages import kept_pages
from hubbub.core.planning.noise_shares import is_sparse
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Query
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import EVERYBODY, Channel, Frame, Tag, parse, unverified
from hubbub.core.registered import loaded, registered
from hubbub.core.session.ask import LEFT_OUT, Call
from hubbub.core.session.attestation_exchange import AttestedSession
from hubbub.core.session.joint_batches import joint_batches
from hubbub.core.session.offer import (
    OWN,
    REASONS,
    RefusedError,
    SessionOffer,
    check_apart,
    layout_of,
    planned_for,
    round_parameters_of,
)
from hubbub.core.session.party import Membership, NodeParty, Party, SiloParty
from hubbub.core.study.study import Study
from hubbub.core.verification.attestation.study_attestation import Attester, StudyAttestation
from hubbub.site.network.envelope import OFFER_LIMIT, Refusal, SizeLimits, answer, read_request
from hubbub.site.network.event_log import (
    ANSWERED,
    DONE,
    TRAINING,
    WAITING,
    WITHDRAWN,
    EventLog,
    StudyLog,
)
from hubbub.site.network.folder_files import MOST_GRAPHS, FruitlessError
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.proposals import received


@dataclass(kw_only=True)
class SessionState:
    """One session at one party, from its opening on."""

    study: Study
    offer: SessionOffer
    plan: Plan = field(repr=False)
    membership: Membership
    party: Party = field(repr=False)
    closed: bool = False  # no round follows
    answered: bool = False
    result: Parameters | None = field(default=None, repr=False)  # what is asked last is asked at it
    _pages: ExitStack = field(default_factory=ExitStack, repr=False)

    def __post_init__(self) -> None:
        numbers = self.membership.round_parameters.parameters
        self._pages.enter_context(kept_pages(numbers))

    def end(self) -> None:
        """No round follows: noise is erased, and the memory of large vectors goes back."""
        if isinstance(self.party, SiloParty):
            self.party.forget()
        self._pages.close()

    @property
    def session(self) -> bytes:
        """Its name."""
        return self.membership.channel.session

    @property
    def named(self) -> tuple[bytes, bytes]:
        """Its study and its name, as frames have them."""
        return self.study.id, self.session

    @cached_property
    def limits(self) -> SizeLimits:
        """How much may be asked in it."""
        me = self.membership
        return SizeLimits(roster=me.roster, round_parameters=me.round_parameters, joint=me.joint)


# What a party cannot do itself, from its refusal until it has done it.
#
# A refusal for a reason of its own (`offer.OWN`) stands here by study and call, and is gone
# once that call is answered; after a sum, or with the study's end, all of that study's are. Its
# state tells it in known words, so that whoever watches the party hears of it; nothing in them
# follows from a record. What others did wrong is not this file's affair. Nobody says to a party
# that its answer was not taken; it sees that a session which it answered goes on without it.

_WHOLE = (Call.MODEL, Call.SEED, Call.TOTAL, Call.CLOSE)
_NOT_TAKEN = (
    "the aggregator's log says why; if this folder or its ledger comes from a backup, follow the "
    "runbook of an older copy"
)
_WORDS = {**REASONS, LEFT_OUT: f"a session went on without it that it had answered; {_NOT_TAKEN}"}
_OF_LOG = ("ledger", "failed")  # reasons of which its own log says more
_ENVELOPE = (b"", Call.PING)  # of a request of another version: nobody knows of which study
_IN_VAIN = (
    "it answered several sessions, and none was set up: others are missing, or it was left out; "
    + _NOT_TAKEN
)
ENDED_EARLY = f"it ended before a session was set up that this party had answered; {_NOT_TAKEN}"


class OwnRefusals:
    """A party's refusals that nobody else can be blamed for."""

    def __init__(self, event_log: EventLog) -> None:
        self._log = event_log
        self._why: dict[tuple[bytes, Call], str] = {}

    @property
    def studies(self) -> set[bytes]:
        """The studies of which there is one."""
        return {study for study, _ in self._why if study}

    def add(self, study: bytes, call: Call, why: str, said: str = "") -> None:
        """A call was refused; `said` is what the log has of it."""
        if why in OWN or why == LEFT_OUT:
            words = _WORDS[why]
            if why in _OF_LOG and said:
                words = f"{words.partition(';')[0]}: {said}"
            self._why[study, call] = f"{why}: {words}"
            self._tell()

    def answered(self, study: bytes, call: Call) -> None:
        """A call was answered."""
        if call in _WHOLE:
            self.forget(study)
        elif self._why.pop((study, call), None) is not None:
            self._tell()

    def forget(self, study: bytes) -> None:
        """A study is well again, or over."""
        self._why = {asked: why for asked, why in self._why.items() if asked[0] != study}
        self._tell()

    def _tell(self) -> None:
        said = "; ".join(dict.fromkeys(self._why.values()))
        if said != (self._log.current("refusing") or ""):
            self._log.state(refusing=said)


# A party's side of a networked study: every request becomes an answer, and nothing else happens.
#
# Theory of operation. An endpoint trusts its own folder and its own installation. The study that a
# session is opened for is looked up among those approved here; everything that follows is checked
# by the party itself (`session/party.py`), the same as in one process. So whoever carries the
# requests can delay them or lose them, not more. One request is answered at a time. An error
# becomes a refusal of a few known words; its sentence stays in this party's event log.

SIDES = "hubbub.sides"  # entry points, by role
_MOST_ENDED = 8  # studies whose end may be asked for again: twice those that an aggregator runs
_TELL_EVERY = 5.0  # seconds between two words on a study for this party's people


class Side(Protocol):
    """A party's part in sums that need no session."""

    at_rest: bool  # the aggregator has said that there is nothing more to do for now

    def answer(self, call: Call, session: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """The frames of the answer to a call from COLLECT_KEY on."""


# A party's randomness in its n-th session of a study; tests choose it, nobody else does.
SourceOf = Callable[[int], SecureSource]


class Endpoint(ABC):
    """One party's side.

    Args:
        source_of: its randomness; the operating system's if None.
        attester: makes this machine's evidence; its devices if None.
    """

    def __init__(
        self,
        party_folder: PartyFolder,
        event_log: EventLog,
        *,
        source_of: SourceOf | None = None,
        attester: Attester | None = None,
    ) -> None:
        self.party_folder, self.event_log = party_folder, event_log
        self._side: Side | None  # in sums that need no session, where a package takes part in any
        self._attester = attester
        self._mask_stream = MaskStream()
        self._source_of = source_of or (lambda _: SecureSource())
        self._lock = threading.Lock()
        self._sessions: dict[tuple[bytes, str], SessionState] = {}  # the newest of study, purpose
        self._finished: dict[bytes, SessionState] = {}  # of each study: its end may come in it
        self._studies: dict[bytes, Any] = {}  # what was prepared for each
        self._ended: list[bytes] = []  # studies that are over, and in memory; the newest last
        self._begun = 0  # sessions, since this party was started
        self._study_of: dict[bytes, bytes] = {}  # of each of them
        self._revoked: set[bytes] = set()  # those of them that were ended from here
        self._asked: tuple[bytes, Call] | None = None  # the study and the call that is answered
        self._refusals = OwnRefusals(event_log)
        self._logs: dict[bytes, StudyLog] = {}
        self._told = 0.0  # when its people were told last where a study stands
        self._untold: dict[bytes, SessionState] = {}  # of studies that have answered since

    @property
    def roster(self) -> Roster:
        """Everybody, as this party's own folder says."""
        return self.party_folder.roster

    def answer(self, request: bytes) -> bytes:
        """What this party says to a request; never an exception."""
        with self._lock:
            sent = self._answer_or_refusal(request)
            self.event_log.add(bytes_received=len(request), bytes_sent=len(sent))
            return sent

    def repeats(self, request: bytes) -> bool:
        """Whether an answer that was given may be given again: not once its study is withdrawn."""
        with self._lock:
            try:
                call, session, _ = read_request(request)
                # People, caps and ledgers may have said more since; frames that were sent are kept.
                if call is Call.PROPOSE or call >= Call.COLLECT_KEY:
                    return False
                self._check_approval(session)
            except RefusedError:
                return False
            except HubbubError:
                return True
            return session not in self._revoked  # though the study be approved again

    @property
    def is_at_rest(self) -> bool:
        """Whether the aggregator has said that there is nothing more to do here for now."""
        return self._side is not None and self._side.at_rest

    def side(self, **named: Any) -> Side | None:
        """This party's part in sums that need no session; None if no package takes any.

        Args:
            named: what one of its role needs more than the others.
        """
        point = registered(SIDES).get(self.party_folder.role)
        given = (self.party_folder, self.event_log, self.prepared, self._mask_stream)
        return None if point is None else loaded(point)(*given, **named)

    def look(self) -> None:
        """Look at the folder, though nobody asks: what is withdrawn or replaced there is over.

        Raises:
            ReplacedError, StudyError: this process cannot speak for this party any more.
        """
        with self._lock:
            begun = {session.study.id for session in self._sessions.values()}
            for study in begun | self._refusals.studies | self._studies.keys():
                if not self.party_folder.approves(study):
                    self._forget(study)
            if self.event_log.current("state") == TRAINING:  # to tell it says that it goes on
                self._tell_all()
        self.party_folder.check_place()

    def _answer_or_refusal(self, request: bytes) -> bytes:
        """An answer, or a refusal."""
        self._asked = _ENVELOPE
        try:
            call, session, parts = read_request(request)
            self._asked = None
            self._refusals.answered(*_ENVELOPE)
            return answer(self._answered(call, session, parts))
        except Exception as error:  # noqa: BLE001 (a party that raises would not be heard again)
            if isinstance(error, HubbubError) and not error.free_of_records:
                self.event_log.say(str(error))
            return self._refusal(request, Refusal.of(error))

    @property
    def at_work(self) -> bool:
        """Whether a session is set up here that is not over."""
        sessions = self._sessions.values()
        return any(session.party.agreed and not session.closed for session in sessions)

    @property
    def is_answered_in_vain(self) -> bool:
        """Whether a session was answered here that is not set up."""
        sessions = self._sessions.values()
        return any(session.party.agreed is None and not session.closed for session in sessions)

    @property
    def largest_request(self) -> int:
        """Bytes of what may be asked as things are; on any thread."""
        sessions = [*self._sessions.values()]
        return max([OFFER_LIMIT, *(session.limits.largest_request for session in sessions)])

    def known(self, _study: bytes, _session: bytes) -> bool:
        """Whether what the party has on disk shows that it took part in a session before."""
        return False

    @abstractmethod
    def prepared(self, study: Study, offer: SessionOffer) -> tuple[Plan, PlannedQuery[Query]]:
        """The party's own plan, and the query that a session is opened for."""

    @abstractmethod
    def party(
        self,
        study: Study,
        offer: SessionOffer,
        plan: Plan,
        planned: PlannedQuery[Query],
        membership: Membership,
    ) -> Party:
        """The party in a new session."""

    @abstractmethod
    def answer_to(self, state: SessionState, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """The answer to a call of an open session."""

    def close(self) -> None:  # noqa: B027 (not every party has something open)
        """Leave; what is open on disk is closed."""

    def signs_end(self, _study: bytes) -> bool:
        """Whether this party signs a part of a study's end, and is given the result for it."""
        return False

    def ready(self, study: Study) -> dict[str, Any]:
        """What else the aggregator is told when a session is opened, or closed."""
        return {}

    def _answered(self, call: Call, session: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """The parts of the answer."""
        if call is Call.OPEN:
            return self._open(parts)
        if call is Call.PROPOSE:
            return self._proposed(parts)
        if call >= Call.COLLECT_KEY:
            return self._collected(call, session, parts)
        self._check_approval(session)
        if call is Call.CLOSE and self._is_told_end(parts):
            return self._told_end(parts[0])
        # The session that a call is about; an earlier one only if the call ends the study.
        ending = self._finished.values() if call is Call.CLOSE else ()
        sessions = (*self._sessions.values(), *ending)
        state = next((one for one in sessions if one.session == session), None)
        if call is Call.PING:
            return self._sign_of_life(session, state)
        if state is None:
            raise RefusedError(
                "no-session",
                f"expected a session that was opened here, got {call.name} of another; after a "
                "restart the aggregator sets a new one up",
            )
        self._asked = (state.study.id, call)
        if state.closed and call is not Call.CLOSE:
            raise RefusedError(
                "no-session", "expected a study that goes on, got a call after its end; open anew"
            )
        answered = self.answer_to(state, call, parts)
        if call is Call.FINISH:
            self._finished[state.study.id] = state
            self.event_log.note("set-up")
            self._waits_no_more(state.study)
            self._refusals.answered(state.study.id, Call.PING)
        self._check_approval(session)  # a sum takes a while: what was withdrawn stays here
        self._refusals.answered(state.study.id, call)
        return answered

    def _sign_of_life(self, session: bytes, state: SessionState | None) -> list[bytes]:
        """Whether a session is set up here; for the relay's eyes too: nothing rests on it."""
        if state is None or state.party.agreed is None:
            if state is not None:
                self._refusals.add(state.study.id, Call.PING, LEFT_OUT)
            return []
        if state.study.id in self._refusals.studies:
            self.check_able()  # others would pay for what it cannot do
        return [self._frame(session, state.study.id, Tag.READY, b"")]

    def _is_told_end(self, parts: Sequence[bytes]) -> bool:
        """Whether a CLOSE comes without a RESULT, and this party has no part to sign for one.

        It has none any more where that is of no session here, as after an end that it has missed.
        """
        if len(parts) != 1:
            return False
        told = unverified(parts[0])  # its session is signed, the request's is not
        mine = any(one.session == told.session for one in self._finished.values())
        return not (mine and self.signs_end(told.study))

    def _told_end(self, data: bytes) -> list[bytes]:
        """A study is over, and its people are told; nothing else rests on it."""
        header = unverified(data)
        self._asked = (header.study, Call.CLOSE)
        study, _ = self.party_folder.approved_study(header.study)
        payload = self.from_aggregator(study.id, header.session, data, Tag.CLOSE)
        self.told_heads(bytes(payload))
        if not self.party_folder.has_ended(study.id):
            self.party_folder.note_end(study.id)
            self.event_log.note("closed", study=study.name, model="the aggregator's folder")
        self.end(study)
        self._refusals.forget(study.id)
        return []

    def told_heads(self, payload: bytes) -> None:  # noqa: B027 (not all keep books)
        """What a CLOSE says of all ledgers, if anything."""

    def end(self, study: Study) -> None:
        """A study is over: no round follows in its sessions, and this party's people are told."""
        self._untold.pop(study.id, None)
        for session in self._sessions.values():
            if session.study.id == study.id:
                session.closed = True
                session.end()
        self._forget_older(study.id)
        self.log_of(study).state(state=DONE, why="")
        waits = WAITING if self.party_folder.unfinished() else DONE
        self.event_log.state(state=TRAINING if self.at_work else waits)

    def _forget_older(self, study: bytes) -> None:
        """A study is over: of those before, a few stay, as what was read for them fills the memory.

        They stay because an aggregator that has not heard the answer asks for the end again.
        """
        self._ended = [*(one for one in self._ended if one != study), study]
        while len(self._ended) > _MOST_ENDED:
            self._drop(self._ended.pop(0))

    def from_aggregator(
        self, study: bytes, session: bytes, data: bytes, tag: Tag
    ) -> bytes | memoryview:
        """The payload of a control message to everybody."""
        frame = parse(data, self.roster, study=study, session=session)
        if frame.tag is not tag or frame.sender != 0:
            raise ProtocolError(
                f"expected a {tag.name} of the aggregator, got another frame", culprit="relay"
            )
        return frame.payload

    def _proposed(self, parts: Sequence[bytes]) -> list[bytes]:
        """What this party's people say of a study, which nothing is done for before they have."""
        data = _one(parts)
        header = unverified(data)
        standing, news = received(self.party_folder, data, header)
        if news is not None:
            self.event_log.note("proposed", study=news.name, id=news.id.hex()[:16])
        payload = json.dumps(vars(standing)).encode()
        return [self._frame(header.session, header.study, Tag.PROPOSED, payload)]

    def _collected(self, call: Call, collection: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """The answer to a call of a sum that is open for weeks."""
        study = unverified(_one(parts[:1])).study
        self._asked = (study, call)
        if self._side is None:
            raise ProtocolError(f"expected a call that is known here, got {call.name}")
        answered = self._side.answer(call, collection, parts)
        self._refusals.answered(study, call)
        return answered

    def log_of(self, study: Study) -> StudyLog:
        """Where one of the studies stands, for this party's people."""
        if study.id not in self._logs:
            self._logs[study.id] = StudyLog.within(self.event_log, study.name, study.id)
        return self._logs[study.id]

    def _attempt_answered(self, state: SessionState) -> None:
        """Count it, and now and then tell this party's people, which takes a while."""
        self.event_log.answered()
        self._untold[state.study.id] = state
        self._tell_all()

    def _tell_all(self) -> None:
        """Tell this party's people of what they were not told, unless they were just now.

        A ledger that cannot be read costs no answer and ends no process: a charge is refused then.
        """
        if time.monotonic() - self._told > _TELL_EVERY:
            while self._untold:
                state = self._untold.popitem()[1]
                with suppress(HubbubError):
                    self._tell(state)

    @abstractmethod
    def _tell(self, state: SessionState) -> None:
        """Tell this party's people where a session's study stands."""

    def _check_approval(self, session: bytes) -> None:
        """Refuse where a session's study is approved no more: the session is over, for good."""
        study = self._study_of.get(session)
        if study is None or self.party_folder.approves(study):
            return
        self._forget(study)
        raise RefusedError(
            "not-approved",
            "expected a study that is still approved here with its roster, it was withdrawn or the "
            "roster replaced; approve it, or a new one, with the current roster",
        )

    def _forget(self, study: bytes) -> None:
        """End all sessions of a study, and what is known of its troubles."""
        self._revoked |= {one for one, its_study in self._study_of.items() if its_study == study}
        ended = [one for one in self._sessions.values() if one.study.id == study]
        self._drop(study)  # what is approved again is read again
        for one in ended:
            if not one.closed:  # else nothing was going on
                self.event_log.warn("revoked", study=one.study.name, purpose=one.offer.purpose)
                self.log_of(one.study).state(state=WITHDRAWN, why="")
                self.event_log.state(state=TRAINING if self.at_work else WAITING)
        self._refusals.forget(study)

    def _drop(self, study: bytes) -> None:
        """No round follows in any session of a study, and what was read for it is not kept."""
        for key in [key for key in self._sessions if key[0] == study]:
            self._leave(key)
        self._finished.pop(study, None)
        self._untold.pop(study, None)
        self._studies.pop(study, None)

    def _leave(self, key: tuple[bytes, str]) -> None:
        """No round follows in a session."""
        left = self._sessions.pop(key, None)
        if left is not None:
            left.end()

    def check_able(self, begins: Plan | None = None) -> None:  # noqa: B027 (not all keep books)
        """Whether this party could do its part now; raises if it knows that it could not.

        Args:
            begins: of a study of which a session is opened; none of one that goes on.
        """

    def _permit(self, study: Study) -> None:
        """A mask graph more may be drawn: so many are paid for (docs/privacy.md P4)."""
        if not is_sparse(study.parties):
            return
        try:
            drawn = self.party_folder.notes.draw_graph(study.id)
        except FruitlessError as error:
            raise RefusedError("graphs", str(error)) from None
        if not drawn:
            raise RefusedError(
                "failed",
                f"expected at most {MOST_GRAPHS} mask graphs for “{study.name}”, got one more; "
                "approve it under another name, if these were not drawn to find a weak one",
            )

    def _open(self, parts: Sequence[bytes]) -> list[bytes]:
        """Approved here? The same plan? Then a place is made for the session."""
        data = _one(parts)
        header = unverified(data)  # to look its study up; `parse` verifies it below
        study_id, session = header.study, header.session
        self._asked = (study_id, Call.OPEN)
        study, roster = self.party_folder.approved_study(study_id)
        frame = parse(data, roster, study=study_id, session=session)
        if frame.tag is not Tag.OPEN or frame.sender != 0 or frame.receiver != EVERYBODY:
            raise ProtocolError("expected an OPEN of the aggregator, got another", culprit="relay")
        # First: who keeps an offer that was refused has it looked at, and told of, only once. A
        # process does not forget its own sessions, though the note of them be gone.
        if session in self._study_of:
            raise ProtocolError("expected a new session, got an old one again", culprit="relay")
        # Of one before, nobody is to blame: its aggregator may ask again what was never answered.
        if self.known(study_id, session) or not self.party_folder.notes.open_session(session):
            raise RefusedError(
                "no-session",
                "expected a new session, got one that was opened before this process began; the "
                "aggregator sets a new one up",
            )
        self._study_of[session] = study_id
        offer = SessionOffer.read(frame.payload, roster.name(0))
        plan, planned = self.prepared(study, offer)
        round_parameters = round_parameters_of(planned)
        offer.check(round_parameters)
        self.check_able(plan)
        self._begun += 1
        channel = Channel(roster=roster, study=study_id, session=session)
        attested = self._attested(study, channel, offer)
        membership = Membership(
            keys=self.party_folder.keys,
            channel=channel,
            index=roster.parties.index(self.party_folder.keys.identity),
            round_parameters=round_parameters,
            layout=layout_of(plan),
            offer=bytes(frame.payload),
            source=self._source_of(self._begun),
            attested=attested,
            joint=joint_batches(planned.mechanism, study.data.counts),
            mask_stream=self._mask_stream,
        )
        party = self.party(study, offer, plan, planned, membership)
        state = SessionState(
            study=study, offer=offer, plan=plan, membership=membership, party=party
        )
        before = self._sessions.get((study_id, offer.purpose))
        if before is not None and before.party.agreed is None:
            self.log_of(study).state(state=WAITING, why=_IN_VAIN)
        self._leave((study_id, offer.purpose))
        self._sessions[study_id, offer.purpose] = state
        named = {"study": study.name, "purpose": offer.purpose, "session": session.hex()}
        self.event_log.note("session", **named)
        self._refusals.answered(study_id, Call.OPEN)
        return [self._ready(session, study), *state.party.take(Call.OPEN, [])()]

    def _waits_no_more(self, study: Study) -> None:
        """What a study waited for is there."""
        log = self.log_of(study)
        if log.current("why"):
            log.state(state=WAITING, why="")

    def _ready(self, session: bytes, study: Study, **said: str) -> bytes:
        """What this party tells of itself, as a session is opened and as its study ends."""
        payload = json.dumps({"version": VERSION, **self.ready(study), **said}).encode()
        return self._frame(session, study.id, Tag.READY, payload)

    def _attested(
        self, study: Study, channel: Channel, offer: SessionOffer
    ) -> AttestedSession | None:
        """The session in which evidence is shown, where the study asks for some."""
        if study.attestation is None:
            return None
        attester = self._attester or self.party_folder.attester
        attests = StudyAttestation(asked=study.attestation, attester=attester)
        return AttestedSession(**vars(channel), attests=attests, at=offer.at)

    def _frame(
        self, session: bytes, study: bytes, tag: Tag, payload: bytes, receiver: int = 0
    ) -> bytes:
        """A control message, to the aggregator if nobody else is named."""
        return Frame(
            tag=tag,
            study=study,
            session=session,
            sender=self.party_folder.index,
            receiver=receiver,
            payload=payload,
        ).sealed(self.party_folder.keys)

    def _refusal(self, request: bytes, refusal: Refusal) -> bytes:
        """Say no to one request in known words, and write down here what went wrong."""
        self.event_log.add(refusals=1)
        said, culprit = refusal.said, refusal.culprit
        self.event_log.warn("refused", why=refusal.why, culprit=culprit, said=said)
        if refusal.own and self._asked is not None:
            self._refusals.add(*self._asked, refusal.why, said)
        sender = EVERYBODY  # where its folder cannot be read any more
        with suppress(HubbubError):
            sender = self.party_folder.index
        return answer([refusal.sealed(request, self.party_folder.keys, sender)])


def _one(parts: Sequence[bytes]) -> bytes:
    if len(parts) != 1:
        raise ProtocolError(f"expected one frame, got {len(parts)}", culprit="relay")
    return parts[0]


# A compute node in networked studies: it holds keys and adds masks, once for each attempt.
#
# It needs no records and, where the study says how many parameters the model has, no torch.


class NodeEndpoint(Endpoint):
    """A compute node in networked studies; see `Endpoint`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._side = self.side()

    def prepared(self, study: Study, offer: SessionOffer) -> tuple[Plan, PlannedQuery[Query]]:
        """The plan, from public numbers alone."""
        if study.id not in self._studies:
            check_apart(study)
            self._studies[study.id] = plan(study)
        own: Plan = self._studies[study.id]
        if own.dimension is None:
            raise RefusedError(
                "failed",
                "expected a study that says how many parameters its model has, got one that needs "
                'records or code for it; state model.inputs, or use kind = "logistic" or "mlp"',
            )
        return own, planned_for(own, offer.purpose)

    def party(
        self,
        study: Study,
        _offer: SessionOffer,
        _plan: Plan,
        _planned: PlannedQuery[Query],
        membership: Membership,
    ) -> Party:
        """The node in a new session."""
        return NodeParty(membership, permit=partial(self._permit, study))

    def answer_to(self, state: SessionState, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """The answer to a call of an open session."""
        answered = state.party.take(call, parts)()
        if call is Call.TOTAL:
            self._attempt_answered(state)
        return answered

    def _tell(self, state: SessionState) -> None:
        """See `Endpoint`: a node cannot know that the next answer will be asked for."""
        self._told = time.monotonic()
        self.log_of(state.study).state(state=ANSWERED, last_progress=time.time())
