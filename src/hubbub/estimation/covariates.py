"""Covariates of regressions: what they are in a record's vector.

A numeric column is a number in [-1, 1]; classes are 0 or 1 each, but for the reference, which the
others are compared with. Where there are no numbers, every combination of classes is a pattern.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.estimation.statistic import Array, Cells, Levels, column_of, one_hot, scaled

PER_UNIT = "per unit"  # what an effect of a number compares
_MOST = 200  # patterns


@dataclass(frozen=True, kw_only=True)
class Guess:
    """How records may look, before any is touched.

    Args:
        variance: of a number, in units of its squared half range.
        spread: variance of a numeric outcome that nothing explains, in the same units.
        rarest: of a column's classes, as a part of an equal share; the others are alike.
        outcome: the part of records that has an outcome.
        event: the part that has an event by the horizon; half of all others leave before it.
    """

    variance: float
    spread: float
    rarest: float
    outcome: float
    event: float

    def shares(self, classes: int) -> Array:
        """(classes,) of a column's classes, the last of which is the rarest."""
        last = self.rarest / classes
        return np.append(np.full(classes - 1, (1.0 - last) / (classes - 1)), last)


# What is expected of answers, and what they are promised by.
USUAL = Guess(variance=1 / 9, spread=1 / 9, rarest=1.0, outcome=1 / 4, event=1 / 3)
SKEWED = Guess(variance=1 / 50, spread=1 / 100, rarest=1 / 4, outcome=1 / 10, event=1 / 8)
# Of times as well: in the end hardly anybody of a rare class is left to be compared with. An answer
# with classes as above needs a margin, for which the rarest is rarer here.
FOLLOWED_OUT = replace(SKEWED, rarest=1 / 8, event=2 / 3)


@dataclass(frozen=True, kw_only=True)
class Covariates:
    """What a regression is on.

    Args:
        on: classes or numeric columns, at least one.

    Raises:
        StudyError: no covariate, one of them twice, or one without cuts or bounds.
    """

    on: tuple[Levels | Column, ...]

    def __post_init__(self) -> None:
        """Refuses what is no covariate."""
        names = [column_of(covariate).name for covariate in self.on]
        if not names or len(set(names)) < len(names):
            raise StudyError(
                f"expected different covariates, found {names}; name each of them once"
            )
        for covariate in self.on:
            if isinstance(covariate, Column):
                _ = covariate.bounds

    @property
    def title(self) -> str:
        """Their names."""
        return ", ".join(column_of(covariate).name for covariate in self.on)

    @property
    def numbers(self) -> int:
        """How many of them are numeric columns."""
        return sum(isinstance(covariate, Column) for covariate in self.on)

    @property
    def width(self) -> int:
        """How many components they have, the constant included."""
        return 1 + len(self.names)

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The column of each component, and what is compared."""
        found: list[tuple[str, str]] = []
        for covariate in self.on:
            if isinstance(covariate, Column):
                found.append((covariate.name, PER_UNIT))
            else:
                first, *others = (covariate.names[place] for place in covariate.order)
                found += [(covariate.column.name, f"{name} against {first}") for name in others]
        return tuple(found)

    @property
    def number(self) -> tuple[bool, ...]:
        """Whether each component but the constant is a number."""
        return tuple(level == PER_UNIT for _, level in self.names)

    @property
    def column(self) -> tuple[int, ...]:
        """The place of each component's column in `on`."""
        widths = [
            1 if isinstance(covariate, Column) else len(covariate) - 1 for covariate in self.on
        ]
        return tuple(int(place) for place in np.repeat(np.arange(len(widths)), widths))

    @property
    def per_unit(self) -> Array:
        """(components,) effects on a component of 1, times this, are per unit of the column."""
        return np.array(
            [
                2.0 / (one.bounds[1] - one.bounds[0]) if isinstance(one, Column) else 1.0
                for one in (self.on[place] for place in self.column)
            ]
        )

    def moments(self, guess: Guess) -> Array:
        """(width, width) guessed, as if nothing were correlated."""
        apart = np.not_equal.outer(self.column, self.column)
        blocks = [
            np.zeros(1) if isinstance(covariate, Column) else guess.shares(len(covariate))[1:]
            for covariate in self.on
        ]
        shares = np.concatenate(blocks)
        own = np.where(self.number, guess.variance, shares)
        inner = np.outer(shares, shares) * apart + np.diag(own)
        return np.block([[np.ones((1, 1)), shares[None]], [shares[:, None], inner]])

    def inside(self, centre: Array) -> Array:
        """The nearest centre (components,), by column, that is a mean of some records."""
        number = np.array(self.number)
        bounded = np.clip(centre, np.where(number, -1.0, 0.0), 1.0)
        total = np.bincount(self.column, np.where(number, 0.0, bounded))
        return np.asarray(bounded / np.maximum(total, 1.0)[list(self.column)])

    def radius(self, centre: Array) -> float:
        """The largest distance of any record's components from a centre (components,)."""
        square = 0.0
        for place, one in enumerate(self.on):
            middle = centre[np.array(self.column) == place]
            if isinstance(one, Column):
                square += (1.0 + abs(float(middle[0]))) ** 2
            else:  # of the class that has the least of the centre, or of the first
                square += float(middle @ middle) + max(0.0, 1.0 - 2.0 * float(middle.min()))
        return math.sqrt(square)

    def design(self, cells: Cells) -> Array:
        """(n, width) components, nan in what belongs to a missing cell."""
        blocks = [_block(cells, covariate) for covariate in self.on]
        return np.column_stack([np.ones(len(blocks[0])), *blocks])


@dataclass(frozen=True, kw_only=True)
class Patterns(Covariates):
    """All combinations of classes of some columns.

    Args:
        on: the classes of each column, at least one.

    Raises:
        StudyError: no column, one of them twice, or too many combinations.
    """

    on: tuple[Levels, ...]

    def __post_init__(self) -> None:
        """Refuses what cannot be told apart."""
        super().__post_init__()
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

    def shares(self, guess: Guess) -> Array:
        """(patterns,) guessed, as if columns were independent."""
        found = np.ones(1)
        for levels in self.on:
            found = np.outer(found, guess.shares(len(levels))).ravel()
        return found

    @property
    def table(self) -> Array:
        """(patterns, components) of 0 and 1, without the constant."""
        grid = np.indices([len(levels) for levels in self.on]).reshape(len(self.on), -1)
        blocks = [
            np.eye(len(levels))[column][:, levels.order[1:]]
            for levels, column in zip(self.on, grid, strict=True)
        ]
        return np.hstack(blocks)


def _block(cells: Cells, one: Levels | Column) -> Array:
    if isinstance(one, Column):
        return scaled(cells, one)[:, None]
    places = one.places(cells)
    hot = one_hot(places, len(one))[:, one.order[1:]]
    return np.where(places[:, None] < 0, np.nan, hot)
