"""What an aggregator and a relay have to do for N thin silos, fitted and carried on to 1,000.

Real processes over a real relay, at a few N. Counted are bytes and messages that leave the relay,
and processor seconds of the aggregator's process and of the relay's, in a step; bytes and the
aggregator's seconds before the first. A step, and those seconds, are fitted as a + b N, the bytes
before it as b N + c N^2, since everybody learns everybody's keys.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.network.crowd import study
from benchmarks.network.slow_line import processor_seconds
from benchmarks.network.stage import free_port, wait
from benchmarks.network.table import write
from hubbub.desk.cli.main import main
from hubbub.site.network.aggregator_process import RelayFiles
from hubbub.site.network.demo import DemoConsortium
from hubbub.site.network.join import relay_of
from hubbub.site.network.nats.server import CONFIGURATION, PROCESS_ID, Server
from hubbub.site.network.party_folder import RELAY, PartyFolder

SILOS, MANY = (5, 10, 20, 40), 1000
WHAT = ("kilobytes", "messages", "aggregator_seconds", "relay_seconds")
BEFORE = ("kilobytes", "aggregator_seconds")  # the others grow while parties are waited for


@dataclass(frozen=True, kw_only=True)
class Thin:
    """What so many silos take; of the many, by the fit.

    Args:
        kind: measured or fitted.
        before: until the first step is made; the others are a step's.
    """

    kind: str
    silos: int
    kilobytes: float
    messages: float
    aggregator_seconds: float
    relay_seconds: float
    before_kilobytes: float
    before_aggregator_seconds: float


def measured(most: int, steps: int) -> list[Thin]:
    """At each number of silos up to the most, and the fit."""
    rows = []
    for silos in (one for one in SILOS if one <= most):
        rows.append(_row("measured", silos, *_counted(silos, steps)))
        print(rows[-1], flush=True)
    rows.append(fitted(rows))
    write("network_thin", rows, f"thin --silos {most} --steps {steps}", fresh=True)
    return rows


def _row(kind: str, silos: int, step: Sequence[float], before: Sequence[float]) -> Thin:
    named = dict(zip(WHAT, step, strict=True))
    named |= {f"before_{name}": value for name, value in zip(BEFORE, before, strict=True)}
    return Thin(kind=kind, silos=silos, **named)


def fitted(rows: Sequence[Thin]) -> Thin:
    """The many, by least squares of relative errors."""
    silos = np.array([one.silos for one in rows], dtype=float)

    def carried(name: str, powers: tuple[int, int]) -> float:
        found = np.array([getattr(one, name) for one in rows])
        terms = np.stack([silos**power for power in powers], axis=1)
        factors, *_ = np.linalg.lstsq(terms / found[:, None], np.ones(len(rows)), rcond=None)
        print(f"{name} = {factors[0]:.3g} N^{powers[0]} + {factors[1]:.3g} N^{powers[1]}")
        return float(sum(f * MANY**power for f, power in zip(factors, powers, strict=True)))

    step = [carried(name, (0, 1)) for name in WHAT]
    before = [carried("before_kilobytes", (1, 2)), carried("before_aggregator_seconds", (0, 1))]
    return _row("fitted", MANY, step, before)


def _counted(silos: int, steps: int) -> tuple[list[float], list[float]]:
    """What a step takes, and what comes before the first."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        consortium = DemoConsortium.made(Path(folder), study(silos, steps), 0, lambda _: None, main)
        stack.callback(consortium.end)
        party_folder = PartyFolder.opened(consortium.folder / "aggregator")
        relay, port = relay_of(party_folder, None), free_port()
        RelayFiles.written(party_folder.home / RELAY, party_folder.roster, None)
        with (party_folder.home / RELAY / CONFIGURATION).open("a", encoding="utf-8") as file:
            file.write(f'http: "127.0.0.1:{port}"\n')
        server = Server(party_folder.home / RELAY, relay.port, lambda _: None)
        server.start()
        stack.callback(server.stop)
        serving = consortium.serve("--relay", relay.urls[0])
        stack.callback(serving.end, 10.0)
        for name in consortium.members:
            consortium.join(name)
        looks = []
        for step in (1, steps - 1):
            wait(
                lambda step=step: (
                    _step(party_folder.home) >= step or serving.returncode is not None
                ),
                900.0,
            )
            process = int((party_folder.home / RELAY / PROCESS_ID).read_text())
            looks.append((_step(party_folder.home), _looked(port, serving.pid, process)))
        assert serving.wait(600.0) == 0, "it did not end well"
    (first, before), (last, after) = looks
    step = [(after[name] - before[name]) / (last - first) for name in WHAT]
    return step, [before[name] for name in BEFORE]


def _looked(port: int, aggregator: int, relay: int) -> Mapping[str, float]:
    """What the relay has sent, and what the processes have worked."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz") as answer:
        said = json.load(answer)
    return {
        "kilobytes": said["out_bytes"] / 1000,
        "messages": said["out_msgs"],
        "aggregator_seconds": processor_seconds([aggregator]),
        "relay_seconds": processor_seconds([relay]),
    }


def _step(home: Path) -> int:
    """The last step that the aggregator has told."""
    path = home / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return max((one["step"] for one in events if one["event"] == "step"), default=0)
