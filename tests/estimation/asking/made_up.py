"""Made-up patients in CSV files, and a study that asks about them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from hubbub import Study

SILOS = ("north", "south", "east")
COLUMNS: dict[str, Any] = {
    "age": {"low": 20, "high": 90},
    "sex": {"categories": ["female", "male"], "missing": ["?"]},
    "stage": {"categories": ["I", "II", "III"]},
    "months": {"low": 0, "high": 60},
    "died": {"categories": ["no", "yes"]},
}
KINDS: dict[str, dict[str, Any]] = {
    "table": {"kind": "table", "columns": ["age", "sex"], "by": "stage"},
    "histogram": {"kind": "histogram", "column": "age", "bins": 7},
    "quantiles": {"kind": "quantiles", "column": "age", "at": [0.5]},
    "crosstab": {"kind": "crosstab", "rows": "sex", "columns": "stage", "test": "chi-square"},
    "survival": {
        "kind": "survival",
        "time": "months",
        "event": "died",
        "by": "sex",
        "bins": 6,
        "horizon": 48,
        "test": "log-rank",
    },
    "logistic": {
        "kind": "logistic",
        "outcome": "died",
        "covariates": {"age": [50], "sex": "categories"},
    },
    "linear": {
        "kind": "linear",
        "outcome": "age",
        "covariates": {"sex": "categories", "months": "number"},
    },
    "cox": {
        "kind": "cox",
        "time": "months",
        "event": "died",
        "bins": 6,
        "covariates": {"sex": "categories"},
    },
    "cox on numbers": {
        "kind": "cox",
        "time": "months",
        "event": "died",
        "bins": 6,
        "covariates": {"age": "number", "sex": "categories"},
    },
}


def patients(seed: int, number: int = 400) -> dict[str, list[Any]]:
    """One silo's table; some cells are missing."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(58, 12, number), 15, 95).round(1)
    sex = rng.choice(["female", "male", "?"], number, p=[0.45, 0.5, 0.05])
    stage = rng.choice(["I", "II", "III"], number, p=[0.5, 0.3, 0.2])
    died_at = rng.exponential(np.where(sex == "male", 30.0, 60.0))
    left_at = rng.uniform(10, 60, number)
    return {
        "age": age.tolist(),
        "sex": sex.tolist(),
        "stage": stage.tolist(),
        "months": np.minimum(died_at, left_at).round(1).tolist(),
        "died": np.where(died_at <= left_at, "yes", "no").tolist(),
    }


def write_silos(folder: Path) -> None:
    """A CSV file for each silo."""
    for seed, name in enumerate(SILOS):
        table = patients(seed)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))


def table_of_study(folder: Path, **asked: dict[str, Any]) -> dict[str, Any]:
    """The study as `Study.from_table` takes it."""
    return {
        "study": {"name": "made up", "transcript": "full"},
        "parties": {"names": list(SILOS), "colluders": 0},
        "data": {
            "files": str(folder / "{name}.csv"),
            "columns": COLUMNS,
            "records": 400 * len(SILOS),
        },
        "privacy": {"epsilon": 8.0, "delta": 1e-5},
        "statistics": asked or {"baseline": KINDS["table"]},
    }


def study(folder: Path, **asked: dict[str, Any]) -> Study:
    """The study that asks about silos' files in a folder."""
    return Study.from_table(table_of_study(folder, **asked))
