"""Made-up patients in CSV files, and studies that train a model of them and ask how good it is."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from hubbub import Study

SILOS = ("north", "south", "east", "west")
COLUMNS: dict[str, Any] = {
    "age": {"low": 20, "high": 90},
    "sex": {"categories": ["F", "M"]},
    "ward": {"categories": ["a", "b", "c"], "feature": False},
}
TARGETS: dict[str, Any] = {
    "classes": "died",
    "numeric": {"column": "pressure", "kind": "numeric", "low": 0, "high": 100},
    "count": {"column": "visits", "kind": "count", "high": 12},
    "time-to-event": {
        "kind": "time-to-event",
        "time": "months",
        "event": "gone",
        "positive": ["1"],
        "negative": ["0"],
        "grid": [6, 12, 18, 24],
    },
}
BY = {"sex": "categories", "age": [60]}


def write_silos(folder: Path, number: int = 500, most: int = 0) -> None:
    """A CSV file for each silo; with `most`, of patients with up to so many rows and more."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(SILOS):
        rng = np.random.default_rng(seed)
        age = np.clip(rng.normal(58, 13, number), 20, 90).round(1)
        sex = rng.choice(["F", "M"], number)
        pull = (age - 58) / 13 + 0.8 * (sex == "M")
        died = (rng.random(number) < 1 / (1 + np.exp(1.2 - 1.3 * pull))).astype(int)
        months = rng.exponential(18 * np.exp(-0.6 * pull)).round(1)
        lost = rng.exponential(40, number).round(1)
        rows = {
            "age": age,
            "sex": sex,
            "ward": rng.choice(["a", "b", "c", ""], number),
            "died": died,
            "pressure": (45 + 12 * pull + 10 * rng.standard_normal(number)).round(1),
            "visits": rng.poisson(np.exp(0.4 + 0.4 * pull)),
            "months": np.minimum(months, lost),
            "gone": (months <= lost).astype(int),
            "who": rng.integers(0, number // max(most, 1), number),
            "stage": np.array(["I", "II", "III"])[
                (pull[:, None] + rng.logistic(size=(number, 1)) > [0, 1.5]).sum(axis=1)
            ],
        }
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(rows)
            writer.writerows(zip(*rows.values(), strict=True))


def table_of(folder: Path, kind: str = "classes", **changed: Any) -> dict[str, Any]:
    """A study's tables; `changed` replaces keys of them."""
    outputs = {"outputs": 4} if kind == "time-to-event" else {}
    made: dict[str, Any] = {
        "study": {"name": f"scores of {kind}", "transcript": "full"},
        "parties": {"names": list(SILOS), "colluders": 1},
        "data": {
            "files": f"{folder}/{{name}}.csv",
            "target": TARGETS[kind],
            "columns": COLUMNS,
            "records": 2000,
        },
        "model": {"kind": "logistic", **outputs},
        "training": {"steps": 30, "sampling": "full-batch"},
        "privacy": {"epsilon": 8.0, "delta": 1e-5},
        "validation": {"epsilon": 4.0, "records": "held-back", "holdout": 0.3},
    }
    for name, keys in changed.items():
        made[name] = {**made.get(name, {}), **keys}
    return made


def study_of(folder: Path, kind: str = "classes", **changed: Any) -> Study:
    """The study."""
    return Study.from_table(table_of(folder, kind, **changed))
