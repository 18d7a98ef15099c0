"""A silo's records in a joint batch: which of its tokens the public seed has drawn.

Everybody knows which places of the list are drawn; only the owner knows which records they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.round.terms import Terms
from hubbub.sampling import chosen_records, partition, without_replacement


class Tokens:
    """One list of tokens as one silo knows it, and how many batches were drawn from it.

    Args:
        positions: of the silo's own records in the list, (records,).
    """

    def __init__(self, positions: NDArray[np.intp]) -> None:
        self._positions = positions
        self._seed: bytes | None = None
        self._drawn = 0

    def __repr__(self) -> str:
        return "Tokens(<private>)"

    def chosen(self, terms: Terms, seed: bytes) -> NDArray[np.intp]:
        """The silo's records in the next batch from this list.

        The seed that was learned first after the list was made is the list's (P9): nobody knew it
        when the tokens were wrapped and shuffled.
        """
        self._seed = self._seed or seed
        self._drawn += 1
        scheme = without_replacement if terms.fresh_lists else partition
        places = scheme(self._seed, terms.records, terms.batch, self._drawn)
        return chosen_records(places, self._positions)
