"""What a step of a study is, and which dominating pairs it has.

This is the one table that turns (sampling, relation) into the laws of docs/privacy.md P1. A
`Release` is a step as the accountant sees it: a law for each direction of the relation, and how
often it happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammainccinv, gammaincinv

from hubbub.errors import StudyError
from hubbub.privacy import parameters
from hubbub.privacy.laws import (
    Exchange,
    Law,
    Mixture,
    Nothing,
    Removal,
    ReplacedInBatch,
    Reversed,
)

PROJECTIONS = ("gaussian", "sign")
_CHI_TAIL = 1e-26
_CHI_NODES = 40  # more of them move epsilon by less than 1e-6 of itself
_HYPERGEOMETRIC_TAIL = 1e-26
# Losses of a sampled step grow with the square of 2 / z, and e^loss must be a float.
LEAST_SAMPLED_NOISE = 0.08

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A kind of step, and how many times it happens.

    Args:
        noise_multiplier: sigma / C: standard deviation of the noise that counts against the
            adversary on the sum, over the clipping norm of one record (for both relations).
        sample_rate: probability with which a record is in the batch; batch / n without replacement.
        sampling: "poisson", "without-replacement" or "none".
        count: number of such steps.

    Raises:
        StudyError: a value is out of its range.
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    sampling: str = "poisson"
    count: int = 1

    def __post_init__(self) -> None:
        parameters.noise(self.noise_multiplier)
        parameters.rate(self.sample_rate)
        parameters.choice("sampling", self.sampling, parameters.SAMPLINGS)
        parameters.whole("count", self.count, least=1, most=parameters.MOST_STEPS)
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
    """The dominating pairs of a step, by the table of P1.

    Raises:
        StudyError: unknown relation.
    """
    parameters.choice("relation", relation, parameters.RELATIONS)
    shift = 1 / step.noise_multiplier
    substitute = relation == "substitute"
    if step.sampling == "none" or step.sample_rate == 1:
        moved = 2 * shift if substitute or step.sampling == "without-replacement" else shift
        laws = _both_ways(Removal(rate=1.0, shift=moved), substitute)
        return Release(laws=laws, count=step.count, gaussian=moved)
    if step.sampling == "poisson":
        if substitute:
            return Release(laws=(Exchange(rate=step.sample_rate, shift=shift),), count=step.count)
        removal = Removal(rate=step.sample_rate, shift=shift)
        return Release(laws=_both_ways(removal, substitute=False), count=step.count)
    if substitute:
        swapped = ReplacedInBatch(rate=step.sample_rate, shift=2 * shift)
        return Release(laws=(swapped,), count=step.count)
    removal = Removal(rate=step.sample_rate, shift=2 * shift)
    return Release(laws=_both_ways(removal, substitute=False), count=step.count)


def release_with_malicious(
    *,
    records: int,
    batch: int,
    malicious: int,
    noise_multiplier: float,
    count: int,
    cells: int = 0,
) -> Release:
    """Sampling without replacement where the adversary knows which `malicious` records are drawn.

    The number b' of honest members is hypergeometric and independent of the honest data, so the
    step's law is the mixture of the laws with rate b' / (records - malicious) (P10). With `cells`,
    each b' is split onto the ends of its cell so that its mean is kept: H_a is convex in the rate,
    so the mixture over the ends is dearer, by little, and quicker to compose. Upper bounds remain
    upper bounds; lower ones are those of the dearer mixture.
    """
    honest = records - malicious
    members, weights = _honest_members(records, batch, malicious)
    kept = weights > _HYPERGEOMETRIC_TAIL
    dropped = float(weights[~kept].sum())
    members, weights = members[kept], weights[kept]
    if 0 < cells < members.size - 1:
        members, weights = _on_ends(members, weights, cells)
    laws = [_replaced(int(b), honest, 2 / noise_multiplier) for b in members]
    return Release(laws=(_mixture(weights, laws, missing=dropped),), count=count)


def release_at_quantile(
    *,
    records: int,
    batch: int,
    malicious: int,
    noise_multiplier: float,
    count: int,
    slack: float,
) -> Release:
    """The paper's way with malicious records: the rate that b' exceeds with probability `slack`.

    The slack is charged in every step (P10).
    """
    rate = honest_rate(records=records, batch=batch, malicious=malicious, slack=slack)
    law = ReplacedInBatch(rate=rate, shift=2 / noise_multiplier)
    return with_slack(Release(laws=(law,), count=count), slack)


def honest_rate(*, records: int, batch: int, malicious: int, slack: float) -> float:
    """The least b* / n_honest with Pr[b' > b*] <= slack (P10)."""
    members, weights = _honest_members(records, batch, malicious)
    beyond = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
    quantile = int(members[np.argmax(beyond <= slack)])
    return quantile / (records - malicious)


@dataclass(frozen=True, kw_only=True)
class Slackened:
    """A law that holds except on an event of probability `slack`, charged as loss +inf."""

    law: Law
    slack: float

    @property
    def atom(self) -> float:
        """See `Law.atom`."""
        return self.law.atom

    @property
    def missing(self) -> float:
        """See `Law.missing`."""
        return self.law.missing + self.slack

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """See `Law.masses`."""
        return self.law.masses(edges)

    def quantiles(self, tail: float, count: int) -> Array:
        """See `Law.quantiles`."""
        return self.law.quantiles(tail, count)


def with_slack(one: Release, slack: float) -> Release:
    """The release if its laws hold except with probability `slack` in each step (P8, P10)."""
    return Release(laws=tuple(Slackened(law=law, slack=slack) for law in one.laws), count=one.count)


def projection_factor(dimension: int, delta: float, kind: str = "gaussian") -> float:
    """C~ / C: the length that a projected unit vector exceeds with probability at most `delta`.

    Exact for Gaussian entries; Chernoff's bound for signs (P8).
    """
    if kind == "gaussian":
        return sqrt(float(gammainccinv(dimension / 2, delta)) * 2 / dimension)
    exponent = 2 * log(1 / delta) / dimension
    root = brentq(lambda x: x - 1 - log(x) - exponent, 1.0, 2 + 2 * exponent, rtol=1e-14)
    return sqrt(float(root)) * (1 + 1e-12)


def release_projected(
    *, dimension: int, sample_rate: float, noise_multiplier: float, count: int
) -> Release:
    """Poisson steps, each seen through a fresh public Gaussian projection to `dimension` (P8).

    Given the projection, the shift is R / z with R^2 = chi^2_k / k; R is public and independent of
    the data. Gauss-Legendre nodes over R integrate the bin masses, which are analytic in R.
    """
    half = dimension / 2
    low = float(np.sqrt(gammaincinv(half, _CHI_TAIL) / half))
    high = float(np.sqrt(gammainccinv(half, _CHI_TAIL) / half))
    nodes, weights = np.polynomial.legendre.leggauss(_CHI_NODES)
    radius = (high + low) / 2 + (high - low) / 2 * nodes
    log_density = (dimension - 1) * np.log(radius) - half * radius**2
    weights = weights * np.exp(log_density - log_density.max())
    weights /= weights.sum()
    kept = weights > _CHI_TAIL
    laws = [Removal(rate=sample_rate, shift=float(r) / noise_multiplier) for r in radius[kept]]
    mixture = _mixture(weights[kept], laws, missing=float(weights[~kept].sum()))
    return Release(laws=(mixture, Reversed(law=mixture)), count=count)


def _both_ways(removal: Removal, substitute: bool) -> tuple[Law, ...]:
    """Removal and addition; under substitution the Gaussian pair is its own reverse."""
    return (removal,) if substitute else (removal, Reversed(law=removal))


def _replaced(members: int, honest: int, shift: float) -> Law:
    """The law of a batch with so many honest members."""
    if members == 0:
        return Nothing()
    return ReplacedInBatch(rate=members / honest, shift=shift)


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
    return Mixture(weights=[float(w) for w in weights], laws=list(laws), missing=missing)
