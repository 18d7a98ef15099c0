"""Runs whose noise shares follow from who takes part, and runs from before they did (P3)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import pytest

import hubbub
from hubbub.errors import IntegrityError
from hubbub.ledger.privacy_ledger import Cap, Ledger
from hubbub.planning import Plan
from hubbub.protocol.primitives.wire import Tag, unverified
from hubbub.queries import plan, plan_with_fixed_shares
from hubbub.session.in_process import Federation
from hubbub.study import Study
from hubbub.training.result import Result
from hubbub.training.run_study import resume
from hubbub.verification.evidence import Finding
from hubbub.verification.evidence.claims import check, check_content, spent
from hubbub.verification.evidence.collecting import FILE
from hubbub.verification.evidence.evidence_file import with_signature
from hubbub.verification.evidence.finding import REDERIVED, SIGNED
from hubbub.verification.replay import verify
from hubbub.verification.transcript.frame_records import files, read, read_header
from run.finished import a_study, finished

Run = tuple[Path, Federation]
LOST_AFTER = 3  # steps that hungary's cap holds for
MISSING = (("dropouts = 0", "dropouts = 1"),)


def the_study() -> Study:
    return a_study(changes=MISSING)


@lru_cache
def made_plan(rule: str) -> Plan:
    return {"announced": plan, "fixed": plan_with_fixed_shares}[rule](the_study(), dimension=27)


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
def a_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A run of either rule, which tests leave as it is."""

    @cache
    def made(rule: str) -> Run:
        folder = tmp_path_factory.mktemp(rule) / "run"
        _, parties = capped_run(made_plan(rule), folder)
        return folder, parties

    return made


RULES = pytest.mark.parametrize("rule", ["announced", "fixed"])


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
    about = ("the plan's numbers", "epsilon is at most", "after the ")
    return [one.verdict for one in found if one.claim.startswith(about)]


@RULES
def test_a_run_with_a_silo_missing_is_made_again_by_the_rule_that_its_plan_states(
    a_run: Callable[[str], Run], rule: str
) -> None:
    folder, _ = a_run(rule)
    assert {len(one) for one in sets_of(folder)} == {3, 4}
    stated = json.loads((folder / "plan.json").read_text())
    headers = [read_header(path).round_parameters for path in files(folder)]
    assert ("announced_shares" in stated) == (rule == "announced")
    assert {one.announced_shares for one in headers if one} == {
        made_plan("announced").shares if rule == "announced" else 0
    }
    found = verify(folder)
    assert [one for one in found if not one.holds] == []
    assert any("every sum, and every step along it" in one.claim for one in found)
    # By which rule silos drew their noise, none of them has signed.
    assert of_epsilon(found) == [REDERIVED if rule == "announced" else SIGNED] * 3
    doubts = [one for one in found if "only the aggregator says" in one.claim]
    assert bool(doubts) == (rule == "fixed")


@RULES
def test_a_plan_of_the_other_rule_is_not_taken_for_the_runs(
    a_run: Callable[[str], Run], rule: str, tmp_path: Path
) -> None:
    folder, _ = a_run(rule)
    shutil.copytree(folder.parent, tmp_path / "copy")
    other = made_plan("fixed" if rule == "announced" else "announced")
    copy = tmp_path / "copy" / "run"
    (copy / "plan.json").write_text(other.to_json())
    (copy / FILE).unlink()
    wrong = [one for one in verify(copy) if not one.holds]
    assert wrong
    assert "keep to the plan" in wrong[0].verdict


def test_an_aggregator_that_claims_the_older_rule_is_not_confirmed(
    a_run: Callable[[str], Run], tmp_path: Path
) -> None:
    """The older rule tells an outsider's epsilon lower than it is; nobody else has signed that."""
    folder, parties = a_run("announced")
    content = json.loads((folder / FILE).read_text())
    content.pop("signature")
    older = made_plan("fixed")
    attempts = content["epsilon"]["attempts"]
    content["plan"] = older.to_dict()
    content["epsilon"]["claimed"] = spent(older, older.mechanism.steps)
    content["epsilon"]["after_attempts"] = spent(older, attempts)
    (tmp_path / FILE).write_text(with_signature(content, parties.keys[0].sign))
    found = check(tmp_path / FILE)
    assert all(one.holds for one in found)
    assert of_epsilon(found) == [SIGNED] * 3
    del content["plan"]["epsilon"]
    assert any(not one.holds for one in check_content(content))


def test_a_run_of_before_is_not_gone_on_with_by_the_other_rule(
    a_run: Callable[[str], Run], tmp_path: Path
) -> None:
    folder, _ = a_run("fixed")
    shutil.copytree(folder.parent, tmp_path / "copy")
    run_json = tmp_path / "copy" / "run" / "run.json"
    notes = json.loads(run_json.read_text())
    notes["ledgers"] = str(tmp_path / "copy" / "ledgers")
    run_json.write_text(json.dumps(notes))
    (tmp_path / "copy" / "run" / FILE).unlink()
    with pytest.raises(IntegrityError, match="use the version of hubbub that began the run"):
        resume(tmp_path / "copy" / "run")


def test_both_rules_charge_the_same() -> None:
    """The stated adversary's epsilon and every ledger row are as before; an outsider's is not."""
    announced, fixed = made_plan("announced"), made_plan("fixed")
    assert announced.noise_multiplier == pytest.approx(fixed.noise_multiplier, rel=1e-6)
    assert announced.stated.epsilon == pytest.approx(fixed.stated.epsilon, rel=1e-6)
    assert announced.exposures[0].epsilon > fixed.exposures[0].epsilon
    assert announced.total_noise_multiplier < fixed.total_noise_multiplier
