"""Under which promise a query's answers were made: the head of every file that holds some."""

from __future__ import annotations

from typing import Any

from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Query


def promise_of(plan: Plan, planned: PlannedQuery[Query]) -> dict[str, Any]:
    """As plain values.

    Args:
        plan: of the study.
        planned: the query, one of its queries.

    Returns:
        The study and its id, the query's own epsilon, and delta, relation, adversary and unit of
        the plan.
    """
    asked = plan.study.privacy
    return {
        "study": plan.study.name,
        "study_id": plan.study.id.hex(),
        "epsilon": planned.epsilon,
        "delta": asked.delta,
        "relation": asked.relation,
        "adversary": plan.stated.adversary,
        "unit": plan.study.data.unit,
    }
