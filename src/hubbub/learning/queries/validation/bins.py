"""Public bins of predictions and outcomes, and what each stands for. Nothing here is of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.prefix_coding import PrefixCode

Array = NDArray[np.float64]
_MOST_ODDS = 30.0  # a log-odds, beyond which a chance is 0 or 1


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Bins between public ends.

    Args:
        cuts: inner edges, rising; a value equal to one belongs to the bin above.
        values: what each bin stands for, one more than there are cuts.
    """

    cuts: tuple[float, ...]
    values: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def log_odds(self) -> Array:
        """Of what bins of probabilities stand for."""
        values = np.array(self.values)
        return np.asarray(np.log(values / (1 - values)))

    def places(self, values: Array) -> NDArray[np.intp]:
        """(n,) the bin of each value; what is no number is in the first."""
        told = np.nan_to_num(values, nan=-np.inf)
        return np.asarray(np.searchsorted(self.cuts, told, side="right"), dtype=np.intp)


def of_risks(number: int) -> Bins:
    """Of probabilities, narrow wherever a model's may lie: equal in the log-odds' inverse sinh.

    >>> [round(cut, 4) for cut in of_risks(6).cuts]
    [0.0005, 0.1382, 0.5, 0.8618, 0.9995]
    """
    reach = float(np.arcsinh(_MOST_ODDS))
    return Bins(
        cuts=tuple(_chance(reach * (2 * k / number - 1)) for k in range(1, number)),
        values=tuple(_chance(reach * ((2 * k + 1) / number - 1)) for k in range(number)),
    )


def _chance(place: float) -> float:
    return float(1 / (1 + np.exp(-np.sinh(place))))


@lru_cache(maxsize=4)
def fine_code(number: int) -> PrefixCode:
    """By which the counts of so many bins are sent (docs/privacy.md P27)."""
    return PrefixCode(bins=number, power=0.5)


def of_amounts(low: float, high: float, number: int) -> Bins:
    """Of equal width between bounds."""
    width = (high - low) / number
    return Bins(
        cuts=tuple(low + width * k for k in range(1, number)),
        values=tuple(low + width * (k + 0.5) for k in range(number)),
    )


def of_rates(high: float, number: int) -> Bins:
    """Of expected counts, of equal width in their roots."""
    return Bins(
        cuts=tuple(high * (k / number) ** 2 for k in range(1, number)),
        values=tuple(high * ((k + 0.5) / number) ** 2 for k in range(number)),
    )


def of_counts(high: float, number: int) -> Bins:
    """Of whole numbers from 0: each its own if they are few, else ranges, wider upwards."""
    last = int(high)
    if last < number:
        starts = list(range(last + 1))
    else:
        rough = [round(last * (k / number) ** 2) for k in range(number)]
        starts = sorted({0, 1, *rough})
    ends = [*(start - 1 for start in starts[1:]), last]
    return Bins(
        cuts=tuple(start - 0.5 for start in starts[1:]),
        values=tuple((a + b) / 2 for a, b in zip(starts, ends, strict=True)),
    )


def coarser(grid: Sequence[float], most: int) -> tuple[float, ...]:
    """At most so many times of a grid, evenly taken, the last among them.

    >>> coarser([1, 2, 3, 4, 5], 2)
    (3.0, 5.0)
    """
    count = min(most, len(grid))
    places = [-(-(k + 1) * len(grid) // count) - 1 for k in range(count)]
    return tuple(float(grid[place]) for place in places)
