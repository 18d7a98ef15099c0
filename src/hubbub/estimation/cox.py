"""Cox regression: its likelihood of noisy counts, on classes, and on numbers by Newton sums.

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

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import statistic_keys
from hubbub.estimation.effects import Effects, Elsewhere, Root, newton, sandwich, told
from hubbub.estimation.intervals import CLEAR, chi_square_test
from hubbub.estimation.newton_sums import STEEPEST, NewtonRegression, Scored
from hubbub.estimation.pattern_regression import (
    OF_PATTERNS,
    PatternRegression,
    patterns_asked,
)
from hubbub.estimation.regression import FOLLOWED_OUT, SKEWED, USUAL, Guess, Patterns, Regression
from hubbub.estimation.risk_sets import Followed, OnRiskSets, RiskSets
from hubbub.estimation.stacking import Margins
from hubbub.estimation.statistic import Answer, Expectation, Iterated, NoisyTest, OneSum, Parameters
from hubbub.estimation.statistic_keys import StatisticKeys

PROPORTIONAL = "proportional hazards"


@dataclass(frozen=True)
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
    def _half(self) -> Array:
        """(2 bins,) events of all patterns."""
        return np.tile(self.total / 2, 2)

    @property
    def _rows(self) -> tuple[Array, Array]:
        """(2 bins, width): from a pattern's sum to half of its events, and to who is exposed."""
        events = np.tile(self.sets.events[: self.bins] / 2, (2, 1))
        exposed = np.tile(self.sets.exposed[: self.bins], (2, 1))
        return events, np.asarray(exposed - 2 * events * self._twice[:, None])

    def clear(self, deviations: float, *, classes: bool = False) -> Stratum:
        """Up to the first bin in which fewer are at risk than so much of their noise.

        Of all together, or with any component of the design and without it.
        """
        has = self.design.T != 0
        groups = np.vstack([has, ~has]) if classes else np.ones((1, len(self.design)))
        gone, events = self._gone, self.sets.events[: self.bins]
        rows = self.sets.exposed[: self.bins] - events * gone[:, None]
        sizes = np.linalg.norm(groups @ self.mixed, axis=1)
        noise = self.sigma * np.outer(sizes, np.linalg.norm(rows, axis=1))
        noisy = (groups @ (self.at_risk - self.events * gone) < deviations * noise).any(axis=0)
        end = int(np.argmax(noisy)) if noisy.any() else self.bins
        return replace(self, events=self.events[:, :end], at_risk=self.at_risk[:, :end])

    def at(self, effects: Array) -> tuple[Array, Array]:
        """Score and information."""
        return self.along(effects, np.eye(len(effects)))

    def along(self, effects: Array, vectors: Array) -> tuple[Array, Array]:
        """Score, and information times vectors (q,) or (q, n)."""
        x, (weights, means, _) = self.design, self._weighted(effects)
        score = self.events.sum(axis=1) @ x - self._half @ means
        information = (x.T * (weights @ self._half)) @ (x @ vectors)
        return np.asarray(score), information - (means.T * self._half) @ (means @ vectors)

    def by_bin(self, effects: Array) -> tuple[Array, Array]:
        """The same of each bin: (bins, q) and (bins, q, q)."""
        weights, means, _ = self._weighted(effects)
        score = np.tile(self.events.T @ self.design / 2, (2, 1)) - self._half[:, None] * means
        x = self.design
        squares = np.einsum("pk,pi,pj->kij", weights, x, x, optimize=True)
        spread = np.asarray(squares - means[:, :, None] * means[:, None, :])  # of who is at risk
        information = self._half[:, None, None] * spread
        bins = self.bins
        return score[:bins] + score[bins:], information[:bins] + information[bins:]

    def _weighted(self, effects: Array) -> tuple[Array, Array, Array]:
        """Of a weighted mean over who is at risk: (patterns, 2 bins) weights, (2 bins, q) means.

        And (patterns, 2 bins) the hazard of each.
        """
        ratios = np.exp(self.design @ effects)[:, None]
        exposed = np.tile(self.at_risk, 2) - np.tile(self.events, 2) * self._twice
        total = (exposed * ratios).sum(axis=0)
        weights = exposed * ratios / total
        return weights, weights.T @ self.design, ratios * self._half / total

    def noise(self, effects: Array, weights: Array | None = None) -> Array:
        """Covariance of the noise in the score, whose bins are multiplied by (bins, q, q) first."""
        _, means, hazards = self._weighted(effects)
        apart = self.design[:, None, :] - means  # (patterns, 2 bins, q)
        if weights is not None:
            apart = np.einsum("kij,pkj->pki", np.tile(weights, (2, 1, 1)), apart, optimize=True)
        return self._noise(apart, hazards)

    def noise_along(self, effects: Array, along: Array) -> float:
        """Variance of the noise in the score in a direction (q,)."""
        _, means, hazards = self._weighted(effects)
        apart = (self.design @ along)[:, None] - means @ along
        return float(self._noise(apart[:, :, None], hazards)[0, 0])

    def _noise(self, apart: Array, hazards: Array) -> Array:
        """(r, r) of what is `apart`, (patterns, 2 bins, r), from the mean over who is at risk."""
        taken, bins = apart * np.maximum(hazards, 0.0)[:, :, None], self.bins
        each = apart / 2 + taken * self._twice[:, None], taken
        # Both parts of a bin are of one number in a sum.
        of_events, of_exposed = (part[:, :bins] + part[:, bins:] for part in each)
        rows = np.tensordot(of_events, self.sets.events[:bins], (1, 0))
        rows -= np.tensordot(of_exposed, self.sets.exposed[:bins], (1, 0))
        by_part = np.tensordot(self.mixed, rows, axes=(0, 0))
        return np.asarray(self.sigma**2 * np.einsum("piw,pjw->ij", by_part, by_part))

    def doubt(self, effects: Array, vectors: Array) -> Array:
        """(m, n) v' M v of vectors (q, n), M what noise in each number does to the information."""
        weights, means, hazards = self._weighted(effects)
        of_events, of_exposed = self._rows
        x, mean = self.design @ vectors, means @ vectors
        spread = weights.T @ x**2 - mean**2
        more = (x[:, None, :] - mean) ** 2 - spread  # (patterns, 2 bins, n)
        reasons = of_exposed.T @ (hazards[:, :, None] * more) + of_events.T @ spread
        by_part = np.tensordot(self.mixed, reasons, axes=(0, 0))
        return np.asarray(self.sigma * by_part.reshape(-1, x.shape[1]))


class PartialLikelihood:
    """The likelihood of all strata together."""

    def __init__(self, strata: Sequence[Stratum]) -> None:
        self._strata = strata

    @cached_property
    def root(self) -> Root | None:
        """Of the score, by Newton's method; None where there is no maximum to be found."""
        width = self._strata[0].design.shape[1] if self._strata else 0
        return newton(self._at, width, self._strata[0].sigma) if width else None

    @cached_property
    def fit(self) -> Effects | None:
        """The effects; None where there is no root."""
        if (root := self.root) is None:
            return None

        def doubt(vectors: Array) -> Array:
            each = [stratum.doubt(root.values, vectors) for stratum in self._strata]
            return np.asarray(np.linalg.norm(np.concatenate(each), axis=0))

        def score(effects: Array, along: Array) -> tuple[Array, Array]:
            parts = zip(*(one.along(effects, along) for one in self._strata), strict=True)
            whole, shared = (np.sum(part, axis=0) for part in parts)
            return whole, shared

        def noise_along(effects: Array, along: Array) -> float:
            return math.sqrt(sum(stratum.noise_along(effects, along) for stratum in self._strata))

        noise = np.sum([stratum.noise(root.values) for stratum in self._strata], axis=0)
        return sandwich(root, noise, doubt, elsewhere=Elsewhere(score, noise_along))

    def _at(self, effects: Array) -> tuple[Array, Array]:
        """Score and information."""
        scores, information = zip(*(stratum.at(effects) for stratum in self._strata), strict=True)
        return np.sum(scores, axis=0), np.sum(information, axis=0)

    def proportional(self, effects: Array) -> NoisyTest | None:
        """The test that no effect changes over time; None where it cannot be told from noise."""
        width = len(effects)
        total = np.zeros(max(stratum.bins for stratum in self._strata))
        for stratum in self._strata:
            total[: stratum.bins] += np.maximum(stratum.total, 0.0)
        after = np.cumsum(total)
        # Of each bin's middle among all events, from 0 to 1.
        places = (after - total / 2) / max(float(after[-1]), 1.0)
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
        return chi_square_test(PROPORTIONAL, statistic, width)


# Cox regression on covariates with few classes, from one noisy sum.
#
# Theory of operation. Records are summed like those of survival curves, by pattern of covariates as
# `PatternLayout` says it, and each stratum of it in a place of its own. The score (`Stratum`) is
# linear in the noise up to second order, so the effects have the covariance I^-1 (I + C) I^-1, with
# the information I and the covariance C of the noise in the score.

_TEST = "proportional-hazards"
_POWER = 0.45
_TIED = 0.2  # of those at risk in a bin, from where on events in it are too many
TIED = (
    "more than a fifth of those at risk have the event in a bin, which draws ratios towards 1: "
    "use more bins"
)
# Deviations of its noise that the number at risk in a bin has, of all and then of each class: the
# first cut is taken with which all effects are told, or else most.
_CUTS, _OF_CLASSES = (CLEAR, 2 * CLEAR, 4 * CLEAR), (2.0, 4.0)


@dataclass(frozen=True, kw_only=True)
class HazardRatios(Followed, Regression):
    """What both ways have in common; records that lack time, event or a covariate are left out.

    Args:
        time, event, edges: see `Followed`; the event has two categories.
        on, weight, confidence: see `Regression`.
    """

    kind = "cox"
    keys: ClassVar = (
        statistic_keys.GRID
        | {
            "covariates": statistic_keys.COVARIATES,
            "reference": statistic_keys.REFERENCE,
            "strata": statistic_keys.STRATA,
            "test": statistic_keys.TEST,
        }
        | OF_PATTERNS
    )
    methods = "hazard ratios are from Cox regressions"
    ratio = "hazard ratio"
    supposed = ", if a third of the records have the event"
    note = "records without time, event or a covariate are left out"

    @classmethod
    def read(cls, keys: StatisticKeys) -> OneSum | Iterated:
        grid = keys.survived()
        on = keys.covariates(grid["time"], grid["event"])
        more = patterns_asked(keys, on, "strata", "test", "entry")
        if "strata" in keys.section:
            more["strata"] = keys.levels("strata")
        if keys.test(_TEST):
            more["test"] = True
        return cox(**grid, on=on, **more, **keys.common)

    def settings(self) -> dict[str, Any]:
        on = statistic_keys.covariates_table(self.on)
        return {**statistic_keys.grid_table(self.time, self.event, self.edges), **on}

    @property
    def explained(self) -> str:
        return f"{self.event.name} over {self.time.name}"


@dataclass(frozen=True, kw_only=True)
class Cox(HazardRatios, PatternRegression, OnRiskSets):
    """Hazard ratios between classes, from one sum; all covariates have classes.

    Args:
        strata: classes within which records are compared; each has a hazard of its own.
        test: whether it is tested that hazards are proportional.
        entry: see `OnRiskSets`.
    """

    on: tuple[Levels, ...]
    strata: Levels | None = None
    test: bool = False

    skewed = (SKEWED, FOLLOWED_OUT)
    promised = 4.0  # in late bins a rare class is hidden by what noise makes of who is at risk

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [covariate.column.name for covariate in self.on]
        if self.strata and self.strata.column.name in names:
            raise StudyError(
                "expected strata of a column that is not a covariate, found "
                f"{self.strata.column.name}; name another"
            )
        _ = self.sets

    def settings(self) -> dict[str, Any]:
        test = _TEST if self.test else ""
        own = statistic_keys.table_of(entry=self.entry, strata=self.strata, test=test)
        return super().settings() | own | self.asked_of_patterns()

    def encode(self, cells: Cells) -> Array:
        inside = np.zeros(len(cells[self.time.name]), dtype=np.int64)
        stratum = self.strata.places(cells) if self.strata else inside
        inner = replace(self.sets, groups=self._strata).encode(cells, stratum)
        return self.layout.encode(self.covariates.places(cells), inner).reshape(-1, self.size)

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return self.sensitivity * math.sqrt(self.layout.widest)

    @property
    def margins(self) -> Margins:
        """How many are at risk in each bin and have the event, with each class and with two."""
        return self.through_layout(self.sets.margins(self._parts.on))

    def expected(self, records: float, sigma: float) -> Expectation:
        """As if columns were independent, events and losses even over time."""
        bins = self.sets.bins

        def found(guess: Guess) -> Effects | None:
            each = max(records, 1.0) * self._parts.shares(guess)[:, None]
            each = each * self.sets.entered[:-1]
            events = each * guess.event / bins
            gone = guess.event + (1.0 - guess.event) / 2
            at_risk = each * (1.0 - gone * np.arange(bins) / bins)
            return self._likelihood(events, at_risk, self.design, sigma).fit

        return self.expected_with(found, sigma, "logarithm of a hazard ratio")

    def answer(self, sums: Array, sigma: float) -> Answer:
        cells = self.by_pattern(sums).reshape(-1, self.sets.width)
        answer, counts = self.told_of(cells, sigma), self._counts(cells)
        if answer.refusal:
            return answer
        events, at_risk = (np.maximum(part.sum(axis=0), 0.0) for part in counts)
        if events @ np.minimum(events / np.maximum(at_risk, 1.0), 1.0) > _TIED * events.sum():
            answer = replace(answer, notes=(*answer.notes, TIED))
        if not self.test:
            return answer
        seen, kept = self.seen(cells, self.design, sigma)
        likelihood = self._likelihood(*counts, self.design[:, seen], sigma, kept)
        fit = likelihood.fit
        # Where an effect has no end, or is hidden, its score says nothing of how it changes.
        is_told = fit is not None and len(told(fit)) == len(fit.values)
        tested = likelihood.proportional(fit.values) if fit and is_told else None
        return replace(answer, tests=(*answer.tests, *([tested] if tested else [])))

    def records_of(self, cells: Array) -> tuple[Array, float]:
        row = self.sets.exposed[0]
        number = (cells @ row).reshape(-1, self._strata).sum(axis=1)
        return number, float(np.linalg.norm(row)) * math.sqrt(self._strata)

    def fitted(
        self, cells: Array, design: Array, sigma: float, kept: NDArray[np.bool_] | None = None
    ) -> Effects | None:
        """Effects on the hazard from noisy cells of patterns and strata, (parts, width)."""
        return self._likelihood(*self._counts(cells), design, sigma, kept).fit

    def _counts(self, cells: Array) -> tuple[Array, Array]:
        """Events and numbers at risk, (parts, bins) each."""
        return cells @ self.sets.events.T, cells @ self.sets.exposed[:-1].T

    def _likelihood(
        self,
        events: Array,
        at_risk: Array,
        design: Array,
        sigma: float,
        kept: NDArray[np.bool_] | None = None,
    ) -> PartialLikelihood:
        """Of events and numbers at risk, (parts, bins), of all patterns or some."""
        chosen = np.ones(len(design), dtype=np.bool_) if kept is None else kept
        number, mixed = self._strata, self.layout.counts[chosen]
        parts = [(events[k::number][chosen], at_risk[k::number][chosen]) for k in range(number)]
        strata = [Stratum(self.sets, design[chosen], *part, sigma, mixed) for part in parts]
        # With late bins of hardly anybody but noise there may be no root, or none that is clear.
        cuts = [(deviations, False) for deviations in _CUTS] + [(d, True) for d in _OF_CLASSES]
        if not (self.strata or self.entry):
            cuts.insert(0, (-math.inf, False))
        best, most = PartialLikelihood([]), 0
        for deviations, classes in cuts:
            cut = [one.clear(deviations, classes=classes) for one in strata]
            likelihood = PartialLikelihood([one for one in cut if one.bins])
            shown = len(told(fit)) if (fit := likelihood.fit) else 0
            if shown > most:
                best, most = likelihood, shown
            if shown == design.shape[1]:
                break
        return best

    @property
    def title(self) -> str:
        return f"{super().title}{self.sets.since}"

    @property
    def _strata(self) -> int:
        return len(self.strata) if self.strata else 1

    @property
    def _parts(self) -> Patterns:
        """All patterns, and the strata of each: every one is a group."""
        return Patterns(on=(*self.on, *([self.strata] if self.strata else [])))

    @cached_property
    def sets(self) -> RiskSets:
        """How its times are summed."""
        return self.on_grid(groups=len(self._parts), power=_POWER)


# Cox regression on numbers, by a few noisy sums of scores.
#
# Theory of operation. Within a public bin k the hazard of a record is exp(a_k + b x), so that what
# it has gathered over its time in the bin, h_k, is known from public parameters. With d_k for its
# event, d_k - h_k are the scores of the a_k, and their sum times z, x less a public centre and over
# the longest that can be, is that of b. A record is followed as long as all that it has gathered
# stays below a public stop, which its bins before tell: that bounds all its parts (docs/privacy.md
# P23) and bends nothing. What is known of a_k comes out of b by the scores of a few pieces of the
# time. Where an event is, half of a bin is gathered: times may be rounded to the grid (Efron's rule
# for ties, up to second order).

# What parts of a record are multiplied by, the score's own being 1: that of the hazards, and those
# of the information one beside the other (docs/privacy.md P23).
_BASE = 0.4
_GATHERED, _CROSS, _SQUARES = 0.35, 0.45, 0.82  # their squares add up to less than 1
_LEAST_SHARE = 1.5  # of the information, squared
_FIRST, _PLANNED = 0.6, 1.0  # stops of the first sum and of others, as they are planned
_STOPS = 0.25 * 1.12 ** np.arange(26)  # that may follow
_KEPT = 0.97  # of the events: with fewer, ratios that change would be those of earlier times
_LEAST, _LARGEST = 0.1, 8.0
_PIECES = 4
_ROOM = 1e-3  # by which the first sum's hazards stay below the stop


def cox(
    time: Column,
    event: Column,
    edges: tuple[float, ...],
    on: tuple[Levels | Column, ...],
    **more: Any,
) -> Cox | NewtonCox:
    """A Cox regression: one sum where all covariates are classes, else a few Newton sums."""
    classes = tuple(covariate for covariate in on if isinstance(covariate, Levels))
    if len(classes) == len(on):
        return Cox(time=time, event=event, edges=edges, on=classes, **more)
    return NewtonCox(time=time, event=event, edges=edges, on=on, **more)


@dataclass(frozen=True, kw_only=True)
class NewtonCox(HazardRatios, NewtonRegression):
    """Hazard ratios per unit and between classes, from a few sums."""

    sensitivity = 1.0  # docs/privacy.md P23
    diameter = 2.0
    note = (
        f"{HazardRatios.note}; who is at high risk may be followed for less long: "
        "a few of the latest events may not count"
    )

    def __post_init__(self) -> None:
        _ = self._sets
        super().__post_init__()

    @property
    def size(self) -> int:
        return 2 * self._bins + self.width * (1 + self._pieces) + self._triangle.size

    @property
    def start(self) -> Parameters:
        """Parameters of the first sum: no effects, a constant hazard that just reaches the stop."""
        lengths = np.diff(self._sets.grid)
        hazards = np.log((1 - _ROOM) * _FIRST * lengths / lengths.sum())
        centre = self.covariates.moments(USUAL)[0, 1:]  # guessed
        return np.concatenate([0.0 * centre, hazards, centre, [_FIRST]]).astype(np.float32)

    def encode_at(self, cells: Cells, parameters: Parameters) -> Array:
        at = self._at(parameters)
        x = self.covariates.design(cells)[:, 1:]
        event, present = self._sets.followed(cells)
        known = ~np.isnan(x).any(axis=1, keepdims=True)
        x = np.where(known, x, 0.0)
        hazards = np.exp(np.clip((x @ at.effects)[:, None] + at.hazards, -50.0, 50.0))
        followed = known & (np.cumsum(hazards, axis=1) <= at.stop)
        gathered = np.where(followed, hazards * present, 0.0)
        left = np.where(followed, event, 0.0) - gathered
        z = (x - at.centre) / at.radius
        pieces = gathered @ self._in_piece
        blocks = [
            _BASE * left,
            left.sum(axis=1)[:, None] * z,
            at.share * _GATHERED * gathered,
            at.share * _CROSS * np.hstack([piece[:, None] * z for piece in pieces.T]),
            at.share * _SQUARES * self._triangle.squares(gathered.sum(axis=1), z),
        ]
        return np.hstack(blocks) / at.length

    def scored(self, sums: Array, sigma: float, parameters: Parameters) -> Scored:
        """What a sum says of the effects, with what is known of the hazards taken out."""
        at = self._at(parameters)
        read = self._read(sums, sigma, at)
        left, exposed = (self._in_piece.T @ part for part in (read.left, read.gathered))
        means = read.cross * (exposed / (exposed**2 + read.noise**2))[:, None]
        error = sigma * at.length * math.sqrt(self._bins / self._pieces) / _BASE
        unit = at.radius
        return Scored(
            at=at.effects,
            score=unit * (read.score - means.T @ left),
            information=read.ratio * unit**2 * (read.squares - read.cross.T @ means),
            noise=unit**2
            * ((sigma * at.length) ** 2 * np.eye(self.width) + error**2 * means.T @ means),
            blur=read.ratio * unit**2 * sigma * at.length / (at.share * _SQUARES),
            weight=read.ratio * read.total,
        )

    def update(self, sums: Array, sigma: float, parameters: Parameters) -> Parameters:
        at = self._at(parameters)
        read = self._read(sums, sigma, at)
        scored = self.scored(sums, sigma, parameters)
        step = scored.step
        shrunk = np.maximum(read.events, 0.0) + read.noise * read.ratio
        ratios = shrunk / (np.maximum(read.gathered, 0.0) + read.noise)
        shift = at.radius * read.cross.sum(axis=0) / read.total
        centre = self.covariates.inside(at.centre + shift)
        hazards = at.hazards + np.log(ratios) - step @ centre
        effects = at.effects + step
        stop = at.stop
        if not at.effects.any():
            gathered = np.cumsum(np.exp(hazards + effects @ centre))
            square = np.linalg.norm(scored.noise, 2) / (at.length**2 * (self.rounds - 1))
            noise = float(square / scored.above_noise[0][0])
            stop = self._stop(gathered, max(scored.variance(step), 0.01), read.events, noise)
        return np.concatenate([effects, hazards, centre, [stop]]).astype(np.float32)

    def guessed(self, guess: Guess, records: float, sigma: float) -> Scored:
        """As if nothing were correlated, and the means of numbers lay beside their middles."""
        moments, length = self.covariates.moments(guess), _length(_PLANNED)
        means = moments[0, 1:]
        unit = self.covariates.radius(means + 0.25 * np.array(self.covariates.number))
        spread = moments[1:, 1:] - np.outer(means, means)
        return Scored(
            at=0.0 * means,
            score=0.0 * means,
            information=max(records, 1.0) * guess.event * spread,
            noise=(sigma * unit * length) ** 2 * np.eye(self.width),
            blur=unit**2 * sigma * length / (_share(_PLANNED) * _SQUARES),
            weight=max(records, 1.0) * guess.event,
        )

    def _stop(self, gathered: Array, risks: float, events: Array, noise: float) -> float:
        """That which comes after almost all events, and leaves effects least uncertain.

        Args:
            gathered: (bins,) by records at the centre.
            risks: variance of the logarithms of others' hazards, as if they were normal.
            events: (bins,) noisy.
            noise: variance of the noise in the scores of all sums, were records of length 1, over
                the information of all events.
        """
        from scipy.special import ndtr  # which takes long to import

        seen = np.maximum(events, 0.0)
        before = ndtr((np.log(_STOPS[:, None] / gathered) - risks) / math.sqrt(risks))
        kept = np.maximum(before @ seen / max(float(seen.sum()), 1e-300), 1e-9)
        lengths = np.array([_length(stop) for stop in _STOPS])
        uncertain = 1.0 / kept + noise * (lengths / kept) ** 2
        enough = (kept >= _KEPT) | (kept == kept.max())
        return float(_STOPS[np.argmin(np.where(enough, uncertain, math.inf))])

    def _at(self, parameters: Parameters) -> _At:
        """Parameters, made possible whatever they are."""
        whole = np.nan_to_num(parameters.astype(np.float64))
        effects, hazards, centre, stop = np.split(
            np.clip(whole, -STEEPEST, STEEPEST), np.cumsum([self.width, self._bins, self.width])
        )
        inside = self.covariates.inside(centre)
        bound = min(max(float(stop[0]), _LEAST), _LARGEST)
        radius = self.covariates.radius(inside)
        return _At(effects, hazards, inside, bound, radius, _length(bound), _share(bound))

    def _read(self, sums: Array, sigma: float, at: _At) -> _Read:
        """The parts of a sum, each in its own unit."""
        bins, width = self._bins, self.width
        parts = np.split(sums * at.length, np.cumsum([bins, width, bins, width * self._pieces]))
        left, gathered = parts[0] / _BASE, parts[2] / (at.share * _GATHERED)
        noise = sigma * at.length * math.hypot(1 / _BASE, 1 / (at.share * _GATHERED))
        total = max(float(gathered.sum()), noise)
        return _Read(
            left=left,
            score=parts[1],
            gathered=gathered,
            cross=parts[3].reshape(self._pieces, width) / (at.share * _CROSS),
            squares=self._triangle.matrix(parts[4]) / (at.share * _SQUARES),
            events=left + gathered,
            total=total,
            ratio=max(float(left.sum()) / total + 1.0, 1e-3),
            noise=noise,
        )

    @cached_property
    def _sets(self) -> RiskSets:
        return RiskSets(time=self.time, event=self.event, edges=self.edges)

    @property
    def _bins(self) -> int:
        return self._sets.bins

    @property
    def width(self) -> int:
        """How many effects there are."""
        return self.covariates.width - 1

    @property
    def _pieces(self) -> int:
        return min(_PIECES, self._bins)

    @property
    def _in_piece(self) -> Array:
        """(bins, pieces) 1 where a bin lies in a piece."""
        return np.eye(self._pieces)[np.arange(self._bins) * self._pieces // self._bins]


class _At(NamedTuple):
    """Public numbers at which a sum is taken, and what follows from them."""

    effects: Array
    hazards: Array  # logarithms, of records whose covariates are 0
    centre: Array
    stop: float
    radius: float  # of the covariates around their centre
    length: float  # of the longest record, before it is divided by it
    share: float  # what the parts of the information are multiplied by


class _Read(NamedTuple):
    """The parts of a noisy sum; covariates less their centre are in units of the radius."""

    left: Array  # (bins,) events less what was gathered
    score: Array
    gathered: Array
    cross: Array  # (pieces, q)
    squares: Array
    events: Array
    total: float  # that was gathered
    ratio: float  # of events to that
    noise: float  # standard deviation, of the events of a bin


def _length(stop: float) -> float:
    """The longest that a record can be with this stop (docs/privacy.md P23)."""
    return math.sqrt(max(1 + _BASE**2, stop**2 * (1 + _BASE**2 + _share(stop) ** 2)))


def _share(stop: float) -> float:
    """The largest share of the information that makes no record longer, or enough of it."""
    square = 1 + _BASE**2
    return math.sqrt(max(min(square * (stop**-2 - 1), 2 / stop - square), _LEAST_SHARE))
