"""A thousand steps: does anything grow? Memory, descriptors, threads of every process; step time.

Everything is sampled each EVERY steps from /proc, and the last quarter is compared with the second,
by medians: the first quarter is where caches fill.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.network.accounts import account
from benchmarks.network.stage import Run, Stage, study_of
from benchmarks.network.table import write

EVERY = 25
_KINDS = ("rss_mib", "descriptors", "threads")


@dataclass(frozen=True, kw_only=True)
class Growth:
    """One thing at one process, in the second and the last quarter."""

    process: str
    what: str
    second_quarter: float
    last_quarter: float
    ratio: float


def measured(nodes: int, steps: int) -> list[Growth]:
    """Of one run."""
    with tempfile.TemporaryDirectory() as folder, Stage.set(Path(folder), nodes) as stage:
        run = stage.begin(study_of("endurance", steps))
        found: dict[tuple[str, str], list[float]] = {}
        for step in range(EVERY, steps, EVERY):
            if not run.reach(step, 600.0):
                break
            for name, values in _sampled(stage, run).items():
                for what, value in zip(_KINDS, values, strict=True):
                    found.setdefault((name, what), []).append(value)
        code = run.end(300.0)
        books = account(run.books, finished=code == 0)
        assert code == 0, f"ended with {code}: {run.said}"
        assert not books.wrong, books.wrong
        times = [when for when, _ in run.steps]
        found["the run", "seconds a step"] = [b - a for a, b in pairwise(times)]
    rows = [_grown(name, what, values) for (name, what), values in found.items()]
    write("network_endurance", rows, f"endurance --nodes {nodes} --steps {steps}", fresh=True)
    return rows


def _sampled(stage: Stage, run: Run) -> dict[str, tuple[float, float, float]]:
    """MiB, descriptors and threads of every process."""
    found = stage.processes() | {"aggregator's serve": run.server.pid}
    return {name: _looked(pid) for name, pid in found.items()}


def _looked(pid: int) -> tuple[float, float, float]:
    place = Path("/proc") / str(pid)
    lines = (place / "status").read_text(encoding="utf-8").splitlines()
    said = dict(line.split(":", 1) for line in lines)
    descriptors = len(list((place / "fd").iterdir()))
    return int(said["VmRSS"].split()[0]) / 1024, descriptors, int(said["Threads"])


def _grown(name: str, what: str, values: Sequence[float]) -> Growth:
    quarter = max(1, len(values) // 4)
    second, last = median(values[quarter : 2 * quarter] or values), median(values[-quarter:])
    return Growth(
        process=name, what=what, second_quarter=second, last_quarter=last, ratio=last / second
    )
