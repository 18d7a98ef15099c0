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
from typing import TypeVar

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
