"""Who shares a mask with whom: the complete graph, or a random regular graph when silos are many.

Guarantees: with probability at least 1 - 2^-50 over the seed, the silos that neither collude nor
are missing stay connected, so that the smallest sum that can be isolated is theirs as a whole, if
those that collude were fixed before. The graph is a circulant on a random order of the silos; the
proof, and what holds against silos that are corrupted later, is in docs/privacy.md P4. It is drawn
from joint randomness after all keys are fixed.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from math import exp, inf, lgamma, log, sqrt

import numpy as np

from hubbub.core.protocol.primitives.randomness import (
    BLOCK_BYTES,
    KEY_BYTES,
    MOST_BYTES,
    SecureSource,
    cipher_at,
    keystream_into,
)
from hubbub.core.protocol.primitives.ring import Residues

FAILURE_BITS = 50
# May be drawn for a study: whoever sets sessions up again and again has the choice of one (P4).
MOST_GRAPHS = 1024
# Up to this many silos the least graph is the complete one; `planning` may ask for more neighbours.
_COMPLETE_UP_TO = 16
_LOG_NOTHING = 80.0  # of a sum of at most a million terms, what is left out beside the largest


@lru_cache(maxsize=64)  # a plan asks for it with every adversary
def degree(silos: int, colluders: int, dropouts: int) -> int:
    """Neighbours of each silo: silos - 1, or the least even number that keeps P4's promise."""
    if silos <= _COMPLETE_UP_TO:
        return silos - 1

    def promised(each: int) -> bool:  # the more neighbours, the likelier
        return failure_bits(silos, colluders, dropouts, each) >= FAILURE_BITS

    choices = range(2, silos - 1, 2)
    least = bisect_left(choices, True, key=promised)
    return choices[least] if least < len(choices) else silos - 1


def neighbours_of(one: int, silos: int, each: int, seed: bytes) -> list[int]:
    """The neighbours of one silo, sorted, on the graph of a public seed."""
    if each >= silos - 1:
        return [other for other in range(silos) if other != one]
    order = _circle(silos, seed)
    place = order.index(one)
    # P4: the nearest on either side of the circle; other neighbours would need another bound.
    offsets = [step for half in range(1, each // 2 + 1) for step in (half, -half)]
    return sorted({order[(place + step) % silos] for step in offsets})


@lru_cache(maxsize=8)
def _circle(silos: int, seed: bytes) -> tuple[int, ...]:
    """The silos in the random order of a public seed."""
    # A public key: everybody makes the same order, which is uniform because the seed is.
    key = hashlib.sha256(b"hubbub mask graph v1" + seed).digest()[:KEY_BYTES]
    return tuple(SecureSource(key).permutation(silos).tolist())


def failure_bits(silos: int, colluders: int, dropouts: int, each: int) -> float:
    """-log2 of C(N, 2) Pr[Hypergeometric(N, T, k) >= k - D], the bound of P4 for degree `each`."""
    least = each - dropouts
    if least <= 0:
        return 0.0
    # Below the mean by 10 sqrt(each) lies less than e^-200 (Hoeffding): nothing is looked at there.
    usual = int(each * colluders / silos - 10 * sqrt(each))
    first = max(least, each - silos + colluders, usual)
    terms: list[float] = []
    top = -inf
    for bad in range(first, min(each, colluders) + 1):
        term = (
            _log_choose(colluders, bad)
            + _log_choose(silos - colluders, each - bad)
            - _log_choose(silos, each)
        )
        top = max(top, term)
        if term < top - _LOG_NOTHING:  # past the largest, terms fall faster and faster
            break
        terms.append(term)
    if not terms:
        # P4 (a): there are not enough colluders to hold so many places.
        return inf
    tail = top + log(sum(exp(term - top) for term in terms))
    # P4 (b): the union over two windows of the circle.
    return -(log(silos * (silos - 1) / 2) + tail) / log(2)


def _log_choose(total: int, part: int) -> float:
    """log of the binomial coefficient."""
    return lgamma(total + 1) - lgamma(part + 1) - lgamma(total - part + 1)


# The mask stream: AES-128-CTR keystream, added to a vector of residues or subtracted, in place.
#
# A mask is named by a key that is used for nothing else (one pair, one round, one attempt), so the
# counter starts at zero. The keystream's bytes are read as little-endian words of the vector's
# width.
# It is produced in chunks that stay in the cache and is never held as a whole; several threads may
# each take a span of the vector, since the counter can start at any block.

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
    # Little-endian on every machine, or the masks of two of them would not cancel.
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
