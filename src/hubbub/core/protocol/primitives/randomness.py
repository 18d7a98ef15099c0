"""Cryptographic randomness: every secret draw of hubbub comes from here.

AES-128 in counter mode, keyed by the operating system, is the only generator: NumPy's, torch's and
Python's are predictable from their outputs and are not used for anything that a guarantee rests on.
The keystream itself comes from the `cryptography` library. This file knows nothing of what the
numbers are for.

A copy of a source, such as a restored image of a machine makes, draws again what was drawn. So what
an attempt needs comes from a *branch*, by a name that no other attempt has, and after each attempt
the source is *renewed* with what the operating system draws then. The name alone decides what a
copy draws, not the moment: the same MODEL shown to both is answered with the same bytes, whose
difference tells nothing, and any other MODEL with draws that are independent (docs/privacy.md P3).
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

Words = NDArray[np.uint64]

KEY_BYTES = 16
BLOCK_BYTES = 16
# One chunk of keystream stays in the second-level cache while it is used. Where little is done with
# it a longer piece is faster, as each call has its price, with several threads above all.
CHUNK_BYTES = 1 << 17
MOST_BYTES = 1 << 19
_ZEROS = memoryview(bytes(MOST_BYTES))
_STATE_BYTES = 32


def cipher_at(key: bytes, block: int) -> CipherContext:
    """AES-128-CTR under `key`, positioned at a block of 16 bytes."""
    return Cipher(AES(key), CTR(block.to_bytes(BLOCK_BYTES, "big"))).encryptor()


def keystream_into(cipher: CipherContext, buffer: memoryview) -> None:
    """Overwrite `buffer`, of at most MOST_BYTES, with the next bytes of the keystream.

    Raises:
        ValueError: the buffer is longer, and its end would have been left as it was.
    """
    if buffer.nbytes > MOST_BYTES:
        raise ValueError(f"expected a buffer of {MOST_BYTES} bytes at most, got {buffer.nbytes}")
    cipher.update_into(_ZEROS[: buffer.nbytes], buffer)


class SecureSource:
    """A stream of unpredictable words, and the exact draws that are made from them.

    Args:
        key: 16 bytes. Left out, as in all real use, it is drawn from the operating system. Tests
            pass one to repeat a run; whoever knows the key knows every draw.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._cipher = cipher_at(os.urandom(KEY_BYTES) if key is None else key, 0)
        self._process, self._repeats = os.getpid(), key is not None

    def __repr__(self) -> str:
        return "SecureSource(<secret>)"

    def fill(self, words: NDArray[np.unsignedinteger[Any]]) -> None:
        """Overwrite a contiguous array of words of any width with uniform ones."""
        if os.getpid() != self._process:  # a fork copied the stream: the child takes a new one
            self._cipher, self._process = cipher_at(os.urandom(KEY_BYTES), 0), os.getpid()
        buffer = words.view(np.uint8).data
        for start in range(0, buffer.nbytes, CHUNK_BYTES):
            keystream_into(self._cipher, buffer[start : start + CHUNK_BYTES])

    def branch(self, name: bytes) -> SecureSource:
        """A source of its own for one use; from copies of this one, the same for the same name.

        Args:
            name: what the use has alone, such as the digest of a MODEL.
        """
        # P3 (a), (b): another name has independent draws, and the same name in a copy the same.
        drawn = hashlib.sha256(b"hubbub branch v1" + self.bytes(_STATE_BYTES) + name).digest()
        return SecureSource(drawn[:KEY_BYTES])

    def renew(self) -> None:
        """Mix in fresh randomness of the operating system; a source whose key a test chose stays.

        Guarantees:
            1. What is drawn later follows neither from what this source was before nor from the
               operating system's part alone.
        """
        # P3 (c): the old state stays in, in case the operating system repeats itself.
        fresh = b"" if self._repeats else os.urandom(_STATE_BYTES)
        mixed = hashlib.sha256(b"hubbub renew v1" + self.bytes(_STATE_BYTES) + fresh).digest()
        self._cipher = cipher_at(mixed[:KEY_BYTES], 0)

    def words(self, count: int) -> Words:
        """`count` uniform 64-bit words."""
        drawn = np.empty(count, dtype=np.uint64)
        if count:
            self.fill(drawn)
        return drawn

    def bytes(self, count: int) -> bytes:
        """`count` uniform bytes."""
        return self.words(-(-count // 8)).tobytes()[:count]

    def chosen(self, count: int, rate: float) -> NDArray[np.intp]:
        """The indices below `count` that are each, independently, chosen with probability `rate`.

        The probability is floor(rate 2^64) / 2^64, so never above `rate`.
        """
        if rate >= 1:
            return np.arange(count)
        # P1: rounded down, so never more often than is charged.
        return np.flatnonzero(self.words(count) < np.uint64(int(rate * 2.0**64)))

    def permutation(self, count: int) -> NDArray[np.intp]:
        """A uniform permutation: the order of distinct random words."""
        while True:
            drawn = self.words(count)
            order = np.argsort(drawn, kind="stable")
            ranked = drawn[order]
            # Equal words would stay in the order of their places, which is not uniform.
            if not np.any(ranked[1:] == ranked[:-1]):
                return order
