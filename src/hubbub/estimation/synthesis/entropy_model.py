"""The model of synthetic records: which pairs it rests on, its tables, and cells drawn of it.

All of it follows from the noisy first sum, so it costs nothing. Columns are put in one by one, each
with its parents, on which it is drawn: the targets, and of the columns that are in already those on
which it depends most. Parents are all neighbours of each other, so a column and its parents are a
clique of a junction tree (a k-tree), whose tables stay small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.levels import Array
from hubbub.estimation.synthesis.components import Components
from hubbub.estimation.synthesis.design import CodedColumn, Design

# Each pair makes all others noisier. With half of these, on splits that they were not chosen by,
# AUC at epsilon .5 was .000 to .014 less on five tables (docs/experiments.md).
_STANDS_OUT = 4.0  # standard deviations of the noise, for a dependency that a column is hung on
_SECOND = 10.0  # for a further parent
_MOST_CELLS = 2**14  # of a clique


@dataclass(frozen=True, kw_only=True)
class SpanningStep:
    """A column and those that it is drawn on."""

    column: int
    parents: tuple[int, ...]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Of the column with each of its parents."""
        return tuple(_pair(self.column, parent) for parent in self.parents)


@dataclass(frozen=True, kw_only=True)
class PairChoice:
    """In which order columns are drawn, each on its parents.

    Args:
        steps: the first column has no parents.
        scores: by how many standard deviations each pair's dependency stands out of the noise.
    """

    steps: tuple[SpanningStep, ...]
    scores: dict[tuple[int, int], float]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All that are measured level by level."""
        return tuple(sorted(pair for step in self.steps for pair in step.pairs))


def choose(design: Design, components: Components) -> PairChoice:
    """What follows from the components of the first sum."""
    excess, scores = _dependencies(components)
    many, targets = len(design.columns), design.targets
    first = targets or (_most_dependent(many, excess),)
    parents = {target: _fitting(design, target, first[:k]) for k, target in enumerate(first)}
    outside = [k for k in range(many) if k not in first]
    while outside:
        # The pair that depends most, of a column that is in and one that is not.
        links = [_pair(a, b) for a in parents if a not in targets for b in outside]
        strong = [pair for pair in links if scores[pair] > _STANDS_OUT]
        column, wanted = outside[0], [*targets]
        if strong:
            best = max(strong, key=lambda pair: (excess[pair], -pair[0], -pair[1]))
            column, parent = best if best[0] in outside else best[::-1]
            wanted.append(parent)
            # One more of the parent's own parents, or none.
            others = [one for one in parents[parent] if one not in targets]
            near = [one for one in others if scores[_pair(one, column)] > _SECOND]
            wanted += sorted(near, key=lambda one: -excess[_pair(one, column)])[:1]
        parents[column] = _fitting(design, column, wanted)
        outside.remove(column)
    steps = [SpanningStep(column=column, parents=on) for column, on in parents.items()]
    return PairChoice(steps=tuple(steps), scores=scores)


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _dependencies(
    components: Components,
) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """What each pair has beyond independence, squared and less its noise; and how it stands out."""
    excess, scores = {}, {}
    for pair in combinations(range(len(components.columns)), 2):
        effect = components.by[pair]
        known = effect.known
        apart = (effect.value - components.expected(pair))[known]
        variance = effect.variance[known]
        excess[pair] = float(np.sum(apart**2 - variance))
        scores[pair] = excess[pair] / float(np.sqrt(2 * np.sum(variance**2)))
    return excess, scores


def _most_dependent(many: int, excess: dict[tuple[int, int], float]) -> int:
    """The column that depends most on the others."""
    total = np.zeros(many)
    for (a, b), one in excess.items():
        total[a] += max(one, 0.0)
        total[b] += max(one, 0.0)
    return int(np.argmax(total))


def _fitting(design: Design, column: int, wanted: list[int] | tuple[int, ...]) -> tuple[int, ...]:
    """As many of the wanted parents as a clique has room for, the first ones first."""
    # Whole numbers of any size: those of all parents together may leave int64.
    _, *cells = accumulate((design.columns[one].size for one in (column, *wanted)), mul)
    return tuple(wanted[: sum(size <= _MOST_CELLS for size in cells)])


def without_room(design: Design) -> tuple[str, ...]:
    """Columns that cannot be drawn on all targets, whose levels are too many together."""
    targets = design.targets
    return tuple(
        column.name
        for k, column in enumerate(design.columns)
        if len(others := [one for one in targets if one != k]) > len(_fitting(design, k, others))
    )


# A distribution of whole records that has the measured pairs, and no other structure.
#
# Each measured pair becomes a table of shares: what noise alone would explain is drawn in towards
# independence (James, Stein 1961), and the nearest table without negative cells that has the
# columns' shares is taken. A column and its parents get the table of largest entropy that has their
# pairs, by iterative proportional fitting. Cliques form a junction tree, so the records'
# distribution is the product of each column's given its parents.

_PROJECTIONS, _FITS = 60, 60
_FLOOR = 1e-3  # of independence, that a cell keeps: no cell is impossible for being noisy


@dataclass(frozen=True, kw_only=True)
class Clique:
    """A column with its parents.

    Args:
        step: which ones.
        table: their joint shares, an axis for each parent in order and the column's last.
    """

    step: SpanningStep
    table: Array

    @property
    def members(self) -> tuple[int, ...]:
        """The columns of the axes."""
        return (*self.step.parents, self.step.column)

    def marginal(self, keep: Sequence[int]) -> Array:
        """The joint shares of some of its columns, axes in the order that is asked for."""
        at = [self.members.index(one) for one in keep]
        rest = tuple(k for k in range(self.table.ndim) if k not in at)
        summed = self.table.sum(axis=rest)
        order = np.argsort(np.argsort(at))
        return np.transpose(summed, order) if len(at) > 1 else summed


@dataclass(frozen=True, kw_only=True)
class EntropyModel:
    """A distribution over levels, from which records are drawn.

    Args:
        cliques: in the order in which columns are drawn.
    """

    names: tuple[str, ...]
    cliques: tuple[Clique, ...]

    def draw(self, records: int, seed: int, *, evenly: bool = True) -> NDArray[np.int64]:
        """Records at random; the same for the same seed.

        Args:
            evenly: whether each level is drawn as often as it should be, but for rounding, among
                records with the same parents: tables are then nearer to the model than those of
                as many people would be. False: each record by itself, as people are.

        Returns:
            (records, columns) places of levels.
        """
        rng = np.random.default_rng(seed)
        levels = np.zeros((records, len(self.names)), np.int64)
        for clique in self.cliques:
            table = clique.table.reshape(-1, clique.table.shape[-1])
            whole = table.sum(axis=1, keepdims=True)
            alone = table.sum(axis=0) / table.sum()
            given = np.where(whole > 0, table / np.where(whole > 0, whole, 1.0), alone)
            row = np.zeros(records, np.int64)
            for parent, size in zip(clique.step.parents, clique.table.shape, strict=False):
                row = row * size + levels[:, parent]
            ends = np.cumsum(given, axis=1)[row]
            chance = _even(row, rng) if evenly else rng.random(records)
            drawn = (chance[:, None] > ends).sum(axis=1)
            levels[:, clique.step.column] = np.minimum(drawn, table.shape[1] - 1)
        return levels

    @cached_property
    def pairs(self) -> Mapping[tuple[int, int], Array]:
        """The joint shares of every pair of columns, exactly."""
        return {
            (one, other): table
            for one in range(len(self.names))
            for other, table in self._beside(one).items()
            if one < other
        }

    def _beside(self, column: int) -> dict[int, Array]:
        """The joint shares of one column with each other, along the junction tree."""
        home = self._homes[column]
        start = self.cliques[home].table
        eye = np.expand_dims(np.eye(start.shape[-1]), tuple(range(1, start.ndim)))
        joint = {home: start[None] * eye}  # (levels of the column, *clique) by the clique's number
        waiting = [home]
        while waiting:
            now = waiting.pop()
            for near in self._near[now]:
                if near not in joint:
                    joint[near] = self._passed(joint[now], now, near)
                    waiting.append(near)
        return {
            other: joint[place].sum(axis=tuple(range(1, joint[place].ndim - 1)))
            for other, place in self._homes.items()
        }

    def _passed(self, joint: Array, source: int, target: int) -> Array:
        """A joint table with a column, carried over what two cliques share."""
        here, there = self.cliques[source], self.cliques[target]
        shared = [member for member in there.members if member in here.members]
        letters = {one: chr(ord("a") + k) for k, one in enumerate({*here.members, *there.members})}
        names = {c: "".join(letters[one] for one in c) for c in (here.members, there.members)}
        between = "".join(letters[one] for one in shared)
        message = np.einsum(f"z{names[here.members]}->z{between}", joint)
        alone = there.marginal(shared) if shared else there.table.sum()
        given = np.divide(message, alone, out=np.zeros_like(message), where=alone > 0)
        carried = f"z{between},{names[there.members]}->z{names[there.members]}"
        return np.asarray(np.einsum(carried, given, there.table))

    @cached_property
    def _homes(self) -> dict[int, int]:
        """The clique in which each column was drawn."""
        return {one.step.column: k for k, one in enumerate(self.cliques)}

    @cached_property
    def _near(self) -> dict[int, list[int]]:
        """The junction tree: which cliques are beside each other."""
        near: dict[int, list[int]] = {k: [] for k in range(len(self.cliques))}
        for k, one in enumerate(self.cliques[1:], 1):
            before = max((self._homes[parent] for parent in one.step.parents), default=0)
            near[k].append(before)
            near[before].append(k)
        return near


def _even(row: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """(n,) chances from 0 to 1, at equal distances among records of one row, in random order."""
    order = np.lexsort((rng.random(len(row)), row))
    many = np.bincount(row)
    first = np.cumsum(many) - many
    rank = np.empty(len(row))
    rank[order] = np.arange(len(row)) - first[row[order]]
    return np.asarray((rank + rng.random(len(many))[row]) / many[row])


def fitted(components: Components, choice: PairChoice, *, shrink: bool = True) -> EntropyModel:
    """The distribution of whole records with what was measured.

    Args:
        choice: the order of the columns.
        shrink: whether what noise alone would explain is drawn in towards independence.
    """
    alone = [_proper(components.shares((k,))) for k in range(len(components.columns))]
    tables = {pair: _pair_table(components, pair, alone, shrink=shrink) for pair in choice.pairs}
    cliques: list[Clique] = []
    for step in choice.steps:
        cliques.append(_clique(step, alone, tables, cliques))
    names = tuple(column.name for column in components.columns)
    return EntropyModel(names=names, cliques=tuple(cliques))


def _proper(shares: Array) -> Array:
    """The nearest shares that are none below 0 and add up to 1, each above nothing."""
    rising = np.sort(shares)[::-1]
    over = (np.cumsum(rising) - 1) / np.arange(1, len(shares) + 1)
    above = np.flatnonzero(rising > over)
    if not above.size:  # numbers so large that their differences are lost: they say nothing
        return np.full(len(shares), 1 / len(shares))
    cut = over[above[-1]]
    shares_kept = np.maximum(shares - cut, 1e-9)
    return np.asarray(shares_kept / shares_kept.sum())


def _pair_table(
    components: Components, pair: tuple[int, int], alone: Sequence[Array], *, shrink: bool
) -> Array:
    """The shares of a pair's cells: none below 0, with the columns' own shares."""
    a, b = pair
    independent = np.outer(alone[a], alone[b])
    effect = components.by[pair]
    coded = [components.columns[k] for k in pair]
    by = coded[0].contrasts.T @ independent @ coded[1].contrasts
    apart = np.where(effect.known, effect.value / components.records - by, 0.0)
    if shrink:
        noise = np.where(effect.known, effect.variance, 0.0) / components.records**2
        coarse = np.zeros(apart.shape, bool)
        coarse[: coded[0].coarse, : coded[1].coarse] = True
        for part in (coarse, ~coarse):
            apart[part] *= _kept(apart[part], noise[part])
    table = independent + coded[0].contrasts @ apart @ coded[1].contrasts.T
    table = _with_margins(table, alone[a], alone[b])
    return _scaled_to(np.maximum(table, _FLOOR * independent), alone[a], alone[b])


def _kept(apart: Array, noise: Array) -> float:
    """How much of a deviation is kept: none where noise alone would explain it."""
    length = float(np.sum(apart**2))
    many = max(apart.size - 2, 1) / max(apart.size, 1)
    return max(0.0, 1.0 - many * float(noise.sum()) / length) if length > 0 else 0.0


def _with_margins(table: Array, rows: Array, columns: Array) -> Array:
    """The nearest table without negative cells that has these margins (Dykstra)."""
    a, b = table.shape
    carried = np.zeros_like(table)
    for _ in range(_PROJECTIONS):
        positive = np.maximum(table + carried, 0.0)
        carried = table + carried - positive
        off_rows, off_columns = rows - positive.sum(axis=1), columns - positive.sum(axis=0)
        table = (
            positive + off_rows[:, None] / b + off_columns[None, :] / a - off_rows.sum() / (a * b)
        )
    return np.maximum(table, 0.0)


def _scaled_to(table: Array, rows: Array, columns: Array) -> Array:
    """The table with these margins, by iterative proportional fitting."""
    for _ in range(_FITS):
        table = table * (rows / table.sum(axis=1))[:, None]
        table = table * (columns / table.sum(axis=0))[None, :]
    return table


def _clique(
    step: SpanningStep,
    alone: Sequence[Array],
    tables: Mapping[tuple[int, int], Array],
    before: Sequence[Clique],
) -> Clique:
    """The joint table of a column and its parents, of largest entropy."""
    column, parents = step.column, step.parents
    if not parents:
        return Clique(step=step, table=alone[column])
    given = [
        tables[parent, column] if parent < column else tables[column, parent].T
        for parent in parents
    ]
    if len(parents) == 1:
        return Clique(step=step, table=given[0])
    joint = _joint_of(parents, before, alone)
    table = joint[..., None] * alone[column]
    for _ in range(_FITS):
        for k, wanted in enumerate(given):
            axes = tuple(one for one in range(len(parents)) if one != k)
            had = table.sum(axis=axes)
            ratio = np.divide(wanted, had, out=np.zeros_like(had), where=had > 0)
            shape = [1] * table.ndim
            shape[k], shape[-1] = ratio.shape
            table = table * ratio.reshape(shape)
        had = table.sum(axis=-1)
        table = table * np.divide(joint, had, out=np.zeros_like(had), where=had > 0)[..., None]
    return Clique(step=step, table=table)


def _joint_of(parents: Sequence[int], before: Sequence[Clique], alone: Sequence[Array]) -> Array:
    """The joint shares of parents, which some clique before has all together."""
    for one in reversed(before):
        if set(parents) <= set(one.members):
            return one.marginal(parents)
    joint = np.ones(())
    for parent in parents:
        joint = joint[..., None] * alone[parent]
    return joint


# Cells of drawn levels: a category, a number drawn evenly from its range, or a gap.
#
# Of a column with a step one of the values in the range is drawn: whole numbers come out whole.

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
        rounded = drawn.copy()
        for k, width in enumerate(np.diff(edges)):  # to five digits of all of it, four of its range
            digits = max(4 - _before_point(high - low), 3 - _before_point(width))
            rounded[at == k] = np.round(drawn[at == k], digits)
        stays = (rounded >= edges[at]) & (rounded < edges[at + 1])
        values = np.where(stays, rounded, drawn).tolist()
    return [None if gone else value for value, gone in zip(values, missing, strict=True)]


def _before_point(width: float) -> int:
    """How many digits are before the decimal point, less 1."""
    return int(np.floor(np.log10(width)))
