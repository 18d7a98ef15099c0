"""Effects of a regression, with what sampling and noise leave uncertain, and which are told.

A score U whose noise has the covariance C, for records with the information I, has its root
uncertain by I^-1 (I + C) I^-1. An effect is told where noise makes its variance at most six times
that of sampling: beyond, the information itself is not known well enough for an honest interval.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from hubbub.estimation.covariates import PER_UNIT, Covariates
from hubbub.estimation.intervals import caution, normal_quantile
from hubbub.estimation.statistic import (
    LOGARITHM,
    Answer,
    Array,
    Estimate,
    Expectation,
    Levels,
    Statistic,
)
from hubbub.tabular import Column

# The largest ratio of the noise's part of a variance to that of sampling with which an effect is
# told, and with which it is planned, as if all classes were alike, which they never are.
_MOST, _MOST_PLANNED = 5.0, 3.0
_STEPS = 50  # of Newton's method
LEFT_OUT = "records that lack the outcome or a covariate are left out"
TOO_NOISY = "the information of the records does not exceed the noise"
Names = tuple[tuple[str, str], ...]  # column and level of each effect


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Effects of all covariates, without an intercept.

    Args:
        values: (q,) logarithms of ratios, or slopes.
        covariance: (q, q) by sampling and noise.
        sampling: (q,) variances without noise.
        wider: how many times wider intervals and tests take what sampling adds.
    """

    values: Array
    covariance: Array
    sampling: Array
    wider: float = 1.0

    @property
    def errors(self) -> Array:
        """(q,) standard errors."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def reach(self) -> Array:
        """(q,) standard errors of intervals and tests."""
        return np.asarray(np.sqrt(self.errors**2 + (self.wider**2 - 1.0) * self.sampling))

    @property
    def inflation(self) -> Array:
        """(q,) how many times the sampling variance noise adds."""
        return np.diag(self.covariance) / self.sampling - 1.0

    def per(self, unit: Array) -> Effects:
        """The same effects on another unit of each covariate: times `unit`, (q,)."""
        return replace(
            self,
            values=self.values * unit,
            covariance=self.covariance * np.outer(unit, unit),
            sampling=self.sampling * unit**2,
        )

    def rows(self, names: Names, ratio: str, confidence: float) -> tuple[Estimate, ...]:
        """Estimates of those effects that are told; `ratio` says what exp(effect) is."""
        z, shown = normal_quantile(confidence), _exp if ratio else float
        return tuple(
            Estimate(
                quantity=ratio or ("slope" if level == PER_UNIT else "difference"),
                column=column,
                level=level,
                value=shown(effect),
                standard_error=float(self.errors[place]),
                error_of=LOGARITHM if ratio else "",
                low=shown(effect - z * reach),
                high=shown(effect + z * reach),
                p_value=two_sided(float(effect / reach)),
            )
            for place in told(self)
            for column, level in [names[place]]
            for effect, reach in [(self.values[place], self.reach[place])]
        )


@dataclass(frozen=True, kw_only=True)
class Regression(Statistic):
    """Effects of covariates on what is explained; incomplete records are left out.

    Args:
        on: the covariates: classes, the first of which is compared with, or numeric columns.
    """

    on: tuple[Levels | Column, ...]

    ratio: ClassVar[str] = ""  # what exp(effect) is; empty where effects themselves are told
    note: ClassVar[str] = LEFT_OUT  # which records are left out

    def __post_init__(self) -> None:
        """Refuses covariates that are none."""
        _ = self.covariates

    @property
    @abstractmethod
    def explained(self) -> str:
        """What its covariates explain, by the names of its columns."""

    @property
    def covariates(self) -> Covariates:
        """Its covariates, as they are in a record's vector."""
        return Covariates(on=self.on)

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return f"{self.kind.capitalize()} regression of {self.explained} on {self.covariates.title}"

    def expected_with(self, found: Effects | None, sigma: float, quantity: str) -> Expectation:
        """What may be said before records are touched, of `found` in records that are made up."""
        error = math.inf if found is None else float(found.errors.max())
        answered = found is not None and float(found.inflation.max()) <= _MOST_PLANNED
        told = f"{quantity} known to ±{error:.2g} (one standard error)"
        return self.make_expectation({quantity: error}, sigma, told, answered=answered)

    def answer_with(self, found: Effects | None) -> Answer:
        """The answer that effects give, or a refusal where none of them is told."""
        names = self.covariates.names
        rows = found.rows(names, self.ratio, self.confidence) if found else ()
        notes = (self.note, *omitted(names, found))
        return self.make_answer("" if rows else TOO_NOISY, rows=rows, notes=notes)


def newton(at: Callable[[Array], tuple[Array, Array]], width: int) -> tuple[Array, Array] | None:
    """The root of a score by Newton's method, from no effects on.

    Args:
        at: from effects (width,) to the score there, and the information (width, width).
        width: how many effects there are.

    Returns:
        The root and the information at it; None where there is no maximum to be found.
    """
    effects = np.zeros(width)
    for _ in range(_STEPS):
        score, information = at(effects)
        if not definite(information):
            return None
        step = np.linalg.solve(information, score)
        effects = effects + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-9:
            return effects, information
    return None


def definite(information: Array) -> bool:
    """Whether noisy information is positive definite, and can be inverted in float64."""
    if not np.isfinite(information).all():
        return False
    values = np.linalg.eigvalsh(information)
    return bool(values[0] > 1e-9 * abs(values[-1]))


def told(effects: Effects) -> list[int]:
    """The numbers of the effects that are told."""
    return [int(place) for place in np.flatnonzero(effects.inflation <= _MOST)]


def two_sided(z: float) -> float:
    """The p-value of an effect that is z standard errors away from none."""
    from scipy.special import ndtr  # which takes long to import

    return float(2 * ndtr(-abs(z)))


def sandwich(values: Array, information: Array, noise: Array, *, first: int = 0) -> Effects:
    """Effects whose score has so much noise.

    Args:
        values: (q,) the root of the score.
        information: (q, q) of the records, positive definite.
        noise: (q, q) covariance of the noise in the score.
        first: components before this one are no effects: an intercept.
    """
    inverse = np.linalg.inv(information)
    added = inverse @ noise @ inverse
    sampling, variance = np.diag(inverse), np.diag(added)
    # The information has about half of the noise of the score, and decides what is told.
    margins = 2.0 * (1.0 - variance / sampling / _MOST) / np.sqrt(np.maximum(variance, 1e-300))
    wider = caution(margins)
    covariance = inverse + added * np.outer(wider, wider)
    return Effects(
        values=np.asarray(values[first:]),
        covariance=np.asarray(covariance[first:, first:]),
        sampling=sampling[first:],
    )


def omitted(names: Names, effects: Effects | None) -> tuple[str, ...]:
    """A sentence for each effect that is not told."""
    if effects is None:
        return ()
    shown = told(effects)
    return tuple(
        f"{column}, {level}: below the noise"
        for place, (column, level) in enumerate(names)
        if shown and place not in shown
    )


def _exp(value: float) -> float:
    return math.exp(min(max(value, -700.0), 700.0))
