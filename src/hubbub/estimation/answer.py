"""What becomes of a noisy sum: rows, curves and tests, each with what is not known about it.

Plain values that know how they are written down, and nothing of how they were found. All of them
follow from noisy sums and public numbers alone.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One number of a table, and the interval that sampling and noise leave for it.

    Args:
        quantity: what it is: "records", "share", "mean", "hazard ratio" and the like.
        column: the column it is about; empty where it is about whole records.
        level: the category or class, empty where there is none.
        group: the group of records, empty for all.
        value: the estimate, in the unit of the quantity.
        standard_error: of sampling and noise together; of the logarithm for a ratio.
        low: lower end of the interval.
        high: upper end of the interval.
        p_value: of the test that a ratio is 1 or a slope 0; None where nothing is tested.
    """

    quantity: str
    column: str = ""
    level: str = ""
    group: str = ""
    value: float
    standard_error: float
    low: float
    high: float
    p_value: float | None = None

    def __post_init__(self) -> None:
        """Keeps Python's own floats."""
        for name in ("value", "standard_error", "low", "high"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class NoisyTest:
    """A test whose p-value takes the noise into account.

    Args:
        name: "chi-square" or "log-rank".
        statistic: compared with a chi-square distribution; no unit.
        degrees: of freedom.
        p_value: probability of such a statistic or a larger one if nothing differs.
        z: signed root of the statistic, the first group's excess of events; None where there are
            more than two groups.
    """

    name: str
    statistic: float
    degrees: int
    p_value: float
    z: float | None = None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A step function with point-wise intervals and, for survival, a band and numbers at risk.

    Args:
        name: of its group, empty for all records.
        x: where it is known, in the unit of its column.
        y: its value from each x to the next.
        low: lower ends of the point-wise intervals.
        high: their upper ends.
        band_low: lower ends of the band that holds the whole curve with the stated confidence.
        band_high: its upper ends.
        at_risk: records at risk just after each x, with noise.
        at_risk_error: standard error of these numbers.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    band_low: tuple[float, ...] = ()
    band_high: tuple[float, ...] = ()
    at_risk: tuple[float, ...] = ()
    at_risk_error: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to one statistic of a study.

    Args:
        kind: the statistic's kind, "table" for example.
        title: one line that says what is shown.
        confidence: probability with which each interval holds its true value.
        rows: numbers of a table.
        curves: curves over a grid.
        tests: results of tests.
        notes: sentences that a reader needs: what was left out, what an estimate means.
        refusal: why nothing is shown, in one sentence; empty where there is an answer.
    """

    kind: str
    title: str
    confidence: float
    rows: tuple[Estimate, ...] = ()
    curves: tuple[Curve, ...] = ()
    tests: tuple[NoisyTest, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What can be said of an answer before any record is touched.

    Args:
        errors: expected standard errors by what they belong to, each in its own unit.
        sentence: the same in words.
        answered: whether the answer is expected to stand out from the noise.
    """

    errors: tuple[tuple[str, float], ...]
    sentence: str
    answered: bool


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
