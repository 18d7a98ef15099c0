"""What of the machine is used: its cores, and memory for large vectors again and again.

Above 32 MiB the C library maps every block afresh and unmaps it when it is freed, so a step of a
large model faults for each 4 KiB that it touches: half of a step's time at 17 million parameters.
While pages are kept, freed blocks serve the next step; afterwards they go back. Threads share one
arena: one of their own has no room for a block so large. Only glibc is told.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

# Of mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_USUAL_TRIM, _USUAL_MMAPS, _USUAL_ARENAS = 128 * 1024, 65536, 0
_MANY = 10**6
_lock, _held = Lock(), [0]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def kept_pages(numbers: int) -> Iterator[None]:
    """Keep freed memory for what comes next, until the last of those who asked for it is done.

    Args:
        numbers: of a vector; fewer than a million are left to the C library's own rules.
    """
    library = _glibc() if numbers >= _MANY else None
    if library is None:
        yield
        return
    with _lock:
        _held[0] += 1
        if _held[0] == 1:
            _tell(library, trim=-1, maps=0, arenas=1)
    try:
        yield
    finally:
        with _lock:
            _held[0] -= 1
            if _held[0] == 0:
                _tell(library, trim=_USUAL_TRIM, maps=_USUAL_MMAPS, arenas=_USUAL_ARENAS)
                library.malloc_trim(0)


def one_arena() -> None:
    """Let threads that are begun from now on share the memory that is kept.

    In an arena of its own, which is unmapped whenever it is empty, each message would fault anew.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(_ARENA_MAX, 1)


def _tell(library: Any, *, trim: int, maps: int, arenas: int) -> None:
    """How much may lie free at the end, how many blocks are mapped, and in how many places."""
    library.mallopt(_TRIM_THRESHOLD, trim)
    library.mallopt(_MMAP_MAX, maps)
    library.mallopt(_ARENA_MAX, arenas)


@cache
def _glibc() -> Any:
    """The C library of this process, if it is glibc."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (there or not)
    except (AttributeError, OSError, TypeError):
        return None
    return library
