"""What exact participation would save beside Poisson sampling: each record once in every epoch.

    python -m experiments.allocation [--small]

In every epoch of t attempts a silo gives each of its records one attempt, uniformly and in secret:
"random allocation", or balls and bins (arXiv 2502.08202, 2602.17284, 2605.07072). Under the data
without the record, what t attempts with it are worth is Y = (X_1 + ... + X_t) / t with independent
log-normal X_i of mean 1: H_a of removal is E (Y - a)_+, of addition E (1 - a Y)_+. Both are convex
in every X_i. So a law of X that is larger in convex order is an upper bound, a smaller one a lower
bound, and sums keep the order: masses go to both ends of a cell with their mean kept, or all to
their mean. In attempts that are chosen in view of earlier ones an X_i is, given the past, a
log-normal of at most this variance, so the same Y dominates. Epochs are composed.

The decision that came of it is docs/adr/0003-no-random-allocation.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

import hubbub
from experiments.command import fill, options_of, parser_of
from experiments.results import Row, Table
from hubbub.core.privacy.laws import interval_mass

DELTA = 1e-5
# Attempts in an epoch, epochs, epsilon.
SETTINGS = [
    (every, epochs, epsilon)
    for every, epochs in ((5, 12), (20, 3), (20, 30), (125, 10))
    for epsilon in (0.5, 2.0, 8.0)
]
SMALL_SETTINGS = [(2, 2, 2.0)]
CELLS, REACH = 1000, 9.0
LOSS_STEP, LOSSES = 1e-4, 1 << 20

KEY = ("attempts_of_epoch", "epochs", "epsilon")
COLUMNS = (*KEY, "noise_poisson", "noise_allocation", "noise_allocation_lower", "saved")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Values:
    """A non-negative random variable with finitely many values."""

    at: Array
    mass: Array

    def plus(self, other: Values, cuts: Array, *, above: bool) -> Values:
        """The sum of two independent ones, larger or smaller in convex order."""
        sums = (self.at[:, None] + other.at).ravel()
        masses = (self.mass[:, None] * other.mass).ravel()
        return _gathered(sums, masses, cuts, above=above)


def _gathered(at: Array, mass: Array, cuts: Array, *, above: bool) -> Values:
    """At the cuts with means kept, or one value in each cell, its mean."""
    cell = np.clip(np.searchsorted(cuts, at, side="right") - 1, 0, cuts.size - 2)
    if above:
        share = (at - cuts[cell]) / (cuts[cell + 1] - cuts[cell])
        both = np.bincount(cell, mass * (1 - share), cuts.size)
        both += np.bincount(cell + 1, mass * share, cuts.size)
        return Values(cuts, both)
    whole = np.bincount(cell, mass, cuts.size - 1)
    mean = np.bincount(cell, mass * at, cuts.size - 1)
    kept = whole > 0
    return Values(mean[kept] / whole[kept], whole[kept])


def log_normal(shift: float, *, above: bool) -> Values:
    """e^(shift x - shift^2 / 2), x standard normal, up to `REACH` deviations under either law.

    What is beyond has a mass below 1e-18 and is left out.
    """
    ends = np.linspace(-REACH, REACH + shift, CELLS)
    mass, mean = interval_mass(ends, 0.0), interval_mass(ends, shift)
    cuts = np.exp(shift * ends - shift**2 / 2)
    if not above:
        return Values(mean / mass, mass)
    share = (mean - mass * cuts[:-1]) / np.diff(cuts)
    share = np.clip(share, 0.0, mass)
    return Values(cuts, np.append(mass - share, 0.0) + np.append(0.0, share))


def epoch(shift: float, attempts: int, *, above: bool) -> Values:
    """Y t: the sum of so many log-normals, by doubling."""
    one = log_normal(shift, above=above)
    # Up to the sum of all, and down to nothing; narrow where the sum has its mass.
    top = one.at[-1] + 40.0 * attempts
    tail = np.geomspace(max(attempts * 1e-3, 1e-6), top, CELLS)
    spread = sqrt(attempts * (exp(shift**2) - 1))
    middle = np.linspace(max(attempts - 8 * spread, 0.0), attempts + 8 * spread, CELLS)
    total: Values | None = None
    power, left = one, attempts
    while left:
        cuts = np.unique(np.concatenate([[0.0], tail, middle]))
        if left & 1:
            total = power if total is None else total.plus(power, cuts, above=above)
        left >>= 1
        if left:
            power = power.plus(power, cuts, above=above)
    assert total is not None, "an epoch has attempts"  # noqa: S101
    return total


def composed(losses: Array, masses: Array, count: int, *, above: bool) -> tuple[Array, Array]:
    """A loss law on an even grid, and as many of them as there are epochs.

    From above a mass goes to both ends of its cell so that its mass under the other law is kept
    (docs/privacy.md P11), from below to the lower end.
    """
    grid = (np.arange(LOSSES) - LOSSES // 2) * LOSS_STEP
    place = np.clip(losses / LOSS_STEP, -LOSSES / 2, LOSSES / 2 - 2)
    low = np.floor(place).astype(int)
    share = np.expm1((low - place) * LOSS_STEP) / np.expm1(-LOSS_STEP) if above else 0 * place
    law = np.bincount(low + LOSSES // 2, masses * (1 - share), LOSSES)
    law += np.bincount(low + LOSSES // 2 + 1, masses * share, LOSSES)
    power = np.fft.irfft(np.fft.rfft(np.fft.ifftshift(law)) ** count, LOSSES)
    return grid, np.maximum(np.fft.fftshift(power), 0.0)


@cache
def delta_of(noise: float, attempts: int, epochs: int, epsilon: float, above: bool) -> float:
    """delta of an allocation at an epsilon, from above or below; the larger direction."""
    whole = epoch(1 / noise, attempts, above=above)
    seen = whole.at > 0
    values, absent = whole.at[seen] / attempts, whole.mass[seen]
    deltas = []
    for losses, masses in ((np.log(values), values * absent), (-np.log(values), absent)):
        grid, law = composed(losses, masses, epochs, above=above)
        kept = grid > epsilon
        missing = 1 - float(masses.sum()) if above else 0.0  # as if it told all
        deltas.append(float(law[kept] @ -np.expm1(epsilon - grid[kept])) + epochs * max(missing, 0))
    return max(deltas)


def least_noise(attempts: int, epochs: int, epsilon: float, *, above: bool, near: float) -> float:
    """The noise multiplier at which an allocation has epsilon at DELTA."""

    def excess(noise: float) -> float:
        return np.log(delta_of(noise, attempts, epochs, epsilon, above) / DELTA)

    return float(brentq(excess, 0.7 * near, 1.1 * near, xtol=1e-3 * near))


def measured(attempts: int, epochs: int, epsilon: float) -> dict[str, object]:
    """What either way of sampling needs."""
    poisson = hubbub.noise_multiplier(
        epsilon=epsilon, delta=DELTA, sample_rate=1 / attempts, steps=attempts * epochs
    )
    upper, lower = (
        least_noise(attempts, epochs, epsilon, above=above, near=poisson) for above in (True, False)
    )
    return {
        "noise_poisson": round(poisson, 4),
        "noise_allocation": round(upper, 4),
        "noise_allocation_lower": round(lower, 4),
        "saved": round(1 - upper / poisson, 4),
    }


def main(arguments: Sequence[str] | None = None) -> Path:
    """Fill the table."""
    options = options_of(parser_of(__doc__ or ""), arguments)
    settings = SMALL_SETTINGS if options.small else SETTINGS
    table = Table(path=options.out / "allocation.csv", key=KEY, columns=COLUMNS)
    keys: list[Row] = [dict(zip(KEY, one, strict=True)) for one in settings]
    fill(
        table,
        keys,
        lambda number, _: measured(*settings[number]),
        module="allocation",
        arguments=arguments,
    )
    return table.path


if __name__ == "__main__":
    main()
