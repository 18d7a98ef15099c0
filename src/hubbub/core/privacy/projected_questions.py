"""A projected step as an event, and the questions about projections alone (docs/privacy.md P8)."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments, questions
from hubbub.core.privacy.composition import Bound
from hubbub.core.privacy.dominating_pairs import Release, Step
from hubbub.core.privacy.events import expect, release_of
from hubbub.core.privacy.projected_step import (
    PROJECTIONS,
    projection_factor,
    release_by_signs,
    release_projected,
)


@dataclass(frozen=True, kw_only=True)
class ProjectedStep:
    """Poisson batches whose sum is sent through a fresh public random projection.

    The mixture over the projection's norm: no delta is spent on long ones. It is exact for
    "gaussian"; "sign" is charged as a mixture that is longer than any that can occur. Its relation
    is "add-remove".

    Args:
        dimension: k, numbers sent per step, from 2 to 2^40.
        noise_multiplier: sigma / C, with C the clipping norm *before* projecting; no unit.
        sample_rate: probability that a record is in a batch, from 1e-9 to 1.
        count: number of such steps, 1 to 10,000,000.
        kind: "gaussian" for entries N(0, 1/k), "sign" for entries +-1/sqrt(k).

    Raises:
        StudyError: a value is out of its range.

    Source: docs/privacy.md P8.

    >>> ProjectedStep(dimension=100, noise_multiplier=4.0, count=10).kind
    'gaussian'
    """

    dimension: int
    noise_multiplier: float
    sample_rate: float = 1.0
    count: int = 1
    kind: str = "gaussian"

    def __post_init__(self) -> None:
        arguments.choice("kind", self.kind, PROJECTIONS)
        most = arguments.MOST_DIMENSION
        dimension = arguments.whole("dimension", self.dimension, least=2, most=most)
        step = self.step
        numbers = {
            "dimension": dimension,
            "noise_multiplier": step.noise_multiplier,
            "sample_rate": step.sample_rate,
            "count": step.count,
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)

    @property
    def step(self) -> Step:
        """The same without a projection."""
        return Step(
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            count=self.count,
        )


@release_of.register
def _(event: ProjectedStep, relation: str) -> Release:
    expect(relation, "add-remove", "a projected step", "another has no exact account here")
    if event.kind == "sign":  # P8 (7)
        return release_by_signs(event.step, relation, dimension=event.dimension)
    return release_projected(  # P8 (1)
        dimension=event.dimension,
        sample_rate=event.sample_rate,
        noise_multiplier=event.noise_multiplier,
        count=event.count,
    )


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
            "expected a fresh projection for every step, got fresh = False; with one that is kept, "
            "later gradients depend on it, and it can lengthen them 1 + sqrt(d / k) times"
        )
    event = ProjectedStep(
        dimension=dimension,
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        count=arguments.whole("steps", steps, least=1, most=arguments.MOST_STEPS),
        kind=kind,
    )
    return questions.epsilon(events=[event], delta=delta)


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
    arguments.choice("kind", kind, PROJECTIONS)
    return projection_factor(dimension, number, kind)
