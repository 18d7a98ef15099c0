"""What stands in an optimizer's place where statistics are asked for: every noisy sum is kept.

A step writes the sum into its place and, where another follows, the parameters at which that one is
taken. Whoever verifies a run takes the same steps. This file needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        self._layout, self._sigma = layout, sigma

    def step(self, parameters: NDArray[Any], gradient: NDArray[Any]) -> NDArray[Any]:
        """What is kept after one more sum.

        Args:
            parameters: what was kept before, float32.
            gradient: the noisy sum.
        """
        return self._layout.after(parameters, gradient, self._sigma)

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing: what is kept says all."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on; IntegrityError if this is the state of something else."""
        if state:
            raise IntegrityError(
                f"expected no state beside what is kept of sums, found {sorted(state)}; restore "
                "the checkpoint"
            )
