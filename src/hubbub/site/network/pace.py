"""When an answer leaves: at multiples of a pace, so that the time it took does not tell a size."""

from __future__ import annotations

import time
from math import ceil


def keep_pace(began: float, pace: float) -> None:
    """Wait until an answer that was begun then may leave.

    Args:
        began: seconds of `time.monotonic`.
        pace: seconds; 0: it leaves at once.
    """
    took = time.monotonic() - began
    if pace:
        time.sleep(ceil(took / pace) * pace - took)
