"""Privacy-loss laws of one step: the dominating pairs of docs/privacy.md P1, as bin masses.

A law is the distribution of the loss L = log dP/dQ for a pair (P, Q) of one-dimensional mixtures of
unit Gaussians. All that the composition needs from it is the mass that P and Q give to intervals of
the loss, so that is all a law offers: `masses(edges)`, an atom at zero, and a range that holds
nearly everything. Units: the noise has standard deviation 1, so a record of clipped norm C moves
the mean by `shift` = C / sigma = 1 / noise_multiplier. This file knows nothing of steps that
compose, of epsilon or of delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import erf, log, log1p, sqrt
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy.normal import below, interval_mass, log_above, rising, upper_point
from hubbub.core.privacy.roots import root
from hubbub.core.privacy.unit_law import UnitRemoval

Array = NDArray[np.float64]


class Law(Protocol):
    """A privacy-loss law, as far as the composition looks into it."""

    def __hash__(self) -> int:
        """Equal laws have one."""

    @property
    def atom(self) -> float:
        """Mass that both P and Q give to outcomes whose loss is exactly zero."""

    @property
    def missing(self) -> float:
        """Mass of P that the law leaves out: counted as loss +inf above, dropped below."""

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """P- and Q-masses of the intervals between increasing loss edges, without the atom."""

    def quantiles(self, tail: float, count: int) -> Array:
        """`count` increasing losses that cover all but about `tail` of P on either side."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """P = (1 - rate) N(0) + rate N(shift), Q = N(0): the record is in the data under P (P1)."""

    rate: float
    shift: float
    atom: float = 0.0
    missing: float = 0.0

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        outcomes = self._outcome(edges)
        absent = interval_mass(outcomes, 0.0)
        present = interval_mass(outcomes, self.shift)
        return (1 - self.rate) * absent + self.rate * present, absent

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        least, most = _outcomes(self.rate, self.shift, tail)
        return rising(self.loss(np.linspace(least, most, count)))

    def loss(self, outcome: Array) -> Array:
        """log(1 - q + q exp(m x - m^2 / 2))."""
        return loss_at(self.shift * outcome - self.shift**2 / 2, self.rate)

    def _outcome(self, loss: Array) -> Array:
        """The outcome x at which the loss is reached; -inf below the smallest loss."""
        return log_odds(loss, self.rate) / self.shift + self.shift / 2


@dataclass(frozen=True, kw_only=True)
class Reversed:
    """The law of the swapped pair (Q, P): the record is in the data under Q."""

    law: Law

    @property
    def atom(self) -> float:
        """See `Law.atom`."""
        return self.law.atom

    @property
    def missing(self) -> float:
        """See `Law.missing`."""
        return self.law.missing

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        p, q = self.law.masses(-edges[::-1])
        return q[::-1], p[::-1]

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        return -self.law.quantiles(tail, count)[::-1]


@dataclass(frozen=True, kw_only=True)
class ExchangedRecord:
    """P, Q = (1 - rate) N(0) + rate N(+-shift): Poisson sampling under substitution (P1)."""

    rate: float
    shift: float
    atom: float = 0.0
    missing: float = 0.0

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        outcomes = self._outcome(edges)
        absent = (1 - self.rate) * interval_mass(outcomes, 0.0)
        mine = self.rate * interval_mass(outcomes, self.shift)
        other = self.rate * interval_mass(outcomes, -self.shift)
        return absent + mine, absent + other

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        outcomes = np.linspace(*_outcomes(self.rate, self.shift, tail), count)
        forward = Removal(rate=self.rate, shift=self.shift).loss(outcomes)
        backward = Removal(rate=self.rate, shift=self.shift).loss(-outcomes)
        return rising(forward - backward)

    def _outcome(self, loss: Array) -> Array:
        """The root of a quadratic: m x = l / 2 + asinh((1 - q) / q e^{m^2/2} sinh(l / 2))."""
        half = loss / 2
        odds = log1p(-self.rate) - log(self.rate)
        with np.errstate(divide="ignore", over="ignore"):
            log_sinh = np.abs(half) + np.log(-np.expm1(-2 * np.abs(half))) - log(2)
            size = odds + self.shift**2 / 2 + log_sinh
            asinh = np.where(size > 300, size + log(2), np.arcsinh(np.exp(np.minimum(size, 300))))
        return np.asarray((half + np.sign(half) * asinh) / self.shift)


@dataclass(frozen=True, kw_only=True)
class ReplacedInBatch:
    """Sampling without replacement under substitution: the upper bound of P1.

    The loss has the density of `Removal(rate, 2 / z)` above zero, of its reverse below zero, and an
    atom at zero. `shift` is 2 / z: the record is exchanged for another, which moves the sum by 2C.
    """

    rate: float
    shift: float
    missing: float = 0.0

    @property
    def atom(self) -> float:
        """(1 - q)(1 - 2 Phi(-shift / 2))."""
        return (1 - self.rate) * erf(self.shift / 2 / sqrt(2))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`; zero has to be one of the edges or outside them."""
        removal = Removal(rate=self.rate, shift=self.shift)
        split = int(np.searchsorted(edges, 0.0))
        below = Reversed(law=removal).masses(edges[: split + 1])
        above = removal.masses(edges[split:])
        return (np.concatenate([below[0], above[0]]), np.concatenate([below[1], above[1]]))

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        losses = Removal(rate=self.rate, shift=self.shift).quantiles(tail, count)
        positive = losses[losses > 0]
        return np.concatenate([-positive[::-1], [0.0], positive])


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Which law applies is drawn with public probabilities and shown to the adversary (P8, P10)."""

    weights: tuple[float, ...]
    laws: tuple[Law, ...]
    missing: float = 0.0

    @property
    def atom(self) -> float:
        """See `Law.atom`."""
        return sum(w * law.atom for w, law in zip(self.weights, self.laws, strict=True))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        p, q = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
        for weight, law in zip(self.weights, self.laws, strict=True):
            one_p, one_q = law.masses(edges)
            p += weight * one_p
            q += weight * one_q
        return p, q

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        moving = [w * (law.atom < 1) for w, law in zip(self.weights, self.laws, strict=True)]
        heaviest = self.laws[int(np.argmax(moving))].quantiles(tail, count)
        ends = [
            law.quantiles(min(tail / max(weight, tail), 0.01), 3)[[0, -1]]
            for weight, law in zip(self.weights, self.laws, strict=True)
        ]
        low = min(heaviest[0], *(e[0] for e in ends))
        high = max(heaviest[-1], *(e[1] for e in ends))
        # Where only the other laws reach, even steps: they may reach ten times as far.
        below = np.linspace(low, heaviest[0], count // 8)
        above = np.linspace(heaviest[-1], high, count // 8)
        return rising(np.concatenate([below, heaviest, above]))


@dataclass(frozen=True, kw_only=True)
class Enclosed:
    """A law that is not known by itself, but by one that dominates it and one that it dominates."""

    above: Law
    below: Law

    @property
    def atom(self) -> float:
        """See `Law.atom`."""
        return self.above.atom

    @property
    def missing(self) -> float:
        """See `Law.missing`."""
        return self.above.missing

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`; of the law above."""
        return self.above.masses(edges)

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`; of the law above."""
        return self.above.quantiles(tail, count)

    def reversed(self) -> Enclosed:
        """What encloses the law of the swapped pair."""
        return Enclosed(above=Reversed(law=self.above), below=Reversed(law=self.below))


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """The record cannot be in the batch: the loss is zero."""

    atom: float = 1.0
    missing: float = 0.0

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        return np.zeros(edges.size - 1), np.zeros(edges.size - 1)

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        return np.zeros(1)


def loss_at(odds: Array, rate: float) -> Array:
    """log(1 - q + q e^c), for c = log of the density of N(shift) over that of N(0)."""
    return odds if rate == 1 else np.logaddexp(log1p(-rate), log(rate) + odds)


def log_odds(loss: Array, rate: float) -> Array:
    """The c of `loss_at` at which a loss is reached; -inf below the smallest loss."""
    if rate == 1:
        return loss
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        below = log_above(np.minimum(loss, 0), log1p(-rate), rate)
        above = loss + np.log(rate - (1 - rate) * np.expm1(-np.maximum(loss, 0)))
        return np.asarray(np.where(loss < 0, below, above) - log(rate))


def _outcomes(rate: float, shift: float, tail: float) -> tuple[float, float]:
    """Where (1 - rate) N(0) + rate N(shift) has about `tail` below, and above."""
    reach = upper_point(tail)

    def excess(outcome: float) -> float:
        absent, present = below(np.array([-outcome, shift - outcome]))
        return log((1 - rate) * absent + rate * present) - log(tail)

    return -reach, float(root(excess, -reach, shift + reach + 1, xtol=1e-3))


def work_of(law: Law) -> float:
    """What a mass of it costs, see `effort`: as much for every law of a mixture."""
    if isinstance(law, Enclosed):
        return work_of(law.above) + work_of(law.below)
    whole = law.law if isinstance(law, Reversed) else law
    if isinstance(whole, UnitRemoval):
        return float(whole.records)
    parts: tuple[Any, ...] = getattr(whole, "laws", getattr(whole, "shifts", (None,)))
    return 0.5 * len(parts)


def with_missing(law: Law, slack: float) -> Law:
    """A law that holds except on an event of probability `slack`, charged as loss +inf."""
    if isinstance(law, Reversed):
        return Reversed(law=with_missing(law.law, slack))
    if isinstance(law, Enclosed):
        return replace(law, above=with_missing(law.above, slack))
    changed: Any = law  # each of the other laws is a dataclass with this field
    return cast(Law, replace(changed, missing=law.missing + slack))
