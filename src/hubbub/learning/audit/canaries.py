"""Canaries: records whose gradient is a coordinate of their own, as long as clipping lets it be.

The model is a plain logistic one with a feature for every canary, and the adversary sends it with
all weights zero: there the gradient of (x, y) is (1/2 - y) x. Canary j has x far beyond the
clipping norm in feature j and zero elsewhere, so what is left of it is the norm to which records
are clipped, in coordinate j, plus or minus. That is the worst that a record can do (docs/privacy.md
P1), and canaries do not meet: each coordinate is a trial of its own. Where sums are projected, a
canary is a row of the public matrix, and there are so few that rows hardly meet.

Joint batches have as many canaries as records, and no larger a share of them than the study's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.planning.mechanism import SUM_MARGIN
from hubbub.core.planning.plan_values import Plan
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batch_rows import Groups
from hubbub.core.protocol.round.projected_sum import LocalTask
from hubbub.core.protocol.round.round_parameters import Parameters, RoundParameters
from hubbub.core.session.layout import round_parameters_of
from hubbub.core.tabular.records import Records
from hubbub.learning.audit.expected_power import joint_part

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_FAR = 1e6  # how many clipping norms a canary's gradient is long
_LEAST_PROJECTED = 256  # features, so that no two matrices are alike by chance


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """The coins of one run's canaries: canary j is there if its coin is True.

    Where records are exchanged, it adds if True and subtracts if False. Who was in which batch is
    noted in `drawn`, (steps, canaries).
    """

    plan: Plan
    coins: NDArray[np.bool_]
    drawn: NDArray[np.bool_] = field(repr=False)

    @classmethod
    def tossed(cls, plan: Plan, count: int) -> Canaries:
        """So many fair coins."""
        words = SecureSource().words(count)
        return cls(
            plan=plan,
            coins=(words & np.uint64(1)).astype(bool),
            drawn=np.zeros((plan.mechanism.steps, count), dtype=bool),
        )

    @property
    def exchanged(self) -> bool:
        """Whether a coin exchanges records, and does not leave one out."""
        return self.plan.study.privacy.relation == "substitute"

    @property
    def features(self) -> int:
        """Of a record; more than a projection leaves of them."""
        projection = self.plan.mechanism.projection
        least = max(projection.dimension + 1, _LEAST_PROJECTED) if projection else 1
        return max(self.coins.size, least)

    def model(self) -> Any:
        """Whose gradients canaries have."""
        return learning.build_model(
            "logistic", inputs=(self.features,), outputs=1, bias=False, seed=b""
        )

    def round_parameters(self) -> RoundParameters:
        """The study's, for so many records of this shape."""
        round_parameters = round_parameters_of(self.plan.main, numbers=self.features)
        count = self.coins.size
        batch = joint_part(self.plan.mechanism, count)
        return replace(round_parameters, records=count, batch=batch, most_records=count)

    def tasks(self) -> list[LocalTask]:
        """The canaries dealt to silos; those that have no share in the noise have no records."""
        nobody = [slice(0, 0)] * (self.plan.study.parties.silos - self.plan.shares)
        return [
            _Noted(self._task(places), self.drawn[:, places]) for places in (*self._dealt, *nobody)
        ]

    def groups(self, silos: Sequence[Groups]) -> Rows:
        """In which group of its silo each is; one that is not there, as if it were (P25)."""
        group_of = np.zeros(self.coins.size, dtype=np.intp)
        for mine, groups in zip(self._dealt, silos, strict=False):
            there = self.coins[mine] | self.exchanged
            places = (SecureSource().words(there.size) % np.uint64(self._capacity)).astype(np.intp)
            places[there] = np.arange(np.count_nonzero(there))
            group_of[mine] = groups.of(places)
        return group_of

    @property
    def _dealt(self) -> list[slice]:
        """The places of those dealt to each of the first silos of the roster, in turn."""
        return [slice(first, None, self.plan.shares) for first in range(self.plan.shares)]

    @property
    def _capacity(self) -> int:
        """The most that a silo is dealt."""
        return ceil(self.coins.size / self.plan.shares)

    def _task(self, places: slice) -> learning.TrainingTask:
        """A silo's, with the canaries at these places that are there."""
        plan, capacity = self.plan, self._capacity
        return learning.TrainingTask(
            self.model(),
            self._records(np.arange(self.coins.size)[places]),
            clip=plan.record_clip,
            margin=SUM_MARGIN,
            method="chain",
            capacity=capacity,
            rows=plan.mechanism.noise.batch_rows(capacity, plan.mechanism.sample_rate),
        )

    def _records(self, places: NDArray[np.intp]) -> Records:
        """The canaries at these places that are there."""
        mine = places if self.exchanged else places[self.coins[places]]
        inputs = np.zeros((mine.size, self.features), dtype=np.float32)
        inputs[np.arange(mine.size), mine] = _FAR * max(self.plan.clip, 1.0)
        return Records(inputs=inputs, targets=(~self.coins[mine]).astype(np.float32))


class _Noted:
    """A silo's canaries; batch after batch it notes who was in.

    Args:
        task: what sums them.
        drawn: (steps, places of the silo), where it is noted.
    """

    def __init__(self, task: learning.TrainingTask, drawn: NDArray[np.bool_]) -> None:
        self._task, self._drawn, self._step = task, drawn, 0
        self.count, self.capacity = task.count, task.capacity

    def clipped_sum(self, parameters: Parameters, rows: Rows) -> Array:
        """As `TrainingTask`."""
        self._note(rows)
        return self._task.clipped_sum(parameters, rows)

    def projected_sum(
        self, parameters: Parameters, rows: Rows, dimension: int, draw_key: bytes
    ) -> Array:
        """As `TrainingTask`."""
        self._note(rows)
        return self._task.projected_sum(parameters, rows, dimension, draw_key)

    def _note(self, rows: Rows) -> None:
        self._drawn[self._step, rows[rows >= 0]] = True
        self._step += 1
