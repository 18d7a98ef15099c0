"""What a promise leaves to noisy sums over all records, whichever of them are asked for later.

Theory of operation (docs/privacy.md P22). Sums over all records are Gaussian steps, and the square
of a Gaussian step's shift is all that it uses up, however it was chosen: (epsilon, delta) is
changed into one shift at the beginning, and queries take from its square. So k equal queries have
noise that grows with the root of k, where epsilons that add up have noise that grows with k. This
file does not know what is asked, nor where rows are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from hubbub.core.errors import StudyError
from hubbub.core.ledger.row_cost import cost_of, unit_of
from hubbub.core.ledger.tally import Tally
from hubbub.core.planning.plan_values import Plan
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.arguments import LEAST_EPSILON, MOST_EPSILON
from hubbub.core.privacy.certificate import Certificate
from hubbub.core.privacy.dominating_pairs import Release, Step, release
from hubbub.core.privacy.remaining_budget import kept_for_certificates

_CLOSE = 1e-6  # of the square of a shift
_SAFE = 1 - 1e-9  # for the round-off of an epsilon that is asked for
_LEAST_SHIFT, _MOST_SHIFT = 1e-6, 1e3


@dataclass(frozen=True, kw_only=True)
class SumsBudget:
    """An (epsilon, delta) for queries that are chosen one after the other.

    Rows of sampled or projected steps are composed as if they had been fixed beforehand (P15).

    Args:
        epsilon: for everything together; no unit.
        delta: the same, a probability.
        relation: of neighbouring data sets.
    """

    epsilon: float
    delta: float
    relation: str

    def allows(self, tally: Tally, plan: Plan) -> bool:
        """Whether the promise holds for what was charged, and all that a plan will charge.

        A first query may have all of epsilon; nothing follows it then.
        """
        after = tally.after(plan)
        if self._holds(self._costs(after), self._kept) and self._are_kept(after.certificate):
            return True
        return not len(tally) and self._holds(self._costs(after), after.certificate)

    def left(self, tally: Tally, queries: int = 1) -> float:
        """The most epsilon that each of so many further queries may have; 0 if none is left."""
        if not len(tally) and queries == 1:
            return self.epsilon
        most = self._largest_shift(tally)
        if most is None:
            return 0.0
        alone = Composition([_gaussian(most / sqrt(queries))]).epsilon(self.delta).lower * _SAFE
        return alone if alone >= LEAST_EPSILON else 0.0

    def share_left(self, tally: Tally) -> float:
        """What one more query may have of what all may, as a share of squared shifts.

        These add up where epsilons do not: the other share is spent. 0 once none is left.
        """
        whole = self._largest_shift(Tally())
        most = self._largest_shift(tally) if whole and self.left(tally) else None
        return min((most / whole) ** 2, 1.0) if most and whole else 0.0

    def _largest_shift(self, tally: Tally) -> float | None:
        """Of a Gaussian step beside what was charged; None if there is room for hardly any."""
        before = self._costs(tally)

        def fits(shift: float) -> bool:
            return self._holds([*before, _gaussian(shift)], self._kept)

        if not self._are_kept(tally.certificate) or not fits(_LEAST_SHIFT):
            return None
        low, high = _LEAST_SHIFT**2, _MOST_SHIFT**2
        while high - low > _CLOSE * high:
            middle = sqrt(low * high) if high > 4 * low else (low + high) / 2
            low, high = (middle, high) if fits(sqrt(middle)) else (low, middle)
        return sqrt(low)

    def _costs(self, tally: Tally) -> list[Release]:
        """What was charged, as the accountant sees it."""
        counts = tally.counts()
        unit = unit_of(kind for kind, _ in counts)
        each = (cost_of(kind, count, self.relation, unit) for kind, count in counts)
        return [cost for costs in each for cost in costs]

    def _holds(self, costs: Sequence[Release], certificate: Certificate) -> bool:
        """Whether these releases, and what a certificate adds, are within the promise."""
        left = certificate.ideal_delta(self.delta, self.epsilon)
        if left <= 0:
            return False
        try:
            spent = Composition(costs).epsilon(left, most=MOST_EPSILON).upper
        except StudyError:  # it is beyond
            return False
        return spent + certificate.epsilon <= self.epsilon

    @property
    def _kept(self) -> Certificate:
        """What certificates of all queries may come to."""
        return kept_for_certificates(self.epsilon, self.delta)

    def _are_kept(self, certificate: Certificate) -> bool:
        """Whether certificates are within that."""
        return certificate.is_within(self._kept, self.epsilon)


def _gaussian(shift: float) -> Release:
    """A step that moves the mean by so many standard deviations."""
    return release(Step(noise_multiplier=1 / shift, sampling="full-batch"), "add-remove")
