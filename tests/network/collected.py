"""A consortium that collects, in one process: parties that come and go, and a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hubbub.network.collection.collection_run import serve_collection
from hubbub.network.collection.quiet_requests import QuietRequests
from hubbub.network.coordinator import Coordinator
from hubbub.network.engine import Missing, Phase
from hubbub.network.event_log import EventLog
from hubbub.network.timeouts import Timeouts
from hubbub.training.result import Result
from network.consortium import HOSPITALS, Consortium, table
from network.relay import Jumping

ASKED: dict[str, Any] = {
    "baseline": {"kind": "table", "columns": ["age", "sex"], "by": "disease"},
}
UNTIL = 1_000_000.0


def asking(nodes: int = 3, *, dropouts: int = 1, names: Any = HOSPITALS, **more: Any) -> dict[str, Any]:
    """A study of one sum."""
    made = table(tuple(names), nodes, privacy={"epsilon": 8.0}, parties={"dropouts": dropouts})
    for name in ("model", "training"):
        del made[name]
    del made["data"]["target"]
    return made | {"statistics": ASKED} | more


class Time(Jumping):
    """A clock that jumps, and the date that goes with it."""

    def wall(self) -> float:
        return sum(self.slept)


def coming_and_going(inner: Phase, there: Callable[[str], bool]) -> Phase:
    """An engine on which only some are there."""

    def phase(
        name: str, requests: Mapping[str, bytes], deadline: float
    ) -> Iterator[tuple[str, bytes | Missing]]:
        here = {party for party in requests if there(party)}
        yield from ((one, Missing(why="away")) for one in sorted(set(requests) - here))
        yield from inner(name, {k: v for k, v in requests.items() if k in here}, deadline)

    return phase


def collect(
    parties: Consortium,
    phase: Phase | None = None,
    *,
    until: float = UNTIL,
    clock: Time | None = None,
    out: Path | None = None,
) -> Result | None:
    """Collect the study's sums."""
    clock = clock or Time()
    event_log = EventLog(
        party="aggregator", folder=parties.aggregator.home, say=parties.said.append
    )
    times = Timeouts(deadline=60.0, opening=300.0, waiting=300.0, ping=60.0, clock=clock)
    roster, study = parties.aggregator.roster, parties.study
    requests = QuietRequests(roster, study.id, phase or parties.phase, event_log, times)
    return serve_collection(
        Coordinator(parties.aggregator, study, requests),
        out or parties.home / "run",
        until=until,
        wall=clock.wall,
    )
