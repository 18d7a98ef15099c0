"""Whether intervals hold what they are of as often as they say, by a test that can fail."""

from __future__ import annotations

from collections.abc import Iterable

from hubbub.testing.laws import too_often


def hold_as_often(
    intervals: Iterable[tuple[float, float, float]], releases: int, miss: float = 0.05
) -> None:
    """Each (low, truth, high) misses with this chance at most, and half as long with more.

    Several of one release are taken to miss together. False alarms: at most 1e-6.
    """
    ends = list(intervals)

    def missed(part: float) -> int:
        outside = sum(
            abs(truth - (low + high) / 2) > part * (high - low) / 2 for low, truth, high in ends
        )
        return round(outside * releases / len(ends))

    assert not too_often(missed(1.0), releases, miss)
    assert too_often(missed(0.5), releases, miss)
