"""One party in one session: what it is asked becomes what it answers, and nothing else happens.

Theory of operation. A party trusts its own plan and nothing that it is asked. Every call is checked
by its own state machines (`Agreement`, `Silo`, `ComputeNode`, `Mixer`), the same in one process and
among machines; so whoever carries the calls can delay or lose them, not more.

A call is taken at once and done later: `take` checks it, and has the charge of an attempt written
down; the work that it returns makes the answer, perhaps on another thread. No disk and no clock is
known here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.planning.projections import transform_of
from hubbub.core.protocol.agreement.joint_seed import JointSeed, SeedCheck
from hubbub.core.protocol.agreement.key_agreement import Agreement, RollCall, Session
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel, Tag, tag_of
from hubbub.core.protocol.round.additive_shares import ShareNode, Sharing
from hubbub.core.protocol.round.compute_node import ComputeNode
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.masking import Attempt, Masking
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.round.silo import Charge, Silo
from hubbub.core.session.ask import Call
from hubbub.core.session.attestation_exchange import AttestationExchange, AttestedSession
from hubbub.core.session.joint_batches import MAKING, JointBatches
from hubbub.core.session.offer import Layout, RefusedError, confirmers_of, context_of, roll_leads

# Makes the frames of an answer.
Work = Callable[[], list[bytes]]
Handler = Callable[[Sequence[bytes]], Work]
# Called before a party's share of the seed is shown, from which the mask graph follows.
Permit = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A party in a session.

    Args:
        index: the party's place in the roster.
        round_parameters: the numbers of the rounds, from the party's own plan.
        offer: the payload of the OPEN by which the session was offered.
        attested: evidence that the study asks for; None where it asks for none.
        joint: how all silos draw together; None where each draws alone.
        mask_stream: how masks are added (on how many threads); changes speed only.
    """

    keys: Keys = field(repr=False)
    channel: Channel
    index: int
    round_parameters: RoundParameters
    layout: Layout
    offer: bytes = field(repr=False)
    source: SecureSource = field(repr=False)
    attested: AttestedSession | None = None
    joint: JointBatches | None = None
    mask_stream: MaskStream = field(default_factory=MaskStream, repr=False)

    @property
    def roster(self) -> Roster:
        """Everybody."""
        return self.channel.roster


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
            membership.channel,
            quorum=membership.round_parameters.quorum,
            index=membership.index,
        )
        self._agreement: Agreement | None = None
        self._seeds: JointSeed | SeedCheck | None = self._seed_check()
        self._attestation: AttestationExchange | None = None
        me = membership
        if me.attested is not None:  # the study asks for evidence
            self._attestation = AttestationExchange(me.attested, me.keys, me.index, me.source)
        self.agreed: Session | None = None

    def take(self, call: Call, parts: Sequence[bytes]) -> Work:
        """Take a call, in the order of the protocol; the work that it leaves makes the answer.

        Raises:
            ProtocolError: naming who broke the protocol.
            RefusedError: it is not this party's business now.
            BudgetError, IntegrityError: its ledger refuses.
        """
        if call in self._setup:
            # P29, rule 1: before this party shows evidence, commits or contributes it takes the
            # ROLL, which leads one of these calls.
            if call is roll_leads(self._me.roster, attested=self._attestation is not None):
                if not parts:
                    raise ProtocolError("expected a ROLL first, got nothing", culprit="relay")
                self._roll_call.take(parts[0])
                parts = parts[1:]
            answer = self._setup[call](self, parts)
            return lambda: answer
        handler = self._round_calls().get(call)
        if handler is None:
            role = self._me.roster.parties[self._me.index].role
            raise ProtocolError(f"expected no {call.name} at a {role}, got one", culprit="relay")
        # Until all have confirmed, parties may have been shown different things.
        if self.agreed is None:
            raise RefusedError(
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
            return me.round_parameters.seed_check(me.channel)
        return JointSeed(
            keys=me.keys,
            channel=me.channel,
            index=me.index,
            steps=me.round_parameters.steps,
            attempts=me.round_parameters.attempts,
            source=me.source,
        )

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
        """This party's side of the set-up, begun with the anchors that everybody was shown."""
        # A relay that could begin it again could have old models answered again.
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
        # Offer, ROLL, anchors and evidence go into the transcript, and that into every mask key:
        # who was shown others has no mask in common with this party.
        self._agreement = Agreement(
            keys=me.keys,
            channel=me.channel,
            index=me.index,
            roll=roll,
            neighbours_of=partial(me.layout.neighbours, me.index, present=roll.silos),
            extra_confirmers=confirmers_of(
                me.layout, me.roster, me.round_parameters, me.index, roll.silos
            ),
            source=me.source,
            context=context_of(me.offer, roll.digest, seen),
        )
        return self._agreement

    @property
    def _running_agreement(self) -> Agreement:
        """The set-up that was begun."""
        if self._agreement is None:
            raise RefusedError("no-session", "expected a set-up that was begun, got a later call")
        return self._agreement

    def _commit(self, parts: Sequence[bytes]) -> list[bytes]:
        return [self._begin(parts).commit()]

    def _reveal(self, parts: Sequence[bytes]) -> list[bytes]:
        """This party's part of the seed, from which on the aggregator may know the mask graph."""
        agreement = self._running_agreement
        # P4: a graph is counted before it can be drawn: perhaps too many are, never too few.
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


class NodeParty(Party):
    """A compute node in one session: it holds keys and adds masks, once for each attempt."""

    def __init__(self, membership: Membership, permit: Permit = lambda: None) -> None:
        super().__init__(membership, permit)
        self.node: ComputeNode | None = None

    def _round_calls(self) -> Mapping[Call, Handler]:
        return {
            Call.SHARES: self._shares,
            Call.PROMISE: self._promise,
            Call.TOTAL: self._total,
        }

    def _begin_rounds(self, agreed: Session) -> None:
        me = self._me
        node_of = ShareNode if me.round_parameters.full_shares else ComputeNode
        self.node = node_of(
            keys=me.keys,
            roster=me.roster,
            round_parameters=me.round_parameters,
            session=agreed,
            mask_stream=me.mask_stream,
        )

    @property
    def _ready_node(self) -> ComputeNode:
        assert self.node is not None, "the session is set up"  # noqa: S101
        return self.node

    def _shares(self, parts: Sequence[bytes]) -> Work:
        """What the silos have sent for this node, with full shares; no total is made of it yet."""
        node = self._ready_node
        if not parts:
            raise ProtocolError("expected an ARRIVED, got nothing", culprit="relay")
        for share in parts[1:]:
            node.keep(share)
        return lambda: [node.held(parts[0])]

    def _promise(self, parts: Sequence[bytes]) -> Work:
        """The word that a total is told of the silos of a REQUEST, and of no others."""
        node = self._ready_node
        if len(parts) != 1:
            raise ProtocolError(f"expected one REQUEST, got {len(parts)} frames", culprit="relay")
        return lambda: [node.promise(parts[0])]

    def _total(self, parts: Sequence[bytes]) -> Work:
        """The total of what those silos share with this node, once all nodes have promised it."""
        node = self._ready_node
        return lambda: [node.total(parts)]


# A silo in one session. This is the one place where an answer is charged before it exists
# (docs/privacy.md P15): the charge of an attempt is written down when its MODEL is taken, and the
# work that is left makes the answer.
#
# Of a silo there are three: `SiloParty` here keeps the order and the charge; `Silo` draws the
# batch, sums, adds noise; its `Masking` checks a model and masks. Among machines a `SiloEndpoint`
# carries the calls.

# Writes the charge of an attempt down, durably, or raises.
Record = Callable[[Session, Charge], None]


class SiloParty(Party):
    """A silo in one session.

    Args:
        membership, permit: see `Party`.
        task: gives the silo's records, once the session is set up.
        check: see `Silo`.
        record: see `Record`; nothing is written down if None.
    """

    def __init__(
        self,
        membership: Membership,
        task: Callable[[], LocalTask],
        *,
        check: Callable[[Attempt], None] = lambda _: None,
        record: Record | None = None,
        permit: Permit = lambda: None,
    ) -> None:
        super().__init__(membership, permit)
        self._task, self._check, self._record = task, check, record
        me = membership
        self._lists = (
            me.joint.at_silo(me.keys, me.index, me.channel, me.round_parameters)
            if me.joint
            else None
        )
        self._paid_epoch = -1  # the last one, where a row pays for an epoch of noise
        self.silo: Silo | None = None

    def _round_calls(self) -> Mapping[Call, Handler]:
        making = {call: partial(self._answer_list_call, call) for call in MAKING}
        return {Call.MODEL: self._model, Call.SEED: self._seed, **making}

    def _begin_rounds(self, agreed: Session) -> None:
        me = self._me
        is_full = me.round_parameters.full_shares
        masking_of = partial(Sharing, source=me.source) if is_full else Masking
        masking = masking_of(
            keys=me.keys,
            roster=me.roster,
            round_parameters=me.round_parameters,
            session=agreed,
            mask_stream=me.mask_stream,
        )
        self.silo = Silo(
            round_parameters=me.round_parameters,
            task=self._task(),
            masking=masking,
            source=me.source,
            seeds=self._seeds if isinstance(self._seeds, JointSeed) else None,
            check=self._check,
            batches=self._lists.batches if self._lists else None,
            transform=transform_of(me.round_parameters),
        )

    def _model(self, parts: Sequence[bytes]) -> Work:
        """A new attempt: checked, charged, and answered, or its part of the joint seed revealed."""
        silo = self._ready_silo
        if len(parts) != 1:
            raise ProtocolError(f"expected one MODEL, got {len(parts)} frames", culprit="relay")
        # P9: which places an attempt draws from is fixed before its MODEL is accepted.
        if self._lists is not None:
            self._lists.prepare(parts[0], is_open=silo.is_open)
        # P15: what it costs is on disk before anything of the answer exists, its link included.
        charge = silo.accept(parts[0])
        self._charge(silo, charge)
        return self._link if self._me.round_parameters.needs_joint_seed else self._answer

    def _charge(self, silo: Silo, charge: Charge) -> None:
        """P15: in the ledger before the answer exists."""
        agreed = self.agreed
        assert agreed is not None, "the session is set up"  # noqa: S101
        try:
            # Where every record takes part once in an epoch, the row of its first attempt pays for
            # it (P9); so it does where a record may take part in one of so many attempts alone
            # (P25).
            if self._record is not None and not self._is_paid_already(charge):
                self._record(agreed, charge)
        except HubbubError:
            # The MODEL was accepted: no later call must have it answered unpaid.
            silo.decline()
            raise
        if charge.row:
            # P25: only now: an epoch whose row was refused is charged when it is asked for again.
            self._paid_epoch = self._epoch_of(charge)
        # P9 (e): its part of the list is used up now, answered or not.
        if self._lists is not None:
            self._lists.use(charge.round)

    def _is_paid_already(self, charge: Charge) -> bool:
        """Whether an earlier row pays for this attempt: its list's (P9), or its epoch's (P25)."""
        if charge.row:
            return self._epoch_of(charge) == self._paid_epoch
        return self._lists is not None and self._lists.is_paid

    def _epoch_of(self, charge: Charge) -> int:
        """Of noise that goes on: as many of its rows as a record has a part in once (P25)."""
        return (charge.row - 1) // self._me.round_parameters.noise_epoch

    def _seed(self, parts: Sequence[bytes]) -> Work:
        """The links of all active silos: now the batch or the projection is fixed."""
        self._ready_silo.learn_seed(parts)
        return self._answer

    def _link(self) -> list[bytes]:
        return [self._ready_silo.reveal()]

    def _answer(self) -> list[bytes]:
        silo = self._ready_silo
        return [silo.contribute(), *silo.shares().values()]

    def forget(self) -> None:
        """No round follows."""
        if self.silo is not None:
            self.silo.forget()

    def _answer_list_call(self, call: Call, parts: Sequence[bytes]) -> Work:
        """A phase in the making of a shuffled token list."""
        lists = self._lists
        if lists is None:
            raise ProtocolError(
                f"expected no {call.name} in a session without joint batches, got one",
                culprit="relay",
            )
        return lambda: lists.answer(call, parts)

    @property
    def _ready_silo(self) -> Silo:
        assert self.silo is not None, "the session is set up"  # noqa: S101
        return self.silo
