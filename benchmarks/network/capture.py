"""What somebody on the wire sees of a study: whether any size depends on the records.

Two data sets that have nothing in common run through the same study with pairwise masks, one after
the other, and every TLS record on the loopback is measured. A step's messages at a site have the
same sizes at every step; what comes besides are FLARE's own messages, heartbeats for instance,
which are listed too. Who is who is told from the sizes: FLARE writes a site's name into them.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import and_
from pathlib import Path
from statistics import median

from benchmarks.network.stage import SILOS, Run, Stage, study_of
from benchmarks.network.table import write
from benchmarks.network.wire import Wire

SOURCES = ("hubbub.datasets:heart", "python:benchmarks.network.records:others")
SMALL = 1000  # bytes of a record; receipts and the like are below
_MODEL = {"kind": "mlp", "hidden": [64, 64], "inputs": [26]}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Records of one direction at one silo, over the steps of a run.

    Args:
        message: sizes of the records that every step has, bytes.
        fewest, most: bytes of them in a step, over all steps.
        besides: sizes of other large records, each with how many steps had it.
        small: bytes of small records in a step, the median.
        missed: bytes that the capture did not see.
    """

    source: str
    silo: str
    direction: str
    steps: int
    message: str
    fewest: int
    most: int
    besides: str
    small: int
    missed: int


def measured(steps: int) -> list[Seen]:
    """Both data sets through the same consortium."""
    rows: list[Seen] = []
    with tempfile.TemporaryDirectory() as folder, Stage.set(Path(folder), 0) as stage:
        for source in SOURCES:
            table = study_of(f"capture {source}", steps, data={"source": source}, model=_MODEL)
            with Wire(port=stage.port()) as wire:
                run = stage.begin(table)
                assert run.end(600.0) == 0, run.said
            rows += _seen(source, run, wire)
    write("network_capture", rows, f"capture --steps {steps}", fresh=True)
    return rows


def _seen(source: str, run: Run, wire: Wire) -> list[Seen]:
    """By silo and direction."""
    spans = list(pairwise(when for when, _ in run.steps))
    found = {}
    for port in {one.site for one in wire.records}:
        up = _steps(wire, port, False, spans)
        if message := _message(up):
            found[port] = sum(message)
    assert len(found) == len(SILOS), f"expected a connection for each silo, found {len(found)}"
    by_size = sorted(found, key=found.__getitem__)
    return [
        _row(source, silo, down, _steps(wire, port, down, spans), wire.missed)
        for silo, port in zip(sorted(SILOS, key=len), by_size, strict=True)
        for down in (True, False)
    ]


def _steps(
    wire: Wire, port: int, down: bool, spans: Sequence[tuple[float, float]]
) -> list[Counter[int]]:
    """The sizes of each step's records."""
    mine = [one for one in wire.records if one.site == port and one.down == down]
    return [Counter(one.size for one in mine if a < one.time <= b) for a, b in spans]


def _message(steps: Sequence[Counter[int]]) -> list[int]:
    """The large records that every step has."""
    common = reduce(and_, steps)
    return sorted(size for size in common.elements() if size >= SMALL)


def _row(source: str, silo: str, down: bool, steps: list[Counter[int]], missed: int) -> Seen:
    message = _message(steps)
    rest = [step - Counter(message) for step in steps]
    besides = Counter(size for step in rest for size in step if size >= SMALL)
    totals = [
        sum(size * count for size, count in (step & Counter(message)).items()) for step in steps
    ]
    small = [sum(size * n for size, n in step.items() if size < SMALL) for step in rest]
    return Seen(
        source=source.rpartition(":")[2],
        silo=silo,
        direction="down" if down else "up",
        steps=len(steps),
        message=" ".join(map(str, message)),
        fewest=min(totals),
        most=max(totals),
        besides=" ".join(f"{size} in {count}" for size, count in sorted(besides.items())),
        small=int(median(small)),
        missed=missed,
    )
