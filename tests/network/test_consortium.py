"""Studies whose parties run apart give what they give in one process."""

from __future__ import annotations

import json

import pytest

from network.consortium import HOSPITALS, Consortium, table


@pytest.mark.parametrize("nodes", [0, 2])
def test_a_consortium_trains_a_model(tmp_path, nodes):
    parties = Consortium.gather(tmp_path, table(HOSPITALS, nodes))
    result = parties.serve()
    assert result.final["step"] == 3
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert [one["silo"] for one in evidence["silos"]] == sorted(HOSPITALS)
    assert all(one["attempts"] == 3 for one in evidence["silos"])
