"""The rounds of a session, once: attempts, and who is still there.

    MODEL   the model, signed, with the silos that take part
              -> charged, then a masked noisy sum; where all draw together, a link of the joint seed
    SEED    all links                  ->  the masked noisy sum
    SHARES  full shares for one node   ->  which of them do not open; only with full shares
    PROMISE the silos that answered    ->  a compute node's word for these, and no others
    TOTAL   the promises of all nodes  ->  its total of their masks, or shares

With pairwise masks an attempt needs everybody that it was begun with; with compute nodes it needs
the quorum and the nodes. Who does not answer is left out of the next attempts and asked again
later; every attempt has a fresh batch, noise and masks, and is charged (docs/privacy.md P3). Where
noise is correlated, who is left out comes back with the next session only (P25); so does whoever
was not there when the session was set up (P29), and for who waits the session is ended now and
then, never at once. Where too few are left, it is over (`AbsentError`). Vectors are added as they
come, so memory does not grow with the number of silos.

A silo that was missing when it was needed is *on probation*: it gets the next MODEL before all
others, and these only if it answers or can be spared. So whoever refuses again and again makes the
others pay once, not each time.

A silo whose shares are bad counts as missing. Where only a node can see that, its signed word
against the silo's is a dispute: the silo is left out, which harms no privacy, and both are named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import HubbubError, ProtocolError
from hubbub.protocol import (
    EVERYBODY,
    LINK_BYTES,
    Aggregator,
    Parameters,
    RoundParameters,
    Tag,
    parse,
    receiver_of,
    tag_of,
)
from hubbub.session.ask import LEFT_OUT, Absent, AbsentError, Call, Peers
from hubbub.session.layout import Layout
from hubbub.session.recorder import NoRecorder, Recorder
from hubbub.session.token_lists import TokenLists

RESTARTED = "no-session"
_MOST_ENDED = 8  # sessions in a study that are ended for who waits for the next one
_MOST_DOUBLINGS = 10  # of the pause before somebody who failed again is asked for


class AbortedError(HubbubError):
    """An attempt without a sum: somebody whom it needs did not answer."""


@dataclass(kw_only=True)
class Rounds:
    """One session after its set-up, at the aggregator.

    Args:
        peers: everybody else.
        aggregator: adds, and sees the sum alone.
        terms: the numbers of the rounds.
        layout: who shares with whom.
        study, session: what every frame is bound to.
        silos: who takes part, by roster index.
        opening: what is kept of the set-up: the ROLL, the anchors of joint seeds; where the study
            asks for evidence the offer before them, all nonces and all evidence.
        lists: has a shuffled token list made before an attempt, where one is due.
        recorder: keeps what the aggregator has sent or used.
        absent: who is missing, by roster index.
        attempts_begun: of the last round.
        permit: called before every attempt; raises if there must be none.
        on_probation: silos that are asked before the others, by roster index.
        sums: rounds that have had one.
    """

    peers: Peers
    aggregator: Aggregator
    round_parameters: RoundParameters
    layout: Layout
    study: bytes
    session: bytes
    silos: Set[int]
    opening: Sequence[bytes] = ()
    lists: TokenLists | None = None
    recorder: Recorder = field(default_factory=NoRecorder)
    absent: dict[int, Absent] = field(default_factory=dict)
    attempts_begun: int = 0
    permit: Callable[[], None] = lambda: None
    on_probation: set[int] = field(default_factory=set)
    sums: int = 0
    _charged: bool = False
    _made: int = 0  # attempts in the session
    _retry: tuple[float, Callable[[], float]] = (inf, time.monotonic)
    _next_retry: dict[int, float] = field(default_factory=dict)
    _failed: Counter[int] = field(default_factory=Counter)  # probations in a row

    def ask_absent_every(self, seconds: float, now: Callable[[], float]) -> None:
        """After so many seconds ask for who is missing; longer each time that it fails again."""
        self._retry = (seconds, now)

    def round(
        self, number: int, parameters: Parameters, attempts: int = 1
    ) -> tuple[NDArray[np.int64] | None, int]:
        """A round: repeated among those left while attempts are left.

        Args:
            number: from 1.
            parameters: the model.
            attempts: the most to make.

        Returns:
            The sum in grid steps, or None if no attempt succeeded, and the attempts made.

        Raises:
            AbsentError: too few are left for a round; `attempts_begun` were begun.
            ProtocolError: a party signed a lie.
        """
        self.attempts_begun, self._charged = 0, False
        self._ask_absent()
        for attempt in range(min(attempts, self._most_attempts())):
            self._look_around()
            self._check_quorum()
            self.permit()
            if self.lists is not None:
                self.lists.prepare()
            self.attempts_begun += 1
            try:
                total = self.attempt(number, attempt, parameters)
                self.sums += 1
                self.peers.left_out(self.named_absent)
                return total, self.attempts_begun
            except AbortedError:
                self.peers.warn(
                    "attempt", round=number, attempt=attempt, then="the next is made without them"
                )
        self._check_quorum()
        return None, self.attempts_begun

    def attempt(self, number: int, attempt: int, parameters: Parameters) -> NDArray[np.int64]:
        """One attempt at a round, from the model to the sum in grid steps.

        Raises:
            AbortedError: somebody is missing; `absent` says who.
            ProtocolError: a party signed a lie.
        """
        active = [index for index in self.peers.roster.silos if index not in self.absent]
        model = self.aggregator.begin(number, attempt, active, parameters)
        self._made += 1
        self.recorder.keep(model)
        self.recorder.seal()  # before it is sent, so that no begun attempt is forgotten
        if self.round_parameters.needs_joint_seed:
            shares = self._masked(Call.SEED, self._links(model, active), active)
        else:
            shares = self._masked(Call.MODEL, [model], active)
        if self.round_parameters.full_shares:
            self._open_shares(shares)
        if self.round_parameters.nodes:
            self._totals()
        try:
            return self.aggregator.integers()
        except ProtocolError as error:  # of what is missing: nobody has lied
            raise AbortedError(str(error)) from None

    def _most_attempts(self) -> int:
        """Attempts at one round: for joint seeds only so many links were committed to."""
        return (
            self.round_parameters.attempts
            if self.round_parameters.needs_joint_seed
            else 1 + self.round_parameters.silos
        )

    def _check_quorum(self) -> None:
        """Enough silos, and all nodes; or the session is over."""
        roster = self.peers.roster
        silos = [index for index in roster.silos if index not in self.absent]
        self.peers.left_out(self.named_absent)
        if len(silos) < self.round_parameters.quorum or any(
            node in self.absent for node in roster.nodes
        ):
            raise AbsentError(self.named_absent, charged=self._charged)

    def _ask_absent(self) -> None:
        """Now and then, see whether somebody who was missing is there again."""
        asked = (index for index, one in self.absent.items() if one.why != LEFT_OUT)
        due = dict.fromkeys((index for index in asked if self._is_due(index)), ())
        if not due:
            return
        for index, answer in self.peers.ask(Call.PING, due, self.session):
            del self._next_retry[index]
            if isinstance(answer, Absent):
                continue
            if index not in {*self.silos, *self.peers.roster.nodes}:  # whatever it says (P29)
                self.absent[index] = Absent(why=RESTARTED, said="it came after the set-up")
            elif answer and not self.round_parameters.correlation:  # it knows the session
                del self.absent[index]
                self.on_probation.add(index)
            elif answer:
                self.absent[index] = Absent(why=RESTARTED, said="its noise has a gap")  # P25
            else:
                self.absent[index] = Absent(why=RESTARTED, said="it was started anew")
        if self._may_end and any(one.why == RESTARTED for one in self.absent.values()):
            raise AbsentError(self.named_absent)  # somebody waits for a new session

    @property
    def _may_end(self) -> bool:
        """Whether the session may be ended for who waits: it has made its part of the study.

        A new session costs its set-up, and whatever of an epoch was paid for and not used. So there
        are no more than eight such ends in a study, however often somebody comes and goes, and none
        in the middle of an epoch of correlated noise (P25).
        """
        whole = self._made % self.round_parameters.bands == 0
        return whole and self._made * _MOST_ENDED >= self.round_parameters.steps

    def _look_around(self) -> None:
        """See who is there before an attempt that one missing silo would spoil, and others pay for.

        It takes a round trip, so only where somebody is missing already: where silos come and go.
        """
        there = [index for index in self.peers.roster.silos if index not in self.absent]
        spoils = self._needs_all or len(there) <= self.round_parameters.quorum
        if not spoils or not self.absent or self._retry[0] == inf:
            return
        for index, answer in self.peers.ask(Call.PING, dict.fromkeys(there, ()), self.session):
            if isinstance(answer, Absent):
                self.absent[index] = answer
            elif not answer:
                self.absent[index] = Absent(why=RESTARTED, said="it was started anew")

    @property
    def _needs_all(self) -> bool:
        """Whether an attempt needs all silos that its MODEL names."""
        return not self.round_parameters.nodes or self.round_parameters.needs_joint_seed

    def _is_due(self, index: int) -> bool:
        """Whether to ask for somebody who is missing, now."""
        seconds, clock = self._retry
        now, pause = clock(), seconds * 2.0 ** min(self._failed[index], _MOST_DOUBLINGS)
        return now >= self._next_retry.setdefault(index, now + pause)

    def _links(self, model: bytes, active: Sequence[int]) -> list[bytes]:
        """Everybody has accepted the model, then all links are known, to all."""
        links: dict[int, bytes] = {}
        asked = {index: [model] for index in active}
        for index, frames in self._answers(Call.MODEL, asked, needs_all=True):
            if self._is_link(index, frames):
                links[index] = frames[0]
        self._abort_unless_all(active, links.keys())
        found = [links[index] for index in active]
        try:
            self.aggregator.learn_seed(found)
        except ProtocolError as error:
            index = next((i for i in active if self._name(i) == error.culprit), -1)
            if index < 0:
                raise  # nobody would be left out of the next attempt, so there is none
            self._raise_or_mark_absent(error, index)
            raise AbortedError(str(error)) from None
        for link in found:
            self.recorder.keep(link)
        return found

    def _masked(
        self, call: Call, parts: Sequence[bytes], active: Sequence[int]
    ) -> dict[int, list[bytes]]:
        """The silos' answers, added as they come; the shares among them, by node."""
        shares: dict[int, list[bytes]] = {node: [] for node in self.peers.roster.nodes}
        taken, whole = set(), self._needs_all
        for index, frames in self._answers(call, dict.fromkeys(active, parts), needs_all=whole):
            if self._fits(index, frames, Tag.MASKED) and self._receive_masked(index, frames):
                taken.add(index)
                for share in frames[1:]:
                    shares[receiver_of(share)].append(share)
            frames.clear()  # or one vector lies here while the next is made
        if whole:
            self._abort_unless_all(active, taken)
        return shares

    def _receive_masked(self, index: int, frames: Sequence[bytes]) -> bool:
        """Look at a silo's shares, then add its vector to the sum; whether both could be used."""
        if not self._shares_are_usable(index, frames[1:]) or not self._receive(index, frames[0]):
            return False
        for share in frames[1:]:
            self.recorder.keep(share)
        return True

    def _shares_are_usable(self, index: int, shares: Sequence[bytes]) -> bool:
        """Whether a silo's shares are what they should be, as far as they can be seen.

        Bad ones cost nobody else anything: the silo is absent, and the round goes on without it.
        """
        if not self.round_parameters.full_shares:
            return True
        try:
            self.aggregator.check_shares(index, shares)
        except ProtocolError as error:
            self._mark_absent(error, index)
            return False
        return True

    def _open_shares(self, shares: Mapping[int, Sequence[bytes]]) -> None:
        """Have every node open its shares; a silo whose share does not open is left out.

        Raises:
            AbortedError: a node gave no answer, or too few silos are left.
        """
        arrivals, disputes = self._to_nodes(self.aggregator.arrivals), dict[int, list[str]]()
        answered: set[int] = set()
        asked = {node: [one, *shares[node]] for node, one in arrivals.items()}
        for index, frames in self._answers(Call.SHARES, asked):
            closed = self._receive_held(index, frames[0])
            if closed is None:
                continue
            answered.add(index)
            for silo in closed:
                disputes.setdefault(silo, []).append(self._name(index))
        self._abort_unless_all(arrivals, answered)
        self.aggregator.leave_out(disputes)
        for silo, nodes in sorted(disputes.items()):
            signers = " and ".join(sorted(nodes))
            reason = f"its SHARE does not open, by the signed word of {signers}: one of them lies"
            who = f"{self._name(silo)} and {signers}"
            self._mark_absent(ProtocolError(reason, culprit=who), silo)

    def _receive_held(self, index: int, answer: bytes) -> frozenset[int] | None:
        """Whose shares a node cannot open; None if its answer cannot be used."""
        try:
            closed = self.aggregator.receive_held(answer)
        except ProtocolError as error:
            self._raise_or_mark_absent(error, index)
            return None
        self.recorder.keep(answer)
        return closed

    def _totals(self) -> None:
        """What the nodes say of the masks, or shares, of exactly those who answered.

        Raises:
            AbortedError: a node has not promised its total.
        """
        requests, promises = self._to_nodes(self.aggregator.requests), dict[int, bytes]()
        asked = {node: [one] for node, one in requests.items()}
        for index, frames in self._answers(Call.PROMISE, asked):
            if self._receive_promise(index, frames[0]):
                promises[index] = frames[0]
        self._abort_unless_all(requests, promises.keys())
        shown = [promises[node] for node in requests]
        for index, frames in self._answers(Call.TOTAL, dict.fromkeys(requests, shown)):
            self._receive(index, frames[0])

    def _receive_promise(self, index: int, answer: bytes) -> bool:
        """Whether a node's word could be used; then it is kept."""
        try:
            self.aggregator.receive_promise(answer)
        except ProtocolError as error:
            self._raise_or_mark_absent(error, index)
            return False
        self.recorder.keep(answer)
        return True

    def _to_nodes(self, made: Callable[[], dict[int, bytes]]) -> dict[int, bytes]:
        """A message for every node, kept; there is none if too few silos arrived."""
        try:
            frames = made()
        except ProtocolError as error:
            raise AbortedError(str(error)) from None
        for one in frames.values():
            self.recorder.keep(one)
        return frames

    def _answers(
        self, call: Call, requests: Mapping[int, Sequence[bytes]], *, needs_all: bool = False
    ) -> Iterator[tuple[int, list[bytes]]]:
        """The answers that there are; who gave none is absent from now on."""
        first = requests.keys() & self._first_asked if call is Call.MODEL else set[int]()
        for wave in (first, requests.keys() - first):
            if not wave:
                continue
            asked = {index: requests[index] for index in requests if index in wave}
            self._charged |= call is Call.MODEL and (wave is not first or len(wave) > 1)
            for index, answer in self.peers.ask(call, asked, self.session, needs_all=needs_all):
                if isinstance(answer, Absent):
                    self.absent[index] = answer
                elif not answer:
                    self.absent[index] = Absent(why="garbled", said="its answer was empty")
                else:
                    yield index, answer
            if wave is first:
                self._end_probation(first, needs_all=needs_all)

    @property
    def _first_asked(self) -> Set[int]:
        """Who is on probation, unless the others must be shown every attempt in a row (P25)."""
        spared = self.round_parameters.quorum < len(self.peers.roster.silos)
        return set() if self.round_parameters.correlation and spared else self.on_probation

    def _end_probation(self, tried: Set[int], *, needs_all: bool) -> None:
        """Go on to ask the others only if their answers can be of use.

        Raises:
            AbortedError: they cannot be; nobody else has paid.
        """
        self.on_probation -= tried
        failed = tried & self.absent.keys()
        for index in tried:
            self._failed[index] = self._failed[index] + 1 if index in failed else 0
        left = len(self.silos - self.absent.keys())
        if not failed or (not needs_all and left >= self.round_parameters.quorum):
            return
        raise AbortedError(f"expected an answer of {self._name(min(failed))} before others pay")

    def _fits(self, index: int, frames: Sequence[bytes], tag: Tag) -> bool:
        """Whether an answer has just the frames that it should have; who uses them verifies them.

        A frame too many would reach parties that rightly refuse it, and cost them their part; a
        share too few leaves a node that cannot answer.
        """
        nodes = {receiver_of(frame) for frame in frames[1:]}
        shared = self.round_parameters.full_shares and tag is Tag.MASKED
        good = (
            tag_of(frames[0]) == tag
            and all(tag_of(frame) == Tag.SHARE for frame in frames[1:])
            and len(nodes) == len(frames) - 1
            and nodes == set(self.layout.neighbours(index, b"", self.silos) if shared else ())
        )
        if not good:
            found = ProtocolError(f"expected one {tag.name}, got other frames", culprit="relay")
            self._raise_or_mark_absent(found, index)
        return good

    def _is_link(self, index: int, frames: Sequence[bytes]) -> bool:
        """Whether an answer is a link that its silo has signed for the open session."""
        if not self._fits(index, frames, Tag.SEED_LINK):
            return False
        try:
            link = parse(frames[0], self.peers.roster, study=self.study, session=self.session)
            if (link.round, link.attempt) != self.aggregator.time:
                raise ProtocolError("expected a link of this attempt, got another", culprit="relay")
            if link.receiver != EVERYBODY or len(link.payload) != LINK_BYTES:
                raise ProtocolError(
                    f"expected a link of {LINK_BYTES} bytes to everybody, got another",
                    culprit=self._name(index),
                )
        except ProtocolError as error:
            self._raise_or_mark_absent(error, index)
            return False
        return True

    def _receive(self, index: int, answer: bytes) -> bool:
        """Give the aggregator an answer, and keep what it has used; whether it could be used."""
        try:
            short = self.aggregator.receive(answer)
        except ProtocolError as error:
            self._raise_or_mark_absent(error, index)
            return False
        self.recorder.keep(answer, short)
        return True

    def _raise_or_mark_absent(self, error: ProtocolError, index: int) -> None:
        """A signed lie stops the study; what a relay can have done counts as silence."""
        if error.culprit == self._name(index):
            raise error
        self._mark_absent(error, index)

    def _mark_absent(self, error: ProtocolError, index: int) -> None:
        """A party whose answer cannot be used is absent, for a reason that people are told."""
        absent = self.peers.garbled(index, str(error), error.culprit)
        self.absent[index] = replace(absent, error=error)

    def _abort_unless_all(self, wanted: Iterable[int], found: Set[int]) -> None:
        """Without everybody who is wanted there is no sum."""
        missing = sorted(set(wanted) - found)
        if missing:
            raise AbortedError(f"expected an answer of {self._name(missing[0])}, got none")

    @property
    def named_absent(self) -> dict[str, Absent]:
        """Who is missing, by name."""
        return {self._name(index): why for index, why in self.absent.items()}

    def _name(self, index: int) -> str:
        return self.peers.roster.name(index)
