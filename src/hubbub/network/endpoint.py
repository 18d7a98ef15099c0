"""A party's side of a networked study: every request becomes an answer, and nothing else happens.

Theory of operation. A seat trusts its own folder and its own installation. The study that a session
is opened for is looked up among those approved here; everything that follows is checked by the
party's own state machines (`Agreement`, `Silo`, `ComputeNode`), the same as in one process. So
whoever carries the requests can delay them or lose them, not more. One request is answered at a
time. An error becomes a refusal of a few known words; its sentence stays in this party's journal.
"""

from __future__ import annotations

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hubbub.errors import BudgetError, HubbubError, IntegrityError, ProtocolError
from hubbub.network.envelope import NO_SESSION, Call, VersionError, answer, read_request
from hubbub.network.event_log import EventLog
from hubbub.network.party_folder import MOST_GRAPHS, PartyFolder
from hubbub.planning import Plan, is_sparse
from hubbub.planning import plan as plan_study
from hubbub.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.protocol.agreement.key_agreement import Agreement, Session
from hubbub.protocol.identity import Roster
from hubbub.protocol.randomness import SecureSource
from hubbub.protocol.round import RoundParameters
from hubbub.protocol.wire import EVERYBODY, Frame, Tag, parse, unverified
from hubbub.session.in_process import layout_of
from hubbub.session.layout import Layout
from hubbub.session.session_offer import RefusedError, SessionOffer, context_of
from hubbub.study import Study
from hubbub.version import VERSION

# A party's randomness in its n-th session of a study; tests choose it, nobody else does.
Draw = Callable[[int], SecureSource]


@dataclass(kw_only=True)
class Sitting:
    """One session at one seat, from its opening on."""

    study: Study
    session: bytes
    opening: SessionOffer
    payload: bytes = field(repr=False)
    plan: Plan = field(repr=False)
    terms: RoundParameters
    source: SecureSource = field(repr=False)
    seeds: JointSeed | None = field(default=None, repr=False)
    check: SeedCheck | None = field(default=None, repr=False)
    begun: bool = False
    agreement: Agreement | None = field(default=None, repr=False)
    agreed: Session | None = field(default=None, repr=False)

    @property
    def agreeing(self) -> Agreement:
        """The set-up that was begun.

        Raises:
            RefusedError: none was, or it is over.
        """
        if self.agreement is None:
            raise RefusedError("no-session", "expected a set-up that was begun, got a later call")
        return self.agreement


# From a session and the parts of a request to those of the answer.
Handler = Callable[[Sitting, Sequence[bytes]], list[bytes]]


class Endpoint(ABC):
    """One party's side.

    Args:
        site: the party's own folder.
        journal: where it writes what happens.
        draw: its randomness; the operating system's if None.
    """

    def __init__(self, site: PartyFolder, event_log: EventLog, draw: Draw | None = None) -> None:
        self.site, self.event_log = site, event_log
        self._draw = draw or (lambda _: SecureSource())
        self._lock = threading.Lock()
        self._sittings: dict[tuple[bytes, str], Sitting] = {}  # the newest of study and purpose
        self._begun = 0  # sessions, since this party was started
        self._calls: Mapping[Call, Handler] = {
            Call.COMMIT: self._commit,
            Call.REVEAL: self._reveal,
            Call.CONTRIBUTE: self._contribute,
            Call.CONFIRM: self._confirm,
            Call.FINISH: self._finish,
            **self.rounds(),
        }

    @property
    def roster(self) -> Roster:
        """Everybody, as this party's own folder says."""
        return self.site.roster

    def answer(self, request: bytes) -> bytes:
        """What this party says to a request; never an exception."""
        with self._lock:
            try:
                call, session, parts = read_request(request)
                return answer(self._answered(call, session, parts))
            except VersionError as error:
                return self._refusal(request, "version", error)
            except ProtocolError as error:
                return self._refusal(request, "protocol", error, error.culprit)
            except RefusedError as error:
                return self._refusal(request, error.why, error, error.culprit)
            except BudgetError as error:
                return self._refusal(request, "budget", error)
            except IntegrityError as error:
                return self._refusal(request, "ledger", error)
            except HubbubError as error:
                return self._refusal(request, "failed", error)
            except Exception as error:  # noqa: BLE001 (a party that raises would not be heard again)
                return self._refusal(request, "failed", type(error).__name__)

    @abstractmethod
    def rounds(self) -> Mapping[Call, Handler]:
        """What the party does in rounds."""

    def known(self, _study: bytes, _session: bytes) -> bool:
        """Whether what the party has on disk shows that it took part in a session before."""
        return False

    @abstractmethod
    def prepared(self, study: Study, opening: SessionOffer) -> tuple[Plan, RoundParameters]:
        """The party's own plan and terms for what a session is opened for."""

    @abstractmethod
    def seated(self, sitting: Sitting, agreed: Session) -> None:
        """The session is set up; rounds may come."""

    def close(self) -> None:  # noqa: B027 (not every party has something open)
        """Leave the seat; what is open on disk is closed."""

    def ready(self, sitting: Sitting) -> dict[str, Any]:
        """What else the aggregator is told when a session is opened."""
        return {}

    def _answered(self, call: Call, session: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """The parts of the answer."""
        if call is Call.OPEN:
            return self._open(parts)
        found = [one for one in self._sittings.values() if one.session == session]
        if call is Call.PING:  # for the relay's eyes too: nothing rests on it
            return [self._frame(found[0], Tag.READY, b"")] if found and found[0].agreed else []
        if call not in self._calls:
            raise ProtocolError(
                f"expected no {call.name} at a {self.site.role}, got one", culprit="relay"
            )
        if not found:
            raise RefusedError(
                "no-session",
                f"expected a session that was opened here, got {call.name} of another; after a "
                "restart the aggregator sets a new one up",
            )
        if not self.site.approves(found[0].study.id):
            raise RefusedError(
                "not-approved", "expected a study that is still approved here, it was withdrawn"
            )
        return self._calls[call](found[0], parts)

    def _open(self, parts: Sequence[bytes]) -> list[bytes]:
        """Approved here? The same plan? Then a place is made for the session."""
        data = _one(parts)
        told = unverified(data)
        study_id, session = told.study, told.session
        study = self.site.study(study_id)
        if study is None:
            raise RefusedError(
                "not-approved",
                f"expected an approved study, got {study_id.hex()[:16]}; approve it with hubbub "
                "approve, if it shall run",
            )
        frame = parse(data, self.roster, study=study_id, session=session)
        if frame.tag is not Tag.OPEN or frame.sender != 0 or frame.receiver != EVERYBODY:
            raise ProtocolError("expected an OPEN of the aggregator, got another", culprit="relay")
        opening = SessionOffer.read(frame.payload, self.roster.name(0))
        plan, terms = self.prepared(study, opening)
        opening.check(terms)
        if self.known(study_id, session) or not self.site.open_session(session):
            raise ProtocolError("expected a new session, got an old one again", culprit="relay")
        self._begun += 1
        sitting = Sitting(
            study=study,
            session=session,
            opening=opening,
            payload=bytes(frame.payload),
            plan=plan,
            terms=terms,
            source=self._draw(self._begun),
        )
        self._sittings[study_id, opening.purpose] = sitting
        anchors = self._chains(sitting) if terms.joint else []
        said = {"version": VERSION, **self.ready(sitting)}
        self.event_log.note("session", study=study.name, purpose=opening.purpose)
        return [self._frame(sitting, Tag.READY, json.dumps(said).encode()), *anchors]

    def _chains(self, sitting: Sitting) -> list[bytes]:
        """This party's part of the joint seeds: a silo's anchor, or only a check of the others'."""
        common: dict[str, Any] = {
            "roster": self.roster,
            "study": sitting.study.id,
            "session": sitting.session,
            "steps": sitting.terms.steps,
            "attempts": sitting.terms.attempts,
        }
        if self.site.role != "silo":
            sitting.check = SeedCheck(**common)
            return []
        sitting.seeds = JointSeed(
            keys=self.site.keys, index=self.site.index, source=sitting.source, **common
        )
        return [sitting.seeds.anchor()]

    def _agreement(self, sitting: Sitting, anchors: Sequence[bytes]) -> Agreement:
        """This party's side of the set-up, begun with the anchors that everybody was shown.

        Once in a session: a relay that could begin it again could have old models answered again.
        """
        if sitting.begun:
            raise ProtocolError(
                "expected one set-up in a session, got a second; open a new one", culprit="relay"
            )
        sitting.begun = True
        checker, seen = sitting.seeds or sitting.check, b""
        if checker is not None:
            seen = checker.learn_anchors(anchors)
        elif anchors:
            raise ProtocolError("expected no anchors in this study, got some", culprit="relay")
        layout = layout_of(sitting.plan)
        sitting.agreement = Agreement(
            keys=self.site.keys,
            roster=self.roster,
            index=self.site.index,
            study=sitting.study.id,
            session=sitting.session,
            neighbours=partial(layout.neighbours, self.site.index),
            witnesses=witnesses_of(layout, self.roster, sitting.terms, self.site.index),
            source=sitting.source,
            context=context_of(sitting.payload, seen),
        )
        return sitting.agreement

    def _commit(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        return [self._agreement(sitting, parts).commit()]

    def _reveal(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        """This party's part of the seed, from which on the aggregator may know the mask graph."""
        agreement, study = sitting.agreeing, sitting.study
        if is_sparse(study) and not self.site.draw_graph(study.id):
            raise RefusedError(
                "failed",
                f"expected at most {MOST_GRAPHS} mask graphs for “{study.name}”, got one more; "
                "approve it under another name, if these were not drawn to find a weak one",
            )
        return [agreement.reveal(parts)]

    def _contribute(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        """With pairwise masks the seed comes first; with nodes the set-up begins here."""
        if self.roster.nodes:
            return list(self._agreement(sitting, parts).contribute().values())
        sitting.agreeing.learn_seed(parts)
        return list(sitting.agreeing.contribute().values())

    def _confirm(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        if not parts:
            raise ProtocolError("expected the digests of what was sent, got none", culprit="relay")
        confirm, checks = sitting.agreeing.confirm(parts[1:], parts[0])
        return [confirm, *checks.values()]

    def _finish(self, sitting: Sitting, parts: Sequence[bytes]) -> list[bytes]:
        confirms = [one for one in parts if unverified(one).tag is Tag.CONFIRM]
        checks = [one for one in parts if unverified(one).tag is not Tag.CONFIRM]
        sitting.agreed = sitting.agreeing.finish(confirms, checks)
        sitting.agreement = None
        self.seated(sitting, sitting.agreed)
        return []

    def _frame(self, sitting: Sitting, tag: Tag, payload: bytes) -> bytes:
        """A control message to the aggregator."""
        return Frame(
            tag=tag,
            study=sitting.study.id,
            session=sitting.session,
            sender=self.site.index,
            receiver=0,
            payload=payload,
        ).sealed(self.site.keys)

    def _refusal(self, request: bytes, why: str, error: object, culprit: str = "") -> bytes:
        """Say no to one request in known words, and write down here what went wrong."""
        self.event_log.warn("refused", why=why, culprit=culprit, said=str(error))
        to = hashlib.sha256(request).hexdigest()
        said = json.dumps({"why": why, "culprit": culprit, "to": to}).encode()
        frame = Frame(
            tag=Tag.REFUSAL,
            study=bytes(32),
            session=NO_SESSION,
            sender=self._index_or_last(),
            receiver=0,
            payload=said,
        ).sealed(self.site.keys)
        return answer([frame])

    def _index_or_last(self) -> int:
        """The party's place, also where its folder cannot be read any more."""
        try:
            return self.site.index
        except HubbubError:
            return EVERYBODY


def witnesses_of(
    layout: Layout, roster: Roster, terms: RoundParameters, index: int
) -> Sequence[int]:
    """Who confirms besides the neighbours: all silos to each, where they draw together."""
    comparing = not layout.nodes or terms.joint
    return roster.silos if comparing and index in roster.silos else ()


def planned(study: Study, dimension: int | None = None) -> Plan:
    """The plan of a study that this version can run apart.

    Raises:
        RefusedError: it cannot.
    """
    if study.parties.trust != "none":
        raise RefusedError(
            "failed",
            'expected trust = "none" where the parties run apart, got another study; change it',
        )
    if study.training.sampling == "without-replacement" and not study.data.counts:
        raise RefusedError(
            "failed",
            'expected data.counts with sampling = "without-replacement" where the parties run '
            "apart, got none; state how many records each silo has",
        )
    return plan_study(study, dimension=dimension)


def _one(parts: Sequence[bytes]) -> bytes:
    if len(parts) != 1:
        raise ProtocolError(f"expected one frame, got {len(parts)}", culprit="relay")
    return parts[0]
