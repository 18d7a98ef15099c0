"""Frozen features: the small experiments, and that the page's tables are those of the results."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs the extra learn")

import itertools

from experiments import anchors, foundation, projection, wide_resnet
from experiments.results import rows_of


@pytest.mark.slow
def test_nobody_trusted_has_more_noise_than_a_curator_by_what_four_silos_cost(
    tmp_path: Path,
) -> None:
    foundation.main(["--small", "--out", str(tmp_path)])
    nobody, trusted = rows_of(tmp_path / "foundation.csv")
    assert min(float(row["accuracy"]) for row in (nobody, trusted)) > 0.9
    assert nobody["noise_multiplier"] == trusted["total_noise_multiplier"]
    cost = float(nobody["total_noise_multiplier"]) / float(trusted["total_noise_multiplier"])
    assert cost == pytest.approx((4 / 3) ** 0.5, rel=1e-4)


@pytest.mark.slow
def test_opacus_is_as_accurate_with_all_the_noise_of_the_row_beside_it() -> None:
    pytest.importorskip("opacus")
    settings = {"sample_rate": 0.2, "steps": 150, "lr": 0.1, "clip_norm": 2.6}
    beside = {"set": "small", "run": "1", "total_noise_multiplier": "3"} | {
        name: str(value) for name, value in settings.items()
    }
    beside |= dict.fromkeys(set(foundation.COLUMNS) - set(beside), "")
    parts = foundation.parts_of("small")
    assert foundation.by_opacus(parts, beside, lambda _: None)["accuracy"] > 0.9
    beside["total_noise_multiplier"] = "30000"
    assert foundation.by_opacus(parts, beside, lambda _: None)["accuracy"] < 0.8


@pytest.mark.slow
def test_a_wide_residual_network_is_rehearsed_for_as_many_steps_as_fit(tmp_path: Path) -> None:
    wide_resnet.main(["--small", "--out", str(tmp_path), "--minutes", "0.001"])
    (row,) = rows_of(tmp_path / "wide_resnet.csv")
    assert (row["steps"], row["views"], row["device"]) == ("3", "2", "cpu")
    assert float(row["total_noise_multiplier"]) > float(row["noise_multiplier"]) > 0


def test_points_of_the_papers_model_have_its_size_of_head_and_8_compute_nodes() -> None:
    study = projection.Point(kind="sign", k=400).of_the_paper(1, ("conv.npz", 64 * "0"))
    assert (study.parties.compute_nodes, study.privacy.epsilon) == (8, 1.7)
    sides = (1600, *(384,) * 3, 10)
    assert sum(a * b for a, b in itertools.pairwise(sides)) == 913_152
    assert study.model.hidden == sides[1:-1]


def test_a_rehearsal_is_set_beside_the_time_that_the_protocol_took(tmp_path: Path) -> None:
    columns = ("kind", "k", "run", "seconds_per_step", "accuracy")
    cells = (
        ("none", "0", "0", "6", ""),
        ("sign", "50", "0", "2", ""),
        ("none", "0", "1", "1", ".7"),
        ("sign", "50", "1", "9", ".6"),
        ("sign", "50", "2", "9", ".65"),
    )
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    assert projection.traded(rows) == {"none": [(1.0, 0.7)], "sign": [(3.0, 0.6), (3.0, 0.65)]}
    projection.draw_paper(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_the_page_has_the_tables_that_the_results_give() -> None:
    page = anchors.PAGE.read_text(encoding="utf-8")
    assert anchors.written(page) == page
    assert page.count("<!-- anchors: ") == 3


def test_a_mean_of_other_than_three_runs_says_of_how_many(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(anchors, "RESULTS", tmp_path)
    head = "set,by,silos,epsilon,runs,accuracy_mean"
    lines = [head, "a,b,8,1,3,0.85449", "a,b,8,2,1,0.9", "a,b,32,4,2,0.99751"]
    (tmp_path / "foundation_summary.csv").write_text("\n".join(lines))
    assert anchors.frozen("a", "b", "8") == {"1": ".854", "2": ".900¹"}
    assert anchors.frozen("a", "b", "32") == {"4": ".9975²"}
