"""A revealed sum in units of the gradient, made of its residues where it is read.

A vector of float64 is up to four times as large as the residues of a sum; whoever takes a step
along it reads it block by block and needs no more of it than a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.protocol.primitives import ring
from hubbub.core.protocol.round.round_parameters import RoundParameters, decoded


class RevealedSum:
    """What a round reveals, (dimension,), to be read as an array of float64 is; public.

    Args:
        round_parameters: of the round.
        total: the sum in grid steps, (dimension,); not copied.
    """

    def __init__(self, round_parameters: RoundParameters, total: ring.Integers) -> None:
        self._round_parameters, self._total = round_parameters, total

    @property
    def shape(self) -> tuple[int, ...]:
        """(dimension,)."""
        return self._total.shape

    @property
    def size(self) -> int:
        """The dimension."""
        return self._total.size

    def __getitem__(self, part: slice) -> NDArray[np.float64]:
        """A block of it, decoded."""
        return decoded(self._round_parameters, self._total[part])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it, decoded."""
        return self[:].astype(dtype or np.float64, copy=False)
