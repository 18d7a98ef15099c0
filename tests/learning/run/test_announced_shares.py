"""Runs whose noise shares follow from who takes part (P3)."""

from __future__ import annotations

import json
import shutil
from functools import lru_cache
from pathlib import Path

import pytest

import hubbub
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.session.in_process import Federation
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import REDERIVED, Finding
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import files, read, read_header
from hubbub.learning.runs.result import Result
from run.finished import a_study, finished

Run = tuple[Path, Federation]
LOST_AFTER = 3  # steps that hungary's cap holds for
MISSING = (("dropouts = 0", "dropouts = 1"),)


def the_study() -> Study:
    return a_study(changes=MISSING)


@lru_cache
def made_plan() -> Plan:
    return plan(the_study(), dimension=27)


def capped_run(made: Plan, folder: Path) -> tuple[Result, Federation]:
    """A run with evidence, in which a silo is missing from the middle on."""
    study = made.study
    cap = hubbub.epsilon(
        noise_multiplier=made.noise_multiplier, sample_rate=0.2, steps=LOST_AFTER, delta=1e-5
    )
    (folder.parent / "ledgers").mkdir(parents=True)
    with Ledger(folder.parent / "ledgers" / "hungary.sqlite") as ledger:
        ledger.set_cap(Cap(epsilon=cap.upper * 1.02, delta=1e-5, relation="add-remove"))
    return finished(study, folder, made=made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run, which tests leave as it is."""
    path = tmp_path_factory.mktemp("announced") / "run"
    capped_run(made_plan(), path)
    return path


def sets_of(folder: Path) -> list[frozenset[int]]:
    """Whom the MODELs of a run name."""
    found = []
    for path in files(folder):
        numbers = read_header(path).round_parameters
        assert numbers is not None
        models = [one.frame for one in read(path) if one.tag is Tag.MODEL]
        everybody = frozenset(range(1, 1 + numbers.silos))
        read_sets = (numbers.read_model(unverified(m), "aggregator", everybody) for m in models)
        found += [silos for silos, _ in read_sets]
    return found


def of_epsilon(found: list[Finding]) -> list[str]:
    """How claims about the plan's numbers and about epsilon stand."""
    members = {"plan", "epsilon.claimed", "epsilon.attempts"}
    return [one.verdict for one in found if members.intersection(one.about)]


@pytest.mark.slow
def test_a_run_with_a_silo_missing_is_made_again_by_the_announced_shares(folder: Path) -> None:
    assert {len(one) for one in sets_of(folder)} == {3, 4}
    stated = json.loads((folder / "plan.json").read_text())
    headers = [read_header(path).round_parameters for path in files(folder)]
    assert "announced_shares" in stated
    assert {one.announced_shares for one in headers if one} == {made_plan().main.shares}
    found = verify(folder)
    assert [one for one in found if not one.holds] == []
    assert any("every sum, and every step along it" in one.claim for one in found)
    assert of_epsilon(found) == [REDERIVED] * 3


@pytest.mark.slow
def test_a_plan_without_announced_shares_is_not_taken_for_the_runs(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder.parent, tmp_path / "copy")
    copy = tmp_path / "copy" / "run"
    stated = json.loads((copy / "plan.json").read_text())
    del stated["announced_shares"]
    (copy / "plan.json").write_text(json.dumps(stated))
    (copy / FILE).unlink()
    assert [one for one in verify(copy) if not one.holds]
