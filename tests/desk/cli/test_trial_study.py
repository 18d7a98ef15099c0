"""`--epsilon` and `--set`: a trial is another study, and changes no file."""

from __future__ import annotations

import json
import tomllib

import pytest

from hubbub.desk.cli.main import main

STUDY = """
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
steps = 4
sampling = "full-batch"
[privacy]
epsilon = 1.0
delta = 1e-5
cap = 1.5
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(STUDY)
    return path


def asked(capsys, *words: object) -> dict:
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_of_a_trial_has_its_values_and_leaves_the_file_alone(study, capsys):
    usual = asked(capsys, "plan", study)
    found = asked(capsys, "plan", study, "--epsilon", 2, "--set", "training.steps=9")
    assert found["noise_multiplier"] != usual["noise_multiplier"]
    assert (
        max(row["epsilon"] or 0 for row in found["epsilon"] if "1 silo" in row["adversary"]) > 1.9
    )
    assert study.read_text() == STUDY
    assert main(["plan", str(study), "--epsilon", "2"]) == 0
    said = capsys.readouterr().out
    assert "a trial, “hearts, trial of privacy.epsilon = 2”" in said


def test_parts_of_epsilon_keep_their_share_in_a_trial(study, capsys):
    study.write_text(STUDY + "[validation]\nepsilon = 0.3\n")
    whole = tomllib.loads(STUDY)["privacy"]["epsilon"]
    usual = asked(capsys, "plan", study)["validation"]["epsilon_alone"]
    tried = asked(capsys, "plan", study, "--epsilon", 2)
    share = tried["validation"]["epsilon_alone"] / usual
    assert share == pytest.approx(2 / whole, rel=0.02)
    stated = asked(capsys, "plan", study, "--epsilon", 2, "--set", "validation.epsilon=0.1")
    assert 0.09 < stated["validation"]["epsilon_alone"] <= 0.1
    assert main(["plan", str(study), "--epsilon", "0.25"]) == 0
    assert "privacy.epsilon = 0.25, validation.epsilon = 0.075" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_of_a_trial_is_charged_like_any_other(study, tmp_path, capsys):
    made = asked(
        capsys, "run", study, "--out", tmp_path / "runs" / "a", "--set", "training.steps=2"
    )
    assert made["steps"] == 2
    assert made["spending"]["charge"] == 1
    kept = (tmp_path / "runs" / "a" / "study.toml").read_text()
    assert "trial of training.steps = 2" in kept
    assert main(["run", "--resume", str(tmp_path / "runs" / "a"), "--epsilon", "1"]) == 2
    assert "--resume alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "steps"], "--set KEY=VALUE"),
        (["--set", "steps=3"], "--set KEY=VALUE"),
        (["--set", "study.name.x=3"], "name is not a table"),
        (["--set", "training.steps=many"], "training.steps"),
        (["--set", "data.outcome=x"], "did you mean target?"),
        (["--set", "data.qqq=x"], "remove it"),
        (["--epsilon", "99"], "privacy.epsilon"),
        (["--epsilon", "many"], "a number after --epsilon"),
        (["--epslion", "1"], "did you mean --epsilon?"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate; see"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_sentence(study, capsys, words, said):
    assert main(["plan", str(study), *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(["plam", "s.toml"], "plan"), (["init", "a.csv", "--kind", "counts"], "count")],
)
def test_a_word_that_is_no_choice_suggests_the_one_that_is_meant(capsys, typed, meant):
    assert main(typed) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_a_study_that_is_not_there_is_looked_for_beside_it(study, capsys):
    assert main(["plan", str(study.with_name("stduy.toml"))]) == 2
    assert f"did you mean {study}?" in capsys.readouterr().err
    assert main(["plan", str(study.with_name("quite-another"))]) == 2
    assert "check the path" in capsys.readouterr().err
