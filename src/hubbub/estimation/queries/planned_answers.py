"""What a plan says of each statistic: what is expected, its part of the budget, its least epsilon.

All of it follows from the study. This file knows noise and no records.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.planning.accounts import account_of, epsilon_of, releases
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.estimation.queries.statistic_answers import expected_answers, planned_statistics
from hubbub.estimation.queries.statistics_query import StatisticsQuery
from hubbub.estimation.statistic import Expectation

_OCTAVES, _HALVINGS = 14, 12  # of noise that are searched, and how finely
# Noise multipliers below which epsilon is beyond 50, and above which it is next to none.
_LEAST_NOISE, _MOST_NOISE = 0.05, 1e5


@dataclass(frozen=True, kw_only=True)
class PlannedAnswer:
    """What is known of an answer before any record is touched.

    Args:
        expected: of it; None where the number of records is not public.
        part: of the statistics' budget, from 0 to 1; all questions' add up to 1.
        least_epsilon: of the statistics, with which it is answered beside the others; None where
            none is known.
    """

    expected: Expectation | None
    part: float
    least_epsilon: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told = {} if self.expected is None else asdict(self.expected)
        if self.expected is not None:
            told["errors"] = {
                name: error if math.isfinite(error) else None
                for name, error in self.expected.errors
            }
        return {**told, "part": self.part, "least_epsilon": self.least_epsilon}


def planned_answers(plan: Plan) -> dict[str, PlannedAnswer]:
    """What a plan says of each of its statistics, by name.

    Raises:
        StudyError: it asks for none.
    """
    planned, records = planned_statistics(plan), plan.study.data.records
    layout = planned.query.layout
    parts = dict(zip(layout.stacked.names, layout.stacked.parts, strict=True))
    if not records:
        return {
            name: PlannedAnswer(expected=None, part=part, least_epsilon=None)
            for name, part in parts.items()
        }
    return {
        name: PlannedAnswer(
            expected=layout.expected_of(name, records, planned.total_sigma),
            part=part,
            least_epsilon=_least_epsilon(planned, name, records),
        )
        for name, part in parts.items()
    }


def check_expected(plan: Plan) -> None:
    """Refuse statistics that would not stand out from the noise, before anything is spent.

    Raises:
        StudyError: naming them, and the least epsilon of each.
    """
    below = {name: one for name, one in expected_answers(plan).items() if not one.possible}
    if below:
        planned, records = planned_statistics(plan), plan.study.data.records
        least = {name: _least_epsilon(planned, name, records) for name in below}
        said = "; ".join(
            f"{name}: {one.sentence}"
            + (f", it is answered from epsilon {least[name]:g} on" if least[name] else "")
            for name, one in below.items()
        )
        raise StudyError(
            f"expected statistics that stand out from the noise, got {len(below)} that would not "
            f"({said}); leave them out, raise their weight or epsilon, or ask for fewer"
        )


def _least_epsilon(planned: PlannedQuery[StatisticsQuery], name: str, records: int) -> float | None:
    """The least epsilon at which a statistic is answered, rounded up; None past 50."""
    layout, sigma = planned.query.layout, planned.total_sigma

    def answered(octaves: float) -> bool:
        return layout.expected_of(name, records, 2.0**octaves * sigma).answered

    low, high = -float(_OCTAVES), float(_OCTAVES)  # the noise is 2 to this, times the plan's
    if not answered(low):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if answered(middle) else (low, middle)
    mechanism = planned.mechanism
    noise = 2.0**low * mechanism.noise_multiplier
    if noise < _LEAST_NOISE:
        return None
    charged = releases(account_of(mechanism), min(noise, _MOST_NOISE), mechanism.steps)
    bound = epsilon_of(charged, mechanism.delta)
    return None if bound is None else _rounded_up(bound.upper + planned.certificate.epsilon)


def _rounded_up(epsilon: float) -> float:
    """To two digits."""
    digit = 10.0 ** (math.floor(math.log10(epsilon)) - 1)
    return float(f"{math.ceil(epsilon / digit) * digit:.2g}")
