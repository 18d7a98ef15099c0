"""One cohort, one number: what several blocks of a study tell alike is made the same in all.

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
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.levels import Levels

Array = NDArray[np.float64]

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
    shape = [len(level) for level in levels]
    margins: dict[Margin, Told] = {}
    for number in range(min(_TOGETHER, len(levels)) + 1):
        for named in itertools.combinations(range(len(levels)), number):
            if any(not one.column.complete for k, one in enumerate(levels) if k not in named):
                continue
            for place in itertools.product(*(range(shape[k]) for k in named)):
                inside = _inside(shape, dict(zip(named, place, strict=True)))
                classes = {
                    (levels[k].column.name, levels[k].names[at])
                    for k, at in zip(named, place, strict=True)
                }
                for margin, row in told.items():
                    both = Margin(margin.counted, margin.classes | classes)
                    margins[both] = Told(inside, row)
    return margins


def _inside(shape: Sequence[int], fixed: Mapping[int, int]) -> Array:
    """(parts,) 1 where the classes of some columns are these."""
    grid = np.indices(tuple(shape)).reshape(len(shape), math.prod(shape))
    inside = np.ones(grid.shape[1], dtype=bool)
    for column, place in fixed.items():
        inside &= grid[column] == place
    return inside.astype(np.float64)


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
