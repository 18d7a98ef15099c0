"""A whole study over lines of 10 Mbit/s, 200 ms there and back, on which one packet in 100 is lost.

The four hospitals' demo, as processes: everybody but the aggregator in a network namespace of its
own, over real TCP (`tun`). Now and then the line of one of them goes dark for a while; how long
after it is lit data has passed and was acknowledged both ways is its time to be back. Needs root.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.network.accounts import account
from benchmarks.network.stage import Run, Stage, wait
from benchmarks.network.table import write
from benchmarks.network.tun import HUB, Lines, Quality, enter, retransmitted
from hubbub.core.study.study import Study
from hubbub.desk.cli.main import main
from hubbub.learning.runs.preparing import prepare
from hubbub.site.network.demo import DemoConsortium
from hubbub.site.network.folder_files import read_roster

_SHORTEST, _LONGEST = 5.0, 50.0  # seconds of darkness, below the deadline of a phase
_SECONDS = 900.0


_HEART = (resources.files("hubbub.learning.datasets") / "heart.toml").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class SlowRun:
    """What became of the run."""

    masks: str
    parameters: int
    loss: float
    round_trip_seconds: float
    megabits: float
    exit_code: int | None
    steps: int
    attempts: int
    rows: str
    open_seconds: float
    median_step_seconds: float
    most_step_seconds: float
    kilobytes_a_step: float
    packets_lost: int
    segments: int
    sent_again: int
    dark_seconds: str
    back_seconds: str
    processor_seconds: float
    wrong: str


@dataclass(frozen=True)
class Inside:
    """hubbub's command in the namespace of whose home it is.

    Args:
        spaces: by party.
        relays: URLs of the relay, by party.
    """

    spaces: dict[str, str]
    relays: dict[str, str]

    def __call__(self, arguments: Sequence[str]) -> int:
        """Run it."""
        name = Path(arguments[list(arguments).index("--home") + 1]).name
        enter(self.spaces[name])
        more = ["--relay", self.relays[name]] if name in self.relays else []
        return main([*arguments, *more])


def measured(nodes: int, seed: int, darknesses: int, hidden: int) -> list[SlowRun]:
    """Of one run."""
    table = tomllib.loads(_HEART)
    if hidden:
        table["model"] = {"kind": "mlp", "hidden": [hidden]}
    quality = Quality()
    with tempfile.TemporaryDirectory() as folder:
        consortium = DemoConsortium.made(Path(folder), _HEART, nodes, lambda _: None, main)
        roster = read_roster(consortium.folder / "roster.toml")
        with Lines(consortium.members, quality, seed).laid() as lines:
            _move_in(consortium, lines, int(roster.parties[0].relay.rpartition(":")[2]))
            stage = Stage(consortium=consortium, roster=roster)
            try:
                row = _run(stage, table, lines, seed, darknesses)
            finally:
                stage.clear()
    command = f"slow --nodes {nodes} --seed {seed} --darknesses {darknesses} --hidden {hidden}"
    write("network_slow_line", [row], command, fresh=False)
    return [row]


def _move_in(consortium: DemoConsortium, lines: Lines, port: int) -> None:
    """Everybody into a namespace of their own, and their processes."""
    spaces = {name: lines.space(name) for name in consortium.members}
    relays = {name: f"tls://{line.hub}:{port}" for name, line in lines.lines.items()}
    consortium.command = Inside({"aggregator": lines.space(HUB), **spaces}, relays)
    for name in consortium.members:
        consortium.join(name)


def _run(stage: Stage, table: dict[str, Any], lines: Lines, seed: int, darknesses: int) -> SlowRun:
    run, chance = stage.begin(table), random.Random(seed)
    run.reach(3, _SECONDS)
    dark, back = [], []
    for _ in range(darknesses):
        seconds = chance.uniform(_SHORTEST, _LONGEST)
        name = chance.choice(stage.consortium.members)
        dark.append(f"{seconds:.1f}")
        back.append(f"{_dark(lines, name, seconds):.2f}")
        run.reach(run.step + 2, _SECONDS)
    wait(lambda: run.step >= run.study.training.steps - 1 or run.server.returncode is not None, 900)
    tcp = [retransmitted(pid) for pid in stage.processes().values()]
    work = processor_seconds([*stage.processes().values(), run.server.pid])
    code = run.end(_SECONDS)
    books = account(run.books, finished=code == 0)
    times = [when for when, _ in run.steps]
    steps = [b - a for a, b in pairwise(times)]
    passed = sum(sum(line.passed) for line in lines.lines.values())
    nodes = len(stage.roster.nodes)
    return SlowRun(
        masks=f"{nodes} nodes" if nodes else "pairwise",
        parameters=_parameters(run),
        loss=lines.quality.loss,
        round_trip_seconds=2 * lines.quality.delay,
        megabits=lines.quality.rate / 1e6,
        exit_code=code,
        steps=books.step,
        attempts=books.counted,
        rows=books.rows,
        open_seconds=next(one["seconds"] for one in run.events if one["event"] == "open"),
        median_step_seconds=median(steps),
        most_step_seconds=max(steps),
        kilobytes_a_step=passed / max(1, len(times)) / 1000,
        packets_lost=sum(line.lost for line in lines.lines.values()),
        segments=sum(sent for sent, _ in tcp),
        sent_again=sum(again for _, again in tcp),
        dark_seconds=" ".join(dark),
        back_seconds=" ".join(back),
        processor_seconds=work,
        wrong="; ".join(books.wrong),
    )


def _dark(lines: Lines, name: str, seconds: float) -> float:
    """Nothing passes for a while; how long after it does somebody is back."""
    line = lines.lines[name]
    line.dark = True
    time.sleep(seconds)
    line.light()
    lit = time.monotonic()
    assert wait(lambda: line.back is not None, 120.0), f"{name} did not come back"
    return (line.back or lit) - lit


def _parameters(run: Run) -> int:

    study = Study.load(run.stage.consortium.folder / "study.toml")
    return int(prepare(study).initial.size)


def processor_seconds(pids: Sequence[int]) -> float:
    """What these processes have used so far."""
    found = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    ticks = sum(int(one[11]) + int(one[12]) for one in found)
    return ticks / os.sysconf("SC_CLK_TCK")
