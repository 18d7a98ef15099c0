"""A step of `hubbub run` beside its arithmetic: clipped sums, noise and rounding alone.

    python -m benchmarks.run_step [--cases 4x100,32x12.5] [--steps 40] [--write] [--json]

The model is 784-536-536-536-10 without biases (1,000,176 numbers), trained on made-up images with
pairwise masks, ledgers, transcript, checkpoints and a public test set of 1000 records. `4x100` is
four silos with 100 records each expected in a step. The arithmetic is made between the steps of the
run itself, on one thread beside torch's own: after every second step, so that what a step leaves to
be done beside the next one is paid for in those that are counted. Medians; on a machine with other
work only the ratios mean something, those of processor time most.

Asked for: at most 1.25, in wall time, on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.encrypted_run import CLASSES, HIDDEN, PIXELS, made_up
from benchmarks.result_table import write_table
from hubbub import Records, Study, run
from hubbub.core.planning.study_plan import plan
from hubbub.core.protocol.primitives import noise
from hubbub.core.protocol.primitives.randomness import SecureSource
from hubbub.core.protocol.round.batches import poisson_rows
from hubbub.core.protocol.round.local_task import LocalTask
from hubbub.core.protocol.round.round_parameters import RoundParameters
from hubbub.core.runs.prepared_study import PreparedStudy
from hubbub.core.session.offer import round_parameters_of
from hubbub.learning.runs.preparing import prepare

TABLE = Path(__file__).parent / "results" / "run_step.csv"
_RATE, _TESTED, _WARM = 0.25, 1000, 4
Clock = tuple[float, float]  # wall and processor seconds


@dataclass(frozen=True, kw_only=True)
class Row:
    """Milliseconds of a step and of its arithmetic alone."""

    silos: int
    records: float
    steps: int
    threads: str
    step_wall: float
    step_cpu: float
    arithmetic_wall: float
    arithmetic_cpu: float
    wall_ratio: float
    cpu_ratio: float
    load: float


def records(party: str, *, each: int) -> Records:
    """Made-up images of a silo, or of the test set."""
    return made_up(sum(party.encode()), _TESTED if party == "test" else each)


def study_of(silos: int, each: int, steps: int) -> Study:
    return Study.from_table(
        {
            "study": {"name": "a step beside its arithmetic"},
            "parties": {"silos": silos, "colluders": max(0, silos // 2 - 1)},
            "data": {
                "source": "python:benchmarks.run_step:records",
                "records": silos * each,
                "options": {"each": each},
            },
            "model": {
                "kind": "mlp",
                "hidden": list(HIDDEN),
                "inputs": [PIXELS],
                "outputs": CLASSES,
                "bias": False,
            },
            "training": {
                "steps": steps,
                "sample_rate": _RATE,
                "optimizer": {"name": "adam", "lr": 9e-4},
            },
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
        }
    )


def now() -> Clock:
    return time.perf_counter(), time.process_time()


def since(start: Clock) -> Clock:
    wall, cpu = now()
    return 1e3 * (wall - start[0]), 1e3 * (cpu - start[1])


@dataclass(kw_only=True)
class Watch:
    """Steps and arithmetic in turn, timed."""

    arithmetic: Callable[[], object]
    steps: list[Clock] = field(default_factory=list)
    alone: list[Clock] = field(default_factory=list)
    _start: Clock = field(default_factory=now)

    def __call__(self, step: int, _row: object) -> None:
        """A step has ended."""
        if step % 2 == 0 and step > _WARM:
            self.steps.append(since(self._start))
            start = now()
            self.arithmetic()
            self.alone.append(since(start))
        self._start = now()


def arithmetic(
    prepared: PreparedStudy, tasks: list[LocalTask], round_parameters: RoundParameters
) -> None:
    """What a step cannot do without, silo by silo."""
    source = SecureSource()
    for task in tasks:
        rows = poisson_rows(source, task.count, task.capacity, round_parameters.sample_rate)
        vector = task.clipped_sum(prepared.initial, rows)
        noise.add_noise_and_round(
            vector,
            round_parameters.sigma_grid,
            source,
            round_parameters.word_bits,
            grid_step=round_parameters.grid_step,
        )


def measured(silos: int, mean: float, steps: int) -> Row:
    study = study_of(silos, round(mean / _RATE), steps)
    made = plan(study)
    prepared = prepare(study, made)
    round_parameters, tasks = round_parameters_of(prepared.plan.main), prepared.tasks
    watch = Watch(arithmetic=lambda: arithmetic(prepared, tasks, round_parameters))
    with tempfile.TemporaryDirectory() as folder:
        run(study, Path(folder) / "run", plan=made, progress=watch)
    step, alone = np.median(watch.steps, axis=0), np.median(watch.alone, axis=0)
    ratios = np.array(watch.steps) / np.array(watch.alone)
    return Row(
        silos=silos,
        records=mean,
        steps=len(watch.steps),
        threads=os.environ.get("OMP_NUM_THREADS", "all"),
        step_wall=round(float(step[0]), 1),
        step_cpu=round(float(step[1]), 1),
        arithmetic_wall=round(float(alone[0]), 1),
        arithmetic_cpu=round(float(alone[1]), 1),
        wall_ratio=round(median(ratios[:, 0].tolist()), 2),
        cpu_ratio=round(median(ratios[:, 1].tolist()), 2),
        load=round(os.getloadavg()[0], 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="4x100,32x12.5")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for case in options.cases.split(","):
        silos, mean = case.split("x")
        rows.append(measured(int(silos), float(mean), options.steps))
        print(json.dumps(asdict(rows[-1])) if options.json else rows[-1], flush=True)
    if options.write:
        write_table(TABLE, rows)


if __name__ == "__main__":
    main()
