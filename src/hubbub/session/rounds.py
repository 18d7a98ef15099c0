"""A session after its set-up, at the aggregator: rounds, attempts, and who is still there.

With pairwise masks an attempt needs everybody that it was begun with; with compute nodes it needs
the quorum and the nodes. Who misses a deadline is left out of the next attempts and asked again
later; where too few are left, the session is over (`AbsentError`) and a new one is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import ProtocolError
from hubbub.network.envelope import Call
from hubbub.network.requests import Absent, AbsentError, Exchange
from hubbub.protocol.agreement.joint_seed import LINK_BYTES
from hubbub.protocol.round import Aggregator, RoundParameters
from hubbub.protocol.round.round_parameters import Parameters
from hubbub.protocol.wire import EVERYBODY, Tag, parse, unverified
from hubbub.session.layout import Layout

Keep = Callable[[bytes], None]

RESTARTED = "no-session"
_PING = 2.0  # seconds


class _Failed(Exception):  # noqa: N818 (never leaves this file)
    """An attempt came to nothing."""


@dataclass(kw_only=True)
class Assembly:
    """One session at the aggregator.

    Args:
        exchange: asks the parties.
        aggregator: adds, and sees the sum alone.
        terms: of the rounds.
        layout: who shares with whom.
        study, session: what every frame is bound to.
        anchors: of the joint seeds, where there are any.
        deadline: seconds for a phase.
        ask_again: seconds after which somebody who was missing is asked for.
        keep: called with every message that the aggregator has sent or used.
        lists: called before every attempt, to have a list of tokens made where one is due.
    """

    exchange: Exchange
    aggregator: Aggregator
    terms: RoundParameters
    layout: Layout
    study: bytes
    session: bytes
    anchors: Sequence[bytes] = ()
    deadline: float
    ask_again: float = 30.0
    keep: Keep = lambda _: None
    lists: Callable[[], None] = lambda: None
    absent: dict[int, Absent] = field(default_factory=dict)
    made: int = 0
    _asked_again: float = field(default_factory=time.monotonic)

    def round(
        self, number: int, parameters: Parameters, attempts: int
    ) -> tuple[NDArray[np.int64] | None, int]:
        """A round: repeated among those left while attempts are left.

        Returns:
            The sum in grid steps, or None if no attempt succeeded, and the attempts made.

        Raises:
            AbsentError: too few are left for a round; `made` says how many attempts were begun.
            ProtocolError: a party signed a lie.
        """
        self.made = 0
        self._ask_again()
        for attempt in range(min(attempts, self._most())):
            self._check_quorum()
            self.lists()
            self.made += 1
            try:
                return self._attempt(number, attempt, parameters), self.made
            except _Failed:
                self.exchange.event_log.warn(
                    "attempt", round=number, attempt=attempt, then="the next is made without them"
                )
        self._check_quorum()
        return None, self.made

    def _most(self) -> int:
        """Attempts at one round: for joint seeds only so many links were committed to."""
        return self.terms.attempts if self.terms.joint else 1 + self.terms.silos

    def _check_quorum(self) -> None:
        """Enough silos, and all nodes; or the session is over."""
        roster = self.exchange.roster
        silos = [index for index in roster.silos if index not in self.absent]
        if len(silos) < self.terms.quorum or any(node in self.absent for node in roster.nodes):
            raise AbsentError(self._named_absent())

    def _ask_again(self) -> None:
        """Now and then, see whether somebody who was missing is there again."""
        if not self.absent or time.monotonic() - self._asked_again < self.ask_again:
            return
        asked = dict.fromkeys(self.absent, ())
        for index, heard in self.exchange.ask(Call.PING, asked, _PING, self.session):
            if isinstance(heard, Absent):
                continue
            if heard:  # it knows the session
                del self.absent[index]
            else:
                self.absent[index] = Absent(why=RESTARTED, said="it was started anew")
        self._asked_again = time.monotonic()
        if self.absent and all(one.why == RESTARTED for one in self.absent.values()):
            raise AbsentError(self._named_absent())  # everybody is there: a new session has all

    def _attempt(self, number: int, attempt: int, parameters: Parameters) -> NDArray[np.int64]:
        active = [index for index in self.exchange.roster.silos if index not in self.absent]
        whole = not self.terms.nodes or self.terms.joint
        model = self.aggregator.begin(number, attempt, active, parameters)
        self.keep(model)
        call, parts = Call.MODEL, [model]
        if self.terms.joint:
            parts, call = self._links(model, active), Call.SEED
        shares = self._masked(call, parts, active, whole)
        if self.terms.nodes:
            self._totals(shares)
        try:
            return self.aggregator.integers()
        except ProtocolError:
            raise _Failed from None

    def _links(self, model: bytes, active: Sequence[int]) -> list[bytes]:
        """Everybody has accepted the model, then all links are known, to all."""
        links: dict[int, bytes] = {}
        for index, heard in self._asked(Call.MODEL, {index: [model] for index in active}):
            if self._is_link(index, heard):
                links[index] = heard[0]
        self._need(active, links.keys())
        found = [links[index] for index in active]
        try:
            self.aggregator.learn_seed(found)
        except ProtocolError as error:
            index = next((i for i in active if self._named(i) == error.culprit), -1)
            if index < 0:
                raise  # nobody would be left out of the next attempt, so there is none
            self._blame(error, index)
            raise _Failed from None
        for link in found:
            self.keep(link)
        return found

    def _masked(
        self, call: Call, parts: Sequence[bytes], active: Sequence[int], whole: bool
    ) -> dict[int, list[bytes]]:
        """The silos' answers, added as they come; the shares among them, by node."""
        shares: dict[int, list[bytes]] = {node: [] for node in self.exchange.roster.nodes}
        taken = set()
        for index, heard in self._asked(call, dict.fromkeys(active, parts)):
            if not self._fits(index, heard, Tag.MASKED) or not self._use(index, heard[0]):
                continue
            taken.add(index)
            for share in heard[1:]:
                shares[unverified(share).receiver].append(share)
        if whole:
            self._need(active, taken)
        return shares

    def _totals(self, shares: Mapping[int, Sequence[bytes]]) -> None:
        """What the nodes say of the masks of exactly those who answered."""
        try:
            requests = self.aggregator.requests()
        except ProtocolError:  # too few arrived
            raise _Failed from None
        for one in requests.values():
            self.keep(one)
        asked = {node: [one, *shares[node]] for node, one in requests.items()}
        for index, heard in self._asked(Call.TOTAL, asked):
            self._use(index, heard[0])

    def _asked(
        self, call: Call, requests: Mapping[int, Sequence[bytes]]
    ) -> Iterator[tuple[int, list[bytes]]]:
        """The answers that there are; who gave none is absent from now on."""
        for index, heard in self.exchange.ask(call, requests, self.deadline, self.session):
            if isinstance(heard, Absent):
                self.absent[index] = heard
            elif not heard:
                self.absent[index] = Absent(why="garbled", said="its answer was empty")
            else:
                yield index, heard

    def _fits(self, index: int, heard: Sequence[bytes], tag: Tag) -> bool:
        """Whether an answer has just the frames that it should have; who uses them verifies them.

        A frame too many would reach parties that rightly refuse it, and cost them their part; a
        share too few leaves a node that cannot answer.
        """
        frames = [unverified(one) for one in heard]
        nodes = {frame.receiver for frame in frames[1:]}
        shared = self.terms.full_shares and tag is Tag.MASKED
        good = (
            frames[0].tag is tag
            and all(frame.tag is Tag.SHARE for frame in frames[1:])
            and len(nodes) == len(frames) - 1
            and nodes == set(self.layout.neighbours(index, b"") if shared else ())
        )
        if not good:
            found = ProtocolError(f"expected one {tag.name}, got other frames", culprit="relay")
            self._blame(found, index)
        return good

    def _is_link(self, index: int, heard: Sequence[bytes]) -> bool:
        """Whether an answer is a link that its silo has signed for the open session."""
        if not self._fits(index, heard, Tag.SEED_LINK):
            return False
        try:
            link = parse(heard[0], self.exchange.roster, study=self.study, session=self.session)
            if (link.round, link.attempt) != self.aggregator.time:
                raise ProtocolError("expected a link of this attempt, got another", culprit="relay")
            if link.receiver != EVERYBODY or len(link.payload) != LINK_BYTES:
                raise ProtocolError(
                    f"expected a link of {LINK_BYTES} bytes to everybody, got another",
                    culprit=self._named(index),
                )
        except ProtocolError as error:
            self._blame(error, index)
            return False
        return True

    def _use(self, index: int, answer: bytes) -> bool:
        """Give the aggregator an answer, and keep what it has used; whether it could be used."""
        try:
            self.aggregator.receive(answer)
        except ProtocolError as error:
            self._blame(error, index)
            return False
        self.keep(answer)
        return True

    def _blame(self, error: ProtocolError, index: int) -> None:
        """A signed lie stops the study; what a relay can have done counts as silence."""
        if error.culprit == self._named(index):
            raise error
        self.exchange.event_log.warn("garbled", whom=self._named(index), said=str(error))
        self.absent[index] = Absent(why="garbled", said=str(error), culprit=error.culprit)

    def _need(self, wanted: Iterable[int], found: Set[int]) -> None:
        if not found >= set(wanted):
            raise _Failed

    def _named_absent(self) -> dict[str, Absent]:
        return {self._named(index): why for index, why in self.absent.items()}

    def _named(self, index: int) -> str:
        return self.exchange.roster.name(index)
