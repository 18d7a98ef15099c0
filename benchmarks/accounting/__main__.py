"""Accountants side by side: `python -m benchmarks.accounting [--json] [--quick] [--write]`.

For Poisson sampling under add-remove, every accountant here is asked for epsilon at the same
settings; the table shows the interval it stands by, its width, and the processor seconds it took on
this machine: the least of three tries where one takes less than two seconds, otherwise of one.
What hubbub keeps of earlier answers is thrown away before each try. "hubbub as wide" is what hubbub
took when it was asked for no more than that row's width (where there is only an upper end: its
distance from hubbub's lower end). Peers that are not installed say so: `pip install dp-accounting
prv-accountant opacus`. Only rows of one run can be compared.

What the two ends mean: hubbub, prv-accountant and the Fourier accountant state a lower and an
upper bound; dp-accounting a pessimistic and an optimistic estimate; Opacus only an upper end. The
Fourier accountant (Koskela et al. 2020, 2021) is implemented below from its published description,
loss masses rounded down and up to an equispaced grid and composed by one FFT, because it is not
on the package index.

`--write` puts the table into results.csv and results.md beside this file, with the versions.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

import hubbub
from benchmarks.result_table import machine, write_table
from hubbub.core.privacy.accountant import Composition
from hubbub.core.privacy.composition import GAP
from hubbub.core.privacy.dominating_pairs import Step, release

MEMORY = 12 << 30  # bytes of address space; a peer that wants more fails in its own row
PRECISION = 1e-3  # asked of the accountants that take one
TRIES, LONG = 3, 2.0
RESULTS = Path(__file__).parent
PACKAGES = ("numpy", "scipy", "dp-accounting", "prv-accountant", "opacus")
COMMAND = "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.accounting --write"
GRID_HALF_WIDTH, GRID_POINTS = 24.0, 1 << 21


@dataclass(frozen=True, kw_only=True)
class PreparedStudy:
    """Poisson sampling, add-remove."""

    noise_multiplier: float
    sample_rate: float
    steps: int
    delta: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One accountant's answer; None where it gives none."""

    accountant: str
    setting: PreparedStudy
    lower: float | None = None
    upper: float | None = None
    seconds: float | None = None
    hubbub_seconds: float | None = None
    note: str = ""

    @property
    def gap(self) -> float | None:
        """Width of the interval, if it has two ends."""
        return None if self.lower is None or self.upper is None else self.upper - self.lower


SETTINGS = (
    PreparedStudy(noise_multiplier=1.0, sample_rate=0.008, steps=1250, delta=1e-5),
    PreparedStudy(noise_multiplier=1.0, sample_rate=0.008, steps=1250, delta=1e-12),
    PreparedStudy(noise_multiplier=4.0, sample_rate=0.01, steps=10_000, delta=1e-5),
    PreparedStudy(noise_multiplier=1.0, sample_rate=0.001, steps=1_000_000, delta=1e-5),
)
Ends = tuple[float | None, float | None]


def hubbub_ends(s: PreparedStudy) -> Ends:
    bound = hubbub.epsilon(**asdict(s))
    return bound.lower, bound.upper


def dp_accounting_ends(s: PreparedStudy) -> Ends:
    from dp_accounting.pld import privacy_loss_distribution

    def end(pessimistic: bool) -> float:
        law = privacy_loss_distribution.from_gaussian_mechanism(
            standard_deviation=s.noise_multiplier,
            sampling_prob=s.sample_rate,
            pessimistic_estimate=pessimistic,
        )
        return float(law.self_compose(s.steps).get_epsilon_for_delta(s.delta))

    return end(False), end(True)


def prv_ends(s: PreparedStudy) -> Ends:
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


def opacus_ends(s: PreparedStudy, kind: str) -> Ends:
    from opacus.accountants import create_accountant

    accountant = create_accountant(kind)
    accountant.history = [(s.noise_multiplier, s.sample_rate, s.steps)]
    return None, float(accountant.get_epsilon(delta=s.delta))


def fourier_ends(s: PreparedStudy) -> Ends:
    """Losses rounded down (lower end) and up (upper end) to an equispaced grid, then one FFT."""
    ends = [max(_fourier_epsilon(s, add, up) for add in (False, True)) for up in (False, True)]
    return ends[0], ends[1]


def _fourier_epsilon(s: PreparedStudy, add: bool, up: bool) -> float:
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


def _loss_cdf(s: PreparedStudy, loss: NDArray[np.float64], add: bool) -> NDArray[np.float64]:
    """P(L <= loss) of one sampled step; `add` is the direction without the record first."""
    q, shift = s.sample_rate, 1 / s.noise_multiplier
    odds = (np.expm1(-loss if add else loss) + q) / q
    inside = odds > 0
    x = np.full_like(loss, -inf)
    x[inside] = np.log(odds[inside]) / shift + shift / 2
    if add:
        return np.asarray(ndtr(-x), dtype=np.float64)
    return np.asarray((1 - q) * ndtr(x) + q * ndtr(x - shift), dtype=np.float64)


ACCOUNTANTS: dict[str, Callable[[PreparedStudy], Ends]] = {
    "hubbub": hubbub_ends,
    "dp-accounting": dp_accounting_ends,
    "prv-accountant": prv_ends,
    "opacus RDP": lambda s: opacus_ends(s, "rdp"),
    "opacus PRV": lambda s: opacus_ends(s, "prv"),
    "fourier-accountant (re-implemented)": fourier_ends,
}


def measure(name: str, setting: PreparedStudy) -> Row:
    """One row; a peer that is missing or fails becomes a note, never a number."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            (lower, upper), seconds = timed(lambda: ACCOUNTANTS[name](setting))
    except ImportError:
        return Row(accountant=name, setting=setting, note="not installed")
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way; the table goes on
        return Row(
            accountant=name, setting=setting, note=f"failed: {type(error).__name__.strip('_')}"
        )
    return Row(accountant=name, setting=setting, lower=lower, upper=upper, seconds=seconds)


def timed(work: Callable[[], Ends]) -> tuple[Ends, float]:
    """The answer, and the least processor time of a few tries: others use this machine too."""
    least, found = inf, (None, None)
    for _ in range(TRIES):
        forget()
        start = time.process_time()
        found = work()
        least = min(least, time.process_time() - start)
        if least > LONG:
            break
    return found, least


def forget() -> None:
    """Throw away what hubbub has kept of answers: to look one up is no accounting."""
    for name, module in list(sys.modules.items()):
        if name.startswith("hubbub.core.privacy."):
            for kept in vars(module).values():
                if hasattr(kept, "cache_clear"):
                    kept.cache_clear()


def as_wide(setting: PreparedStudy, width: float) -> float:
    """Seconds that hubbub takes when asked for an interval of this width."""

    def work() -> Ends:
        step = Step(
            noise_multiplier=setting.noise_multiplier,
            sample_rate=setting.sample_rate,
            count=setting.steps,
        )
        whole = Composition([release(step, "add-remove")])
        gap = max(GAP, width / max(0.01, whole.estimate(setting.delta)))
        bound = whole.epsilon(setting.delta, gap=gap)
        return bound.lower, bound.upper

    return timed(work)[1]


def rows(settings: tuple[PreparedStudy, ...]) -> Iterator[Row]:
    hubbub_ends(SETTINGS[0])  # imports and caches are nobody's accounting time
    for setting in settings:
        ours = measure("hubbub", setting)
        yield ours
        for name in ACCOUNTANTS:
            if name != "hubbub":
                yield beside(measure(name, setting), ours)


def beside(row: Row, ours: Row) -> Row:
    """A peer's row with what hubbub takes for the same width; below hubbub's lower end, a note."""
    if row.upper is None or ours.lower is None:
        return row
    note = "upper end below a certified lower one" if row.upper < ours.lower else row.note
    width = row.gap or row.upper - ours.lower
    seconds = as_wide(row.setting, width) if width > 0 else None
    return replace(row, hubbub_seconds=seconds, note=note)


def cells(row: Row) -> tuple[str, ...]:
    """A row's numbers as they are shown."""

    def cell(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return (
        cell(row.lower, ".6f"),
        cell(row.upper, ".6f"),
        cell(row.gap, ".1e"),
        cell(row.seconds, ".2f"),
        cell(row.hubbub_seconds, ".2f"),
        row.note,
    )


def show(row: Row) -> str:
    """One line of the table."""
    widths = (11, 11, 10, 9, 16)
    *numbers, note = cells(row)
    shown = "".join(f"{value:>{width}}" for value, width in zip(numbers, widths, strict=True))
    return f"{row.accountant:<37}{shown}  {note}".rstrip()


def title(s: PreparedStudy) -> str:
    return (
        f"noise {s.noise_multiplier:g}, rate {s.sample_rate:g}, "
        f"{s.steps:,} steps, delta {s.delta:g}"
    )


def write(found: Sequence[Row]) -> None:
    """results.csv and results.md."""
    names = ("lower", "upper", "seconds", "hubbub_seconds", "note")
    rows = [
        {"accountant": row.accountant, **asdict(row.setting)}
        | {name: getattr(row, name) for name in names}
        for row in found
    ]
    write_table(RESULTS / "results.csv", rows)
    lines = [
        "# Accountants side by side",
        "",
        f"Written by `{COMMAND}`; what is measured, and how, is said in `__main__.py`.",
        "",
        f"Versions: {', '.join(versions())}. {machine()}, processor seconds, one thread.",
    ]
    head = "| accountant | lower | upper | gap | seconds | hubbub as wide | |"
    for setting in dict.fromkeys(row.setting for row in found):
        lines += ["", f"## {title(setting)}", "", head, "|---|--:|--:|--:|--:|--:|---|"]
        lines += [
            f"| {row.accountant} | {' | '.join(cells(row))} |"
            for row in found
            if row.setting == setting
        ]
    (RESULTS / "results.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def versions() -> Iterator[str]:
    yield f"hubbub {hubbub.__version__}"
    yield f"python {platform.python_version()}"
    for name in PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} not installed"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accounting", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="only the first two settings")
    parser.add_argument("--write", action="store_true", help="keep the table beside this file")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    logging.disable(logging.WARNING)  # dp-accounting warns at every optimistic estimate
    settings = SETTINGS[:2] if options.quick else SETTINGS
    if options.json:
        print(json.dumps({"results": [asdict(row) for row in rows(settings)]}))
        return
    found: list[Row] = []
    for row in rows(settings):
        if not found or row.setting != found[-1].setting:
            head = f"{'lower':>11}{'upper':>11}{'gap':>10}{'seconds':>9}{'hubbub as wide':>16}"
            print(f"\n{title(row.setting)}\n{'accountant':<37}{head}")
        found.append(row)
        print(show(row), flush=True)
    if options.write:
        write(found)


if __name__ == "__main__":
    main()
