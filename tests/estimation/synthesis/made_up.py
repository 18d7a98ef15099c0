"""Columns, cells and studies of no real people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.cells import csv_text
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.synthesis.design import CodedColumn, Design

Array = NDArray[np.float64]


def numeric(name: str, levels: int, *, complete: bool = True) -> CodedColumn:
    """A column from 0 to 1 in so many ranges."""
    column = Column(name=name, low=0.0, high=1.0, complete=complete)
    cuts = tuple(k / levels for k in range(1, levels))
    return CodedColumn(levels=Levels(column=column, cuts=cuts), complete=complete)


def categorical(name: str, levels: int, *, complete: bool = True) -> CodedColumn:
    """A column with so many categories."""
    column = Column(
        name=name, categories=tuple(f"{name}{k}" for k in range(levels)), complete=complete
    )
    return CodedColumn(levels=Levels(column=column), complete=complete)


def design_of(
    *columns: CodedColumn, targets: tuple[int, ...] = (), relation: str = "add-remove"
) -> Design:
    """Three sums of these columns."""
    return Design(columns=columns, targets=targets, rounds=3, relation=relation)


def dependent(records: int, seed: int = 0) -> tuple[Design, dict[str, Array]]:
    """Records in which y follows from a, b from a, and c from nothing."""
    rng = np.random.default_rng(seed)
    a = rng.beta(2, 3, records)
    b = (rng.random(records) < 0.15 + 0.7 * a).astype(float)
    c = rng.random(records)
    y = (rng.random(records) < 0.1 + 0.5 * a).astype(float)
    columns = (numeric("a", 6), categorical("b", 2), numeric("c", 5), categorical("y", 2))
    cells: dict[str, Array] = {"a": a, "b": b, "c": c, "y": y}
    return design_of(*columns, targets=(3,)), cells


def exact_tables(design: Design, cells: Mapping[str, Array]) -> dict[tuple[int, int], Array]:
    """The true shares of every pair's cells."""
    places = [one.places(cells) for one in design.columns]
    found = {}
    for a, b in design.pairs:
        table = np.zeros((design.columns[a].size, design.columns[b].size))
        np.add.at(table, (places[a], places[b]), 1.0)
        found[a, b] = table / table.sum()
    return found


STUDY = """
study.name = "made-up"
study.transcript = "full"
parties = {names = ["north", "south", "west"], colluders = 1}
privacy = {epsilon = 4.0, delta = 1e-5}
[data]
files = "{name}.csv"
records = 900
[data.columns]
age = {low = 0, high = 100, complete = true}
sex = {categories = ["f", "m"], complete = true}
stage = {categories = ["i", "ii", "iii"]}
died = {categories = ["no", "yes"], complete = true}
[synthetic]
targets = ["died"]
bins = 5
"""


def write_silos(folder: Path, *, patients: bool = False) -> None:
    """Three files of 300 records."""
    for number, name in enumerate(("north", "south", "west")):
        rng = np.random.default_rng(number)
        age = rng.uniform(0, 100, 300)
        sex = rng.choice(["f", "m"], 300)
        stage = rng.choice(["i", "ii", "iii", ""], 300, p=[0.4, 0.3, 0.2, 0.1])
        died = np.where(rng.random(300) < age / 120, "yes", "no")
        rows = [["age", "sex", "stage", "died", *(["who"] if patients else [])]]
        for k in range(300):
            whose = [str(k // 2)] if patients else []
            rows.append([f"{age[k]:.1f}", str(sex[k]), str(stage[k]), str(died[k]), *whose])
        (folder / f"{name}.csv").write_text(csv_text(rows))
