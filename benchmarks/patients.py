"""Clipped sums of patients against the same rows as units of their own.

    python -m benchmarks.patients [--models A2,B] [--rounds 15] [--threads 1] [--write]

Both are a silo's sum over all its records, as a run makes it (`TrainingTask`); times are the least
over interleaved rounds in one process, and the ratio is of processor time. The models are those of
learning.py. Every patient has as many rows as a patient may have.

Asked for: at most 1.3 times the time of the rows, for every model. Seen with one thread on an Intel
Xeon (results/patients.csv): 1.10 to 1.24 for A2 and B, up to 1.37 for C, less than 1 for D and E.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.learning import made, spent
from benchmarks.result_table import write_table
from hubbub.core.tabular.records import Records
from hubbub.learning import TrainingTask, parameters_vector, per_unit_model

TABLE = Path(__file__).parent / "results" / "patients.csv"
ROWS = {"A2": 480, "B": 480, "C": 60, "D": 60, "E": 480}
OF_EACH = (2, 3, 5, 10)  # rows of a patient
MARGIN = 0.75 * 2.0**-8  # that a plan leaves to the rounding of sums


def runner(name: str, of_each: int) -> Callable[[], object]:
    """The sum over all rows; as units of their own where `of_each` is 0."""
    case = made(name, ROWS[name])
    patients = np.arange(ROWS[name]) // of_each if of_each else None
    records = Records(
        inputs=case.inputs.float().numpy(), targets=case.targets.numpy(), patients=patients
    )
    model = Codes(case.model) if name == "D" else case.model
    task = TrainingTask(
        per_unit_model(model, of_each), records, clip=1.0, margin=MARGIN, method="auto"
    )
    parameters, rows = parameters_vector(model), np.arange(task.count)
    return lambda: task.clipped_sum(parameters, rows)


class Codes(torch.nn.Module):
    """A model of words whose records are numbers, as records are."""

    def __init__(self, words: torch.nn.Module) -> None:
        super().__init__()
        self.words = words

    def forward(self, codes: torch.Tensor) -> Any:
        """As the model of words."""
        return self.words(codes.long())


def measured(name: str, rounds: int) -> list[dict[str, object]]:
    """Of all sizes, interleaved."""
    runs = {of_each: runner(name, of_each) for of_each in (0, *OF_EACH)}
    times: dict[int, list[Any]] = {of_each: [] for of_each in runs}
    for turn in range(rounds + 1):
        for of_each, run in runs.items():
            found = spent(run)
            times[of_each] += [found] if turn else []
    least = {k: (min(t.wall for t in v), min(t.cpu for t in v)) for k, v in times.items()}
    return [
        {
            "model": name,
            "rows": ROWS[name],
            "rows of a patient": of_each or "units",
            "ms": round(wall, 3),
            "cpu_ms": round(cpu, 3),
            "of units": round(cpu / least[0][1], 3),
        }
        for of_each, (wall, cpu) in least.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="keep the table in results/")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row for name in options.models.split(",") for row in measured(name, options.rounds)]
    for row in rows:
        print("  ".join(f"{value!s:>10}" for value in row.values()))
    if options.write:
        rows = [row | {"threads": options.threads, "torch": torch.__version__} for row in rows]
        write_table(TABLE, rows, of="model", order=list(ROWS))


if __name__ == "__main__":
    main()
