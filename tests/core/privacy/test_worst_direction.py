"""Of removal and addition the worse counts, also where one alone was composed closely (P2)."""

from __future__ import annotations

import pytest

from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.composition import GAP, Bound
from hubbub.core.privacy.dominating_pairs import Step, release

DELTA = 1e-5


def composed(noise: float = 1.0, rate: float = 0.05, count: int = 20) -> Composition:
    step = Step(noise_multiplier=noise, sample_rate=rate, count=count)
    return Composition([release(step, "add-remove")])


class Direction:
    """One whose answer is known; it is asked only if the other does not make it needless."""

    def __init__(self, lower: float, upper: float, below: bool = False) -> None:
        self.bound, self.below, self.asked = Bound(lower=lower, upper=upper), below, []

    def epsilon(self, delta: float, gap: float, enough: float) -> Bound:
        self.asked.append(enough)
        return self.bound

    def guess(self, delta: float) -> float:
        return 1.0

    def stays_below(self, epsilon: float, delta: float, first: float) -> bool:
        assert (epsilon, delta) == (1.0, DELTA)  # what the first surely has
        return self.below


@pytest.mark.parametrize(
    ("other", "worst"),
    [
        (Direction(0.9, 1.3), (1.0, 1.3)),  # its upper end is the larger one
        (Direction(1.05, 1.08), (1.05, 1.1)),
        (Direction(0.5, 0.6), (1.0, 1.1)),
        (Direction(2.0, 2.2), (2.0, 2.2)),
        (Direction(2.0, 2.2, below=True), (1.0, 1.1)),  # it was shown to be less
    ],
)
def test_p2_either_end_of_a_bound_is_that_of_the_worse_direction(other, worst):
    both = composed()
    both._ways = [Direction(1.0, 1.1), other]
    bound = both.worst_epsilon(DELTA, GAP)
    assert (bound.lower, bound.upper) == worst
    assert other.asked == ([] if other.below else [1.0])


@pytest.mark.parametrize(
    ("noise", "rate", "count"), [(0.8, 0.05, 20), (2.0, 0.5, 3), (0.4, 0.01, 5)]
)
def test_p2_a_direction_is_passed_over_only_where_its_own_epsilon_is_surely_less(
    noise, rate, count
):
    both = composed(noise, rate, count)
    for way in both._ways:
        own = way.epsilon(DELTA, GAP, 0.0)
        far = 100 * own.upper  # as if the guess in the other direction left all the room
        assert not way.stays_below(0.99 * own.lower, DELTA, far)
        assert way.stays_below(1.05 * own.upper, DELTA, far)
        assert both.worst_epsilon(DELTA, GAP).upper >= own.lower
