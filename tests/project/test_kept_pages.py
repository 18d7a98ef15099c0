"""Memory that is kept for the next step: what it does to faults, and that it goes back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hubbub.core.kept_pages import _glibc

# Sixteen vectors of 80 MB, one after the other, and the faults that they cost.
SCRIPT = """
import resource
import numpy as np
from contextlib import nullcontext
from hubbub.core.kept_pages import kept_pages
with {context}:
    np.ones(10**7)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(16):
        np.ones(10**7)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(context: str) -> int:
    run = [sys.executable, "-c", SCRIPT.format(context=context)]
    return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(_glibc() is None, reason="only glibc is told")
def test_large_vectors_fault_once_while_pages_are_kept() -> None:
    alone = faults("nullcontext()")
    assert alone > 16  # of huge pages at least one for each vector
    assert faults("kept_pages(10**7)") < alone / 8


@pytest.mark.slow
@pytest.mark.skipif(_glibc() is None, reason="only glibc is told")
def test_small_vectors_are_left_to_the_library_and_the_last_to_leave_gives_all_back() -> None:
    few = faults("kept_pages(10)")
    assert few > 16
    inside = "kept_pages(10**7): pass\nwith nullcontext()"
    assert faults(inside) > 16


@pytest.mark.slow
@pytest.mark.skipif(_glibc() is None, reason="only glibc is told")
def test_who_asks_within_and_is_done_takes_nothing_from_who_asked_before() -> None:
    nested = "kept_pages(10**7):\n  with kept_pages(10**7): np.ones(10**7)\n  with nullcontext()"
    script = SCRIPT.replace("\n    ", "\n      ")
    run = [sys.executable, "-c", script.format(context=nested)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert int(done.stdout) < faults("nullcontext()") / 8


# A thread that joins messages of 40 MB from pieces, as a line does, and the faults of eight.
LINE = """
import resource
from threading import Thread
from hubbub.core.kept_pages import kept_pages, one_arena
def join():
    b"".join([bytes(1 << 19) for _ in range(80)])
def rounds():
    join(), join()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        join()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
{begin}
line = Thread(target=rounds)
with kept_pages({numbers}):
    line.start()
    line.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(_glibc() is None, reason="only glibc is told")
def test_a_line_joins_large_messages_in_memory_that_it_had_before() -> None:
    found = [
        int(
            subprocess.run(
                [sys.executable, "-c", LINE.format(begin=begin, numbers=numbers)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for begin, numbers in (("one_arena()", 10**7), ("", 10))
    ]
    assert found[0] < found[1] / 8
