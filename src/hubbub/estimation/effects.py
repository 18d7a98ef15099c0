"""Effects of a regression: where a noisy score is zero, how uncertain that is, which are told.

Theory of operation. A score U whose noise has the covariance C, for records with the information I,
has its root uncertain by I^-1 (I + C) I^-1. That holds where I, which is as noisy as U is, is known
well enough to be inverted: the noise in it is linear in that of the sum, a known matrix for each of
its numbers. An effect is told where its sampling variance, of I^-1, stands clear of what noise in I
makes of it, however large the noise in U is: that is in the interval.

It knows no covariates: effects come with the names of their columns and levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.levels import Array
from hubbub.estimation.intervals import caution, normal_quantile, two_sided
from hubbub.estimation.statistic import LOGARITHM, Estimate

PER_UNIT = "per unit"  # what an effect of a number compares
# Standard deviations of its noise that the information must have in the direction of an effect that
# is told. Below, intervals hold too seldom (experiments/planned_answers.py).
_ONE_SUM = 2.0
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
NOISE = "below the noise"
NO_END = (
    "the estimate does not converge, as happens where all records of a class have the "
    "outcome, or none (separation)"
)
STILL_LED_ON = (
    "its steps did not reach the estimate, as happens where a covariate predicts nearly "
    "everybody's outcome (separation)"
)
BARELY = (
    "a class has hardly more events than noise alone would make: the ratio may be much larger, and "
    "its interval holds less often than it says"
)
TOO_NOISY = "the information in the records does not exceed the noise"
Names = tuple[tuple[str, str], ...]  # column and level of each effect
At = Callable[[Array], tuple[Array, Array]]  # from effects to the score there, and information
# Where an upper end exists by fewer deviations, noise may have made it. None is told without one,
# so that of those intervals which are told too few hold. An effect larger by 3 has hardly an event.
_BARELY, _ALL = 2.0, 3.0
# Of noise, times the deviations of an interval: there are twice the events that it hides.
_SURE_END = 0.5
# How far an interval is looked for, how exactly, in how many tries; and information that is none.
_FURTHEST, _END, _MOST_TRIED, _NONE = 20.0, 1e-11, 200, 1e-9


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
            divided by the score's noise there, both over those at the estimate; empty where they
            are the same everywhere.
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

        An interval from a ratio of 0 on has an end; one without an upper end says nothing. Of an
        effect of which noise says little it is not asked: as events fall to none, their score is
        what noise is compared with, and not what noise makes of who is at risk so far away.
        """
        above = [
            error * self.z > _SURE_END and abs(self.deviations(place, -_FURTHEST)) < self.z
            for place, error in enumerate(self._noise[: len(self.ways)])
        ]
        return np.asarray(self._endless(self.reach) | np.array(above or [False]))

    @property
    def barely(self) -> NDArray[np.bool_]:
        """(q,) whether an upper end exists by so little that noise may have made it."""
        far = _ALL * np.array([way(-_ALL) for way in self.ways] or [math.inf])
        return np.asarray(far < (self.z + _BARELY) * self._noise)

    @property
    def _noise(self) -> Array:
        """(q,) standard errors by noise alone."""
        return np.asarray(np.sqrt(np.maximum(self.errors**2 - self.sampling, 0.0)))

    def deviations(self, place: int, apart: float) -> float:
        """Standard errors that an estimate is off, if its effect is less by `apart`.

        Noise adds to the score there. On an effect it has that over the information on the way from
        there to the estimate, not over that at the estimate: of few events it is larger below.
        """
        sampling, noise = float(self.sampling[place]), float(self._noise[place]) ** 2
        way = self.ways[place](apart) if self.ways and apart else 1.0
        return apart / math.sqrt(self.wider**2 * sampling + noise / max(way, _NONE) ** 2)

    def end(self, place: int, z: float) -> float:
        """An effect that lies z standard errors above the estimate, or below it if z is negative.

        Infinite where none lies so far.
        """
        if not self.ways:
            return float(self.values[place] + z * self.reach[place])

        def outside(apart: float) -> float:
            return abs(self.deviations(place, apart)) - abs(z)

        far = math.copysign(_FURTHEST, -z)
        if outside(far) < 0:
            return math.copysign(math.inf, z)
        first = math.copysign(abs(z) * float(self.reach[place]), far)
        first = min(max(first, -_FURTHEST), _FURTHEST)
        return float(self.values[place]) - _reached(outside, first, far)

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


class Elsewhere(NamedTuple):
    """A noisy score away from its root.

    Args:
        score: from effects, and a direction v (q,), to it, (q,), and to the information times v.
        noise: from the same to the standard deviation of v' score by noise.
    """

    score: Callable[[Array, Array], tuple[Array, Array]]
    noise: Callable[[Array, Array], float]


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


def sandwich(
    root: Root,
    noise: Array,
    doubt: Callable[[Array], Array],
    *,
    first: int = 0,
    least: float = _ONE_SUM,
    elsewhere: Elsewhere | None = None,
) -> Effects:
    """Effects whose score has so much noise.

    Args:
        root: of the score, its information positive definite.
        noise: (q, q) covariance of the noise in the score.
        doubt: from vectors v, the columns of (q, q), to the deviations (q,) of v' M v, M being what
            noise adds to the information.
        first: components before this one are no effects: an intercept.
        least: how clear of its noise the information must be for an effect that is told.
        elsewhere: what the score is at other effects, of ratios; None where the information is the
            same everywhere.
    """
    inverse = np.linalg.inv(root.information)
    own = np.diag(inverse - root.drawn * inverse @ inverse)  # without what it was drawn by
    # The derivative of I^-1 along M is -I^-1 M I^-1.
    clear = own / np.maximum(doubt(np.asarray(inverse, dtype=np.float64)), 1e-300)
    wider = caution(clear - least)
    covariance = inverse + inverse @ noise @ inverse * np.outer(wider, wider)
    return Effects(
        values=np.asarray(root.values[first:]),
        covariance=np.asarray(covariance[first:, first:]),
        clear=np.asarray(clear[first:]) / least,
        sampling=np.diag(inverse)[first:],
        ways=_ways(elsewhere, root, noise)[first:] if elsewhere else (),
    )


def _ways(elsewhere: Elsewhere, root: Root, noise: Array) -> tuple[Callable[[float], float], ...]:
    """Of each effect the mean information on the way to others, over that at the root.

    Divided by how many times as much noise the score has there, or where the effect has hardly an
    event, as far beyond the numbers at risk may be noise alone. The way is straight, as it leaves
    the root where the other effects' scores stay none. What they have elsewhere is taken out of its
    own score (Neyman's C(alpha)) in the direction in which they have moved, if noise leaves
    information there.
    """
    inverse = np.linalg.inv(root.information)
    ahead = inverse / np.diag(inverse)  # (q, q) how all move with each, a column

    def way(place: int, deviation: float, apart: float) -> float:
        own = np.eye(len(root.values))[place]
        along = ahead[:, place]
        there, others = root.values - apart * along, along - own
        with np.errstate(all="ignore"):  # far away ratios are no floats, and nothing is known
            score, shared = elsewhere.score(there, others)
            shared = shared + root.drawn * others
            if (known := float(others @ shared)) > 0:
                along = own - shared[place] / known * others
            mean = float((score - root.drawn * there) @ along) / apart * inverse[place, place]
            near = root.values - min(max(apart, -_ALL), _ALL) * ahead[:, place]
            mean *= deviation / elsewhere.noise(near, along)
        return mean if math.isfinite(mean) else 0.0

    deviations = np.sqrt(np.sum(ahead * (noise @ ahead), axis=0))
    return tuple(partial(way, *one) for one in enumerate(deviations.tolist()))


def omitted(names: Names, effects: Effects | None) -> tuple[str, ...]:
    """A sentence for each effect that is not told, and one for those that may be told by noise."""
    if effects is None:
        return ()
    shown = told(effects)
    reasons = np.select(
        [np.broadcast_to(effects.far, len(names)), effects.hidden],
        [STILL_LED_ON, NOISE],
        NO_END,
    )
    sentences = tuple(
        f"{column}, {level}: {reasons[place]}"
        for place, (column, level) in enumerate(names)
        if shown and place not in shown
    )
    return (*sentences, *few_events(names, effects))


def few_events(names: Names, effects: Effects) -> tuple[str, ...]:
    """A sentence for effects that are told, but perhaps by noise; none where there are none."""
    barely = effects.barely & np.isin(np.arange(len(effects.values)), told(effects))
    return (f"{spelled(names, barely)}: {BARELY}",) if barely.any() else ()


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
    apart = np.abs(vectors[:, 0]) > min(_ALIASED, float(np.abs(vectors[:, 0]).max()) / 2)
    which = " and ".join(dict.fromkeys(names[place][0] for place in np.flatnonzero(apart)))
    if " and " not in which:  # hardly anybody is in the class that others are compared with
        return f"{TOO_NOISY} in {spelled(names, apart)}: {cure}"
    return (
        f"{TOO_NOISY}, because {which} carry nearly the same information (aliased): leave one "
        "of them out"
    )


def _reached(function: Callable[[float], float], first: float, far: float) -> float:
    """Where a function that is below 0 at 0, and not at `far`, reaches it.

    By secants from `first` on, and by halves where a secant leaves the rest of the way.
    """
    near, before, below, at = 0.0, 0.0, function(0.0), first
    for _ in range(_MOST_TRIED):
        found = function(at)
        near, far = (at, far) if found < 0 else (near, at)
        if abs(found) < _END or abs(far - near) < _END:
            break
        step = found * (at - before) / (found - below) if found != below else math.inf
        before, below = at, found
        inside = min(near, far) < at - step < max(near, far)
        at = at - step if inside else (near + far) / 2
    return at


def _bounded_exp(value: float) -> float:
    return math.exp(min(value, 700.0)) if value > -700.0 else 0.0
