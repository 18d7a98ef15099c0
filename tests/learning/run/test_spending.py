"""What a run says of all that its records have spent, and of promises that no longer hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hubbub import Study, run
from hubbub.core.errors import BudgetError, StudyError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.desk.cli.main import main
from hubbub.desk.report.promise import broken, spent_words
from hubbub.desk.report.report_of_run import write_report

TEXT = """
[study]
name = "hearts"
[parties]
silos = 4
colluders = 1
[data]
source = "hubbub.datasets:heart"
records = 740
[model]
kind = "logistic"
inputs = [26]
[training]
steps = 2
sample_rate = 0.5
[privacy]
epsilon = 1.0
delta = 1e-5
cap = 1.5
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Two runs of a study that proposes a cap, and the words of the third, which it refuses."""
    home = tmp_path_factory.mktemp("spending")
    study = Study.parse(TEXT)
    first, second = (run(study, home / name) for name in ("a", "b"))
    with pytest.raises(BudgetError) as refused:
        run(study, home / "c")
    return home, first, second, str(refused.value)


@pytest.mark.slow
def test_a_run_says_what_its_records_have_spent_in_all_and_which_charge_it_was(three):
    home, first, second, _ = three
    assert (first.spending.charge, second.spending.charge) == (1, 2)
    assert first.spending.before == 0.0
    assert first.spending.epsilon == pytest.approx(first.epsilon, rel=1e-3)
    assert second.spending.before == first.spending.epsilon
    with Ledger(home / "ledgers" / "silo-1.sqlite") as ledger:
        assert second.spending.epsilon == ledger.epsilon(delta=1e-5, relation="add-remove")
    assert "total spent: epsilon" in repr(second)
    assert json.loads((home / "b" / "spending.json").read_text()) == second.spending.to_dict()


@pytest.mark.slow
def test_the_study_proposes_a_cap_which_a_ledger_without_one_takes_and_keeps(three):
    home, first, _, refused = three
    assert first.spending.cap == 1.5
    assert "at most epsilon 1.5" in refused
    with Ledger(home / "ledgers" / "silo-1.sqlite") as ledger:
        assert ledger.cap.studies == "adaptive"
        assert ledger.cap.epsilon == 1.5
    more = Study.parse(TEXT.replace("cap = 1.5", "cap = 9"))
    with pytest.raises(BudgetError, match=r"epsilon 1\.5"):
        run(more, home / "d")


@pytest.mark.slow
def test_the_first_line_says_that_one_studys_epsilon_is_not_all_that_was_spent(three):
    home, _, second, _ = three
    first_line = repr(second).splitlines()[0]
    assert "is for this study alone: after 2 charges these records have spent" in first_line
    page = write_report(home / "b").read_text()
    assert "total ε spent by these records" in page
    assert page.index("which is what protects them now") < page.index("silos (places with records")
    assert "charge 2" in page
    assert "which is what protects them now" not in write_report(home / "a").read_text()


@pytest.mark.slow
def test_the_command_prints_it_and_puts_it_into_its_json(tmp_path, capsys):
    Path(tmp_path / "s.toml").write_text(TEXT)
    asked = ["run", str(tmp_path / "s.toml"), "--ledgers", str(tmp_path / "books"), "--out"]
    assert main([*asked, str(tmp_path / "a")]) == 0
    first = capsys.readouterr().out
    assert "this was charge 1; the cap is 1.5" in first
    assert main([*asked, str(tmp_path / "b"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["spending"]["charge"] == 2
    assert "is for this study alone" in found["warnings"][0]


def test_a_cap_below_the_studys_own_epsilon_is_refused_and_none_changes_no_id():
    with pytest.raises(StudyError, match=r"privacy\.cap"):
        Study.parse(TEXT.replace("cap = 1.5", "cap = 0.5"))
    without = Study.parse(TEXT.replace("cap = 1.5\n", ""))
    assert b'"cap"' not in without.canonical
    assert Study.parse(TEXT).id != without.id
    assert Study.parse(TEXT.replace("cap = 1.5", "cap = 0")).id == without.id


def plan_with(patient, stated=1.0):
    rows = [{"adversary": "aggregator", "epsilon": stated}]
    return {"epsilon": rows, "stated_adversary": "aggregator", "patient": patient}


def test_what_patients_are_not_promised_comes_first():
    whose = {"is_unit": False, "who": "a patient with up to 9 records"}
    assert "no guarantee for patients" in broken(plan_with({**whose, "epsilon": None}))[0]
    assert "epsilon is 9" in broken(plan_with({**whose, "epsilon": 9.0}))[0]
    assert broken(plan_with({**whose, "epsilon": 3.0})) == []
    assert broken(plan_with({**whose, "is_unit": True, "epsilon": None})) == []
    assert "no guarantee to anybody" in broken(plan_with(None, None))[0]


def test_spending_past_what_can_be_certified_is_no_promise_any_more():
    spent = {"silo": "north", "before": 49.0, "epsilon": None, "delta": 1e-5, "charge": 9}
    (words,) = broken(plan_with(None), spent)
    assert words.startswith("no guarantee any more: after 9 charges")
    said = spent_words({**spent, "cap": None, "left": None})
    assert "no cap is set" in said
