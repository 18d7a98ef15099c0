"""One party in one session: what it is asked becomes what it answers, and nothing else happens.

Theory of operation. A party trusts its own plan and nothing that it is asked. Every call is checked
by its own state machines (`Agreement`, `Silo`, `ComputeNode`, `Mixer`), the same in one process and
among machines; so whoever carries the calls can delay or lose them, not more.

A call is taken at once and done later: `take` checks it, and has the charge of an attempt written
down (`silo_party.py`); the work that it returns makes the answer, perhaps on another thread. This
file knows no disk and no clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.core.protocol.agreement.key_agreement import Agreement, Session
from hubbub.core.protocol.agreement.mask_stream import MaskStream
from hubbub.core.protocol.agreement.roll_call import RollCall
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Tag, tag_of
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session import session_offer
from hubbub.core.session.ask import Call
from hubbub.core.session.attestation_exchange import AttestationExchange, AttestedSession
from hubbub.core.session.layout import Layout, confirmers_of, roll_leads

# Makes the frames of an answer.
Work = Callable[[], list[bytes]]
Handler = Callable[[Sequence[bytes]], Work]
# Called before a party's share of the seed is shown, from which the mask graph follows.
Permit = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A party in a session.

    Args:
        keys: the party's own.
        roster: everybody.
        index: the party's place in it.
        study: the study id.
        session: its name.
        round_parameters: the numbers of the rounds, from the party's own plan.
        layout: who shares masks with whom.
        offer: the payload of the OPEN by which the session was offered.
        source: the party's randomness.
        attested: evidence that the study asks for; None where it asks for none.
        mask_stream: how masks are added (on how many threads); changes speed only.
    """

    keys: Keys = field(repr=False)
    roster: Roster
    index: int
    study: bytes
    session: bytes
    round_parameters: RoundParameters
    layout: Layout
    offer: bytes = field(repr=False)
    source: SecureSource = field(repr=False)
    attested: AttestedSession | None = None
    mask_stream: MaskStream = field(default_factory=MaskStream, repr=False)


class Party(ABC):
    """One party in one session.

    Args:
        membership: who it is, and in which session.
        permit: see `Permit`; nobody is asked if None.
    """

    def __init__(self, membership: Membership, permit: Permit = lambda: None) -> None:
        self._me, self._permit = membership, permit
        self._begun = False
        self._roll_call = RollCall(
            roster=membership.roster,
            study=membership.study,
            session=membership.session,
            quorum=membership.round_parameters.quorum,
            index=membership.index,
        )
        self._agreement: Agreement | None = None
        self._seeds: JointSeed | SeedCheck | None = self._seed_check()
        self._attestation: AttestationExchange | None = self._attestation_exchange()
        self.agreed: Session | None = None

    def take(self, call: Call, parts: Sequence[bytes]) -> Work:
        """Take a call, in the order of the protocol; the work that it leaves makes the answer.

        Raises:
            ProtocolError: naming who broke the protocol.
            RefusedError: it is not this party's business now.
            BudgetError, IntegrityError: its ledger refuses.
        """
        if call in self._setup:
            if call is roll_leads(self._me.roster, attested=self._attestation is not None):
                parts = self._rolled(parts)
            answer = self._setup[call](self, parts)
            return lambda: answer
        handler = self._round_calls().get(call)
        if handler is None:
            role = self._me.roster.parties[self._me.index].role
            raise ProtocolError(f"expected no {call.name} at a {role}, got one", culprit="relay")
        if self.agreed is None:
            raise session_offer.RefusedError(
                "no-session", f"expected a session that is set up, got {call.name} before its end"
            )
        return handler(parts)

    @abstractmethod
    def _round_calls(self) -> Mapping[Call, Handler]:
        """What the party does in rounds."""

    @abstractmethod
    def _begin_rounds(self, agreed: Session) -> None:
        """The session is set up; rounds may come."""

    # Set-up ------------------------------------------------------------------------------------

    def _seed_check(self) -> JointSeed | SeedCheck | None:
        """This party's part of the joint seeds: a silo's chain, or only a check of the others'."""
        me = self._me
        if not me.round_parameters.needs_joint_seed:
            return None
        if me.index not in me.roster.silos:
            return me.round_parameters.seed_check(me.roster, me.study, me.session)
        return JointSeed(
            keys=me.keys,
            roster=me.roster,
            index=me.index,
            study=me.study,
            session=me.session,
            steps=me.round_parameters.steps,
            attempts=me.round_parameters.attempts,
            source=me.source,
        )

    def _rolled(self, parts: Sequence[bytes]) -> Sequence[bytes]:
        """The parts of the call that a ROLL leads, without it, which is taken."""
        if not parts:
            raise ProtocolError("expected a ROLL first, got nothing", culprit="relay")
        self._roll_call.take(parts[0])
        return parts[1:]

    def _attestation_exchange(self) -> AttestationExchange | None:
        """This party's part in showing and checking evidence, where the study asks for it."""
        me = self._me
        if me.attested is None:
            return None
        return AttestationExchange(me.attested, me.keys, me.index, me.source)

    def _open(self, _parts: Sequence[bytes]) -> list[bytes]:
        """The commitment to this silo's links, where all draw together, and its nonce."""
        anchors = [self._seeds.anchor()] if isinstance(self._seeds, JointSeed) else []
        if self._attestation is None:
            return anchors
        self._attestation.check_time()
        return [*anchors, *self._attestation.nonce()]

    @property
    def _asked_evidence(self) -> AttestationExchange:
        """The exchange of evidence, which nobody begins in a study that asks for none."""
        if self._attestation is None:
            raise ProtocolError("expected no call for evidence in this study", culprit="relay")
        return self._attestation

    def _attest(self, parts: Sequence[bytes]) -> list[bytes]:
        """This party's evidence, over everybody's nonces."""
        return self._asked_evidence.attest(parts, self._roll_call.roll.silos)

    def _check_evidence(self, parts: Sequence[bytes]) -> list[bytes]:
        """Everybody's evidence: nothing is told to others before it holds."""
        self._asked_evidence.check(parts)
        return []

    def _begin(self, anchors: Sequence[bytes]) -> Agreement:
        """This party's side of the set-up, begun with the anchors that everybody was shown.

        Once in a session: a relay that could begin it again could have old models answered again.
        """
        if self._begun:
            raise ProtocolError(
                "expected one set-up in a session, got a second; open a new one", culprit="relay"
            )
        self._begun, seen, me, roll = True, b"", self._me, self._roll_call.roll
        if self._seeds is not None:
            seen = self._seeds.learn_anchors(anchors, roll.silos)
        elif anchors:
            raise ProtocolError("expected no anchors in this study, got some", culprit="relay")
        if self._attestation is not None:
            seen += self._attestation.context  # refused before it was checked
        self._agreement = Agreement(
            keys=me.keys,
            roster=me.roster,
            index=me.index,
            study=me.study,
            session=me.session,
            roll=roll,
            neighbours_of=partial(me.layout.neighbours, me.index, present=roll.silos),
            extra_confirmers=confirmers_of(
                me.layout, me.roster, me.round_parameters, me.index, roll.silos
            ),
            source=me.source,
            context=session_offer.context_of(me.offer, roll.digest, seen),
        )
        return self._agreement

    @property
    def _running_agreement(self) -> Agreement:
        """The set-up that was begun."""
        if self._agreement is None:
            raise session_offer.RefusedError(
                "no-session", "expected a set-up that was begun, got a later call"
            )
        return self._agreement

    def _commit(self, parts: Sequence[bytes]) -> list[bytes]:
        return [self._begin(parts).commit()]

    def _reveal(self, parts: Sequence[bytes]) -> list[bytes]:
        """This party's part of the seed, from which on the aggregator may know the mask graph."""
        agreement = self._running_agreement
        self._permit()
        return [agreement.reveal(parts)]

    def _contribute(self, parts: Sequence[bytes]) -> list[bytes]:
        """With pairwise masks the seed comes first; with nodes the set-up begins here."""
        if self._me.roster.nodes:
            return list(self._begin(parts).contribute().values())
        self._running_agreement.learn_seed(parts)
        return list(self._running_agreement.contribute().values())

    def _confirm(self, parts: Sequence[bytes]) -> list[bytes]:
        if not parts:
            raise ProtocolError("expected the digests of what was sent, got none", culprit="relay")
        confirm, checks = self._running_agreement.confirm(parts[1:], parts[0])
        return [confirm, *checks.values()]

    def _finish(self, parts: Sequence[bytes]) -> list[bytes]:
        confirms = [part for part in parts if tag_of(part) == Tag.CONFIRM]
        checks = [part for part in parts if tag_of(part) != Tag.CONFIRM]
        agreed = self._running_agreement.finish(confirms, checks)
        hashes = self._attestation.hashes if self._attestation else None
        self.agreed = replace(agreed, attested=hashes) if hashes else agreed
        self._agreement = None
        self._begin_rounds(self.agreed)
        return []

    _setup: Mapping[Call, Callable[[Party, Sequence[bytes]], list[bytes]]] = {
        Call.OPEN: _open,
        Call.ATTEST: _attest,
        Call.EVIDENCE: _check_evidence,
        Call.COMMIT: _commit,
        Call.REVEAL: _reveal,
        Call.CONTRIBUTE: _contribute,
        Call.CONFIRM: _confirm,
        Call.FINISH: _finish,
    }
