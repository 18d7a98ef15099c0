"""Which rows of a silo are one protected unit: those of one patient, up to a public number of them.

A unit has a place for each of that many rows. Places that a patient has no row for hold the
patient's first row once more, and count nothing; so a unit's shape is public, and nothing in it is
from anybody else (docs/privacy.md P21). This file knows numbers of rows, and no values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_PER_PATIENT = 1000  # as many as the accountant knows (P20)


@dataclass(frozen=True, kw_only=True, repr=False)
class UnitRows:
    """The rows of u units, each with k places.

    Args:
        rows: (u, k) numbers of rows.
        shares: (u, k) float32: the weight of a place in its unit's mean; they add up to 1, and are
            0 where a row stands once more.
    """

    rows: NDArray[np.intp]
    shares: NDArray[np.float32]

    def means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(u, ...): each unit's mean of what its rows have, (n, ...)."""
        found = np.einsum("uk,uk...->u...", self.shares.astype(np.float64), values[self.rows])
        return np.asarray(found)


def unit_rows(units: NDArray[np.intp], most: int) -> UnitRows:
    """The rows of each unit, in their order, and no more than `most` of them.

    >>> unit_rows(np.array([0, 1, 0]), 2).rows.tolist()
    [[0, 2], [1, 1]]

    Args:
        units: (n,) the number of each row's unit: every number from 0 on occurs.
        most: k, places of a unit.
    """
    counts = np.bincount(units)
    firsts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.intp)
    order = np.argsort(units, kind="stable")
    held = np.arange(most) < counts[:, None]
    place = np.where(held, np.arange(most), 0)
    shares = held / np.minimum(counts, most)[:, None]
    return UnitRows(rows=order[firsts[: len(counts), None] + place], shares=shares.astype("f4"))


def first_rows(units: NDArray[np.intp], most: int) -> NDArray[np.bool_]:
    """(n,): whether a row is among the first `most` of its unit, which its place alone decides.

    >>> first_rows(np.array([0, 1, 0, 0]), 2).tolist()
    [True, True, True, False]
    """
    order = np.argsort(units, kind="stable")
    ordered = units[order]
    turn = np.empty(len(units), dtype=np.intp)
    turn[order] = np.arange(len(units)) - np.searchsorted(ordered, ordered)
    return np.asarray(turn < most)


def numbered(names: NDArray[Any]) -> NDArray[np.intp]:
    """(n,): the number of each name among those that occur, from 0."""
    _, numbers = np.unique(names, return_inverse=True)
    return numbers.reshape(-1).astype(np.intp)
