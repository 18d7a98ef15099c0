"""A consortium in one process: every party with a folder of its own, and an engine to play with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hubbub.core.planning import exposure
from hubbub.core.planning.plan import Plan
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.study.study import Study
from hubbub.learning.runs.result import Result
from hubbub.site.network.aggregator_run import serve
from hubbub.site.network.coordinator import Coordinator
from hubbub.site.network.endpoint import Endpoint, NodeEndpoint
from hubbub.site.network.envelope import Phase
from hubbub.site.network.event_log import EventLog
from hubbub.site.network.folder_files import roster_of
from hubbub.site.network.party_folder import PartyFolder
from hubbub.site.network.requests import Requests
from hubbub.site.network.silo_endpoint import SiloEndpoint
from hubbub.site.network.waiting import Check, Clock, Timeouts
from network.engine import in_process

HOSPITALS = ("cleveland", "hungary", "switzerland", "va-long-beach")
# What is in the folders of a consortium before it starts, by its study and its folder's name.
_FOLDERS: dict[tuple[str, str], dict[Path, tuple[bytes, int]]] = {}
_PLANS: dict[Any, Plan] = {}
_GATHERED: list[Consortium] = []  # who has not been sent home


class Brisk(Clock):
    """Time as it passes, but that whoever waits long has waited soon."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        return super().now() + self._ahead

    def sleep(self, seconds: float, check: Check = lambda: None) -> None:
        short = min(seconds, 0.05)
        self._ahead += seconds - short
        super().sleep(short, check)


QUICK = Timeouts(
    deadline=300.0, opening=300.0, waiting=30.0, ask_again=0.0, ping=300.0, clock=Brisk()
)


def planned(study: Study, dimension: int | None = None) -> Plan:
    """The plan, made once for all studies that differ in their roster only."""
    alike = replace(study, parties=replace(study.parties, roster=""), toml="")
    key = (alike.id, dimension, exposure._curve)
    if key not in _PLANS:
        _PLANS[key] = plan(study, dimension=dimension)
    return replace(_PLANS[key], study=study)


def table(names: tuple[str, ...], nodes: int = 0, **changes: Mapping[str, Any]) -> dict[str, Any]:
    """A small study on the hospitals' records."""
    made: dict[str, Any] = {
        "study": {"name": "a consortium", "transcript": "full"},
        "parties": {"names": list(names), "compute_nodes": nodes, "colluders": 1},
        "data": {"source": "hubbub.datasets:heart", "target": "disease", "records": 735},
        "model": {"kind": "logistic", "inputs": [26]},
        "training": {"steps": 3, "sample_rate": 0.2},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }
    for key, values in changes.items():
        made[key] |= values
    return made


@contextmanager
def sent_home() -> Iterator[None]:
    """Who is gathered meanwhile closes ledgers and the like in the end."""
    before = len(_GATHERED)
    try:
        yield
    finally:
        while len(_GATHERED) > before:
            _GATHERED.pop().close()


@dataclass
class Consortium:
    """Everybody's folders and endpoints.

    Args:
        home: below which the folders are.
        draws: from a party's index to its randomness, for tests that repeat themselves.
    """

    home: Path
    study: Study
    sites: dict[str, PartyFolder]
    draws: Callable[[int], SecureSource] | None = None
    seats: dict[str, Endpoint] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @classmethod
    def gather(
        cls, home: Path, made: dict[str, Any], draws: Callable[[int], SecureSource] | None = None
    ) -> Consortium:
        """Keys, the roster, the approvals, and an endpoint for everybody.

        The same consortium in another folder of the same name has the same keys.
        """
        names, nodes = made["parties"]["names"], made["parties"]["compute_nodes"]
        nodes_too = [*names, *(f"node-{number}" for number in range(1, nodes + 1))]
        kept = _FOLDERS.setdefault((json.dumps(made, default=repr), home.name), {})
        for path, (content, mode) in kept.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            (home / path).write_bytes(content)
            (home / path).chmod(mode)
        if kept:
            sites = {name: PartyFolder.opened(home / name) for name in ["aggregator", *nodes_too]}
            made["parties"]["roster"] = sites["aggregator"].roster.digest.hex()
            study = Study.from_table(made)
        else:
            sites, study = cls._approved(home, made, names, nodes_too)
            files = [path for path in home.rglob("*") if path.is_file()]
            kept |= {
                path.relative_to(home): (path.read_bytes(), path.stat().st_mode) for path in files
            }
        found = cls(home, study, sites, draws)
        _GATHERED.append(found)
        for name in nodes_too:
            found.start(name)
        return found

    @staticmethod
    def _approved(
        home: Path, made: dict[str, Any], silos: Sequence[str], parties: Sequence[str]
    ) -> tuple[dict[str, PartyFolder], Study]:
        """Folders with fresh keys, in which everybody has approved the study."""
        roles = {"aggregator": "aggregator"} | dict.fromkeys(parties, "node")
        roles |= dict.fromkeys(silos, "silo")
        sites = {name: PartyFolder.made(home / name, name, role) for name, role in roles.items()}
        roster = roster_of([party_folder.keys.identity for party_folder in sites.values()])
        made["parties"]["roster"] = roster.digest.hex()
        study = Study.from_table(made)
        for party_folder in sites.values():
            party_folder.approve(study, roster)
        return sites, study

    @property
    def aggregator(self) -> PartyFolder:
        return self.sites["aggregator"]

    def start(self, name: str) -> None:
        """Start a party's process, as it were; what it knew before is gone."""
        self.stop(name)
        party_folder, event_log = (
            PartyFolder.opened(self.home / name),
            EventLog(party=name, say=self.said.append),
        )
        draw = None if self.draws is None else lambda _: self.draws(party_folder.index)
        if party_folder.role == "silo":
            self.seats[name] = SiloEndpoint(
                party_folder,
                event_log,
                data=party_folder.home,
                ledger=party_folder.home / "ledger.sqlite",
                device="cpu",
                pace=0.0,
                source_of=draw,
            )
        else:
            self.seats[name] = NodeEndpoint(party_folder, event_log, source_of=draw)

    def stop(self, name: str) -> None:
        """End a party's process."""
        endpoint = self.seats.pop(name, None)
        if endpoint is not None:
            endpoint.close()

    def close(self) -> None:
        """End all parties' processes."""
        for name in list(self.seats):
            self.stop(name)

    @property
    def phase(self) -> Phase:
        """All endpoints, as they are when they are asked."""

        return in_process(
            lambda name: endpoint.answer if (endpoint := self.seats.get(name)) else None
        )

    def serve(
        self, phase: Phase | None = None, *, timeouts: Timeouts = QUICK, **changes: Any
    ) -> Result:
        """Run the study."""
        event_log = EventLog(party="aggregator", say=self.said.append)
        party_folder, phase = self.aggregator, phase or self.phase
        requests = Requests(party_folder.roster, self.study.id, phase, event_log, timeouts)
        return serve(
            Coordinator(party_folder, self.study, requests),
            changes.pop("out", self.home / "run"),
            **changes,
        )
