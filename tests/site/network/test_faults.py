"""Hundreds of random schedules of faults on a tiny study over the boundary; faults are data.

A schedule is a list of operations: in the n-th phase of a name, for one party, something is lost,
doubled, altered, repeated, delivered late, or the party starts anew. Whatever happens, a sum is
that of the silos who took part, no answer leaves without its row, no mask key and no place of an
answer is used twice, and nobody who is honest is blamed; and everything ends.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.errors import ProtocolError
from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.core.protocol.agreement.key_agreement import PairSecret, Place
from hubbub.core.protocol.primitives.wire import Frame
from hubbub.core.protocol.round.masking import Masking
from hubbub.core.protocol.round.round_parameters import Turn
from hubbub.core.session.ask import AbsentError
from hubbub.site.network.envelope import Missing
from hubbub.site.network.folder_files import PAID
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Timeouts, WaitedError
from network.relay import NAMES, Watched, flipped, gathered, opened

# In the n-th phase of a name, for a party: what happens, and a number that says more.
Operation = tuple[str, int, str, str, int]
Blob = bytes | Missing

NODES = pytest.mark.parametrize(
    "shared", [0, 2], ids=["pairwise", "nodes"], indirect=True, scope="module"
)
MANY = pytest.mark.parametrize("schedules", [25, pytest.param(100, marks=pytest.mark.slow)])
ROUNDS = 3
CALLS = ("ping", "open", "commit", "reveal", "contribute", "confirm", "finish")
HAPPENS = (
    "lose the request",
    "lose the answer",
    "alter the request",
    "alter the answer",
    "double the request",
    "repeat a request",
    "repeat an answer",
    "deliver late",
    "restart before",
    "restart after",
)
BRIEF = Timeouts(deadline=60.0, opening=300.0, waiting=300.0, ask_again=0.0)
LONG: dict[str, Any] = {
    "training": {"steps": 12},
    "parties": {"colluders": 0, "dropouts": 1},
}


@dataclass
class Faulty:
    """An engine on which a schedule happens, one party after the other.

    Args:
        parties: everybody.
        schedule: see `Operation`.
        happened: how many operations have.
    """

    parties: Watched
    schedule: Sequence[Operation]
    happened: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    asked: dict[str, list[bytes]] = field(default_factory=dict)
    told: dict[str, list[bytes]] = field(default_factory=dict)
    late: dict[str, Blob] = field(default_factory=dict)

    def __call__(
        self, name: str, requests: Mapping[str, bytes], _deadline: float
    ) -> Iterator[tuple[str, Blob]]:
        self.phases[name] += 1
        assert sum(self.phases.values()) < 400, "it does not end"
        now = {
            party: (what, number)
            for call, nth, party, what, number in self.schedule
            if (call, nth) == (name, self.phases[name])
        }
        for party, blob in requests.items():
            if party in self.late:
                yield party, self.late.pop(party)
                self._ask(party, blob)
            elif party in now:
                self.happened += 1
                yield party, self._fault(party, blob, *now[party])
            else:
                yield party, self._ask(party, blob)

    def _ask(self, party: str, blob: bytes) -> bytes:
        self.asked.setdefault(party, []).append(blob)
        said = self.parties.answers(party)(blob)
        self.told.setdefault(party, []).append(said)
        return said

    def _fault(self, party: str, blob: bytes, what: str, number: int) -> Blob:
        if what == "lose the request":
            return Missing()
        if what == "alter the request":
            return self._ask(party, flipped(blob, number % len(blob)))
        if what == "restart before":
            self.parties.start(party)
        if what == "repeat a request" and self.asked.get(party):
            return self._ask(party, self.asked[party][number % len(self.asked[party])])
        said: Blob = self._ask(party, blob)
        assert isinstance(said, bytes)
        if what == "alter the answer":
            return flipped(said, number % len(said))
        if what == "double the request":
            again = self._ask(party, blob)
            return again if number % 2 else said
        if what == "repeat an answer":
            return self.told[party][number % len(self.told[party])]
        if what == "restart after":
            self.parties.start(party)
        if what == "deliver late":
            self.late[party] = said
        return said if what in ("restart before", "repeat a request") else Missing()


@dataclass
class Played:
    """What came of a schedule."""

    sums: int = 0
    stopped: str = ""
    blamed: str = ""


def renewed(parties: Watched) -> None:
    """The silos begin new ledgers, as if the study had never run; nobody has heard of the old."""
    parties.paid.clear()
    for path in parties.home.glob(f"*/{PAID}"):
        path.unlink()
    for name in NAMES:
        endpoint = parties.seats[name]
        assert isinstance(endpoint, SiloEndpoint)
        endpoint.close()
        for path in (parties.home / name).glob("ledger.*"):
            path.unlink()
        ledger = Ledger(parties.home / name / "ledger.sqlite")
        endpoint._ledger = endpoint._books.enter_context(ledger)


def play(parties: Watched, schedule: Sequence[Operation]) -> Played:
    """A session, some rounds, and a new session where one is lost; the laws hold all the time."""
    renewed(parties)
    found, engine = Played(), Faulty(parties, schedule)
    try:
        session, number = opened(parties, engine, BRIEF), 1
        while number <= ROUNDS:
            try:
                found.sums += session.round(number, attempts=3)[0] is not None
                number += 1
            except AbsentError:
                session = opened(parties, engine, BRIEF)
    except WaitedError as error:
        found.stopped = str(error)
    except ProtocolError as error:
        found.stopped, found.blamed = str(error), error.culprit
    assert parties.broken == []
    assert found.blamed in ("", "relay"), f"{found.blamed} is blamed, who is honest"
    return found


def drawn(draw: random.Random, nodes: int) -> list[Operation]:
    """Some faults, most of them in rounds."""
    calls = [call for call in CALLS if not nodes or call not in ("commit", "reveal")]
    schedule = []
    for _ in range(draw.randint(1, 6)):
        call = draw.choice([*calls, *["model"] * 8, *["total"] * 4 * bool(nodes)])
        others = [f"node-{n}" for n in range(1, nodes + 1)]
        party = draw.choice(
            NAMES if call == "model" else others if call == "total" else [*NAMES, *others]
        )
        what = draw.choice(HAPPENS)
        schedule.append((call, draw.randint(1, 3), party, what, draw.getrandbits(12)))
    return schedule


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """One consortium for all schedules: they begin with new ledgers."""
    return gathered(tmp_path_factory.mktemp("faults"), request.param, **LONG)


@pytest.mark.slow_cases("pairwise-25", "nodes-25")
@MANY
@NODES
def test_no_random_schedule_breaks_a_law(shared: Watched, schedules: int) -> None:
    draw, sums, stopped = random.Random(20), 0, 0
    nodes = shared.study.parties.compute_nodes
    for _ in range(schedules):
        schedule = drawn(draw, nodes)
        try:
            found = play(shared, schedule)
        except AssertionError as broken:
            pytest.fail(f"{broken}: {schedule}")
        sums, stopped = sums + found.sums, stopped + bool(found.stopped)
    assert sums > schedules  # the schedules are not all too broken to say anything
    assert stopped < schedules / 4


# Schedules worth remembering; one that breaks a law is added here as it was.
KNOWN: dict[str, list[Operation]] = {
    "nothing happens": [],
    "an answer comes in the next round": [("model", 1, "bob", "deliver late", 0)],
    "a silo starts anew in the middle of a round": [("model", 2, "ann", "restart after", 0)],
    "a model comes twice, and the second answer first": [
        ("model", 1, "cyn", "double the request", 1)
    ],
    "an opening comes twice": [("open", 1, "bob", "double the request", 1)],
    "a silo sees the opening of the session before": [
        ("model", 1, "bob", "restart after", 0),
        ("model", 2, "bob", "repeat a request", 1),
    ],
    "the set-up is asked for again in the middle of a round": [
        ("model", 2, "bob", "repeat a request", 2),
        ("model", 3, "bob", "repeat a request", 2),
    ],
    "everybody starts anew": [("model", 2, name, "restart before", 0) for name in NAMES],
}


@pytest.mark.quick_cases(
    "an opening comes twice-pairwise", "a model comes twice, and the second answer first-pairwise"
)
@NODES
@pytest.mark.parametrize("schedule", KNOWN.values(), ids=KNOWN)
def test_known_schedules(shared: Watched, schedule: list[Operation]) -> None:
    found = play(shared, schedule)
    assert found.sums >= 1
    assert not found.stopped


# The laws can fail -----------------------------------------------------------------------------


def forgets(patch: pytest.MonkeyPatch) -> None:
    """Nobody remembers the last attempt that it took part in."""

    def take(self: Turn, frame: Frame, *_: object) -> None:
        self.last = (frame.round, frame.attempt)

    patch.setattr(Turn, "take", take)
    never = property(lambda self: None, lambda self, _: None)
    patch.setattr(Masking, "_masked", never, raising=False)


def mask_without_session(patch: pytest.MonkeyPatch) -> None:
    """Mask keys that do not depend on the pair's secret."""

    def same(self: PairSecret, _: bytes, place: Place) -> bytes:
        return bytes([self.low, self.high, place.round % 256, place.attempt % 256]) * 4

    patch.setattr(PairSecret, "mask_key", same)


def pays_nothing(patch: pytest.MonkeyPatch) -> None:
    """A silo that does not write its charges down."""
    patch.setattr("hubbub.core.ledger.privacy_ledger.Ledger.charge", lambda *_, **__: None)


BROKEN = {
    forgets: r"two different answers|a mask key used twice",
    mask_without_session: "a mask key used twice",
    pays_nothing: "an answer without a row",
}


@pytest.mark.quick_cases("pays_nothing")
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_schedule_finds_a_broken_party(
    tmp_path: Path, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = gathered(tmp_path, 0, **LONG)
    broken(monkeypatch)
    schedule: list[Operation] = [
        ("model", 1, "cyn", "double the request", 0),
        ("model", 2, "ann", "restart after", 0),
        ("model", 2, "bob", "restart after", 0),
    ]
    with pytest.raises(AssertionError, match=BROKEN[broken]):
        play(parties, schedule)


@pytest.mark.slow
def test_a_vector_counted_twice_is_caught(tmp_path: Path) -> None:
    parties = gathered(tmp_path, 0, **LONG)
    session = opened(parties, timeouts=BRIEF)
    total, _ = session.rounds.round(1, session.initial, 1)
    assert total is not None
    own = session.sums([2], session.initial) / session.round_parameters.grid_step
    with pytest.raises(AssertionError, match="a wrong sum"):
        session.check(total + own.astype(int))
    assert isinstance(parties.seats["ann"], SiloEndpoint)
