"""The accountant's public questions about gradients that are projected (docs/privacy.md P8)."""

from __future__ import annotations

from hubbub.errors import StudyError
from hubbub.privacy import accountant, arguments, dominating_pairs, projected_step
from hubbub.privacy.bound import Bound, told


def projection_bound(*, dimension: int, delta: float, kind: str = "gaussian") -> float:
    """The factor C~ / C by which a random projection to `dimension` may lengthen a vector.

    The norm exceeds the returned factor times the original with probability at most `delta`, for
    one projection; over S steps with fresh projections S * delta is paid.

    Args:
        dimension: k, coordinates after projecting, from 1 to 2^40.
        delta: probability, in (0, 1).
        kind: "gaussian" for entries N(0, 1/k), "sign" for entries +-1/sqrt(k).

    Returns:
        A ratio of two norms, above 1; no unit.

    Raises:
        StudyError: an argument is out of range.

    Source: docs/privacy.md P8.

    >>> round(projection_bound(dimension=100, delta=1e-6), 3)
    1.35
    >>> round(projection_bound(dimension=100, delta=1e-6, kind="sign"), 3)
    1.392
    """
    dimension = arguments.whole("dimension", dimension, least=1, most=arguments.MOST_DIMENSION)
    number = arguments.real("delta", delta)
    if not 0 < number < 1:
        raise StudyError(f"expected delta between 0 and 1, got {number:g}; pass a probability")
    arguments.choice("kind", kind, projected_step.PROJECTIONS)
    return projected_step.projection_factor(dimension, number, kind)


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
    """Epsilon of Poisson DP-SGD (add-remove) that releases a fresh random projection per step.

    The mixture over the public projection's norm: no delta is spent on long projections. It is
    exact for "gaussian". For "sign" a mixture is taken that is longer than any that can occur:
    `upper` holds as ever, and `lower` is that of the longer mixture, no limit to what the mechanism
    may be worth.

    Args:
        dimension: k, coordinates sent per step, from 2 to 2^40.
        noise_multiplier: sigma / C, with C the clipping norm *before* projecting; no unit.
        sample_rate: probability that a record is in a batch, from 1e-9 to 1.
        steps: number of steps, 1 to 10,000,000.
        delta: probability, in [1e-15, 1).
        fresh: whether every step draws its own projection, after its model is fixed.
        kind: "gaussian" for entries N(0, 1/k), "sign" for entries +-1/sqrt(k).

    Returns:
        `Bound(lower, upper)`, without unit.

    Raises:
        StudyError: an argument is out of range; or one projection is kept for all steps.

    Source: docs/privacy.md P8.

    >>> from hubbub.privacy import epsilon
    >>> steps = dict(noise_multiplier=4.0, sample_rate=1.0, steps=10, delta=1e-5)
    >>> round(projected_epsilon(dimension=100, **steps).upper, 2)
    3.36
    >>> round(epsilon(**steps).upper, 2)
    3.34
    """
    arguments.choice("kind", kind, projected_step.PROJECTIONS)
    if fresh is not True:
        raise StudyError(
            "expected a fresh projection for every step, got fresh = False; later gradients depend "
            "on a projection that is kept, and may be lengthened 1 + sqrt(d / k) times by it"
        )
    dimension = arguments.whole("dimension", dimension, least=2, most=arguments.MOST_DIMENSION)
    count = arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS)
    step = dominating_pairs.Step(
        noise_multiplier=noise_multiplier, sample_rate=sample_rate, count=count
    )
    if kind == "sign":
        one = projected_step.release_by_signs(step, "add-remove", dimension=dimension)
    else:
        one = projected_step.release_projected(
            dimension=dimension,
            sample_rate=step.sample_rate,
            noise_multiplier=step.noise_multiplier,
            count=step.count,
        )
    return told(accountant.Composition([one]).epsilon(delta))
