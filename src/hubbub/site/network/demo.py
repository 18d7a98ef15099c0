"""`hubbub` in processes of their own on one machine, forked from one that has read the libraries.

Six parties on two cores would otherwise read torch six times before the first of them could say
anything. The process that forks has no threads, no keys and no records. This file knows no party.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any

import tomli_w

from hubbub.core.disk import write_text
from hubbub.core.errors import HubbubError, UserError, with_extra
from hubbub.core.study.attested_roles import SOFTWARE
from hubbub.core.study.study import Study
from hubbub.core.verification.attestation.policy import REPORT_DATA_BYTES
from hubbub.core.verification.attestation.study_attestation import clock, machine_evidence
from hubbub.site.network.folder_files import roster_of, write_roster
from hubbub.site.network.nats.server import named_relay
from hubbub.site.network.party_folder import RELAY, PartyFolder

# From the words after "hubbub" to the exit code.
Command = Callable[[Sequence[str]], int]

_CONTEXT = get_context("forkserver")
_READ_FIRST = [
    "hubbub.site.network.silo_endpoint",
    "hubbub.site.network.aggregator_run",
    "hubbub.site.network.aggregator_process",
    "hubbub.learning.silo_tasks",
    "nats",
]


def read_libraries(command: Command) -> None:
    """Start the process that forks; it reads the libraries while others work."""
    _CONTEXT.set_forkserver_preload([command.__module__, *_READ_FIRST])
    forkserver.ensure_running()


class PartyProcess:
    """A command of hubbub's, running."""

    def __init__(
        self, command: Command, arguments: Sequence[str], *, output: Path, log: Path
    ) -> None:
        self.output = output
        given = (command, list(arguments), str(output), str(log))
        self._process = _CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        """How it ended: the negative number of a signal, if by one; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end; None if it runs on."""
        self._process.join(seconds)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it ends before its end is heard of
                os.kill(self.pid, number)

    def end(self, seconds: float) -> int | None:
        """Ask it to end; after so many seconds, kill it."""
        self.send_signal(signal.SIGTERM)
        if self.wait(seconds) is None:
            self.send_signal(signal.SIGKILL)
        return self.wait()


def _run(command: Command, arguments: Sequence[str], output: str, log: str) -> None:
    """In the new process: nothing is read, and what is printed goes to files."""
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(command(arguments))


# A consortium on one machine, with everything that a real one has: processes, keys, TLS, a relay.
#
# Every party gets a folder of its own; the aggregator, the silos and the compute nodes are
# processes that meet on the loopback only. What is done is what docs/network.md tells
# administrators to do.

_END_SECONDS = 10.0

Tell = Callable[[str], None]


@dataclass(kw_only=True)
class DemoConsortium:
    """Everybody's folder, below one folder."""

    folder: Path
    study: Study
    members: tuple[str, ...]
    command: Command = field(repr=False)
    joined: dict[str, PartyProcess] = field(default_factory=dict, repr=False)

    @classmethod
    def made(
        cls, folder: Path, toml: str, nodes: int, tell: Tell, command: Command
    ) -> DemoConsortium:
        """Keys, the roster and the approvals; the study's nodes and roster are filled in."""
        tables = tomllib.loads(toml)
        members = dict.fromkeys(tables["parties"]["names"], "silo")
        members |= {f"node-{number}": "node" for number in range(1, nodes + 1)}
        url = f"tls://localhost:{_free_port()}"
        tell(f"the aggregator: hubbub keygen aggregator --role aggregator --relay {url}")
        home = folder / "aggregator"
        relay, key = named_relay(home / RELAY, url, None)
        sites = [PartyFolder.made(home, "aggregator", "aggregator", relay=relay, relay_key=key)]
        tell("each other party: hubbub keygen NAME --role ROLE --home NAME")
        sites += [PartyFolder.made(folder / name, name, role) for name, role in members.items()]
        tell("somebody: hubbub roster */identity.toml --out roster.toml")
        roster = roster_of([party_folder.keys.identity for party_folder in sites])
        write_roster(folder / "roster.toml", roster)
        tables["parties"] |= {"compute_nodes": nodes, "roster": roster.digest.hex()}
        study = Study.parse(tomli_w.dumps(tables))
        write_text(folder / "study.toml", study.as_toml())
        tell("each party: hubbub approve study.toml --roster roster.toml --home NAME")
        for party_folder in sites:
            party_folder.approve(study, roster)
        return cls(folder=folder, study=study, members=tuple(members), command=command)

    @property
    def run(self) -> Path:
        """The run's folder, at the aggregator."""
        return PartyFolder.opened(self.folder / "aggregator").run(self.study.id)

    def join(self, name: str) -> None:
        """Start a silo's or a node's process."""
        self.joined[name] = self._process(name, "join", "--home", str(self.folder / name))

    def serve(self, *options: str) -> PartyProcess:
        """Start the aggregator's process, which prints a JSON object."""
        home = ("--home", str(self.folder / "aggregator"))
        toml = str(self.folder / "study.toml")
        return self._process("aggregator", "serve", toml, *home, "--json", *options)

    def _process(self, name: str, *arguments: str) -> PartyProcess:
        """hubbub in a process of its own, whose words go to files in the party's folder."""
        output, log = (self.folder / name / file for file in ("output.txt", "errors.txt"))
        return PartyProcess(self.command, arguments, output=output, log=log)

    def end(self) -> None:
        """Ask all processes to end, and wait for them."""
        for process in self.joined.values():
            process.send_signal(signal.SIGTERM)
        for process in self.joined.values():
            process.end(_END_SECONDS)


def attested(toml: str) -> str:
    """A study whose silos are believed, by evidence of the platform that shows nothing."""
    tables = tomllib.loads(toml)
    at = clock()
    claims = machine_evidence(SOFTWARE, bytes(REPORT_DATA_BYTES), at).verified(at)
    role = {"platform": SOFTWARE, "measurements": [{"code": claims.measurements["code"].hex()}]}
    tables["parties"]["trust"] = "tee"
    tables["attestation"] = dict.fromkeys(("aggregator", "node", "silo"), role)
    return tomli_w.dumps(tables)


def run_demo(
    folder: Path, toml: str, *, nodes: int, tell: Tell, command: Command
) -> dict[str, Any]:
    """The whole thing, from keys to a model.

    Raises:
        UserError: the engine is not installed.
        HubbubError: the run did not end well; the folder's logs say why.
    """
    if importlib.util.find_spec("nats") is None:
        raise UserError(f"expected the library nats-py to be installed; {with_extra('net')}")
    read_libraries(command)
    folder.mkdir(parents=True, exist_ok=True)
    consortium = DemoConsortium.made(folder, toml, nodes, tell, command)
    with ExitStack() as stack:
        stack.callback(consortium.end)
        tell("aggregator: hubbub serve study.toml --home aggregator")
        process = consortium.serve()
        stack.callback(process.end, _END_SECONDS)
        tell(f"{len(consortium.members)} parties: hubbub join --home NAME")
        for name in consortium.members:
            consortium.join(name)
        if process.wait():
            raise HubbubError(
                f"expected the demo to end well, it ended with code {process.returncode}; see "
                f"{folder}/*/errors.txt and {folder / 'aggregator' / 'events.jsonl'}"
            )
    results: dict[str, Any] = json.loads(process.output.read_text(encoding="utf-8"))
    return results


def _free_port() -> int:
    """A port of the loopback that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
