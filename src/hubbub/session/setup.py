"""One try at setting up a session at the aggregator: who is there, secrets, the graph, checks.

The order of the messages is that of `session/layout.py`. What the aggregator learns from them is
public, and what it passes on is checked by whom it is passed to. Whoever is not there, or does not
answer as it should, is told to `conductor.py`, which tries again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hubbub.errors import ProtocolError
from hubbub.network.endpoint import witnesses_of
from hubbub.network.envelope import Call
from hubbub.network.party_folder import PartyFolder
from hubbub.network.requests import Absent, AbsentError, Exchange
from hubbub.network.timeouts import Timeouts
from hubbub.planning import Plan, attempts_of_list
from hubbub.protocol.agreement.joint_seed import SeedCheck
from hubbub.protocol.agreement.key_agreement import SESSION_BYTES, sent_digest
from hubbub.protocol.randomness import SecureSource
from hubbub.protocol.round import Aggregator, RoundParameters
from hubbub.protocol.wire import EVERYBODY, Frame, Tag, parse, unverified
from hubbub.session.in_process import layout_of
from hubbub.session.rounds import Assembly
from hubbub.session.session_offer import SessionOffer
from hubbub.session.token_lists import Mixing
from hubbub.study import Study
from hubbub.version import VERSION

_PING = 5.0  # seconds
_MOST_ATTEMPTS = 10**9
# What the words of a party, who may mean harm, may raise while they are read.
UNREADABLE = (
    *(ProtocolError, ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(RecursionError, OverflowError),
)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A session that is set up, and what the silos have said of themselves.

    Args:
        assembly: plays the rounds.
        attempts: that the silos have paid for, by purpose and silo.
    """

    assembly: Assembly
    attempts: Mapping[str, Mapping[str, int]]


class SetUp:
    """One try at setting a session up."""

    def __init__(
        self,
        site: PartyFolder,
        study: Study,
        exchange: Exchange,
        plan: Plan,
        terms: RoundParameters,
    ) -> None:
        self._site, self._study, self._exchange = site, study, exchange
        self._roster, self._terms, self._layout = site.roster, terms, layout_of(plan)
        self._every = attempts_of_list(plan.study)
        self._session = SecureSource().bytes(SESSION_BYTES)
        self._everybody = range(1, len(self._roster.parties))

    def made(self, opening: SessionOffer, timeouts: Timeouts) -> Opened:
        """The session.

        Raises:
            AbsentError: somebody is not there, or refuses.
        """
        self._all(Call.PING, [], _PING)
        ready = self._all(Call.OPEN, [self._opened(opening)], timeouts.opening)
        joint = set(self._roster.silos) if self._terms.joint else set()
        self._check_numbers(ready, {index: 1 + (index in joint) for index in ready})
        attempts = self._attempts(ready)
        anchors = [one for i in self._roster.silos for one in ready[i][1:]]
        check = self._seed_check(anchors)
        self._agree(anchors, timeouts.deadline)
        aggregator = Aggregator(
            keys=self._site.keys,
            roster=self._roster,
            terms=self._terms,
            study=self._study.id,
            session=self._session,
            seeds=check,
        )
        assembly = Assembly(
            exchange=self._exchange,
            aggregator=aggregator,
            terms=self._terms,
            layout=self._layout,
            study=self._study.id,
            session=self._session,
            anchors=anchors,
            deadline=timeouts.deadline,
            ask_again=timeouts.ask_again,
        )
        if self._every:
            assembly.lists = Mixing(
                exchange=self._exchange,
                study=self._study.id,
                session=self._session,
                counts=self._study.data.counts,
                every=self._every,
                deadline=timeouts.deadline,
            )
        return Opened(assembly=assembly, attempts=attempts)

    def _agree(self, anchors: Sequence[bytes], deadline: float) -> None:
        """The phases of `Agreement`, one after the other, and every frame to its receiver."""
        first = list(anchors)
        if not self._roster.nodes:
            commits = self._each(Call.COMMIT, first, deadline)
            first = self._each(Call.REVEAL, commits, deadline)
        sent = self._all(Call.CONTRIBUTE, first, deadline)
        self._check_pairs(sent)
        digests = bytes(32) + b"".join(sent_digest(_by_receiver(sent[i])) for i in self._everybody)
        inbox = self._delivered(sent)
        told = {index: [digests, *inbox[index]] for index in self._everybody}
        confirmed = self._exchange.ask_all(Call.CONFIRM, told, deadline, self._session)
        self._check_numbers(confirmed, {i: 1 + len(_by_receiver(sent[i])) for i in sent})
        confirms = {index: frames[0] for index, frames in confirmed.items()}
        checks = self._delivered({index: frames[1:] for index, frames in confirmed.items()})
        neighbours = {index: list(_by_receiver(sent[index])) for index in self._everybody}
        last = {}
        for index in self._everybody:
            besides = witnesses_of(self._layout, self._roster, self._terms, index)
            seen = {*neighbours[index], *besides} - {index}
            told_of = [confirms[i] for i in sorted(seen) if i in confirms]
            last[index] = [*told_of, *checks[index]]
        self._exchange.ask_all(Call.FINISH, last, deadline, self._session)

    def _all(self, call: Call, parts: Sequence[bytes], deadline: float) -> dict[int, list[bytes]]:
        asked = dict.fromkeys(self._everybody, parts)
        return self._exchange.ask_all(call, asked, deadline, self._session)

    def _each(self, call: Call, parts: Sequence[bytes], deadline: float) -> list[bytes]:
        """Everybody's one frame, in the order of the roster."""
        answers = self._all(call, parts, deadline)
        self._check_numbers(answers, dict.fromkeys(answers, 1))
        return [answers[index][0] for index in sorted(answers)]

    def _check_pairs(self, sent: Mapping[int, Sequence[bytes]]) -> None:
        """Who gets a key from another sends one too; so what was lost shows, and is not missed."""
        receivers = {index: set(_by_receiver(frames)) for index, frames in sent.items()}
        asked = {
            index: sum(index in others for others in receivers.values()) for index in receivers
        }
        self._check_numbers(sent, {index: max(1, number) for index, number in asked.items()})

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

    def _opened(self, opening: SessionOffer) -> bytes:
        return Frame(
            tag=Tag.OPEN,
            study=self._study.id,
            session=self._session,
            sender=0,
            receiver=EVERYBODY,
            payload=opening.payload(),
        ).sealed(self._site.keys)

    def _attempts(self, ready: Mapping[int, Sequence[bytes]]) -> dict[str, dict[str, int]]:
        """By purpose and silo, how many attempts it says it has paid for."""
        told: dict[str, dict[str, int]] = {}
        for index, frames in ready.items():
            name = self._roster.name(index)
            try:
                frame = parse(frames[0], self._roster, study=self._study.id, session=self._session)
                if frame.tag is not Tag.READY:
                    raise ProtocolError("expected a READY, got another frame", culprit="relay")
                whole = json.loads(bytes(frame.payload))
                self._note_version(name, whole.get("version"))
                for purpose, count in whole.get("attempts", {}).items():
                    if type(count) is not int or not 0 <= count <= _MOST_ATTEMPTS:
                        raise ValueError("no count of attempts")
                    told.setdefault(purpose, {})[name] = count
            except UNREADABLE as error:
                absent = Absent(why="garbled", said=f"its READY cannot be used: {error}")
                raise AbsentError({name: absent}) from None
        return told

    def _note_version(self, name: str, version: object) -> None:
        """Another version with the same numbers may take part; people should know."""
        if version != VERSION:
            said = f"it runs hubbub {str(version)[:20]!r}, the aggregator {VERSION}"
            self._exchange.event_log.warn("version", whom=name, said=said)

    def _seed_check(self, anchors: Sequence[bytes]) -> SeedCheck | None:
        """What checks the links of joint seeds, where the terms need them."""
        if not self._terms.joint:
            return None
        check = SeedCheck(
            roster=self._roster,
            study=self._study.id,
            session=self._session,
            steps=self._terms.steps,
            attempts=self._terms.attempts,
        )
        try:
            check.learn_anchors(anchors)
        except ProtocolError as error:
            absent = Absent(why="garbled", said=str(error), culprit=error.culprit)
            raise AbsentError({error.culprit or "relay": absent}) from None
        return check

    def _delivered(self, sent: Mapping[int, Sequence[bytes]]) -> dict[int, list[bytes]]:
        """From what each party sends to whom, to what each party receives."""
        inbox: dict[int, list[bytes]] = {index: [] for index in self._everybody}
        for frames in sent.values():
            for receiver, frame in _by_receiver(frames).items():
                inbox.setdefault(receiver, []).append(frame)
        return inbox


def _by_receiver(frames: Sequence[bytes]) -> dict[int, bytes]:
    """Frames by whom they say they are for; who gets one checks it."""
    return {unverified(frame).receiver: frame for frame in frames}
