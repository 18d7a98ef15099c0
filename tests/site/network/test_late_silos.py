"""P29 among machines: sessions are set up with those who are there, late ones come with the next.

Three to six silos, of which some may be missing; one is late, goes and comes again and again, fails
in every set-up, or says of itself what is not true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from hubbub.core.errors import IntegrityError
from hubbub.core.planning import noise_shares
from hubbub.core.planning.noise_shares import is_sparse
from hubbub.core.protocol.primitives.wire import EVERYBODY, Tag, unverified
from hubbub.core.session.ask import RESTARTED, AbsentError, Call
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import files, read, read_header
from hubbub.site.network import coordinator, folder_files
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.envelope import Missing, Refusal, answer, read_answer
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.requests import Requests
from hubbub.site.network.waiting import Check, Timeouts, WaitedError
from network.relay import HASTY, Jumping, Relay, Watched, at_once, opened
from protocol.parties import world

FIVE = ("ann", "bob", "cyn", "dan", "eve")
PART = {"dropouts": 2, "colluders": 0}
NODES = pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])


class Cut:
    """An engine whose line to some parties is cut; their processes know nothing of it."""

    def __init__(self, parties: Watched) -> None:
        self.parties = parties
        self.away: set[str] = set()
        self.each: Callable[[str], None] = lambda _name: None

    def __call__(
        self, name: str, asked: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, Any]]:
        self.each(name)
        there = {party: blob for party, blob in asked.items() if party not in self.away}
        yield from self.parties.phase(name, there, deadline)
        yield from ((party, Missing()) for party in asked.keys() - there.keys())


def rolls(parties: Watched) -> list[set[str]]:
    """The silos of each session with a transcript, in their order."""
    found = []
    for path in sorted(files(parties.home / "run"), key=lambda one: read_header(one).number):
        bits = next(kept.payload for kept in read(path) if kept.tag is Tag.ROLL)
        flags = f"{int.from_bytes(bits, 'big'):0{8 * len(bits)}b}"
        names = parties.study.parties.names
        found.append({name for name, flag in zip(names, flags, strict=False) if flag == "1"})
    return found


def wrongs(parties: Watched) -> list[str]:
    return [str(one) for one in verify(parties.home / "run") if not one.holds]


# Who is not there ------------------------------------------------------------------------------


@pytest.mark.slow
@NODES
def test_a_study_runs_without_as_many_as_may_be_missing(gather: Any, nodes: int) -> None:
    parties = gather(nodes, names=FIVE, parties=PART)
    for name in ("bob", "eve"):
        parties.stop(name)
    result = parties.serve(timeouts=at_once())
    assert result.final["step"] == 4
    assert rolls(parties) == [{"ann", "cyn", "dan"}]
    assert wrongs(parties) == []
    assert {len(parties.rows(name)) for name in ("ann", "cyn", "dan")} == {4}
    assert not any((parties.home / name / "ledger").exists() for name in ("bob", "eve"))
    assert not [line for line in parties.said if "no signed part" in line]  # of who took none


@pytest.mark.slow
def test_one_more_missing_and_there_is_no_session(gather: Any) -> None:
    parties = gather(names=FIVE, parties=PART)
    for name in ("bob", "cyn", "eve"):
        parties.stop(name)
    with pytest.raises(WaitedError, match="bob"):
        parties.serve(timeouts=replace(at_once(), waiting=1.0))
    assert parties.rows("ann") == []


def test_of_many_that_are_silent_one_line_names_the_first_and_counts_the_rest(gather: Any) -> None:
    parties = gather(names=FIVE, parties=PART)
    for name in FIVE[1:]:
        parties.stop(name)
    with pytest.raises(WaitedError, match=r"bob.*cyn.*dan.*eve"):
        parties.serve(timeouts=replace(at_once(), waiting=0.0))
    (missing,) = [line for line in parties.said if "did not answer" in line]
    assert missing == "bob, cyn, dan and 1 more did not answer within 60 s: it is not there"
    (waiting,) = [line for line in parties.said if line.startswith("waiting for")]
    assert waiting.startswith("waiting for bob, cyn, dan and 1 more (it is not there; ")


@pytest.mark.slow
def test_no_session_is_without_a_compute_node(gather: Any) -> None:
    """To choose among nodes could be to leave the honest one out."""
    parties = gather(2, names=FIVE, parties=PART)
    parties.stop("node-2")
    with pytest.raises(WaitedError, match="node-2"):
        parties.serve(timeouts=replace(at_once(), waiting=1.0))


@pytest.mark.slow
def test_enough_silos_wait_some_time_for_the_others(gather: Any) -> None:
    parties = gather(names=FIVE, parties=PART)
    parties.stop("bob")

    class Coming(Jumping):
        def sleep(self, seconds: float, check: Check = lambda: None) -> None:
            super().sleep(seconds, check)
            if sum(self.slept) > 10.0 and "bob" not in parties.seats:
                parties.start("bob")

    clock = Coming()
    parties.serve(timeouts=replace(HASTY, grace=20.0, clock=clock))
    assert rolls(parties) == [set(FIVE)]


@pytest.mark.slow
def test_who_comes_after_the_time_of_grace_is_not_in_the_first_session(gather: Any) -> None:
    parties = gather(names=FIVE, parties=PART)
    parties.stop("bob")
    clock = Jumping()
    parties.serve(timeouts=replace(HASTY, grace=20.0, clock=clock))
    assert 0.0 < sum(clock.slept) < 40.0
    assert rolls(parties)[0] == set(FIVE) - {"bob"}


def test_who_is_there_and_does_not_answer_an_offer_is_waited_for_long_only_once(
    gather: Any,
) -> None:
    parties, deadlines, silent = gather(), list[float](), {"bob"}

    def phase(_name: str, asked: Mapping[str, bytes], deadline: float) -> Iterator[tuple[str, Any]]:
        deadlines.append(deadline)
        return ((name, Missing() if name in silent else b"") for name in asked)

    requests = Requests(
        parties.aggregator.roster, parties.study.id, phase, EventLog(party=""), Timeouts()
    )
    coordinator = Coordinator(parties.aggregator, parties.study, requests)
    everybody, bob = dict.fromkeys((1, 2, 3), ()), {2: ()}
    for asked, doubted in ((everybody, {2}), (bob, {2}), (everybody, {2})):
        assert [index for index, _ in requests.ask(Call.OPEN, asked, bytes(16))] == [*asked]
        assert coordinator._doubted_places == doubted, "it is asked alone next time"
    silent.clear()
    for _ in range(2):
        list(requests.ask(Call.OPEN, bob, bytes(16)))
    assert deadlines == [600.0, 60.0, 600.0, 60.0, 600.0]
    assert not coordinator._doubted_places


# Who is late -----------------------------------------------------------------------------------


@pytest.mark.slow
@NODES
def test_a_late_silo_comes_with_the_next_session(gather: Any, nodes: int) -> None:
    parties = gather(nodes, names=FIVE, parties=PART, training={"steps": 16, "sample_rate": 0.5})
    parties.stop("bob")

    def back(step: int, _row: Any) -> None:
        if step == 1:
            parties.start("bob")

    result = parties.serve(timeouts=at_once(), progress=back)
    assert result.final["step"] == 16
    assert rolls(parties) == [set(FIVE) - {"bob"}, set(FIVE)]
    assert wrongs(parties) == []
    # Two attempts were made without it, an eighth of the study.
    assert {len(parties.rows(name)) for name in ("ann", "cyn")} == {16}
    assert len(parties.rows("bob")) == 14


@pytest.mark.slow
def test_a_silo_that_goes_and_comes_forces_no_session_each_time(gather: Any) -> None:
    steps = 32
    parties = gather(names=FIVE, parties=PART, training={"steps": steps, "sample_rate": 1.0})
    parties.stop("bob")

    def flap(_step: int, _row: Any) -> None:
        if "bob" in parties.seats:
            parties.stop("bob")
        else:
            parties.start("bob")

    result = parties.serve(timeouts=at_once(), progress=flap)
    made = rolls(parties)
    assert 1 < len(made) <= 9
    lost = steps - result.final["step"]
    assert lost <= len(made)  # at most one attempt for each session that bob was in, and left


@pytest.mark.slow
def test_a_silo_that_was_not_there_is_not_taken_in_whatever_it_says(gather: Any) -> None:
    """It answers a sign of life as one does that knows the session: it would be named in a MODEL
    then, which all others must refuse."""
    parties = gather(names=FIVE, parties=PART)
    cut = Cut(parties)
    cut.away = {"bob"}
    relay = Relay(cut)
    session = opened(parties, relay, timeouts=at_once())
    cut.away = set()

    def lie(name: str, party: str, blob: Any) -> Any:
        if (name, party) != ("ping", "bob"):
            return blob
        return answer([parties.sealed("bob", Tag.READY, session=session.rounds.session)])

    relay.tells = lie
    assert session.round(1)[1] == 1
    session.rounds.attendance.ask_again_every(0.0, Jumping().now, Counter())
    session.rounds._made = 0  # no new session yet
    assert session.round(2)[1] == 1
    assert session.rounds.attendance.absent[2].why == RESTARTED
    assert {2} == session.rounds.attendance.absent.keys()


def test_who_comes_and_takes_no_part_ends_fewer_and_fewer_sessions(gather: Any) -> None:
    """It answers, but its people have not approved the study."""
    parties = gather(names=FIVE, parties=PART, training={"steps": 16})
    parties.sites["bob"].withdraw(parties.study.id)
    clock = Jumping()
    timeouts = replace(at_once(), ask_again=1.0, clock=clock)
    parties.serve(timeouts=timeouts, progress=lambda *_: clock.sleep(1.0))
    assert len(rolls(parties)) == 4, "the pause doubles"


# Who fails -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("call", ["commit", "reveal", "contribute", "confirm", "finish"])
def test_who_fails_after_the_roll_sits_out_the_next_sessions(gather: Any, call: str) -> None:
    parties = gather(names=FIVE, parties=PART)
    tried: list[str] = []

    def asks(name: str, party: str, blob: Any) -> Any:
        tried.extend([name] if party == "ann" else [])
        return None if (name, party) == (call, "bob") else blob

    result = parties.serve(Relay(parties.phase, asks=asks), timeouts=at_once())
    assert result.final["step"] == 4
    assert tried.count("commit") == 2
    assert rolls(parties) == [set(FIVE) - {"bob"}]


@pytest.mark.slow
def test_who_is_blamed_by_one_sits_out_beside_it(gather: Any) -> None:
    """One of the two has lied; both can be spared."""
    parties = gather(names=FIVE, parties=PART)
    tampered: list[int] = []

    def tells(name: str, party: str, blob: Any) -> Any:
        if (name, party) != ("reveal", "bob") or tampered:
            return blob
        tampered.append(1)
        session = unverified(read_answer(blob)[0]).session
        return answer(
            [parties.sealed("bob", Tag.REVEAL, bytes(32), session=session, receiver=EVERYBODY)]
        )

    parties.serve(Relay(parties.phase, tells=tells), timeouts=at_once())
    assert "bob" not in rolls(parties)[0]


@pytest.mark.slow
def test_who_fails_where_nobody_can_be_spared_ends_the_run(gather: Any) -> None:
    parties = gather(names=FIVE, parties=PART)
    for name in ("dan", "eve"):
        parties.stop(name)
    relay = Relay(parties.phase, asks=lambda n, p, b: None if (n, p) == ("commit", "bob") else b)
    with pytest.raises(WaitedError, match="bob"):
        parties.serve(relay, timeouts=replace(at_once(), waiting=1.0))


# The graphs and the end ------------------------------------------------------------------------


@pytest.mark.slow
def test_p29_graphs_of_changing_sets_are_counted_together(
    gather: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever chooses the sets, too, has so many graphs of a study to choose among, not more."""
    monkeypatch.setattr(noise_shares, "_COMPLETE_UP_TO", 16)
    monkeypatch.setattr(folder_files, "MOST_GRAPHS", 3)
    names = tuple(f"s{number:02}" for number in range(19))
    parties = gather(names=names, parties=PART)
    assert is_sparse(parties.study.parties)
    cut = Cut(parties)
    for away in ("s17", "s18", "s16"):
        cut.away = {away}
        assert opened(parties, cut, timeouts=at_once()).round(1)[1] == 1
    cut.away = {"s15"}
    with pytest.raises((WaitedError, AbsentError)):
        opened(parties, cut, timeouts=replace(at_once(), waiting=0.0))
    drawn = (parties.home / "s00" / folder_files.GRAPHS).read_bytes().split()
    assert drawn.count(parties.study.id.hex().encode()) == 3


@pytest.mark.slow
def test_the_end_is_told_in_an_earlier_session_to_who_was_not_in_the_last(gather: Any) -> None:
    """Its part is signed as any other's, and no attempt of the study follows."""
    parties = gather(names=FIVE, parties=PART, training={"steps": 8, "sample_rate": 1.0})
    cut = Cut(parties)

    def lose(step: int, _row: Any) -> None:
        if step == 2:
            cut.away = {"bob"}
            for name in ("cyn", "dan"):  # too few are left, so there is a new session, without bob
                parties.start(name)

    def here(name: str) -> None:
        cut.away = cut.away - {"bob"} if name == "close" else cut.away

    cut.each = here
    parties.serve(cut, timeouts=at_once(), progress=lose)
    assert [("bob" in silos) for silos in rolls(parties)] == [True, False]
    assert wrongs(parties) == []
    assert len(parties.rows("bob")) in (2, 3)
    assert any("closed" in line or "is done" in line for line in parties.said)
    first = next(iter({session for session, _, _ in parties.rows("bob")}))
    bob = parties.seats["bob"]
    assert all(one.closed for one in bob._sessions.values())
    said = parties.ask("bob", Call.MODEL, first, [b"x"])
    assert unverified(said[0]).tag is Tag.REFUSAL


@pytest.mark.parametrize(("colluders", "believed"), [(0, 2), (1, 2), (2, 1)])
def test_p15_no_more_silos_than_may_lie_make_others_pay_for_attempts_that_never_were(
    monkeypatch: pytest.MonkeyPatch, colluders: int, believed: int
) -> None:
    """One silo alone is not believed, where nobody colludes neither: a relay may be behind it."""
    monkeypatch.setattr(coordinator, "main_of", lambda _: terms)
    terms = SimpleNamespace(mechanism=SimpleNamespace(purpose="training"))
    said, everybody = {"silo-1": 9, "silo-2": 2, "silo-3": 1}, world()
    made: Any = Coordinator.__new__(Coordinator)
    made.requests = Mock(roster=everybody.roster, paid={"training": said})
    made.study = SimpleNamespace(id=bytes(32), parties=SimpleNamespace(colluders=colluders))
    made.party_folder = SimpleNamespace(notes=Mock(most_paid=lambda *named: named[-1]))
    made._unbelieved = set()
    assert made.charged("training", lambda: 0) == believed
    made.requests.warn.assert_called_once_with("unbelieved", whom="silo-1", count=9)


def test_p15_no_silo_signs_in_the_end_for_one_attempt_less_than_it_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: Any = Coordinator.__new__(Coordinator)
    monkeypatch.setattr(coordinator, "main_of", Mock())
    made.study, made._answers = None, lambda _: Counter({"ann": 3, "bob": 2})
    signed = [{"silo": "ann", "attempts": 3}, {"silo": "bob", "attempts": 3}]
    made.check_paid(signed)
    signed[0]["attempts"] = 2
    with pytest.raises(IntegrityError, match="ann 2 of 3: their folders were set back"):
        made.check_paid(signed)


def test_what_silos_have_paid_for_is_known_though_who_paid_most_is_away(tmp_path: Path) -> None:
    notes, study = folder_files.SessionNotes(tmp_path), bytes(32)
    assert notes.most_paid(study, "training", {}) == {}
    assert notes.most_paid(study, "training", {1: 7, 2: 6}) == {1: 7, 2: 6}
    again = folder_files.SessionNotes(tmp_path)
    assert again.most_paid(study, "training", {1: 5, 3: 6}) == {1: 7, 2: 6, 3: 6}
    assert again.most_paid(study, "evaluation", {1: 1}) == {1: 1}
    assert again.most_paid(bytes([1]) * 32, "training", {1: 2}) == {1: 2}


class EndedError(Exception):
    """The aggregator's process has ended."""


@pytest.mark.slow
@NODES
def test_a_run_is_gone_on_with_though_a_silo_that_has_paid_is_away(gather: Any, nodes: int) -> None:
    parties = gather(nodes, names=FIVE, parties=PART, training={"steps": 8, "sample_rate": 1.0})

    def end(step: int, _row: Any) -> None:
        if step == 3:
            raise EndedError

    with pytest.raises(EndedError):
        parties.serve(timeouts=at_once(), progress=end)
    parties.stop("bob")
    result = parties.serve(timeouts=at_once())
    assert result.final["step"] == 8
    assert rolls(parties) == [set(FIVE), set(FIVE) - {"bob"}]
    assert wrongs(parties) == []
    paid = parties.aggregator.notes.most_paid(parties.study.id, "training", {})
    assert {*paid.values()} <= {3, 4}
    assert len(paid) == 4
    assert {len(parties.rows(name)) for name in ("ann", "cyn")} == {8}


KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "pairwise": (0, {}),
    "nodes": (2, {}),
    "full shares": (2, {"parties": {"shares": "full"}}),
    "correlated": (0, {"training": {"noise": "correlated", "bands": 2, "sample_rate": 0.25}}),
    "correlated with nodes": (
        2,
        {"training": {"noise": "correlated", "bands": 2, "sample_rate": 0.25}},
    ),
    "projected": (0, {"training": {"projection": 2, "projection_kind": "layers"}}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_p29_with_one_absent_one_lost_in_a_round_and_a_resume_a_run_is_verified(
    gather: Any, kind: str
) -> None:
    nodes, changes = KINDS[kind]
    sgd = {"optimizer": {"name": "sgd", "lr": 0.1}, "sample_rate": 0.5, "steps": 8}
    parties = gather(
        nodes,
        names=FIVE,
        parties=PART | changes.get("parties", {}),
        training=sgd | changes.get("training", {}),
    )
    parties.stop("bob")
    cut = Cut(parties)

    def happens(step: int, _row: Any) -> None:
        if step == 2:
            cut.away = {"eve"}
        if step == 4:
            raise EndedError

    with pytest.raises(EndedError):
        parties.serve(cut, timeouts=at_once(), progress=happens)
    cut.away = set()
    parties.start("bob")
    result = parties.serve(cut, timeouts=at_once())
    assert result.final["step"] >= 5
    made = rolls(parties)
    assert made[0] == set(FIVE) - {"bob"}
    assert made[-1] == set(FIVE)
    assert wrongs(parties) == []
    assert max(len(parties.rows(name)) for name in FIVE) <= 8
    if "correlated" in kind:  # a row pays for two attempts, which `verify` has counted
        said = {one.partition(": ")[2] for one in parties.broken}
        assert said == {"an answer without a row"}
        parties.broken.clear()


@pytest.mark.slow
def test_a_silo_without_budget_is_left_out_where_it_can_be_spared(gather: Any) -> None:
    """Until now a session that was lost beside it ended the run."""
    parties = gather(names=FIVE, parties=PART)

    def refuses(name: str, party: str, blob: Any) -> Any:
        if (name, party) != ("model", "bob"):
            return blob
        asked = relay.asked("model", "bob")[-1]
        refusal = Refusal(why="budget", said="it is spent")
        return parties.seats["bob"]._refusal(asked, refusal)

    relay = Relay(parties.phase, tells=refuses)
    result = parties.serve(relay, timeouts=at_once())
    assert result.final["step"] >= 2
    assert wrongs(parties) == []
