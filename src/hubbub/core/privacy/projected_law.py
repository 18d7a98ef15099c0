"""The privacy-loss law of a step that is seen through a public random projection (P8).

Given the projection the pair is `Removal`'s; by how much it moves the mean is drawn with public
weights, and shown. Written in c = log of the density of N(m) over that of N(0), the densities of
all shifts m are functions of |c| but for one factor, so the work on a loss is shared by all of
them. This file knows one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy.laws import Removal, log_odds, loss_at
from hubbub.core.privacy.normal import (
    INV_SQRT_2PI,
    NARROW,
    gauss,
    masses_between,
    rising,
    upper_point,
)

Array = NDArray[np.float64]
Cells = NDArray[np.int64]

WIDER = (12, 2.5)  # as `normal.NARROW`: tails of many shifts take long one by one
_TOGETHER, _ALIKE = 16, 1.25  # neighbouring shifts: how many, and how far apart
_FAR = 40.0  # standard deviations, beyond which a float holds no mass
_BLOCK = 1 << 15  # numbers at a time: what the cache of a core holds


@dataclass(frozen=True, kw_only=True)
class ProjectedRemoval:
    """With weight w_i, shown: P = (1 - rate) N(0) + rate N(shift_i), Q = N(0); shifts rise."""

    rate: float
    shifts: tuple[float, ...]
    weights: tuple[float, ...]
    atom: float = 0.0
    missing: float = 0.0

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        odds = log_odds(edges, self.rate)
        absent, present = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
        for some in self._alike():
            without, with_it = self._of_some(odds, some)
            absent, present = absent + without, present + with_it
        return (1 - self.rate) * absent + self.rate * present, absent

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        shifts, weights = self._columns
        heaviest = self._of(int(np.argmax(weights))).quantiles(tail, count)
        tails = np.minimum(tail / np.maximum(weights, tail), 0.01)
        reach = np.array([upper_point(one) for one in tails])
        there = np.array([upper_point(min(one / self.rate, 0.5)) for one in tails])
        ends = np.array([-reach, np.maximum(reach, shifts + there)])
        losses = loss_at(ends * shifts - shifts**2 / 2, self.rate)
        low, high = losses[0].min(), losses[1].max()
        # Where only the other shifts reach, even steps: they may reach ten times as far.
        below = np.linspace(min(low, heaviest[0]), heaviest[0], count // 8)
        above = np.linspace(heaviest[-1], max(high, heaviest[-1]), count // 8)
        return rising(np.concatenate([below, heaviest, above]))

    @cached_property
    def _columns(self) -> tuple[Array, Array]:
        return np.array(self.shifts), np.array(self.weights)

    def _of(self, index: int) -> Removal:
        return Removal(rate=self.rate, shift=self.shifts[index])

    def _alike(self) -> Iterator[slice]:
        """Runs of neighbouring shifts: a cell is then about as wide for all of them."""
        first, shifts = 0, self._columns[0]
        while first < shifts.size:
            alike = int(np.searchsorted(shifts, _ALIKE * shifts[first], side="right"))
            last = min(alike, first + _TOGETHER)
            yield slice(first, last)
            first = last

    def _of_some(self, odds: Array, some: slice) -> tuple[Array, Array]:
        """Weighted masses of N(0) and of N(shift) between edges, added up over some shifts."""
        shifts, weights = (column[some] for column in self._columns)
        absent, present = np.zeros(odds.size - 1), np.zeros(odds.size - 1)
        with np.errstate(invalid="ignore"):
            across = odds[:-1] * odds[1:] <= 0
            seen = across | (_least_size(odds) < (_FAR + shifts[-1] / 2) * shifts[-1])
            centre, radius = (odds[:-1] + odds[1:]) / 2, np.diff(odds) / 2
            # The largest, over these shifts and both means, of `normal.masses_between`'s extents.
            extent = radius * (np.abs(centre) / shifts[0] ** 2 + 2 / shifts[0] + 0.5)
        least = -1.0
        for nodes, most in (*NARROW, WIDER):
            narrow = np.flatnonzero((extent > least) & (extent <= most) & seen)
            for cells in _blocks(narrow, shifts.size):
                losses = _narrow(centre[cells], radius[cells], nodes, shifts, weights)
                absent[cells], present[cells] = losses
            least = most
        wide = np.flatnonzero(~(extent <= least) & seen)
        left, right = (odds[wide + end, None] / shifts + shifts / 2 for end in (0, 1))
        absent[wide] = masses_between(left, right, np.zeros_like(shifts)) @ weights
        present[wide] = masses_between(left, right, shifts) @ weights
        return absent, present


def _least_size(odds: Array) -> Array:
    """Of both ends of each interval."""
    size = np.abs(odds)
    return np.minimum(size[:-1], size[1:])


def _blocks(cells: Cells, each: int) -> list[Cells]:
    """The cells in parts that are quickly worked on."""
    return np.array_split(cells, cells.size * each // _BLOCK + 1)


def _narrow(
    centre: Array, radius: Array, nodes: int, shifts: Array, weights: Array
) -> tuple[Array, Array]:
    """Gauss-Legendre sums over [centre - radius, centre + radius] of both weighted densities.

    At c the larger of them is exp(-(|c| / m - m / 2)^2 / 2), and the other is e^-|c| of it.
    """
    scaled = weights / shifts * INV_SQRT_2PI
    absent, present = np.zeros_like(centre), np.zeros_like(centre)
    for node, weight in gauss(nodes):
        point = centre + radius * node
        size = np.abs(point)
        away = size[:, None] / shifts - shifts / 2
        larger = weight * radius * (np.exp(-0.5 * away * away) @ scaled)
        smaller = larger * np.exp(-size)
        absent += np.where(point > 0, smaller, larger)
        present += np.where(point > 0, larger, smaller)
    return absent, present
