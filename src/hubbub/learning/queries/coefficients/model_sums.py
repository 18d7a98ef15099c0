"""What is asked of a record for a model's coefficients: the block of one regression, on its scale.

Two files say of which, and where its sums are taken: `newton_steps` and `own_sums`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.estimation.stacking import Stacked, stack
from hubbub.estimation.statistic import Iterated, OneSum

NAME = "model coefficients"
LOST = "its sums were charged, and lost in an interruption"


@dataclass(frozen=True, kw_only=True)
class ModelSums:
    """The block of a regression, alone in its vector.

    Args:
        asked: the regression.
        relation: "add-remove" or "substitute".
    """

    asked: OneSum | Iterated
    relation: str

    @property
    def stacked(self) -> Stacked:
        """The block on its scale, alone."""
        return stack({NAME: self.asked}, self.relation)

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return self.asked.size

    @property
    def least_rounds(self) -> int:
        """A model is released without coefficients, too."""
        return 0
