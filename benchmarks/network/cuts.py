"""Hundreds of cuts of up to six minutes over one run, under a clock that is moved.

Everything is real but the time: a server with TLS, lines, endpoints, ledgers, the aggregator's
loop, as threads of this process; each party's line goes over a way of its own that can be cut,
held up, or forgotten by whatever lies between (`ways`). While parties are cut off the clock runs
forty times as fast. How long a cut lasts is drawn evenly on a logarithmic scale, from a second to
six minutes; it strikes one party, several, or the aggregator, after a step was made since the cut
before, each tenth without waiting for that. A batch takes ten seconds, so that most strike in the
middle of one.

Asked for: the run ends by itself, the books are right, and everybody is heard of again within ten
seconds of the line. Of a line that something forgot this holds after cuts of 32 s: before, its end
does not know of it, and asks the relay three times in 30 s.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tomli_w

from benchmarks.network.accounts import Books, account
from benchmarks.network.moved_clock import MovedClock
from benchmarks.network.stage import made_up, study_of
from benchmarks.network.table import write
from benchmarks.network.ways import Fault, Way, Ways
from hubbub import Records
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.session.ask import Call
from hubbub.desk.cli.main import main
from hubbub.site.network.aggregator_process import RelayFiles
from hubbub.site.network.aggregator_run import serve
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.demo import DemoConsortium
from hubbub.site.network.endpoint import Endpoint, NodeEndpoint
from hubbub.site.network.envelope import read_request
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.join import relay_of
from hubbub.site.network.nats.carrier import Answering, Carrier
from hubbub.site.network.nats.relay import Relay
from hubbub.site.network.nats.server import Server
from hubbub.site.network.party_folder import RELAY, PartyFolder
from hubbub.site.network.requests import Requests
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Timeouts

FAST, WHILE_BACK = 40.0, 5.0  # seconds of the clock in a real one: while cut off, until back
SHORTEST, LONGEST = 1.0, 360.0  # seconds
BATCH_SECONDS = 10.0
NOTICED_SECONDS = 32.0  # after which a line that was forgotten is known to be dead
_EARLY = 0.1  # share of the cuts that do not wait for a step
_STEPS_A_CUT = 8
_REAL_SECONDS = 120.0  # a wait that takes longer is a defect
_AGGREGATOR = "aggregator"
_RECORDS, _FEATURES = 40, 4


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What becomes of one cut."""

    number: int
    kind: str
    whom: str
    lasted_seconds: float
    back_seconds: float
    step: int


@dataclass(frozen=True, kw_only=True)
class CutsOver:
    """What became of a run."""

    masks: str
    seed: int
    cuts: int
    steps: int
    attempts: int
    rows: str
    sessions: int
    median_lasted_seconds: float
    most_lasted_seconds: float
    median_back_seconds: float
    most_back_seconds: float
    most_back_unnoticed_seconds: float
    clock_minutes: float
    real_minutes: float
    processor_minutes: float
    wrong: str


def records(party: str) -> Records:
    """Made-up records of a silo."""
    return made_up(party, _RECORDS, _FEATURES)


def measured(nodes: int, cuts: int, seed: int) -> list[CutsOver]:
    """So many cuts over one run, kept as a row for the run and one for each cut."""
    row, each = cut_over_and_over(nodes, cuts, seed)
    command = f"cuts --nodes {nodes} --cuts {cuts} --seed {seed}"
    write("network_cuts", [row], command, fresh=False)
    write(f"network_cuts_{row.masks.replace(' ', '_')}", each, command, fresh=True)
    return [row]


def cut_over_and_over(nodes: int, cuts: int, seed: int) -> tuple[CutsOver, list[Cut]]:
    """So many cuts over one run: what became of it, and of each."""
    chance, began, worked = random.Random(seed), time.monotonic(), time.process_time()
    steps = _STEPS_A_CUT * cuts + 20
    with tempfile.TemporaryDirectory() as folder, _begun(Path(folder), nodes, steps) as run:
        started = run.clock.now()
        each = [_cut(run, chance, number) for number in range(1, cuts + 1)]
        lasted = run.clock.now() - started
        run.batch_seconds = 0.0
        run.ended.result()
        books = account(run.books, finished=True)
    late = [one.back_seconds for one in each if _noticed(one)]
    early = [one.back_seconds for one in each if not _noticed(one)]
    row = CutsOver(
        masks=f"{nodes} nodes" if nodes else "pairwise",
        seed=seed,
        cuts=cuts,
        steps=books.step,
        attempts=books.counted,
        rows=books.rows,
        sessions=run.opened,
        median_lasted_seconds=float(np.median([one.lasted_seconds for one in each])),
        most_lasted_seconds=max(one.lasted_seconds for one in each),
        median_back_seconds=float(np.median(late)),
        most_back_seconds=max(late),
        most_back_unnoticed_seconds=max(early, default=0.0),
        clock_minutes=lasted / 60,
        real_minutes=(time.monotonic() - began) / 60,
        processor_minutes=(time.process_time() - worked) / 60,
        wrong="; ".join(books.wrong),
    )
    return row, each


def _noticed(cut: Cut) -> bool:
    """Whether it was long enough to be seen while it lasted."""
    return cut.kind != Fault.DEAD or cut.lasted_seconds >= NOTICED_SECONDS


@dataclass(kw_only=True)
class _Run:
    """A run, and what can happen to it."""

    clock: MovedClock
    consortium: DemoConsortium
    roster: Roster
    ways: dict[str, Way] = field(default_factory=dict)
    lines: dict[str, Answering | Carrier] = field(default_factory=dict)
    ended: Future[object] = field(default_factory=Future)
    batch_seconds: float = BATCH_SECONDS
    step: int = 0
    opened: int = 0

    @property
    def books(self) -> Books:
        """Where everybody's books are."""
        return Books(
            study=self.consortium.study,
            roster=self.roster,
            homes=self.consortium.folder,
            folder=self.consortium.run,
            step=self.step,
        )

    def tell(self, event: dict[str, object]) -> None:
        """An event of the aggregator."""
        self.step = int(str(event["step"])) if event["event"] == "step" else self.step
        self.opened += event["event"] == "open"

    def heard_since(self, name: str, when: float) -> bool:
        """Whether the aggregator and a party have heard of each other since then."""
        there, here = self.lines[_AGGREGATOR]._line, self.lines[name]._line  # noqa: SLF001
        heard = (there._ends[name].link.heard, here._ends[_AGGREGATOR].link.heard)  # noqa: SLF001
        return min(heard) > when


def _cut(run: _Run, chance: random.Random, number: int) -> Cut:
    """Wait a little, cut somebody off for a while, and wait until all are back."""
    _wait_for_a_step(run, chance)
    whom = _drawn(run, chance)
    kind = chance.choice(list(Fault))
    lasts = SHORTEST * (LONGEST / SHORTEST) ** chance.random()
    for name in whom:
        run.ways[name].happen(kind)
    run.clock.speed = FAST
    run.clock.sleep(lasts)
    run.clock.speed = WHILE_BACK
    for name in whom:
        run.ways[name].end()
    since = run.clock.now()
    cut_off = run.consortium.members if _AGGREGATOR in whom else whom
    _until(lambda: all(run.heard_since(name, since) for name in cut_off), run)
    back = run.clock.now() - since
    return Cut(
        number=number,
        kind=kind,
        whom=" ".join(whom),
        lasted_seconds=lasts,
        back_seconds=back,
        step=run.step,
    )


def _drawn(run: _Run, chance: random.Random) -> list[str]:
    """Whom a cut strikes: mostly one party."""
    drawn = chance.random()
    if drawn < 0.15:
        return [_AGGREGATOR]
    count = 1 if drawn < 0.85 else chance.randint(2, len(run.consortium.members))
    return chance.sample(run.consortium.members, count)


def _wait_for_a_step(run: _Run, chance: random.Random) -> None:
    """Until one was made, but for some cuts, and a random moment longer."""
    run.clock.speed = FAST
    before = run.step
    if chance.random() > _EARLY:
        _until(lambda: run.step > before or run.ended.done(), run)
    run.clock.sleep(chance.uniform(0.0, 2 * BATCH_SECONDS))


def _until(holds: Callable[[], bool], run: _Run) -> None:
    """Until something holds; the run goes on meanwhile."""
    end = time.monotonic() + _REAL_SECONDS
    while not holds():
        if run.ended.done():
            run.ended.result()  # what it ended with is raised
            raise AssertionError("the run ended before all cuts were made")
        assert time.monotonic() < end, f"it did not happen in {_REAL_SECONDS:g} s"
        time.sleep(0.002)


@contextmanager
def _begun(folder: Path, nodes: int, steps: int) -> Iterator[_Run]:
    """A consortium whose parties are threads, and its run."""
    consortium = DemoConsortium.made(folder, _study(nodes, steps), nodes, lambda _: None, main)
    sites = {name: PartyFolder.opened(folder / name) for name in (_AGGREGATOR, *consortium.members)}
    party_folder = sites[_AGGREGATOR]
    relay = relay_of(party_folder, None)
    made = RelayFiles.written(party_folder.home / RELAY, party_folder.roster, None)
    server = Server(made.configuration.parent, relay.port, lambda _: None)
    run = _Run(clock=MovedClock(), consortium=consortium, roster=party_folder.roster)
    ways = Ways()
    over = threading.Event()
    with ExitStack() as stack:
        stack.callback(run.clock.stop)
        stack.callback(ways.stop)
        server.start()
        stack.callback(server.stop)
        run.ways = {name: ways.to(relay.port) for name in sites}
        pool = stack.enter_context(ThreadPoolExecutor(len(sites)))
        stack.callback(over.set)
        for name in consortium.members:
            pool.submit(_party, run, sites[name], _through(relay, run.ways[name]), over)
        reached = _through(relay, run.ways[_AGGREGATOR])
        carrier = Carrier(
            reached, party_folder.keys, party_folder.roster, lambda *_: None, run.clock
        )
        run.lines[_AGGREGATOR] = stack.enter_context(carrier)
        log = EventLog(party=party_folder.name, folder=party_folder.home, tell=run.tell)
        timeouts = Timeouts(clock=run.clock)
        requests = Requests(party_folder.roster, consortium.study.id, carrier.phase, log, timeouts)
        coordinator = Coordinator(party_folder, consortium.study, requests)
        run.ended = pool.submit(serve, coordinator, consortium.run)
        yield run


def _through(relay: Relay, way: Way) -> Relay:
    return replace(relay, urls=(f"tls://127.0.0.1:{way.port}",))


def _party(run: _Run, party_folder: PartyFolder, relay: Relay, over: threading.Event) -> None:
    """A silo or a node; a silo's batches take a while."""
    endpoint = _endpoint(party_folder)

    def answer(request: bytes) -> bytes:
        if party_folder.role == "silo" and read_request(request)[0] is Call.MODEL:
            run.clock.sleep(run.batch_seconds)
        return endpoint.answer(request)

    line = Answering(relay, party_folder.keys, answer, lambda *_: None, lambda: None, run.clock)
    run.lines[party_folder.name] = line
    with line:
        while not over.is_set():
            line.step(0.05)
    endpoint.close()


def _endpoint(party_folder: PartyFolder) -> Endpoint:
    log = EventLog(party=party_folder.name, folder=party_folder.home)
    if party_folder.role == "node":
        return NodeEndpoint(party_folder, log)
    ledger = party_folder.home / "ledger.sqlite"
    return SiloEndpoint(
        party_folder, log, data=party_folder.home, ledger=ledger, device="cpu", pace=0.0
    )


def _study(nodes: int, steps: int) -> str:
    """A small study of four silos, of whom one may be missing."""
    changes = {
        "parties": {"dropouts": 1, "compute_nodes": nodes},
        "data": {"source": f"python:{__name__}:records", "records": 4 * _RECORDS},
        "model": {"inputs": [_FEATURES]},
        "training": {"sample_rate": 0.5},
        "privacy": {"epsilon": 10.0},
    }
    return tomli_w.dumps(study_of("cuts", steps, **changes))
