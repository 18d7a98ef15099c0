"""Questions of one kind of event that `hubbub.epsilon` answers, each with arguments of its own."""

from __future__ import annotations

from collections.abc import Sequence

from hubbub.core.errors import StudyError
from hubbub.core.privacy import accountant, arguments, dominating_pairs, questions
from hubbub.core.privacy.bound import Bound
from hubbub.core.privacy.events import Event, JointBatches, ProjectedStep


def composed_epsilon(
    steps: Sequence[Event], *, delta: float, relation: str = "add-remove"
) -> Bound:
    """Short for `hubbub.epsilon(events=steps, ...)`.

    Args:
        steps: the events, in any order.
        delta: probability, in [1e-15, 1).
        relation: "add-remove" or "substitute", for all of them.

    Returns:
        `Bound(lower, upper)`, without unit.

    Raises:
        StudyError: as `hubbub.epsilon`.

    Source: docs/privacy.md P1, P2, P11-P13.

    >>> from hubbub import Step
    >>> training = Step(noise_multiplier=20.0, count=100, sampling="full-batch")
    >>> evaluation = Step(noise_multiplier=10.0, sampling="full-batch")
    >>> round(composed_epsilon([training, evaluation], delta=1e-5).upper, 3)
    2.037
    """
    return questions.epsilon(events=steps, delta=delta, relation=relation)


def malicious_epsilon(
    *,
    records: int,
    batch: int,
    malicious: int,
    noise_multiplier: float,
    steps: int,
    delta: float,
    slack: float = 0.0,
) -> Bound:
    """Short for `hubbub.epsilon(events=[JointBatches(...)], ...)`.

    With a `slack` it is the paper's way: the quantile that the number of honest records exceeds
    with that probability, which is paid out of delta in every step. It is never better.

    Args:
        records, batch, malicious, noise_multiplier: as in `hubbub.JointBatches`.
        steps: number of steps, 1 to 10,000,000.
        delta: probability, in [1e-15, 1).
        slack: probability, from 0 to below delta / steps; 0 for the exact mixture.

    Returns:
        `Bound(lower, upper)`, without unit; with a slack as far apart as it costs.

    Raises:
        StudyError: an argument is out of range, slack * steps leaves nothing of delta, or the
            bounds are too far apart.

    Source: docs/privacy.md P10.

    >>> joint = dict(records=100, batch=10, noise_multiplier=4.0, steps=2, delta=1e-5)
    >>> round(malicious_epsilon(malicious=50, **joint).upper, 2)
    0.52
    """
    event = JointBatches(
        records=records,
        batch=batch,
        malicious=malicious,
        noise_multiplier=noise_multiplier,
        count=arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS),
    )
    delta, slack = arguments.delta(delta), arguments.real("slack", slack)
    if not 0 <= slack < delta / steps:
        raise StudyError(
            f"expected slack from 0 to below delta / steps = {delta / steps:.3g}, got {slack:g}; "
            "it is paid in every step, so lower it"
        )
    if not slack:
        return questions.epsilon(events=[event], delta=delta, relation="substitute")
    # Counted above and left out below: the bounds are as far apart as it costs.
    quantile = dominating_pairs.release_at_quantile(
        records=event.records,
        batch=event.batch,
        malicious=event.malicious,
        noise_multiplier=event.noise_multiplier,
        count=event.count,
        slack=slack,
    )
    return accountant.Composition([quantile]).epsilon(delta)


def projected_epsilon(
    *,
    dimension: int,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    fresh: bool = True,
    kind: str = "gaussian",
) -> Bound:
    """Short for `hubbub.epsilon(events=[ProjectedStep(...)], ...)`.

    Args:
        dimension, noise_multiplier, sample_rate, kind: as in `hubbub.ProjectedStep`.
        steps: number of steps, 1 to 10,000,000.
        delta: probability, in [1e-15, 1).
        fresh: whether every step draws its own projection, after its model is fixed.

    Returns:
        `Bound(lower, upper)`, without unit.

    Raises:
        StudyError: an argument is out of range; or one projection is kept for all steps.

    Source: docs/privacy.md P8.

    >>> steps = dict(noise_multiplier=4.0, sample_rate=1.0, steps=10, delta=1e-5)
    >>> round(projected_epsilon(dimension=100, **steps).upper, 2)
    3.36
    """
    if fresh is not True:
        raise StudyError(
            "expected a fresh projection for every step, got fresh = False; later gradients depend "
            "on a projection that is kept, and may be lengthened 1 + sqrt(d / k) times by it"
        )
    event = ProjectedStep(
        dimension=dimension,
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        count=arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS),
        kind=kind,
    )
    return questions.epsilon(events=[event], delta=delta)
