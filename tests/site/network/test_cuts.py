"""Cuts of up to six minutes, under a clock that is moved; the benchmark makes hundreds."""

from __future__ import annotations

import asyncio
import queue
import threading
import time

import pytest

from hubbub.site.network.waiting import Clock

pytest.importorskip("nats", reason="needs the extra net")
cuts = pytest.importorskip("benchmarks.network.cuts", reason="benchmarks/ is not part of this copy")


@pytest.mark.slow_cases("2-4")
@pytest.mark.parametrize(
    ("nodes", "number"),
    [
        (2, 4),
        pytest.param(2, 20, marks=pytest.mark.slow),
        pytest.param(0, 20, marks=pytest.mark.slow),
    ],
)
def test_random_cuts_lose_nothing_and_everybody_comes_back(nodes: int, number: int) -> None:
    """No abort, every answer charged once, and all are heard of within ten seconds of the line."""
    row, each = cuts.cut_over_and_over(nodes, number, seed=1)
    assert len(each) == number
    assert row.wrong == ""
    assert row.most_back_seconds < 10.0
    assert row.most_back_unnoticed_seconds < cuts.NOTICED_SECONDS + 10.0


@pytest.mark.parametrize("clock", [Clock(), None], ids=["real", "moved"])
def test_a_clock_waits_as_long_as_it_says(clock: Clock | None) -> None:
    moved = cuts.MovedClock(speed=1.0)
    clock = clock or moved
    began = clock.now()
    clock.sleep(0.02)
    with pytest.raises(queue.Empty):
        clock.take(queue.SimpleQueue(), 0.02)
    loop = clock.loop()
    loop.run_until_complete(asyncio.sleep(0.02))
    loop.close()
    assert clock.now() - began > 0.055
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    items.put(1)
    assert clock.take(items, -1.0) == 1
    moved.stop()


def test_six_minutes_pass_in_no_time_on_a_moved_clock() -> None:
    clock = cuts.MovedClock(speed=10_000.0)
    loop = clock.loop()
    began, moved = time.monotonic(), clock.now()
    sleeper = threading.Thread(target=clock.sleep, args=(360.0,))
    sleeper.start()
    loop.run_until_complete(asyncio.sleep(360.0))
    sleeper.join()
    assert clock.now() - moved >= 360
    assert time.monotonic() - began < 360  # less than if nobody had moved it
    loop.close()
    clock.stop()
