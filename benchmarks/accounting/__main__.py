"""Accountants side by side: `python -m benchmarks.accounting [--json] [--quick]`.

For Poisson sampling under add-remove, every accountant here is asked for epsilon at the same
settings; the table shows the interval it stands by, its width and the seconds it took on this
machine. Peers that are not installed say so: `pip install dp-accounting prv-accountant opacus`.
Nothing is asserted about time: only rows of one run can be compared.

What the two ends mean: hubbub, prv-accountant and the Fourier accountant state a lower and an
upper bound; dp-accounting a pessimistic and an optimistic estimate; RDP only an upper bound. The
Fourier accountant (Koskela et al. 2020, 2021) is implemented below from its published description,
loss masses rounded down and up to an equispaced grid and composed by one FFT, because it is not
on the package index.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

import hubbub

MEMORY = 12 << 30  # bytes of address space; a peer that wants more fails in its own row
PRECISION = 1e-3  # asked of the accountants that take one
GRID_HALF_WIDTH, GRID_POINTS = 24.0, 1 << 21


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Poisson sampling, add-remove."""

    noise_multiplier: float
    sample_rate: float
    steps: int
    delta: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One accountant's answer; None where it gives none."""

    accountant: str
    setting: Setting
    lower: float | None = None
    upper: float | None = None
    seconds: float | None = None
    note: str = ""


SETTINGS = (
    Setting(noise_multiplier=1.0, sample_rate=0.008, steps=1250, delta=1e-5),
    Setting(noise_multiplier=1.0, sample_rate=0.008, steps=1250, delta=1e-12),
    Setting(noise_multiplier=4.0, sample_rate=0.01, steps=10_000, delta=1e-5),
    Setting(noise_multiplier=1.0, sample_rate=0.001, steps=1_000_000, delta=1e-5),
)
Ends = tuple[float | None, float | None]


def hubbub_ends(s: Setting) -> Ends:
    bound = hubbub.epsilon(**asdict(s))
    return bound.lower, bound.upper


def dp_accounting_ends(s: Setting) -> Ends:
    from dp_accounting.pld import privacy_loss_distribution

    def end(pessimistic: bool) -> float:
        law = privacy_loss_distribution.from_gaussian_mechanism(
            standard_deviation=s.noise_multiplier,
            sampling_prob=s.sample_rate,
            pessimistic_estimate=pessimistic,
        )
        return float(law.self_compose(s.steps).get_epsilon_for_delta(s.delta))

    return end(False), end(True)


def prv_ends(s: Setting) -> Ends:
    from prv_accountant.dpsgd import DPSGDAccountant

    accountant = DPSGDAccountant(
        noise_multiplier=s.noise_multiplier,
        sampling_probability=s.sample_rate,
        max_steps=s.steps,
        eps_error=PRECISION,
        delta_error=s.delta / 1000,
    )
    low, _, high = accountant.compute_epsilon(delta=s.delta, num_steps=s.steps)
    return float(low), float(high)


def opacus_ends(s: Setting, kind: str) -> Ends:
    from opacus.accountants import create_accountant

    accountant = create_accountant(kind)
    accountant.history = [(s.noise_multiplier, s.sample_rate, s.steps)]
    return None, float(accountant.get_epsilon(delta=s.delta))


def fourier_ends(s: Setting) -> Ends:
    """Losses rounded down (lower end) and up (upper end) to an equispaced grid, then one FFT."""
    ends = [max(_fourier_epsilon(s, add, up) for add in (False, True)) for up in (False, True)]
    return ends[0], ends[1]


def _fourier_epsilon(s: Setting, add: bool, up: bool) -> float:
    width = 2 * GRID_HALF_WIDTH / GRID_POINTS
    grid = -GRID_HALF_WIDTH + width * np.arange(GRID_POINTS)
    edges = _loss_cdf(s, np.append(grid, GRID_HALF_WIDTH), add)
    mass = np.diff(edges)
    if up:
        mass = np.roll(mass, 1)
    # Half a turn puts the loss 0 first, where the transform expects it.
    transform = np.fft.rfft(np.fft.fftshift(mass)) ** s.steps
    composed = np.fft.ifftshift(np.fft.irfft(transform, GRID_POINTS))

    def delta(eps: float) -> float:
        above = grid > eps
        return float(-(np.expm1(eps - grid[above]) @ composed[above]))

    low, high = 0.0, GRID_HALF_WIDTH
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > s.delta else (low, middle)
    return high


def _loss_cdf(s: Setting, loss: NDArray[np.float64], add: bool) -> NDArray[np.float64]:
    """P(L <= loss) of one sampled step; `add` is the direction without the record first."""
    q, shift = s.sample_rate, 1 / s.noise_multiplier
    odds = (np.expm1(-loss if add else loss) + q) / q
    inside = odds > 0
    x = np.full_like(loss, -inf)
    x[inside] = np.log(odds[inside]) / shift + shift / 2
    if add:
        return np.asarray(ndtr(-x), dtype=np.float64)
    return np.asarray((1 - q) * ndtr(x) + q * ndtr(x - shift), dtype=np.float64)


ACCOUNTANTS: dict[str, Callable[[Setting], Ends]] = {
    "hubbub": hubbub_ends,
    "dp-accounting": dp_accounting_ends,
    "prv-accountant": prv_ends,
    "opacus RDP": lambda s: opacus_ends(s, "rdp"),
    "opacus PRV": lambda s: opacus_ends(s, "prv"),
    "fourier-accountant (re-implemented)": fourier_ends,
}


def measure(name: str, setting: Setting) -> Row:
    """One row; a peer that is missing or fails becomes a note, never a number."""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            lower, upper = ACCOUNTANTS[name](setting)
    except ImportError:
        return Row(accountant=name, setting=setting, note="not installed")
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way; the table goes on
        return Row(
            accountant=name, setting=setting, note=f"failed: {type(error).__name__.strip('_')}"
        )
    seconds = time.perf_counter() - start
    return Row(accountant=name, setting=setting, lower=lower, upper=upper, seconds=seconds)


def rows(settings: tuple[Setting, ...]) -> Iterator[Row]:
    hubbub_ends(SETTINGS[0])  # imports and caches are nobody's accounting time
    for setting in settings:
        for name in ACCOUNTANTS:
            yield measure(name, setting)


def show(row: Row) -> str:
    """One line of the table."""

    def cell(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    gap = None if row.lower is None or row.upper is None else row.upper - row.lower
    numbers = f"{cell(row.lower, '.6f'):>11}{cell(row.upper, '.6f'):>11}{cell(gap, '.1e'):>10}"
    return f"{row.accountant:<37}{numbers}{cell(row.seconds, '.2f'):>9}  {row.note}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accounting", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="only the first two settings")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    logging.disable(logging.WARNING)  # dp-accounting warns at every optimistic estimate
    settings = SETTINGS[:2] if options.quick else SETTINGS
    if options.json:
        print(json.dumps({"results": [asdict(row) for row in rows(settings)]}))
        return
    shown = None
    for row in rows(settings):
        if row.setting != shown:
            shown = row.setting
            print(
                f"\nnoise {shown.noise_multiplier:g}, rate {shown.sample_rate:g}, "
                f"{shown.steps:,} steps, delta {shown.delta:g}\n"
                f"{'accountant':<37}{'lower':>11}{'upper':>11}{'gap':>10}{'seconds':>9}"
            )
        print(show(row), flush=True)


if __name__ == "__main__":
    main()
