"""By how much a projection may lengthen a gradient (docs/privacy.md P8)."""

from __future__ import annotations

from hubbub.core.errors import StudyError
from hubbub.core.privacy import arguments, projected_step


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
