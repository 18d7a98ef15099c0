"""Shares with intervals in which sampling and noise both count, read off noisy components.

No synthetic record is needed for them. A share is a ratio of a linear function L of independent
noisy components to their number of records, so its variance is
(L - p e0) V (L - p e0)' / n^2 + p (1 - p) / n, V the components' variances (P26 says why these are
public). A pair that was not measured level by level is estimated between what its groups of levels
say and what the model says, by how far these two are apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, ndtri, stdtrit

from hubbub.core.errors import UserError
from hubbub.estimation.synthesis.components import Components

Array = NDArray[np.float64]
MEASURED, MODEL_DEPENDENT = "measured", "model-dependent"
_HALVINGS = 60
_UPPER = 0.10  # chance with which the model's true error is beyond what is allowed for it


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of all records, or of those of a level of another column.

    Args:
        value: the estimate; it may be below 0 where there are few records.
        standard_error: of sampling and noise together.
        low, high: ends of its interval.
        basis: "measured", or "between model and sums" where the pair was not measured whole.
    """

    value: float
    standard_error: float
    low: float
    high: float
    basis: str


def one_way(components: Components, column: int, confidence: float) -> list[Share]:
    """The shares of a column's levels."""
    shares = components.shares((column,))
    contrasts = components.columns[column].contrasts
    noise = contrasts**2 @ components.by[(column,)].variance
    return _shares(components, shares, noise, confidence, MEASURED)


def two_way(
    components: Components,
    pair: tuple[int, int],
    confidence: float,
    *,
    models: Array,
) -> list[list[Share]]:
    """The shares of a pair's cells.

    Args:
        components: what the noisy sums say.
        pair: two columns, the first one before the other.
        confidence: of the intervals, a probability.
        models: the model's shares of the cells, and those of models fitted to the components with
            fresh noise, one after the other; not looked at where the pair was measured whole.
    """
    coded = [components.columns[k] for k in pair]
    value, variance, basis = _interaction(components, pair, models)
    first, second = (one.contrasts for one in coded)
    shares = components.shares((pair[0],))[:, None] / coded[1].size
    shares = shares + components.shares((pair[1],))[None, :] / coded[0].size
    shares = shares - 1.0 / (coded[0].size * coded[1].size) + first @ value @ second.T
    noise = (first**2 @ variance @ (second**2).T) * components.records**2
    for k, other in ((0, 1), (1, 0)):
        mine = coded[k].contrasts ** 2 @ components.by[(pair[k],)].variance
        noise += np.expand_dims(mine, other) / coded[other].size ** 2
    flat = _shares(components, shares.reshape(-1), noise.reshape(-1), confidence, basis)
    return [flat[k * coded[1].size : (k + 1) * coded[1].size] for k in range(coded[0].size)]


def _shares(
    components: Components, found: Array, noise: Array, confidence: float, basis: str
) -> list[Share]:
    """With intervals; `noise` is that of the counts but for the number of records."""
    many, z = components.records, float(ndtri(0.5 + confidence / 2))
    counted = (1.0 / len(found) - found) ** 2 * float(components.by[()].variance)
    sampled = np.clip(found * (1 - found), 1 / many, None) / many
    errors = np.sqrt((counted + noise) / many**2 + sampled)
    return [
        Share(
            value=float(value),
            standard_error=float(error),
            low=float(value - z * error),
            high=float(value + z * error),
            basis=basis,
        )
        for value, error in zip(found, errors, strict=True)
    ]


def _interaction(
    components: Components, pair: tuple[int, int], models: Array
) -> tuple[Array, Array, str]:
    """A pair's interaction as shares, and the variance of each entry besides sampling."""
    effect, many = components.effect(pair), components.records
    if components.is_whole(pair):
        return effect.value / many, effect.variance / many**2, MEASURED
    first, second = (components.columns[k].contrasts for k in pair)
    model = models[0]
    modelled = first.T @ model @ second
    moved = np.var([first.T @ one @ second for one in models[1:]], axis=0, ddof=1)
    known = effect.known
    apart = np.where(known, effect.value / many - modelled, 0.0)
    squares = (first**2).T @ np.maximum(model, 0.0) @ second**2
    sampling = np.maximum(squares - modelled**2, 0.0) / many
    noise = np.where(known, effect.variance / many**2, 0.0) + sampling
    spread = most_spread(apart[known], noise[known])
    part = np.where(known, spread / (spread + noise), 0.0)
    variance = moved + np.where(known, (1 - part) ** 2 * spread + part**2 * noise, spread)
    return modelled + part * apart, variance, "between model and sums"


def most_spread(apart: Array, noise: Array) -> float:
    """The largest variance of the model's error that such differences leave likely enough.

    Args:
        apart: differences of what was measured and what the model says.
        noise: their variances if the model were right.
    """
    bound = float(chdtri(len(apart), 1 - _UPPER))

    def excess(spread: float) -> float:
        return float(np.sum(apart**2 / (noise + spread))) - bound

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, float(np.sum(apart**2)) / bound
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


@dataclass(frozen=True, kw_only=True)
class Combined:
    """An estimate from several synthetic tables.

    Args:
        value: the mean of the tables' estimates.
        standard_error: of sampling and noise together.
        low, high: ends of its interval.
        tables: how many there were.
        basis: "measured", where it rests on one column, or on a pair that was measured level by
            level; else "model-dependent": the interval holds if the model does.
    """

    value: float
    standard_error: float
    low: float
    high: float
    tables: int
    basis: str


def combine(
    estimates: Array | list[float],
    *,
    confidence: float = 0.95,
    basis: str = MODEL_DEPENDENT,
) -> Combined:
    """One estimate, with an interval, from the same analysis of several synthetic tables.

    The tables of `SyntheticData.tables` differ from each other by noise and by sampling, as the
    estimate does from what it is of: so its variance is (1 + 1/m) times theirs, with a t law of
    m - 1 degrees of freedom. Standard errors that an analysis states for one table are not used.

    Args:
        estimates: the m estimates, one of each table, such as coefficients; 5 at the least.
        confidence: of the interval, a probability.
        basis: what the analysis rests on, as `SyntheticData.basis` says of its columns; who says
            nothing of them gets a result that is model-dependent.

    Returns:
        The mean of the estimates, with an interval, in their unit.

    Raises:
        UserError: there are fewer than 5, or one is not finite, or there is no such basis.

    Source: docs/synthetic.md.

    >>> made = combine([0.9, 1.0, 1.1, 1.0, 1.0])
    >>> made.value, round(made.low, 2), round(made.high, 2), made.basis
    (1.0, 0.78, 1.22, 'model-dependent')
    """
    if basis not in (MEASURED, MODEL_DEPENDENT):
        raise UserError(
            f"expected a basis {MEASURED!r} or {MODEL_DEPENDENT!r}, got {basis!r}; take what "
            "SyntheticData.basis says"
        )
    values = np.asarray(estimates, np.float64)
    if values.ndim != 1 or len(values) < 5 or not np.isfinite(values).all():
        raise UserError(
            f"expected 5 finite estimates or more, one of each table, got {values.size} of shape "
            f"{values.shape}; run the analysis on each of the tables"
        )
    many = len(values)
    error = sqrt((1 + 1 / many) * float(np.var(values, ddof=1)))
    mean, reach = float(np.mean(values)), float(stdtrit(many - 1, 0.5 + confidence / 2)) * error
    return Combined(
        value=mean,
        standard_error=error,
        low=mean - reach,
        high=mean + reach,
        tables=many,
        basis=basis,
    )


def total_variation(first: Array, second: Array) -> float:
    """Half the sum of all differences of shares: the share of records that would have to change."""
    return 0.5 * float(np.abs(first - second).sum())


def expected_variation(noise: Array, many: float) -> float:
    """The total variation that noise of these variances alone is expected to make."""
    return 0.5 * sqrt(2 / np.pi) * float(np.sum(np.sqrt(noise))) / many
