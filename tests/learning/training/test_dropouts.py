"""Silos that stop answering in the middle of a run: the run goes on, and nothing is spent twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import hubbub
from hubbub.core.errors import BudgetError, StudyError
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.learning.runs.run_study import run

STEPS = 8


def study(**parties: int) -> hubbub.Study:
    return hubbub.Study.from_table(
        {
            "study": {"name": "drop-outs"},
            "parties": {
                "names": ["cleveland", "hungary", "switzerland", "va-long-beach"],
                "colluders": 0,
                **parties,
            },
            "data": {"source": "hubbub.datasets:heart", "target": "disease", "records": 736},
            "model": {"kind": "logistic"},
            "training": {
                "steps": STEPS,
                "sample_rate": 0.2,
                "optimizer": {"name": "adam", "lr": 0.1},
            },
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
    )


def capped(folder: Path, one: hubbub.Study, steps: int) -> None:
    """Give hungary a cap that holds for so many steps of the study."""
    made = hubbub.plan(one)
    spent = hubbub.epsilon(
        noise_multiplier=made.noise_multiplier, sample_rate=0.2, steps=steps, delta=1e-5
    )
    folder.mkdir()
    with Ledger(folder / "hungary.sqlite") as ledger:
        ledger.set_cap(Cap(epsilon=spent.upper * 1.02, delta=1e-5, relation="add-remove"))


def entries(folder: Path) -> dict[str, list[tuple[int, int]]]:
    found = {}
    for path in sorted(folder.glob("*.sqlite")):
        with Ledger(path) as ledger:
            found[path.stem] = [(entry.round, entry.attempt) for entry in ledger.entries()]
    return found


@pytest.mark.slow
def test_with_pairwise_masks_the_round_is_repeated_without_the_missing_silo(tmp_path: Path) -> None:
    one = study(dropouts=1)
    capped(tmp_path / "ledgers", one, steps=3)
    result = run(one, tmp_path / "run", ledgers=tmp_path / "ledgers")
    found = entries(tmp_path / "ledgers")
    stayed = found["switzerland"]
    assert (1, 0) in stayed
    left = next(number for number, attempt in found["cleveland"] if attempt == 1)
    # Cleveland had answered the abandoned attempt, so it paid for both.
    assert (left, 0) in found["cleveland"]
    assert all(number < left for number, _ in found["hungary"])
    assert all(number > left for number, _ in stayed if number > left)
    # Attempts are what is promised: one was lost, so one round fewer was finished.
    assert len(found["cleveland"]) == STEPS
    assert max(number for number, _ in found["cleveland"]) == STEPS - 1
    assert result.epsilon <= 1.0
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == STEPS - 1
    assert rows[-1]["epsilon"] == pytest.approx(result.epsilon)


@pytest.mark.slow
def test_with_compute_nodes_a_missing_silo_costs_no_attempt(tmp_path: Path) -> None:
    one = study(dropouts=1, compute_nodes=2)
    capped(tmp_path / "ledgers", one, steps=3)
    run(one, tmp_path / "run", ledgers=tmp_path / "ledgers")
    found = entries(tmp_path / "ledgers")
    assert found["cleveland"] == [(number, 0) for number in range(1, STEPS + 1)]
    assert len(found["hungary"]) < STEPS


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_without_room_for_drop_outs_the_run_stops_and_names_the_silo(
    tmp_path: Path, nodes: int
) -> None:
    one = study(compute_nodes=nodes)
    capped(tmp_path / "ledgers", one, steps=3)
    with pytest.raises(BudgetError, match="hungary"):
        run(one, tmp_path / "run", ledgers=tmp_path / "ledgers")
    assert (tmp_path / "run/metrics.jsonl").read_text().count("\n") >= 1


@pytest.mark.slow
def test_a_plan_of_another_study_is_refused() -> None:
    """One step's noise under sixty steps would be reported as one step's epsilon."""
    cheap = replace(study(), training=replace(study().training, steps=1))
    with pytest.raises(StudyError, match="a plan of this study"):
        run(study(), plan=hubbub.plan(cheap, dimension=27))
