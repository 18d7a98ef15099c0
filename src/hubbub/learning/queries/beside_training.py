"""What is asked beside a training (docs/privacy.md P16).

Before it the sums from which features are brought to mean 0 and deviation 1; between its steps how
well the model does on records that silos hold back, with noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import hubbub.learning as learning
from hubbub.core.disk import write_text
from hubbub.core.errors import IntegrityError, StudyError
from hubbub.core.planning.mechanism import Mechanism, check_rows, mechanism_of_all
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import (
    Array,
    Parameters,
    Query,
    QueryState,
    Scores,
    SiloData,
    SteppedQuery,
    Stepper,
    Turn,
)
from hubbub.core.study.data import Data, Standardise
from hubbub.core.study.parties import Privacy
from hubbub.core.tabular.records import (
    STANDARDISED,
    Records,
    Standardisation,
    standardisation_from,
    unit_rows,
)
from hubbub.core.verification.evidence.evidence_file import (
    RESTORE,
    Finding,
    not_verifiable,
    read_whole,
)
from hubbub.learning.study.training import Evaluate

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.core.protocol.round.aggregator import RevealedSum
    from hubbub.core.protocol.round.local_task import LocalTask
    from hubbub.core.study.study import Study
    from hubbub.core.verification.replay.course import Course


State = Mapping[str, NDArray[Any]]
STANDARDISATION, EVALUATION = "standardisation", "evaluation"
_Z = 1.96  # standard errors on either side


class AtModel(Query):
    """A query of a silo's records, for which a model goes down."""

    dimension: int | None  # of the model; None if that is not public yet

    @property
    def broadcast_numbers(self) -> int | None:
        """The model's parameters."""
        return self.dimension

    def max_units(self, silo: SiloData) -> int:
        """Of records, held back or not."""
        return silo.max_units

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's records.

        Raises:
            DataError: there may be more than a sum of floats has room for.
        """
        check_rows(self.max_units(silo))
        return self.pooled_task([silo])


@dataclass(frozen=True)
class StandardisingQuery(AtModel, SteppedQuery):
    """One sum of all records, held back or not, before the training."""

    asked: Standardise  # the bound of features, and what the sum may cost
    data: Data
    privacy: Privacy
    features: int
    dimension: int | None

    takes_raw_records = True  # it is asked before features are standardised

    @cached_property
    def mechanism(self) -> Mechanism:
        """Of (1, x, x^2 - 1/2), with every |x_j| at most 1 after division by the bound (P16)."""
        return mechanism_of_all(
            STANDARDISATION,
            self.data,
            self.privacy,
            sums=1,
            norm=sqrt(1 + 1.25 * self.features),
            distance=2 * sqrt(self.features),
        )

    @property
    def numbers(self) -> int:
        """The number of records, and of each feature the sum and that of its square less 1/2."""
        return 1 + 2 * self.features

    @property
    def epsilon(self) -> float:
        """What the sum may cost."""
        return self.asked.epsilon

    def units(self, silo: SiloData) -> int:
        """Records, held back or not, or patients."""
        return _all_records(silo).units

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All records."""
        records = Records.together([_all_records(silo) for silo in silos])
        capacity = sum(silo.max_units for silo in silos)
        return FeatureSums(records, self.asked.bound, capacity, self.data.places)

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """From the sum to shift and scale."""

        def fold(state: State, total: Array | None) -> State:
            if total is None:
                return dict(state)
            standardisation = standardisation_from(total, self.asked.bound)
            return {"shift": standardisation.shift, "scale": standardisation.scale}

        return Folded(fold)

    def standardisation(self, state: QueryState) -> Standardisation:
        """What follows from the sum; IntegrityError if it was lost."""
        self.check_complete(state)
        shift, scale = (np.asarray(state.optimizer[key], np.float32) for key in ("shift", "scale"))
        return Standardisation(shift=shift, scale=scale)

    def effect(self, prepared: Any, state: QueryState) -> Any:
        """With everybody's features standardised."""
        return prepared.standardised(self.standardisation(state))

    def session_findings(self, folder: Path, purpose: str, course: Course) -> Iterator[Finding]:
        """The shifts and scales that were kept follow from the sum."""
        state, path = course.led, folder / STANDARDISED
        if state is None or not state.optimizer:
            yield not_verifiable(f"that what the session for {purpose} gave follows from it")
        elif path.exists():
            same = read_whole(path) == self.standardisation(state).to_json().encode()
            why = "" if same else f"it differs; {RESTORE}"
            yield course.judged(f"{path} follows from the sums", why).on(STANDARDISED)

    def replay_findings(
        self, folder: Path, plan: Plan, course: Course, shown: Set[bytes]
    ) -> Iterator[Finding]:
        """Nothing but shift and scale, which each session was compared with."""
        return iter(())

    def restored(self, folder: Path, state: QueryState) -> QueryState:
        """With shift and scale, if they are there."""
        kept = Standardisation.read(folder / STANDARDISED, self.features)
        if kept is None:
            return state
        optimizer = {"shift": kept.shift, "scale": kept.scale}
        return replace(state, step=1, attempts=1, optimizer=optimizer)

    def store(self, folder: Path, state: QueryState) -> None:
        """Shift and scale."""
        if state.optimizer:
            write_text(folder / STANDARDISED, self.standardisation(state).to_json())

    def check_complete(self, state: QueryState) -> None:
        """Refuse to go on without the sum."""
        if not state.optimizer:
            raise IntegrityError(
                "expected the sums that standardise the features, they were charged and lost in an "
                "interruption; approve the study under another name and run that"
            )


class Folded:
    """Makes of each noisy sum what is remembered next; what goes down, the model, stays as it is.

    Args:
        fold: from what is remembered, which it checks, and the next sum, or none yet.
    """

    def __init__(self, fold: Callable[[State, Array | None], State]) -> None:
        self._fold, self._state = fold, fold({}, None)

    def step(
        self, parameters: Parameters, total: Array | RevealedSum, divisor: float
    ) -> Parameters:
        """The same parameters as before."""
        self._state = self._fold(self._state, np.asarray(total) / divisor)
        return parameters

    def state(self) -> dict[str, NDArray[Any]]:
        """What is remembered."""
        return dict(self._state)

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from there; IntegrityError if this is the state of something else."""
        self._state = self._fold(state, None)


class FeatureSums:
    """A silo's records: their number, and the sums of each feature and of its square less 1/2.

    Values beyond the bound count as that. Of patients, `most` records of each at most, it is their
    number, and the sums of what is each one's mean (docs/privacy.md P16, P21).
    """

    def __init__(
        self, records: Records, bound: float, capacity: int | None = None, most: int = 1
    ) -> None:
        # Squares less their middle make a shorter vector (P16).
        features = np.clip(records.inputs / np.float64(bound), -1.0, 1.0)
        self._features, self._squares = features, features**2 - 0.5
        if records.patients is not None:
            units = unit_rows(records.patients, most)
            self._features, self._squares = map(units.means, (features, self._squares))
        self.capacity = records.units if capacity is None else capacity

    def __repr__(self) -> str:
        return "FeatureSums(<private>)"

    @property
    def count(self) -> int:
        """Number of units; never leaves the silo."""
        return len(self._features)

    def clipped_sum(self, parameters: Parameters, rows: NDArray[np.intp]) -> Array:
        """(1 + 2 features,): each unit's part has norm at most sqrt(1 + 1.25 features)."""
        held, sums = rows >= 0, []
        for values in (self._features, self._squares):
            # Zeros where there is no unit, in the same operations.
            padded = np.vstack([values, np.zeros(values.shape[1])])
            sums.append(padded[np.where(held, rows, len(values))].sum(0))
        return np.concatenate(([held.sum()], *sums))


def _all_records(silo: SiloData) -> Records:
    """A silo's records, held back or not."""
    parts = (silo.records, silo.held_back)
    return Records.together([part for part in parts if part is not None])


def features_of(shape: tuple[int, ...] | None) -> int:
    """How many features there are to standardise; StudyError of images and texts."""
    if shape is None or len(shape) != 1:
        raise StudyError(
            "expected records with a fixed number of features with data.standardise, got "
            f"{('an unknown shape' if shape is None else f'the shape {list(shape)}')}; "
            "state model.inputs = [features], or leave data.standardise out"
        )
    return shape[0]


@dataclass(frozen=True, kw_only=True)
class ScoreVector:
    """How a held-back record is evaluated: (w, a (score - 1/2), a (loss - 1/2)), of norm 1 at most.

    Score and loss are from 0 to 1, and w^2 + a^2 / 2 = 1 (docs/privacy.md P16). Scores about their
    middle are half as long, and change as much. `presence` is w, above 0 and below 1, by which a
    record says that it is there.

    >>> vector = ScoreVector(presence=0.5)
    >>> vector.scores_of(np.array([1.0, 0.0, -0.5 * vector.scale]))  # of two records
    (0.5, 0.25)
    """

    presence: float

    @classmethod
    def of(cls, relation: str) -> ScoreVector:
        """The vector for neighbours of a relation.

        "add-remove": near the least error of scores from .5 to .95. "substitute": the longest w at
        which two records are no further apart than one is from none.
        """
        return cls(presence=sqrt(0.75 if relation == "substitute" else 0.3))

    @property
    def scale(self) -> float:
        """By which a score less 1/2 is multiplied: a."""
        return sqrt(2 * (1 - self.presence**2))

    @property
    def diameter(self) -> float:
        """How far apart two records' vectors can be, where one of them may be zero."""
        return max(self.scale * sqrt(2), 1.0)

    def sums_of(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """How many records there are, and the sums of their scores and losses: (3,), as noisy."""
        count = total[0] / self.presence
        return np.array([count, *(total[1:] / self.scale + count / 2)])

    def scores_of(self, total: NDArray[np.float64]) -> tuple[float, float]:
        """Mean score and mean loss, each from 0 to 1, from a noisy sum of vectors."""
        score, loss = np.clip(self.sums_of(total)[1:] / self.count_of(total), 0.0, 1.0)
        return float(score), float(loss)

    def count_of(self, total: NDArray[np.float64]) -> float:
        """How many records there are, at least one, from a noisy sum of vectors."""
        return max(float(total[0]) / self.presence, 1.0)

    def noise_at(self, mean: float) -> float:
        """What a noise of standard deviation 1 in each number is in the mean, times the count.

        The mean is 1/2 and a share of two noisy numbers, the count one of them (P16).
        """
        return sqrt(self.scale**-2 + (mean - 0.5) ** 2 / self.presence**2)


def evaluation_of(
    silos: Sequence[SiloData], records: Sequence[Records], marks: Any
) -> learning.EvaluationTask:
    """These records of silos beside their model, each as its `marks` in a sum."""
    learner: learning.Learner = silos[0].learner
    return learning.EvaluationTask(
        learner.per_unit_model,
        Records.together(records) if len(records) > 1 else records[0],
        method=learner.method,
        capacity=sum(silo.max_units for silo in silos),
        device=learner.device,
        target_type=learner.target_type,
        marks=marks,
    )


@dataclass(frozen=True)
class EvaluationQuery(AtModel):
    """Evaluations on held-back records, every few steps of the training."""

    asked: Evaluate  # how often, and what they may cost
    data: Data
    privacy: Privacy
    steps: int  # of the training
    dimension: int | None

    turn = Turn.BETWEEN
    numbers = 3  # of a record: that it is there, whether it was right, its loss

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
    def epsilon(self) -> float:
        """What all evaluations together may cost."""
        return self.asked.epsilon

    def units(self, silo: SiloData) -> int:
        """Records that are held back, or patients."""
        return 0 if silo.held_back is None else silo.held_back.units

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All held-back records."""
        records = [silo.held_back for silo in silos if silo.held_back is not None]
        return evaluation_of(silos, records, learning.ScoreMarks(self.vector))

    def scores_of(self, total: Array, study: Study, sigma: float) -> Scores:
        """Accuracy, or what another kind of target has, and mean loss from one noisy sum.

        Beside it a 95 % interval of what it would be of ever more such records without noise, and
        how many records there were, with noise.
        """
        vector, goal = self.vector, learning.goal_of(study)
        count, (mean, loss) = vector.count_of(total), vector.scores_of(total)
        # Chance, and noise / count. Numbers with this mean vary most if each is 0 or 1; of a share
        # near 0 or 1 two records more are taken to have been otherwise (Agresti and Coull 1998), so
        # that none of ten is no certainty.
        share, noise = (mean * count + 2.0) / (count + 4.0), sigma * vector.noise_at(mean)
        error = sqrt(share * (1 - share) / (count + 4.0) + (noise / count) ** 2)
        width = _Z * error
        name, value = goal.metric(mean)
        return {
            name: value,
            f"{name}_low": goal.metric(max(0.0, mean - width))[1],
            f"{name}_high": goal.metric(min(1.0, mean + width))[1],
            "held_back_records": count,
            "held_back_loss": loss * learning.MOST_LOSS,
        }
