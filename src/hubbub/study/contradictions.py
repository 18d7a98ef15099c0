"""Keys that are each in range and yet contradict each other, across tables.

A contradiction is refused, never settled in favour of one of the keys: no setting may silently
change a guarantee. This file knows the settings, not how they were read.
"""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.errors import StudyError
from hubbub.study.coefficients import Coefficients, check_coefficients
from hubbub.study.data import Data
from hubbub.study.import_path import IN_MEMORY
from hubbub.study.model import HUBER, Model
from hubbub.study.model_kinds import LINEAR_PROBE
from hubbub.study.parties import Parties
from hubbub.study.privacy import Privacy
from hubbub.study.study_part import StudyPart
from hubbub.study.training import Training
from hubbub.study.validation import HELD_BACK, Validation
from hubbub.tabular import NUMERIC, TIME_TO_EVENT, Outcome


def refuse_contradictions(
    parties: Parties,
    data: Data,
    model: Model | None,
    training: Training | None,
    privacy: Privacy,
    asked: Sequence[StudyPart],
    validation: Validation | None = None,
    coefficients: Coefficients | None = None,
) -> None:
    """Refuse a study whose tables contradict each other, whatever each says by itself.

    Raises:
        StudyError: naming the keys.
    """
    if model is not None:
        _check_target(data, model)
    if data.records and data.records < parties.silos:
        raise StudyError(
            f"expected data.records >= {parties.silos}, the number of silos, got {data.records}; "
            "fix it"
        )
    joint = training is not None and training.sampling == "without-replacement"
    if joint:
        _check_joint_batches(data, parties.dropouts, privacy.relation)
    _check_counts(data, parties.silos, joint=joint)
    _check_capacity(data, parties.silos)
    if model is not None and training is not None:
        _check_optimizer(str(dict(training.optimizer)["name"]), data, model)
        if training.noise == "correlated":
            _check_correlated(training, parties.trust)
        _check_evaluation(training)
        if validation is not None:
            _check_validation(validation, training, data)
        if coefficients is not None:
            check_coefficients(data, model)
    of_model = [one for one in (validation, coefficients) if one is not None]
    _check_parts(training, data, [*asked, *of_model], privacy.epsilon)


def _check_target(data: Data, model: Model) -> None:
    """Files that the model can learn."""
    if model.kind == LINEAR_PROBE and data.outcome is not None:
        raise StudyError(
            f'expected a target of classes with model.kind = "{LINEAR_PROBE}", got '
            f'"{data.outcome.kind}"; choose another kind of model'
        )
    _check_outputs(data, model)
    _check_inputs(data, model)


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


def _check_correlated(training: Training, trust: str) -> None:
    """Correlated noise where its privacy is proven (docs/privacy.md P25)."""
    if training.sampling != "poisson":
        raise StudyError(
            'expected training.sampling = "poisson" with training.noise = "correlated", got '
            f'"{training.sampling}"; correlated noise has no account of other batches'
        )
    if training.projection:
        raise StudyError(
            'expected no training.projection with training.noise = "correlated", got '
            f"{training.projection}; what is projected anew in each step cannot be taken back"
        )
    if trust != "none":
        raise StudyError(
            f'expected parties.trust = "none" with training.noise = "correlated", got "{trust}"; '
            "an enclave that breaks would tell the noise of earlier steps too"
        )
    most = int(min(training.steps, 1 / training.sample_rate * (1 + 1e-12)))
    if training.bands > most:
        raise StudyError(
            f"expected training.bands of at most {most}, steps and 1 / sample_rate, got "
            f"{training.bands}; take fewer"
        )


def _check_evaluation(training: Training) -> None:
    """An evaluation that has records, at some time."""
    asked = training.evaluate
    if asked and asked.every > training.steps:
        raise StudyError(
            f"expected training.evaluate.every <= steps = {training.steps}, got {asked.every}; "
            "lower it"
        )
    if asked and training.sampling == "without-replacement":
        raise StudyError(
            'expected no training.evaluate with sampling = "without-replacement", got one; joint '
            "batches are drawn from all records, so none can be held back: use Poisson sampling"
        )


def _check_parts(
    training: Training | None,
    data: Data,
    asked: Sequence[StudyPart],
    epsilon: float,
) -> None:
    """Evaluation, standardisation and what else is asked leave some epsilon to the main query."""
    evaluated = None if training is None else training.evaluate
    spent = sum(one.epsilon for one in (evaluated, data.standardise, *asked) if one)
    if spent > 0.9 * epsilon:
        words = "".join(f", {one.title}.epsilon" for one in asked)
        raise StudyError(
            f"expected training.evaluate.epsilon{words} and data.standardise.epsilon together to "
            f"be at most 0.9 of privacy.epsilon = {epsilon:g}, of which they are a part, got "
            f"{spent:g}; lower them"
        )


def _check_validation(validation: Validation, training: Training, data: Data) -> None:
    """Records that can be held back, once, and columns that silos can read."""
    if validation.records == HELD_BACK and training.sampling == "without-replacement":
        raise StudyError(
            'expected no validation.records = "held-back" with sampling = "without-replacement", '
            "got it; joint batches are drawn from all records, so none can be held back: use "
            '"training", or Poisson sampling'
        )
    also = training.evaluate
    if also is not None and also.holdout != validation.holdout:
        raise StudyError(
            f"expected validation.holdout = {also.holdout:g}, as training.evaluate.holdout is, "
            f"got {validation.holdout:g}; the same records are held back for both: fix one"
        )
    if validation.by and not data.is_declared and data.source != IN_MEMORY:
        raise StudyError(
            "expected data.columns with validation.by, whose columns silos read, got "
            f"{data.source}; leave validation.by out"
        )


def _check_outputs(data: Data, model: Model) -> None:
    """As many outputs as the target needs; nobody knows the classes of a source."""
    if data.outcome is not None:
        _check_outcome(data.outcome, model)
        return
    if model.loss == HUBER:
        raise StudyError(
            'expected no model.loss = "huber" for a target of classes, got it; it is for amounts: '
            'write data.target = { kind = "numeric", ... }, or leave it out'
        )
    classes = 2 if data.positive else len(data.classes)
    wanted = classes if classes > 2 else 1
    if data.is_declared and model.outputs != wanted:
        raise StudyError(
            f"expected model.outputs = {wanted} for a target of {classes} classes, "
            f"got {model.outputs}; set it, or fix data.classes"
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
            'expected no model.loss = "huber" with data.target.scale = "log-link", got it; it '
            "would learn less than the mean: leave it out"
        )
    if model.intercept and outcome.mean is not None:
        raise StudyError(
            "expected data.target.mean or model.intercept, got both; either says where the model "
            "begins: leave one of them out"
        )
    if model.loss == HUBER and outcome.kind != NUMERIC:
        raise StudyError(
            f'expected no model.loss = "huber" for a target of kind = "{outcome.kind}", got it; '
            "it is for amounts: leave it out"
        )


def _check_inputs(data: Data, model: Model) -> None:
    """As many inputs as the declared columns become features; frozen layers make others."""
    width = sum(column.width for column in data.features)
    if data.columns and model.inputs and not model.extractor and model.inputs != (width,):
        raise StudyError(
            f"expected model.inputs = [{width}], the features that data.columns become, got "
            f"{list(model.inputs)}; leave it out"
        )


def _check_joint_batches(data: Data, dropouts: int, relation: str) -> None:
    """A joint batch of fixed size makes the number of records public, and needs everybody."""
    if dropouts:
        raise StudyError(
            'expected parties.dropouts = 0 with training.sampling = "without-replacement", got '
            f"{dropouts}; a batch over all silos is not of its size without one of them"
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


def _check_capacity(data: Data, silos: int) -> None:
    """One number for all silos, or one for each; no silo counts on more than it may hold."""
    many = len(data.capacity)
    if many > 1 and many != silos:
        raise StudyError(
            f"expected data.capacity to be one number or {silos}, one for each silo, got "
            f"{many}; fix the list"
        )
    each = data.capacity if many > 1 else data.capacity * silos
    if data.counts and any(most < own for most, own in zip(each, data.counts, strict=False)):
        raise StudyError(
            "expected data.capacity to be at least data.counts for every silo, got less; fix one"
        )


def _check_counts(data: Data, silos: int, *, joint: bool) -> None:
    """Every silo's number of records, which add up."""
    if not data.counts:
        return
    if not joint:
        raise StudyError(
            'expected no data.counts without training.sampling = "without-replacement", which '
            "alone makes them public, got some; remove them"
        )
    if len(data.counts) != silos or sum(data.counts) != data.records:
        raise StudyError(
            f"expected data.counts to be {silos} numbers that add up to data.records = "
            f"{data.records}, got {len(data.counts)} that add up to {sum(data.counts)}; fix them"
        )
