"""A set of silos as bits, silo 1 the highest bit of the first byte; how many there are is known."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from hubbub.core.errors import ProtocolError, StudyError


def bits_of(silos: Iterable[int], count: int) -> bytes:
    """A set of roster indices, of so many silos, as bits."""
    chosen = sorted(silos)
    if chosen and not 1 <= chosen[0] <= chosen[-1] <= count:
        raise StudyError(
            f"expected silos from 1 to {count}, got {chosen[0]} to {chosen[-1]}; "
            "name silos by their index in the roster"
        )
    flags = np.zeros(count, dtype=bool)
    flags[[index - 1 for index in chosen]] = True
    return np.packbits(flags).tobytes()


def set_of(bits: bytes | memoryview, count: int, sender: str) -> frozenset[int]:
    """The set that bits stand for.

    Raises:
        ProtocolError: naming the sender; they are no set of so many silos.
    """
    fits = len(bits) == (count + 7) // 8
    chosen = _found(bytes(bits), count) if fits else None
    if chosen is None:
        raise ProtocolError(f"expected a set of at most {count} silos, got another", culprit=sender)
    return chosen


@lru_cache(maxsize=4)
def _found(bits: bytes, count: int) -> frozenset[int] | None:
    """The set, None if it is not one; all silos of one process are sent the same."""
    flags = np.unpackbits(np.frombuffer(bits, dtype=np.uint8))
    if flags[count:].any():
        return None
    return frozenset((np.flatnonzero(flags) + 1).tolist())
