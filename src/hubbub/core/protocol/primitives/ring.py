"""Residues modulo 2^16, 2^32 or 2^64, and the grid on which real numbers become residues.

A residue lives in the NumPy unsigned type of its width, so that reduction costs nothing: additions
wrap by themselves. This file knows no key, no party and no privacy; rounding after the noise is
free by docs/privacy.md P5, and wrapping is a matter of utility by P7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError

Residues = NDArray[Any]
Integers = NDArray[np.signedinteger[Any]]

_UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {
    16: np.uint16,
    32: np.uint32,
    64: np.uint64,
}
_SIGNED: dict[int, type[np.signedinteger[Any]]] = {16: np.int16, 32: np.int32, 64: np.int64}
WORD_BITS = tuple(_UNSIGNED)


def residue_type(word_bits: int) -> type[np.unsignedinteger[Any]]:
    """The unsigned type whose arithmetic is modulo 2^word_bits."""
    if word_bits not in _UNSIGNED:
        raise StudyError(f"expected word_bits to be 16, 32 or 64, got {word_bits!r}; choose one")
    return _UNSIGNED[word_bits]


def zeros(dimension: int, word_bits: int) -> Residues:
    """A vector of zero residues."""
    return np.zeros(dimension, dtype=residue_type(word_bits))


def to_residues(integers: NDArray[np.int64], word_bits: int) -> Residues:
    """Integers modulo 2^word_bits; of 64 bits they are the integers' own memory."""
    # The conversion keeps the low bits, which is the reduction of P7.
    kind = residue_type(word_bits)
    return integers.view(kind) if word_bits == 64 else integers.astype(kind)


def to_integers(residues: Residues) -> NDArray[np.int64]:
    """The representatives in [-2^(w-1), 2^(w-1)); of 64 bits they are the residues' own memory."""
    return representatives(residues).astype(np.int64, copy=False)


def representatives(residues: Residues) -> Integers:
    """The same, of w bits each, in the residues' own memory: what is added to them may overflow."""
    return residues.view(_SIGNED[residues.dtype.itemsize * 8])


def largest_integer(word_bits: int) -> int:
    """The largest integer that a residue can stand for."""
    residue_type(word_bits)
    return int(2 ** (word_bits - 1) - 1)


def from_bytes(data: bytes | memoryview, dimension: int, word_bits: int) -> Residues:
    """Little-endian residues; the caller has checked the length."""
    kind = np.dtype(residue_type(word_bits)).newbyteorder("<")
    return np.frombuffer(data, dtype=kind, count=dimension)


def to_bytes(residues: Residues) -> bytes:
    """Little-endian bytes."""
    return residues.astype(residues.dtype.newbyteorder("<"), copy=False).tobytes()


def final_bytes(residues: Residues) -> memoryview:
    """The same without a copy; nothing writes to the residues any more."""
    words = residues.astype(residues.dtype.newbyteorder("<"), copy=False)
    words.flags.writeable = False
    return words.data.cast("B")
