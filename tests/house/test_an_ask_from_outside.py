"""What a package asks that hubbub has never heard of: planned, run, verified, shown and typed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STUDY = """
[study]
name = "quarters"
transcript = "full"

[parties]
names = ["north", "south", "east"]
colluders = 1

[data]
files = "{name}.csv"
records = 300

[data.columns.age]
low = 20
high = 100

[quarters]
column = "age"

[privacy]
epsilon = 4.0
delta = 1e-5
"""
COUNTS = {20 + 20 * k + 5: share for k, share in enumerate((50, 30, 15, 5))}  # of each silo


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with the package as pip would install it, the study, and the silos' files."""
    shutil.copy(HERE / "outside" / "quarters.py", tmp_path)
    metadata = tmp_path / "quarters-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: quarters\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[hubbub.asks]\nquarters = quarters:QuartersAsk\n")
    (tmp_path / "study.toml").write_text(STUDY)
    rows = "".join(f"{age}\n" * count for age, count in COUNTS.items())
    for silo in ("north", "south", "east"):
        (tmp_path / f"{silo}.csv").write_text(f"age\n{rows}")
    return tmp_path


def hubbub(folder: Path, *words: str) -> dict[str, object]:
    """What a command says to machines; Python finds the package where it is started."""
    done = subprocess.run(
        [sys.executable, "-m", "hubbub", *words, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_an_ask_from_outside_is_planned_run_verified_and_shown(outside: Path) -> None:
    assert "quarters" in str(hubbub(outside, "schema"))
    assert hubbub(outside, "plan", "study.toml")["dimension"] == 4
    hubbub(outside, "run", "study.toml", "--out", "run")
    told = json.loads((outside / "run" / "quarters.json").read_text())
    for row, count in zip(told["statistics"]["quarters"]["rows"], COUNTS.values(), strict=True):
        # Beyond six standard errors lies less than 1e-8 of four such numbers.
        assert abs(row["value"] - 3 * count) < 6 * row["standard_error"] < 60
    findings = hubbub(outside, "verify", "run")["findings"]
    claims = {one["claim"]: one["verdict"] for one in findings}  # type: ignore[attr-defined]
    assert claims["run/quarters.json says what the sums say"] == "re-derived"
    assert "quarter 2" in (outside / "run" / "report.html").read_text()


@pytest.mark.slow
def test_without_the_package_its_table_is_refused(outside: Path) -> None:
    shutil.rmtree(outside / "quarters-1.0.dist-info")
    done = subprocess.run(
        [sys.executable, "-m", "hubbub", "plan", "study.toml"],
        cwd=outside,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "got quarters" in done.stderr
