"""Cells of drawn levels: a category, a number drawn evenly from its range, or a gap.

Of a column with a step one of the values in the range is drawn: whole numbers come out whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.synthesis.coding import CodedColumn

Table = dict[str, list[Any]]


def cells_of(columns: tuple[CodedColumn, ...], levels: NDArray[np.int64], seed: int) -> Table:
    """Levels as cells."""
    rng = np.random.default_rng(seed)
    return {one.name: _column(one, levels[:, k], rng) for k, one in enumerate(columns)}


def _column(coded: CodedColumn, places: NDArray[np.int64], rng: np.random.Generator) -> list[Any]:
    """The cells of one column: numbers are drawn evenly from their range."""
    if coded.levels.column.categories:
        return [None if k >= len(coded.levels) else coded.names[k] for k in places]
    low, high = coded.levels.column.bounds
    edges = np.array([low, *coded.levels.cuts, high])
    at = np.minimum(places, len(coded.levels) - 1)
    missing, column = places >= len(coded.levels), coded.levels.column
    if column.step:
        firsts = np.array([0, *map(column.steps_below, coded.levels.cuts), column.steps + 1])
        steps = rng.integers(firsts[at], firsts[at + 1])
        values = [column.at_step(int(step)) for step in steps]
    else:
        drawn = edges[at] + (edges[at + 1] - edges[at]) * rng.random(len(places))
        values = np.round(drawn, 4 - int(np.floor(np.log10(high - low)))).tolist()
    return [None if gone else value for value, gone in zip(values, missing, strict=True)]
