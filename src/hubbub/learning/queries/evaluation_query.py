"""How well the model does on records that silos hold back, with noise (docs/privacy.md P16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any

from hubbub.core.planning.mechanism import Mechanism, mechanism_of_all
from hubbub.core.planning.query import Array, Query, Scores, SiloData, Turn
from hubbub.core.study.data import Data
from hubbub.core.study.privacy import Privacy
from hubbub.core.tabular.records import Records
from hubbub.learning.study.score_vector import ScoreVector
from hubbub.learning.study.training import Evaluate

if TYPE_CHECKING:
    from hubbub.core.protocol.round.projected_sum import LocalTask

EVALUATION = "evaluation"
# An evaluated record says that it is there, whether it was right, and its loss between 0 and 1.
_NUMBERS = 3
_Z = 1.96  # standard errors on either side


def _error(mean: float, count: float, noise: float) -> float:
    """The standard error of a noisy mean of numbers from 0 to 1: chance, and noise / count.

    Numbers with this mean vary most if each is 0 or 1; of a share near 0 or 1 two records more are
    taken to have been otherwise (Agresti and Coull 1998), so that none of ten is no certainty.
    """
    share = (mean * count + 2.0) / (count + 4.0)
    return sqrt(share * (1 - share) / (count + 4.0) + (noise / count) ** 2)


@dataclass(frozen=True)
class EvaluationQuery(Query):
    """Evaluations on held-back records, every few steps of the training.

    Args:
        asked: how often, and what they may cost.
        data, privacy: of the study.
        steps: of the training.
        dimension: of the model that goes down; None if that is not public yet.
    """

    asked: Evaluate
    data: Data
    privacy: Privacy
    steps: int
    dimension: int | None

    @cached_property
    def mechanism(self) -> Mechanism:
        """Sums over all records that are held back (P16)."""
        asked = self.asked
        count = self.steps // asked.every
        return mechanism_of_all(
            EVALUATION,
            self.data,
            self.privacy,
            sums=count,
            norm=1.0,
            distance=self.vector.diameter,
            every=asked.every,
        )

    @property
    def vector(self) -> ScoreVector:
        """What a record is in a sum."""
        return ScoreVector.of(self.privacy.relation)

    @property
    def numbers(self) -> int:
        """Of one record: that it is there, whether it was right, its loss."""
        return _NUMBERS

    @property
    def broadcast_numbers(self) -> int | None:
        """The model's parameters."""
        return self.dimension

    @property
    def turn(self) -> Turn:
        """Between the steps of the training."""
        return Turn.BETWEEN

    @property
    def epsilon(self) -> float:
        """What all evaluations together may cost."""
        return self.asked.epsilon

    def units(self, silo: SiloData) -> int:
        """Records that are held back, or patients."""
        return 0 if silo.held_back is None else silo.held_back.units

    def max_units(self, silo: SiloData) -> int:
        """Of records, held back or not."""
        return silo.max_units

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's held-back records."""
        assert silo.held_back is not None, "an evaluation has records"  # noqa: S101
        return self._task(silo, silo.held_back, silo.max_units)

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All held-back records."""
        records = Records.together([silo.held_back for silo in silos if silo.held_back is not None])
        return self._task(silos[0], records, sum(silo.max_units for silo in silos))

    def _task(self, silo: SiloData, records: Records, capacity: int) -> LocalTask:
        from hubbub import learning

        learner: learning.Learner = silo.learner
        return learning.EvaluationTask(
            learner.per_unit_model,
            records,
            method=learner.method,
            capacity=capacity,
            device=learner.device,
            target_type=learner.target_type,
            marks=learning.ScoreMarks(self.vector),
        )

    def scores_of(self, total: Array, learner: Any, sigma: float) -> Scores:
        """Accuracy, or what another kind of target has, and mean loss from one noisy sum.

        Args:
            total: the sum.
            learner: what the model is.
            sigma: standard deviation of the noise in each of its numbers, at most.

        Returns:
            The mean, a 95 % interval of what it would be of ever more such records without noise,
            how many records there were, with noise, and the loss.
        """
        from hubbub import learning

        vector = self.vector
        count, (mean, loss) = vector.count_of(total), vector.scores_of(total)
        width = _Z * _error(mean, count, sigma * vector.noise_at(mean))
        name, value = learner.target_type.metric(mean)
        return {
            name: value,
            f"{name}_low": learner.target_type.metric(max(0.0, mean - width))[1],
            f"{name}_high": learner.target_type.metric(min(1.0, mean + width))[1],
            "held_back_records": count,
            "held_back_loss": loss * learning.MOST_LOSS,
        }
