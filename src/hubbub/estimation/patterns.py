"""Covariates of regressions whose records fall into few classes.

Every combination of classes is a pattern. A pattern's covariates are 0 or 1 for each class but the
first of each column, which the others are compared with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import StudyError
from hubbub.estimation.levels import Array, Cells, Levels

_MOST = 200


@dataclass(frozen=True, kw_only=True)
class Patterns:
    """All combinations of classes of some columns.

    Args:
        on: the classes of each column, at least one.

    Raises:
        StudyError: no column, one of them twice, or too many combinations.
    """

    on: tuple[Levels, ...]

    def __post_init__(self) -> None:
        """Refuses what cannot be told apart."""
        names = [levels.column.name for levels in self.on]
        if not names or len(set(names)) < len(names):
            raise StudyError(
                f"expected different covariates, found {names}; name each of them once"
            )
        if len(self) > _MOST:
            raise StudyError(
                f"expected at most {_MOST} combinations of classes, found {len(self)}; use fewer "
                "columns or classes"
            )

    def __len__(self) -> int:
        return math.prod(len(levels) for levels in self.on)

    def places(self, cells: Cells) -> NDArray[np.int64]:
        """(n,) the number of each record's pattern, -1 where a covariate is missing."""
        columns = [levels.places(cells) for levels in self.on]
        place = np.zeros_like(columns[0])
        for levels, column in zip(self.on, columns, strict=True):
            place = place * len(levels) + column
        return np.where(np.min(columns, axis=0) < 0, -1, place)

    @property
    def design(self) -> Array:
        """(patterns, covariates) of 0 and 1."""
        grid = np.indices([len(levels) for levels in self.on]).reshape(len(self.on), -1)
        blocks = [
            np.eye(len(levels))[column][:, 1:] for levels, column in zip(self.on, grid, strict=True)
        ]
        return np.hstack(blocks)

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The column and the compared classes of each covariate."""
        return tuple(
            (levels.column.name, f"{name} against {levels.names[0]}")
            for levels in self.on
            for name in levels.names[1:]
        )
