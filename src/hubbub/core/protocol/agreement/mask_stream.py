"""The mask stream: AES-128-CTR keystream, added to a vector of residues or subtracted, in place.

A mask is named by a key that is used for nothing else (one pair, one round, one attempt), so the
counter starts at zero. The keystream's bytes are read as little-endian words of the vector's width.
It is produced in chunks that stay in the cache and is never held as a whole; several threads may
each take a span of the vector, since the counter can start at any block.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hubbub.core.protocol.primitives.randomness import (
    BLOCK_BYTES,
    MOST_BYTES,
    cipher_at,
    keystream_into,
)
from hubbub.core.protocol.primitives.ring import Residues

_AT_ONCE = 64  # keystreams that are open together
_WORTH_A_THREAD = 1 << 19  # bytes of a vector below which one thread is faster
_HEAD_START = 1 << 18  # bytes of a vector's masks that the caller adds while a thread wakes up


class MaskStream:
    """Adds masks on a number of threads. The threads change the speed and nothing else.

    Args:
        threads: how many, the caller's own included; the library that makes the keystream releases
            Python's lock.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def add(self, vector: Residues, key: bytes, *, negative: bool = False) -> None:
        """Add the mask of `key` to `vector`, or subtract it; in place, modulo 2^w."""
        self.add_all(vector, [(key, negative)])

    def add_all(self, vector: Residues, masks: Sequence[tuple[bytes, bool]]) -> None:
        """Add the masks of many keys, or subtract those that are marked; each thread its span."""
        if self._pool is None or vector.nbytes < _WORTH_A_THREAD:
            _apply(vector, masks, 0)
            return
        blocks, head = -(-vector.nbytes // BLOCK_BYTES), _HEAD_START // BLOCK_BYTES
        span = -(-(blocks - head // max(1, len(masks))) // self._threads)
        own = max(0, blocks - span * (self._threads - 1))
        words = BLOCK_BYTES // vector.itemsize
        jobs = [
            self._pool.submit(_apply, vector[low * words : (low + span) * words], masks, low)
            for low in range(own, blocks, span)
        ]
        _apply(vector[: own * words], masks, 0)
        for job in jobs:
            job.result()


def _apply(vector: Residues, masks: Sequence[tuple[bytes, bool]], block: int) -> None:
    """The keystreams from `block` on: a chunk takes many masks while it is at hand."""
    chunk = np.empty(min(MOST_BYTES, vector.nbytes), dtype=np.uint8)
    words, view = chunk.view(vector.dtype.newbyteorder("<")), chunk.data
    for first in range(0, len(masks), _AT_ONCE):
        streams = [
            (cipher_at(key, block), np.subtract if negative else np.add)
            for key, negative in masks[first : first + _AT_ONCE]
        ]
        for start in range(0, vector.size, max(words.size, 1)):
            part = vector[start : start + words.size]
            for cipher, combine in streams:
                keystream_into(cipher, view[: part.nbytes])
                combine(part, words[: part.size], out=part)
