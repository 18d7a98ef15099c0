"""The aggregator's side of a networked study: it sets sessions up, as often as it takes.

The order of the messages is that of `runners/members.py`; here they travel through an engine, and
everybody but the aggregator is somewhere else. What it learns from them is public, and what it
passes on is checked by whom it is passed to. The rounds are in `assembly.py`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.errors import HubbubError, ProtocolError
from hubbub.evidence import checked_part
from hubbub.network.assembly import Assembly
from hubbub.network.exchange import Absent, AbsentError, Exchange
from hubbub.network.mixing import Mixing
from hubbub.network.opening import Opening
from hubbub.network.parcel import Call
from hubbub.network.patience import Patience
from hubbub.network.seat import witnesses_of
from hubbub.network.site import Site
from hubbub.plan import Plan, attempts_of_list
from hubbub.randomness import SecureSource
from hubbub.round import Aggregator, Terms
from hubbub.runners.federation import layout_of
from hubbub.study import Study
from hubbub.summation.agreement import SESSION_BYTES, sent_digest
from hubbub.summation.joint import SeedCheck
from hubbub.version import VERSION
from hubbub.wire import EVERYBODY, Frame, Tag, parse, unverified

_PING = 5.0  # seconds
_PAUSE = 2.0
_MOST_ATTEMPTS = 10**9
_UNREADABLE = (
    *(ProtocolError, ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(RecursionError, OverflowError),
)
_LIES = 3  # set-ups that may fail by what a relay can do, before the run stops


class WaitedError(HubbubError):
    """The operator's patience is over, and somebody is still missing."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A session that is set up, and what the silos have said of themselves.

    Args:
        assembly: plays the rounds.
        attempts: that the silos have paid for, by purpose and silo.
    """

    assembly: Assembly
    attempts: Mapping[str, Mapping[str, int]]


class Conductor:
    """The aggregator of one study.

    Args:
        site: its own folder.
        study: the study.
        exchange: asks the parties.
        patience: how long it waits.
    """

    def __init__(self, site: Site, study: Study, exchange: Exchange, patience: Patience) -> None:
        self._site, self._study = site, study
        self._exchange, self._patience = exchange, patience

    def open(self, plan: Plan, opening: Opening, terms: Terms) -> Opened:
        """Set a session up; wait for those who are not there.

        Args:
            plan: of what the session is for.
            opening: what everybody is told of it.
            terms: of its rounds.

        Raises:
            WaitedError: somebody did not come in time, or does not take part as things are.
            ProtocolError: somebody broke the protocol, or a relay does so again and again.
        """
        journal, end, lies = self._exchange.journal, time.monotonic() + self._patience.waiting, 0
        while True:
            began = time.monotonic()
            try:
                opened = _SetUp(self._site, self._study, self._exchange, plan, terms).made(
                    opening, self._patience
                )
            except AbsentError as error:
                liars = [one for one in error.absent.values() if one.why in ("protocol", "garbled")]
                lies += bool(liars)
                if lies >= _LIES:
                    raise ProtocolError(
                        f"expected a set-up that everybody could check, got {lies} that failed: "
                        f"{error}; find out who carries the messages, and start again",
                        culprit=_blamed(liars, self._study.parties.colluders),
                    ) from None
                if time.monotonic() + _PAUSE > end:
                    raise WaitedError(f"{error}; start again when they can take part") from None
                waiting = ", ".join(f"{n} ({one.said})" for n, one in error.absent.items())
                journal.warn("waiting", parties=waiting)
                time.sleep(_PAUSE)
            else:
                count = len(self._site.roster.parties)
                seconds = time.monotonic() - began
                journal.note("open", purpose=opening.purpose, parties=count, seconds=seconds)
                return opened

    def close(
        self, assembly: Assembly, sessions: Sequence[bytes], parameters: bytes
    ) -> list[dict[str, Any]]:
        """Give everybody the model, and have the silos sign what their ledgers hold.

        Returns:
            What the silos say that answered; who did not is in the journal.
        """
        listed = json.dumps({"sessions": [one.hex() for one in sessions]}).encode()
        frames = [
            self._frame(assembly, Tag.CLOSE, listed),
            self._frame(assembly, Tag.RESULT, parameters),
        ]
        asked = dict.fromkeys(self._site.roster.silos, frames)
        parts = []
        for index, heard in self._exchange.ask(
            Call.CLOSE, asked, self._patience.deadline, assembly.session
        ):
            if isinstance(heard, Absent):
                continue
            try:
                frame = parse(
                    heard[0], self._site.roster, study=assembly.study, session=assembly.session
                )
                if frame.tag is not Tag.CLOSED or frame.sender != index:
                    raise ProtocolError("expected CLOSED, got another frame", culprit="relay")
                silo, said = self._site.roster.parties[index], json.loads(bytes(frame.payload))
                parts.append(checked_part(said, silo, study=self._study.id, sessions=sessions))
            except _UNREADABLE as error:
                name = self._site.roster.name(index)
                self._exchange.journal.warn("garbled", whom=name, said=str(error))
        return parts

    def _frame(self, assembly: Assembly, tag: Tag, payload: bytes) -> bytes:
        return Frame(
            tag=tag,
            study=assembly.study,
            session=assembly.session,
            sender=0,
            receiver=EVERYBODY,
            payload=payload,
        ).sealed(self._site.keys)


class _SetUp:
    """One try at setting a session up."""

    def __init__(
        self, site: Site, study: Study, exchange: Exchange, plan: Plan, terms: Terms
    ) -> None:
        self._site, self._study, self._exchange = site, study, exchange
        self._roster, self._terms, self._layout = site.roster, terms, layout_of(plan)
        self._every = attempts_of_list(plan.study)
        self._session = SecureSource().bytes(SESSION_BYTES)
        self._everybody = range(1, len(self._roster.parties))

    def made(self, opening: Opening, patience: Patience) -> Opened:
        """The session.

        Raises:
            AbsentError: somebody is not there, or refuses.
        """
        self._all(Call.PING, [], _PING)
        ready = self._all(Call.OPEN, [self._opened(opening)], patience.opening)
        joint = set(self._roster.silos) if self._terms.joint else set()
        self._check_numbers(ready, {index: 1 + (index in joint) for index in ready})
        attempts = self._attempts(ready)
        anchors = [one for i in self._roster.silos for one in ready[i][1:]]
        check = self._seed_check(anchors)
        self._agree(anchors, patience.deadline)
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
            deadline=patience.deadline,
            ask_again=patience.ask_again,
        )
        if self._every:
            assembly.lists = Mixing(
                exchange=self._exchange,
                study=self._study.id,
                session=self._session,
                counts=self._study.data.counts,
                every=self._every,
                deadline=patience.deadline,
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
            wanted = witnesses_of(self._layout, self._roster, self._terms, index)
            seen = neighbours[index] if wanted is None else wanted
            told_of = [confirms[i] for i in seen if i != index and i in confirms]
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

    def _opened(self, opening: Opening) -> bytes:
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
            except _UNREADABLE as error:
                absent = Absent(why="garbled", said=f"its READY cannot be used: {error}")
                raise AbsentError({name: absent}) from None
        return told

    def _note_version(self, name: str, version: object) -> None:
        """Another version with the same numbers may take part; people should know."""
        if version != VERSION:
            said = f"it runs hubbub {str(version)[:20]!r}, the aggregator {VERSION}"
            self._exchange.journal.warn("version", whom=name, said=said)

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


def _by_receiver(frames: Sequence[bytes]) -> dict[int, bytes]:
    """Frames by whom they say they are for; who gets one checks it."""
    return {unverified(frame).receiver: frame for frame in frames}
