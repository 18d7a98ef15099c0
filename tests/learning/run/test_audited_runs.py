"""What an audit has found goes with a run into its evidence, and a lie about it is called one."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import hubbub
from hubbub.core.disk import write_text
from hubbub.core.errors import IntegrityError, StudyError, UserError
from hubbub.core.privacy.canary_guesses import Rates
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.runs.local_backend import LocalBackend
from hubbub.core.verification.evidence.audit_result import (
    AUDIT,
    audit_finding,
    bounds_of,
    epsilon_shown,
    read_audit,
)
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import (
    NOT_VERIFIABLE,
    SIGNED,
    Finding,
    load,
    with_signature,
)
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import plain_roster, roster_of
from hubbub.desk.cli.main import main
from hubbub.desk.report.report_of_run import write_report
from hubbub.learning.runs import run_study as local
from run.finished import a_study
from run.test_evidence import wrongs

SCHEMA = json.loads(
    (resources.files("hubbub.core.verification.evidence") / "evidence.schema.json").read_text()
)
# A sound study is contradicted by chance once in 100,000 audits.
SURE = "0.99999"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study, its audit, and its run with that audit."""
    folder = tmp_path_factory.mktemp("audited")
    study, audit = folder / "study.toml", folder / "found.json"
    study.write_text(a_study(steps=3).toml, encoding="utf-8")
    few = ["--runs", "2", "--canaries", "500", "--confidence", SURE]
    assert main(["audit", str(study), *few, "--out", str(audit)]) == 0
    assert main(["run", str(study), "--out", str(folder / "run"), "--audit", str(audit)]) == 0
    return folder


@pytest.fixture
def lied(made: Path, tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], object]], str]:
    """What is wrong with the evidence once its audit was changed, and all was signed again."""

    def changed(change: Callable[[dict[str, Any]], object]) -> str:
        keys = Keys.generate("aggregator", "aggregator")
        content = load(made / "run" / FILE)
        change(content["audit"])
        return wrongs(_found(content, keys, tmp_path / "lie.json"))

    return changed


def _found(content: dict[str, Any], keys: Keys, path: Path) -> list[Finding]:
    """What is found in this content, signed by somebody in the aggregator's place."""
    roster = roster_of(content["roster"])
    parties = (keys.identity, *roster.parties[1:])
    content["roster"] = plain_roster(type(roster)(parties=parties))
    content.pop("signature", None)
    path.write_text(with_signature(content, keys.sign), encoding="utf-8")
    return check(path)


@pytest.mark.slow
def test_the_evidence_holds_the_audit_and_verify_says_so(made: Path) -> None:
    found, content = json.loads((made / "found.json").read_text()), load(made / "run" / FILE)
    assert content["audit"] == found == json.loads((made / "run" / AUDIT).read_text())
    assert AUDIT in content["files"]
    (claim,) = [one for one in check(made / "run" / FILE) if "an audit by hubbub" in one.claim]
    assert claim.verdict == SIGNED
    assert f"by hubbub {hubbub.__version__} of 2 runs with 500 canaries" in claim.claim
    assert all(one.holds for one in verify(made / "run"))
    assert "simulated 2 trainings of this study" in (made / "run" / "report.html").read_text()


@pytest.mark.slow
def test_the_evidence_is_as_its_schema_says_with_an_audit_and_without(made: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="checks the published schema")
    validator = jsonschema.Draft202012Validator(SCHEMA)
    content = json.loads((made / "run" / FILE).read_text())
    assert list(validator.iter_errors(content)) == []
    assert list(validator.iter_errors({**content, "audit": None})) == []
    for change in ({"runs": 1}, {"study": "00"}, {"more": 1}, {"confidence": 2}):
        assert list(validator.iter_errors({**content, "audit": {**content["audit"], **change}}))


@pytest.mark.slow
def test_an_unchanged_audit_holds_whoever_signs(lied: Callable[..., str]) -> None:
    assert lied(lambda _audit: None) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"epsilon_lower": 0.4}, "epsilon_lower"),
        ({"epsilon_lower": None}, "epsilon_lower is None"),
        ({"epsilon_audited": 0.45}, "epsilon_audited is 0.45"),
        ({"epsilon_audited": "0.5"}, "epsilon_audited is '0.5'"),
        ({"epsilon_audited": None}, "epsilon_audited is None"),
        ({"epsilon_promised": 0.1}, "epsilon_promised"),
        ({"adversary": "outsider"}, "adversary"),
        ({"delta": 1e-4}, "delta"),
        ({"relation": "substitute"}, "relation"),
        ({"contradicted": True}, "contradicted is True"),
        ({"contradicted": 0}, "contradicted is 0"),
        ({"study": "00" * 32}, "of another study"),
        ({"format": "hubbub audit 2"}, "another format"),
        ({"version": 7}, "TypeError"),
        ({"version": "1.0 (re-derived: all sound)"}, "words that are in no audit"),
        ({"seconds": "long"}, "finite number"),
        ({"seconds": -5}, "between 0 and"),
        ({"runs": 3}, "500 canaries, 1000 were judged"),
        ({"runs": 1}, "between 2 and"),
        ({"runs": "many"}, "whole number"),
        ({"runs": 2**53}, "between 2 and"),
        ({"canaries": 0}, "between 1 and"),
        ({"confidence": 1.0}, "between 0.5 and"),
        ({"more": "words"}, "has or lacks 'more'"),
        ({"rule": {"says": 7}}, "words that are in no audit"),
        ({"rule": {"true": 10**6}}, "more canaries than were there"),
        ({"rule": {"false": 10**6}}, "more canaries than were there"),
        ({"rule": {"true": 250, "positives": 250, "false": 0, "negatives": 250}}, "epsilon_lower"),
        ({"rule": {"negatives": -1}}, "between 0 and"),
        ({"rule": {"more": 1}}, "has or lacks 'more'"),
        ({"\x1b[2J": 1}, re.escape(r"has or lacks '\x1b[2J'")),
    ],
    ids=str,
)
def test_a_lie_about_the_audit_is_called_one(
    lied: Callable[..., str], changed: dict[str, Any], why: str
) -> None:
    def lie(audit: dict[str, Any]) -> None:
        rule = {**audit["rule"], **changed.get("rule", {})}
        audit |= {**changed, "rule": rule}

    assert re.search(why, lied(lie))


@pytest.mark.parametrize("name", ["delta", "rule", "runs", "contradicted", "version"])
def test_an_audit_with_something_left_out_is_wrong(lied: Callable[..., str], name: str) -> None:
    assert "audit" in lied(lambda audit: audit.pop(name))


def contradicting(found: dict[str, Any], steps: int = 3) -> dict[str, Any]:
    """An audit that has found every canary, with all that follows from it."""
    half = found["canaries"] // 2
    rule = {"true": half, "positives": half, "false": 0, "negatives": half}
    lower = epsilon_shown(a_study(steps=steps), Rates(**rule), found["confidence"])
    assert lower > found["epsilon_audited"]
    more = {"rule": {**rule, "says": "there"}, "epsilon_lower": lower, "contradicted": True}
    return {**found, **more}


@pytest.mark.slow
def test_evidence_with_an_audit_that_contradicts_it_is_wrong(lied: Callable[..., str]) -> None:
    assert "more was found than they may reveal" in lied(lambda a: a.update(contradicting(dict(a))))


@pytest.mark.slow
def test_no_run_begins_with_an_audit_that_contradicts_it(made: Path, tmp_path: Path) -> None:
    study, audit = hubbub.Study.load(made / "study.toml"), tmp_path / "bad.json"
    audit.write_text(json.dumps(contradicting(json.loads((made / "found.json").read_text()))))
    with pytest.raises(StudyError, match=r"once in 100000 audits: .* do not train with this"):
        hubbub.run(study, tmp_path / "run", audit=audit)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bad.json"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "hubbub audit 1"}', "\xff", "null"])
def test_a_file_of_anything_else_is_refused(made: Path, tmp_path: Path, text: str) -> None:
    made_plan = hubbub.plan(hubbub.Study.load(made / "study.toml"))
    (tmp_path / "it").write_text(text, encoding="latin-1")
    with pytest.raises(StudyError, match="make it again with hubbub audit --out"):
        read_audit(tmp_path / "it", made_plan)


@pytest.mark.slow
def test_an_audit_of_another_study_or_none_is_refused(made: Path, tmp_path: Path) -> None:
    other = a_study(steps=4)
    with pytest.raises(StudyError, match="of another study"):
        hubbub.run(other, tmp_path / "run", audit=made / "found.json")
    with pytest.raises(UserError, match="check the path"):
        hubbub.run(other, tmp_path / "run", audit=tmp_path / "none.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("out", "baseline"), [(None, None), ("run", "trusted")])
def test_a_run_that_leaves_no_evidence_takes_no_audit(
    made: Path, tmp_path: Path, out: str | None, baseline: str | None
) -> None:
    folder = None if out is None else tmp_path / out
    with pytest.raises(UserError, match="leaves evidence"):
        hubbub.run(a_study(steps=3), folder, baseline=baseline, audit=made / "found.json")


def _stopped(made: Path, out: Path, audit: Path | None) -> None:
    """A run that was killed when only the evidence was missing."""
    study = hubbub.Study.load(made / "study.toml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalBackend, "evidence", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            hubbub.run(study, out, audit=audit)


@pytest.mark.slow
def test_a_run_that_goes_on_still_has_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stopped(made, tmp_path / "run", made / "found.json")
    altered = (tmp_path / "run" / AUDIT).read_text()
    write_text(tmp_path / "run" / AUDIT, altered.replace('"runs": 2', '"runs": 4'))
    monkeypatch.setattr(local, "_finished", lambda *_given: pytest.fail("trained first"))
    with pytest.raises(StudyError, match="make it again"):
        hubbub.resume(tmp_path / "run")
    monkeypatch.undo()
    write_text(tmp_path / "run" / AUDIT, altered)
    hubbub.resume(tmp_path / "run")
    assert load(tmp_path / "run" / FILE)["audit"] == json.loads(altered)


@pytest.mark.slow
def test_a_run_without_one_says_so(made: Path, tmp_path: Path) -> None:
    hubbub.run(hubbub.Study.load(made / "study.toml"), tmp_path / "run")
    assert load(tmp_path / "run" / FILE)["audit"] is None
    assert "contains no audit" in (tmp_path / "run" / "report.html").read_text()
    (tmp_path / "run" / AUDIT).write_text((made / "found.json").read_text())
    assert any("added later" in one.verdict for one in verify(tmp_path / "run"))


def test_where_it_cannot_be_written_nothing_is_played(
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def played(*_: object, **__: object) -> None:
        pytest.fail("played")

    monkeypatch.setattr("hubbub.learning.audit.audit.audit", played)
    for out in (tmp_path, tmp_path / "none" / "audit.json"):
        assert main(["audit", str(made / "study.toml"), "--runs", "2", "--out", str(out)]) == 2
        assert "expected --out" in capsys.readouterr().err


@pytest.mark.slow
def test_what_was_found_is_shown_before_it_is_written(
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hubbub.desk.cli.audit_command.write_audit", full)
    few = ["--runs", "2", "--canaries", "50", "--confidence", SURE, "--json"]
    command = ["audit", str(made / "study.toml"), *few, "--out", str(tmp_path / "audit.json")]
    assert main(command) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["canaries"] == 50
    assert "No space left" in said.err


@pytest.mark.slow
def test_an_audit_of_a_model_whose_size_was_not_known_yet_is_taken(
    made: Path, tmp_path: Path
) -> None:
    """Ten million parameters are assumed then, which moves last digits of the bounds."""
    study = a_study(changes=(('kind = "logistic"', 'kind = "python:some:model"'),))
    found = json.loads((made / "found.json").read_text())
    before, run = (bounds_of(hubbub.plan(study, dimension=size)) for size in (None, 2**39))
    assert before != run
    moved = {name: value * (1 - 1e-4) for name, value in before.items()}
    (tmp_path / "audit.json").write_text(json.dumps({**found, **moved, "study": study.id.hex()}))
    taken = read_audit(tmp_path / "audit.json", hubbub.plan(study, dimension=2**39))
    assert {name: taken[name] for name in run} == run
    assert taken["rule"] == found["rule"]


@pytest.mark.slow
def test_an_audit_that_this_runs_plan_makes_a_contradiction_is_refused(
    made: Path, tmp_path: Path
) -> None:
    """The file's own bound is larger than the run's, and what was seen lies between the two."""
    plan = hubbub.plan(
        a_study(steps=3, changes=(("[model]", "standardise = { epsilon = 0.4 }\n\n[model]"),))
    )
    assert plan.epsilon_of_training < 0.3
    found = {**json.loads((made / "found.json").read_text()), "study": plan.study.id.hex()}
    rule, lower = _between(found, plan.study, plan.epsilon_of_training, 0.5)
    bounds = {"epsilon_audited": 0.5, "epsilon_promised": 0.5}
    text = json.dumps({**found, **bounds, "rule": rule, "epsilon_lower": lower})
    (tmp_path / "audit.json").write_text(text)
    with pytest.raises(StudyError, match="do not train"):
        read_audit(tmp_path / "audit.json", plan)


def _between(
    found: dict[str, Any], study: hubbub.Study, least: float, most: float
) -> tuple[dict[str, Any], float]:
    """Counts from which a bound within these two follows."""
    low, high = 20, 250
    while low <= high:  # more that are true show more
        true = (low + high) // 2
        rule = {"true": true, "positives": 250, "false": 20, "negatives": 250}
        lower = epsilon_shown(study, Rates(**rule), found["confidence"])
        if least < lower < most:
            return {**rule, "says": "there"}, lower
        low, high = (true + 1, high) if lower <= least else (low, true - 1)
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("bound", [None, 40.0, 0.51, -0.1, "0.5"])
def test_where_no_plan_can_be_made_an_audit_is_held_against_the_studys_epsilon(
    made: Path, bound: object
) -> None:
    study = a_study(changes=(('kind = "logistic"', 'kind = "python:some:model"'),))
    own = {"epsilon_audited": 0.4999, "epsilon_promised": 0.5, "study": study.id.hex()}
    found = {**json.loads((made / "found.json").read_text()), **own}
    assert audit_finding(found, study, None).verdict == SIGNED
    seen = contradicting(found, steps=6)
    assert not audit_finding(seen, study, None).holds
    with pytest.raises(StudyError, match="epsilon_audited"):
        audit_finding({**seen, "epsilon_audited": bound, "contradicted": False}, study, None)


@pytest.mark.slow
def test_the_file_and_the_evidence_say_the_same(made: Path, tmp_path: Path) -> None:
    """An aggregator that lists one audit and shows another has signed both."""
    content, keys = load(made / "run" / FILE), Keys.generate("aggregator", "aggregator")
    unlisted = {name: digest for name, digest in content["files"].items() if name != AUDIT}
    for lie in ({"audit": None}, {"files": unlisted}):
        assert "unlike what an audit has found" in wrongs(
            _found({**content, **lie}, keys, tmp_path / "lie.json")
        )
    folder = tmp_path / "run"
    shutil.copytree(made / "run", folder)
    other = json.loads((folder / AUDIT).read_text()) | {"seconds": 77.0}
    (folder / AUDIT).write_text(json.dumps(other))
    content["files"][AUDIT] = hashlib.sha256((folder / AUDIT).read_bytes()).hexdigest()
    _found(content, keys, folder / FILE)
    assert "audit.json is the audit that evidence.json contains" in wrongs(verify(folder))
    (folder / AUDIT).write_text("{")
    content["files"][AUDIT] = hashlib.sha256(b"{").hexdigest()
    _found(content, keys, folder / FILE)
    assert "audit.json is the audit that evidence.json contains" in wrongs(verify(folder))


@pytest.mark.slow
def test_a_ledger_that_stops_a_run_before_it_begins_leaves_no_folder_without_its_audit(
    made: Path, tmp_path: Path
) -> None:
    (tmp_path / "ledgers").mkdir()
    bad = tmp_path / "ledgers" / "cleveland.sqlite"
    bad.write_text("no ledger")
    study = hubbub.Study.load(made / "study.toml")
    with pytest.raises(IntegrityError):
        hubbub.run(study, tmp_path / "run", audit=made / "found.json")
    assert not (tmp_path / "run").exists()
    bad.unlink()
    hubbub.run(study, tmp_path / "run", audit=made / "found.json")
    assert load(tmp_path / "run" / FILE)["audit"]


def test_the_report_tells_no_audit_that_does_not_hold(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(made / "run", folder)
    content = load(folder / FILE)
    content["audit"]["epsilon_lower"] = 0.4
    _found(content, Keys.generate("aggregator", "aggregator"), folder / FILE)
    page = write_report(folder).read_text(encoding="utf-8")
    assert "epsilon_lower is 0.4" in page
    assert "trainings of this study" not in page


def test_a_file_that_is_too_large_for_an_audit_is_not_read(made: Path, tmp_path: Path) -> None:
    (tmp_path / "it").write_text(" " * 100_000)
    with pytest.raises(UserError, match="more than 65536 bytes"):
        read_audit(tmp_path / "it", hubbub.plan(hubbub.Study.load(made / "study.toml")))


def test_evidence_is_checked_where_no_plan_can_be_made(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(made / "run", folder)
    for module in ("replay.checking", "evidence.claims"):
        monkeypatch.setattr(f"hubbub.core.verification.{module}.remade", lambda *_: None)
    found = verify(folder)
    assert wrongs(found) == ""
    trusted = "\n".join(one.claim for one in found if one.verdict == NOT_VERIFIABLE)
    assert trusted.count("own code or data can say how many") == 1
    assert "follow from the transcripts" in trusted
    content, keys = load(folder / FILE), Keys.generate("aggregator", "aggregator")
    content["audit"]["epsilon_lower"] = 0.4
    content["plan"]["noise_multiplier"] = 0.001
    _found(content, keys, folder / FILE)
    said = wrongs(verify(folder))
    assert "epsilon_lower is 0.4" in said
    assert "plan.json is the plan of evidence.json" in said
    for odd in ([1], None):
        _found({**content, "study": odd}, keys, folder / FILE)
        assert "is about another study" in wrongs(verify(folder))


def test_nothing_in_an_audit_moves_the_cursor(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads((made / "found.json").read_text()) | {"\x1b[2J\nhubbub: accepted": 1}
    (tmp_path / "it.json").write_text(json.dumps(found))
    command = ["run", str(made / "study.toml"), "--out", str(tmp_path / "run")]
    assert main([*command, "--audit", str(tmp_path / "it.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()


@pytest.mark.slow
def test_an_audit_is_written_though_nobody_reads_what_it_says(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hung_up(*_given: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("hubbub.desk.cli.audit_command.table", hung_up)
    few = ["--runs", "2", "--canaries", "50", "--confidence", SURE]
    main(["audit", str(made / "study.toml"), *few, "--out", str(tmp_path / "audit.json")])
    assert json.loads((tmp_path / "audit.json").read_text())["canaries"] == 50


def test_no_audit_is_believed_of_what_cannot_be_audited(made: Path, tmp_path: Path) -> None:
    study = a_study(steps=3, changes=(("colluders = 1", 'colluders = 1\ntrust = "tee"'),))
    found = {**json.loads((made / "found.json").read_text()), "study": study.id.hex()}
    (tmp_path / "it.json").write_text(json.dumps(found))
    with pytest.raises(StudyError, match="for an audit"):
        read_audit(tmp_path / "it.json", hubbub.plan(study))
    with pytest.raises(StudyError, match="for an audit"):
        audit_finding(found, study, None)


@pytest.mark.slow
def test_an_audit_that_is_put_into_a_stopped_run_is_held_against_its_plan(
    made: Path, tmp_path: Path
) -> None:
    _stopped(made, tmp_path / "run", None)
    other = json.loads((made / "found.json").read_text())
    other["epsilon_audited"] *= 1 - 1e-4  # of a plan with other last digits
    (tmp_path / "run" / AUDIT).write_text(json.dumps(other))
    hubbub.resume(tmp_path / "run")
    assert all(one.holds for one in verify(tmp_path / "run"))
    assert load(tmp_path / "run" / FILE)["audit"]["runs"] == 2
