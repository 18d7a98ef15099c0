"""Who goes and comes again and again is asked for ever later, whatever it did in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hubbub.core.session.ask import RESTARTED, Absent, Answer, Attendance, Call, Peers
from hubbub.core.session.rounds import Rounds

GONE = Absent(why="silent", said="it is not there")
ANEW = Absent(why=RESTARTED, said="by its own signed word")
BOB = 2


class Answering(Peers):
    """Everybody answers a sign of life, as one that knows the session, or as one that does not."""

    def __init__(self, answer: list[bytes]) -> None:
        parties = {"silos": range(1, 4), "nodes": range(0), "name": "ann bob cyn".split}
        super().__init__(SimpleNamespace(**parties))  # type: ignore[arg-type]
        self.answer, self.times = answer, list[float]()
        self.clock = 0.0

    def ask(
        self, call: Call, requests: Mapping[int, Sequence[bytes]], *_: Any, **__: Any
    ) -> Iterator[tuple[int, Answer]]:
        assert call is Call.PING
        self.times.append(self.clock)
        return ((index, self.answer) for index in requests)


@pytest.mark.parametrize("answer", [[b"known"], []], ids=["gone", "started anew"])
@pytest.mark.parametrize("silos", [{1, 2, 3}, {1, 3}], ids=["in the session", "late"])
@pytest.mark.parametrize("absent", [GONE, ANEW], ids=["silent", "refuses"])
def test_each_return_doubles_the_pause_before_the_next(
    answer: list[bytes], silos: set[int], absent: Absent
) -> None:
    """In one session or in one after the other; up to 16 times the shortest."""
    peers, returns = Answering(answer), Counter[int]()

    def session() -> Attendance:
        new = Attendance(peers=peers, session=bytes(16), silos=silos, gaps_end=False)
        new.ask_again_every(30.0, lambda: peers.clock, returns)
        return new

    attendance = session()
    attendance.absent[BOB] = absent
    while len(peers.times) < 7:
        peers.clock += 1.0
        if attendance.ask_absent():  # for whom the session is ended; it goes from the next one
            attendance = session()
        elif BOB not in attendance.absent:
            attendance.end_probation({BOB})  # it has answered
        attendance.absent.setdefault(BOB, absent)
    pauses = [b - a for a, b in zip([0.0, *peers.times], peers.times, strict=False)]
    assert pauses[1:] == [pytest.approx(30.0 * 2**k, abs=3.0) for k in (1, 2, 3, 4, 4, 4)]


def test_who_waits_for_the_next_session_returns_once() -> None:
    peers, returns = Answering([]), Counter[int]()
    attendance = Attendance(peers=peers, session=bytes(16), silos={1, 2, 3}, gaps_end=False)
    attendance.ask_again_every(0.0, lambda: peers.clock, returns)
    attendance.absent[BOB] = GONE
    assert [attendance.ask_absent() for _ in range(3)] == [True] * 3
    assert returns == {BOB: 1}


@pytest.mark.parametrize("answer", [[b"known"], []], ids=["gone", "started anew"])
def test_one_return_that_the_sessions_of_several_purposes_see_counts_once(
    answer: list[bytes],
) -> None:
    """A silo that was restarted once is not asked for later than one of a single purpose."""
    peers, returns = Answering(answer), Counter[int]()
    sessions = [
        Attendance(peers=peers, session=bytes(16), silos={1, 2, 3}, gaps_end=False)
        for _ in range(3)
    ]
    for one in sessions:
        one.ask_again_every(0.0, lambda: peers.clock, returns)
    for expected in (1, 2) if answer else (1,):
        for one in sessions:
            one.absent[BOB] = GONE
            one.ask_absent()
            assert returns == {BOB: expected}


@pytest.mark.parametrize("index", [BOB, 4], ids=["silo", "node"])
@pytest.mark.parametrize(
    ("silos", "gaps_end", "returns"),
    [({1, 2, 3}, False, True), ({1, 3}, False, False), ({1, 2, 3}, True, False)],
    ids=["in the session", "late", "noise that goes on"],
)
def test_p29_p25_who_says_that_it_knows_the_session_is_believed_if_it_may_be_in_it(
    index: int, silos: set[int], *, gaps_end: bool, returns: bool
) -> None:
    peers = Answering([b"known"])
    peers.roster.nodes = range(4, 5)  # type: ignore[misc]
    attendance = Attendance(peers=peers, session=bytes(16), silos=silos, gaps_end=gaps_end)
    attendance.ask_again_every(0.0, lambda: peers.clock, Counter())
    attendance.absent[index] = GONE
    returns = returns or (index == 4 and not gaps_end)  # nodes are in every session
    assert attendance.ask_absent() is not returns
    assert (index in attendance.absent) is not returns
    assert attendance.on_probation == ({index} if returns else set())


@pytest.mark.parametrize(("quorum", "correlated"), [(3, False), (3, True), (2, False), (2, True)])
def test_p25_who_failed_last_is_asked_first_unless_all_must_be_shown_every_attempt(
    quorum: int, correlated: bool
) -> None:
    """Where all are needed nobody pays before it answers: none of them goes on without it."""
    told = SimpleNamespace(quorum=quorum, needs_every_attempt=correlated)
    attendance = SimpleNamespace(on_probation={BOB})
    rounds: Any = SimpleNamespace(round_parameters=told, attendance=attendance, peers=Answering([]))
    spared = correlated and quorum == 2
    assert Rounds._first_asked.fget(rounds) == (set() if spared else {BOB})  # type: ignore[attr-defined]
