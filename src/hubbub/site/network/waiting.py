"""The time by which lines are tried again and answers are waited for, and nothing else.

Everything that waits for somebody on the network waits here, so that a test can let six minutes
pass in a second. What dates a file or measures how long something took reads the real time.
"""

from __future__ import annotations

import asyncio
import math
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import TypeVar

from hubbub.core.session.ask import Call

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
        """The next item of a queue.

        Raises:
            queue.Empty: none came within so many seconds.
        """
        return items.get(timeout=max(0.0, seconds))

    def loop(self) -> asyncio.AbstractEventLoop:
        """An event loop whose timers go by this clock."""
        return asyncio.new_event_loop()


# How long parties wait for each other, in seconds.


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long the aggregator waits.

    Args:
        deadline: seconds for a phase of a round; who has not answered then is left out.
        opening: seconds for a session's opening, in which silos read their records.
        waiting: seconds for parties that a session cannot do without to come, or come back.
        ask_again: seconds after which somebody who was left out is asked for.
        ping: seconds for a sign of life.
        grace: seconds that a session is not set up yet once enough silos are there for it, in case
            the others come.
        clock: that all this goes by.
    """

    deadline: float = 60.0
    opening: float = 600.0
    waiting: float = 3600.0
    ask_again: float = 30.0
    ping: float = 5.0
    grace: float = 30.0
    clock: Clock = field(default_factory=Clock, repr=False)

    def of(self, call: Call) -> float:
        """The deadline of a call."""
        if call in (Call.PING, Call.COLLECT_REST):
            return self.ping
        reading = (Call.OPEN, Call.COLLECT_KEY, Call.COLLECT_DEPOSIT, Call.COLLECT_LOOK)
        return self.opening if call in reading else self.deadline


# When an answer leaves: at multiples of a pace, so that the time it took does not tell a size.


def keep_pace(began: float, pace: float) -> None:
    """Wait until an answer that was begun then may leave.

    Args:
        began: seconds of `time.monotonic`.
        pace: seconds; 0: it leaves at once.
    """
    took = time.monotonic() - began
    if pace:
        time.sleep(ceil(took / pace) * pace - took)
