"""What `hubbub plan --forecast` predicts, beside what networked studies take.

    python -m benchmarks.forecast [--silos 4,16,64] [--nodes 0,2] [--parameters 100000,1000000]
                                  [--steps 9] [--write] [--json]

Every configuration gets a fresh process with one core and one thread. In it all parties have seats
of their own, with keys, roster, approvals and ledgers, and the aggregator serves a study of made-up
records to them over `hubbub.network.engine.in_process`; messages, signatures and disks are real.
The rates are measured in turn with the steps, so that drift hits both. Beside the predictions, with
the median of every rate, stand the medians of the steps' seconds, by the processor and by the
clock, the bytes that the aggregator's journal counts, and the peak memory of the process.

What is predicted is an ordinary step: where a silo would tell its own people its epsilon, which it
does every five seconds by the clock, it does not here, or a busy machine would have it do so in
every step. Other work disturbs the clock most, which then shows more than is predicted; the
processor's seconds it disturbs less.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from math import inf
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from hubbub.cli.forecasting import formats_of
from hubbub.cli.rates import measured
from hubbub.network.endpoint import Endpoint
from hubbub.network.engine import Phase, in_process
from hubbub.network.event_log import EventLog
from hubbub.network.key_files import roster_of
from hubbub.network.node_endpoint import NodeEndpoint
from hubbub.network.party_folder import PartyFolder
from hubbub.network.serve import serve
from hubbub.network.silo_endpoint import SiloEndpoint
from hubbub.network.timeouts import Timeouts
from hubbub.planning import Plan, plan
from hubbub.planning.forecast import Forecast, forecast
from hubbub.planning.loads import AGGREGATOR, Rates
from hubbub.study import Study
from hubbub.study.tabular import Records

RESULTS = Path(__file__).parent / "results"
INPUTS, RECORDS, BATCH, TEST_RECORDS = 784, 200, 10, 64
_WARM, _EVERY = 3, 3  # steps before the rates are measured, and from one time to the next
_PATIENT = Timeouts(deadline=1800.0, opening=3600.0, waiting=3600.0, ask_again=0.0)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration: prediction and measurement."""

    silos: int
    nodes: int
    parameters: int
    degree: int
    step_sent: int
    step_sent_predicted: int
    step_received: int
    step_received_predicted: int
    setup_sent: int
    setup_sent_predicted: int
    setup_received: int
    setup_received_predicted: int
    processor_seconds: float
    processor_predicted: float
    processor_ratio: float
    clock_seconds: float
    clock_predicted: float
    clock_ratio: float
    memory_mb: float
    memory_predicted_mb: float
    memory_ratio: float
    load: float


def records(party: str) -> Records:
    """Made-up records of a silo, or of the public test set."""
    drawn = np.random.default_rng(zlib.crc32(party.encode()))
    count = TEST_RECORDS if party == "test" else RECORDS
    inputs = drawn.normal(size=(count, INPUTS)).astype(np.float32)
    return Records(inputs=inputs, targets=drawn.integers(2, size=count))


def table_of(silos: int, nodes: int, parameters: int) -> dict[str, Any]:
    """A study with about so many parameters."""
    return {
        "study": {"name": "forecast"},
        "parties": {
            "names": [f"silo-{number}" for number in range(1, silos + 1)],
            "compute_nodes": nodes,
            "colluders": 1,
        },
        "data": {"source": "python:benchmarks.forecast:records", "records": silos * RECORDS},
        "model": {"kind": "mlp", "inputs": [INPUTS], "hidden": [round(parameters / (INPUTS + 2))]},
        "training": {"steps": 1000, "sample_rate": BATCH / RECORDS},
        "privacy": {"epsilon": 8.0, "delta": 1e-5},
    }


class Done(Exception):  # noqa: N818 (it is no error)
    """Enough steps were made."""


@dataclass
class Watch:
    """Looks at clocks and journal after every step, and has the rates measured on the way."""

    made: Plan
    event_log: EventLog
    steps: int
    rates: list[Rates] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    _since: tuple[float, float] = (0.0, 0.0)

    def __call__(self, step: int, _row: Mapping[str, float]) -> None:
        """A step was made."""
        if step > _WARM:
            self.processor.append(time.process_time() - self._since[0])
            self.clock.append(time.perf_counter() - self._since[1])
        counted = self.event_log._state  # noqa: SLF001 (what the party itself reads is a file)
        self.sent.append(counted["bytes_sent"])
        self.received.append(counted["bytes_received"])
        if step >= _WARM and (step - _WARM) % _EVERY == 0:
            self.rates.append(measured(self.made, shared=True))
        if step == _WARM + self.steps:
            raise Done
        self._since = time.process_time(), time.perf_counter()


def gathered(home: Path, table: dict[str, Any]) -> tuple[PartyFolder, Study, Phase]:
    """Keys, the roster, the approvals, and a seat for everybody but the aggregator."""
    parties = table["parties"]
    roles = {"aggregator": "aggregator"} | dict.fromkeys(parties["names"], "silo")
    roles |= {f"node-{number}": "node" for number in range(1, parties["compute_nodes"] + 1)}
    sites = {name: PartyFolder.made(home / name, name, role) for name, role in roles.items()}
    roster = roster_of([site.keys.identity for site in sites.values()])
    parties["roster"] = roster.digest.hex()
    study = Study.from_table(table)
    for site in sites.values():
        site.approve(study, roster)
    seats = {name: seat_of(site) for name, site in sites.items() if site.role != "aggregator"}
    return sites["aggregator"], study, in_process(lambda name: seats[name].answer)


def seat_of(site: PartyFolder) -> Endpoint:
    event_log = EventLog(party=site.name)
    if site.role == "node":
        return NodeEndpoint(site, event_log)
    ledger = site.home / "ledger.sqlite"
    return SiloEndpoint(site, event_log, data=site.home, ledger=ledger, device="cpu", pace=0.0)


def measure(silos: int, nodes: int, parameters: int, steps: int) -> Row:
    table = table_of(silos, nodes, parameters)
    with tempfile.TemporaryDirectory() as folder:
        made = plan(Study.from_table(table))
        early = measured(made, shared=True)  # before there are vectors in the peak
        aggregator, study, phase = gathered(Path(folder), table)
        made, event_log = plan(study), EventLog(party="aggregator")
        watch = Watch(made, event_log, steps)
        with suppress(Done), mock.patch("hubbub.network.silo_endpoint._TELL_EVERY", inf):
            out, options = Path(folder) / "run", {"journal": event_log, "patience": _PATIENT}
            serve(aggregator, study, out, phase, progress=watch, **options)
    rates = typical(watch.rates, early)
    expected = forecast(made, formats=formats_of(made), rates=rates, cores=1)
    return row_of(made, watch, expected)


def typical(found: list[Rates], early: Rates) -> Rates:
    """The median of every rate; what a process holds at first, from its beginning."""
    rates = {one.name: median(getattr(each, one.name) for each in found) for one in fields(Rates)}
    return Rates(**{**rates, "base": early.base, "learning_base": early.learning_base})


def row_of(made: Plan, watch: Watch, expected: Forecast) -> Row:
    """Prediction beside measurement."""
    bytes_of, parties = expected.load(AGGREGATOR), made.study.parties
    step_sent, step_received = (two[-1] - two[-2] for two in (watch.sent, watch.received))
    processor, clock = median(watch.processor), median(watch.clock)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert made.dimension is not None
    assert expected.memory is not None
    return Row(
        silos=parties.silos,
        nodes=parties.compute_nodes,
        parameters=made.dimension,
        degree=0 if parties.compute_nodes else made.degree,
        step_sent=step_sent,
        step_sent_predicted=bytes_of.step.sent,
        step_received=step_received,
        step_received_predicted=bytes_of.step.received,
        setup_sent=watch.sent[0] - step_sent,
        setup_sent_predicted=bytes_of.setup.sent,
        setup_received=watch.received[0] - step_received,
        setup_received_predicted=bytes_of.setup.received,
        processor_seconds=processor,
        processor_predicted=expected.processor_seconds,
        processor_ratio=expected.processor_seconds / processor,
        clock_seconds=clock,
        clock_predicted=expected.step_seconds,
        clock_ratio=expected.step_seconds / clock,
        memory_mb=memory / 1e6,
        memory_predicted_mb=expected.memory / 1e6,
        memory_ratio=expected.memory / memory,
        load=os.getloadavg()[0],
    )


def in_fresh_process(silos: int, nodes: int, parameters: int, steps: int) -> Row:
    """The same in a process of its own, on one core."""
    named = {"silos": silos, "nodes": nodes, "parameters": parameters, "steps": steps}
    command = [sys.executable, "-m", "benchmarks.forecast", "--child"]
    command += [word for name, value in named.items() for word in (f"--{name}", str(value))]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=alone)
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def show(row: Row) -> None:
    sums = (
        (row.step_sent, row.step_sent_predicted),
        (row.step_received, row.step_received_predicted),
        (row.setup_sent, row.setup_sent_predicted),
        (row.setup_received, row.setup_received_predicted),
    )
    apart = [predicted - counted for counted, predicted in sums]
    print(
        f"{row.silos:5} {row.nodes:5} {row.parameters:10} | "
        f"{'exact' if not any(apart) else apart!s:>5} | "
        f"{row.processor_predicted:8.3f} {row.processor_seconds:8.3f} {row.processor_ratio:5.2f} | "
        f"{row.clock_predicted:8.3f} {row.clock_seconds:8.3f} {row.clock_ratio:5.2f} | "
        f"{row.memory_predicted_mb:6.0f} {row.memory_mb:6.0f} {row.memory_ratio:5.2f} | "
        f"{row.load:4.1f}",
        flush=True,
    )


def write(rows: list[Row]) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "forecast.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: round(v, 4) for k, v in asdict(row).items()} for row in rows)


def whole(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", type=whole, default=[4, 16, 64])
    parser.add_argument("--nodes", type=whole, default=[0, 2])
    parser.add_argument("--parameters", type=whole, default=[100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=9, help="that count")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        row = measure(options.silos[0], options.nodes[0], options.parameters[0], options.steps)
        print(json.dumps(asdict(row)))
        return
    if not options.json:
        print(
            "silos nodes parameters | bytes | processor s, is, ratio  | clock s, is, ratio      | "
            "memory MB, is, ratio | load"
        )
    rows = []
    for parameters in options.parameters:
        for silos in options.silos:
            for nodes in options.nodes:
                rows.append(in_fresh_process(silos, nodes, parameters, options.steps))
                if not options.json:
                    show(rows[-1])
                if options.write:  # what there is: all of it takes long
                    write(rows)
    if options.json:
        print(json.dumps({"results": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
