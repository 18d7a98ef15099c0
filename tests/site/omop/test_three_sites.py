"""A made-up OMOP at three sites, two with PostgreSQL and one with DuckDB, to its answers."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hubbub import Study, run
from hubbub.core.verification.replay.checking import verify
from network.consortium import Consortium

EXAMPLE = Path(__file__).parents[3] / "examples" / "omop"
SITES = ("north", "south", "west")
ADDRESS = re.compile(rb"(?:postgresql|duckdb)://")


@pytest.fixture
def example(postgresql: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The databases of the example, and `sources.toml`; the study, of a few steps."""
    monkeypatch.chdir(tmp_path)
    sites = runpy.run_path(str(EXAMPLE / "sites.py"))
    sites["PEOPLE"].update(dict.fromkeys(SITES, 150))
    sites["make"](postgresql.url("owner", "postgres"))
    text = (EXAMPLE / "study.toml").read_text(encoding="utf-8")
    for stated, instead in {
        "steps = 60": "steps = 3",
        "records = 900": "records = 420",
        "epsilon = 2.0": "epsilon = 20.0",  # what noise hides a study does not tell
        "epsilon = 0.5": "epsilon = 12.0",
    }.items():
        assert stated in text
        text = text.replace(stated, instead)
    return text


def answered(folder: Path) -> None:
    """That a run's folder has a Table 1, a survival curve and a model."""
    assert (folder / "model.safetensors").is_file()
    answers = json.loads((folder / "statistics.json").read_text())
    assert {"characteristics", "survival"} <= set(json.dumps(answers).split('"'))
    assert (folder / "tables" / "characteristics.csv").is_file()
    assert (folder / "tables" / "survival-curves.csv").is_file()


@pytest.mark.slow
def test_three_sites_come_to_a_table_1_a_survival_curve_and_a_model(example: str, tmp_path: Path):
    run(Study.parse(example), tmp_path / "run", ledgers=tmp_path / "ledgers")
    answered(tmp_path / "run")
    kept = tmp_path / "extracts"
    assert len(list(kept.iterdir())) == 3
    left = [path for path in tmp_path.rglob("*") if path.is_file() and kept not in path.parents]
    telling = [path.name for path in left if ADDRESS.search(path.read_bytes())]
    assert telling == ["sources.toml"]


@pytest.mark.slow
def test_three_sites_that_run_apart_come_to_the_same(example: str, tmp_path: Path):
    """Each has its own folder, with its own connection alone."""
    own = re.findall(r"(?m)^\[(\w+)\]\n((?:[a-z]+ = .*\n)+)", Path("sources.toml").read_text())
    assert [name for name, _ in own] == [*SITES]
    home = tmp_path / "apart"
    for name, lines in own:
        (home / name).mkdir(parents=True)
        path = home / name / "sources.toml"
        path.touch(mode=0o600)
        path.write_text(f"[{name}]\n{lines}".replace("west.duckdb", f"/{tmp_path}/west.duckdb"))
    made = tomllib.loads(example)
    made["parties"]["compute_nodes"] = 0
    parties = Consortium.gather(home, made)
    assert parties.serve().final["step"] == 3
    answered(home / "run")
    assert all(finding.holds for finding in verify(home / "run"))
    for name in ("aggregator", *SITES):
        telling = [one for one in (home / name).rglob("*") if one.is_file()]
        assert {one.name for one in telling if ADDRESS.search(one.read_bytes())} <= {"sources.toml"}
    assert not any(ADDRESS.search(line.encode()) for line in parties.said)
