"""From the integers that a round reveals to the noisy sum.

All of it is public and the same on every machine, so whoever holds a transcript can do it again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.protocol.round.round_parameters import RoundParameters


def decoded(terms: RoundParameters, total: NDArray[np.int64]) -> NDArray[np.float64]:
    """The sum in units of the gradient.

    Args:
        terms: of the round.
        total: the sum in grid steps, (dimension,).

    Returns:
        (dimension,) float64.
    """
    return np.multiply(total, terms.grid_step, dtype=np.float64)
