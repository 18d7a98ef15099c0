"""Statistics: tables, curves, tests and regressions, read off a few sums over all records (P23)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.planning.accounts import account_of, epsilon_of, releases
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, QueryWarnings, Released
from hubbub.core.study.data import Data
from hubbub.core.study.parties import Privacy
from hubbub.core.study.study import Study
from hubbub.estimation.kinds import AskedStatistics
from hubbub.estimation.queries.statistics_ask import StatisticsAsk
from hubbub.estimation.queries.sum_layout import StatisticLayout, layout_of
from hubbub.estimation.queries.sums_query import SumsQuery, promise_of, tables_of
from hubbub.estimation.statistic import Answer, Expectation

STATISTICS = "statistics"
SUMS, ANSWERS = StatisticsAsk.files


@dataclass(frozen=True)
class StatisticsQuery(SumsQuery):
    """All statistics of a study: one release together.

    Args:
        asked: the questions.
        data, privacy: of the study.
    """

    asked: AskedStatistics
    data: Data
    privacy: Privacy

    @cached_property
    def layout(self) -> StatisticLayout:
        """All questions as one vector."""
        return layout_of(self.asked, self.privacy.relation)

    @property
    def purpose(self) -> str:
        """What its sums are for."""
        return STATISTICS

    @property
    def epsilon(self) -> float | None:
        """Its part beside a training; None where nothing else is asked."""
        return self.asked.epsilon or None

    @property
    def kept_in(self) -> str:
        """The file of a run's folder that keeps the sums."""
        return SUMS

    @property
    def answered_in(self) -> str:
        """The file that says what they say."""
        return ANSWERS

    def released(self, plan: Plan, parameters: Parameters) -> Released:
        """The answers, the whole as JSON, and their tables for spreadsheets."""
        return released(plan, parameters)

    def warnings(self, study: Study) -> QueryWarnings:
        """Of sums that cannot be foreseen, or lost."""
        lost = self.asked.rounds == 1 and study.parties.dropouts and not study.parties.compute_nodes
        return QueryWarnings(
            records_unknown=(
                "data.records is not stated: what the statistics will say cannot be foreseen",
            ),
            sums=(
                "dropouts without compute nodes: a silo that drops out of the statistics' only sum "
                "loses it; ask for statistics.sums = 2, which costs no accuracy, or use compute "
                "nodes",
            )
            if lost
            else (),
        )


def statistics_of(study: Study) -> StatisticsQuery:
    """The statistics of a study.

    Raises:
        StudyError: it asks for none.
    """
    if study.statistics is None:
        raise StudyError("expected a study with [statistics], got one without; ask for some")
    return StatisticsQuery(study.statistics, study.data, study.privacy)


# What the statistics of a plan will say before they are asked, and what their sums say afterwards.
#
# Both know the plan's noise, the most that a round may have whoever is missing from it: there may
# be
# a little less, so intervals are never too narrow for it. The answers of a run are in its folder:
#
#     sums.json           the noisy sums
#     statistics.json     the answers, which follow from the sums and the study alone


def planned_statistics(plan: Plan) -> PlannedQuery[StatisticsQuery]:
    """The statistics among what a plan asks.

    Raises:
        StudyError: it asks for none.
    """
    for planned in plan.queries:
        if isinstance(planned.query, StatisticsQuery):
            return planned  # type: ignore[return-value]  # narrowed by its query
    raise StudyError("expected a study with [statistics], got one without; ask for some")


def expected_answers(plan: Plan) -> dict[str, Expectation]:
    """What may be said of each statistic; nothing where the number of records is not public."""
    study = plan.study
    if study.statistics is None or not study.data.records:
        return {}
    planned = planned_statistics(plan)
    return planned.query.layout.expected(study.data.records, planned.total_sigma)


def answers_of(plan: Plan, kept: Parameters) -> Mapping[str, Answer]:
    """What the sums of a plan's statistics say, by name."""
    planned = planned_statistics(plan)
    return planned.query.layout.answers(kept, planned.total_sigma)


def answers_to_dict(plan: Plan, kept: Parameters) -> dict[str, Any]:
    """The same and under which promise, as plain values."""
    whole = {
        **promise_of(plan, planned_statistics(plan)),
        "statistics": {name: one.to_dict() for name, one in answers_of(plan, kept).items()},
    }
    plain: dict[str, Any] = json.loads(json.dumps(whole))
    return plain


def released(plan: Plan, kept: Parameters) -> Released:
    """All that the sums give people."""
    whole = answers_to_dict(plan, kept)
    return Released(
        answers=answers_of(plan, kept),
        files={ANSWERS: json.dumps(whole, indent=1)},
        copies=tables_of(whole["statistics"]),
    )


# What a plan says of each statistic: what is expected, its part of the budget, its least epsilon.
#
# All of it follows from the study. This file knows noise and no records.

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
