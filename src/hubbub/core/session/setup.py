"""The set-up of a session, once: joint randomness, secrets, and that all saw the same.

What each party does with what it is asked is in `protocol/agreement/key_agreement.py` and
`party.py`. What the aggregator learns is public, and what it passes on is checked by whom it is
passed to.

    OPEN         the study, the session, its numbers      ->  a silo's commitment to its links, and
                                                              its nonce where evidence is asked for
    ROLL         which silos are there; it leads the next call, to them and the nodes
    ATTEST, EVIDENCE   where the study asks for evidence: see `attestation_exchange.py`
    COMMIT       all commitments                          ->  the hash of a share of the seed
    REVEAL       all hashes                               ->  the share: the seed draws the graph
    CONTRIBUTE   all shares                               ->  a sealed secret for each neighbour
    CONFIRM      digests of all, the secrets for one      ->  the transcript's hash, and proofs
    FINISH       hashes and proofs for one                ->  nothing: rounds may come

With compute nodes there is no graph to draw, and CONTRIBUTE comes at once. Whoever fails before the
ROLL is left out, as long as enough silos are left (docs/privacy.md P29); after it, the try is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.protocol.agreement.joint_seed import SeedCheck
from hubbub.core.protocol.agreement.key_agreement import Roll, called, sent_digests
from hubbub.core.protocol.agreement.set_up_check import SetUpCheck, payload_of
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.message_sizes import SESSION_BYTES
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.primitives.wire import Channel, Tag, receiver_of, tag_of
from hubbub.core.protocol.round.aggregator import Aggregator
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session import rounds
from hubbub.core.session.ask import Absent, AbsentError, Attendance, Call, Peers
from hubbub.core.session.attestation_exchange import AttestedSession, Attests, digest_of
from hubbub.core.session.joint_batches import JointBatches
from hubbub.core.session.offer import (
    Layout,
    SessionOffer,
    confirmers_of,
    context_of,
    offer_frame,
    roll_leads,
)

# What the aggregator has heard in a set-up, and from it who has spoilt one that failed.

_ACCUSING = ("protocol", "garbled", "evidence-")  # what the reasons begin with that blame others


def broken(index: int, frames: Mapping[Tag, bytes], channel: Channel) -> Absent | None:
    """Why nobody would believe a party's frames of 32 bytes to everybody; None if all will."""
    try:
        for tag, frame in frames.items():
            payload_of(channel, frame, tag, index)
    except ProtocolError as error:
        return Absent(why="garbled", said=str(error), culprit=error.culprit)
    return None


def by_receiver(frames: Sequence[bytes]) -> dict[int, bytes]:
    """Frames by whom they say they are for; who gets one checks it."""
    return {receiver_of(frame): frame for frame in frames}


def delivered(
    sent: Mapping[int, Mapping[int, bytes]], everybody: Sequence[int]
) -> dict[int, list[bytes]]:
    """From what each party sends to whom, to what each party receives."""
    inbox = {index: list[bytes]() for index in everybody}
    for frames in sent.values():
        for receiver, frame in frames.items():
            inbox.setdefault(receiver, []).append(frame)
    return inbox


@dataclass(kw_only=True)
class SetUpRecord:
    """One set-up, from its ROLL on.

    Args:
        check: knows its place.
        heard: everybody's answers, by call.
        anchors: digest of the anchors, where there are any.
        evidence: gives what parties put into the transcript of the evidence that they believe;
            None where the study asks for none.
    """

    check: SetUpCheck
    offer: bytes
    heard: dict[Call, Mapping[int, list[bytes]]] = field(default_factory=dict)
    anchors: bytes = b""
    evidence: Callable[[], bytes] | None = None

    @classmethod
    def of(cls, layout: Layout, roll: Roll, offer: bytes, channel: Channel) -> SetUpRecord:
        """A set-up with the silos of a ROLL, in which nothing was heard yet."""
        check = SetUpCheck(
            channel=channel,
            roll=roll,
            neighbours_of=lambda index, seed: layout.neighbours(index, seed, present=roll.silos),
        )
        return cls(check=check, offer=offer)

    def explained(self, absent: Mapping[str, Absent]) -> dict[str, Absent]:
        """Who is left out next time: whose own frames are wrong, not those who complain of them.

        Args:
            absent: who gave no answer, or refused, by name.
        """
        if any(absence.error for absence in absent.values()):  # in one process, where it is raised
            return dict(absent)
        commits, reveals, sent, confirmed = (self.heard.get(call, {}) for call in _PHASES)
        faults = self.check.faults(commits, reveals, sent, confirmed, self._context())
        roster = self.check.channel.roster
        if not faults:
            # A complaint of a silo that has no part in the session is none.
            outside = {roster.name(i) for i in {*roster.silos} - self.check.roll.silos}
            return {
                name: replace(one, culprit="") if outside & {*one.culprit.split(" and ")} else one
                for name, one in absent.items()
            }
        found = {
            roster.name(index): Absent(why="garbled", said=str(error), culprit=error.culprit)
            for index, error in faults.items()
        }
        # Complaints follow from the fault that was found; who has a trouble of its own is left out
        # as well.
        others = {n: one for n, one in absent.items() if not one.why.startswith(_ACCUSING)}
        return others | found

    def _context(self) -> bytes | None:
        """What parties put into the transcript first; None where evidence is not believed here."""
        try:
            seen = self.anchors + (self.evidence() if self.evidence else b"")
        except HubbubError:
            return None
        return context_of(self.offer, self.check.roll.digest, seen)


_PHASES = (Call.COMMIT, Call.REVEAL, Call.CONTRIBUTE, Call.CONFIRM)


def new_session() -> bytes:
    """The name of a session, 16 bytes that were never used before."""
    return SecureSource().bytes(SESSION_BYTES)


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """One try at setting a session up, by the aggregator.

    Args:
        offer: what everybody is told of the session first.
        joint: how all silos draw together; None where each draws alone.
        session: its name.
        attests: evidence that the study asks for; None where it asks for none.
        doubted: who did not do its part last time, by roster index: it is asked first whether it
            takes part, and nobody else as long as it does not and cannot be spared.
        away: who is not asked at all, and why, by roster index.
    """

    peers: Peers
    keys: Keys = field(repr=False)
    study: bytes
    layout: Layout
    round_parameters: RoundParameters
    offer: SessionOffer
    joint: JointBatches | None = None
    session: bytes = field(default_factory=new_session)
    attests: Attests | None = field(default=None, repr=False)
    doubted: Set[int] = frozenset()
    away: Mapping[int, Absent] = field(default_factory=dict)

    def open_session(self) -> rounds.Rounds:
        """The session, ready for rounds, without those silos that were not there.

        Raises:
            AbsentError: somebody who is needed is not there, or refuses.
        """
        opening = offer_frame(self.keys, self.channel, self.offer)
        opened, absent = self._opened(opening)
        roster = self.peers.roster
        silos = frozenset(opened.keys() & {*roster.silos})
        # P29: signed before anybody commits to a share of the seed. Were the set to follow from who
        # reveals, T silos would choose among 2^T graphs by withholding theirs.
        frame, roll = called(self.keys, self.channel, silos)
        told = [one for index in sorted(opened) for one in opened[index]]
        rolled = _RolledSetUp(self, roll, frame)
        try:
            return rolled.agreed(opening, told, absent)
        except AbsentError as error:
            spoilt = rolled.record.explained(error.absent)
            raise AbsentError(spoilt, begun=error.begun, rolled=True) from None

    def _opened(self, opening: bytes) -> tuple[dict[int, list[bytes]], dict[int, Absent]]:
        """What everybody says to the offer who takes part in the session; and who does not."""
        opened, absent = dict[int, list[bytes]](), dict(self.away)
        here = set(range(1, len(self.peers.roster.parties))) - absent.keys()
        for wave in (here & self.doubted, here - self.doubted):
            self.check_enough(absent)
            asked = {index: [opening] for index in sorted(wave)}
            for index, answer in self.peers.ask(Call.OPEN, asked, self.session) if wave else ():
                if isinstance(answer, Absent):
                    absent[index] = answer
                elif len(tags := self._tags(index)) != len(answer):
                    said = f"expected {len(tags)} frames, got {len(answer)}"
                    absent[index] = Absent(why="garbled", said=said)
                elif wrong := broken(index, dict(zip(tags, answer, strict=True)), self.channel):
                    absent[index] = wrong
                else:
                    opened[index] = answer
        self.check_enough(absent)
        return opened, absent

    def _tags(self, index: int) -> list[Tag]:
        """Of the frames with which a party answers an offer."""
        if index not in self.peers.roster.silos:
            return []
        anchor = [Tag.SEED_ANCHOR] if self.round_parameters.needs_joint_seed else []
        return anchor if self.attests is None else [*anchor, Tag.NONCE]

    @cached_property
    def channel(self) -> Channel:
        """Where its frames belong."""
        return Channel(roster=self.peers.roster, study=self.study, session=self.session)

    def check_enough(self, absent: Mapping[int, Absent]) -> None:
        """See that there are N - D silos and all nodes.

        Raises:
            AbsentError: there are not.
        """
        roster = self.peers.roster
        silos = len(roster.silos) - len(absent.keys() & {*roster.silos})
        # P29: of the nodes all, as to choose among them could be to leave the honest one out.
        if silos < self.round_parameters.quorum or absent.keys() & {*roster.nodes}:
            raise AbsentError({roster.name(index): why for index, why in absent.items()})


def kept_of_set_up(silos: int, nodes: int, *, linked: bool, attested: bool) -> int:
    """How many frames are kept of a set-up at most, but for an offer that says only how to scale.

    Who counts attempts by frames takes them off: too few of them would accuse honest runs.

    Args:
        silos, nodes: of the session.
        linked: whether silos have joint seeds.
        attested: whether the study asks for evidence.
    """
    roll, anchors = 1, silos * linked
    offer, nonces, evidence = 1, silos, 1 + silos + nodes
    return roll + anchors + (offer + nonces + evidence) * attested


@dataclass(frozen=True)
class _RolledSetUp:
    """The rest of the set-up, with the silos of its ROLL and all nodes: all of them are needed."""

    wanted: SetUp
    roll: Roll
    frame: bytes

    def agreed(
        self, opening: bytes, told: Sequence[bytes], absent: Mapping[int, Absent]
    ) -> rounds.Rounds:
        """The session, once everybody has finished."""
        anchors = [one for one in told if tag_of(one) != Tag.NONCE]
        wanted, seeds = self.wanted, self._seed_check(anchors)
        attested = self._attested([one for one in told if tag_of(one) == Tag.NONCE])
        self._agree(anchors)
        aggregator = Aggregator(
            keys=wanted.keys,
            channel=wanted.channel,
            round_parameters=wanted.round_parameters,
            seeds=seeds,
        )
        is_kept = bool(attested) or wanted.offer.standardisation is not None  # for who verifies
        attendance = Attendance(
            peers=wanted.peers,
            session=wanted.session,
            silos=self.roll.silos,
            gaps_end=wanted.round_parameters.needs_every_attempt,
            absent=dict(absent),
        )
        joint = wanted.joint
        lists = joint.at_aggregator(wanted.peers, wanted.channel) if joint else None
        return rounds.Rounds(
            peers=wanted.peers,
            attendance=attendance,
            aggregator=aggregator,
            round_parameters=wanted.round_parameters,
            layout=wanted.layout,
            channel=wanted.channel,
            opening=[*([opening] if is_kept else []), self.frame, *attested, *anchors],
            lists=lists,
        )

    def _attested(self, nonces: Sequence[bytes]) -> list[bytes]:
        """Nonces and evidence, once everybody believes it; nothing where none is asked for."""
        if self.wanted.attests is None:
            return []
        session = AttestedSession(
            **vars(self.wanted.channel), attests=self.wanted.attests, at=self.wanted.offer.at
        )
        try:
            digest = digest_of(session.nonces_of(nonces, self.roll.silos))
        except ProtocolError as error:
            absent = Absent(why="garbled", said=str(error), culprit=error.culprit)
            raise AbsentError({error.culprit or "relay": absent}) from None
        shown = self._all(Call.ATTEST, nonces)
        owe = session.attested(self.roll.silos)
        self._check_numbers(shown, {i: int(i in owe) for i in shown})
        # The aggregator's own; whether any of it is enough, the others judge.
        evidence = session.evidence_of(self.wanted.keys, 0, digest)
        evidence += [one for index in sorted(shown) for one in shown[index]]
        self.record.evidence = lambda: session.context(evidence, digest, self.roll.silos)
        self._all(Call.EVIDENCE, evidence)
        return [*nonces, *evidence]

    def _agree(self, anchors: Sequence[bytes]) -> None:
        """The phases of `Agreement`, one after the other, and every frame to its receiver."""
        paired = not self._roster.nodes
        shown = self._each(Call.COMMIT, anchors) if paired else anchors
        try:
            self._exchange_secrets(self._each(Call.REVEAL, shown) if paired else shown)
        except AbsentError as error:  # whoever has revealed its share has counted a graph
            raise AbsentError(error.absent, begun=True) from None

    def _exchange_secrets(self, shown: Sequence[bytes]) -> None:
        """From CONTRIBUTE on."""
        roster = self._roster
        neighbours, confirmed = self._confirmed(shown)
        confirms = {index: frames[0] for index, frames in confirmed.items()}
        checks = {index: by_receiver(frames[1:]) for index, frames in confirmed.items()}
        proofs = delivered(checks, self._everybody)
        finish = {}
        for index in self._everybody:
            extra = confirmers_of(
                self.wanted.layout, roster, self.wanted.round_parameters, index, self.roll.silos
            )
            confirmers = sorted({*neighbours[index], *extra} - {index})
            finish[index] = [*(confirms[i] for i in confirmers if i in confirms), *proofs[index]]
        self.wanted.peers.ask_all(Call.FINISH, finish, self.wanted.session)

    def _confirmed(
        self, shown: Sequence[bytes]
    ) -> tuple[dict[int, list[int]], dict[int, list[bytes]]]:
        """With whom each party shares a secret, and its CONFIRM with proofs of them."""
        # The transcript that is confirmed has the digest of each sealed secret, so all are there
        # before the first CONFIRM; they are let go with the last.
        sealed = self._all(Call.CONTRIBUTE, shown)
        sent = {index: by_receiver(frames) for index, frames in sealed.items()}
        # Who gets one from another sends one too; so what was lost shows, and is not missed.
        owed = Counter(receiver for frames in sent.values() for receiver in frames)
        self._check_numbers(sealed, {index: max(1, owed[index]) for index in sealed})
        digests = sent_digests(sent, len(self._roster.parties))
        inbox = delivered(sent, self._everybody)
        asked = {index: [digests, *inbox[index]] for index in self._everybody}
        confirmed = self.wanted.peers.ask_all(Call.CONFIRM, asked, self.wanted.session)
        self.record.heard[Call.CONFIRM] = confirmed
        self._check_numbers(confirmed, {index: 1 + len(sent[index]) for index in sent})
        return {index: [*frames] for index, frames in sent.items()}, confirmed

    @cached_property
    def record(self) -> SetUpRecord:
        """What is heard."""
        wanted = self.wanted
        return SetUpRecord.of(wanted.layout, self.roll, wanted.offer.payload(), wanted.channel)

    @cached_property
    def _roster(self) -> Roster:
        return self.wanted.peers.roster

    @cached_property
    def _everybody(self) -> list[int]:
        """Who takes part."""
        return [*sorted(self.roll.silos), *self._roster.nodes]

    def _all(self, call: Call, parts: Sequence[bytes]) -> dict[int, list[bytes]]:
        """Everybody's answer; the first call tells them who takes part."""
        if call is roll_leads(self._roster, attested=self.wanted.attests is not None):
            parts = [self.frame, *parts]
        asked = dict.fromkeys(self._everybody, parts)
        answers = self.wanted.peers.ask_all(call, asked, self.wanted.session)
        self.record.heard[call] = answers
        return answers

    def _each(self, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """Everybody's one frame, in the order of the roster."""
        answers = self._all(call, parts)
        self._check_numbers(answers, dict.fromkeys(answers, 1))
        return [answers[index][0] for index in sorted(answers)]

    def _check_numbers(
        self, answers: Mapping[int, Sequence[bytes]], expected: Mapping[int, int]
    ) -> None:
        """As many frames as a party owes; who has taken some away, nobody can say.

        Raises:
            AbsentError: naming whose answer is not whole, which blames nobody.
        """
        absent = {
            self._roster.name(index): Absent(
                why="garbled", said=f"expected {expected[index]} frames, got {len(frames)}"
            )
            for index, frames in answers.items()
            if len(frames) != expected[index]
        }
        if absent:
            raise AbsentError(absent)

    def _seed_check(self, anchors: Sequence[bytes]) -> SeedCheck | None:
        """What checks the links of joint seeds, where the rounds need them."""
        if not self.wanted.round_parameters.needs_joint_seed:
            return None
        wanted = self.wanted
        check = wanted.round_parameters.seed_check(wanted.channel)
        try:
            self.record.anchors = check.learn_anchors(anchors, self.roll.silos)
        except ProtocolError as error:
            absent = Absent(why="garbled", said=str(error), culprit=error.culprit)
            raise AbsentError({error.culprit or "relay": absent}) from None
        return check
