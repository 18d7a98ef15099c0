"""Odds ratios of each of several classes against the first, by sums at a trained model.

Theory of operation. With w = (1, covariates), |w|^2 <= W, e the class of a record and m the chances
of classes at public effects, both without the first class, a record sends its part w x (e - m) of
the score and, scaled by sqrt(6 / W), its part w w' x (diag m - m m') of the information: where one
is long the other is shorter, and noise in the information is what hides effects first
(docs/privacy.md P36). Both factors of the information are symmetric, so that each product of two
distinct entries is sent once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.estimation.covariates import Guess
from hubbub.estimation.effects import TOO_NOISY, Effects, Names, omitted, told
from hubbub.estimation.model_regression import ModelRegression
from hubbub.estimation.newton_sums import Scored, Triangle
from hubbub.estimation.statistic import Answer, Array, Cells, Levels, Parameters, one_hot

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
        parts = entries.reshape(self.outer.size, self.inner.size)
        return np.asarray(
            np.einsum("kl,kij,lab->iajb", parts, self.outer.each(), self.inner.each())
        ).reshape(2 * (self.outer.width * self.inner.width,))

    def each(self) -> Array:
        """(size, q, q) the matrix of every entry that is 1 and alone."""
        products = np.einsum("kij,lab->kliajb", self.outer.each(), self.inner.each())
        width = self.outer.width * self.inner.width
        return np.asarray(products.reshape(self.size, width, width))

    def doubt(self, step: Array) -> Array:
        """Covariance of a matrix times a step, whose entries have independent noise of 1."""
        square = step.reshape(self.outer.width, self.inner.width)
        moved = np.einsum(
            "kij,ja,lab->klib", self.outer.each(), square, self.inner.each(), optimize=True
        ).reshape(self.size, -1)
        return np.asarray(moved.T @ moved)


@dataclass(frozen=True, kw_only=True)
class NewtonMultinomial(ModelRegression):
    """Odds ratios per unit and between classes of the covariates, for each class of the outcome.

    Args:
        outcome: a column of three categories or more, each of which is compared with the first.
        on, weight, confidence: see `Regression`.

    Raises:
        StudyError: an outcome or covariates that are none.
    """

    outcome: Column

    kind = "multinomial"
    ratio = "odds ratio"
    foreseen_as = "logarithm of an odds ratio over half of a column's range"

    def __post_init__(self) -> None:
        """Refuses an outcome or covariates that are none."""
        if len(self.outcome.categories) < 3:
            raise StudyError(
                f"expected an outcome of three categories or more, found {self.outcome.name}; use "
                "a logistic regression"
            )
        super().__post_init__()

    @property
    def explained(self) -> str:
        """The outcome's name."""
        return self.outcome.name

    @property
    def others(self) -> int:
        """How many classes are compared with the first."""
        return len(self.outcome.categories) - 1

    @property
    def first(self) -> int:
        """Components before this one are no effects: an intercept of each class."""
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

    @property
    def start(self) -> Parameters:
        """Parameters of a sum at no effects."""
        return np.zeros(self.covariates.width * self.others, np.float32)

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        """The blocks of n records at these parameters, (n, size)."""
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
        return np.hstack([score.reshape(len(w), -1), information.reshape(len(w), -1)])

    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says of the effects that was taken at `parameters`."""
        width = len(self.start)
        return Scored(
            at=parameters.astype(np.float64),
            score=sums[:width],
            information=self._entries.matrix(sums[width:] / self._scale),
            noise=sigma**2 * np.eye(width),
            blur=sigma / self._scale,
            entries=self._entries,
        )

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
        chances = np.full(self.others, guess.outcome / self.others)
        spread = np.diag(chances) - np.outer(chances, chances)
        moments = max(records, 1.0) * self.covariates.moments(guess)
        nowhere = np.zeros(len(self.start))
        return Scored(
            at=nowhere,
            score=nowhere,
            information=np.kron(moments, spread),
            noise=sigma**2 * np.eye(len(self.start)),
            blur=sigma / self._scale,
            entries=self._entries,
        )

    def _covariances(self, chances: Array) -> Array:
        """(n, entries) of diag m - m m' of each record's chances m, (n, others)."""
        inner = self._entries.inner
        diagonals = np.array([inner.entries(np.diag(one)) for one in np.eye(self.others)])
        return np.asarray(chances @ diagonals - inner.squares(np.ones(len(chances)), chances))

    @property
    def _entries(self) -> ProductEntries:
        inner = Triangle(width=self.others)
        return ProductEntries(outer=Triangle(width=self.covariates.width), inner=inner)

    @property
    def _scale(self) -> float:
        """What the information is multiplied by (docs/privacy.md P36)."""
        return math.sqrt(_INFORMATION / (1.0 + len(self.on)))
