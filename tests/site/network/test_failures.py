"""Parties that are lost, frozen or restarted at any moment, and an aggregator whose process ends.

A study goes on, waits, or stops with a name; whoever comes back starts from its own disk. Of every
attempt that a silo answered there is a row, of every run that ends the transcripts verify, and what
was spent never becomes less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import BudgetError, HubbubError
from hubbub.core.ledger.entry import Cap
from hubbub.core.session.ask import AbsentError
from hubbub.core.verification.replay.checking import verify
from hubbub.learning.runs.result import Result
from hubbub.site.network.envelope import Missing
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import WaitedError
from network.relay import HASTY, NAMES, Watched, opened

SETUP = ("ping", "open", "commit", "reveal", "contribute", "confirm", "finish")
ROUND = ("model", "total")
WHEN = pytest.mark.parametrize("when", ["before", "after"])
NODES = pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
ONE_AWAY: dict[str, Any] = {"parties": {"colluders": 0, "dropouts": 1}}
Blob = bytes | Missing


class Failing:
    """An engine on which a party fails once, in the n-th phase of a name.

    Args:
        parties: everybody.
        party: who fails.
        call: in which phase.
        when: before the request arrives, or after it was done and before the answer arrives.
        then: what happens to the party.
        number: of the phase, from 1.
    """

    def __init__(
        self,
        parties: Watched,
        party: str,
        call: str,
        when: str,
        then: Callable[[str], None],
        number: int = 1,
    ) -> None:
        self._parties, self._party, self._call = parties, party, call
        self._when, self._then, self._left = when, then, number
        self.failed = False

    def __call__(
        self, name: str, asked: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, Blob]]:
        fails = name == self._call and self._party in asked
        self._left -= fails
        if not fails or self._left or self.failed:
            yield from self._parties.phase(name, asked, deadline)
            return
        self.failed = True
        reached = dict(asked)
        if self._when == "before":
            del reached[self._party]
        for party, blob in self._parties.phase(name, reached, deadline):
            if party != self._party:
                yield party, blob
        self._then(self._party)
        yield self._party, Missing(why="it is not there")


def epsilon_spent(parties: Watched) -> float:
    """The most that any silo's ledger holds of the study."""
    return max(
        endpoint._ledger.epsilon(delta=1e-5, relation="add-remove")
        for endpoint in parties.seats.values()
        if isinstance(endpoint, SiloEndpoint)
    )


def sound(parties: Watched, result: Result) -> None:
    """Everything that a finished run must be."""
    assert [str(one) for one in verify(parties.home / "run") if not one.holds] == []
    most = max(len(parties.rows(name)) for name in NAMES)
    assert result.epsilon >= result.plan.epsilon_after(most) - 1e-9
    assert parties.broken == []


# A silo, a node --------------------------------------------------------------------------------


@pytest.mark.slow
@WHEN
@pytest.mark.parametrize(
    ("nodes", "party", "call"),
    [
        *((0, "bob", call) for call in SETUP),
        *((2, who, call) for who in ("bob", "node-2") for call in SETUP if call not in SETUP[2:4]),
    ],
)
def test_who_restarts_in_set_up_is_in_the_next(
    gather: Any, nodes: int, party: str, call: str, when: str
) -> None:
    parties = gather(nodes)
    failing = Failing(parties, party, call, when, parties.start)
    session = opened(parties, failing)
    assert failing.failed
    assert session.round(1)[1] == 1
    assert any(f"waiting for {party} (it is not there" in line for line in parties.said)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["ping", "open", "contribute", "finish"])
@pytest.mark.parametrize("party", ["bob", "node-1"])
def test_who_does_not_come_back_is_waited_for_and_then_named(
    gather: Any, party: str, call: str
) -> None:
    parties = gather(2)
    failing = Failing(parties, party, call, "before", parties.stop)
    with pytest.raises(WaitedError, match=f"got none from {party}: it is not there"):
        opened(parties, failing, replace(HASTY, waiting=0.2))


@pytest.mark.slow
@WHEN
@pytest.mark.parametrize("round", [1, 2, 4])
@pytest.mark.parametrize(
    ("nodes", "party", "call"), [(0, "bob", "model"), (2, "bob", "model"), (2, "node-2", "total")]
)
def test_a_run_goes_on_with_who_was_restarted_in_a_round(
    gather: Any, nodes: int, party: str, call: str, round: int, when: str
) -> None:
    parties = gather(nodes)
    failing = Failing(parties, party, call, when, parties.start, round)
    result = parties.serve(failing, timeouts=HASTY)
    assert failing.failed
    sound(parties, result)
    paid = {name: len(parties.rows(name)) for name in NAMES}
    assert max(paid.values()) == 4
    assert paid["ann"] == 4
    assert paid["bob"] == (3 if (party, when) == ("bob", "before") else 4)
    assert result.final["step"] == (3 if round < 4 else 4)  # an attempt came to nothing


@pytest.mark.slow
@NODES
@WHEN
def test_with_drop_outs_a_run_goes_on_without_who_is_gone(
    gather: Any, nodes: int, when: str
) -> None:
    parties = gather(nodes, **ONE_AWAY)
    failing = Failing(parties, "bob", "model", when, parties.stop, 2)
    result = parties.serve(failing, timeouts=HASTY)
    parties.start("bob")
    sound(parties, result)
    assert len(parties.rows("bob")) == (1 if when == "before" else 2)
    assert len(parties.rows("ann")) == 4


@pytest.mark.slow
@NODES
def test_who_comes_back_after_some_rounds_takes_part_again(gather: Any, nodes: int) -> None:
    parties = gather(nodes, **ONE_AWAY, training={"steps": 5})
    failing = Failing(parties, "bob", "model", "before", parties.stop, 2)

    def back(step: int, _row: Any) -> None:
        if step == 3:
            parties.start("bob")

    result = parties.serve(failing, timeouts=HASTY, progress=back)
    sound(parties, result)
    sessions = {session for session, _, _ in parties.rows("bob")}
    assert len(sessions) == 2
    assert any("a new session is set up" in line for line in parties.said)


@pytest.mark.slow
@NODES
def test_a_frozen_silo_that_answers_late_is_not_in_the_sum(gather: Any, nodes: int) -> None:
    """Its answer has been paid for, comes in the next round, and is used for nothing."""
    parties = gather(nodes, **ONE_AWAY, training={"steps": 6})
    frozen: list[bytes] = []
    late: list[bytes] = []

    def freezing(
        name: str, asked: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, Blob]]:
        if name != "model" or len(late) > 1:
            yield from parties.phase(name, asked, deadline)
            return
        rest = {party: blob for party, blob in asked.items() if party != "bob"}
        if not frozen:
            frozen.append(asked["bob"])
            yield "bob", Missing()
        elif "bob" in asked:
            late.extend(parties.answers("bob")(blob) for blob in (frozen[0], asked["bob"]))
            yield "bob", late[0]
        yield from parties.phase(name, rest, deadline)

    session = opened(parties, freezing)
    assert session.round(1, attempts=2)[0] is not None
    assert set(session.rounds.attendance.absent) == {2}
    assert session.round(2, attempts=2)[0] is not None
    assert set(session.rounds.attendance.absent) == {2}
    assert any(
        "expected an answer to attempt 2.0, got one to 1.0 from bob" in x for x in parties.said
    )
    assert session.round(3)[0] is not None
    assert not session.rounds.attendance.absent


@pytest.mark.slow
def test_a_frozen_aggregators_old_session_is_over_for_all(gather: Any) -> None:
    parties = gather()
    old = opened(parties)
    old.round(1)
    assert opened(parties).round(2)[1] == 1
    with pytest.raises(AbsentError, match="does not know the session"):
        old.round(2)


def test_a_silo_at_its_cap_stops_the_run_before_others_pay_for_nothing(gather: Any) -> None:
    parties = gather()
    endpoint = parties.seats["bob"]
    assert isinstance(endpoint, SiloEndpoint)
    endpoint._ledger.set_cap(Cap(epsilon=13.0, delta=1e-5, relation="add-remove"))
    with pytest.raises(BudgetError, match="bob"):
        parties.serve(timeouts=HASTY)
    paid = {name: len(parties.rows(name)) for name in NAMES}
    assert paid["bob"] == 2
    assert max(paid.values()) <= 3


def test_p24_a_silo_under_an_adaptive_cap_takes_all_of_a_study_or_none(gather: Any) -> None:
    parties = gather()
    endpoint = parties.seats["bob"]
    assert isinstance(endpoint, SiloEndpoint)
    cap = Cap(epsilon=13.0, delta=1e-5, relation="add-remove", studies="adaptive")
    endpoint._ledger.set_cap(cap)
    with pytest.raises(BudgetError, match="bob"):
        parties.serve(timeouts=HASTY)
    assert parties.rows("bob") == []


def test_a_silo_whose_ledger_cannot_be_written_sends_nothing(gather: Any) -> None:
    parties = gather()
    endpoint = parties.seats["bob"]
    assert isinstance(endpoint, SiloEndpoint)
    session = opened(parties)
    endpoint._ledger.close()
    with pytest.raises(AbsentError, match="bob: ") as gone:
        session.round(1)
    assert gone.value.absent["bob"].why in ("ledger", "failed")
    parties.start("bob")
    assert parties.rows("bob") == []


def test_a_seat_answers_also_where_nothing_can_be_written_down(gather: Any) -> None:
    """A full disk under the event log is no reason to be silent."""
    parties = gather()
    endpoint = parties.seats["bob"]
    endpoint.event_log.folder = parties.home / "nowhere"
    assert endpoint.answer(b"junk")


# The aggregator --------------------------------------------------------------------------------


class EndedError(Exception):
    """The aggregator's process ended."""


class Ending:
    """An engine that ends the aggregator's process once, before or after the n-th phase."""

    def __init__(self, parties: Watched, number: int, when: str) -> None:
        self._parties, self._left, self._when = parties, number, when
        self.over = False

    def __call__(
        self, name: str, asked: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, Blob]]:
        self._left -= 1
        if self._left == 0 and self._when == "before":
            raise EndedError
        for count, one in enumerate(self._parties.phase(name, asked, deadline)):
            yield one
            if self._left == 0 and self._when == "amid" and count == 0:
                raise EndedError
        if self._left == 0:
            raise EndedError
        self.over = name == "close"


PHASES = {0: 7 + 4 + 1, 2: 5 + 2 * 4 + 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "number"), [(n, at) for n in (0, 2) for at in (1, 4, 7, 8, 9, 11 + 2 * bool(n), 12)]
)
@pytest.mark.parametrize("when", ["before", "amid", "after"])
def test_serve_goes_on_wherever_the_aggregators_process_ended(
    gather: Any, nodes: int, number: int, when: str
) -> None:
    parties = gather(nodes)
    with pytest.raises(EndedError):
        parties.serve(Ending(parties, number, when), timeouts=HASTY)
    before = epsilon_spent(parties)
    paid = {name: len(parties.rows(name)) for name in NAMES}
    result = parties.serve(timeouts=HASTY)
    sound(parties, result)
    assert epsilon_spent(parties) >= before
    assert all(len(parties.rows(name)) >= paid[name] for name in NAMES)
    # An attempt that was begun counts, also where no silo was asked before the process ended.
    assert max(len(parties.rows(name)) for name in NAMES) in (3, 4)
    assert result.epsilon == result.plan.epsilon_after(4)


@pytest.mark.slow
def test_an_aggregator_that_ends_again_and_again_finishes_in_the_end(gather: Any) -> None:
    parties = gather(training={"steps": 5})
    result = None
    for _ in range(8):
        try:
            result = parties.serve(Ending(parties, 9, "after"), timeouts=HASTY)
            break
        except EndedError:
            continue
    result = result or parties.serve(timeouts=HASTY)
    sound(parties, result)
    assert max(len(parties.rows(name)) for name in NAMES) == 5


@pytest.mark.slow
def test_a_finished_run_is_not_begun_again(gather: Any) -> None:
    parties = gather(training={"steps": 1})
    parties.serve(timeouts=HASTY)
    with pytest.raises(HubbubError, match="it is finished"):
        parties.serve(timeouts=HASTY)


@pytest.mark.slow
def test_a_second_run_of_a_study_finds_its_attempts_spent(gather: Any) -> None:
    parties = gather(training={"steps": 1})
    parties.serve(timeouts=HASTY)
    (parties.home / "run").rename(parties.home / "first")
    with pytest.raises(BudgetError, match="attempts of this study to be left"):
        parties.serve(timeouts=HASTY)


@pytest.mark.slow
def test_a_run_folder_of_another_study_is_not_gone_on_with(gather: Any, tmp_path: Path) -> None:
    parties, others = gather(), gather(training={"steps": 3})
    with pytest.raises(EndedError):
        parties.serve(Ending(parties, 9, "after"), timeouts=HASTY)
    with pytest.raises(HubbubError, match="expected this networked study's run"):
        others.serve(out=parties.home / "run", timeouts=HASTY)
