"""The mask stream: AES-128-CTR keystream, added to or subtracted from a vector of residues in place.

A mask is named by a key that is used for nothing else (one pair, one round, one attempt), so the
counter starts at zero. The keystream's bytes are read as little-endian words of the vector's width.
It is produced in chunks that stay in the cache and is never held as a whole; several threads may
each take a span of the vector, since the counter can start at any block.
"""

from __future__ import annotations

from concurrent.futures import Executor

import numpy as np

from hubbub.randomness import BLOCK_BYTES, CHUNK_BYTES, cipher_at, keystream_into
from hubbub.ring import Residues


def add_mask(vector: Residues, key: bytes, *, negative: bool = False) -> None:
    """Add the mask of `key` to `vector`, or subtract it; in place, modulo 2^w."""
    _apply(vector, key, 0, negative)


def add_mask_in(
    pool: Executor, workers: int, vector: Residues, key: bytes, *, negative: bool = False
) -> None:
    """`add_mask` on several threads; the result is the same to the last bit."""
    per_block = BLOCK_BYTES // vector.itemsize
    spans = np.linspace(0, vector.size // per_block, workers + 1).astype(int) * per_block
    spans[-1] = vector.size
    jobs = [
        pool.submit(_apply, vector[low:high], key, int(low) // per_block, negative)
        for low, high in zip(spans[:-1], spans[1:], strict=True)
    ]
    for job in jobs:
        job.result()


def _apply(vector: Residues, key: bytes, block: int, negative: bool) -> None:
    """The keystream from `block` on, chunk by chunk."""
    cipher = cipher_at(key, block)
    chunk = np.empty(min(CHUNK_BYTES, max(vector.nbytes, 1)), dtype=np.uint8)
    view = memoryview(chunk)
    combine = np.subtract if negative else np.add
    words = chunk[: chunk.size // vector.itemsize * vector.itemsize].view(
        vector.dtype.newbyteorder("<")
    )
    for start in range(0, vector.size, words.size):
        part = vector[start : start + words.size]
        keystream_into(cipher, view[: part.nbytes])
        combine(part, words[: part.size], out=part)
