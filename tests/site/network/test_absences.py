"""P29 with some silos always away: a training ends, hardly an attempt is lost, the books are right.

Silos, ledgers, folders and the loop are real; time is counted and not spent. Who is away, and for
how long, is drawn from a seed, and no draw of noise moves it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

absences = pytest.importorskip(
    "benchmarks.network.absences", reason="benchmarks/ is not part of this copy"
)


def run(
    home: Path, nodes: int, *, silos: int, away: int, seconds: float, steps: int, noise: str
) -> Any:
    """A run of so many silos of which some are always away, for so long each on average."""
    made = absences._measured(home, nodes, silos, away, seconds, steps, 1, noise, 0.0)
    assert made.wrong == ""
    assert made.attempts <= steps
    return made


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p29_a_training_ends_though_a_silo_is_always_away(tmp_path: Path, nodes: int) -> None:
    made = run(tmp_path, nodes, silos=9, away=1, seconds=40.0, steps=24, noise="independent")
    assert made.left > 1, "nobody left while it ran"
    assert 24 - made.sums <= made.left, "more attempts lost than silos that left"


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["independent", "correlated"])
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p29_of_67_thin_silos_three_are_away_and_one_attempt_in_twenty_is_lost_at_most(
    tmp_path: Path, nodes: int, noise: str
) -> None:
    made = run(tmp_path, nodes, silos=67, away=3, seconds=600.0, steps=200, noise=noise)
    assert made.attempts == 200
    assert made.lost_percent <= 5.0


def test_a_row_that_is_measured_anew_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.network import table

    @dataclass
    class Row:
        seconds: float

    monkeypatch.setattr(table, "RESULTS", tmp_path)
    for seconds, command in ((1.0, "step --hidden 3"), (2.0, "step --hidden 9")) * 2:
        table.write("x", [Row(seconds)], command, fresh=False)
    table.write("x", [Row(5.0)], "step --hidden 3", fresh=False)
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = [(row["seconds"], row["command"].split()[-1]) for row in csv.DictReader(file)]
    assert rows == [("2.0", "9"), ("5.0", "3")]
