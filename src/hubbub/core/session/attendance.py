"""Who of a session's parties is there, and when somebody who was missing is asked for again.

Who gave no usable answer is *absent*, and asked again later, after a pause that doubles each time
that it fails anew. Who is back is *on probation*: it is asked before all others, who pay only if it
answers or can be spared. So whoever refuses again and again makes the others pay once, not each
time. Whoever was not there when the session was set up waits for the next one, whatever it says
(docs/privacy.md P29); so does whoever's correlated noise has a gap (P25).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from math import inf

from hubbub.core.errors import ProtocolError
from hubbub.core.session.ask import LEFT_OUT, Absent, Call, Peers

RESTARTED = "no-session"
_MOST_DOUBLINGS = 10  # of the pause before somebody who failed again is asked for


@dataclass(kw_only=True)
class Attendance:
    """Who of a session is there.

    Args:
        peers: everybody but the aggregator.
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

    def ask_again_every(self, seconds: float, now: Callable[[], float]) -> None:
        """After so many seconds ask for who is missing; longer each time that it fails again."""
        self._retry = (seconds, now)

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
            if index not in {*self.silos, *self.peers.roster.nodes}:  # whatever it says (P29)
                self.absent[index] = Absent(why=RESTARTED, said="it came after the set-up")
            elif answer and not self.gaps_end:  # it knows the session
                del self.absent[index]
                self.on_probation.add(index)
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
        now, pause = clock(), seconds * 2.0 ** min(self._failed[index], _MOST_DOUBLINGS)
        return now >= self._next_retry.setdefault(index, now + pause)
