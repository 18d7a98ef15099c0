"""Wide tables: the small experiments, and what the committed table shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments import first_studies, noisy_quantiles, wide
from experiments.results import RESULTS, rows_of
from experiments.wide import KEY

from drafting.cohorts import SILOS, lay
from hubbub.desk.cli.main import main

ROWS = RESULTS / "wide.csv"


@pytest.mark.slow
def test_the_small_experiment_makes_its_row(tmp_path: Path) -> None:
    wide.main(["--small", "--out", str(tmp_path), "--runs", "1"])
    (row,) = rows_of(tmp_path / "wide.csv")
    assert 0.5 < float(row["auc"]) < float(row["auc_no_privacy"]) + 0.05


@pytest.mark.slow
def test_a_drafted_study_is_scored_beside_no_privacy(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "visits"
    folder.mkdir()
    monkeypatch.chdir(folder)
    lay("visits", folder, 60)
    words = ["--patient", "patient_id", "--target", "readmitted", "--tidy", "tidy"]
    assert main(["init", *(f"{silo}.csv" for silo in SILOS), *words]) == 0
    monkeypatch.chdir(tmp_path)
    first_studies.main([str(folder), "--out", str(tmp_path), "--runs", "1"])
    rows = rows_of(tmp_path / "first_studies.csv")
    assert [row["cohort"] for row in rows] == ["visits", "visits"]
    assert int(rows[0]["records"]) < 60 * len(SILOS)


@pytest.mark.skipif(not ROWS.exists(), reason="run python -m experiments.wide")
def test_a_reference_is_better_in_every_world_and_a_projection_in_none() -> None:
    auc = {tuple(row[name] for name in KEY): float(row["auc"]) for row in rows_of(ROWS)}
    for world, epsilon, way in auc:
        if way == "plain":
            assert auc[world, epsilon, "reference"] > auc[world, epsilon, "plain"]
            assert auc[world, epsilon, "reference"] > auc[world, epsilon, "projected"]


@pytest.mark.slow
def test_the_small_experiment_of_quantiles_makes_its_rows(tmp_path: Path) -> None:
    noisy_quantiles.main(["--small", "--out", str(tmp_path), "--runs", "1"])
    fixed, *others = rows_of(tmp_path / "noisy_quantiles.csv")
    assert float(fixed["explained"]) > 0
    assert {row["last_clip"] for row in others}.isdisjoint({fixed["last_clip"]})
