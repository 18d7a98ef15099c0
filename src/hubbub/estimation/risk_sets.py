"""Who is at risk and who has the event, bin by bin and group by group, from prefix-coded blocks.

A record's block lies in the place of its group and is one column of a code: of the events, where it
had the event in a bin, else of the leavings, where it was last seen in a bin or after the horizon.
Bins are coded from the last to the first, so that the number at risk, which is all that follow, is
a running total: its noise is small where few are left.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import StudyError
from hubbub.estimation.prefix_coding import PrefixCode
from hubbub.estimation.statistic import Array, Cells, OneSum, one_hot
from hubbub.tabular import Column


@dataclass(frozen=True, kw_only=True)
class RiskSets:
    """Times to an event on a public grid.

    Args:
        time: a numeric column: how long a record was followed.
        event: a column of two categories; the second says that the time ended with the event.
        edges: increasing edges of the bins in the unit of the time, the horizon last; a time equal
            to an edge belongs to the bin below it, and one below the first edge to the first bin.
        groups: how many groups there are.
        power: of the prefix code; .3 is best for curves, more for sums over all bins.

    Raises:
        StudyError: edges outside of the bounds or not increasing, or an event that is no such
            column.
    """

    time: Column
    event: Column
    edges: tuple[float, ...]
    groups: int = 1
    power: float = 0.3

    def __post_init__(self) -> None:
        """Refuses a grid or an event that is none."""
        high = self.time.bounds[1]
        if len(self.edges) < 3 or min(np.diff(self.edges)) <= 0:
            raise self._refusal("at least three increasing edges", list(self.edges))
        if self.edges[-1] > high:
            raise self._refusal(f"edges up to {high:g}", list(self.edges))
        if len(self.event.categories) != 2:
            raise self._refusal("an event of two categories", self.event.name)

    @property
    def bins(self) -> int:
        """How many bins there are up to the horizon."""
        return len(self.edges) - 1

    @property
    def width(self) -> int:
        """How many numbers a group has."""
        return 2 * self.bins + 1

    @property
    def size(self) -> int:
        """How many numbers a block has."""
        return self.width * self.groups

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23)."""
        return self._leaving.sensitivity

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return math.sqrt(2.0) * self.sensitivity

    def encode(self, cells: Cells, group: NDArray[np.int64]) -> Array:
        """The blocks of n records, (n, size); zeros where time, event or group is missing."""
        place, died, seen = self._seen(cells)
        known = (group >= 0) & seen
        event = known & died
        blocks = np.column_stack(
            [
                self._events.encode(np.where(event, self.bins - 1 - place, -1)),
                self._leaving.encode(np.where(known & ~event, self.bins - place, -1)),
            ]
        )
        stacked = np.zeros((len(blocks), self.groups, self.width))
        rows = np.flatnonzero(known)
        stacked[rows, group[rows]] = blocks[rows]
        return stacked.reshape(len(blocks), self.size)

    def followed(self, cells: Cells) -> tuple[Array, Array]:
        """(n, bins) 1 in the bin of the event; and what part of each bin a record was at risk.

        Half of the bin of its event: times may be rounded to the grid.
        """
        place, died, known = self._seen(cells)
        event = one_hot(np.where(died, place, -1), self.bins)
        starts, ends = np.asarray(self.edges[:-1]), np.asarray(self.edges[1:])
        times = np.where(known, cells[self.time.name], starts[0])[:, None]
        present = np.clip((np.clip(times, starts[0], ends[-1]) - starts) / (ends - starts), 0, 1)
        return event, np.where(event > 0, 0.5, present)

    def _seen(self, cells: Cells) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
        """The bin of each record's time, whether it had the event there; what is known at all."""
        low, high = self.time.bounds
        times, ended = np.clip(cells[self.time.name], low, high), cells[self.event.name]
        place = np.searchsorted(np.asarray(self.edges[1:]), times, side="left")
        died = (ended >= 1) & (ended < 2)
        known = ~np.isnan(times) & (died | ((ended >= 0) & (ended < 1)))
        return place, known & died & (place < self.bins), known

    @cached_property
    def events(self) -> Array:
        """(bins, width): from a group's coded sum to its events in each bin."""
        rows = self._events.counts[::-1]
        return np.hstack([rows, np.zeros((self.bins, self.bins + 1))])

    @cached_property
    def at_risk(self) -> Array:
        """(bins + 1, width): to the records at risk at the start of each bin and at the horizon."""
        deaths = np.vstack([self._events.totals[::-1], np.zeros(self.bins)])
        return np.hstack([deaths, self._leaving.totals[::-1]])

    @property
    def _events(self) -> PrefixCode:
        return PrefixCode(bins=self.bins, power=self.power)

    @property
    def _leaving(self) -> PrefixCode:
        return PrefixCode(bins=self.bins + 1, power=self.power)

    def _refusal(self, expected: str, found: object) -> StudyError:
        return StudyError(
            f"expected {expected} for times in column {self.time.name}, found {found}; correct it"
        )


class OnRiskSets(OneSum):
    """A statistic whose block is that of risk sets."""

    @property
    @abstractmethod
    def sets(self) -> RiskSets:
        """How its times are summed."""

    @property
    def size(self) -> int:
        """How many numbers its block has."""
        return self.sets.size

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23)."""
        return self.sets.sensitivity

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return self.sets.diameter
