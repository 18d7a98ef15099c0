"""The set-up of a session, once: joint randomness, secrets, and that all saw the same.

What each party does with what it is asked is in `protocol/agreement/key_agreement.py` and
`party.py`. What the aggregator learns is public, and what it passes on is checked by whom it is
passed to.

    OPEN         the study, the session, its numbers      ->  a silo's commitment to its links
    ATTEST, EVIDENCE   where the study asks for evidence: see `evidence_exchange.py`
    COMMIT       all commitments                          ->  the hash of a share of the joint seed
    REVEAL       all hashes                               ->  the share: it draws the mask graph
    CONTRIBUTE   all shares                               ->  a sealed secret for each neighbour
    CONFIRM      digests of all, the secrets for one      ->  the transcript's hash, and proofs
    FINISH       hashes and proofs for one                ->  nothing: rounds may come

With compute nodes there is no graph to draw, and CONTRIBUTE comes at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
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
from hubbub.session.evidence_exchange import AttestedSession, Attests, digest_of
from hubbub.session.layout import Layout, confirmers_of

_Receivers = tuple[int, ...]
_Sharing = list[_Receivers]  # by party, for whom it has sealed secrets
_Inbox = defaultdict[int, list[bytes]]


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
        every: attempts that a shuffled token list serves; 0 where there are none.
        session: its name.
        attests: evidence that the study asks for; None where it asks for none.
    """

    peers: Peers
    keys: Keys = field(repr=False)
    study: bytes
    layout: Layout
    terms: RoundParameters
    offer: session_offer.SessionOffer
    counts: Sequence[int] = ()
    every: int = 0
    session: bytes = field(default_factory=new_session)
    attests: Attests | None = field(default=None, repr=False)

    def open_session(self) -> rounds.Rounds:
        """The session, ready for rounds.

        Raises:
            AbsentError: somebody is not there, or refuses.
        """
        opening = session_offer.offer_frame(self.keys, self.study, self.session, self.offer)
        opened = self._all(Call.OPEN, [opening])
        owed = int(bool(self.terms.needs_joint_seed)) + int(self.attests is not None)
        silos = self.peers.roster.silos
        self._check_numbers((i, len(one), owed * (i in silos)) for i, one in opened.items())
        told = [one for index in silos for one in opened[index]]
        anchors = [one for one in told if tag_of(one) != Tag.NONCE]
        seeds = self._seed_check(anchors)
        attested = self._attested([one for one in told if tag_of(one) == Tag.NONCE])
        self._agree(anchors)
        aggregator = Aggregator(
            keys=self.keys,
            roster=self.peers.roster,
            terms=self.terms,
            study=self.study,
            session=self.session,
            seeds=seeds,
        )
        return rounds.Rounds(
            peers=self.peers,
            aggregator=aggregator,
            terms=self.terms,
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
        self._check_numbers((i, len(one), i in session.attested) for i, one in shown.items())
        evidence = session.evidence_of(self.keys, 0, digest)
        evidence += [one for index in sorted(shown) for one in shown[index]]
        self._all(Call.EVIDENCE, evidence)
        return [*nonces, *evidence]

    def _agree(self, anchors: Sequence[bytes]) -> None:
        """The phases of `Agreement`, one after the other, and every frame to its receiver."""
        roster, first = self.peers.roster, list(anchors)
        if not roster.nodes:
            commits = self._each(Call.COMMIT, first)
            first = self._each(Call.REVEAL, commits)
        sharing, confirms, checks = self._confirmed(first)
        last = {}
        for index in self._everybody:
            besides = confirmers_of(self.layout, roster, self.terms, index)
            seen = {*sharing[index], *besides} - {index}
            last[index] = [*(confirms[i] for i in sorted(seen) if i in confirms), *checks[index]]
        self.peers.ask_all(Call.FINISH, last, self.session)

    def _confirmed(self, first: Sequence[bytes]) -> tuple[_Sharing, dict[int, bytes], _Inbox]:
        """With whom each party shares a secret, all CONFIRMs, and the proofs for each party.

        The digests of all sealed secrets are there before the first CONFIRM.
        """
        sharing, digests, waiting = self._contributed(first)
        alone = [digests]
        asked = {i: [*alone, *waiting.pop(i)] if i in waiting else alone for i in self._everybody}
        confirms, checks, lost = dict[int, bytes](), _Inbox(list), list[tuple[int, int, int]]()
        for index, frames in self.peers.each(Call.CONFIRM, asked, self.session):
            if len(frames) != 1 + len(sharing[index]):
                lost.append((index, len(frames), 1 + len(sharing[index])))
                continue
            confirms[index] = frames[0]
            for frame in frames[1:]:
                checks[receiver_of(frame)].append(frame)
        self._check_numbers(lost)
        return sharing, confirms, checks

    def _contributed(self, first: Sequence[bytes]) -> tuple[_Sharing, bytes, _Inbox]:
        """With whom each party shares a secret, the digests of what all sent, and what still waits.

        A sealed secret is handed on as soon as its receiver has sent its own, where the way to it
        allows that; nodes, which are fewer, are asked first. Who gets one from another sends one
        too; so what was lost shows, and is not missed.
        """
        roster, waiting = self.peers.roster, _Inbox(list)
        sharing: _Sharing = [()] * len(roster.parties)
        digests, known = bytearray(32 * len(roster.parties)), dict[_Receivers, _Receivers]()
        asked = dict.fromkeys([*roster.nodes, *roster.silos], first)
        for index, frames in self.peers.each(Call.CONTRIBUTE, asked, self.session):
            receivers = tuple(map(receiver_of, frames))
            sharing[index] = known.setdefault(receivers, receivers)
            sent = dict(zip(receivers, frames, strict=True))
            digests[32 * index : 32 * index + 32] = sent_digest(sent)
            for receiver, frame in sent.items():
                if not self.peers.deliver(receiver, [frame]):
                    waiting[receiver].append(frame)
            if index in waiting and self.peers.deliver(index, waiting[index]):
                del waiting[index]
        owed = Counter(receiver for receivers in sharing for receiver in {*receivers})
        self._check_numbers((i, len(sharing[i]), max(1, owed[i])) for i in self._everybody)
        return sharing, bytes(digests), waiting

    @property
    def _everybody(self) -> range:
        return range(1, len(self.peers.roster.parties))

    def _all(self, call: Call, parts: Sequence[bytes]) -> dict[int, list[bytes]]:
        return self.peers.ask_all(call, dict.fromkeys(self._everybody, parts), self.session)

    def _each(self, call: Call, parts: Sequence[bytes]) -> list[bytes]:
        """Everybody's one frame, in the order of the roster."""
        answers = self._all(call, parts)
        self._check_numbers((index, len(one), 1) for index, one in answers.items())
        return [answers[index][0] for index in sorted(answers)]

    def _check_numbers(self, numbers: Iterable[tuple[int, int, int]]) -> None:
        """As many frames as a party owes; who has taken some away, nobody can say.

        Args:
            numbers: party, how many came, how many are owed.

        Raises:
            AbsentError: naming whose answer is not whole, which blames nobody.
        """
        absent = {
            self.peers.roster.name(index): Absent(
                why="garbled", said=f"expected {owed:d} frames, got {found}"
            )
            for index, found, owed in numbers
            if found != owed
        }
        if absent:
            raise AbsentError(absent)

    def _seed_check(self, anchors: Sequence[bytes]) -> SeedCheck | None:
        """What checks the links of joint seeds, where the rounds need them."""
        if not self.terms.needs_joint_seed:
            return None
        check = self.terms.seed_check(self.peers.roster, self.study, self.session)
        try:
            check.learn_anchors(anchors)
        except ProtocolError as error:
            absent = Absent(why="garbled", said=str(error), culprit=error.culprit)
            raise AbsentError({error.culprit or "relay": absent}) from None
        return check

    def _lists(self) -> token_lists.TokenLists | None:
        """Who has shuffled token lists made, where batches are joint."""
        if not self.every:
            return None
        return token_lists.TokenLists(
            peers=self.peers,
            study=self.study,
            session=self.session,
            counts=self.counts,
            every=self.every,
        )
