"""Cox regression on covariates with few classes, from one noisy sum.

Theory of operation. Records are summed like those of survival curves, each pattern of covariates a
group. Events D_pk and numbers at risk Y_pk of pattern p in bin k are all that the score
U(b) = sum_pk D_pk (x_p - mean_k(b)) needs, mean_k(b) being the mean of x over who is at risk,
weighted by exp(b x). Of a bin's D events the part (D + 1) / 2 D counts as still at risk, which is
Efron's rule for ties up to second order, and exact where there is one. Who left in a bin counts for
the part of it that it was followed. U is linear in the noise up to second order, so the effects
have the covariance I^-1 (I + C) I^-1, with the information I and the covariance C of the noise in
U.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hubbub.estimation.asked_keys import StatisticKeys, covariates_table, grid_table
from hubbub.estimation.covariates import Guess, Patterns
from hubbub.estimation.effects import Effects, Regression, newton, sandwich
from hubbub.estimation.risk_sets import OnRiskSets, RiskSets
from hubbub.estimation.shared_margins import Margins
from hubbub.estimation.statistic import (
    Answer,
    Array,
    Cells,
    Expectation,
    Iterated,
    Levels,
    OneSum,
)
from hubbub.tabular import Column

_POWER = 0.45
_BINS = 12  # if nothing is said


@dataclass(frozen=True, kw_only=True)
class HazardRatios(Regression):
    """What both ways have in common; records that lack time, event or a covariate are left out.

    Args:
        time: a numeric column: how long a record was followed.
        event: a column of two categories, of which the second is the event.
        edges: increasing edges of the bins in the unit of the time, the horizon last.
        on: the covariates: classes, the first of which is compared with, or numeric columns.
        weight, confidence: see `Statistic`.

    Raises:
        StudyError: a grid, an event or covariates that are none.
    """

    time: Column
    event: Column
    edges: tuple[float, ...]

    kind = "cox"
    keys = ("time", "event", "covariates", "bins", "horizon")
    ratio = "hazard ratio"
    note = "records that lack time, event or a covariate are left out"

    @classmethod
    def read(cls, keys: StatisticKeys) -> OneSum | Iterated:
        """The statistic that a table of a study asks for."""
        from hubbub.estimation.cox_newton import cox  # whose class is one of these

        grid = keys.survived(_BINS)
        on = keys.covariates(grid["time"], grid["event"])
        return cox(**grid, on=on, **keys.common)

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        on = covariates_table(self.on)
        return {**grid_table(self.time, self.event, self.edges), "covariates": on}

    @property
    def explained(self) -> str:
        """The names of its event and its time."""
        return f"{self.event.name} over {self.time.name}"


@dataclass(frozen=True, kw_only=True)
class Cox(HazardRatios, OnRiskSets):
    """Hazard ratios between classes, from one sum; all covariates have classes."""

    on: tuple[Levels, ...]

    def __post_init__(self) -> None:
        """Refuses a grid, an event or covariates that are none."""
        _ = self.sets

    @property
    def covariates(self) -> Patterns:
        """Its covariates, of which each combination is a group."""
        return Patterns(on=self.on)

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        return self.sets.encode(cells, self.covariates.places(cells))

    @property
    def margins(self) -> Margins:
        """How many are at risk in each bin and have the event, with each class and with two."""
        return self.sets.margins(self.on)

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block.

        As if columns were independent, events and losses even over time.
        """
        bins = self.sets.bins

        def found(guess: Guess) -> Effects | None:
            each = max(records, 1.0) * self.covariates.shares(guess)[:, None]
            events = np.tile(each * guess.event / bins, bins)
            gone = guess.event + (1.0 - guess.event) / 2
            at_risk = each * (1.0 - gone * np.arange(bins) / bins)
            return _Score(self, events, at_risk, sigma).fit()

        return self.expected_with(found, sigma, "logarithm of a hazard ratio")

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        blocks = sums.reshape(len(self.covariates), self.sets.width)
        events, at_risk = blocks @ self.sets.events.T, blocks @ self.sets.exposed[:-1].T
        return self.answer_with(_Score(self, events, at_risk, sigma).fit())

    @property
    def sets(self) -> RiskSets:
        """How its times are summed."""
        return RiskSets(
            time=self.time,
            event=self.event,
            edges=self.edges,
            groups=len(self.covariates),
            power=_POWER,
        )


class _Score:
    """The partial likelihood of noisy events and numbers at risk, (patterns, bins) each."""

    def __init__(self, asked: Cox, events: Array, at_risk: Array, sigma: float) -> None:
        self.sets, self._design = asked.sets, asked.covariates.table
        self._events, self._sigma = events, sigma
        self._total = events.sum(axis=0)
        self._gone = 0.5 - 0.5 / np.maximum(self._total, 1.0)  # of a bin's events, on average
        self._exposed = at_risk - events * self._gone

    def fit(self) -> Effects | None:
        """The effects by Newton's method; None where there is no maximum to be found."""
        found = newton(self._at, self._design.shape[1], self._sigma)
        if found is None:
            return None
        return sandwich(found, self._noise(found.values), self._doubt(found.values))

    @property
    def _exposed_rows(self) -> Array:
        """(bins, width): from a pattern's sum to who is exposed."""
        return np.asarray(self.sets.exposed[:-1] - self.sets.events * self._gone[:, None])

    def _at(self, effects: Array) -> tuple[Array, Array]:
        """Score and information."""
        x, weights = self._design, self._weights(effects)
        means = weights.T @ x
        score = self._events.sum(axis=1) @ x - self._total @ means
        information = (x.T * (weights @ self._total)) @ x - (means.T * self._total) @ means
        return score, information

    def _weights(self, effects: Array) -> Array:
        """(patterns, bins) of a weighted mean over who is at risk."""
        weighted = self._exposed * np.exp(self._design @ effects)[:, None]
        return np.asarray(weighted / weighted.sum(axis=0))

    def _noise(self, effects: Array) -> Array:
        """Covariance of the noise in the score."""
        ratios = np.exp(self._design @ effects)
        hazard = np.maximum(self._total, 0.0) / (self._exposed * ratios[:, None]).sum(axis=0)
        means = self._weights(effects).T @ self._design
        exposed = self._exposed_rows
        noise = np.zeros((len(effects), len(effects)))
        for x, ratio in zip(self._design, ratios, strict=True):
            apart = (x - means).T
            rows = apart @ self.sets.events - (apart * hazard * ratio) @ exposed
            noise += rows @ rows.T
        return np.asarray(self._sigma**2 * noise)

    def _doubt(self, effects: Array) -> Array:
        """(m, q, q) what noise in each number of the sum does to the information."""
        x, weights = self._design, self._weights(effects)
        means = weights.T @ x
        ratios = np.exp(x @ effects)
        hazard = self._total / (self._exposed * ratios[:, None]).sum(axis=0)
        squares = np.einsum("pk,pi,pj->kij", weights, x, x, optimize=True)
        spread = squares - means[:, :, None] * means[:, None, :]  # of who is at risk, in each bin
        exposed = self._exposed_rows
        of_events = np.einsum("kij,kw->wij", spread, self.sets.events, optimize=True)
        found = []
        for row, ratio in zip(x, ratios, strict=True):
            apart = row - means
            more = apart[:, :, None] * apart[:, None, :] - spread
            weight = (hazard * ratio)[:, None] * exposed
            found.append(of_events + np.einsum("kij,kw->wij", more, weight, optimize=True))
        return np.asarray(self._sigma * np.concatenate(found))
