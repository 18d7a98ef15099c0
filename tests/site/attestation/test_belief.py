"""`trust = "tee"`: what it costs, what is shown of it, and that it runs from end to end."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from importlib import resources
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from tests.site.attestation.parties import role_of, study_of

import hubbub
from hubbub import Study, plan
from hubbub.core.errors import StudyError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.message_sizes import HEADER_BYTES, SIGNATURE_BYTES
from hubbub.core.session.offer import RefusedError
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.evidence_file import NOT_VERIFIABLE, with_signature
from hubbub.learning.runs.run_study import resume
from hubbub.site.network.demo import attested

TEE = ',trust="tee"'
IDENTITY = "hubbub.core.protocol.primitives.identity.Identity.verifies"
HOSPITALS = ("cleveland", "hungary", "switzerland")
SILOS = {"silo": role_of()}
ALL = {"aggregator": role_of(), **SILOS}


def test_shares_are_those_of_the_paper_and_both_epsilons_are_shown() -> None:
    """sigma^2 / N each; without the belief the aggregator with one silo knows a share of it."""
    made = plan(study_of(SILOS, parties=TEE))
    assert made.main.share_sigma == pytest.approx(made.noise_multiplier / sqrt(3))
    named = {one.adversary: one for one in made.exposures}
    believed, other = (
        named["aggregator + 0 silos"],
        named["aggregator + 0 silos, no enclave holding"],
    )
    assert believed.epsilon <= 1.0 < other.epsilon
    (said,) = [one for one in made.warnings if one.startswith("trust")]
    assert f"{believed.epsilon:.4g}" in said
    assert f"{other.epsilon:.4g}" in said


def test_broken_enclaves_weaken_the_promise_as_colluders_do_where_none_is_believed() -> None:
    """k broken of N: the noise left is that of N - k shares, and epsilon follows from it."""
    made = plan(study_of(SILOS, parties=TEE))
    broken = [one for one in made.exposures if "broken" in one.adversary]
    assert [one.known_shares for one in broken] == [2]
    for one in broken:
        left = made.noise_multiplier * sqrt((3 - one.known_shares) / 3)
        assert one.noise_multiplier == pytest.approx(left)
        alone = hubbub.epsilon(
            noise_multiplier=left, sample_rate=1.0, steps=2, delta=1e-5, sampling="full-batch"
        )
        assert alone.lower <= one.epsilon <= alone.upper * 1.001 + 1e-6


def test_evidence_lowers_no_noise_by_itself() -> None:
    assert plan(study_of(ALL)).noise_multiplier == plan(study_of({})).noise_multiplier
    assert plan(study_of(ALL)).main.share_sigma == plan(study_of({})).main.share_sigma


def test_without_evidence_of_silos_the_belief_is_refused() -> None:
    for asked in ({}, {"aggregator": role_of()}):
        study = study_of(asked, parties=TEE)
        assert any("it can be planned" in one for one in plan(study).warnings)
        with pytest.raises(StudyError, match=r"attestation\.silo"):
            hubbub.run(study)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that believes."""
    folder = tmp_path_factory.mktemp("belief") / "run"
    hubbub.run(study_of(ALL, nodes=2, parties=TEE, silos=HOSPITALS), folder)
    return folder


@pytest.mark.slow
def test_a_run_that_believes_leaves_evidence_and_says_in_red_what_it_is_worth(ran: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="checks the published schema")
    found = check(ran / "evidence.json")
    assert all(one.holds for one in found)
    assert any("the evidence holds of every aggregator (software), silo" in o.claim for o in found)
    assert any("shows nothing" in one.claim for one in found)
    folder = resources.files("hubbub.core.verification.evidence")
    schema = json.loads((folder / "evidence.schema.json").read_text())
    jsonschema.validate(json.loads((ran / "evidence.json").read_text()), schema)
    page = (ran / "report.html").read_text(encoding="utf-8")
    assert page.count('class="alarm"') == 2
    assert "anybody can make such evidence" in page


def test_the_ledgers_rows_hold_the_hashes_and_survive_being_read(ran: Path) -> None:
    with Ledger(ran.parent / "ledgers" / "cleveland.sqlite") as ledger:
        ledger.verify()
        rows = list(ledger.entries())
    assert {len(one) for row in rows for one in row.attested} == {32}
    assert {len(row.attested) for row in rows} == {3}


def changed(ran: Path, where: Path, change: Any) -> list[str]:
    """What is wrong with evidence that an aggregator has changed and signed anew."""
    said = json.loads((ran / "evidence.json").read_text())
    del said["signature"]
    keys = Keys.generate("aggregator", "aggregator")
    change(said)
    (where / "evidence.json").write_text(with_signature(said, keys.sign))
    return [one.claim for one in check(where / "evidence.json") if not one.holds]


def test_an_aggregator_that_keeps_the_evidence_back_is_found_out(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IDENTITY, lambda *_: True)
    assert "parties showed evidence as the study asks" in changed(
        ran, tmp_path, lambda said: said.pop("attested")
    )
    wrong = changed(ran, tmp_path, lambda said: said["attested"].clear())
    assert "parties showed evidence in every session with an attempt" in wrong

    def unheard(said: Any) -> None:  # nor are there messages in which it could have been
        said["attested"].clear()
        for session in said["transcripts"]:
            session["frames"] = 1

    assert "parties showed evidence in every session with an attempt" in changed(
        ran, tmp_path, unheard
    )

    def later(said: Any) -> None:  # evidence of another session under this one's name
        said["attested"][0]["frames"].pop()

    assert any(claim.startswith("in the session") for claim in changed(ran, tmp_path, later))


def test_p29_evidence_of_fewer_silos_than_a_session_has_is_none(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IDENTITY, lambda *_: True)

    def fewer(said: Any) -> None:
        frames = said["attested"][0]["frames"]
        roll = b64decode(frames[1])
        bits = slice(HEADER_BYTES, len(roll) - SIGNATURE_BYTES)
        frames[1] = b64encode(roll[: bits.start] + b"\xc0" + roll[bits.stop :]).decode()

    assert changed(ran, tmp_path, fewer)
    (found,) = [one for one in check(tmp_path / "evidence.json") if not one.holds]
    assert "silos in a session, got 2" in found.verdict


@pytest.mark.slow
def test_a_session_that_so_few_silos_name_as_may_lie_makes_no_run_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came to no round, and has no evidence; of two who name it one is honest."""
    text = study_of(ALL, nodes=2, parties=TEE, silos=HOSPITALS).as_toml()
    ran = tmp_path / "run"
    hubbub.run(Study.parse(text.replace("colluders=0", "colluders=1")), ran)
    monkeypatch.setattr(IDENTITY, lambda *_: True)
    claim = "parties showed evidence in every session with an attempt"

    def named_by(silos: int) -> Any:
        def change(said: Any) -> None:
            others = {"file": "transcripts/ab.bin", "session": "ab" * 16, "frames": 3}
            said["transcripts"].append({**said["transcripts"][0], **others})
            for part in said["silos"][:silos]:
                part["sessions"].append("ab" * 16)

        return change

    assert changed(ran, tmp_path, named_by(1)) == []
    (said,) = [one for one in check(tmp_path / "evidence.json") if claim in one.claim]
    assert said.verdict == NOT_VERIFIABLE
    assert "so few silos as may lie" in said.claim
    assert claim in changed(ran, tmp_path, named_by(2))


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on_with_fresh_evidence(tmp_path: Path) -> None:
    def stop(step: int, _row: Any) -> None:
        raise KeyboardInterrupt

    study = study_of(ALL, parties=TEE, silos=HOSPITALS)
    with pytest.raises(KeyboardInterrupt):
        hubbub.run(study, tmp_path / "run", progress=stop)
    assert resume(tmp_path / "run").final["step"] == 2
    kept = json.loads((tmp_path / "run/evidence.json").read_text())["attested"]
    assert len({one["session"] for one in kept}) == 2
    assert all(one.holds for one in check(tmp_path / "run/evidence.json"))


@pytest.mark.slow
def test_a_run_of_another_build_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    study = study_of({"silo": role_of("ab" * 48)}, parties=TEE, silos=HOSPITALS)
    with pytest.raises(RefusedError, match="cleveland: evidence fails the rule “measurement”"):
        hubbub.run(study, tmp_path / "run")
    with Ledger(tmp_path / "ledgers" / "cleveland.sqlite") as ledger:
        assert list(ledger.entries()) == []


def test_the_demo_can_be_made_to_believe() -> None:
    made = Study.parse(attested(study_of({}, nodes=2).as_toml()))
    assert made.parties.trust == "tee"
    assert set(made.attestation.asked()) == {"aggregator", "node", "silo"}
