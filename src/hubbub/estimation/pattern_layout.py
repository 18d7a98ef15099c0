"""How a record says its pattern of classes where a model of few effects is read from the sum.

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
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.statistic import Array

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
