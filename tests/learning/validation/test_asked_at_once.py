"""What a command needs is refused before records are read, and a private test file is warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.learning.validation.made_up import study_of

import hubbub
from hubbub.core.errors import StudyError, UserError
from hubbub.desk.report.comparison import compare
from hubbub.learning.runs.run_study import run


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object, **__: object) -> Any:
        raise AssertionError("records were read first")

    for module in ("desk.report.comparison", "learning.runs.run_study"):
        monkeypatch.setattr(f"hubbub.{module}.prepare", read)


def test_a_metric_that_nobody_knows_is_refused_at_once(tmp_path: Path) -> None:
    study = study_of(tmp_path, data={"test": "test.csv"})
    for unknown in ("aucc", "held_back_accuracy"):
        with pytest.raises(StudyError, match=f"'{unknown}'; choose"):
            compare(study, repeats=1, metric=unknown)


def test_a_folder_that_holds_something_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="with files in it"):
        run(study_of(tmp_path), tmp_path / "run")
    assert not (tmp_path / "ledgers").exists()


@pytest.mark.slow
def test_a_plan_warns_of_a_test_file_that_may_be_of_patients(tmp_path: Path) -> None:
    def said(**data: Any) -> list[str]:
        plan = hubbub.plan(study_of(tmp_path, data=data))
        return [one for one in plan.warnings if "data.test" in one]

    assert said() == []
    (words,) = said(test="held_out.csv")
    assert "must be public" in words
    assert "[validation]" in words
