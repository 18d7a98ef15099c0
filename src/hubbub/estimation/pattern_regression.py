"""Regressions on classes: how a record says its pattern, and what is told of patterns.

Theory of operation (after ResidualPlanner, Xiao et al. 2023). Numbers by pattern have a component
for each set of covariates: the empty one is their mean, that of one covariate how its classes
differ, that of more an interaction. With one-hot vectors all components have the same noise; yet a
score is made of those of the model, and of others only as far as effects bend it. So a record sends
the one-hot vector with the component of each set multiplied by a root of .3 for each covariate
beyond the first, of interactions that are no part of the model, and all by what makes it as long as
the one-hot vector was. With one covariate nothing changes.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.settings import Key, text, texts
from hubbub.core.tabular.levels import Array, Levels
from hubbub.estimation.effects import HIDDEN, TOO_NOISY, Effects, Names, few_events, omitted, told
from hubbub.estimation.intervals import chi_square_test, normal_quantile
from hubbub.estimation.regression import Patterns, Regression
from hubbub.estimation.stacking import Margins, Told
from hubbub.estimation.statistic import Answer, NoisyTest, OneSum
from hubbub.estimation.statistic_keys import StatisticKeys, table_of

_SHRUNK = 0.3  # the square of an interaction, for each covariate beyond the first


@dataclass(frozen=True, kw_only=True)
class PatternLayout:
    """A symmetric matrix whose columns, of length 1, are sent for patterns.

    Args:
        shape: how many classes each covariate has; the last one's change fastest.
        kept: sets of covariates, by their places, whose interactions are as exact as effects.
    """

    shape: tuple[int, ...]
    kept: Collection[frozenset[int]] = frozenset()

    @cached_property
    def sent(self) -> Array:
        """(patterns, patterns) what is sent of each pattern, a column of length 1."""
        return self._mixed(0.5)

    @cached_property
    def counts(self) -> Array:
        """(patterns, patterns): from what was sent, summed, to numbers by pattern."""
        return self._mixed(-0.5)

    @cached_property
    def widest(self) -> float:
        """The largest squared distance of two patterns' parts with equal inner blocks of length 1.

        Inner blocks have no negative inner products, so where columns form an acute angle or a
        right one, 2 is a bound for any two (docs/privacy.md P23).
        """
        return 2.0 * (1.0 - min(0.0, float((self.sent @ self.sent).min())))

    def encode(self, places: NDArray[np.int64], inner: Array) -> Array:
        """(n, patterns, width) of records in some pattern, with blocks (n, width) inside."""
        found = self.sent[np.maximum(places, 0)] * (places >= 0)[:, None]
        return np.asarray(found[:, :, None] * inner[:, None, :])

    def _mixed(self, power: float) -> Array:
        """The sum of the components' projections, each times a power of its square."""
        squares = {
            which: _SHRUNK ** max(len(which) - 1, 0) if which not in self.kept else 1.0
            for which in self._sets()
        }
        patterns = math.prod(self.shape)
        # A pattern's own component of a set has so large a part of its square.
        length = sum(
            square * math.prod(self.shape[place] - 1 for place in which) / patterns
            for which, square in squares.items()
        )
        parts = (
            self._projection(which) * (square / length) ** power
            for which, square in squares.items()
        )
        return np.asarray(sum(parts))

    def _sets(self) -> Iterator[frozenset[int]]:
        places = range(len(self.shape))
        for size in range(len(self.shape) + 1):
            yield from map(frozenset, itertools.combinations(places, size))

    def _projection(self, which: frozenset[int]) -> Array:
        """(patterns, patterns) onto the component of a set of covariates."""
        found = np.ones((1, 1))
        for place, classes in enumerate(self.shape):
            mean = np.full((classes, classes), 1.0 / classes)
            found = np.kron(found, np.eye(classes) - mean if place in which else mean)
        return found


# What else a regression on classes tells from the same cells: interactions, trends, subgroups.
#
# Theory of operation. The noisy sum holds every combination of classes (a *pattern*), so any model
# of them can be fitted: another design is another (patterns, components) matrix, and privacy is not
# touched. Interactions are products of two columns' components, and part of the model; a trend
# takes the numbers of a column's classes, 0 and up, for its components; a subgroup is the patterns
# that have a class. Tests of several effects are Wald's, with the covariance of sampling and noise.

PER_CLASS = "trend per class"
INTERACTION = "interaction"
OF_PATTERNS: dict[str, Key] = {
    "interactions": Key(
        says='`"logistic"`, `"cox"` on classes: pairs of covariates whose interaction is '
        "in the model too, each with a test.",
        values='list of pairs such as `[["sex", "stage"]]`',
        schema={"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        default="none",
    ),
    "trend": texts(
        '`"logistic"`, `"cox"` on classes: covariates whose trend over their classes '
        "is also given.",
        "list of covariates",
        default="none",
    ),
    "subgroups": text(
        '`"logistic"`, `"cox"` on classes: the covariate whose effect is given in '
        "each class of every other one, with tests of interaction.",
        "covariate",
        default="none",
    ),
}


@dataclass(frozen=True, kw_only=True)
class PatternRegression(Regression, OneSum):
    """A regression on classes, from one sum of cells.

    Args:
        interactions: pairs of covariates whose products are in the model.
        trend: covariates whose trend over their classes is told besides.
        subgroups: a covariate whose effect alone is told in each class of every other one; empty
            for none.
    """

    on: tuple[Levels, ...]
    interactions: tuple[tuple[str, str], ...] = ()
    trend: tuple[str, ...] = ()
    subgroups: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = [covariate.column.name for covariate in self.on]
        pairs = [name for pair in self.interactions for name in pair]
        for name in (*pairs, *self.trend, *([self.subgroups] if self.subgroups else [])):
            if name not in known:
                raise StudyError(
                    f"expected one of the covariates {', '.join(known)}, found {name}; add it to "
                    "covariates, in classes"
                )
        if any(one == other for one, other in self.interactions):
            raise StudyError(
                "expected pairs of different covariates, found the same one twice; name two"
            )
        if self.subgroups and len(known) < 2:
            raise StudyError(
                f"expected covariates other than {self.subgroups}, found none; subgroups "
                "are formed by them"
            )

    @property
    def covariates(self) -> Patterns:
        """Its covariates, of which all combinations are counted."""
        return Patterns(on=self.on)

    @cached_property
    def layout(self) -> PatternLayout:
        """How a record says its pattern: what is asked is more exact than other interactions."""
        pairs = (*self.interactions, *self._subgroup_pairs())
        return PatternLayout(
            shape=self.covariates.shape,
            kept=frozenset(frozenset(map(self._place, pair)) for pair in pairs),
        )

    def by_pattern(self, sums: Array) -> Array:
        """(patterns, width) noisy numbers of each pattern, from a noisy sum (size,)."""
        return np.asarray(self.layout.counts @ sums.reshape(len(self.covariates), -1))

    def through_layout(self, margins: Margins) -> Margins:
        """What a block tells, from what numbers by pattern would."""
        patterns = len(self.covariates)
        return {
            margin: Told((self.layout.counts @ told.inside.reshape(patterns, -1)).ravel(), told.row)
            for margin, told in margins.items()
        }

    @property
    def design(self) -> Array:
        """(patterns, components) of the model, without the constant."""
        return self._with(self.interactions)

    @abstractmethod
    def fitted(
        self, cells: Array, design: Array, sigma: float, kept: NDArray[np.bool_] | None = None
    ) -> Effects | None:
        """Effects of a design's components (patterns, components), in those patterns or in all."""

    @abstractmethod
    def records_of(self, cells: Array) -> tuple[Array, float]:
        """(patterns,) records, and their noise where that of patterns' numbers is 1."""

    def asked_of_patterns(self) -> dict[str, Any]:
        """The keys of what is asked besides the effects themselves."""
        return table_of(interactions=self.interactions, trend=self.trend, subgroups=self.subgroups)

    def told_of(self, cells: Array, sigma: float) -> Answer:
        """The whole answer from noisy cells."""
        main = self._fit(cells, self.design, sigma)
        names = (*self.covariates.names, *self._products(self.interactions))
        rows = main.rows(names, self.ratio, self.confidence) if main else ()
        if not rows:
            return self.make_answer(TOO_NOISY, notes=(self.note,))
        notes = [self.note, *omitted(names, main)]
        for group, names, fit in (*self._trends(cells, sigma), *self._of_subgroups(cells, sigma)):
            rows += tuple(
                replace(row, group=group) for row in fit.rows(names, self.ratio, self.confidence)
            )
            where = f" ({group})" if group else ""
            notes += few_events(tuple((column, level + where) for column, level in names), fit)
        tests = tuple(self._tests(cells, main, sigma))
        return self.make_answer(rows=rows, tests=tests, notes=tuple(notes))

    def _fit(
        self, cells: Array, design: Array, sigma: float, kept: NDArray[np.bool_] | None = None
    ) -> Effects | None:
        """What `fitted` says of components that somebody has; nothing is known of others."""
        seen, patterns = self.seen(cells, design, sigma, kept)
        fit = self.fitted(cells, design[:, seen], sigma, patterns) if seen.any() else None
        return fit and replace(fit.among(seen), z=normal_quantile(self.confidence))

    def seen(
        self, cells: Array, design: Array, sigma: float, kept: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(components,) that somebody has, and (patterns,) with no other, of those or of all."""
        number, noise = self.records_of(cells)
        among = np.ones(len(design), dtype=np.bool_) if kept is None else kept
        has = (design.T != 0) & among
        seen = has @ number >= HIDDEN * sigma * noise * np.linalg.norm(
            has @ self.layout.counts, axis=1
        )
        return seen, among & ~has[~seen].any(axis=0)

    def _tests(self, cells: Array, main: Effects | None, sigma: float) -> Iterator[NoisyTest]:
        """Of each interaction, where all of its effects are told; a subgroup's beside the model."""
        first = start = self.covariates.width - 1
        for pair in self.interactions:
            size = len(self._products((pair,)))
            if main is not None and (test := wald(main, range(start, start + size))) is not None:
                yield replace(test, column=_pair(pair))
            start += size
        for pair in self._subgroup_pairs():
            if pair in self.interactions or pair[::-1] in self.interactions:
                continue
            both = self._fit(cells, self._with((pair,)), sigma)
            if both and (test := wald(both, range(first, len(both.values)))) is not None:
                yield replace(test, column=_pair(pair))

    def _trends(self, cells: Array, sigma: float) -> Iterator[tuple[str, Names, Effects]]:
        """Of no group, the name of each trend and its effect, with no other."""
        for name in self.trend:
            place = self._place(name)
            columns = np.array(self.covariates.column)
            others = self.covariates.table[:, columns != place]
            design = np.column_stack([self.covariates.grid[place], others])
            fit = self._fit(cells, design, sigma)
            if fit is not None:
                alone = np.append(fit.clear[0], np.zeros(others.shape[1]))
                yield "", ((name, PER_CLASS),), replace(fit, clear=alone)

    def _of_subgroups(self, cells: Array, sigma: float) -> Iterator[tuple[str, Names, Effects]]:
        """Each class of the others, and the effects of one covariate alone in it."""
        if not self.subgroups:
            return
        place, columns = self._place(self.subgroups), np.array(self.covariates.column)
        design = self.covariates.table[:, columns == place]
        names = tuple(name for name in self.covariates.names if name[0] == self.subgroups)
        for number, other in enumerate(self.on):
            grid = self.covariates.grid[number]
            for level, kept in enumerate(grid == np.arange(len(other))[:, None]):
                fit = None if number == place else self._fit(cells, design, sigma, kept)
                if fit is not None:
                    yield f"{other.column.name}: {other.names[level]}", names, fit

    def _subgroup_pairs(self) -> list[tuple[str, str]]:
        names = [covariate.column.name for covariate in self.on]
        return [(self.subgroups, name) for name in names if self.subgroups not in ("", name)]

    def _with(self, pairs: tuple[tuple[str, str], ...]) -> Array:
        """All covariates' components, and the products of these pairs'."""
        table, columns = self.covariates.table, np.array(self.covariates.column)
        blocks = [table]
        for pair in pairs:
            one, other = (table[:, columns == self._place(name)] for name in pair)
            blocks.append((one[:, :, None] * other[:, None, :]).reshape(len(table), -1))
        return np.hstack(blocks)

    def _products(self, pairs: tuple[tuple[str, str], ...]) -> Names:
        """What the components of products are called."""
        levels = {
            covariate.column.name: [covariate.names[k] for k in covariate.order[1:]]
            for covariate in self.on
        }
        return tuple(
            (_pair(pair), f"{first} and {second}")
            for pair in pairs
            for first in levels[pair[0]]
            for second in levels[pair[1]]
        )

    def _place(self, name: str) -> int:
        return [covariate.column.name for covariate in self.on].index(name)


def wald(effects: Effects, which: Iterable[int]) -> NoisyTest | None:
    """The test that some effects are none, by sampling and noise; None if one is not told.

    Those of which nothing is known, as of a class that nobody is in, are no part of it.
    """
    errors = effects.errors
    places = [place for place in which if math.isfinite(errors[place])]
    if not places or not set(places) <= set(told(effects)):
        return None
    values, covariance = effects.values[places], effects.covariance[np.ix_(places, places)]
    statistic = float(values @ np.linalg.solve(covariance, values))
    return chi_square_test(INTERACTION, statistic, len(values))


def patterns_asked(keys: StatisticKeys, on: tuple[Any, ...], *others: str) -> dict[str, Any]:
    """What is asked of patterns besides effects; refuses it, and other keys, beside numbers."""
    section = keys.section
    asked = [key for key in (*OF_PATTERNS, *others) if key in section]
    if asked and not all(isinstance(covariate, Levels) for covariate in on):
        raise section.refusal(
            asked[0], "absent beside covariates that are numbers", "give them break points"
        )
    pairs = section.content.get("interactions", [])
    wrong = not isinstance(pairs, list) or any(
        not isinstance(pair, list)
        or len(pair) != 2
        or not all(isinstance(name, str) for name in pair)
        for pair in pairs
    )
    if wrong:
        raise section.refusal("interactions", "pairs of covariates", 'write [["sex", "stage"]]')
    settings: dict[str, Any] = {"interactions": tuple((one, other) for one, other in pairs)}
    settings["trend"] = section.texts("trend", ())
    settings["subgroups"] = section.text("subgroups", "")
    return {key: value for key, value in settings.items() if value}


def _pair(pair: tuple[str, str]) -> str:
    return f"{pair[0]} × {pair[1]}"
