"""By how much a score on the records of the training flatters the model.

    python -m experiments.validation_flattery [--small] [--runs 5]

Logistic models of made-up records are trained with the noise of a study (rehearsals, five silos of
which one may collude, delta 1e-5). The AUC on the records of the training, without noise, is held
against that on 20,000 fresh ones: "flattery" is the mean difference, "most" what `[validation]`
says that it may be at most, about.
"""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.command import fill, options_of, parser_of
from experiments.results import Table
from hubbub import Study
from hubbub.desk.report.comparison import rehearse
from hubbub.learning.queries.validation.layout import whose_records
from hubbub.learning.scoring import auc

Array = NDArray[np.float64]
SILOS, FRESH = 5, 20_000
KEY = ("records", "features", "epsilon")
COLUMNS = (*KEY, "runs", "flattery", "error", "most")
POINTS = ((600, 7, 1.0), (2600, 7, 1.0), (800, 53, 1.0), (800, 53, 4.0), (4000, 53, 1.0))


def drawn(records: int, features: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Features in [0, 1] and an outcome that a fifth of them pull."""
    x = rng.random((records, features))
    pull = np.where(np.arange(features) % 5 == 0, 1.5, 0.0) * np.where(
        np.arange(features) % 2, -1, 1
    )
    chance = 1 / (1 + np.exp(-(3 * (x - 0.5) @ pull - 0.8)))
    return x, (rng.random(records) < chance) * 1.0


def study_of(folder: Path, records: int, features: int, epsilon: float) -> Study:
    """The study of the files in a folder."""
    return Study.from_table(
        {
            "study": {"name": "flattery"},
            "parties": {"silos": SILOS, "colluders": 1},
            "data": {
                "files": f"{folder}/{{name}}.csv",
                "target": "y",
                "positive": ["1"],
                "negative": ["0"],
                "columns": {f"x{k}": {"low": 0, "high": 1} for k in range(features)},
                "records": records,
            },
            "model": {"kind": "logistic"},
            "training": {"steps": 60, "sample_rate": 0.2},
            "privacy": {"epsilon": epsilon, "delta": 1e-5},
            "validation": {"epsilon": epsilon / 4, "records": "training"},
        }
    )


def flattery(records: int, features: int, epsilon: float, seed: int) -> tuple[float, float]:
    """Of one model, and what is said of it."""
    rng = np.random.default_rng(seed)
    x, y = drawn(records, features, rng)
    fresh, came = drawn(FRESH, features, rng)
    names = [f"x{k}" for k in range(features)]
    with tempfile.TemporaryDirectory() as home:
        for silo, rows in enumerate(np.array_split(np.arange(records), SILOS), 1):
            with (Path(home) / f"silo-{silo}.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow([*names, "y"])
                writer.writerows(
                    [*row, int(one)] for row, one in zip(x[rows], y[rows], strict=True)
                )
        study = study_of(Path(home), records, features, epsilon)
        (result,) = rehearse(study, device="cpu")
    scores = [
        auc(result.predict(dict(zip(names, values.T, strict=True))), known)
        for values, known in ((x, y), (fresh, came))
    ]
    return scores[0] - scores[1], whose_records(study).flatters or math.nan


def measured(point: tuple[int, int, float], runs: int) -> dict[str, object]:
    """A row."""
    found = [flattery(*point, seed) for seed in range(runs)]
    apart = np.array([one for one, _ in found])
    return {
        "runs": runs,
        "flattery": float(apart.mean()),
        "error": float(apart.std(ddof=1) / math.sqrt(runs)),
        "most": found[0][1],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table."""
    parser = parser_of(__doc__ or "")
    parser.set_defaults(runs=5)
    options = options_of(parser, arguments)
    points = POINTS[:1] if options.small else POINTS
    fill(
        Table(path=Path(options.out) / "validation_flattery.csv", key=KEY, columns=COLUMNS),
        [dict(zip(KEY, point, strict=True)) for point in points],
        lambda number, _: measured(points[number], 2 if options.small else options.runs),
        module="experiments.validation_flattery",
        arguments=arguments,
    )


if __name__ == "__main__":
    main()
