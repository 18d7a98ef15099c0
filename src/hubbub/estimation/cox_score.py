"""The partial likelihood of noisy events and numbers at risk, for any design and in strata.

Theory of operation. In a stratum, events D_pk and numbers at risk Y_pk of pattern p in bin k are
all that the score U(b) = sum_pk D_pk (x_p - mean_k(b)) needs, mean_k(b) being the mean of x over
who is at risk, weighted by exp(b x). By Efron's rule for ties the parts 0, 1 / D, ... of a bin's D
events are no longer at risk. The mean over two parts that have the mean, the variance and the
symmetry of these is as good up to fourth order, exact where there are one or two events, and means
something where noise makes D no whole number. So a bin is looked at twice, with half of its events
each time. Scores, information and noise of strata add up.

Hazards are proportional if effects do not change over time. With g_k, a bin's place among all
events, the score of an effect b + c g_k at c = 0 is sum_k g_k U_k(b), less what the fit of b takes
of it; its variance is the information that is left, and its noise is linear in that of the sum
(Grambsch, Therneau 1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hubbub.estimation.effects import Effects, newton, sandwich
from hubbub.estimation.intervals import CLEAR
from hubbub.estimation.risk_sets import RiskSets
from hubbub.estimation.statistic import Array, NoisyTest

PROPORTIONAL = "proportional hazards"


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """Who is compared with one another.

    Args:
        sets: how times are summed.
        design: (patterns, components) without a constant.
        events: (patterns, bins) noisy.
        at_risk: (patterns, bins) noisy; who left in a bin counts for the part of it.
        sigma: standard deviation of the noise in each number of the sum.
        mixed: (patterns, parts) how much of each part of the sum is in a pattern's numbers.
    """

    sets: RiskSets
    design: Array
    events: Array
    at_risk: Array
    sigma: float
    mixed: Array

    @property
    def bins(self) -> int:
        """How many bins are summed over."""
        return len(self.events[0])

    @cached_property
    def total(self) -> Array:
        """(bins,) events of all patterns."""
        return np.asarray(self.events.sum(axis=0))

    @cached_property
    def _gone(self) -> Array:
        """(bins,) part of a bin's events that is no longer at risk, on average."""
        return np.asarray(0.5 - 0.5 / np.maximum(self.total, 1.0))

    @cached_property
    def _twice(self) -> Array:
        """(2 bins,) the two parts."""
        apart = np.sqrt((1.0 - np.maximum(self.total, 1.0) ** -2) / 12.0)
        return np.concatenate([self._gone - apart, self._gone + apart])

    @cached_property
    def _exposed(self) -> Array:
        """(patterns, 2 bins) still at risk."""
        return np.asarray(np.tile(self.at_risk, 2) - np.tile(self.events, 2) * self._twice)

    @cached_property
    def _half(self) -> Array:
        """(2 bins,) events of all patterns."""
        return np.tile(self.total / 2, 2)

    @property
    def _event_rows(self) -> Array:
        """(2 bins, width): from a pattern's sum to half of its events."""
        return np.tile(self.sets.events[: self.bins] / 2, (2, 1))

    @property
    def _exposed_rows(self) -> Array:
        """(2 bins, width): from a pattern's sum to who is exposed."""
        exposed = np.tile(self.sets.exposed[: self.bins], (2, 1))
        return np.asarray(exposed - 2 * self._event_rows * self._twice[:, None])

    def clear(self) -> Stratum:
        """Without the bins from the first on in which who is at risk is not clear of the noise."""
        in_all = np.linalg.norm(self.mixed.sum(axis=0))
        gone, events = self._gone, self.sets.events[: self.bins]
        rows = self.sets.exposed[: self.bins] - events * gone[:, None]
        noise = self.sigma * in_all * np.linalg.norm(rows, axis=1)
        noisy = (self.at_risk - self.events * gone).sum(axis=0) < CLEAR * noise
        end = int(np.argmax(noisy)) if noisy.any() else self.bins
        return replace(self, events=self.events[:, :end], at_risk=self.at_risk[:, :end])

    def at(self, effects: Array) -> tuple[Array, Array]:
        """Score and information."""
        x, weights = self.design, self._weights(effects)
        means = weights.T @ x
        score = self.events.sum(axis=1) @ x - self._half @ means
        information = (x.T * (weights @ self._half)) @ x - (means.T * self._half) @ means
        return score, information

    def by_bin(self, effects: Array) -> tuple[Array, Array]:
        """The same of each bin: (bins, q) and (bins, q, q)."""
        means = self._weights(effects).T @ self.design
        score = np.tile(self.events.T @ self.design / 2, (2, 1)) - self._half[:, None] * means
        information = self._half[:, None, None] * self._spread(effects)
        bins = self.bins
        return score[:bins] + score[bins:], information[:bins] + information[bins:]

    def _weights(self, effects: Array) -> Array:
        """(patterns, 2 bins) of a weighted mean over who is at risk."""
        weighted = self._exposed * np.exp(self.design @ effects)[:, None]
        return np.asarray(weighted / weighted.sum(axis=0))

    def _spread(self, effects: Array) -> Array:
        """(2 bins, q, q) covariance of x over who is at risk."""
        x, weights = self.design, self._weights(effects)
        means = weights.T @ x
        squares = np.einsum("pk,pi,pj->kij", weights, x, x, optimize=True)
        return np.asarray(squares - means[:, :, None] * means[:, None, :])

    def noise(self, effects: Array, weights: Array | None = None) -> Array:
        """Covariance of the noise in the score, whose bins are multiplied by (bins, q, q) first."""
        ratios = np.exp(self.design @ effects)
        hazard = np.maximum(self._half, 0.0) / (self._exposed * ratios[:, None]).sum(axis=0)
        means = self._weights(effects).T @ self.design
        rows = []
        for x, ratio in zip(self.design, ratios, strict=True):
            apart = x - means
            if weights is not None:
                apart = np.einsum("kij,kj->ki", np.tile(weights, (2, 1, 1)), apart)
            rows.append(
                apart.T @ self._event_rows - (apart.T * hazard * ratio) @ self._exposed_rows
            )
        by_part = np.tensordot(self.mixed, np.array(rows), axes=(0, 0))
        return np.asarray(self.sigma**2 * np.einsum("piw,pjw->ij", by_part, by_part))

    def doubt(self, effects: Array) -> Array:
        """(m, q, q) what noise in each number of the sum does to the information."""
        x, means = self.design, self._weights(effects).T @ self.design
        ratios = np.exp(x @ effects)
        hazard = self._half / (self._exposed * ratios[:, None]).sum(axis=0)
        spread = self._spread(effects)
        exposed = self._exposed_rows
        of_events = np.einsum("kij,kw->wij", spread, self._event_rows, optimize=True)
        reasons = []
        for row, ratio in zip(x, ratios, strict=True):
            apart = row - means
            more = apart[:, :, None] * apart[:, None, :] - spread
            weight = (hazard * ratio)[:, None] * exposed
            reasons.append(of_events + np.einsum("kij,kw->wij", more, weight, optimize=True))
        by_part = np.tensordot(self.mixed, np.array(reasons), axes=(0, 0))
        return np.asarray(self.sigma * by_part.reshape(-1, *spread.shape[1:]))


class PartialLikelihood:
    """The likelihood of all strata together."""

    def __init__(self, strata: Sequence[Stratum]) -> None:
        self._strata = strata

    def fit(self) -> Effects | None:
        """The effects by Newton's method; None where there is no maximum to be found."""
        width = self._strata[0].design.shape[1] if self._strata else 0
        root = newton(self._at, width, self._strata[0].sigma) if width else None
        if root is None:
            return None
        noise = np.sum([stratum.noise(root.values) for stratum in self._strata], axis=0)
        doubt = np.concatenate([stratum.doubt(root.values) for stratum in self._strata])
        return sandwich(root, noise, doubt)

    def _at(self, effects: Array) -> tuple[Array, Array]:
        """Score and information."""
        scores, information = zip(*(stratum.at(effects) for stratum in self._strata), strict=True)
        return np.sum(scores, axis=0), np.sum(information, axis=0)

    def proportional(self, effects: Array) -> NoisyTest | None:
        """The test that no effect changes over time; None where it cannot be told from noise."""
        from scipy.special import chdtrc  # which takes long to import

        places, width = self._places(), len(effects)
        score, crossed, squared = np.zeros(width), *np.zeros((2, width, width))
        for stratum in self._strata:
            place = places[: stratum.bins]
            by_bin, information = stratum.by_bin(effects)
            score += place @ by_bin
            crossed += np.einsum("k,kij->ij", place, information)
            squared += np.einsum("k,kij->ij", place**2, information)
        taken = np.linalg.solve(self._at(effects)[1], crossed.T).T
        covariance = squared - taken @ crossed.T
        for stratum in self._strata:
            weights = places[: stratum.bins, None, None] * np.eye(width) - taken
            covariance = covariance + stratum.noise(effects, weights)
        if np.linalg.eigvalsh(covariance)[0] <= 0:
            return None
        statistic = float(score @ np.linalg.solve(covariance, score))
        return NoisyTest(
            name=PROPORTIONAL,
            statistic=statistic,
            degrees=width,
            p_value=float(chdtrc(width, statistic)),
        )

    def _places(self) -> Array:
        """(bins,) of each bin's middle among all events, from 0 to 1."""
        total = np.zeros(max(stratum.bins for stratum in self._strata))
        for stratum in self._strata:
            total[: stratum.bins] += np.maximum(stratum.total, 0.0)
        after = np.cumsum(total)
        return np.asarray((after - total / 2) / max(float(after[-1]), 1.0))
