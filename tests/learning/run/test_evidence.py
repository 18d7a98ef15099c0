"""Evidence: what can be re-derived is, what was signed is verified, and a lie is called one."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from importlib import resources
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubbub
from hubbub.core.errors import IntegrityError, UserError
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.session.in_process import Federation
from hubbub.core.session.offer import round_parameters_of
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.collecting import FILE, ONE_PROCESS, checked_part, part_of
from hubbub.core.verification.evidence.evidence_file import (
    NOT_VERIFIABLE,
    REDERIVED,
    SIGNED,
    Finding,
    difference,
    load,
    part_words,
    with_signature,
)
from hubbub.core.verification.evidence.silo_parts import SiloWords
from hubbub.core.verification.replay.checking import _round_parameters
from hubbub.core.verification.replay.replayed_session import ReplayedSession
from hubbub.core.verification.replay.session_findings import attempt_findings
from hubbub.core.verification.transcript.frame_records import Header
from hubbub.desk.cli.main import main
from hubbub.learning.runs.result import Result
from run.finished import a_study, finished

SCHEMA = json.loads(
    (resources.files("hubbub.core.verification.evidence") / "evidence.schema.json").read_text()
)


@cache
def _made() -> tuple[str, Result, Federation]:
    with TemporaryDirectory() as home:
        return _evidence_of_a_run(Path(home) / "run")


def _evidence_of_a_run(folder: Path) -> tuple[str, Result, Federation]:
    result, parties = finished(a_study(), folder)
    return (folder / FILE).read_text(encoding="utf-8"), result, parties


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """The evidence of a run, alone in a folder, as on another machine."""
    path = tmp_path / "theirs.json"
    path.write_text(_made()[0], encoding="utf-8")
    return path


@pytest.fixture
def lied(tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], object]], list[Finding]]:
    """What is found in evidence that the aggregator changed, and signed as it should be signed."""

    def changed(change: Callable[[dict[str, Any]], object]) -> list[Finding]:
        text, _, parties = _made()
        content = deepcopy(json.loads(text))
        del content["signature"]
        change(content)
        path = tmp_path / "lie.json"
        path.write_text(with_signature(content, parties.keys[0].sign), encoding="utf-8")
        return check(path)

    return changed


def wrongs(found: list[Finding]) -> str:
    return "\n".join(f"{one.claim}? {one.verdict}" for one in found if not one.holds)


@pytest.mark.slow
def test_the_evidence_of_a_run_is_as_its_schema_says(evidence: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="checks the published schema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    content = json.loads(evidence.read_text())
    assert list(validator.iter_errors(content)) == []
    for change in (
        lambda c: c.pop("trust"),
        lambda c: c["epsilon"].update(attempts=-1),
        lambda c: c["silos"][0]["ledger"].update(head="00"),
        lambda c: c.update(more=1),
    ):
        other = deepcopy(content)
        change(other)
        assert list(validator.iter_errors(other))


@pytest.mark.slow
def test_everything_holds_and_each_claim_says_how(evidence: Path) -> None:
    found = check(evidence)
    assert wrongs(found) == ""
    by = {
        verdict: [one.claim for one in found if one.verdict == verdict]
        for verdict in {one.verdict for one in found}
    }
    assert set(by) == {REDERIVED, SIGNED, NOT_VERIFIABLE}
    derived, signed, trusted = ("\n".join(by[one]) for one in (REDERIVED, SIGNED, NOT_VERIFIABLE))
    assert "epsilon is at most 0.5" in derived
    assert "after 6 attempts charged" in derived
    assert "the plan's numbers follow from the study" in derived
    for name in ("cleveland", "hungary", "switzerland", "va-long-beach"):
        assert f"{name}: 6 attempts charged" in signed
    assert ONE_PROCESS in trusted
    assert "keys in the roster" in trusted


def test_it_holds_what_the_run_says_it_holds(evidence: Path) -> None:
    content, (_, result, parties) = load(evidence), _made()
    plan = result.plan
    assert content["study"]["id"] == plan.study.id.hex()
    assert hubbub.Study.parse(content["study"]["toml"]).id == plan.study.id
    assert content["plan"] == plan.to_dict()
    claimed = {one["adversary"]: one["epsilon"] for one in content["epsilon"]["claimed"]}
    assert claimed[plan.stated.adversary] == plan.stated.epsilon
    assert len(claimed) == len(plan.exposures)
    assert content["versions"]["hubbub"] == hubbub.__version__
    assert [one["silo"] for one in content["silos"]] == list(plan.study.parties.names)
    keys = [base64.b64decode(one["verifying"]) for one in content["roster"]]
    assert keys == [one.verifying for one in parties.roster.parties]


def test_fewer_attempts_cost_less_and_are_counted_as_the_accountant_does(evidence: Path) -> None:
    from hubbub.core.verification.evidence.claims import spent

    plan = _made()[1].plan
    steps = plan.study.training.steps
    rows = [spent(plan, attempts) for attempts in range(steps + 1)]
    at = next(k for k, one in enumerate(plan.exposures) if one == plan.stated)
    values = [row[at]["epsilon"] for row in rows]
    assert values[0] == 0
    assert values == sorted(values)
    assert isclose(values[3], plan.epsilon_after(3))
    assert values[steps] == plan.stated.epsilon


@pytest.mark.slow
def test_every_flipped_byte_is_noticed(evidence: Path) -> None:
    content = evidence.read_bytes()
    chance = random.Random(8)
    for place in chance.sample(range(len(content)), 1500):
        altered = bytearray(content)
        altered[place] ^= chance.randrange(1, 256)
        evidence.write_bytes(altered)
        with pytest.raises(IntegrityError, match=r"theirs\.json .* get it again"):
            check(evidence)
    for other in (content[:-1], content + b" ", content.replace(b"\n ", b"\n  ", 1), b"", b"{}"):
        evidence.write_bytes(other)
        with pytest.raises(IntegrityError):
            check(evidence)
    evidence.write_bytes(content)
    check(evidence)


def cheaper(content: dict[str, Any]) -> None:
    for row in content["epsilon"]["claimed"]:
        row["epsilon"] = row["epsilon"] and row["epsilon"] * 0.9


def less_noise(content: dict[str, Any]) -> None:
    content["plan"]["noise_multiplier"] *= 0.99


def fewer_attempts(content: dict[str, Any]) -> None:
    content["epsilon"]["attempts"] = 3


def fewer_attempts_with_their_epsilon(content: dict[str, Any]) -> None:
    from hubbub.core.verification.evidence.claims import spent

    content["epsilon"] |= {"attempts": 3, "after_attempts": spent(_made()[1].plan, 3)}


def part_of_an_attempt(content: dict[str, Any]) -> None:
    nothing = [{**row, "epsilon": 0.0} for row in content["epsilon"]["after_attempts"]]
    content["epsilon"] |= {"attempts": 0.5, "after_attempts": nothing}
    content["silos"] = []


def true_attempts(content: dict[str, Any]) -> None:
    content["epsilon"] |= {"attempts": True}
    content["silos"] = []


def more_attempts(content: dict[str, Any]) -> None:
    content["epsilon"]["attempts"] = 7


def another_study(content: dict[str, Any]) -> None:
    content["study"]["toml"] = content["study"]["toml"].replace("epsilon = 0.5", "epsilon = 0.4")


def renamed(content: dict[str, Any]) -> None:
    content["study"]["name"] = "another name"


def less_charged(content: dict[str, Any]) -> None:
    content["silos"][2]["attempts"] = 1


def swapped_parts(content: dict[str, Any]) -> None:
    content["silos"][0]["silo"], content["silos"][1]["silo"] = "hungary", "cleveland"


def spoken_twice(content: dict[str, Any]) -> None:
    content["silos"].append(content["silos"][0])


def another_silo(content: dict[str, Any]) -> None:
    content["roster"][2]["name"] = "bucharest"


def no_adversary(content: dict[str, Any]) -> None:
    content["epsilon"]["after_attempts"].pop()


def another_model(content: dict[str, Any]) -> None:
    content["model"] = "00" * 32


def no_model(content: dict[str, Any]) -> None:
    content["model"] = None
    del content["files"]["model.safetensors"]


def another_format(content: dict[str, Any]) -> None:
    content["format"] = "hubbub evidence 2"


def no_silos(content: dict[str, Any]) -> None:
    content["silos"] = "none"


def no_plan(content: dict[str, Any]) -> None:
    content["plan"] = [1, 2]


def in_other_words(content: dict[str, Any]) -> None:
    """As another version may say what its reader should know: no lie, but nothing to be shown."""
    content["plan"]["warnings"] = ["be careful"]
    content["versions"]["hubbub"] = "0.1.9"


def of_another_count(content: dict[str, Any]) -> None:
    """Of the account alone, which another version may count in another way."""
    content["epsilon"]["claimed"][0]["adversary"] = "somebody"
    content["versions"]["hubbub"] = "0.1.9"


def no_toml(content: dict[str, Any]) -> None:
    content["study"]["toml"] = "[study"


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (cheaper, "epsilon is"),
        (less_noise, "noise_multiplier is"),
        (in_other_words, "hubbub 0.1.9 made it, and this is"),
        (of_another_count, "hubbub 0.1.9 made it, and this is"),
        (fewer_attempts, "are of 6 attempts at least"),
        (fewer_attempts_with_their_epsilon, "counted for 3 attempts only"),
        (part_of_an_attempt, "no whole number"),
        (true_attempts, "no whole number"),
        (more_attempts, "allows 6"),
        (another_study, "id is"),
        (renamed, "name is"),
        (less_charged, "not that of a silo"),
        (swapped_parts, "not that of a silo"),
        (spoken_twice, "speaks twice"),
        (another_silo, "bucharest"),
        (no_adversary, "follows from the study"),
        (another_model, "another digest"),
        (no_model, "there is none"),
        (another_format, "another"),
        (no_silos, "another kind"),
        (no_plan, "another kind"),
        (no_toml, "cannot be read"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_lie_that_the_aggregator_signs_is_called_one(
    lied: Callable[..., list[Finding]], lie: Callable[[dict[str, Any]], None], why: str
) -> None:
    assert why in wrongs(lied(lie))


def test_attempts_are_re_derived_only_where_every_silo_has_signed_its_last_word(
    lied: Callable[..., list[Finding]],
) -> None:
    """An aggregator that leaves silos out, and says fewer messages too, is believed in nothing."""

    def nobody(content: dict[str, Any]) -> None:
        fewer_attempts_with_their_epsilon(content)
        content["silos"] = []

    assert "are of 6 attempts at least" in wrongs(lied(nobody))

    def fewer_messages(content: dict[str, Any]) -> None:
        nobody(content)
        content["transcripts"][0]["frames"] = 15

    def one_is_missing(content: dict[str, Any]) -> None:
        content["silos"].pop()

    def of_other_keys(content: dict[str, Any]) -> None:
        content["silos"][0]["signature"] = content["silos"][1]["signature"]

    for lie in (fewer_messages, one_is_missing, of_other_keys):
        (said,) = [
            one for one in lied(lie) if "it is at most" in one.claim and "after" in one.claim
        ]
        assert said.verdict == SIGNED
        assert "this is the aggregator's count" in said.claim


def test_epsilon_is_re_derived_only_where_an_honest_silo_has_signed_for_the_study(
    lied: Callable[..., list[Finding]],
) -> None:
    """One silo may collude: of a study that only it has signed, nobody knows whether it was run."""
    for silos, verdict in ((2, REDERIVED), (1, SIGNED), (0, SIGNED)):
        found = lied(lambda content, silos=silos: content.update(silos=content["silos"][:silos]))
        (said,) = [one for one in found if one.claim.startswith("epsilon is at most")]
        assert said.verdict == verdict


def _says_that_it_charged(attempts: int, *silos: int) -> Callable[[dict[str, Any]], None]:
    """Last words of these silos that say so, rightly signed."""

    def change(content: dict[str, Any]) -> None:
        for silo in silos:
            part = content["silos"][silo - 1]
            part["attempts"] = attempts
            part["signature"] = _made()[2].keys[silo].sign(part_words(part)).hex()

    return change


def test_p15_a_count_that_so_few_silos_sign_as_may_lie_accuses_nobody_and_confirms_nothing(
    lied: Callable[..., list[Finding]],
) -> None:
    """One of four may collude: its word alone makes no run a lie; two cannot both be lying."""
    found = lied(_says_that_it_charged(1000, 2))
    assert wrongs(found) == ""
    (disputed,) = [one for one in found if "who is right about attempts" in one.claim]
    assert disputed.verdict == NOT_VERIFIABLE
    assert "hungary (1000)" in disputed.claim
    (said,) = [one for one in found if "it is at most" in one.claim and "after" in one.claim]
    assert said.verdict == SIGNED
    assert "hungary signed a final statement with a higher count" in said.claim
    assert "counted for 6 attempts only" in wrongs(lied(_says_that_it_charged(1000, 2, 3)))


@pytest.mark.parametrize("charged", [6, 5])
def test_p15_a_silo_that_has_answered_once_more_than_it_charged_is_named(charged: int) -> None:
    _, result, parties = _made()
    roster, plan = parties.roster, result.plan
    header = cast(Header, SimpleNamespace(purpose=plan.main.purpose, roster=roster))
    answers = Counter(dict.fromkeys(roster.silos, 6))
    played = ReplayedSession(begun=6, attempts=6, answers=answers)
    silos = [{"silo": roster.name(silo), "attempts": 6} for silo in roster.silos]
    silos[1]["attempts"] = charged
    content = {"epsilon": {"attempts": 6}, "silos": silos}
    found = attempt_findings(plan, [(header, played)], content)
    (said,) = [one for one in found if "charged what it answered" in one.claim]
    assert said.holds is (charged == 6)
    assert said.holds or "hungary answered more attempts than were charged" in said.verdict


def test_a_silo_that_does_not_speak_is_mentioned(lied: Callable[..., list[Finding]]) -> None:
    found = lied(lambda content: content["silos"].pop(1))
    assert wrongs(found) == ""
    (claim,) = [one.claim for one in found if "have not signed" in one.claim]
    assert "hungary" in claim


def test_what_the_aggregator_admits_is_shown_and_what_it_hides_is_said_all_the_same(
    lied: Callable[..., list[Finding]],
) -> None:
    found = lied(lambda content: content.update(trust=["that the moon is made of cheese"]))
    trusted = [one.claim for one in found if one.verdict == NOT_VERIFIABLE]
    assert "that the moon is made of cheese" in trusted
    assert any("keys in the roster" in claim for claim in trusted)


def test_a_silo_signs_for_its_own_words_only() -> None:
    keys = Keys.generate("s", "silo")
    said = part_of(
        keys,
        study=bytes(32),
        sessions=[bytes(16)],
        ledger_head=bytes(32),
        ledger_rows=3,
        attempts=2,
    )
    signature = bytes.fromhex(said["signature"])
    assert keys.identity.verifies(signature, part_words(said))
    for key, value in {"attempts": 1, "silo": "t", "sessions": [], "data_set": {}}.items():
        assert not keys.identity.verifies(signature, part_words({**said, key: value}))


def test_p15_a_word_after_which_a_silo_may_answer_more_is_no_last_word(lied):
    def change(content: dict[str, Any]) -> None:
        part = content["silos"][1]
        del part["closed"]
        part["signature"] = _made()[2].keys[2].sign(part_words(part)).hex()

    found = lied(change)
    assert "it is no last word" in wrongs(found)
    (said,) = [one for one in found if "it is at most" in one.claim and "after" in one.claim]
    assert said.verdict == SIGNED
    assert "hungary did not sign a final statement" in said.claim


@pytest.mark.parametrize(("silos", "vouched"), [(1, False), (2, True)])
def test_p15_a_session_is_vouched_for_by_one_silo_more_than_may_lie(silos, vouched):
    text, result, _ = _made()
    content = json.loads(text)
    assert result.plan.study.parties.colluders == 1
    words = SiloWords.of({**content, "silos": content["silos"][:silos]}, result.plan.study)
    assert bool(words.vouched) is vouched


def test_p4_a_transcript_of_another_roster_than_the_study_names_is_refused():
    _, result, parties = _made()
    made, roster = result.plan, Roster.of(parties.keys)
    header = Header(
        study=made.study.id,
        session=bytes(16),
        purpose="training",
        number=0,
        roster=roster,
        round_parameters=round_parameters_of(made.main),
    )
    for named, fits in (("", True), (roster.digest.hex(), True), ("00" * 32, False)):
        names = SimpleNamespace(id=made.study.id, parties=SimpleNamespace(roster=named))
        plan = cast(Any, SimpleNamespace(study=names, planned=made.planned))
        with nullcontext() if fits else pytest.raises(IntegrityError, match="whose keys these are"):
            _round_parameters(Path("a.frames"), header, plan)


@pytest.mark.parametrize(
    "change",
    [
        {"closed": False},
        {"closed": 1},
        {"unlisted": ["00"]},
        {"unlisted": "none"},
        {"unlisted": ["00" * 16] * 1025},
        {"sessions": ["11" * 16]},
        {"attempts": -1},
        {"data_set": {"epsilon": 1.0, "delta": 1e-5, "relation": "x" * 10**6}},
        {"more": 1},
    ],
    ids=lambda change: f"{change}"[:30],
)
def test_a_silos_word_that_is_no_last_word_is_not_taken_into_evidence(
    change: dict[str, Any],
) -> None:
    """Though the silo has signed it; nor can it make the file too long for anybody to read."""
    keys, sessions = Keys.generate("s", "silo"), [bytes(16)]
    given: dict[str, Any] = {"study": bytes(32), "sessions": sessions}
    said = part_of(
        keys, **given, unlisted=[b"u" * 16], ledger_head=bytes(32), ledger_rows=3, attempts=2
    )
    assert checked_part(said, keys.identity, **given) == said
    other = said | change
    other["signature"] = keys.sign(part_words(other)).hex()
    with pytest.raises(ValueError, match="expected"):
        checked_part(other, keys.identity, **given)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["format", "study", "epsilon", "plan", "silos", "transcripts", "files", "roster"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
            max_leaves=6,
        ),
    )
)
def test_evidence_of_anything_is_refused_or_called_wrong(
    tmp_path_factory: pytest.TempPathFactory, replaced: dict[str, Any]
) -> None:
    text, _, parties = _made()
    content = json.loads(text) | {k: v for k, v in replaced.items() if v not in ([], {})}
    del content["signature"]
    path = tmp_path_factory.mktemp("any") / FILE
    try:
        path.write_text(with_signature(content, parties.keys[0].sign), encoding="utf-8")
        found = check(path)
    except (IntegrityError, ValueError):
        return
    changed = any(content[key] != json.loads(text).get(key) for key in replaced)
    assert bool(wrongs(found)) or not changed or set(replaced) <= {"transcripts", "files"}


NO_TORCH = """
import sys
sys.modules["torch"] = None
sys.modules["safetensors"] = None
from pathlib import Path
from hubbub.core.verification.evidence.claims import check
assert all(one.holds for one in check(Path(sys.argv[1])))
print("holds")
"""


@pytest.mark.slow
def test_another_machine_needs_no_torch_and_no_run_folder(evidence: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH, str(evidence)],
        capture_output=True,
        text=True,
        check=False,
        cwd=elsewhere,
    )
    assert done.stderr == ""
    assert done.stdout == "holds\n"


def test_nothing_that_a_study_names_is_imported(
    lied: Callable[..., list[Finding]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = _made()[1].plan.study.as_toml()
    trapped = text.replace('"hubbub.datasets:heart"', '"python:trap:records"').replace(
        'kind = "logistic"', 'kind = "python:trap:factory"'
    )
    study = hubbub.Study.parse(trapped)

    def change(content: dict[str, Any]) -> None:
        content["study"] = {"name": study.name, "id": study.id.hex(), "toml": trapped}

    lied(change)
    assert "trap" not in sys.modules


def test_nothing_that_a_study_names_is_opened(
    lied: Callable[..., list[Finding]], tmp_path: Path
) -> None:
    """Whoever opened the pipe would wait for ever; data that a study names are its parties'."""
    pipe = tmp_path / "test.csv"
    os.mkfifo(pipe)
    text = _made()[1].plan.study.as_toml()
    source = 'source = "hubbub.datasets:heart"'
    files = f'files = "{{name}}.csv"\ntest = "{pipe}"\ntarget = "y"'
    standardised = files + "\nstandardise = { bound = 5.0, epsilon = 0.1 }"
    assert source in text
    for data in (files, standardised):
        study = hubbub.Study.parse(text.replace(source, data))

        def change(content: dict[str, Any], study: hubbub.Study = study) -> None:
            content["study"] = {"name": study.name, "id": study.id.hex(), "toml": study.as_toml()}

        assert any("the plan's numbers follow" in one.claim for one in lied(change))


@pytest.mark.parametrize("dimension", [None, 27.0, "27", -1, [27]])
def test_a_plan_that_does_not_say_how_large_its_model_is_is_wrong(
    lied: Callable[..., list[Finding]], dimension: object
) -> None:
    def change(content: dict[str, Any]) -> None:
        content["plan"]["dimension"] = dimension

    assert any(not one.holds and "plan" in one.claim for one in lied(change))


@pytest.mark.parametrize(
    ("found", "made", "same"),
    [
        (1.0, 1.0 + 1e-9, True),
        (1.0, 1.0 + 1e-5, False),
        (3, 3.0, True),
        (3.0, 3, False),
        (3, 4, False),
        (True, 1, False),
        (None, 0.0, False),
        ({"a": [1, {"b": 2.0}]}, {"a": [1, {"b": 2.0000000001}]}, True),
        ({"a": [1, {"b": 2.0}]}, {"a": [1, {"b": 2.1}]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1], [1, 2], False),
        ("x", "x", True),
    ],
)
def test_numbers_agree_to_six_digits_and_the_rest_exactly(
    found: object, made: object, same: bool
) -> None:
    assert (difference(found, made) == "") == same


def test_the_command_checks_a_file_alone(
    evidence: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(evidence), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"]
    evidence.write_bytes(evidence.read_bytes().replace(b"hungary", b"hungarx", 1))
    assert main(["verify", str(evidence)]) == 1
    assert "get it again" in capsys.readouterr().err


def test_a_missing_file_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="check the path"):
        check(tmp_path / FILE)
