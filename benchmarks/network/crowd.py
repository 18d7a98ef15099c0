"""Many silos on one machine: how long until the first step, and how much memory they take.

Every silo is a process of its own over a real relay with TLS. Memory is the proportional set size
of each: what it shares with others is divided among them. Asked for: thirty silos in at most 6 GB
in all, at most 250 MB each, the first step within 60 s of nothing.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.network.stage import made_up, wait
from benchmarks.network.table import write
from hubbub import Records
from hubbub.desk.cli.main import main
from hubbub.site.network.demo import DemoConsortium, PartyProcess, read_libraries

RECORDS, FEATURES = 200, 20


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """What so many silos take."""

    silos: int
    first_step_seconds: float
    seconds_a_step: float
    most_mib_a_silo: float
    mib_in_all: float
    exit_code: int | None


def records(party: str) -> Records:
    """Made-up records of a silo."""
    return made_up(party, RECORDS, FEATURES)


def measured(silos: int, steps: int) -> list[Crowd]:
    """Of one run."""
    began = time.time()
    read_libraries(main)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        told = lambda _: None  # noqa: E731 (nobody listens)
        consortium = DemoConsortium.made(home, study(silos, steps), 0, told, main)
        server = consortium.serve()
        for name in consortium.members:
            consortium.join(name)
        wait(lambda: _steps(home) or server.returncode is not None, 300.0)
        each = [_mib(one) for one in consortium.joined.values()]
        server.wait(600.0)
        times = _steps(home)
        consortium.end()
    row = Crowd(
        silos=silos,
        first_step_seconds=times[0] - began,
        seconds_a_step=(times[-1] - times[0]) / max(1, len(times) - 1),
        most_mib_a_silo=max(each),
        mib_in_all=sum(each),
        exit_code=server.returncode,
    )
    write("network_crowd", [row], f"crowd --silos {silos} --steps {steps}", fresh=True)
    return [row]


def study(silos: int, steps: int) -> str:
    """A small study of so many silos."""
    names = [f"silo-{number:03}" for number in range(1, silos + 1)]
    return f"""
study.name = "crowd"
parties = {{names = {json.dumps(names)}, colluders = 2}}
data = {{source = "python:{__name__}:records", records = {silos * RECORDS}, capacity = 250}}
model = {{kind = "logistic", inputs = [{FEATURES}]}}
training = {{steps = {steps}, sample_rate = 0.2, optimizer = {{name = "adam", lr = 0.1}}}}
privacy = {{epsilon = 2.0, delta = 1e-5}}
"""


def _steps(home: Path) -> list[float]:
    """When each step was made."""
    path = home / "aggregator" / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [one["time"] for one in events if one["event"] == "step"]


def _mib(process: PartyProcess) -> float:
    """The proportional set size of a process."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
