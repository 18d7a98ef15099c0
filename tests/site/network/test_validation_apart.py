"""A private validation among machines: as in one process, and with a silo that is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.verification.replay.checking import verify
from network.consortium import HOSPITALS, Consortium, table
from network.test_statistics_apart import without

FULL = {"sampling": "full-batch", "sample_rate": 1}


def asking(nodes: int = 0, *, dropouts: int = 0, **keys: Any) -> dict[str, Any]:
    made = table(
        HOSPITALS, nodes, privacy={"epsilon": 8.0}, parties={"dropouts": dropouts}, training=FULL
    )
    return made | {"validation": {"epsilon": 4.0, "centres": True, **keys}}


@pytest.mark.slow
@pytest.mark.parametrize("records", ["held-back", "training"])
def test_a_consortium_trains_a_model_and_says_how_good_it_is(tmp_path: Path, records: str) -> None:
    parties = Consortium.gather(tmp_path, asking(records=records))
    result = parties.serve()
    assert result.steps == 3
    assert result.validation["records"] == records
    assert result.validation["refusal"] == ""
    assert json.loads((tmp_path / "run" / "validation.json").read_text()) == result.validation
    assert all(one.holds for one in verify(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "sums"), [(2, 1), (0, 2)])
def test_it_says_so_though_a_silo_drops_out(tmp_path: Path, nodes: int, sums: int) -> None:
    """With nodes by the sum of the others; with pairwise masks by the other of two sums."""
    parties = Consortium.gather(tmp_path, asking(nodes, dropouts=1, sums=sums, records="training"))
    result = parties.serve(without(HOSPITALS[3], parties.phase))
    assert result.validation["refusal"] == ""
    assert all(one.holds for one in verify(tmp_path / "run"))
