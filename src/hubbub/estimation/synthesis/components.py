"""Components of noisy sums, and shares, coefficients and expectations that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import UserError
from hubbub.core.tabular.levels import Array
from hubbub.estimation.effects import HIDDEN
from hubbub.estimation.intervals import at, normal_quantile, ratio_interval
from hubbub.estimation.synthesis.design import CodedColumn, Design, DesignBlock, Key


@dataclass(frozen=True, kw_only=True)
class Component:
    """A main effect or an interaction, in contrasts.

    Args:
        value: an entry for each contrast, or each pair of them; 0 where nothing was measured.
        variance: of the noise in each; inf where nothing was measured.
    """

    value: Array
    variance: Array

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which entries were measured."""
        return np.isfinite(self.variance)


@dataclass(frozen=True, kw_only=True)
class Components:
    """All that noisy sums say, as independent numbers.

    Args:
        columns: whose levels they are about.
        by: each component by its columns; () the number of records.
    """

    columns: tuple[CodedColumn, ...]
    by: Mapping[Key, Component]

    @property
    def records(self) -> float:
        """About how many units there are; 1 at the least."""
        return max(float(self.by[()].value), 1.0)

    def expected(self, pair: tuple[int, int]) -> Array:
        """The interaction of a pair if it were independent."""
        a, b = (self.by[(k,)].value for k in pair)
        return np.outer(a, b) / self.records

    def is_whole(self, pair: tuple[int, int]) -> bool:
        """Whether a pair was measured level by level."""
        return bool(self.by[pair].known.all())

    def shares(self, key: Key) -> Array:
        """The shares of the cells of a column or of a pair, as measured: some may be negative."""
        contrasts = [self.columns[k].contrasts for k in key]
        sizes = [self.columns[k].size for k in key]
        total = np.full(sizes, self.records / np.prod(sizes))
        if len(key) == 1:
            total = total + contrasts[0] @ self.by[key].value
        else:
            total = total + (contrasts[0] @ self.by[key[:1]].value)[:, None] / sizes[1]
            total = total + (contrasts[1] @ self.by[key[1:]].value)[None, :] / sizes[0]
            total = total + contrasts[0] @ self.by[key].value @ contrasts[1].T
        return total / self.records


def components_of(
    design: Design,
    noisy: Sequence[Array],
    sigma: float,
    blocks: Sequence[Sequence[DesignBlock]] | None = None,
) -> Components:
    """The weighted means of what all sums say of each component.

    Args:
        noisy: (size,) each, in their order; at least one.
        sigma: standard deviation of all noise in each of their numbers.
        blocks: of each sum; None: those that follow from the first sum.
    """
    if blocks is None:
        later = design.blocks(design.update(noisy[:1], sigma, design.start)) if noisy[1:] else ()
        blocks = [design.first, *([later] * (len(noisy) - 1))]
    weights, totals = {}, {}
    for key in ((), *((k,) for k in range(len(design.columns))), *design.pairs):
        shape = tuple(design.columns[k].size - 1 for k in key)
        weights[key], totals[key] = np.zeros(shape), np.zeros(shape)
    for total, parts in zip(noisy, blocks, strict=True):
        end = 0
        for block in parts:
            values = total[end : end + block.numbers]
            end += block.numbers
            part = _part(design, block.key, block.numbers)
            shape = weights[block.key][part].shape
            weights[block.key][part] += (block.weight / sigma) ** 2
            totals[block.key][part] += values.reshape(shape) * block.weight / sigma**2
    by = {
        key: Component(
            value=np.divide(totals[key], weight, out=np.zeros(weight.shape), where=weight > 0),
            variance=np.divide(1.0, weight, out=np.full(weight.shape, np.inf), where=weight > 0),
        )
        for key, weight in weights.items()
    }
    return Components(columns=design.columns, by=by)


def _part(design: Design, key: Key, numbers: int) -> tuple[slice, ...]:
    """Which entries of a component a block has: all, or what groups tell."""
    coarse = tuple(slice(design.columns[k].coarse) for k in key)
    whole = np.prod([design.columns[k].size - 1 for k in key], dtype=int)
    return tuple(slice(None) for _ in key) if numbers == whole else coarse


# Shares with intervals in which sampling and noise both count, read off noisy components.
#
# No synthetic record is needed for them. A share is a ratio of a linear function L of independent
# noisy components to their number of records, so its variance is (L - p e0) V (L - p e0)' / n^2 + p
# (1 - p) / n, V the components' variances (P26 says why these are public). A pair that was not
# measured level by level is estimated between what its groups of levels say and what the model
# says, by how far these two are apart.

MEASURED, MODEL_DEPENDENT = "measured", "model-dependent"
_UPPER = 0.10  # chance with which the model's true error is beyond what is allowed for it


@dataclass(frozen=True)
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
    components: Components, pair: tuple[int, int], confidence: float, *, models: Array
) -> list[list[Share]]:
    """The shares of a pair's cells.

    Args:
        pair: two columns, the first one before the other.
        models: the model's shares of the cells, and those of models fitted to the components with
            fresh noise, one after the other; not looked at where the pair was measured whole.
    """
    coded = [components.columns[k] for k in pair]
    value, variance, basis = _interaction(components, pair, models)
    first, second = (one.contrasts for one in coded)
    shares = components.shares((pair[0],))[:, None] / coded[1].size
    shares = shares + components.shares((pair[1],))[None, :] / coded[0].size
    shares = shares - 1.0 / (coded[0].size * coded[1].size) + first @ value @ second.T
    noise = _noise_of_counts(components, pair, variance * components.records**2)
    flat = _shares(components, shares.reshape(-1), noise.reshape(-1), confidence, basis)
    return [flat[k * coded[1].size : (k + 1) * coded[1].size] for k in range(coded[0].size)]


def _noise_of_counts(components: Components, pair: Key, interaction: Array) -> Array:
    """Variances of the noise in the cells of a pair, but for the number of records."""
    squares = [components.columns[k].contrasts ** 2 for k in pair]
    noise = squares[0] @ interaction @ squares[1].T
    for k, other in ((0, 1), (1, 0)):
        mine = squares[k] @ components.by[(pair[k],)].variance
        noise = noise + np.expand_dims(mine, other) / len(squares[other]) ** 2
    return np.asarray(noise)


def _shares(
    components: Components, found: Array, noise: Array, confidence: float, basis: str
) -> list[Share]:
    """With score intervals; `noise` is that of the counts but for the number of records.

    The interval of a share below 0 is that of 0, down to itself.
    """
    many, z, counted = components.records, normal_quantile(confidence), components.by[()].variance
    number, least = float(counted), min(1.0 / components.records, 0.5)
    shares = []
    for value, own in zip(found.tolist(), noise.tolist(), strict=True):
        part = 1.0 / len(found)
        # At a share p, of the count less p times all: by noise, and by drawing the records.
        variance = (own + number * part**2, many - 2.0 * number * part, number - many)
        possible = min(max(value, 0.0), 1.0)
        low, high = ratio_interval(possible * many, many, variance, z, (0.0, 1.0))
        error = sqrt(at(variance, min(max(value, least), 1.0 - least))) / many
        shares.append(Share(value, error, min(low, value), max(high, value), basis))
    return shares


def _interaction(
    components: Components, pair: tuple[int, int], models: Array
) -> tuple[Array, Array, str]:
    """A pair's interaction as shares, and the variance of each entry besides sampling."""
    effect, many = components.by[pair], components.records
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
    from scipy.optimize import brentq  # which takes long to import
    from scipy.special import chdtri

    bound = float(chdtri(len(apart), 1 - _UPPER))

    def excess(spread: float) -> float:
        return float(np.sum(apart**2 / (noise + spread))) - bound

    if excess(0.0) <= 0:
        return 0.0
    most = float(np.sum(apart**2)) / bound
    return float(brentq(excess, 0.0, 2 * most, xtol=1e-15 * most))


@dataclass(frozen=True)
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
            f"expected a basis {MEASURED!r} or {MODEL_DEPENDENT!r}, got {basis!r}; use "
            "SyntheticData.basis"
        )
    from scipy.special import stdtrit  # which takes long to import

    values = np.asarray(estimates, np.float64)
    if values.ndim != 1 or len(values) < 5 or not np.isfinite(values).all():
        raise UserError(
            f"expected 5 finite estimates or more, one of each table, got {values.size} of shape "
            f"{values.shape}; run the analysis on each of the tables"
        )
    many = len(values)
    error = sqrt((1 + 1 / many) * float(np.var(values, ddof=1)))
    mean, reach = float(np.mean(values)), float(stdtrit(many - 1, 0.5 + confidence / 2)) * error
    return Combined(mean, error, mean - reach, mean + reach, many, basis)


def expected_variation(noise: Array, many: float) -> float:
    """The total variation that noise of these variances alone is expected to make."""
    return 0.5 * sqrt(2 / np.pi) * float(np.sum(np.sqrt(noise))) / many


# Logistic coefficients of one column, read off a pair that was measured level by level.
#
# The score of the regression is a function of the pair's counts, U = sum over cells of
# x (y - pi(x)) n, so its root needs no record; numbers count as the middles of their ranges. The
# variance is that of the root, I^-1 M (S + diag(n)) M' I^-1, with M the slope of U in the counts, S
# the covariance that noise gives the counts, and n what sampling gives them (docs/synthetic.md).

_STEPS, _SMALL = 50, 1e-9


@dataclass(frozen=True)
class Coefficient:
    """A logarithm of an odds ratio.

    Args:
        value: the estimate; nan where there is none.
        standard_error: of sampling and noise together.
        low, high: ends of its interval.
        note: why there is no estimate; empty where there is one.
    """

    value: float
    standard_error: float
    low: float
    high: float
    note: str = ""


def pair_coefficients(
    components: Components, pair: tuple[int, int], event: int, confidence: float
) -> dict[str, Coefficient]:
    """How the odds of a level of one column follow from the other column.

    Args:
        pair: the column whose level is explained, and the one that explains it.
        event: that level's place.

    Returns:
        By the explaining column's levels but the first, or for a number under its name, a unit
        more; records that lack a cell are left out. So are those of a level that is too rare for
        the noise: its coefficient is a note, and if it is the first, the next is in its place.

    Raises:
        UserError: noise leaves too little for an estimate.
    """
    counts, noise = _counts(components, pair)
    explained, explaining = (components.columns[k] for k in pair)
    rows, columns = (list(range(len(one.levels))) for one in (explained, explaining))  # not gaps
    counts, noise = counts[np.ix_(rows, columns)], noise[np.ix_(rows, columns, rows, columns)]
    outcome = np.array([1.0 if k == event else 0.0 for k in rows])
    missed: dict[str, Coefficient] = {}
    if explaining.levels.column.categories:
        seen = _seen(counts, noise, outcome)
        if seen.sum() < 2:
            raise _too_small()
        counts, noise = counts[:, seen], noise[:, seen][:, :, :, seen]
        first, *names = np.array(explaining.levels.names)[seen].tolist()
        given = np.column_stack((np.ones(1 + len(names)), np.eye(1 + len(names))[:, 1:]))
        note = f"left out: too few records for the noise; others are compared with {first}"
        gone = Coefficient(nan, inf, -inf, inf, note)
        missed = {explaining.names[k]: gone for k in np.flatnonzero(~seen)}
    else:
        names = [explaining.name]
        low, high = explaining.levels.column.bounds
        edges = np.array([low, *explaining.levels.cuts, high])
        given = np.column_stack((np.ones(len(columns)), (edges[1:] + edges[:-1]) / 2))
    found, errors = _solved(counts, noise, outcome, given)
    reach = normal_quantile(confidence)
    spans = np.array([found, errors, found - reach * errors, found + reach * errors]).T[1:].tolist()
    told = {name: Coefficient(*span) for name, span in zip(names, spans, strict=True)} | missed
    return {name: told[name] for name in (*explaining.levels.names, *names) if name in told}


def _seen(counts: Array, noise: Array, outcome: Array) -> NDArray[np.bool_]:
    """(b,) whether a level's records with the outcome, and the others, stand above their noise."""
    parts = np.array([outcome, 1.0 - outcome])
    variance = np.einsum("pa,axcx,pc->px", parts, noise, parts)
    return np.asarray((parts @ counts > np.maximum(HIDDEN * np.sqrt(variance), _SMALL)).all(axis=0))


def _too_small() -> UserError:
    return UserError(
        "expected counts of the pair, from which coefficients follow, got some that the "
        "noise has left too small; use fewer levels, or more epsilon"
    )


def _counts(components: Components, pair: tuple[int, int]) -> tuple[Array, Array]:
    """The counts of the pair's cells, and (a, b, a, b) the covariance that noise gives them."""
    a, b = (components.columns[k].contrasts for k in pair)
    turned = pair[0] > pair[1]
    effect = components.by[pair[1], pair[0]] if turned else components.by[pair]
    ones = [np.full((len(one), 1), 1 / len(one)) for one in (a, b)]
    if turned:
        effect = Component(value=effect.value.T, variance=effect.variance.T)
    parts = [
        (np.kron(ones[0], ones[1]), components.by[()]),
        (np.kron(a, ones[1]), components.by[pair[:1]]),
        (np.kron(ones[0], b), components.by[pair[1:]]),
        (np.kron(a, b), effect),
    ]
    shape = (len(a), len(b))
    counts = np.sum([matrix @ one.value.ravel() for matrix, one in parts], axis=0)
    noise = np.sum([matrix * one.variance.ravel() @ matrix.T for matrix, one in parts], axis=0)
    return counts.reshape(shape), noise.reshape(*shape, *shape)


def _solved(counts: Array, noise: Array, outcome: Array, given: Array) -> tuple[Array, Array]:
    """The root of the score, and its standard errors."""
    from scipy.special import expit  # which takes long to import

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
    raise _too_small()


# What noise alone will do to synthetic records, said before any record is touched.
#
# It follows from the layout, the noise and the public number of records. The pairs that will be
# chosen are not known: as many are taken as are usual, those with the targets and a chain of
# others. What noise makes of a pair is drawn in towards independence later on, so it is rather
# less.

_FINE = 0.1  # total variation by noise from which a column's levels are too fine
_FINE_PAIR = 0.4  # and from which a pair with a target says little


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What noise alone makes of synthetic records.

    Args:
        column: mean total variation of a column's shares.
        pair: the same of a pair that is measured level by level.
        too_fine: columns whose levels are too many for the noise.
    """

    column: float
    pair: float
    too_fine: tuple[str, ...]


def foreseen(design: Design, sigma: float, records: int) -> Foreseen:
    """What may be said with so many records and this noise in each number of a sum."""
    chosen = usual_pairs(design)
    sums = [np.zeros(design.size)] * design.rounds
    later = [design.later(chosen)] * (design.rounds - 1)
    components = components_of(design, sums, sigma, blocks=[design.first, *later])
    alone = {k: _variation(components, (k,), records) for k in range(len(design.columns))}
    pairs = {pair: _variation(components, pair, records) for pair in chosen}
    fine = {k for k, one in alone.items() if one > _FINE}
    for pair, one in pairs.items():
        if one > _FINE_PAIR and set(pair) & set(design.targets):
            fine |= set(pair) - set(design.targets)
    return Foreseen(
        column=float(np.mean(list(alone.values()))),
        pair=float(np.mean(list(pairs.values()))),
        too_fine=tuple(design.columns[k].name for k in sorted(fine)),
    )


def usual_pairs(design: Design) -> tuple[tuple[int, int], ...]:
    """Of each column with each target, and a chain of the others."""
    many = range(len(design.columns))
    others = [k for k in many if k not in design.targets]
    stars = [(min(t, k), max(t, k)) for t in design.targets for k in many if k != t]
    return tuple(sorted({*stars, *pairwise(others)}))


def _variation(components: Components, key: Key, records: int) -> float:
    """The total variation that noise is expected to make of a column's or a pair's shares."""
    noise = components.by[key].variance
    if len(key) == 1:
        return expected_variation(components.columns[key[0]].contrasts ** 2 @ noise, records)
    return expected_variation(_noise_of_counts(components, key, noise), records)
