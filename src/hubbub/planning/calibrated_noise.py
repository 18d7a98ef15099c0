"""The least noise that keeps a study's epsilon and delta, what finite precision takes included."""

from __future__ import annotations

from math import ceil

from hubbub.errors import StudyError
from hubbub.planning import auxiliary_queries, exposure, pairing
from hubbub.privacy import LEAST_DELTA, LEAST_EPSILON, Certificate
from hubbub.study import Study


def calibrated_noise(
    study: Study,
    mechanism: pairing.Mechanism,
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
    return pairing.least_noise(mechanism, steps, known, epsilon, delta, beside)


def _largest_epsilon(certificate: Certificate, spare: float, asked: float) -> int:
    """The largest whole epsilon for which finite precision takes no more of delta; 0 if none."""
    below = range(1, ceil(asked))
    return max((e for e in below if certificate.added_delta(e) <= spare), default=0)
