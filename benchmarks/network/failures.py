"""One blow after another to a consortium of processes, and what becomes of the run each time.

Every blow has a study of its own; the silos and nodes stay up from one to the next, as they would.
A run is struck at step STRUCK. "lost" is the longest time without a step from then on, less what
the run's steps take otherwise. The books are looked at as `accounts` says.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.network.accounts import account
from benchmarks.network.blows import BLOWS, DEADLINE, SILO, Blow
from benchmarks.network.link import Link, linked, possible
from benchmarks.network.stage import Run, Stage, study_of
from benchmarks.network.table import write
from hubbub.network.event_messages import sentence

STEPS, STRUCK = 40, 5
_BEGIN, _END = 240.0, 420.0
_LARGE = {"kind": "mlp", "hidden": [200, 200], "inputs": [26]}  # 0.2 MB down, 0.1 MB up
_ORDINARY = ("step", "closed")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a run."""

    masks: str
    blow: str
    verdict: str
    exit_code: int | None
    lost_seconds: float
    steps: int
    attempts: int
    rows: str
    lost_sessions: int
    served: int
    wrong: str


def measured(nodes: int, only: Sequence[str] = (), log: Path | None = None) -> list[Verdict]:
    """All blows, or those whose names hold one of these words."""
    chosen = [one for one in BLOWS if not only or any(word in one.name for word in only)]
    verdicts = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stage = stack.enter_context(Stage.set(Path(folder), nodes))
        for number, blow in enumerate(chosen):
            if blow.linked and not possible():
                print(f"{blow.name}: not tried, this machine makes no network namespaces")
                continue
            verdict = _tried(stage, blow, number, log)
            print(f"{time.strftime('%H:%M:%S')} {verdict}", flush=True)
            verdicts.append(verdict)
            write("network_failures", [verdict], f"failures --nodes {nodes}", fresh=False)
    return verdicts


def _tried(stage: Stage, blow: Blow, number: int, log: Path | None) -> Verdict:
    """One blow to one run."""
    table = study_of(f"{number}: {blow.name}", STEPS, parties={"dropouts": blow.dropouts})
    if blow.large:
        table["model"] = _LARGE
    with ExitStack() as stack:
        link = None
        if blow.linked:
            link = _moved(stage, stack)
        run = stage.begin(table, "--deadline", str(DEADLINE), "--waiting", "120")
        if not run.reach(STRUCK, _BEGIN):
            return _verdict(stage, blow, run, run.end(5.0), time.time(), log)
        struck = time.time()
        blow.does(run, link)
        return _verdict(stage, blow, run, run.end(_END), struck, log)


def _moved(stage: Stage, stack: ExitStack) -> Link:
    """The silo now lives behind a network of its own, until the stack ends."""
    link = stack.enter_context(linked(stage.port()))
    stage.leave(SILO)
    stage.join_inside(SILO, link)
    stack.callback(stage.consortium.join, SILO)
    stack.callback(stage.leave, SILO)
    return link


def _verdict(
    stage: Stage, blow: Blow, run: Run, code: int | None, struck: float, log: Path | None
) -> Verdict:
    books, events = account(run, finished=code == 0), run.events
    if log is not None:
        _told(log, stage, blow, run, struck)
    return Verdict(
        masks=f"{len(stage.roster.nodes)} nodes" if stage.roster.nodes else "pairwise",
        blow=blow.name,
        verdict="ended well" if code == 0 and not books.wrong else "WRONG",
        exit_code=code,
        lost_seconds=round(_lost(run, struck), 1),
        steps=books.step,
        attempts=books.counted,
        rows=books.rows,
        lost_sessions=sum(one["event"] == "lost" for one in events),
        served=run.served,
        wrong="; ".join(books.wrong),
    )


def _lost(run: Run, struck: float) -> float:
    """Seconds without a step, beyond the usual ones."""
    times = [when for when, _ in run.steps]
    before = [b - a for a, b in pairwise(times) if b <= struck]
    after = [struck, *(when for when in times if when > struck)]
    gaps = [b - a for a, b in pairwise(after)]
    return max(gaps, default=0.0) - (median(before) if before else 0.0)


def _told(log: Path, stage: Stage, blow: Blow, run: Run, struck: float) -> None:
    """What everybody's journal said from the blow on, for who writes the manual."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"\n== {blow.name}\n{run.said}\n")
        for name in ("aggregator", SILO):
            lines = (stage.home(name) / "events.jsonl").read_text(encoding="utf-8").splitlines()
            for one in map(json.loads, lines):
                if one["time"] >= struck and one["event"] not in (*_ORDINARY, "answered"):
                    after = f"{one['time'] - struck:7.1f}"
                    file.write(f"{after} {name}: {sentence(one['event'], one)}\n")
