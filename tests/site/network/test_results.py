"""Silos sum at no state that they know to be invented, and name the aggregator that shows it.

What is asked last is asked at the RESULT that a silo has signed, once for ever; an earlier sum is
there only if one was made. The aggregator of these tests signs what it likes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.learning.validation.made_up import SILOS, write_silos

from hubbub.core.errors import ProtocolError
from hubbub.core.protocol.primitives.wire import EVERYBODY, Frame, Tag, unverified
from hubbub.core.runs import federated, loop
from hubbub.core.session.ask import Absent, Call
from hubbub.core.verification.evidence.evidence_file import REDERIVED
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import files, read, read_header
from hubbub.site.network.coordinator import StudyClosing
from hubbub.site.network.endpoint import Endpoint
from hubbub.site.network.envelope import Missing, Phase
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.requests import Requests
from hubbub.site.network.waiting import Timeouts
from network.consortium import table
from network.relay import (
    Relay,
    Session,
    Watched,
    at,
    lost,
    on_parts,
    opened,
    refusal,
    setting_of,
)
from protocol.parties import world
from run.test_taken_states import Forger

NORTH = SILOS[0]
MODEL = np.array([0.5, -0.25, 0.125], "<f4")
OTHER = np.array([2.0, -1.0, 0.5], "<f4")


def gathered(home: Path, **changed: Any) -> Watched:
    """A study of a model of two columns, with its validation and its odds ratios."""
    write_silos(home / "files", 60)
    for name in SILOS:
        (home / name).mkdir()
        shutil.copy(home / "files" / f"{name}.csv", home / name)
    columns = {"age": {"low": 20, "high": 90}, "sex": {"categories": ["F", "M"]}}
    made = table(SILOS, privacy={"epsilon": 40.0}, training={"steps": 2, "sampling": "full-batch"})
    made["training"]["sample_rate"] = 1
    made["data"] = {"files": "{name}.csv", "records": 240, "columns": columns, "target": "died"}
    made["model"] = {"kind": "logistic"}
    made["validation"] = {"epsilon": 8.0, "records": "training", "sums": 3}
    made["coefficients"] = {"epsilon": 24.0, "sums": 3}
    for name, keys in changed.items():
        made[name] = made.get(name, {}) | keys
    return Watched.gather(home, made)


@pytest.fixture(autouse=True)
def beside_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test finds everybody's records, to open a session."""
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path / "files")


@pytest.fixture
def parties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Whose aggregator shows a RESULT when a test does."""
    monkeypatch.setattr(StudyClosing, "release", lambda *_: None)
    return gathered(tmp_path)


def signed(parties: Watched, session: Session, tag: Tag, payload: bytes, **where: Any) -> bytes:
    """A frame of the aggregator to everybody."""
    name = session.rounds.session
    return parties.sealed("aggregator", tag, payload, session=name, receiver=EVERYBODY, **where)


def show(parties: Watched, session: Session, model: np.ndarray) -> list[bytes]:
    """What a silo says to a RESULT."""
    frame = signed(parties, session, Tag.RESULT, model.tobytes())
    return parties.ask(NORTH, Call.RESULT, session.rounds.session, [frame])


def asked(parties: Watched, session: Session, model: np.ndarray, round: int = 1) -> list[bytes]:
    """What a silo says to a MODEL."""
    silos = range(1, 1 + len(SILOS))
    payload = b"".join(map(bytes, session.round_parameters.model_parts(silos, model, round)))
    frame = signed(parties, session, Tag.MODEL, payload, round=round)
    return parties.ask(NORTH, Call.MODEL, session.rounds.session, [frame])


def begun(session: Session, purpose: str, model: np.ndarray) -> np.ndarray:
    """The state before a query's first sum, at a model."""
    return session.plan.planned(purpose).query.start(model).astype(np.float32)


REFUSED = ("protocol", "aggregator")


@pytest.mark.slow
@pytest.mark.parametrize("purpose", ["validation", "coefficients"])
def test_what_is_asked_last_is_asked_at_the_result_that_was_signed(
    parties: Watched, purpose: str
) -> None:
    session = opened(parties, purpose=purpose)
    states = {name: begun(session, purpose, one) for name, one in (("M", MODEL), ("X", OTHER))}
    assert refusal(asked(parties, session, states["M"])) == REFUSED  # no RESULT yet
    (word,) = show(parties, session, MODEL)
    assert unverified(word).tag is Tag.RESULT_SIGNED
    assert refusal(asked(parties, session, states["X"], 2)) == REFUSED
    assert parties.rows(NORTH) == []
    # A round that was refused is over, and nothing is charged for it.
    assert unverified(asked(parties, session, states["M"], 3)[0]).tag is Tag.MASKED
    assert len(parties.rows(NORTH)) == 1


def test_a_silo_signs_one_result_and_no_other_after_a_restart_neither(parties: Watched) -> None:
    session = opened(parties, purpose="validation")
    first = show(parties, session, MODEL)
    assert show(parties, session, MODEL) == first
    assert refusal(show(parties, session, OTHER)) == REFUSED
    parties.stop(NORTH)
    parties.start(NORTH)
    again = opened(parties, purpose="coefficients")
    assert refusal(show(parties, again, OTHER)) == REFUSED
    assert refusal(asked(parties, again, begun(again, "coefficients", OTHER))) == REFUSED
    assert unverified(show(parties, again, MODEL)[0]).tag is Tag.RESULT_SIGNED


def test_who_signs_another_result_takes_no_part_in_what_is_asked_at_this_one() -> None:
    everybody, session, mine, another = world(), bytes(16), bytes(32), bytes([1] * 32)
    requests = Requests(everybody.roster, bytes(32), None, EventLog(party="a"), Timeouts())  # type: ignore[arg-type]
    closing = StudyClosing(requests=requests, study=SimpleNamespace(id=bytes(32)))  # type: ignore[arg-type]
    where = {"study": bytes(32), "session": session, "sender": 1, "receiver": 0}
    anothers = Frame(tag=Tag.RESULT_SIGNED, payload=mine, **where | {"sender": 2})
    assert isinstance(closing._word(mine, session, 1, [anothers.sealed(everybody.keys[2])]), Absent)
    for digest in (mine, another):
        word = Frame(tag=Tag.RESULT_SIGNED, payload=digest, **where).sealed(everybody.keys[1])
        found = closing._word(mine, session, 1, [word])
        if digest == mine:
            assert found == word
        else:
            assert isinstance(found, Absent)
            assert found.culprit == everybody.roster.name(1)


@pytest.mark.parametrize(("sender", "tag"), [(1, Tag.CLOSE), (0, Tag.RESULT)])
def test_p32_nobody_but_the_aggregator_ends_a_study(sender: int, tag: Tag) -> None:
    everybody, place = world(), {"study": bytes(32), "session": bytes(16)}
    endpoint: Any = SimpleNamespace(roster=everybody.roster)
    true = Frame(tag=Tag.CLOSE, payload=b"{}", sender=0, **place).sealed(everybody.keys[0])
    assert bytes(Endpoint.from_aggregator(endpoint, *place.values(), true, Tag.CLOSE)) == b"{}"
    other = Frame(tag=tag, payload=b"{}", sender=sender, **place).sealed(everybody.keys[sender])
    with pytest.raises(ProtocolError, match="expected a CLOSE of the aggregator"):
        Endpoint.from_aggregator(endpoint, *place.values(), other, Tag.CLOSE)


def test_a_silo_answers_at_the_result_alone_once_there_is_one_and_nothing_after_the_end(
    parties: Watched,
) -> None:
    """One study from its first sum to its end, with all at once that the slow tests take apart."""
    training = opened(parties)
    assert training.round(1)[0] is not None
    purpose = "coefficients"
    session = opened(parties, purpose=purpose)
    query = session.plan.planned(purpose).query
    first, elsewhere = (begun(session, purpose, one) for one in (MODEL, OTHER))
    early = setting_of(parties.study).start(query).parameters
    assert refusal(asked(parties, session, early)) == REFUSED  # no RESULT yet
    assert refusal(show(parties, training, MODEL)) == ("protocol", "relay")
    for payload in (MODEL.tobytes()[:-1], 2 * MODEL.tobytes(), b"\xff" * 12):
        found = show(parties, session, np.frombuffer(payload, np.uint8))
        assert refusal(found) == REFUSED
    assert not (parties.home / NORTH / "results").exists()
    assert unverified(show(parties, session, MODEL)[0]).tag is Tag.RESULT_SIGNED
    assert refusal(asked(parties, training, training.initial, 2)) == REFUSED
    # No sum was made, and all silos would have taken part in one.
    for round, state in ((2, elsewhere), (3, carrying(first, query, 1))):
        assert refusal(asked(parties, session, state, round)) == REFUSED
    assert len(parties.rows(NORTH)) == 1
    assert unverified(asked(parties, session, first, 4)[0]).tag is Tag.MASKED
    assert len(parties.rows(NORTH)) == 2
    for model, refused in ((OTHER, True), (MODEL, False)):
        told = ((Tag.CLOSE, b'{"sessions": []}'), (Tag.RESULT, model.tobytes()))
        frames = [signed(parties, session, tag, payload) for tag, payload in told]
        answer = parties.ask(NORTH, Call.CLOSE, session.rounds.session, frames)
        assert refusal(answer) == REFUSED if refused else unverified(answer[0]).tag is Tag.CLOSED
    part = json.loads(bytes(unverified(answer[0]).payload))
    paid = sorted(one.rounds.session.hex() for one in (training, session))
    assert (part["sessions"], sorted(part["unlisted"])) == ([], paid)
    assert refusal(asked(parties, session, first, 5))[0] == "no-session"
    parties.stop(NORTH)
    parties.start(NORTH)
    again = opened(parties, purpose=purpose)
    assert unverified(show(parties, again, MODEL)[0]).tag is Tag.RESULT_SIGNED
    assert refusal(asked(parties, again, first))[0] == "budget"
    assert len(parties.rows(NORTH)) == 2


@pytest.mark.slow
def test_after_the_result_nothing_is_summed_that_could_change_it(parties: Watched) -> None:
    training = opened(parties)
    assert training.round(1)[0] is not None
    show(parties, opened(parties, purpose="validation"), MODEL)
    assert refusal(asked(parties, training, training.initial, 2)) == REFUSED
    assert len(parties.rows(NORTH)) == 1


@pytest.mark.slow
def test_the_end_of_a_study_is_at_the_result_that_was_signed(parties: Watched) -> None:
    session = opened(parties, purpose="validation")
    show(parties, session, MODEL)
    listed = b'{"sessions": []}'

    def close(model: np.ndarray) -> list[bytes]:
        told = ((Tag.CLOSE, listed), (Tag.RESULT, model.tobytes()))
        frames = [signed(parties, session, tag, payload) for tag, payload in told]
        return parties.ask(NORTH, Call.CLOSE, session.rounds.session, frames)

    assert refusal(close(OTHER)) == REFUSED
    assert unverified(close(MODEL)[0]).tag is Tag.CLOSED


@pytest.mark.slow
def test_the_result_of_a_study_that_is_over_is_noted_too(parties: Watched) -> None:
    """Nobody shows another one later, though nothing was asked at the first."""
    session = opened(parties, purpose="validation")
    told = ((Tag.CLOSE, b'{"sessions": []}'), (Tag.RESULT, MODEL.tobytes()))
    frames = [signed(parties, session, tag, payload) for tag, payload in told]
    told = parties.ask(NORTH, Call.CLOSE, session.rounds.session, frames)
    assert [unverified(frame).tag for frame in told] == [Tag.CLOSED, Tag.READY]
    assert refusal(show(parties, session, MODEL))[0] == "no-session"
    parties.stop(NORTH)
    parties.start(NORTH)
    assert refusal(show(parties, opened(parties, purpose="validation"), OTHER)) == REFUSED


@pytest.mark.slow
@pytest.mark.parametrize(
    "payload", [b"", MODEL.tobytes()[:-1], 9 * MODEL.tobytes(), b"\xff" * 12], ids=len
)
def test_a_result_that_is_no_model_is_not_signed(parties: Watched, payload: bytes) -> None:
    session = opened(parties, purpose="validation")
    found = show(parties, session, np.frombuffer(payload, np.uint8))
    assert refusal(found) == REFUSED
    assert not (parties.home / NORTH / "results").exists()


@pytest.mark.slow
def test_no_session_of_the_training_is_shown_a_result(parties: Watched) -> None:
    assert refusal(show(parties, opened(parties), MODEL)) == ("protocol", "relay")


def carrying(state: np.ndarray, query: Any, sums: int) -> np.ndarray:
    """A state with earlier sums, each a thousand times what one could be."""
    layout, made = query.layout, state.copy()
    begin = made.size - layout.rounds * layout.numbers
    made[0] = sums
    made[begin : begin + sums * layout.numbers] = 1e3
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("sums", "round"), [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3)])
def test_a_first_state_that_carries_a_sum_is_refused(
    parties: Watched, sums: int, round: int
) -> None:
    """All silos take part in each sum of this study, so that each knows how many were made."""
    session = opened(parties, purpose="coefficients")
    show(parties, session, MODEL)
    query = session.plan.planned("coefficients").query
    state = carrying(begun(session, "coefficients", MODEL), query, sums)
    assert refusal(asked(parties, session, state, round)) == REFUSED
    assert parties.rows(NORTH) == []


@pytest.mark.slow
@pytest.mark.parametrize("spoil", ["count", "half", "below", "later", "nan", "place"])
def test_a_state_of_no_sums_is_the_first_one_to_the_last_bit(parties: Watched, spoil: str) -> None:
    session = opened(parties, purpose="coefficients")
    show(parties, session, MODEL)
    state = begun(session, "coefficients", MODEL)
    place, value = {
        "count": (0, 7.0),
        "half": (0, 0.5),
        "below": (0, -1.0),
        "later": (-1, 1e-3),
        "nan": (-1, np.nan),
        "place": (1, 9.0),
    }[spoil]
    state[place] = value
    assert refusal(asked(parties, session, state))[0] == "protocol"
    assert parties.rows(NORTH) == []


@pytest.mark.slow
def test_statistics_begin_with_no_sums(tmp_path: Path) -> None:
    changed = {"statistics": {"ages": {"kind": "table", "columns": ["age"]}, "epsilon": 1.0}}
    changed["statistics"]["sums"] = 2
    parties = gathered(tmp_path, **changed)
    session = opened(parties, purpose="statistics")
    query = session.plan.planned("statistics").query
    state = query.start(None)
    for round, sums in ((1, 1), (2, 1), (2, 2)):
        assert refusal(asked(parties, session, carrying(state, query, sums), round)) == REFUSED
    assert parties.rows(NORTH) == []


# Whole runs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_honest_run_shows_its_result_before_it_asks_last(tmp_path: Path) -> None:
    parties = gathered(tmp_path)
    result = parties.serve()
    found = verify(tmp_path / "run")
    assert [one for one in found if not one.holds] == []
    model = np.concatenate([one.detach().numpy().ravel() for one in result.model.parameters()])
    last = [
        path
        for path in files(tmp_path / "run")
        if read_header(path).purpose in ("validation", "coefficients")
    ]
    assert len(last) == 2
    for path in last:
        kept = list(read(path))
        (shown,) = (one.payload for one in kept if one.tag is Tag.RESULT)
        assert shown == model.astype("<f4").tobytes()
        assert sum(one.tag is Tag.RESULT_SIGNED for one in kept) == len(SILOS)
    told = [one for one in found if "had signed as the RESULT" in one.claim]
    assert [one.verdict for one in told] == ["signed", "signed"]
    proven = "".join(one.claim for one in found if one.verdict == REDERIVED)
    assert all(name in proven for name in ("run/validation.json", "run/coefficients.json"))


@pytest.mark.slow
def test_a_run_that_asks_at_another_model_gets_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.ask

    def ask(planned: Any, summation: Any, state: Any, **named: Any) -> Any:
        if planned.purpose == "validation":
            state = federated.replace(state, parameters=OTHER.astype(np.float32))
        return real(planned, summation, state, **named)

    monkeypatch.setattr(loop, "ask", ask)
    parties = gathered(tmp_path)
    result = parties.serve()
    assert "lost" in result.validation["refusal"]
    purposes = {one.kind.purpose for one in parties.seats[NORTH]._ledger.entries()}
    assert purposes == {"training", "coefficients"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whose", "said"),
    [
        ("", "north did not answer"),
        (NORTH, "unusable message: north: expected a signature for the RESULT that it was shown"),
        (SILOS[1], "unusable message: relay: expected frames of north, got another's"),
    ],
    ids=["nothing", "another", "another's"],
)
def test_a_silo_that_does_not_sign_the_result_costs_the_others_no_sum(
    tmp_path: Path, whose: str, said: str
) -> None:
    """Its one sum is the others', though the silo is there again when it is asked for."""
    parties = gathered(tmp_path, parties={"dropouts": 1}, validation={"sums": 1})

    def lied(frames: list[bytes]) -> list[bytes]:
        """A word for another RESULT, or another silo's for this one."""
        signed = unverified(frames[0])
        where = {"session": signed.session, "receiver": EVERYBODY}
        digest = bytes(32) if whose == NORTH else bytes(signed.payload)
        return [parties.sealed(whose, Tag.RESULT_SIGNED, digest, **where)]

    relay = Relay(parties.phase, tells=at("result", on_parts(lied) if whose else lost, NORTH))
    result = parties.serve(relay)
    assert result.validation["refusal"] == ""
    purposes = [one.kind.purpose for one in parties.seats[NORTH]._ledger.entries()]
    assert purposes == ["training", "training"]
    assert all(one.holds for one in verify(tmp_path / "run"))
    assert [said in line for line in parties.said if "north" in line][:-1] == [True, True]


@pytest.mark.slow
def test_a_model_that_is_not_the_result_is_found_though_no_sum_can_be_made_again(
    tmp_path: Path,
) -> None:
    parties = gathered(tmp_path, study={"transcript": "hashes"})
    forger = Forger(tmp_path / "run", parties.aggregator.keys, parties.serve())
    assert [one.verdict for one in forger.sign() if "holds the RESULT" in one.claim] == ["signed"]
    kept = (tmp_path / "run" / "model.safetensors").read_bytes()
    forger.release(OTHER)
    (wrong,) = (one for one in forger.sign() if not one.holds)
    assert "holds the RESULT" in wrong.claim
    (tmp_path / "run" / "model.safetensors").write_bytes(kept)
    first = (Tag.RESULT_SIGNED, 1)
    forger.rewrite("validation", lambda kept: [k for k in kept if (k.tag, k.sender) != first])
    (wrong,) = (one for one in forger.sign() if not one.holds)
    assert "silos that had signed the RESULT" in wrong.verdict


class KilledError(BaseException):
    """The aggregator's process has ended."""


def killed(phase: Phase, name: str, number: int, whom: Sequence[str]) -> Phase:
    """The aggregator dies in the n-th phase of a name, when only some parties were asked."""
    left = [number]

    def carried(
        called: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        left[0] -= called == name
        if left[0]:
            yield from phase(called, requests, deadline)
        else:
            some = {party: blob for party, blob in requests.items() if party in whom}
            list(phase(called, some, deadline))
            raise KilledError

    return carried


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number", "asked"),
    [
        *(("result", 1, 1), ("model", 3, 0), ("model", 3, 1)),
        *(("model", 4, 4), ("model", 4, 1), ("result", 2, 4), ("close", 1, 1)),
    ],
)
def test_a_run_whose_aggregator_dies_at_its_end_goes_on(
    tmp_path: Path, name: str, number: int, asked: int
) -> None:
    """An attempt that one silo has paid for is over for all, no other; nobody is blamed."""
    parties = gathered(tmp_path, validation={"sums": 1}, coefficients={"sums": 1})
    with pytest.raises(KilledError):
        parties.serve(killed(parties.phase, name, number, SILOS[:asked]))
    result = parties.serve()
    lost = {3: "validation", 4: "coefficients"}.get(number if name == "model" and asked else 0)
    assert ("was charged, and lost" in result.validation["refusal"]) == (lost == "validation")
    effects = (tmp_path / "run" / "coefficients.json").read_text()
    assert ("were charged, and lost" in effects) == (lost == "coefficients")
    assert [one for one in verify(tmp_path / "run") if not one.holds] == []
    spared = SILOS[asked:] if lost else ()
    paid = {silo: len(parties.rows(silo)) for silo in SILOS}
    assert paid == {silo: 4 - (silo in spared) for silo in SILOS}
