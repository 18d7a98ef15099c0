"""From a study to the queries of its asks, and to its plan. This file knows no kind of either."""

from __future__ import annotations

from hubbub.core.planning.plan_of_mechanisms import plan_of
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.query import Query, SteppedQuery
from hubbub.core.privacy.arguments import MOST_DIMENSION, whole
from hubbub.core.study.study import Study


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
    if dimension is None:
        public = (ask.dimension(study) for ask in study.asks)
        dimension = next((size for size in public if size is not None), None)
    main, beside = study.main_ask, list[Query]()
    for ask in study.asks:
        beside += ask.extras(study, dimension)
        if ask is not main:
            beside.append(ask.query(study, dimension))
    return main_of(study, dimension), tuple(sorted(beside, key=lambda query: query.turn))


def main_of(study: Study, dimension: int | None = None) -> SteppedQuery:
    """The main query of a study, whose size may be open."""
    return study.main_ask.query(study, dimension)


def steps_of(study: Study) -> int:
    """How many attempts the main query has."""
    return main_of(study).mechanism.steps


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

    >>> from importlib import resources
    >>> study = Study.load(resources.files("hubbub.learning.datasets") / "heart.toml")
    >>> made = plan(study)
    >>> made.stated.adversary, made.epsilon() <= 1.0
    ('aggregator + 1 silo', True)
    >>> round(made.noise_multiplier, 2), round(made.share_sigma, 2)
    (11.09, 7.84)
    """
    Study.expect(study)
    if dimension is not None:
        dimension = whole("dimension", dimension, least=1, most=MOST_DIMENSION)
    main, beside = queries_of(study, dimension)
    return plan_of(study, main, beside)
