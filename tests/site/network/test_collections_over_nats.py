"""A collection over a real relay, from folders to a verified run: parties that visit once (P30)."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from hubbub.core.study.study import Study
from hubbub.core.verification.replay.checking import verify
from hubbub.site.collected import collection_run
from hubbub.site.network.aggregator_process import host
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import roster_of
from hubbub.site.network.join import Machine, join, relay_of
from hubbub.site.network.nats.server import named_relay
from hubbub.site.network.party_folder import RELAY, PartyFolder
from hubbub.site.network.waiting import Timeouts
from network.collected import asking
from network.consortium import HOSPITALS
from network.lines import free_port

pytest.importorskip("nats", reason="needs the extra net")
NODES = ("node-1", "node-2", "node-3")
_APART = get_context("fork")


def consortium(home: Path) -> Study:
    """Folders of everybody, in which all have approved the study."""
    relay, key = named_relay(home / "aggregator" / RELAY, f"tls://127.0.0.1:{free_port()}", None)
    first = PartyFolder.made(
        home / "aggregator", "aggregator", "aggregator", relay=relay, relay_key=key
    )
    roles = dict.fromkeys(HOSPITALS, "silo") | dict.fromkeys(NODES, "node")
    others = [PartyFolder.made(home / name, name, role) for name, role in roles.items()]
    roster = roster_of([one.keys.identity for one in (first, *others)])
    made = asking()
    made["parties"] |= {"roster": roster.digest.hex(), "node_hosts": list(HOSPITALS[:3])}
    study = Study.from_table(made)
    for one in (first, *others):
        one.approve(study, roster)
    return study


def _serve(home: Path, study: Study, until: float) -> None:
    collection_run._PAUSE = 0.3
    folder = PartyFolder.opened(home / "aggregator")
    log = EventLog(party="aggregator", folder=folder.home)
    times = Timeouts(deadline=20.0, ping=2.0)
    host(folder, study, log, timeouts=times, until=until)


def _visit(home: Path, name: str) -> None:
    folder = PartyFolder.opened(home / name)
    log = EventLog(party=name, folder=folder.home)
    join(folder, relay_of(folder, None), Machine(device="cpu"), log, once=60.0)


def started(target: Any, *given: Any) -> Any:
    process = _APART.Process(target=target, args=given, daemon=True)
    process.start()
    return process


def visited(home: Path, name: str) -> None:
    """A visit that ends by itself, without an error."""
    process = started(_visit, home, name)
    process.join(400)
    assert process.exitcode == 0


def killed(process: Any, seconds: float = 0.0) -> None:
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.join()


@pytest.mark.slow
def test_sites_that_visit_one_after_the_other_open_a_sum_though_all_are_killed(
    tmp_path: Path,
) -> None:
    """Nobody is there at the same time as anybody else but the aggregator, which dies twice."""
    study = consortium(tmp_path)
    until = time.time() + 3600
    aggregator = started(_serve, tmp_path, study, until)
    for name in NODES:
        visited(tmp_path, name)
    killed(aggregator)
    aggregator = started(_serve, tmp_path, study, until)
    for name in HOSPITALS:
        killed(started(_visit, tmp_path, name), 1.5)
        visited(tmp_path, name)
        assert (tmp_path / name / "collections").is_dir()
    killed(aggregator)
    aggregator = started(_serve, tmp_path, study, until)
    for _ in range(3):  # they look, they promise, they tell
        for name in NODES:
            if aggregator.is_alive():
                visit = started(_visit, tmp_path, name)
                visit.join(400)
                assert visit.exitcode == 0 or not aggregator.is_alive()  # it ended meanwhile
    aggregator.join(400)
    assert aggregator.exitcode == 0
    run = tmp_path / "aggregator" / "runs" / study.id.hex()[:16]
    assert [one for one in verify(run) if not one.holds] == []
