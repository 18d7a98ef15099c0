"""One vector for all questions of a study, and what several of its blocks tell alike.

Theory of operation. Blocks count the same records by different columns: the total, how many have a
class, how many had an event in a bin. Each of these *margins* is a linear function of a block, and
without noise those of one name are equal. Their noise is independent and, in the stacked vector, of
one size in every number, so generalised least squares is the orthogonal projection onto the vectors
in which they are equal. It is made of noisy sums and public numbers alone, and lowers the variance
of every linear function of a block, or leaves it. Answers go on as if the noise were what it was:
their intervals are never too narrow for it.

A block leaves out records that lack one of its cells, so a margin is told by it only where every
column that it does not name is complete.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from hubbub.core.errors import DataError, StudyError
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation.statistic import Answer, Expectation, Iterated, OneSum, Parameters

_TOGETHER = 2  # columns that a margin names at most
_MOST = 500  # equations
_DEPENDENT = 1e-9  # of the largest: equations that follow from others


class Margin(NamedTuple):
    """What several blocks of a study may tell alike.

    Args:
        counted: what is counted, "records" for example.
        classes: of whom: the column and the class of each; all records if there are none.
    """

    counted: str
    classes: frozenset[tuple[str, str]] = frozenset()


class Told(NamedTuple):
    """How a block tells a margin: the same row of some of its parts, added up.

    Args:
        inside: (parts,) how much of each of the block's parts counts.
        row: (width,) a linear function of a part.
    """

    inside: Array
    row: Array


Margins = Mapping[Margin, Told]


def number_of(*classes: tuple[str, str]) -> Margin:
    """The number of records, or of those with these classes (column, class)."""
    return Margin("records", frozenset(classes))


def of_parts(levels: Sequence[Levels], told: Mapping[Margin, Array]) -> Margins:
    """Margins of a block with a part for each combination of classes, the last column fastest.

    Args:
        levels: the classes that divide it; none for a single part.
        told: what a part tells, (width,) each.
    """
    shape = tuple(map(len, levels))
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    margins: dict[Margin, Told] = {}
    for number in range(min(_TOGETHER, len(levels)) + 1):
        for named in itertools.combinations(range(len(levels)), number):
            if any(not one.column.complete for k, one in enumerate(levels) if k not in named):
                continue
            for place in itertools.product(*(range(shape[k]) for k in named)):
                is_there = [grid[k] == at for k, at in zip(named, place, strict=True)]
                inside = np.ones(grid.shape[1]) * np.all(is_there, axis=0)
                classes = {
                    (levels[k].column.name, levels[k].names[at])
                    for k, at in zip(named, place, strict=True)
                }
                for margin, row in told.items():
                    both = Margin(margin.counted, margin.classes | classes)
                    margins[both] = Told(inside, row)
    return margins


def equations(blocks: Sequence[tuple[slice, float, Margins]], size: int) -> Array:
    """(k, size) rows that are 0 on a stacked vector without noise; the plainest, if there are many.

    Args:
        blocks: of each its place in the vector, what it is multiplied by, and what it tells.
        size: of the vector.
    """
    by_margin: dict[Margin, list[int]] = {}
    for number, (_, _, told) in enumerate(blocks):
        for margin in told:
            by_margin.setdefault(margin, []).append(number)
    plainest = sorted(by_margin.items(), key=lambda one: len(one[0].classes))
    pairs = [(margin, first, other) for margin, (first, *others) in plainest for other in others]
    apart = np.zeros((min(len(pairs), _MOST), size))
    for row, (margin, first, other) in zip(apart, pairs, strict=False):
        for number, sign in ((first, 1.0), (other, -1.0)):
            place, unit, told = blocks[number]
            row[place] = sign / unit * np.outer(*told[margin]).ravel()
    return apart


def projected(vector: Array, apart: Array) -> Array:
    """The nearest vector (size,) on which these rows (k, size) are 0."""
    if not len(apart):
        return vector
    unit = apart / np.linalg.norm(apart, axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(unit @ unit.T)
    kept = values > _DEPENDENT * values[-1]
    basis = (vectors[:, kept] / np.sqrt(values[kept])).T @ unit
    return np.asarray(vector - basis.T @ (basis @ vector))


# One vector for all questions of a study: blocks beside one another, each on its own scale.
#
# Theory of operation. Block b has sensitivity D_b and the part p_b of the budget: it is scaled by
# s_b = sqrt(p_b) / D_b, so no record's stacked vector is longer than 1 as parts add up to 1; under
# substitution diameters stand for sensitivities. One noise multiplier serves all (docs/privacy.md
# P23). In a large cohort noise makes the variance of an answer larger by r_b / s_b^2 times that of
# sampling, r_b following from what the question itself expects. Parts in proportion to D_b^2 r_b,
# and to the weight that the study states, make that part the same for all: the largest is as small
# as it can be, whatever the number of records and epsilon.
#
# What is asked only once is asked in every sum where another question needs several, and averaged:
# k Gaussian sums with k times the variance say as much as one. So all sums of a study are alike,
# and a step of a question that needs several may have one or some of them.

RELATIONS = ("add-remove", "substitute")
# Room for the rounding of encoded numbers, in units of the sensitivity (docs/privacy.md P23).
_MARGIN = 1.0 - 2.0**-20
# Records are rounded to this step and added as integers: exactly, in any order.
_STEP = 2.0**-36
_PIECE = 1 << 22  # numbers that are encoded at a time
_NO_NUMBERS = "a sum holds what is no finite number"
# Records so many that sampling and noise just add up, and noise that does nothing, or little.
_MANY, _QUIET, _NOISY = 1e8, 1e-3, 1e3


def stack(statistics: Mapping[str, OneSum | Iterated], relation: str = "add-remove") -> Stacked:
    """Divides one unit of sensitivity among the questions of a study.

    Args:
        statistics: by name, in the order of the vector; at least one.
        relation: "add-remove" or "substitute".

    Raises:
        StudyError: nothing is asked, or an unknown relation.
    """
    if not statistics or relation not in RELATIONS:
        raise StudyError(
            f"expected statistics and one of the relations {RELATIONS}, found {len(statistics)} "
            f"statistics and {relation!r}; correct the study"
        )
    each = tuple(statistics.values())
    bounds = [asked.diameter if relation == "substitute" else asked.sensitivity for asked in each]
    rounds = max(asked.rounds for asked in each)
    needs = [
        asked.weight * bound**2 * _noise_to_sampling(asked) * asked.rounds / rounds
        for asked, bound in zip(each, bounds, strict=True)
    ]
    scales = [
        math.sqrt(need / sum(needs)) / bound for need, bound in zip(needs, bounds, strict=True)
    ]
    parts = tuple(need / sum(needs) for need in needs)
    return Stacked(names=tuple(statistics), statistics=each, parts=parts, scales=tuple(scales))


@lru_cache(maxsize=256)
def _noise_to_sampling(asked: OneSum | Iterated) -> float:
    """By how much noise of variance 1 makes the worst of a question's variances larger.

    As a part of that of sampling, times the number of records, which both have where they are many.
    Three digits of it are kept: all parties and platforms find the same.
    """
    quiet, noisy = (asked.expected(_MANY, sigma).errors for sigma in (_QUIET, _NOISY))
    ratios = [
        (with_noise / error) ** 2 - 1.0
        for (_, error), (_, with_noise) in zip(quiet, noisy, strict=True)
        if error > 0 and with_noise < math.inf and with_noise < _NOISY / _QUIET / 2 * error
    ]
    # Where nothing is sampled, as in a count, noise is held against the count's own root.
    each = max(ratios, default=asked.size * _NOISY**2 / _MANY) * _MANY / _NOISY**2
    return float(f"{max(each, 1e-3):.3g}")


class _Part(NamedTuple):
    """One question's place in the stacked vector."""

    name: str
    asked: OneSum | Iterated
    unit: float  # what its block is multiplied by
    place: slice
    own: slice  # of the parameters

    def encode(self, cells: Cells, parameters: Parameters) -> Array:
        """The scaled blocks of n records."""
        if isinstance(self.asked, Iterated):
            return self.unit * self.asked.encode_at(cells, parameters[self.own])
        return self.unit * self.asked.encode(cells)

    def answer(self, noisy: Array, sigma: float, rounds: int) -> Answer:
        """What all noisy sums that were made, (made, size), say."""
        if isinstance(self.asked, Iterated):
            steps = [self.mean(word, sigma) for word in np.split(noisy, _ends(self.asked, rounds))]
            sums, sigmas = zip(*steps, strict=True)
            return self.asked.answer_from(np.array(sums), np.array(sigmas))
        return self.asked.answer(*self.mean(noisy, sigma))

    def mean(self, noisy: Array, sigma: float) -> tuple[Array, float]:
        """This block of the mean of some sums (k, size), and its noise."""
        mine = noisy[:, self.place] / self.unit
        return mine.mean(axis=0), sigma / self.unit / math.sqrt(len(mine))

    def next(self, noisy: Array, sigma: float, rounds: int, parameters: Parameters) -> Parameters:
        """Its parameters after so many sums (made, size): the same until its step is over."""
        own, made = parameters[self.own], len(noisy)
        ends = [0, *_ends(self.asked, rounds)] if isinstance(self.asked, Iterated) else []
        if not isinstance(self.asked, Iterated) or made not in ends:
            return own
        return self.asked.update(*self.mean(noisy[ends[ends.index(made) - 1] :], sigma), own)


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """All questions of a study as one vector of sensitivity 1 (substitution: diameter 1).

    Args:
        parts: of the budget, by question; they add up to 1.
        scales: what their blocks are multiplied by; no unit.
    """

    names: tuple[str, ...]
    statistics: tuple[OneSum | Iterated, ...]
    parts: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def size(self) -> int:
        """How many numbers the vector has."""
        return sum(asked.size for asked in self.statistics)

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of a stacked vector: 1 where scales are made for add-remove."""
        scaled = zip(self.statistics, self.scales, strict=True)
        return math.hypot(*(asked.sensitivity * scale for asked, scale in scaled))

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two stacked vectors: 1 where they are for substitution."""
        scaled = zip(self.statistics, self.scales, strict=True)
        return math.hypot(*(asked.diameter * scale for asked, scale in scaled))

    @property
    def rounds(self) -> int:
        """How many sums are needed, all alike."""
        return max(asked.rounds for asked in self.statistics)

    @property
    def least_rounds(self) -> int:
        """How few of them are enough, if some are lost: every step has one."""
        ends = [
            _ends(asked, self.rounds) for asked in self.statistics if isinstance(asked, Iterated)
        ]
        return 1 + max((end[-1] for end in ends if end), default=0)

    @property
    def start(self) -> Parameters:
        """Parameters of the first sum, float32; empty where one sum is all."""
        return _joined([asked.start for asked in self.statistics])

    def encode(self, cells: Cells, parameters: Parameters | None = None) -> Array:
        """The stacked vectors of n records, (n, size), each no longer than 1.

        Args:
            cells: of n records.
            parameters: of this sum, from `start` or `update`; None for those of the first.
        """
        at = self.start if parameters is None else parameters
        return np.column_stack([part.encode(cells, at) for part in self._parts()])

    def sum(
        self, cells: Cells, parameters: Parameters | None = None, shares: Array | None = None
    ) -> Array:
        """The sum of all units' vectors, exact in any order, without holding all of them.

        Args:
            cells: of n records, arrays of one length.
            parameters: of this sum, from `start` or `update`; None for those of the first.
            shares: (u, k) for u units of k records each, one after the other: a unit's vector is
                the sum of its records' with these shares, which add up to 1 at most. None: each
                record is a unit.

        Returns:
            (size,) in units of the sensitivity.

        Raises:
            DataError: columns of different lengths.
        """
        lengths = {len(values) for values in cells.values()}
        if len(lengths) != 1:
            raise DataError(
                "expected columns of one length, found different ones; repair the table of records"
            )
        (records,) = lengths
        parts = np.ones((records, 1)) if shares is None else shares
        units, each = parts.shape
        rows, total = max(_PIECE // (self.size * each), 1), np.zeros(self.size, np.int64)
        for first in range(0, units, rows):
            place = slice(first * each, (first + rows) * each)
            vectors = self.encode({name: one[place] for name, one in cells.items()}, parameters)
            vectors = vectors.reshape(-1, each, self.size)
            mine = np.einsum("uk,uks->us", parts[first : first + rows], vectors)
            total += np.rint(mine / _STEP).astype(np.int64).sum(axis=0)
        return np.asarray(total * _STEP, dtype=np.float64)

    def update(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Parameters:
        """The parameters of the next sum, from the noisy ones so far.

        Args:
            noisy: all noisy sums so far, (size,) each, in their order; at least one.
            sigma: standard deviation of all noise in each of their numbers.
            parameters: at which the last one was taken.
        """
        sums = np.asarray(noisy, dtype=np.float64)
        return _joined([part.next(sums, sigma, self.rounds, parameters) for part in self._parts()])

    def expected_of(self, name: str, records: float, sigma: float) -> Expectation:
        """What may be said of one question, before any record is touched.

        Args:
            records: about how many records there are, from the study.
            sigma: standard deviation of all noise in each number of one noisy sum.
        """
        part = self._part(name)
        noise = sigma / part.unit / math.sqrt(self.rounds / part.asked.rounds)
        return part.asked.expected(records, noise)

    def own(self, name: str, noisy: Array, sigma: float) -> tuple[Array, float]:
        """The block of one question in a noisy sum (size,), in its own unit, and its noise."""
        return self._part(name).mean(noisy[None], sigma)

    def answers(self, noisy: Sequence[Array], sigma: float) -> dict[str, Answer]:
        """What the noisy sums say.

        Args:
            noisy: all noisy sums that were made, (size,) each, in their order; `rounds` of them,
                or `least_rounds` where some were lost.
            sigma: standard deviation of all noise in each of their numbers. Rounding onto a secure
                sum's grid adds a twelfth of a squared step for each silo, against shares of at
                least three steps: less than 1 % of the variance, which callers may leave out.

        Raises:
            StudyError: sums of another number or length.
        """
        enough = self.least_rounds <= len(noisy) <= self.rounds
        if not enough or any(len(vector) != self.size for vector in noisy):
            raise StudyError(
                f"expected {self.rounds} sums of {self.size} numbers, found "
                f"{[len(vector) for vector in noisy]}; hand over all sums of the study"
            )
        sums = np.array(noisy, dtype=np.float64)
        if not np.isfinite(sums).all():
            named = zip(self.names, self.statistics, strict=True)
            return {name: asked.make_answer(_NO_NUMBERS) for name, asked in named}
        mean = sums.mean(axis=0)
        sums += projected(mean, self._apart) - mean
        return {part.name: part.answer(sums, sigma, self.rounds) for part in self._parts()}

    @cached_property
    def _apart(self) -> Array:
        """(k, size) what is 0 on a sum without noise, as several blocks tell the same."""
        blocks = [
            (part.place, part.unit, part.asked.margins)
            for part in self._parts()
            if isinstance(part.asked, OneSum)
        ]
        return equations(blocks, self.size)

    def _part(self, name: str) -> _Part:
        return next(part for part in self._parts() if part.name == name)

    def _parts(self) -> Iterator[_Part]:
        """Each question with its scale, and its places in the vector and in the parameters."""
        begin = used = 0
        for name, asked, scale in zip(self.names, self.statistics, self.scales, strict=True):
            end, spent = begin + asked.size, used + len(asked.start)
            yield _Part(name, asked, scale * _MARGIN, slice(begin, end), slice(used, spent))
            begin, used = end, spent


def _ends(asked: Iterated, rounds: int) -> list[int]:
    """After how many of so many sums each step is over, but the last."""
    return [-(-int(end) * rounds // asked.rounds) for end in np.cumsum(asked.steps)[:-1]]


def _joined(parts: Sequence[Parameters]) -> Parameters:
    return np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32)
