"""Statistics among machines: as in one process, with a silo that is missing, and beside a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hubbub.assurance.verification.checking import verify
from network.consortium import HOSPITALS, Consortium, table

ASKED: dict[str, Any] = {
    "baseline": {"kind": "table", "columns": ["age", "sex"], "by": "disease"},
    "risk": {"kind": "logistic", "outcome": "disease", "on": {"age": "number"}},
}


def asking(nodes: int = 0, *, dropouts: int = 0, **tables: Any) -> dict[str, Any]:
    made = table(HOSPITALS, nodes, privacy={"epsilon": 8.0}, parties={"dropouts": dropouts})
    for name in ("model", "training"):
        del made[name]
    del made["data"]["target"]
    return made | {"statistics": ASKED} | tables


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_consortium_answers_and_every_silo_keeps_the_answers(tmp_path: Path, nodes: int) -> None:
    parties = Consortium.gather(tmp_path, asking(nodes))
    result = parties.serve()
    assert result.steps == 4
    assert all(one.refusal == "" for one in result.statistics.values())
    assert all(one.holds for one in verify(tmp_path / "run"))
    told = json.loads((tmp_path / "run" / "statistics.json").read_text())
    (kept,) = (tmp_path / HOSPITALS[0] / "models").iterdir()
    assert json.loads((kept / "statistics.json").read_text()) == told


def test_a_consortium_answers_without_a_silo_that_may_be_missing(tmp_path: Path) -> None:
    parties = Consortium.gather(tmp_path, asking(dropouts=1))
    parties.stop(HOSPITALS[3])
    result = parties.serve()
    assert all(one.refusal == "" for one in result.statistics.values())
    records = sum(
        row.value for row in result.statistics["baseline"].rows if row.quantity == "records"
    )
    assert 600 < records < 820  # of 920, 200 of which the missing silo holds


def test_a_consortium_trains_and_answers_in_one_study(tmp_path: Path) -> None:
    whole = table(HOSPITALS, privacy={"epsilon": 8.0})
    whole["statistics"] = {**ASKED, "epsilon": 4.0}
    result = Consortium.gather(tmp_path, whole).serve()
    assert result.steps == 3
    assert all(one.refusal == "" for one in result.statistics.values())
    assert all(one.holds for one in verify(tmp_path / "run"))
