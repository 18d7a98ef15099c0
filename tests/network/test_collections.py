"""Sums that stay open for weeks, through the real endpoints: folders, ledgers, evidence (P30)."""

from __future__ import annotations

import json
from pathlib import Path

from hubbub.verification.replay.checking import verify
from network.collected import asking, collect
from network.consortium import HOSPITALS, Consortium


def test_a_study_of_one_sum_is_collected_and_its_run_is_verified(tmp_path: Path) -> None:
    parties = Consortium.gather(tmp_path, asking())
    result = collect(parties)
    assert result is not None
    rows = result.statistics["baseline"].rows
    records = sum(row.value for row in rows if row.quantity == "records")
    assert 700 < records < 1140  # 920 in all, with noise
    found = verify(tmp_path / "run")
    assert [one for one in found if not one.holds] == []
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert [one["silo"] for one in evidence["silos"]] == sorted(HOSPITALS)
    assert all(one["attempts"] == 1 and one["closed"] for one in evidence["silos"])
