"""Flower itself on the loopback: a SuperLink, SuperNodes, and the folders of parties.

Every process of Flower's is a group of its own here, so that a SuperNode can be killed with the
processes that it has started.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hubbub.core.study.study import Study
from hubbub.site.network.folder_files import roster_of
from hubbub.site.network.party_folder import PartyFolder

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
HOSPITALS = ("cleveland", "hungary", "switzerland", "va-long-beach")
PATIENCE = 900.0  # seconds


@dataclass
class Flower:
    """A home with parties' folders, Flower's own folder, and the example's project.

    Args:
        home: of the user, whose `hospitals` has the parties' folders.
        names: of silos and nodes, in the roster's order.
        study: which all have approved.
    """

    home: Path
    names: tuple[str, ...]
    study: Study
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @classmethod
    def made(cls, home: Path, *, nodes: int = 0, **tables: dict[str, Any]) -> Flower:
        """Everything on disk; nothing runs yet."""
        homes, node_names = home / "hospitals", [f"node-{i}" for i in range(1, nodes + 1)]
        roles = {"aggregator": "aggregator"} | dict.fromkeys(HOSPITALS, "silo")
        roles |= dict.fromkeys(node_names, "node")
        folders = [PartyFolder.made(homes / name, name, role) for name, role in roles.items()]
        roster = roster_of([folder.keys.identity for folder in folders])
        asked: dict[str, Any] = {
            "study": {"name": "in Flower", "transcript": "full"},
            "parties": {"names": [*HOSPITALS], "compute_nodes": nodes, "colluders": 1},
            "data": {"source": "hubbub.datasets:heart", "target": "disease", "records": 735},
            "model": {"kind": "logistic", "inputs": [26]},
            "training": {"steps": 3, "sample_rate": 0.2},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
        }
        for key, values in tables.items():
            asked[key] |= values
        asked["parties"]["roster"] = roster.digest.hex()
        study = Study.from_table(asked)
        for folder in folders:
            folder.approve(study, roster)
        (homes / "study.toml").write_text(study.as_toml())
        shutil.copytree(EXAMPLE, home / "project")
        parties = cls(home, (*HOSPITALS, *node_names), study)
        parties.app.write_text(parties._named(parties.app.read_text()))
        return parties

    def _named(self, app: str) -> str:
        """An app with these parties instead of the example's."""
        return app.replace(repr(HOSPITALS).replace("'", '"'), repr(self.names))

    @property
    def app(self) -> Path:
        """Of the project."""
        return self.home / "project" / "hospitals" / "app.py"

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.folder("aggregator").run(self.study.id)

    def folder(self, name: str) -> PartyFolder:
        """A party's folder."""
        return PartyFolder.opened(self.home / "hospitals" / name)

    def start(self, name: str, *command: str) -> None:
        """Start one of Flower's processes."""
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(Path(sys.executable).parent / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.home,
                start_new_session=True,
            )

    @property
    def _environment(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "FLWR_HOME": str(self.home / "flwr")}
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        binaries = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, **own, **quiet, "PATH": binaries, "PYTHONPATH": ":".join(sys.path)}

    def link(self, *options: str) -> None:
        """Start a SuperLink, and tell `flwr run` of it."""
        self.port = free_port()
        self.start(
            "superlink", "flower-superlink", "--insecure", "--port", f"{self.port}", *options
        )
        (self.home / "flwr").mkdir(exist_ok=True)
        (self.home / "flwr" / "config.toml").write_text(
            f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        patiently(lambda: is_open(self.port), "a SuperLink")

    def node(self, place: int) -> None:
        """Start the SuperNode of a party."""
        self.start(
            self.names[place],
            *("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}"),
            *("--port", f"{free_port()}", "--node-config", f"partition-id={place}"),
        )

    def kill(self, name: str) -> None:
        """Kill one of Flower's processes, and what it has started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def flwr_run(self, *options: str) -> None:
        """Send the project to the SuperLink, and go on while it runs."""
        self.start("run", "flwr", "run", "project", "here", "--stream", *options)

    def lies(self, lie: str) -> str:
        """What a run of `lying_app` says, of a study or a contract."""
        (self.home / "hospitals" / "lie").write_text(lie)
        self.app.write_text(self._named((Path(__file__).parent / "lying_app.py").read_text()))
        before = len(self.said("run"))
        self.flwr_run()
        return self.ended()[before:]

    def said(self, name: str) -> str:
        """What one of Flower's processes, or a party's, has said."""
        path = self.home / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def steps(self) -> int:
        """The steps that the run has made."""
        path = self.run / "metrics.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def ended(self) -> str:
        """What `flwr run` has said, once it has ended; of the last lines some may be missing."""
        patiently(lambda: self.processes["run"].poll() is not None, "the end of the run")
        return self.said("run")


def patiently(happened: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, f"expected {what}, got none"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def flower(home: Path, **changes: Any) -> Iterator[Flower]:
    """A home with everything on disk; in the end nothing of it runs."""
    made = Flower.made(home, **changes)
    try:
        yield made
    finally:
        for name in list(made.processes):
            if made.processes[name].poll() is None:
                made.kill(name)
        for name in made.names:  # who was started at a folder ends with nobody
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                _end_if(process, str(made.home / "hospitals" / name))


def _end_if(process: Path, home: str) -> None:
    """End a party's process that has a folder of this test."""
    try:
        words = process.read_bytes().split(b"\0")
    except OSError:
        return
    if b"join" in words and home.encode() in words:
        os.kill(int(process.parent.name), signal.SIGKILL)
