"""A consortium on one machine, with everything that a real one has: processes, keys, TLS, FLARE.

Every party gets a folder of its own; the aggregator, the silos and the compute nodes are processes
that meet on the loopback only. What is done is what docs/network.md tells administrators to do.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from hubbub.errors import HubbubError, UserError
from hubbub.network.flare.outcome import run_folder
from hubbub.network.flare.provision import ADMIN, provision
from hubbub.network.key_files import roster_of, roster_toml
from hubbub.network.party_folder import PartyFolder
from hubbub.study import Study

_HUBBUB = "import sys; from hubbub.cli.main import main; sys.exit(main())"
_END_SECONDS = 30.0

Told = Callable[[str], None]


@dataclass(kw_only=True)
class Consortium:
    """Everybody's folder and startup kit, below one folder.

    Args:
        folder: new.
        study: what all have approved.
        kits: of FLARE, by party.
        joined: processes of the silos and nodes.
    """

    folder: Path
    study: Study
    kits: dict[str, Path] = field(repr=False)
    joined: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)

    @classmethod
    def made(cls, folder: Path, toml: str, nodes: int, told: Told) -> Consortium:
        """Keys, the roster, the approvals and the kits.

        Args:
            folder: new or empty.
            toml: a study, whose compute nodes and roster are filled in.
            nodes: compute nodes.
            told: told each thing that is done.
        """
        said = tomllib.loads(toml)
        names = said["parties"]["names"]
        roles = {"aggregator": "aggregator"} | dict.fromkeys(names, "silo")
        roles |= {f"node-{number}": "node" for number in range(1, nodes + 1)}
        told("each party: hubbub keygen NAME --role ROLE --home NAME")
        sites = {name: PartyFolder.made(folder / name, name, role) for name, role in roles.items()}
        told("somebody: hubbub roster */identity.toml --out roster.toml")
        roster = roster_of([site.keys.identity for site in sites.values()])
        (folder / "roster.toml").write_text(roster_toml(roster), encoding="utf-8")
        said["parties"] |= {"compute_nodes": nodes, "roster": roster.digest.hex()}
        study = Study.parse(tomli_w.dumps(said))
        (folder / "study.toml").write_text(study.as_toml(), encoding="utf-8")
        told("each party: hubbub approve study.toml --roster roster.toml --home NAME")
        for site in sites.values():
            site.approve(study, roster)
        told("FLARE's administrator: hubbub provision roster.toml --host HOST --out kits")
        kits = provision(folder / "kits", roster, host="localhost", port=_free_port())
        return cls(folder=folder, study=study, kits=kits)

    @property
    def members(self) -> list[str]:
        """Silos and nodes."""
        return [name for name in self.kits if name not in ("aggregator", ADMIN)]

    @property
    def run(self) -> Path:
        """The run's folder, at the aggregator."""
        return run_folder(self.folder / "aggregator", self.study.id.hex())

    def join(self, name: str) -> None:
        """Start a silo's or a node's process."""
        self.joined[name] = self._process(
            "join", "--home", str(self.folder / name), "--kit", str(self.kits[name])
        )

    def serve(self, *options: str) -> subprocess.Popen[bytes]:
        """Start the aggregator's process."""
        home, admin = str(self.folder / "aggregator"), str(self.kits[ADMIN])
        return self._process(
            "serve",
            str(self.folder / "study.toml"),
            "--home",
            home,
            *("--kit", str(self.kits["aggregator"]), "--admin", admin, "--json", *options),
            output=True,
        )

    def _process(self, *arguments: str, output: bool = False) -> subprocess.Popen[bytes]:
        """hubbub in a process of its own; what it prints goes to a file, or to us."""
        with (self.folder / "processes.log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 (hubbub itself)
                [sys.executable, "-c", _HUBBUB, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if output else log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def end(self) -> None:
        """Ask all processes to end, and wait for them."""
        for process in self.joined.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self.joined.values():
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def run_demo(folder: Path, toml: str, *, nodes: int, told: Told) -> dict[str, Any]:
    """The whole thing, from keys to a model.

    Returns:
        What `hubbub serve --json` prints.

    Raises:
        UserError: FLARE is not installed.
        HubbubError: the run did not end well; the folder's logs say why.
    """
    if importlib.util.find_spec("nvflare") is None:
        raise UserError("expected NVIDIA FLARE to be installed; pip install 'hubbub[learn,net]'")
    folder.mkdir(parents=True, exist_ok=True)
    consortium = Consortium.made(folder, toml, nodes, told)
    with ExitStack() as stack:
        stack.callback(consortium.end)
        told(f"{len(consortium.members)} parties: hubbub join --home NAME --kit KIT")
        for name in consortium.members:
            consortium.join(name)
        told("aggregator: hubbub serve study.toml --home aggregator --kit KIT --admin KIT")
        process = consortium.serve()
        stack.callback(_ended, process)
        output, _ = process.communicate()
        if process.returncode:
            raise HubbubError(
                f"expected the demo to end well, it ended with code {process.returncode}; see "
                f"{folder / 'processes.log'} and {folder / 'aggregator' / 'events.jsonl'}"
            )
    found: dict[str, Any] = json.loads(output)
    return found


def _ended(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)


def _free_port() -> int:
    """A port of the loopback that is free together with the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


__all__: Sequence[str] = ("Consortium", "run_demo")
