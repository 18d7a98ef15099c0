"""The one place that pairs a mechanism with its accounting: what a privacy auditor reads first.

A step of a study draws a batch, sums its clipped gradients, perhaps projects the sum, and adds
Gaussian noise. `releases` says which law accounts for it:

| projection | batches | neighbours | charged as |
|---|---|---|---|
| none | Poisson, or everybody | either | the dominating pair of P1 |
| none | without replacement | substitute | P10: the mixture over the honest part of the batch |
| fresh, Gaussian | Poisson, or everybody | add-remove | P8 (1): exact, the mixture over the norm |
| fresh, Gaussian | everybody | substitute | the same for x - x', which is all that differs |
| fresh, any kind | any other | | P8 (2): the row above it for C~, and a slack in every step |

P8 (1) is never dearer than P8 (2), which bounds it, so it is taken wherever it is proven. Under
substitution the three distances of P1 have to stay short: three events a step. What has no row is
refused by the study (without replacement and add-remove: the batch size would show the number of
records). A projection that is kept while gradients follow it has no account at all (P8 (4)), so
there is no key for it. An attempt counts from the moment its projection is public: whoever could
discard one for free would have a choice (P8 (3)). This file knows one adversary at a time: how much
noise that one does not know, and how many records are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log, sqrt

import numpy as np

from hubbub.errors import StudyError
from hubbub.privacy import (
    LEAST_SAMPLED_NOISE,
    Bound,
    Composition,
    Release,
    Step,
    calibrate,
    projection_factor,
    release,
    release_at_quantile,
    release_projected,
    release_with_malicious,
    with_slack,
)
from hubbub.study import Study

WITHOUT_REPLACEMENT = "without-replacement"
# The honest parts of a batch are gathered into so many cells: 0.05 % of epsilon, on the dear side.
_CELLS = 40
_SPLITS = np.geomspace(1e-3, 0.5, 60)


@dataclass(frozen=True, kw_only=True)
class Projected:
    """How the random projection of a study is charged.

    Args:
        kind: of the matrices, "gaussian" or "sign".
        dimension: k, numbers that a silo sends per step.
        factor: C~ / C, the length that a record's projection is charged with; 1 if it is exact.
        slack: delta that every step spends on longer ones; 0 if it is exact.
    """

    kind: str
    dimension: int
    factor: float = 1.0
    slack: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether the account is over the public projection itself, P8 (1)."""
        return self.slack == 0


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """All of a study that its account depends on, except for the noise and the number of steps."""

    sampling: str
    sample_rate: float
    relation: str
    records: int
    projected: Projected | None = None

    @property
    def batch(self) -> int:
        """Records in a joint batch, rounded up."""
        return min(self.records, ceil(self.sample_rate * self.records * (1 - 1e-12)))


def releases(
    mechanism: Mechanism, noise_multiplier: float, steps: int, known_records: int = 0
) -> list[Release]:
    """What `steps` steps release to one adversary; the table above, row by row.

    Args:
        mechanism: what every step does.
        noise_multiplier: sigma / C of the noise that this adversary does not know (P3).
        steps: attempts, finished or not.
        known_records: records whose part in a batch this adversary knows because it owns them.
    """
    how = mechanism.projected
    if how and how.exact:
        longest = 2 if mechanism.relation == "substitute" else 1
        projected = release_projected(
            dimension=how.dimension,
            sample_rate=mechanism.sample_rate,
            noise_multiplier=noise_multiplier / longest,
            count=steps,
        )
        return [projected]
    plain = _unprojected(
        mechanism, noise_multiplier / (how.factor if how else 1), steps, known_records
    )
    return [with_slack(plain, how.slack)] if how else [plain]


def _unprojected(mechanism: Mechanism, noise: float, steps: int, known_records: int) -> Release:
    """The rows without projection."""
    if mechanism.sampling == WITHOUT_REPLACEMENT:
        return release_with_malicious(
            records=mechanism.records,
            batch=mechanism.batch,
            malicious=known_records,
            noise_multiplier=noise,
            count=steps,
            cells=_CELLS,
        )
    step = Step(
        noise_multiplier=noise,
        sample_rate=mechanism.sample_rate,
        sampling=mechanism.sampling,
        count=steps,
    )
    return release(step, mechanism.relation)


def releases_at_quantile(
    mechanism: Mechanism, noise: float, steps: int, known_records: int, slack: float
) -> list[Release]:
    """Joint batches charged the paper's way, at a quantile of their honest part (P10).

    For comparison only: `releases` is never dearer.
    """
    how = mechanism.projected
    one = release_at_quantile(
        records=mechanism.records,
        batch=mechanism.batch,
        malicious=known_records,
        noise_multiplier=noise / (how.factor if how else 1),
        count=steps,
        slack=slack,
    )
    return [with_slack(one, how.slack)] if how else [one]


def mechanism_of(study: Study) -> Mechanism:
    """What every step of a study does."""
    training, relation = study.training, study.privacy.relation
    plain = Mechanism(
        sampling=training.sampling,
        sample_rate=training.sample_rate,
        relation=relation,
        records=study.data.records,
    )
    if not training.projection:
        return plain
    kind = "gaussian"
    if is_exact(kind, training.sampling, relation):
        projected = Projected(kind=kind, dimension=training.projection)
    else:
        projected = bounded_projection(
            kind,
            training.projection,
            events=1 if relation == "add-remove" or training.sampling == "none" else 3,
            steps=training.steps,
            delta=study.privacy.delta,
        )
    return replace(plain, projected=projected)


def is_exact(kind: str, sampling: str, relation: str) -> bool:
    """Whether the mixture over the norm is proven to dominate (P8).

    It is where only one vector decides: the record, or the difference of two that both take part.
    """
    one_vector = sampling == "none" or (sampling == "poisson" and relation == "add-remove")
    return kind == "gaussian" and one_vector


def bounded_projection(
    kind: str, dimension: int, *, events: int, steps: int, delta: float
) -> Projected:
    """P8 (2): C~ and the slack for it, S times the number of events times delta'.

    Any split of delta between the slack and the noise is sound. This one is near the best: the
    noise that is needed grows with C~ and roughly with sqrt(log 1 / remaining delta).

    Raises:
        StudyError: the slack is too small to be told from zero.
    """

    def needed(share: float) -> float:
        factor = projection_factor(dimension, share * delta / (events * steps), kind)
        return factor * sqrt(log(1 / ((1 - share) * delta)))

    share = float(min(_SPLITS, key=needed))
    slack = share * delta / steps
    return Projected(
        kind=kind,
        dimension=dimension,
        factor=projection_factor(dimension, slack / events, kind),
        slack=slack,
    )


def epsilon_of(whole: list[Release], delta: float) -> Bound | None:
    """Certified epsilon; None past 50, where nothing is promised."""
    try:
        found = Composition(whole).epsilon(delta)
    except StudyError:
        return None
    return found if found.upper <= 50 else None


def least_noise(
    mechanism: Mechanism, steps: int, known_records: int, epsilon: float, delta: float
) -> float:
    """The least noise multiplier with which an adversary gets at most (epsilon, delta)."""
    least = least_certified(mechanism)
    found = calibrate(
        lambda noise: releases(mechanism, max(noise, least), steps, known_records), epsilon, delta
    )
    return max(found, least)


def least_certified(mechanism: Mechanism) -> float:
    """The noise multiplier below which no epsilon is computed."""
    longest = mechanism.projected.factor if mechanism.projected else 1.0
    return LEAST_SAMPLED_NOISE * longest
