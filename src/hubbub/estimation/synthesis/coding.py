"""A column as public levels, and the contrasts in which its levels are counted.

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
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hubbub.core.tabular.levels import Levels

Array = NDArray[np.float64]
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
