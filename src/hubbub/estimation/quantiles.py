"""Quantiles of a numeric column, and the distribution function that they are read from.

A record's block is its bin's column of a prefix code. An interval holds every bin in which the
noisy distribution function may pass the probability (Woodruff 1952); its ends are edges of bins,
so that nothing has to be assumed of how values lie inside one. The estimate itself spreads them
evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from hubbub.errors import StudyError
from hubbub.estimation.asked_keys import StatisticKeys
from hubbub.estimation.intervals import CLEAR, COMPLETE, SURE, caution, normal_quantile, share
from hubbub.estimation.prefix_coding import PrefixCode, rising
from hubbub.estimation.statistic import (
    TOO_FEW,
    Answer,
    Array,
    Cells,
    Curve,
    Estimate,
    Expectation,
    Levels,
    OneSum,
)
from hubbub.tabular import Column

_POWER = 0.45
_BINS = 64  # if nothing is said


@dataclass(frozen=True, kw_only=True)
class Quantiles(OneSum):
    """Quantiles of a numeric column; records without a value are left out.

    Args:
        column: a numeric column.
        edges: increasing edges of the bins in the column's unit, the public bounds outermost.
        at: probabilities, each between 0 and 1.
        weight, confidence: see `Statistic`.

    Raises:
        StudyError: edges that do not increase inside the bounds, or probabilities out of range.
    """

    column: Column
    edges: tuple[float, ...]
    at: tuple[float, ...] = (0.25, 0.5, 0.75)

    kind = "quantiles"
    keys = ("column", "at", "bins")

    @classmethod
    def read(cls, keys: StatisticKeys) -> Quantiles:
        """The statistic that a table of a study asks for."""
        column = keys.column("column", numeric=True)
        at = keys.numbers("at", cls.at)
        if not at or any(a >= b for a, b in pairwise((0.0, *at, 1.0))):
            raise keys.section.refusal(
                "at", "probabilities between 0 and 1 that rise", "write it like [0.25, 0.5, 0.75]"
            )
        return cls(column=column, at=at, edges=keys.edges(column, _BINS), **keys.common)

    def settings(self) -> dict[str, Any]:
        """The keys that it is read from."""
        bins = list(self.edges[1:-1])
        return {"column": self.column.name, "at": list(self.at), "bins": bins}

    def __post_init__(self) -> None:
        """Refuses edges and probabilities that are none."""
        _ = self._levels
        if not self.at or not all(0 < p < 1 for p in self.at):
            raise StudyError(
                f"expected probabilities between 0 and 1, found {list(self.at)}; write for example "
                "at = [0.25, 0.5, 0.75]"
            )

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return f"Quantiles of {self.column.name}"

    @property
    def size(self) -> int:
        """How many numbers its block has."""
        return len(self.edges) - 1

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of one record's block (docs/privacy.md P23)."""
        return self._code.sensitivity

    @property
    def diameter(self) -> float:
        """The largest L2 distance of two records' blocks (docs/privacy.md P23)."""
        return self._code.diameter

    def encode(self, cells: Cells) -> Array:
        """The blocks of n records, (n, size)."""
        return self._code.encode(self._levels.places(cells))

    def expected(self, records: float, sigma: float) -> Expectation:
        """What may be said with about so many records and this noise in its block.

        The error in the column's unit is that of the median, if values lie in its range like a
        bell six standard deviations wide.
        """
        records = max(records, 1.0)
        totals = self._code.totals
        noise = sigma * float(np.linalg.norm(totals[self.size // 2] - 0.5 * totals[-1])) / records
        error = math.sqrt(0.25 / records + noise**2)
        unit = error * (self.edges[-1] - self.edges[0]) / 2.4
        clear = records / (sigma * float(np.linalg.norm(totals[-1])))
        told = (
            f"quantiles known to ±{100 * error:.2g} points of probability, about ±{unit:.2g} in "
            "the column's unit and never closer than a bin (one standard error)"
        )
        errors = {"probability": error, "value": unit}
        return self.make_expectation(
            errors,
            sigma,
            told,
            answered=COMPLETE * clear >= CLEAR + SURE,
            possible=clear >= CLEAR,
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        """The answer from a noisy sum (size,) whose numbers have independent noise of sd sigma."""
        last = self._code.totals[-1]
        margin = float(last @ sums) / (sigma * float(np.linalg.norm(last))) - CLEAR
        notes = (f"records without {self.column.name} are left out",)
        if margin < 0:
            return self.make_answer(TOO_FEW, notes=notes)
        sigma *= float(caution(np.array(margin)))
        rows = tuple(self._quantile(p, sums, sigma) for p in self.at)
        return self.make_answer(rows=rows, curves=(self._curve(sums, sigma),), notes=notes)

    def _quantile(self, p: float, sums: Array, sigma: float) -> Estimate:
        totals, edges = self._code.totals, np.asarray(self.edges)
        known = np.concatenate([[0.0], totals @ sums])
        errors = np.concatenate([[0.0], sigma * np.linalg.norm(totals - p * totals[-1], axis=1)])
        errors = np.sqrt(errors**2 + p * (1 - p) * known[-1])
        excess, reach = known - p * known[-1], normal_quantile(self.confidence) * errors
        excess[0], excess[-1] = -np.inf, np.inf  # it lies inside the public bounds
        first = int(np.argmax(excess >= -reach))
        last = int(np.flatnonzero(excess <= reach)[-1])
        error = errors[int(np.argmin(np.abs(excess)))] / known[-1]
        spread = self._inverse(np.array([p - error, p, p + error]), sums)
        return Estimate(
            quantity="quantile",
            column=self.column.name,
            level=f"{p:g}",
            value=float(spread[1]),
            standard_error=float(spread[2] - spread[0]) / 2,
            low=float(edges[first - 1]),
            high=float(edges[last + 1]),
        )

    def _inverse(self, probabilities: Array, sums: Array) -> Array:
        """Where the monotone distribution function has these values."""
        shares = self._monotone(sums)
        strictly = np.concatenate([[0.0], shares]) + np.linspace(0.0, 1e-9, len(self.edges))
        return np.asarray(np.interp(probabilities, strictly, self.edges))

    def _monotone(self, sums: Array) -> Array:
        """(size,) the distribution function at the upper edges, made to rise from 0 to 1."""
        totals = self._code.totals @ sums
        shares = rising(np.clip(totals / totals[-1], 0.0, 1.0))
        shares[-1] = 1.0
        return shares

    def _curve(self, sums: Array, sigma: float) -> Curve:
        totals, z = self._code.totals, normal_quantile(self.confidence)
        found = [share(sums, total, totals[-1], sigma, z) for total in totals[:-1]]
        return Curve(
            name=self.column.name,
            x=self.edges,
            y=(0.0, *map(float, self._monotone(sums))),
            low=(0.0, *(one.low for one in found), 1.0),
            high=(0.0, *(one.high for one in found), 1.0),
        )

    @property
    def _levels(self) -> Levels:
        return Levels(column=self.column, cuts=self.edges[1:-1])

    @property
    def _code(self) -> PrefixCode:
        return PrefixCode(bins=self.size, power=_POWER)
