"""The set-up of a session, once: joint randomness, secrets, and that all saw the same.

What each party does with what it is asked is in `protocol/agreement/key_agreement.py` and
`party.py`. What the aggregator learns is public, and what it passes on is checked by whom it is
passed to.

    OPEN         the study, the session, its numbers      ->  a silo's commitment to its links, and
                                                              its nonce where evidence is asked for
    ATTEST, EVIDENCE   where the study asks for evidence: see `attestation_exchange.py`
    COMMIT       all commitments                          ->  the hash of a share of the seed
    REVEAL       all hashes                               ->  the share: the seed draws the graph
    CONTRIBUTE   all shares                               ->  a sealed secret for each neighbour
    CONFIRM      digests of all, the secrets for one      ->  the transcript's hash, and proofs
    FINISH       hashes and proofs for one                ->  nothing: rounds may come

With compute nodes there is no graph to draw, and CONTRIBUTE comes at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from hubbub.errors import ProtocolError
from hubbub.protocol import (
    SESSION_BYTES,
    Aggregator,
    Keys,
    RoundParameters,
    SecureSource,
    SeedCheck,
    Tag,
    receiver_of,
    sent_digest,
    tag_of,
)
from hubbub.session import rounds, session_offer, token_lists
from hubbub.session.ask import Absent, AbsentError, Call, Peers
from hubbub.session.attestation_exchange import AttestedSession, Attests, digest_of
from hubbub.session.layout import Layout, confirmers_of


def new_session() -> bytes:
    """The name of a session, 16 bytes that were never used before."""
    return SecureSource().bytes(SESSION_BYTES)


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """One try at setting a session up, by the aggregator.

    Args:
        peers: everybody else.
        keys: the aggregator's.
        study: the study id.
        layout: who shares masks with whom.
        terms: the numbers of the rounds.
        offer: what everybody is told of the session first.
        counts: records of each silo, where batches are joint.
        attempts_per_list: attempts that a shuffled token list serves; 0 where there are none.
        session: its name.
        attests: evidence that the study asks for; None where it asks for none.
        doubted: who did not do its part last time, by roster index: it is asked first whether it
            takes part, and nobody else as long as it does not.
    """

    peers: Peers
    keys: Keys = field(repr=False)
    study: bytes
    layout: Layout
    round_parameters: RoundParameters
    offer: session_offer.SessionOffer
    counts: Sequence[int] = ()
    attempts_per_list: int = 0
    session: bytes = field(default_factory=new_session)
    attests: Attests | None = field(default=None, repr=False)
    doubted: Set[int] = frozenset()

    def open_session(self) -> rounds.Rounds:
        """The session, ready for rounds.

        Raises:
            AbsentError: somebody is not there, or refuses.
        """
        opening = session_offer.offer_frame(self.keys, self.study, self.session, self.offer)
        opened: dict[int, list[bytes]] = {}
        for wave in (self.doubted, set(self._everybody) - self.doubted):
            if wave:
                asked = {index: [opening] for index in sorted(wave)}
                opened |= self.peers.ask_all(Call.OPEN, asked, self.session)
        owed = int(bool(self.round_parameters.needs_joint_seed)) + int(self.attests is not None)
        silos = self.peers.roster.silos
        self._check_numbers(opened, {index: owed * (index in silos) for index in opened})
        told = [one for index in silos for one in opened[index]]
        anchors = [one for one in told if tag_of(one) != Tag.NONCE]
        seeds = self._seed_check(anchors)
        attested = self._attested([one for one in told if tag_of(one) == Tag.NONCE])
        self._agree(anchors)
        aggregator = Aggregator(
            keys=self.keys,
            roster=self.peers.roster,
            round_parameters=self.round_parameters,
            study=self.study,
            session=self.session,
            seeds=seeds,
        )
        return rounds.Rounds(
            peers=self.peers,
            aggregator=aggregator,
            round_parameters=self.round_parameters,
            layout=self.layout,
            study=self.study,
            session=self.session,
            anchors=anchors,
            attested=[opening, *attested] if attested else [],
            lists=self._lists(),
        )

    def _attested(self, nonces: Sequence[bytes]) -> list[bytes]:
        """Nonces and evidence, once everybody believes it; nothing where the study asks for none.

        The aggregator's own is made here; whether any of it is enough, the others judge.
        """
        if self.attests is None:
            return []
        session = AttestedSession(
            attests=self.attests,
            roster=self.peers.roster,
            study=self.study,
            session=self.session,
            at=self.offer.at,
        )
        try:
            digest = digest_of(session.nonces_of(nonces))
        except ProtocolError as error:
            absent = Absent(why="garbled", said=str(error), culprit=error.culprit)
            raise AbsentError({error.culprit or "relay": absent}) from None
        shown = self._all(Call.ATTEST, nonces)
        self._check_numbers(shown, {i: int(i in session.attested) for i in shown})
        evidence = session.evidence_of(self.keys, 0, digest)
        evidence += [one for index in sorted(shown) for one in shown[index]]
        self._all(Call.EVIDENCE, evidence)
        return [*nonces, *evidence]

    def _agree(self, anchors: Sequence[bytes]) -> None:
        """The phases of `Agreement`, one after the other, and every frame to its receiver."""
        paired = not self.peers.roster.nodes
        shown = self._each(Call.COMMIT, anchors) if paired else anchors
        try:
            self._exchange_secrets(self._each(Call.REVEAL, shown) if paired else shown)
        except AbsentError as error:  # whoever has revealed its share has counted a graph
            raise AbsentError(error.absent, begun=True) from None

    def _exchange_secrets(self, shown: Sequence[bytes]) -> None:
        """From CONTRIBUTE on."""
        roster = self.peers.roster
        neighbours, confirmed = self._confirmed(shown)
        confirms = {index: frames[0] for index, frames in confirmed.items()}
        proofs = self._delivered(
            {index: _by_receiver(frames[1:]) for index, frames in confirmed.items()}
        )
        finish = {}
        for index in self._everybody:
            extra = confirmers_of(self.layout, roster, self.round_parameters, index)
            confirmers = sorted({*neighbours[index], *extra} - {index})
            finish[index] = [*(confirms[i] for i in confirmers if i in confirms), *proofs[index]]
        self.peers.ask_all(Call.FINISH, finish, self.session)

    def _confirmed(
        self, shown: Sequence[bytes]
    ) -> tuple[dict[int, list[int]], dict[int, list[bytes]]]:
        """With whom each party shares a secret, and its CONFIRM with proofs of them.

        All sealed secrets are there before the first CONFIRM, and are let go with the last.
        """
        sent = {index: _by_receiver(one) for index, one in self._sent(shown).items()}
        own = bytes(32)  # in the aggregator's place: it has no secrets
        digests = own + b"".join(sent_digest(sent[index]) for index in self._everybody)
        inbox = self._delivered(sent)
        asked = {index: [digests, *inbox[index]] for index in self._everybody}
        confirmed = self.peers.ask_all(Call.CONFIRM, asked, self.session)
        self._check_numbers(confirmed, {index: 1 + len(sent[index]) for index in sent})
        return {index: [*frames] for index, frames in sent.items()}, confirmed

    @property
    def _everybody(self) -> range:
        return range(1, len(self.peers.roster.parties))

    def _all(self, call: Call, parts: Sequence[bytes]) -> dict[int, list[bytes]]:
        return self.peers.ask_all(call, dict.fromkeys(self._everybody, parts), self.session)

    def _each(self, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """Everybody's one frame, in the order of the roster."""
        answers = self._all(call, parts)
        self._check_numbers(answers, dict.fromkeys(answers, 1))
        return [answers[index][0] for index in sorted(answers)]

    def _sent(self, shown: Sequence[bytes]) -> dict[int, list[bytes]]:
        """Everybody's sealed secrets.

        Who gets one from another sends one too; so what was lost shows, and is not missed.
        """
        sent = self._all(Call.CONTRIBUTE, shown)
        asked = Counter(receiver for frames in sent.values() for receiver in _by_receiver(frames))
        self._check_numbers(sent, {index: max(1, asked[index]) for index in sent})
        return sent

    def _check_numbers(
        self, answers: Mapping[int, Sequence[bytes]], expected: Mapping[int, int]
    ) -> None:
        """As many frames as a party owes; who has taken some away, nobody can say.

        Raises:
            AbsentError: naming whose answer is not whole, which blames nobody.
        """
        absent = {
            self.peers.roster.name(index): Absent(
                why="garbled", said=f"expected {expected[index]} frames, got {len(frames)}"
            )
            for index, frames in answers.items()
            if len(frames) != expected[index]
        }
        if absent:
            raise AbsentError(absent)

    def _seed_check(self, anchors: Sequence[bytes]) -> SeedCheck | None:
        """What checks the links of joint seeds, where the rounds need them."""
        if not self.round_parameters.needs_joint_seed:
            return None
        check = self.round_parameters.seed_check(self.peers.roster, self.study, self.session)
        try:
            check.learn_anchors(anchors)
        except ProtocolError as error:
            absent = Absent(why="garbled", said=str(error), culprit=error.culprit)
            raise AbsentError({error.culprit or "relay": absent}) from None
        return check

    def _lists(self) -> token_lists.TokenLists | None:
        """Who has shuffled token lists made, where batches are joint."""
        if not self.attempts_per_list:
            return None
        return token_lists.TokenLists(
            peers=self.peers,
            study=self.study,
            session=self.session,
            counts=self.counts,
            attempts_per_list=self.attempts_per_list,
        )

    def _delivered(self, sent: Mapping[int, Mapping[int, bytes]]) -> dict[int, list[bytes]]:
        """From what each party sends to whom, to what each party receives."""
        inbox: dict[int, list[bytes]] = {index: [] for index in self._everybody}
        for frames in sent.values():
            for receiver, frame in frames.items():
                inbox.setdefault(receiver, []).append(frame)
        return inbox


def _by_receiver(frames: Sequence[bytes]) -> dict[int, bytes]:
    """Frames by whom they say they are for; who gets one checks it."""
    return {receiver_of(frame): frame for frame in frames}
