"""Regressions that are asked of a trained model alone: no table of [statistics] names them.

Their sums begin at what the model says, from where one step leads to the root (P32).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation.effects import TOO_NOISY, Effects, Names, omitted, told
from hubbub.estimation.intervals import normal_quantile
from hubbub.estimation.newton_sums import (
    STEEPEST,
    EntryNoise,
    NewtonRegression,
    Scored,
    Sum,
    Triangle,
)
from hubbub.estimation.regression import Guess, OfOutcome
from hubbub.estimation.statistic import Answer, Expectation, Parameters, one_hot
from hubbub.estimation.statistic_keys import StatisticKeys


class ModelRegression(OfOutcome, NewtonRegression):
    """What they have in common."""

    @classmethod
    def read(cls, keys: StatisticKeys) -> ModelRegression:
        """None: a study asks for it by [coefficients]."""
        del keys
        raise StudyError(
            f'expected a kind of statistics, got "{cls.kind}", which needs a trained model; ask '
            "for [coefficients]"
        )

    def settings(self) -> dict[str, Any]:
        """None, as there is no table."""
        return {}

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        scored = self.scored(sums, sigma, parameters)
        return (scored.at + scored.step).astype("float32")

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in one sum."""
        return self.foreseen_of(records, sigma, 1)


# Odds ratios of each of several classes against the first, by sums at a trained model.
#
# Theory of operation. With w = (1, covariates), |w|^2 <= W, e the class of a record and m the
# chances of classes at public effects, both without the first class, a record sends its part w x (e
# - m) of the score and, scaled by sqrt(6 / W), its part w w' x (diag m - m m') of the information:
# where one is long the other is shorter, and noise in the information is what hides effects first
# (docs/privacy.md P36). Both factors of the information are symmetric, so that each product of two
# distinct entries is sent once.

# The square of the information's scale, times W; over W the largest square of a record's length, of
# three classes and of more (docs/privacy.md P36).
_INFORMATION = 6.0
_SQUARE_OF_THREE, _SQUARE = 2.125, 3.0


@dataclass(frozen=True, kw_only=True)
class ProductEntries:
    """Products of two symmetric matrices (Kronecker's) by the distinct entries of both.

    Args:
        outer, inner: the matrices.
    """

    outer: Triangle
    inner: Triangle

    @property
    def size(self) -> int:
        """How many entries are sent."""
        return self.outer.size * self.inner.size

    def matrix(self, entries: Array) -> Array:
        """(q, q) from entries (size,), q the product of both widths."""
        rows = entries.reshape(self.outer.size, self.inner.size)
        inner = np.array([self.inner.matrix(row) for row in rows])
        whole = [[self.outer.matrix(each) for each in row] for row in inner.T]
        width = self.outer.width * self.inner.width
        return np.array(whole).transpose(2, 0, 3, 1).reshape(width, width)


@dataclass(frozen=True, kw_only=True)
class NewtonMultinomial(ModelRegression):
    """Odds ratios per unit and between classes of the covariates, for each class of the outcome.

    Args:
        outcome: a column of three categories or more, each of which is compared with the first.
    """

    kind = "multinomial"
    methods = "odds ratios of each class against the first are from multinomial regressions"
    ratio = "odds ratio"

    def __post_init__(self) -> None:
        if len(self.outcome.categories) < 3:
            raise StudyError(
                f"expected an outcome of three categories or more, found {self.outcome.name}; use "
                "a logistic regression"
            )
        super().__post_init__()

    @property
    def others(self) -> int:
        """How many classes are compared with the first."""
        return len(self.outcome.categories) - 1

    @property
    def first(self) -> int:  # type: ignore[override]
        """An intercept of each class."""
        return self.others

    @property
    def names(self) -> Names:
        """Column and level of each effect, once for each class of the outcome."""
        return tuple(name for name in self.covariates.names for _ in range(self.others))

    @property
    def per_unit(self) -> Array:
        """(effects,) times this they are per unit of a column."""
        return np.repeat(self.covariates.per_unit, self.others)

    @property
    def size(self) -> int:
        """How many numbers its block has: the score's, then the information's."""
        return self.covariates.width * self.others + self._entries.size

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block, at any parameters (docs/privacy.md P36)."""
        square = _SQUARE_OF_THREE if self.others == 2 else _SQUARE
        return math.sqrt(square * (1.0 + len(self.on)))

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P36)."""
        return 2.0 * self.sensitivity

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        from scipy.special import softmax  # which takes long to import

        w = self.covariates.design(cells)
        place = Levels(column=self.outcome).places(cells)
        unknown = np.isnan(w).any(axis=1) | (place < 0)
        w = np.where(unknown[:, None], 0.0, w)
        effects = np.nan_to_num(parameters.astype(np.float64), posinf=1e30, neginf=-1e30)
        logits = w @ np.clip(effects, -1e30, 1e30).reshape(-1, self.others)
        chances = softmax(np.column_stack([np.zeros(len(w)), logits]), axis=1)[:, 1:]
        left = one_hot(place, 1 + self.others)[:, 1:] - chances
        score = w[:, :, None] * left[:, None, :]
        outer = self._entries.outer.squares(np.ones(len(w)), w)
        spread = self._covariances(chances)
        information = self._scale * outer[:, :, None] * spread[:, None, :]
        return np.hstack(
            [part.reshape(len(w), math.prod(part.shape[1:])) for part in (score, information)]
        )

    @property
    def entry_noise(self) -> EntryNoise:
        """What noise in the entries of the information does to it."""
        return EntryNoise(turned=np.eye(len(self.start)), inner=self.others)

    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says of the effects that was taken at `parameters`."""
        score, entries = np.split(sums, [len(self.start)])
        information = self._entries.matrix(entries / self._scale)
        return self.plain(score, information, self._scale, sigma, parameters)

    def answer_with(self, found: Effects | None) -> Answer:
        """The answer that effects give, class by class, or a refusal where none is told."""
        if found is None or not told(found):
            return self.make_answer(TOO_NOISY)
        first, *others = self.outcome.categories
        whose = [f"{name} against {first}" for name in others] * len(self.covariates.names)
        rows = zip(told(found), found.rows(self.names, self.ratio, self.confidence), strict=True)
        by_class = sorted(rows, key=lambda one: one[0] % len(others))
        of_classes = tuple(
            (column, f"{level}, {one}")
            for (column, level), one in zip(self.names, whose, strict=True)
        )
        return self.make_answer(
            rows=tuple(replace(row, group=whose[place]) for place, row in by_class),
            notes=(self.note, *omitted(of_classes, found)),
        )

    def guessed(self, guess: Guess, records: float, sigma: float) -> Scored:
        """What a sum of guessed records says at their root, with noise of this deviation.

        The first class is as large as no outcome is guessed to be; the others are alike.
        """
        spread = self._covariances(np.full((1, self.others), guess.outcome / self.others))
        moments = max(records, 1.0) * self.covariates.moments(guess)
        entries = self._scale * np.outer(self._entries.outer.entries(moments), spread)
        return self.scored(np.append(0.0 * self.start, entries), sigma, self.start)

    def _covariances(self, chances: Array) -> Array:
        """(n, entries) of diag m - m m' of each record's chances m, (n, others)."""
        inner = self._entries.inner
        diagonals = np.array([inner.entries(np.diag(one)) for one in np.eye(self.others)])
        return np.asarray(chances @ diagonals - inner.squares(np.ones(len(chances)), chances))

    @cached_property
    def _entries(self) -> ProductEntries:
        inner = Triangle(width=self.others)
        return ProductEntries(outer=Triangle(width=self.covariates.width), inner=inner)

    @property
    def _scale(self) -> float:
        """What the information is multiplied by (docs/privacy.md P36)."""
        return math.sqrt(_INFORMATION / (1.0 + len(self.on)))


# Rate ratios of counts, by sums of score and information at a trained model.
#
# Theory of operation. With w = (1, covariates), |w|^2 <= W, a count y up to its public bound H and
# the rate m = exp(b w) at public effects b, a record sends its part (y - m) w of the score and, as
# large as makes nobody's vector longer, its part m w w' of the information: what the rate can be at
# most, M, follows from b and public bounds. The score needs the mean alone to be right; how far
# counts spread around it, over what a Poisson law would have, is told by the squares (y - m)^2, and
# widens the intervals. And a record says whether it lies beyond the bound, which it then counts as.
#
# An intercept that is off scales all rates alike. So the ratio of counts to rates, the first number
# of the score over that of the information and 1, is taken out before a step, and exactly.

_SPREAD, _BEYOND = 0.5, 0.25  # what the squares and who is beyond are multiplied by
_LEAST_RATE = 1e-3  # of the bound: as the largest rate
_LEAST_RATIO = 1e-3
# Guessed before records are touched: variance over mean; largest rate over mean, times the part.
_GUESSED, _STEEP = 2.0, 0.75


@dataclass(frozen=True, kw_only=True)
class NewtonPoisson(ModelRegression):
    """Rate ratios per unit and between classes, from a few sums.

    Args:
        outcome: a column of counts from 0, whose public bound is the largest that counts.
    """

    kind = "poisson"
    methods = (
        "rate ratios are from Poisson regressions, with standard errors adjusted for overdispersion"
    )
    ratio = "rate ratio"
    first = 1
    sensitivity = 1.0  # docs/privacy.md P36

    def __post_init__(self) -> None:
        if self.outcome.bounds[0] != 0:
            raise StudyError(
                f"expected counts from 0, found {self.outcome.name} from "
                f"{self.outcome.bounds[0]:g}; correct its bounds"
            )
        super().__post_init__()

    @property
    def size(self) -> int:
        """How many numbers its block has: score, information, squares, and who is beyond."""
        return self.covariates.width + self._triangle.size + 2

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks, at any parameters (docs/privacy.md P36).

        Of a count of 0 at the largest rate and one at the bound whose rate is none, where as large
        a rate as that may be makes them furthest from each other; or of two counts at the bound
        whose rates are none, where numbers lie at opposite ends.
        """
        width, numbers = 1.0 + len(self.on), self.covariates.numbers
        square = math.sqrt(16.0 * width**2 + 4.0 * width + 1.0) - 4.0 * width  # of that rate
        rate = math.sqrt(square)
        turned = width * (1.0 + 2.0 * rate + 2.0 * square) + (1.0 - square) ** 2 / 4.0
        alike = 2.0 * width + 2.0 * (numbers - 1.0)
        return math.sqrt((max(turned, alike) + 1.0 / 16.0) / (width + 5.0 / 16.0))

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        at, high = self._at(parameters), self.outcome.bounds[1]
        w, count = self.covariates.design(cells), cells[self.outcome.name]
        known = ~(np.isnan(w).any(axis=1) | np.isnan(count))
        w = np.where(known[:, None], w, 0.0)
        with np.errstate(all="ignore"):
            rate = np.minimum(np.exp(np.clip(w @ at.effects, -50.0, 50.0)), at.largest) * known
        left = np.where(known, np.clip(count, 0.0, high) - rate, 0.0)
        blocks = [
            left[:, None] * w,
            at.share * self._triangle.squares(rate, w),
            _SPREAD / high * left[:, None] ** 2,
            _BEYOND * high * (known & (count > high))[:, None],
        ]
        return np.hstack(blocks) / at.length

    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says of the effects, the intercept set right."""
        read, width = self._read(sums, sigma, parameters), self.covariates.width
        return Scored(
            at=read.at.effects + np.eye(width)[0] * math.log(read.ratio),
            score=read.score - (read.ratio - 1.0) * read.rates[0],
            information=read.ratio * read.rates,
            noise=(sigma * read.at.length) ** 2 * np.eye(width),
            blur=read.ratio * sigma * read.at.length / read.at.share,
            weight=read.ratio * float(read.rates[0, 0]),
            spread=read.spread,
        )

    def remarks(self, sums: Sequence[Sum]) -> tuple[str, ...]:
        """How far counts spread, and how many records lie beyond the bound."""
        high, z = self.outcome.bounds[1], normal_quantile(self.confidence)
        units = np.array([self._at(at).length / (_BEYOND * high) for _, _, at in sums])
        weights = (np.array([sigma for _, sigma, _ in sums]) * units) ** -2.0
        number = float(np.average([one[-1] for one, _, _ in sums] * units, weights=weights))
        noise = z / math.sqrt(weights.sum())
        spread = self._read(*sums[-1]).spread
        return (
            (
                f"counts spread {spread:.2g} times as much as in a Poisson model (variance "
                "over mean, at least 1), and intervals and tests allow for it"
            ),
            (
                f"records above the public bound, which count as {high:g}: "
                f"{max(number, 0.0):,.0f} (noise of up to {noise:,.0f} either way)"
            ),
        )

    def guessed(self, guess: Guess, records: float, sigma: float) -> Scored:
        """What a sum of guessed records says at their root, with noise of this deviation.

        Of counts whose mean is half of that part of their bound that is guessed to have an outcome,
        and whose variance is twice their mean; of effects by which a rate may be the more times
        that, the smaller it is.
        """
        rate = guess.outcome / 2.0 * self.outcome.bounds[1]
        effects = np.eye(self.covariates.width)[0] * math.log(rate)
        highest = effects + np.eye(len(effects))[0] * math.log(_STEEP / guess.outcome)
        at = self._at(highest.astype(np.float32))
        moments = max(records, 1.0) * rate * self.covariates.moments(guess)
        return Scored(
            at=effects,
            score=0.0 * effects,
            information=moments,
            noise=(sigma * at.length) ** 2 * np.eye(len(effects)),
            blur=sigma * at.length / at.share,
            weight=moments[0, 0],
            spread=_GUESSED,
        )

    def _read(self, sums: Array, sigma: float, parameters: Parameters) -> _Read:
        """The parts of a sum, each in its own unit."""
        at, width = self._at(parameters), self.covariates.width
        score, entries, ends = np.split(sums * at.length, [width, -2])
        rates = self._triangle.matrix(entries / at.share)
        total = max(float(rates[0, 0]), sigma * at.length)
        ratio = max(1.0 + float(score[0]) / total, _LEAST_RATIO)
        squares = float(ends[0]) * self.outcome.bounds[1] / _SPREAD
        return _Read(at, score, rates, ratio, max(squares / (ratio * total), 1.0))

    def _at(self, parameters: Parameters) -> _At:
        """Parameters, made possible whatever they are, and what follows from them (P36)."""
        whole = np.nan_to_num(parameters.astype(np.float64))
        effects, high = np.clip(whole, -STEEPEST, STEEPEST), self.outcome.bounds[1]
        width, steepest = 1.0 + len(self.on), effects[0] + self._climb(effects[1:])
        largest = high * math.exp(min(max(steepest - math.log(high), math.log(_LEAST_RATE)), 0.0))
        part = largest / high
        share = max(min(2.0 / part, 1.0 / part**2) - 1.0, 1.0)
        ends = [
            width + _SPREAD**2,
            width * part**2 * (1.0 + share) + _SPREAD**2 * part**4,
            width * ((1.0 - part) ** 2 + share * part**2) + _SPREAD**2 * (1.0 - part) ** 4,
        ]
        length = high * math.sqrt(max(ends) + _BEYOND**2)
        return _At(effects, largest, math.sqrt(share / width), length)

    def _climb(self, effects: Array) -> float:
        """By how much covariates can raise the logarithm of a rate at most."""
        column, number = np.array(self.covariates.column), np.array(self.covariates.number)
        raised = np.where(number, np.abs(effects), np.maximum(effects, 0.0))
        return sum(float(raised[column == place].max()) for place in range(len(self.on)))


class _At(NamedTuple):
    """Public effects at which a sum is taken, and what follows from them."""

    effects: Array
    largest: float  # rate that a record may have
    share: float  # what the information is multiplied by
    length: float  # of the longest record, before it is divided by it


class _Read(NamedTuple):
    """The parts of a noisy sum."""

    at: _At
    score: Array
    rates: Array  # the information
    ratio: float  # of counts to rates
    spread: float  # of counts around rates, over a Poisson law's
