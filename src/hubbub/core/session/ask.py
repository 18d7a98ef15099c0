"""The one seam of the protocol: the aggregator asks parties, and answers come.

Whoever implements `Peers` carries frames and knows how. In one process the parties are asked one
after the other (`in_process.py`); among machines there are envelopes, deadlines and an engine
(`hubbub.site.network`). Everything above the seam, the set-up and the rounds, exists once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import inf
from typing import Any

from hubbub.core.errors import HubbubError, ProtocolError
from hubbub.core.number_format import listed
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.message_sizes import LINK_BYTES
from hubbub.core.protocol.primitives.wire import EVERYBODY, Channel, Tag, receiver_of, tag_of


class Call(IntEnum):
    """What a party is asked, in a session; from COLLECT_KEY on, in a collection."""

    PING = 0
    OPEN = 1
    COMMIT = 2
    REVEAL = 3
    CONTRIBUTE = 4
    CONFIRM = 5
    FINISH = 6
    MODEL = 7
    SEED = 8
    TOTAL = 9
    CLOSE = 10
    LIST = 11
    WRAP = 12
    SHOW = 13
    LOOK = 14
    MIX = 15
    TAKE = 16
    GIVE_UP = 17
    JUDGE = 18
    SHARES = 19
    ATTEST = 20
    EVIDENCE = 21
    PROMISE = 22
    RESULT = 23
    PROPOSE = 24
    COLLECT_KEY = 40
    COLLECT_DEPOSIT = 41
    COLLECT_LOOK = 42
    COLLECT_PROMISE = 43
    COLLECT_TOTAL = 44
    COLLECT_REST = 45


LEFT_OUT = "left-out"  # of a session, by the aggregator: not asked for as long as it lasts


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A party without a usable answer.

    Args:
        why: "silent", "garbled", `LEFT_OUT`, or one of `offer.REASONS`.
        said: the same for people.
        culprit: whom the party blames, where it says that the protocol was broken.
        error: what it raised, where the party is in this process.
    """

    why: str
    said: str
    culprit: str = ""
    error: HubbubError | None = field(default=None, repr=False)


class AbsentError(HubbubError):
    """Parties without whom it cannot go on.

    Args:
        absent: by name.
        begun: whether it was a set-up whose secrets were begun: a graph may have been drawn (P4).
        charged: whether it was a round for which silos have paid that had done their part.
        rolled: whether it was a set-up whose ROLL had named them: they were there before (P29).
    """

    def __init__(
        self,
        absent: Mapping[str, Absent],
        *,
        begun: bool = False,
        charged: bool = False,
        rolled: bool = False,
    ) -> None:
        whom = listed({name: one.said for name, one in sorted(absent.items())})
        super().__init__(f"expected every party's answer, got none from {whom}")
        self.absent, self.begun, self.charged = dict(absent), begun, charged
        self.rolled = rolled


Answer = list[bytes] | Absent


class Peers(ABC):
    """Everybody but the aggregator, as the aggregator can ask them."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster

    @abstractmethod
    def ask(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        session: bytes,
        *,
        needs_all: bool = False,
        more_seconds: float = 0.0,
    ) -> Iterator[tuple[int, Answer]]:
        """Ask parties by roster index; each once, answers as they come.

        Args:
            requests: the frames for each party.
            session: of which it is asked, 16 bytes.
            needs_all: whether the answers are of no use if one is missing; who asks one party
                after the other asks no more then.
            more_seconds: that the answers may take beyond what a round's do.
        """

    def ask_all(
        self,
        call: Call,
        requests: Mapping[int, Sequence[bytes]],
        session: bytes,
        more_seconds: float = 0.0,
    ) -> dict[int, list[bytes]]:
        """Everybody's answer.

        Raises:
            AbsentError: naming who gave none.
        """
        answers: dict[int, list[bytes]] = {}
        absent: dict[str, Absent] = {}
        for index, answer in self.ask(call, requests, session, more_seconds=more_seconds):
            if isinstance(answer, Absent):
                absent[self.roster.name(index)] = answer
            else:
                answers[index] = answer
        if absent:
            raise AbsentError(absent)
        return answers

    def note(self, event: str, **values: Any) -> None:  # noqa: B027 (not everybody keeps a log)
        """Tell an ordinary event."""

    def warn(self, event: str, **values: Any) -> None:  # noqa: B027
        """Tell an event that somebody should look at."""

    def left_out(self, absent: Mapping[str, Absent]) -> None:  # noqa: B027
        """Hear who is missing from now on, by name."""

    def garbled(self, index: int, said: str, culprit: str) -> Absent:
        """A party whose answer cannot be used; a relay can have done that: it counts as silence."""
        self.warn("garbled", whom=self.roster.name(index), said=said)
        return Absent(why="garbled", said=said, culprit=culprit)


# What an answer to a round's call must hold before anybody uses it.


def check_frames(frames: Sequence[bytes], tag: Tag, share_holders: Set[int]) -> None:
    """Look at the tags of an answer; who uses its frames verifies them.

    A frame too many would reach parties that rightly refuse it, and cost them their part; a
    share too few leaves a node that cannot answer.

    Args:
        frames: the answer, one frame at least.
        tag: of its first frame.
        share_holders: the nodes for which a share must follow, by roster index.

    Raises:
        ProtocolError: it has other frames.
    """
    shares = frames[1:]
    holders = {receiver_of(share) for share in shares}
    good = (
        tag_of(frames[0]) == tag
        and all(tag_of(share) == Tag.SHARE for share in shares)
        and len(holders) == len(shares)
        and holders == share_holders
    )
    if not good:
        raise ProtocolError(f"expected one {tag.name}, got other frames", culprit="relay")


def check_link(frame: bytes, channel: Channel, silo: int, time: tuple[int, int]) -> None:
    """Look at a link of a joint seed, which its silo must have signed for this very attempt.

    Args:
        silo: from whom it came, by roster index.

    Raises:
        ProtocolError: it is another's, of another attempt, or no link.
    """
    link = channel.parse(frame)
    if (link.round, link.attempt) != time:
        raise ProtocolError("expected a link of this attempt, got another", culprit="relay")
    if link.receiver != EVERYBODY or len(link.payload) != LINK_BYTES:
        raise ProtocolError(
            f"expected a link of {LINK_BYTES} bytes to everybody, got another",
            culprit=channel.roster.name(silo),
        )


# Who of a session's parties is there, and when somebody who was missing is asked for again.
#
# Who gave no usable answer is *absent*, and asked again later, after a pause that doubles each time
# that it fails anew. Who is back is *on probation*: it is asked before all others, who pay only if
# it answers or can be spared. So whoever refuses again and again makes the others pay once, not
# each time. Whoever was not there when the session was set up waits for the next one, whatever it
# says (docs/privacy.md P29); so does whoever's correlated noise has a gap (P25). Each return costs
# the others a session or an attempt if it is followed by another absence, so the pause also doubles
# with each return in a run: an answer between them, or a session, is no reason to forget it. One
# return is seen in the sessions of several purposes, and counts once.

RESTARTED = "no-session"
_MOST_DOUBLINGS = 10  # of the pause before somebody who failed again is asked for
_MOST_RETURNS = 4  # that are counted


@dataclass(kw_only=True)
class Attendance:
    """Who of a session is there.

    Args:
        session: 16 bytes.
        silos: with whom the session was set up, by roster index.
        gaps_end: whether who has missed an attempt waits for the next session.
        absent: who is missing, by roster index.
        on_probation: silos that are asked before the others, by roster index.
    """

    peers: Peers
    session: bytes
    silos: Set[int]
    gaps_end: bool
    absent: dict[int, Absent] = field(default_factory=dict)
    on_probation: set[int] = field(default_factory=set)
    _retry: tuple[float, Callable[[], float]] = (inf, time.monotonic)
    _next_retry: dict[int, float] = field(default_factory=dict)
    _failed: Counter[int] = field(default_factory=Counter)  # probations in a row
    _returns: Counter[int] = field(default_factory=Counter)  # in all sessions of the run
    _seen: Counter[int] = field(default_factory=Counter)  # those before it was last there, here

    def ask_again_every(
        self, seconds: float, now: Callable[[], float], returns: Counter[int]
    ) -> None:
        """After so many seconds ask for who is missing; longer each time that it goes again.

        Args:
            seconds, now: the shortest pause, and a clock.
            returns: how often each party was back in the run, which is counted on here.
        """
        self._retry, self._returns, self._seen = (seconds, now), returns, Counter(returns)

    @property
    def present(self) -> list[int]:
        """The silos that are there, by roster index in ascending order."""
        return [index for index in self.peers.roster.silos if index not in self.absent]

    @property
    def is_some_node_absent(self) -> bool:
        """Whether a compute node is missing, without which there is no sum."""
        return any(node in self.absent for node in self.peers.roster.nodes)

    @property
    def named_absent(self) -> dict[str, Absent]:
        """Who is missing, by name."""
        return {self.name(index): absent for index, absent in self.absent.items()}

    def name(self, index: int) -> str:
        """A party's name."""
        return self.peers.roster.name(index)

    def tell(self) -> None:
        """Tell who is missing."""
        self.peers.left_out(self.named_absent)

    def ask_absent(self) -> bool:
        """Now and then, see whether somebody who was missing is there again.

        Returns:
            Whether somebody was asked for, and somebody waits for the next session.
        """
        asked = [index for index, absent in self.absent.items() if absent.why != LEFT_OUT]
        due = [index for index in asked if self._is_due(index)]
        if not due:
            return False
        for index, answer in self.peers.ask(Call.PING, dict.fromkeys(due, ()), self.session):
            del self._next_retry[index]
            if isinstance(answer, Absent):
                continue
            if self._returns[index] == self._seen[index]:
                self._returns[index] = min(self._returns[index] + 1, _MOST_RETURNS)
            known = index in {*self.silos, *self.peers.roster.nodes}
            if known and answer and not self.gaps_end:  # it knows the session
                del self.absent[index]
                self.on_probation.add(index)
                self._seen[index] = self._returns[index]
            elif not known:  # whatever it says (P29)
                self.absent[index] = Absent(why=RESTARTED, said="it came after the set-up")
            elif answer:
                self.absent[index] = Absent(why=RESTARTED, said="its noise has a gap")  # P25
            else:
                self.absent[index] = Absent(why=RESTARTED, said="it was started anew")
        return any(absent.why == RESTARTED for absent in self.absent.values())

    def look_around(self) -> None:
        """See whether those who are believed to be there are.

        It takes a round trip, so only where somebody is missing already: where silos come and go.
        """
        if not self.absent or self._retry[0] == inf:
            return
        asked = dict.fromkeys(self.present, ())
        for index, answer in self.peers.ask(Call.PING, asked, self.session):
            if isinstance(answer, Absent):
                self.absent[index] = answer
            elif not answer:
                self.absent[index] = Absent(why=RESTARTED, said="it was started anew")

    def end_probation(self, tried: Set[int]) -> Set[int]:
        """Those who were asked first have answered, or not; who has not, by roster index."""
        self.on_probation -= tried
        failed = tried & self.absent.keys()
        for index in tried:
            self._failed[index] = self._failed[index] + 1 if index in failed else 0
        return failed

    def raise_or_mark(self, error: ProtocolError, index: int) -> None:
        """A signed lie stops the study; what a relay can have done counts as silence."""
        if error.culprit == self.name(index):
            raise error
        self.mark(error, index)

    def mark(self, error: ProtocolError, index: int) -> None:
        """A party whose answer cannot be used is absent, for a reason that people are told."""
        absent = self.peers.garbled(index, str(error), error.culprit)
        self.absent[index] = replace(absent, error=error)

    def _is_due(self, index: int) -> bool:
        """Whether to ask for somebody who is missing, now."""
        seconds, clock = self._retry
        failed = min(self._failed[index], _MOST_DOUBLINGS)
        now, pause = clock(), seconds * 2.0 ** max(failed, self._returns[index])
        return now >= self._next_retry.setdefault(index, now + pause)
