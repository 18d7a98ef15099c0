"""REDCap's and FHIR's exports of the same people, by the example's tables and mapping."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from hubbub import Study
from hubbub.core.study import silo_records
from hubbub.desk.cli.main import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "exports"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The exports, the databases that each site made of its own, and no mapping yet."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE / "exports.py"))["make"](120)
    shutil.copy(EXAMPLE / "study.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_two_sites_with_other_exports_of_the_same_people_come_to_the_same_records(here: Path):
    shutil.copy(EXAMPLE / "mapping.toml", here)
    assert main(["check", "study.toml"]) == 0
    study = Study.load("study.toml")
    north, south = (silo_records.records(study, name, folder=here) for name in ("north", "south"))
    assert north.units == south.units == len(north) == 120
    columns = [np.sort(one.inputs, axis=0) for one in (north, south)]
    assert columns[0] == pytest.approx(columns[1], abs=1e-4)
    moments = [one.inputs.T @ np.column_stack([one.inputs, one.targets]) for one in (north, south)]
    assert moments[0] == pytest.approx(moments[1], abs=1e-2)  # whose value each is
    assert {*north.targets} == {0, 1}


@pytest.mark.slow
def test_a_check_says_what_each_site_has_to_map(here: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", "study.toml"]) == 2
    said = capsys.readouterr().out
    assert "the database of north, column 'sex'" in said
    assert "the database of south, column 'sex'" in said
    drafts = {}
    for name in ("north", "south"):
        assert main(["check", "study.toml", "--silo", name, "--mapping", f"{name}.toml"]) == 0
        drafts[name] = Path(f"{name}.toml").read_text()
    assert '# spellings: what are "1", "2"?' in drafts["north"]
    assert "# factor = 0.09148, offset = 2.152   # HbA1c" in drafts["north"]
    assert '# spellings: what are "female", "male"?' in drafts["south"]
    assert "# factor = 18.0156   # " in drafts["south"]
