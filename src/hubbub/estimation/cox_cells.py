"""Cox regression on covariates with few classes, from one noisy sum.

Theory of operation. Records are summed like those of survival curves, by pattern of covariates as
`pattern_layout` says it, and each stratum of it in a place of its own. The score (`cox_score`) is
linear in the noise up to second order, so the effects have the covariance I^-1 (I + C) I^-1, with
the information I and the covariance C of the noise in the score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.estimation.asked_keys import StatisticKeys, classes_told, covariates_table, grid_table
from hubbub.estimation.covariates import FOLLOWED_OUT, SKEWED, Guess, Patterns
from hubbub.estimation.cox_score import PartialLikelihood, Stratum
from hubbub.estimation.effects import Effects, Regression
from hubbub.estimation.pattern_regression import (
    ASKED_OF_PATTERNS,
    PatternRegression,
    patterns_asked,
)
from hubbub.estimation.risk_sets import OnRiskSets, RiskSets
from hubbub.estimation.shared_margins import Margins
from hubbub.estimation.statistic import Answer, Array, Cells, Expectation, Iterated, Levels, OneSum

_TEST = "proportional-hazards"
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
    keys = (
        *("time", "event", "entry", "covariates", "reference", "bins", "horizon"),
        *("strata", "test"),
        *ASKED_OF_PATTERNS,
    )
    ratio = "hazard ratio"
    note = "records that lack time, event or a covariate are left out"

    @classmethod
    def read(cls, keys: StatisticKeys) -> OneSum | Iterated:
        """The statistic that a table of a study asks for."""
        from hubbub.estimation.cox_newton import cox  # whose class is one of these

        grid = keys.survived(_BINS)
        on = keys.covariates(grid["time"], grid["event"])
        more = patterns_asked(keys, on)
        for key in ("strata", "test", "entry"):
            if key in keys.section and not all(isinstance(covariate, Levels) for covariate in on):
                raise keys.section.refusal(
                    key, "absent beside covariates that are numbers", "give them break points"
                )
        if "strata" in keys.section:
            more["strata"] = keys.levels("strata")
        if keys.test(_TEST):
            more["test"] = True
        return cox(**grid, on=on, **more, **keys.common)

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        on = covariates_table(self.on)
        return {**grid_table(self.time, self.event, self.edges), **on}

    @property
    def explained(self) -> str:
        """The names of its event and its time."""
        return f"{self.event.name} over {self.time.name}"


@dataclass(frozen=True, kw_only=True)
class Cox(HazardRatios, PatternRegression, OnRiskSets):
    """Hazard ratios between classes, from one sum; all covariates have classes.

    Args:
        strata: classes within which records are compared; each has a hazard of its own.
        test: whether it is tested that hazards are proportional.
        entry: a numeric column that says since when a record was observed; None if all were from
            the start (docs/privacy.md P34).
    """

    on: tuple[Levels, ...]
    strata: Levels | None = None
    test: bool = False
    entry: Column | None = None

    skewed = (SKEWED, FOLLOWED_OUT)

    def __post_init__(self) -> None:
        """Refuses a grid, an event, covariates or strata that are none."""
        super().__post_init__()
        if self.strata and self.strata.column.name in [
            covariate.column.name for covariate in self.on
        ]:
            raise StudyError(
                f"expected strata of a column that is no covariate, found "
                f"{self.strata.column.name}; name another"
            )
        _ = self.sets

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        strata = {"strata": classes_told(self.strata)} if self.strata else {}
        tested = {"test": _TEST} if self.test else {}
        entry = {"entry": self.entry.name} if self.entry else {}
        return {**super().settings(), **entry, **strata, **tested, **self.asked_of_patterns()}

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
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
        """What may be said with about so many records and this noise in its block.

        As if columns were independent, events and losses even over time.
        """
        bins = self.sets.bins

        def found(guess: Guess) -> Effects | None:
            each = max(records, 1.0) * self._parts.shares(guess)[:, None]
            each = each * self.sets.entered[:-1]
            events = each * guess.event / bins
            gone = guess.event + (1.0 - guess.event) / 2
            at_risk = each * (1.0 - gone * np.arange(bins) / bins)
            return self._likelihood(events, at_risk, self.design, sigma).fit()

        return self.expected_with(found, sigma, "logarithm of a hazard ratio")

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        cells = self.by_pattern(sums).reshape(-1, self.sets.width)
        answer = self.told_of(cells, sigma)
        if not self.test or answer.refusal:
            return answer
        likelihood = self._of_cells(cells, self.design, sigma)
        fit = likelihood.fit()
        tested = fit and likelihood.proportional(fit.values)
        return replace(answer, tests=(*answer.tests, *([tested] if tested else [])))

    def fitted(
        self, cells: Array, design: Array, sigma: float, kept: NDArray[np.bool_] | None = None
    ) -> Effects | None:
        """Effects on the hazard from noisy cells of patterns and strata, (parts, width)."""
        return self._of_cells(cells, design, sigma, kept).fit()

    def _of_cells(
        self, cells: Array, design: Array, sigma: float, kept: NDArray[np.bool_] | None = None
    ) -> PartialLikelihood:
        events, at_risk = cells @ self.sets.events.T, cells @ self.sets.exposed[:-1].T
        return self._likelihood(events, at_risk, design, sigma, kept)

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
        number = self._strata
        strata = [
            Stratum(
                sets=self.sets,
                design=design[chosen],
                events=events[place::number][chosen],
                at_risk=at_risk[place::number][chosen],
                sigma=sigma,
                mixed=self.layout.counts[chosen],
            )
            for place in range(number)
        ]
        if self.strata or self.entry:  # bins that few have reached
            strata = [one for one in (each.clear() for each in strata) if one.bins]
        return PartialLikelihood(strata)

    @property
    def title(self) -> str:
        """What it shows, in one line."""
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
        return RiskSets(
            time=self.time,
            event=self.event,
            edges=self.edges,
            groups=len(self._parts),
            power=_POWER,
            entry=self.entry,
        )
