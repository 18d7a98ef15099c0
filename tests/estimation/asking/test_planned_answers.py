"""What a plan says of each statistic: its part of the budget, and the least epsilon it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.estimation.asking.made_up import KINDS, study, table_of_study

import hubbub
from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.desk.cli.main import main
from hubbub.estimation.queries.statistics_query import (
    expected_answers,
    planned_answers,
)

HERE = Path()
ASKED = {
    "table": KINDS["table"],
    "curve": KINDS["survival"],
    "effects": KINDS["cox"],
}


def planned(epsilon: float, **more: Any) -> hubbub.Plan:
    table = table_of_study(HERE, **ASKED)
    table["privacy"] |= {"epsilon": epsilon, **more}
    return hubbub.plan(Study.from_table(table))


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-remove", "substitute"])
@pytest.mark.parametrize("name", ASKED)
def test_the_least_epsilon_is_where_a_statistic_is_answered(name: str, relation: str) -> None:
    """To two digits, rounded up; a twentieth below it is not."""
    least = planned_answers(planned(1.0, relation=relation))[name].least_epsilon
    assert least is not None
    assert expected_answers(planned(least, relation=relation))[name].answered
    assert not expected_answers(planned(0.88 * least, relation=relation))[name].answered
    assert planned_answers(planned(4.0, relation=relation))[name].least_epsilon == pytest.approx(
        least, rel=0.11
    )


def test_parts_of_the_budget_are_the_squares_of_what_a_record_moves() -> None:
    made = planned(1.0)
    stacked = made.main.query.layout.stacked
    found = [one.part for one in planned_answers(made).values()]
    assert sum(found) == pytest.approx(1.0)
    squares = [
        (one.sensitivity * scale) ** 2
        for one, scale in zip(stacked.statistics, stacked.scales, strict=True)
    ]
    assert found == pytest.approx(squares)


def test_what_no_epsilon_answers_has_none() -> None:
    table = table_of_study(HERE, **ASKED)
    table["data"]["records"] = 12
    found = planned_answers(hubbub.plan(Study.from_table(table)))
    assert found["effects"].least_epsilon is None
    del table["data"]["records"]
    unknown = planned_answers(hubbub.plan(Study.from_table(table)))["table"]
    assert (unknown.expected, unknown.least_epsilon) == (None, None)
    assert unknown.part > 0


@pytest.mark.slow
def test_what_is_refused_says_from_which_epsilon_it_is_answered() -> None:
    made = planned(0.05)
    least = planned_answers(made)["effects"].least_epsilon
    with pytest.raises(StudyError, match=f"effects: .* from epsilon {least:g} on"):
        made.main.query.check_expected(made)


@pytest.mark.slow
def test_plan_shows_parts_and_least_epsilons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(study(tmp_path, **ASKED).as_toml())
    assert main(["plan", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["statistics"]
    assert set(said["table"]) == {
        *("errors", "sentence", "answered", "possible", "part", "least_epsilon"),
    }
    assert main(["plan", str(path)]) == 0
    assert "least" in capsys.readouterr().out
