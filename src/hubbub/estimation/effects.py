"""Effects of a regression, with what sampling and noise leave uncertain, and which are told.

A score U whose noise has the covariance C, for records with the information I, has its root
uncertain by I^-1 (I + C) I^-1. An effect is told where noise makes its variance at most nine times
that of sampling: beyond, the information itself is not known well enough for an honest interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from hubbub.estimation.answer import Estimate, Expectation
from hubbub.estimation.intervals import normal_quantile
from hubbub.estimation.levels import Array

# The largest ratio of the noise's part of a variance to that of sampling with which an effect is
# told, and with which it is planned, as if all classes were alike, which they never are.
_MOST, _MOST_PLANNED = 8.0, 4.0
TOO_NOISY = "the information of the records does not exceed the noise"


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Effects of all covariates, without an intercept.

    Args:
        values: (q,) logarithms of ratios, or slopes.
        covariance: (q, q) by sampling and noise.
        sampling: (q,) variances without noise.
    """

    values: Array
    covariance: Array
    sampling: Array

    @property
    def errors(self) -> Array:
        """(q,) standard errors."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def inflation(self) -> Array:
        """(q,) how many times the sampling variance noise adds."""
        return np.diag(self.covariance) / self.sampling - 1.0

    def per(self, unit: Array) -> Effects:
        """The same effects on another unit of each covariate.

        Args:
            unit: (q,) what they are multiplied by.
        """
        return Effects(
            values=self.values * unit,
            covariance=self.covariance * np.outer(unit, unit),
            sampling=self.sampling * unit**2,
        )

    def rows(
        self, names: tuple[tuple[str, str], ...], quantity: str, confidence: float
    ) -> tuple[Estimate, ...]:
        """Ratios exp(effect) with intervals and tests, of those effects that are told.

        Args:
            names: column and level of each effect.
            quantity: what a ratio is called.
            confidence: of the intervals.
        """
        z = normal_quantile(confidence)
        return tuple(
            Estimate(
                quantity=quantity,
                column=column,
                level=level,
                value=_exp(effect),
                standard_error=float(error),
                low=_exp(effect - z * error),
                high=_exp(effect + z * error),
                p_value=two_sided(float(effect / error)),
            )
            for (column, level), effect, error, inflation in zip(
                names, self.values, self.errors, self.inflation, strict=True
            )
            if inflation <= _MOST
        )


def told(effects: Effects) -> list[int]:
    """The numbers of the effects that are told."""
    return [int(place) for place in np.flatnonzero(effects.inflation <= _MOST)]


def two_sided(z: float) -> float:
    """The p-value of an effect that is z standard errors away from none."""
    return float(2 * stats.norm.sf(abs(z)))


def sandwich(values: Array, information: Array, noise: Array, *, first: int = 0) -> Effects:
    """Effects whose score has so much noise.

    Args:
        values: (q,) the root of the score.
        information: (q, q) of the records, positive definite.
        noise: (q, q) covariance of the noise in the score.
        first: components before this one are no effects: an intercept.
    """
    inverse = np.linalg.inv(information)
    covariance = inverse + inverse @ noise @ inverse
    return Effects(
        values=np.asarray(values[first:]),
        covariance=np.asarray(covariance[first:, first:]),
        sampling=np.diag(inverse)[first:],
    )


def planned(effects: Effects | None, sigma: float, quantity: str) -> Expectation:
    """What may be said before records are touched, of effects of records that are made up.

    Args:
        effects: None where they could not be found.
        sigma: standard deviation of the noise.
        quantity: what an effect is.
    """
    error = math.inf if effects is None else float(effects.errors.max())
    answered = effects is not None and float(effects.inflation.max()) <= _MOST_PLANNED
    return Expectation(
        errors=((quantity, error),),
        sentence=(
            f"{quantity} known to ±{error:.2g} (one standard error)"
            if answered
            else f"too few records for its noise of {sigma:.3g}: it will be refused"
        ),
        answered=answered,
    )


def omitted(names: tuple[tuple[str, str], ...], effects: Effects | None) -> tuple[str, ...]:
    """A sentence for each effect that is not told.

    Args:
        names: column and level of each effect.
        effects: None where none is.
    """
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
