"""Training: parameters go down, sums of clipped gradients come up, an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubbub.core.planning.mechanism import INDEPENDENT, SUM_MARGIN, Mechanism, StepNoise
from hubbub.core.planning.noise_correlation import Correlation, correlation_for
from hubbub.core.planning.planned_query import PlannedQuery, record_clip
from hubbub.core.planning.query import (
    Parameters,
    Query,
    QueryWarnings,
    Scores,
    SiloData,
    SteppedQuery,
    Stepper,
)
from hubbub.core.planning.random_projection import RandomProjection
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy
from hubbub.core.study.source import IN_MEMORY, is_own
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.core.verification.evidence.evidence_file import (
    MODEL,
    Finding,
    not_verifiable,
    rederived,
)
from hubbub.learning.study.model import Model
from hubbub.learning.study.training import Training, learning_of

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.core.protocol.projection.product import Lift
    from hubbub.core.protocol.round.projected_sum import LocalTask
    from hubbub.core.protocol.round.round_parameters import RoundParameters
    from hubbub.core.verification.replay.course import Course


# What a reader should know of a study that trains a model, before approving it.
#
# A linear model has *room* for so many weights, before noise takes more than they give: each has
# noise of its own, and what a record says is shared among all. The room follows from public
# numbers:
# what is promised to so many units, and how many silos' noise an adversary does not know.
# `experiments/wide.py` has measured what wide tables lose.

_PER_WEIGHT = 50  # units at epsilon 1, as which a table is wide below
_FEWEST = 50  # weights; of fewer no column is worth leaving out for the noise alone


def about_own_code(study: Study) -> list[str]:
    """What rests on the author of a model, and cannot be known before it runs (P14, P19)."""
    model = study.model
    if model is None:
        return []
    frozen = model.frozen.module if model.frozen else ""
    named = [one for one in (model.kind, frozen, model.loss) if is_own(one) or one == IN_MEMORY]
    if not named:
        return []
    names = " and ".join(named)
    return [
        f"{names}: nothing of a record may be kept for the next; weights, attributes and "
        "generators are seen to, but memory elsewhere (globals, files) would not be found, and "
        "what it shows is outside epsilon: it is yours to rule out",
        f"{names}: whether a record decides how much is computed for it (a loop to its length, a "
        "branch) is not known before the code has run; the time would tell, outside epsilon; a run "
        "warns of what it sees on made-up records, and hubbub join --check does before it",
    ]


def too_wide(study: Study) -> str:
    """What it means that a linear model has more weights than its epsilon has room for.

    Args:
        study: trains a model, or none.

    Returns:
        A sentence with what to do; empty where there is room, or it is not known.
    """
    weights, room = _weights(study), _room(study)
    if weights < _FEWEST or weights <= room or not study.data.records:
        return ""
    unit, privacy = study.data.unit, study.privacy
    return (
        f"{weights} weights are many for {study.data.records} {unit}s at epsilon "
        f"{privacy.epsilon:g}, which has room for about {max(room, 1)}: each has noise of its own, "
        "and wide tables lost .02 to .1 of AUC so. Leave out columns that cannot matter and pool "
        f"rare codes, by what is known without looking at these {unit}s; or agree on a larger "
        "epsilon"
    )


def _weights(study: Study) -> int:
    """Of a linear model, without those that all records have; 0 of every other."""
    model: Model | None = study.model
    if model is None or model.kind != "logistic" or model.extractor:
        return 0
    columns = study.data.features
    features = sum(column.width for column in columns) if columns else prod(model.inputs)
    return features * model.outputs


def _room(study: Study) -> int:
    """How many weights there is room for."""
    parties = study.parties
    unknown = max(parties.silos - parties.colluders - 1, 1) / parties.silos
    return int(study.data.records * study.privacy.epsilon * sqrt(unknown) / _PER_WEIGHT)


TRAINING = "training"


@dataclass(frozen=True)
class TrainingQuery(SteppedQuery):
    """The training of a study's model.

    Args:
        training: how it is trained.
        data: what is public about the records.
        privacy: what is promised.
        dimension: how many trainable parameters the model has; None if that is not public yet.
        held_back: share of each silo's records that is kept from it.
    """

    training: Training
    data: Data
    privacy: Privacy
    dimension: int | None
    held_back: float = 0.0

    @cached_property
    def mechanism(self) -> Mechanism:
        """Clipped sums over the study's batches, one for each step (docs/privacy.md P1)."""
        training, data = self.training, self.data
        return Mechanism(
            purpose=TRAINING,
            relation=self.privacy.relation,
            delta=self.privacy.delta,
            steps=training.steps,
            clip=training.clip_norm,
            unit=data.unit,
            most_per_patient=data.most_per_patient,
            records=data.records,
            counts=data.counts,
            sampling=training.sampling,
            sample_rate=training.sample_rate,
            tokens=training.tokens,
            projection=self._projection,
            noise=self._noise,
            divisor=self._expected_batch,
        )

    @property
    def _noise(self) -> StepNoise:
        """Of each step's own, unless the study asks for another kind (P25)."""
        if self.training.noise == "correlated":
            return _correlation_of(self.training, self.privacy)
        return INDEPENDENT

    @property
    def _projection(self) -> RandomProjection | None:
        """Of the gradients' sums, if the study asks for one (P8)."""
        kind, dimension = self.training.projection_kind, self.training.projection
        return RandomProjection(kind=kind, dimension=dimension) if dimension else None

    @property
    def _expected_batch(self) -> float:
        """The public number of records by which a sum is divided (P14); 1 if there is none."""
        training = self.training
        kept = 1 - self.held_back
        return training.sample_rate * self.data.records * kept if self.data.records else 1.0

    @property
    def numbers(self) -> int | None:
        """The model's parameters."""
        return self.dimension

    @property
    def broadcast_numbers(self) -> int | None:
        """The model's parameters."""
        return self.dimension

    @property
    def short_broadcast(self) -> bool:
        """Whether the study asks for it."""
        return self.training.broadcast_dtype == "bfloat16"

    def warnings(self, study: Study) -> QueryWarnings:
        """Of the divisor, the model's size, correlated noise, and code from elsewhere."""
        unknown_size = (
            "the model's size is not known yet: bytes per step are left open; state model.inputs "
            "where the model is one of hubbub's"
        )
        return QueryWarnings(
            records_unknown=(
                "data.records is not stated: the sum is not divided by the expected batch",
            ),
            size=(wide,) if (wide := too_wide(study)) else (),
            sums=(unknown_size,) if self.dimension is None else (),
            noise=self._words_about_noise,
            code=tuple(about_own_code(study)),
        )

    @property
    def _words_about_noise(self) -> tuple[str, ...]:
        if self.training.noise == "correlated":
            return tuple(_words_about(self.training, self.mechanism.noise))
        return ()

    def units(self, silo: SiloData) -> int:
        """Records that are trained on, or patients."""
        return 0 if silo.records is None else silo.records.units

    def max_units(self, silo: SiloData) -> int:
        """Of records, held back or not."""
        return silo.max_units

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's records, in batches of a public number of rows (P19)."""
        assert silo.records is not None, "a training has records"  # noqa: S101
        return self._task(silo, silo.records, silo.max_units, self._rows(silo), SUM_MARGIN)

    def pooled_task(self, silos: Sequence[SiloData]) -> LocalTask:
        """All silos' records, one silo's after the other's, for who may see them all."""
        records = [silo.records for silo in silos if silo.records is not None]
        capacity, rows = sum(silo.max_units for silo in silos), sum(map(self._rows, silos))
        # No grid is certified, so all of the clip may be used.
        return self._task(silos[0], Records.together(records), capacity, rows, margin=1.0)

    def _task(
        self, silo: SiloData, records: Records, capacity: int, rows: int, margin: float
    ) -> LocalTask:
        from hubbub import learning

        learner: learning.Learner = silo.learner
        return learning.TrainingTask(
            learner.per_unit_model,
            records,
            clip=record_clip(self.training.clip_norm),
            margin=margin,
            method=learner.method,
            capacity=capacity,
            rows=rows,
            device=learner.device,
            target_type=learner.target_type,
        )

    def _rows(self, silo: SiloData) -> int:
        """The public number of rows in a silo's batches."""
        mechanism, records = self.mechanism, silo.records
        assert records is not None, "a training has records"  # noqa: S101
        if mechanism.has_joint_batches:
            return min(mechanism.batch, records.units)
        return mechanism.noise.batch_rows(silo.max_units, mechanism.sample_rate)

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """The study's optimizer."""
        from hubbub import learning

        options: dict[str, Any] = dict(self.training.optimizer)
        kind = str(options.pop("name"))
        return learning.Optimizer(kind, steps=self.training.steps, **options)

    def lift(self, round_parameters: RoundParameters, learner: Any) -> Lift | None:
        """From the projection, where the study projects sums."""
        from hubbub import learning

        return learning.lift_of(round_parameters, learner.model)

    def initial(self, plan: Plan) -> Parameters | None:
        """As the study's model has them."""
        from hubbub.learning.queries import training_replay

        return training_replay.initial_of(plan)

    def replayed_lift(
        self, round_parameters: RoundParameters, plan: Plan
    ) -> tuple[Lift | None, bool]:
        """From the projection; of layers only where the model is one of hubbub's."""
        from hubbub.learning.queries import training_replay

        return training_replay.lift_for(round_parameters, plan)

    def initial_findings(self, study: Study, initial: Parameters | None) -> Iterator[Finding]:
        """They follow from the study id, unless the model is the study's own."""
        if initial is not None:
            yield rederived("the first model follows from the study id")
        else:
            made_by = f"{study.model.kind} makes; it is not run here"
            yield not_verifiable(f"the first model, which {made_by}")

    def replay_findings(
        self, folder: Path, plan: Plan, course: Course, shown: Set[bytes]
    ) -> Iterator[Finding]:
        """The model that was written is what the last step gave."""
        from hubbub.learning.queries import training_replay

        if (folder / MODEL).exists():
            yield from training_replay.model_findings(folder / MODEL, plan, course, shown)

    def scores(self, learner: Any, test: Records | None, parameters: Parameters) -> Scores:
        """Metrics of the model on the public test set, if there is one."""
        from hubbub import learning

        if test is None:
            return {}
        learning.load_parameters(learner.model, parameters)
        return learning.evaluate_records(
            learner.model,
            test,
            device=learner.device,
            target_type=learner.target_type,
            own=self.training.metrics,
        )


def training_of(study: Study, dimension: int | None = None) -> TrainingQuery:
    """The training of a study; StudyError: it trains no model."""
    _, training = learning_of(study)
    return TrainingQuery(training, study.data, study.privacy, dimension, held_back_share(study))


def held_back_share(study: Study) -> float:
    """Share of each silo's records that is kept from the training, for whatever evaluation."""
    training: Training | None = study.training
    if training is not None and training.evaluate is not None:
        return training.evaluate.holdout
    if study.validation is None:
        return 0.0
    from hubbub.learning.queries.validation.layout import whose_records

    return whose_records(study).share


def _correlation_of(training: Training, privacy: Privacy) -> StepNoise:
    """How a training's noise is correlated; independent noise where one band is best."""
    optimizer = dict(training.optimizer)
    if _is_adam(training) and not training.bands:
        return INDEPENDENT
    return correlation_for(
        training.bands,
        float(optimizer.get("momentum", 0.0)),
        str(optimizer["schedule"]),
        training.steps,
        training.sample_rate,
        privacy.epsilon,
        privacy.delta,
        privacy.relation,
    )


def _words_about(training: Training, noise: StepNoise) -> list[str]:
    """What correlated noise does for this training, or why there is none."""
    correlated = noise if isinstance(noise, Correlation) else None
    if correlated is None and not training.bands and _is_adam(training):
        return [
            'noise = "correlated": with the optimizer adam it loses, as adam takes no sums of '
            "gradients; noise is left independent: use sgd with momentum"
        ]
    if correlated is None:
        return ['noise = "correlated": no number of bands gains here; noise is left independent']
    words = []
    if _is_adam(training):
        words.append(
            'noise = "correlated" with the optimizer adam: its error is that of sums of gradients, '
            "which adam does not take; expect less than from independent noise, or use sgd"
        )
    if correlated.error >= 1:
        words.append(
            f"bands = {correlated.bands}: the error of the training's noise is "
            f'{correlated.error:.3g} of that of independent noise; use bands = "auto"'
        )
    return words


def _is_adam(training: Training) -> bool:
    return dict(training.optimizer)["name"] == "adam"
