"""A number that is known from two sides, and how far apart they may be."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hubbub.core.errors import StudyError

GAP = 3e-4  # relative distance of the two sides of a bound
ROUGH = 0.01  # of calibrations that are still far from their goal
WIDEST = 1e-3  # a bracket of epsilon that is told, where epsilon is at most 1; else relatively


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A number known to lie in [lower, upper]; `upper` is the one to promise.

    Args:
        lower: nothing below it can be true of the same dominating pairs; an epsilon (no unit) or a
            delta (a probability), as was asked for.
        upper: certified; in the same unit.

    >>> bound = Bound(lower=0.99, upper=1.0)
    >>> bound.upper - bound.lower < 0.02
    True
    """

    lower: float
    upper: float


def is_narrow(bound: Bound, share: float = 1.0) -> bool:
    """Whether a bracket of epsilon is as narrow as is promised, or that share of it."""
    return bound.upper - bound.lower <= share * WIDEST * max(1.0, bound.lower)


def told(bound: Bound) -> Bound:
    """A bracket of epsilon that may be told; refused where it is wider than is promised."""
    if bound.upper == inf:
        raise StudyError(
            "expected an epsilon of losses that a float can hold, got larger ones with more than "
            "delta; add noise: so little hides nothing"
        )
    if not is_narrow(bound):
        raise StudyError(
            f"expected epsilon with bounds within {WIDEST:g} of each other, got bounds of "
            f"{bound.lower:.4g} and {bound.upper:.4g}; add noise, take fewer steps or a "
            "larger delta"
        )
    return bound
