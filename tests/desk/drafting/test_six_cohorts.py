"""From six cohorts to scored reports, by doing what is printed and nothing else."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from drafting.cohorts import COHORTS, SILOS, lay
from hubbub import Study
from hubbub.desk.cli.main import main

MOST = 4  # invocations
TARGETS = {
    "visits": "readmitted",
    "survival": "futime",
    "counts": "exacerbations",
    "amounts": "total_cost",
    "rare": "died_30d",
    "wide": "disease",
}
KINDS = {"survival": "time-to-event", "counts": "count", "amounts": "numeric"}


def followed(capsys, words: list[str], trial: list[str]) -> list[str]:
    """The commands that were typed, each the last line that the one before has printed.

    Args:
        words: of the first.
        trial: what is added to the run, so that it is short.
    """
    typed = []
    while len(typed) < MOST:
        typed.append(" ".join(words))
        capsys.readouterr()
        code = main([*words, *(trial if words[0] == "run" else ())])
        said = capsys.readouterr().out
        stopped = "No study was written" in said or "a run cannot read" in said
        assert code == stopped, said
        if words[0] == "run":
            return typed
        (*_, last) = said.splitlines()
        assert last.startswith("    hubbub "), said
        words = shlex.split(last)[1:]
    raise AssertionError(typed)


@pytest.mark.slow
@pytest.mark.parametrize("name", COHORTS)
@pytest.mark.parametrize("steps", [3, pytest.param(150, marks=pytest.mark.slow)])
def test_a_cohort_becomes_a_scored_report_by_what_is_printed_alone(
    name, steps, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    lay(name, Path(), 120 if steps < 150 else 1500)  # of 120 noise hides some scores
    files = [f"{silo}.csv" for silo in SILOS]
    trial = [] if steps == 150 else ["--set", f"training.steps={steps}"]
    typed = followed(capsys, ["init", *files, "--test-share", ".2"], trial)
    assert len(typed) <= MOST
    study = Study.load("study.toml")
    assert study.data.target == TARGETS[name]
    kind = study.data.outcome.kind if study.data.outcome else "class"
    assert kind == KINDS.get(name, "class")
    assert study.data.patient == ("patient_id" if name == "visits" else "")
    (run,) = tmp_path.glob("runs/*/report.html")
    page = run.read_text()
    assert "total ε spent by these records" in page
    assert "the first charge" in page
    assert "What to do next" in page
    told = json.loads((run.parent / "validation.json").read_text())
    scores = told["all"]["scores"].values()
    assert scores or steps < 150  # after a few steps noise may hide them all
    assert all(one["low"] <= one["value"] <= one["high"] for one in scores)
    assert not scores or "sampling and noise included" in page
