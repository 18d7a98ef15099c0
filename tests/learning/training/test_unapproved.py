"""Nothing that a study names runs before the study is approved, and everybody sees what would."""

from __future__ import annotations

import builtins
import json
import shutil
import sys
from importlib import resources
from pathlib import Path

import pytest

import hubbub
from hubbub import Study
from hubbub.core.errors import StudyError
from hubbub.desk.cli.main import main
from hubbub.site.network.folder_files import roster_of, roster_toml
from hubbub.site.network.party_folder import PartyFolder

HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")
SOURCE, KIND = 'source = "hubbub.datasets:heart"', 'kind = "logistic"'
CODE = ["python:trap_of_a_stranger:records", "python:trap_of_a_stranger:model"]


@pytest.fixture
def sprung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once a stranger's code has run; `timeit` would run it, too."""
    mark = tmp_path / "sprung"
    (tmp_path / "trap_of_a_stranger.py").write_text(f"open({str(mark)!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "trap_of_a_stranger", raising=False)
    return mark


def through_timeit(mark: Path) -> str:
    """A study whose options are code for a function of Python's own."""
    ran = f"options = {{ setup = \"open({str(mark)!r}, 'w')\" }}"
    return HEART.replace(SOURCE, f'source = "python:timeit:timeit"\n{ran}')


def of_its_own() -> str:
    """A study whose records and whose model only its own code knows."""
    return HEART.replace(SOURCE, f'source = "{CODE[0]}"').replace(KIND, f'kind = "{CODE[1]}"')


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "inputs = [26]"])
def test_plan_runs_nothing_and_names_what_a_run_would_run(sprung, capsys, more) -> None:
    for text in (through_timeit(sprung), of_its_own()):
        study = Study.parse(text.replace("kind =", f"{more}\nkind ="))
        Path("study.toml").write_text(study.toml)
        assert main(["plan", "study.toml", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["own_code"] == list(study.own_code)
        assert main(["plan", "study.toml"]) == 0
        shown = capsys.readouterr().out.replace("\n", " ")
        assert all(name in shown for name in study.own_code)
        assert hubbub.plan(study).noise_multiplier > 0
        assert not sprung.exists()


def test_a_plan_that_needs_what_only_code_knows_says_what_to_state(sprung) -> None:
    asks = "standardise = { epsilon = 0.1, bound = 5.0 }"
    study = Study.parse(through_timeit(sprung).replace("[data]", f"[data]\n{asks}"))
    with pytest.raises(StudyError, match=r"state model.inputs = \[features\]"):
        hubbub.plan(study)
    assert not sprung.exists()


def test_planning_runs_nothing_wherever_a_study_names_code(sprung) -> None:
    """So whoever plans studies that others approved, to see what fits under a cap, runs none."""
    name = '"python:trap_of_a_stranger:records"'
    own = f"inputs = [26]\nloss = {name}\n"
    frozen = (
        'inputs = [26]\nfrozen = { weights = "a.npz", sha256 = "'
        + "ab" * 32
        + f'", module = {name} }}\n'
    )
    more = f"metrics = [{name}]\naugment = {{ kind = {name}, views = 2 }}\n\n[privacy]"
    for model in (f"kind = {name}\n{own}", f"{KIND}\n{frozen}"):
        text = HEART.replace(SOURCE, f"source = {name}").replace(KIND, model)
        study = Study.parse(text.replace("[privacy]", more))
        assert len(study.own_code) >= 4
        assert hubbub.plan(study).noise_multiplier > 0
        assert not sprung.exists()
    assert "trap_of_a_stranger" not in sys.modules


@pytest.mark.slow
def test_an_audit_reads_no_data_of_a_strangers(sprung) -> None:
    found = hubbub.audit(Study.parse(of_its_own()), runs=2, canaries=10)
    assert found.audited <= found.promised
    assert not sprung.exists()


def test_approve_runs_nothing_and_names_what_a_run_would_run(sprung, capsys, monkeypatch) -> None:
    names = Study.parse(HEART).parties.names
    homes = {name: PartyFolder.made(Path(name), name, "silo") for name in names}
    homes["aggregator"] = PartyFolder.made(Path("aggregator"), "aggregator", "aggregator")
    roster = roster_of([one.keys.identity for one in homes.values()])
    Path("roster.toml").write_text(roster_toml(roster))
    named = f'[parties]\nroster = "{roster.digest.hex()}"'
    Path("study.toml").write_text(of_its_own().replace("[parties]", named))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda _: "n")
    asked = ["approve", "study.toml", "--roster", "roster.toml", "--home", names[0]]
    assert main(asked) == 1
    shown = capsys.readouterr().out.replace("\n", " ")
    assert all(name in shown for name in CODE)
    assert f"{CODE[1]}: your code must keep nothing about a record" in shown
    assert f"{CODE[1]}: before the code has run, nobody knows whether the amount" in shown
    assert main([*asked, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["own_code"] == CODE
    assert not sprung.exists()


@pytest.mark.slow
def test_a_run_calls_what_its_study_names(tmp_path, monkeypatch) -> None:
    """What planning does not look at, the run does: its plan knows the model's size."""
    (tmp_path / "ward_of_unapproved.py").write_text(
        "from hubbub.learning.datasets import heart\n\n"
        "def records(party):\n    return heart(party)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = HEART.replace(SOURCE, 'source = "python:ward_of_unapproved:records"')
    study = Study.parse(text.replace("steps = 60", "steps = 2"))
    made = hubbub.plan(study)
    assert made.dimension is None
    result = hubbub.run(study, tmp_path / "run", plan=made)
    assert result.plan.dimension == 27
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["dimension"] == 27
    shutil.rmtree(tmp_path / "run")
