"""Attempts of a run: transcripts, evidence and what silos say, held against each other."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from math import nextafter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from hubbub import VERSION
from hubbub.core.errors import IntegrityError
from hubbub.core.planning.exposure import stated_adversary
from hubbub.core.planning.query import Turn
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.study.ask import asks
from hubbub.core.study.parties import Parties, Privacy
from hubbub.core.verification.evidence import silo_parts
from hubbub.core.verification.evidence.claims import _asked_claims, by_version
from hubbub.core.verification.evidence.collecting import digests_of, part_of
from hubbub.core.verification.evidence.evidence_file import (
    NOT_VERIFIABLE,
    REDERIVED,
    SIGNED,
    SPENDING,
    Finding,
    difference,
    judged,
)
from hubbub.core.verification.evidence.silo_parts import (
    SiloWords,
    _of_every_session,
    _wrong_in,
    attested_findings,
    paid_for,
)
from hubbub.core.verification.replay import checking
from hubbub.core.verification.replay.checking import (
    METRICS,
    NOTES,
    _beside,
    _uncomputed,
    altered_files,
    notes_findings,
    row_findings,
    score_findings,
    spending_findings,
)
from hubbub.core.verification.replay.replayed_session import ReplayedSession, gradient_of
from hubbub.core.verification.replay.session_findings import (
    STANDARDISED,
    attempt_findings,
    attempts_paid,
    attempts_shown,
    query_count_findings,
    told_findings,
)
from hubbub.core.verification.transcript.frame_records import plain_roster

NAMES = ("aggregator", "a", "b", "c")


def planned(purpose: str = "training", steps: int = 4, epoch: int = 1) -> Any:
    mechanism = SimpleNamespace(epoch=epoch, steps=steps, due_by=lambda counted: counted // 2)
    query = SimpleNamespace(takes_raw_records=False)
    return SimpleNamespace(purpose=purpose, mechanism=mechanism, query=query)


def a_plan(steps: int = 4, colluders: int = 1, beside: tuple[Any, ...] = ()) -> Any:
    main = planned(steps=steps)
    return SimpleNamespace(
        main=main,
        mechanism=main.mechanism,
        beside=beside,
        study=SimpleNamespace(parties=SimpleNamespace(colluders=colluders)),
    )


def session(attempts: int, purpose: str = "training", begun: int | None = None) -> Any:
    """One whose attempts all three silos have answered."""
    roster = SimpleNamespace(name=lambda index: NAMES[index])
    played = ReplayedSession(
        attempts=attempts,
        answered_by={number: number for number in range(1, attempts + 1)},
        begun=attempts if begun is None else begun,
        answers=Counter(dict.fromkeys((1, 2, 3), attempts)),
    )
    return SimpleNamespace(purpose=purpose, roster=roster), played


def metric_plan() -> Any:
    """Every attempt of four costs an epsilon of 1."""
    plan = a_plan()
    plan.epsilon_after = float
    return plan


def evidence(attempts: int, *silos: dict[str, Any]) -> dict[str, Any]:
    charged = [{"silo": name, "attempts": attempts, "unlisted": []} for name in NAMES[1:]]
    return {"epsilon": {"attempts": attempts}, "silos": [*silos] or charged}


def wrongs(found: Any) -> list[str]:
    return [one.claim for one in found if not one.holds]


def test_p15_a_silos_word_counts_for_its_study_and_for_sessions_with_transcripts() -> None:
    keys, study, session = Keys.generate("a", "silo"), bytes(32), bytes(16)

    def wrong_with(study: bytes = study, sessions: tuple[bytes, ...] = (session,)) -> str:
        part = part_of(
            keys,
            study=study,
            sessions=sessions,
            ledger_head=bytes(32),
            ledger_rows=2,
            attempts=1,
        )
        this: Any = SimpleNamespace(id=bytes(32))
        return _wrong_in(part, {"a": keys.identity}, {session.hex()}, this)

    assert wrong_with() == ""
    assert wrong_with(study=bytes(31) + b"1") == "it is about another study"
    odd = "it names a session of which there is no transcript"
    assert wrong_with(sessions=(session, bytes(15) + b"1")) == odd


def test_evidence_of_a_session_without_a_transcript_is_none_of_the_run() -> None:
    roster = plain_roster(Roster.of([Keys.generate("a", "aggregator")]))
    shown = {"session": bytes(16).hex(), "frames": []}
    content = {"roster": roster, "attested": [shown], "transcripts": []}
    study: Any = SimpleNamespace(attestation=SimpleNamespace(to_dict=dict))
    words = SiloWords(wrongs=(), doubtful=())
    found = [one.verdict for one in attested_findings(content, study, words)]
    assert "wrong: of one there is no transcript" in found


@pytest.mark.parametrize(("frames", "is_wrong"), [(6, False), (7, True)])
def test_a_session_of_more_frames_than_a_set_up_has_needs_evidence(
    frames: int, *, is_wrong: bool
) -> None:
    """Though no silo names it: so many messages are of rounds."""
    roster = Roster.of([Keys.generate("a", "aggregator"), Keys.generate("b", "silo")])
    transcripts = [{"session": bytes(16).hex(), "frames": frames}]
    content = {"roster": plain_roster(roster), "attested": [], "transcripts": transcripts}
    found = _of_every_session(content, [], SiloWords(wrongs=(), doubtful=()), [])
    assert found.verdict.startswith("wrong") == is_wrong


def test_p9_a_silo_may_have_charged_to_the_end_of_an_epoch_that_was_begun() -> None:
    main: Any = SimpleNamespace(mechanism=SimpleNamespace(epoch=4))
    with mock.patch.object(silo_parts, "main_of", return_value=main):
        assert [paid_for(attempts, main) for attempts in (0, 5, 8)] == [0, 8, 8]


def test_a_transcript_of_another_study_is_none_of_the_run() -> None:
    header: Any = SimpleNamespace(study=bytes(31) + b"1", round_parameters=None)
    plan: Any = SimpleNamespace(study=SimpleNamespace(id=bytes(32)))
    with pytest.raises(IntegrityError, match="to be of this study, found another's"):
        checking._round_parameters(Path("a.frames"), header, plan)


def test_a_collection_is_not_believed_about_what_is_asked_at_the_released_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Silos of a collection sum at their first weights."""
    player = object()
    monkeypatch.setattr(checking, "_round_parameters", lambda *_: None)
    monkeypatch.setattr(checking, "other_player", lambda *_: player)
    header: Any = SimpleNamespace(purpose="validation")

    def plan(is_asked_last: bool) -> Any:
        query = SimpleNamespace(is_asked_last=is_asked_last)
        return SimpleNamespace(planned=lambda _: SimpleNamespace(query=query))

    assert checking._replay(Path("a"), header, plan(False), None) is player
    with pytest.raises(IntegrityError, match="began once the model was released"):
        checking._replay(Path("a"), header, plan(True), None)


@pytest.mark.parametrize(("made", "fits"), [(4, True), (5, False)])
def test_transcripts_have_no_more_attempts_than_the_study_allows(made: int, fits: bool) -> None:
    found = list(attempt_findings(a_plan(), [session(made)], None))
    assert [one.holds for one in found] == [fits]


def test_no_attempt_of_the_transcripts_is_missing_from_the_evidence() -> None:
    assert wrongs(attempt_findings(a_plan(), [session(3)], evidence(3))) == []
    (why, *_) = wrongs(attempt_findings(a_plan(), [session(3)], evidence(2)))
    assert why == "no attempt of the transcripts is missing from the epsilon of the evidence"


@pytest.mark.parametrize(
    ("silos", "shown"),
    [
        (("a", "b"), True),
        (("a",), False),  # as many as may lie
        ((), False),
    ],
)
def test_an_attempt_without_a_transcript_is_wrong_once_more_silos_say_so_than_may_lie(
    silos: tuple[str, ...], shown: bool
) -> None:
    parts = [
        {"silo": name, "attempts": 3 if name in silos else 2, "unlisted": []} for name in NAMES[1:]
    ]
    found = list(attempt_findings(a_plan(), [session(2)], evidence(3, *parts)))
    (missing,) = [one for one in found if "1 are missing" in f"{one.claim} {one.verdict}"]
    assert missing.holds != shown
    assert missing.verdict == NOT_VERIFIABLE or shown
    # They may have answered it in a session of which there is no transcript.
    apart = [{**part, "unlisted": ["00"]} for part in parts]
    assert wrongs(attempt_findings(a_plan(), [session(2)], evidence(3, *apart))) == []


@pytest.mark.parametrize(("asked", "verdict"), [(1, NOT_VERIFIABLE), (2, REDERIVED), (3, "wrong")])
def test_what_is_asked_beside_the_training_is_asked_as_often_as_it_is_due(
    asked: int, verdict: str
) -> None:
    plan = a_plan(beside=(planned("evaluation"),))
    found = list(query_count_findings(plan, [session(asked, "evaluation")], evidence(4)))
    assert found[0].verdict.startswith(verdict)
    assert all(one.holds for one in found) == (verdict != "wrong")


def test_p9_a_row_pays_for_an_epoch_that_was_begun_and_the_last_one_is_not_shown_whole() -> None:
    one = planned(epoch=3)
    for attempts, paid, shown in (((4, 2), 9, 8), ((3, 3), 6, 6), ((0, 4), 6, 4), ((), 0, 0)):
        done = [session(each) for each in attempts]
        assert attempts_paid(one, done) == paid
        assert attempts_shown(one, done) == shown
    assert attempts_paid(one, [session(4, "evaluation")]) == 0


@pytest.mark.parametrize("collected", [True, False])
def test_features_were_standardised_as_silos_were_told(tmp_path: Path, collected: bool) -> None:
    """Of a collection silos have signed it; of a session only the aggregator has."""
    plan: Any = SimpleNamespace(
        planned=planned, study=SimpleNamespace(data=SimpleNamespace(standardise=object()))
    )
    scaling = SimpleNamespace(to_json=lambda: "{}")
    told: Any = ReplayedSession(
        offer=SimpleNamespace(standardisation=scaling), is_collection=collected
    )
    header: Any = SimpleNamespace(purpose="training")

    def found() -> list[Finding]:
        return list(told_findings(tmp_path, plan, "one", header, told))

    assert [one.holds for one in found()] == [False]  # nothing was kept
    (tmp_path / STANDARDISED).write_text("{}")
    assert [one.verdict for one in found()] == [REDERIVED if collected else SIGNED]
    (tmp_path / STANDARDISED).write_text('{"shift": []}')
    assert [one.holds for one in found()] == [False]


@pytest.mark.parametrize(
    ("epsilons", "fits"),
    [
        ((1.0, 2.0, 4.0), True),
        ((1.0, 2.5, 4.0), False),
        ((1.0, 2.0, 9.0), False),
        ((0.9, 2.0, 4.0), False),
        # As much as its step had spent, and not as the attempts that the evidence counts.
        ((1.0, 2.0, 3.0), False),
        ((1.0 - 1e-7, 2.0, 4.0), False),  # less than was spent, in no digit
        ((1.0, 2.0, float("nan")), False),
        ((1.0, 2.0, "nan"), False),  # which is JSON, and a number for Python
    ],
)
def test_every_row_of_metrics_tells_what_was_spent_by_then(
    tmp_path: Path, epsilons: tuple[float | str, ...], fits: bool
) -> None:
    rows = [json.dumps({"step": step, "epsilon": one}) for step, one in enumerate(epsilons, 1)]
    (tmp_path / METRICS).write_text("\n".join(rows))
    (found,) = row_findings(tmp_path / METRICS, metric_plan(), evidence(4), [session(4)])
    assert found.holds == fits


@pytest.mark.parametrize(
    ("epsilons", "fits"),
    [
        ((1.0, 3.0, 4.0), True),
        ((2.0, 4.0, 4.0), True),
        ((1.0, 2.9, 4.0), False),
        ((2.1, 4.0, 4.0), False),
    ],
)
def test_a_row_of_metrics_may_count_an_attempt_of_which_nothing_says_when_it_was_charged(
    tmp_path: Path, epsilons: tuple[float, ...], fits: bool
) -> None:
    rows = [json.dumps({"step": step, "epsilon": one}) for step, one in enumerate(epsilons, 1)]
    (tmp_path / METRICS).write_text("\n".join(rows))
    # The second attempt gave no sum, and of one of four there is no trace.
    sessions = [session(2), session(1)]
    sessions[0][1].answered_by, sessions[1][1].answered_by = {1: 1}, {2: 1}
    evaluations = session(9, "evaluation")
    (found,) = row_findings(
        tmp_path / METRICS, metric_plan(), evidence(4), [*sessions, evaluations]
    )
    assert found.holds == fits


@pytest.mark.parametrize(
    ("steps", "scores", "verdicts"),
    [
        ((1, 2, 2), {}, [REDERIVED]),
        ((1, 2, 2), {"accuracy": 0.9}, [REDERIVED, NOT_VERIFIABLE]),
        ((2, 1), {}, ["wrong"]),
        ((1, 5), {}, ["wrong"]),  # of 4
        ((1, 1, 2), {}, ["wrong"]),
        ((1, 2, 2, 2), {}, ["wrong"]),
        ((4, 4), {}, ["wrong"]),  # with the same epsilon
    ],
)
def test_steps_of_metrics_go_up_and_what_else_they_say_is_told_as_not_computed(
    tmp_path: Path, steps: tuple[int, ...], scores: dict[str, float], verdicts: list[str]
) -> None:
    plan = metric_plan()
    epsilons = [*map(float, steps[:-1]), 4.0]
    rows = [
        json.dumps({"step": step, "epsilon": epsilon} | scores)
        for step, epsilon in zip(steps, epsilons, strict=True)
    ]
    (tmp_path / METRICS).write_text("\n".join(rows))
    found = list(row_findings(tmp_path / METRICS, plan, evidence(4), [session(4)]))
    assert [one.verdict.split(":")[0] for one in found] == verdicts
    assert {one.files for one in found} == {(METRICS,)}


def scored(rounds: dict[int, bytes], *, unseen: int = 0) -> ReplayedSession:
    """A session whose sums, asked at these models, are as large as their rounds."""
    sums = {number: np.array([float(number)]) for number in rounds}
    return ReplayedSession(sums=sums, asked_at=rounds, unseen=unseen)


MODELS = {1: b"after 2", 2: b"after 4"}


@pytest.mark.parametrize(
    ("rows", "sessions", "verdict"),
    [
        ({2: 20.0, 3: None, 4: 40.0}, [scored(MODELS)], REDERIVED),
        ({2: 20.000000001, 4: 40.0}, [scored(MODELS)], REDERIVED),
        # A row that was lost in an interruption is none, and the other sum is of a session after.
        ({4: 40.0}, [scored({1: MODELS[1]}), scored({2: MODELS[2]})], NOT_VERIFIABLE),
        ({2: 20.0}, [scored(MODELS)], NOT_VERIFIABLE),
        ({2: None, 4: 40.0}, [scored(MODELS)], "wrong"),
        ({2: 20.1, 4: 40.0}, [scored(MODELS)], "wrong"),
        ({2: 40.0, 4: 20.0}, [scored(MODELS)], "wrong"),
        ({2: 20.0, 3: 20.0}, [scored(MODELS)], "wrong"),
        ({2: 20.0}, [], "wrong"),
        ({2: "20.0"}, [scored(MODELS)], "wrong"),
        ({2: 20.0}, [scored({1: b"another"})], "wrong"),
        ({2: 20.0}, [scored({2: MODELS[1]})], "wrong"),
        ({2: 20.0}, [scored({1: MODELS[1]}), scored({1: MODELS[1]})], "wrong"),
        ({2: 1e9}, [scored({}, unseen=1)], NOT_VERIFIABLE),
    ],
)
def test_scores_in_metrics_are_those_of_the_sums_at_the_models_of_their_steps(
    tmp_path: Path, rows: dict[int, Any], sessions: list[ReplayedSession], verdict: str
) -> None:
    query = SimpleNamespace(
        turn=Turn.BETWEEN,
        numbers=1,
        scores_of=lambda total, study, sigma: {"held_back": float(total[0]) * sigma},
    )
    mechanism = SimpleNamespace(every=2, steps=4)
    asked: Any = SimpleNamespace(
        purpose="evaluation", query=query, mechanism=mechanism, total_sigma=20.0
    )
    plan: Any = SimpleNamespace(
        beside=(asked,),
        study=None,
        mechanism=mechanism,
        main=planned(),
        epsilon_after=lambda _: 1.0,
    )
    main: Any = SimpleNamespace(
        judged=judged, states_after=lambda step: {f"after {step}".encode(), b"the result"}
    )
    done: Any = [(SimpleNamespace(purpose="evaluation"), session) for session in sessions]
    path = tmp_path / METRICS
    path.write_text(
        "".join(
            json.dumps({"step": step, "epsilon": 1.0} | ({"held_back": one} if one else {})) + "\n"
            for step, one in rows.items()
        )
    )
    found = score_findings(path, plan, asked, main, done)
    assert found.verdict.split(":")[0] == verdict
    # Nothing else is in the rows, and nothing is told as not computed that was looked at.
    rows_found = row_findings(path, plan, evidence(4), done, has_scores=True)
    looked_at = [one.verdict for one in rows_found]
    assert looked_at == [REDERIVED]
    assert len(list(row_findings(path, plan, evidence(4), done))) == 2
    path.write_text("not JSON")
    if sessions and verdict == REDERIVED:
        assert not score_findings(path, plan, asked, main, done).holds
        path.unlink()
        assert score_findings(path, plan, asked, main, done).holds


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        ({}, True),
        ({"sessions": {"training": ["ab", "cd"], "evaluation": []}}, True),  # one without a frame
        ({"study": "02"}, False),
        ({"baseline": "trusted"}, False),
        ({"sessions": {"training": [], "evaluation": ["ab"]}}, False),
        ({"sessions": {}}, False),
        ({"sessions": 3}, False),
    ],
)
def test_a_run_notes_the_sessions_of_its_transcripts(
    tmp_path: Path, changed: dict[str, Any], fits: bool
) -> None:
    noted = {"study": "01", "baseline": None, "sessions": {"training": ["ab"]}} | changed
    (tmp_path / NOTES).write_text(json.dumps(noted))
    header: Any = SimpleNamespace(purpose="training", session=b"\xab")
    study: Any = SimpleNamespace(id=b"\x01")
    found, other = notes_findings(tmp_path / NOTES, study, [header])
    assert (found.holds, other.verdict) == (fits, NOT_VERIFIABLE)
    assert found.files == other.files == (NOTES,)


@pytest.mark.parametrize(
    ("changed", "told", "verdict"),
    [
        ({}, (2.0, 3.0), SIGNED),
        ({"epsilon": None}, (2.0, None), SIGNED),
        ({"epsilon": 2.9}, (2.0, 3.0), "wrong"),
        ({"epsilon": 3.1}, (2.0, 3.0), "wrong"),
        ({"epsilon": 3.0}, (2.0, None), "wrong"),
        ({"delta": 1e-4}, (2.0, 3.0), "wrong"),
        ({"relation": "substitute"}, (2.0, 3.0), "wrong"),
        *(({"epsilon": no}, (2.0, 3.0), "wrong") for no in ("3", "nan", [], True, 10**400)),
        ({}, (2.0, "nan"), "wrong"),
        ({}, (3.0,), NOT_VERIFIABLE),  # the other silo may have spent more
        ({}, (), NOT_VERIFIABLE),
        ({"epsilon": 2.0}, (3.0,), "wrong"),
    ],
)
def test_what_was_spent_in_all_is_what_the_silos_have_signed(
    tmp_path: Path, changed: dict[str, Any], told: tuple[float | None, ...], verdict: str
) -> None:
    at = {"delta": 1e-5, "relation": "add-remove"}
    (tmp_path / SPENDING).write_text(json.dumps({"epsilon": 3.0, "charge": 2, **at, **changed}))
    privacy = SimpleNamespace(**at)
    study: Any = SimpleNamespace(privacy=privacy, parties=SimpleNamespace(silos=2))
    silos = [{"data_set": {"epsilon": one, **at}} for one in told]
    content = {"silos": [*silos, {"data_set": None}]}
    found, *others = spending_findings(tmp_path / SPENDING, study, content)
    assert found.verdict.split(":")[0] == verdict
    assert [one.verdict for one in others] in ([NOT_VERIFIABLE], [])
    assert SPENDING in {name for one in (found, *others) for name in one.files}


@pytest.mark.parametrize(
    ("found", "made", "differ"),
    [
        ([1, 2], [1, 2], False),
        ([1, 2], [1], True),
        ([1], [1, 2], True),
        ({"a": 1}, {"a": 1, "b": 1}, True),
        ({"a": 1, "b": 1}, {"a": 1}, True),
        (1.0, 1.0 + 9e-7, False),
        (1.0, 1.0 + 2e-6, True),
        (1, 1.0, False),
        (True, 1, True),
        (True, 1.0, True),
        ("1", 1, True),
        (None, 0.0, True),
        ([{"a": [1.0]}], [{"a": [1.1]}], True),
    ],
)
def test_values_are_found_equal_in_all_members_and_in_six_digits(
    found: Any, made: Any, differ: bool
) -> None:
    assert bool(difference(found, made)) == differ


def test_a_header_changed_in_its_last_digits_does_no_more_than_multiply_all_sums() -> None:
    sizes = {"dimension": 3, "parameters": 3, "silos": 3, "quorum": 3, "steps": 2, "nodes": 0}
    floats = {"grid_step": 0.25, "sigma_grid": 40.0, "sample_rate": 0.5, "clip": 1.5}
    true = RoundParameters(**sizes, **floats, word_bits=32)
    by = 1 + 9e-7
    forged = replace(true, **{name: one * by for name, one in floats.items()})
    assert {name for name, one in vars(true).items() if isinstance(one, float)} == set(floats)
    assert difference(forged.to_dict(), true.to_dict()) == ""
    sums = np.array([4, -7, 10**6])
    attempt: Any = SimpleNamespace(integers=lambda: sums, seed=None)
    made = [gradient_of(one, attempt, np.zeros(3, np.float32), None) for one in (true, forged)]
    assert made[1] == pytest.approx(made[0] * by, rel=1e-15)


def test_a_package_that_a_run_was_made_with_and_that_is_not_here_is_named() -> None:
    versions = {"hubbub": VERSION, "python": "3.11", "numpy": "2.0", "torch": None, "wards": "1.0"}
    why = by_version("an unknown key", {"versions": versions})
    assert why == (
        "an unknown key; it says that wards, not installed here, had a part in it: verify it with "
        "that, if you know the package and trust it"
    )
    assert by_version("", {"versions": versions}) == ""
    assert by_version("it differs", {"versions": {"hubbub": VERSION}}) == "it differs"


def test_evidence_has_no_sentences_of_its_own_put_on_a_screen() -> None:
    versions = {
        "hubbub": "9; run evil.sh, which",
        "wards\u2003from evil.example": "1",
        "b" * 99: "1",
    }
    why = by_version("it differs", {"versions": versions})
    assert why.startswith("it differs; hubbub of another version made it, and this is")
    assert not any(word in why for word in ("evil", "bbbb", "had a part"))


def test_what_differs_is_said_in_a_line_however_long_it_is() -> None:
    long = ["a" * 10**6]
    for found, made in ((long, []), (long[0], 1.0), ({long[0]: 1}, {})):
        assert len(difference(found, made)) < 250


@pytest.mark.parametrize("name", ["", "gone.json", "tables/gone.csv", ".", "../up.json", "x" * 300])
@pytest.mark.parametrize("digest", [None, "00" * 32])
def test_a_name_in_evidence_that_is_no_file_of_the_run_is_wrong(
    tmp_path: Path, name: str, digest: str | None
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "up.json").write_text("{}")
    found = list(altered_files(tmp_path / "run", {"files": {name: digest}}))
    assert [one.holds for one in found] == [False]


def test_what_the_evidence_has_no_digest_of_is_told_in_folders_too(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    for name in ("tables/ages.csv", "tables/more.html", "page.html", "sums.json"):
        (tmp_path / name).write_text("1")
    study: Any = SimpleNamespace(asks=asks(), data=SimpleNamespace(standardise=1))
    content = {"files": {"tables/ages.csv": "", "sums.json": ""}}
    (found,) = _beside(tmp_path, study, content, [])
    assert found.claim.startswith("that these say what")
    assert "files say: page.html, tables/more.html; evidence.json has no digest" in found.claim


def test_a_file_counts_as_computed_where_a_finding_names_it_and_not_where_a_sentence_does() -> None:
    beside = [Finding("run/sums.json follows from the sums", REDERIVED).on("coefficient-sums.json")]
    names = ["sums.json", "coefficient-sums.json", "run.json"]
    (found,) = _uncomputed(names, beside)
    assert found.claim == "what run.json, sums.json say, which nothing here computes"
    assert found.verdict == NOT_VERIFIABLE
    assert _uncomputed(["sums.json"], [Finding("that it says so", REDERIVED).on("sums.json")]) == []


def test_a_file_that_evidence_lists_is_there_without_the_package_that_wrote_it(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for place in (run, tmp_path):
        (place / "wards.json").write_text("{}")
    assert digests_of(run) == {}
    (run / "beds").mkdir()
    (run / "beds" / "1.csv").write_text("{}")
    outside = ["../wards.json", "beds/../../wards.json", str(run / "wards.json")]
    listed = ["wards.json", "beds/1.csv", "gone.json", "./wards.json", "beds", *outside]
    digest = hashlib.sha256(b"{}").hexdigest()
    assert digests_of(run, listed) == {"wards.json": digest, "beds/1.csv": digest}


@pytest.mark.parametrize("delta", [1e-5, nextafter(1e-5, 1), 1e-5 * (1 - 1e-9)])
def test_epsilon_is_stated_for_the_very_delta_that_the_study_asks_for(delta: float) -> None:
    """Other numbers may differ in their last digits, as those of another machine do."""
    parties, privacy = Parties(names=NAMES[1:], colluders=1), Privacy(epsilon=1.0, delta=1e-5)
    study: Any = SimpleNamespace(parties=parties, privacy=privacy, id=bytes(32))
    stated = {"relation": privacy.relation, "stated_adversary": stated_adversary(parties)}
    content = {"epsilon": {**stated, "delta": delta, "attempts": 1}}
    (found,) = _asked_claims(content, study, SimpleNamespace())
    assert found.holds is (delta == 1e-5)
