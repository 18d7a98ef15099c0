"""Parties that run apart protect patients as one process does: one unit each, in every silo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubbub.core.errors import DataError
from hubbub.core.study import silo_records
from hubbub.core.verification.replay.checking import verify
from network.consortium import Consortium, table

SILOS = ("north", "south", "west")


def lay(home: Path, name: str, seed: int) -> None:
    """Twelve patients with up to four visits each."""
    rng = np.random.default_rng(seed)
    rows = [f"P{p},{rng.uniform():.3f},{p % 2}" for p in range(12) for _ in range(1 + p % 4)]
    home.mkdir(parents=True, exist_ok=True)
    (home / f"{name}.csv").write_text("\n".join(["pid,dose,ill", *rng.permutation(rows)]) + "\n")


def gathered(home: Path, **changes: Any) -> Consortium:
    made = table(SILOS)
    made["data"] = {
        "files": "{name}.csv",
        "target": "ill",
        "patient": "pid",
        "most_per_patient": 3,
        "records": 36,
        "columns": {"dose": {"low": 0, "high": 1}},
    }
    made["model"] = {"kind": "logistic", "inputs": [1]}
    for key, values in changes.items():
        made[key] |= values
    for seed, name in enumerate(SILOS):
        lay(home / name, name, seed)
    return Consortium.gather(home, made)


@pytest.mark.slow
def test_a_run_among_machines_protects_patients(tmp_path: Path) -> None:
    parties = gathered(tmp_path, training={"evaluate": {"every": 3, "epsilon": 0.2}})
    result = parties.serve()
    assert result.final["step"] == 3
    assert result.plan.study.data.unit == "patient"
    assert all(one.holds for one in verify(tmp_path / "run"))
    for name in SILOS:
        plain = parties.seats[name]._prepared(parties.study)  # type: ignore[attr-defined]
        counts = [
            query.units(plain.silos[0]) for query in (one.query for one in plain.plan.queries)
        ]
        assert sum(counts) == 12
        assert plain.tasks[0].capacity == plain.silos[0].max_units
        rows = {one.kind.unit for one in parties.seats[name]._ledger.entries()}  # type: ignore[attr-defined]
        assert rows == {"patient"}


@pytest.mark.slow
def test_a_silo_with_more_patients_than_the_study_states_takes_no_part(tmp_path: Path) -> None:
    """Thirty rows of twelve patients fit a capacity of twelve, and thirteen patients do not."""
    parties = gathered(tmp_path, data={"capacity": 12})
    parties.serve()
    lay(tmp_path / "over" / "north", "north", 0)
    with (tmp_path / "over" / "north" / "north.csv").open("a") as file:
        file.write("P99,0.5,1\n")
    assert (
        silo_records.records(parties.study, "north", folder=tmp_path / "over" / "north").units == 13
    )
    parties.seats["north"]._data = tmp_path / "over" / "north"  # type: ignore[attr-defined]
    parties.seats["north"]._studies.clear()  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"as data\.capacity says"):
        parties.seats["north"]._prepared(parties.study)  # type: ignore[attr-defined]
