"""What whoever approves a study is told of all that is approved under a ledger's cap."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import StudyError
from hubbub.core.ledger.entry import Cap, Entry
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import kind_of
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.study import Study
from hubbub.desk.cli import consortium_commands
from hubbub.desk.cli.ledger_books import LedgerBooks, after, spending

TABLE = {
    "study": {"name": "rows"},
    "parties": {"names": ["a", "b", "c"], "colluders": 1},
    "data": {
        "files": "{name}.csv",
        "columns": {"age": {"low": 20.0, "high": 90.0}},
        "records": 4000,
    },
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
    "statistics": {"ages": {"kind": "table", "columns": ["age"]}},
}
ROWS = Study.from_table(TABLE)
DATA = {**TABLE["data"], "patient": "pid", "most_per_patient": 3}
PEOPLE = Study.from_table({**TABLE, "study": {"name": "people"}, "data": DATA})
STAY = {"kind": "numeric", "column": "stay", "low": 0, "high": 10}
OTHER_ROWS = Study.from_table({**TABLE, "study": {"name": "other rows"}})


@pytest.mark.parametrize("studies", ["fixed", "adaptive"])
def test_p21_patients_beside_records_are_told_as_what_no_cap_makes_room_for(
    tmp_path: Path, studies: str
) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.set_cap(Cap(epsilon=50.0, delta=1e-5, relation="add-remove", studies=studies))
    for one, other in ((ROWS, PEOPLE), (PEOPLE, ROWS)):
        said = after(path, plan(one), [plan(other)])
        assert "patients stand beside records in what is counted or approved here" in said
        assert "count one of them in a ledger of its own" in said
        assert spending(path, plan(one), [plan(other)]).words.startswith("patients beside records")
    assert "patients" not in after(path, plan(OTHER_ROWS), [plan(ROWS)])
    assert "patients" not in after(path, plan(PEOPLE))


def test_p21_a_plan_says_that_records_and_patients_do_not_add_up(tmp_path: Path) -> None:
    path, earlier = tmp_path / "ledger.sqlite", plan(ROWS).queries[0]
    with Ledger(path) as ledger:
        row = {"study": ROWS.id, "session": bytes(16), "round": 1, "attempt": 0}
        ledger.charge(Entry(**row, kind=kind_of(earlier)))
        ledger.set_cap(Cap(epsilon=50.0, delta=1e-5, relation="add-remove", studies="fixed"))
    assert "counts records and patients" in spending(path, plan(PEOPLE)).words
    assert "refused" not in spending(path, plan(OTHER_ROWS)).words


def test_an_approved_study_that_cannot_be_planned_here_hinders_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def planned(study: Study) -> Any:
        if study.id == PEOPLE.id:
            raise StudyError("expected the package that it needs, found none; install it")
        return plan(study)

    monkeypatch.setattr(consortium_commands, "plan", planned)
    folder: Any = SimpleNamespace(unfinished=lambda: [PEOPLE, ROWS, OTHER_ROWS])
    beside = consortium_commands.plans_beside(folder, ROWS)
    assert [one.study.name for one in beside] == ["other rows"]


def test_p24_a_study_with_code_of_its_own_counts_beside_others_and_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unrun.py").write_text("raise SystemExit('it was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    asked = {
        "study": {"name": "own code"},
        "data": {**TABLE["data"], "target": STAY},
        "model": {"kind": "python:unrun:net"},
        "training": {"steps": 10, "sample_rate": 0.1},
    }
    own = Study.from_table({k: v for k, v in (TABLE | asked).items() if k != "statistics"})
    folder: Any = SimpleNamespace(unfinished=lambda: [own, ROWS])
    (made,) = consortium_commands.plans_beside(folder, ROWS)
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        alone = LedgerBooks.of(ledger).after(plan(ROWS))
        cap = alone + 0.1
        ledger.set_cap(Cap(epsilon=cap, delta=1e-5, relation="add-remove", studies="adaptive"))
    assert "(own code), above the cap" in after(path, plan(ROWS), [made])
    assert "unrun" not in sys.modules
