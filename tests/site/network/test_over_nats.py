"""Whole studies over a real relay: the same bits, the same laws, whatever happens to the server."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubbub import learning
from hubbub.core.study.study import Study
from hubbub.site.network.aggregator_process import host
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import roster_of
from hubbub.site.network.join import Machine, join, relay_of
from hubbub.site.network.nats.carrier import Carrier
from hubbub.site.network.nats.server import PROCESS_ID, RelayFiles, Server, named_relay
from hubbub.site.network.party_folder import RELAY, PartyFolder
from hubbub.site.network.waiting import Timeouts
from network.lines import free_port, over_nats, wait
from network.relay import HASTY, tiny
from network.test_same_bits import apart, trained_together

pytest.importorskip("nats", reason="needs the extra net")


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [0, 2], ids=["pairwise", "nodes"])
def test_models_over_nats_have_the_same_bits_as_in_one_process(
    tmp_path: Path, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = apart(tmp_path, nodes, {})
    _, here = trained_together(parties, monkeypatch)
    with over_nats(tmp_path, parties) as (carrier, _):
        there = parties.serve(carrier.phase, timeouts=HASTY)
    assert here.parameters.tobytes() == learning.parameters_vector(there.model).tobytes()
    assert parties.broken == []


@pytest.mark.slow
def test_a_server_that_dies_again_and_again_costs_no_attempt(tmp_path: Path) -> None:
    """Every attempt of every silo is charged once, and none is lost."""
    parties = apart(tmp_path, 2, {"training": {"steps": 5}})
    over = threading.Event()
    with over_nats(tmp_path, parties) as (carrier, _):

        def kill() -> None:
            for _ in range(4):
                with suppress(ProcessLookupError):
                    os.kill(int((tmp_path / PROCESS_ID).read_text()), signal.SIGKILL)
                wait(lambda: carrier._line.why or over.is_set())
                wait(lambda: not carrier._line.why or over.is_set())
                if over.wait(0.1):
                    return

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        parties.serve(carrier.phase, timeouts=HASTY)
        over.set()
        killer.join()
    assert parties.broken == []
    assert [len(parties.rows(name)) for name in ("ann", "bob", "cyn")] == [5, 5, 5]


class Everybody:
    """A consortium whose parties are threads, with folders and a relay of its own."""

    def __init__(self, home: Path, url: str | None = None, **changes: Any) -> None:
        self.home, self.said, self.over = home, [], threading.Event()
        url = url or f"tls://127.0.0.1:{free_port()}"
        relay, key = named_relay(home / "aggregator" / RELAY, url, None)
        made = tiny(1, **changes)
        roles = dict.fromkeys(made["parties"]["names"], "silo") | {"node-1": "node"}
        first = PartyFolder.made(
            home / "aggregator", "aggregator", "aggregator", relay=relay, relay_key=key
        )
        others = [PartyFolder.made(home / name, name, role) for name, role in roles.items()]
        self.sites = {party_folder.name: party_folder for party_folder in (first, *others)}
        self.roster = roster_of(
            [party_folder.keys.identity for party_folder in self.sites.values()]
        )
        made["parties"]["roster"] = self.roster.digest.hex()
        self.study = Study.from_table(made)
        self.joined: list[threading.Thread] = []

    def approve(self, *names: str) -> None:
        for name in names or self.sites:
            self.sites[name].approve(self.study, self.roster)

    def join(self, name: str, **relayed: Any) -> None:
        party_folder = PartyFolder.opened(self.home / name)
        event_log = EventLog(party=name, folder=party_folder.home, say=self.said.append)
        relay = replace(relay_of(party_folder, None, self.roster), **relayed)
        place = Machine(device="cpu")
        until = {"until": self.over.is_set}
        thread = threading.Thread(
            target=join, args=(party_folder, relay, place, event_log), kwargs=until, daemon=True
        )
        self.joined.append(thread)
        thread.start()

    def serve(self, url: str | None = None, **waits: float) -> Path:
        party_folder = PartyFolder.opened(self.home / "aggregator")
        event_log = EventLog(
            party=party_folder.name, folder=party_folder.home, say=self.said.append
        )
        timeouts = Timeouts(**{"deadline": 20.0, "ping": 1.0, "waiting": 600.0, **waits})
        return host(party_folder, self.study, event_log, url=url, timeouts=timeouts)

    def status(self, name: str) -> dict[str, Any]:
        path = self.home / name / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def end(self) -> None:
        self.over.set()
        for thread in self.joined:
            thread.join(400)


@pytest.mark.slow
def test_a_consortium_from_its_folders_to_a_model(tmp_path: Path) -> None:
    everybody = Everybody(tmp_path)
    everybody.approve()
    for name in list(everybody.sites)[1:]:
        everybody.join(name)
    out = everybody.serve()
    assert (out / "evidence.json").is_file()
    assert everybody.status("aggregator")["state"] == "done"
    assert everybody.status("aggregator")["percent"] == 100
    wait(lambda: everybody.status("node-1").get("state") == "done")
    assert everybody.status("ann")["state"] == "done"
    assert (tmp_path / "ann" / "models" / everybody.study.id.hex()[:16]).is_dir()
    everybody.end()


@pytest.mark.slow
def test_a_silo_that_has_not_approved_is_waited_for(tmp_path: Path) -> None:
    """It has no roster yet, and says so; the run goes on as soon as it has approved."""
    everybody = Everybody(tmp_path)
    everybody.approve("aggregator", "ann", "bob", "node-1")
    for name in list(everybody.sites)[1:]:
        everybody.join(name)

    def approve() -> None:
        wait(lambda: any("waiting for cyn" in one for one in list(everybody.said)))
        everybody.approve("cyn")

    thread = threading.Thread(target=approve, daemon=True)
    thread.start()
    everybody.serve()
    thread.join()
    everybody.end()
    waited = [one for one in everybody.said if "waiting for cyn" in one]
    assert "has not approved this study" in waited[0]
    assert not any("expected frames of" in one for one in everybody.said)


@pytest.mark.slow
def test_a_wrong_certificate_stands_in_the_status(tmp_path: Path) -> None:
    everybody = Everybody(tmp_path)
    everybody.approve()
    party_folder = everybody.sites["aggregator"]
    relay = relay_of(party_folder, None)
    made = RelayFiles.written(party_folder.home / RELAY, everybody.roster, None)
    server = Server(made.configuration.parent, relay.port, lambda _: None)
    server.start()
    everybody.join("ann", pin=bytes(32))
    wait(lambda: "expected the relay's key" in everybody.status("ann").get("last_error", ""))
    assert everybody.status("ann")["last_error"].startswith("not connected: ")
    assert everybody.status("ann")["state"] == "connecting"
    everybody.end()
    server.stop()


@pytest.mark.slow
def test_an_aggregator_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says goodbye: silos wait for it again, and their status says so."""
    everybody = Everybody(tmp_path, training={"steps": 400})
    everybody.approve()
    for name in list(everybody.sites)[1:]:
        everybody.join(name)

    real = Carrier.phase

    def phase(self: Carrier, name: str, *rest: Any) -> Any:
        if name == "total" and everybody.status("ann").get("state") == "training":
            raise KeyboardInterrupt
        return real(self, name, *rest)

    monkeypatch.setattr(Carrier, "phase", phase)
    with pytest.raises(KeyboardInterrupt):
        everybody.serve()
    wait(lambda: everybody.status("ann").get("state") in ("waiting", "lost"))
    assert any("the aggregator has ended" in one for one in everybody.said)
    everybody.end()
