"""A run of an earlier version is told as one where it does not hold, and takes nothing back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.run.finished import a_study, finished

from hubbub import VERSION
from hubbub.cli import main
from hubbub.verification.evidence import earlier_version


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "run"
    finished(a_study(steps=2), folder)
    return folder


@pytest.mark.parametrize(
    ("ours", "is_told"),
    [(VERSION, False), ("99.0.0", True), ("0.0.9", False)],
)
def test_evidence_of_an_earlier_minor_version_is_told(
    run: Path, monkeypatch: pytest.MonkeyPatch, ours: str, is_told: bool
) -> None:
    monkeypatch.setattr(earlier_version, "VERSION", ours)
    for path in (run, run / "evidence.json"):
        said = earlier_version.former_version(path)
        assert bool(said) == is_told
        assert not is_told or f"hubbub {VERSION} has made it" in said


def test_what_is_wrong_stays_wrong_and_is_told_beside_the_version(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(earlier_version, "VERSION", "99.0.0")
    assert main(["verify", str(run)]) == 0
    assert "has made it" not in capsys.readouterr().out
    study = run / "study.toml"
    study.write_text(study.read_text().replace('name = "', 'name = "an'))
    assert main(["verify", str(run)]) == 1
    assert "has made it" in capsys.readouterr().out
    assert main(["verify", str(run), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] is False
    assert "has made it" in told["former_version"]


def test_where_there_is_no_evidence_nothing_is_told(tmp_path: Path) -> None:
    assert earlier_version.former_version(tmp_path) == ""
