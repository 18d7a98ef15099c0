"""`[model]` and `[training]`: a model that is trained, evaluated and standardised for.

What they need is loaded when they are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hubbub.core.errors import StudyError
from hubbub.core.settings import Keys, Section, canonical, keys_of, listed, stated
from hubbub.core.study.ask import Ask, Surroundings
from hubbub.core.study.data import Data
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import STANDARDISED
from hubbub.core.tabular.target import NUMERIC, TIME_TO_EVENT, Outcome
from hubbub.learning.study.model import (
    HUBER,
    LINEAR_PROBE,
    Frozen,
    Model,
    is_dimension,
    model_dimension,
    model_from,
    record_shape,
    told_shape,
)
from hubbub.learning.study.training import (
    INDEPENDENT,
    OPTIMIZER,
    PRECISIONS,
    Augment,
    Average,
    Evaluate,
    Training,
    learning_of,
    training_from,
    usual_for,
)

if TYPE_CHECKING:
    from hubbub.core.planning.query import Query
    from hubbub.learning.queries.training_query import TrainingQuery

SCORES = "scores.json"  # of the final model, in a run's folder
_JOINT = "without-replacement"


class TrainingAsk(Ask):
    """A model that silos train together."""

    tables = ("model", "training")
    rank = 0
    precedence = 3
    trains = True
    is_pinned = True
    files = (STANDARDISED, SCORES)

    def keys(self) -> dict[str, Keys]:
        """See `Ask`."""
        return {
            "model": keys_of(Model),
            "model.frozen": keys_of(Frozen),
            "training": keys_of(Training),
            "training.optimizer": listed(OPTIMIZER),
            "training.evaluate": keys_of(Evaluate),
            "training.augment": keys_of(Augment),
            "training.average": keys_of(Average),
        }

    def read(self, top: Section, around: Surroundings) -> dict[str, Any]:
        """See `Ask`."""
        model, training = top.table("model"), top.table("training")
        return {
            "model": model_from(model),
            "training": training_from(training, records=around.data.records),
        }

    def check(self, study: Study) -> None:
        """See `Ask`."""
        (model, training), data = learning_of(study), study.data
        _check_target(data, model)
        if training.sampling == _JOINT:
            _check_joint_batches(data, study.parties.dropouts, study.privacy.relation)
        _check_optimizer(str(dict(training.optimizer)["name"]), data, model)
        if training.noise != INDEPENDENT:
            _check_correlated(training, study.parties.trust)
        if training.precision != PRECISIONS[0] and model.kind in ("logistic", LINEAR_PROBE):
            raise StudyError(
                f'expected no training.precision with model.kind = "{model.kind}", got '
                f'"{training.precision}"; its products are few, and gain nothing: leave it out'
            )
        asked = training.evaluate
        if asked and asked.every > training.steps:
            raise StudyError(
                f"expected training.evaluate.every <= steps = {training.steps}, got "
                f"{asked.every}; lower it"
            )
        if asked and training.sampling == _JOINT:
            raise StudyError(
                'expected no training.evaluate with sampling = "without-replacement", got one; '
                "joint batches are drawn from all records, so none can be held back: use Poisson "
                "sampling"
            )

    def written(self, study: Study) -> dict[str, Any]:
        """See `Ask`."""
        return dict(zip(self.tables, map(stated, learning_of(study)), strict=True))

    def canonical(self, study: Study) -> dict[str, Any]:
        """See `Ask`."""
        return dict(zip(self.tables, map(canonical, learning_of(study)), strict=True))

    def parts(self, study: Study) -> dict[str, float]:
        """See `Ask`."""
        _, training = learning_of(study)
        parts = {
            "training.evaluate.epsilon": training.evaluate,
            "data.standardise.epsilon": study.data.standardise,
        }
        return {key: part.epsilon for key, part in parts.items() if part is not None}

    def dimension(self, study: Study) -> int | None:
        """See `Ask`."""
        return model_dimension(study)

    def is_dimension(self, study: Study, dimension: int) -> bool:
        """As far as the model's parameters can be counted."""
        return is_dimension(study, dimension)

    def is_planned(self, study: Study, dimension: int) -> bool:
        """Sums that standardise features need the number of features."""
        return study.data.standardise is None or told_shape(study, dimension) is not None

    def query(self, study: Study, dimension: int | None = None) -> TrainingQuery:
        """See `Ask`."""
        from hubbub.learning.queries.training_query import training_of

        return training_of(study, dimension)

    def extras(self, study: Study, dimension: int | None) -> Sequence[Query]:
        """What standardises features before it, and evaluations between its steps."""
        from hubbub.learning.queries.beside_training import (
            EvaluationQuery,
            StandardisingQuery,
            features_of,
        )

        (_, training), data, privacy = learning_of(study), study.data, study.privacy
        queries: list[Query] = []
        if (asked := data.standardise) is not None:
            features = features_of(record_shape(study, dimension))
            queries.append(StandardisingQuery(asked, data, privacy, features, dimension))
        if (evaluated := training.evaluate) is not None:
            queries.append(EvaluationQuery(evaluated, data, privacy, training.steps, dimension))
        return queries

    def own_code(self, study: Study) -> list[str]:
        """See `Ask`."""
        model, training = learning_of(study)
        frozen = model.frozen.module if model.frozen else ""
        views = training.augment.kind if training.augment else ""
        return [model.kind, frozen, model.loss, views, *training.metrics]

    def shared_code(self, study: Study) -> list[str]:
        """Its loss and metrics: what is learned and scored."""
        model, training = learning_of(study)
        return [model.loss, *training.metrics]

    def held_back_share(self, study: Study) -> float:
        """What it is evaluated on."""
        _, training = learning_of(study)
        return 0.0 if training.evaluate is None else training.evaluate.holdout

    def usual(self, study: Study) -> dict[str, dict[str, Any]]:
        """Clip and optimizer."""
        usual = usual_for(study)
        return {"training": {"clip_norm": usual.clip_norm, "optimizer": usual.optimizer}}

    def shows_counts(self, study: Study) -> bool:
        """Where all silos together draw batches of one public size."""
        return learning_of(study)[1].sampling == _JOINT


def _check_target(data: Data, model: Model) -> None:
    """A target that the model can learn, of as many inputs as the columns become features."""
    if model.kind == LINEAR_PROBE and data.outcome is not None:
        raise StudyError(
            f'expected a target of classes with model.kind = "{LINEAR_PROBE}", got '
            f'"{data.outcome.kind}"; choose another kind of model'
        )
    if data.outcome is not None:
        _check_outcome(data.outcome, model)
    elif model.loss == HUBER:
        raise StudyError(
            'expected no model.loss = "huber" for a target of classes, got it; it is for amounts: '
            'write data.target = { kind = "numeric", ... }, or leave it out'
        )
    classes = 2 if data.positive else len(data.classes)
    wanted = classes if classes > 2 else 1
    # Nobody knows the classes of a source.
    if data.outcome is None and data.is_declared and model.outputs != wanted:
        raise StudyError(
            f"expected model.outputs = {wanted} for a target of {classes} classes, "
            f"got {model.outputs}; set it, or fix data.classes"
        )
    # Frozen layers make other inputs than the columns.
    width = sum(column.width for column in data.features)
    if data.columns and model.inputs and not model.extractor and model.inputs != (width,):
        raise StudyError(
            f"expected model.inputs = [{width}], the features that data.columns become, got "
            f"{list(model.inputs)}; leave it out"
        )


def _check_outcome(outcome: Outcome, model: Model) -> None:
    """One output for a number; for a time also one for each interval, and one loss for each."""
    wanted, many = "1", len(outcome.grid)
    if outcome.kind == TIME_TO_EVENT:
        wanted = f"1 (proportional odds) or {many} (free, one for each time of the grid)"
        wanted = wanted if model.is_built_in else f"{many}, one for each time of the grid"
    if model.outputs != (many or 1) and (model.outputs != 1 or not model.is_built_in):
        raise StudyError(
            f'expected model.outputs = {wanted} for a target of kind = "{outcome.kind}", got '
            f"{model.outputs}; set it"
        )
    if model.loss == HUBER and outcome.is_log_link:
        raise StudyError(
            'expected no model.loss = "huber" with data.target.scale = "log-link", '
            "got it; it would learn less than the mean: leave it out"
        )
    if model.intercept and outcome.mean is not None:
        raise StudyError(
            "expected data.target.mean or model.intercept, got both; either one says "
            "where the model starts: leave one of them out"
        )
    if model.loss == HUBER and outcome.kind != NUMERIC:
        raise StudyError(
            f'expected no model.loss = "huber" for a target of kind = "{outcome.kind}", got it; '
            "it is for amounts: leave it out"
        )


def _check_optimizer(name: str, data: Data, model: Model) -> None:
    """Steps for which the study says all that they need."""
    if model.kind == LINEAR_PROBE and name != "sgd":
        raise StudyError(
            'expected training.optimizer = { name = "sgd", lr = 1 } with model.kind = '
            f'"{LINEAR_PROBE}", whose parameters are sums, got "{name}"; write that, and steps = 1'
        )
    if name == "sgd" and not data.records:
        raise StudyError(
            'expected data.records with optimizer "sgd", got nothing; the sum is divided by the '
            "expected batch, so state the public number of records, or use adam"
        )


def _check_joint_batches(data: Data, dropouts: int, relation: str) -> None:
    """A joint batch of fixed size makes the number of records public, and needs everybody."""
    if dropouts:
        raise StudyError(
            'expected parties.dropouts = 0 with training.sampling = "without-replacement", got '
            f"{dropouts}; without one of the silos, a batch over all silos does not have its size"
        )
    if relation == "add-remove":
        raise StudyError(
            'expected privacy.relation = "substitute" with training.sampling = '
            '"without-replacement", got "add-remove"; a joint batch of fixed size makes the number '
            "of records public, so adding one cannot be hidden"
        )
    if not data.records:
        raise StudyError(
            'expected data.records with sampling = "without-replacement", got nothing; state the '
            "public number of records, or use Poisson sampling"
        )


def _check_correlated(training: Training, trust: str) -> None:
    """Correlated noise where its privacy is proven (docs/privacy.md P25)."""
    if training.sampling != "poisson":
        raise StudyError(
            f'expected training.sampling = "poisson" with training.noise = "{training.noise}", got '
            f'"{training.sampling}"; correlated noise has no account for other batches'
        )
    if training.projection:
        raise StudyError(
            f'expected no training.projection with training.noise = "{training.noise}", got '
            f"{training.projection}; noise that changes its projection cannot be undone"
        )
    if trust != "none":
        raise StudyError(
            f'expected parties.trust = "none" with training.noise = "{training.noise}", got '
            f'"{trust}"; a broken enclave would reveal the noise of earlier steps'
        )
    most = int(min(training.steps, 1 / training.sample_rate * (1 + 1e-12)))
    if training.bands > most:
        raise StudyError(
            f"expected training.bands of at most {most}, steps and 1 / sample_rate, got "
            f"{training.bands}; take fewer"
        )
