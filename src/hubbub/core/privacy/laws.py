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
from functools import cache, cached_property
from math import erf, erfc, exp, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy.roots import root

# N(0, 1): masses of intervals, and the Gaussian mechanism without sampling in closed form.
#
# Each mass is accurate relative to itself, however far in the tail.
#
# A privacy loss bin can be a million times narrower than the distribution and thirty standard
# deviations away from its centre; a difference of two distribution functions would then be noise.
# Narrow intervals are integrated by Gauss-Legendre quadrature of the positive density, wide ones by
# the tail function on the side where it is small.

Array = NDArray[np.float64]

INV_SQRT_2PI = 0.3989422804014327
# So many nodes integrate exp(-(c + s)^2 / 2) over |s| <= r with relative error < 1e-16 while
# r (|c| + 2) is at most the second number.
NARROW = ((3, 0.01), (6, 0.4))
_NORMAL = NormalDist()
_HALVES = {
    3: ((-0.7745966692414834, 0.5555555555555557), (0.0, 0.8888888888888888)),
    6: (
        (-0.9324695142031519, 0.17132449237917027),
        (-0.6612093864662645, 0.3607615730481387),
        (-0.2386191860831969, 0.46791393457269104),
    ),
}  # of nodes and weights, as NumPy gives them: its polynomials take longer to import than to use


@cache
def gauss(nodes: int) -> tuple[tuple[float, float], ...]:
    """Nodes in [-1, 1] of Gauss and Legendre, with their weights."""
    if half := _HALVES.get(nodes):
        return (*half, *((-node, weight) for node, weight in half[: nodes // 2][::-1]))
    places, weights = np.polynomial.legendre.leggauss(nodes)
    return tuple(zip(places.tolist(), weights.tolist(), strict=True))


def interval_mass(edges: Array, mean: float) -> Array:
    """Masses that N(mean, 1) gives to the intervals between consecutive edges (may be infinite)."""
    return masses_between(edges[:-1], edges[1:], mean)


def masses_between(left: Array, right: Array, mean: float | Array) -> Array:
    """Masses that N(mean, 1) gives to intervals, of any shape."""
    mass = np.empty(left.shape)
    with np.errstate(invalid="ignore"):
        # The radius must not depend on the mean: it cancels in the ratio of two masses.
        centre, radius = (left + right) / 2 - mean, (right - left) / 2
        extent = radius * (np.abs(centre) + 2)
    least = -1.0
    for nodes, most in NARROW:
        narrow = np.nonzero((extent > least) & (extent <= most))
        mass[narrow] = _narrow(centre[narrow], radius[narrow], nodes)
        least = most
    wide = np.nonzero(~(extent <= least))
    mass[wide] = _wide((left - mean)[wide], (right - mean)[wide])
    return mass


def _wide(left: Array, right: Array) -> Array:
    """Difference of tail functions, taken on the side where they are small."""
    # P13 (4): right relative to itself, also where a distribution function is nearly 1.
    flip = left > 0
    upper = below(np.where(flip, -left, right))
    lower = below(np.where(flip, -right, left))
    return np.asarray(np.maximum(upper - lower, 0.0))


def below(points: Array) -> Array:
    """Mass of N(0, 1) below points; SciPy's takes longer to import than few points take here."""
    return np.asarray([erfc(-x / sqrt(2)) / 2 for x in points.tolist()], dtype=np.float64)


def rising(values: Array) -> Array:
    """Sorted and each once; NumPy's own `unique` loads its masked arrays first."""
    values = np.sort(values)
    return np.asarray(values[np.concatenate([[True], values[1:] != values[:-1]])])


def _narrow(centre: Array, radius: Array, nodes: int) -> Array:
    """Gauss-Legendre sum of the density over [centre - radius, centre + radius]."""
    total = np.zeros_like(centre)
    for node, weight in gauss(nodes):
        point = centre + radius * node
        total += weight * np.exp(-0.5 * point * point)
    return np.asarray(total * radius * INV_SQRT_2PI)


def log_above(loss: Array, least: float, rest: float) -> Array:
    """log(e^loss - e^least) of losses up to 0, -inf where they are not above the least.

    Far below 0 a float cannot tell from 1 what either power lacks of it.

    Args:
        rest: 1 - e^least.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = np.log(np.maximum(np.expm1(loss) + rest, 0))
        far = loss + np.log(np.maximum(-np.expm1(least - loss), 0))
        return np.asarray(np.where(loss > -1, near, far))


def upper_point(tail: float) -> float:
    """Where N(0, 1) has so much beyond."""
    return -_NORMAL.inv_cdf(tail)


def gaussian_delta(shift: float, epsilon: float) -> float:
    """delta(epsilon) of N(shift, 1) against N(0, 1) (Balle and Wang 2018).

    S steps of shift mu are one step of shift mu sqrt(S) (docs/privacy.md P1, row "full-batch").
    """
    from scipy.special import erfcx, log_ndtr, ndtr  # which takes long to import

    near, far = epsilon / shift - shift / 2, epsilon / shift + shift / 2
    # There the first term is near 1, so that nothing cancels; `erfcx` would grow like e^(x^2).
    if near < -5:
        return float(ndtr(-near) - exp(epsilon + float(log_ndtr(-far))))
    mills = sqrt(pi / 2) * (erfcx(near / sqrt(2)) - erfcx(far / sqrt(2)))
    return float(exp(-near * near / 2) / sqrt(2 * pi) * mills)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The epsilon at which N(shift, 1) against N(0, 1) reaches delta; 0 if delta(0) is below it."""
    if gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    # There P[N > sqrt(2 log(1 / delta))], which bounds delta(epsilon), is at most half the delta
    # asked for.
    high = shift * shift / 2 + shift * sqrt(2 * log(1 / delta)) + 1e-9

    def excess(epsilon: float) -> float:
        return log(max(gaussian_delta(shift, epsilon), 1e-300)) - log(delta)

    return float(root(excess, 0.0, high, xtol=1e-14, rtol=1e-14))


# The privacy-loss law of a unit that owns several records (docs/privacy.md P20).
#
# A patient with k records, of which each joins a batch by a coin of its own: as many as a binomial
# number take part, and each moves the sum by up to C.

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
        # P20: with `count` of the unit's records in the batch the mean is so many shifts away.
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
        """The outcome at which the loss is reached; -inf below the smallest loss."""
        # With u = m x and a_j = weight_j exp(-(j m)^2 / 2), the sum over j >= 1 of a_j e^(ju) is
        # e^loss - weight_0. Its logarithm is convex in u, with slopes from 1 to `records`: Newton's
        # method falls onto the root from where the first single term reaches it.
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
    """The same of a few goals, without terms that are nothing beside the largest."""
    # At the start the sum is at least the goal, and where every term is a `many.size`-th of that it
    # is at most the goal: the root lies between.
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
        # P1: the loss grows with the outcome, so an interval of losses is one of outcomes.
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
        # The swapped pair has the negative losses, and P and Q change places.
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
        removal = Removal(rate=self.rate, shift=self.shift)
        return rising(removal.loss(outcomes) - removal.loss(-outcomes))

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
        # P1: what the two halves leave of a total mass of 1.
        return (1 - self.rate) * erf(self.shift / 2 / sqrt(2))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`; zero has to be one of the edges or outside them."""
        # P1: above zero the record's removal, below its reverse, whose losses are mirrored.
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
        # P8, P10: which law it is is shown, so each outcome keeps the loss it has under that law.
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
    """What a mass of it costs, see `arguments.spend`: as much for every law of a mixture."""
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
        # P12: the law from below may leave mass out, and then is below all the more.
        return replace(law, above=with_missing(law.above, slack))
    changed: Any = law  # each of the other laws is a dataclass with this field
    return cast(Law, replace(changed, missing=law.missing + slack))
