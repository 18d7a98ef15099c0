"""What papers print, asked of silos from a study's file to its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.estimation.asking.made_up import study, write_silos

import hubbub
from hubbub.core.errors import StudyError
from hubbub.core.verification.replay.checking import verify
from hubbub.desk.cli.main import main

ASKED: dict[str, Any] = {
    "holm": ["response", "hazards"],
    "baseline": {"kind": "table", "columns": ["sex", {"age": [50, 65]}], "by": {"months": [12]}},
    "response": {"kind": "crosstab", "rows": {"age": [60]}, "columns": "died"},
    "survival": {
        "kind": "survival",
        "time": "months",
        "event": "died",
        "by": {"age": [60]},
        "horizon": 24,
        "bins": 4,
        "at": [12],
        "test": "log-rank",
        "strata": "sex",
    },
    "hazards": {
        "kind": "cox",
        "time": "months",
        "event": "died",
        "horizon": 24,
        "bins": 4,
        "covariates": {"sex": "categories", "age": [60]},
        "reference": {"sex": "male"},
        "interactions": [["sex", "age"]],
        "test": "proportional-hazards",
    },
    "ages": {"kind": "quantiles", "column": "age", "by": "sex", "bins": 14, "test": "wilcoxon"},
    "causes": {"kind": "incidence", "time": "months", "event": "stage", "bins": 4, "horizon": 24},
    "rates": {"kind": "rates", "time": "months", "event": "died", "by": "sex", "per": 12},
    "stages": {"kind": "centres", "by": "stage", "outcome": "died"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper")
    write_silos(folder)
    hubbub.run(study(folder, **ASKED), folder / "run")
    return folder / "run"


@pytest.mark.slow
def test_a_paper_is_asked_in_one_study_and_verified(run: Path) -> None:
    told = json.loads((run / "statistics.json").read_text())["statistics"]
    assert {name for name, one in told.items() if not one["refusal"]} == {*ASKED} - {"holm"}
    assert all(one.holds for one in verify(run))
    assert all(one["p_adjusted"] is not None for one in told["response"]["tests"])
    assert all(one["p_adjusted"] is None for one in told["survival"]["tests"])


@pytest.mark.slow
def test_the_page_and_the_tables_show_what_was_asked(run: Path) -> None:
    page = (run / "report.html").read_text()
    for said in ("stratified log-rank p", "Cumulative incidence", "rate ratio", "risk difference"):
        assert said in page
    assert main(["table", str(run), "--format", "html,latex,csv", "--figures", "svg"]) == 0
    found = {one.name for one in (run / "paper").iterdir()}
    assert {"baseline.csv", "causes.svg", "survival.svg", "tables.tex", "stages.csv"} <= found


def test_a_family_of_nobody_is_refused(run: Path) -> None:
    with pytest.raises(StudyError, match="different statistics out of"):
        study(run.parent, holm=["nothing"], baseline=ASKED["baseline"])
