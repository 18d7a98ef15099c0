"""Training: parameters go down, sums of clipped gradients come up, an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hubbub.learning as learning
from hubbub.core.errors import HubbubError, IntegrityError
from hubbub.core.planning.mechanism import INDEPENDENT, SUM_MARGIN, Mechanism, StepNoise, check_rows
from hubbub.core.planning.noise_correlation import Correlation, correlation_for
from hubbub.core.planning.planned_query import PlannedQuery, record_clip
from hubbub.core.planning.projections import projection_of
from hubbub.core.planning.query import (
    Parameters,
    Query,
    QueryState,
    QueryWarnings,
    Scores,
    SiloData,
    SteppedQuery,
    Stepper,
)
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy
from hubbub.core.study.source import IN_MEMORY, is_own
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records
from hubbub.core.verification.evidence.evidence_file import (
    MODEL,
    RESTORE,
    Finding,
    check_ordinary,
    not_verifiable,
    rederived,
    signed,
    wrong,
)
from hubbub.learning.queries.beside_training import AtModel
from hubbub.learning.study import training as training_keys
from hubbub.learning.study.model import told_shape
from hubbub.learning.study.training import EXPONENTIAL, Training, is_header_of, learning_of

if TYPE_CHECKING:
    from hubbub.core.planning.plan import Plan
    from hubbub.core.protocol.round.draw import Lift
    from hubbub.core.protocol.round.round_parameters import RoundParameters
    from hubbub.core.verification.replay.course import Course


TRAINING = "training"
_PER_WEIGHT = 50  # units at epsilon 1, as which a table is wide below
_FEWEST = 50  # weights; of fewer no column is worth leaving out for the noise alone


@dataclass(frozen=True)
class TrainingQuery(AtModel, SteppedQuery):
    """The training of a study's model."""

    training: Training
    data: Data
    privacy: Privacy
    dimension: int | None  # trainable parameters of the model; None if that is not public yet
    held_back: float = 0.0  # share of each silo's records that is kept from it

    @cached_property
    def mechanism(self) -> Mechanism:
        """Clipped sums over the study's batches, one for each step (docs/privacy.md P1)."""
        training, data = self.training, self.data
        divisor = 1.0
        if data.records:  # the public number of records by which a sum is divided (P14)
            divisor = training.sample_rate * data.records * (1 - self.held_back)
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
            projection=projection_of(training.projection_kind, training.projection),
            noise=_noise_of(training, self.privacy),
            divisor=divisor,
        )

    @property
    def numbers(self) -> int | None:
        """The model's parameters."""
        return self.dimension

    @property
    def short_broadcast(self) -> bool:
        """Whether the study asks for it."""
        return self.training.broadcast_dtype == "bfloat16"

    def warnings(self, study: Study) -> QueryWarnings:
        """Of the divisor, the model's size, correlated noise, and code from elsewhere."""
        unknown_size = (
            "the model's size is not known yet, so neither are the bytes per step; state "
            "model.inputs if the model is one of hubbub's"
        )
        return QueryWarnings(
            records_unknown=(
                "data.records is not stated: the sum is not divided by the expected batch",
            ),
            size=(wide,) if (wide := too_wide(study)) else (),
            sums=(unknown_size,) if self.dimension is None else (),
            noise=tuple(_about_noise(self.training, self.mechanism.noise)),
            code=tuple(about_own_code(study)),
        )

    def units(self, silo: SiloData) -> int:
        """Records that are trained on, or patients."""
        return 0 if silo.records is None else silo.records.units

    def task(self, silo: SiloData) -> LocalTask:
        """A silo's records, in batches of a public number of rows (P19).

        Raises:
            DataError: a batch may have more rows than a sum of floats has room for.
        """
        check_rows(self._rows(silo))
        # Clipped a little below C, so that sums of floats stay within it (P14).
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
        learner: learning.Learner = silo.learner
        return learning.TrainingTask(
            learner.per_view_model,
            records,
            clip=record_clip(self.training.clip_norm),
            margin=margin,
            method=learner.method,
            capacity=capacity,
            rows=rows,
            device=learner.device,
            target_type=learner.target_type,
            views=learner.views,
            precision=self.training.precision,
            layers=learning.layers_of(self.mechanism.projection),
        )

    def _rows(self, silo: SiloData) -> int:
        """The public number of rows in a silo's batches."""
        mechanism, records = self.mechanism, silo.records
        assert records is not None, "a training has records"  # noqa: S101
        if mechanism.has_joint_batches:
            return min(mechanism.batch, records.units)
        return mechanism.noise.batch_rows(silo.max_units, mechanism.sample_rate)

    def stepper(self, planned: PlannedQuery[Query]) -> Stepper:
        """The study's optimizer, which may keep a mean of its models."""
        options: dict[str, Any] = dict(self.training.optimizer)
        kind = str(options.pop("name"))
        steps, average = self.training.steps, self.training.average
        optimizer = learning.Optimizer(kind, steps=steps, **options)
        if average is None:
            return optimizer
        if average.kind == EXPONENTIAL:
            return learning.Averaged(optimizer, decay=average.decay)
        # A whole number is not rounded up for the last digit of a float.
        models = ceil(average.share * steps * (1 - 1e-12))
        return learning.Averaged(optimizer, first=1 + steps - models)

    def result(self, state: QueryState) -> Parameters:
        """The mean of models that a study asks for, of as many as there are."""
        return learning.mean_in(state.optimizer, state.parameters)

    def lift(self, round_parameters: RoundParameters, learner: Any) -> Lift | None:
        """From the projection, where the study projects sums."""
        return learning.lift_of(round_parameters, learner.model)

    def initial(self, plan: Plan) -> Parameters | None:
        """As the study's model has them."""
        model = _built(plan)
        return None if model is None else learning.parameters_vector(model)

    def replayed_lift(
        self, round_parameters: RoundParameters, plan: Plan
    ) -> tuple[Lift | None, bool]:
        """From the projection; of layers only where the model is one of hubbub's."""
        projection = self.mechanism.projection
        if projection is None or not projection.clips_after:
            return learning.lift_of(round_parameters, None), True
        model = _built(plan)
        return (None, False) if model is None else (learning.lift_of(round_parameters, model), True)

    def initial_findings(self, study: Study, initial: Parameters | None) -> Iterator[Finding]:
        """They follow from the study id, unless the model is the study's own."""
        if initial is not None:
            yield rederived("the first model follows from the study id")
        else:
            yield not_verifiable(
                f"the first model, which {study.model.kind} makes; it is not run here"
            )

    def replay_findings(
        self, folder: Path, plan: Plan, course: Course, shown: Set[bytes]
    ) -> Iterator[Finding]:
        """The model that was written is what the last step gave."""
        if (folder / MODEL).exists():
            findings = _model_findings(folder / MODEL, plan, course, shown)
            yield from (finding.on(MODEL) for finding in findings)

    def scores(self, learner: Any, test: Records | None, parameters: Parameters) -> Scores:
        """Metrics of the model on the public test set, if there is one."""
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
    shares = (ask.held_back_share(study) for ask in study.asks)
    return next((share for share in shares if share), 0.0)


def _noise_of(training: Training, privacy: Privacy) -> StepNoise:
    """How a training's noise is correlated; independent noise where one band is best."""
    optimizer = dict(training.optimizer)
    takes_no_sums = optimizer["name"] == "adam" and not training.bands
    if training.noise == training_keys.INDEPENDENT or takes_no_sums:
        return INDEPENDENT
    return correlation_for(
        training.noise,
        training.bands,
        float(optimizer.get("momentum", 0.0)),
        str(optimizer["schedule"]),
        training.steps,
        training.sample_rate,
        privacy.epsilon,
        privacy.delta,
        privacy.relation,
    )


def _about_noise(training: Training, noise: StepNoise) -> list[str]:
    """What correlated noise does for this training, or why there is none."""
    if training.noise == training_keys.INDEPENDENT:
        return []
    stated = f'noise = "{training.noise}"'
    is_adam = dict(training.optimizer)["name"] == "adam"
    correlated = noise if isinstance(noise, Correlation) else None
    if correlated is None and not training.bands and is_adam:
        return [
            f"{stated}: with the optimizer adam it loses, because adam does not add up "
            "gradients; noise stays independent: use sgd with momentum"
        ]
    if correlated is None:
        return [f"{stated}: no number of bands helps here; noise stays independent"]
    words = []
    if is_adam:
        words.append(
            f"{stated} with the optimizer adam: correlated noise helps sums of gradients, which "
            "adam does not use; expect less than from independent noise, or use sgd"
        )
    if correlated.error >= 1:
        words.append(
            f"bands = {correlated.bands}: the error of the training's noise is "
            f'{correlated.error:.3g} times that of independent noise; use bands = "auto"'
        )
    return words


def about_own_code(study: Study) -> list[str]:
    """What rests on the author of a model, and cannot be known before it runs (P14, P19)."""
    model = study.model
    if model is None:
        return []
    frozen = model.frozen.module if model.frozen else ""
    views = study.training.augment.kind if study.training and study.training.augment else ""
    code = (model.kind, frozen, model.loss, views)
    names = " and ".join(name for name in code if is_own(name) or name == IN_MEMORY)
    if not names:
        return []
    return [
        (
            f"{names}: your code must keep nothing about a record for the next one. hubbub checks "
            "weights, attributes and generators, but would not notice memory elsewhere (globals, "
            "files), and epsilon does not cover what that reveals: make sure there is none"
        ),
        (
            f"{names}: before the code has run, nobody knows whether the amount of "
            "computation depends on the record (a loop to its length, a branch); the time "
            "would reveal it, which epsilon does not cover. A run warns of what it sees on "
            "synthetic records, and hubbub join --check does so before the run"
        ),
    ]


def too_wide(study: Study) -> str:
    """What it means that a linear model has more weights than its epsilon has room for.

    Each weight has noise of its own, and what a record says is shared among all. The room follows
    from public numbers: what is promised to so many units, and how many silos' noise an adversary
    does not know. `experiments/wide.py` has measured what wide tables lose. The sentence is empty
    where there is room, or it is not known.
    """
    model, data, parties = study.model, study.data, study.parties
    if model is None or model.kind != "logistic" or model.extractor or not data.records:
        return ""
    # Weights without those that all records have.
    columns = data.features
    features = sum(column.width for column in columns) if columns else prod(model.inputs)
    weights, epsilon = features * model.outputs, study.privacy.epsilon
    unknown = max(parties.silos - parties.colluders - 1, 1) / parties.silos
    room = int(data.records * epsilon * sqrt(unknown) / _PER_WEIGHT)
    if weights < _FEWEST or weights <= room:
        return ""
    return (
        f"{weights} weights are many for {data.records} {data.unit}s at epsilon {epsilon:g}, which "
        f"has room for about {max(room, 1)}: each weight has its own noise, and wide tables lost "
        ".02 to .1 of AUC that way. Leave out columns that cannot matter and pool rare codes, by "
        f"what is known without looking at these {data.unit}s; or agree on a larger epsilon"
    )


def _built(plan: Plan, *, flattened: bool = False) -> Any:
    """The study's model with its first weights; None if its own code or data must say how large.

    Code that a study names is never run here. Where the shape of a record is not stated, the
    weights are right, with the names of a model of rows, or, `flattened`, of records as rows.
    """
    if plan.study.model is None:
        return None
    shape = told_shape(plan.study, plan.dimension)
    if shape is None or not learning_of(plan.study)[0].is_built_in:
        return None
    return learning.model_of(plan.study, (1, *shape) if flattened else shape)


def _model_findings(path: Path, plan: Plan, course: Course, shown: Set[bytes]) -> Iterator[Finding]:
    """The model is what the last step gave, and what silos were shown before they were asked at it.

    `shown` are the RESULTs of all sessions.
    """
    # Whose order of parameters is not known here is compared number by number.
    claim = f"{path} holds the model that the last step gave"
    if _built(plan) is None:
        claim = (
            f"{path} contains the numbers of the last step, in the order that it states; "
            "what else it contains, only the study's own code or data can say"
        )
    if course.led is None:
        yield course.judged(claim, "").covering("replay.model")
        if not shown:
            return
    from safetensors import SafetensorError  # which a plan does without

    try:
        check_ordinary(path)
        stored = _stored(path, plan, plan.dimension or 0)
        header = learning.stored_header(path)
        if not is_header_of(header, plan.study):
            raise IntegrityError(f"its metadata are those of another study; {RESTORE}")
    except (HubbubError, SafetensorError, OSError) as error:
        yield wrong(claim, error).covering("replay.model")
        return
    if "columns" in header:
        yield not_verifiable(f"which columns of a data frame {path} is for, as it states them")
    if stored is None:
        yield not_verifiable(f"that {claim}: it states none").covering("replay.model")
        return
    if course.led is not None:
        # Bit for bit: every step was taken again.
        same = stored.tobytes() == course.led.parameters.tobytes()
        why = "" if same else f"it holds another; {RESTORE}"
        yield course.judged(claim, why).covering("replay.model")
    if shown:
        same, claim = shown == {stored.tobytes()}, f"{path} holds the RESULT that silos were shown"
        yield signed(claim) if same else wrong(claim, f"they were shown another; {RESTORE}")


def _stored(path: Path, plan: Plan, size: int) -> Parameters | None:
    """The parameters in a file as one vector; None if nothing says in which order.

    A model of the study's own making is not built here, so the file itself has to say it.
    """
    from safetensors import safe_open

    model = _built(plan)
    if model is None:
        return learning.stored_parameters(path, size)
    if not learning_of(plan.study)[0].inputs:
        with safe_open(path, framework="np") as file:
            is_named = set(file.keys()) == set(model.state_dict())
        model = model if is_named else _built(plan, flattened=True)
    learning.load_model(path, model)
    return learning.parameters_vector(model)
