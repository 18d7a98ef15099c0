"""Synthetic records among machines: as in one process, also where a silo misses a sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hubbub.core.verification.replay.checking import verify
from network.consortium import HOSPITALS, Consortium
from network.test_statistics_apart import asking, without


def made_up(nodes: int = 0, **tables: Any) -> dict[str, Any]:
    """A study that asks for synthetic records alone."""
    made = asking(nodes, **tables)
    del made["statistics"]
    asked = {"columns": ["age", "sex", "disease"], "targets": ["disease"], "bins": 4}
    return made | {"synthetic": asked}


@pytest.mark.slow
def test_a_consortium_makes_records_that_every_silo_keeps(tmp_path: Path) -> None:
    parties = Consortium.gather(tmp_path, made_up())
    result = parties.serve()
    assert result.steps == 3
    assert set(result.synthetic.draw(10)) == {"age", "sex", "disease"}
    assert all(one.holds for one in verify(tmp_path / "run"))
    (kept,) = (tmp_path / HOSPITALS[0] / "models").iterdir()
    for name in ("synthetic.csv", "synthetic-model.json", "synthetic.json"):
        assert (kept / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_records_are_made_although_a_silo_misses_a_sum(tmp_path: Path, nodes: int) -> None:
    """Without nodes the attempt is lost, and two of three sums are enough."""
    parties = Consortium.gather(tmp_path, made_up(nodes, dropouts=1))
    result = parties.serve(without(HOSPITALS[0], parties.phase))
    assert result.synthetic.sums.shape[0] in (2, 3)
    assert result.epsilon <= 8.0
    assert all(one.holds for one in verify(tmp_path / "run"))
