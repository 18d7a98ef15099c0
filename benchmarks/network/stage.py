"""A consortium whose processes are known by name: who runs, what the aggregator said, which step.

It uses `hubbub.site.network.demo.DemoConsortium`, so everything is as administrators do it. Only
processes that were started here are ever touched.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from benchmarks.network.accounts import Books
from hubbub import Records
from hubbub.core.protocol.primitives.identity import Roster
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.site.network.demo import DemoConsortium, PartyProcess
from hubbub.site.network.folder_files import read_roster
from hubbub.site.network.nats.server import PROCESS_ID
from hubbub.site.network.party_folder import RELAY, PartyFolder

SILOS = ("cleveland", "hungary", "switzerland", "va-long-beach")


def made_up(party: str, records: int, features: int) -> Records:
    """Made-up records of a silo, the same each time."""
    draw = np.random.default_rng(list(party.encode()))
    return Records(
        inputs=draw.random((records, features), dtype=np.float32),
        targets=draw.integers(0, 2, records).astype(np.float32),
    )


def study_of(name: str, steps: int, **changes: Mapping[str, Any]) -> dict[str, Any]:
    """The four hospitals' study, with so many steps."""
    made: dict[str, Any] = {
        "study": {"name": name, "transcript": "full"},
        "parties": {"names": list(SILOS), "colluders": 1},
        "data": {"source": "hubbub.datasets:heart", "records": 735},
        "model": {"kind": "logistic", "inputs": [26]},
        "training": {"steps": steps, "sample_rate": 0.2},
        "privacy": {"epsilon": 0.5, "delta": 1e-5},
    }
    for key, values in changes.items():
        made[key] |= values
    return made


@dataclass(kw_only=True)
class Run:
    """One study that is served, and what its aggregator's journal has said since.

    Args:
        stage: whose parties take part.
        study: approved by them.
        options: of `hubbub serve`.
    """

    stage: Stage
    study: Study
    options: tuple[str, ...]
    server: PartyProcess = field(init=False)
    served: int = 0
    said: str = ""
    _place: int = 0

    def __post_init__(self) -> None:
        self._place = _size(self._event_log)
        self.serve()

    def serve(self) -> None:
        """Start the aggregator's process, the first time or again."""
        self.served += 1
        self.server = self.stage.serve(self.study, self.options)

    @property
    def folder(self) -> Path:
        """Of the run, at the aggregator."""
        return PartyFolder.opened(self.stage.home("aggregator")).run(self.study.id)

    @property
    def books(self) -> Books:
        """Where everybody's books are."""
        return Books(
            study=self.study,
            roster=self.stage.roster,
            homes=self.stage.consortium.folder,
            folder=self.folder,
            step=self.step,
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the aggregator's journal has said since the run began."""
        with suppress(FileNotFoundError), self._event_log.open("rb") as file:
            file.seek(self._place)
            whole = file.read().rpartition(b"\n")[0]
            return [json.loads(line) for line in whole.splitlines()]
        return []

    @property
    def steps(self) -> list[tuple[float, int]]:
        """When each step was made."""
        return [(one["time"], one["step"]) for one in self.events if one["event"] == "step"]

    @property
    def step(self) -> int:
        """The last step that was made; 0 before the first."""
        return max((step for _, step in self.steps), default=0)

    def reach(self, step: int, seconds: float) -> bool:
        """Wait for a step, or the end; whether the step was made."""
        wait(lambda: self.step >= step or self.server.returncode is not None, seconds)
        return self.step >= step

    def end(self, seconds: float) -> int | None:
        """The exit code of the aggregator's process; None if it had to be ended."""
        if self.server.wait(seconds) is None:
            self.server.end(30.0)
            return None
        self.said = self.server.output.read_text(errors="replace").strip()
        return self.server.returncode

    @property
    def _event_log(self) -> Path:
        return self.stage.home("aggregator") / "events.jsonl"


@dataclass(kw_only=True)
class Stage:
    """A consortium on the loopback; its silos and nodes stay while studies come and go."""

    consortium: DemoConsortium
    roster: Roster
    runs: list[Run] = field(default_factory=list)

    @classmethod
    @contextmanager
    def set(cls, folder: Path, nodes: int) -> Iterator[Stage]:
        """Keys and everybody's `hubbub join`; all ended at the end."""
        first = tomli_w.dumps(study_of("the first", 10))
        consortium = DemoConsortium.made(folder, first, nodes, lambda _: None, main)
        stage = cls(consortium=consortium, roster=read_roster(folder / "roster.toml"))
        try:
            for name in consortium.members:
                consortium.join(name)
            yield stage
        finally:
            stage.clear()

    def home(self, name: str) -> Path:
        """A party's folder."""
        return self.consortium.folder / name

    def begin(self, table: dict[str, Any], *options: str) -> Run:
        """Have a study approved everywhere, and served."""
        nodes = len(self.roster.nodes)
        table["parties"] |= {"compute_nodes": nodes, "roster": self.roster.digest.hex()}
        study = Study.parse(tomli_w.dumps(table))
        for name in ("aggregator", *self.consortium.members):
            PartyFolder.opened(self.home(name)).approve(study, self.roster)
        self.runs.append(Run(stage=self, study=study, options=options))
        return self.runs[-1]

    def serve(self, study: Study, options: tuple[str, ...]) -> PartyProcess:
        """Start `hubbub serve`."""
        (self.consortium.folder / "study.toml").write_text(study.as_toml(), encoding="utf-8")
        return self.consortium.serve(*options)

    def fell(self, name: str) -> None:
        """End a silo's or a node's process as a crash does, and start it again."""
        joined = self.consortium.joined[name]
        joined.send_signal(signal.SIGKILL)
        joined.wait()
        self.consortium.join(name)

    def relay(self) -> int:
        """The relay's process, which the aggregator's keeps up."""
        return int((self.home("aggregator") / RELAY / PROCESS_ID).read_text())

    def processes(self) -> dict[str, int]:
        """Everybody's process, and the relay's."""
        found = {f"{name}'s join": one.pid for name, one in self.consortium.joined.items()}
        return found | {"the relay": self.relay()}

    def clear(self) -> None:
        """End everything that belongs to this stage."""
        for run in self.runs:
            if run.server.returncode is None:
                run.end(0.0)
        self.consortium.end()


def strike(pid: int | None, sign: int = signal.SIGKILL) -> bool:
    """Send a signal; whether there was somebody to get it."""
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, sign)
            return True
    return False


def free_port() -> int:
    """A port of the loopback that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(found: Callable[[], object], seconds: float) -> bool:
    """Until something holds, at most so long; whether it does."""
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
