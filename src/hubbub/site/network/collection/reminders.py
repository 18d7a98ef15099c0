"""When people are reminded of who has not come: seldom at first, and daily once time is up."""

from __future__ import annotations

HOUR, DAY = 3600.0, 86400.0
_BEFORE = (14 * DAY, 7 * DAY, 3 * DAY, DAY, 6 * HOUR, HOUR)


def next_reminder(now: float, until: float) -> float:
    """The time after `now` at which the next reminder is due; all in seconds since 1970."""
    planned = [until - before for before in _BEFORE] + [until]
    later = [at for at in planned if at > now]
    if later:
        return min(later)
    return until + DAY * (int((now - until) // DAY) + 1)
