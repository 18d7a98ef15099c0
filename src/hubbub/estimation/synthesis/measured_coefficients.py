"""Logistic coefficients of one column, read off a pair that was measured level by level.

The score of the regression is a function of the pair's counts, U = sum over cells of
x (y - pi(x)) n, so its root needs no record; numbers count as the middles of their ranges. The
variance is that of the root, I^-1 M (S + diag(n)) M' I^-1, with M the slope of U in the counts, S
the covariance that noise gives the counts, and n what sampling gives them (docs/synthetic.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from hubbub.core.errors import UserError
from hubbub.estimation.synthesis.coding import CodedColumn
from hubbub.estimation.synthesis.components import Components

Array = NDArray[np.float64]
_STEPS, _SMALL = 50, 1e-9


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """A logarithm of an odds ratio.

    Args:
        value: the estimate.
        standard_error: of sampling and noise together.
        low, high: ends of its interval.
    """

    value: float
    standard_error: float
    low: float
    high: float


def pair_coefficients(
    components: Components, pair: tuple[int, int], event: int, confidence: float
) -> dict[str, Coefficient]:
    """How the odds of a level of one column follow from the other column.

    Args:
        components: what the noisy sums say.
        pair: the column whose level is explained, and the one that explains it.
        event: that level's place.
        confidence: of the intervals, a probability.

    Returns:
        By the explaining column's levels but the first, or for a number under its name, a unit
        more; records that lack a cell are left out.

    Raises:
        UserError: noise leaves too little for an estimate.
    """
    counts, noise = _counts(components, pair)
    explained, explaining = (components.columns[k] for k in pair)
    names, given = _features(explaining)
    rows, columns = _known(explained), _known(explaining)
    spread = noise[np.ix_(rows, columns, rows, columns)]
    outcome = np.array([1.0 if k == event else 0.0 for k in rows])
    found, errors = _solved(counts[np.ix_(rows, columns)], spread, outcome, given)
    reach = float(ndtri(0.5 + confidence / 2))
    return {
        name: Coefficient(
            value=float(value),
            standard_error=float(error),
            low=float(value - reach * error),
            high=float(value + reach * error),
        )
        for name, value, error in zip(names, found[1:], errors[1:], strict=True)
    }


def _known(column: CodedColumn) -> list[int]:
    """Its levels but the missing."""
    return list(range(len(column.levels)))


def _features(column: CodedColumn) -> tuple[list[str], Array]:
    """Names of coefficients, and (levels, 1 + coefficients) what each level counts as."""
    many = len(column.levels)
    if column.levels.column.categories:
        return list(column.names[1:many]), np.column_stack((np.ones(many), np.eye(many)[:, 1:]))
    low, high = column.levels.column.bounds
    edges = np.array([low, *column.levels.cuts, high])
    return [column.name], np.column_stack((np.ones(many), (edges[1:] + edges[:-1]) / 2))


def _counts(components: Components, pair: tuple[int, int]) -> tuple[Array, Array]:
    """The counts of the pair's cells, and (a, b, a, b) the covariance that noise gives them."""
    a, b = (components.columns[k].contrasts for k in pair)
    turned = pair[0] > pair[1]
    effect = components.effect((pair[1], pair[0]) if turned else pair)
    ones = [np.full((len(one), 1), 1 / len(one)) for one in (a, b)]
    records, value, spread = components.by[()], effect.value, effect.variance
    parts = [
        (np.kron(ones[0], ones[1]), records.value.reshape(-1), records.variance.reshape(-1)),
        (np.kron(a, ones[1]), *_told(components, pair[0])),
        (np.kron(ones[0], b), *_told(components, pair[1])),
        (
            np.kron(a, b),
            (value.T if turned else value).reshape(-1),
            (spread.T if turned else spread).reshape(-1),
        ),
    ]
    shape = (len(a), len(b))
    counts = np.sum([matrix @ told for matrix, told, _ in parts], axis=0)
    noise = np.sum([matrix * variance @ matrix.T for matrix, _, variance in parts], axis=0)
    return counts.reshape(shape), noise.reshape(*shape, *shape)


def _told(components: Components, column: int) -> tuple[Array, Array]:
    return components.by[(column,)].value, components.by[(column,)].variance


def _solved(counts: Array, noise: Array, outcome: Array, given: Array) -> tuple[Array, Array]:
    """The root of the score, and its standard errors."""
    scale = np.maximum(np.abs(given).max(axis=0), _SMALL)
    features, total = given / scale, counts.sum(axis=0)
    found = np.zeros(features.shape[1])
    for _ in range(_STEPS):
        chance = expit(features @ found)
        score = features.T @ (outcome @ counts - total * chance)
        information = (features * (total * chance * (1 - chance))[:, None]).T @ features
        if not np.linalg.eigvalsh(information)[0] > 0:
            break
        step = np.linalg.solve(information, score)
        found = found + np.clip(step, -2, 2)
        if np.abs(step).max() < _SMALL:
            apart = (outcome[:, None] - chance)[:, :, None] * features  # (2, levels, features)
            slope = apart.reshape(counts.size, -1)
            spread = noise.reshape(counts.size, counts.size) + np.diag(
                np.maximum(counts, 0.0).reshape(-1)
            )
            inverse = np.linalg.inv(information)
            variance = inverse @ slope.T @ spread @ slope @ inverse
            return found / scale, np.sqrt(np.diag(variance)) / scale
    raise UserError(
        "expected counts of the pair from which coefficients follow, got some that noise has left "
        "too little of; take fewer levels, or more epsilon"
    )
