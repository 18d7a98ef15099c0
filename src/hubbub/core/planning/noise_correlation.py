"""The matrix by which a silo's noise shares are correlated over the steps of a session (P25).

Theory of operation. C is lower triangular, banded and Toeplitz; a silo adds C^-1 Z, Z independent,
so what it adds in one step is partly taken back in the next ones. The optimizer adds gradients up:
A, the *workload*, is the matrix from gradients to models. The error of a whole training is that of
A C^-1, and C is chosen to make its mean square least, among the C whose columns have norm 1
(Choquette-Choo et al. 2023; McKenna 2024). With l the first column of C^-1 that error is a
quadratic form in l, so its gradient is cheap, and the search begins at the first coefficients of
(1 - x)^(-1/2) (Henzinger, Fichtenberger; Kalinin, Lampert 2024). No guarantee rests on the error:
any C will do whose columns have norm 1 at most, which integers show.

A package registers another way to choose C under the entry point `hubbub.options`: a function of
the number of bands, the optimizer's momentum and schedule and the steps that returns C's first
column in whole units (`whole_units` makes them). Its name is then a value of `training.noise`.

Sampling is cheaper the fewer bands there are, so there is a best number of them at each epsilon,
often 1. The optimizer Adam divides gradients by their size and takes no such sums: there
correlated noise has lost wherever it was tried, and "auto" leaves it at one band.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.planning.mechanism import INDEPENDENT, OPTIONS, StepNoise
from hubbub.core.planning.plan_rows import PlanRow
from hubbub.core.privacy.accountant import calibrate
from hubbub.core.privacy.dominating_pairs import Step, release
from hubbub.core.protocol.primitives.correlated_noise import UNIT
from hubbub.core.protocol.round.batches import group_rate, group_rows
from hubbub.core.registered import loaded, registered, remembered

Array = NDArray[np.float64]

OPTION = "correlated_noise"  # its key among a plan's plain values
_HORIZON = 1024  # steps over which the error is minimised, for longer trainings too
_POLISHINGS = 4
_BANDS = (2, 4, 8, 16, 32, 64, 128)  # numbers of them that are tried
_FAR = 1e6  # of a logarithm
_MOST_GROWTH = 1e6  # of what a step's noise puts into a later one, in units of a share's


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """How noise is correlated.

    Args:
        coefficients: of C, its first column in units of 1 / UNIT; more than one.
        error: of the training's noise, relative to independent noise at the same epsilon; no unit.
            It is the root of the mean square over all steps, in the optimizer's own sums.
    """

    coefficients: tuple[int, ...] = field(repr=False)
    steps: int
    error: float

    @property
    def bands(self) -> int:
        """How many of a session's attempts a noise vector has a part in."""
        return len(self.coefficients)

    @property
    def column(self) -> Array:
        """C's first column; its norm is at most 1, exactly."""
        return np.array(self.coefficients) / UNIT

    @property
    def epoch(self) -> int:
        """The bands: a unit is in a batch of one of so many steps at most (P25)."""
        return self.bands

    @cached_property
    def growth(self) -> float:
        """The largest standard deviation of a step's noise, in units of a share's."""
        # P25: of the last step's row; earlier ones have fewer of its squares.
        return float(np.linalg.norm(inverse_of(self.column, self.steps)))

    def charged_rate(self, rate: float) -> float:
        """Of the group whose turn it is (P25)."""
        return group_rate(rate, self.bands)

    def batch_rows(self, capacity: int, rate: float) -> int:
        """Of one of the groups that take turns."""
        return group_rows(capacity, rate, self.bands)

    def rounded(self, shift: float, sigma: float) -> tuple[float, float]:
        """See `StepNoise`: the window's sums round, too (P25)."""
        column = [abs(float(one)) for one in self.column]
        length = sum(column)
        window = (self.bands + 6) * length * 15 * sigma * self.growth
        return (shift + 2.0**-53 * window) / column[0], length

    def shown(self, numbers: int | None) -> dict[str, Any]:
        """Under the key of correlated noise."""
        return {OPTION: self.to_dict(numbers)}

    def window_bytes(self, numbers: int | None) -> int | None:
        """Bytes of noise that a silo keeps in memory, in secret; None for sums of unknown size."""
        return None if numbers is None else 8 * numbers * (self.bands - 1)

    def to_dict(self, numbers: int | None) -> dict[str, Any]:
        """As plain values, for sums of so many numbers."""
        return {
            "bands": self.bands,
            "error": self.error,
            "growth": self.growth,
            "window_bytes": self.window_bytes(numbers),
        }

    def rows(self, numbers: int | None) -> list[PlanRow]:
        """What a plan says of it."""
        kept = "bytes of its noise that a silo keeps in memory, in secret"
        error = "of the whole training, against independent noise at this ε"
        return [
            PlanRow("bands", self.bands, "steps over which a silo's noise is correlated"),
            PlanRow("error of the noise", self.error, error),
            PlanRow("window", self.window_bytes(numbers), kept),
        ]


def inverse_of(column: Array, steps: int) -> Array:
    """The first column of C^-1, (steps,)."""
    impulse = np.zeros(steps)
    impulse[0] = 1
    return _solved(column, impulse)


def _solved(column: Array, values: Array) -> Array:
    """C^-1 times a vector."""
    from scipy.signal import lfilter  # which takes long to import

    return np.asarray(lfilter([1.0], column, values))


# The ways to choose C ---------------------------------------------------------------------------

_Choose = Callable[[int, float, str, int], Sequence[int]]


@remembered
def column_of(
    option: str, bands: int, momentum: float, schedule: str, steps: int
) -> tuple[int, ...]:
    """C's first column, (bands,) in units of 1 / UNIT, as a registered option chooses it.

    Raises:
        StudyError: it is no such column, or its norm is above 1, for which nothing is proven (P25).
    """
    if bands == 1:
        return (UNIT,)

    def chosen(choose: _Choose) -> tuple[int, ...]:
        return tuple(int(unit) for unit in choose(bands, momentum, schedule, steps))

    column: tuple[int, ...] = loaded(registered(OPTIONS)[option], chosen)
    # P25: columns of norm 1 at most, seen in whole numbers, in which nothing is rounded.
    fits = len(column) == bands and column[0] > 0 and sum(unit**2 for unit in column) <= UNIT**2
    # A share's noise that grows without end fits no grid.
    if not fits or not np.abs(inverse_of(np.array(column) / UNIT, steps)).max() <= _MOST_GROWTH:
        raise StudyError(
            f'expected training.noise = "{option}" to give {bands} whole numbers, the first above '
            f"0, of norm {UNIT} at most, of whose inverse none is above {_MOST_GROWTH:g}, got "
            "others; bring the package that registers it up to date"
        )
    return column


def whole_units(column: Array) -> tuple[int, ...]:
    """A column of norm 1 in whole units, so that its norm is at most 1 without any rounding."""
    # Towards zero, so shorter; `column_of` counts it again in whole numbers.
    return tuple(np.trunc(column / np.linalg.norm(column) * UNIT).astype(int).tolist())


# What the optimizer makes of noise -------------------------------------------------------------


def workload(momentum: float, schedule: str, steps: int) -> Array:
    """A: what a unit of gradient in a step (column) has moved the model by after another (row).

    Returns:
        (steps, steps), lower triangular, in units of the first learning rate.
    """
    # The learning rates, the first being 1.
    at = np.arange(steps)
    done = at / steps
    shapes = {"linear": 1 - done, "cosine": 0.5 * (1 + np.cos(np.pi * done))}
    rates = shapes.get(schedule, np.ones(steps))
    # A gradient moves the model in its own step and, by momentum, in every later one; all add up.
    lags = np.maximum(at[:, None] - at[None, :], 0)
    return np.asarray(np.cumsum(np.tril(rates[:, None] * momentum**lags), axis=0))


@lru_cache(maxsize=16)
def _form(momentum: float, schedule: str, steps: int) -> Array:
    """Q with ||A T||^2 / steps = l' Q l for every lower triangular Toeplitz T of first column l."""
    workload_form = workload(momentum, schedule, steps)
    form = workload_form.T @ workload_form / steps
    for row in range(steps - 2, -1, -1):  # sums down the diagonals, from below
        form[row, :-1] += form[row + 1, 1:]
    return form


def error_of(column: Array, form: Array) -> float:
    """Root of the mean square of A C^-1 Z over the steps, for noise of deviation 1."""
    inverse = inverse_of(column, len(form))
    return sqrt(float(inverse @ form @ inverse))


@lru_cache(maxsize=256)
def best_column(bands: int, momentum: float, schedule: str, steps: int) -> tuple[int, ...]:
    """C with the least error for a workload, in whole units."""
    from scipy.optimize import minimize  # which takes long to import

    form = _form(momentum, schedule, min(steps, _HORIZON))
    start = np.cumprod(1 - 0.5 / np.arange(1, bands))
    with np.errstate(over="ignore", invalid="ignore"):  # columns that are far off are refused
        column = minimize(_loss, start, (form,), jac=True, method="L-BFGS-B").x
        for _ in range(_POLISHINGS):  # to the last units, so that all machines find the same
            column = column - np.linalg.solve(_curvature(column, form), _loss(column, form)[1])
    return whole_units(np.concatenate([[1.0], column]))


def _loss(free: Array, form: Array) -> tuple[float, Array]:
    """Logarithm of squared norm times squared error, which no scaling changes, and its gradient."""
    column, inverse, falls = _falls(free, len(form))
    pull = form @ inverse
    value, size = float(inverse @ pull), float(column @ column)
    if not np.isfinite(value):
        return _FAR, np.zeros(free.size)
    return float(np.log(value * size)), 2 * (falls.T @ pull / value + free / size)


def _falls(free: Array, steps: int) -> tuple[Array, Array, Array]:
    """The column, l, and d l / d c_j, which is -(l * l), j places down: (steps, bands - 1)."""
    column = np.concatenate([[1.0], free])
    inverse = inverse_of(column, steps)
    return column, inverse, _shifted(-_solved(column, inverse), range(1, free.size + 1))


def _shifted(one: Array, places: range) -> Array:
    """A sequence so many places down, in columns; zeros where it ends above."""
    padded = np.concatenate([np.zeros(max(places)), one])
    return np.column_stack([padded[max(places) - j :][: one.size] for j in places])


def _curvature(free: Array, form: Array) -> Array:
    """The second derivatives of the loss."""
    column, inverse, falls = _falls(free, len(form))
    pull, size, many = form @ inverse, float(column @ column), free.size
    value, slopes = float(inverse @ pull), 2 * falls.T @ pull
    # d2 l / d c_i d c_j is 2 (l * l * l), i + j places down.
    cubes = _solved(column, _solved(column, inverse))
    along = 4 * pull @ _shifted(np.asarray(cubes), range(2, 2 * many + 1))
    bend = 2 * falls.T @ form @ falls + along[np.add.outer(np.arange(many), np.arange(many))]
    return np.asarray(
        bend / value
        - np.outer(slopes, slopes) / value**2
        + 2 * np.eye(many) / size
        - 4 * np.outer(free, free) / size**2
    )


# How many bands ---------------------------------------------------------------------------------


@remembered
def correlation_for(
    option: str,
    bands: int,
    momentum: float,
    schedule: str,
    steps: int,
    rate: float,
    epsilon: float,
    delta: float,
    relation: str,
) -> StepNoise:
    """How noise is correlated over steps of an optimizer; independent where one band is best.

    Args:
        option: that chooses C, by the name it is registered under.
        bands: how many; 0: the best number of them.
        momentum, schedule: of the optimizer whose error counts.
        rate: with which a record is in a batch.
    """

    def error(many: int) -> float:
        """The training's noise at the study's epsilon."""
        noise = least_noise(many, steps, rate, epsilon, delta, relation)
        column = column_of(option, many, momentum, schedule, steps)
        return noise * error_of(np.array(column) / UNIT, form)

    form = _form(momentum, schedule, min(steps, _HORIZON))
    alone = error(1)
    if not bands:
        # P25: a group's rate is b q, and no more than 1.
        most = min(steps, int(1 / rate * (1 + 1e-12)))
        bands = _least(error, (many for many in _BANDS if many <= most), alone)
    if bands == 1:
        return INDEPENDENT
    least = error(bands)
    return Correlation(
        coefficients=column_of(option, bands, momentum, schedule, steps),
        steps=steps,
        error=least / alone,
    )


def _least(error: Any, candidates: Iterator[int], least: float) -> int:
    """The best number of bands; the search ends where more of them are worse twice."""
    best, worse = 1, 0
    for many in candidates:
        smallest = error(many)
        best, worse = (many, 0) if smallest < least else (best, worse + 1)
        least = min(least, smallest)
        if worse == 2:
            break
    return best


def least_noise(
    bands: int, steps: int, rate: float, epsilon: float, delta: float, relation: str
) -> float:
    """The noise multiplier that so many bands need, without what a plan adds besides."""

    def whole(noise: float) -> list[Any]:
        # P25: one step at the group's rate for each block of attempts.
        step = Step(
            noise_multiplier=noise,
            sample_rate=group_rate(rate, bands),
            sampling="poisson",
            count=ceil(steps / bands),
        )
        return [release(step, relation)]

    return calibrate(whole, epsilon, delta)
