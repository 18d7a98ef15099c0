"""What a step costs beside the same bytes sent bare: wall and processor time, in one go.

Three silos in processes of their own and one relay with TLS. The same requests and answers travel
three times: by the client library alone (`bare`), in hubbub's pieces and hashes (`carried`), and as
steps of a study, with gradients, noise, masks, signatures and ledgers (`step`); `alone` is the same
study in one process, where nothing travels: what a step costs beyond it is the engine's. Processor
time is that of all processes, the relay's too. A step never takes less than 0.02 s, the pace of
answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w

from benchmarks.network.slow_line import processor_seconds
from benchmarks.network.stage import Run, Stage, made_up, study_of, wait
from benchmarks.network.table import write
from hubbub import Records
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.learning.runs.run_study import run as run_study
from hubbub.site.network.aggregator_process import RelayFiles
from hubbub.site.network.demo import DemoConsortium
from hubbub.site.network.join import relay_of
from hubbub.site.network.nats.carrier import Answering, Carrier
from hubbub.site.network.nats.message_delivery import PIECE_BYTES
from hubbub.site.network.nats.relay import Relay, answers_of, asked_of, client_context, seed_of
from hubbub.site.network.nats.server import PROCESS_ID, Server
from hubbub.site.network.party_folder import RELAY, PartyFolder

SILOS = ("ann", "bob", "cyn")
_RECORDS, _FEATURES = 40, 1000
_WARM = 2  # of each kind, not counted
_THERE = b"?"


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """One way of sending the same bytes."""

    parameters: int
    download: str
    way: str
    request_kilobytes: float
    answer_kilobytes: float
    repeats: int
    wall_seconds: float
    processor_seconds: float
    wall_ratio: float
    processor_ratio: float


def records(party: str) -> Records:
    """Made-up records of a silo."""
    return made_up(party, _RECORDS, _FEATURES)


def measured(hiddens: Sequence[int], steps: int, downloads: Sequence[str]) -> list[StepCost]:
    """For models of these widths, whole or shortened on their way; rows are added to the table."""
    rows = []
    for hidden in hiddens:
        for download in downloads:
            made = _measured(hidden, download, steps)
            command = f"step --steps {steps} --hidden {hidden} --download {download}"
            write("network_step", made, command, fresh=False)
            rows += made
    return rows


@dataclass(frozen=True, kw_only=True)
class _Cost:
    wall: float
    processor: float


def _measured(hidden: int, download: str, steps: int) -> list[StepCost]:
    with tempfile.TemporaryDirectory() as folder:
        asked, answered, parameters, cost = _step(Path(folder), hidden, download, steps)
    with tempfile.TemporaryDirectory() as folder:
        costs = {
            way: _sent(Path(folder) / way, way, asked, answered, steps)
            for way in ("bare", "carried")
        }
    costs |= {"alone": _alone(hidden, download, steps), "step": cost}
    bare = costs["bare"]
    return [
        StepCost(
            parameters=parameters,
            download=download,
            way=way,
            request_kilobytes=asked / 1000,
            answer_kilobytes=answered / 1000,
            repeats=steps,
            wall_seconds=cost.wall,
            processor_seconds=cost.processor,
            wall_ratio=cost.wall / bare.wall,
            processor_ratio=cost.processor / bare.processor,
        )
        for way, cost in costs.items()
    ]


# Steps -----------------------------------------------------------------------------------------


def _study(hidden: int, download: str, steps: int) -> dict[str, Any]:
    changes = {
        "parties": {"names": list(SILOS)},
        "data": {"source": f"python:{__name__}:records", "records": len(SILOS) * _RECORDS},
        "model": {"kind": "mlp", "hidden": [hidden], "inputs": [_FEATURES]},
        "training": {"sample_rate": 0.5, "broadcast_dtype": download},
        "privacy": {"epsilon": 10.0},
    }
    return study_of("steps", steps, **changes)


def _step(folder: Path, hidden: int, download: str, steps: int) -> tuple[int, int, int, _Cost]:
    """Bytes to a silo and from it, the number of parameters, and what a step cost."""
    table = _study(hidden, download, steps + _WARM + 1)
    consortium = DemoConsortium.made(folder, tomli_w.dumps(table), 0, lambda _: None, main)
    roster = PartyFolder.opened(folder / "aggregator").roster
    stage = Stage(consortium=consortium, roster=roster)
    try:
        for name in consortium.members:
            consortium.join(name)
        run = stage.begin(table)
        assert run.reach(_WARM, 600.0), "no step was made"
        pids = [*stage.processes().values(), run.server.pid]
        (first, *before), worked = _traffic(run), processor_seconds(pids)
        assert run.reach(steps + _WARM, 600.0), "the steps were not made"
        (last, *after), worked = _traffic(run), processor_seconds(pids) - worked
        assert run.end(600.0) == 0, run.said
        times = {step: when for when, step in run.steps}
    finally:
        stage.clear()
    walls = [b - a for (_, a), (_, b) in pairwise(sorted(times.items())[_WARM:])]
    each = (last - first) * len(SILOS)
    asked, answered = ((b - a) // each for a, b in zip(before, after, strict=True))
    parameters = hidden * (_FEATURES + 1) + hidden + 1
    cost = _Cost(wall=median(walls), processor=worked / (last - first))
    return asked, answered, parameters, cost


def _alone(hidden: int, download: str, steps: int) -> _Cost:
    """What a step of the same study costs in one process."""
    marks = []

    def progress(_step: int, _row: object) -> None:
        marks.append((time.perf_counter(), time.process_time()))

    study = Study.parse(tomli_w.dumps(_study(hidden, download, steps + _WARM)))
    with tempfile.TemporaryDirectory() as folder:
        run_study(study, Path(folder) / "run", progress=progress)
    walls = [b - a for (a, _), (b, _) in pairwise(marks[_WARM - 1 :])]
    return _Cost(wall=median(walls), processor=(marks[-1][1] - marks[_WARM - 1][1]) / steps)


def _traffic(run: Run) -> tuple[int, int, int]:
    """The last step that the aggregator's status tells, and the bytes that it sent and received."""
    path = run.stage.home("aggregator") / "status.json"
    said = json.loads(path.read_text(encoding="utf-8"))
    return int(said["step"]), int(said["bytes_sent"]), int(said["bytes_received"])


# The same bytes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answerer:
    """A silo that answers so many bytes to so many, in hubbub's place.

    Args:
        way: bare or carried.
        asked, answered: bytes.
    """

    way: str
    asked: int
    answered: int

    def __call__(self, arguments: Sequence[str]) -> int:
        """Answer, until ended."""
        party_folder = PartyFolder.opened(Path(arguments[list(arguments).index("--home") + 1]))
        relay, content = relay_of(party_folder, None), os.urandom(self.answered)
        if self.way == "bare":
            asyncio.run(_answer_bare(party_folder, relay, self.asked, content))
        nothing = lambda *_: None  # noqa: E731
        line = Answering(relay, party_folder.keys, lambda _: content, nothing, nothing)
        with line:
            while True:
                line.step(1.0)


def _sent(folder: Path, way: str, asked: int, answered: int, repeats: int) -> _Cost:
    """What it costs to send the same bytes another way."""
    table = _study(8, "float32", repeats)
    consortium = DemoConsortium.made(folder, tomli_w.dumps(table), 0, lambda _: None, main)
    consortium.command = Answerer(way, asked, answered)
    party_folder = PartyFolder.opened(folder / "aggregator")
    relay = relay_of(party_folder, None)
    RelayFiles.written(party_folder.home / RELAY, party_folder.roster, None)
    server = Server(party_folder.home / RELAY, relay.port, lambda _: None)
    with ExitStack() as stack:
        server.start()
        stack.callback(server.stop)
        for name in consortium.members:
            consortium.join(name)
        stack.callback(consortium.end)
        pids = [one.pid for one in consortium.joined.values()]
        wait((party_folder.home / RELAY / PROCESS_ID).exists, 30.0)
        pids += [os.getpid(), int((party_folder.home / RELAY / PROCESS_ID).read_text())]
        send = {"bare": _bare, "carried": _carried}[way]
        return send(
            party_folder,
            relay,
            os.urandom(asked),
            answered,
            repeats,
            lambda: processor_seconds(pids),
        )


def _carried(
    party_folder: PartyFolder,
    relay: Relay,
    content: bytes,
    answered: int,
    repeats: int,
    worked: Callable[[], float],
) -> _Cost:
    """In hubbub's pieces."""
    walls, before = [], 0.0
    with Carrier(relay, party_folder.keys, party_folder.roster, lambda *_: None) as carrier:
        wait(lambda: all(carrier._line.present(name) for name in SILOS), 60.0)  # noqa: SLF001
        for number in range(repeats + _WARM):
            before = worked() if number == _WARM else before
            blob = number.to_bytes(8, "big") + content[8:]
            began = time.perf_counter()
            found = dict(carrier.phase("test", dict.fromkeys(SILOS, blob), 120.0))
            walls.append(time.perf_counter() - began)
            assert all(isinstance(one, bytes) and len(one) == answered for one in found.values())
        after = worked()
    return _Cost(wall=median(walls[_WARM:]), processor=(after - before) / repeats)


async def _connected(party_folder: PartyFolder, relay: Relay) -> Any:
    from nats.aio.client import Client

    client = Client()
    await client.connect(
        relay.urls[0],
        tls=client_context(relay.pin),
        tls_handshake_first=True,
        nkeys_seed_str=seed_of(party_folder.keys),
        no_echo=True,
    )
    return client


async def _publish(client: Any, subject: str, content: bytes) -> None:
    for start in range(0, len(content), PIECE_BYTES):
        await client.publish(subject, content[start : start + PIECE_BYTES])
    await client.flush()


async def _answer_bare(party_folder: PartyFolder, relay: Relay, asked: int, content: bytes) -> None:
    client, me, left = await _connected(party_folder, relay), party_folder.keys.identity, asked
    begun = asyncio.Event()

    async def hear(message: Any) -> None:
        nonlocal left
        begun.set()
        left -= len(message.data)
        if left <= 0:
            left = asked
            await _publish(client, answers_of(me), content)

    await client.subscribe(asked_of(me), cb=hear)
    while not begun.is_set():
        await client.publish(answers_of(me), _THERE)
        await asyncio.sleep(0.2)
    await asyncio.Event().wait()


def _bare(
    party_folder: PartyFolder,
    relay: Relay,
    content: bytes,
    answered: int,
    repeats: int,
    worked: Callable[[], float],
) -> _Cost:
    """By the client library alone."""

    async def sent() -> _Cost:
        client, whole = await _connected(party_folder, relay), asyncio.Event()
        left, walls, before, there = 0, [], 0.0, set()

        async def hear(message: Any) -> None:
            nonlocal left
            there.add(message.subject)
            left -= len(message.data) * (message.data != _THERE)
            if left <= 0:
                whole.set()

        parties = [one for one in party_folder.roster.parties if one.name in SILOS]
        for one in parties:
            await client.subscribe(answers_of(one), cb=hear)
        while len(there) < len(parties):
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        for number in range(repeats + _WARM):
            before = worked() if number == _WARM else before
            left = answered * len(parties)
            whole.clear()
            began = time.perf_counter()
            await asyncio.gather(*(_publish(client, asked_of(one), content) for one in parties))
            await asyncio.wait_for(whole.wait(), 120.0)
            walls.append(time.perf_counter() - began)
        after = worked()
        await client.close()
        return _Cost(wall=median(walls[_WARM:]), processor=(after - before) / repeats)

    return asyncio.run(sent())
