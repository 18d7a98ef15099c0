"""Regressions: covariates in a record's vector, and effects with what leaves them uncertain.

A numeric column is a number in [-1, 1]; classes are 0 or 1 each, but for the reference, which the
others are compared with. Where there are no numbers, every combination of classes is a pattern.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.estimation.intervals import caution, normal_quantile, two_sided
from hubbub.estimation.statistic import (
    LOGARITHM,
    Answer,
    Array,
    Cells,
    Estimate,
    Expectation,
    Levels,
    Statistic,
    column_of,
    one_hot,
    scaled,
)

PER_UNIT = "per unit"  # what an effect of a number compares
_MOST = 200  # patterns


@dataclass(frozen=True, kw_only=True)
class Guess:
    """How records may look, before any is touched.

    Args:
        variance: of a number, in units of its squared half range.
        spread: variance of a numeric outcome that nothing explains, in the same units.
        rarest: of a column's classes, as a part of an equal share; the others are alike.
        outcome: the part of records that has an outcome.
        event: the part that has an event by the horizon; half of all others leave before it.
    """

    variance: float
    spread: float
    rarest: float
    outcome: float
    event: float

    def shares(self, classes: int) -> Array:
        """(classes,) of a column's classes, the last of which is the rarest."""
        last = self.rarest / classes
        return np.append(np.full(classes - 1, (1.0 - last) / (classes - 1)), last)


# What is expected of answers, and what they are promised by.
USUAL = Guess(variance=1 / 9, spread=1 / 9, rarest=1.0, outcome=1 / 4, event=1 / 3)
SKEWED = Guess(variance=1 / 50, spread=1 / 100, rarest=1 / 4, outcome=1 / 10, event=1 / 8)
# Of times as well: in the end hardly anybody of a rare class is left to be compared with. An answer
# with classes as above needs a margin, for which the rarest is rarer here.
FOLLOWED_OUT = replace(SKEWED, rarest=1 / 8, event=2 / 3)


@dataclass(frozen=True, kw_only=True)
class Covariates:
    """What a regression is on.

    Args:
        on: classes or numeric columns, at least one.

    Raises:
        StudyError: no covariate, one of them twice, or one without cuts or bounds.
    """

    on: tuple[Levels | Column, ...]

    def __post_init__(self) -> None:
        names = [column_of(covariate).name for covariate in self.on]
        if not names or len(set(names)) < len(names):
            raise StudyError(
                f"expected different covariates, found {names}; name each of them once"
            )
        for covariate in self.on:
            if isinstance(covariate, Column):
                _ = covariate.bounds

    @property
    def title(self) -> str:
        """Their names."""
        return ", ".join(column_of(covariate).name for covariate in self.on)

    @property
    def numbers(self) -> int:
        """How many of them are numeric columns."""
        return sum(isinstance(covariate, Column) for covariate in self.on)

    @property
    def width(self) -> int:
        """How many components they have, the constant included."""
        return 1 + len(self.names)

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The column of each component, and what is compared."""
        names: list[tuple[str, str]] = []
        for covariate in self.on:
            if isinstance(covariate, Column):
                names.append((covariate.name, PER_UNIT))
            else:
                first, *others = (covariate.names[place] for place in covariate.order)
                names += [(covariate.column.name, f"{name} against {first}") for name in others]
        return tuple(names)

    @property
    def number(self) -> tuple[bool, ...]:
        """Whether each component but the constant is a number."""
        return tuple(level == PER_UNIT for _, level in self.names)

    @property
    def column(self) -> tuple[int, ...]:
        """The place of each component's column in `on`."""
        widths = [1 if isinstance(one, Column) else len(one) - 1 for one in self.on]
        return tuple(np.repeat(np.arange(len(widths)), widths).tolist())

    @property
    def per_unit(self) -> Array:
        """(components,) effects on a component of 1, times this, are per unit of the column."""
        units = [2.0 / np.ptp(one.bounds) if isinstance(one, Column) else 1.0 for one in self.on]
        return np.array(units)[list(self.column)]

    def moments(self, guess: Guess) -> Array:
        """(width, width) guessed, as if nothing were correlated."""
        apart = np.not_equal.outer(self.column, self.column)
        shares = np.concatenate(
            [
                np.zeros(1) if isinstance(one, Column) else guess.shares(len(one))[1:]
                for one in self.on
            ]
        )
        own = np.where(self.number, guess.variance, shares)
        inner = np.outer(shares, shares) * apart + np.diag(own)
        return np.block([[np.ones((1, 1)), shares[None]], [shares[:, None], inner]])

    def inside(self, centre: Array) -> Array:
        """The nearest centre (components,), by column, that is a mean of some records."""
        number = np.array(self.number)
        bounded = np.clip(centre, np.where(number, -1.0, 0.0), 1.0)
        total = np.bincount(self.column, np.where(number, 0.0, bounded))
        return np.asarray(bounded / np.maximum(total, 1.0)[list(self.column)])

    def radius(self, centre: Array) -> float:
        """The largest distance of any record's components from a centre (components,)."""
        square = 0.0
        for place, one in enumerate(self.on):
            middle = centre[np.array(self.column) == place]
            if isinstance(one, Column):
                square += (1.0 + abs(float(middle[0]))) ** 2
            else:  # of the class that has the least of the centre, or of the first
                square += float(middle @ middle) + max(0.0, 1.0 - 2.0 * float(middle.min()))
        return math.sqrt(square)

    def design(self, cells: Cells) -> Array:
        """(n, width) components, nan in what belongs to a missing cell."""
        blocks = [_block(cells, covariate) for covariate in self.on]
        return np.column_stack([np.ones(len(blocks[0])), *blocks])


@dataclass(frozen=True, kw_only=True)
class Patterns(Covariates):
    """All combinations of classes of some columns.

    Args:
        on: the classes of each column, at least one.

    Raises:
        StudyError: no column, one of them twice, or too many combinations.
    """

    on: tuple[Levels, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self) > _MOST:
            raise StudyError(
                f"expected at most {_MOST} combinations of classes, found {len(self)}; use fewer "
                "columns or classes"
            )

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many classes each column has; the last one's change fastest."""
        return tuple(map(len, self.on))

    def places(self, cells: Cells) -> NDArray[np.int64]:
        """(n,) the number of each record's pattern, -1 where a covariate is missing."""
        columns = np.array([levels.places(cells) for levels in self.on])
        place = np.ravel_multi_index(tuple(np.maximum(columns, 0)), self.shape)
        return np.where(columns.min(axis=0) < 0, -1, place)

    def shares(self, guess: Guess) -> Array:
        """(patterns,) guessed, as if columns were independent."""
        shares: Array = np.ones(1)
        for classes in self.shape:
            shares = np.asarray(np.kron(shares, guess.shares(classes)), dtype=np.float64)
        return shares

    @property
    def grid(self) -> NDArray[np.int64]:
        """(columns, patterns) the class of each column in each pattern."""
        return np.indices(self.shape).reshape(len(self.on), -1)

    @property
    def table(self) -> Array:
        """(patterns, components) of 0 and 1, without the constant."""
        blocks = [
            np.eye(len(levels))[column][:, levels.order[1:]]
            for levels, column in zip(self.on, self.grid, strict=True)
        ]
        return np.hstack(blocks)


def _block(cells: Cells, one: Levels | Column) -> Array:
    if isinstance(one, Column):
        return scaled(cells, one)[:, None]
    places = one.places(cells)
    hot = one_hot(places, len(one))[:, one.order[1:]]
    return np.where(places[:, None] < 0, np.nan, hot)


# Effects of a regression, with what sampling and noise leave uncertain, and which are told.
#
# A score U whose noise has the covariance C, for records with the information I, has its root
# uncertain by I^-1 (I + C) I^-1. That holds where I, which is as noisy as U is, is known well
# enough to be inverted: the noise in it is linear in that of the sum, a known matrix for each of
# its numbers. An effect is told where its sampling variance, of I^-1, stands clear of what noise in
# I makes of it, however large the noise in U is: that is in the interval.

# Standard deviations of its noise that the information must have in every direction together, and
# in that of an effect which is told; in one sum, and in several, of which each is taken where the
# ones before it led. Below, intervals hold too seldom (experiments/planned_answers.py).
ONE_SUM, SEVERAL = (0.0, 2.0), (2.0, 3.0)
_STEPS = 50  # of Newton's method
# Weights, of the sum's noise, by which effects are drawn to none until there is a root.
_DRAWN = (0.0, 0.25, 1.0)
_ENDLESS = 6.0  # logarithm of a ratio that no interval reaches: one of 400
# Of a direction of length 1, columns that have as much of it are named; where as little is left of
# the information in it, of what it would be without correlation.
_ALIASED, _ALIKE = 0.3, 0.1
# Deviations of its noise below which a class's records, or its information, are none: an effect of
# a class that nobody is in is not told, and takes no other with it.
HIDDEN = 3.0
LEFT_OUT = "records without the outcome or a covariate are left out"
NOISE = "below the noise"
NO_END = (
    "the estimate does not converge, as happens where all records of a class have the "
    "outcome, or none (separation)"
)
STILL_LED_ON = (
    "its steps did not reach the estimate, as happens where a covariate predicts nearly "
    "everybody's outcome (separation)"
)
TOO_NOISY = "the information in the records does not exceed the noise"
Names = tuple[tuple[str, str], ...]  # column and level of each effect
At = Callable[[Array], tuple[Array, Array]]  # from effects to the score there, and information
# How far an interval is looked for, in how many halvings; and information that is none.
_FURTHEST, _HALVINGS, _NONE = 20.0, 40, 1e-9


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Effects of all covariates, without an intercept.

    Args:
        values: (q,) logarithms of ratios, or slopes.
        covariance: (q, q) by sampling and noise.
        clear: (q,) how clear of its noise the information of each is, over what it must be.
        sampling: (q,) variances without noise.
        wider: how many times wider intervals and tests take what sampling adds.
        may_diverge: (q,) whether a large effect may have no end: no slope has none, and no number,
            which may lie in a small part of its bounds.
        far: (q,) whether the steps of an effect have not led there.
        ways: of each, from how much less an effect is to the mean information on the way there,
            over that at the estimate; empty where it is the same everywhere.
        z: standard errors above each within which it must have an end: those of its interval.
    """

    values: Array
    covariance: Array
    clear: Array
    sampling: Array
    wider: float = 1.0
    may_diverge: NDArray[np.bool_] | bool = True
    far: NDArray[np.bool_] | bool = False
    ways: tuple[Callable[[float], float], ...] = ()
    z: float = 2.0

    @property
    def errors(self) -> Array:
        """(q,) standard errors."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def reach(self) -> Array:
        """(q,) standard errors of intervals and tests."""
        return np.asarray(np.sqrt(self.errors**2 + (self.wider**2 - 1.0) * self.sampling))

    @cached_property  # far ends are looked for
    def endless(self) -> NDArray[np.bool_]:
        """(q,) whether no end of an effect is to be seen, as of a class without the outcome.

        An interval from a ratio of 0 on has an end; one without an upper end says nothing.
        """
        places = range(len(self.ways))
        above = [abs(self.deviations(one, -_FURTHEST)) < self.z for one in places]
        return np.asarray(self._endless(self.reach) | np.array(above or [False]))

    def deviations(self, place: int, apart: float) -> float:
        """Standard errors that an estimate is off, if its effect is less by `apart`.

        Noise adds to the score. On an effect it has what it has over the information on the way
        from there to the estimate, not over that at the estimate: of few events it is larger below.
        """
        sampling = float(self.sampling[place])
        noise = max(float(self.covariance[place, place]) - sampling, 0.0)
        way = self.ways[place](apart) if self.ways and apart else 1.0
        return apart / math.sqrt(self.wider**2 * sampling + noise / max(way, _NONE) ** 2)

    def end(self, place: int, z: float) -> float:
        """An effect that lies z standard errors above the estimate, or below it if z is negative.

        Infinite where none lies so far.
        """
        if not self.ways:
            return float(self.values[place] + z * self.reach[place])
        near, far = 0.0, math.copysign(_FURTHEST, -z)
        if abs(self.deviations(place, far)) < abs(z):
            return math.copysign(math.inf, z)
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            inside = abs(self.deviations(place, middle)) < abs(z)
            near, far = (middle, far) if inside else (near, middle)
        return float(self.values[place] - near)

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """(q,) whether noise hides its information, or its end, which it had without noise."""
        return np.asarray((self.clear < 1.0) | ~self._endless(np.sqrt(self.sampling)))

    def _endless(self, errors: Array) -> NDArray[np.bool_]:
        return np.asarray((np.abs(self.values) + 2.0 * errors > _ENDLESS) & self.may_diverge)

    def after(self, first: int) -> Effects:
        """The same without those before this one."""
        return replace(
            self,
            values=self.values[first:],
            covariance=self.covariance[first:, first:],
            clear=self.clear[first:],
            sampling=self.sampling[first:],
            may_diverge=np.broadcast_to(self.may_diverge, self.values.shape)[first:],
            far=np.broadcast_to(self.far, self.values.shape)[first:],
            ways=self.ways[first:],
        )

    def among(self, shown: NDArray[np.bool_]) -> Effects:
        """The same where these are shown, beside others of which nothing is known."""
        many, place = len(shown), np.flatnonzero(shown)
        covariance = np.diag(np.full(many, math.inf))
        covariance[np.ix_(place, place)] = self.covariance
        values, clear, sampling = np.zeros((3, many))
        values[place], clear[place], sampling[place] = self.values, self.clear, self.sampling
        ways = dict(zip(place.tolist(), self.ways, strict=False))
        may_diverge, far = np.zeros((2, many), dtype=np.bool_)
        may_diverge[place], far[place] = self.may_diverge, self.far
        return replace(
            self,
            values=values,
            covariance=covariance,
            clear=clear,
            sampling=sampling,
            may_diverge=may_diverge,
            far=far,
            ways=tuple(ways.get(one, float) for one in range(many)) if ways else (),
        )

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
        z, shown = normal_quantile(confidence), _bounded_exp if ratio else float
        return tuple(
            Estimate(
                quantity=ratio or ("slope" if level == PER_UNIT else "difference"),
                column=column,
                level=level,
                value=shown(self.values[place]),
                standard_error=float(self.errors[place]),
                error_of=LOGARITHM if ratio else "",
                low=shown(self.end(place, -z)),
                high=shown(self.end(place, z)),
                p_value=two_sided(self.deviations(place, float(self.values[place]))),
            )
            for place in told(self)
            for column, level in [names[place]]
        )


class Root(NamedTuple):
    """Where a noisy score is zero.

    Args:
        values: (q,) the root.
        information: (q, q) at it, with what it was drawn by.
        drawn: the weight by which effects were drawn to none; 0 where nothing had to be.
    """

    values: Array
    information: Array
    drawn: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Regression(Statistic):
    """Effects of covariates on what is explained; incomplete records are left out.

    Args:
        on: the covariates: classes, the first of which is compared with, or numeric columns.
    """

    on: tuple[Levels | Column, ...]

    ratio: ClassVar[str] = ""  # what exp(effect) is; empty where effects themselves are told
    supposed: ClassVar[str] = ""  # of which records a plan's standard error is, as a clause
    note: ClassVar[str] = LEFT_OUT  # which records are left out
    # How many times what it needs the information of skewed records must be where a plan promises
    # an answer: noise moves it by a few standard deviations.
    promised: ClassVar[float] = 2.0
    skewed: ClassVar[tuple[Guess, ...]] = (SKEWED,)  # records of which an answer is promised

    def __post_init__(self) -> None:
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
        return f"{self.kind.capitalize()} regression of {self.explained} on {self.covariates.title}"

    def expected_with(
        self, found: Callable[[Guess], Effects | None], sigma: float, quantity: str
    ) -> Expectation:
        """What may be said before records are touched, of what is found in records as guessed."""
        usual = found(USUAL)
        error = math.inf if usual is None else float(usual.errors.max())
        told = f"{quantity} known to ±{error:.2g} (one standard error){self.supposed}"
        skewed = [(guess, found(guess)) for guess in self.skewed]
        answered = _is_clear(usual, 1.0) and all(_is_clear(one, self.promised) for _, one in skewed)
        if answered and any(self.covariates.number):
            least = max(self._least_spread(guess, one) for guess, one in skewed if one)
            told += f"; numbers need a standard deviation of {100 * least:.2g} % of their range"
        return self.make_expectation(
            {quantity: error}, sigma, told, answered=answered, possible=_is_clear(usual, 1.0)
        )

    def _least_spread(self, guess: Guess, found: Effects) -> float:
        """The least deviation of a number, over its range, with which effects are promised.

        How clear an effect of numbers as guessed is grows as their variance does.
        """
        number = np.repeat(self.covariates.number, len(found.clear) // len(self.covariates.number))
        return math.sqrt(guess.variance * self.promised / float(found.clear[number].min())) / 2

    def answer_with(self, found: Effects | None) -> Answer:
        """The answer that effects give, or a refusal where none of them is told."""
        names = self.covariates.names
        rows = found.rows(names, self.ratio, self.confidence) if found else ()
        notes = (self.note, *omitted(names, found))
        return self.make_answer("" if rows else TOO_NOISY, rows=rows, notes=notes)


@dataclass(frozen=True, kw_only=True)
class OfOutcome(Regression):
    """A regression whose covariates explain one column, its outcome."""

    outcome: Column

    @property
    def explained(self) -> str:
        return self.outcome.name


def newton(at: At, width: int, sigma: float) -> Root | None:
    """The root of a score by Newton's method, from no effects on.

    Where noise leaves an effect without a root, as of a class in which nobody seems to have had the
    outcome, all are drawn to none by a weight no larger than the noise's: the others hardly move,
    and how clear an effect is counts without it.

    Args:
        at: from effects (width,) to the score there, and the information (width, width).
        width: how many effects there are.
        sigma: standard deviation of the noise in the sum.

    Returns:
        The root; None where there is no maximum to be found.
    """
    for weight in _DRAWN:
        drawn, effects = weight * sigma, np.zeros(width)
        for _ in range(_STEPS):
            score, information = at(effects)
            score, information = score - drawn * effects, information + drawn * np.eye(width)
            if not definite(information):
                break
            step = np.linalg.solve(information, score)
            effects = effects + step / max(1.0, float(np.abs(step).max()))
            if np.abs(step).max() < 1e-9:
                return Root(effects, information, drawn)
    return None


def definite(information: Array) -> bool:
    """Whether noisy information is positive definite, and can be inverted in float64."""
    if not np.isfinite(information).all():
        return False
    values = np.linalg.eigvalsh(information)
    return bool(values[0] > 1e-9 * abs(values[-1]))


def told(effects: Effects) -> list[int]:
    """The numbers of the effects that are told."""
    ended = np.logical_not(effects.endless | effects.far)
    return [int(place) for place in np.flatnonzero((effects.clear >= 1.0) & ended)]


def _is_clear(effects: Effects | None, times: float) -> bool:
    """Whether every effect is told, with so many times what it needs."""
    return effects is not None and bool(effects.clear.min() >= times)


def sandwich(
    root: Root,
    noise: Array,
    doubt: Array,
    *,
    first: int = 0,
    least: tuple[float, float] = ONE_SUM,
    score: Callable[[Array], Array] | None = None,
) -> Effects | None:
    """Effects whose score has so much noise; None where the information is not clear of its own.

    Args:
        root: of the score, its information positive definite.
        noise: (q, q) covariance of the noise in the score.
        doubt: (m, q, q) what each of m independent noises, of deviation 1, does to the information.
        first: components before this one are no effects: an intercept.
        least: how clear of its noise the information must be, as `ONE_SUM` says.
        score: from effects to the score there, of ratios; None where the information is the same
            everywhere.
    """
    if clearness(root.information, doubt) < least[0]:
        return None
    inverse = np.linalg.inv(root.information)
    # The derivative of I^-1 along M is -I^-1 M I^-1, of whose diagonal this is the deviation.
    off = np.einsum("ji,mjk,ki->mi", inverse, doubt, inverse, optimize=True)
    own = np.diag(inverse - root.drawn * inverse @ inverse)  # without what it was drawn by
    clear = own / np.maximum(np.linalg.norm(off, axis=0), 1e-300)
    wider = caution(clear - least[1])
    covariance = inverse + inverse @ noise @ inverse * np.outer(wider, wider)
    return Effects(
        values=np.asarray(root.values[first:]),
        covariance=np.asarray(covariance[first:, first:]),
        clear=np.asarray(clear[first:]) / least[1],
        sampling=np.diag(inverse)[first:],
        ways=_ways(score, root)[first:] if score else (),
    )


def _ways(score: Callable[[Array], Array], root: Root) -> tuple[Callable[[float], float], ...]:
    """Of each effect the mean information on the way to others, over that at the root.

    The way is straight, as it leaves the root where the other effects' scores stay none: near the
    root that is the score of the likelihood's profile, and an upper end far from it comes early.
    """

    def way(along: Array, apart: float) -> float:
        there = root.values - apart * along
        with np.errstate(all="ignore"):  # far away ratios are no floats, and nothing is known
            found = score(there) - root.drawn * there
            mean = float(found @ along) / (apart * float(along @ root.information @ along))
        return mean if math.isfinite(mean) else 0.0

    inverse = np.linalg.inv(root.information)
    return tuple(partial(way, own / own[place]) for place, own in enumerate(inverse))


def clearness(information: Array, doubt: Array) -> float:
    """How many standard deviations of its noise the information has in its worst direction.

    In coordinates in which the information is the identity, the noise is a sum of known matrices
    with independent factors, whose norm is about the root of that of the sum of their squares
    (Tropp 2012).
    """
    values, vectors = np.linalg.eigh(information)
    if not values[0] > 0:
        return 0.0
    half = vectors / np.sqrt(values)
    white = np.einsum("ja,mjk,kb->mab", half, doubt, half, optimize=True)
    square = np.linalg.norm(np.einsum("mab,mbc->ac", white, white, optimize=True), 2)
    return float(1.0 / math.sqrt(max(float(square), 1e-300)))


def omitted(names: Names, effects: Effects | None) -> tuple[str, ...]:
    """A sentence for each effect that is not told."""
    if effects is None:
        return ()
    shown = told(effects)
    reasons = np.select(
        [np.broadcast_to(effects.far, len(names)), effects.hidden],
        [STILL_LED_ON, NOISE],
        NO_END,
    )
    return tuple(
        f"{column}, {level}: {reasons[place]}"
        for place, (column, level) in enumerate(names)
        if shown and place not in shown
    )


def spelled(names: Names, chosen: NDArray[np.bool_]) -> str:
    """Columns and levels of the effects that are chosen, each once."""
    return "; ".join(dict.fromkeys(", ".join(names[place]) for place in np.flatnonzero(chosen)))


def too_noisy(names: Names, information: Array, blur: float) -> str:
    """That information does not exceed its noise, and which columns are why, if some are.

    Args:
        names: of the effects, as many times over as there are effects of each.
        information: (q, q) of these effects.
        blur: standard deviation of the noise in an entry of it.
    """
    own, cure = np.diag(information), "leave it out, or join rare classes with others"
    hidden = own < HIDDEN * blur
    if hidden.any():
        return TOO_NOISY if hidden.all() else f"{TOO_NOISY} in {spelled(names, hidden)}: {cure}"
    values, vectors = np.linalg.eigh(information / np.sqrt(np.outer(own, own)))
    if values[0] > _ALIKE:
        return TOO_NOISY
    apart = np.abs(vectors[:, 0]) > _ALIASED
    which = " and ".join(dict.fromkeys(names[place][0] for place in np.flatnonzero(apart)))
    if " and " not in which:  # hardly anybody is in the class that others are compared with
        return f"{TOO_NOISY} in {spelled(names, apart)}: {cure}"
    return (
        f"{TOO_NOISY}, because {which} carry nearly the same information (aliased): leave one "
        "of them out"
    )


def _bounded_exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if value > -700.0 else 0.0
