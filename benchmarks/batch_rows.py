"""What rows of a public shape cost: a padded batch against the records in it alone.

    python -m benchmarks.batch_rows [--rounds 15] [--write] [--json]

A silo's batch has as many rows as its capacity and the rate ask for, whatever it drew (P19). Both
sums are made by one `TrainingTask` each, interleaved in one process on one thread; "unpadded" has a
batch of exactly the records that are in the padded one. Times are medians of processor time, the
limit is 1.0. Models are those of benchmarks/learning.py.

Asked for: at most 1.25 for A2 and C at 100 records a step, 1.5 at 12.5, 1.9 for D at 12.5.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.learning import made
from benchmarks.result_table import write_table
from hubbub.core.planning.mechanism import SUM_MARGIN
from hubbub.core.protocol.round.batches import EMPTY, most_rows
from hubbub.core.tabular.records import Records
from hubbub.learning import TrainingTask, parameters_vector

TABLE = Path(__file__).parent / "results" / "batch_rows.csv"
RATE, RECORDS = 0.002, 400
CASES = [("A2", "chain"), ("A2", "vmap"), ("C", "vmap"), ("D", "vmap")]
MEANS = [12.5, 40, 100]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One model and one expected number of records in a batch."""

    model: str
    method: str
    records: float
    rows: int
    padded_ms: float
    unpadded_ms: float
    ratio: float


def ratio_of(name: str, method: str, mean: float, rounds: int) -> Ratio:
    case = made(name, RECORDS)
    records = Records(
        inputs=case.inputs.float().numpy(), targets=case.targets.numpy().astype(np.int64)
    )
    rows, counted = most_rows(round(mean / RATE), RATE), round(mean)
    model = Codes(case.model) if name == "D" else case.model
    parameters, batch = parameters_vector(model), np.arange(counted)
    padded = np.concatenate([batch, np.full(rows - counted, EMPTY)])
    tasks = [
        TrainingTask(model, records, clip=1.0, margin=SUM_MARGIN, method=method, rows=size)
        for size in (rows, counted)
    ]
    spent: list[list[float]] = [[], []]
    for _ in range(rounds + 1):
        for task, those, times in zip(tasks, (padded, batch), spent, strict=True):
            times.append(
                seconds(lambda task=task, those=those: task.clipped_sum(parameters, those))
            )
    first, second = (1e3 * median(times[1:]) for times in spent)
    return Ratio(
        model=name,
        method=method,
        records=mean,
        rows=rows,
        padded_ms=round(first, 2),
        unpadded_ms=round(second * mean / counted, 2),
        ratio=round(first / (second * mean / counted), 3),
    )


class Codes(torch.nn.Module):
    """A model of words, given its words as the float32 numbers that records are."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Logits (n, 10) of word numbers (n, 64)."""
        return self.model(codes.long())


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [ratio_of(*case, mean, options.rounds) for case in CASES for mean in MEANS]
    if options.write:
        write_table(TABLE, found)
    for one in found:
        print(json.dumps(asdict(one)) if options.json else one)


if __name__ == "__main__":
    main()
