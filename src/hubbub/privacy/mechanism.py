"""What a step of a study is, and which dominating pairs it has.

This is the one table that turns (sampling, relation) into the laws of docs/privacy.md P1. A
`Release` is a step as the accountant sees it: a law for each direction of the relation, and how
often it happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, erfcinv, gammainc, gammaincc, gammainccinv, gammaincinv

from hubbub.errors import StudyError
from hubbub.privacy import arguments, effort
from hubbub.privacy.laws import (
    Enclosed,
    ExchangedRecord,
    Law,
    Mixture,
    Nothing,
    Removal,
    ReplacedInBatch,
    Reversed,
    with_missing,
)
from hubbub.privacy.roots import root
from hubbub.privacy.unit_law import UnitRemoval

PROJECTIONS = ("gaussian", "sign")
_MOST_OF_A_UNIT = 1000
_CHI_TAIL = 1e-26
_LEAST_RADIUS = 2.0**-5
_CHI_CELLS, _CHI_WIDEST = (64, 1200), 0.01  # fewest and most cells; of the shift
_CHI_ERROR = 1e-12  # relative, of the chi-squared masses as they are computed
_SIGN_TAIL = 1e-26
_SIGN_CELLS = 40  # more of them lower epsilon by less than 1e-3 of itself
_SIGN_NODES = 12
_HYPERGEOMETRIC_TAIL = 1e-26
# Losses of a sampled step grow with the square of 2 / z, and e^loss must be a float.
LEAST_SAMPLED_NOISE = 0.03

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A kind of step, and how many times it happens.

    Args:
        noise_multiplier: sigma / C: standard deviation of the noise that counts against the
            adversary on the sum, over the clipping norm of one record (for both relations); no
            unit, from 0.001 to 1,000,000.
        sample_rate: probability with which a record is in the batch, from 1e-9 to 1; batch / n
            without replacement.
        sampling: "poisson", "without-replacement" or "none".
        count: number of such steps, 1 to 10,000,000.
        records_per_unit: the most records of one protected unit, a patient say, from 1 to 1000;
            C is the norm of one *record*. Above 1 for "add-remove" alone (or without sampling):
            the unit is there or not. "without-replacement" has no account of it.

    Raises:
        StudyError: a value is out of its range.

    >>> Step(noise_multiplier=2.0, sample_rate=0.1, count=100).sampling
    'poisson'
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    sampling: str = "poisson"
    count: int = 1
    records_per_unit: int = 1

    def __post_init__(self) -> None:
        # As Python's own numbers: others wrap around, or round what is certified.
        numbers = {
            "noise_multiplier": arguments.noise(self.noise_multiplier),
            "sample_rate": arguments.rate(self.sample_rate),
            "count": arguments.whole("count", self.count, least=1, most=arguments.MOST_STEPS),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        arguments.choice("sampling", self.sampling, arguments.SAMPLINGS)
        each = arguments.whole(
            "records_per_unit", self.records_per_unit, least=1, most=_MOST_OF_A_UNIT
        )
        object.__setattr__(self, "records_per_unit", each)
        if self.sampling == "none" and self.sample_rate != 1:
            raise StudyError(
                f"expected sample_rate = 1 with sampling = 'none', got {self.sample_rate:g}; "
                "leave sample_rate out or choose sampling = 'poisson'"
            )


@dataclass(frozen=True, kw_only=True)
class Release:
    """A step as the accountant composes it.

    `laws` has one law per direction that must be composed on its own (P2). `gaussian` is the shift
    of the plain Gaussian mechanism that the step is, or None: those compose in closed form.
    """

    laws: tuple[Law, ...]
    count: int
    gaussian: float | None = None


def release(step: Step, relation: str) -> Release:
    """The dominating pairs of a step, by the table of P1; of units with several records, by P20.

    Raises:
        StudyError: units of several records have no account with this sampling and relation.
    """
    arguments.choice("relation", relation, arguments.RELATIONS)
    if step.records_per_unit > 1:
        return _of_units(step, relation)
    return _moved(step, relation, 1 / step.noise_multiplier)


def _of_units(step: Step, relation: str) -> Release:
    """P20: the mixture over how many of a unit's records are in the batch."""
    many, shift = step.records_per_unit, 1 / step.noise_multiplier
    if step.sampling == "none" or (step.sampling == "poisson" and step.sample_rate == 1):
        return _moved(step, relation, many * shift)
    if step.sampling != "poisson" or relation != "add-remove":
        raise StudyError(
            "expected sampling = 'poisson' and relation = 'add-remove' with records_per_unit = "
            f"{many}, got {step.sampling!r} and {relation!r}; others have no account for units of "
            "several records: choose these, or let each unit have one record"
        )
    law = UnitRemoval(rate=step.sample_rate, shift=shift, records=many)
    return Release(laws=(law, Reversed(law=law)), count=step.count)


def _moved(step: Step, relation: str, shift: float) -> Release:
    """The release of a step in which a record moves the sum by at most `shift`."""
    substitute = relation == "substitute"
    if step.sampling == "none" or step.sample_rate == 1:
        moved = 2 * shift if substitute or step.sampling == "without-replacement" else shift
        pair = Removal(rate=1.0, shift=moved)
        # Under substitution the Gaussian pair is its own reverse.
        laws: tuple[Law, ...] = (pair,) if substitute else (pair, Reversed(law=pair))
        return Release(laws=laws, count=step.count, gaussian=moved)
    if substitute:
        law: Law = ReplacedInBatch(rate=step.sample_rate, shift=2 * shift)
        if step.sampling == "poisson":
            law = ExchangedRecord(rate=step.sample_rate, shift=shift)
        return Release(laws=(law,), count=step.count)
    moved = shift if step.sampling == "poisson" else 2 * shift
    removal = Removal(rate=step.sample_rate, shift=moved)
    return Release(laws=(removal, Reversed(law=removal)), count=step.count)


def release_with_malicious(
    *, records: int, batch: int, malicious: int, noise_multiplier: float, count: int, cells: int = 0
) -> Release:
    """Sampling without replacement where the adversary knows which `malicious` records are drawn.

    The number b' of honest members is hypergeometric and independent of the honest data, so the
    step's law is the mixture of the laws with rate b' / (records - malicious) (P10). With `cells`,
    each b' is split onto the ends of its cell so that its mean is kept: H_a is convex in the rate,
    so the mixture over the ends costs slightly more epsilon and less time. Upper bounds remain
    upper bounds; lower ones are those of that mixture.
    """
    honest = records - malicious
    members, weights = _honest_members(records, batch, malicious)
    kept = weights > _HYPERGEOMETRIC_TAIL
    dropped = float(weights[~kept].sum())
    members, weights = members[kept], weights[kept]
    if 0 < cells < members.size - 1:
        members, weights = _on_ends(members, weights, cells)
    shift = 2 / noise_multiplier
    laws: list[Law] = [
        ReplacedInBatch(rate=int(b) / honest, shift=shift) if b else Nothing() for b in members
    ]
    return Release(laws=(_mixture(weights, laws, missing=dropped),), count=count)


def release_at_quantile(
    *, records: int, batch: int, malicious: int, noise_multiplier: float, count: int, slack: float
) -> Release:
    """The paper's way with malicious records: the rate that b' exceeds with probability `slack`.

    The slack is charged in every step (P10).
    """
    rate = honest_rate(records=records, batch=batch, malicious=malicious, slack=slack)
    law = ReplacedInBatch(rate=rate, shift=2 / noise_multiplier)
    return with_slack(Release(laws=(law,), count=count), slack)


def honest_rate(*, records: int, batch: int, malicious: int, slack: float) -> float:
    """The least b* / n_honest with Pr[b' > b*] <= slack (P10)."""
    honest = records - malicious
    if slack <= 0:  # the least weights are below the smallest float
        return min(batch, honest) / honest
    members, weights = _honest_members(records, batch, malicious)
    beyond = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
    quantile = int(members[np.argmax(beyond <= slack)])
    return quantile / honest


def with_slack(one: Release, slack: float) -> Release:
    """The release if its laws hold except with probability `slack` in each step (P8, P10)."""
    return Release(laws=tuple(with_missing(law, slack) for law in one.laws), count=one.count)


def projection_factor(dimension: int, delta: float, kind: str = "gaussian") -> float:
    """C~ / C: the length that a projected unit vector exceeds with probability at most `delta`.

    Exact for Gaussian entries; Chernoff's bound for signs (P8).
    """
    if kind == "gaussian":
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
    half = dimension / 2
    low = max(_LEAST_RADIUS, float(np.sqrt(gammaincinv(half, _CHI_TAIL) / half)))
    high = float(np.sqrt(gammainccinv(half, _CHI_TAIL) / half))
    wanted = ceil((high - low) / noise_multiplier / _CHI_WIDEST)
    ends = np.linspace(low, high, int(np.clip(wanted, *_CHI_CELLS)) + 1)
    below, mass = float(gammainc(half, half * low**2)), _chi_masses(half, ends)
    share, middle = _shares_of_ends(dimension, ends, 1 / noise_multiplier)
    sides = np.append(mass * (1 - share), 0.0) + np.append(0.0, mass * share)
    sides[0] += below
    above = _removals(ends, sides * (1 + _CHI_ERROR), sample_rate, noise_multiplier)
    inner, weights = np.append(low, middle), np.append(below, mass) * (1 - _CHI_ERROR)
    under = _removals(inner, weights, sample_rate, noise_multiplier)
    law = Enclosed(above=with_missing(above, 2 * _CHI_TAIL), below=under)
    return Release(laws=(law, law.reversed()), count=count)


def _removals(radii: Array, weights: Array, rate: float, noise: float) -> Mixture:
    """The mixture of removals over radii; nothing that has no weight."""
    kept = weights > 0
    laws = [Removal(rate=rate, shift=float(r) / noise) for r in radii[kept]]
    return _mixture(weights[kept], laws, missing=0.0)


def _chi_masses(half: float, ends: Array) -> Array:
    """Masses of chi^2_k / k between the squares of radii, each relative to itself."""
    points = half * ends**2
    lower, upper = gammainc(half, points), gammaincc(half, points)
    return np.asarray(np.where(lower[1:] < 0.5, np.diff(lower), -np.diff(upper)))


def _shares_of_ends(dimension: int, ends: Array, distance: float) -> tuple[Array, Array]:
    """Per cell of radii, the share of its mass that goes to the upper end, and where its mean is.

    The mean is that of erfc(r distance / sqrt 8), under the density of the radius; a share is never
    too small, a radius never too large.
    """
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


def release_by_signs(step: Step, relation: str, *, dimension: int, tries: float = 1.0) -> Release:
    """A step that is seen through a fresh public projection of signs to `dimension` (P8 (7)).

    The law of R = |P^T a| / |a| is not known, but a bound on its tail is. Longer offsets only
    raise H_a, so the mixture over an R with that very tail dominates. It is gathered on a few
    radii: H_a is convex in erf(R distance / sqrt 8), so the mass between two of them goes to both
    with the mean of that kept. Upper bounds remain upper bounds; lower ones are those of this
    mixture and say nothing about the mechanism.

    The step's noise is relative to C *before* projecting. `tries` are the seeds from which somebody
    may choose: 1 if the seed is revealed after the model is fixed and every reveal is a step.
    """
    arguments.choice("relation", relation, arguments.RELATIONS)
    arguments.within("tries", tries, least=1, most=2.0**64)
    shift, one_vector = 1 / step.noise_multiplier, relation == "add-remove"
    apart = 1 if one_vector and step.sampling != "without-replacement" else 2
    events = tries * (1 if one_vector or step.sampling == "none" or step.sample_rate == 1 else 2)
    radii, weights, missing = _gathered_radii(dimension, events, apart * shift)
    each = [_moved(step, relation, shift * float(radius)).laws for radius in radii]
    laws = [_mixture(weights, list(way), missing=missing) for way in zip(*each, strict=True)]
    return Release(laws=tuple(laws), count=step.count)


def sign_tail(radius: Array, dimension: int) -> Array:
    """An upper bound on Pr[|P^T a| >= radius |a|] for signs: Chernoff's or Cantelli's (P8 (5)).

    Above its exact value by a little more than the rounding of floats.
    """
    excess = np.maximum((radius - 1) * (radius + 1), 0.0)
    exponent = np.log1p(excess) - excess + 1e-15 * excess
    chernoff = np.exp(dimension / 2 * exponent)
    cantelli = 1 / (1 + dimension * excess**2 / 2)
    return np.asarray(np.minimum(1.0, np.minimum(chernoff, cantelli) * (1 + 1e-12)))


def _gathered_radii(dimension: int, events: float, distance: float) -> tuple[Array, Array, float]:
    """Radii, their weights, and the weight beyond the last, for the tail `events` * `sign_tail`.

    On a cell between two radii the tail is replaced by its mean with respect to
    d erf(r distance / sqrt 8); where that levels off within the cell, by its largest value.
    """
    ends = _cell_ends(dimension, events)
    tail = np.minimum(1.0, events * sign_tail(ends, dimension))
    tail[0] = 1.0
    inner, weights = np.polynomial.legendre.leggauss(_SIGN_NODES)
    radii = ends[:-1, None] + np.diff(ends)[:, None] * (1 + inner) / 2
    falls = (radii**2 - ends[:-1, None] ** 2) * distance**2 / 8
    slopes = weights * np.exp(-falls)
    within = np.minimum(1.0, events * sign_tail(radii, dimension))
    means = (slopes * within).sum(axis=1) / slopes.sum(axis=1) * (1 + 1e-10)
    levels = np.where(falls[:, -1] < 4, np.minimum(means, tail[:-1]), tail[:-1])
    return ends, -np.diff(levels, prepend=1.0, append=tail[-1]), float(tail[-1])


def _cell_ends(dimension: int, events: float) -> Array:
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


def _honest_members(records: int, batch: int, malicious: int) -> tuple[NDArray[np.int64], Array]:
    """Every likely number of honest members of a batch, and its probability.

    Ratios of neighbouring probabilities are multiplied up from the mode: binomial coefficients of
    large numbers would lose all digits. What is left out has less than 1e-27 (P10).
    """
    honest = records - malicious
    mean = batch * honest / records
    spread = sqrt(mean * (malicious / records) * (records - batch) / max(records - 1, 1))
    least = max(0, batch - malicious, floor(mean - 14 * spread - 60))
    most = min(batch, honest, ceil(mean + 14 * spread + 60))
    effort.spend((most - least) / 5)
    member = np.arange(least, most, dtype=np.float64)
    odds = (honest - member) / (member + 1) * ((batch - member) / (malicious - batch + member + 1))
    steps = np.log(odds)
    mode = int(np.argmax(np.append(0.0, np.cumsum(steps))))
    below = -np.cumsum(steps[:mode][::-1])[::-1]
    weights = np.exp(np.concatenate([below, [0.0], np.cumsum(steps[mode:])]))
    return np.arange(least, most + 1), np.asarray(weights / weights.sum(), dtype=np.float64)


def _on_ends(
    members: NDArray[np.int64], weights: Array, cells: int
) -> tuple[NDArray[np.int64], Array]:
    """The weights moved onto the ends of equal cells, with every member's mean kept."""
    ends = np.unique(np.linspace(members[0], members[-1], cells + 1).astype(np.int64))
    cell = np.minimum(np.searchsorted(ends, members, side="right") - 1, ends.size - 2)
    up = (members - ends[cell]) / (ends[cell + 1] - ends[cell])
    low = np.bincount(cell, weights * (1 - up), ends.size)
    high = np.bincount(cell + 1, weights * up, ends.size)
    return ends, np.asarray(low + high, dtype=np.float64)


def _mixture(weights: Array, laws: list[Law] | list[Removal], *, missing: float) -> Mixture:
    """A mixture with plain floats as weights; `missing` is the weight of what was left out."""
    return Mixture(weights=tuple(float(w) for w in weights), laws=tuple(laws), missing=missing)
