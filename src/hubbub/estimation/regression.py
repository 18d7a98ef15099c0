"""Regressions: covariates in a record's vector, and what is said of their effects.

A numeric column is a number in [-1, 1]; classes are 0 or 1 each, but for the reference, which the
others are compared with. Where there are no numbers, every combination of classes is a pattern.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels, column_of
from hubbub.estimation.effects import PER_UNIT, TOO_NOISY, Effects, omitted
from hubbub.estimation.statistic import Answer, Expectation, Statistic, one_hot, scaled

LEFT_OUT = "records without the outcome or a covariate are left out"
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
        names: list[tuple[str, str]] = []
        for covariate in self.on:
            if isinstance(covariate, Column):
                names.append((covariate.name, PER_UNIT))
            else:
                first, *others = (covariate.names[place] for place in covariate.order)
                names += [(covariate.column.name, f"{name} against {first}") for name in others]
        return tuple(names)

    @property
    def number(self) -> tuple[bool, ...]:
        """Whether each component but the constant is a number."""
        return tuple(level == PER_UNIT for _, level in self.names)

    @property
    def column(self) -> tuple[int, ...]:
        """The place of each component's column in `on`."""
        widths = [1 if isinstance(one, Column) else len(one) - 1 for one in self.on]
        return tuple(np.repeat(np.arange(len(widths)), widths).tolist())

    @property
    def per_unit(self) -> Array:
        """(components,) effects on a component of 1, times this, are per unit of the column."""
        units = [2.0 / np.ptp(one.bounds) if isinstance(one, Column) else 1.0 for one in self.on]
        return np.array(units)[list(self.column)]

    def moments(self, guess: Guess) -> Array:
        """(width, width) guessed, as if nothing were correlated."""
        apart = np.not_equal.outer(self.column, self.column)
        shares = np.concatenate(
            [
                np.zeros(1) if isinstance(one, Column) else guess.shares(len(one))[1:]
                for one in self.on
            ]
        )
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
        super().__post_init__()
        if len(self) > _MOST:
            raise StudyError(
                f"expected at most {_MOST} combinations of classes, found {len(self)}; use fewer "
                "columns or classes"
            )

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many classes each column has; the last one's change fastest."""
        return tuple(map(len, self.on))

    def places(self, cells: Cells) -> NDArray[np.int64]:
        """(n,) the number of each record's pattern, -1 where a covariate is missing."""
        columns = np.array([levels.places(cells) for levels in self.on])
        place = np.ravel_multi_index(tuple(np.maximum(columns, 0)), self.shape)
        return np.where(columns.min(axis=0) < 0, -1, place)

    def shares(self, guess: Guess) -> Array:
        """(patterns,) guessed, as if columns were independent."""
        shares: Array = np.ones(1)
        for classes in self.shape:
            shares = np.asarray(np.kron(shares, guess.shares(classes)), dtype=np.float64)
        return shares

    @property
    def grid(self) -> NDArray[np.int64]:
        """(columns, patterns) the class of each column in each pattern."""
        return np.indices(self.shape).reshape(len(self.on), -1)

    @property
    def table(self) -> Array:
        """(patterns, components) of 0 and 1, without the constant."""
        blocks = [
            np.eye(len(levels))[column][:, levels.order[1:]]
            for levels, column in zip(self.on, self.grid, strict=True)
        ]
        return np.hstack(blocks)


def _block(cells: Cells, one: Levels | Column) -> Array:
    if isinstance(one, Column):
        return scaled(cells, one)[:, None]
    places = one.places(cells)
    hot = one_hot(places, len(one))[:, one.order[1:]]
    return np.where(places[:, None] < 0, np.nan, hot)


@dataclass(frozen=True, kw_only=True)
class Regression(Statistic):
    """Effects of covariates on what is explained; incomplete records are left out.

    Args:
        on: the covariates: classes, the first of which is compared with, or numeric columns.
    """

    on: tuple[Levels | Column, ...]

    ratio: ClassVar[str] = ""  # what exp(effect) is; empty where effects themselves are told
    supposed: ClassVar[str] = ""  # of which records a plan's standard error is, as a clause
    note: ClassVar[str] = LEFT_OUT  # which records are left out
    # How many times what it needs the information of skewed records must be where a plan promises
    # an answer: noise moves it by a few standard deviations.
    promised: ClassVar[float] = 2.0
    skewed: ClassVar[tuple[Guess, ...]] = (SKEWED,)  # records of which an answer is promised

    def __post_init__(self) -> None:
        _ = self.covariates

    @property
    @abstractmethod
    def explained(self) -> str:
        """What its covariates explain, by the names of its columns."""

    @property
    def covariates(self) -> Covariates:
        """Its covariates, as they are in a record's vector."""
        return Covariates(on=self.on)

    @property
    def title(self) -> str:
        return f"{self.kind.capitalize()} regression of {self.explained} on {self.covariates.title}"

    def expected_with(
        self, found: Callable[[Guess], Effects | None], sigma: float, quantity: str
    ) -> Expectation:
        """What may be said before records are touched, of what is found in records as guessed."""
        usual = found(USUAL)
        error = math.inf if usual is None else float(usual.errors.max())
        told = f"{quantity} known to ±{error:.2g} (one standard error){self.supposed}"
        skewed = [(guess, found(guess)) for guess in self.skewed]
        answered = _is_clear(usual, 1.0) and all(_is_clear(one, self.promised) for _, one in skewed)
        if answered and any(self.covariates.number):
            least = max(self._least_spread(guess, one) for guess, one in skewed if one)
            told += f"; numbers need a standard deviation of {100 * least:.2g} % of their range"
        return self.make_expectation(
            {quantity: error}, sigma, told, answered=answered, possible=_is_clear(usual, 1.0)
        )

    def _least_spread(self, guess: Guess, found: Effects) -> float:
        """The least deviation of a number, over its range, with which effects are promised.

        How clear an effect of numbers as guessed is grows as their variance does.
        """
        number = np.repeat(self.covariates.number, len(found.clear) // len(self.covariates.number))
        return math.sqrt(guess.variance * self.promised / float(found.clear[number].min())) / 2

    def answer_with(self, found: Effects | None) -> Answer:
        """The answer that effects give, or a refusal where none of them is told."""
        names = self.covariates.names
        rows = found.rows(names, self.ratio, self.confidence) if found else ()
        notes = (self.note, *omitted(names, found))
        return self.make_answer("" if rows else TOO_NOISY, rows=rows, notes=notes)


@dataclass(frozen=True, kw_only=True)
class OfOutcome(Regression):
    """A regression whose covariates explain one column, its outcome."""

    outcome: Column

    @property
    def explained(self) -> str:
        return self.outcome.name


def _is_clear(effects: Effects | None, times: float) -> bool:
    """Whether every effect is told, with so many times what it needs."""
    return effects is not None and bool(effects.clear.min() >= times)
