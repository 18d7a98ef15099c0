"""From a study to its plan: the noise, its shares, the grid, and epsilon for every adversary.

The chain is short. The noise multiplier is calibrated so that the stated adversary gets at most the
study's epsilon (P1-P3); it is divided into shares that survive colluders and drop-outs (P3, P4);
the shares fix the grid and the word (P5, P7); what finite precision and the mask graph may add is
paid for in the calibration (P4-P6).
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from hubbub.errors import StudyError
from hubbub.planning import (
    auxiliary_queries,
    exposure,
    mask_degree,
    mechanisms,
    model_size,
    noise_correlation,
    precision,
)
from hubbub.planning.patient_promise import patient_promise
from hubbub.planning.plan_values import Plan, PlannedQuery
from hubbub.planning.plan_warnings import warnings_of
from hubbub.planning.sampling_comparison import joint_batches
from hubbub.privacy import (
    LEAST_DELTA,
    LEAST_EPSILON,
    MOST_DIMENSION,
    Certificate,
    Composition,
    Release,
    power_bound,
    whole,
)
from hubbub.study import Study


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
    ... training = {steps = 10, sampling = "none"}
    ... privacy = {epsilon = 1.0, delta = 1e-5}
    ... ''')
    >>> made = plan(study)
    >>> made.stated.adversary, made.epsilon() <= 1.0
    ('aggregator + 1 silo', True)
    >>> round(made.noise_multiplier, 2), round(made.share_sigma, 2)
    (11.8, 8.34)
    """
    Study.expect(study)
    return plan_on_graph(study, mask_degree.mask_degree(study), dimension=dimension)


def plan_on_graph(study: Study, degree: int, *, dimension: int | None = None) -> Plan:
    """The plan of a study whose mask graph has this degree: today's, or that of an earlier run."""
    if dimension is None:
        dimension = model_size.model_dimension(study)
    else:
        dimension = whole("dimension", dimension, least=1, most=MOST_DIMENSION)
    _check_projection(study, dimension)
    parties = study.parties
    sharing = exposure.sharing_silos(study)
    shares = sharing - parties.dropouts - exposure.known_shares(study, parties.colluders)
    if shares < 1:
        raise StudyError(
            f"expected parties.nodes_per_silo to leave at least one noise share, got {sharing} "
            f"silos that share a sum; raise nodes_per_silo or lower colluders and dropouts"
        )
    queries = tuple(
        PlannedQuery(query=one, plan=plan_on_graph(one.study, degree, dimension=one.numbers))
        for one in auxiliary_queries.queries_of(study, dimension)
    )
    priced = tuple(one.priced for one in queries)
    certificate = precision.certificate_for(
        study, study.training.projection or dimension, dimension
    )
    # 0 for the stated adversary but on the graph of an earlier run (P4).
    torn = mask_degree.torn_apart(study, parties.colluders + 1, degree)
    certificate = certificate.after(Certificate(failure=torn))
    for one in queries:
        certificate = certificate.after(one.plan.certificate)
    noise = _calibrated_noise(study, certificate, priced)
    word_bits, sigma_grid, capacity = precision.grid_for(study, noise, shares)
    exposures = exposure.exposures_of(study, noise, shares, certificate, degree, priced)
    stated = exposure.stated_of(study, exposures)
    batches = joint_batches(study, stated, certificate, priced)
    patient = patient_promise(study, stated, certificate, priced)
    return Plan(
        study=study,
        dimension=dimension,
        noise_multiplier=noise,
        shares=shares,
        sharing=sharing,
        degree=degree,
        word_bits=word_bits,
        share_sigma_grid=sigma_grid,
        capacity=capacity,
        certificate=certificate,
        exposures=exposures,
        attack_power=_attack_power(study, stated, certificate, priced),
        projected=mechanisms.mechanism_of(study).projected,
        joint_batches=batches,
        correlation=noise_correlation.correlation_of(study),
        queries=queries,
        patient=patient,
        warnings=warnings_of(study, dimension, batches, noise, exposures, patient),
    )


def _check_projection(study: Study, dimension: int | None) -> None:
    """Refuse a projection that has no account, or that sends more than the model has."""
    k = study.training.projection
    if k == 1 or (dimension is not None and k > dimension):
        most = f"{dimension}, the model's parameters" if dimension is not None else "10000000"
        raise StudyError(
            f"expected training.projection to be 0, for none, or from 2 to {most}, got {k}; "
            "choose one in that range"
        )


def _calibrated_noise(
    study: Study,
    certificate: Certificate,
    queries: tuple[auxiliary_queries.PricedQuery, ...],
) -> float:
    """The least noise with which epsilon and delta hold after the certificate is paid for."""
    privacy = study.privacy
    epsilon = privacy.epsilon - certificate.epsilon
    delta = certificate.ideal_delta(privacy.delta, privacy.epsilon)
    if epsilon < (least := max(0.5 * privacy.epsilon, LEAST_EPSILON)):
        raise StudyError(
            f"expected privacy.epsilon to leave at least {least:g} when finite precision has taken "
            f"{certificate.epsilon:.2g} of it, got {privacy.epsilon:g}; raise it or take fewer "
            "steps"
        )
    if delta < (least := max(0.5 * privacy.delta, LEAST_DELTA)):
        most = _largest_epsilon(certificate, privacy.delta - least, privacy.epsilon)
        if most:
            raise StudyError(
                f"expected privacy.epsilon of at most {most} for this study, got "
                f"{privacy.epsilon:g}; lower it: finite precision cannot be certified beyond, and "
                "above 8 an epsilon promises little anyway"
            )
        taken = certificate.added_delta(privacy.epsilon)
        raise StudyError(
            f"expected privacy.delta to leave at least {least:g} when finite precision has taken "
            f"{taken:.2g} of it, which grows with e^epsilon, got {privacy.delta:g} at epsilon "
            f"{privacy.epsilon:g}; raise delta, lower epsilon or take fewer steps"
        )
    known = exposure.owned_records(study, study.parties.colluders + 1)
    steps = study.training.steps
    beside = tuple(auxiliary_queries.released(queries, steps, 1.0, privacy.relation))
    mechanism = mechanisms.mechanism_of(study)
    return mechanisms.least_noise(mechanism, steps, known, epsilon, delta, beside)


def _largest_epsilon(certificate: Certificate, spare: float, asked: float) -> int:
    """The largest whole epsilon for which finite precision takes no more of delta; 0 if none."""
    below = range(1, ceil(asked))
    return max((e for e in below if certificate.added_delta(e) <= spare), default=0)


def _attack_power(
    study: Study,
    stated: exposure.Exposure,
    certificate: Certificate,
    queries: tuple[auxiliary_queries.PricedQuery, ...],
) -> float:
    """What the stated adversary finds at most, accusing one non-member in a hundred."""
    steps, known = study.training.steps, stated.known_records
    mechanism = mechanisms.mechanism_of(study)
    whole = mechanisms.releases(mechanism, stated.noise_multiplier, steps, known)
    whole += auxiliary_queries.released(queries, steps, 1.0, study.privacy.relation)
    return _power(tuple(whole), certificate)


@lru_cache(maxsize=64)  # a study that is run is planned again for its evidence
def _power(whole: tuple[Release, ...], certificate: Certificate) -> float:
    """At so few false accusations."""
    return power_bound(Composition(whole), 0.01, certificate)
