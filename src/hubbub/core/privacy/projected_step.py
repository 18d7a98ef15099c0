"""Steps that are seen through a fresh public random projection (docs/privacy.md P8).

By how much a projection lengthens a vector is public, and drawn anew in every step: the account is
the mixture over that length. This file knows the length's law, or a bound on its tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log, log1p, sqrt
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hubbub.core.privacy import arguments
from hubbub.core.privacy.dominating_pairs import Release, Step, moved
from hubbub.core.privacy.laws import (
    INV_SQRT_2PI,
    NARROW,
    Enclosed,
    Mixture,
    Removal,
    Reversed,
    gauss,
    log_odds,
    loss_at,
    masses_between,
    rising,
    upper_point,
    with_missing,
)
from hubbub.core.privacy.roots import root

# The privacy-loss law of a step that is seen through a public random projection (P8).
#
# Given the projection the pair is `Removal`'s; by how much it moves the mean is drawn with public
# weights, and shown. Written in c = log of the density of N(m) over that of N(0), the densities of
# all shifts m are functions of |c| but for one factor, so the work on a loss is shared by all of
# them.

Array = NDArray[np.float64]
Cells = NDArray[np.int64]

WIDER = (12, 2.5)  # as `laws.NARROW`: tails of many shifts take long one by one
_TOGETHER, _ALIKE = 16, 1.25  # neighbouring shifts: how many, and how far apart
_FAR = 40.0  # standard deviations, beyond which a float holds no mass
_BLOCK = 1 << 15  # numbers at a time: what the cache of a core holds


@dataclass(frozen=True, kw_only=True)
class ProjectedRemoval:
    """With weight w_i, shown: P = (1 - rate) N(0) + rate N(shift_i), Q = N(0); shifts rise."""

    rate: float
    shifts: tuple[float, ...]
    weights: tuple[float, ...]
    atom: float = 0.0
    missing: float = 0.0

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        odds = log_odds(edges, self.rate)
        absent, present = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
        for some in self._alike():
            without, with_it = self._of_some(odds, some)
            absent, present = absent + without, present + with_it
        return (1 - self.rate) * absent + self.rate * present, absent

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        shifts, weights = self._columns
        heaviest = self._of(int(np.argmax(weights))).quantiles(tail, count)
        tails = np.minimum(tail / np.maximum(weights, tail), 0.01)
        reach = np.array([upper_point(one) for one in tails])
        there = np.array([upper_point(min(one / self.rate, 0.5)) for one in tails])
        ends = np.array([-reach, np.maximum(reach, shifts + there)])
        losses = loss_at(ends * shifts - shifts**2 / 2, self.rate)
        low, high = losses[0].min(), losses[1].max()
        # Where only the other shifts reach, even steps: they may reach ten times as far.
        below = np.linspace(min(low, heaviest[0]), heaviest[0], count // 8)
        above = np.linspace(heaviest[-1], max(high, heaviest[-1]), count // 8)
        return rising(np.concatenate([below, heaviest, above]))

    @cached_property
    def _columns(self) -> tuple[Array, Array]:
        return np.array(self.shifts), np.array(self.weights)

    def _of(self, index: int) -> Removal:
        return Removal(rate=self.rate, shift=self.shifts[index])

    def _alike(self) -> Iterator[slice]:
        """Runs of neighbouring shifts: a cell is then about as wide for all of them."""
        first, shifts = 0, self._columns[0]
        while first < shifts.size:
            alike = int(np.searchsorted(shifts, _ALIKE * shifts[first], side="right"))
            last = min(alike, first + _TOGETHER)
            yield slice(first, last)
            first = last

    def _of_some(self, odds: Array, some: slice) -> tuple[Array, Array]:
        """Weighted masses of N(0) and of N(shift) between edges, added up over some shifts."""
        shifts, weights = (column[some] for column in self._columns)
        absent, present = np.zeros(odds.size - 1), np.zeros(odds.size - 1)
        with np.errstate(invalid="ignore"):
            across = odds[:-1] * odds[1:] <= 0
            seen = across | (_least_size(odds) < (_FAR + shifts[-1] / 2) * shifts[-1])
            centre, radius = (odds[:-1] + odds[1:]) / 2, np.diff(odds) / 2
            # The largest, over these shifts and both means, of `laws.masses_between`'s extents.
            extent = radius * (np.abs(centre) / shifts[0] ** 2 + 2 / shifts[0] + 0.5)
        least = -1.0
        for nodes, most in (*NARROW, WIDER):
            narrow = np.flatnonzero((extent > least) & (extent <= most) & seen)
            for cells in _blocks(narrow, shifts.size):
                losses = _narrow(centre[cells], radius[cells], nodes, shifts, weights)
                absent[cells], present[cells] = losses
            least = most
        wide = np.flatnonzero(~(extent <= least) & seen)
        left, right = (odds[wide + end, None] / shifts + shifts / 2 for end in (0, 1))
        absent[wide] = masses_between(left, right, np.zeros_like(shifts)) @ weights
        present[wide] = masses_between(left, right, shifts) @ weights
        return absent, present


def _least_size(odds: Array) -> Array:
    """Of both ends of each interval."""
    size = np.abs(odds)
    return np.minimum(size[:-1], size[1:])


def _blocks(cells: Cells, each: int) -> list[Cells]:
    """The cells in parts that are quickly worked on."""
    return np.array_split(cells, cells.size * each // _BLOCK + 1)


def _narrow(
    centre: Array, radius: Array, nodes: int, shifts: Array, weights: Array
) -> tuple[Array, Array]:
    """Gauss-Legendre sums over [centre - radius, centre + radius] of both weighted densities.

    At c the larger of them is exp(-(|c| / m - m / 2)^2 / 2), and the other is e^-|c| of it.
    """
    scaled = weights / shifts * INV_SQRT_2PI
    absent, present = np.zeros_like(centre), np.zeros_like(centre)
    for node, weight in gauss(nodes):
        point = centre + radius * node
        size = np.abs(point)
        away = size[:, None] / shifts - shifts / 2
        larger = weight * radius * (np.exp(-0.5 * away * away) @ scaled)
        smaller = larger * np.exp(-size)
        absent += np.where(point > 0, smaller, larger)
        present += np.where(point > 0, larger, smaller)
    return absent, present


PROJECTIONS = ("gaussian", "sign")
_CHI_TAIL = 1e-26
_LEAST_RADIUS = 2.0**-5
_CHI_CELLS, _CHI_WIDEST = (64, 1200), 0.01  # fewest and most cells; of the shift
_CHI_ERROR = 1e-12  # relative, of the chi-squared masses as they are computed
_SIGN_TAIL = 1e-26
_SIGN_CELLS = 40  # more of them lower epsilon by less than 1e-3 of itself
_SIGN_NODES = 12


def projection_factor(dimension: int, delta: float, kind: str = "gaussian") -> float:
    """C~ / C: the length that a projected unit vector exceeds with probability at most `delta`.

    Exact for Gaussian entries; Chernoff's bound for signs (P8).
    """
    if kind == "gaussian":
        from scipy.special import gammainccinv  # which takes long to import

        return sqrt(float(gammainccinv(dimension / 2, delta)) * 2 / dimension)
    exponent = 2 * log(1 / delta) / dimension
    most = root(lambda x: x - 1 - log(x) - exponent, 1.0, 2 + 2 * exponent, rtol=1e-14)
    return sqrt(most) * (1 + 1e-12)


def release_projected(
    *, dimension: int, sample_rate: float, noise_multiplier: float, count: int
) -> Release:
    """Poisson steps, each seen through a fresh public Gaussian projection to `dimension` (P8).

    Given the projection, the shift is R / z with R^2 = chi^2_k / k; R is public and independent of
    the data. H_a is convex in erf(R / (z sqrt 8)): from above the mass of each cell of R goes to
    both of its ends, from below to one radius in it, with the mean of that kept. An R below 2^-5 is
    charged as 2^-5, which pays for matrices of finite precision (P8 (8)).
    """
    from scipy import special

    half = dimension / 2
    low = max(_LEAST_RADIUS, float(np.sqrt(special.gammaincinv(half, _CHI_TAIL) / half)))
    high = float(np.sqrt(special.gammainccinv(half, _CHI_TAIL) / half))
    wanted = ceil((high - low) / noise_multiplier / _CHI_WIDEST)
    ends = np.linspace(low, high, int(np.clip(wanted, *_CHI_CELLS)) + 1)
    below, mass = float(special.gammainc(half, half * low**2)), _chi_masses(half, ends)
    share, middle = _shares_of_ends(dimension, ends, 1 / noise_multiplier)
    sides = np.append(mass * (1 - share), 0.0) + np.append(0.0, mass * share)
    # P8 (8): a smaller R is charged as the least radius.
    sides[0] += below
    above = _removals(ends, sides * (1 + _CHI_ERROR), sample_rate, noise_multiplier)
    inner, weights = np.append(low, middle), np.append(below, mass) * (1 - _CHI_ERROR)
    under = _removals(inner, weights, sample_rate, noise_multiplier)
    # P8 (1): longer projections than the last radius count as loss +inf.
    law = Enclosed(above=with_missing(above, 2 * _CHI_TAIL), below=under)
    return Release(laws=(law, law.reversed()), count=count)


def _removals(radii: Array, weights: Array, rate: float, noise: float) -> ProjectedRemoval:
    """The mixture of removals over radii; nothing that has no weight."""
    kept = weights > 0
    shifts, left = (radii[kept] / noise).tolist(), weights[kept].tolist()
    return ProjectedRemoval(rate=rate, shifts=tuple(shifts), weights=tuple(left))


def _chi_masses(half: float, ends: Array) -> Array:
    """Masses of chi^2_k / k between the squares of radii, each relative to itself."""
    from scipy.special import gammainc, gammaincc

    points = half * ends**2
    lower, upper = gammainc(half, points), gammaincc(half, points)
    return np.asarray(np.where(lower[1:] < 0.5, np.diff(lower), -np.diff(upper)))


def _shares_of_ends(dimension: int, ends: Array, distance: float) -> tuple[Array, Array]:
    """Per cell of radii, the share of its mass that goes to the upper end, and where its mean is.

    The mean is that of erfc(r distance / sqrt 8), under the density of the radius; a share is never
    too small, a radius never too large.
    """
    from scipy.special import erfc, erfcinv

    inner, weights = np.polynomial.legendre.leggauss(_SIGN_NODES)
    radii = ends[:-1, None] + np.diff(ends)[:, None] * (1 + inner) / 2
    log_density = (dimension - 1) * np.log(radii) - dimension / 2 * radii**2
    weights = weights * np.exp(log_density - log_density.max(axis=1)[:, None])
    scale = distance / sqrt(8)
    at_ends = erfc(ends * scale)
    mean = (weights * erfc(radii * scale)).sum(axis=1) / weights.sum(axis=1)
    falls = at_ends[:-1] - at_ends[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(falls > 0, (at_ends[:-1] - mean) / falls + 1e-9, 1.0)
        middle = np.where(mean > 0, erfcinv(mean) / scale * (1 - 1e-9), ends[:-1])
    return np.clip(share, 0.0, 1.0), np.clip(middle, ends[:-1], ends[1:])


def release_by_signs(step: Step, relation: str, *, dimension: int) -> Release:
    """A step that is seen through a fresh public projection of signs to `dimension` (P8 (7)).

    The law of R = |P^T a| / |a| is not known, but a bound on its tail is. Longer offsets only
    raise H_a, so the mixture over an R with that very tail dominates. It is gathered on a few
    radii: H_a is convex in erf(R distance / sqrt 8), so the mass between two of them goes to both
    with the mean of that kept. Upper bounds remain upper bounds; lower ones are those of this
    mixture and say nothing about the mechanism.

    The step's noise is relative to C *before* projecting. Nobody may choose among seeds: each is
    revealed after the model is fixed, and every reveal is a step (P8 (3)).
    """
    arguments.choice("relation", relation, arguments.RELATIONS)
    shift, one_vector = 1 / step.noise_multiplier, relation == "add-remove"
    apart = 1 if one_vector and step.sampling != "without-replacement" else 2
    everybody = step.sampling == "full-batch" or step.sample_rate == 1
    # P8 (7): e, of how many vectors the longest stretch decides.
    events = 1 if one_vector or everybody else 2
    # P8 (7): R_* has the very tail of the bound, so it is stochastically longer than R.
    radii, weights, missing = _gathered_radii(dimension, events, apart * shift)
    each = [moved(step, relation, shift * float(radius)).laws for radius in radii]
    if isinstance(each[0][0], Removal):
        shifts = tuple(cast(Removal, one[0]).shift for one in each)
        rate, kept = each[0][0].rate, tuple(weights.tolist())
        law = ProjectedRemoval(rate=rate, shifts=shifts, weights=kept, missing=missing)
        return Release(laws=(law, Reversed(law=law))[: len(each[0])], count=step.count)
    laws = tuple(one[0] for one in each)
    mixed = Mixture(weights=tuple(weights.tolist()), laws=laws, missing=missing)
    return Release(laws=(mixed,), count=step.count)


def sign_tail(radius: Array, dimension: int) -> Array:
    """An upper bound on Pr[|P^T a| >= radius |a|] for signs: Chernoff's or Cantelli's (P8 (5)).

    Above its exact value by a little more than the rounding of floats.
    """
    excess = np.maximum((radius - 1) * (radius + 1), 0.0)
    exponent = np.log1p(excess) - excess + 1e-15 * excess
    chernoff = np.exp(dimension / 2 * exponent)
    cantelli = 1 / (1 + dimension * excess**2 / 2)
    return np.asarray(np.minimum(1.0, np.minimum(chernoff, cantelli) * (1 + 1e-12)))


def _gathered_radii(dimension: int, events: int, distance: float) -> tuple[Array, Array, float]:
    """Radii, their weights, and the weight beyond the last, for the tail `events` * `sign_tail`.

    On a cell between two radii the tail is replaced by its mean with respect to
    d erf(r distance / sqrt 8); where that levels off within the cell, by its largest value.
    """
    ends = _cell_ends(dimension, events)
    tail = np.minimum(1.0, events * sign_tail(ends, dimension))
    # P8 (7): min(1, e B) is 1 up to the first radius, so R_* is never less.
    tail[0] = 1.0
    inner, weights = np.polynomial.legendre.leggauss(_SIGN_NODES)
    radii = ends[:-1, None] + np.diff(ends)[:, None] * (1 + inner) / 2
    falls = (radii**2 - ends[:-1, None] ** 2) * distance**2 / 8
    slopes = weights * np.exp(-falls)
    within = np.minimum(1.0, events * sign_tail(radii, dimension))
    means = (slopes * within).sum(axis=1) / slopes.sum(axis=1) * (1 + 1e-10)
    levels = np.where(falls[:, -1] < 4, np.minimum(means, tail[:-1]), tail[:-1])
    return ends, -np.diff(levels, prepend=1.0, append=tail[-1]), float(tail[-1])


def _cell_ends(dimension: int, events: int) -> Array:
    """Radii from where the tail leaves 1 to where it is nothing, closer where it is large."""

    def log_tail(radius: float) -> float:
        return log(events) + log(float(sign_tail(np.array(radius), dimension)))

    def chernoff_over_cantelli(excess: float) -> float:
        return dimension / 2 * (log1p(excess) - excess) + log1p(dimension * excess**2 / 2)

    last = projection_factor(dimension, _SIGN_TAIL / events, "sign")
    first = root(log_tail, 1.0, last) if events > 1 else 1.0
    scale = 1 / sqrt(dimension)
    corner = sqrt(1 + root(chernoff_over_cantelli, scale, 20 * scale))
    ends = first + (last - first) * np.linspace(0, 1, _SIGN_CELLS + 1) ** 1.5
    return np.union1d(ends, [corner] if corner > first else [])
