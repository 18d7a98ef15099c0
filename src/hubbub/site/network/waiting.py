"""The time by which lines are tried again and answers are waited for, and how often.

Everything that waits for somebody on the network waits here, so that a test can let six minutes
pass in a second. What dates a file or measures how long something took reads the real time.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import TypeVar

from hubbub.core.errors import HubbubError
from hubbub.core.session.ask import AbsentError, Call
from hubbub.site.network.folder_files import MOST_FRUITLESS

_LOOK_SECONDS = 1.0
Check = Callable[[], None]  # raises where nothing is to be waited for
_Item = TypeVar("_Item")


class Clock:
    """Time as it passes."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float, check: Check = lambda: None) -> None:
        """Wait; look every second whether there is still something to wait for."""
        looks = max(1, math.ceil(seconds / _LOOK_SECONDS))
        for _ in range(looks):
            time.sleep(seconds / looks)
            check()

    def take(self, items: queue.SimpleQueue[_Item], seconds: float) -> _Item:
        """The next item of a queue."""
        return items.get(timeout=max(0.0, seconds))

    def loop(self) -> asyncio.AbstractEventLoop:
        """An event loop whose timers go by this clock."""
        return asyncio.new_event_loop()


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long the aggregator waits, in seconds."""

    deadline: float = 60.0  # for a phase of a round; who has not answered then is left out
    # For a session's opening, in which silos read their records; once of who is silent at it.
    opening: float = 600.0
    waiting: float = 3600.0  # for parties that a session cannot do without
    ask_again: float = 30.0  # until somebody who was left out is asked for
    ping: float = 5.0  # for a sign of life
    grace: float = 30.0  # that a session waits for others once enough silos are there
    clock: Clock = field(default_factory=Clock, repr=False)

    def of(self, call: Call) -> float:
        """The deadline of a call."""
        if call in (Call.PING, Call.PROPOSE, Call.COLLECT_REST):
            return self.ping
        reading = (Call.OPEN, Call.COLLECT_KEY, Call.COLLECT_DEPOSIT, Call.COLLECT_LOOK)
        return self.opening if call in reading else self.deadline


# When an answer leaves: at multiples of a pace, so that the time it took does not tell a size.


def keep_pace(began: float, pace: float) -> None:
    """Wait until an answer that was begun then, of `time.monotonic`, may leave."""
    took = time.monotonic() - began
    if pace:
        time.sleep(ceil(took / pace) * pace - took)


# Which of an aggregator's studies begins: one at a time, so that all ledgers see the same order.


class Door:
    """Lets one study through at a time, from its set-up until its first sum is there.

    Two that were begun at once could each have the last room under the cap of another silo, where
    neither goes on, and both have paid.
    """

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._holder: bytes | None = None

    def enter(self, study: bytes, *, wait: bool = True) -> bool:
        """Enter once no other study is in the door, or only if none is; whether it is in."""
        with self._moved:
            enters = self._moved.wait_for(
                lambda: self._holder in (None, study), None if wait else 0.0
            )
            self._holder = study if enters else self._holder
            return enters

    def leave(self, study: bytes) -> None:
        """Let the next one in, if this study is in the door."""
        with self._moved:
            if self._holder == study:
                self._holder = None
                self._moved.notify_all()

    @property
    def is_free(self) -> bool:
        """Whether nobody is in it."""
        return self._holder is None


# How often and how soon an aggregator tries again what came to nothing.
#
# Whoever refuses costs the others: a session's set-up draws a mask graph, of which a study has so
# many (docs/privacy.md P4), and a round that is lost has been paid for. So pauses double, up to
# what the operator waits in all, and a run stops once so many sessions more were begun than its
# sums make up for: whoever fails, in whichever phase, and however they take turns. Silos count for
# themselves too, on disk (`party_folder.py`): an aggregator that starts anew begins with no clean
# slate there.

# Of the sums of one purpose: so many make up for a session, however long the study is. With a
# study's four purposes and `MOST_FRUITLESS`, that is less than a study's graphs.
_MOST_MADE_UP = 225
_LONGEST = 150  # times the shortest pause, once a session was begun: five minutes
_PAID = 3  # doublings for a try that has made others pay


class WaitedError(HubbubError):
    """The operator waits no longer, and somebody is still missing."""


@dataclass(kw_only=True)
class Patience:
    """What is left of an aggregator's patience."""

    timeouts: Timeouts
    pause: float  # seconds; the shortest
    _doublings: int = 0
    _until: float | None = None
    _fruitless: float = 0.0
    _failed: Counter[str] = field(default_factory=Counter)

    def begun(self) -> None:
        """A session was begun: its secrets were exchanged, or some of them."""
        self._fruitless += 1

    def opened(self) -> None:
        """A session is set up: who was only waited for has come."""
        if not self._doublings:
            self._until = None

    def reached(self, sums: int, of: int) -> None:
        """So many sums were had, of so many attempts that a session may make."""
        if sums:
            made_up = sums * min(1.0, _MOST_MADE_UP / of)
            self._fruitless = max(0.0, self._fruitless - made_up)
            self._doublings, self._until = 0, None
            if not self._fruitless:
                self._failed.clear()

    def wait(self, error: AbsentError, *, in_round: bool, check: Check = lambda: None) -> None:
        """Wait before the next try; a session that is lost once is followed by the next at once.

        Args:
            in_round: whether the session was set up, and was lost later.

        Raises:
            WaitedError: there is no next try; it names who failed.
        """
        now = self.timeouts.clock.now()
        if self._until is None:
            self._until = now + self.timeouts.waiting
        silent = all(absence.why == "silent" for absence in error.absent.values())
        if silent and not error.begun and not in_round:  # who has only not come yet costs nothing
            seconds = self.pause
        else:
            seconds = self._next_pause(error, in_round=in_round)
            self._doublings += _PAID if error.charged else 1
            self._failed.update(error.absent.keys())
        if self._fruitless >= MOST_FRUITLESS:
            raise WaitedError(f"{error}; {self._told}")
        if now + seconds > self._until:
            raise WaitedError(
                f"{error}; start again when they can take part, with a longer --deadline "
                "if the connection is slow"
            )
        self.timeouts.clock.sleep(seconds, check)

    def _next_pause(self, error: AbsentError, *, in_round: bool) -> float:
        """Seconds; what makes others pay is tried a few times only.

        Who refuses before a session is begun costs nobody: as soon as it can, it is let in.
        """
        if in_round and not self._doublings:
            return 0.0
        doubled = self.pause * 2.0**self._doublings
        if error.charged:
            return doubled
        free = not (error.begun or in_round)
        longest = max(self.pause, self.timeouts.ask_again) if free else self.pause * _LONGEST
        return min(doubled, longest)

    @property
    def _told(self) -> str:
        """Who failed, and what to do."""
        listed = ", ".join(f"{name} {count} times" for name, count in self._failed.most_common())
        return (
            f"{MOST_FRUITLESS} sessions in a row gave no sum, and each uses up part of what the "
            f"study has: {listed} did not do their part; check there, or make a study without them"
        )
