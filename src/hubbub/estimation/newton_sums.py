"""Regressions by a few noisy sums of scores, and what all of these say together.

Theory of operation (after Avella-Medina, Bradshaw, Loh 2023). Each sum is taken at effects b and
holds the score U and the information H there, both with noise. The score is what H adds up to
between b and the root b*, so U + M (b - b*) = 0 up to third order, M the mean of H at b and at b*
(the trapezoid rule), for which the last place stands. The noise of one sum is independent of that
of another: all that were taken near enough say b* together, with less of it than the last sum has.
The first steps, which have only to land near the root, are a single sum each, and most sums are in
the last. Which are near enough follows from how much H changes between the places.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.tabular.levels import Array
from hubbub.estimation.effects import (
    HIDDEN,
    PER_UNIT,
    TOO_NOISY,
    Effects,
    Names,
    Root,
    definite,
    sandwich,
    spelled,
    too_noisy,
)
from hubbub.estimation.regression import Guess, Regression
from hubbub.estimation.statistic import Answer, Expectation, Iterated, Parameters

STEPS = (1, 1, 1, 2, 5)  # sums of each
# Standard deviations of its noise that the information of several sums, of which each is taken
# where the ones before it led, must have in every direction together, and in that of an effect.
_EVERYWHERE, _OF_EFFECTS = 2.0, 3.0
# Of a step, by how much it moves records' logits or log hazards: their standard deviation. Newton's
# first step of a logistic regression from 0 is never longer, whatever the bounds of columns are.
_LONGEST_STEP = 2.0
# By so many standard errors the root may be off as places were not at it; of a place, so many of
# its distance do not count, as noise in the sums before leads there.
_BENT, _ERRORS = 0.3, 1.0
# Deviations of a number beyond which hardly any record is, and the least of its half range that so
# many are taken for.
_FAR_OUT, _NARROWEST = 3.0, 1e-3
STEEPEST = 1e6  # effect of a number over half of its bounds, which may be far from all records
_QUIET = 0.01  # noise of a score, beside its variance by sampling, that is nothing
# How often noise alone makes sums contradict each other; and the part of the variance by sampling
# that does not count against them, as little as curvature makes of it.
_CONTRADICTION, _SAMPLED = 1e-4, 1 / 16
FAR = "the Newton steps did not reach the estimate: its sums were taken too far from it"
APART = (
    "its sums contradict each other by far more than their noise explains: ask again, or "
    "with more epsilon"
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
        squares, end = np.empty((len(w), self.size)), 0
        for place in range(self.width):  # by rows of the triangle: to gather pairs takes long
            begin, end = end, end + self.width - place
            squares[:, begin:end] = (weights * w[:, place])[:, None] * w[:, place:]
        squares *= self._lengths
        return squares

    def entries(self, matrix: Array) -> Array:
        """(size,) of a matrix (width, width)."""
        return np.asarray(matrix[self._pairs] * self._lengths)

    def matrix(self, entries: Array) -> Array:
        """(width, width) from its entries (size,)."""
        left, right = self._pairs
        whole = np.zeros((self.width, self.width))
        whole[left, right] = whole[right, left] = entries / self._lengths
        return whole

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.triu_indices(self.width)

    @cached_property
    def _lengths(self) -> Array:
        left, right = self._pairs
        return np.where(left == right, 1.0, math.sqrt(2.0))


@dataclass(frozen=True, kw_only=True)
class EntryNoise:
    """Independent noise of 1 in each entry of a `Triangle`, as effects see it: turned' G turned.

    G, whose entries have a variance of 1 on the diagonal and of 1/2 beside it, turns a fixed matrix
    X into G X G, on average (X' + tr(X)) / 2. All that is asked of the noise follows from that, and
    no matrix of a single entry is made. G may stand for products of two triangles' entries.

    Args:
        turned: (sent, q) from effects to those that were sent.
        inner: width of the second triangle; 1 where there is one alone.
    """

    turned: Array
    inner: int = 1

    def deviations(self, vectors: Array) -> Array:
        """(n,) of v' M v, by vectors (q, n)."""
        sides = (self.turned @ vectors).reshape(-1, self.inner, vectors.shape[1])
        squares = np.einsum("ian,ibn->nab", sides, sides)
        total = np.trace(squares, axis1=1, axis2=2)
        return np.asarray(np.sqrt(((squares**2).sum(axis=(1, 2)) + total**2) / 2))

    def squared(self, half: Array) -> Array:
        """(n, n) the mean of (half' M half)^2, with half (q, n)."""
        sides = self.turned @ half
        return np.asarray(sides.T @ self._mean(sides @ sides.T) @ sides)

    def along(self, step: Array) -> Array:
        """(q, q) covariance of M times a step (q,)."""
        side = self.turned @ step
        return np.asarray(self.turned.T @ self._mean(np.outer(side, side)) @ self.turned)

    def _mean(self, fixed: Array) -> Array:
        """Of G X G, by a fixed X (sent, sent)."""
        outer = len(fixed) // self.inner
        one = fixed.reshape(outer, self.inner, outer, self.inner)
        traces = np.trace(one, axis1=0, axis2=2)
        one = (one.transpose(2, 1, 0, 3) + np.einsum("ij,ab->iajb", np.eye(outer), traces)) / 2
        traces = np.trace(one, axis1=1, axis2=3)
        one = (one.transpose(0, 3, 2, 1) + np.einsum("ij,ab->iajb", traces, np.eye(self.inner))) / 2
        return np.asarray(one.reshape(fixed.shape))


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
        weight: of all records in the information, which is their covariance times it.
        spread: variance of the score, over the information.
    """

    at: Array
    score: Array
    information: Array
    noise: Array
    blur: float
    weight: float
    spread: float = 1.0

    def of(self, seen: NDArray[np.bool_]) -> Scored:
        """The same of some effects alone."""
        pairs = np.ix_(seen, seen)
        return self._replace(
            at=self.at[seen],
            score=self.score[seen],
            information=self.information[pairs],
            noise=self.noise[pairs],
        )

    def turned(self, by: Array) -> Scored:
        """The same of effects which, times a matrix (q, q) that has an inverse, are these."""
        return self._replace(
            at=np.asarray(np.linalg.solve(by, self.at), dtype=np.float64),
            score=by.T @ self.score,
            information=by.T @ self.information @ by,
            noise=by.T @ self.noise @ by,
        )

    @property
    def step(self) -> Array:
        """A Newton step, shortened where the noise is as large as the information, or it is far."""
        kept, vectors = self.above_noise
        whole = vectors @ (vectors.T @ self.score / kept)
        return np.asarray(whole / max(math.sqrt(self.variance(whole)) / _LONGEST_STEP, 1.0))

    def variance(self, step: Array) -> float:
        """Of records' logits or log hazards, as a step (q,) moves them."""
        kept, vectors = self.above_noise
        return float((vectors.T @ step) ** 2 @ kept) / max(self.weight, self._floor, 1e-300)

    @property
    def _floor(self) -> float:
        """About what noise alone makes of the information in a direction."""
        return self.blur * math.sqrt(2.0 * len(self.at))

    @property
    def above_noise(self) -> tuple[Array, Array]:
        """Eigenvalues of the information, none smaller than its noise, and its eigenvectors."""
        values, vectors = np.linalg.eigh(self.information)
        return np.maximum(values, self._floor), vectors


@dataclass(frozen=True, kw_only=True)
class NewtonRegression(Regression, Iterated):
    """A regression that is asked in a few sums.

    Args:
        on: see `Regression`.
    """

    steps = STEPS
    promised = 4.0  # steps that land far from a steep effect are left out
    rounds = sum(STEPS)

    first: ClassVar[int] = 0  # components before this one are no effects: an intercept

    @property
    def names(self) -> Names:
        """Column and level of each effect."""
        return self.covariates.names

    @property
    def per_unit(self) -> Array:
        """(effects,) times this they are per unit of a column."""
        return self.covariates.per_unit

    @property
    def start(self) -> Parameters:
        """At no effects."""
        return np.zeros(self.first + len(self.names), np.float32)

    @property
    def _triangle(self) -> Triangle:
        return Triangle(width=self.first + len(self.covariates.names))

    def remarks(self, sums: Sequence[Sum]) -> tuple[str, ...]:
        """Sentences of what sums say besides effects."""
        del sums
        return ()

    @property
    def entry_noise(self) -> EntryNoise:
        """What noise in the entries of the information does to it."""
        return EntryNoise(turned=np.eye(self.first + len(self.names)))

    @abstractmethod
    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says that was taken at `parameters`."""

    def plain(
        self, score: Array, information: Array, scale: float, sigma: float, at: Parameters
    ) -> Scored:
        """What a sum says that has the score as it is, and the information times a scale."""
        return Scored(
            at=at.astype(np.float64),
            score=score,
            information=information,
            noise=sigma**2 * np.eye(len(score)),
            blur=sigma / scale,
            weight=float(np.trace(information[: self.first, : self.first])),
        )

    def answer_from(self, sums: Array, sigmas: Array) -> Answer:
        return self.answer_of_sums(list(self._played(sums, sigmas))[1:])

    def answer_of_sums(self, told: Sequence[Scored]) -> Answer:
        """The answer that sums give, of which the last was taken where the others led."""
        last = told[-1]
        both = last.information[: self.first]  # of which the intercept takes some
        means = np.linalg.pinv(both[:, : self.first]) @ both[:, self.first :]
        information = last.information[self.first :, self.first :] - both[:, self.first :].T @ means
        blurs = last.blur * (1.0 + (means**2).sum(axis=0))
        # All but classes without information: nobody is in them, or everybody.
        numeric = np.array([True] * self.first + [level == PER_UNIT for _, level in self.names])
        seen = numeric.copy()
        seen[self.first :] |= np.diag(information) >= HIDDEN * blurs
        shown = seen[self.first :]
        # What everybody is in, steps have left to that class and the intercept in any parts.
        joint = np.clip(np.rint(means), 0.0, 1.0) * ~shown
        unit = self._units(last, np.diag(information) + 2.0 * blurs, numeric)
        # From effects by these units, around the means of numbers, to those that are sent.
        turned = np.diag(np.append(np.ones(self.first), unit))
        turned[: self.first, self.first :] -= means * numeric[self.first :] * unit
        told = [
            one._replace(at=np.append(one.at[: self.first] + joint @ effects, effects))
            .turned(turned)
            .of(seen)
            for one in told
            for effects in [one.at[self.first :]]
        ]
        noise = replace(self.entry_noise, turned=turned[:, seen])
        root = near_root(told, noise, self.first, numeric[seen], unit[shown])
        if root is not None and shown.any() and np.all(root.far):
            moved = np.zeros(len(shown))
            moved[shown] = np.abs(root.values / unit[shown] - told[-1].at[self.first :])
            which = spelled(self.names, moved >= moved.max() / 2)
            return self.make_answer(
                f"{FAR}, most of all in {which}, as happens where it predicts nearly "
                "everybody's outcome (separation): leave it out, or join classes"
            )
        answer = self.answer_of(root and root.among(shown))
        if answer.refusal != TOO_NOISY:
            return answer
        alone = near_root(told[-1:], noise, self.first, numeric[seen], unit[shown])
        if len(told) > 1 and not self.answer_of(alone and alone.among(shown)).refusal:
            return replace(answer, refusal=APART)  # as the last sum alone has an answer
        return replace(answer, refusal=too_noisy(self.names, information, last.blur))

    def _units(self, last: Scored, information: Array, numeric: NDArray[np.bool_]) -> Array:
        """(effects,) by which an effect moves a record's logit or log hazard by 1 at the most.

        That of a number moves hardly any by more than some deviations, however far its bounds are.

        Args:
            last: what the last sum says.
            information: (effects,) of each, at the most.
            numeric: (q,) which are of numbers, after the intercepts.
        """
        many = len(information)
        own = np.diag(last.information)[: self.first]
        weight = np.tile(own, many // self.first) if self.first else np.full(many, last.weight)
        spread = np.sqrt(np.maximum(information, 0.0) / np.maximum(weight, last.blur))
        most = np.clip(_FAR_OUT * spread, _NARROWEST, 1.0)
        return np.where(numeric[self.first :], 1.0 / most, 1.0)

    def answer_of(self, root: Effects | None) -> Answer:
        """The answer that effects give, in units of their columns."""
        return self.answer_with(root and root.per(self.per_unit))

    @abstractmethod
    def guessed(self, guess: Guess, records: float, sigma: float) -> Scored:
        """What a sum of guessed records says at their root, with noise of this deviation."""

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in each of its sums.

        As if nothing were correlated, and the first sum said nothing.
        """
        return self.foreseen_of(records, sigma, self.rounds - 1)

    def foreseen_of(self, records: float, sigma: float, sums: int) -> Expectation:
        """The same where so many sums, each with this noise, are all taken near the root."""

        def effects(guess: Guess) -> Effects | None:
            told = (self.guessed(guess, records, sigma / math.sqrt(sums)),)
            root = Together(told, self.entry_noise).effects
            return root and root.after(self.first)

        article = "an" if self.ratio.startswith("o") else "a"
        quantity = f"logarithm of {article} {self.ratio} over half of a column's range"
        return self.expected_with(effects, sigma, quantity)

    def _played(self, sums: Array, sigmas: Array) -> Iterator[Scored]:
        """Each step at the parameters that those before it gave."""
        parameters = self.start
        for one, sigma in zip(sums, sigmas.tolist(), strict=True):
            yield self.scored(one, sigma, parameters)
            parameters = self.update(one, sigma, parameters)


def near_root(
    told: Sequence[Scored], noise: EntryNoise, first: int, numeric: NDArray[np.bool_], unit: Array
) -> Effects | None:
    """What sums say together, the earliest of them left out that were taken too far off.

    Args:
        told: what each sum says, in their order.
        noise: in the entries of their information.
        first: components before this one are no effects.
        numeric: (q,) which are effects of numbers.
        unit: (effects,) times this they are per unit of a record's vector.

    Returns:
        The effects, those marked from which even the last sum was too far; None where noise hides
        them, or sums contradict each other. What distances may do is in their covariance.
    """
    last, root = told[-1], None
    errors = _ERRORS if len(told) > 1 else 0.0  # nothing has led to the place of a single one
    if np.linalg.norm(last.noise, 2) < _QUIET * np.linalg.eigvalsh(last.information)[0]:
        told = [last]  # which is nearest, and has no need of others
    for number in range(len(told)):
        joint = Together(tuple(told[number:]), noise)
        found = joint.effects
        if found:
            found = replace(found, may_diverge=~numeric)
            bent = joint.bent(errors * found.errors) > _BENT * found.errors
            doubt = np.diag(joint.bent(0.0 * found.errors) ** 2)
            far = bool((bent & ~found.endless)[first:].any())
            root = replace(found, covariance=found.covariance + doubt, far=bent | far)
            root = root.after(first).per(unit)
            if not far:
                return root if joint.agree else None
    return root


@dataclass(frozen=True)
class Together:
    """What several sums say of one root.

    The score at a place b is what the information adds up to between b and the root. Half of that
    at b and half of that at the last place, the nearest, is that up to third order (the trapezoid
    rule): what a sum says is bent by the square of its distance no longer, but by the cube.

    Args:
        told: what each sum says, the one that was taken nearest to the root last.
        noise: in the entries of their information.
    """

    told: tuple[Scored, ...]
    noise: EntryNoise

    @cached_property
    def weights(self) -> Array:
        """(sums,) of each sum, by its noise; they add up to 1."""
        exact = np.array([1.0 / np.trace(one.noise) for one in self.told])
        return np.asarray(exact / exact.sum())

    @cached_property
    def slopes(self) -> Array:
        """(sums, q, q) of the score between each place and the root."""
        last = self.told[-1].information
        return np.array([(one.information + last) / 2 for one in self.told])

    @cached_property
    def information(self) -> Array:
        """(q, q) of all sums together, one of them being the whole."""
        return np.asarray(np.einsum("s,sij->ij", self.weights, self.slopes))

    @cached_property
    def root(self) -> Array:
        """(q,) where the mean of all scores is zero."""
        zero = [
            one.score + slope @ one.at for one, slope in zip(self.told, self.slopes, strict=True)
        ]
        return np.asarray(np.linalg.solve(self.information, self.weights @ np.array(zero)))

    @cached_property
    def apart(self) -> Array:
        """(sums, q) how far each place is from the root."""
        return np.array([one.at for one in self.told]) - self.root

    @cached_property
    def effects(self) -> Effects | None:
        """The root with its uncertainty; None where noise hides it."""
        if not definite(self.information):
            return None
        mean = self.weights @ self.apart
        moved = self.weights[:, None] * self.apart / 2
        moved[-1] += mean / 2
        noise = np.einsum("s,sij->ij", self.weights**2, [one.noise for one in self.told])
        for one, step in zip(self.told, moved, strict=True):
            noise += one.blur**2 * self.noise.along(step)
        shares = self.weights / 2 + np.eye(len(self.told))[-1] / 2
        blur = float(np.linalg.norm(shares * [one.blur for one in self.told]))
        spread = float(self.weights @ [one.spread for one in self.told])
        if self._clearness(blur) < _EVERYWHERE:
            return None
        return sandwich(
            Root(self.root, self.information / spread),
            noise / spread**2,
            lambda vectors: blur / spread * self.noise.deviations(vectors),
            least=_OF_EFFECTS,
        )

    def _clearness(self, blur: float) -> float:
        """How many standard deviations of its noise the information has in its worst direction.

        In coordinates in which the information is the identity, the noise is a sum of known
        matrices with independent factors, whose norm is about the root of that of the sum of their
        squares (Tropp 2012).
        """
        values, vectors = np.linalg.eigh(self.information)
        square = float(np.linalg.norm(self.noise.squared(vectors / np.sqrt(values)), 2))
        return 1.0 / max(blur * math.sqrt(square), 1e-300)

    @property
    def agree(self) -> bool:
        """Whether what is left of each score at the root is its noise, or little to sampling."""
        from scipy.special import chdtri  # which takes long to import

        squares, nothing = 0.0, np.zeros(len(self.root))
        spread = float(self.weights @ [one.spread for one in self.told])
        parts = zip(self.told, self.slopes, self.apart, self._bends(nothing), strict=True)
        for one, slope, apart, bends in parts:
            left = one.score + slope @ apart
            covariance = one.noise + one.blur**2 * self.noise.along(apart)
            covariance += _SAMPLED * spread * self.information + bends.T @ bends
            squares += float(left @ np.linalg.solve(covariance, left))
        degrees = (len(self.told) - 1) * len(self.root)
        return not degrees or squares <= chdtri(degrees, _CONTRADICTION)

    def bent(self, doubt: Array) -> Array:
        """(q,) about how much the root is off as places were not at it.

        Args:
            doubt: (q,) of each distance, that does not count.
        """
        third, second = np.moveaxis(self._bends(doubt), 1, 0)
        inverse = np.linalg.inv(self.information)
        return np.asarray(
            np.abs(inverse @ (self.weights @ second)) + self.weights @ np.abs(third @ inverse)
        )

    def _bends(self, doubt: Array) -> Array:
        """(sums, 2, q) what may be left in each score by its distance, and by that of the last.

        The information changes by as much of itself as effects do, so that the trapezoid leaves a
        third of what it takes out, times the distance; and the last place is taken for the root.
        """
        far = np.maximum(np.abs(self.apart) - doubt, 0.0).max(axis=1)
        last = self.told[-1].information
        taken_out = [
            (one.information - last) @ apart / 2
            for one, apart in zip(self.told, self.apart, strict=True)
        ]
        second = far[-1] / 2 * self.apart @ self.information
        return np.stack([far[:, None] / 3 * taken_out, second], axis=1)
