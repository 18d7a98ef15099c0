"""What a step of a study is, and which dominating pairs it has.

This is the one table that turns (sampling, relation) into the laws of docs/privacy.md P1. A
`Release` is a step as the accountant sees it: a law for each direction of the relation, and how
often it happens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainccinv, gammaincinv, gammaln

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

_CHI_TAIL = 1e-26
_CHI_NODES = 64
_HYPERGEOMETRIC_TAIL = 1e-26


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
        moved = 2 * shift if substitute else shift
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
    *, records: int, batch: int, malicious: int, noise_multiplier: float, count: int
) -> Release:
    """Sampling without replacement where the adversary knows which `malicious` records are drawn.

    The number b' of honest members is hypergeometric and independent of the honest data, so the
    step's law is the mixture of the laws with rate b' / (records - malicious) (P10).
    """
    honest = records - malicious
    members = np.arange(max(0, batch - malicious), min(batch, honest) + 1)
    weights = np.exp(
        _log_choose(honest, members)
        + _log_choose(malicious, batch - members)
        - _log_choose(records, np.array([batch]))
    )
    weights /= weights.sum()
    kept = weights > _HYPERGEOMETRIC_TAIL
    laws = [_replaced(int(b), honest, 2 / noise_multiplier) for b in members[kept]]
    return Release(laws=(_mixture(weights[kept], laws),), count=count)


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
    mixture = _mixture(weights[kept], laws)
    return Release(laws=(mixture, Reversed(law=mixture)), count=count)


def _both_ways(removal: Removal, substitute: bool) -> tuple[Law, ...]:
    """Removal and addition; under substitution the Gaussian pair is its own reverse."""
    return (removal,) if substitute else (removal, Reversed(law=removal))


def _replaced(members: int, honest: int, shift: float) -> Law:
    """The law of a batch with so many honest members."""
    if members == 0:
        return Nothing()
    return ReplacedInBatch(rate=members / honest, shift=shift)


def _mixture(weights: np.ndarray, laws: list[Law] | list[Removal]) -> Mixture:
    """A mixture with plain floats as weights."""
    return Mixture(weights=[float(w) for w in weights], laws=list(laws))


def _log_choose(total: int, part: np.ndarray) -> np.ndarray:
    """log of the binomial coefficient."""
    return np.asarray(gammaln(total + 1) - gammaln(part + 1) - gammaln(total - part + 1))
