"""A party that does not do its part, again and again: what it costs the others, and when it ends.

A sparse mask graph is used up by being looked at (P4), an attempt by being charged (P15). So who
refuses is waited for longer and longer, is asked before anybody else pays, and is named in the end.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from hubbub.core.errors import (
    BudgetError,
    DataError,
    IntegrityError,
    NoRoomError,
    ProtocolError,
    SpentError,
    UserError,
)
from hubbub.core.planning import noise_shares
from hubbub.core.planning.noise_shares import is_sparse
from hubbub.core.protocol.agreement import masks
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.wire import unverified
from hubbub.core.session.ask import Absent, AbsentError, Call
from hubbub.site.network import silo_endpoint, waiting
from hubbub.site.network.envelope import Missing, Refusal, VersionError
from hubbub.site.network.folder_files import GRAPHS, MOST_FRUITLESS, FruitlessError
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Check, Patience, Timeouts, WaitedError
from network.relay import HASTY, NAMES, Jumping, Watched
from network.test_correlated_apart import gathered as correlated

MANY = tuple(f"s{number:02}" for number in range(17))
Blob = bytes | Missing
# Whether a party refuses in a phase; it is told how often that phase was.
Refuses = Callable[[str, str, int], bool]


class Refusing:
    """An engine on which some parties refuse, in their own signed word or in silence.

    Args:
        parties: everybody.
        refuses: see `Refuses`.
        why: the word; None: they say nothing.
    """

    def __init__(self, parties: Watched, refuses: Refuses, why: str | None = "failed") -> None:
        self._parties, self._refuses, self._why = parties, refuses, why
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def __call__(
        self, name: str, asked: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, Blob]]:
        number = sum(one == name for one, _ in self.asked)
        self.asked.append((name, tuple(asked)))
        mute = {party for party in asked if self._refuses(name, party, number)}
        there = {party: blob for party, blob in asked.items() if party not in mute}
        yield from self._parties.phase(name, there, deadline)
        for party in sorted(mute):
            if self._why is not None:
                yield (
                    party,
                    self._parties.seats[party]._refusal(
                        asked[party], Refusal(why=self._why, said="no")
                    ),
                )

    def times(self, name: str) -> int:
        """How often there was a phase of a name."""
        return sum(one == name for one, _ in self.asked)


@pytest.mark.parametrize(
    ("error", "why", "own"),
    [
        (VersionError("of 17"), "version", True),
        (ProtocolError("17", culprit="ann"), "protocol", True),
        (IntegrityError("row 17"), "ledger", True),
        (BudgetError("17"), "budget", True),
        (NoRoomError("17"), "budget", False),  # who cannot, and not who does not want to
        (SpentError("17"), "budget", False),
        (UserError("17"), "failed", True),
        (DataError("17"), "failed", True),
        (ValueError("17"), "failed", True),
    ],
)
def test_a_refusal_tells_its_reason_and_only_its_own_people_what_is_no_record(
    error: Exception, why: str, own: bool
) -> None:
    refusal = Refusal.of(error)
    assert (refusal.why, refusal.own) == (why, own)
    assert refusal.culprit == ("ann" if why == "protocol" else "")
    assert ("17" in refusal.said) == (type(error) not in (DataError, ValueError))
    sealed = refusal.sealed(b"asked", Keys.generate("bob", "silo"), 2)
    sent = json.loads(bytes(unverified(sealed).payload))
    assert sent.keys() == {"why", "culprit", "to"}


def graphs(parties: Watched, name: str) -> int:
    """Mask graphs that a silo has drawn for the study."""
    lines = (parties.home / name / GRAPHS).read_bytes().split()
    return lines.count(parties.study.id.hex().encode())


def patient() -> tuple[Timeouts, Jumping]:
    """Somebody who waits an hour, where pauses are as short as here, and a clock without waits."""
    clock = Jumping()
    return replace(HASTY, waiting=1800 * 0.02, clock=clock), clock


@pytest.fixture
def many(gather: Any, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A consortium whose mask graph is sparse; beyond 100 silos it would take long."""
    monkeypatch.setattr(noise_shares, "_COMPLETE_UP_TO", 16)
    found: Watched = gather(names=MANY)
    assert is_sparse(found.study.parties)
    return found


# Mask graphs -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("why", ["failed", None], ids=["signed", "silent"])
@pytest.mark.parametrize("call", ["reveal", "contribute", "confirm", "finish"])
def test_p4_who_fails_once_the_graph_is_drawn_is_named_and_leaves_graphs_to_draw(
    many: Watched, call: str, why: str | None
) -> None:
    timeouts, clock = patient()
    engine = Refusing(many, lambda name, party, _: (name, party) == (call, "s05"), why)
    with pytest.raises(WaitedError, match=r"16 sessions in a row .*: s05 16 times did not do"):
        many.serve(engine, timeouts=timeouts)
    assert engine.times("reveal") == MOST_FRUITLESS
    assert graphs(many, "s04") == MOST_FRUITLESS
    assert clock.slept == sorted(clock.slept)
    assert clock.slept[-1] > 100 * clock.slept[0]


@pytest.mark.slow
def test_p4_silos_that_take_turns_are_all_named(many: Watched) -> None:
    calls = ("reveal", "contribute", "confirm", "finish")

    def in_turn(name: str, party: str, _number: int) -> bool:
        begun = engine.times("reveal")
        return name == calls[begun % 4] and party == MANY[begun % 3]

    engine = Refusing(many, in_turn)
    with pytest.raises(WaitedError, match="16 sessions in a row") as waited:
        many.serve(engine, timeouts=patient()[0])
    assert all(f"{name} " in str(waited.value) for name in MANY[:3])
    assert graphs(many, "s09") <= MOST_FRUITLESS + 1


@pytest.mark.slow
def test_p4_an_aggregator_that_starts_again_draws_no_graph_more(many: Watched) -> None:
    """The count is on the silos' own disks; only their people can go on."""
    engine = Refusing(many, lambda name, party, _: (name, party) == ("contribute", "s05"))
    for _ in range(2):
        with pytest.raises(WaitedError):
            many.serve(engine, timeouts=patient()[0])
    assert max(graphs(many, name) for name in MANY) == MOST_FRUITLESS
    for name in MANY:  # and no process of theirs forgets it
        many.start(name)
    with pytest.raises(WaitedError, match="s16: it has drawn as many unused mask graphs"):
        many.serve(timeouts=patient()[0])
    for party_folder in many.sites.values():
        party_folder.approve(many.study, party_folder.roster)
    assert many.serve(timeouts=HASTY).final["step"] == 4


@pytest.mark.parametrize("steps", [1, 225, 1000, 20_000])
def test_p4_who_fails_as_often_as_it_may_leaves_graphs_for_all_sums(steps: int) -> None:
    """It lets a sum through now and then, so that the count never ends the run."""
    patience, drawn = Patience(timeouts=patient()[0], pause=0.02), 0
    failed = AbsentError({"bob": Absent(why="failed", said="no")}, begun=True)
    for _ in range(4 * steps):  # of four purposes
        while patience._fruitless < MOST_FRUITLESS - 1:
            patience.begun()
            drawn += 1
            patience.wait(failed, in_round=False)
        patience.reached(1, steps)
    assert MOST_FRUITLESS <= drawn + 1 <= masks.MOST_GRAPHS
    patience.begun()
    patience.begun()
    with pytest.raises(WaitedError, match="16 sessions in a row"):
        patience.wait(failed, in_round=False)


def drawn_in_vain(party_folder: Any, study: bytes) -> int:
    """Graphs that a silo draws before it refuses."""
    drawn = 0
    with suppress(FruitlessError):
        while party_folder.notes.draw_graph(study):
            drawn += 1
    return drawn


def test_p4_silos_count_graphs_that_served_an_answer_for_themselves(many: Watched) -> None:
    party_folder, study = many.sites["s00"], many.study.id
    assert drawn_in_vain(party_folder, study) == MOST_FRUITLESS
    with pytest.raises(FruitlessError, match="16 mask graphs more than were used"):
        party_folder.notes.draw_graph(study)
    party_folder.notes.use_graph(study)
    assert drawn_in_vain(party_folder, study) == 2
    party_folder.approve(many.study, party_folder.roster)
    assert drawn_in_vain(party_folder, study) == MOST_FRUITLESS


def test_p4_honest_sessions_never_meet_the_limit(many: Watched) -> None:
    """A session that is lost after an answer costs nothing of what may be fruitless."""
    party_folder, study = many.sites["s00"], many.study.id
    for _ in range(200):
        assert party_folder.notes.draw_graph(study)
        party_folder.notes.use_graph(study)


# Charges ---------------------------------------------------------------------------------------


@contextmanager
def full(endpoint: Any) -> Iterator[None]:
    """The disk of a silo's ledger is full: SQLite itself says so."""
    chain = endpoint._ledger._chain
    pages = chain._database.execute("PRAGMA page_count").fetchone()[0]
    chain._database.execute(f"PRAGMA max_page_count = {pages}")
    real = chain._database

    class Full:
        """A connection that commits nothing."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def execute(self, text: str, *given: Any) -> Any:
            if text == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return real.execute(text, *given)

    chain._database = Full()
    try:
        yield
    finally:
        chain._database = real


@pytest.mark.slow_cases("nodes")
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p15_nobody_pays_while_a_silos_disk_is_known_to_be_full(gather: Any, nodes: int) -> None:
    """The run waits as long as its operator does, and goes on when there is room."""
    parties = gather(nodes)
    timeouts, clock = patient()
    bob = parties.seats["bob"]
    assert isinstance(bob, SiloEndpoint)
    waits = 0

    class Freed(Jumping):
        """The disk has room after the tenth wait."""

        def sleep(self, seconds: float, check: Check = lambda: None) -> None:
            nonlocal waits
            waits += 1
            super().sleep(seconds, check)
            if waits == 10:
                held.__exit__(None, None, None)

    held = full(bob)

    def fill(step: int, _row: Any) -> None:
        if step == 1:
            held.__enter__()

    result = parties.serve(timeouts=replace(timeouts, clock=Freed()), progress=fill)
    assert waits == 10
    assert result.final["step"] in (3, 4)
    assert len(parties.rows("ann")) <= len(parties.rows("bob")) + 1 <= 5
    del clock


@pytest.mark.slow
@pytest.mark.parametrize("why", ["failed", "ledger", None], ids=["failed", "ledger", "silent"])
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p15_a_silo_that_refuses_each_attempt_makes_the_others_pay_once(
    gather: Any, nodes: int, why: str | None
) -> None:
    """It sets sessions up like everybody, and says no, or nothing, to the model."""
    parties = gather(nodes, training={"steps": 40})
    timeouts, clock = patient()
    engine = Refusing(parties, lambda name, party, _: (name, party) == ("model", "bob"), why)
    with pytest.raises(WaitedError, match="bob"):
        parties.serve(engine, timeouts=timeouts)
    assert [len(parties.rows(name)) for name in NAMES] == [1, 0, 1]
    assert engine.times("model") > 5
    assert clock.slept == sorted(clock.slept)


@pytest.mark.slow
def test_p15_silos_that_take_turns_make_each_other_pay_a_few_times(gather: Any) -> None:
    parties = gather(training={"steps": 40})

    def in_turn(name: str, party: str, _number: int) -> bool:
        return name == "model" and party == NAMES[engine.times("finish") % 3]

    engine = Refusing(parties, in_turn)
    with pytest.raises(WaitedError):
        parties.serve(engine, timeouts=patient()[0])
    assert max(len(parties.rows(name)) for name in NAMES) <= 6


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p15_with_drop_outs_who_refuses_is_asked_alone_and_the_run_goes_on(
    gather: Any, nodes: int
) -> None:
    """Every round it says that it is there, and then refuses."""
    parties = gather(nodes, parties={"colluders": 0, "dropouts": 1}, training={"steps": 12})
    engine = Refusing(parties, lambda name, party, _: (name, party) == ("model", "bob"))
    session_rows = parties.serve(engine, timeouts=HASTY)
    assert session_rows.final["step"] >= 4
    alone = [who for name, who in engine.asked if name == "model" and "bob" in who]
    assert alone[0] == NAMES
    assert set(alone[1:]) == {("bob",)}


@pytest.mark.slow
def test_a_node_that_refuses_its_totals_is_tried_a_few_times(gather: Any) -> None:
    """Everybody has paid before it is asked: the pauses grow the faster."""
    parties = gather(2, training={"steps": 40})
    timeouts, _ = patient()
    engine = Refusing(parties, lambda name, party, _: (name, party) == ("total", "node-2"))
    with pytest.raises(WaitedError, match="node-2"):
        parties.serve(engine, timeouts=timeouts)
    assert max(len(parties.rows(name)) for name in NAMES) <= 6


@pytest.mark.slow
def test_who_has_only_not_come_yet_is_looked_for_as_often_as_ever(gather: Any) -> None:
    parties = gather()
    parties.stop("bob")
    clock = Jumping()
    with pytest.raises(WaitedError, match="bob: it is not there"):
        parties.serve(timeouts=replace(HASTY, waiting=4.0, clock=clock))
    assert len(clock.slept) > 40
    assert len(set(clock.slept)) == 1


def test_who_refuses_before_anything_is_spent_is_asked_again_soon() -> None:
    """It may have come late, and approve the study at last: nobody pays for the question."""
    clock = Jumping()
    patience = Patience(timeouts=Timeouts(clock=clock, ask_again=30.0), pause=2.0)
    error = AbsentError({"bob": Absent(why="not-approved", said="no")})
    for _ in range(10):
        patience.wait(error, in_round=False)
    assert clock.slept == [2.0, 4.0, 8.0, 16.0, *[30.0] * 6]
    patience.wait(AbsentError(error.absent, begun=True), in_round=False)
    assert clock.slept[-1] == 300.0


def test_a_ledger_that_takes_no_row_is_told_before_a_session(gather: Any) -> None:
    ledger = gather().seats["ann"]._ledger
    head, rows = ledger.head, ledger.rows
    ledger.check_writable()
    assert (ledger.head, ledger.rows) == (head, rows)
    ledger.close()
    with pytest.raises(IntegrityError):
        ledger.check_writable()


@pytest.mark.slow
def test_p25_who_refuses_costs_a_run_with_correlated_noise_and_drop_outs_only_itself(
    tmp_path: Path,
) -> None:
    """Others must be shown every attempt in a row: nobody is asked alone there."""
    parties: Any = correlated(tmp_path, 0, dropouts=1)

    def refuses(name: str, party: str, number: int) -> bool:
        return party == "hungary" and (name == "model" or (name == "open" and number == 0))

    engine = Refusing(parties, refuses)
    assert parties.serve(engine, timeouts=HASTY).final["step"] > 0
    asked = {who for name, who in engine.asked if name == "model"}
    assert ("hungary",) not in asked


@pytest.mark.slow
def test_a_session_that_is_lost_is_followed_by_the_next_also_where_nobody_waits(
    gather: Any,
) -> None:
    parties = gather()
    engine = Refusing(
        parties, lambda name, party, number: (name, party, number) == ("model", "bob", 1)
    )
    brief = replace(HASTY, waiting=0.0)
    assert parties.serve(engine, timeouts=brief).final["step"] >= 3


@pytest.mark.parametrize("joint", [False, True])
def test_p19_what_a_silo_has_summed_leaves_at_its_pace(
    monkeypatch: pytest.MonkeyPatch, joint: bool
) -> None:
    """Where a seed is joint, sums are made once it is known."""
    paced, made = list[float](), Mock(spec=SiloEndpoint, _pace=0.5)
    monkeypatch.setattr(silo_endpoint, "keep_pace", lambda _, pace: paced.append(pace))
    state = Mock(answered=True)
    state.study.model = None
    state.membership.round_parameters.needs_joint_seed = joint
    for call in (Call.OPEN, Call.SEED, Call.MODEL):
        SiloEndpoint.answer_to(made, state, call, [])
        due = call is (Call.SEED if joint else Call.MODEL)
        assert (len(paced), made._attempt_answered.call_count) == (int(due), int(due))
        paced.clear()
        made._attempt_answered.reset_mock()


@pytest.mark.parametrize(("took", "left"), [(0.25, 0.25), (1.125, 0.375), (0.5, 0.0)])
def test_an_answer_leaves_at_the_next_multiple_of_the_pace(
    monkeypatch: pytest.MonkeyPatch, took: float, left: float
) -> None:
    slept = list[float]()
    clock = SimpleNamespace(monotonic=lambda: 5.0 + took, sleep=slept.append)
    monkeypatch.setattr(waiting, "time", clock)
    waiting.keep_pace(5.0, 0.5)
    assert slept == [left]
