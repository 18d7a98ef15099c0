"""What joint batches, drawn without replacement, cost beside Poisson sampling (P1, P10).

All of it is for the reader who chooses between the two; no epsilon of the plan depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hubbub.plan.exposure import Exposure
from hubbub.plan.pairing import (
    WITHOUT_REPLACEMENT,
    Mechanism,
    epsilon_of,
    least_noise,
    releases,
    releases_at_quantile,
)
from hubbub.privacy import Certificate
from hubbub.study import Study

_SLACK_SHARE = 0.1  # of delta, for the quantile


@dataclass(frozen=True, kw_only=True)
class JointBatches:
    """The same adversary, noise and delta under other accounts and under Poisson sampling.

    Args:
        known_records: records that the stated adversary owns.
        epsilon: the plan's, the exact mixture over the honest part of the batch.
        epsilon_nobody: if nobody's part in the batch were known; None past 50, as in the next.
        epsilon_slack: the paper's account, at a quantile of the honest part.
        slack: probability of a larger part, paid in every step; already in `epsilon_slack`.
        epsilon_poisson: Poisson sampling at the same rate, where owning records tells nothing.
        noise_poisson: noise multiplier with which Poisson sampling would keep the study's epsilon.
    """

    known_records: int
    epsilon: float
    epsilon_nobody: float | None
    epsilon_slack: float | None
    slack: float
    epsilon_poisson: float | None
    noise_poisson: float


def joint_batches(
    study: Study, mechanism: Mechanism, stated: Exposure, certificate: Certificate
) -> JointBatches | None:
    """The comparison, or None if batches are not joint."""
    if mechanism.sampling != WITHOUT_REPLACEMENT:
        return None
    steps, noise, known = study.training.steps, stated.noise_multiplier, stated.known_records
    delta = certificate.ideal_delta(study.privacy.delta, study.privacy.epsilon)
    slack = _SLACK_SHARE * delta / steps
    poisson = replace(mechanism, sampling="poisson")
    nobody = epsilon_of(releases(mechanism, noise, steps), delta)
    quantile = epsilon_of(releases_at_quantile(mechanism, noise, steps, known, slack), delta)
    other = epsilon_of(releases(poisson, noise, steps), delta)
    return JointBatches(
        known_records=known,
        epsilon=stated.epsilon,
        epsilon_nobody=nobody.upper + certificate.epsilon if nobody else None,
        epsilon_slack=quantile.upper + certificate.epsilon if quantile else None,
        slack=slack,
        epsilon_poisson=other.upper + certificate.epsilon if other else None,
        noise_poisson=least_noise(
            poisson, steps, 0, study.privacy.epsilon - certificate.epsilon, delta
        ),
    )


def advice(found: JointBatches, noise_multiplier: float) -> str | None:
    """What to say if Poisson sampling is better, and by how much."""
    saved = 1 - found.noise_poisson / noise_multiplier
    if found.epsilon_poisson is None or saved < 0.005:
        return None
    return (
        f'sampling = "without-replacement": with "poisson" at the same rate the noise could be '
        f"{100 * saved:.0f} % smaller ({found.noise_poisson:.4g} instead of "
        f"{noise_multiplier:.4g}), or epsilon {found.epsilon_poisson:.3g} instead of "
        f"{found.epsilon:.3g}"
    )
