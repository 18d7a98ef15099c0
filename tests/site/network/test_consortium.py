"""Studies whose parties run apart give what they give in one process."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest import mock

import pytest

from hubbub.core.errors import StudyError
from hubbub.core.runs import run_folder
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.evidence_file import with_signature
from hubbub.core.verification.replay import checking
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import plain_roster
from hubbub.learning.audit.audit import audit
from hubbub.learning.runs.run_study import run
from network.consortium import HOSPITALS, Consortium, table


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2])
def test_a_consortium_trains_a_model(tmp_path, nodes):
    parties = Consortium.gather(tmp_path, table(HOSPITALS, nodes))
    result = parties.serve()
    assert result.final["step"] == 3
    told = [one.split()[:2] for one in parties.said if one.startswith(("step", "closed"))]
    assert [number for word, number in told if word == "step"] == ["1", "2", "3"]
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert [one["silo"] for one in evidence["silos"]] == sorted(HOSPITALS)
    assert all(one["attempts"] == 3 for one in evidence["silos"])


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Three hospitals, none of whom has begun, and an audit of their study."""
    parties = Consortium.gather(tmp_path_factory.mktemp("audited"), table(HOSPITALS[:3]))
    return parties, audit(parties.study, runs=2, canaries=50, confidence=0.99999).to_dict()


@pytest.mark.slow
def test_the_aggregator_puts_an_audit_into_the_evidence(audited):
    parties, found = audited
    parties.aggregator.keep_audit(parties.study.id, {**found, "study": "00" * 32})
    with pytest.raises(StudyError, match="make it again"):
        parties.serve()
    parties.aggregator.keep_audit(parties.study.id, found)
    parties.serve()
    assert json.loads((parties.home / "run" / "evidence.json").read_text())["audit"] == found
    assert all(one.holds for one in verify(parties.home / "run"))


@pytest.mark.slow
def test_an_audit_that_is_withdrawn_leaves_a_run_that_goes_on(audited, tmp_path):
    parties = Consortium.gather(tmp_path, table(HOSPITALS[:3]))
    found = {**audited[1], "study": parties.study.id.hex()}
    parties.aggregator.keep_audit(parties.study.id, found)
    with (
        mock.patch.object(run_folder, "write_evidence", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        parties.serve()
    assert (tmp_path / "run" / "audit.json").exists()
    parties.aggregator.withdraw(parties.study.id)
    parties.aggregator.approve(parties.study, parties.aggregator.roster)
    parties.serve()
    assert json.loads((tmp_path / "run" / "evidence.json").read_text())["audit"] is None


@pytest.mark.slow
def test_evidence_of_another_roster_than_the_study_names_is_wrong(tmp_path):
    parties = Consortium.gather(tmp_path, table(HOSPITALS[:3]))
    parties.serve()
    folder = tmp_path / "run"
    assert all(one.holds for one in check(folder / "evidence.json"))
    said = json.loads((folder / "evidence.json").read_text())
    strangers = Consortium.gather(tmp_path / "others", table(HOSPITALS[:3]))
    keys = strangers.aggregator.keys
    said["roster"] = plain_roster(strangers.aggregator.roster)
    del said["signature"]
    (folder / "evidence.json").write_text(with_signature(said, keys.sign))
    wrong = [one.claim for one in check(folder / "evidence.json") if not one.holds]
    assert any("which the study names" in claim for claim in wrong)


@pytest.mark.slow
def test_a_transcript_of_another_roster_than_the_study_names_is_wrong(tmp_path):
    parties = Consortium.gather(tmp_path, table(HOSPITALS[:3]))
    parties.serve()
    folder = tmp_path / "run"
    assert all(one.holds for one in verify(folder))
    strangers = Consortium.gather(tmp_path / "others", table(HOSPITALS[:3]))
    true, made = checking.read_header, strangers.aggregator.roster
    with mock.patch.object(checking, "read_header", lambda path: replace(true(path), roster=made)):
        wrong = [one.verdict for one in verify(folder) if not one.holds]
    assert any("which the study names, found another's" in claim for claim in wrong)


def test_a_study_that_names_its_roster_is_not_run_in_one_process(tmp_path):
    parties = Consortium.gather(tmp_path, table(HOSPITALS[:3]))
    with pytest.raises(StudyError, match=r"without parties\.roster in one process"):
        run(parties.study)
