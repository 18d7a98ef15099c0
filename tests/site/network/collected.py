"""A consortium that collects, in one process: parties that come and go, and a clock that jumps."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hubbub.core.ledger.privacy_ledger import Ledger
from hubbub.learning.runs.result import Result
from hubbub.site.collected import collection_run
from hubbub.site.collected.collection_frames import Deposit
from hubbub.site.collected.collection_run import serve_collection
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.envelope import Missing, Phase
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import SessionNotes
from hubbub.site.network.kept_frames import KeptFrames
from hubbub.site.network.requests import Requests
from hubbub.site.network.waiting import Timeouts
from network.consortium import HOSPITALS, Consortium, table
from network.relay import Jumping

DAY = 86400.0
UNTIL = 30 * DAY
ASKED: dict[str, Any] = {
    "baseline": {"kind": "table", "columns": ["age", "sex"], "by": "disease"},
}


def asking(
    nodes: int = 3, *, dropouts: int = 1, names: Sequence[str] = HOSPITALS, **more: Any
) -> dict[str, Any]:
    """A study of one sum."""
    made = table(tuple(names), nodes, privacy={"epsilon": 8.0}, parties={"dropouts": dropouts})
    for name in ("model", "training"):
        del made[name]
    del made["data"]["target"]
    return made | {"statistics": ASKED} | more


def from_files(names: Sequence[str], nodes: int, *, dropouts: int) -> dict[str, Any]:
    """The same of files, for any number of silos."""
    data = {
        "files": "{name}.csv",
        "records": 40 * len(names),
        "columns": {"age": {"low": 0, "high": 100}, "ill": {"categories": ["no", "yes"]}},
    }
    asked = {"who": {"kind": "table", "columns": ["age"], "by": "ill"}}
    made = asking(nodes, dropouts=dropouts, names=names, statistics=asked)
    return made | {"data": data}


def write_files(parties: Consortium) -> None:
    for place, name in enumerate(parties.study.parties.names):
        rows = [f"{(7 * i + place) % 100},{('no', 'yes')[i % 2]}" for i in range(30 + place % 10)]
        (parties.home / name / f"{name}.csv").write_text("age,ill\n" + "\n".join(rows) + "\n")


class Time(Jumping):
    """A clock that jumps, and the date that goes with it."""

    def sleep(self, seconds: float, check: Any = lambda: None) -> None:
        assert len(self.slept) < 6000, "it goes on for ever"
        super().sleep(seconds, check)

    def wall(self) -> float:
        return sum(self.slept)


class Killed(BaseException):
    """The process is gone, as by `kill -9`."""


def seated(parties: Consortium, there: Callable[[str], bool] = lambda _: True) -> Phase:
    """Those of a consortium's parties that are there, asked one after the other; who dies is
    started again, and has not answered."""

    def phase(
        _name: str, requests: Mapping[str, bytes], _deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        for party, blob in requests.items():
            if not there(party):
                yield party, Missing(why="it is away")
                continue
            try:
                answer: bytes | Missing = parties.seats[party].answer(blob)
            except Killed:
                parties.start(party)
                answer = Missing(why="it has died")
            yield party, answer

    return phase


def collect(
    parties: Consortium,
    phase: Phase | None = None,
    *,
    until: float = UNTIL,
    clock: Time | None = None,
    out: str = "run",
) -> Result | None:
    """Collect the study's sums."""
    clock = clock or Time()
    home = parties.aggregator.home
    event_log = EventLog(party="aggregator", folder=home, say=parties.said.append)
    times = Timeouts(deadline=60.0, opening=300.0, waiting=300.0, ping=60.0, clock=clock)
    roster, study = parties.aggregator.roster, parties.study
    requests = Requests(roster, study.id, phase or seated(parties), event_log, times, quiet=True)
    coordinator = Coordinator(parties.aggregator, study, requests)
    return serve_collection(coordinator, parties.home / out, until=until, wall=clock.wall)


# Processes that die ---------------------------------------------------------------------------


@dataclass
class Deaths:
    """Who dies at which of its writes; each write has two sides, before and after it.

    Args:
        at: from a party to the numbers of the sides at which it dies.
        sides: how many sides each party has come to, all its processes together.
        died: how often each has died.
    """

    at: Callable[[str, int], bool]
    sides: Counter[str] = field(default_factory=Counter)
    died: Counter[str] = field(default_factory=Counter)

    def side(self, party: str) -> None:
        self.sides[party] += 1
        if self.at(party, self.sides[party] - 1):
            self.died[party] += 1
            raise Killed


def two_sided(
    deaths: Deaths, honest: Callable[..., Any], party_of: Callable[[Any], str]
) -> Callable[..., Any]:
    """A method that writes, with two sides at which the process of a party may die."""

    def written(self: Any, *given: Any, **named: Any) -> Any:
        party = party_of(self)
        deaths.side(party)
        made = honest(self, *given, **named)
        deaths.side(party)
        return made

    return written


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, deaths: Deaths) -> Iterator[Deaths]:
    """All that is written for a collection has two sides at which its process may die."""

    def both(kind: type, name: str, party_of: Callable[[Any], str]) -> None:
        monkeypatch.setattr(kind, name, two_sided(deaths, getattr(kind, name), party_of))

    both(KeptFrames, "keep", lambda kept: kept.folder.parents[1].name)
    both(KeptFrames, "erase", lambda kept: kept.folder.parents[1].name)
    both(Ledger, "charge", lambda ledger: ledger._path.parent.name)
    both(Ledger, "close_study", lambda ledger: ledger._path.parent.name)
    both(SessionNotes, "open_session", lambda notes: notes.home.name)
    yield deaths


def collected(parties: Consortium, phase: Phase, clock: Time, **named: Any) -> Result | None:
    """Collect, and serve again whenever the aggregator dies."""
    while True:
        try:
            return collect(parties, phase, clock=clock, **named)
        except Killed:
            continue


@pytest.fixture
def noised(monkeypatch: pytest.MonkeyPatch) -> dict[int, NDArray[Any]]:
    """What each silo has masked last: its noised sum in residues, which nobody else ever has."""
    found: dict[int, NDArray[Any]] = {}
    honest = Deposit.sealed

    def sealed(self: Deposit, residues: NDArray[Any], seeds: Any) -> Any:
        found[self.silo] = residues.copy()
        return honest(self, residues, seeds)

    monkeypatch.setattr(Deposit, "sealed", sealed)
    return found


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[int], NDArray[np.int64]]]:
    """Each sum that opens, with the silos of its set."""
    from hubbub.site.collected.collector import Collector

    found: list[tuple[list[int], NDArray[np.int64]]] = []
    honest = Collector.integers

    def integers(self: Collector) -> NDArray[np.int64]:
        total = honest(self)
        found.append((self.named, total))
        return total

    monkeypatch.setattr(Collector, "integers", integers)
    return found


def check_exact(
    sums: list[tuple[list[int], NDArray[np.int64]]], noised: dict[int, NDArray[Any]]
) -> None:
    """What opened is the sum of what the silos of the set have masked, to the last integer."""
    assert sums
    for silos, total in sums:
        wanted = np.sum([noised[silo] for silo in silos], axis=0, dtype=noised[silos[0]].dtype)
        signed = wanted.view(f"i{wanted.itemsize}").astype(np.int64)
        assert np.array_equal(total, signed)


def weather(draw: random.Random, clock: Time, up: float) -> Callable[[str], bool]:
    """Who is there: drawn anew for everybody whenever time has passed."""
    drawn: dict[tuple[str, int], bool] = {}

    def there(party: str) -> bool:
        assert clock.wall() < 200 * DAY, "it goes on for ever"
        key = (party, len(clock.slept))
        if key not in drawn:
            drawn[key] = draw.random() < up
        return drawn[key]

    return there


def hourly(monkeypatch: pytest.MonkeyPatch, hours: int = 1) -> None:
    """The aggregator looks every hour, or every few, who is there."""
    monkeypatch.setattr(collection_run, "_PAUSE", hours * 3600.0)
