"""A clock that is moved: the time that passes by itself, and what was added to it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from typing import TypeVar

from hubbub.site.network.waiting import Check, Clock

_Item = TypeVar("_Item")
_LOOK = 0.01  # seconds between looks at it


class MovedClock(Clock):
    """Time that passes so many times faster.

    Args:
        speed: seconds of this clock in one real second; may be changed at any time.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self.speed, self._ahead = speed, 0.0
        self._loops: list[asyncio.AbstractEventLoop] = []
        self._ended = threading.Event()
        threading.Thread(target=self._move, daemon=True, name="clock").start()

    def stop(self) -> None:
        """Go on as real time does."""
        self._ended.set()

    def now(self) -> float:
        """As `Clock.now`."""
        return time.monotonic() + self._ahead

    def sleep(self, seconds: float, check: Check = lambda: None) -> None:
        """As `Clock.sleep`."""
        end = self.now() + seconds
        while (left := end - self.now()) > 0:
            time.sleep(min(_LOOK, left))
            check()

    def take(self, items: queue.SimpleQueue[_Item], seconds: float) -> _Item:
        """As `Clock.take`."""
        end = self.now() + seconds
        while True:
            left = end - self.now()
            try:
                return items.get(timeout=min(_LOOK, max(0.0, left)))
            except queue.Empty:
                if left <= 0:
                    raise

    def loop(self) -> asyncio.AbstractEventLoop:
        """As `Clock.loop`."""
        made = asyncio.new_event_loop()
        made.time = self.now  # type: ignore[method-assign]
        self._loops.append(made)
        return made

    def _move(self) -> None:
        """Add, and have the loops look at their timers."""
        while not self._ended.wait(_LOOK):
            self._ahead += _LOOK * (self.speed - 1)
            for one in self._loops:
                if not one.is_closed():
                    one.call_soon_threadsafe(lambda: None)
