"""What a record sends: columns as public levels, and how they differ from the mean.

Levels are categories, or ranges between public cuts, and one more for missing cells. The contrasts
of m levels are m - 1 orthonormal vectors, all orthogonal to 1: they say how the counts of levels
differ, the number of records being told apart. The first ones tell groups of neighbouring levels
apart (at most four), the others the levels within a group; so a coarse table's numbers are among
those of the full one. This file knows neither noise nor records' sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hubbub.core.tabular.levels import Array, Levels

MISSING, NO_CELL = "missing", "missing cell"  # the second beside a category of the first's name
_GROUPS = 4


@dataclass(frozen=True, kw_only=True)
class CodedColumn:
    """A column's levels and their contrasts.

    Args:
        levels: categories, or ranges of a numeric column.
        complete: whether no cell is missing, so that there is no level for it.
    """

    levels: Levels
    complete: bool

    @property
    def name(self) -> str:
        """The column's name."""
        return self.levels.column.name

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One name for each level."""
        names = self.levels.names
        gap = NO_CELL if MISSING in names else MISSING
        return (*names, *(() if self.complete else (gap,)))

    @property
    def size(self) -> int:
        """How many levels there are."""
        return len(self.names)

    @property
    def groups(self) -> tuple[int, ...]:
        """How many levels each group of neighbours has."""
        return _groups_of(len(self.levels), own=not self.complete)

    @property
    def coarse(self) -> int:
        """How many contrasts tell groups apart: the first ones."""
        return len(self.groups) - 1

    @property
    def contrasts(self) -> Array:
        """(size, size - 1): a column for each contrast."""
        return contrasts_of(self.groups)

    def places(self, cells: Mapping[str, Array]) -> NDArray[np.int64]:
        """(n,) the level of each record; `size` where a complete column lacks one."""
        found = self.levels.places(cells)
        return np.where(found < 0, len(self.levels), found)


def _groups_of(levels: int, *, own: bool) -> tuple[int, ...]:
    """Neighbours in at most four groups, as equal as they can be; the missing are one of them."""
    many = min(levels, _GROUPS - own)
    sizes = [levels * (k + 1) // many - levels * k // many for k in range(many)]
    return (*sizes, 1) if own else tuple(sizes)


@lru_cache(maxsize=256)
def contrasts_of(groups: tuple[int, ...]) -> Array:
    """The contrasts of levels in groups of these sizes, (levels, levels - 1)."""
    ends = np.cumsum((0, *groups))
    size, columns = int(ends[-1]), []
    parts = [list(range(a, b)) for a, b in pairwise(ends)]
    for some in (parts, *([[k] for k in part] for part in parts)):
        columns += [
            _against([one for part in some[:k] for one in part], some[k], size)
            for k in range(1, len(some))
        ]
    contrasts = np.array(columns).T
    contrasts.setflags(write=False)
    return contrasts


def _against(before: Sequence[int], one: Sequence[int], size: int) -> Array:
    """The contrast of some levels with others, of length 1."""
    direction = np.zeros(size)
    direction[list(before)], direction[list(one)] = 1 / len(before), -1 / len(one)
    return np.asarray(direction / np.sqrt(1 / len(before) + 1 / len(one)))


# What a record sends: how it differs from the mean, by columns and by pairs of them.
#
# Theory of operation. The counts of a table of columns fall apart into orthogonal components: the
# number of records, a main effect for each column and an interaction for each pair, in the
# contrasts of `CodedColumn` (the residual basis of Xiao et al. 2023). A record's part in one is a
# row of a public matrix, and noise on each component is noise of its own, so what several sums say
# of one is their weighted mean. A sum consists of blocks, each a component times its weight; the
# weights of a sum are public numbers that make a record's vector no longer than 1 (docs/privacy.md
# P26).
#
# The first sum has all main effects, and of all pairs what groups of levels tell. Later ones have
# main effects again, and the chosen pairs whole. Which ones are chosen goes down to the silos as
# one number for each pair; whatever these are, the vector is no longer than 1.

Parameters = NDArray[np.float32]
Key = tuple[int, ...]  # of a block: () the records, (a,) a column, (a, b) a pair, a < b
# Rows of matrices and shares of records are rounded to these steps: sums of up to so many units of
# a silo are whole multiples of their product below 2^53, so they are exact in any order (P26).
ROW_STEP, SHARE_STEP = 2.0**-17, 2.0**-14
MOST_UNITS = 2**22
_MARGIN = 1.0 - 2.0**-20  # for the rounding of a product with a weight (P26)
# How much the error of a column counts beside that of a pair, as it is in each pair of the column;
# and that of a pair with a target (.01 to .02 of AUC for .002 of total variation, seen on rhc).
_COLUMN, _TARGET, _RECORDS = 0.25, 4.0, 0.02


@lru_cache(maxsize=4096)
def matrix_of(groups: tuple[tuple[int, ...], ...], coarse: bool) -> Array:
    """(cells, numbers): what a record in each cell of these columns sends, unweighted."""
    matrix: Array = np.ones((1, 1))
    for group in groups:
        contrasts = contrasts_of(group)
        matrix = np.asarray(
            np.kron(matrix, contrasts[:, : len(group) - 1] if coarse else contrasts)
        )
    rounded: Array = np.rint(matrix / ROW_STEP) * ROW_STEP
    rounded.setflags(write=False)
    return rounded


@lru_cache(maxsize=4096)
def bounds_of(groups: tuple[tuple[int, ...], ...], coarse: bool) -> tuple[float, float]:
    """The longest row, and the largest distance of two rows or of one and zero; all looked at."""
    gram = matrix_of(groups, coarse) @ matrix_of(groups, coarse).T
    norms = np.diag(gram)
    apart = np.max(norms[:, None] + norms - 2 * gram)
    return float(np.sqrt(norms.max())), float(np.sqrt(max(norms.max(), apart)))


@dataclass(frozen=True, kw_only=True)
class DesignBlock:
    """One component in a sum.

    Args:
        key: of which columns.
        matrix: (cells, numbers) what a record in each cell sends, unweighted.
        weight: by which that is multiplied.
    """

    key: Key
    matrix: Array
    weight: float

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return int(self.matrix.shape[1])


@dataclass(frozen=True, kw_only=True)
class Design:
    """How a study's columns are counted for synthetic records; the vector of a study's query.

    Args:
        columns: coded, in the order of the study.
        targets: places of the columns that are of most interest.
        rounds: how many sums: one to choose by, the others of what was chosen.
        relation: "add-remove" or "substitute".
    """

    columns: tuple[CodedColumn, ...]
    targets: tuple[int, ...]
    rounds: int
    relation: str

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All pairs of columns, in the order of the numbers that go down."""
        return tuple(combinations(range(len(self.columns)), 2))

    @cached_property
    def first(self) -> tuple[DesignBlock, ...]:
        """The blocks of the first sum."""
        return self._weighted(self.pairs, coarse=True)

    @lru_cache(maxsize=8)  # noqa: B019 (a design is small, and asked for by few)
    def later(self, chosen: tuple[tuple[int, int], ...]) -> tuple[DesignBlock, ...]:
        """The blocks of another sum, in which these pairs are whole."""
        return self._weighted(chosen, coarse=False)

    @cached_property
    def most_numbers(self) -> int:
        """How many numbers all chosen pairs together may have."""
        sizes = sorted((self._numbers((a, b)) for a, b in self.pairs), reverse=True)
        first = sum(self.columns[a].coarse * self.columns[b].coarse for a, b in self.pairs)
        return max(sum(sizes[: self.most_pairs]), first)

    @property
    def most_pairs(self) -> int:
        """How many pairs may be chosen: of each column with each target, and with two others."""
        return min(len(self.pairs), len(self.columns) * (len(self.targets) + 2))

    @cached_property
    def size(self) -> int:
        """How many numbers a sum has."""
        return 1 + sum(column.size - 1 for column in self.columns) + self.most_numbers

    sensitivity = 1.0

    @property
    def diameter(self) -> float:
        """How far two records' vectors may be apart."""
        return 1.0 if self.relation == "substitute" else 2.0

    @property
    def least_rounds(self) -> int:
        """How few sums are enough, if others are lost."""
        return 2

    @property
    def start(self) -> Parameters:
        """What goes down for the first sum: nothing is chosen."""
        return np.zeros(len(self.pairs), np.float32)

    def chosen(self, parameters: Parameters) -> tuple[tuple[int, int], ...]:
        """The pairs that numbers from the aggregator choose: those that there is room for."""
        kept: list[tuple[int, int]] = []
        room = self.most_numbers
        for pair in (self.pairs[k] for k in np.flatnonzero(parameters > 0.5)):
            room -= self._numbers(pair)
            if room < 0:
                break
            kept.append(pair)
        return tuple(kept)

    def parameters_of(self, chosen: Sequence[tuple[int, int]]) -> Parameters:
        """The numbers that choose these pairs."""
        return np.array([pair in chosen for pair in self.pairs], np.float32)

    def blocks(self, parameters: Parameters) -> tuple[DesignBlock, ...]:
        """Of the sum that is taken at these numbers: the first one where nothing is chosen."""
        chosen = self.chosen(parameters)
        return self.later(chosen) if chosen else self.first

    def sum(
        self, cells: Mapping[str, Array], parameters: Parameters, shares: Array | None = None
    ) -> Array:
        """The sum of all units' vectors, exact in any order (docs/privacy.md P26).

        Args:
            cells: of n records, arrays of one length.
            parameters: what came down.
            shares: (u, k) for u units of k records each, one after the other: which part of its
                unit each is; those of a unit add up to 1 at most. None: each record is a unit.

        Returns:
            (size,) numbers; one unit's are no longer than 1.
        """
        places = [column.places(cells) for column in self.columns]
        many = len(places[0])
        share = np.ones(many) if shares is None else np.asarray(shares, np.float64).reshape(-1)
        share = np.floor(share / SHARE_STEP) * SHARE_STEP
        total, end = np.zeros(self.size), 0
        for block in self.blocks(parameters):
            counts = self._counts(block.key, places, share)
            total[end : end + block.numbers] = block.weight * (block.matrix.T @ counts)
            end += block.numbers
        return total

    def update(self, noisy: Sequence[Array], sigma: float, parameters: Parameters) -> Parameters:
        """What goes down next: after the first sum what follows from it, later on the same."""
        from hubbub.estimation.synthesis.components import components_of
        from hubbub.estimation.synthesis.entropy_model import choose

        if len(noisy) > 1:
            return parameters
        return self.parameters_of(choose(self, components_of(self, noisy, sigma)).pairs)

    def _counts(self, key: Key, places: Sequence[NDArray[np.int64]], share: Array) -> Array:
        """(cells,) how many records are in each cell, records beside the levels in none."""
        sizes = [self.columns[k].size + 1 for k in key]
        flat = np.zeros(len(share), np.int64)
        for k, size in zip(key, sizes, strict=True):
            flat = flat * size + places[k]
        table: Array = np.asarray(
            np.bincount(flat, weights=share, minlength=int(np.prod(sizes, dtype=int))), np.float64
        )
        inner = tuple(slice(size - 1) for size in sizes)
        return np.asarray(table.reshape(sizes)[inner]).reshape(-1)

    def _groups(self, key: Key) -> tuple[tuple[int, ...], ...]:
        return tuple(self.columns[k].groups for k in key)

    def _numbers(self, key: Key) -> int:
        """Of a whole component."""
        return int(np.prod([self.columns[k].size - 1 for k in key], dtype=int))

    def _weighted(
        self, pairs: Sequence[tuple[int, int]], *, coarse: bool
    ) -> tuple[DesignBlock, ...]:
        """Blocks of the records, all columns and these pairs, weighted so that all fit.

        A block of d numbers in so many cells has part in the mean error of shares as
        sqrt(cells d) / weight; the weights make the sum of these small while the squares of
        bounds times weights add up to 1.
        """
        parts = [((k,), False) for k in range(len(self.columns))] + [
            (pair, coarse) for pair in pairs
        ]
        bounds = [bounds_of(self._groups(key), part) for key, part in parts]
        place = 1 if self.relation == "substitute" else 0
        rough = []
        for (key, part), bound in zip(parts, bounds, strict=True):
            cells, numbers = matrix_of(self._groups(key), part).shape
            matters = _COLUMN * (len(self.columns) - 1) if len(key) == 1 else 1.0
            if len(key) == 2 and set(key) & set(self.targets):
                matters *= _TARGET
            rough.append((matters * np.sqrt(cells * numbers) / bound[place] ** 2) ** (1 / 3))
        spent = np.array([w * bound[place] for w, bound in zip(rough, bounds, strict=True)])
        scale = np.sqrt((1 - _RECORDS) / np.sum(spent**2)) * _MARGIN
        records = DesignBlock(key=(), matrix=np.ones((1, 1)), weight=np.sqrt(_RECORDS) * _MARGIN)
        weighted = [
            DesignBlock(key=key, matrix=matrix_of(self._groups(key), part), weight=float(w * scale))
            for (key, part), w in zip(parts, rough, strict=True)
        ]
        return (records, *weighted)
