"""P29 over a real relay, in processes: a late silo comes with the next session, some are killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.protocol.primitives.wire import Tag
from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.core.verification.transcript.frame_records import files, read, read_header
from hubbub.site.network.aggregator_process import host
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import roster_of
from hubbub.site.network.join import Machine, join, relay_of
from hubbub.site.network.nats.server import named_relay
from hubbub.site.network.party_folder import RELAY, PartyFolder
from hubbub.site.network.waiting import Timeouts
from network.lines import free_port
from network.relay import tiny

pytest.importorskip("nats", reason="needs the extra net")
NAMES = ("ann", "bob", "cyn", "dan", "eve")
_APART = get_context("fork")
_STEPS = 40


def consortium(home: Path, nodes: int) -> tuple[Study, list[str]]:
    """Folders of everybody, in which all have approved the study; who is to join."""
    relay, key = named_relay(home / "aggregator" / RELAY, f"tls://127.0.0.1:{free_port()}", None)
    first = PartyFolder.made(
        home / "aggregator", "aggregator", "aggregator", relay=relay, relay_key=key
    )
    roles = dict.fromkeys(NAMES, "silo") | {f"node-{n + 1}": "node" for n in range(nodes)}
    others = [PartyFolder.made(home / name, name, role) for name, role in roles.items()]
    roster = roster_of([one.keys.identity for one in (first, *others)])
    made = tiny(
        nodes,
        NAMES,
        parties={"dropouts": 2, "colluders": 0, "roster": roster.digest.hex()},
        training={"steps": _STEPS, "sample_rate": 0.5},
    )
    study = Study.from_table(made)
    for one in (first, *others):
        one.approve(study, roster)
    return study, [*roles]


def _serve(home: Path, study: Study) -> None:
    folder = PartyFolder.opened(home / "aggregator")
    log = EventLog(party="aggregator", folder=folder.home)
    times = Timeouts(deadline=20.0, ping=2.0, grace=1.0, ask_again=1.0, waiting=120.0)
    host(folder, study, log, timeouts=times)


def _join(home: Path, name: str) -> None:
    folder = PartyFolder.opened(home / name)
    log = EventLog(party=name, folder=folder.home)
    join(folder, relay_of(folder, None), Machine(device="cpu"), log)


def started(target: Any, *given: Any) -> Any:
    process = _APART.Process(target=target, args=given, daemon=True)
    process.start()
    return process


def killed(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def step(home: Path) -> int:
    """The last step that the aggregator has told."""
    path = home / "aggregator" / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return max((one["step"] for one in events if one["event"] == "step"), default=0)


def awaited(reached: Callable[[], bool], aggregator: Any) -> None:
    """Until something is so, or the aggregator is done."""
    end = time.monotonic() + 300
    while not reached() and aggregator.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
    assert reached()


def rolls(run: Path) -> list[int]:
    """How many silos each session with a round has, in their order."""
    paths = sorted(files(run), key=lambda path: read_header(path).number)
    return [
        int.from_bytes(kept.payload or b"", "big").bit_count()
        for path in paths
        for kept in read(path)
        if kept.tag is Tag.ROLL
    ]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_p29_a_late_silo_comes_with_the_next_session_though_others_are_killed(
    tmp_path: Path, nodes: int
) -> None:
    study, names = consortium(tmp_path, nodes)
    aggregator = started(_serve, tmp_path, study)
    parties = {name: started(_join, tmp_path, name) for name in names if name != "bob"}
    awaited(lambda: step(tmp_path) >= 1, aggregator)
    parties["bob"] = started(_join, tmp_path, "bob")
    awaited(lambda: step(tmp_path) >= 10, aggregator)
    for name in ("cyn", *(["node-1"] if nodes else [])):
        killed(parties[name])
        parties[name] = started(_join, tmp_path, name)
    awaited(lambda: step(tmp_path) >= 15, aggregator)
    killed(aggregator)
    aggregator = started(_serve, tmp_path, study)
    aggregator.join(400)
    assert aggregator.exitcode == 0
    run = tmp_path / "aggregator" / "runs" / study.id.hex()[:16]
    assert [str(one) for one in verify(run) if not one.holds] == []
    made = rolls(run)
    assert made[0] == 4
    assert 5 in made[1:]
    for process in parties.values():
        killed(process)
