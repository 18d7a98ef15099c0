"""The privacy-loss law of a unit that owns several records (docs/privacy.md P20).

A patient with k records, of which each joins a batch by a coin of its own: as many as a binomial
number take part, and each moves the sum by up to C. This file knows one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lgamma, log, log1p

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy.normal import below, interval_mass, log_above, rising, upper_point
from hubbub.core.privacy.roots import root

Array = NDArray[np.float64]

_NEWTON = 60
_CLOSE = 2e-16
_REACH = 39.0  # from its mean N(0, 1) has no mass that a float holds
_ROWS = 1 << 18  # numbers that are worked on together: what they need is in a cache
_NOTHING = 50.0  # the log of how many times the largest term of a sum is what does not count


@dataclass(frozen=True, kw_only=True)
class UnitRemoval:
    """P = sum over j of Bin(records, rate)(j) N(j shift), Q = N(0): the unit is there under P."""

    rate: float
    shift: float
    records: int
    atom: float = 0.0
    missing: float = 0.0

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        outcomes = self._outcome(edges)
        absent = interval_mass(outcomes, 0.0)
        present = np.zeros_like(absent)
        weights = np.exp(self._log_weights)
        for count in np.flatnonzero(weights).tolist():
            mean = count * self.shift
            first, last = np.searchsorted(outcomes, [mean - _REACH, mean + _REACH])
            near = slice(max(int(first) - 1, 0), int(last) + 1)
            masses = interval_mass(outcomes[near], mean)
            present[near.start : near.start + masses.size] += weights[count] * masses
        return present, absent

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        reach, weights = upper_point(tail), np.exp(self._log_weights)

        def excess(outcome: float) -> float:
            return log(max(float(weights @ below(self._means - outcome)), 1e-300))

        most = self.records * self.shift + reach + 1
        last = float(root(lambda x: excess(x) - log(tail), -reach, most, xtol=1e-3))
        return rising(self.loss(np.linspace(-reach, last, count)))

    def loss(self, outcome: Array) -> Array:
        """log of the sum over j of weight_j exp(j m x - (j m)^2 / 2)."""
        terms = self._log_weights - self._means**2 / 2
        sums = np.logaddexp.reduce(terms + np.outer(outcome, self._means), axis=1)
        return np.asarray(sums, dtype=np.float64)

    @cached_property
    def _means(self) -> Array:
        return np.asarray(self.shift * np.arange(self.records + 1), dtype=np.float64)

    @cached_property
    def _log_weights(self) -> Array:
        """log Bin(records, rate)(j)."""
        k = self.records
        choose = [lgamma(k + 1) - lgamma(j + 1) - lgamma(k - j + 1) for j in range(k + 1)]
        taking = np.arange(k + 1)
        return np.asarray(choose + taking * log(self.rate) + (k - taking) * log1p(-self.rate))

    def _outcome(self, loss: Array) -> Array:
        """The outcome at which the loss is reached; -inf below the smallest loss.

        With u = m x and a_j = weight_j exp(-(j m)^2 / 2), the sum over j >= 1 of a_j e^(ju) is
        e^loss - weight_0. Its logarithm is convex in u, with slopes from 1 to `records`: Newton's
        method falls onto the root from where the first single term reaches it.
        """
        none = self.records * log1p(-self.rate)  # log weight_0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            small = log_above(np.minimum(loss, 0), none, -np.expm1(none))
            # e^l - w = e^l (1 - w - w (e^-l - 1))
            rest = -np.expm1(none) - np.exp(none) * np.expm1(-np.maximum(loss, 0))
            goal = np.where(loss < 0, small, loss + np.log(rest))
        outcome = np.where(goal > 0, np.inf, -np.inf)
        there = np.isfinite(goal)
        outcome[there] = self._solved(goal[there])
        return np.asarray(outcome / self.shift)

    def _solved(self, goal: Array) -> Array:
        """The u at which the log of the sum over j >= 1 of a_j e^(ju) is the goal."""
        many = np.arange(1.0, self.records + 1)
        terms = self._log_weights[1:] - self._means[1:] ** 2 / 2
        rows = max(1, _ROWS // self.records)
        few = (goal[first : first + rows] for first in range(0, goal.size, rows))
        return np.concatenate([np.zeros(0), *(_newton(one, terms, many) for one in few)])


def _newton(goal: Array, terms: Array, many: Array) -> Array:
    """The same of a few goals, without terms that are nothing beside the largest.

    At the start the sum is at least the goal, and where every term is a `many.size`-th of that it
    is at most the goal: the root lies between.
    """
    u = ((goal[:, None] - terms) / many).min(axis=1)
    least, most = terms + (u.min() - log(many.size)) * many, terms + u.max() * many
    counted = slice(
        int(np.argmax(least >= least.max() - _NOTHING)),
        many.size - int(np.argmax((most >= most.max() - _NOTHING)[::-1])),
    )
    terms, many = terms[counted], many[counted]
    for _ in range(_NEWTON):
        each = terms + u[:, None] * many
        top = each.max(axis=1)
        shares = np.exp(each - top[:, None])
        total = shares.sum(axis=1)
        change = (top + np.log(total) - goal) * total / (shares @ many)
        u = u - change
        if np.all(np.abs(change) <= _CLOSE * (1 + np.abs(u)) * 4):
            break
    return np.asarray(u)
