"""What the statistics of a plan will say before they are asked, and what their sums say afterwards.

Both know the plan's noise, the most that a round may have whoever is missing from it: there may be
a little less, so intervals are never too narrow for it. The answers of a run are in its folder:

    sums.json           the noisy sums
    statistics.json     the answers, which follow from the sums and the study alone
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hubbub.core.errors import StudyError
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Parameters, Released
from hubbub.estimation.queries.answer_csv import tables_of
from hubbub.estimation.queries.promise_of_answers import promise_of
from hubbub.estimation.queries.statistics_query import ANSWERS, StatisticsQuery
from hubbub.estimation.statistic import Answer, Expectation


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
