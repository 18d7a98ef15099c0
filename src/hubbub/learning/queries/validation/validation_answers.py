"""What a plan's validation will say before it is asked, and what its sums say afterwards.

Both know the plan's noise, the most that a round may have whoever is missing from it. The answer of
a run is in its folder:

    validation-sums.json    the noisy sums
    validation.json         the answer, which follows from the sums and the study alone
"""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any

from hubbub.core.disk import write_text
from hubbub.core.planning.plan_values import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import Array
from hubbub.estimation.queries.promise_of_answers import promise_of
from hubbub.learning.queries.validation.validation_query import VALIDATED, ValidationQuery

_LOST = (
    "its sum was charged, and lost in an interruption; with validation.sums = 2 another would be "
    "left"
)
_NOISE = "too few records for the noise: give it more of epsilon, or records"


def planned_validation(plan: Plan) -> PlannedQuery[ValidationQuery] | None:
    """The validation among what a plan asks; None if it asks for none."""
    for planned in plan.queries:
        if isinstance(planned.query, ValidationQuery):
            return planned  # type: ignore[return-value]  # narrowed by its query
    return None


def validation_of(plan: Plan, sums: Array) -> dict[str, Any]:
    """What the noisy sums of a plan's validation say, as plain values.

    Args:
        plan: that asks for one.
        sums: (made, numbers).

    Returns:
        "records" ("held-back" or "training") and how many there were with noise; "flatters", by how
        much the telling score may be too good; "all", the scores of all records; "groups", those of
        each group; "refusal", why there are none, in words, or empty.
    """
    planned = planned_validation(plan)
    assert planned is not None, "a validation is asked for"  # noqa: S101
    whose, told = planned.query.whose, _tables(planned, sums) if len(sums) else []
    first = told[0] if told else None
    refusal = _LOST if first is None else "" if first["scores"] else _NOISE
    whole = {
        **promise_of(plan, planned),
        "records": "held-back" if whose.held_back else "training",
        "flatters": None if whose.held_back else whose.flatters,
        "telling": whose.score,
        "all": first,
        "groups": told[1:],
        "refusal": refusal,
    }
    plain: dict[str, Any] = json.loads(json.dumps(whole))
    return plain


def _tables(planned: PlannedQuery[ValidationQuery], sums: Array) -> list[dict[str, Any]]:
    """What each table says, that of all records first."""
    layout, sigma = planned.query.layout, planned.total_sigma / sqrt(len(sums))
    return [
        {
            "by": block.by,
            "group": group,
            "count": table.records,
            "count_error": table.records_error,
            **layout.kind.scored(table).to_dict(),
        }
        for block, group, table in layout.tables(sums.mean(axis=0), sigma)
    ]


def foreseen_validation(plan: Plan) -> dict[str, Any] | None:
    """What a plan says of its validation, as plain values; None if it asks for none.

    Returns:
        "records", that are compared with the model; "score", the telling one; its "errors" to
        expect on held-back records and on those of the training, and by how much the latter may
        "flatter". Errors are None where the number of records is not public. "rate", the share of
        the second class that they are for; None of other targets.
    """
    planned = planned_validation(plan)
    if planned is None:
        return None
    query, records = planned.query, plan.study.data.records
    whose, layout = query.whose, query.layout
    sigma = planned.total_sigma / sqrt(query.asked.sums)
    shares = {"held-back": query.asked.holdout, "training": 1.0}
    errors = {
        name: layout.foreseen(share * records, sigma)[1] if records else None
        for name, share in shares.items()
    }
    return {
        "records": "held-back" if whose.held_back else "training",
        "score": whose.score,
        "errors": {k: v if v is None or v < 1.0 else None for k, v in errors.items()},
        "flatters": whose.flatters,
        "rate": getattr(layout.kind, "rate", None),
        "epsilon_alone": planned.epsilon,
    }


def write_validation(folder: Path, answer: dict[str, Any]) -> None:
    """Put what a validation says into a folder."""
    write_text(folder / VALIDATED, json.dumps(answer, indent=1))
