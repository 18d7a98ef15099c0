"""From a study to what it asks, and its plan: the one place that knows which queries there are."""

from __future__ import annotations

from hubbub.errors import StudyError
from hubbub.planning import Plan, Query, SteppedQuery, model_size, plan_of
from hubbub.privacy import MOST_DIMENSION, whole
from hubbub.queries.coefficients import CoefficientsQuery
from hubbub.queries.evaluation_query import EvaluationQuery
from hubbub.queries.standardising_query import StandardisingQuery, features_of
from hubbub.queries.statistics_query import StatisticsQuery
from hubbub.queries.synthesis_query import synthesis_of
from hubbub.queries.training_query import TrainingQuery
from hubbub.queries.validation import ValidationQuery, held_back_share
from hubbub.study import Study


def queries_of(
    study: Study, dimension: int | None = None
) -> tuple[SteppedQuery, tuple[Query, ...]]:
    """The main query of a study, which has what the others leave of epsilon, and those others.

    Args:
        study: the study.
        dimension: of its model, if that is known.

    Raises:
        StudyError: features are to be standardised, and how many there are is not public.
    """
    if study.training is None:
        main, *others = _of_cells(study)
        return main, tuple(others)
    if dimension is None:
        dimension = model_size.model_dimension(study)
    trained = training_of(study, dimension)
    data, privacy, training = trained.data, trained.privacy, trained.training
    beside: list[Query] = []
    if data.standardise is not None:
        features = features_of(model_size.record_shape(study, dimension))
        beside.append(StandardisingQuery(data.standardise, data, privacy, features, dimension))
    beside += _of_cells(study)
    if (asked := training.evaluate) is not None:
        beside.append(EvaluationQuery(asked, data, privacy, training.steps, dimension))
    if study.validation is not None:
        beside.append(ValidationQuery(study, dimension))
    if study.coefficients is not None:
        beside.append(CoefficientsQuery(study.coefficients, data, privacy))
    return trained, tuple(beside)


def _of_cells(study: Study) -> list[SteppedQuery]:
    """What is asked of columns as they are; where nothing is trained, the first is the main one."""
    queries: list[SteppedQuery] = [statistics_of(study)] if study.statistics is not None else []
    return queries + ([synthesis_of(study)] if study.synthetic is not None else [])


def main_of(study: Study) -> SteppedQuery:
    """The main query of a study, whose size may be open."""
    return _of_cells(study)[0] if study.training is None else training_of(study)


def steps_of(study: Study) -> int:
    """How many attempts the main query has."""
    return main_of(study).mechanism.steps


def training_of(study: Study, dimension: int | None = None) -> TrainingQuery:
    """The training of a study.

    Raises:
        StudyError: it asks for statistics alone.
    """
    _, training = study.learning
    held_back = held_back_share(study)
    return TrainingQuery(training, study.data, study.privacy, dimension, held_back)


def statistics_of(study: Study) -> StatisticsQuery:
    """The statistics of a study.

    Raises:
        StudyError: it asks for none.
    """
    if study.statistics is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    return StatisticsQuery(study.statistics, study.data, study.privacy)


def plan(study: Study, *, dimension: int | None = None) -> Plan:
    """What follows from a study: noise, shares, grid, word, and epsilon for every adversary.

    Guarantees:
        1. The stated adversary (the aggregator with `colluders` silos, one of them watching the
           rounds from inside) gets at most study.privacy.epsilon at study.privacy.delta, the
           certificate's additions included. Where batches are joint, it also knows which records
           of theirs are in them, all silos holding equally many.

    Args:
        study: the study.
        dimension: number of trainable parameters, from 1 to 2^40. Needed for a model of your own,
            and for data of your own where model.inputs is not stated: code that the study names is
            not called here. Without it such a plan leaves bytes open.

    Returns:
        The plan.

    Raises:
        StudyError: the study asks for something that cannot be certified, or is no `Study`.

    Source: docs/privacy.md P3-P7.

    >>> study = Study.parse('''
    ... study.name = "example"
    ... parties = {silos = 4, colluders = 1}
    ... data = {source = "hubbub.datasets:heart", records = 740}
    ... model = {kind = "logistic", inputs = [26]}
    ... training = {steps = 10, sampling = "full-batch"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> made = plan(study)
    >>> made.stated.adversary, made.epsilon() <= 1.0
    ('aggregator + 1 silo', True)
    >>> round(made.noise_multiplier, 2), round(made.share_sigma, 2)
    (11.8, 8.34)
    """
    return _plan(study, dimension, announced=True)


def plan_with_fixed_shares(study: Study, *, dimension: int | None = None) -> Plan:
    """The plan of a run from before noise shares followed from the announced set (P3).

    Args, returns and errors are those of `plan`.
    """
    return _plan(study, dimension, announced=False)


def _plan(study: Study, dimension: int | None, *, announced: bool) -> Plan:
    """By either rule of shares."""
    Study.expect(study)
    if dimension is not None:
        dimension = whole("dimension", dimension, least=1, most=MOST_DIMENSION)
    main, beside = queries_of(study, dimension)
    return plan_of(study, main, beside, announced=announced)
