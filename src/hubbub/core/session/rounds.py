"""The rounds of a session, once: attempts, until one has a sum.

    MODEL   the model, signed, with the silos that take part
              -> charged, then a masked noisy sum; where all draw together, a link of the joint seed
    SEED    all links                  ->  the masked noisy sum
    SHARES  full shares for one node   ->  which of them do not open; only with full shares
    PROMISE the silos that answered    ->  a compute node's word for these, and no others
    TOTAL   the promises of all nodes  ->  its total of their masks, or shares

With pairwise masks an attempt needs everybody that it was begun with; with compute nodes it needs
the quorum and the nodes. Who does not answer is left out of the next attempts and asked again
later (`ask.py`); every attempt has a fresh batch, noise and masks, and is charged
(docs/privacy.md P3). For who waits for the next session this one is ended now and then, never at
once. Where too few are left, it is over (`AbsentError`). Vectors are added as they come, so memory
does not grow with the number of silos.

A silo whose shares are bad counts as missing. Where only a node can see that, its signed word
against the silo's is a dispute: the silo is left out, which harms no privacy, and both are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import Channel, Frame, Tag, receiver_of
from hubbub.core.protocol.round.aggregator import Aggregator, RevealedSum
from hubbub.core.protocol.round.draw import Lift, draw_of
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.core.session.ask import (
    Absent,
    AbsentError,
    Attendance,
    Call,
    Peers,
    check_frames,
    check_link,
)
from hubbub.core.session.joint_batches import Lists
from hubbub.core.session.offer import Layout

# Where the messages of a session are kept, as the rounds see it.


class Recorder(Protocol):
    """Where the messages of a session are kept."""

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Keep a message that the aggregator has sent or used.

        `short` is what stands for its payload, where the aggregator has just found that.
        """

    def seal(self) -> None:
        """Have everything that was kept on disk."""

    def close(self) -> None:
        """Keep no more."""


class NoRecorder:
    """Nothing is kept."""

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Nothing is kept."""

    def seal(self) -> None:
        """Nothing is on disk."""

    def close(self) -> None:
        """Nothing was open."""


_MOST_ENDED = 8  # sessions in a study that are ended for who waits for the next one


class AbortedError(HubbubError):
    """An attempt without a sum: somebody whom it needs did not answer."""


@dataclass(kw_only=True)
class Rounds:
    """One session after its set-up, at the aggregator.

    Args:
        aggregator: adds, and sees the sum alone.
        channel: what every frame is bound to.
        opening: what is kept of the set-up: the ROLL, the anchors of joint seeds; where the study
            asks for evidence all nonces and all evidence; the offer before them there, and where it
            says how features are standardised.
        lists: has what all silos draw from made before an attempt, where it is due.
        recorder: keeps what the aggregator has sent or used.
        attempts_begun: of the last round.
        permit: called before every attempt; raises if there must be none.
        sums: rounds that have had one.
        answers: attempts that each silo has answered, by roster index.
    """

    peers: Peers
    attendance: Attendance
    aggregator: Aggregator
    round_parameters: RoundParameters
    layout: Layout
    channel: Channel
    opening: Sequence[bytes] = ()
    lists: Lists | None = None
    recorder: Recorder = field(default_factory=NoRecorder)
    attempts_begun: int = 0
    permit: Callable[[], None] = lambda: None
    sums: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    _charged: bool = False
    _made: int = 0  # attempts in the session

    @property
    def session(self) -> bytes:
        """Its name."""
        return self.channel.session

    def round(
        self, number: int, parameters: Parameters, attempts: int = 1
    ) -> tuple[ring.Integers | None, int]:
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
        if self.attendance.ask_absent() and self._may_end:
            raise AbsentError(self.attendance.named_absent)
        for attempt in range(min(attempts, self._most_attempts())):
            if self._needs_all or len(self.attendance.present) <= self.round_parameters.quorum:
                self.attendance.look_around()  # one missing silo would spoil it, and others pay
            self._check_quorum()
            self.permit()
            if self.lists is not None:
                self.lists.prepare()
            self.attempts_begun += 1
            try:
                total = self.attempt(number, attempt, parameters)
                self.sums += 1
                self.attendance.tell()
                return total, self.attempts_begun
            except AbortedError:
                self.peers.warn(
                    "attempt", round=number, attempt=attempt, then="the next is made without them"
                )
        self._check_quorum()
        return None, self.attempts_begun

    def attempt(self, number: int, attempt: int, parameters: Parameters) -> ring.Integers:
        """One attempt at a round, from the model to the sum in grid steps.

        Raises:
            AbortedError: somebody is missing; `absent` says who.
            ProtocolError: a party signed a lie.
        """
        active = self.attendance.present
        model = self.aggregator.begin(number, attempt, active, parameters)
        self._made += 1
        self.recorder.keep(model, self.aggregator.short)
        self.recorder.seal()  # before it is sent, so that no begun attempt is forgotten
        # P8, P9: all have accepted this MODEL before anybody is shown another's link.
        if self.round_parameters.needs_joint_seed:
            shares = self._masked(Call.SEED, self._links(model, active), active)
        else:
            shares = self._masked(Call.MODEL, [model], active)
        if self.round_parameters.full_shares:
            self._open_shares(shares)
        if self.round_parameters.nodes:
            self._totals()
        try:
            return self.aggregator.attempt.integers()
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
        self.attendance.tell()
        too_few = len(self.attendance.present) < self.round_parameters.quorum
        if too_few or self.attendance.is_some_node_absent:
            raise AbsentError(self.attendance.named_absent, charged=self._charged)

    @property
    def _may_end(self) -> bool:
        """Whether the session may be ended for who waits: it has made its part of the study."""
        # A new session costs its set-up, and whatever of an epoch was paid for and not used. So
        # there are no more than eight such ends in a study, however often somebody comes and goes,
        # and none in the middle of an epoch of noise (P25).
        whole = self._made % self.round_parameters.noise_epoch == 0
        return whole and self._made * _MOST_ENDED >= self.round_parameters.steps

    @property
    def _needs_all(self) -> bool:
        """Whether an attempt needs all silos that its MODEL names."""
        return not self.round_parameters.nodes or self.round_parameters.needs_joint_seed

    def _links(self, model: bytes, active: Sequence[int]) -> list[bytes]:
        """Everybody has accepted the model, then all links are known, to all."""
        # P8 (3): a matrix is drawn after its model is fixed, so no link is passed on before all
        # have accepted the MODEL.
        links: dict[int, bytes] = {}
        asked = {index: [model] for index in active}
        for index, frames in self._answers(Call.MODEL, asked, needs_all=True):
            try:
                check_frames(frames, Tag.SEED_LINK, set())
                check_link(frames[0], self.channel, index, self.aggregator.attempt.time)
                links[index] = frames[0]
            except ProtocolError as error:
                self.attendance.raise_or_mark(error, index)
        self._abort_unless_all(active, links.keys())
        told = [links[index] for index in active]
        try:
            self.aggregator.attempt.learn_seed(told)
        except ProtocolError as error:
            index = next((i for i in active if self.attendance.name(i) == error.culprit), -1)
            if index < 0:
                raise  # nobody would be left out of the next attempt, so there is none
            self.attendance.raise_or_mark(error, index)
            raise AbortedError(str(error)) from None
        for link in told:
            self.recorder.keep(link)
        return told

    def _masked(
        self, call: Call, parts: Sequence[bytes], active: Sequence[int]
    ) -> dict[int, list[bytes]]:
        """The silos' answers, added as they come; the shares among them, by node."""
        shares: dict[int, list[bytes]] = {node: [] for node in self.peers.roster.nodes}
        taken, needs_all = set(), self._needs_all
        for index, frames in self._answers(call, dict.fromkeys(active, parts), needs_all=needs_all):
            if self._receive_masked(index, frames):
                taken.add(index)
                for share in frames[1:]:
                    shares[receiver_of(share)].append(share)
            frames.clear()  # or one vector lies here while the next is made
        if needs_all:
            self._abort_unless_all(active, taken)
        return shares

    def _receive_masked(self, index: int, frames: Sequence[bytes]) -> bool:
        """Look at a silo's shares, then add its vector to the sum; whether both could be used."""
        shared, silos = self.round_parameters.full_shares, self.attendance.silos
        holders = set(self.layout.neighbours(index, b"", silos)) if shared else set[int]()
        try:
            check_frames(frames, Tag.MASKED, holders)
        except ProtocolError as error:
            self.attendance.raise_or_mark(error, index)
            return False
        try:
            # First: once a vector is added, it cannot be taken out again for its silo's bad shares.
            shares = self.aggregator.checked_shares(index, frames[1:])
        except ProtocolError as error:  # costs nobody else anything: the silo is absent
            self.attendance.mark(error, index)
            return False
        if not self._receive(index, frames[0], shares):
            return False
        self.answers[index] += 1
        for share in frames[1:]:
            self.recorder.keep(share)
        return True

    def _open_shares(self, shares: Mapping[int, Sequence[bytes]]) -> None:
        """Have every node open its shares; a silo whose share does not open is left out.

        Raises:
            AbortedError: a node gave no answer, or too few silos are left.
        """
        arrivals = self._to_nodes(Tag.ARRIVED)
        self._gather(
            Call.SHARES, {node: [asked, *shares[node]] for node, asked in arrivals.items()}
        )
        for silo, nodes in sorted(self.aggregator.attempt.closed.items()):
            signers = " and ".join(sorted(map(self.attendance.name, nodes)))
            reason = f"its SHARE does not open, by the signed word of {signers}: one of them lies"
            # P4: only the node can see it, and either may lie. To leave the silo out harms no
            # privacy.
            who = f"{self.attendance.name(silo)} and {signers}"
            self.attendance.mark(ProtocolError(reason, culprit=who), silo)

    def _totals(self) -> None:
        """What the nodes say of the masks, or shares, of exactly those who answered.

        Raises:
            AbortedError: a node has not promised its total, or told none.
        """
        requests = self._to_nodes(Tag.REQUEST)
        promises = self._gather(Call.PROMISE, {node: [asked] for node, asked in requests.items()})
        shown = [promises[node] for node in requests]
        self._gather(Call.TOTAL, dict.fromkeys(requests, shown))

    def _to_nodes(self, tag: Tag) -> dict[int, bytes]:
        """A message for every node, kept; there is none if too few silos arrived."""
        try:
            frames = self.aggregator.ask_nodes(tag)
        except ProtocolError as error:
            raise AbortedError(str(error)) from None
        for frame in frames.values():
            self.recorder.keep(frame)
        return frames

    def _gather(self, call: Call, requests: Mapping[int, Sequence[bytes]]) -> dict[int, bytes]:
        """Every node's answer, taken into the attempt.

        Raises:
            AbortedError: a node gave none that could be used.
        """
        taken = {}
        for index, frames in self._answers(call, requests):
            if self._receive(index, frames[0]):
                taken[index] = frames[0]
        self._abort_unless_all(requests, taken.keys())
        return taken

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
                    self.attendance.absent[index] = answer
                elif not answer:
                    self.attendance.absent[index] = Absent(
                        why="garbled", said="its answer was empty"
                    )
                else:
                    yield index, answer
            if wave is first:
                self._end_probation(first, needs_all=needs_all)

    @property
    def _first_asked(self) -> Set[int]:
        """Who is on probation, unless the others must be shown every attempt in a row (P25)."""
        spared = self.round_parameters.quorum < len(self.peers.roster.silos)
        return (
            set()
            if self.round_parameters.needs_every_attempt and spared
            else self.attendance.on_probation
        )

    def _end_probation(self, tried: Set[int], *, needs_all: bool) -> None:
        """Go on to ask the others only if their answers can be of use.

        Raises:
            AbortedError: they cannot be; nobody else has paid.
        """
        failed = self.attendance.end_probation(tried)
        left = len(self.attendance.silos - self.attendance.absent.keys())
        if not failed or (not needs_all and left >= self.round_parameters.quorum):
            return
        raise AbortedError(
            f"expected an answer of {self.attendance.name(min(failed))} before others pay"
        )

    def _receive(self, index: int, answer: bytes, shares: Sequence[Frame] = ()) -> bool:
        """Give the aggregator an answer, and keep what it has used; whether it could be used."""
        try:
            short = self.aggregator.receive(answer, shares)
        except ProtocolError as error:
            self.attendance.raise_or_mark(error, index)
            return False
        self.recorder.keep(answer, short)
        return True

    def _abort_unless_all(self, wanted: Iterable[int], found: Set[int]) -> None:
        """Without everybody who is wanted there is no sum."""
        missing = sorted(set(wanted) - found)
        if missing:
            raise AbortedError(
                f"expected an answer of {self.attendance.name(missing[0])}, got none"
            )


# Noisy sums of one purpose, in one session after another, as sessions come to an end.
#
# A run's training is such a series, and so is whatever else it asks of the silos. A lost session is
# followed by a new one, which has new keys, masks and batches; what the silos had paid for in the
# old one is spent (docs/privacy.md P15).

NoisySum = NDArray[np.float64] | RevealedSum


@dataclass(kw_only=True)
class NoisySums:
    """Sums of one purpose.

    Args:
        record: where the messages of a session are kept.
        epoch: attempts that one row in a ledger pays for (P9).
        lost: told of a lost session: the number of its round, and how many were lost in a row
            without a sum; raises unless a new session would help.
        lift: from a projected sum and its draw to the whole one, where sums are projected.
        rounds: the session that is open.
    """

    set_up: Callable[[], Rounds]
    record: Callable[[Rounds], Recorder]
    epoch: int
    lost: Callable[[int, int, AbsentError], None]
    lift: Lift | None = None
    rounds: Rounds = field(init=False)
    _in_a_row: int = 0

    def __post_init__(self) -> None:
        self._open()

    def round(
        self, number: int, parameters: Parameters, attempts: int
    ) -> tuple[NoisySum | None, int]:
        """A round's noisy sum.

        Args:
            number: from 1.
            parameters: the model.
            attempts: the most to make, in all sessions.

        Returns:
            The sum in units of the gradient, None if every attempt failed, and the attempts made.
        """
        attempts_made = 0
        while attempts_made < attempts:
            try:
                total, count = self.rounds.round(number, parameters, attempts - attempts_made)
            except AbsentError as lost:
                attempts_made += self.rounds.attempts_begun
                # P9: where a kept list is lost, its epoch is paid for to the end.
                steps = self.rounds.round_parameters.steps
                attempts_made += -(steps - attempts + attempts_made) % self.epoch
                self.rounds.recorder.seal()
                self._in_a_row += 1
                self.lost(number, self._in_a_row, lost)
                self.rounds.recorder.close()
                self._open()
                continue
            attempts_made += count
            self.rounds.recorder.seal()
            if total is not None:
                self._in_a_row = 0
                return self._decoded(total, number, count - 1, parameters), attempts_made
        return None, attempts_made

    def _decoded(
        self, total: ring.Integers, number: int, attempt: int, parameters: Parameters
    ) -> NoisySum:
        """A sum in units of the gradient, back from the projection where there is one."""
        numbers = self.rounds.round_parameters
        values = RevealedSum(numbers, total)
        seed = self.rounds.aggregator.attempt.seed
        if self.lift is None or seed is None:
            return values
        return self.lift(
            np.asarray(values),
            # Silos have drawn the matrix by the digest of the model as they read it.
            draw_of(seed, number, attempt, numbers.sent(parameters)),
        )

    def _open(self) -> None:
        """A new session, whose messages are kept from the first."""
        self.rounds = self.set_up()
        self.rounds.recorder = self.record(self.rounds)
        for frame in self.rounds.opening:
            self.rounds.recorder.keep(frame)
        self.rounds.recorder.seal()  # before any round rests on it
