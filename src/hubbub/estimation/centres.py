"""Which centre stands out: an outcome by centre, with the limits of a funnel and shrunken shares.

Theory of operation. A record's block is the one-hot vector of its centre and its outcome. If all
centres had the share p of all together, a centre of n records would be off by what drawing them and
the noise make of it: the funnel. What centres vary by beyond that, tau^2, is estimated by moments
(DerSimonian, Laird 1986) from shares whose variances hold the noise, and a centre's own share is
drawn to that of all by as much as its variance outweighs tau^2, with the error of Morris (1983),
which knows that tau^2 is an estimate. Whether a centre stands out is tested against the others,
adjusted after Holm over the centres. The mix of cases is not accounted for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hubbub.core.errors import StudyError
from hubbub.core.tabular.column import Column
from hubbub.core.tabular.levels import Array, Cells, Levels
from hubbub.estimation import intervals
from hubbub.estimation.stacking import Margins, number_of, of_parts
from hubbub.estimation.statistic import TOO_FEW, Answer, Estimate, Expectation, OneSum, one_hot
from hubbub.estimation.statistic_keys import BY, OUTCOME, StatisticKeys, table_of

_SHRUNKEN = 4  # centres from which on shares are drawn to one another


@dataclass(frozen=True, kw_only=True)
class Centres(OneSum):
    """The share of an outcome in each centre; records without one of the two are left out.

    Args:
        by: the centres.
        outcome: a column of two categories, of which the second is counted.
    """

    by: Levels
    outcome: Column

    kind = "centres"
    keys: ClassVar = {"by": BY, "outcome": OUTCOME}
    methods = (
        "centres were compared with the overall share by limits that allow for sampling "
        "and noise, and their shares shrunk by the variance between centres"
    )
    sensitivity = 1.0  # docs/privacy.md P28
    diameter = math.sqrt(2.0)

    @classmethod
    def read(cls, keys: StatisticKeys) -> Centres:
        outcome = keys.column("outcome", pair=True)
        return cls(by=keys.levels("by"), outcome=outcome, **keys.common)

    def settings(self) -> dict[str, Any]:
        return table_of(by=self.by, outcome=self.outcome)

    def __post_init__(self) -> None:
        if len(self.by) < 3 or len(self.outcome.categories) != 2:
            raise StudyError(
                f"expected three centres or more and an outcome of two categories, found "
                f"{len(self.by)} of {self.by.column.name} and {self.outcome.name}; correct them"
            )
        if self.by.column.name == self.outcome.name:
            raise StudyError(
                f"expected an outcome that is not the centre, found {self.outcome.name} twice; "
                "name another"
            )

    @property
    def title(self) -> str:
        return f"{self.outcome.name} by {self.by.column.name}"

    @property
    def size(self) -> int:
        return 2 * len(self.by)

    def encode(self, cells: Cells) -> Array:
        centre, outcome = self.by.places(cells), Levels(column=self.outcome).places(cells)
        known = (centre >= 0) & (outcome >= 0)
        return one_hot(np.where(known, 2 * centre + outcome, -1), self.size)

    @property
    def margins(self) -> Margins:
        """How many records there are, with each class and with two."""
        return of_parts((self.by, Levels(column=self.outcome)), {number_of(): np.ones(1)})

    def expected(self, records: float, sigma: float) -> Expectation:
        each = max(records / len(self.by), 1.0)
        error = math.sqrt(0.25 / each + (sigma / each) ** 2)
        told = f"shares of centres known to ±{100 * error:.2g} points (one standard error)"
        noise = sigma * math.sqrt(2.0)
        return self.make_expectation(
            {"share": error},
            sigma,
            told,
            answered=intervals.COMPLETE * each / 4 >= (intervals.CLEAR + intervals.SURE) * noise,
            possible=each >= intervals.CLEAR * noise,
            group=" of a centre",
        )

    def answer(self, sums: Array, sigma: float) -> Answer:
        counts = sums.reshape(-1, 2)
        margins = counts.sum(axis=1) / (sigma * math.sqrt(2.0)) - intervals.CLEAR
        kept = np.flatnonzero(margins >= 0)
        few = [name for place, name in enumerate(self.by.names) if place not in kept]
        notes = (
            (
                f"records without {self.by.column.name} or {self.outcome.name} are left out; "
                "differences in case mix are not taken into account"
            ),
            *(f"too few records of {name} for the noise" for name in few),
        )
        if len(kept) < 3:
            return self.make_answer(TOO_FEW, notes=notes[:1])
        centres = _Centres(counts[kept], sigma * intervals.caution(margins[kept]), self.confidence)
        names = [self.by.names[place] for place in kept]
        test = intervals.independence(counts[kept], np.diag(np.repeat(centres.noise, 2)))
        return self.make_answer(rows=tuple(self._rows(names, centres)), tests=(test,), notes=notes)

    def _rows(self, names: list[str], found: _Centres) -> list[Estimate]:
        own: dict[str, Any] = {"column": self.outcome.name, "level": self.outcome.categories[1]}
        p_values = found.p_values
        adjusted = intervals.holm(p_values)
        rows = [replace(found.whole, **own)]
        for place, name in enumerate(names):
            rows += [
                replace(found.records(place), column=self.outcome.name, group=name),
                replace(
                    found.share(place),
                    group=name,
                    p_value=p_values[place],
                    p_adjusted=adjusted[place],
                    **own,
                ),
                replace(found.funnel(place), group=name, **own),
            ]
            if len(names) >= _SHRUNKEN:
                rows.append(replace(found.shrunken(place), group=name, **own))
        return rows


class _Centres:
    """Noisy counts without and with the outcome, (centres, 2), each centre's with its own noise."""

    def __init__(self, counts: Array, sigmas: Array, confidence: float) -> None:
        self._counts, self._sigmas = counts, sigmas
        self._z = intervals.normal_quantile(confidence)
        self._n = counts.sum(axis=1)
        self._shares = np.clip(counts[:, 1] / self._n, 0.0, 1.0)
        self._p = float(np.clip(counts[:, 1].sum() / self._n.sum(), 0.0, 1.0))
        sampling = self._p * (1 - self._p) / self._n
        noise = self.noise * ((1 - self._p) ** 2 + self._p**2) / self._n**2
        self._variances = np.maximum(sampling + noise, 1e-12)  # of a share, if all are alike

    @property
    def noise(self) -> Array:
        """(centres,) variance of the noise in each count."""
        return np.asarray(self._sigmas**2)

    @property
    def whole(self) -> Estimate:
        """The share of all centres together."""
        sigma = math.sqrt(float(self.noise.mean()))
        places = np.tile([0.0, 1.0], len(self._n))
        return intervals.share(self._counts.ravel(), places, np.ones_like(places), sigma, self._z)

    def records(self, place: int) -> Estimate:
        """How many records a centre has."""
        error = float(self._sigmas[place]) * math.sqrt(2.0)
        return intervals.count(float(self._n[place]), error, self._z)

    def share(self, place: int) -> Estimate:
        """A centre's own share."""
        sigma = float(self._sigmas[place])
        return intervals.share(
            self._counts[place], np.array([0.0, 1.0]), np.ones(2), sigma, self._z
        )

    def funnel(self, place: int) -> Estimate:
        """Within which a centre of its size lies if all are alike."""
        error = math.sqrt(float(self._variances[place]))
        within, quantity = (0.0, 1.0), "share if all are alike"
        return intervals.estimate(self._p, error, self._z, within=within, quantity=quantity)

    def shrunken(self, place: int) -> Estimate:
        """A centre's share, drawn to that of all, whose error knows that tau^2 is estimated."""
        number, between = len(self._shares), self.between
        mean = float(self._weights @ self._shares / self._weights.sum())
        own, variance = float(self._shares[place]), float(self._variances[place])
        drawn = (number - 3) / (number - 1) * variance / (variance + between)
        typical = float(self._weights @ self._variances / self._weights.sum())
        doubt = 2 / (number - 3) * drawn**2 * (typical + between) / (variance + between)
        value = own - drawn * (own - mean)
        error = math.sqrt(
            variance * (1 - (number - 1) / number * drawn) + doubt * (own - mean) ** 2
        )
        return intervals.estimate(
            value, error, self._z, within=(0.0, 1.0), quantity="share, shrunken"
        )

    @property
    def between(self) -> float:
        """tau^2: the variance of centres beyond drawing and noise, by moments."""
        weights = 1.0 / self._variances
        mean = float(weights @ self._shares / weights.sum())
        spread = float(weights @ (self._shares - mean) ** 2)
        freedom = float(weights.sum() - weights @ weights / weights.sum())
        return max((spread - (len(weights) - 1)) / freedom, 0.0)

    @property
    def _weights(self) -> Array:
        return np.asarray(1.0 / (self._variances + self.between))

    @property
    def p_values(self) -> list[float]:
        """(centres,) of the test that a centre has the share of all."""
        part = self._n / self._n.sum()
        each = self._variances * self._n**2  # of what a centre has too much
        variance = (1 - 2 * part) * each + part**2 * each.sum()
        excess = self._counts[:, 1] - self._p * self._n
        return [intervals.two_sided(z) for z in excess / np.sqrt(variance)]
