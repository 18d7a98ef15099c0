"""Canaries: records whose gradient is a coordinate of their own, as long as clipping lets it be.

The model is a plain logistic one with a feature for every canary, and the adversary sends it with
all weights zero: there the gradient of (x, y) is (1/2 - y) x. Canary j has x far beyond the
clipping norm in feature j and zero elsewhere, so what is left of it is the norm to which records
are clipped, in coordinate j, plus or minus. That is the worst that a record can do (docs/privacy.md
P1), and canaries do not meet: each coordinate is a trial of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.planning import SUM_MARGIN, Plan
from hubbub.protocol import LocalTask, SecureSource, group_rows
from hubbub.study import Records

Array = NDArray[np.float64]

_FAR = 1e6  # how many clipping norms a canary's gradient is long


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """The coins of one run's canaries: canary j is there if its coin is True.

    Where records are exchanged, it adds if True and subtracts if False.
    """

    plan: Plan
    coins: NDArray[np.bool_]

    @classmethod
    def tossed(cls, plan: Plan, count: int) -> Canaries:
        """So many fair coins."""
        words = SecureSource().words(count)
        return cls(plan=plan, coins=(words & np.uint64(1)).astype(bool))

    @property
    def exchanged(self) -> bool:
        """Whether a coin exchanges records, and does not leave one out."""
        return self.plan.study.privacy.relation == "substitute"

    def tasks(self, silos: int) -> list[LocalTask]:
        """The canaries dealt to the first silos of the roster; the others have no records."""
        plan, count = self.plan, self.coins.size
        model = learning.build_model("logistic", inputs=(count,), outputs=1, bias=False, seed=b"")
        capacity = ceil(count / silos)
        return [
            learning.TrainingTask(
                model,
                self._records(range(first, count, silos) if first < silos else ()),
                clip=plan.record_clip,
                margin=SUM_MARGIN,
                method="chain",
                capacity=capacity,
                rows=group_rows(
                    capacity,
                    plan.study.training.sample_rate,
                    plan.correlation.bands if plan.correlation else 1,
                ),
            )
            for first in range(plan.study.parties.silos)
        ]

    def _records(self, places: Sequence[int]) -> Records:
        """The canaries at these coordinates that are there."""
        mine = np.array([j for j in places if self.exchanged or self.coins[j]], dtype=np.intp)
        inputs = np.zeros((mine.size, self.coins.size), dtype=np.float32)
        inputs[np.arange(mine.size), mine] = _FAR * max(self.plan.clip, 1.0)
        return Records(inputs=inputs, targets=(~self.coins[mine]).astype(np.float32))
