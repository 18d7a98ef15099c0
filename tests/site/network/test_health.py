"""Who watches a party hears when it cannot do its part: from its health page, and by alerts.

A process that is connected and refuses whatever it is asked is not well, and says so until it has
done what it refused. What others do wrong, or send, does not make it ill.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import BudgetError, IntegrityError, UserError
from hubbub.core.ledger.entry import Cap
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag, unverified
from hubbub.core.session.ask import AbsentError, Call
from hubbub.site.network import monitor
from hubbub.site.network.endpoint import OwnRefusals
from hubbub.site.network.envelope import Missing, read_request, request
from hubbub.site.network.event_log import (
    DONE,
    STATUS,
    EventLog,
    StudyLog,
    last_status,
    state_of,
)
from hubbub.site.network.join import Machine, _Joined
from hubbub.site.network.monitor import health, monitored
from hubbub.site.network.nats.relay import Relay
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.proposals import Courier, Outbox
from hubbub.site.network.requests import Requests
from hubbub.site.network.waiting import WaitedError
from network.lines import free_port
from network.relay import (
    HASTY,
    NAMES,
    Watched,
    at,
    at_once,
    flipped,
    open_frame,
    opened,
    refusal,
)
from network.relay import Relay as Carried
from network.test_monitor import get, samples
from network.test_patience import Refusing, full

ALERTS = Path(__file__).parents[3] / "deploy" / "alerts.yaml"
SESSION = bytes(range(16))


def well(parties: Watched, name: str = "bob") -> tuple[bool, str]:
    """The health of a party that has a line, and what is wrong."""
    log = parties.seats[name].event_log
    log.state(state="waiting", connected=True)
    found, said = health(log.known())
    return found, said.get("reason", "")


def no_disk(parties: Watched) -> Callable[[], None]:
    held = full(parties.seats["bob"])
    held.__enter__()
    return lambda: held.__exit__(None, None, None)


def altered(parties: Watched) -> Callable[[], None]:
    endpoint: Any = parties.seats["bob"]

    def raising() -> None:
        raise IntegrityError("expected row 7 to fit the chain, it was altered")

    endpoint._ledger.check_writable = raising
    return lambda: delattr(endpoint._ledger, "check_writable")


def no_records(parties: Watched) -> Callable[[], None]:
    endpoint: Any = parties.seats["bob"]

    def raising(*_: Any) -> None:
        raise ValueError("4177.25")

    endpoint.prepared, real = raising, endpoint.prepared

    def mended() -> None:
        endpoint.prepared = real

    return mended


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "word"),
    [(no_disk, "ledger"), (altered, "ledger"), (no_records, "failed")],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_who_refuses_each_session_is_not_well_until_it_takes_part(
    gather: Any, spoil: Callable[[Watched], Callable[[], None]], word: str
) -> None:
    parties = gather()
    assert well(parties) == (True, "")
    mend = spoil(parties)
    with pytest.raises(WaitedError, match="bob: "):
        opened(parties, timeouts=replace(HASTY, waiting=0.1))
    found, why = well(parties)
    assert not found
    assert why.startswith(f"cannot take part: {word}: ")
    assert "4177" not in why
    assert well(parties, "ann") == (True, "")
    mend()
    assert opened(parties).round(1)[0] is not None
    assert well(parties) == (True, "")


@pytest.mark.slow
def test_who_has_no_room_left_under_its_cap_is_not_well_until_it_has(gather: Any) -> None:
    parties = gather()
    endpoint: Any = parties.seats["bob"]
    endpoint._ledger.set_cap(Cap(epsilon=13.0, delta=1e-5, relation="add-remove"))
    with pytest.raises(BudgetError, match="bob"):
        parties.serve(timeouts=HASTY)
    found, why = well(parties)
    assert not found
    assert why.startswith("cannot take part: budget: ")
    assert not re.search(r"\d", why)
    assert opened(parties)  # a session alone makes nothing well: the next attempt would be refused
    assert not well(parties)[0]
    endpoint._ledger.set_cap(Cap(epsilon=50.0, delta=1e-5, relation="add-remove"))
    assert opened(parties).round(3)[0] is not None
    assert well(parties) == (True, "")


def test_who_answered_a_session_that_goes_on_without_it_is_not_well_until_it_is_in_one(
    gather: Any,
) -> None:
    """As where its ledger was set back: nobody else would tell its people."""
    parties, session = gather(), bytes(16)
    parties.ask("bob", Call.PING, session)  # before it is opened
    parties.ask("bob", Call.OPEN, session, [open_frame(parties, session)])
    assert well(parties) == (True, "")
    parties.ask("bob", Call.PING, session)  # by whom it is left out
    found, why = well(parties)
    assert not found
    assert why.startswith("cannot take part: left-out: a session went on without it")
    assert "if this folder or its ledger comes from a backup, follow the runbook" in why
    parties.ask("bob", Call.OPEN, bytes([1] * 16), [open_frame(parties, bytes([1] * 16))])
    assert not well(parties)[0]
    assert opened(parties)
    assert well(parties) == (True, "")


def test_an_aggregator_that_ended_before_a_session_was_set_up_is_not_only_waited_for(
    gather: Any,
) -> None:
    """It ends at once where more ledgers were set back than may be missing."""
    parties, session = gather(), bytes(16)
    seat = parties.seats["bob"]
    joined = _Joined(seat.party_folder, parties.home, Machine(), seat.event_log, None)
    joined._endpoint = seat
    joined._left()
    assert not seat.event_log.current("absent_why")
    joined._answer(request(Call.OPEN, session, [open_frame(parties, session)]))
    joined._left()
    why = seat.event_log.current("absent_why")["the aggregator"]
    assert "answered; the aggregator's log says why; if this folder" in why
    joined._answer(request(Call.PING, session, []))
    assert seat.event_log.current("absent_why") == {}
    for state in seat._sessions.values():
        state.closed = True  # by the end of its study, in a session of another purpose
    joined._left()
    assert seat.event_log.current("absent_why") == {}


@pytest.mark.slow
def test_a_silo_whose_ledger_fails_in_mid_round_is_not_well(gather: Any) -> None:
    parties = gather()
    session, held = opened(parties), full(parties.seats["bob"])
    with held, pytest.raises(AbsentError, match="bob: its ledger cannot be written"):
        session.round(1)
    assert well(parties)[1].startswith("cannot take part: ledger: ")


@pytest.mark.slow
def test_a_withdrawal_ends_what_was_wrong_with_a_study(gather: Any) -> None:
    parties = gather()
    mend = no_disk(parties)
    with pytest.raises(WaitedError):
        opened(parties, timeouts=replace(HASTY, waiting=0.1))
    assert not well(parties)[0]
    mend()
    parties.sites["bob"].withdraw(parties.study.id)
    parties.seats["bob"].look()
    assert well(parties) == (True, "")


@pytest.mark.slow
def test_what_others_send_makes_nobody_ill(gather: Any) -> None:
    """Junk, strangers' studies, old sessions and replays are refused, and the party is well."""
    parties, others = gather(), gather(study={"name": "theirs"})
    ann = parties.seats["ann"]
    assert ann.answer(b"junk")
    assert refusal(parties.ask("ann", Call.OPEN, SESSION, [open_frame(others, SESSION)]))
    assert refusal(parties.ask("ann", Call.MODEL, SESSION, [b""]))[0] == "no-session"
    frame = open_frame(parties, SESSION)
    parties.ask("ann", Call.OPEN, SESSION, [frame])
    assert refusal(parties.ask("ann", Call.OPEN, SESSION, [frame]))[0] == "protocol"
    assert refusal(parties.ask("ann", Call.MODEL, SESSION, [b""]))[0] == "no-session"
    assert well(parties, "ann") == (True, "")


@pytest.mark.slow
@pytest.mark.parametrize("over", ["closed", "used up"])
def test_who_is_asked_on_after_a_studys_end_refuses_and_is_well(gather: Any, over: str) -> None:
    """No cap would let the attempt in: it is the aggregator that asks for too much."""
    parties = gather()
    session = opened(parties)
    for number in range(1, 2 if over == "closed" else 5):
        session.round(number)
    if over == "closed":
        assert len(session.close([session.rounds.session])) == len(NAMES)
    rows = len(parties.rows("bob"))
    why = {"closed": "breaks the protocol, by aggregator", "used up": "refuses the attempt"}[over]
    with pytest.raises(AbsentError, match=f"bob.*: .*{why}"):
        opened(parties).round(4)
    assert len(parties.rows("bob")) == rows
    assert well(parties) == (True, "")


@pytest.mark.slow
def test_an_offer_with_other_numbers_is_told_of_once_however_often_it_is_sent(gather: Any) -> None:
    """Else whoever kept it could make a party ill whose study goes on well, or is over."""
    parties = gather()
    frame = open_frame(parties, SESSION, {"steps": 99})
    assert refusal(parties.ask("ann", Call.OPEN, SESSION, [frame]))[0] == "plan"
    assert not well(parties, "ann")[0]
    session = opened(parties)
    session.round(1)
    session.close([session.rounds.session])
    assert well(parties, "ann") == (True, "")
    assert refusal(parties.ask("ann", Call.OPEN, SESSION, [frame]))[0] == "protocol"
    assert well(parties, "ann") == (True, "")


@pytest.mark.slow
def test_a_disk_that_does_not_take_the_model_is_told_in_the_systems_words(
    gather: Any, monkeypatch: Any
) -> None:
    parties = gather()
    session = opened(parties)
    session.round(1)
    (parties.home / "bob" / "models").write_text("no folder")
    with monkeypatch.context() as patch:
        patch.setattr(Requests, "tell_end", lambda *_: set())  # does not reach it
        assert len(session.close([session.rounds.session])) == len(NAMES) - 1
    assert any(one.endswith("got: Not a directory") for one in parties.said)
    assert well(parties)[1].startswith("cannot take part: failed: ")
    assert len(session.close([session.rounds.session])) == len(NAMES) - 1
    assert well(parties) == (True, "")  # the study is over there too, and the model is elsewhere
    (parties.home / "bob" / "models").unlink()
    assert len(session.close([session.rounds.session])) == len(NAMES)
    assert well(parties) == (True, "")


@pytest.mark.slow
def test_a_study_that_is_over_is_withdrawn_without_a_word(gather: Any) -> None:
    parties = gather()
    session = opened(parties)
    session.close([session.rounds.session])
    log = parties.seats["ann"].event_log
    parties.sites["ann"].withdraw(parties.study.id)
    parties.seats["ann"].look()
    assert (log.current("state"), log.current("last_error")) == ("done", None)


def test_a_party_without_a_line_says_why_whatever_else_went_wrong_last() -> None:
    event_log = EventLog(party="ann")
    event_log.line(False, "nobody listens at tls://hub:4222")
    event_log.warn("twice", whom="ann")
    reason = health(event_log.known())[1]["reason"]
    assert reason == "not connected: nobody listens at tls://hub:4222"


@pytest.mark.slow
def test_a_study_whose_aggregator_has_left_does_not_go_on_because_a_line_comes_back(
    gather: Any,
) -> None:
    """Else it counts as one in which nothing is answered, for as long as the process lives."""
    parties = gather()
    session, log = opened(parties), parties.seats["ann"].event_log
    session.round(1)
    joined = _Joined(parties.sites["ann"], Relay.of("tls://hub"), Machine(), log, None)
    joined._endpoint = parties.seats["ann"]
    states = []
    for change in (
        joined._left,
        lambda: joined._told(False, "a cut"),
        lambda: joined._told(True, ""),
        lambda: session.round(2),
        lambda: joined._answer(request(Call.PING, session.rounds.session, [])),
        lambda: joined._told(True, ""),
    ):
        change()
        states.append(log.current("state"))
    assert states[2] == "waiting"
    assert states[-1] == "training"


def test_a_study_that_is_approved_after_the_last_one_ended_is_waited_for(gather: Any) -> None:
    """Until then a party without a line is well, and from then on it is not."""
    parties, others = gather(), gather(study={"name": "theirs"})
    log, folder = EventLog(party="ann"), parties.sites["ann"]
    joined = _Joined(folder, Relay.of("tls://hub"), Machine(), log, None)
    log.line(False, "nobody listens")
    log.state(state=DONE)
    joined._await_approved()
    assert health(log.known()) == (True, {"state": "done"})
    name = f"{others.study.id.hex()}.toml"
    (folder.home / "approved" / name).write_text(others.study.as_toml())
    joined._await_approved()
    assert health(log.known()) == (
        False,
        {"state": "waiting", "reason": "not connected: nobody listens"},
    )


def test_signs_of_life_alone_keep_nobody_who_came_once(gather: Any) -> None:
    """They are asked of who has refused, too, which has nothing to wait for."""
    parties = gather()
    ann = parties.seats["ann"]
    joined = _Joined(
        parties.sites["ann"], Relay.of("tls://hub"), Machine(), EventLog(party="ann"), None
    )
    joined._endpoint, joined._heard = ann, -1e9
    joined._answer(request(Call.PING, SESSION, []))
    with pytest.raises(UserError, match="it was silent"):
        joined._is_done(ann, 120.0)
    joined._answer(request(Call.COLLECT_REST, SESSION, [b"junk"]))
    assert not joined._is_done(ann, 120.0)


def test_who_refuses_in_the_middle_of_a_study_is_not_called_at_work(tmp_path: Path) -> None:
    log = EventLog(party="ann", folder=tmp_path)
    log.progress(3, 10)
    log.state(refusing="ledger: it cannot be written")
    assert (log.known()["state"], last_status(tmp_path)["state"]) == ("refusing", "refusing")
    log.state(refusing="")
    assert (log.known()["state"], last_status(tmp_path)["state"]) == ("training", "training")


def test_the_page_says_503_and_metrics_count_it() -> None:
    log, port = EventLog(party="ann"), free_port()
    log.state(state="waiting", connected=True, refusing="ledger: it cannot be written")
    log.state(left_out=["bob", "cyn"], parties_refusing=["cyn"])
    log.answered()
    with monitored(log, port):
        status, page = get(port, "/healthz")
        numbers = samples(get(port, "/metrics")[1])
        log.state(refusing="", left_out=[], parties_refusing=[])
        assert get(port, "/healthz")[0] == 200
        after = samples(get(port, "/metrics")[1])
    assert status == 503
    assert json.loads(page)["reason"] == "cannot take part: ledger: it cannot be written"
    names = ("hubbub_refusing", "hubbub_left_out", "hubbub_parties_refusing")
    assert [numbers[name][1] for name in names] == [1, 2, 1]
    assert [after[name][1] for name in names] == [0, 0, 0]
    assert numbers["hubbub_last_progress_timestamp_seconds"][1] > 1.6e9


@pytest.mark.slow
def test_the_aggregator_tells_who_is_left_out_and_who_refuses(gather: Any) -> None:
    parties = gather(parties={"colluders": 0, "dropouts": 1})
    engine = Refusing(parties, lambda name, party, _: (name, party) == ("model", "bob"))
    session = opened(parties, engine)
    session.round(1, attempts=2)
    known = session.rounds.peers.event_log.known()
    assert (known["left_out"], known["parties_refusing"]) == (["bob"], ["bob"])
    whole = opened(parties)
    assert whole.rounds.peers.event_log.known().get("left_out", []) == []


def test_alerts_are_about_numbers_that_there_are() -> None:
    kinds = {**monitor._COUNTERS, **monitor._GAUGES}
    shown = {name for name, _ in kinds.values()} | {"hubbub_state"}
    text = ALERTS.read_text()
    asked = set(re.findall(r"\bhubbub_\w+", text))
    assert set(re.findall(r'state="(\w+)"', text)) <= set(monitor._STATES)
    assert {"hubbub_refusing", "hubbub_left_out", "hubbub_last_progress_timestamp_seconds"} <= asked
    assert asked <= shown


def test_a_status_from_the_future_is_no_sign_of_life(tmp_path: Path) -> None:
    """A party that was killed before its clock was set back would be well for as long."""
    log = EventLog(party="ann", folder=tmp_path)
    log.state(state="waiting", connected=True)
    assert health(last_status(tmp_path))[0]
    status = json.loads((tmp_path / STATUS).read_text())
    (tmp_path / STATUS).write_text(json.dumps({**status, "time": status["time"] + 3600.0}))
    well, told = health(last_status(tmp_path))
    assert not well
    assert "in the future" in told["reason"]


def test_a_node_says_of_each_study_when_it_answered_last(gather: Any) -> None:
    """Until it is told of the end, so that a study is neither going on nor over there."""
    parties = gather(parties={"compute_nodes": 2})
    session = opened(parties)
    parties.seats["node-1"]._told = 0.0
    session.round(1)
    log = parties.seats["node-1"].event_log
    study = state_of(log.known(), parties.study.id)
    assert study["state"] == "answered"
    assert study["last_progress"] > 0
    assert log.current("state") != "answered"
    parties.sites["node-1"].withdraw(parties.study.id)
    parties.seats["node-1"].look()
    assert state_of(log.known(), parties.study.id)["state"] == "withdrawn"


def test_a_node_is_told_that_a_study_is_over_and_remembers_it(gather: Any) -> None:
    """Without its result; a process that begins anew knows it, and needs no line to be well."""
    parties = gather(parties={"compute_nodes": 2})
    relay = Carried(parties.phase)
    session, seat = opened(parties, relay), parties.seats["node-1"]
    session.round(1)
    assert len(session.close([session.rounds.session])) == len(NAMES)
    log, folder = seat.event_log, parties.sites["node-1"]
    assert state_of(log.known(), parties.study.id)["state"] == DONE
    assert health(log.known()) == (True, {"state": DONE})
    assert seat.at_work is False
    (asked,) = relay.asked("close", "node-1")
    assert [unverified(part).tag for part in read_request(asked)[2]] == [Tag.CLOSE]
    assert folder.unfinished() == []
    assert not (folder.home / "models").exists()
    asked_on = parties.ask("node-1", Call.TOTAL, session.rounds.session, [b""])
    assert refusal(asked_on)[0] == "no-session"
    parties.start("node-1")
    assert parties.seats["node-1"].party_folder.unfinished() == []
    folder.withdraw(parties.study.id)
    folder.approve(parties.study, folder.roster)
    assert len(folder.unfinished()) == 1


def test_who_is_not_in_a_studys_last_session_is_told_that_it_is_over(gather: Any) -> None:
    """One was left out of all of them and reads so, another was started anew, and knows none."""
    parties = gather(parties={"dropouts": 1, "colluders": 0})
    relay = Carried(parties.phase, tells=at("open", flipped, "bob"))
    session = opened(parties, relay, at_once())
    session.round(1)
    cyn = parties.seats["cyn"]
    parties.ask("bob", Call.PING, session.rounds.session)
    assert not well(parties)[0]
    cyn.close()
    parties.start("cyn")
    signed = session.close([session.rounds.session])
    assert [part["silo"] for part in signed] == ["ann"]
    assert well(parties) == (True, "")
    for name in ("bob", "cyn"):
        assert parties.sites[name].unfinished() == []
        assert parties.seats[name].event_log.known()["studies"]
        beside = parties.seats[name]._plans_of([parties.study.id])
        assert beside == []  # under a cap no other study waits for what is over
    assert any("no signed part from cyn" in line for line in parties.said)


def test_nobody_but_the_aggregator_ends_a_study_and_a_silo_is_owed_its_result(gather: Any) -> None:
    """A relay that hands on half of the end does not have a silo pass it by."""
    parties = gather(parties={"compute_nodes": 2})
    session = opened(parties)
    session.round(1)
    named = {"session": session.rounds.session, "receiver": EVERYBODY}
    for frame in (
        parties.sealed("ann", Tag.CLOSE, **named),
        parties.sealed("aggregator", Tag.RESULT, **named),
    ):
        assert refusal(parties.ask("node-1", Call.CLOSE, named["session"], [frame]))
    assert len(parties.sites["node-1"].unfinished()) == 1
    told = parties.sealed("aggregator", Tag.CLOSE, b'{"sessions": []}', **named)
    assert refusal(parties.ask("ann", Call.CLOSE, named["session"], [told]))[0] == "protocol"
    assert len(parties.sites["ann"].unfinished()) == 1
    assert parties.ask("node-1", Call.CLOSE, bytes(16), [told]) == []
    assert parties.sites["node-1"].unfinished() == []


def test_where_a_study_stands_is_told_though_no_attempt_follows(gather: Any) -> None:
    """Else a page shows the first attempt of a few seconds for as long as a study stands still."""
    parties = gather()
    session, seat = opened(parties), parties.seats["ann"]
    session.round(1)
    session.round(2)
    seat.look()
    assert state_of(seat.event_log.known(), parties.study.id).get("attempts") is None
    seat._told = 0.0
    seat.event_log.state(state="waiting")  # for an aggregator that has left
    seat.look()
    assert seat.event_log.current("state") == "waiting"
    seat.event_log.state(state="training")
    seat.look()
    assert state_of(seat.event_log.known(), parties.study.id)["attempts"] == 2
    session.round(3)
    assert len(session.close([session.rounds.session])) == len(NAMES)
    seat._told = 0.0
    seat.look()
    assert state_of(seat.event_log.known(), parties.study.id)["state"] == DONE


def test_a_ledger_that_cannot_be_read_for_a_while_ends_no_process(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only people are to be told; what is charged next is refused, and told."""
    parties = gather()
    session, seat = opened(parties), parties.seats["ann"]
    session.round(1)
    session.round(2)
    seat._told = 0.0
    seat.event_log.state(state="training")

    def unreadable(*_: Any) -> int:
        raise IntegrityError("expected a ledger, got: disk I/O error; check the disk")

    with monkeypatch.context() as patch:
        patch.setattr(seat._ledger, "spent_on", unreadable)
        seat.look()
    session.round(3)
    seat._told = 0.0
    seat.look()
    assert state_of(seat.event_log.known(), parties.study.id)["attempts"] == 3


def test_a_study_that_is_over_hides_no_later_second_process() -> None:
    """Else the page of an aggregator of several has the time of old, and nothing after a day."""
    whole = EventLog(party="aggregator")
    ends, goes_on = (StudyLog.within(whole, name, name.encode() * 8) for name in "ab")
    for study in (ends, goes_on):
        study.state(state="training", twice_at={"bob": 1.0})
    ends.state(state=DONE)
    goes_on.state(twice_at={"bob": 2.0})
    assert whole.current("twice_at") == {"bob": 2.0}


def test_sessions_that_are_answered_in_vain_are_told_of(gather: Any) -> None:
    """As where a ledger was set back: the study waits for that party, which nobody else tells."""
    parties = gather()
    study, log = parties.study.id, parties.seats["bob"].event_log
    for number in (1, 2):
        assert not state_of(log.known(), study).get("why")
        session = bytes([number] * 16)
        parties.ask("bob", Call.OPEN, session, [open_frame(parties, session)])
    assert "none was set up" in state_of(log.known(), study)["why"]
    assert well(parties) == (True, "")
    opened(parties)
    assert not state_of(log.known(), study)["why"]


def test_what_keeps_a_party_from_its_part_is_said_as_its_log_says_it() -> None:
    log = EventLog(party="ann")
    refusals = OwnRefusals(log)
    refusals.add(bytes(32), Call.MODEL, "ledger", "expected a row to be taken, the disk is full")
    assert log.current("refusing") == (
        "ledger: its ledger cannot be written or was altered: expected a row to be taken, the disk "
        "is full"
    )
    refusals.add(bytes(32), Call.MODEL, "budget", "epsilon 3 of 2")
    assert log.current("refusing").startswith("budget: its ledger refuses the attempt")
    assert "epsilon" not in log.current("refusing")


def test_whom_an_end_has_found_away_is_told_once_it_is_back(gather: Any) -> None:
    """Silos, in a session and in none, and a node that were frozen; each is told once."""
    parties = gather(parties={"dropouts": 1, "colluders": 0, "compute_nodes": 2})
    parties.stop("bob")
    session = opened(parties, timeouts=at_once())
    session.round(1)
    parties.stop("node-1")
    frozen = parties.seats.pop("cyn")
    assert {part["silo"] for part in session.close([session.rounds.session])} == {"ann"}
    site, log = parties.aggregator, EventLog(party="aggregator")
    assert list(Outbox(site).untold()) == [(parties.study.id, {"bob", "cyn", "node-1"})]
    asked = list[str]()

    def phase(name: str, requests: Any, deadline: float) -> Any:
        asked.extend(requests)
        return parties.phase(name, requests, deadline)

    courier = Courier(party_folder=site, phase=phase, event_log=log, timeouts=HASTY)
    Outbox(site).note_untold(bytes(32), {"bob"})
    courier.tell_ends()
    assert sorted(asked) == ["bob", "cyn", "node-1"]  # once, of two studies
    Outbox(site).note_untold(bytes(32), set())
    asked.clear()
    parties.seats["cyn"] = frozen  # it knows the session, of which nobody asks any more
    for name in ("bob", "node-1"):
        parties.start(name)
    for _ in range(2):
        courier.tell_ends()
    assert asked == ["bob", "cyn", "node-1"]
    assert [parties.sites[name].unfinished() for name in asked] == [[], [], []]
    assert state_of(parties.seats["bob"].event_log.known(), parties.study.id)["state"] == DONE


def test_an_end_is_told_without_the_model_to_who_could_not_take_that(gather: Any) -> None:
    """A silo that was started again takes no more than an offer has, as it knows no session."""
    parties = gather()

    def phase(name: str, requests: Any, deadline: float) -> Any:
        too_large = {
            party
            for party, blob in requests.items()
            if (name, party) == ("close", "bob") and len(read_request(blob)[2]) > 1
        }
        yield from ((party, Missing()) for party in too_large)
        left = {party: blob for party, blob in requests.items() if party not in too_large}
        yield from parties.phase(name, left, deadline) if left else ()

    session = opened(parties, phase, at_once())
    session.round(1)
    parties.stop("bob")
    parties.start("bob")
    assert len(session.close([session.rounds.session])) == len(NAMES) - 1
    assert list(Outbox(parties.aggregator).untold()) == []
    assert parties.sites["bob"].unfinished() == []


def test_an_answer_to_an_end_that_says_nothing_is_not_heard(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no answer, and that of a party whose disk is full: it is told again."""
    parties = gather()
    requests = Requests(
        parties.aggregator.roster,
        parties.study.id,
        lambda _name, blobs, _seconds: iter(dict.fromkeys(blobs, b"?").items()),
        EventLog(party="aggregator"),
        HASTY,
    )
    assert requests.tell_end(b"", SESSION, {1, 2}) == set()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    session = opened(parties, timeouts=at_once())
    session.round(1)
    parties.stop("bob")
    session.close([session.rounds.session])
    parties.start("bob")
    monkeypatch.setattr(PartyFolder, "note_end", full)
    courier = Courier(
        party_folder=parties.aggregator,
        phase=parties.phase,
        event_log=EventLog(party="aggregator"),
        timeouts=HASTY,
    )
    courier.tell_ends()
    assert list(Outbox(parties.aggregator).untold()) == [(parties.study.id, {"bob"})]


def test_a_line_that_is_down_here_is_nobody_elses_fault(gather: Any) -> None:
    parties, log = gather(), EventLog(party="aggregator", say=(said := list[str]()).append)

    def phase(_name: str, requests: Any, _deadline: float) -> Any:
        yield from ((party, Missing(why="no connection", here=True)) for party in requests)

    requests = Requests(parties.aggregator.roster, parties.study.id, phase, log, HASTY)
    answers = dict(requests.ask(Call.PING, {1: (), 2: ()}, SESSION))
    assert {(one.why, one.said) for one in answers.values()} == {("silent", "no connection")}
    assert said == []
