"""From a study to the queries of its asks, and to its plan; no kind of either is known here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TypeVar

from hubbub.core.errors import StudyError
from hubbub.core.planning import accounts, exposure, noise_shares, planned_query
from hubbub.core.planning.exposure import patient_promise
from hubbub.core.planning.mechanism import Mechanism
from hubbub.core.planning.plan import Plan, warnings_of
from hubbub.core.planning.planned_query import PlannedQuery, largest_batch
from hubbub.core.planning.query import Query, SteppedQuery
from hubbub.core.planning.sampling_comparison import joint_batches
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import LEAST_DELTA, LEAST_EPSILON, MOST_DIMENSION, whole
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import Release
from hubbub.core.privacy.tradeoff import power_bound
from hubbub.core.study.parties import Parties, Privacy
from hubbub.core.study.study import Study

# From queries to a plan: the noise, its shares, the grid, and epsilon for every adversary.
#
# The chain is short. The noise multiplier of each mechanism is calibrated so that the stated
# adversary gets at most its epsilon (P1-P3), and of the main one so that all of them together stay
# within the study's; it is divided into shares that survive colluders and drop-outs (P3, P4); the
# shares fix the grid and the word (P5, P7); what finite precision and the mask graph may add is
# paid for in the calibration (P4-P6).

Q = TypeVar("Q", bound=Query)


def plan_of(study: Study, main: SteppedQuery, beside: Sequence[Query]) -> Plan:
    """What follows from a study's queries; see `hubbub.plan`.

    Args:
        study: who takes part, and what is promised.
        main: the query that has what the others leave of epsilon.
        beside: the others, each with an epsilon of its own.

    Raises:
        StudyError: the study asks for something that cannot be certified.
    """
    parties, privacy = study.parties, study.privacy
    queries = (*beside, main)
    for query in queries:
        if (projection := query.mechanism.projection) is not None:
            projection.check(query.numbers, query.mechanism.clip, largest_batch(query.mechanism))
    # P25: all sums share noise alike, and none of a step's is taken back in another.
    own_noise = all(query.mechanism.noise.epoch == 1 for query in queries)
    shares = noise_shares.shares_of(parties, announced=own_noise)
    planned, certificate = list[PlannedQuery[Query]](), _certificate(main, parties, shares)
    for query in beside:
        assert query.epsilon is not None, "only the main query has the rest"  # noqa: S101
        # P16: each has noise as if it alone were asked, for its own part of epsilon.
        own = replace(privacy, epsilon=query.epsilon)
        planned.append(plan_alone(query, parties, own, shares)[0])
        # P4 to P6: what finite precision and the graphs add in any query's sums counts against all.
        certificate = certificate.after(planned[-1].certificate)
    threat = exposure.Threat(
        parties=parties,
        privacy=privacy,
        mechanism=main.mechanism,
        shares=shares,
        certificate=certificate,
        beside=tuple(one.mechanism for one in planned),
    )
    threat = replace(threat, mechanism=_calibrated(threat))
    exposures = threat.exposures
    stated = exposure.stated_of(parties, exposures)
    batches, patient = joint_batches(threat, stated), patient_promise(threat, stated)
    words = [one.warnings(study) for one in queries]
    return Plan(
        study=study,
        main=_planned(main, threat, stated),
        beside=tuple(planned),
        degree=noise_shares.mask_degree(parties),
        certificate=certificate,
        exposures=exposures,
        attack_power=_attack_power(threat, stated),
        joint_batches=batches,
        patient=patient,
        warnings=warnings_of(study, threat.mechanism, batches, exposures, patient, words),
    )


def plan_alone(
    query: Q, parties: Parties, privacy: Privacy, shares: noise_shares.NoiseShares
) -> tuple[PlannedQuery[Q], exposure.Threat]:
    """A query that has all of epsilon, and the threat that its noise was found for.

    Args:
        shares: how the stated noise is divided among silos (P3).
    """
    threat = exposure.Threat(
        parties=parties,
        privacy=privacy,
        mechanism=query.mechanism,
        shares=shares,
        certificate=_certificate(query, parties, shares),
    )
    threat = replace(threat, mechanism=_calibrated(threat))
    return _planned(query, threat, threat.stated), threat


def _planned(query: Q, threat: exposure.Threat, stated: exposure.Exposure) -> PlannedQuery[Q]:
    """A query with the noise that was found for it, on its grid."""
    parties, mechanism = threat.parties, threat.mechanism
    word_bits, sigma_grid, sum_limit = planned_query.grid_for(
        mechanism, parties, mechanism.noise_multiplier, threat.shares
    )
    return PlannedQuery(
        query=query,
        mechanism=mechanism,
        numbers=query.numbers,
        parties=parties,
        division=threat.shares,
        word_bits=word_bits,
        share_sigma_grid=sigma_grid,
        sum_limit=sum_limit,
        certificate=threat.certificate,
        known_records=stated.known_records,
        epsilon=stated.epsilon,
    )


def _certificate(query: Query, parties: Parties, shares: noise_shares.NoiseShares) -> Certificate:
    """What finite precision and the mask graph may add in a query's sums."""
    numbers = query.mechanism.numbers_sent(query.numbers)
    return planned_query.certificate_for(
        query.mechanism, parties, numbers, query.numbers, widest=shares.widest
    )


def _calibrated(threat: exposure.Threat) -> Mechanism:
    """The mechanism with the least noise with which the threat's epsilon and delta hold."""
    privacy, mechanism = threat.privacy, threat.mechanism
    epsilon, delta = _left_by_precision(privacy, threat.certificate)
    # P3, P10: besides T silos one looks on, which knows its own records.
    known = exposure.owned_records(mechanism, threat.parties, threat.parties.colluders + 1)
    # P16: the other queries have their noise by now; this one gets what they leave.
    beside = tuple(accounts.released(threat.beside, mechanism.steps, 1.0))
    account = accounts.account_of(mechanism)
    noise = accounts.least_noise(account, mechanism.steps, known, epsilon, delta, beside)
    return replace(mechanism, noise_multiplier=noise)


def _left_by_precision(privacy: Privacy, certificate: Certificate) -> tuple[float, float]:
    """What is left of epsilon and delta after the certificate is paid for."""
    epsilon = privacy.epsilon - certificate.epsilon
    # P6: the slack is counted at the whole epsilon, the most that is claimed of this adversary.
    delta = certificate.ideal_delta(privacy.delta, privacy.epsilon)
    if epsilon < (least := max(0.5 * privacy.epsilon, LEAST_EPSILON)):
        raise StudyError(
            f"expected privacy.epsilon to leave at least {least:g} when finite precision has taken "
            f"{certificate.epsilon:.2g} of it, got {privacy.epsilon:g}; raise it or take fewer "
            "steps"
        )
    if delta < (least := max(0.5 * privacy.delta, LEAST_DELTA)):
        # The largest whole epsilon for which finite precision takes no more of delta; 0 if none.
        spare, below = privacy.delta - least, range(1, ceil(privacy.epsilon))
        if most := max((e for e in below if certificate.added_delta(e) <= spare), default=0):
            raise StudyError(
                f"expected privacy.epsilon of at most {most} for this study, got "
                f"{privacy.epsilon:g}; lower it, or raise delta: what finite precision takes of "
                "delta grows with e^epsilon, and above 8 an epsilon protects little anyway"
            )
        taken = certificate.added_delta(privacy.epsilon)
        raise StudyError(
            f"expected privacy.delta to leave at least {least:g} when finite precision has taken "
            f"{taken:.2g} of it, which grows with e^epsilon, got {privacy.delta:g} at epsilon "
            f"{privacy.epsilon:g}; raise delta, lower epsilon or take fewer steps"
        )
    return epsilon, delta


def _attack_power(threat: exposure.Threat, stated: exposure.Exposure) -> float:
    """What the stated adversary finds at most, accusing one non-member in a hundred."""
    account, steps = accounts.account_of(threat.mechanism), threat.mechanism.steps
    releases = accounts.releases(account, stated.noise_multiplier, steps, stated.known_records)
    releases += accounts.released(threat.beside, steps, 1.0)
    return _power(tuple(releases), threat.certificate)


@lru_cache(maxsize=64)  # a study that is run is planned again for its evidence
def _power(releases: tuple[Release, ...], certificate: Certificate) -> float:
    """At so few false accusations."""
    return power_bound(Composition(releases), 0.01, certificate)


def queries_of(
    study: Study, dimension: int | None = None
) -> tuple[SteppedQuery, tuple[Query, ...]]:
    """The main query of a study, which has what the others leave of epsilon, and those others.

    Args:
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
    >>> round(made.noise_multiplier, 2), round(made.main.share_sigma, 2)
    (11.09, 7.84)
    """
    Study.expect(study)
    if dimension is not None:
        dimension = whole("dimension", dimension, least=1, most=MOST_DIMENSION)
    main, beside = queries_of(study, dimension)
    return plan_of(study, main, beside)
