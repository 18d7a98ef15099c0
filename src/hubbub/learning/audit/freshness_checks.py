"""What must not be: vectors that are not masked, a matrix or a token list that was there before.

A mask that is left out, or used again, leaves a silo's own vector, or the difference of two, on the
wire: numbers that are small beside the word. So of every masked vector, and of its difference to
the same silo's last one, the small numbers are counted: under fresh masks each number is small with
the same known chance, whatever was masked (docs/privacy.md P4). And a matrix by which sums are
projected must be new in every step, or the next gradient may lie along it (P8 (4)). Joint batches
that are charged as drawn from fresh lists must not all be those of one list (P9 (b)).
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.protocol.projection.matrix import Draw
from hubbub.core.protocol.projection.product import Lift
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.recorder import NoRecorder
from hubbub.core.verification.evidence.audit_result import SMALL_SHARE, SURELY, Seen

Array = NDArray[np.float64]
Drawn = NDArray[np.bool_]


class MaskedFrames(NoRecorder):
    """Counts small numbers in the masked vectors of a session as they come.

    Args:
        round_parameters: the numbers of the rounds.
    """

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._round_parameters = round_parameters
        self._last: dict[int, ring.Residues] = {}
        self.seen = Seen()

    def keep(self, frame: bytes, short: bytes = b"") -> None:
        """Look at a frame; with full shares there is none to be looked at."""
        header = unverified(frame)
        if header.tag is not Tag.MASKED or self._round_parameters.full_shares:
            return
        size, bits = self._round_parameters.masked_bytes, self._round_parameters.word_bits
        vector = ring.from_bytes(header.payload[:size], self._round_parameters.dimension, bits)
        last = self._last.get(header.sender)
        for one in (vector,) if last is None else (vector, vector - last):
            self._count(one)
        self._last[header.sender] = vector

    def _count(self, numbers: ring.Residues) -> None:
        most = 2.0 ** (self._round_parameters.word_bits - 1) * SMALL_SHARE
        signed = ring.to_integers(numbers)
        small = int(np.count_nonzero((signed >= -most) & (signed < most)))
        self.seen += Seen(numbers=numbers.size, small=small)


class Matrices:
    """Lifts projected sums, and counts how often a matrix is the last one.

    Args:
        lift: from a projected sum to the whole one; None where nothing is projected.
    """

    def __init__(self, lift: Lift | None) -> None:
        self._lift, self._last = lift, np.zeros(0)
        self.seen = Seen()

    def __call__(self, projected: Array, draw: Draw) -> Array:
        """The lifted sum."""
        if self._lift is None:
            return projected
        mark = self._lift(np.ones_like(projected), draw)
        again = int(np.array_equal(mark, self._last))
        self._last, self.seen = mark, self.seen + Seen(matrices=1, repeated=again)
        return self._lift(projected, draw)


def of_lists(drawn: Drawn, places: Drawn) -> Seen:
    """Whether all joint batches of a session look like those of one list.

    So many records would be in two batches running as places are. Fresh lists look so by chance,
    which is known; where that is not rare, nothing is said.

    Args:
        drawn: (steps, records), who was in which batch.
        places: (steps, records), which places of its list each batch has.
    """
    from scipy.stats import hypergeom  # which takes long to import

    both, again = (np.count_nonzero(one[1:] & one[:-1], axis=1) for one in (drawn, places))
    batch, records = int(np.count_nonzero(places[0])), places.shape[1]
    chance = hypergeom.logpmf(again, records, batch, batch).sum()
    return Seen(lists=1, kept=int(chance < log(SURELY) and np.array_equal(both, again)))
