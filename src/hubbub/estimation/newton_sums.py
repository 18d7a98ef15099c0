"""Regressions by a few noisy sums of scores, and what all of these say together.

Theory of operation (after Avella-Medina, Bradshaw, Loh 2023). Each sum is taken at effects b and
holds the score U and the information H there, both with noise. Near its root b* the score is
H (b* - b), so b + H^-1 U is the root up to second order wherever near it b was. The noise of one
sum is independent of that of another: their mean has less of it than the last sum has. The first
step, and others that were taken far off, are left out; so the first, which has only to land near
the root, is a single sum, and the others are three each.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.estimation.covariates import Guess
from hubbub.estimation.effects import (
    SEVERAL,
    TOO_NOISY,
    Effects,
    Regression,
    Root,
    definite,
    sandwich,
)
from hubbub.estimation.statistic import Answer, Array, Expectation, Iterated, Parameters

STEPS = (1, 3, 3, 3)  # sums of each
_LARGEST_STEP = 3.0  # Newton's first step from 0 is seldom longer
_FAR = 1.0  # a sum this far from the root, on covariates in [-1, 1], is as the first
_QUIET = 0.01  # noise of a score, beside its variance by sampling, that is nothing
_APART = 4.0  # standard deviations of a chi-square law by which sums may contradict each other
APART = (
    "its sums contradict each other by more than their noise nearly ever does: ask again, or with "
    "more of epsilon"
)


@dataclass(frozen=True, kw_only=True)
class Triangle:
    """Symmetric matrices by their distinct entries, which are as long as the whole matrix.

    Args:
        width: rows of a matrix.
    """

    width: int

    @property
    def size(self) -> int:
        """How many entries are sent."""
        return self.width * (self.width + 1) // 2

    def squares(self, weights: Array, w: Array) -> Array:
        """(n, size) weights (n,) times w w', w (n, width)."""
        left, right = self._pairs
        return np.asarray(weights[:, None] * w[:, left] * w[:, right] * self._lengths)

    def entries(self, matrix: Array) -> Array:
        """(size,) of a matrix (width, width)."""
        return np.asarray(matrix[self._pairs] * self._lengths)

    def matrix(self, entries: Array) -> Array:
        """(width, width) from its entries (size,)."""
        left, right = self._pairs
        whole = np.zeros((self.width, self.width))
        whole[left, right] = whole[right, left] = entries / self._lengths
        return whole

    def each(self) -> Array:
        """(size, width, width) the matrix of every entry that is 1 and alone."""
        return np.array([self.matrix(one) for one in np.eye(self.size)])

    def doubt(self, step: Array) -> Array:
        """Covariance of a matrix times a step, whose entries have independent noise of 1."""
        return np.asarray((step @ step * np.eye(len(step)) + np.outer(step, step)) / 2)

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.triu_indices(self.width)

    @cached_property
    def _lengths(self) -> Array:
        left, right = self._pairs
        return np.where(left == right, 1.0, math.sqrt(2.0))


class Entries(Protocol):
    """How symmetric matrices are sent: as numbers whose noise is independent."""

    def each(self) -> Array:
        """(size, width, width) the matrix of every entry that is 1 and alone."""

    def doubt(self, step: Array) -> Array:
        """Covariance of a matrix times a step, whose entries have independent noise of 1."""


class Sum(NamedTuple):
    """A noisy sum of blocks, in their own unit.

    Args:
        numbers: (size,).
        sigma: standard deviation of the noise in each.
        at: the parameters at which it was taken.
    """

    numbers: Array
    sigma: float
    at: Parameters


class Scored(NamedTuple):
    """What one sum says of effects (q,) at which it was taken.

    Args:
        at: the effects.
        score: (q,) with noise.
        information: (q, q) with noise.
        noise: (q, q) covariance of the score's noise.
        blur: standard deviation of the noise in an entry of the information.
        entries: what these are.
    """

    at: Array
    score: Array
    information: Array
    noise: Array
    blur: float
    entries: Entries

    @property
    def step(self) -> Array:
        """A Newton step, shortened where the noise is as large as the information."""
        values, vectors = np.linalg.eigh(self.information)
        floor = self.blur * math.sqrt(2.0 * len(values))  # about what noise alone makes
        solved = vectors @ ((vectors.T @ self.score) / np.maximum(values, floor))
        return np.asarray(np.clip(solved, -_LARGEST_STEP, _LARGEST_STEP))


@dataclass(frozen=True, kw_only=True)
class NewtonRegression(Regression, Iterated):
    """A regression that is asked in a few sums.

    Args:
        on, weight, confidence: see `Regression`.
    """

    steps = STEPS
    promised = 4.0  # steps that land far from a steep effect are left out
    rounds = sum(STEPS)

    @property
    def first(self) -> int:
        """Components before this one are no effects: an intercept."""
        return 0

    @property
    def per_unit(self) -> Array:
        """(effects,) times this they are per unit of a column."""
        return self.covariates.per_unit

    def remarks(self, sums: Sequence[Sum]) -> tuple[str, ...]:
        """Sentences of what sums say besides effects."""
        del sums
        return ()

    @abstractmethod
    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says that was taken at `parameters`."""

    def answer_from(self, sums: Array, sigmas: Array) -> Answer:
        """The answer from the steps' mean sums, (steps, size), and the noise of each, (steps,)."""
        told = list(self._played(sums, sigmas))
        root = self._together(told[1:])
        return self.explained_refusal(self.answer_of(root), told[-1])

    def answer_of(self, root: Effects | None) -> Answer:
        """The answer that effects give, in units of their columns."""
        return self.answer_with(root and root.per(self.per_unit))

    def explained_refusal(self, answer: Answer, last: Scored) -> Answer:
        """The answer; where none is given, why.

        The last sum alone may have an answer, if not that of all: then they contradict each other.
        Or the noise of some covariates hides all the others.

        Args:
            answer: that effects have given.
            last: what the sum that was taken nearest to the root says.
        """
        if answer.refusal != TOO_NOISY:
            return answer
        alone = mean_effects([last])
        if alone and not self.answer_of(alone.after(self.first)).refusal:
            return replace(answer, refusal=APART)
        names = self.covariates.names
        own = np.diag(last.information)[self.first :].reshape(len(names), -1).max(axis=1)
        least = SEVERAL[1] * last.blur
        hidden = [", ".join(name) for name, one in zip(names, own, strict=True) if one < least]
        if not 0 < len(hidden) < len(names):
            return answer
        which, cure = "; ".join(hidden), "leave it out, or join rare classes with others"
        words = f"{TOO_NOISY} in {which}: {cure}"
        return replace(answer, refusal=words)

    def blurred(self, sigma: float) -> float:
        """The noise of a step but the first, where that of a sum is sigma."""
        return sigma / math.sqrt(STEPS[-1])

    def foreseen(
        self,
        one: Callable[[Guess], Scored],
        sigma: float,
        quantity: str,
        sums: int = len(STEPS) - 1,
    ) -> Expectation:
        """What may be said before records are touched, if so many sums say this.

        By itself as many as a regression has steps but the first.
        """

        def found(guess: Guess) -> Effects | None:
            root = mean_effects([one(guess)] * sums)
            return root and root.after(self.first)

        return self.expected_with(found, sigma, quantity)

    def _together(self, told: Sequence[Scored]) -> Effects | None:
        """The effects that all steps near their root say, None where noise hides them.

        Where noise is nothing beside sampling the last one alone, which is nearest.
        """
        least = 2
        if np.linalg.norm(told[-1].noise, 2) < _QUIET * np.linalg.eigvalsh(told[-1].information)[0]:
            told, least = told[-1:], 1
        root, is_near = near_root(told, self.first, least=least)
        return root if is_near else None

    def _played(self, sums: Array, sigmas: Array) -> Iterator[Scored]:
        """Each step at the parameters that those before it gave."""
        parameters = self.start
        for one, sigma in zip(sums, sigmas.tolist(), strict=True):
            yield self.scored(one, sigma, parameters)
            parameters = self.update(one, sigma, parameters)


def near_root(
    told: Sequence[Scored],
    first: int,
    *,
    far: float = _FAR,
    errors: float = 0.0,
    judged: int | None = None,
    least: int = 1,
) -> tuple[Effects | None, bool]:
    """What sums say together, the earliest of them left out that were taken far off.

    Args:
        told: what each sum says, in their order.
        first: components before this one are no effects.
        far: from the root, on covariates in [-1, 1].
        errors: standard errors of the root that it may be further off.
        judged: from which component on distances count; None: those of effects.
        least: how many sums an answer needs.

    Returns:
        The effects, None where noise hides them; and whether all sums behind them were near.
    """
    root, begin = None, first if judged is None else judged
    while len(told) >= least:
        root = mean_effects(told)
        if root:
            apart = np.abs(told[0].at - root.values) - errors * root.errors
            if apart[begin:].max() <= far:
                return root.after(first), True
        told = told[1:]
    return root and root.after(first), False


def mean_effects(told: Sequence[Scored]) -> Effects | None:
    """The root that all sums together say, with its uncertainty; None where noise hides it."""
    number = len(told)
    information = np.mean([one.information for one in told], axis=0)
    blur = float(np.mean([one.blur for one in told])) / math.sqrt(number)
    if not definite(information):
        return None
    at, score, noise = (
        np.mean(parts, axis=0)
        for parts in zip(*((one.at, one.score, one.noise) for one in told), strict=True)
    )
    step = np.linalg.solve(information, score)
    if number > 1 and not _agree(told, at + step, information):
        return None
    entries = told[0].entries
    covariance = noise / number + blur**2 * entries.doubt(step)
    return sandwich(Root(at + step, information), covariance, blur * entries.each(), least=SEVERAL)


def _agree(told: Sequence[Scored], root: Array, information: Array) -> bool:
    """Whether what is left of each score at the root is its noise, or little beside sampling."""
    squares = 0.0
    for one in told:
        left = one.score + information @ (one.at - root)
        doubt = one.blur**2 * one.entries.doubt(one.at - root)
        covariance = one.noise + doubt + information / 16
        squares += float(left @ np.linalg.solve(covariance, left))
    degrees = (len(told) - 1) * len(root)
    return squares <= degrees + _APART * math.sqrt(2.0 * degrees)
