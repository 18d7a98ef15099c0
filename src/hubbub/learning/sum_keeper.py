"""What stands in an optimizer's place where statistics are asked for: every noisy sum is kept.

A step writes the sum into its place and, where another follows, the parameters at which that one is
taken. Whoever verifies a run takes the same steps. This file needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import IntegrityError
from hubbub.planning import SumLayout


class SumKeeper:
    """Keeps the noisy sums of a study's statistics.

    Args:
        layout: of the sums.
        sigma: standard deviation of all noise on each of their numbers.
    """

    def __init__(self, layout: SumLayout, sigma: float) -> None:
        self._layout, self._sigma, self._made = layout, sigma, 0

    def step(self, parameters: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
        """What is kept after one more sum.

        Args:
            parameters: what was kept before, float32.
            gradient: the noisy sum.
        """
        kept = self._layout.after(parameters, self._made, gradient, self._sigma)
        self._made += 1
        return kept

    def state(self) -> dict[str, NDArray[Any]]:
        """How many sums were made, as "step"."""
        return {"step": np.array(self._made, np.int64)}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on after so many sums."""
        made = int(state.get("step", -1))
        if set(state) != {"step"} or not 0 <= made <= self._layout.rounds:
            raise IntegrityError(
                f"expected at most {self._layout.rounds} sums in a checkpoint, found another "
                "state; restore it"
            )
        self._made = made
