"""What encryption costs a whole run: real steps against the same steps in the clear.

    python -m benchmarks.encrypted_run [--nodes 2,4,8] [--steps 5] [--threads 2]
                                       [--torch-threads 1] [--write] [--json]

100 silos train the model `1m` (784-536-536-536-10 without biases) on made-up images, some 4 records
each in a step. "clear" is the same batches' sizes, clipping, noise, rounding, sum and optimizer
step without masks, frames, signatures or compute nodes: residues are added directly. Steps of both
kinds are run in turn, after a warm-up, and medians are compared, in wall and in processor seconds.
The clear step uses one thread (beside torch's own), the real one `--threads`: so the wall ratio
says what a user waits, and the processor ratio what it costs where every core is busy anyway. On a
machine with other work only the processor ratio means much; the least wall times are the next best.

The table below says where the difference should go: the price of each part, measured alone in the
same process, times how often a step pays it. What is left over is Python, allocation and caches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

import hubbub
from benchmarks.result_table import write_table
from hubbub import learning
from hubbub.core.planning.mechanism import SUM_MARGIN
from hubbub.core.planning.plan import Plan
from hubbub.core.protocol.agreement.masks import MaskStream
from hubbub.core.protocol.primitives import noise, ring
from hubbub.core.protocol.primitives.identity import Keys
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import most_rows, poisson_rows
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.session.in_process import Federation, federate
from hubbub.core.session.offer import layout_of, round_parameters_of
from hubbub.core.study.study import Study
from hubbub.core.tabular.records import Records

PIXELS, CLASSES, HIDDEN = 784, 10, (536, 536, 536)
SILOS, RECORDS, BATCH, STEPS = 100, 600, 400, 1250
RESULTS = Path(__file__).parent / "results"
_TRIES = 9

Vector = NDArray[np.float64]
Parameters = NDArray[np.float32]
Step = Callable[[int, Parameters], Vector]


@dataclass(frozen=True, kw_only=True)
class Times:
    """Medians over the steps, in seconds."""

    nodes: int
    clear_wall: float
    clear_cpu: float
    real_wall: float
    real_cpu: float
    clear_least_wall: float
    real_least_wall: float

    @property
    def wall_ratio(self) -> float:
        """Of the medians."""
        return self.real_wall / self.clear_wall

    @property
    def cpu_ratio(self) -> float:
        """Of the medians."""
        return self.real_cpu / self.clear_cpu


@dataclass(frozen=True, kw_only=True)
class Part:
    """One thing that only the real protocol does."""

    name: str
    milliseconds: float
    times: int

    @property
    def seconds(self) -> float:
        """In one step."""
        return self.milliseconds * self.times / 1e3


def study_of(
    silos: int,
    nodes: int,
    *,
    records: int | None = None,
    rate: float = BATCH / SILOS / RECORDS,
    hidden: Sequence[int] = HIDDEN,
) -> Study:
    """The whole study, of which a few steps are run; `records` are all silos'."""
    records = silos * RECORDS if records is None else records
    colluders = max(0, min(silos // 2, silos - 2))
    table = {
        "study": {"name": "the price of encryption"},
        "parties": {"silos": silos, "compute_nodes": nodes, "colluders": colluders},
        "data": {"source": "python:benchmarks.encrypted_run:study_of", "records": records},
        "model": {
            "kind": "mlp",
            "hidden": list(hidden),
            "inputs": [PIXELS],
            "outputs": CLASSES,
            "bias": False,
        },
        "training": {
            "steps": STEPS,
            "sample_rate": rate,
            "optimizer": {"name": "adam", "lr": 9e-4},
        },
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
    }
    return Study.from_table(table)


def made_up(seed: int, count: int = RECORDS) -> Records:
    draw = np.random.default_rng(seed)
    return Records(
        inputs=draw.random((count, PIXELS), dtype=np.float32),
        targets=draw.integers(CLASSES, size=count),
    )


def tasks_of(plan: Plan, model: torch.nn.Module, records: Sequence[Records]) -> list[LocalTask]:
    method = learning.method_for(model, (PIXELS,), records[0].targets)
    return [
        learning.TrainingTask(
            model,
            own,
            clip=plan.main.record_clip,
            margin=SUM_MARGIN,
            method=method,
            rows=most_rows(len(own), plan.study.training.sample_rate),
        )
        for own in records
    ]


class ClearSilo:
    """A silo's part of a step with nothing hidden: the same work up to the masks."""

    def __init__(self, task: LocalTask, round_parameters: RoundParameters) -> None:
        self._task, self._round_parameters, self._source = task, round_parameters, SecureSource()

    def contribute(self, parameters: Parameters) -> ring.Residues:
        """Noised and rounded, as `hubbub.core.protocol.round.Silo` does it."""
        round_parameters = self._round_parameters
        task, rate = self._task, round_parameters.sample_rate
        rows = poisson_rows(self._source, task.count, task.capacity, rate)
        vector = task.clipped_sum(parameters, rows)
        return noise.add_noise_and_round(
            vector,
            round_parameters.sigma_grid,
            self._source,
            round_parameters.word_bits,
            grid_step=round_parameters.grid_step,
        )


class ClearSum:
    """The aggregator's part with nothing hidden."""

    def __init__(self, round_parameters: RoundParameters) -> None:
        self._round_parameters = round_parameters
        self._total = ring.zeros(0, round_parameters.word_bits)

    def begin(self) -> None:
        """Start at zero."""
        self._total = ring.zeros(self._round_parameters.dimension, self._round_parameters.word_bits)

    def receive(self, residues: ring.Residues) -> None:
        """Add a silo's vector."""
        self._total += residues

    def integers(self) -> NDArray[np.int64]:
        """The sum in grid steps."""
        return ring.to_integers(self._total)


def clear(
    silos: Sequence[ClearSilo], aggregator: ClearSum, round_parameters: RoundParameters
) -> Step:
    """The same sum with nothing hidden."""

    def step(_round: int, parameters: Parameters) -> Vector:
        aggregator.begin()
        for silo in silos:
            aggregator.receive(silo.contribute(parameters))
        return aggregator.integers() * round_parameters.grid_step

    return step


def real(parties: Federation, round_parameters: RoundParameters) -> Step:
    def step(number: int, parameters: Parameters) -> Vector:
        return parties.sum(number, parameters) * round_parameters.grid_step

    return step


class Run:
    """A model that is moved by one kind of step, and what each step took."""

    def __init__(
        self, step: Step, initial: Parameters, divisor: float, optimizer: learning.Optimizer
    ) -> None:
        self._step, self._divisor = step, divisor
        self._parameters, self._optimizer = initial, optimizer
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def go(self, number: int) -> None:
        """One step, timed."""
        wall, cpu = time.perf_counter(), time.process_time()
        gradient = self._step(number, self._parameters) / self._divisor
        moved = self._optimizer.step(self._parameters, gradient)
        self._parameters = moved.astype(np.float32)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A study with everybody's tasks, before anybody has keys."""

    study: Study
    plan: Plan
    round_parameters: RoundParameters
    initial: Parameters
    tasks: Sequence[LocalTask]

    @classmethod
    def of(cls, study: Study, records: Sequence[Records]) -> Ready:
        """Plan the study and give every silo its records."""
        model = learning.build_model(
            "mlp",
            inputs=(PIXELS,),
            outputs=CLASSES,
            hidden=study.model.hidden,
            bias=False,
            seed=study.id,
        )
        initial, plan = learning.parameters_vector(model), hubbub.plan(study)
        return cls(
            study=study,
            plan=plan,
            round_parameters=round_parameters_of(plan.main),
            initial=initial,
            tasks=tasks_of(plan, model, records),
        )

    def run(self, step: Step, optimizer: learning.Optimizer | None = None) -> Run:
        """The model, moved from its start by one kind of step."""
        chosen = optimizer or learning.Optimizer("adam", lr=9e-4)
        return Run(step, self.initial, self.plan.mechanism.divisor, chosen)


def measured(nodes: int, steps: int, silos: int, threads: int) -> tuple[Times, RoundParameters]:
    """Real and clear steps in turn, the first of each thrown away."""
    ready = Ready.of(study_of(silos, nodes), [made_up(silo) for silo in range(silos)])
    round_parameters, layout = ready.round_parameters, layout_of(ready.plan)
    parties = federate(layout, round_parameters, ready.tasks, study=ready.study.id, threads=threads)
    plain = ready.run(
        clear(
            [ClearSilo(task, round_parameters) for task in ready.tasks],
            ClearSum(round_parameters),
            round_parameters,
        )
    )
    hidden = ready.run(real(parties, round_parameters))
    for number in range(1, steps + 2):
        plain.go(number)
        hidden.go(number)
    found = Times(
        nodes=nodes,
        clear_wall=median(plain.wall[1:]),
        clear_cpu=median(plain.cpu[1:]),
        real_wall=median(hidden.wall[1:]),
        real_cpu=median(hidden.cpu[1:]),
        clear_least_wall=min(plain.wall[1:]),
        real_least_wall=min(hidden.wall[1:]),
    )
    return found, round_parameters


def parts_of(round_parameters: RoundParameters, nodes: int, silos: int) -> list[Part]:
    """The price of what only the real protocol does, each measured alone."""
    residues = ring.zeros(round_parameters.dimension, round_parameters.word_bits)
    total = residues.copy()
    payload, model = ring.to_bytes(residues), bytes(4 * round_parameters.parameters)
    header, signature = bytes(74), bytes(64)
    keys, parameters = (
        Keys.generate("a", "silo"),
        np.zeros(round_parameters.parameters, dtype=np.float32),
    )
    signed = keys.sign(payload[:32])
    mask = milliseconds(lambda: MaskStream().add(residues, bytes(16)))
    hashed = milliseconds(lambda: hashlib.sha256(payload).digest())
    return [
        Part(name="masks, silos", milliseconds=mask, times=silos * nodes),
        Part(name="masks, nodes", milliseconds=mask, times=silos * nodes),
        Part(name="SHA-256 of vectors, sent", milliseconds=hashed, times=silos + nodes),
        Part(name="SHA-256 of vectors, received", milliseconds=hashed, times=silos + nodes),
        Part(
            name="SHA-256 of the model, received",
            milliseconds=milliseconds(lambda: hashlib.sha256(model).digest()),
            times=silos + 1,
        ),
        Part(
            name="finiteness of the model",
            milliseconds=milliseconds(lambda: np.isfinite(parameters).all()),
            times=silos,
        ),
        Part(
            name="Ed25519, sign and verify",
            milliseconds=milliseconds(lambda: keys.sign(payload[:32]))
            + milliseconds(lambda: keys.identity.verifies(signed, payload[:32])),
            times=silos + 2 * nodes,
        ),
        Part(
            name="copies of vectors into frames",
            milliseconds=milliseconds(lambda: ring.to_bytes(residues))
            + milliseconds(lambda: b"".join((header, payload, signature))),
            times=silos + nodes,
        ),
        Part(
            name="sum of the nodes' totals",
            milliseconds=milliseconds(lambda: np.add(total, residues, out=total)),
            times=nodes,
        ),
    ]


def milliseconds(work: Callable[[], object]) -> float:
    """The least of some tries: other work on the machine only ever adds."""
    spent = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return 1e3 * min(spent)


def rows_of(times: Times, parts: Sequence[Part]) -> list[dict[str, str | float]]:
    """The parts beside the difference that they should explain."""
    extra = times.real_cpu - times.clear_cpu
    rows: list[dict[str, str | float]] = [
        {
            "nodes": times.nodes,
            "part": part.name,
            "milliseconds": round(part.milliseconds, 4),
            "times": part.times,
            "seconds": round(part.seconds, 4),
            "share of clear step": round(part.seconds / times.clear_cpu, 4),
        }
        for part in parts
    ]
    known = sum(part.seconds for part in parts)
    for name, seconds in (("not explained", extra - known), ("measured difference", extra)):
        rows.append(
            {
                "nodes": times.nodes,
                "part": name,
                "seconds": round(seconds, 4),
                "share of clear step": round(seconds / times.clear_cpu, 4),
            }
        )
    return rows


def write(name: str, rows: Sequence[dict[str, str | float]]) -> None:
    write_table(RESULTS / name, rows)


def show(
    times: Times, rows: Sequence[dict[str, str | float]], round_parameters: RoundParameters
) -> None:
    print(
        f"\nM = {times.nodes}, {round_parameters.dimension:,} coordinates of "
        f"{round_parameters.word_bits} bits: "
        f"wall {times.real_wall:.2f} / {times.clear_wall:.2f} s = {times.wall_ratio:.3f} "
        f"(least {times.real_least_wall:.2f} / {times.clear_least_wall:.2f}), "
        f"processor {times.real_cpu:.2f} / {times.clear_cpu:.2f} s = {times.cpu_ratio:.3f}"
    )
    for row in rows:
        price = f"{row['milliseconds']:7.3f} ms x {row['times']:>5}" if "times" in row else ""
        print(
            f"  {row['part']:<32}{price:>18} {row['seconds']:8.3f} s "
            f"{row['share of clear step']:7.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="2,4,8", help="numbers of compute nodes")
    parser.add_argument("--steps", type=int, default=5, help="steps of each kind that count")
    parser.add_argument("--silos", type=int, default=SILOS)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--torch-threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results")
    options = parser.parse_args()
    torch.set_num_threads(options.torch_threads)
    summary: list[dict[str, str | float]] = []
    details: list[dict[str, str | float]] = []
    for nodes in map(int, options.nodes.split(",")):
        times, round_parameters = measured(nodes, options.steps, options.silos, options.threads)
        rows = rows_of(times, parts_of(round_parameters, nodes, options.silos))
        ratios = {"wall_ratio": times.wall_ratio, "cpu_ratio": times.cpu_ratio}
        summary.append(asdict(times) | ratios | {"load": os.getloadavg()[0]})
        details += rows
        if not options.json:
            show(times, rows, round_parameters)
    if options.json:
        print(json.dumps({"results": summary, "parts": details}))
    if options.write:
        write("encrypted_run.csv", [{k: round(v, 4) for k, v in row.items()} for row in summary])
        write("encrypted_run_parts.csv", details)


if __name__ == "__main__":
    main()
