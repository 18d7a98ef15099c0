"""Logistic regression: from one noisy sum on classes, by a few sums of scores on numbers.

Theory of operation. On classes, a record's block says its pattern of covariates, as
`PatternLayout` does, in the place of its outcome. With y_p and n_p records of pattern p with the
outcome and in all, the score U(b) = sum_p x_p (y_p - n_p m_p), m_p = 1 / (1 + exp(-b x_p)), is
linear in the noise; its root has the covariance I^-1 (I + C) I^-1, C that of the score's noise.

On numbers, with w = (1, covariates), |w|^2 <= W, a record sends its part (y - m) w of the score
and, scaled by sqrt(11 / W), its part m (1 - m) w w' of the information: where one is long the other
is short, so the second costs nothing (docs/privacy.md P23).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import statistic_keys
from hubbub.estimation.effects import Effects, Elsewhere, newton, sandwich
from hubbub.estimation.newton_sums import NewtonRegression, Scored
from hubbub.estimation.pattern_regression import (
    OF_PATTERNS,
    PatternRegression,
    patterns_asked,
)
from hubbub.estimation.regression import Guess, OfOutcome
from hubbub.estimation.stacking import Margins, number_of, of_parts
from hubbub.estimation.statistic import Answer, Expectation, Parameters, one_hot
from hubbub.estimation.statistic_keys import StatisticKeys


def logistic(
    outcome: Column, on: tuple[Levels | Column, ...], **more: Any
) -> Logistic | NewtonLogistic:
    """A logistic regression: one sum where all covariates are classes, else a few Newton sums."""
    classes = tuple(covariate for covariate in on if isinstance(covariate, Levels))
    if len(classes) == len(on):
        return Logistic(outcome=outcome, on=classes, **more)
    return NewtonLogistic(outcome=outcome, on=on, **more)


@dataclass(frozen=True, kw_only=True)
class _OddsRatios(OfOutcome):
    """What both ways have in common: an outcome of two categories, the second explained."""

    kind = "logistic"
    keys: ClassVar = statistic_keys.OF_OUTCOME | OF_PATTERNS
    methods = "odds ratios are from logistic regressions"
    ratio = "odds ratio"
    supposed = ", if a quarter of the records have the outcome"

    @classmethod
    def read(cls, keys: StatisticKeys) -> Logistic | NewtonLogistic:
        outcome = keys.column("outcome", pair=True)
        on = keys.covariates(outcome)
        return logistic(outcome=outcome, on=on, **patterns_asked(keys, on), **keys.common)

    def settings(self) -> dict[str, Any]:
        return {"outcome": self.outcome.name, **statistic_keys.covariates_table(self.on)}

    def __post_init__(self) -> None:
        if len(self.outcome.categories) != 2:
            raise StudyError(
                f"expected an outcome of two categories, found {self.outcome.name}; declare them"
            )
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Logistic(_OddsRatios, PatternRegression):
    """Odds ratios between classes, from one sum; all covariates have classes."""

    on: tuple[Levels, ...]

    sensitivity = 1.0  # docs/privacy.md P23

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return math.sqrt(self.layout.widest)

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), **self.asked_of_patterns()}

    @property
    def size(self) -> int:
        return 2 * len(self.covariates)

    def encode(self, cells: Cells) -> Array:
        pattern = self.covariates.places(cells)
        outcome = Levels(column=self.outcome).places(cells)
        return self.layout.encode(pattern, one_hot(outcome, 2)).reshape(-1, self.size)

    @property
    def margins(self) -> Margins:
        """How many records there are, with each class and with two."""
        levels = (*self.on, Levels(column=self.outcome))
        return self.through_layout(of_parts(levels, {number_of(): np.ones(1)}))

    def expected(self, records: float, sigma: float) -> Expectation:
        """As if columns were independent."""

        def found(guess: Guess) -> Effects | None:
            each = max(records, 1.0) * self.covariates.shares(guess)
            counts = np.outer(each, [1.0 - guess.outcome, guess.outcome])
            return self.fitted(counts, self.design, sigma)

        return self.expected_with(found, sigma, "logarithm of an odds ratio")

    def answer(self, sums: Array, sigma: float) -> Answer:
        return self.told_of(self.by_pattern(sums), sigma)

    def records_of(self, cells: Array) -> tuple[Array, float]:
        return cells.sum(axis=1), math.sqrt(2.0)

    def fitted(
        self, cells: Array, design: Array, sigma: float, kept: NDArray[np.bool_] | None = None
    ) -> Effects | None:
        """Effects on the odds from (patterns, 2) noisy counts; an intercept is fitted, too."""
        from scipy.special import expit  # which takes long to import

        x = np.column_stack([np.ones(len(design)), design])
        chosen = slice(None) if kept is None else kept
        counts, x, mixed = cells[chosen], x[chosen], self.layout.counts[chosen]
        total = counts.sum(axis=1)

        def score(mean: Array) -> Array:
            return np.asarray(x.T @ (counts[:, 1] - total * mean))

        def at(effects: Array) -> tuple[Array, Array]:
            mean = expit(x @ effects)
            return score(mean), (x.T * (total * mean * (1 - mean))) @ x

        def elsewhere(effects: Array, along: Array) -> tuple[Array, Array]:
            mean = expit(x @ effects)
            return score(mean), x.T @ (total * mean * (1 - mean) * (x @ along))

        fit = newton(at, x.shape[1], sigma)
        if fit is None:
            return None
        mean = expit(x @ fit.values)
        each = math.sqrt(2.0) * mean * (1 - mean)  # of both counts of a pattern

        def moved(mean: Array, x: Array) -> Array:
            """What noise in each part of the sum does to scores, with the outcome and without."""
            return np.concatenate([mixed.T @ (x * part[:, None]) for part in (1 - mean, mean)])

        def noise(effects: Array, along: Array) -> float:
            return sigma * float(np.linalg.norm(moved(expit(x @ effects), (x @ along)[:, None])))

        def doubt(vectors: Array) -> Array:
            along = mixed.T @ (each[:, None] * (x @ vectors) ** 2)
            return np.asarray(sigma * np.linalg.norm(along, axis=0))

        rows = sigma * moved(mean, x)
        return sandwich(fit, rows.T @ rows, doubt, first=1, elsewhere=Elsewhere(elsewhere, noise))


@dataclass(frozen=True, kw_only=True)
class NewtonLogistic(_OddsRatios, NewtonRegression):
    """Odds ratios per unit and between classes, from a few sums."""

    first = 1

    @property
    def size(self) -> int:
        return self.covariates.width + self._triangle.size  # of the score, then the information

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block, at any parameters (docs/privacy.md P23)."""
        return math.sqrt(1.0 + len(self.on))

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return 2.0 * self.sensitivity

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        from scipy.special import expit  # which takes long to import

        w = self.covariates.design(cells)
        place = Levels(column=self.outcome).places(cells)
        unknown = np.isnan(w).any(axis=1) | (place < 0)
        w = np.where(unknown[:, None], 0.0, w)
        with np.errstate(all="ignore"):
            mean = expit(np.nan_to_num(w @ parameters.astype(np.float64)))
        squares = self._scale * self._triangle.squares(mean * (1 - mean), w)
        return np.column_stack([(place - mean)[:, None] * w, squares])

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        scored = self._moved(self.scored(sums, sigma, parameters))
        return (scored.at + scored.step).astype(np.float32)

    def _moved(self, scored: Scored) -> Scored:
        """About what the sum would say with an intercept by which as many have it as have had it.

        As if all had the chance of the middle of those who tell of the intercept: exact where there
        are no effects. A Newton step alone leads to a rare outcome's intercept by 1 or 2 at most.
        """
        from scipy.special import expit, logit  # which take long to import

        score, information = scored.score, scored.information
        total = max(float(information[0, 0]), scored.blur)
        chance = float(np.clip(expit(scored.at @ information[0] / total), 1e-6, 1.0 - 1e-6))
        weight = chance * (1.0 - chance)
        least = min(max(math.sqrt(float(scored.noise[0, 0])), 1.0) * weight / total, chance, 0.5)
        rate = min(max(chance + score[0] / total * weight, least), 1.0 - least)
        ratio = rate * (1.0 - rate) / weight
        return scored._replace(
            at=scored.at + np.eye(len(score))[0] * float(logit(rate) - logit(chance)),
            score=score - (rate - chance) / weight * information[0],
            information=ratio * information,
            blur=ratio * scored.blur,
            weight=ratio * scored.weight,
        )

    def guessed(self, guess: Guess, records: float, sigma: float) -> Scored:
        """What a sum of guessed records says at their root, with noise of this deviation."""
        moments = self.covariates.moments(guess)
        information = self._scale * self._triangle.entries(moments)
        made_up = np.concatenate([0.0 * moments[0], information])
        known = guess.outcome * (1.0 - guess.outcome) * max(records, 1.0)
        return self.scored(known * made_up, sigma, self.start)

    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says of the effects, the intercept first, that was taken at `parameters`."""
        width, scale = self.covariates.width, self._scale
        information = self._triangle.matrix(sums[width:]) / scale
        return self.plain(sums[:width], information, scale, sigma, parameters)

    @property
    def _scale(self) -> float:
        """What the information is multiplied by (docs/privacy.md P23)."""
        return math.sqrt(11.0 / (1.0 + len(self.on)))
