"""Effective sampling fractions without replacement, where records belong to the adversary.

Who owns records sees how many of them are in a joint batch, and so how many honest ones are. The
paper counts a quantile of the honest share, exceeded with a probability called slack; the exact
mixture over the number of honest records pays none (docs/privacy.md P10). The mixture is no single
fraction; what stands for it is the fraction that would cost the same epsilon with nobody malicious.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import brentq

from hubbub.errors import StudyError
from hubbub.privacy import arguments
from hubbub.privacy.accountant import Composition
from hubbub.privacy.mechanism import Step, honest_rate, release, release_with_malicious

SHARES = (0.0, 0.01, 0.1, 0.25, 0.5)  # of all records; where the mixture is taken
_CURVE_POINTS = 51
_CELLS = 64  # the mixture is taken to so many rates, upwards: an upper bound still, and quicker


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked for all panels."""

    records: int
    slacks: tuple[float, ...]
    noise_multiplier: float
    steps: int
    delta: float


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """The mixture at one number of malicious records: its epsilon, and the fraction that has it."""

    malicious: int
    epsilon: float
    rate: float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One batch: for each slack a curve of (malicious records, fraction), and the mixture."""

    batch: int
    curves: tuple[tuple[tuple[int, float], ...], ...]
    mixture: tuple[Mixed, ...]


def panel(asked: Question, batch: int, progress: Callable[[], object]) -> Panel:
    """All curves of one batch; `progress` is called after each of the mixture's SHARES."""
    most = _malicious(asked, SHARES[-1])
    across = sorted({round(most * k / (_CURVE_POINTS - 1)) for k in range(_CURVE_POINTS)})
    curves = (
        tuple((m, quantile_rate(asked.records, batch, m, slack)) for m in across)
        for slack in asked.slacks
    )
    return Panel(batch=batch, curves=tuple(curves), mixture=_mixture(asked, batch, progress))


def quantile_rate(records: int, batch: int, malicious: int, slack: float) -> float:
    """The paper's effective fraction; without slack all of the batch counts as honest."""
    honest = records - malicious
    if not slack:
        return min(batch, honest) / honest
    return honest_rate(records=records, batch=batch, malicious=malicious, slack=slack)


def equal_rate(
    epsilon: float,
    least: float,
    most: float,
    *,
    noise_multiplier: float,
    steps: int,
    delta: float,
) -> float:
    """The fraction from `least` to `most` that costs this epsilon with nobody malicious."""

    def alone(rate: float) -> float:
        step = Step(
            noise_multiplier=noise_multiplier,
            sample_rate=rate,
            count=steps,
            sampling="without-replacement",
        )
        return Composition([release(step, "substitute")]).epsilon(delta).upper

    if alone(least) >= epsilon:
        return least
    if alone(most) <= epsilon:
        return most
    return float(brentq(lambda rate: alone(rate) - epsilon, least, most, rtol=1e-4))


def _mixture(asked: Question, batch: int, progress: Callable[[], object]) -> tuple[Mixed, ...]:
    found = []
    for malicious in sorted({_malicious(asked, share) for share in SHARES}):
        found.append(_mixed(asked, batch, malicious))
        progress()
    return tuple(found)


def _mixed(asked: Question, batch: int, malicious: int) -> Mixed:
    """The mixture's epsilon, and the fraction with nobody malicious that costs as much."""
    one = release_with_malicious(
        records=asked.records,
        batch=batch,
        malicious=malicious,
        noise_multiplier=asked.noise_multiplier,
        count=asked.steps,
        cells=_CELLS,
    )
    epsilon = Composition([one]).epsilon(asked.delta).upper
    if epsilon > arguments.MOST_EPSILON:
        raise StudyError(
            f"expected epsilon up to {arguments.MOST_EPSILON:g}, got more with batch {batch}; "
            "raise --noise-multiplier or lower --steps"
        )
    rate = batch / asked.records
    worst = quantile_rate(asked.records, batch, malicious, 0.0)
    if malicious and rate < 1:
        rate = equal_rate(
            epsilon,
            rate,
            worst,
            noise_multiplier=asked.noise_multiplier,
            steps=asked.steps,
            delta=asked.delta,
        )
    return Mixed(malicious=malicious, epsilon=epsilon, rate=rate)


def _malicious(asked: Question, share: float) -> int:
    return int(asked.records * share)
