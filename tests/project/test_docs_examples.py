"""Every example on the pages of statistics, validation and synthetic records does what it says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hubbub
from hubbub.core.planning.study_plan import plan

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("statistics", "validation", "synthetic")
# Columns that an example names and does not declare, as its text describes them.
COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"low": 30, "high": 90},
    "sex": {"categories": ["F", "M"]},
    "weight": {"low": 40, "high": 150},
    "treatment": {"categories": ["usual", "new"]},
    "months": {"low": 0, "high": 48},
    "days": {"low": 0, "high": 60},
    "died": {"categories": ["no", "yes"]},
    "infected": {"categories": ["no", "yes"]},
    "readmitted": {"categories": ["no", "yes"]},
    "responded": {"categories": ["no", "yes"]},
    "outcome": {"categories": ["none", "relapse", "death"]},
    "ward": {"categories": ["a", "b"]},
    "centre": {"categories": ["one", "two"]},
    "hospital": {"categories": ["one", "two", "three"]},
}
OF_MODEL = {"validation", "coefficients"}


def blocks(language: str) -> Iterator[Any]:
    """Every code block of a language that is whole, by its page and its place on it."""
    for page in PAGES:
        found = re.findall(
            rf"^```{language}\n(.*?)^```",
            (DOCS / f"{page}.md").read_text(),
            re.MULTILINE | re.DOTALL,
        )
        whole = [(k, one) for k, one in enumerate(found, 1) if ": ...\n" not in one]
        yield from (pytest.param(one, id=f"{page}-{k}") for k, one in whole)


def study_with(example: dict[str, Any]) -> hubbub.Study:
    """A study that has what an example has, and whatever else a study needs."""
    trained = bool(OF_MODEL & set(example))
    target = {"target": "dead", "positive": ["1"], "negative": ["0"]} if trained else {}
    data = {"files": "{name}.csv", "records": 100_000, "columns": COLUMNS, **target}
    made: dict[str, Any] = {
        "study": {"name": "of the docs"},
        "parties": {"names": ["north", "south", "west"], "colluders": 1},
        "data": data | example.pop("data", {}),
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        **example,
    }
    made["data"]["columns"] = COLUMNS | made["data"]["columns"]
    if trained:
        made |= {"model": {"kind": "logistic"}, "training": {"steps": 150, "sample_rate": 0.2}}
    return hubbub.Study.from_table(made)


@pytest.mark.quick_cases("synthetic-1", "synthetic-2", "statistics-2", "statistics-3")
@pytest.mark.parametrize("text", list(blocks("toml")))
def test_an_example_of_a_study_can_be_planned(text: str) -> None:
    assert plan(study_with(tomllib.loads(text))).stated.epsilon <= 2.0


def clinic(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age = rng.uniform(30, 90, 400)
    died = np.where(rng.random(400) < 1 / (1 + np.exp((60 - age) / 10)), "yes", "no")
    return {"age": age, "sex": rng.choice(["F", "M"], 400), "died": died}


def slope(table: Any) -> Any:
    """The regression of a reader's own, which the page calls by a name."""
    died = np.asarray(table["died"]) == "yes"
    return float(np.nanmean(np.asarray(table["age"], dtype=float)[died]))


@pytest.mark.quick_cases("synthetic-1")
@pytest.mark.parametrize("text", list(blocks("python")))
def test_an_example_in_python_runs(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import dataclass

    monkeypatch.chdir(tmp_path)
    names = ("north", "south", "west")
    silos = {name: clinic(len(text) + seed) for seed, name in enumerate(names)}
    made = hubbub.synthesize(
        {name: clinic(seed) for seed, name in enumerate(names)},
        columns={"age": {"low": 30, "high": 90}, "died": {"categories": ["no", "yes"]}},
        targets=["died"],
        epsilon=4,
        out="asked",
    )
    (run,) = Path("asked").glob("synthetic-*")
    Path("runs").mkdir()
    run.rename("runs/synthetic")
    known = {**silos, "hubbub": hubbub, "dataclass": dataclass}
    exec(text, known | {"made": made, "my_regression": slope, "table": made.draw(100)})  # noqa: S102
