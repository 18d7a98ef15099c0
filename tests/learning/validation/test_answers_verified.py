"""What a run says of its validation is compared with its sums, whatever else was played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learning.validation.made_up import study_of

import hubbub
from hubbub.core.planning.query import QueryState
from hubbub.core.verification.evidence.evidence_file import NOT_VERIFIABLE
from hubbub.core.verification.replay.course import Course
from hubbub.learning.queries.validation.validation_query import VALIDATED, VALIDATION_SUMS


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({}, NOT_VERIFIABLE), ({"flatters": 0.5}, "wrong: flatters is 0.5, None follows")],
)
def test_scores_that_do_not_follow_from_the_sums_are_wrong(
    tmp_path: Path, changed: dict[str, Any], verdict: str
) -> None:
    plan = hubbub.plan(study_of(tmp_path))
    planned = plan.planned("validation")
    assert planned is not None
    sums = np.ones((1, planned.query.numbers or 0))
    (tmp_path / VALIDATION_SUMS).write_text(json.dumps({"sums": sums.tolist()}))
    state = QueryState(parameters=np.zeros(0, np.float32), optimizer={"sums": sums})
    answer = planned.query.released(plan, state).values["validation"]  # type: ignore[attr-defined]
    (tmp_path / VALIDATED).write_text(json.dumps(answer | changed))
    course = Course(planned, None)  # type: ignore[arg-type]  # a query of steps
    *_, scores = planned.query.replay_findings(tmp_path, plan, course, frozenset())  # type: ignore[attr-defined]
    assert f"{VALIDATED} says what the sums say" in scores.claim
    assert scores.verdict.startswith(verdict)


def test_the_mean_of_four_sums_has_half_the_noise_of_one(tmp_path: Path) -> None:
    plan = hubbub.plan(study_of(tmp_path))
    planned = plan.planned("validation")
    assert planned is not None
    errors = []
    for made in (1, 4):
        sums = np.ones((made, planned.query.numbers or 0))
        state = QueryState(parameters=np.zeros(0, np.float32), optimizer={"sums": sums})
        answer = planned.query.released(plan, state).values["validation"]  # type: ignore[attr-defined]
        errors.append(answer["all"]["count_error"])
    assert errors[1] == pytest.approx(errors[0] / 2)
