"""Cells of drawn levels: a category, a number drawn evenly from its range, or a gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.synthesis.coding import CodedColumn

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
    drawn = edges[at] + (edges[at + 1] - edges[at]) * rng.random(len(places))
    digits = 4 - int(np.floor(np.log10(high - low)))
    missing = places >= len(coded.levels)
    cells = zip(np.round(drawn, digits).tolist(), missing, strict=True)
    return [None if gone else value for value, gone in cells]
