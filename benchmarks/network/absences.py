"""A run of many thin silos of which some are always away: what is lost, and are the books right.

Endpoints, ledgers, folders, coordinator and loop are real; there is no line, and time is counted
and not spent. An answer takes `ANSWER_SECONDS` of it. As many silos as stated are always away: each
stays away for a time that is drawn exponentially around `away_seconds`, and as it comes back
another leaves, drawn among all. One in `RESTARTED` comes back as a new process, which knows no
session.

Asked for: the run ends, at most one attempt in twenty is lost, and the books are right.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import tomli_w

from benchmarks.network.accounts import Books, account
from benchmarks.network.stage import made_up, study_of
from benchmarks.network.table import write
from hubbub import Records
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.learning.runs import preparing
from hubbub.site.network import endpoint
from hubbub.site.network.aggregator_run import serve
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.demo import DemoConsortium
from hubbub.site.network.endpoint import Endpoint, NodeEndpoint
from hubbub.site.network.envelope import Missing
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.requests import Requests
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Check, Clock, Timeouts

ANSWER_SECONDS = 5.0
RESTARTED = 3
_RECORDS, _FEATURES = 4, 4


@dataclass(frozen=True, kw_only=True)
class Absences:
    """What became of a run."""

    masks: str
    noise: str
    silos: int
    away: int
    away_seconds: float
    seed: int
    steps: int
    sums: int
    attempts: int
    lost_percent: float
    left: int
    sessions: int
    rows: str
    clock_minutes: float
    processor_minutes: float
    wrong: str


def records(party: str) -> Records:
    """Made-up records of a silo."""
    return made_up(party, _RECORDS, _FEATURES)


def measured(
    nodes: int, silos: int, away: int, away_seconds: float, steps: int, seed: int, noise: str
) -> list[Absences]:
    """One run, kept as a row."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        row = _measured(Path(folder), nodes, silos, away, away_seconds, steps, seed, noise, began)
    command = (
        f"absences --nodes {nodes} --silos {silos} --away {away} --away-seconds {away_seconds:g} "
        f"--steps {steps} --seed {seed} --noise {noise}"
    )
    write("network_absences", [row], command, fresh=False)
    return [row]


class Counted(Clock):
    """A clock on which waits and answers take their time at once."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Seconds that were counted."""
        return self.seconds

    def sleep(self, seconds: float, check: Check = lambda: None) -> None:
        """Count them."""
        self.seconds += seconds
        check()


class Away:
    """An engine of which some parties are always away."""

    def __init__(
        self, seats: dict[str, Endpoint], silos: list[str], clock: Counted, chance: random.Random
    ) -> None:
        self.seats, self.silos, self.clock, self.chance = seats, silos, clock, chance
        self.until: dict[str, float] = {}  # when somebody comes back
        self.left = 0

    def leave(self, mean: float) -> None:
        """One silo more leaves."""
        name = self.chance.choice([one for one in self.silos if one not in self.until])
        self.until[name] = self.clock.seconds + self.chance.expovariate(1 / mean)
        self.left += 1

    def move(self, mean: float) -> None:
        """Who was away long enough comes back, and others leave in its place."""
        for name in [one for one, end in self.until.items() if end <= self.clock.seconds]:
            del self.until[name]
            if not self.chance.randrange(RESTARTED):
                self.restart(name)
            self.leave(mean)

    def restart(self, name: str) -> None:
        """A silo's process begins anew."""
        self.seats[name].close()
        self.seats[name] = _endpoint(self.seats[name].party_folder)


def _measured(
    folder: Path,
    nodes: int,
    silos: int,
    away: int,
    away_seconds: float,
    steps: int,
    seed: int,
    noise: str,
    began: float,
) -> Absences:
    names = [f"silo-{number:02}" for number in range(1, silos + 1)]
    consortium = DemoConsortium.made(
        folder, _study(names, nodes, 2 * away, steps, noise), nodes, lambda _: None, main
    )
    study = consortium.study
    with (
        patch.object(preparing, "plan_study", _planned(study)),
        patch.object(endpoint, "plan", _planned(study)),
    ):
        sites = {name: PartyFolder.opened(folder / name) for name in consortium.members}
        seats = {name: _endpoint(one) for name, one in sites.items()}
        clock, chance = Counted(), random.Random(seed)
        engine = Away(seats, names, clock, chance)
        for _ in range(away):
            engine.leave(away_seconds)

        def phase(
            name: str, requests: Mapping[str, bytes], deadline: float
        ) -> Iterator[tuple[str, bytes | Missing]]:
            engine.move(away_seconds)
            clock.seconds += 0.1 if name == "ping" else ANSWER_SECONDS
            engine.move(away_seconds)
            gone = [one for one in requests if one in engine.until]
            for party, request in requests.items():
                if party not in gone:
                    yield party, engine.seats[party].answer(request)
            clock.seconds += deadline if gone else 0.0
            yield from ((one, Missing()) for one in gone)

        opened: list[int] = []
        party_folder = PartyFolder.opened(folder / "aggregator")
        log = EventLog(
            party="aggregator", tell=lambda event: opened.extend([1] * (event["event"] == "open"))
        )
        timeouts = Timeouts(clock=clock)
        requests = Requests(party_folder.roster, study.id, phase, log, timeouts)
        result = serve(Coordinator(party_folder, study, requests), consortium.run)
        for seat in engine.seats.values():
            seat.close()
        sums = int(result.final["step"])
        books = account(
            Books(
                study=study,
                roster=party_folder.roster,
                homes=folder,
                folder=consortium.run,
                step=sums,
            ),
            finished=True,
        )
    return Absences(
        masks=f"{nodes} nodes" if nodes else "pairwise",
        noise=noise,
        silos=silos,
        away=away,
        away_seconds=away_seconds,
        seed=seed,
        steps=steps,
        sums=sums,
        attempts=books.counted,
        lost_percent=100 * (1 - sums / books.counted),
        left=engine.left,
        sessions=len(opened),
        rows=books.rows,
        clock_minutes=clock.seconds / 60,
        processor_minutes=(time.process_time() - began) / 60,
        wrong="; ".join(books.wrong),
    )


def _planned(study: Study):
    """The plan, made once for all parties of this process."""
    made: Plan = plan(study)
    return lambda _study, **_more: made


def _endpoint(party_folder: PartyFolder) -> Endpoint:
    log = EventLog(party=party_folder.name, folder=party_folder.home)
    if party_folder.role == "node":
        return NodeEndpoint(party_folder, log)
    return SiloEndpoint(
        party_folder,
        log,
        data=party_folder.home,
        ledger=party_folder.home / "ledger.sqlite",
        device="cpu",
        pace=0.0,
    )


def _study(names: list[str], nodes: int, dropouts: int, steps: int, noise: str) -> str:
    """A small study of many silos."""
    training = {"sample_rate": 0.5}
    if noise == "correlated":
        training |= {"noise": noise, "bands": 4, "optimizer": {"name": "sgd", "lr": 0.1}}
        training["sample_rate"] = 0.1
    changes = {
        "study": {"transcript": "hashes"},
        "parties": {"names": names, "dropouts": dropouts, "compute_nodes": nodes},
        "data": {"source": f"python:{__name__}:records", "records": len(names) * _RECORDS},
        "model": {"inputs": [_FEATURES]},
        "training": training,
        "privacy": {"epsilon": 10.0},
    }
    return tomli_w.dumps(study_of("absences", steps, **changes))
