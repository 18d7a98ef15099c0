"""A silo's records in a joint batch: which of its tokens the public seed has drawn.

Everybody knows which places of the list are drawn; only the owner knows which records they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.protocol.token_lists.batch_schemes import (
    chosen_records,
    partition,
    without_replacement,
)


class Tokens:
    """One shuffled token list as one silo knows it.

    Args:
        positions: of the silo's own records in the list, (records,).
        first: the round for which the list was made.
    """

    def __init__(self, positions: NDArray[np.intp], first: int) -> None:
        self._positions, self._first = positions, first
        self._seed: bytes | None = None

    def __repr__(self) -> str:
        return "Tokens(<private>)"

    def chosen(
        self, round_parameters: RoundParameters, seed: bytes, round: int
    ) -> NDArray[np.intp]:
        """The silo's records in the batch of a round.

        The joint seed of its first round is the list's (P9): nobody knew it when the tokens were
        wrapped and shuffled. Which batch it is follows from the round alone.

        Raises:
            ProtocolError: the list is for another round, or its first one was missed.
        """
        if round == self._first:
            self._seed = seed
        if self._seed is None or (round_parameters.fresh_lists and round != self._first):
            raise ProtocolError(
                "expected a new shuffled token list for this batch, got another's; make one (P9)"
            )
        scheme = without_replacement if round_parameters.fresh_lists else partition
        places = scheme(
            self._seed, round_parameters.records, round_parameters.batch, round - self._first + 1
        )
        return chosen_records(places, self._positions)
