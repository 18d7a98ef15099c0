"""What the aggregator sees of vectors before they are summed: they must look like noise alone.

A mask that is left out, or used again, leaves a silo's own vector, or the difference of two, on the
wire: numbers that are small beside the word. So of every masked vector, and of its difference to
the same silo's last one, the small numbers are counted: under fresh masks each number is small with
the same known chance, whatever was masked (docs/privacy.md P4).
"""

from __future__ import annotations

import numpy as np

from hubbub.assurance.evidence import SMALL_SHARE
from hubbub.protocol import RoundParameters, Tag, ring, unverified
from hubbub.session import Recorder


class MaskedFrames(Recorder):
    """Counts small numbers in the masked vectors of a session as they come.

    Args:
        terms: the numbers of the rounds.
    """

    def __init__(self, terms: RoundParameters) -> None:
        self._terms = terms
        self._last: dict[int, ring.Residues] = {}
        self.numbers = self.small = 0

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Look at a frame; with full shares there is none to be looked at."""
        found = unverified(frame)
        if found.tag is not Tag.MASKED or self._terms.full_shares:
            return
        size, bits = self._terms.masked_bytes, self._terms.word_bits
        vector = ring.from_bytes(found.payload[:size], self._terms.dimension, bits)
        last = self._last.get(found.sender)
        for one in (vector,) if last is None else (vector, vector - last):
            self._count(one)
        self._last[found.sender] = vector

    def seal(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""

    def _count(self, numbers: ring.Residues) -> None:
        most = 2.0 ** (self._terms.word_bits - 1) * SMALL_SHARE
        signed = ring.to_integers(numbers)
        self.numbers += numbers.size
        self.small += int(np.count_nonzero((signed >= -most) & (signed < most)))
