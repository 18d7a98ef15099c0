"""A claim of another library about what ran, beside what is certified of it, and the verdict.

A claim is an epsilon that somebody was told. What ran is a mechanism whose epsilon is known from
below and from above (`hubbub.epsilon`), or whose epsilon was seen to be at least so much by an
attack. This file knows no library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from benchmarks.conformance.accountant_brackets import judged
from hubbub.core.privacy.canary_guesses import lower_bound
from hubbub.core.privacy.composition import Bound
from hubbub.learning.audit.rules import Trials, chosen_rule, rates_of


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What was claimed, and of what.

    Args:
        library: with its version.
        case: what ran, in a few words.
        claimed: the epsilon that was told.
        certified: of what ran; the upper end is infinite where an attack gives the lower.
        known: where somebody else has told of it.
    """

    library: str
    case: str
    claimed: float
    certified: Bound
    known: str = ""

    @property
    def verdict(self) -> str:
        """How the claim lies to the bracket; only an understated one is unsafe."""
        return judged(self.claimed, self.certified.lower, self.certified.upper)

    @property
    def row(self) -> tuple[str, ...]:
        """The claim as cells."""
        bound = self.certified
        upper = "–" if bound.upper == inf else f"{bound.upper:.4f}"
        return (
            *(self.library, self.case, f"{self.claimed:.4f}"),
            *(f"{bound.lower:.4f}", upper, self.verdict, self.known),
        )


def attacked(
    present: Sequence[float], absent: Sequence[float], *, delta: float, confidence: float = 0.99
) -> Bound:
    """At least how much epsilon runs show in which one record was present, and was not.

    The rule is chosen on half of the runs and judged on the other, so that at most 1 in 100 sound
    mechanisms is taken for an unsound one.

    Args:
        present, absent: one score of each run, as many of either.
        delta: probability.
        confidence: of the bound.
    """
    scores = np.array([*present, *absent])
    coins = np.repeat([True, False], [len(present), len(absent)])
    first = np.arange(scores.size) % 2 == 0
    rule = chosen_rule(Trials(scores=scores[first], coins=coins[first]), delta, confidence)
    seen = rates_of(rule, Trials(scores=scores[~first], coins=coins[~first]))
    return Bound(lower=lower_bound(seen, delta, confidence), upper=inf)
