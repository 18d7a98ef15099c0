"""What is withdrawn or replaced in a party's folder is over at once, whatever others do or keep.

Approvals and rosters are read again before each answer and each attempt. No relay is needed for it,
and none undoes it: a session that was ended so is not gone on with, also where the study is
approved again, and an answer that was kept is not given again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import StudyError, UserError
from hubbub.core.ledger.entry import Cap
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.protocol.primitives.wire import Tag, unverified
from hubbub.core.session.ask import AbsentError, Call
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.site.network import coordinator, waiting
from hubbub.site.network.envelope import read_answer, request
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import APPROVED, roster_of
from hubbub.site.network.join import Machine, join, relay_of
from hubbub.site.network.nats.carrier import Answering
from hubbub.site.network.nats.message_delivery import Message
from hubbub.site.network.nats.relay import Relay as Where
from hubbub.site.network.party_folder import IDENTITY, KEYS, ROSTER, PartyFolder, ReplacedError
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import WaitedError
from network.collected import asking
from network.consortium import Consortium
from network.lines import free_port, wait
from network.relay import HASTY, NAMES, Relay, Watched, gathered, opened, refusal, tiny
from network.test_collection_endpoints import Table, payload
from network.test_over_nats import Everybody

Revoke = Callable[[Watched, str], None]


def withdrawn(parties: Watched, name: str) -> None:
    parties.sites[name].withdraw(parties.study.id)


def another(parties: Watched, name: str) -> tuple[Study, Roster]:
    """The study among others, where somebody else than this party has new keys."""
    who = "cyn" if name != "cyn" else "bob"
    home = parties.home / f"new-{who}-for-{name}"
    new = PartyFolder.made(home, who, "silo").keys.identity
    roster = roster_of(
        [new if one.name == who else one for one in parties.sites[name].roster.parties]
    )
    made = tiny(len(roster.nodes))
    made["parties"]["roster"] = roster.digest.hex()
    return Study.from_table(made), roster


def replaced(parties: Watched, name: str) -> None:
    """As `hubbub approve --new-roster` does, in another process."""
    PartyFolder.opened(parties.home / name).approve(*another(parties, name), new_roster=True)


def with_old_times(parties: Watched, name: str) -> None:
    """A roster of the same size whose times are those of the old one."""
    path = parties.home / name / ROSTER
    before, size = path.stat(), len(path.read_bytes())
    replaced(parties, name)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert len(path.read_bytes()) == size


def by_hand(parties: Watched, name: str) -> None:
    """The approval's file is overwritten in its place."""
    path = parties.home / name / APPROVED / f"{parties.study.id.hex()}.toml"
    path.write_text(path.read_text().replace("steps = 4", "steps = 5"))


def without_roster(parties: Watched, name: str) -> None:
    (parties.home / name / ROSTER).unlink()


def torn(parties: Watched, name: str) -> None:
    path = parties.home / name / ROSTER
    path.write_bytes(path.read_bytes()[:200])


EVERY_WAY = pytest.mark.parametrize(
    "revoke",
    [withdrawn, replaced, with_old_times, by_hand, without_roster, torn],
    ids=lambda one: one.__name__,
)
NODES = pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])


def said_no(parties: Watched, name: str, call: Call, session: bytes, *parts: bytes) -> str:
    """Why a party that runs on says no to a call."""
    return refusal(parties.ask(name, call, session, parts))[0]


@pytest.mark.slow
@EVERY_WAY
@NODES
def test_a_session_ends_where_it_is_revoked(gather: Any, nodes: int, revoke: Revoke) -> None:
    parties = gather(nodes)
    relay = Relay(parties.phase)
    session = opened(parties, relay)
    session.round(1)
    name = session.rounds.session
    revoke(parties, "ann")
    with pytest.raises(AbsentError, match="ann: its administrator has not approved"):
        session.round(2)
    assert len(parties.rows("ann")) == 1
    assert parties.seats["ann"]._sessions == {}
    assert said_no(parties, "ann", Call.PING, name) == "not-approved"
    assert said_no(parties, "ann", Call.CLOSE, name, b"", b"") == "not-approved"


@pytest.mark.slow
@EVERY_WAY
def test_a_node_ends_a_session_too(gather: Any, revoke: Revoke) -> None:
    parties = gather(2)
    session = opened(parties)
    session.round(1)
    revoke(parties, "node-1")
    with pytest.raises(AbsentError, match="node-1: its administrator has not approved"):
        session.round(2)
    assert parties.seats["node-1"]._sessions == {}


@pytest.mark.slow
@NODES
def test_a_session_that_was_ended_stays_so_when_the_study_is_approved_again(
    gather: Any, nodes: int
) -> None:
    parties = gather(nodes)
    session = opened(parties)
    session.round(1)
    site = parties.sites["ann"]
    site.withdraw(parties.study.id)
    parties.seats["ann"].look()
    site.approve(parties.study, parties.aggregator.roster)
    assert said_no(parties, "ann", Call.MODEL, session.rounds.session, b"") == "no-session"
    assert opened(parties).round(2)[0] is not None


@pytest.mark.slow
def test_a_new_approval_of_the_same_study_ends_nothing(gather: Any) -> None:
    parties = gather()
    session = opened(parties)
    session.round(1)
    for site in parties.sites.values():
        site.approve(parties.study, site.roster)
        site.approve(*self_made(site.roster))
    assert session.round(2)[0] is not None


def self_made(roster: Roster) -> tuple[Study, Roster]:
    """Another study of the same roster."""
    made = tiny(study={"name": "another"})
    made["parties"]["roster"] = roster.digest.hex()
    return Study.from_table(made), roster


def test_p15_a_sum_that_is_made_while_it_is_withdrawn_does_not_leave(gather: Any) -> None:
    parties = gather()
    session, ann = opened(parties), parties.seats["ann"]
    real = ann.answer_to

    def slow(*given: Any) -> Any:
        answered = real(*given)
        withdrawn(parties, "ann")
        return answered

    ann.answer_to = slow
    relay = Relay(parties.phase)
    session.rounds.peers._phase = relay
    with pytest.raises(AbsentError, match="ann: its administrator"):
        session.round(1)
    assert [refusal(read_answer(one))[0] for one in relay.told("model", "ann")] == ["not-approved"]
    assert len(parties.rows("ann")) == 1


@pytest.mark.slow
@EVERY_WAY
def test_an_answer_that_was_kept_is_not_given_again(gather: Any, revoke: Revoke) -> None:
    """A relay that keeps an answer back and asks again gets what it would get anew."""
    parties = gather()
    relay = Relay(parties.phase)
    opened(parties, relay).round(1)
    asked, endpoint = relay.asked("model", "ann")[0], parties.seats["ann"]
    given, line = relay.told("model", "ann")[0], Line(endpoint)
    line.answering._kept.keep(hashlib.sha256(asked).digest(), given)
    assert line.ask(asked) == given
    revoke(parties, "ann")
    assert refusal(read_answer(line.ask(asked)))[0] == "not-approved"
    line.end()


def test_an_answer_that_was_kept_is_not_given_again_when_the_study_is_approved_again(
    gather: Any,
) -> None:
    parties = gather()
    relay = Relay(parties.phase)
    opened(parties, relay).round(1)
    asked, endpoint = relay.asked("model", "ann")[0], parties.seats["ann"]
    line = Line(endpoint)
    line.answering._kept.keep(hashlib.sha256(asked).digest(), relay.told("model", "ann")[0])
    withdrawn(parties, "ann")
    endpoint.look()
    parties.sites["ann"].approve(parties.study, parties.aggregator.roster)
    assert refusal(read_answer(line.ask(asked)))[0] == "no-session"
    line.end()


class Line:
    """A party's loop without a relay."""

    def __init__(self, endpoint: Any) -> None:
        self.answering = Answering(
            Where.of(f"tls://127.0.0.1:{free_port()}"),
            endpoint.party_folder.keys.networked(),
            endpoint.answer,
            lambda *_: None,
            lambda: None,
            repeats=endpoint.repeats,
        )
        self._line, self._sent = self.answering._line, list[bytes]()
        self.answering._line = self

    def send(self, _name: str, _number: int, data: bytes, _digest: bytes) -> None:
        self._sent.append(data)

    def ask(self, blob: bytes) -> bytes:
        """What leaves for a request."""
        message = Message(number=1, data=blob, digest=hashlib.sha256(blob).digest())
        self.answering._take("aggregator", message)
        assert self.answering.step(1.0)
        return self._sent.pop()

    def end(self) -> None:
        self._line._loop.close()


@pytest.mark.slow
def test_what_was_sent_for_a_collection_does_not_leave_again_once_it_is_withdrawn(
    tmp_path: Path,
) -> None:
    table = Table(Consortium.gather(tmp_path, asking()))
    table.opened()
    line = Line(table.parties.seats["cleveland"])
    blob = request(Call.COLLECT_DEPOSIT, table.id, [table.collect, *table.keys])
    first = line.ask(blob)
    assert unverified(read_answer(first)[1]).tag is Tag.DEPOSIT
    assert line.ask(blob) == first
    table.parties.sites["cleveland"].withdraw(table.parties.study.id)
    assert refusal(read_answer(line.ask(blob)))[0] == "not-approved"
    line.end()


def test_a_silo_in_a_collection_answers_the_same_request_as_its_ledger_is_now(
    tmp_path: Path,
) -> None:
    """It refuses until its cap is raised, and no longer; and it states no head of before."""
    table = Table(Consortium.gather(tmp_path, asking()))
    table.opened()
    seat = table.parties.seats["cleveland"]
    ledger, line = seat._ledger, Line(seat)  # type: ignore[attr-defined]
    state = request(Call.COLLECT_KEY, table.id, [table.collect])
    deposit = request(Call.COLLECT_DEPOSIT, table.id, [table.collect, *table.keys])

    def rows() -> int:
        (ready,) = read_answer(line.ask(state))
        return json.loads(payload(ready))["ledger"]["rows"]

    ledger.set_cap(Cap(epsilon=0.01, delta=1e-5, relation="add-remove"))
    assert rows() == ledger.rows
    assert refusal(read_answer(line.ask(deposit)))[0] == "budget"
    ledger.set_cap(Cap(epsilon=50.0, delta=1e-5, relation="add-remove"))
    assert unverified(read_answer(line.ask(deposit))[1]).tag is Tag.DEPOSIT
    assert rows() == ledger.rows
    line.end()


@pytest.mark.slow
@EVERY_WAY
def test_the_aggregators_own_revocation_ends_its_run_before_the_next_attempt(
    gather: Any, revoke: Revoke
) -> None:
    parties = gather()

    def revoked(step: int, _row: Any) -> None:
        if step == 2:
            revoke(parties, "aggregator")

    with pytest.raises(UserError, match=r"approved in .*withdrawn or replaced") as caught:
        parties.serve(timeouts=HASTY, progress=revoked)
    assert {len(parties.rows(name)) for name in NAMES} == {2}
    assert str(parties.home / "aggregator") in str(caught.value)


@EVERY_WAY
def test_an_aggregator_that_waits_hears_of_its_revocation(gather: Any, revoke: Revoke) -> None:
    parties = gather()
    parties.stop("bob")
    revoke(parties, "aggregator")
    with pytest.raises(UserError):
        opened(parties)


@EVERY_WAY
def test_an_aggregator_hears_of_its_revocation_in_the_middle_of_a_long_pause(
    gather: Any, revoke: Revoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_PAUSE", 100.0)
    parties = gather()
    parties.stop("bob")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            revoke(parties, "aggregator")

    monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    with pytest.raises(UserError, match="withdrawn or replaced"):
        opened(parties, timeouts=replace(HASTY, clock=waiting.Clock()))
    assert slept == [1.0, 1.0, 1.0]


@pytest.mark.slow
def test_with_drop_outs_the_run_goes_on_without_who_has_revoked(gather: Any) -> None:
    parties = gather(2, parties={"colluders": 0, "dropouts": 1}, training={"steps": 6})

    def revoked(step: int, _row: Any) -> None:
        if step == 2:
            withdrawn(parties, "bob")

    assert parties.serve(timeouts=HASTY, progress=revoked).final["step"] == 6
    assert [len(parties.rows(name)) for name in NAMES] == [6, 2, 6]


@pytest.mark.slow
def test_a_study_of_an_old_roster_is_not_opened_and_one_of_the_new_is(gather: Any) -> None:
    """The same processes run on: who has kept its keys takes part under the new roster."""
    parties = gather()
    opened(parties).round(1)
    study, roster = another(parties, "ann")
    for name in ("aggregator", "ann", "bob"):
        PartyFolder.opened(parties.home / name).approve(study, roster, new_roster=True)
    with pytest.raises(UserError):
        opened(parties)
    parties.stop("cyn")
    parties.paid.pop("cyn")
    shutil.rmtree(parties.home / "cyn")
    (parties.home / "new-cyn-for-ann").rename(parties.home / "cyn")
    PartyFolder.opened(parties.home / "cyn").approve(study, roster)
    parties.sites["cyn"] = PartyFolder.opened(parties.home / "cyn")
    parties.start("cyn")
    parties.study = study
    assert opened(parties).round(1)[0] is not None
    assert len(parties.rows("ann")) == 2


def test_the_roster_is_parsed_once_for_what_it_says(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = gather()
    site, parsed = PartyFolder.opened(parties.home / "ann"), []
    from hubbub.site.network import party_folder

    real = party_folder.roster_in
    monkeypatch.setattr(party_folder, "roster_in", lambda text: parsed.append(1) or real(text))
    for _ in range(20):
        assert site.approves(parties.study.id)
        assert site.index == 1
    assert parsed == [1]


# Whole processes -------------------------------------------------------------------------------


@pytest.fixture
def everybody(tmp_path: Path) -> Iterator[Everybody]:
    found = Everybody(tmp_path, training={"steps": 4})
    found.approve()
    yield found
    found.end()


def joined(everybody: Everybody, name: str, ended: list[BaseException]) -> threading.Thread:
    """A `join` whose end is looked at."""
    site = PartyFolder.opened(everybody.home / name)
    event_log = EventLog(party=name, folder=site.home)

    def run() -> None:
        try:
            given = (site, relay_of(site, None), Machine(device="cpu"), event_log)
            join(*given, until=everybody.over.is_set)
        except Exception as error:  # noqa: BLE001 (it is what the test is about)
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    everybody.joined.append(thread)
    wait(lambda: everybody.status(name).get("state") in ("connecting", "waiting", "lost"))
    return thread


def new_roster(everybody: Everybody, out: str, **changes: Any) -> tuple[Study, Roster]:
    """A study of the roster without a silo's old keys."""
    new = PartyFolder.made(everybody.home / "new", out, "silo").keys.identity
    roster = roster_of([new if one.name == out else one for one in everybody.roster.parties])
    made = tiny(1, **changes)
    made["parties"]["roster"] = roster.digest.hex()
    return Study.from_table(made), roster


@pytest.mark.slow
def test_who_is_listed_no_more_ends_with_2(everybody: Everybody) -> None:
    ended: list[BaseException] = []
    thread = joined(everybody, "ann", ended)
    study, roster = new_roster(everybody, "ann")
    everybody.sites["bob"].approve(study, roster, new_roster=True)
    shutil.copy(everybody.home / "bob" / ROSTER, everybody.home / "ann" / ROSTER)
    thread.join(400)
    assert [type(one) for one in ended] == [StudyError]
    assert "expected the roster to list ann" in str(ended[0])
    assert everybody.status("ann")["state"] == "lost"


def test_who_has_new_keys_ends_with_1_and_is_started_again(everybody: Everybody) -> None:
    ended: list[BaseException] = []
    thread = joined(everybody, "ann", ended)
    study, roster = new_roster(everybody, "ann")
    for name in (IDENTITY, KEYS):
        (everybody.home / "new" / name).replace(everybody.home / "ann" / name)
    PartyFolder.opened(everybody.home / "ann").approve(study, roster, new_roster=True)
    thread.join(400)
    assert [type(one) for one in ended] == [ReplacedError]
    assert not isinstance(ended[0], UserError)  # so `join` ends with 1
    assert "start hubbub join again" in str(ended[0])


def test_a_command_whose_keys_were_replaced_ends_with_1(
    everybody: Everybody, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hubbub.site.network import join as joining

    def replaced(*_: Any, **__: Any) -> None:
        raise ReplacedError("expected the keys in x, found others; start hubbub join again")

    monkeypatch.setattr(joining, "join", replaced)
    assert main(["join", "--home", str(everybody.home / "ann")]) == 1
    assert "start hubbub join again" in capsys.readouterr().err


@pytest.mark.slow
def test_a_running_join_goes_on_under_a_new_roster_at_a_new_relay(tmp_path: Path) -> None:
    """Somebody's keys are replaced and the relay moves: nobody else starts anything."""
    before, after = Everybody(tmp_path / "before"), None
    before.approve()
    ended: list[BaseException] = []
    for name in ("ann", "bob", "node-1"):
        joined(before, name, ended)
    moved = PartyFolder.opened(tmp_path / "before" / "aggregator")
    url = f"tls://127.0.0.1:{free_port()}"
    listed = [one for one in before.roster.parties if one.name not in ("aggregator", "cyn")]
    aggregator = moved.keys.naming(url, moved.keys.identity.relay_key)
    cyn = PartyFolder.made(tmp_path / "cyn", "cyn", "silo")
    roster = roster_of([aggregator.identity, *listed, cyn.keys.identity])
    made = tiny(1)
    made["parties"]["names"] = [roster.name(index) for index in roster.silos]
    made["parties"]["roster"] = roster.digest.hex()
    after = Study.from_table(made)
    from hubbub.site.network.folder_files import keys_toml

    (tmp_path / "before" / "aggregator" / KEYS).write_text(keys_toml(aggregator))
    for home in ("before/aggregator", "before/ann", "before/bob", "before/node-1", "cyn"):
        PartyFolder.opened(tmp_path / home).approve(after, roster, new_roster=True)
    shutil.rmtree(tmp_path / "before" / "cyn")
    (tmp_path / "cyn").rename(tmp_path / "before" / "cyn")
    before.study, before.roster = after, roster
    joined(before, "cyn", ended)
    assert (before.serve() / "evidence.json").is_file()
    before.end()
    assert ended == []


@pytest.mark.slow
@EVERY_WAY
def test_a_session_is_over_though_nobody_asks(gather: Any, revoke: Revoke) -> None:
    """An aggregator that stands still cannot keep a session open; a running join looks itself."""
    parties = gather()
    opened(parties).round(1)
    revoke(parties, "ann")
    parties.seats["ann"].look()
    assert parties.seats["ann"]._sessions == {}
    assert any("its session for training is over" in line for line in parties.said)


@pytest.mark.slow
def test_who_refuses_the_new_study_is_waited_for(gather: Any) -> None:
    parties = gather()
    withdrawn(parties, "ann")
    with pytest.raises(WaitedError, match="ann: its administrator has not approved"):
        opened(parties, timeouts=replace(HASTY, waiting=0.1))


def test_what_was_read_for_a_study_is_forgotten_when_it_is_withdrawn(tmp_path: Path) -> None:
    """Approved again it is read again, as its records may have been corrected meanwhile."""
    parties = gathered(tmp_path)
    seat, study = parties.seats["bob"], parties.study
    assert isinstance(seat, SiloEndpoint)
    before = seat._prepared(study)
    seat.look()
    assert seat._prepared(study) is before
    parties.sites["bob"].withdraw(study.id)
    seat.look()
    assert not seat._studies
    parties.sites["bob"].approve(study, parties.aggregator.roster)
    assert seat._prepared(study) is not before
