"""What a run says of its validation is compared with its sums, whatever else was played."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learning.validation.made_up import study_of

import hubbub
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.planned_query import PlannedQuery
from hubbub.core.planning.query import QueryState
from hubbub.core.verification.evidence.evidence_file import NOT_VERIFIABLE
from hubbub.core.verification.replay.course import Course
from hubbub.learning.queries.validation.validation_query import VALIDATED, VALIDATION_SUMS


@cache
def planned() -> tuple[Plan, PlannedQuery]:
    """A plan, and what is asked of the model at its end."""
    plan = hubbub.plan(study_of(Path("nowhere")))
    query = plan.planned("validation")
    assert query is not None
    return plan, query


@cache
def answered(sums: int) -> dict[str, Any]:
    """What is released of so many sums, which are all of ones."""
    plan, asked = planned()
    made = np.ones((sums, asked.query.numbers or 0))
    state = QueryState(parameters=np.zeros(0, np.float32), optimizer={"sums": made})
    answer: dict[str, Any] = asked.query.released(plan, state).values["validation"]  # type: ignore[attr-defined]
    return answer


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({}, NOT_VERIFIABLE), ({"flatters": 0.5}, "wrong: flatters is 0.5, None follows")],
)
def test_scores_that_do_not_follow_from_the_sums_are_wrong(
    tmp_path: Path, changed: dict[str, Any], verdict: str
) -> None:
    plan, asked = planned()
    sums = np.ones((1, asked.query.numbers or 0))
    (tmp_path / VALIDATION_SUMS).write_text(json.dumps({"sums": sums.tolist()}))
    (tmp_path / VALIDATED).write_text(json.dumps(answered(1) | changed))
    course = Course(asked, None)  # type: ignore[arg-type]  # a query of steps
    *_, scores = asked.query.replay_findings(tmp_path, plan, course, frozenset())  # type: ignore[attr-defined]
    assert f"{VALIDATED} says what the sums say" in scores.claim
    assert scores.verdict.startswith(verdict)


def test_the_mean_of_four_sums_has_half_the_noise_of_one() -> None:
    errors = [answered(made)["all"]["count_error"] for made in (1, 4)]
    assert errors[1] == pytest.approx(errors[0] / 2)
