"""The one seam of the protocol: the aggregator asks parties, and answers come.

Whoever implements `Peers` carries frames and knows how. In one process the parties are asked one
after the other (`in_process.py`); among machines there are envelopes, deadlines and an engine
(`hubbub.site.network`). Everything above the seam, the set-up and the rounds, exists once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from hubbub.core.errors import HubbubError
from hubbub.core.protocol.primitives.identity import Roster


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
        why: "silent", "garbled", `LEFT_OUT`, or one of `session_offer.REASONS`.
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
        listed = "; ".join(f"{name}: {one.said}" for name, one in sorted(absent.items()))
        super().__init__(f"expected every party's answer, got none from {listed}")
        self.absent, self.begun, self.charged = dict(absent), begun, charged
        self.rolled = rolled


Answer = list[bytes] | Absent


class Peers(ABC):
    """Everybody but the aggregator, as the aggregator can ask them.

    Args:
        roster: everybody.
    """

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
            call: what is asked.
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
