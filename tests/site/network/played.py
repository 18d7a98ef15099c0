"""Runbooks as they are played: commands from the page, typed into a shell, with real processes.

A command is played as the page has it. Only its placeholders are filled in: words in capitals, and
the dots in a list of files. A script takes the commands of a section one after the other, and at
its end none may be left, so a command that the page adds, drops or alters is seen.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from hubbub.core.study.study import Study
from network.consortium import table
from network.lines import free_port, wait

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "howto" / "runbooks.md"
_COMMAND = re.compile(r"^(?: {4}| {7})(?=[a-z])(.+)$", re.MULTILINE)
_SECONDS = 300.0  # until what was begun must have happened, on a machine with much else to do


class Runbook:
    """The commands of a section of the page, the first one first."""

    def __init__(self, title: str) -> None:
        text = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
        self._left = _COMMAND.findall(text)

    def take(self, begins: str) -> str:
        """The next command."""
        command = str(self._left.pop(0))
        assert command.startswith(begins), command
        return command

    @property
    def is_over(self) -> bool:
        return not self._left


class Played:
    """A consortium on one machine: a folder for all homes, and a shell. Its silos have no nodes."""

    def __init__(self, folder: Path, silos: tuple[str, ...], **changes: Mapping[str, Any]) -> None:
        self.folder, self.silos = folder, list(silos)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.programs: dict[str, Path] = {}  # of parties that have upgraded
        self.program("old", "")
        self.table = table(silos, 0, **changes)
        relay = f"--role aggregator --relay tls://127.0.0.1:{free_port()}"
        self.type(f"hubbub keygen aggregator {relay} --home aggregator")
        for name in silos:
            self.type(f"hubbub keygen {name} --home {name}")
        self.type("hubbub roster aggregator.toml … --out roster.toml")
        self.write_study()
        for name in self.parties:
            self.type("hubbub approve STUDY --roster roster.toml --home HOME", name)

    @property
    def parties(self) -> list[str]:
        return ["aggregator", *self.silos]

    @property
    def study(self) -> Study:
        return Study.load(self.folder / "study.toml")

    @property
    def run(self) -> Path:
        """The aggregator's folder of the study's run."""
        return self.folder / "aggregator" / "runs" / self.study.id.hex()[:16]

    def program(self, name: str, first: str) -> Path:
        """A folder with hubbub in it, which says something to Python first."""
        folder = self.folder / "programs" / name
        folder.mkdir(parents=True)
        words = f"{first}; from hubbub.desk.cli.main import program; program()"
        program = folder / "hubbub"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{words.lstrip("; ")}" "$@"\n')
        program.chmod(0o700)
        return folder

    def write_study(self) -> None:
        """The study with the digest of the roster, as somebody writes it."""
        self.table["parties"]["names"] = list(self.silos)
        told = json.loads(self.type("hubbub roster roster.toml --json"))
        self.table["parties"]["roster"] = told["digest"]
        (self.folder / "study.toml").write_text(tomli_w.dumps(self.table))

    def type(self, command: str, party: str = "", *, rc: int | None = 0, **filled: str) -> str:
        """Play a command at a terminal, whose person says yes; what it prints."""
        keyboard, stdin = pty.openpty()
        try:
            os.write(keyboard, b"y\n")
            done = subprocess.run(
                ["/bin/bash", "-c", self._filled(command, party, filled)],
                **self._place(party),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        finally:
            os.close(keyboard)
            os.close(stdin)
        assert rc in (None, done.returncode), f"{command} at {party}: {done.stdout}"
        return str(done.stdout)

    def start(self, command: str, party: str) -> None:
        """Play a command that goes on, as the party's process."""
        with (self.folder / f"{party}.txt").open("ab") as output:
            self.processes[party] = subprocess.Popen(
                ["/bin/bash", "-c", f"exec {self._filled(command, party, {})}"],
                **self._place(party),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def serve(self, command: str) -> None:
        """Play `hubbub serve`, until its relay is there."""
        before = len(self.events("aggregator", "connected"))
        self.start(command, "aggregator")
        wait(lambda: len(self.events("aggregator", "connected")) > before, _SECONDS)

    def stop(self, party: str) -> None:
        """End a party's process, as its unit does."""
        self.processes[party].send_signal(signal.SIGTERM)
        self.processes.pop(party).wait(60)

    def served(self, rc: int = 0) -> None:
        """Wait for the end of `hubbub serve`."""
        ended = self.processes.pop("aggregator").wait(_SECONDS)
        assert ended == rc, (self.folder / "aggregator.txt").read_text()

    def reach(self, step: int) -> None:
        """Wait for a step of the study."""
        wait(lambda: self.status("aggregator").get("step", 0) >= step, _SECONDS)

    def status(self, party: str) -> dict[str, Any]:
        path = self.folder / party / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def events(self, party: str, kind: str) -> list[dict[str, Any]]:
        path = self.folder / party / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def spent(self, party: str) -> dict[str, Any]:
        """What `hubbub ledger show` says."""
        said = self.type("hubbub ledger show HOME/ledger.sqlite --json", party)
        shown: dict[str, Any] = json.loads(said)
        return shown

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def _filled(self, command: str, party: str, filled: Mapping[str, str]) -> str:
        """A command with its placeholders filled in."""
        files = [f"{name}/identity.toml" for name in self.parties]
        if "…" in command:
            before, after = command.split("…")
            first = re.split(r"(?= \w+\.toml)", before)[0]
            command = f"{first} {' '.join(files)}{after}"
        places = {"HOME": party, "STUDY": "study.toml"} | filled
        return re.sub(r"\b[A-Z]{3,}\b", lambda word: places[word[0]], command)

    def _place(self, party: str) -> dict[str, Any]:
        program = self.programs.get(party, self.folder / "programs" / "old")
        path = f"{program}:{os.environ['PATH']}"
        given = {"PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        return {"cwd": self.folder, "env": {**os.environ, **given}}
