"""`hubbub verify` believes no state that it has not computed, whatever an aggregator puts together.

The aggregator of these runs has its own key and no silo's: it writes transcripts and evidence anew
as it likes, and it asks the silos, whose protocol is real, at whatever it likes.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from tests.learning.validation.made_up import table_of, write_silos

from hubbub import learning
from hubbub.core.planning.query import QueryState
from hubbub.core.protocol.primitives.identity import Keys, Roster
from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.runs import federated, local_backend, loop
from hubbub.core.study.study import Study
from hubbub.core.verification.evidence.claims import MODEL
from hubbub.core.verification.evidence.collecting import collect
from hubbub.core.verification.evidence.evidence_file import NOT_VERIFIABLE, REDERIVED, Finding
from hubbub.core.verification.replay import checking
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.replay.replayed_session import ReplayedSession
from hubbub.core.verification.replay.session_findings import replay_findings
from hubbub.core.verification.transcript import writer
from hubbub.core.verification.transcript.frame_records import Header, Kept, files, read, read_header
from hubbub.core.verification.transcript.writer import Transcript
from hubbub.estimation.queries.sums_query import sums_in, write_sums
from hubbub.learning.queries.coefficients.coefficients_query import COEFFICIENT_SUMS
from hubbub.learning.queries.validation.validation_query import VALIDATION
from hubbub.learning.runs.result import Result
from hubbub.learning.runs.run_study import run
from hubbub.site.collected.collection_request import why_not

SCORES = ("run/validation.json", "run/validation-sums.json")
EFFECTS = ("run/coefficients.json", "run/coefficient-sums.json")
COLUMNS = {"age": {"low": 20, "high": 90}, "sex": {"categories": ["F", "M"]}}
Frames = Callable[[list[Kept]], list[Kept]]
_OWN = ("sha256", "parameters")  # what a model's file says of itself


@pytest.fixture(scope="module")
def silos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("silos")
    write_silos(folder)
    return folder


def asking(silos: Path, *, transcript: str = "full", sums: int = 1, **changed: Any) -> Study:
    """A model of two columns, its validation and its odds ratios, in a few sums."""
    made = table_of(
        silos,
        study={"transcript": transcript},
        data={"columns": COLUMNS},
        training={"steps": 3},
        privacy={"epsilon": 24.0},
        validation={"records": "training", "sums": sums, "holdout": 0.0},
    )
    del made["validation"]["holdout"]
    made["coefficients"] = {"epsilon": 16.0, "sums": 2}
    for name, keys in changed.items():
        made[name] = {**made.get(name, {}), **keys}
    return Study.from_table(made)


@dataclass
class Forger:
    """An aggregator with the folder of a run; its keys are the only ones that it has."""

    folder: Path
    keys: Keys
    result: Result

    def rewrite(self, purpose: str, frames: Frames = lambda kept: kept, *, number: int = 0) -> None:
        """The transcript of a query's session again, with other frames and any number."""
        (path,) = (one for one in files(self.folder) if read_header(one).purpose == purpose)
        self.rewrite_file(path, frames, purpose=purpose, number=number)

    def rewrite_file(
        self, path: Path, frames: Frames, *, purpose: str, number: int, full: bool = True
    ) -> None:
        """A transcript again, for any purpose; `full`, with all vectors that there are."""
        header, kept = read_header(path), list(read(path))
        full = full and all(k.payload is not None for k in kept if k.tag is not Tag.SHARE)
        path.unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "files", lambda _: range(number))
            transcript = Transcript(
                self.folder,
                study=header.study,
                session=header.session,
                roster=header.roster,
                purpose=purpose,
                full=full,
                round_parameters=header.round_parameters,
            )
        with transcript:
            for one in frames(kept):
                transcript.keep(one.frame, one.short)

    def release(self, parameters: np.ndarray) -> None:
        """Give out another model, in a file that is whole."""
        path, model = self.folder / MODEL, copy.deepcopy(self.result.model)
        with safe_open(path, framework="np") as file:
            kept = {key: said for key, said in file.metadata().items() if key not in _OWN}
        learning.load_parameters(model, parameters.astype(np.float32))
        learning.save_model(path, model, kept)

    def sign(self, *, words: bool = True) -> list[Finding]:
        """The evidence of all that is there now, with what silos said; and what is found of it."""
        path = self.folder / "evidence.json"
        told = json.loads(path.read_text())
        if paths := files(self.folder):
            text = collect(
                self.keys,
                self.folder,
                plan=self.result.plan,
                roster=read_header(paths[0]).roster,
                parts=told["silos"] if words else [],
                attempts=told["epsilon"]["attempts"],
            )
            path.write_text(text)
        return verify(self.folder)


@contextmanager
def asked_last_at(change: Callable[[Any], Any]) -> Iterator[None]:
    """What is asked last is asked at another model than the one that is released."""
    real = federated.ask_last

    def at(prepared: Any, trained: QueryState, *given: Any) -> Any:
        other = replace(trained, parameters=change(trained.parameters))
        return real(prepared, other, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(federated, "ask_last", at)
        yield


def forged(study: Study, folder: Path) -> Forger:
    """A run by a dishonest aggregator."""
    seen: list[Any] = []
    real = local_backend.federate

    def spied(*given: Any, **named: Any) -> Any:
        seen.append(named["keys"])
        return real(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_backend, "federate", spied)
        result = run(study, folder / "run")
    return Forger(folder / "run", seen[0][0], result)


def proven(found: list[Finding], word: str) -> list[str]:
    """What is said to have been computed again of a file."""
    return [one.claim for one in found if one.verdict == REDERIVED and word in one.claim]


def holds(found: list[Finding]) -> bool:
    return all(one.holds for one in found)


ARBITRARY = np.array([2.0, -1.0, 0.5], np.float32)


def elsewhere(parameters: Any) -> Any:
    return np.resize(ARBITRARY, parameters.shape).astype(np.float32)


def given(found: list[Finding]) -> list[str]:
    """All that is said to have been computed again of what people are told."""
    return [one for name in (*SCORES, *EFFECTS) for one in proven(found, name)]


@pytest.mark.slow
def test_all_that_an_honest_run_gives_is_computed_again(silos: Path, tmp_path: Path) -> None:
    forger = forged(asking(silos), tmp_path)
    found = forger.sign()
    assert holds(found)
    assert len(given(found)) == 4
    forger.rewrite("training", number=9)
    assert given(forger.sign()) == given(found)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2, 9])
def test_a_validation_of_another_model_is_found_whatever_headers_say(
    silos: Path, tmp_path: Path, number: int
) -> None:
    with asked_last_at(elsewhere):
        forger = forged(asking(silos), tmp_path)
    forger.rewrite("training", number=number)
    found = forger.sign()
    assert not holds(found)
    assert given(found) == []


def without_rounds(kept: list[Kept]) -> list[Kept]:
    return [one for one in kept if not one.round]


@pytest.mark.slow
def test_an_empty_training_proves_no_model_and_nothing_that_is_asked_of_it(
    silos: Path, tmp_path: Path
) -> None:
    with asked_last_at(elsewhere):
        forger = forged(asking(silos), tmp_path)
    forger.rewrite("training", without_rounds)
    found = forger.sign()
    assert not holds(found)
    assert [*given(found), *proven(found, "model.safetensors")] == []


@pytest.mark.slow
@pytest.mark.parametrize("change", [elsewhere, lambda parameters: parameters])
def test_where_a_training_was_kept_as_hashes_nothing_that_is_asked_of_its_model_is_proven(
    silos: Path, tmp_path: Path, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All vectors of the validation are there: of which model it is, nothing shows."""
    real = federated.ask_last

    def full(prepared: Any, trained: Any, opened: Any, folder: Any) -> Any:
        folder._full = True
        return real(
            prepared, replace(trained, parameters=change(trained.parameters)), opened, folder
        )

    monkeypatch.setattr(federated, "ask_last", full)
    found = forged(asking(silos, transcript="hashes"), tmp_path).sign()
    assert holds(found)
    assert given(found) == []
    doubts = {one.claim.split("/run/")[-1] for one in found if one.verdict == NOT_VERIFIABLE}
    sent = "it begins with a state that was sent and could not be recomputed here"
    assert doubts >= {
        "model.safetensors holds the model that the last step gave: "
        "not every sum and step could be recomputed",
        f"validation.json says what the sums say: {sent}",
        f"validation-sums.json follows from the sums, at the model of the last step: {sent}",
    }


@contextmanager
def begun_with_a_sum(purpose: str, times: float, step: int) -> Iterator[None]:
    """A query's first state has one earlier sum, which nobody has made."""
    real = loop.ask

    def ask(planned: Any, summation: Any, state: QueryState, **named: Any) -> QueryState:
        if planned.purpose == purpose:
            layout, kept = planned.query.layout, state.parameters.copy()
            begin = kept.size - layout.rounds * layout.numbers
            kept[0] = 1
            kept[begin : begin + layout.numbers] = times * np.linspace(-1.0, 1.0, layout.numbers)
            state = replace(state, step=step, attempts=1, parameters=kept)
        return real(planned, summation, state, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "ask", ask)
        yield


BEGUN = pytest.mark.parametrize(
    ("transcript", "step"), [("full", 0), ("full", 1), ("hashes", 0), ("hashes", 1)]
)


@pytest.mark.slow
@BEGUN
def test_a_first_state_that_carries_an_earlier_sum_is_found(
    silos: Path, tmp_path: Path, transcript: str, step: int
) -> None:
    with begun_with_a_sum("coefficients", 1e3, step):
        forger = forged(asking(silos, transcript=transcript), tmp_path)
    found = forger.sign()
    assert not holds(found)
    assert given(found) == []


@pytest.mark.slow
@BEGUN
def test_statistics_that_begin_with_sums_of_nobody_are_found(
    silos: Path, tmp_path: Path, transcript: str, step: int
) -> None:
    asked = table_of(silos, study={"transcript": transcript}, data={"columns": COLUMNS})
    for name in ("model", "training", "validation"):
        del asked[name]
    asked["statistics"] = {"ages": {"kind": "table", "columns": ["age"]}, "sums": 2}
    del asked["data"]["target"]
    with begun_with_a_sum("statistics", 1.0, step):
        forger = forged(Study.from_table(asked), tmp_path)
    found = forger.sign()
    assert not holds(found)
    assert proven(found, "statistics.json") == []


@pytest.mark.slow
def test_a_sum_that_was_made_counts_though_no_session_followed(silos: Path, tmp_path: Path) -> None:
    forger = forged(asking(silos, sums=2), tmp_path)
    path = forger.folder / "validation-sums.json"
    kept = json.loads(path.read_text())
    query = forger.result.plan.planned(VALIDATION).query
    path.write_text(json.dumps({"sums": kept["sums"][:1]}))
    found = forger.sign()
    assert any("validation-sums" in one.claim and not one.holds for one in found)
    # Nor if the messages of its round are left out, MODEL and all.
    forger.rewrite("validation", lambda kept: [one for one in kept if one.round < 2])
    found = forger.sign()
    assert not any("run/validation" in one for one in given(found))
    assert query.layout.size == len(kept["sums"][0])


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True])
def test_answers_that_lack_a_sum_are_not_proven(silos: Path, tmp_path: Path, last: bool) -> None:
    forger = forged(asking(silos), tmp_path)
    query = next(one.query for one in forger.result.plan.stepped if one.purpose == "coefficients")
    kept = sums_in(forger.folder, query.layout, COEFFICIENT_SUMS)
    kept[0] = 1
    kept[kept.size - query.layout.numbers :] = 0.0
    write_sums(forger.folder, kept, COEFFICIENT_SUMS)
    forger.rewrite(
        "coefficients", lambda kept: [one for one in kept if one.round != (2 if last else 1)]
    )
    found = forger.sign()
    assert proven(found, COEFFICIENT_SUMS) == []
    assert proven(found, "coefficients.json") == []


@pytest.mark.slow
def test_rounds_that_are_left_out_prove_no_earlier_model(silos: Path, tmp_path: Path) -> None:
    forger = forged(asking(silos), tmp_path)
    forger.rewrite("training", lambda kept: [one for one in kept if one.round < 3])
    found = forger.sign()
    assert not holds(found)
    assert proven(found, "model.safetensors") == []


@pytest.mark.slow
def test_a_session_is_not_counted_twice(silos: Path, tmp_path: Path) -> None:
    """Whoever drops one, and has another in two files, would show as many sums as are due."""
    forger = forged(asking(silos, transcript="hashes"), tmp_path)
    path = files(forger.folder)[0]
    shutil.copy(path, path.with_stem(bytes(16).hex()))
    assert any("of another session" in one.claim for one in forger.sign() if not one.holds)


@pytest.fixture(scope="module")
def correlated(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    """A training of two epochs of noise, four attempts each."""
    home = tmp_path_factory.mktemp("correlated")
    write_silos(home, 120)
    settings = {"steps": 8, "sampling": "poisson", "sample_rate": 0.25}
    settings |= {"noise": "correlated", "bands": 4}
    made = table_of(
        home,
        data={"columns": COLUMNS, "records": 480},
        training=settings,
        privacy={"epsilon": 24.0},
    )
    del made["validation"]
    return forged(Study.from_table(made), home)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [5, 7])
def test_an_epoch_that_is_cut_short_in_the_end_proves_no_earlier_model(
    correlated: Forger, tmp_path: Path, rounds: int
) -> None:
    """A lost session pays for its epoch to the end; of the last one nothing shows that it was."""
    folder = tmp_path / "run"
    shutil.copytree(correlated.folder, folder)
    forger = Forger(folder, correlated.keys, correlated.result)
    assert len(proven(forger.sign(), MODEL)) == 1
    (path,) = files(folder)
    states = [one for one in read(path) if one.tag is Tag.MODEL]
    forger.release(np.frombuffer(bytes(states[rounds].payload or b"")[-12:], "<f4"))
    forger.rewrite("training", lambda kept: [one for one in kept if one.round <= rounds])
    found = forger.sign()
    assert holds(found)
    assert proven(found, MODEL) == []
    assert f"have {rounds} attempts, of 8" in "".join(one.claim for one in found)


@pytest.mark.slow
def test_steps_that_could_not_be_taken_here_are_not_proven(
    silos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes down is shorter than what a step begins with, which only the study's code makes."""
    made = table_of(
        silos,
        data={"columns": COLUMNS},
        training={"steps": 2, "broadcast_dtype": "bfloat16"},
        privacy={"epsilon": 24.0},
    )
    del made["validation"]
    forger = forged(Study.from_table(made), tmp_path)
    assert len(proven(verify(forger.folder), "every step along it")) == 1
    monkeypatch.setattr("hubbub.learning.queries.training_query._built", lambda *_, **__: None)
    found = verify(forger.folder)
    assert holds(found)
    assert proven(found, "every step along it") == []


def test_whom_a_session_was_set_up_with_only_its_aggregator_says() -> None:
    """A ROLL is its word; the words of silos for it, CONFIRMs, are in no transcript."""
    keys = [
        Keys.generate(name, role)
        for name, role in ({"a": "aggregator"} | dict.fromkeys("bcd", "silo")).items()
    ]
    header = Header(
        study=bytes(32), session=bytes(16), purpose="training", number=0, roster=Roster.of(keys)
    )
    played = ReplayedSession(silos=frozenset({1, 2}))
    told = {one.claim: one.verdict for one in replay_findings("x", header, played, steps=False)}
    (verdict,) = (one for claim, one in told.items() if "set up with 2 of 3 silos" in claim)
    assert verdict == "signed"


@pytest.mark.slow
def test_what_is_asked_last_is_no_collection(
    silos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In which silos would sum at their first weights."""
    study = asking(silos, parties={"compute_nodes": 2})
    forger = forged(study, tmp_path)
    planned = forger.result.plan.planned(VALIDATION)
    assert "which needs the released model" in why_not(study, planned)
    real = checking.other_player
    monkeypatch.setattr(
        checking,
        "other_player",
        lambda path, header, *given: header.purpose == VALIDATION or real(path, header, *given),
    )
    (wrong,) = (one for one in verify(forger.folder) if not one.holds)
    assert "first weights" in wrong.verdict


@pytest.mark.slow
def test_what_rests_on_a_first_model_that_was_taken_is_not_proven(
    silos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the study's own code makes it."""
    forger = forged(asking(silos), tmp_path)
    monkeypatch.setattr("hubbub.learning.queries.training_query._built", lambda *_, **__: None)
    found = verify(forger.folder)
    assert holds(found)
    assert [*given(found), *proven(found, "model.safetensors")] == []
    taken = [one for one in found if "could not be recomputed here" in one.claim]
    assert {one.verdict for one in taken} == {NOT_VERIFIABLE}
    assert len(taken) >= 3
