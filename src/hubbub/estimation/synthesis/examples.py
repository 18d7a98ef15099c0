"""Noisy sums of made-up records, for examples and tests."""

from __future__ import annotations

import numpy as np

from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Levels
from hubbub.estimation.synthesis.coding import CodedColumn
from hubbub.estimation.synthesis.design import Design
from hubbub.estimation.synthesis.release import SyntheticData


def example() -> SyntheticData:
    """Of 2,000 made-up records with three columns."""
    rng = np.random.default_rng(0)
    age, sex = rng.uniform(20, 90, 2000), rng.integers(0, 2, 2000)
    died = rng.random(2000) < age / 200
    cells = {"age": age, "sex": sex.astype(float), "died": died.astype(float)}
    columns = (
        (Column(name="age", low=20, high=90, complete=True), (30.0, 40.0, 50.0, 60.0, 70.0, 80.0)),
        (Column(name="sex", categories=("f", "m"), complete=True), ()),
        (Column(name="died", categories=("no", "yes"), complete=True), ()),
    )
    coded = tuple(
        CodedColumn(levels=Levels(column=one, cuts=cuts), complete=True) for one, cuts in columns
    )
    design = Design(columns=coded, targets=(2,), rounds=3, relation="add-remove")
    return released(design, cells, sigma=5.0, seed=1)


def released(
    design: Design, cells: dict[str, np.ndarray], *, sigma: float, seed: int
) -> SyntheticData:
    """All sums of some records, with noise from a generator that is no secret."""
    rng, parameters, sums = np.random.default_rng(seed), design.start, []
    for _ in range(design.rounds):
        exact = design.sum(cells, parameters)
        sums.append(exact + rng.normal(0.0, sigma, design.size))
        parameters = design.update(sums, sigma, parameters)
    return SyntheticData(design=design, sums=np.array(sums), sigma=sigma)
