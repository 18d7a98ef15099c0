"""The paper's way of making masks: Python's `secrets` for full shares, keyed Blake2 for pairs.

Both make 32 bits a call, in a loop; a sample of the coordinates is timed and scaled up, since each
costs the same.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

SAMPLE = 50_000


def full_share(coordinates: int) -> list[int]:
    """One share of Algorithm 1: uniform numbers from the operating system's generator."""
    return [secrets.randbelow(1 << 32) for _ in range(coordinates)]


def pair_mask(coordinates: int) -> list[int]:
    """One mask of Algorithm 4: a keyed hash of the coordinate's number."""
    key = bytes(32)
    return [
        int.from_bytes(
            hashlib.blake2s(number.to_bytes(8, "little"), key=key, digest_size=4).digest(), "little"
        )
        for number in range(coordinates)
    ]


def milliseconds(mask: Callable[[int], list[int]], coordinates: int, tries: int) -> list[float]:
    """What one mask of `coordinates` costs, several times."""
    spent = []
    for _ in range(tries):
        start = time.perf_counter()
        mask(SAMPLE)
        spent.append(1e3 * (time.perf_counter() - start) * coordinates / SAMPLE)
    return spent
