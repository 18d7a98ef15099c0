"""Counts in ordered bins whose running totals have little noise, and risk sets made of them.

Theory of operation (after Henzinger, Upadhyay, Upadhyay 2023 and Fichtenberger et al. 2023). F is
the lower triangular Toeplitz matrix whose entries are the coefficients of (1 - x)^-a. Records are
summed as F counts, with independent noise; F^-1 has the coefficients of (1 - x)^a, and running
totals are L F^-1 of the coded sum, with those of (1 - x)^(a - 1). Plain counts are a = 0, plain
totals a = 1; between them both the length of a column of F, which is the sensitivity, and the noise
of a total grow like a logarithm only.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation.stacking import Margin, Margins, number_of, of_parts
from hubbub.estimation.statistic import OneSum, Statistic, one_hot


@dataclass(frozen=True, kw_only=True)
class PrefixCode:
    """A code for counts in so many bins.

    Args:
        bins: how many.
        power: a, between 0 and 1.
    """

    bins: int
    power: float

    @cached_property
    def matrix(self) -> Array:
        """(bins, bins): F."""
        return _lower(self.power, self.bins)

    @cached_property
    def counts(self) -> Array:
        """(bins, bins): F^-1, from a coded sum to counts."""
        return _lower(-self.power, self.bins)

    @cached_property
    def totals(self) -> Array:
        """(bins, bins): L F^-1, from a coded sum to running totals."""
        return _lower(1.0 - self.power, self.bins)

    @property
    def sensitivity(self) -> float:
        """Length of the longest column of F, the first: no other has more entries."""
        return float(np.linalg.norm(self.matrix[:, 0]))

    @property
    def diameter(self) -> float:
        """The largest distance of two columns of F, or of one and nothing at all."""
        gram = self.matrix.T @ self.matrix
        lengths = np.diag(gram)
        widest = float(np.max(lengths[:, None] + lengths[None, :] - 2.0 * gram))
        return max(math.sqrt(max(widest, 0.0)), self.sensitivity)

    def encode(self, places: NDArray[np.int64]) -> Array:
        """(n, bins): each record's column of F; zeros for places below 0, looked up as the rest."""
        return np.asarray(self._columns[np.where(places < 0, self.bins, places)])

    @cached_property
    def _columns(self) -> Array:
        """(bins + 1, bins): each column of F, and zeros."""
        return np.vstack([self.matrix.T, np.zeros(self.bins)])


def _lower(power: float, size: int) -> Array:
    """The Toeplitz matrix of (1 - x)^-power."""
    steps = np.arange(1, size)
    column = np.concatenate([[1.0], np.cumprod((steps - 1.0 + power) / steps)])
    below = np.subtract.outer(np.arange(size), np.arange(size))
    return np.asarray(np.where(below >= 0, column[np.maximum(below, 0)], 0.0))


def rising(values: Array, weights: Array | None = None) -> Array:
    """The non-decreasing values that are nearest in squares: neighbours that fall are pooled."""
    from scipy.optimize import isotonic_regression  # which takes long to import

    return np.asarray(isotonic_regression(values, weights=weights).x)


def rising_limits(
    values: Array, per: Array, noise: Array, variance: Array, z: float
) -> tuple[Array, Array]:
    """Lower and upper limits of what rises, at z standard deviations, rising too.

    A limit lies where its own uncertainty would reach the value. Limits that fall are pooled, those
    of little variance most: running extremes would hold less often than said, as each has noise of
    its own.

    Args:
        values: as they were found, which may fall.
        per: variance by drawing records, for each unit of a value.
        noise: variance by noise.
        variance: by both.
    """
    middle = values + z * z * per / 2
    root = np.sqrt(np.maximum(z * z * noise + middle**2 - values**2, 0.0))
    weights = 1.0 / np.maximum(variance, 1e-300)
    return rising(middle - root, weights), rising(middle + root, weights)


# Who is at risk and who has the event, bin by bin and group by group, from prefix-coded blocks.
#
# A record's block lies in the place of its group and is a column of a code: of the events, where it
# had the event in a bin, else of the leavings, where it was last seen after the horizon. Bins are
# coded from the last to the first, so that the number at risk, which is all that follow, is a
# running total: its noise is small where few are left.
#
# Who left after a part u of a bin was at risk for that part. Its column is u times that of the bin
# and 1 - u times that of the bin before, which is no longer than the longer of the two. It is
# shorter by so much that 2 u (1 - u) can be told beside it for nothing, and, in the first bin, 1 -
# u: where numbers at risk at the edges are wanted, they say how many of those who left are counted
# in part.
#
# Where times are whole steps, such as visits, edges lie on them, and of a bin that holds J values
# who left at its j-th was at risk for j / J: all of a bin whose only value is its end.
#
# Who comes under observation late (left truncation) was not at risk before. When that was is told
# as a leaving is, in a place of its own, and what follows from it is taken off. These numbers are
# halved: they bear on who is at risk alone, whose noise hardly moves a hazard, so that a vector
# 1.12 times as long, and not 1.41 times, tells more.

_ENTRIES = 0.5  # what times of entry are multiplied by
_FROM_START = 0.1  # of late entries, guessed: so many are none; others come up to the middle


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
        counted: whether the numbers at risk at the edges are told, too.
        causes: how many kinds of event there are: the classes of `event` but the first. Each has a
            code of its own, of which a record is in one, if in any (docs/privacy.md P28).
        entry: a numeric column, on the scale of the time: since when a record was observed. Its
            lower bound is the first edge. Who left before, or just then, is left out.
        at: times at which curves are told, which are edges, too.

    Raises:
        StudyError: edges outside of the bounds or not increasing, or an event or entry that is no
            such column.
    """

    time: Column
    event: Column
    edges: tuple[float, ...]
    groups: int = 1
    power: float = 0.3
    counted: bool = False
    causes: int = 1
    entry: Column | None = None
    at: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        high = self.time.bounds[1]
        if len(self.edges) < 3 or min(np.diff(self.edges)) <= 0:
            raise self._refusal("at least three increasing edges", list(self.edges))
        if len(self.grid) < 3:
            two = f"two whole steps of {self.time.step:g} or more up to the horizon"
            raise self._refusal(two, list(self.edges))
        if self.edges[-1] > high:
            raise self._refusal(f"edges up to {high:g}", list(self.edges))
        start, at = self.edges[0], list(self.at)
        if (
            any(a >= b for a, b in pairwise([start, *at]))
            or max(self.at, default=0) > self.edges[-1]
        ):
            raise StudyError(
                f"expected rising times above {start:g} and up to the horizon "
                f"{self.edges[-1]:g}, found {at}; correct at"
            )
        if len(self.event.categories) != 1 + self.causes:
            kinds = "two" if self.causes == 1 else "three or more"
            raise self._refusal(f"an event of {kinds} categories", self.event.name)
        if self.entry and (self.entry.name == self.time.name or self.entry.bounds[0] < 0):
            raise self._refusal("an entry of another column, from 0 on", self.entry.name)

    @cached_property
    def grid(self) -> tuple[float, ...]:
        """The edges of its bins: those that are stated, with `at`, each moved back to a step."""
        start, *inner = sorted({*self.edges, *self.at})
        column, least = self.time, 1e-9 * (self.edges[-1] - start)
        edges = [start]
        for edge in inner:
            end = column.at_step(int(self.clock(np.array(edge))) - 1) if column.step else edge
            if end > edges[-1] + least:
                edges.append(end)
        return tuple(edges)

    def clock(self, times: Array) -> Array:
        """Times on a scale on which who leaves and who has the event is spread evenly in a bin.

        With a step, how many values of the column lie up to each.
        """
        if not self.time.step:
            return np.asarray(times, dtype=np.float64)
        passed = np.floor((times - self.time.bounds[0]) / self.time.step + 1e-6)
        return np.asarray(np.clip(passed, -1.0, self.time.steps) + 1)

    @cached_property
    def ticks(self) -> Array:
        """(bins + 1,) the edges on its clock."""
        return self.clock(np.asarray(self.grid))

    @cached_property
    def values(self) -> Array:
        """(bins,) J: how many values of the time each bin holds; infinite without a step."""
        if not self.time.step:
            return np.full(self.bins, np.inf)
        return np.asarray(np.maximum(np.diff(self.ticks), 1.0))

    @property
    def since(self) -> str:
        """What a title says of late entries."""
        return f", observed since {self.entry.name}" if self.entry else ""

    @property
    def between(self) -> str:
        """How times are taken to lie between edges."""
        if self.time.step:
            return f"{self.time.name} is rounded to whole steps of {self.time.step:g}"
        return "between grid times the curve is interpolated"

    @property
    def entered(self) -> Array:
        """(bins + 1,) the part of records guessed to be observed: all but where they enter late."""
        places = np.arange(self.bins + 1) / self.bins
        late = np.minimum(_FROM_START + (2 - 2 * _FROM_START) * places, 1.0)
        return np.asarray(late if self.entry else np.ones(self.bins + 1))

    @property
    def taken(self) -> str:
        """What an expectation takes for granted."""
        entered = " and a tenth there from the start" if self.entry else ""
        return f", if a third of the records are followed so far{entered}"

    @property
    def needed(self) -> str:
        """Cells without which a record is left out."""
        entry = f", {self.entry.name} (or left observation before it)" if self.entry else ""
        return f"{self.time.name}, {self.event.name}{entry}"

    @property
    def bins(self) -> int:
        """How many bins there are up to the horizon."""
        return len(self.grid) - 1

    @property
    def width(self) -> int:
        """How many numbers a group has."""
        leaving = (self.bins + 1) * (1 + self.counted)
        return self.causes * self.bins + leaving * (2 if self.entry else 1)

    @property
    def size(self) -> int:
        """How many numbers a block has."""
        return self.width * self.groups

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23, P34)."""
        entries = _ENTRIES if self.entry else 0.0
        return self._leaving.sensitivity * math.hypot(1.0, entries)

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23, P34)."""
        return math.sqrt(2.0) * self.sensitivity

    def encode(self, cells: Cells, group: NDArray[np.int64]) -> Array:
        """The blocks of n records, (n, size); zeros where time, event or group is missing."""
        place, part, died, known, cause = self._seen(cells)
        event, left = known & died, known & ~died
        blocks = [
            *(
                self._events.encode(np.where(event & (cause == one), self.bins - 1 - place, -1))
                for one in range(self.causes)
            ),
            *self._gone(np.where(left, place, -1), part),
        ]
        if self.entry:
            entries = np.clip(cells[self.entry.name], *self.entry.bounds)
            since, part = self._placed(entries)
            late = known & (entries > self.grid[0])
            blocks += [_ENTRIES * one for one in self._gone(np.where(late, since, -1), part)]
        own = one_hot(np.where(known, group, -1), self.groups)[:, :, None]
        stacked = np.where(own > 0, np.column_stack(blocks)[:, None, :], 0.0)
        return stacked.reshape(len(place), self.size)

    def _gone(self, place: NDArray[np.int64], part: Array) -> list[Array]:
        """What is told of leavings, or of entries; nothing of those without a place."""
        told = [self._left(place, part)]
        return [*told, self._partly(place, part)] if self.counted else told

    def _left(self, place: NDArray[np.int64], part: Array) -> Array:
        """(n, bins + 1) between the columns of a leaving's bin and of the one before."""
        whole = self._leaving.encode(np.where(place >= 0, self.bins - place, -1))
        before = self._leaving.encode(np.where(place >= 1, self.bins - place + 1, -1))
        return np.asarray(part[:, None] * whole + (1.0 - part)[:, None] * before)

    def _partly(self, place: NDArray[np.int64], part: Array) -> Array:
        """(n, bins + 1) what is missing of those who left in the first bin; 2 u (1 - u) by bin."""
        missing = np.where(place == 0, 1.0 - part, 0.0)
        by_bin = one_hot(np.where(place < self.bins, place, -1), self.bins)
        return np.column_stack([missing, by_bin * (2.0 * part * (1.0 - part))[:, None]])

    def followed(self, cells: Cells) -> tuple[Array, Array]:
        """(n, bins) 1 in the bin of the event; and what part of each bin a record was at risk.

        Half of the bin of an event at its end: times may be rounded to the grid. On a step, up to
        the middle of the value's own.
        """
        place, part, died, known, _ = self._seen(cells)
        event = one_hot(np.where(died, place, -1), self.bins)
        starts, ends = self.ticks[:-1], np.maximum(self.ticks[1:], self.ticks[:-1] + 1e-300)
        times = np.where(known, cells[self.time.name], self.grid[0])[:, None]
        within = self.clock(np.clip(times, self.grid[0], self.grid[-1]))
        present = np.clip((within - starts) / (ends - starts), 0, 1)
        before = part - 0.5 / self.values[np.minimum(place, self.bins - 1)]
        at_end = (part <= 0.0) | (part >= 1.0) & (not self.time.step)
        return event, np.where(event > 0, np.where(at_end, 0.5, before)[:, None], present)

    def _seen(self, cells: Cells) -> _Seen:
        """What each record's time and event say, whatever floats they are.

        A time beyond the horizon is one, also where the horizon is the bound of the column.
        """
        times, ended = cells[self.time.name], cells[self.event.name]
        died = (ended >= 1) & (ended < 1 + self.causes)
        known = ~np.isnan(times) & (died | ((ended >= 0) & (ended < 1)))
        if self.entry:  # who was observed from a known time on that came before the last
            entered = np.clip(cells[self.entry.name], *self.entry.bounds)
            known &= entered < np.clip(times, *self.time.bounds)
        place, part = self._placed(times)
        cause = np.where(died, ended - 1.0, 0.0).astype(np.int64)
        inside_grid = known & died & (place < self.bins)
        return _Seen(place, part, inside_grid, known, cause)

    def _placed(self, times: Array) -> tuple[NDArray[np.intp], Array]:
        """(n,) bins of times, one more after the horizon; and how much of each had passed."""
        edges = np.asarray(self.grid)
        place = (~(times[:, None] <= edges[1:])).sum(axis=1)  # a search takes as long as it must
        inside = np.minimum(place, self.bins - 1)
        start, long = self.ticks[:-1], np.maximum(np.diff(self.ticks), 1e-300)
        within = np.clip(np.where(np.isnan(times), edges[0], times), edges[0], edges[-1])
        part = (self.clock(within) - start[inside]) / long[inside]
        return place, np.clip(part, 0.0, 1.0)

    def coded(self, events: Array, exposed: Array) -> Array:
        """(width,) a group's sum with so many events, alike of all kinds, and so many exposed.

        Nobody in it left inside a bin, nor entered late: who entered is who is exposed more.
        """
        left = exposed - np.append(exposed[1:], 0.0) - np.append(events, 0.0)
        each = self._events.matrix @ events[::-1] / self.causes
        told = np.concatenate([*[each] * self.causes, self._leaving.matrix @ left[::-1]])
        return np.pad(told, (0, self.width - len(told)))

    @cached_property
    def events(self) -> Array:
        """(bins, width): from a group's coded sum to its events in each bin, of all kinds."""
        return np.asarray(np.sum([self.events_of(one) for one in range(self.causes)], axis=0))

    def events_of(self, cause: int) -> Array:
        """(bins, width): to its events of one kind, counted from 0."""
        counts = self._events.counts[::-1]
        before, after = cause * self.bins, self.width - (cause + 1) * self.bins
        return np.pad(counts, ((0, 0), (before, after)))

    @cached_property
    def exposed(self) -> Array:
        """(bins + 1, width): to the records at risk in each bin, and at the horizon.

        Of who left in a bin, the part that it was followed counts.
        """
        deaths = np.vstack([self._events.totals[::-1], np.zeros(self.bins)])
        return self._observed([*[deaths] * self.causes, self._leaving.totals[::-1]])

    @cached_property
    def partly(self) -> Array:
        """(bins, width): to the sum of 2 u (1 - u) over who left after a part u of each bin."""
        if not self.counted:
            raise ValueError("expected risk sets that are counted; the sum holds no such numbers")
        before = np.zeros((self.bins, (1 + self.causes) * self.bins + 2))
        return self._observed([before, np.eye(self.bins)])

    @cached_property
    def records(self) -> Array:
        """(width,): to all its records, whenever they were observed; what is left out aside."""
        rows = self.exposed[0].copy()
        rows[(1 + self.causes) * self.bins + 1] = 1.0  # who left in the first bin, in part
        return np.asarray(rows * (np.arange(self.width) < self._exits))

    @cached_property
    def at_risk(self) -> Array:
        """(bins + 1, width): to the records at risk just after each edge.

        If who leaves in a bin is spread over it on a slope, half is missing less the slope / 12,
        and half is 3 / 2 of the sum of 2 u (1 - u), whose mean is 1 / 3. Of who leaves at edges, as
        rounded times seem to, nothing is missing, and that sum is 0. In the first bin it is told.
        Of J values in a bin (J - 1) / 2 J and (J^2 - 1) / 3 J^2 stand for the half and the third.
        """
        rows, edges = self.exposed.copy(), np.asarray(self.grid)
        width, middle = np.diff(edges)[:, None], (edges[1:] + edges[:-1]) / 2
        fewer = 1.0 - 1.0 / self.values[:, None]  # (J - 1) / J
        lost = 3.0 * self.partly / (np.maximum(fewer, 0.5) * (2.0 - fewer))
        slope = np.gradient(lost / width, middle, axis=0) * width**2
        rows[1:-1] += (fewer * (lost / 2 - slope / 12))[1:]
        first = np.zeros((1, (1 + self.causes) * self.bins + 2))
        first[0, -1] = 1.0
        rows[0] += self._observed([first])[0]
        return rows

    def _observed(self, blocks: Sequence[Array]) -> Array:
        """(k, width): from what follows of who left, less the same of who had not yet entered."""
        rows = np.hstack(blocks)
        rows = np.pad(rows, ((0, 0), (0, self._exits - rows.shape[1])))
        if not self.entry:
            return rows
        return np.hstack([rows, rows[:, self.causes * self.bins :] / -_ENTRIES])

    @property
    def _exits(self) -> int:
        """How many of a group's numbers tell of events and leavings."""
        return self.causes * self.bins + (self.bins + 1) * (1 + self.counted)

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

    def margins(self, levels: Sequence[Levels]) -> Margins:
        """What a block tells, whose groups are all combinations of these classes."""
        entry = f", {self.entry.name}" if self.entry else ""
        grid = f"{self.time.name}, {self.event.name}, {self.grid}{entry}"
        told = {
            Margin(f"{what} of bin {k}: {grid}"): row
            for what, rows in (("events", self.events), ("exposed", self.exposed))
            for k, row in enumerate(rows)
        }
        if self.counted and self.time.complete and self.event.complete and not self.entry:
            told[number_of()] = self.at_risk[0]
        return of_parts(levels, told)


class _Seen(NamedTuple):
    """What times and events say."""

    place: NDArray[np.intp]  # the bin of the time; bins after the horizon
    part: Array  # how much of that bin had passed
    died: NDArray[np.bool_]  # in that bin
    known: NDArray[np.bool_]  # whether there are a time and an event
    cause: NDArray[np.int64]  # which kind of event it was, from 0


@dataclass(frozen=True, kw_only=True)
class Followed(Statistic):
    """A statistic of times to an event.

    Args:
        time: a numeric column: how long a record was followed.
        event: a column of categories, all but the first of which are events.
        edges: increasing edges of the bins in the unit of the time, the horizon last.
    """

    time: Column
    event: Column
    edges: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class OnRiskSets(Followed, OneSum):
    """One whose block is that of risk sets.

    Args:
        entry: a numeric column that says since when a record was observed; None if all were from
            the start (docs/privacy.md P34).
    """

    entry: Column | None = None

    def on_grid(self, **more: Any) -> RiskSets:
        """Risk sets of its times, and what else they need."""
        times: dict[str, Any] = {"time": self.time, "event": self.event, "entry": self.entry}
        return RiskSets(edges=self.edges, **times, **more)

    @property
    @abstractmethod
    def sets(self) -> RiskSets:
        """How its times are summed."""

    @property
    def size(self) -> int:
        return self.sets.size

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23)."""
        return self.sets.sensitivity

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return self.sets.diameter
