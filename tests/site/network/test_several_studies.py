"""Several studies at once: one line for all, caps that see them in one order, books after kills."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.errors import NoRoomError
from hubbub.core.ledger.entry import Cap, Entry
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.ledger.tally import kind_of
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.site.network import aggregator_process, proposals
from hubbub.site.network.aggregator_process import Studies, _courier, host_all
from hubbub.site.network.envelope import Missing
from hubbub.site.network.event_log import DONE, TRAINING, WAITING, EventLog, StudyLog, state_of
from hubbub.site.network.folder_files import roster_of
from hubbub.site.network.nats.carrier import EndedError
from hubbub.site.network.nats.server import named_relay
from hubbub.site.network.party_folder import RELAY, PartyFolder
from hubbub.site.network.proposals import Inbox, Outbox, Standing, Verdict
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Door, Timeouts
from network.lines import asked, come, free_port, missing, relayed, wait
from network.relay import HASTY, Jumping, Watched, tiny
from network.test_late_over_nats import _join, killed, started

pytest.importorskip("nats", reason="needs the extra net")
NAMES = ("ann", "bob", "cyn", "dan", "eve")
TOGETHER = 1.6  # a cap under which two of these studies have room, and three have not


# One line for all ------------------------------------------------------------------------------


def test_a_party_is_asked_for_two_studies_in_turn(tmp_path: Path) -> None:
    """Neither takes the other's place, and who waits for its turn loses no time by it."""
    held, found = threading.Event(), dict[str, Any]()
    with relayed(tmp_path) as own:

        def slow(request: bytes) -> bytes:
            held.wait(600)
            return request[::-1]

        party = own.party("ann", slow)
        carrier, _ = own.carrier()
        carrier._clock = clock = Jumping()
        with carrier:
            come(carrier, "ann")

            def ask(name: str, blob: bytes, seconds: float) -> None:
                found[name] = dict(carrier.phase("test", {"ann": blob}, seconds))

            first = threading.Thread(target=ask, args=("first", b"abc", 2000.0))
            first.start()
            wait(lambda: party.seen)
            others = [
                threading.Thread(target=ask, args=(n, b"de" + n.encode(), 60.0)) for n in "xy"
            ]
            for other in others:
                other.start()
            wait(lambda: len(carrier._queues["ann"]) == 3)
            clock.sleep(100.0)  # longer than either may take
            assert found == {}
            assert party.seen == [b"abc"]
            held.set()
            for thread in (first, *others):
                thread.join(400)
        party.stop()
    assert found == {"first": {"ann": b"cba"}, "x": {"ann": b"xed"}, "y": {"ann": b"yed"}}


def test_who_is_waited_for_no_more_holds_nobody_up(tmp_path: Path) -> None:
    over = threading.Event()

    def answered(blob: bytes) -> bytes:
        if blob == b"slow":
            over.wait(400)
        return blob

    with relayed(tmp_path) as own:
        party = own.party("ann", answered)
        carrier, _ = own.carrier()
        with carrier:
            come(carrier, "ann")
            late = asked(carrier, {"ann": b"slow"}, 0.3)
            assert "no answer in time" in missing(late["ann"])
            over.set()
            assert asked(carrier, {"ann": b"next"}) == {"ann": b"next"}
        party.stop()
        with pytest.raises(EndedError):
            asked(carrier, {"ann": b"x"})


# One order for all caps ------------------------------------------------------------------------


def test_one_study_at_a_time_goes_through_the_door() -> None:
    door, order = Door(), list[bytes]()
    door.enter(b"a")
    door.enter(b"a")

    def enter() -> None:
        door.enter(b"b")
        order.append(b"b")

    thread = threading.Thread(target=enter)
    thread.start()
    door.leave(b"b")  # which is not in it
    time.sleep(0.05)
    assert (order, door.is_free) == ([], False)
    assert not door.enter(b"b", wait=False)  # which waits for nobody
    door.leave(b"a")
    thread.join(400)
    assert (order, door.is_free) == ([b"b"], False)
    door.leave(b"b")
    assert door.is_free


@pytest.mark.parametrize("studies", ["adaptive", "fixed"])
def test_nobody_pays_for_a_study_that_one_cap_has_no_room_for(tmp_path: Path, studies: str) -> None:
    """Bob's cap lets one study through to its end; the others', any number."""
    parties = Watched.gather(tmp_path, tiny())
    cap = Cap(epsilon=26.0, delta=1e-5, relation="add-remove", studies=studies)  # type: ignore[arg-type]
    parties.seats["bob"]._ledger.set_cap(cap)  # type: ignore[attr-defined]
    first, second = parties.study, replace(parties.study, name="the second", toml="")
    for site in parties.sites.values():
        site.approve(second, site.roster)
    if studies == "adaptive":
        parties.serve(timeouts=HASTY)
        state = parties.seats["bob"].event_log.current("state")
        assert state == WAITING, "another that is approved is not over"
    else:  # one that was begun keeps its place, though most of it is not spent
        with pytest.raises(RuntimeError):
            parties.serve(timeouts=HASTY, progress=_stopped)
    before = {name: len(parties.rows(name)) for name in parties.seats if name in ("ann", "bob")}
    parties.study = second
    with pytest.raises(NoRoomError, match="bob: its ledger refuses"):
        parties.serve(timeouts=HASTY, out=tmp_path / "second")
    assert before == {name: len(parties.rows(name)) for name in before}
    assert any("the second" in line and "the study waits" in line for line in parties.said)
    bob = parties.seats["bob"]
    waits = state_of(bob.event_log.known(), second.id)
    assert waits["state"] == "queued"
    assert "raise the cap" in waits["why"]
    assert ("or wait for" in waits["why"]) == (studies == "fixed")  # the other is over for good
    if studies == "fixed":
        parties.sites["bob"].withdraw(first.id)  # its people end it there: its place is free
        assert parties.serve(timeouts=HASTY, out=tmp_path / "second").final["step"] == 4


def test_a_fixed_cap_looks_only_at_studies_that_were_begun_and_are_not_over(
    tmp_path: Path,
) -> None:
    """Of sixty that are approved, or over, none is read and planned whenever one is opened."""
    parties = Watched.gather(tmp_path, tiny())
    seat = parties.seats["bob"]
    assert isinstance(seat, SiloEndpoint)
    names, ledger = ("idle", "over", "begun", "withdrawn", "new"), seat._ledger
    studies = {name: replace(parties.study, name=name, toml="") for name in names}
    for name, study in studies.items():
        parties.sites["bob"].approve(study, parties.aggregator.roster)
        made, of = plan(study), {"study": study.id, "session": bytes(16), "round": 1, "attempt": 0}
        if name not in ("idle", "new"):
            ledger.charge(Entry(**of, kind=kind_of(made.main), certificate=made.certificate))
    ledger.close_study(studies["over"].id)
    parties.sites["bob"].withdraw(studies["withdrawn"].id)
    ledger.set_cap(Cap(epsilon=50.0, delta=1e-5, relation="add-remove"))
    looked, real = list[bytes](), seat._plans_of

    def watched(ids: Iterable[bytes]) -> list[Plan]:
        looked.extend(ids)
        return real(looked)

    seat._plans_of = watched  # type: ignore[method-assign]
    assert [one.study.name for one in real(study.id for study in studies.values())] == [
        name for name in names if name != "withdrawn"
    ]
    seat.check_able(plan(studies["new"]))
    assert looked == [studies[name].id for name in ("begun", "withdrawn")]


def _stopped(_step: int, _row: Any) -> None:
    raise RuntimeError("as a crash does")


def test_the_state_has_each_study_and_the_party_is_not_done_with_one(tmp_path: Path) -> None:
    whole = EventLog(party="ann", folder=tmp_path)
    logs = [StudyLog.within(whole, name, name.encode()) for name in ("a", "b")]
    for log in logs:
        log.progress(1, 4)
    logs[0].state(state=DONE)
    state = json.loads((tmp_path / "status.json").read_text())
    assert state["state"] == TRAINING
    found = {one["study"]: one["state"] for one in state["studies"].values()}
    assert found == {"a": DONE, "b": TRAINING}


def test_what_is_kept_of_studies_that_are_over_does_not_grow_with_their_number(
    tmp_path: Path,
) -> None:
    log = EventLog(party="ann", folder=tmp_path)
    running = StudyLog.within(log, "running", bytes(32))
    running.state(state=TRAINING)
    long = StudyLog.within(log, "long", bytes([80]) * 32)
    long.state(state=TRAINING)
    for number in range(1, 80):
        if number == 78:
            long.state(state=DONE)
        StudyLog.within(log, f"s{number}", bytes([number]) * 32).state(state=DONE)
    kept = log.known()["studies"]
    assert kept[bytes(8).hex()]["state"] == TRAINING
    done = [bytes([number] * 8).hex() for number in [*range(31, 78), 80, 78, 79]]
    assert [*kept] == [bytes(8).hex(), *done], "the last that ended, whenever they began"
    parties = Watched.gather(tmp_path / "parties", tiny())
    seat, study = parties.seats["ann"], parties.study
    assert isinstance(seat, SiloEndpoint)
    seat._prepared(study)
    seat._forget_older(study.id)
    for number in range(8):
        assert study.id in seat._studies, "its end may be asked for again"
        seat._forget_older(bytes([number]) * 32)
    assert study.id not in seat._studies
    assert len(seat._ended) == 8


def test_no_study_hides_whom_another_one_misses() -> None:
    whole = EventLog(party="aggregator")
    a, b = (StudyLog.within(whole, name, name.encode()) for name in ("a", "b"))
    a.absent(["ann"], absent_why={"ann": "silent"}, left_out=["ann"])
    b.absent(["bob"], absent_why={"bob": "set back"}, left_out=["bob"])
    b.absent([], absent_why={}, left_out=[])
    assert [*whole.known()["absent_since"]] == whole.known()["left_out"] == ["ann"]
    assert whole.known()["absent_why"] == {"ann": "a: silent"}, "there may be a reason for each"
    a.absent([], absent_why={}, left_out=[])
    assert whole.known()["absent_since"] == {}


def serving(parties: Watched, folder: Path, *studies: Study) -> Studies:
    """Studies of a folder at the aggregator, on a line at which nobody answers."""
    site = parties.aggregator
    folder.mkdir()
    for study in studies:
        site.approve(study, site.roster)
        (folder / f"{study.name}.toml").write_text(study.as_toml())
    carrier: Any = SimpleNamespace()
    return Studies(site, folder, carrier, EventLog(party="aggregator"), Timeouts(), None)


def test_a_full_disk_keeps_a_study_waiting_and_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Watched.gather(tmp_path / "parties", tiny())
    second = replace(parties.study, name="the second", toml="")
    studies = serving(parties, tmp_path / "studies", parties.study, second)
    kept = Outbox.put

    def put(outbox: Outbox, study: Study) -> None:
        if study.id == second.id:
            raise OSError(28, "No space left on device")
        kept(outbox, study)

    monkeypatch.setattr(Outbox, "put", put)
    studies.look()
    why = {one.study.name: one.why for one in studies.left}
    assert "the disk says: No space left on device" in why["the second"]
    assert "it is not decided on yet" in why[parties.study.name]


def test_studies_begin_in_the_order_of_their_names_among_those_that_all_were_asked_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Watched.gather(tmp_path / "parties", tiny())
    queue = [replace(parties.study, name=name, toml="") for name in ("a", "b", "c")]
    studies = serving(parties, tmp_path / "studies", *queue)
    began, outbox = list[str](), Outbox(parties.aggregator)
    monkeypatch.setattr(Studies, "_begin", lambda _, one: began.append(one.study.name))

    def decide(study: Study, states: dict[str, str]) -> None:
        for name, state in states.items():
            outbox.note(study.id, name, Standing(state=state))
        studies.look()

    studies.look()
    assert [one.name for one in outbox.studies()] == ["a", "b", "c"]
    approved = dict.fromkeys(parties.study.parties.names, "approved")
    decide(queue[1], approved)
    decide(queue[0], {"ann": "approved"})
    assert began == [], "bob and cyn were not asked of the first one yet"
    decide(queue[0], {"bob": "absent", "cyn": "approved"})
    assert began == ["b"], "who is away may decide at any time"
    decide(queue[0], {"bob": "approved"})
    assert began[1:] == ["a", "b"]
    began.clear()
    for one in studies.left:
        one.came -= 60.0
    monkeypatch.setattr(Outbox, "standings", lambda _, study: {} if study == queue[0].id else known)
    known = {name: Standing(state="approved") for name in approved}
    studies.look()
    assert began == ["b", "c"], "of which no answer can be kept hinders none for long"


def test_a_study_killed_before_its_report_is_not_done_and_goes_on_without_paying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Watched.gather(tmp_path / "parties", tiny())
    studies = serving(parties, tmp_path / "studies", parties.study)
    out, silo = parties.aggregator.run(parties.study.id), parties.study.parties.names[0]

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hubbub.learning.runs.result.render", killed)
        with pytest.raises(KeyboardInterrupt):
            parties.serve(out=out)
    assert (out / "evidence.json").is_file()
    rows = parties.seats[silo]._ledger.rows
    studies.look()
    assert [one.study for one in studies.left] == [parties.study]
    parties.serve(out=out)
    assert (out / "report.html").is_file()
    assert parties.seats[silo]._ledger.rows == rows
    studies.studies.clear()
    studies.look()
    assert studies.left == []


def test_a_study_that_cannot_be_written_is_stopped_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried again and again, it might have everybody pay each time."""
    parties = Watched.gather(tmp_path / "parties", tiny())
    studies = serving(parties, tmp_path / "studies", parties.study)
    studies.look()
    (one,) = studies.left

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(aggregator_process, "_asking", full)
    studies._served(one)
    assert one.state == "stopped"
    assert "No space left on device; make room" in one.why


def test_a_study_that_is_over_misses_nobody_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Watched.gather(tmp_path / "parties", tiny())
    studies = serving(parties, tmp_path / "studies", parties.study)
    studies.look()
    (one,) = studies.left
    one.event_log.absent(["bob"], left_out=["bob"])
    monkeypatch.setattr(aggregator_process, "_run", lambda *_, **__: True)
    studies._served(one)
    assert studies._log.known()["absent_since"] == {}
    assert studies._log.known()["left_out"] == []


def test_a_folder_served_once_ends_when_none_of_its_studies_can_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caps have no room for two of them, and for one nobody decides: it waits as long as told."""
    parties = Watched.gather(tmp_path / "parties", tiny())
    others = [replace(parties.study, name=name, toml="") for name in ("a", "b", "undecided")]
    studies = serving(parties, tmp_path / "studies", parties.study, *others)
    studies._timeouts = Timeouts(waiting=-1.0)
    studies.look()
    (first, a, b, undecided) = studies.left
    assert undecided.why.startswith("it is not decided on yet")
    first.vain = a.vain = b.vain = -1
    assert not studies.is_stuck, "it may begin at any time"

    def full(*_: Any, **__: Any) -> None:
        raise NoRoomError("expected room under the cap")

    with monkeypatch.context() as patch:
        patch.setattr(aggregator_process, "_asking", full)
        for one in (a, b):
            one.state = "running"
            assert not studies.is_stuck
            studies._served(one)
    first.vain = 0
    assert studies.is_stuck
    first.state = DONE
    assert not studies.is_stuck, "there may be room now"
    a.vain = b.vain = undecided.vain = 1
    assert studies.is_stuck


def test_a_study_waits_for_parties_that_have_an_older_roster(tmp_path: Path) -> None:
    """Its roster comes to some later than the proposal: nobody has said no."""
    parties = Watched.gather(tmp_path / "parties", tiny())
    studies = serving(parties, tmp_path / "studies", parties.study)
    studies.look()
    (one,), outbox = studies.left, Outbox(parties.aggregator)
    for name in parties.study.parties.names:
        outbox.note(one.study.id, name, Standing(state="unusable", reason="another roster"))
    studies.look()
    assert studies.left == [one]
    assert one.why.startswith("it is not decided on yet by ann, bob")
    assert one.why.endswith("; ann, bob, cyn: another roster"), "in their inboxes it is not"
    for name in parties.study.parties.names:
        outbox.note(one.study.id, name, Standing(state="declined", reason="no consent"))
    studies.look()
    assert studies.left == []
    assert one.why.endswith("declined it: ann, bob, cyn: no consent"), "said once of all"


def test_a_folder_served_once_ends_not_while_enough_parties_wait_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Watched.gather(tmp_path / "parties", tiny())
    studies = serving(parties, tmp_path / "studies", parties.study)
    studies._timeouts = Timeouts(waiting=-1.0)
    found = Verdict(lacking=("cyn",), declined=(), enough=True, hopeless=False)
    monkeypatch.setattr(Verdict, "of", lambda *_: found)
    studies.look()
    assert not studies.is_stuck, "it begins after the grace that others have"
    found = replace(found, enough=False)
    studies.look()
    assert studies.is_stuck


def test_a_file_that_is_no_study_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    parties, said = Watched.gather(tmp_path / "parties", tiny()), list[str]()
    studies = serving(parties, tmp_path / "studies", parties.study)
    studies._log.say = said.append
    (tmp_path / "studies" / "b.toml").write_text("[study]")
    (tmp_path / "studies" / "c.toml").write_text("[study]")
    studies.look()
    assert [line.split(": ")[0] for line in said if ": stopped: expected" in line] == [
        "b.toml",
        "c.toml",
    ]
    assert [path.name for path in studies.unread] == ["b.toml", "c.toml"]
    (tmp_path / "studies" / "c.toml").unlink()
    studies.look()
    assert [*studies._log.known()["unread"]] == ["b.toml"]
    assert len(studies.left) == 1


def test_a_study_waits_outside_the_door_and_holds_nobody_up(tmp_path: Path) -> None:
    parties = Watched.gather(tmp_path / "parties", tiny())
    studies = serving(parties, tmp_path / "studies", parties.study)
    studies.look()
    (one,) = studies.left
    studies._door.enter(b"another")
    studies._begin(one)
    assert one.state == "queued"
    for name in parties.study.parties.names:
        Outbox(parties.aggregator).note(one.study.id, name, Standing(state="approved"))
    studies.look()
    assert one.why.startswith("another study begins"), "all have decided"


def test_a_party_cannot_answer_a_proposal_with_a_gigabyte(tmp_path: Path) -> None:
    with relayed(tmp_path) as own:
        party = own.party("ann", lambda blob: bytes(10_000_000) if blob == b"much" else blob)
        carrier, _ = own.carrier()
        with carrier:
            come(carrier, "ann")
            folder: Any = SimpleNamespace(roster=own.roster)
            courier = _courier(folder, carrier, EventLog(party="aggregator"))
            (answer,) = dict(courier.phase("propose", {"ann": b"much"}, 2.0)).values()
            assert isinstance(answer, Missing)
            assert dict(courier.phase("propose", {"ann": b"few"}, 300.0)) == {"ann": b"few"}
        party.stop()


# A folder of studies, over a relay ---------------------------------------------------------------


class Site:
    """Five silos in processes, an aggregator, and a folder of three studies."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / "studies"
        self.folder.mkdir()
        url = f"tls://127.0.0.1:{free_port()}"
        relay, key = named_relay(home / "aggregator" / RELAY, url, None)
        self.aggregator = PartyFolder.made(
            home / "aggregator", "aggregator", "aggregator", relay=relay, relay_key=key
        )
        self.silos = [PartyFolder.made(home / name, name, "silo") for name in NAMES]
        roster = roster_of([one.keys.identity for one in (self.aggregator, *self.silos)])
        self.studies: dict[str, Study] = {}
        for letter in "abc":
            made = tiny(
                0,
                NAMES,
                study={"name": letter},
                parties={"dropouts": 1, "colluders": 0, "roster": roster.digest.hex()},
                training={"steps": 25, "sample_rate": 0.5},
                privacy={"epsilon": 1.0},
            )
            study = self.studies[letter] = Study.from_table(made)
            (self.folder / f"{letter}.toml").write_text(study.as_toml())
            self.aggregator.approve(study, roster)
        cap = Cap(epsilon=TOGETHER, delta=1e-5, relation="add-remove", studies="adaptive")
        for silo in self.silos:
            silo.take_roster(roster)
            with Ledger(silo.home / "ledger.sqlite") as ledger:
                ledger.set_cap(cap)

    def decide(self) -> None:
        """All approve all studies that came to their inbox, but eve declines b."""
        for silo in self.silos:
            inbox = Inbox(silo)
            wait(lambda inbox=inbox: len(inbox.pending()) == 3)  # type: ignore[misc]
            for one in inbox.pending():
                if (silo.name, one.name) == ("eve", "b"):
                    inbox.say(one.id, "declined", {"user": "eve"}, "not here")
                else:
                    silo.approve(one.study(), silo.roster)

    def states(self) -> dict[str, dict[str, Any]]:
        path = self.home / "aggregator" / "status.json"
        found = json.loads(path.read_text()).get("studies", {}) if path.exists() else {}
        return {one["study"]: one for one in found.values()}

    def rows(self, name: str) -> dict[str, int]:
        """Verified rows of a silo's ledger, by study."""
        with Ledger(self.home / name / "ledger.sqlite") as ledger:
            ledger.verify()
            return {letter: ledger.spent_on(study.id) for letter, study in self.studies.items()}


def _serve(home: Path) -> None:
    aggregator_process._LOOK = proposals._LOOK = 0.1  # type: ignore[attr-defined]
    aggregator_process._AGAIN_SECONDS, proposals._EVERY = 2.0, 1.0
    folder = PartyFolder.opened(home / "aggregator")
    log = EventLog(party="aggregator", folder=folder.home)
    times = Timeouts(deadline=20.0, ping=2.0, grace=1.0, ask_again=1.0, waiting=120.0)
    host_all(folder, home / "studies", log, timeouts=times)


@pytest.mark.slow
def test_two_of_three_studies_run_at_once_one_waits_and_kills_leave_the_books_right(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    parties = {name: started(_join, tmp_path, name) for name in NAMES}
    serving = started(_serve, tmp_path)
    try:
        site.decide()
        wait(lambda: site.states().get("a", {}).get("step", 0) > 2)
        killed(parties["bob"])
        killed(serving)
        parties["bob"], serving = started(_join, tmp_path, "bob"), started(_serve, tmp_path)

        def two_are_done() -> bool:
            states = {name: one.get("state") for name, one in site.states().items()}
            assert "stopped" not in states.values()
            return sorted(map(str, states.values())) == ["done", "done", "queued"]

        wait(two_are_done)
        (last,) = (n for n, one in site.states().items() if one["state"] == "queued")
        wait(lambda: "its ledger refuses" in site.states()[last].get("why", ""))
        for silo in site.silos:
            assert site.rows(silo.name)[last] == 0
        assert site.rows("eve")["b"] == 0
        for name in NAMES[:4]:
            assert all(0 < site.rows(name)[letter] <= 25 for letter in {*"abc"} - {last})
        for letter in {*"abc"} - {last}:
            verify(site.aggregator.run(site.studies[letter].id))
        wide = Cap(epsilon=3.0, delta=1e-5, relation="add-remove", studies="adaptive")
        for silo in site.silos:
            with Ledger(silo.home / "ledger.sqlite") as ledger:
                ledger.set_cap(wide)
        wait(lambda: site.states()[last].get("state") == "done")
    finally:
        for process in (*parties.values(), serving):
            process.kill()
