"""`hubbub verify`: an honest run is made again bit for bit; no lie and no flipped bit passes."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import hubbub
from hubbub.core.errors import IntegrityError, UserError
from hubbub.core.ledger.privacy_ledger import Cap, Ledger
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.primitives import wire
from hubbub.core.protocol.primitives.wire import Frame, Tag, unverified
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.runs import federated
from hubbub.core.runs.federated import evaluations
from hubbub.core.runs.local_backend import LocalBackend
from hubbub.core.runs.loop import EvaluationSchedule
from hubbub.core.session.in_process import Federation
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.claims import check
from hubbub.core.verification.evidence.collecting import FILE
from hubbub.core.verification.evidence.evidence_file import (
    NOT_VERIFIABLE,
    REDERIVED,
    Finding,
    with_signature,
)
from hubbub.core.verification.replay import replayed_session
from hubbub.core.verification.replay.checking import integrity_findings, verify
from hubbub.core.verification.transcript.frame_records import (
    Kept,
    files,
    first_head,
    read,
    read_header,
    start_of,
)
from hubbub.core.verification.transcript.writer import Transcript
from hubbub.desk.cli.main import main
from hubbub.desk.report.arrangements import Arrangement, ArrangementTable
from hubbub.desk.report.report_of_run import COMPARISON, write_report
from hubbub.learning import stored_header
from hubbub.learning.runs.result import Result
from hubbub.learning.runs.run_study import resume, run
from run.finished import a_study, finished, write_evidence

Run = tuple[Path, Result, Federation]


_MADE: dict[tuple[object, ...], Run] = {}


@pytest.fixture
def a_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """A finished run in a folder of the test's own, ledgers beside it; each kind is run once."""

    def copied(
        transcript: str = "full", steps: int = 6, changes: tuple[tuple[str, str], ...] = ()
    ) -> Run:
        key = (transcript, steps, changes)
        if key not in _MADE:
            folder = tmp_path_factory.mktemp("made") / "run"
            study = a_study(transcript=transcript, steps=steps, changes=changes)
            _MADE[key] = (folder, *finished(study, folder))
        folder, result, parties = _MADE[key]
        shutil.copytree(folder.parent, tmp_path, dirs_exist_ok=True)
        return tmp_path / "run", result, parties

    return copied


def wrongs(found: list[Finding]) -> list[Finding]:
    return [one for one in found if not one.holds]


def claims(found: list[Finding], verdict: str) -> str:
    return "\n".join(one.claim for one in found if one.verdict == verdict)


# Honest runs -----------------------------------------------------------------------------------


NO_NODES = "compute_nodes = 0 "
CLIP = "clip_norm = 1.0\n"
EVALUATED = ((CLIP, CLIP + "evaluate = { every = 1, epsilon = 0.1 }\n"),)
GAUSSIAN = ((CLIP, f"{CLIP}projection = 9\n"),)
ADAM = '{ name = "adam", lr = 0.1 }'


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        (),
        ((NO_NODES, "compute_nodes = 3 "),),
        ((NO_NODES, 'shares = "full"\ncompute_nodes = 2 '),),
        ((ADAM, '{ name = "sgd", lr = 0.5, momentum = 0.9 }'),),
        GAUSSIAN,
        (
            (CLIP, f'{CLIP}projection = 8\nprojection_kind = "sign"\n'),
            (NO_NODES, "compute_nodes = 2 "),
        ),
    ],
    ids=["pairwise", "nodes", "full-shares", "sgd", "gaussian-projection", "sign-projection"],
)
def test_every_sum_and_step_of_an_honest_run_is_made_again(
    a_run: Callable[..., Run], changes: tuple[tuple[str, str], ...]
) -> None:
    folder, _, _ = a_run(steps=3, changes=changes)
    found = verify(folder)
    assert wrongs(found) == []
    said = claims(found, REDERIVED)
    assert "every sum, and every step along it, bit for bit" in said
    assert "holds the model that the last step gave" in said
    assert "the first model follows from the study id" in said
    assert "sums" not in claims(found, NOT_VERIFIABLE)


def without_vectors(path: Path) -> None:
    """The same transcript with hashes in the place of vectors, which leaves its head as it is."""
    start = start_of(read_header(path))
    whole = start + first_head(start)
    for kept in read(path):
        vector = kept.tag in (Tag.MASKED, Tag.TOTAL)
        content = kept.short if vector else bytes(kept.payload)
        whole += bytes([1 + vector]) + kept.words + content + kept.signature + kept.head
    path.write_bytes(whole)


def test_vectors_that_the_study_promises_and_that_are_left_out_are_wrong(
    a_run: Callable[..., Run],
) -> None:
    folder, result, parties = a_run(steps=3)
    without_vectors(files(folder)[0])
    write_evidence(result, parties, folder)
    assert [one.claim for one in wrongs(verify(folder))] == [
        f"transcript/{files(folder)[0].name} has all vectors"
    ]


def test_a_session_that_is_there_twice_is_wrong(a_run: Callable[..., Run]) -> None:
    folder, _, _ = a_run(steps=3)
    (folder / FILE).unlink()
    (path,) = files(folder)
    shutil.copy(path, path.with_name(f"{'ab' * 16}.frames"))
    assert [one.claim for one in wrongs(verify(folder))] == [
        "each transcript is of another session"
    ]


def test_evidence_of_another_study_is_wrong_beside_the_run(a_run: Callable[..., Run]) -> None:
    folder, result, parties = a_run(steps=3)
    other = plan(a_study(steps=3, changes=(("epsilon = 0.5", "epsilon = 0.4"),)), dimension=27)
    write_evidence(result, parties, folder, plan=other, parts=[])
    assert wrongs(check(folder / FILE)) == []
    assert [one.claim for one in wrongs(verify(folder))] == [
        f"{FILE} is about the study in study.toml"
    ]


@pytest.mark.slow
def test_sums_besides_the_training_that_no_plan_pays_for_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(prepared: Any, opened: Any) -> EvaluationSchedule:
        one, two = evaluations(prepared, opened), evaluations(prepared, opened)
        return EvaluationSchedule(
            after=one.after, at=lambda n, model: two.at(n, model) | one.at(n, model)
        )

    monkeypatch.setattr(federated, "evaluations", twice)
    # Or the ledgers would refuse the third.
    many = SimpleNamespace(attempts=lambda *_: 9)
    monkeypatch.setattr(LocalBackend, "_before", dict.fromkeys(range(1, 5), many))
    finished(a_study(steps=2, changes=EVALUATED), tmp_path / "run")
    found = [one.claim for one in wrongs(verify(tmp_path / "run"))]
    assert "the transcripts have 4 sums for evaluation, of 2 due after 2 attempts" in found


@pytest.mark.slow
def test_evaluations_that_are_due_only_after_more_attempts_are_wrong(tmp_path: Path) -> None:
    changes = ((CLIP, CLIP + "evaluate = { every = 2, epsilon = 0.1 }\n"),)
    result, parties = finished(a_study(steps=4, changes=changes), tmp_path / "run")
    write_evidence(result, parties, tmp_path / "run", attempts=3, parts=[])
    (found,) = wrongs(verify(tmp_path / "run"))
    assert "the messages that are listed are of 4 attempts at least" in found.verdict


@pytest.mark.slow
@pytest.mark.parametrize("tokens", ["per-step", "per-epoch"])
def test_an_honest_run_with_joint_batches_holds(tmp_path: Path, tokens: str) -> None:
    changes = (
        ("records = 735", "counts = [242, 235, 98, 160]\nrecords = 735"),
        ('sampling = "poisson"', f'sampling = "without-replacement"\ntokens = "{tokens}"'),
        ('relation = "add-remove"', 'relation = "substitute"'),
        ("sample_rate = 0.2", "sample_rate = 0.5"),
        ("epsilon = 0.5", "epsilon = 8.0"),
    )
    finished(a_study(steps=3, changes=changes), tmp_path / "run")
    assert wrongs(verify(tmp_path / "run")) == []


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"dimension": 27, "capacity": 1%s}' % ("0" * 4000), '{"a": 1, "a": 2}']
)
def test_a_plan_of_anything_is_called_wrong(a_run: Callable[..., Run], text: str) -> None:
    folder, result, parties = a_run(steps=3)
    (folder / "plan.json").write_text(text)
    write_evidence(result, parties, folder)
    assert wrongs(verify(folder))


@pytest.mark.parametrize("row", [0, -1])
def test_a_row_that_tells_less_epsilon_than_was_spent_is_called_wrong(
    a_run: Callable[..., Run], row: int
) -> None:
    folder, result, parties = a_run(steps=3)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows[row]["epsilon"] *= 0.99
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    write_evidence(result, parties, folder)
    (found,) = wrongs(verify(folder))
    assert "metrics.jsonl" in found.claim


def test_a_pipe_among_the_transcripts_is_called_wrong(a_run: Callable[..., Run]) -> None:
    folder, _, _ = a_run(steps=3)
    os.mkfifo(folder / "transcript" / "x.frames")
    assert "not an ordinary file" in wrongs(verify(folder))[0].verdict


@pytest.mark.slow
def test_sessions_besides_the_training_are_played_too(tmp_path: Path) -> None:
    records = 'source = "hubbub.datasets:heart"\n'
    changes = (
        (CLIP, CLIP + "evaluate = { every = 2, epsilon = 0.1 }\n"),
        (records, records + "standardise = { epsilon = 0.1, bound = 3.0 }\n"),
    )
    result, parties = finished(a_study(steps=4, changes=changes), tmp_path / "run")
    found = verify(tmp_path / "run")
    assert wrongs(found) == []
    said = claims(found, REDERIVED)
    assert "(evaluation): 11 messages" in said
    assert said.count("every sum, and every step along it") == 2  # and that which standardises
    assert "standardisation.json follows from the sums" in said
    assert "metrics.jsonl states the scores that sums for evaluation gave" in said
    assert "no OPEN was kept" in claims(found, NOT_VERIFIABLE)  # one process tells itself nothing
    path = tmp_path / "run" / "standardisation.json"
    path.write_text(path.read_text().replace("0.", "0.0", 1))
    write_evidence(result, parties, tmp_path / "run")
    (wrong,) = wrongs(verify(tmp_path / "run"))
    assert "standardisation.json" in wrong.claim


@pytest.mark.slow
def test_attempts_that_a_refusal_ended_are_counted_and_cost_nothing_in_the_sums(
    tmp_path: Path,
) -> None:
    study = a_study(steps=6, changes=(("dropouts = 0", "dropouts = 1"),))
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as ledger:
        ledger.set_cap(Cap(epsilon=0.35, delta=1e-5, relation="add-remove"))
    finished(study, tmp_path / "run")
    kept = list(read(files(tmp_path / "run")[0]))
    assert {one.attempt for one in kept if one.tag is Tag.MODEL} == {0, 1}
    found = verify(tmp_path / "run")
    assert wrongs(found) == []
    assert "every sum, and every step along it" in claims(found, REDERIVED)


@pytest.mark.slow
def test_of_hashes_signatures_and_order_are_checked_and_what_is_not_is_said(
    a_run: Callable[..., Run],
) -> None:
    folder, _, _ = a_run("hashes")
    found = verify(folder)
    assert wrongs(found) == []
    assert "31 messages of 5 parties" in claims(found, REDERIVED)
    assert "bit for bit" not in claims(found, REDERIVED)
    assert "the sums of 6 rounds" in claims(found, NOT_VERIFIABLE)
    assert "holds the model" in claims(found, NOT_VERIFIABLE)


class StoppedError(Exception):
    """The run is stopped here, as a crash would stop it."""


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(3,), (1, 4), (2, 2)])
def test_a_run_that_was_resumed_is_made_again_over_all_its_sessions(
    tmp_path: Path, stops: tuple[int, ...]
) -> None:
    folder = tmp_path / "run"

    def stopping(at: int) -> Callable[..., None]:
        def progress(step: int, _: object) -> None:
            if step >= at:
                raise StoppedError

        return progress

    with pytest.raises(StoppedError):
        run(a_study(steps=8), folder, progress=stopping(stops[0]))
    for at in stops[1:]:
        with pytest.raises(StoppedError):
            resume(folder, progress=stopping(at))
    assert wrongs(verify(folder)) == []
    resume(folder)
    found = verify(folder)
    assert wrongs(found) == []
    assert len(files(folder)) == 1 + len(stops)
    assert claims(found, REDERIVED).count("bit for bit") >= 1
    assert "holds the model that the last step gave" in claims(found, REDERIVED)


@pytest.mark.slow
def test_a_resumed_session_that_begins_where_none_came_to_is_refused(
    a_run: Callable[..., Run],
) -> None:
    folder, result, parties = a_run()
    forge(
        folder,
        result,
        parties,
        lambda kept, _: [one for one in kept if one.round > 2 or one.tag is Tag.ROLL],
    )
    (found,) = wrongs(verify(folder))
    assert "expected round 1 next, found round 3" in found.verdict


@pytest.mark.slow
def test_a_baseline_has_nothing_to_play(tmp_path: Path) -> None:
    run(a_study(steps=2), tmp_path / "run", baseline="trusted")
    found = verify(tmp_path / "run")
    assert wrongs(found) == []
    assert "no transcript of training" in claims(found, NOT_VERIFIABLE)
    assert "plan.json follows from study.toml" in claims(found, REDERIVED)


@pytest.mark.slow
def test_a_model_of_the_users_own_is_found_in_its_file_without_running_its_code(
    a_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = a_run()
    monkeypatch.setattr("hubbub.learning.queries.training_query._built", lambda *_, **__: None)
    found = verify(folder)
    assert wrongs(found) == []
    assert "every sum, and every step along it" in claims(found, REDERIVED)
    assert "contains the numbers of the last step" in claims(found, NOT_VERIFIABLE)
    assert "the first model" in claims(found, NOT_VERIFIABLE)
    path = folder / "model.safetensors"
    tensors, (name, *others), header = load_file(path), stated_order(path), stored_header(path)
    (folder / FILE).unlink()
    for order in ([*others, name], [name, *others, name], [name, "none"], [1], {}):
        save_file(tensors, path, header | {"parameters": json.dumps(order)})
        (wrong,) = wrongs(verify(folder))
        assert "model.safetensors" in wrong.claim
    save_file(tensors, path, header)
    found = verify(folder)
    assert wrongs(found) == []
    assert "it states none" in claims(found, NOT_VERIFIABLE)
    tensors[name] = np.ascontiguousarray(tensors[name][:, ::-1])
    save_file(tensors, path, header | {"parameters": json.dumps([name, *others])})
    (wrong,) = wrongs(verify(folder))
    assert "model.safetensors" in wrong.claim


@pytest.mark.slow
def test_tensors_that_could_stand_in_many_orders_are_read_in_the_one_that_is_stated(
    a_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty tensors, each the beginning of all larger ones: no order but one is looked at."""
    folder, result, _ = a_run()
    monkeypatch.setattr("hubbub.learning.queries.training_query._built", lambda *_, **__: None)
    (folder / FILE).unlink()
    path = folder / "model.safetensors"
    from hubbub import learning

    true, header = learning.parameters_vector(result.model), stored_header(path)
    zeros = {f"t{k}": np.zeros(k, np.float32) for k in range(1, 61)}
    save_file({**zeros, "all": true}, path, header | {"parameters": json.dumps([*zeros])})
    assert wrongs(verify(folder))
    save_file({**zeros, "all": true}, path, header | {"parameters": json.dumps(["all"])})
    assert wrongs(verify(folder)) == []


def stated_order(path: Path) -> list[str]:
    with safe_open(path, framework="np") as file:
        return list(json.loads(file.metadata()["parameters"]))


# A dishonest aggregator, who makes the file anew and signs what it likes ------------------------

Change = Callable[[list[Kept], Federation], list[Kept | bytes]]


def forge(
    folder: Path, result: Result, parties: Federation, change: Change, **numbers: float
) -> None:
    """The transcript as the aggregator would like it, its chain and the evidence in order."""
    (path,) = files(folder)
    header, kept = read_header(path), list(read(path))
    assert header.round_parameters is not None
    path.unlink()
    with Transcript(
        folder,
        study=header.study,
        session=header.session,
        roster=header.roster,
        purpose="training",
        full=result.plan.study.transcript == "full",
        round_parameters=replace(header.round_parameters, **numbers),
    ) as transcript:
        for one in change(kept, parties):
            if isinstance(one, bytes):
                transcript.keep(one)
            else:
                transcript.keep(one.frame, one.short)
    if (folder / FILE).exists():
        write_evidence(result, parties, folder)
    assert list(integrity_findings(folder)) == []


def as_bytes(kept: Kept, keys: Any = None, **changes: Any) -> bytes:
    """A kept frame again; signed anew, with changes, if there are keys."""
    assert kept.payload is not None
    if keys is None:
        return kept.words + kept.payload + kept.signature
    given = {
        name: getattr(kept, name)
        for name in (
            *("tag", "study", "session", "round", "attempt", "sender", "receiver", "payload"),
        )
    }
    return Frame(**given | changes).sealed(keys)


def first(kept: list[Kept], tag: Tag, round: int) -> int:
    return next(k for k, one in enumerate(kept) if one.tag is tag and one.round == round)


def swapped_model(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """One parameter of round 4's model by one unit in the last place."""
    at = first(kept, Tag.MODEL, 4)
    payload = bytearray(kept[at].payload or b"")
    payload[-4] ^= 1
    return [
        *kept[:at],
        as_bytes(kept[at], parties.keys[0], payload=bytes(payload)),
        *kept[at + 1 :],
    ]


def altered_answer(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """One residue of one silo's answer by one, signed by a silo that helps."""
    at = first(kept, Tag.MASKED, 3)
    payload = bytearray(kept[at].payload or b"")
    payload[0] ^= 1
    keys = parties.keys[kept[at].sender]
    return [*kept[:at], as_bytes(kept[at], keys, payload=bytes(payload)), *kept[at + 1 :]]


def forged_answer(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """The same by the aggregator, who has no key of a silo."""
    at = first(kept, Tag.MASKED, 3)
    return [*kept[:at], as_bytes(kept[at], parties.keys[0]), *kept[at + 1 :]]


def two_models(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """A silo was shown another MODEL of round 3, and says which one it answers."""
    at = first(kept, Tag.MASKED, 3)
    model = kept[first(kept, Tag.MODEL, 3)]
    payload = bytes(model.payload or b"")
    shown = unverified(as_bytes(model, parties.keys[0], payload=payload[:-1] + b"?"))
    said = bytes(kept[at].payload or b"")[:-32] + shown.digest
    keys = parties.keys[kept[at].sender]
    return [*kept[:at], as_bytes(kept[at], keys, payload=said), *kept[at + 1 :]]


def left_out(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """A silo's answer is left out of round 2, and the step taken all the same."""
    at = first(kept, Tag.MASKED, 2)
    return [*kept[:at], *kept[at + 1 :]]


def twice(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    at = first(kept, Tag.MASKED, 2)
    return [*kept[: at + 1], *kept[at:]]


def out_of_order(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """An answer of round 5 before round 4."""
    early, late = first(kept, Tag.MODEL, 4), first(kept, Tag.MASKED, 5)
    return [*kept[:early], kept[late], *kept[early:late], *kept[late + 1 :]]


def revealed_late(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """A silo's link of round 2 after the first answer."""
    at = first(kept, Tag.SEED_LINK, 2)
    answer = first(kept, Tag.MASKED, 2)
    return [*kept[:at], *kept[at + 1 : answer + 1], kept[at], *kept[answer + 1 :]]


def another_link(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """A link that its silo had not committed to, signed by it all the same."""
    at = first(kept, Tag.SEED_LINK, 2)
    changed = as_bytes(kept[at], parties.keys[kept[at].sender], payload=bytes(32))
    return [*kept[:at], changed, *kept[at + 1 :]]


def no_links(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    return [one for one in kept if one.tag is not Tag.SEED_LINK]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "place", "why"),
    [
        (revealed_late, "round 2", "before the answers"),
        (another_link, "round 2", "committed to"),
        (no_links, "round 2", "a link of every active silo"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_joint_seed_that_could_have_been_chosen_is_found(
    a_run: Callable[..., Run], change: Change, place: str, why: str
) -> None:
    folder, result, parties = a_run(steps=3, changes=GAUSSIAN)
    forge(folder, result, parties, change)
    (found,) = wrongs(verify(folder))
    assert place in found.verdict
    assert why in found.verdict


def repeated(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """Another attempt at round 2, though all had answered: the aggregator picks a sum."""
    at, after = first(kept, Tag.MODEL, 2), first(kept, Tag.MODEL, 3)
    again = [as_bytes(one, parties.keys[one.sender], attempt=1) for one in kept[at:after]]
    return [*kept[:after], *again, *kept[after:]]


def skipped(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """Round 2 never was."""
    return [one for one in kept if one.round != 2]


def another_session(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    at = first(kept, Tag.MASKED, 2)
    stray = as_bytes(kept[at], parties.keys[kept[at].sender], session=bytes(16))
    return [*kept[:at], stray, *kept[at + 1 :]]


def stranger(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    at = first(kept, Tag.MASKED, 2)
    return [*kept[:at], as_bytes(kept[at], parties.keys[1], sender=77), *kept[at + 1 :]]


@pytest.mark.quick_cases("out_of_order--", "repeated--", "stranger--", "swapped_model--")
@pytest.mark.parametrize(
    ("change", "place", "why"),
    [
        (swapped_model, "round 4", "did not take that step"),
        (altered_answer, "round 4", "did not take that step"),
        (forged_answer, "round 3", "false signature"),
        (two_models, "round 3", "to answer the MODEL of this attempt"),
        (left_out, "round 3", "did not take that step"),
        (twice, "round 2", "expected one MASKED"),
        (out_of_order, "round 5", "expected an answer to attempt 3.0"),
        (repeated, "round 2", "no further attempt"),
        (skipped, "round 3", "nothing was kept"),
        (another_session, "round 2", "another's"),
        (stranger, "round 2", "false signature"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_a_dishonest_aggregator_did_is_found_at_its_first_round(
    a_run: Callable[..., Run], change: Change, place: str, why: str
) -> None:
    folder, result, parties = a_run()
    forge(folder, result, parties, change)
    (found,) = [one for one in wrongs(verify(folder)) if files(folder)[0].name in one.verdict]
    assert place in found.verdict
    assert why in found.verdict


@pytest.mark.slow
@pytest.mark.parametrize("named", [(1, 2, 3, 4), (1, 2, 3)])
def test_a_request_must_name_those_who_answered(
    a_run: Callable[..., Run], named: tuple[int, ...]
) -> None:
    folder, result, parties = a_run(steps=3, changes=((NO_NODES, "compute_nodes = 3 "),))
    round_parameters = read_header(files(folder)[0]).round_parameters
    assert round_parameters is not None

    def asking(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
        at = first(kept, Tag.TOTAL, 2)
        asked = [
            as_bytes(
                kept[at],
                parties.keys[0],
                tag=Tag.REQUEST,
                sender=0,
                receiver=node,
                payload=round_parameters.named_payload(
                    named, kept[first(kept, Tag.MASKED, 2)].answered
                ),
            )
            for node in parties.roster.nodes
        ]
        rest = [one for one in kept if one.tag is not Tag.REQUEST or one.round != 2]
        at = first(rest, Tag.PROMISE, 2)
        return [*rest[:at], *asked, *rest[at:]]

    forge(folder, result, parties, asking)
    found = wrongs(verify(folder))
    if len(named) == 4:
        assert found == []
    else:
        assert "round 2" in found[0].verdict
        assert "at least 4" in found[0].verdict or "other silos" in found[0].verdict


def unpromised(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """One node has promised nothing."""
    at = first(kept, Tag.PROMISE, 2)
    return [*kept[:at], *kept[at + 1 :]]


def promised_late(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    """A promise after the first total."""
    at, after = first(kept, Tag.PROMISE, 2), first(kept, Tag.TOTAL, 2)
    return [*kept[:at], *kept[at + 1 : after + 1], kept[at], *kept[after + 1 :]]


def promised_others(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
    """A node's word for fewer silos than the sum is of."""
    at = first(kept, Tag.PROMISE, 2)
    payload = b"\xe0" + (kept[at].payload or b"")[1:]
    forged = as_bytes(kept[at], parties.keys[kept[at].sender], payload=payload)
    return [*kept[:at], forged, *kept[at + 1 :]]


def promised_twice(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
    at = first(kept, Tag.PROMISE, 2)
    return [*kept[: at + 1], *kept[at:]]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (unpromised, "expected no TOTAL now"),
        (promised_late, "expected no TOTAL now"),
        (promised_others, "got other silos"),
        (promised_twice, "expected one PROMISE of"),
    ],
)
def test_p3_a_sum_needs_the_promises_of_all_nodes_before_their_totals(
    a_run: Callable[..., Run], change: Callable[..., Any], why: str
) -> None:
    folder, result, parties = a_run(steps=3, changes=((NO_NODES, "compute_nodes = 3 "),))
    forge(folder, result, parties, change)
    found = wrongs(verify(folder))
    assert why in found[0].verdict
    assert "round 2" in found[0].verdict


def test_a_frame_of_another_version_is_called_wrong(
    a_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, result, parties = a_run(steps=3, changes=((NO_NODES, "compute_nodes = 3 "),))

    def an_older_total(kept: list[Kept], parties: Federation) -> list[Kept | bytes]:
        at = first(kept, Tag.TOTAL, 2)
        with monkeypatch.context() as before:
            before.setattr(wire, "VERSION", 2)
            older = as_bytes(kept[at], parties.keys[kept[at].sender])
        return [*kept[:at], older, *kept[at + 1 :]]

    forge(folder, result, parties, an_older_total)
    assert "of wire version" in wrongs(verify(folder))[0].verdict


def test_well_signed_nonsense_in_the_evidence_of_a_run_is_a_finding(
    a_run: Callable[..., Run],
) -> None:
    folder, _, parties = a_run()
    content = json.loads((folder / FILE).read_text())
    del content["signature"]
    for key in ("epsilon", "silos", "transcripts", "files", "roster", "plan"):
        nonsense = with_signature({**content, key: 7}, parties.keys[0].sign)
        (folder / FILE).write_text(nonsense)
        assert wrongs(verify(folder)), key


def test_another_model_in_the_file_than_the_last_step_gave_is_found(
    a_run: Callable[..., Run],
) -> None:
    folder, result, parties = a_run()
    from hubbub import learning

    path, model = folder / "model.safetensors", result.model
    header, vector = learning.stored_header(path), learning.parameters_vector(model)
    vector[0] = np.nextafter(vector[0], np.float32(9))
    learning.load_parameters(model, vector)
    learning.save_model(path, model, header)
    vector[0] = np.nextafter(vector[0], np.float32(-9))
    learning.load_parameters(model, vector)
    write_evidence(result, parties, folder)
    (found,) = wrongs(verify(folder))
    assert "model.safetensors holds the model that the last step gave" in found.claim


@pytest.mark.parametrize(
    "forged",
    [{"columns": '["b", "a"]'}, {"average": "tail"}, {"kind": "mlp"}, {"study": "00"}],
    ids=str,
)
def test_metadata_of_another_study_are_found_in_the_models_file(
    a_run: Callable[..., Run], forged: dict[str, str]
) -> None:
    """By columns of its own a file would have predictions made of other features."""
    folder, result, parties = a_run()
    from hubbub import learning

    path = folder / "model.safetensors"
    learning.save_model(path, result.model, learning.stored_header(path) | forged)
    write_evidence(result, parties, folder)
    (found,) = wrongs(verify(folder))
    assert "its metadata are those of another study" in found.verdict
    with pytest.raises(IntegrityError, match="the study beside it, found that of another"):
        hubbub.load(folder)


def test_a_score_that_was_altered_is_found(a_run: Callable[..., Run]) -> None:
    folder, _, _ = a_run()
    path = folder / "scores.json"
    path.write_text(path.read_text().replace('"value": 0.', '"value": 0.9', 1))
    (found,) = wrongs(verify(folder))
    assert "scores.json is the file that evidence.json lists" in found.claim


def test_a_pipe_in_the_place_of_the_model_is_not_waited_for(a_run: Callable[..., Run]) -> None:
    folder, _, _ = a_run()
    for name in (FILE, "model.safetensors"):
        (folder / name).unlink()
    os.mkfifo(folder / "model.safetensors")
    (found,) = wrongs(verify(folder))
    assert "not an ordinary file" in found.verdict


def test_a_pipe_in_the_place_of_the_study_is_not_waited_for(
    a_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = a_run()
    for name in (FILE, "study.toml"):
        (folder / name).unlink()
    os.mkfifo(folder / "study.toml")
    assert main(["verify", str(folder), "--json"]) == 1
    said = capsys.readouterr()
    assert "not an ordinary file" in said.out + said.err


@pytest.mark.slow
def test_a_plan_for_a_model_that_no_file_has_room_for_is_not_built(
    a_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = a_run()
    (folder / FILE).unlink()
    study = Study.parse((folder / "study.toml").read_text())
    stated = plan(study, dimension=10**9 + 1).to_dict()
    (folder / "plan.json").write_text(json.dumps(stated))
    built: list[object] = []
    monkeypatch.setattr("hubbub.learning.model_of", lambda *given: built.append(given))
    found = verify(folder)
    assert "no file contains a model of the size" in claims(found, NOT_VERIFIABLE)
    assert built == []


@pytest.mark.parametrize("name", ["dimension", "silos", "word_bits"])
def test_a_whole_number_with_a_point_in_the_header_is_found(
    a_run: Callable[..., Run], name: str
) -> None:
    folder, result, parties = a_run()
    round_parameters = read_header(files(folder)[0]).round_parameters
    forge(
        folder,
        result,
        parties,
        lambda kept, _: kept,
        **{name: float(getattr(round_parameters, name))},
    )
    (found,) = wrongs(verify(folder))
    assert "keep to the plan" in found.verdict
    assert name in found.verdict


@pytest.mark.slow
def test_more_attempts_than_the_evidence_or_a_ledger_counts_are_found(
    tmp_path: Path,
) -> None:
    """Also where their messages are too few to show it: one silo has refused from the first on."""
    folder, study = tmp_path / "run", a_study(changes=(("dropouts = 0", "dropouts = 1"),))
    with Ledger(tmp_path / "ledgers" / "hungary.sqlite") as ledger:
        ledger.set_cap(Cap(epsilon=0.01, delta=1e-5, relation="add-remove"))
    result, parties = finished(study, folder)
    write_evidence(result, parties, folder, attempts=4, parts=[])
    found = "\n".join(one.claim for one in wrongs(verify(folder)))
    assert "no attempt of the transcripts is missing" in found


def test_charged_attempts_that_no_transcript_has_are_said(a_run: Callable[..., Run]) -> None:
    """Else an aggregator leaves its last sums out and shows an earlier model."""
    folder, result, parties = a_run()
    said = "that no sum was left out: 2 charged attempts"
    assert said not in claims(verify(folder), NOT_VERIFIABLE)

    def cut(kept: list[Kept], _: Federation) -> list[Kept | bytes]:
        return [one for one in kept if one.round <= 4]

    forge(folder, result, parties, cut)
    found = verify(folder)
    assert said in claims(found, NOT_VERIFIABLE)
    assert "every charged attempt" in "".join(one.claim for one in wrongs(found))
    assert "model.safetensors holds" not in claims(found, REDERIVED)


def test_another_plan_than_the_study_gives_is_found(a_run: Callable[..., Run]) -> None:
    folder, result, parties = a_run()
    stated = json.loads((folder / "plan.json").read_text())
    stated["noise_multiplier"] *= 1 - 1e-5
    (folder / "plan.json").write_text(json.dumps(stated, indent=2))
    write_evidence(result, parties, folder)
    (found,) = wrongs(verify(folder))
    assert found.claim == "plan.json follows from study.toml"
    assert "noise_multiplier" in found.verdict


def test_rounds_with_other_numbers_than_the_plan_has_are_found(
    a_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, result, parties = a_run()
    (path,) = files(folder)
    header, kept = read_header(path), list(read(path))
    assert header.round_parameters is not None
    path.unlink()
    round_parameters = RoundParameters(**{**vars(header.round_parameters), "sigma_grid": 2.0})
    with Transcript(
        folder,
        study=header.study,
        session=header.session,
        roster=header.roster,
        purpose="training",
        full=True,
        round_parameters=round_parameters,
    ) as transcript:
        for one in kept:
            transcript.keep(as_bytes(one))
    write_evidence(result, parties, folder)
    (found,) = wrongs(verify(folder))
    assert "sigma_grid" in found.verdict


def test_the_verifier_takes_the_same_step_as_the_training(
    a_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, _ = a_run()
    real = replayed_session.gradient_of
    monkeypatch.setattr(replayed_session, "gradient_of", lambda *given: -real(*given))
    (found,) = wrongs(verify(folder))
    assert "round 2" in found.verdict


# Damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flips", [100, pytest.param(2500, marks=pytest.mark.slow)])
def test_every_flipped_byte_of_a_finished_run_is_noticed_and_its_file_named(
    a_run: Callable[..., Run], flips: int
) -> None:
    folder, _, _ = a_run()
    assert list(integrity_findings(folder)) == []
    paths = [
        *(folder / name for name in ("study.toml", "plan.json", "metrics.jsonl")),
        *(folder / "model.safetensors", folder / FILE, folder / "run.json"),
        *files(folder),
    ]
    chance = random.Random(6)
    for _ in range(flips):
        path = chance.choice(paths)
        content = path.read_bytes()
        altered = bytearray(content)
        altered[chance.randrange(len(content))] ^= chance.randrange(1, 256)
        path.write_bytes(altered)
        found = list(integrity_findings(folder))
        assert found, path
        assert not any(one.holds for one in found)
        assert all(path.name in one.claim for one in found)
        assert any(word in found[0].verdict for word in ("restore", "get it again"))
        path.write_bytes(content)
    assert list(integrity_findings(folder)) == []


def test_cut_missing_and_added_files_are_noticed(a_run: Callable[..., Run]) -> None:
    folder, _, _ = a_run()
    (transcript,) = files(folder)
    for path in (folder / "metrics.jsonl", folder / "model.safetensors", transcript):
        content = path.read_bytes()
        for size in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:size])
            (found,) = integrity_findings(folder)
            assert path.name in found.claim
        path.unlink()
        (found,) = integrity_findings(folder)
        assert "missing" in found.verdict
        path.write_bytes(content)
    frames = list(read(transcript))
    content = transcript.read_bytes()
    transcript.write_bytes(content[: -len(as_bytes(frames[-1])) - 33])
    (found,) = integrity_findings(folder)
    assert "altered or cut" in found.verdict
    transcript.write_bytes(content)
    shutil.copy(transcript, transcript.with_name("00" * 16 + ".frames"))
    (found,) = integrity_findings(folder)
    assert "does not list it" in found.verdict


def test_what_is_damaged_is_not_built_upon(a_run: Callable[..., Run]) -> None:
    folder, _, _ = a_run()
    (folder / "study.toml").write_text("nonsense = ")
    (found,) = verify(folder)
    assert "study.toml" in found.claim
    (folder / FILE).unlink()
    found = verify(folder)[-1]
    assert "study.toml" in found.claim
    assert not found.holds


# The command -----------------------------------------------------------------------------------


def test_the_exit_code_is_the_answer(
    a_run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, _ = a_run()
    assert main(["verify", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["holds"]
    assert {one["verdict"] for one in said["findings"]} == {
        "re-derived",
        "signed",
        "not verifiable",
    }
    assert main(["verify", str(folder)]) == 0
    assert "re-derived" in capsys.readouterr().out
    (folder / "metrics.jsonl").write_text("{}\n")
    assert main(["verify", str(folder)]) == 1
    assert "restore it from a backup" in capsys.readouterr().out.replace("\n", " ")
    assert main(["verify", str(folder / "nothing")]) == 2
    assert main(["verify", str(folder / "checkpoints")]) == 2


def test_the_report_is_written_from_the_folder(a_run: Callable[..., Run]) -> None:
    folder, result, _ = a_run()
    rows = [*map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())]
    page = write_report(folder, seconds=2.0).read_text(encoding="utf-8")
    assert result.plan.study.name in page
    assert page.count('class="words">switzerland</th>') == 1
    assert f"{rows[-1]['auc']:.3f}" in page
    assert "no claim was found to be wrong" in page
    assert "2 s" in page
    assert list(integrity_findings(folder)) == []
    (folder / FILE).unlink()
    alone = ArrangementTable(metric="auc", arrangements=(Arrangement(name="alone", mean=0.5),))
    (folder / COMPARISON).write_text(json.dumps(alone.to_dict()))
    bare = write_report(folder).read_text(encoding="utf-8")
    assert "No claim" not in bare
    assert "each silo alone" in bare
    (folder / "plan.json").write_text("{")
    with pytest.raises(IntegrityError, match=r"plan\.json"):
        write_report(folder)
    with pytest.raises(UserError, match=r"plan\.json"):
        write_report(folder / "checkpoints")


def test_a_folder_without_a_run_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("a study that nobody has run")
    with pytest.raises(UserError, match=r"folder of a run .* found no evidence\.json"):
        verify(tmp_path)


def test_a_study_of_another_run_does_not_fit_its_transcript(
    a_run: Callable[..., Run], tmp_path: Path
) -> None:
    folder, _, _ = a_run()
    (folder / FILE).unlink()
    other = Study.parse(
        (folder / "study.toml").read_text().replace('name = "heart', 'name = "hart')
    )
    (folder / "study.toml").write_text(other.as_toml())
    assert wrongs(verify(folder))
