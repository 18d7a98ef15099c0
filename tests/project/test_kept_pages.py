"""Memory that is kept for the next step: what it does to faults, and that it goes back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hubbub.kept_pages import _glibc

# Sixteen vectors of 80 MB, one after the other, and the faults that they cost.
SCRIPT = """
import resource
import numpy as np
from contextlib import nullcontext
from hubbub.kept_pages import kept_pages
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


@pytest.mark.skipif(_glibc() is None, reason="only glibc is told")
def test_large_vectors_fault_once_while_pages_are_kept() -> None:
    alone = faults("nullcontext()")
    assert alone > 16  # of huge pages at least one for each vector
    assert faults("kept_pages(10**7)") < alone / 8


@pytest.mark.skipif(_glibc() is None, reason="only glibc is told")
def test_small_vectors_are_left_to_the_library_and_the_last_to_leave_gives_all_back() -> None:
    few = faults("kept_pages(10)")
    assert few > 16
    inside = "kept_pages(10**7): pass\nwith nullcontext()"
    assert faults(inside) > 16


@pytest.mark.skipif(_glibc() is None, reason="only glibc is told")
def test_who_asks_within_and_is_done_takes_nothing_from_who_asked_before() -> None:
    nested = "kept_pages(10**7):\n  with kept_pages(10**7): np.ones(10**7)\n  with nullcontext()"
    script = SCRIPT.replace("\n    ", "\n      ")
    run = [sys.executable, "-c", script.format(context=nested)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert int(done.stdout) < faults("nullcontext()") / 8
